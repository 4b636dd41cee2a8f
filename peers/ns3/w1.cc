// Workload W1 on ns-3, as light as its own models permit: point-to-point devices and channels, drop-tail queues, and a layer-2 switch that
// is one callback. A two-level fat tree; every host sends to one other host (a one-cycle random permutation), paced at line rate; a random
// spine for each packet.
//
// What is left out because the workload does not need it: IP, UDP, ARP, traffic control, routing tables, packet tags, tracing. A packet's
// destination and spine are looked up by its uid instead of being carried in a header.
//
// Prints one JSON object. A packet-hop is a packet that leaves a transmitter; the time is the CPU time of the event loop alone.

#include <ns3/core-module.h>
#include <ns3/network-module.h>
#include <ns3/point-to-point-channel.h>
#include <ns3/point-to-point-net-device.h>

#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <iostream>
#include <numeric>
#include <random>
#include <vector>

using namespace ns3;

namespace
{

constexpr uint32_t PAYLOAD_BYTES = 1024;
constexpr uint32_t OVERHEAD_BYTES = 57;
// The device puts its own two bytes in front of what it is given.
constexpr uint32_t PPP_HEADER_BYTES = 2;
constexpr uint32_t QUEUE_PACKETS = 1024;
constexpr uint16_t IPV4_PROTOCOL = 0x0800;

struct Shape
{
    uint32_t leaves = 32;
    uint32_t hosts_per_leaf = 32;
    uint32_t spines = 32;
    uint32_t packets_per_host = 1024;
    uint64_t seed = 1;

    uint32_t Hosts() const
    {
        return leaves * hosts_per_leaf;
    }

    uint32_t Packets() const
    {
        return Hosts() * packets_per_host;
    }
};

// Where a packet goes, looked up by uid.
struct Label
{
    uint16_t destination;
    uint16_t spine;
};

struct Counters
{
    uint64_t packet_hops = 0;
    uint64_t packets_dropped = 0;
    uint64_t packets_delivered = 0;
};

// The network and what is on it. Devices are held by plain pointers: nothing is added or removed while the simulation runs.
class FatTree
{
  public:
    explicit FatTree(const Shape& shape)
        : m_shape(shape),
          m_random(shape.seed),
          m_sent(shape.Hosts(), 0),
          m_to_network(shape.Hosts()),
          m_to_host(shape.Hosts()),
          m_to_spine(shape.leaves * shape.spines),
          m_to_leaf(shape.leaves * shape.spines)
    {
        BuildHostLinks();
        BuildFabricLinks();
        DrawPermutation();
        // Uids count from the first packet of the process, so that a packet's label is at its uid.
        m_first_uid = Create<Packet>()->GetUid() + 1;
        m_labels.resize(shape.Packets());
    }

    // Every host sends its first packet; each transmission that begins puts the next packet into the queue, which paces the host at line
    // rate without an event of its own.
    void Start()
    {
        for (uint32_t host = 0; host < m_shape.Hosts(); ++host)
        {
            SendNext(host);
        }
    }

    const Counters& Count() const
    {
        return m_counters;
    }

    // How many hops there are if nothing is lost.
    uint64_t ExpectedPacketHops() const
    {
        uint64_t hops = 0;
        for (uint32_t host = 0; host < m_shape.Hosts(); ++host)
        {
            const bool same_leaf = Leaf(host) == Leaf(m_destination[host]);
            hops += uint64_t{m_shape.packets_per_host} * (same_leaf ? 2 : 4);
        }
        return hops;
    }

  private:
    uint32_t Leaf(uint32_t host) const
    {
        return host / m_shape.hosts_per_leaf;
    }

    static Ptr<PointToPointNetDevice> MakeDevice(const Ptr<Node>& node)
    {
        auto device = CreateObject<PointToPointNetDevice>();
        device->SetAttribute("DataRate", StringValue("100Gbps"));
        auto queue = CreateObject<DropTailQueue<Packet>>();
        queue->SetAttribute("MaxSize", QueueSizeValue(QueueSize(QueueSizeUnit::PACKETS, QUEUE_PACKETS)));
        device->SetQueue(queue);
        device->SetAddress(Mac48Address::Allocate());
        node->AddDevice(device);
        return device;
    }

    static void Join(const Ptr<PointToPointNetDevice>& a, const Ptr<PointToPointNetDevice>& b)
    {
        auto channel = CreateObject<PointToPointChannel>();
        channel->SetAttribute("Delay", TimeValue(NanoSeconds(300)));
        a->Attach(channel);
        b->Attach(channel);
    }

    void BuildHostLinks()
    {
        for (uint32_t leaf = 0; leaf < m_shape.leaves; ++leaf)
        {
            m_leaf_nodes.push_back(CreateObject<Node>());
            for (uint32_t index = 0; index < m_shape.hosts_per_leaf; ++index)
            {
                const uint32_t host = leaf * m_shape.hosts_per_leaf + index;
                auto nic = MakeDevice(CreateObject<Node>());
                auto port = MakeDevice(m_leaf_nodes[leaf]);
                Join(nic, port);
                nic->SetReceiveCallback(MakeCallback(&FatTree::ReceiveAtHost, this));
                nic->TraceConnectWithoutContext("PhyTxBegin", MakeBoundCallback(&FatTree::OnTransmissionBegins, this, host));
                port->SetReceiveCallback(MakeBoundCallback(&FatTree::ReceiveAtLeaf, this, leaf));
                m_to_network[host] = PeekPointer(nic);
                m_to_host[host] = PeekPointer(port);
            }
        }
    }

    void BuildFabricLinks()
    {
        for (uint32_t spine = 0; spine < m_shape.spines; ++spine)
        {
            m_spine_nodes.push_back(CreateObject<Node>());
            for (uint32_t leaf = 0; leaf < m_shape.leaves; ++leaf)
            {
                auto up = MakeDevice(m_leaf_nodes[leaf]);
                auto down = MakeDevice(m_spine_nodes[spine]);
                Join(up, down);
                up->SetReceiveCallback(MakeBoundCallback(&FatTree::ReceiveAtLeaf, this, leaf));
                down->SetReceiveCallback(MakeBoundCallback(&FatTree::ReceiveAtSpine, this, spine));
                m_to_spine[leaf * m_shape.spines + spine] = PeekPointer(up);
                m_to_leaf[spine * m_shape.leaves + leaf] = PeekPointer(down);
            }
        }
    }

    // One cycle through all hosts in random order, so that nobody sends to itself.
    void DrawPermutation()
    {
        std::vector<uint32_t> order(m_shape.Hosts());
        std::iota(order.begin(), order.end(), 0);
        std::shuffle(order.begin(), order.end(), m_random);
        m_destination.resize(order.size());
        for (size_t index = 0; index < order.size(); ++index)
        {
            m_destination[order[index]] = static_cast<uint16_t>(order[(index + 1) % order.size()]);
        }
    }

    void SendNext(uint32_t host)
    {
        if (m_sent[host] == m_shape.packets_per_host)
        {
            return;
        }
        ++m_sent[host];
        auto packet = Create<Packet>(PAYLOAD_BYTES + OVERHEAD_BYTES - PPP_HEADER_BYTES);
        // Multiplication instead of a division or a rejection loop: the draw must cost the peer nothing that can be saved.
        const auto spine = static_cast<uint16_t>((uint64_t{static_cast<uint32_t>(m_random())} * m_shape.spines) >> 32);
        m_labels[packet->GetUid() - m_first_uid] = Label{m_destination[host], spine};
        Forward(m_to_network[host], packet);
    }

    void Forward(PointToPointNetDevice* port, const Ptr<Packet>& packet)
    {
        if (port->Send(packet, m_nobody, IPV4_PROTOCOL))
        {
            ++m_counters.packet_hops;
        }
        else
        {
            ++m_counters.packets_dropped;
        }
    }

    const Label& LabelOf(const Ptr<const Packet>& packet) const
    {
        return m_labels[packet->GetUid() - m_first_uid];
    }

    static void OnTransmissionBegins(FatTree* self, uint32_t host, Ptr<const Packet>)
    {
        self->SendNext(host);
    }

    bool ReceiveAtHost(Ptr<NetDevice>, Ptr<const Packet>, uint16_t, const Address&)
    {
        ++m_counters.packets_delivered;
        return true;
    }

    static bool ReceiveAtLeaf(FatTree* self, uint32_t leaf, Ptr<NetDevice>, Ptr<const Packet> packet, uint16_t, const Address&)
    {
        const Label& label = self->LabelOf(packet);
        PointToPointNetDevice* port = self->Leaf(label.destination) == leaf
                                          ? self->m_to_host[label.destination]
                                          : self->m_to_spine[leaf * self->m_shape.spines + label.spine];
        self->Forward(port, ConstCast<Packet>(packet));
        return true;
    }

    static bool ReceiveAtSpine(FatTree* self, uint32_t spine, Ptr<NetDevice>, Ptr<const Packet> packet, uint16_t, const Address&)
    {
        const uint32_t leaf = self->Leaf(self->LabelOf(packet).destination);
        self->Forward(self->m_to_leaf[spine * self->m_shape.leaves + leaf], ConstCast<Packet>(packet));
        return true;
    }

    Shape m_shape;
    std::mt19937_64 m_random;
    Counters m_counters;
    uint64_t m_first_uid = 0;
    std::vector<Label> m_labels;
    std::vector<uint16_t> m_destination;
    std::vector<uint32_t> m_sent;
    std::vector<Ptr<Node>> m_leaf_nodes;
    std::vector<Ptr<Node>> m_spine_nodes;
    std::vector<PointToPointNetDevice*> m_to_network;
    std::vector<PointToPointNetDevice*> m_to_host;
    std::vector<PointToPointNetDevice*> m_to_spine;
    std::vector<PointToPointNetDevice*> m_to_leaf;
    const Address m_nobody = Mac48Address::GetBroadcast();
};

double CpuSeconds()
{
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

} // namespace

int main(int argc, char** argv)
{
    Shape shape;
    // The fastest of ns-3's own for this workload; its default, the MapScheduler, is about a quarter slower.
    std::string scheduler = "ns3::PriorityQueueScheduler";
    CommandLine arguments(__FILE__);
    arguments.AddValue("leaves", "number of leaf switches", shape.leaves);
    arguments.AddValue("hosts-per-leaf", "number of hosts at each leaf", shape.hosts_per_leaf);
    arguments.AddValue("spines", "number of spine switches", shape.spines);
    arguments.AddValue("packets", "packets that each host sends", shape.packets_per_host);
    arguments.AddValue("seed", "seed of the permutation and of the choice of spines", shape.seed);
    arguments.AddValue("scheduler", "ns-3's event queue", scheduler);
    arguments.Parse(argc, argv);
    if (shape.Hosts() < 2 || shape.Hosts() > 65536 || shape.spines < 1 || shape.spines > 65536)
    {
        std::cerr << "expected 2 to 65536 hosts and 1 to 65536 spines\n";
        return 2;
    }

    // A frame of 1081 bytes takes 86.48 ns.
    Time::SetResolution(Time::PS);
    ObjectFactory factory(scheduler);
    Simulator::SetScheduler(factory);

    FatTree network(shape);
    network.Start();
    const double begin = CpuSeconds();
    Simulator::Run();
    const double cpu_s = CpuSeconds() - begin;
    const uint64_t events = Simulator::GetEventCount();
    const double simulated_us = Simulator::Now().GetSeconds() * 1e6;
    Simulator::Destroy();

    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const Counters& count = network.Count();
    std::cout << "{\"simulator\": \"ns-3\", \"name\": \"w1\", \"scheduler\": \"" << scheduler << "\""
              << ", \"hosts\": " << shape.Hosts() << ", \"packets\": " << shape.Packets()
              << ", \"packet_hops\": " << count.packet_hops << ", \"packet_hops_expected\": " << network.ExpectedPacketHops()
              << ", \"packets_delivered\": " << count.packets_delivered << ", \"packets_dropped\": " << count.packets_dropped
              << ", \"events\": " << events << ", \"simulated_us\": " << simulated_us << ", \"cpu_s\": " << cpu_s
              << ", \"packet_hops_per_cpu_s\": " << static_cast<double>(count.packet_hops) / cpu_s
              << ", \"peak_rss_bytes\": " << static_cast<uint64_t>(usage.ru_maxrss) * 1024 << "}" << std::endl;
    return 0;
}
