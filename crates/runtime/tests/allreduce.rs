//! Whole jobs over sockets on loopback, one thread a node: exact sums whatever the link does, errors that name who is missing.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use fanin_core::hash::mix;
use fanin_core::{
    Address, DropReason, Duration, ElementOp, FailureReason, FixedPoint, JobId, NetworkMap, NodeId, PortId, Rank, RetransmitReason, Suspect,
};
use fanin_net::{FaultPlan, SenderConfig, Socket, SocketConfig, Waker};
use fanin_runtime::{Counters, DriverConfig, NodeConfig, PeerConfig, RunError, SwitchDriver, WorkerDriver};
use fanin_systems::{
    AnyNode, JobSpec, PanamaParameters, RingOrder, RingParameters, SumOrder, SwitchMlParameters, System, TreeParameters, build,
};

const TREE: System = System::tree(1);
const SWITCHML: System = System::SwitchMl(SwitchMlParameters { fixed_point: false });
const FIXED_POINT: System = System::SwitchMl(SwitchMlParameters { fixed_point: true });
const PANAMA: System = System::Panama(PanamaParameters { trees: 1, window_initial: 4 });
const RING: System = System::Ring(RingParameters { order: RingOrder::Host, barrier: false, steps: fanin_systems::StepParameters::NONE });
/// No element, one, a few, an odd number over several packets, many packets.
const LENGTHS: [usize; 5] = [0, 1, 5, 4_099, 120_001];
const NO_FAULTS: FaultPlan = FaultPlan { seed: 0, loss: 0.0, duplicate: 0.0, reorder: 0.0, corrupt: 0.0 };

type TestWorker = WorkerDriver<AnyNode<[u8]>>;
type TestSwitch = SwitchDriver<AnyNode<[u8]>>;

/// A job on a star: the workers' nodes first, then the switch's if the system has one.
struct Job {
    nodes: Vec<(Address, AnyNode<[u8]>)>,
    sockets: Vec<Socket>,
    workers: u32,
    system: System,
    faults: FaultPlan,
}

impl Job {
    fn new(system: System, workers: u32, faults: FaultPlan, patience: Duration) -> Self {
        let map = NetworkMap::star(workers);
        let hosts: Vec<NodeId> = (0..workers).map(NodeId).collect();
        let spec = JobSpec {
            id: JobId(3),
            hosts: &hosts,
            servers: &[],
            system,
            // In fixed point the switch adds integers.
            op: if system == FIXED_POINT { ElementOp::I32_SUM } else { ElementOp::F32_SUM }.into(),
            element_bytes: 4,
            payload_bytes: 1_024,
            window: 64,
            reliable: true,
            rto_initial: Duration::from_ms(10),
            rto_min: Duration::from_ms(2),
            patience,
            seed: 1,
        };
        let nodes = build::<[u8]>(&spec, &map).unwrap();
        let nodes: Vec<_> = nodes.workers.into_iter().chain(nodes.others).map(|placed| (placed.at, placed.node)).collect();
        let sockets = nodes.iter().map(|_| Socket::bind(&SocketConfig::new((Ipv4Addr::LOCALHOST, 0).into())).unwrap()).collect();
        Job { nodes, sockets, workers, system, faults }
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.sockets.iter().map(Socket::local_address).collect()
    }

    /// Drivers of the workers, and of the switch if there is one.
    fn drivers(self) -> (Vec<TestWorker>, Option<TestSwitch>) {
        let sockets = self.addresses();
        let addresses: Vec<Address> = self.nodes.iter().map(|(address, _)| *address).collect();
        let (count, workers) = (self.nodes.len(), self.workers as usize);
        let peer = |at: usize, port: Option<PortId>| PeerConfig { address: addresses[at], socket: sockets[at], port };
        let (mut drivers, mut switch) = (Vec::new(), None);
        for (at, ((address, node), socket)) in self.nodes.into_iter().zip(self.sockets).enumerate() {
            let peers = if at >= workers {
                (0..workers).map(|worker| peer(worker, Some(PortId(worker as u16)))).collect()
            } else if count > workers {
                vec![peer(workers, Some(PortId(0)))]
            } else {
                (0..workers).filter(|other| *other != at).map(|other| peer(other, None)).collect()
            };
            let system = self.system.number();
            let config = NodeConfig { address, job: JobId(3), system, op: ElementOp::F32_SUM, peers, routes: Vec::new() };
            let faults = FaultPlan { seed: self.faults.seed + at as u64, ..self.faults };
            let how = DriverConfig { sender: SenderConfig { faults, ..SenderConfig::default() }, ..DriverConfig::default() };
            if at >= workers {
                switch = Some(SwitchDriver::new(socket, node, config, &how).unwrap());
            } else {
                let mut driver = WorkerDriver::new(socket, node, config, &how).unwrap();
                if self.system == FIXED_POINT {
                    driver.set_fixed_point(FixedPoint::new(self.workers, false));
                }
                drivers.push(driver);
            }
        }
        (drivers, switch)
    }
}

/// Element `index` of `rank`'s vector in `operation`: a whole number that leaves every sum exact.
fn value(rank: usize, operation: usize, index: usize) -> i64 {
    (mix((rank * 1_000 + operation) as u64, index as u64) % 200_001) as i64 - 100_000
}

fn input(rank: usize, operation: usize, length: usize) -> Vec<u8> {
    (0..length).flat_map(|index| (value(rank, operation, index) as f32).to_le_bytes()).collect()
}

fn sums(workers: usize, operation: usize, length: usize) -> Vec<u8> {
    (0..length).flat_map(|index| ((0..workers).map(|rank| value(rank, operation, index)).sum::<i64>() as f32).to_le_bytes()).collect()
}

/// Runs one operation for each length at every worker in `present`; gives each one's last result and all counters.
fn run(job: Job, lengths: &[usize], present: &[usize]) -> (Vec<Result<(), RunError>>, Vec<Counters>) {
    let workers = job.workers as usize;
    let (drivers, mut switch) = job.drivers();
    let (all_done, running) = (AtomicBool::new(false), AtomicUsize::new(present.len()));
    let mut wakers: Vec<Waker> = drivers.iter().map(WorkerDriver::waker).collect();
    wakers.extend(switch.as_ref().map(SwitchDriver::waker));
    let (all_done, running, wakers) = (&all_done, &running, &wakers);
    thread::scope(|scope| {
        let switch = switch.as_mut().map(|switch| {
            scope.spawn(move || {
                switch.run(all_done).unwrap();
                switch.statistics().counters
            })
        });
        let threads: Vec<_> = drivers
            .into_iter()
            .enumerate()
            .filter(|(rank, _)| present.contains(rank))
            .map(|(rank, mut driver)| {
                scope.spawn(move || {
                    let mut result = Ok(());
                    for (operation, &length) in lengths.iter().enumerate() {
                        let mut output = vec![0xff; length * 4];
                        result = driver.allreduce(&input(rank, operation, length), &mut output);
                        if result.is_err() {
                            break;
                        }
                        assert!(output == sums(workers, operation, length), "rank {rank}, operation {operation}");
                    }
                    if running.fetch_sub(1, Ordering::Relaxed) == 1 {
                        all_done.store(true, Ordering::Relaxed);
                        wakers.iter().for_each(Waker::wake);
                    }
                    // The last packets to a neighbour may have been lost.
                    driver.serve_until(all_done).unwrap();
                    (result, driver.statistics().counters)
                })
            })
            .collect();
        let (results, mut counters): (Vec<_>, Vec<_>) = threads.into_iter().map(|thread| thread.join().unwrap()).unzip();
        counters.extend(switch.map(|thread| thread.join().unwrap()));
        (results, counters)
    })
}

fn run_all(system: System, workers: u32, faults: FaultPlan) -> Vec<Counters> {
    let everybody: Vec<usize> = (0..workers as usize).collect();
    let (results, counters) = run(Job::new(system, workers, faults, Duration::from_ms(30_000)), &LENGTHS, &everybody);
    results.into_iter().for_each(|result| result.unwrap());
    assert!(counters.iter().all(|counters| counters.broken == 0 && counters.failed == 0 && counters.not_lent == 0));
    counters
}

fn retransmitted(counters: &[Counters]) -> u64 {
    counters.iter().map(Counters::retransmitted_total).sum()
}

#[test]
fn tree_is_exact_for_one_to_five_workers() {
    for sum_order in [SumOrder::Arrival, SumOrder::Fixed] {
        (1..=5).for_each(|workers| drop(run_all(System::Tree(TreeParameters { trees: 1, sum_order }), workers, NO_FAULTS)));
    }
}

#[test]
fn tree_is_exact_under_loss_and_says_what_it_sent_again() {
    for loss in [0.01, 0.05] {
        let counters = run_all(TREE, 4, FaultPlan { seed: 40, loss, ..NO_FAULTS });
        assert!(retransmitted(&counters) > 0);
        assert!(counters.iter().any(|counters| counters.retransmitted[RetransmitReason::Timeout.index()] > 0));
    }
}

#[test]
fn tree_is_exact_under_every_fault_at_once() {
    let counters = run_all(TREE, 3, FaultPlan { seed: 50, loss: 0.02, duplicate: 0.05, reorder: 0.05, corrupt: 0.01 });
    assert!(counters.iter().map(|counters| counters.dropped_for(DropReason::Repeated)).sum::<u64>() > 0);
}

/// Elements whose sums are rounded, otherwise in most orders than in others.
fn rounded(rank: usize, index: usize) -> f32 {
    value(rank, 7, index) as f32 * (1u64 << (mix(rank as u64, index as u64) % 40)) as f32
}

/// What the operations of a job of five gave at every worker, as bits; in each another worker is late by so much.
fn bits_when_others_are_late(system: System, length: usize) -> Vec<Vec<u8>> {
    let job = Job::new(system, 5, NO_FAULTS, Duration::from_ms(30_000));
    let (drivers, switch) = job.drivers();
    let (mut switch, all_done) = (switch.unwrap(), AtomicBool::new(false));
    let (waker, all_done) = (switch.waker(), &all_done);
    thread::scope(|scope| {
        let running = scope.spawn(move || switch.run(all_done).unwrap());
        let threads: Vec<_> = (0..)
            .zip(drivers)
            .map(|(rank, mut driver)| {
                scope.spawn(move || {
                    let input: Vec<u8> = (0..length).flat_map(|index| rounded(rank, index).to_le_bytes()).collect();
                    let late_in = |late: usize| {
                        if late == rank {
                            thread::sleep(std::time::Duration::from_millis(30));
                        }
                        let mut output = vec![0; length * 4];
                        driver.allreduce(&input, &mut output).unwrap();
                        output
                    };
                    (0..5).map(late_in).collect::<Vec<_>>()
                })
            })
            .collect();
        let results: Vec<Vec<Vec<u8>>> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        all_done.store(true, Ordering::Relaxed);
        waker.wake();
        running.join().unwrap();
        assert!(results.iter().all(|result| *result == results[0]), "all workers have the same sums");
        results[0].clone()
    })
}

/// `flare 4.3`, for real: neighbours are added first, so floats have the same bits whoever is late; as they come they have not.
#[test]
fn sums_in_a_fixed_order_have_the_same_bits_whoever_is_late() {
    let length = 4_099;
    let fixed = bits_when_others_are_late(System::Tree(TreeParameters { trees: 1, sum_order: SumOrder::Fixed }), length);
    let defined = |index| {
        let of = |rank| rounded(rank, index);
        (((of(0) + of(1)) + (of(2) + of(3))) + of(4)).to_le_bytes()
    };
    let defined: Vec<u8> = (0..length).flat_map(defined).collect();
    assert!(fixed.iter().all(|sums| *sums == defined), "the sums of the definition, in each operation");
    let arrival = bits_when_others_are_late(TREE, length);
    assert!(arrival.iter().any(|sums| *sums != arrival[0]), "as they come the bits depend on who is late, or nothing was shown");
}

/// Whole numbers below 2^17 of up to five workers: as fixed point each has a dozen bits more than it needs.
#[test]
fn switchml_is_exact_as_floats_and_as_fixed_point_for_one_to_five_workers() {
    for system in [SWITCHML, FIXED_POINT] {
        (1..=5).for_each(|workers| drop(run_all(system, workers, NO_FAULTS)));
    }
}

#[test]
fn switchml_is_exact_under_loss_and_under_every_fault_at_once() {
    for system in [SWITCHML, FIXED_POINT] {
        for loss in [0.01, 0.05] {
            assert!(retransmitted(&run_all(system, 4, FaultPlan { seed: 90, loss, ..NO_FAULTS })) > 0);
        }
        let counters = run_all(system, 3, FaultPlan { seed: 95, loss: 0.02, duplicate: 0.05, reorder: 0.05, corrupt: 0.01 });
        assert!(counters.iter().map(|counters| counters.dropped_for(DropReason::Repeated)).sum::<u64>() > 0);
    }
}

#[test]
fn panama_is_exact_without_loss_and_under_every_fault_at_once() {
    (1..=5).for_each(|workers| drop(run_all(PANAMA, workers, NO_FAULTS)));
    let counters = run_all(PANAMA, 3, FaultPlan { seed: 90, loss: 0.02, duplicate: 0.05, reorder: 0.05, corrupt: 0.01 });
    assert!(retransmitted(&counters) > 0);
}

#[test]
fn ring_is_exact_for_one_to_five_workers() {
    (1..=5).for_each(|workers| drop(run_all(RING, workers, NO_FAULTS)));
}

#[test]
fn ring_is_exact_under_loss_and_under_every_fault_at_once() {
    for loss in [0.01, 0.05] {
        assert!(retransmitted(&run_all(RING, 4, FaultPlan { seed: 60, loss, ..NO_FAULTS })) > 0);
    }
    let counters = run_all(RING, 3, FaultPlan { seed: 70, loss: 0.02, duplicate: 0.05, reorder: 0.05, corrupt: 0.01 });
    assert!(counters.iter().map(|counters| counters.dropped_for(DropReason::Repeated)).sum::<u64>() > 0);
}

#[test]
fn garbage_beside_a_run_is_counted_and_harmless() {
    let job = Job::new(TREE, 2, FaultPlan { seed: 80, loss: 0.01, ..NO_FAULTS }, Duration::from_ms(30_000));
    let targets = job.addresses();
    let finished = Arc::new(AtomicBool::new(false));
    let stop = finished.clone();
    let stranger = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    // Something lies in every receive buffer before the job begins.
    let mut round = 0u64;
    let mut throw = move || {
        let bytes: Vec<u8> = (0..mix(round, 0) % 1_500).map(|at| mix(round, at) as u8).collect();
        stranger.send_to(&bytes, targets[round as usize % targets.len()]).unwrap();
        round += 1;
    };
    (0..30).for_each(|_| throw());
    let noise = thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            throw();
            thread::yield_now();
        }
    });
    let (results, counters) = run(job, &LENGTHS, &[0, 1]);
    finished.store(true, Ordering::Relaxed);
    noise.join().unwrap();
    results.into_iter().for_each(|result| result.unwrap());
    assert!(counters.iter().all(|counters| counters.dropped_for(DropReason::NotAMember) >= 10), "{counters:?}");
}

#[test]
fn a_worker_that_is_not_there_is_named_to_all_others() {
    for system in [TREE, SWITCHML, FIXED_POINT] {
        let (results, counters) = run(Job::new(system, 4, NO_FAULTS, Duration::from_ms(800)), &[10_000], &[0, 1, 3]);
        for result in results {
            let Err(RunError::Failed(failure)) = result else { panic!("{result:?}") };
            assert_eq!((failure.suspect, failure.reason), (Suspect::Rank(Rank(2)), FailureReason::NoProgress), "{failure}");
        }
        assert_eq!(counters.iter().map(|counters| counters.failed).sum::<u64>(), 3);
    }
}

#[test]
fn a_ring_with_a_gap_fails_at_every_worker_and_a_neighbour_names_it() {
    let (results, _) = run(Job::new(RING, 4, NO_FAULTS, Duration::from_ms(800)), &[10_000], &[0, 1, 3]);
    let failures: Vec<_> = results
        .into_iter()
        .map(|result| match result {
            Err(RunError::Failed(failure)) => failure,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(failures.iter().any(|failure| failure.suspect == Suspect::Rank(Rank(2))), "{failures:?}");
}

#[test]
fn the_stop_flag_ends_an_operation_that_cannot_end() {
    let (mut drivers, _switch) = Job::new(TREE, 2, NO_FAULTS, Duration::from_ms(600_000)).drivers();
    let mut driver = drivers.remove(0);
    let (stop, waker) = (driver.stop_flag(), driver.waker());
    let stopper = thread::spawn(move || {
        stop.store(true, Ordering::Relaxed);
        waker.wake();
    });
    let result = driver.allreduce(&input(0, 0, 100), &mut [0; 400]);
    stopper.join().unwrap();
    assert!(matches!(result, Err(RunError::Stopped)), "{result:?}");
}

#[test]
fn vectors_of_different_lengths_are_refused_before_anything_is_sent() {
    let (mut drivers, _switch) = Job::new(TREE, 2, NO_FAULTS, Duration::from_ms(1_000)).drivers();
    assert!(matches!(drivers[0].allreduce(&[0; 8], &mut [0; 4]), Err(RunError::Vectors(_))));
    assert!(matches!(drivers[0].allreduce(&[0; 7], &mut [0; 7]), Err(RunError::Vectors(_))));
    assert_eq!(drivers[0].statistics().counters.packets_sent, 0);
}
