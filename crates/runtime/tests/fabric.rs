//! A switch of a fabric and two hosts: in the steady state a packet costs neither an allocation nor a system call of its own, and the
//! switch does not send faster than its links carry.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use fanin_core::{Address, Duration, ElementOp, JobId, NetworkMap, NodeId, PortId};
use fanin_net::{Socket, SocketConfig, Waker};
use fanin_runtime::fabric::{FabricConfig, FabricPortConfig, FabricStatus, FabricSwitch, HelloConfig, LinkShape};
use fanin_runtime::{DriverConfig, WorkerDriver};
use fanin_systems::{AnyNode, JobSpec, System, build};

const HOSTS: u32 = 2;
const ELEMENTS: usize = 1 << 19;
const PAYLOAD_BYTES: u32 = 1_024;
const JOB: JobId = JobId(3);

struct Measured {
    status: FabricStatus,
    allocations: u64,
    seconds: f64,
}

fn address(node: u32) -> Address {
    if node < HOSTS { Address::worker(NodeId(node)) } else { Address::switch(NodeId(node)) }
}

/// Two hosts and their switch run one operation to warm up and one that is measured. Gives the hosts, then the switch.
fn run(shape: LinkShape) -> Vec<Measured> {
    let system = System::tree(1);
    let hosts: Vec<NodeId> = (0..HOSTS).map(NodeId).collect();
    let spec = JobSpec {
        id: JOB,
        hosts: &hosts,
        servers: &[],
        system,
        op: ElementOp::F32_SUM.into(),
        element_bytes: 4,
        payload_bytes: PAYLOAD_BYTES,
        window: 1_024,
        reliable: true,
        rto_initial: Duration::from_ms(500),
        rto_min: Duration::from_ms(200),
        patience: Duration::from_ms(60_000),
        seed: 0,
    };
    let mut nodes = build::<[u8]>(&spec, &NetworkMap::star(HOSTS)).unwrap();
    let sockets: Vec<Socket> = (0..=HOSTS).map(|_| Socket::bind(&SocketConfig::new((Ipv4Addr::LOCALHOST, 0).into())).unwrap()).collect();
    let hello = HelloConfig { interval: Duration::from_ms(20), timeout: Duration::from_ms(5_000) };
    let config = |node: u32| {
        let port =
            |peer: u32| FabricPortConfig { peer: address(peer), is_below: false, socket: sockets[peer as usize].local_address(), shape };
        let (ports, ways) = if node < HOSTS {
            (vec![port(HOSTS)], (0..=HOSTS).map(|to| if to == node { Vec::new() } else { vec![PortId(0)] }).collect())
        } else {
            ((0..HOSTS).map(port).collect(), (0..HOSTS).map(|to| vec![PortId(to as u16)]).collect())
        };
        FabricConfig { address: address(node), ports, ways, hello, fingerprint: 5, keys: Vec::new() }
    };
    let configs: Vec<FabricConfig> = (0..=HOSTS).map(config).collect();
    let wakers: Vec<Waker> = sockets.iter().map(Socket::waker).collect();
    let (stop, running) = (&AtomicBool::new(false), &AtomicUsize::new(HOSTS as usize));
    let (wakers, how) = (&wakers, &DriverConfig::default());
    let mut switch_node = nodes.others.pop().map(|placed| placed.node);
    let mut workers = nodes.workers.into_iter();
    thread::scope(|scope| {
        let host = |socket: Socket, config: FabricConfig, node: AnyNode<[u8]>| {
            let (input, mut output) = (vec![1; ELEMENTS * 4], vec![0; ELEMENTS * 4]);
            let mut driver = WorkerDriver::in_fabric(socket, &config, how).unwrap();
            driver.set_job(JOB, system.number(), ElementOp::F32_SUM, node);
            driver.allreduce(&input, &mut output).unwrap();
            let start = Instant::now();
            let allocations = allocation_counter::measure(|| driver.allreduce(&input, &mut output).unwrap()).count_total;
            let seconds = start.elapsed().as_secs_f64();
            if running.fetch_sub(1, Ordering::Relaxed) == 1 {
                stop.store(true, Ordering::Relaxed);
                wakers.iter().for_each(Waker::wake);
            } else {
                // The other one may still need an answer.
                driver.serve_until(stop).unwrap();
            }
            Measured { status: driver.fabric_status(), allocations, seconds }
        };
        let threads: Vec<_> = sockets
            .into_iter()
            .zip(configs)
            .map(|(socket, config)| {
                let node = workers.next();
                let switch_node = if node.is_none() { switch_node.take() } else { None };
                scope.spawn(move || match (node, switch_node) {
                    (Some(worker), _) => host(socket, config, worker.node),
                    (None, Some(node)) => {
                        let mut switch = FabricSwitch::new(socket, &config, how).unwrap();
                        switch.remote().admit(JOB, system.number(), node, Box::new(|is_new| assert!(is_new)));
                        let allocations = allocation_counter::measure(|| switch.run(stop).unwrap()).count_total;
                        Measured { status: switch.status(), allocations, seconds: 0.0 }
                    }
                    (None, None) => unreachable!("a node each"),
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn packets_of_a_fabric_cost_neither_allocations_nor_system_calls_of_their_own() {
    let offload = Socket::bind(&SocketConfig::new((Ipv4Addr::LOCALHOST, 0).into())).unwrap().send_segments_max() > 1;
    let delay = Duration::from_ms(2);
    let shape = LinkShape { bits_per_second: 2_000_000_000, buffer_bytes: 8 << 20, ecn_mark_bytes: Some(4 << 20), delay };
    for measured in run(shape) {
        let (counters, sent) = (&measured.status.counters, &measured.status.sent);
        let packets: u64 = measured.status.ports.iter().map(|port| port.counts.packets_sent).sum();
        assert!(packets >= 2 * (ELEMENTS * 4 / PAYLOAD_BYTES as usize) as u64);
        assert!(measured.allocations <= 16, "{} allocations for {packets} packets", measured.allocations);
        // Every turn receives once and sleeps at most once.
        let calls = sent.calls + counters.turns + counters.waits;
        assert!(!offload || calls < packets + counters.packets_received, "{calls} system calls for {packets} packets sent");
    }
}

/// The only thing here that a clock is asked about is a lower bound: a slow machine makes it hold all the more.
#[test]
fn no_link_carries_more_than_its_rate() {
    let rate = 100_000_000;
    let shape = LinkShape { bits_per_second: rate, buffer_bytes: 8 << 20, ecn_mark_bytes: None, delay: Duration::from_ms(1) };
    let measured = run(shape);
    let least = (ELEMENTS * 4 * 8) as f64 / rate as f64;
    for host in &measured[..HOSTS as usize] {
        assert!(host.seconds > least, "{} s for what takes {least} s", host.seconds);
    }
    let peaks = measured[2].status.ports.iter().map(|port| port.queue_bytes_peak);
    assert!(peaks.into_iter().all(|peak| peak > 0 && peak <= 8 << 20));
}
