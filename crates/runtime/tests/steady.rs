//! In the steady state a packet costs neither an allocation nor a system call of its own.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use fanin_core::{Address, Duration, ElementOp, JobId, NetworkMap, NodeId, PortId};
use fanin_net::{Socket, SocketConfig, Waker};
use fanin_runtime::{DriverConfig, NodeConfig, PeerConfig, Statistics, SwitchDriver, WorkerDriver};
use fanin_systems::{JobSpec, SwitchMlParameters, System, build};

const WORKERS: u32 = 2;
const ELEMENTS: usize = 1 << 20;
const PAYLOAD_BYTES: u32 = 1_024;
const TREE: System = System::tree(1);
const SWITCHML: System = System::SwitchMl(SwitchMlParameters { fixed_point: false });

struct Measured {
    statistics: Statistics,
    allocations: u64,
}

/// Two workers and a switch run one operation to warm up and one that is measured.
fn run(system: System) -> Vec<Measured> {
    let hosts: Vec<NodeId> = (0..WORKERS).map(NodeId).collect();
    let spec = JobSpec {
        id: JobId(0),
        hosts: &hosts,
        servers: &[],
        system,
        op: ElementOp::F32_SUM.into(),
        element_bytes: 4,
        payload_bytes: PAYLOAD_BYTES,
        window: 128,
        reliable: true,
        rto_initial: Duration::from_ms(100),
        rto_min: Duration::from_ms(20),
        patience: Duration::from_ms(60_000),
        seed: 0,
    };
    let nodes = build::<[u8]>(&spec, &NetworkMap::star(WORKERS)).unwrap();
    let nodes: Vec<_> = nodes.workers.into_iter().chain(nodes.others).collect();
    let sockets: Vec<Socket> = nodes.iter().map(|_| Socket::bind(&SocketConfig::new((Ipv4Addr::LOCALHOST, 0).into())).unwrap()).collect();
    let address = |at: u32| if at < WORKERS { Address::worker(NodeId(at)) } else { Address::switch(NodeId(at)) };
    let peer =
        |at: u32, port: u16| PeerConfig { address: address(at), socket: sockets[at as usize].local_address(), port: Some(PortId(port)) };
    let config = |at: u32| {
        let peers = if at < WORKERS { vec![peer(WORKERS, 0)] } else { (0..WORKERS).map(|worker| peer(worker, worker as u16)).collect() };
        NodeConfig { address: address(at), job: JobId(0), system: system.number(), op: ElementOp::F32_SUM, peers, routes: Vec::new() }
    };
    let configs: Vec<NodeConfig> = (0..=WORKERS).map(config).collect();
    let wakers: Vec<Waker> = sockets.iter().map(Socket::waker).collect();
    let (stop, running) = (AtomicBool::new(false), AtomicUsize::new(WORKERS as usize));
    let (stop, running, wakers, how) = (&stop, &running, &wakers, &DriverConfig::default());
    thread::scope(|scope| {
        let threads: Vec<_> = nodes
            .into_iter()
            .zip(sockets)
            .zip(configs)
            .map(|((placed, socket), config)| {
                scope.spawn(move || {
                    if placed.at.node.0 >= WORKERS {
                        let mut driver = SwitchDriver::new(socket, placed.node, config, how).unwrap();
                        let allocations = allocation_counter::measure(|| driver.run(stop).unwrap()).count_total;
                        return Measured { statistics: driver.statistics(), allocations };
                    }
                    let (input, mut output) = (vec![1; ELEMENTS * 4], vec![0; ELEMENTS * 4]);
                    let mut driver = WorkerDriver::new(socket, placed.node, config, how).unwrap();
                    driver.allreduce(&input, &mut output).unwrap();
                    let allocations = allocation_counter::measure(|| driver.allreduce(&input, &mut output).unwrap()).count_total;
                    if running.fetch_sub(1, Ordering::Relaxed) == 1 {
                        stop.store(true, Ordering::Relaxed);
                        wakers.iter().for_each(Waker::wake);
                    }
                    Measured { statistics: driver.statistics(), allocations }
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn packets_cost_neither_allocations_nor_system_calls_of_their_own() {
    let offload = Socket::bind(&SocketConfig::new((Ipv4Addr::LOCALHOST, 0).into())).unwrap().send_segments_max() > 1;
    for measured in [TREE, SWITCHML].into_iter().flat_map(run) {
        let (counters, sent) = (&measured.statistics.counters, &measured.statistics.sent);
        let packets = counters.packets_sent;
        assert!(packets >= 2 * (ELEMENTS * 4 / PAYLOAD_BYTES as usize) as u64);
        assert!(measured.allocations <= 8, "{} allocations for {packets} packets", measured.allocations);
        // Every turn receives once and sleeps at most once.
        let calls = sent.calls + counters.turns + counters.waits;
        assert!(!offload || calls * 4 < packets + counters.packets_received, "{calls} system calls for {packets} packets sent");
    }
}
