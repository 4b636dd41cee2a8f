//! Communicators over a fabric whose hosts have several ranks: each host's ranks sum in shared memory first, and one of them goes over the fabric.

mod common;

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use common::{PATIENT, Told, run};
use fanin_comm::{CommError, Communicator, Config, Element, Notices, Operator, PathReport, ReproducibleBy};
use fanin_control::{FabricFile, FailureKind};
use fanin_daemon::{Daemon, DaemonConfig, DaemonHandle, FabricDaemon, FabricDaemonConfig, FabricDaemonHandle};
use fanin_fabric::Fabric;

const FABRIC: &str = "[defaults]\nrate = \"800Mb/s\"\nbuffer = \"1MiB\"\ndelay = \"50us\"\nhello_interval = \"20ms\"\nhello_timeout = \"1s\"\n\
                      [leaf_spine]\nleaves = 2\nspines = 2\nhosts_per_leaf = 2\n";

/// The host of each rank: one host has three ranks, one two, one a single one, and they are not in the order of ranks.
const UNEVEN: [u32; 6] = [0, 1, 1, 0, 2, 1];

struct Running {
    fabric: Fabric,
    _switches: Vec<FabricDaemonHandle>,
    manager: DaemonHandle,
}

impl Running {
    /// At ports of this test's own address: ports of hosts are taken later than they are found.
    fn start(last: u8) -> Running {
        let fabric = Fabric::parse("fabric.toml", FABRIC).unwrap();
        let pair = || {
            let udp = UdpSocket::bind((Ipv4Addr::new(127, 0, 2, last), 0)).unwrap();
            TcpListener::bind(udp.local_addr().unwrap()).ok().map(|tcp| (udp, tcp))
        };
        let held: Vec<(UdpSocket, TcpListener)> = std::iter::repeat_with(pair).flatten().take(fabric.nodes().len()).collect();
        let fabric = fabric.with_addresses(|node| held[node.index()].0.local_addr().unwrap());
        drop(held);
        let switch = |node| FabricDaemon::start(FabricDaemonConfig::new(fabric.clone(), node)).unwrap();
        let switches = fabric.switches().map(switch).collect();
        let file = FabricFile { name: "fabric.toml".into(), text: fabric.to_toml() };
        let config = DaemonConfig::manager("127.0.0.1:0".parse().unwrap(), fabric.clone(), file).unwrap();
        Running { manager: Daemon::start(config).unwrap(), _switches: switches, fabric }
    }

    /// Of ranks on these hosts.
    fn configs(&self, job: &str, system: &str, hosts: &[u32]) -> (Vec<Config>, Told) {
        let told = Told::default();
        let config = |(rank, host): (usize, &u32)| {
            let told = told.clone();
            let variables = [
                ("FANIN_RANK", rank.to_string()),
                ("FANIN_WORLD", hosts.len().to_string()),
                ("FANIN_FABRIC", self.manager.control_address().to_string()),
                ("FANIN_FABRIC_HOST", format!("host{host}")),
                ("FANIN_SYSTEM", system.to_string()),
            ];
            let get = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone());
            let notices = Notices::to(move |text| told.lock().unwrap().push(text.to_string()));
            Config { job: job.into(), timeout: PATIENT, notices, ..Config::from_variables(get).unwrap() }
        };
        (hosts.iter().enumerate().map(config).collect(), told)
    }
}

fn value(rank: u32, index: usize) -> u8 {
    (rank as usize * 3 + index % 5) as u8
}

fn vector<T: From<u8>>(rank: u32, length: usize) -> Vec<T> {
    (0..length).map(|index| T::from(value(rank, index))).collect()
}

fn sum<T: From<u8>>(world: u32, index: usize) -> T {
    T::from((0..world).map(|rank| value(rank, index)).sum())
}

/// Every collective, with every rank as the root.
fn all_collectives<T: Element + From<u8> + PartialEq + std::fmt::Debug>(comm: &Communicator, share: usize) {
    let (rank, world) = (comm.rank(), comm.world());
    let length = share * world as usize;
    let mut reduced: Vec<T> = vector(rank, length);
    comm.allreduce(&mut reduced, Operator::Sum).unwrap();
    assert!((0..length).all(|index| reduced[index] == sum(world, index)), "allreduce");
    let mut apart = vec![T::from(0); length];
    comm.allreduce_into(&vector::<T>(rank, length), &mut apart, Operator::Max).unwrap();
    assert!((0..length).all(|index| apart[index] == T::from(value(world - 1, index))), "max");
    for root in 0..world {
        let mut at_root: Vec<T> = vector(rank, length);
        comm.reduce(&mut at_root, Operator::Sum, root).unwrap();
        let expected = |index| if rank == root { sum(world, index) } else { T::from(value(rank, index)) };
        assert!((0..length).all(|index| at_root[index] == expected(index)), "reduce to {root}");
        let mut told: Vec<T> = vector(rank, length);
        comm.broadcast(&mut told, root).unwrap();
        assert!((0..length).all(|index| told[index] == T::from(value(root, index))), "broadcast from {root}");
    }
    let mut own: Vec<T> = vector(0, share);
    comm.reduce_scatter(&vector::<T>(rank, length), &mut own, Operator::Sum).unwrap();
    assert!((0..share).all(|index| own[index] == sum(world, rank as usize * share + index)), "reduce-scatter");
    let mut all: Vec<T> = vector(0, length);
    comm.all_gather(&vector::<T>(rank, share), &mut all).unwrap();
    assert!((0..length).all(|index| all[index] == T::from(value((index / share) as u32, index % share))), "all-gather");
    comm.barrier().unwrap();
}

#[test]
fn every_collective_is_exact_however_ranks_are_spread_over_hosts() {
    let running = Running::start(1);
    for (number, (hosts, system)) in
        [(&UNEVEN[..], "canary"), (&[0, 0, 1, 1, 2, 2, 3, 3], "switchml"), (&[3, 2, 1, 3, 2, 1], "rina"), (&[1, 1, 1], "ring")]
            .into_iter()
            .enumerate()
    {
        let (configs, _) = running.configs(&format!("spread{number}"), system, hosts);
        let hosts = hosts.to_vec();
        run(configs, move |comm| {
            let here = hosts.iter().filter(|host| **host == hosts[comm.rank() as usize]).count() as u32;
            let report = comm.path();
            let PathReport::Hierarchy { ranks, first, ref between, .. } = report else { panic!("{report}") };
            assert_eq!(ranks, here, "{report}");
            assert_eq!(between.is_some(), first == comm.rank() && here < comm.world(), "{report}");
            all_collectives::<f32>(&comm, 701);
            all_collectives::<i64>(&comm, 3);
            all_collectives::<u8>(&comm, 1);
            // Empty vectors are barriers.
            comm.allreduce::<f32>(&mut [], Operator::Sum).unwrap();
            let mut mean: Vec<f64> = vec![f64::from(comm.rank()); 5];
            comm.allreduce(&mut mean, Operator::Avg).unwrap();
            assert_eq!(mean, [f64::from(comm.world() - 1) / 2.0; 5]);
        });
    }
}

#[test]
fn long_vectors_travel_in_parts_and_calls_run_in_the_background() {
    let running = Running::start(2);
    let (configs, _) = running.configs("long", "switchml", &UNEVEN);
    run(configs, |comm| {
        let (rank, world, length) = (comm.rank(), comm.world(), (9 << 20) / 4 + 3);
        let first = comm.allreduce_async::<f32>(vector(rank, length), Operator::Sum).unwrap();
        let second = comm.allreduce_async::<f32>(vector(rank, 10), Operator::Sum).unwrap();
        assert!(first.wait().unwrap().iter().enumerate().all(|(index, element)| *element == sum::<f32>(world, index)));
        assert!(second.wait().unwrap().iter().enumerate().all(|(index, element)| *element == sum::<f32>(world, index)));
        let mut at_root: Vec<f32> = vector(rank, length);
        comm.reduce(&mut at_root, Operator::Sum, 5).unwrap();
        assert!(rank != 5 || (0..length).all(|index| at_root[index] == sum::<f32>(world, index)));
        // What goes over the fabric is sent by the first ranks of hosts alone.
        let packets = comm.statistics().counters.packets_sent;
        assert_eq!(packets > 0, [0, 1, 4].contains(&rank), "rank {rank}: {packets}");
    });
}

#[test]
fn reproducible_sums_have_the_same_bits_wherever_ranks_are() {
    let running = Running::start(3);
    let bits = |job: &str, hosts: &[u32]| {
        let (configs, _) = running.configs(job, "canary", hosts);
        let configs = configs.into_iter().map(|config| Config { reproducible: Some(ReproducibleBy::Element), ..config }).collect();
        let found = Arc::new(std::sync::Mutex::new(Vec::new()));
        let all = found.clone();
        run(configs, move |comm| {
            let mut vector: Vec<f32> =
                (0..1_000).map(|index| ((comm.rank() * 7 + index) as f32).sin() * 10f32.powf((index % 9) as f32)).collect();
            comm.allreduce(&mut vector, Operator::Sum).unwrap();
            all.lock().unwrap().push(vector.iter().map(|element| element.to_bits()).collect::<Vec<_>>());
        });
        let found = found.lock().unwrap();
        assert!(found.iter().all(|one| *one == found[0]));
        found[0].clone()
    };
    let alone = bits("alone", &[0, 1, 2, 3]);
    assert_eq!(bits("pairs", &[0, 0, 2, 2]), alone);
    assert_eq!(bits("three", &[1, 3, 3, 3]), alone);
}

#[test]
fn groups_of_ranks_that_share_hosts_sum_as_all_do() {
    let running = Running::start(4);
    let (configs, _) = running.configs("groups", "canary", &[0, 0, 1, 1, 2, 2]);
    run(configs, |comm| {
        let group = comm.split(Some(comm.rank() % 2), i64::from(comm.rank())).unwrap().unwrap();
        assert_eq!(group.world(), 3);
        let mut vector = vec![comm.rank() as f32; 300];
        group.allreduce(&mut vector, Operator::Sum).unwrap();
        assert!(vector.iter().all(|element| *element == if comm.rank() % 2 == 0 { 6.0 } else { 9.0 }));
        let all = comm.split(Some(0), -i64::from(comm.rank())).unwrap().unwrap();
        all_collectives::<f32>(&all, 5);
    });
}

/// Errors of all ranks, where one does something else.
fn errors(
    running: &Running,
    job: &str,
    timeout: Duration,
    act: impl Fn(&Communicator) -> Result<(), CommError> + Sync,
) -> Vec<Option<CommError>> {
    let (configs, _) = running.configs(job, "canary", &UNEVEN);
    thread::scope(|scope| {
        let act = &act;
        let rank = |config| {
            scope.spawn(move || {
                let comm = Communicator::join(Config { timeout, ..config }).unwrap();
                let error = act(&comm).err();
                if let Some(error) = &error {
                    let again = comm.barrier().unwrap_err();
                    assert_eq!(again.suspect_rank(), error.suspect_rank(), "{again}");
                }
                error
            })
        };
        let ranks: Vec<_> = configs.into_iter().map(rank).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

#[test]
fn whoever_ends_the_job_or_does_not_come_is_named_by_its_rank_in_it() {
    let running = Running::start(5);
    let ended = errors(&running, "ended", PATIENT, |comm| {
        comm.allreduce(&mut [1.0f32; 10], Operator::Sum)?;
        if comm.rank() == 5 {
            comm.abort("the user has given up");
        }
        comm.allreduce(&mut [1.0f32; 10], Operator::Sum)
    });
    for error in ended {
        let error = error.unwrap();
        assert_eq!(error.suspect_rank(), Some(5), "{error}");
        assert!(error.to_string().ends_with(": rank 5 has ended the job: the user has given up"), "{error}");
        assert!(matches!(error, CommError::Failed { kind: Some(FailureKind::Aborted), .. }), "{error:?}");
    }
    // Neither the first rank of its host, nor on the host of rank 0.
    let late = errors(&running, "late", Duration::from_secs(2), |comm| {
        comm.allreduce(&mut [1.0f32; 10], Operator::Sum)?;
        if comm.rank() == 2 {
            thread::sleep(Duration::from_secs(12));
        }
        comm.allreduce(&mut [1.0f32; 10], Operator::Sum)
    });
    for (rank, error) in late.into_iter().enumerate() {
        let error = error.unwrap();
        assert_eq!(error.suspect_rank(), Some(2), "rank {rank}: {error}");
        assert!(!matches!(error, CommError::Failed { kind: Some(FailureKind::Aborted), .. }), "{error:?}");
    }
}

#[test]
fn ranks_that_call_different_things_all_hear_of_it() {
    let running = Running::start(6);
    for (job, rank) in [("differ2", 2u32), ("differ4", 4)] {
        let errors = errors(&running, job, PATIENT, |comm| {
            comm.allreduce(&mut [1.0f32; 10], Operator::Sum)?;
            if comm.rank() == rank {
                comm.allreduce(&mut [1.0f32; 11], Operator::Sum)
            } else {
                comm.allreduce(&mut [1.0f32; 10], Operator::Sum)
            }
        });
        for error in errors {
            let error = error.unwrap();
            assert!(error.to_string().contains("11 f32"), "{error}");
        }
    }
    // The same sum for another root.
    let roots = errors(&running, "roots", PATIENT, |comm| {
        comm.reduce(&mut [1.0f32; 10], Operator::Sum, 1)?;
        comm.reduce(&mut [1.0f32; 10], Operator::Sum, if comm.rank() == 3 { 2 } else { 1 })?;
        comm.barrier()
    });
    for error in roots {
        let error = error.unwrap();
        assert!(error.to_string().contains("rank 3") && error.suspect_rank() == Some(3), "{error}");
    }
}

#[test]
fn where_a_hosts_port_is_taken_rank_0_sums_for_all_and_says_why() {
    let running = Running::start(7);
    let taken = running.fabric.node_named("host1").unwrap();
    let _holds = UdpSocket::bind(running.fabric.node(taken).address).unwrap();
    let (configs, told) = running.configs("taken", "canary", &UNEVEN);
    run(configs, |comm| all_collectives::<f32>(&comm, 10));
    let told = told.lock().unwrap();
    let said = told.iter().filter(|text| text.contains("rank 0 sums for all, and not the fabric, since host1 of the fabric")).count();
    assert_eq!(said, UNEVEN.len(), "{told:?}");
}
