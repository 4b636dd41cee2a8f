//! The frames that packets of a simulation would be.
//!
//! Packets of NetReduce are those of network cards: RoCEv2 from worker to worker, past every accelerator, as `netreduce 2` has them. So are
//! those of machines, from the node that made them to the one that they are for, which is an accelerator or a worker. All others are Fanin's own, as they go between its processes: a datagram from one end of the link to the other, with the hop header, the
//! system's header, and the payload. Node n has the addresses 10.x.y.z and 02:fa:.. with n + 1 in their last bytes.

use std::collections::BTreeMap;

use etherparse::{EtherType, Ethernet2Header, IpEcn, IpNumber, Ipv4Header, UdpHeader};
use fanin_core::{FlowLabel, JobId, NodeId, TrafficClass, Wire};
use fanin_plan::{Prepared, PreparedJob};
use fanin_sim::trace::TracedPacket;
use fanin_systems::{AnyHeader, System, ring_order};
use fanin_wire::hop::{HopHeader, RestCheck};
use fanin_wire::link::{LINK_SYSTEM, LinkHeader};
use fanin_wire::netreduce::NetReduceHeader;
use fanin_wire::roce::{AETH, Aeth, BTH, Bth, Envelope, RETH, Reth, RoceHeader};

/// A packet of a simulation with elements.
pub type Traced = TracedPacket<AnyHeader, Box<[u8]>>;

/// The port that datagrams of simulated processes go to; real ones take any (docs/switch.md).
const PORT: u16 = 7_700;
/// Where ports begin that tell flows apart.
const EPHEMERAL: u16 = 0xC000;
/// Links of a simulation are never restarted.
const EPOCH: u32 = 1;
const HOPS: u8 = 64;
/// ECN of IP: able, and experienced.
const ECT0: u8 = 2;
const CE: u8 = 3;

/// Makes frames of the packets of one run.
pub struct Frames<'a> {
    prepared: &'a Prepared,
    /// By link: the number of its next packet.
    sequences: BTreeMap<u32, u32>,
    /// By job of NetReduce and rank: the host of the receiver of the connection that begins there. Empty for jobs of other systems.
    receivers: Vec<Vec<NodeId>>,
}

impl<'a> Frames<'a> {
    /// Nothing has been sent.
    pub fn new(prepared: &'a Prepared) -> Self {
        Frames { prepared, sequences: BTreeMap::new(), receivers: prepared.jobs.iter().map(receivers).collect() }
    }

    /// The frame of a packet.
    pub fn frame(&mut self, packet: &Traced) -> Vec<u8> {
        match packet.header {
            AnyHeader::NetReduce(header) if !packet.background => self.roce(packet, &header),
            _ => self.datagram(packet),
        }
    }

    /// RoCEv2.
    fn roce(&self, packet: &Traced, header: &NetReduceHeader) -> Vec<u8> {
        let (from, to) = self.ends(packet, header);
        let mut head = [0; NetReduceHeader::MAX_LEN];
        let length = header.emit(&mut head);
        let bth = Bth::parse(&head).expect("what was written can be read");
        let rest = &head[BTH..length];
        // What follows the BTH of packets between switches is theirs, and so payload to everybody else.
        let (reth, aeth, ours) = match header {
            NetReduceHeader::First { .. } => (Reth::parse(rest).ok(), None, RETH),
            NetReduceHeader::Ack { .. } | NetReduceHeader::Nak { .. } => (None, Aeth::parse(rest).ok(), AETH),
            _ => (None, None, 0),
        };
        let payload = [&rest[ours..], &packet.payload].concat();
        let envelope = Envelope {
            macs: [mac(to), mac(from)],
            addresses: [ip(from), ip(to)],
            service: if packet.ecn { CE } else { ECT0 },
            identification: 0,
            hops: HOPS,
            source_port: EPHEMERAL | (bth.queue_pair as u16 & !EPHEMERAL),
            dont_fragment: true,
            tags: [None; 2],
        };
        let header = RoceHeader { envelope, bth, reth, aeth, immediate: None };
        let mut frame = vec![0; header.frame_len(payload.len())];
        header.emit(&payload, &mut frame);
        frame
    }

    /// Between whom a packet goes. Workers of NetReduce know their neighbours in the ring only, and no switch, so accelerators have no
    /// addresses; a connection of machines is between any two of them, or with an accelerator that they know.
    fn ends(&self, packet: &Traced, header: &NetReduceHeader) -> (NodeId, NodeId) {
        let job = packet.job.index();
        let neighbours = |rank: u16| {
            let (hosts, receivers) = (&self.prepared.jobs[job].hosts, self.receivers.get(job)?);
            Some((*hosts.get(usize::from(rank))?, *receivers.get(usize::from(rank))?))
        };
        let known = match *header {
            NetReduceHeader::First { connection, .. } | NetReduceHeader::Next { connection, .. } => neighbours(connection),
            NetReduceHeader::Ack { connection, .. } | NetReduceHeader::Nak { connection, .. } => {
                neighbours(connection).map(|(from, to)| (to, from))
            }
            _ => None,
        };
        match known {
            Some(ends) => ends,
            None if packet.neighbour => self.link_ends(packet.link),
            None => (packet.source.node, packet.destination.node),
        }
    }

    fn link_ends(&self, link: u32) -> (NodeId, NodeId) {
        let cable = &self.prepared.topology.links[link as usize];
        (cable.from, cable.to)
    }

    /// Fanin's own packets.
    fn datagram(&mut self, packet: &Traced) -> Vec<u8> {
        let (from, to) = self.link_ends(packet.link);
        let sequence = self.sequences.entry(packet.link).or_default();
        let mut head = vec![0; AnyHeader::MAX_LEN.max(LinkHeader::MAX_LEN)];
        let (system, job, payload) = if packet.background {
            let length = LinkHeader::Background.emit(&mut head);
            head.truncate(length);
            let carried = packet.frame_bytes.saturating_sub(self.prepared.scenario.network.frame_overhead_bytes);
            (LINK_SYSTEM, JobId(0), vec![0; carried as usize])
        } else {
            // The first byte says which system it is, as between processes.
            let length = packet.header.emit(&mut head);
            head.truncate(length);
            (head[0], packet.job, packet.payload.to_vec())
        };
        let hop = HopHeader {
            system,
            via: packet.via,
            ecn: packet.ecn,
            neighbour: packet.neighbour,
            class: if packet.background { TrafficClass::Background } else { TrafficClass::Collective },
            source: packet.source,
            destination: packet.destination,
            job,
            flow: packet.flow,
            epoch: EPOCH,
            sequence: *sequence,
            payload_bytes: payload.len() as u16,
        };
        *sequence += 1;
        let mut body = vec![0; hop.wire_len()];
        hop.emit(&mut body);
        body.extend_from_slice(&head);
        body.extend_from_slice(&payload);
        let rest = RestCheck::of([&body[hop.wire_len()..]]);
        HopHeader::seal(&mut body, rest);
        udp(from, to, packet.flow, packet.ecn, &body)
    }
}

/// By rank, the host of the next worker in the ring of a job of NetReduce.
fn receivers(job: &PreparedJob) -> Vec<NodeId> {
    let System::NetReduce(parameters) = job.system else { return Vec::new() };
    let ring = ring_order(&job.hosts, parameters.order);
    let mut receivers = vec![NodeId(0); ring.len()];
    for (place, &rank) in ring.iter().enumerate() {
        receivers[rank as usize] = job.hosts[ring[(place + 1) % ring.len()] as usize];
    }
    receivers
}

/// A datagram from one node to another.
fn udp(from: NodeId, to: NodeId, flow: FlowLabel, ecn: bool, body: &[u8]) -> Vec<u8> {
    let length = (UdpHeader::LEN + body.len()) as u16;
    let mut network =
        Ipv4Header::new(length, HOPS, IpNumber::UDP, ip(from), ip(to)).expect("a packet of the simulator is shorter than 64 KiB");
    network.dont_fragment = true;
    network.ecn = IpEcn::try_new(if ecn { CE } else { ECT0 }).expect("two bits");
    network.header_checksum = network.calc_header_checksum();
    let source = EPHEMERAL | (flow.0 as u16 & !EPHEMERAL);
    let transport = UdpHeader::with_ipv4_checksum(source, PORT, &network, body).expect("a packet of the simulator is shorter than 64 KiB");
    let ethernet = Ethernet2Header { destination: mac(to), source: mac(from), ether_type: EtherType::IPV4 };
    [&ethernet.to_bytes()[..], &network.to_bytes(), &transport.to_bytes(), body].concat()
}

fn ip(node: NodeId) -> [u8; 4] {
    let [_, high, middle, low] = (node.0 + 1).to_be_bytes();
    [10, high, middle, low]
}

fn mac(node: NodeId) -> [u8; 6] {
    let [top, high, middle, low] = (node.0 + 1).to_be_bytes();
    [0x02, 0xfa, top, high, middle, low]
}
