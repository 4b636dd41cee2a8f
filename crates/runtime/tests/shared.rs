//! Jobs that share one pool of aggregators at a switch of a fabric, and servers at hosts: sums are exact with far fewer aggregators than
//! packets under way, each job's counts are its own, and a job that ends leaves nothing behind while the other one runs.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use fanin_core::{Address, DropReason, Duration, ElementOp, JobId, NetworkMap, NodeId, PayloadOp, PortId, Role};
use fanin_net::{Socket, SocketConfig};
use fanin_runtime::fabric::{FabricConfig, FabricPortConfig, FabricRemote, FabricStatus, FabricSwitch, HelloConfig, LinkShape};
use fanin_runtime::{DriverConfig, RunError, WorkerDriver};
use fanin_systems::{A2tpParameters, AnyNode, AtpParameters, JobSpec, System, build, shared};

/// Two of job A, its server, three of job B, whose server is at the first of them.
const HOSTS: u32 = 6;
const SWITCH: NodeId = NodeId(HOSTS);
static A: [NodeId; 2] = [NodeId(0), NodeId(1)];
static A_SERVER: [NodeId; 1] = [NodeId(2)];
static B: [NodeId; 3] = [NodeId(3), NodeId(4), NodeId(5)];
const JOB_A: JobId = JobId(1);
const JOB_B: JobId = JobId(2);
const ELEMENTS: usize = 40_000;
const PAYLOAD_BYTES: u32 = 512;
const OPERATIONS: u32 = 3;
/// Far longer than anything takes here.
const ARRIVAL_LIMIT: std::time::Duration = std::time::Duration::from_secs(60);
/// A quarter of what one worker has under way.
const AGGREGATORS: u32 = 16;

fn spec<'a>(id: JobId, hosts: &'a [NodeId], servers: &'a [NodeId], system: System, patience_ms: u64) -> JobSpec<'a, PayloadOp> {
    JobSpec {
        id,
        hosts,
        servers,
        system,
        op: ElementOp::F32_SUM.into(),
        element_bytes: 4,
        payload_bytes: PAYLOAD_BYTES,
        window: 64,
        reliable: true,
        rto_initial: Duration::from_ms(100),
        rto_min: Duration::from_ms(20),
        patience: Duration::from_ms(patience_ms),
        seed: 0,
    }
}

fn address(node: u32) -> Address {
    if node < HOSTS { Address::worker(NodeId(node)) } else { Address::switch(NodeId(node)) }
}

fn configs(sockets: &[Socket]) -> Vec<FabricConfig> {
    let hello = HelloConfig { interval: Duration::from_ms(20), timeout: Duration::from_ms(5_000) };
    let shape =
        LinkShape { bits_per_second: 400_000_000, buffer_bytes: 4 << 20, ecn_mark_bytes: Some(1 << 20), delay: Duration::from_us(200) };
    let port = |peer: u32| FabricPortConfig { peer: address(peer), is_below: false, socket: sockets[peer as usize].local_address(), shape };
    let config = |node: u32| {
        let (ports, ways) = if node < HOSTS {
            (vec![port(HOSTS)], (0..=HOSTS).map(|to| if to == node { Vec::new() } else { vec![PortId(0)] }).collect())
        } else {
            ((0..HOSTS).map(port).collect(), (0..HOSTS).map(|to| vec![PortId(to as u16)]).collect())
        };
        FabricConfig { address: address(node), ports, ways, hello, fingerprint: 5, keys: Vec::new() }
    };
    (0..=HOSTS).map(config).collect()
}

fn look(remote: &FabricRemote<AnyNode<[u8]>>) -> FabricStatus {
    let (tell, told) = channel();
    remote.look(Box::new(move |status| tell.send(status).unwrap()));
    told.recv().unwrap()
}

/// The element of a rank, small enough for every sum to be exact.
fn element(rank: u32, operation: u32, index: usize) -> f32 {
    ((index as u32).wrapping_mul(2_654_435_761).wrapping_add(rank * 77 + operation) >> 12) as f32
}

fn operate(driver: &mut WorkerDriver<AnyNode<[u8]>>, (rank, workers): (u32, u32), operation: u32) -> Result<(), RunError> {
    let input: Vec<u8> = (0..ELEMENTS).flat_map(|index| element(rank, operation, index).to_le_bytes()).collect();
    let mut output = vec![0xff; input.len()];
    driver.allreduce(&input, &mut output)?;
    for (index, bytes) in output.chunks_exact(4).enumerate() {
        let expected: f32 = (0..workers).map(|rank| element(rank, operation, index)).sum();
        assert_eq!(bytes, expected.to_le_bytes(), "element {index} of operation {operation} at rank {rank}");
    }
    Ok(())
}

/// What the hosts' threads and the test say to each other.
#[derive(Default)]
struct Signals {
    stop: AtomicBool,
    /// Job B is not at the switch any more.
    b_ended: AtomicBool,
    /// Nor is its server at its host.
    b_left: AtomicBool,
}

/// What a host does: A's workers run their operations, the first of them not the last one before job B has ended; B's run one, and then
/// one that has no switch and no server any more.
fn host(number: u32, mut driver: WorkerDriver<AnyNode<[u8]>>, signals: &Signals, arrived: &Sender<u32>) -> FabricStatus {
    match number {
        0 | 1 => {
            for operation in 0..OPERATIONS {
                if operation == OPERATIONS - 1 && number == 0 {
                    arrived.send(number).unwrap();
                    driver.serve_until(&signals.b_ended).unwrap();
                }
                operate(&mut driver, (number, 2), operation).unwrap();
            }
            arrived.send(number).unwrap();
        }
        3..=5 => {
            operate(&mut driver, (number - 3, 3), 0).unwrap();
            arrived.send(number).unwrap();
            driver.serve_until(&signals.b_ended).unwrap();
            if number == 3 {
                assert!(driver.end_server(JOB_B) && !driver.end_server(JOB_B));
                driver.end_job();
                signals.b_left.store(true, Ordering::Relaxed);
            } else {
                driver.serve_until(&signals.b_left).unwrap();
                assert!(matches!(operate(&mut driver, (number - 3, 3), 1), Err(RunError::Failed(_))), "nobody is there");
                arrived.send(number).unwrap();
            }
        }
        _ => {}
    }
    driver.serve_until(&signals.stop).unwrap();
    driver.fabric_status()
}

fn admit(remote: &FabricRemote<AnyNode<[u8]>>, spec: JobSpec<'static, PayloadOp>) -> Result<bool, String> {
    let (map, (tell, told)) = (NetworkMap::star(HOSTS), channel());
    let node = shared::<[u8]>(std::slice::from_ref(&spec), &map).unwrap().remove(0).placed.node;
    let (job, system) = (spec.id, spec.system.number());
    let join = move |node: &mut AnyNode<[u8]>| node.admit(SWITCH, &spec, &map).map_err(|error| error.to_string());
    remote.share(job, system, node, Box::new(join), Box::new(move |is_new| tell.send(is_new).unwrap()));
    told.recv().unwrap()
}

fn end(remote: &FabricRemote<AnyNode<[u8]>>, job: JobId) -> bool {
    let (tell, told) = channel();
    remote.end(job, Box::new(move |was_there| tell.send(was_there).unwrap()));
    told.recv().unwrap()
}

/// The hosts with their workers and servers.
fn hosts(sockets: Vec<Socket>, configs: &[FabricConfig], specs: [&JobSpec<'static, PayloadOp>; 2]) -> Vec<WorkerDriver<AnyNode<[u8]>>> {
    let driver = |(socket, config)| WorkerDriver::in_fabric(socket, config, &DriverConfig::default()).unwrap();
    let mut hosts: Vec<_> = sockets.into_iter().zip(configs).map(driver).collect();
    for spec in specs {
        let nodes = build::<[u8]>(spec, &NetworkMap::star(HOSTS)).unwrap();
        for placed in nodes.workers {
            hosts[placed.at.node.index()].set_job(spec.id, spec.system.number(), ElementOp::F32_SUM, placed.node);
        }
        for placed in nodes.others {
            assert_eq!(placed.at.role, Role::Server);
            assert!(hosts[placed.at.node.index()].add_server(spec.id, spec.system.number(), placed.node));
        }
    }
    hosts
}

/// The next hosts that have arrived, by number.
fn next(arrived: &Receiver<u32>, count: usize) -> Vec<u32> {
    let mut hosts: Vec<u32> = (0..count).map(|_| arrived.recv_timeout(ARRIVAL_LIMIT).unwrap()).collect();
    hosts.sort_unstable();
    hosts
}

/// However the test ends, all loops do.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn run(systems: [System; 2]) {
    let (spec_a, spec_b) = (spec(JOB_A, &A, &A_SERVER, systems[0], 30_000), spec(JOB_B, &B, &[], systems[1], 3_000));
    let mut sockets: Vec<Socket> =
        (0..=HOSTS).map(|_| Socket::bind(&SocketConfig::new((Ipv4Addr::LOCALHOST, 0).into())).unwrap()).collect();
    let (configs, signals) = (&configs(&sockets), &Signals::default());
    let mut switch: FabricSwitch<AnyNode<[u8]>> =
        FabricSwitch::new(sockets.pop().unwrap(), &configs[HOSTS as usize], &DriverConfig::default()).unwrap();
    let (remote, hosts) = (switch.remote(), hosts(sockets, configs, [&spec_a, &spec_b]));
    thread::scope(|scope| {
        let _stop = Stop(&signals.stop);
        scope.spawn(move || switch.run(&signals.stop).unwrap());
        assert_eq!(admit(&remote, spec_a.clone()), Ok(true));
        assert_eq!(admit(&remote, spec_b.clone()), Ok(true));
        assert_eq!(admit(&remote, spec_b.clone()), Ok(false), "it runs already");
        let (tell, arrived) = channel();
        let threads: Vec<_> = (0..HOSTS)
            .zip(hosts)
            .map(|(number, driver)| {
                let tell = tell.clone();
                scope.spawn(move || host(number, driver, signals, &tell))
            })
            .collect();
        assert_eq!(next(&arrived, 4), [0, 3, 4, 5], "A is within its last operation, B has no other");
        let status = look(&remote);
        let most = u64::from(AGGREGATORS * PAYLOAD_BYTES);
        for (job, counters) in &status.jobs {
            assert!(counters.packets_received > 0 && (1..=most).contains(&counters.slot_bytes_peak), "job {job}: {counters:?}");
        }
        assert_eq!(status.jobs.iter().map(|(job, _)| *job).collect::<Vec<_>>(), [JOB_A, JOB_B]);
        assert!(status.counters.slot_bytes <= most, "{} bytes of {most}", status.counters.slot_bytes);
        assert!(end(&remote, JOB_B) && !end(&remote, JOB_B));
        let status = look(&remote);
        assert_eq!(status.jobs.iter().map(|(job, _)| *job).collect::<Vec<_>>(), [JOB_A]);
        assert_eq!(status.counters.slot_bytes, status.jobs[0].1.slot_bytes, "nothing of B is left");
        signals.b_ended.store(true, Ordering::Relaxed);
        assert_eq!(next(&arrived, 4), [0, 1, 4, 5]);
        assert!(end(&remote, JOB_A));
        let status = look(&remote);
        assert_eq!((status.jobs.len(), status.counters.slot_bytes, status.counters.broken), (0, 0, 0));
        signals.stop.store(true, Ordering::Relaxed);
        let ends: Vec<FabricStatus> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(ends[3].counters.dropped_for(DropReason::NoNode) > 0, "packets for the server that has left");
        assert!(ends.iter().all(|host| host.counters.broken == 0 && host.counters.not_lent == 0));
        assert!(ends[2].counters.packets_received > 0, "a host may have nothing but a server");
    });
}

#[test]
fn jobs_share_aggregators_and_one_ends_while_the_other_runs() {
    let atp = System::Atp(AtpParameters { aggregators: AGGREGATORS, ..AtpParameters::default() });
    let a2tp = System::A2tp(A2tpParameters { aggregators: AGGREGATORS, ..A2tpParameters::default() });
    run([atp, atp]);
    run([a2tp, atp]);
}
