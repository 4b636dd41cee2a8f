//! Communicators over fabrics of several switches: every collective is exact by every system, whatever is lost, and what cannot go on is told by
//! name to all.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use common::fabric::{Running, WORLD, all_collectives, sum, sum_until, vector};
use common::{PATIENT, at_all, run};
use fanin_comm::{Config, Fallback, Meeting, Operator, PathReport, ReproducibleBy};
use fanin_daemon::{Daemon, DaemonConfig, FabricClient, FabricDaemon, FabricDaemonConfig};
use fanin_net::FaultPlan;
use fanin_systems::System;
use fanin_trust::{FabricKey, Protection, Secret};

#[test]
fn every_collective_is_exact_by_every_system() {
    let running = Running::start(FaultPlan::default());
    for system in System::all() {
        let Ok(Some(_)) = Config::from_variables(|name| match name {
            "FANIN_SYSTEM" => Some(system.name().into()),
            "FANIN_FABRIC" => Some("m:1".into()),
            "FANIN_RANK" => Some("0".into()),
            "FANIN_WORLD" => Some("2".into()),
            _ => None,
        })
        .map(|config| config.system) else {
            continue;
        };
        let (configs, _) = running.configs(system.name(), Some(system.name()));
        let name = system.name();
        run(configs, move |comm| {
            assert!(matches!(comm.path(), PathReport::Fabric { system, .. } if system == name), "{}", comm.path());
            all_collectives::<f32>(&comm, 701);
        });
    }
}

#[test]
fn reproducible_sums_have_the_same_bits_by_every_system() {
    let running = Running::start(FaultPlan::default());
    let value = |rank: u32, index: usize| {
        let draw = fanin_core::hash::mix(u64::from(rank), index as u64);
        draw as i32 as f32 / (1u64 << (draw >> 59)) as f32
    };
    let mut first = None;
    for system in ["canary", "tree", "switchml", "rina", "sharp", "netreduce", "panama", "ring", "exchange"] {
        let (mut configs, _) = running.configs(system, Some(system));
        configs.iter_mut().for_each(|config| config.reproducible = Some(ReproducibleBy::Element));
        let results = run(configs, move |comm| {
            let mut sums: Vec<f32> = (0..3_001).map(|index| value(comm.rank(), index)).collect();
            comm.allreduce(&mut sums, Operator::Sum).unwrap();
            // Other elements first, and the ranks' vectors the other way round.
            let mirror = comm.world() - 1 - comm.rank();
            let mut packed: Vec<f32> =
                (0..77).map(|index| 1e20 * index as f32).chain((0..3_001).map(|index| value(mirror, index))).collect();
            comm.allreduce(&mut packed, Operator::Sum).unwrap();
            assert!(packed[77..] == sums, "{system}");
            let mut narrow: Vec<f64> = sums[..100].iter().map(|x| f64::from(*x)).collect();
            comm.allreduce(&mut narrow, Operator::Avg).unwrap();
            assert!(narrow.iter().zip(&sums).all(|(mean, x)| *mean == f64::from(*x)), "{system}: of equal values");
            sums.into_iter().map(f32::to_bits).collect::<Vec<_>>()
        });
        for bits in results {
            assert!(*first.get_or_insert_with(|| bits.clone()) == bits, "{system}");
        }
    }
}

#[test]
fn every_type_and_means_are_exact_and_groups_are_jobs_of_their_own() {
    let running = Running::start(FaultPlan::default());
    let (configs, _) = running.configs("types", None);
    run(configs, |comm| {
        all_collectives::<u8>(&comm, 33);
        all_collectives::<i32>(&comm, 500);
        all_collectives::<f64>(&comm, 3);
        let mut mean = vector::<f32>(comm.rank(), 1_000);
        comm.allreduce(&mut mean, Operator::Avg).unwrap();
        assert!((0..1_000).all(|index| mean[index] == sum::<f32>(index) / WORLD as f32), "canary's leaders divide");
        let group = comm.split(Some(comm.rank() % 2), 0).unwrap().expect("every rank has a group");
        let mut ranks = [comm.rank() as f32];
        group.allreduce(&mut ranks, Operator::Sum).unwrap();
        assert_eq!(ranks, [if comm.rank() % 2 == 0 { 2.0 } else { 4.0 }]);
        let sparse = comm.allreduce_sparse(&[u64::from(comm.rank()), 9], &[1.0f32, 2.0], 100, Operator::Sum).unwrap();
        assert_eq!((sparse.indices, sparse.values), (vec![0, 1, 2, 3, 9], vec![1.0, 1.0, 1.0, 1.0, 8.0]));
        assert!(sparse.report.to_string().contains("the fabric sums dense vectors"), "{}", sparse.report);
    });
    let (configs, _) = running.configs("tree", Some("tree"));
    run(configs, |comm| {
        let mut mean = vector::<f32>(comm.rank(), 1_000);
        comm.allreduce(&mut mean, Operator::Avg).unwrap();
        assert!((0..1_000).all(|index| mean[index] == sum::<f32>(index) / WORLD as f32), "hosts divide");
    });
}

#[test]
fn sums_are_exact_where_every_link_loses_packets() {
    let faults = FaultPlan { loss: 0.01, duplicate: 0.005, reorder: 0.005, seed: 7, ..FaultPlan::default() };
    let running = Running::start(faults);
    for system in ["canary", "tree", "switchml", "rina", "a2tp", "ring"] {
        let (configs, _) = running.configs(system, Some(system));
        let retransmitted = run(configs, |comm| {
            for share in [1, 20_000] {
                all_collectives::<f32>(&comm, share);
            }
            comm.statistics().counters.retransmitted.iter().sum::<u64>()
        });
        assert!(retransmitted.iter().sum::<u64>() > 0, "{system}");
    }
}

#[test]
fn a_killed_spine_and_a_restarted_leaf_cost_no_sum_of_canary() {
    let mut running = Running::start(FaultPlan::default());
    let (configs, _) = running.configs("kill", Some("canary"));
    let (stop, begun) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(0)));
    let (told, counted) = (stop.clone(), begun.clone());
    let ranks = thread::spawn(move || {
        run(configs, move |comm| {
            sum_until(&comm, &AtomicBool::new(true), 10);
            *counted.lock().unwrap() += 1;
            sum_until(&comm, &told, 200_000)
        })
    });
    while *begun.lock().unwrap() < WORLD {
        thread::sleep(Duration::from_millis(1));
    }
    for name in ["spine0", "leaf1"] {
        thread::sleep(Duration::from_millis(100));
        running.kill_switch(name);
        thread::sleep(Duration::from_millis(100));
        running.start_switch(name);
        // The manager tells it of the job again.
        let address = running.fabric.node(running.fabric.node_named(name).unwrap()).address;
        while FabricClient::connect(address, PATIENT).unwrap().status().unwrap().jobs.is_empty() {
            thread::sleep(Duration::from_millis(10));
        }
    }
    stop.store(true, Ordering::Relaxed);
    assert!(ranks.join().unwrap().iter().all(|rounds| *rounds > 0));
}

#[test]
fn a_rank_that_is_gone_is_named_by_all() {
    let running = Running::start(FaultPlan::default());
    for system in ["canary", "tree", "rina"] {
        let (configs, _) = running.configs(&format!("gone-{system}"), Some(system));
        let all_have_it = Arc::new(Barrier::new(WORLD as usize));
        let errors = run(configs, move |comm| {
            sum_until(&comm, &AtomicBool::new(true), 100);
            all_have_it.wait();
            if comm.rank() == 2 {
                comm.abort("its user has had enough");
                return String::new();
            }
            let mut vector = vec![1.0f32; 50_000];
            let error = comm.allreduce(&mut vector, Operator::Sum).unwrap_err();
            assert_eq!(error.suspect_rank(), Some(2), "{error}");
            error.to_string()
        });
        assert!(errors.iter().enumerate().all(|(rank, error)| rank == 2 || error.contains("rank 2 has ended the job")), "{errors:?}");
    }
}

#[test]
fn a_static_tree_whose_switch_is_gone_ends_with_an_error_where_nobody_wants_a_fallback() {
    let mut running = Running::start(FaultPlan::default());
    let (configs, _) = running.configs("static", Some("tree"));
    let configs: Vec<Config> =
        configs.into_iter().map(|config| Config { timeout: Duration::from_secs(2), fallback: Some(Fallback::Error), ..config }).collect();
    let (gone, joined) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(0)));
    let (is_gone, counted) = (gone.clone(), joined.clone());
    let ranks = thread::spawn(move || {
        run(configs, move |comm| {
            sum_until(&comm, &AtomicBool::new(true), 100);
            *counted.lock().unwrap() += 1;
            while !is_gone.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(1));
            }
            comm.allreduce(&mut [1.0f32; 10], Operator::Sum).unwrap_err().to_string()
        })
    });
    while *joined.lock().unwrap() < WORLD {
        thread::sleep(Duration::from_millis(1));
    }
    running.kill_switch("leaf1");
    gone.store(true, Ordering::Relaxed);
    for error in ranks.join().unwrap() {
        assert!(error.contains("leaf1"), "{error}");
    }
}

#[test]
fn a_job_begins_without_a_spine_which_is_told_of_it_when_it_comes() {
    let mut running = Running::start(FaultPlan::default());
    running.kill_switch("spine1");
    let (configs, _) = running.configs("without", Some("canary"));
    let (stop, begun) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(0)));
    let (told, counted) = (stop.clone(), begun.clone());
    let ranks = thread::spawn(move || {
        run(configs, move |comm| {
            sum_until(&comm, &AtomicBool::new(true), 10_000);
            *counted.lock().unwrap() += 1;
            sum_until(&comm, &told, 10_000)
        })
    });
    while *begun.lock().unwrap() < WORLD {
        thread::sleep(Duration::from_millis(1));
    }
    running.start_switch("spine1");
    let address = running.fabric.node(running.fabric.node_named("spine1").unwrap()).address;
    while FabricClient::connect(address, PATIENT).unwrap().status().unwrap().jobs.is_empty() {
        thread::sleep(Duration::from_millis(10));
    }
    stop.store(true, Ordering::Relaxed);
    ranks.join().unwrap();
}

#[test]
fn ranks_that_call_different_things_get_no_sum() {
    let running = Running::start(FaultPlan::default());
    for system in ["canary", "tree", "ring", "rina"] {
        let (configs, _) = running.configs(&format!("differ-{system}"), Some(system));
        let configs: Vec<Config> = configs.into_iter().map(|config| Config { timeout: Duration::from_secs(2), ..config }).collect();
        let results = run(configs, |comm| {
            comm.allreduce(&mut vec![1.0f32; 100 + comm.rank() as usize], Operator::Sum).map_err(|error| error.to_string())
        });
        assert!(results.iter().all(Result::is_err), "{system}: {results:?}");
        let (configs, _) = running.configs(&format!("kinds-{system}"), Some(system));
        let configs: Vec<Config> = configs.into_iter().map(|config| Config { timeout: Duration::from_secs(2), ..config }).collect();
        let results = run(configs, |comm| {
            let mut vector = vec![1.0f32; 100];
            let result =
                if comm.rank() == 0 { comm.reduce(&mut vector, Operator::Sum, 0) } else { comm.allreduce(&mut vector, Operator::Sum) };
            result.map_err(|error| error.to_string())
        });
        assert!(results.iter().all(Result::is_err), "{system}: {results:?}");
    }
}

#[test]
fn hosts_sum_where_switches_have_no_room_and_say_why() {
    let mut running = Running::start(FaultPlan::default());
    for name in ["leaf0", "leaf1", "spine0", "spine1"] {
        running.kill_switch(name);
        let node = running.fabric.node_named(name).unwrap();
        let config = FabricDaemonConfig { memory_bytes_max: 4 << 10, ..FabricDaemonConfig::new(running.fabric.clone(), node) };
        running.switches.push((name.to_owned(), FabricDaemon::start(config).unwrap()));
    }
    let (configs, told) = running.configs("small", Some("canary"));
    run(configs, |comm| {
        assert!(matches!(comm.path(), PathReport::Fabric { system: "ring", .. }), "{}", comm.path());
        all_collectives::<f32>(&comm, 700);
        let mut mean = vector::<f32>(comm.rank(), 100);
        comm.allreduce(&mut mean, Operator::Avg).unwrap();
        assert!((0..100).all(|index| mean[index] == sum::<f32>(index) / WORLD as f32));
    });
    let told = told.lock().unwrap();
    assert!(told.iter().any(|text| text.contains("goes on by hosts alone, since") && text.contains("refuses: job")), "{told:?}");
    let (configs, _) = running.configs("strict", Some("tree"));
    let strict = configs.into_iter().map(|config| Config { fallback: Some(Fallback::Error), ..config }).collect();
    for error in at_all(strict, |_| ()).into_iter().map(|result| result.expect_err("there is no room").to_string()) {
        assert!(error.contains("refuses: job"), "{error}");
    }
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let running = Running::start(FaultPlan::default());
    let two = |change: &dyn Fn(&mut Config)| {
        let (configs, _) = running.configs("wrong", None);
        let pair = configs.into_iter().take(2).map(|config| {
            let mut config = Config { world: 2, timeout: Duration::from_secs(5), ..config };
            change(&mut config);
            config
        });
        let errors = at_all(pair.collect(), |_| ()).into_iter().map(|result| result.expect_err("it is refused").to_string());
        errors.collect::<Vec<String>>()
    };
    let nowhere = two(&|config| config.fabric_host = None);
    assert!(nowhere.iter().all(|error| error.contains("set FANIN_FABRIC_HOST to one of host0,")), "{nowhere:?}");
    let unknown = two(&|config| config.fabric_host = Some("host9".into()));
    assert!(unknown.iter().all(|error| error.contains("FANIN_FABRIC_HOST = host9: expected a host of the fabric: host0,")), "{unknown:?}");
    let different = two(&|config| {
        let name = if config.rank == 0 { "tree" } else { "canary" };
        config.system = System::all().into_iter().find(|system| system.name() == name);
    });
    assert!(different.iter().any(|error| error.contains("different things") && error.contains("system")), "{different:?}");
    let manager = running.manager.as_ref().unwrap().control_address().to_string();
    let as_switch = two(&|config| (config.meeting, config.fabric_host) = (Meeting::Switch(manager.clone()), None));
    assert!(as_switch.iter().all(|error| error.contains("FANIN_FABRIC and not as FANIN_SWITCH")), "{as_switch:?}");
    let switch = Daemon::start(DaemonConfig::new("127.0.0.1:0".parse().unwrap())).unwrap();
    let as_fabric = two(&|config| config.meeting = Meeting::Fabric(switch.control_address().to_string()));
    assert!(as_fabric.iter().all(|error| error.contains("a switch answers there, and no manager of a fabric")), "{as_fabric:?}");
}

#[test]
fn options_that_mean_nothing_in_a_fabric_are_refused() {
    let read = |variable: (&str, &str)| {
        let all = [("FANIN_RANK", "0"), ("FANIN_WORLD", "2"), ("FANIN_FABRIC", "m:7701"), variable];
        Config::from_variables(|name| all.iter().rev().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_string()))
    };
    for (variable, expected) in [
        (("FANIN_SYSTEM", "canry"), "FANIN_SYSTEM = canry: expected auto"),
        (("FANIN_TRANSPORT", "shm"), "transport = shm: expected auto or udp in a fabric"),
        (("FANIN_FIXED_POINT", "1"), "fixed_point = true: expected false in a fabric"),
        (("FANIN_SPARSE", "switch"), "sparse = switch: expected auto or lists in a fabric"),
        (("FANIN_BIND", "127.0.0.1"), "bind = 127.0.0.1: expected none in a fabric"),
        (("FANIN_SWITCH", "s:1"), "FANIN_SWITCH = s:1: expected none beside FANIN_FABRIC"),
        (("FANIN_FABRIC", "m"), "FANIN_FABRIC = m: expected HOST:PORT"),
    ] {
        let error = read(variable).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    let without = |name: &'static str, value: &'static str| {
        let all = [("FANIN_RANK", "0"), ("FANIN_WORLD", "2"), ("FANIN_SWITCH", "s:1"), (name, value)];
        Config::from_variables(|name| all.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_string()))
            .unwrap_err()
            .to_string()
    };
    assert!(
        without("FANIN_SYSTEM", "ring")
            .starts_with("system = ring: expected auto, tree, canary, switchml, atp or a2tp without a fabric (FANIN_FABRIC)")
    );
    assert!(without("FANIN_FABRIC_HOST", "host1").starts_with("fabric_host = host1: expected none without a fabric"));
    let rendezvous = [("FANIN_RANK", "0"), ("FANIN_WORLD", "2"), ("FANIN_RENDEZVOUS", "s:1"), ("FANIN_FALLBACK", "error")];
    let read = |name: &str| rendezvous.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_string());
    let error = Config::from_variables(read).unwrap_err().to_string();
    assert_eq!(error, "fallback = error: expected none without a switch (FANIN_SWITCH) or a fabric (FANIN_FABRIC)");
}

fn fabric_key(byte: u8) -> FabricKey {
    FabricKey::new(Secret::new([byte; 32]))
}

/// Keys of cables are those of neighbours, whatever jobs there are: switches that are restarted know them again.
#[test]
fn packets_with_keys_are_exact_by_every_kind_of_system_and_outlive_switches() {
    for protection in [Protection::Mac, Protection::Seal] {
        let faults = FaultPlan { loss: 0.002, duplicate: 0.002, reorder: 0.002, seed: 11, ..FaultPlan::default() };
        let mut running = Running::start_with(faults, Some((protection, fabric_key(1))));
        for system in ["canary", "a2tp", "rina", "flare", "ring"] {
            let (configs, _) = running.configs(&format!("keys-{system}"), Some(system));
            run(configs, |comm| all_collectives::<f32>(&comm, 3_001));
        }
        let (configs, _) = running.configs("restarts", Some("canary"));
        let (turn, going_on) = (Arc::new(Barrier::new(WORLD as usize + 1)), Arc::new(Barrier::new(WORLD as usize + 1)));
        thread::scope(|scope| {
            let (turn, going_on) = (turn.clone(), going_on.clone());
            let (theirs, back) = (turn.clone(), going_on.clone());
            let ranks = scope.spawn(move || {
                run(configs, move |comm| {
                    let sums = || {
                        let mut values = vector::<f32>(comm.rank(), 20_000);
                        comm.allreduce(&mut values, Operator::Sum).unwrap();
                        assert!(values.iter().enumerate().all(|(index, value)| *value == sum::<f32>(index)));
                    };
                    for _ in 0..2 {
                        sums();
                        theirs.wait();
                        back.wait();
                    }
                    sums();
                })
            });
            for switch in ["spine0", "leaf1"] {
                turn.wait();
                running.restart_switch(switch);
                going_on.wait();
            }
            ranks.join().unwrap();
        });
    }
}

#[test]
fn a_switch_with_another_key_or_none_is_named_with_what_both_have() {
    for (of_switch, said) in [
        (None, "--packets none and no key"),
        (Some((Protection::Mac, fabric_key(1))), "--packets mac and the key"),
        (Some((Protection::Seal, fabric_key(2))), "--packets seal and the key"),
    ] {
        let mut running = Running::start_with(FaultPlan::default(), Some((Protection::Seal, fabric_key(1))));
        running.kill_switch("leaf1");
        running.start_switch_with_keys("leaf1", of_switch);
        let (mut configs, _) = running.configs("disagreed", Some("canary"));
        configs.iter_mut().for_each(|config| config.fallback = Some(Fallback::Error));
        for joined in at_all(configs, |_| ()) {
            let text = joined.expect_err("no job begins").to_string();
            assert!(text.contains("leaf1") && text.contains(said) && text.contains("and the manager --packets seal"), "{text}");
        }
    }
}
