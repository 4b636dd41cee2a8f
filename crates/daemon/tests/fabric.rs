//! A fabric of two leaves, two spines and eight hosts on loopback, all in this process: collectives over it are exact, a dead spine is
//! noticed and avoided, a stranger's datagrams are counted and do no harm. Nothing here depends on how fast anything is.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fanin_control::{JobAnnouncement, Op, SwitchStatus};
use fanin_core::{CollectiveKind, DropReason, ElementOp, JobId, NodeId, Rank, hash};
use fanin_daemon::fabric::{driver_config, node_config};
use fanin_daemon::{FabricClient, FabricDaemon, FabricDaemonConfig, FabricDaemonHandle};
use fanin_fabric::Fabric;
use fanin_net::{FaultPlan, Socket, SocketConfig};
use fanin_runtime::fabric::{FabricStatus, TrafficConfig};
use fanin_runtime::{BlockSet, CollectiveCall, Vectors, WorkerDriver};
use fanin_systems::{AnyNode, CanaryParameters, RingOrder, RingParameters, SwitchMlParameters, System};

const FABRIC: &str = r#"
[defaults]
rate = "1Gb/s"
buffer = "8MiB"
delay = "200us"
hello_interval = "20ms"
hello_timeout = "2s"

[leaf_spine]
leaves = 2
spines = 2
hosts_per_leaf = 4
"#;

const PAYLOAD: u32 = 1_024;

/// The fabric, at ports that are free.
fn fabric(text: &str) -> Fabric {
    let fabric = Fabric::parse("test", text).unwrap();
    // All are held until all are found, so that no port is found twice.
    let held: Vec<(UdpSocket, TcpListener)> = std::iter::repeat_with(|| {
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        TcpListener::bind(udp.local_addr().unwrap()).ok().map(|tcp| (udp, tcp))
    })
    .flatten()
    .take(fabric.nodes().len())
    .collect();
    fabric.with_addresses(|node| held[node.index()].0.local_addr().unwrap())
}

fn switches(fabric: &Fabric) -> Vec<FabricDaemonHandle> {
    fabric.switches().map(|node| switch(fabric, node)).collect()
}

fn switch(fabric: &Fabric, node: NodeId) -> FabricDaemonHandle {
    lossy_switch(fabric, node, FaultPlan::default())
}

fn lossy_switch(fabric: &Fabric, node: NodeId, faults: FaultPlan) -> FabricDaemonHandle {
    let config = FabricDaemonConfig { faults, ..FabricDaemonConfig::new(fabric.clone(), node) };
    FabricDaemon::start(config).unwrap()
}

fn client(fabric: &Fabric, name: &str) -> FabricClient {
    let address = fabric.node(fabric.node_named(name).unwrap()).address;
    FabricClient::connect(address, Duration::from_secs(20)).unwrap()
}

/// Asks again and again, until it is so.
fn until(fabric: &Fabric, name: &str, what: impl Fn(&SwitchStatus) -> bool) -> SwitchStatus {
    let mut client = client(fabric, name);
    loop {
        let status = client.status().unwrap();
        if what(&status) {
            return status;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn announcement(fabric: &Fabric, job: u16, system: System) -> JobAnnouncement {
    JobAnnouncement {
        operator: None,
        kernel: None,
        job,
        system,
        op: Op::F32_SUM,
        payload_bytes: PAYLOAD,
        window: 64,
        reliable: true,
        rto_initial_us: 200_000,
        rto_min_us: 50_000,
        patience_ms: 60_000,
        seed: 3,
        // Not in the order of hosts, so that ranks and nodes differ.
        hosts: fabric.hosts().map(|host| (host.0 * 3) % 8).collect(),
        servers: Vec::new(),
    }
}

fn canary() -> System {
    System::Canary(CanaryParameters { timeout_ps: 2_000_000_000, descriptors: 4_096, ..CanaryParameters::default() })
}

/// Whole numbers, whose sums over eight ranks are exact in binary32.
fn input(job: u16, rank: u32, elements: u64) -> Vec<u8> {
    (0..elements).flat_map(|index| value(job, rank, index).to_le_bytes()).collect()
}

fn value(job: u16, rank: u32, index: u64) -> f32 {
    (hash::mix(u64::from(job) << 32 | u64::from(rank), index) % 2_001) as f32 - 1_000.0
}

fn sum(job: u16, index: u64) -> f32 {
    (0..8).map(|rank| value(job, rank, index)).sum()
}

/// What a host does: calls, one after the other, of which it gives the outputs.
type Work = Arc<dyn Fn(&mut WorkerDriver<AnyNode<[u8]>>, u32) -> Vec<Vec<u8>> + Send + Sync>;

/// A host with a worker of `job`: serves until it may `go`, works, and serves until all are `done`.
fn host(
    fabric: &Fabric,
    host: NodeId,
    job: &JobAnnouncement,
    faults: FaultPlan,
    work: Work,
    [go, done]: [Arc<AtomicBool>; 2],
) -> JoinHandle<(Vec<Vec<u8>>, FabricStatus)> {
    let socket = Socket::bind(&SocketConfig::new(fabric.node(host).address)).unwrap();
    let (config, how) = (node_config(fabric, host), driver_config(faults, host));
    let rank = job.rank_of(host).unwrap();
    let node = job.nodes(&fabric.map).unwrap().workers.swap_remove(rank as usize).node;
    let job = job.clone();
    thread::spawn(move || {
        let mut driver = WorkerDriver::in_fabric(socket, &config, &how).unwrap();
        driver.set_job(JobId(job.job), job.system.number(), ElementOp::from(job.op), node);
        driver.serve_until(&go).unwrap();
        let outputs = work(&mut driver, rank);
        driver.serve_until(&done).unwrap();
        (outputs, driver.fabric_status())
    })
}

/// Announces a job, lets all hosts do the work, and ends the job.
fn run(fabric: &Fabric, job: &JobAnnouncement, at: &[&str], work: Work) -> Vec<(Vec<Vec<u8>>, FabricStatus)> {
    run_beside(fabric, job, at, FaultPlan::default(), work, || {})
}

/// The same with faults, and with something that is done meanwhile.
fn run_beside(
    fabric: &Fabric,
    job: &JobAnnouncement,
    at: &[&str],
    faults: FaultPlan,
    work: Work,
    meanwhile: impl FnOnce(),
) -> Vec<(Vec<Vec<u8>>, FabricStatus)> {
    for name in at {
        client(fabric, name).announce(job).unwrap();
    }
    let [go, done]: [Arc<AtomicBool>; 2] = Default::default();
    let (count, finished) = (job.hosts.len(), Arc::new(std::sync::atomic::AtomicUsize::new(0)));
    let counted: Work = {
        let (done, finished) = (done.clone(), finished);
        Arc::new(move |driver, rank| {
            let outputs = work(driver, rank);
            // The last one lets all others go: until then they answer.
            if finished.fetch_add(1, Ordering::SeqCst) + 1 == count {
                done.store(true, Ordering::SeqCst);
            }
            outputs
        })
    };
    let hosts: Vec<_> =
        job.hosts.iter().map(|&node| host(fabric, NodeId(node), job, faults, counted.clone(), [go.clone(), done.clone()])).collect();
    // Systems without recovery lose what they send to a neighbour that is not there yet.
    let expected = |peer: &str| peer.starts_with("host") || at.contains(&peer);
    for name in at {
        until(fabric, name, |status| status.ports.iter().all(|port| port.is_up() || !expected(&port.peer)));
    }
    go.store(true, Ordering::SeqCst);
    meanwhile();
    let results = hosts.into_iter().map(|host| host.join().unwrap()).collect();
    for name in at {
        // It may have been killed meanwhile.
        if let Ok(mut client) = FabricClient::connect(fabric.node(fabric.node_named(name).unwrap()).address, Duration::from_secs(20)) {
            client.end(job.job).unwrap();
        }
    }
    results
}

fn allreduce(job: u16, elements: u64) -> Work {
    Arc::new(move |driver, rank| {
        let input = input(job, rank, elements);
        let mut output = vec![0xff; input.len()];
        driver.allreduce(&input, &mut output).unwrap();
        vec![output]
    })
}

fn assert_sums(job: u16, elements: u64, results: &[(Vec<Vec<u8>>, FabricStatus)]) {
    let expected: Vec<u8> = (0..elements).flat_map(|index| sum(job, index).to_le_bytes()).collect();
    for (rank, (outputs, _)) in results.iter().enumerate() {
        assert!(outputs[0] == expected, "rank {rank} of job {job}");
    }
}

const ALL: [&str; 4] = ["leaf0", "leaf1", "spine0", "spine1"];

#[test]
fn canary_trees_and_rings_are_exact_over_two_leaves_and_two_spines() {
    let fabric = fabric(FABRIC);
    let switches = switches(&fabric);
    let elements = 100_001;
    let systems = [
        canary(),
        System::tree(2),
        System::Ring(RingParameters { order: RingOrder::Host, barrier: false, steps: fanin_systems::StepParameters::NONE }),
    ];
    for (job, system) in (1u16..).zip(systems) {
        let job = announcement(&fabric, job, system);
        let results = run(&fabric, &job, &ALL, allreduce(job.job, elements));
        assert_sums(job.job, elements, &results);
    }
    let statuses: Vec<FabricStatus> = switches.into_iter().map(|switch| switch.stop().unwrap()).collect();
    for (status, name) in statuses.iter().zip(ALL) {
        assert_eq!(status.counters.broken, 0, "{name}");
        assert!(status.jobs.is_empty(), "{name}: all jobs have ended");
    }
    let (leaf, spines) = (&statuses[0], &statuses[2..]);
    assert!(leaf.counters.packets_forwarded > 0, "the ring's packets pass a leaf");
    assert!(spines.iter().all(|spine| spine.ports.iter().all(|port| port.counts.packets_sent > 0)), "both spines carry something");
    assert!(leaf.ports.iter().all(|port| port.queue_bytes == 0 && port.queue_bytes_peak > 0));
}

#[test]
fn every_system_with_recovery_is_exact_where_each_process_loses_packets() {
    let fabric = fabric(FABRIC);
    let faults = FaultPlan { seed: 7, loss: 0.02, duplicate: 0.01, reorder: 0.02, corrupt: 0.005 };
    let switches: Vec<FabricDaemonHandle> = fabric.switches().map(|node| lossy_switch(&fabric, node, faults)).collect();
    let elements = 50_001;
    let systems = [
        canary(),
        System::tree(2),
        System::Ring(RingParameters { order: RingOrder::Host, barrier: false, steps: fanin_systems::StepParameters::NONE }),
    ];
    for (job, system) in (1u16..).zip(systems) {
        let job = announcement(&fabric, job, system);
        let results = run_beside(&fabric, &job, &ALL, faults, allreduce(job.job, elements), || {});
        assert_sums(job.job, elements, &results);
        let sent_again: u64 = results.iter().map(|(_, status)| status.counters.retransmitted_total()).sum();
        assert!(sent_again > 0, "{}", system.name());
    }
    for switch in switches {
        let status = switch.stop().unwrap();
        assert!(status.sent.injected.iter().all(|count| *count > 0) && status.counters.broken == 0);
    }
}

#[test]
fn a_spine_that_is_killed_in_the_middle_of_an_allreduce_costs_no_element() {
    // So slow that the middle is not missed, and no slower.
    let fabric = fabric(&FABRIC.replace("\"1Gb/s\"", "\"60Mb/s\"").replace("\"2s\"", "\"400ms\""));
    let mut switches = switches(&fabric);
    let (job, elements) = (announcement(&fabric, 3, canary()), 400_000);
    let spine = switches.remove(2);
    let results = run_beside(&fabric, &job, &ALL, FaultPlan::default(), allreduce(3, elements), || {
        until(&fabric, "spine0", |status| status.jobs.iter().any(|job| job.packets_received >= 300));
        drop(spine);
    });
    assert_sums(3, elements, &results);
    let leaf = until(&fabric, "leaf0", |status| status.ports.iter().any(|port| port.peer == "spine0" && !port.is_up()));
    assert!(leaf.ports.iter().any(|port| port.peer == "spine0" && port.went_down == 1), "{leaf:?}");
}

#[test]
fn all_collectives_of_systems_that_have_them_are_exact() {
    all_collectives(System::SwitchMl(SwitchMlParameters { fixed_point: false }));
    all_collectives(canary());
}

fn all_collectives(system: System) {
    let fabric = fabric(FABRIC);
    let _switches = switches(&fabric);
    let job = announcement(&fabric, 9, system);
    let share = 1_000u64;
    let results = run(
        &fabric,
        &job,
        &ALL,
        Arc::new(move |driver, rank| {
            let kinds = [
                (CollectiveKind::Reduce { root: Rank(5) }, share),
                (CollectiveKind::Broadcast { root: Rank(2) }, share),
                (CollectiveKind::Barrier, 0),
                (CollectiveKind::ReduceScatter, 8 * share),
                (CollectiveKind::AllGather, 8 * share),
            ];
            let mut outputs = Vec::new();
            for (kind, elements) in kinds {
                let input = input(9, rank, elements);
                let mut output = vec![0xff; input.len()];
                let vectors = Vectors::Apart { input: &input, input_start: 0, output: &mut output, output_start: 0 };
                let call = CollectiveCall {
                    kind,
                    op: ElementOp::F32_SUM,
                    element_bytes: 4,
                    op_number: 0,
                    fixed_point: None,
                    elements,
                    fingerprint: 7,
                };
                driver.collective(&call, vectors, (&mut BlockSet::default(), 0), |_| true).unwrap();
                outputs.push(output);
            }
            outputs
        }),
    );
    let bytes = |values: &mut dyn Iterator<Item = f32>| values.flat_map(f32::to_le_bytes).collect::<Vec<u8>>();
    for (rank, (outputs, _)) in results.iter().enumerate() {
        let rank = rank as u64;
        if rank == 5 {
            assert!(outputs[0] == bytes(&mut (0..share).map(|index| sum(9, index))));
        }
        assert!(outputs[1] == bytes(&mut (0..share).map(|index| value(9, 2, index))) || rank == 2, "rank {rank}");
        let own = (rank * share) as usize * 4..((rank + 1) * share) as usize * 4;
        let scattered = bytes(&mut (rank * share..(rank + 1) * share).map(|index| sum(9, index)));
        assert!(outputs[3][own.clone()] == scattered, "rank {rank}");
        for other in (0..8u64).filter(|other| *other != rank) {
            let part = (other * share) as usize * 4..((other + 1) * share) as usize * 4;
            let gathered = bytes(&mut (other * share..(other + 1) * share).map(|index| value(9, other as u32, index)));
            assert!(outputs[4][part] == gathered, "rank {rank}, share {other}");
        }
    }
}

#[test]
fn a_spine_that_dies_is_noticed_and_avoided_and_comes_back() {
    // Soon enough for a test, and long enough for a machine that does other things.
    let fabric = fabric(&FABRIC.replace("\"2s\"", "\"500ms\""));
    let mut switches = switches(&fabric);
    let up = |status: &SwitchStatus, peer: &str| status.ports.iter().any(|port| port.peer == peer && port.is_up());
    for leaf in ["leaf0", "leaf1"] {
        until(&fabric, leaf, |status| up(status, "spine0") && up(status, "spine1"));
    }
    drop(switches.remove(2));
    for leaf in ["leaf0", "leaf1"] {
        let status = until(&fabric, leaf, |status| !up(status, "spine0"));
        assert!(status.ports.iter().any(|port| port.peer == "spine0" && port.went_down >= 1));
    }
    let (job, elements) = (announcement(&fabric, 4, canary()), 30_000);
    let results = run(&fabric, &job, &["leaf0", "leaf1", "spine1"], allreduce(4, elements));
    assert_sums(4, elements, &results);

    let _spine = switch(&fabric, fabric.node_named("spine0").unwrap());
    for leaf in ["leaf0", "leaf1"] {
        let status = until(&fabric, leaf, |status| up(status, "spine0"));
        assert!(status.peers_restarted >= 1, "it is another process, though at the same address");
    }
    let job = announcement(&fabric, 5, canary());
    let results = run(&fabric, &job, &ALL, allreduce(5, elements));
    assert_sums(5, elements, &results);
}

/// Connections that say nothing make room for each other, and not the one that the manager speaks on.
#[test]
fn strangers_that_say_nothing_do_not_cut_off_who_has_greeted() {
    let fabric = fabric(FABRIC);
    let leaf = fabric.node_named("leaf0").unwrap();
    let switch = switch(&fabric, leaf);
    let mut manager = client(&fabric, "leaf0");
    let before = manager.status().unwrap();
    let silent: Vec<std::net::TcpStream> = (0..200).map(|_| std::net::TcpStream::connect(fabric.node(leaf).address).unwrap()).collect();
    assert_eq!(manager.status().unwrap().name, before.name);
    drop(silent);
    drop(switch);
}

#[test]
fn garbage_is_counted_and_harmless_and_background_traffic_goes_where_it_is_pinned() {
    let fabric = fabric(FABRIC);
    let switches = switches(&fabric);
    let leaf = fabric.node(fabric.node_named("leaf0").unwrap()).address;
    let garbage = |length: usize, seed: u64| (0..length).map(|at| hash::mix(seed, at as u64) as u8).collect::<Vec<u8>>();
    let stranger = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let neighbour = UdpSocket::bind(fabric.node(NodeId(3)).address).unwrap();
    for seed in 0..200 {
        let bytes = garbage(1 + (hash::mix(1, seed) % 2_000) as usize, seed);
        stranger.send_to(&bytes, leaf).unwrap();
        neighbour.send_to(&bytes, leaf).unwrap();
    }
    let dropped = |status: &SwitchStatus, reason: DropReason| status.dropped.get(reason.name()).copied().unwrap_or(0);
    until(&fabric, "leaf0", |status| dropped(status, DropReason::NotAMember) == 200 && dropped(status, DropReason::Malformed) == 200);
    drop((stranger, neighbour));

    let (spine0, sink) = (fabric.node_named("spine0").unwrap(), NodeId(6));
    let job = announcement(&fabric, 6, canary());
    let results = run(
        &fabric,
        &job,
        &ALL,
        Arc::new(move |driver, rank| {
            let remote = driver.remote();
            if rank == 0 {
                let config = TrafficConfig { id: 1, to: sink, via: Some(spine0), bits_per_second: 20_000_000, payload_bytes: 1_000 };
                remote.start_traffic(config);
            }
            // The stream begins with the next turn, so it is under way while this runs.
            allreduce(6, 60_000)(driver, rank)
        }),
    );
    assert_sums(6, 60_000, &results);
    let received: u64 = results.iter().map(|(_, status)| status.traffic_received.packets).sum();
    let status: Vec<FabricStatus> = switches.into_iter().map(|switch| switch.stop().unwrap()).collect();
    assert!(received > 0 && status[2].background_forwarded >= received, "{received} received");
    assert_eq!(status[3].background_forwarded, 0, "none by the other spine");
}

/// Whoever reaches the port cannot have all memory, by one job or by many, nor end the process by asking for more than there is.
#[test]
fn jobs_that_want_more_memory_than_a_switch_has_are_refused_and_change_nothing() {
    let fabric = fabric(FABRIC);
    let leaf = fabric.node_named("leaf1").unwrap();
    let config = FabricDaemonConfig { memory_bytes_max: 48 << 20, jobs_max: 3, ..FabricDaemonConfig::new(fabric.clone(), leaf) };
    let _switch = FabricDaemon::start(config).unwrap();
    let mut client = client(&fabric, "leaf1");
    let refused = |result: Result<bool, _>| result.map_err(|error: fanin_daemon::FabricClientError| error.to_string()).unwrap_err();
    let tree = System::tree(1);
    for (job, system) in
        (1..).zip([canary(), tree, System::atp(), System::a2tp(), System::SwitchMl(SwitchMlParameters { fixed_point: false })])
    {
        let mut all = announcement(&fabric, job, system);
        all.window = 1 << 31;
        match &mut all.system {
            System::Canary(parameters) => parameters.descriptors = u32::MAX,
            System::Atp(parameters) => parameters.aggregators = u32::MAX,
            System::A2tp(parameters) => parameters.aggregators = u32::MAX,
            _ => {}
        }
        let text = refused(client.announce(&all));
        assert!(text.contains(&format!("job {job} wants ")) && text.contains("this switch has 48 MiB for all jobs: fewer "), "{text}");
    }
    assert!(client.status().unwrap().jobs.is_empty());
    // Two of these are too many.
    let half = |job| {
        let mut half = announcement(&fabric, job, tree);
        half.window = 1 << 13;
        half
    };
    assert!(client.announce(&half(1)).unwrap());
    let text = refused(client.announce(&half(2)));
    assert!(text.contains("job 2 wants ") && text.contains("1 running jobs have ") && text.contains("end one, or fewer window"), "{text}");
    assert!(refused(client.announce(&half(1))).contains("job 1 runs here already"));
    client.end(1).unwrap();
    assert!(client.announce(&half(2)).unwrap());
    let small = |job| announcement(&fabric, job, tree);
    assert!(client.announce(&small(3)).unwrap() && client.announce(&small(4)).unwrap());
    assert!(refused(client.announce(&small(5))).contains("3 jobs run here, and no more may"));
}

#[test]
fn what_a_switch_refuses_is_said() {
    let fabric = fabric(FABRIC);
    let _switches = switches(&fabric);
    let mut client = client(&fabric, "leaf1");
    let job = announcement(&fabric, 1, canary());
    assert!(client.announce(&job).unwrap());
    let refused = |result: Result<bool, _>| result.map_err(|error: fanin_daemon::FabricClientError| error.to_string()).unwrap_err();
    assert!(refused(client.announce(&job)).ends_with("refuses: job 1 runs here already; end it first"));
    let stranger = JobAnnouncement { job: 2, hosts: vec![0, 99], ..job.clone() };
    assert!(refused(client.announce(&stranger)).ends_with("hosts = 99: expected numbers of hosts, below 8"));
    let ring = JobAnnouncement {
        job: 3,
        system: System::Ring(RingParameters { order: RingOrder::Host, barrier: false, steps: fanin_systems::StepParameters::NONE }),
        reliable: true,
        ..job
    };
    assert!(!client.announce(&ring).unwrap(), "a ring has nothing to do at a switch");
    client.end(1).unwrap();
    assert!(client.status().unwrap().jobs.is_empty());
    let nobody = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
    assert!(FabricClient::connect(nobody, Duration::from_secs(5)).unwrap_err().to_string().contains("127.0.0.1:9 does not answer"));
}
