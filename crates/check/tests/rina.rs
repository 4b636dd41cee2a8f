//! Rina: random runs, also with hosts that die, every behaviour of small jobs, and bugs put in on purpose, which are found.

use crate::small::{BLOCK, assert_found, assert_holds, star};
use fanin_check::model::{EXACT, Limits, NetworkModel};
use fanin_check::{Checks, Recipe, campaign, examine, generate_for, run, violations};
use fanin_core::{Census, Duration, Instant, JobId, NetworkMap, NodeId};
use fanin_protocols::rina::Planted;
use fanin_sim::faults::TimedFault;
use fanin_systems::{AnyNode, JobSpec, RinaOnward, RinaParameters, RinaPartitions, RinaResults, System, UNLIMITED};

fn rina(aggregating: u32) -> System {
    System::Rina(RinaParameters { aggregating, full_speed_bps: 0, ..RinaParameters::default() })
}

/// With balanced partitions, an agent's results first, and results sent on by these.
fn balanced(aggregating: u32, onward: RinaOnward) -> System {
    let (partitions, results) = (RinaPartitions::Balanced, RinaResults::First);
    System::Rina(RinaParameters { aggregating, full_speed_bps: 0, partitions, results, onward, ..RinaParameters::default() })
}

/// With repetitions of every run, and elements in place of the census.
#[test]
fn random_runs_are_as_they_must_be() {
    let report = campaign(0, 600, Checks { only: Some("rina"), ..Checks::default() });
    println!("{report}");
    report.assert_clean();
    assert!(report.jobs_complete > 600 && report.runs_with_deaths > 60 && report.retransmitted > 10_000, "{report}");
}

#[test]
fn any_share_of_switches_may_aggregate() {
    for (leaves, hosts) in [(1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (3, 3), (4, 2)] {
        for aggregating in [0, 1, 2, UNLIMITED] {
            let recipe = Recipe::fat_tree(rina(aggregating), leaves, hosts, 10_000);
            let (result, found) = examine(&recipe, Checks::default());
            assert_eq!(found, [""; 0], "{leaves} x {hosts}, {aggregating} aggregate");
            let resent = result.expect("the run is possible").counters.retransmitted_total();
            assert_eq!(resent, 0, "{leaves} x {hosts}, {aggregating} aggregate");
        }
    }
}

/// `rina 4.4`: where an agent's results go before its gradients, these wait at the agent for longer than any round trip; that is no loss. As long as their
/// time counted, 16 MiB with two racks had 500 pieces summed twice, and timeouts of 100 us at first and 20 us at least do not wait for that. Where switches send results
/// on, queues of these may still hold back acknowledgements for longer than such times.
#[test]
fn nothing_is_sent_again_where_nothing_is_lost() {
    for aggregating in 1..=4 {
        let mut recipe = Recipe::fat_tree(balanced(aggregating, RinaOnward::Agent), 4, 4, 4 << 20);
        (recipe.network.queue_bytes, recipe.network.ecn_mark_bytes) = (4 << 20, 400_000);
        let job = &mut recipe.jobs[0];
        (job.payload_bytes, job.window) = (1_024, 512);
        (job.rto_initial, job.rto_min) = (Duration::from_us(100), Duration::from_us(20));
        let (result, found) = examine(&recipe, Checks { twice: false, elements: false, ..Checks::default() });
        assert_eq!(found, [""; 0], "{aggregating} aggregate");
        let again = result.expect("the run is possible").counters.retransmitted_total();
        assert_eq!(again, 0, "{aggregating} aggregate");
    }
}

/// Racks of 48, as switches have them.
#[test]
fn racks_may_be_large() {
    for hosts in [33, 48] {
        let recipe = Recipe::fat_tree(rina(UNLIMITED), 2, hosts, 20_000).with_link_fault(0.002, 0.01, 0.01, Duration::from_us(5));
        let (result, found) = examine(&recipe, Checks::default());
        assert_eq!(found, [""; 0], "{hosts} a rack");
        assert!(result.expect("the run is possible").counters.retransmitted_total() > 0);
    }
}

/// `rina 4.4`: what links lose is sent again within round trips, by gaps, and says nothing of the rate where there is no queue: of a thousand packets
/// one is lost on each link, of a piece of a rack of four one of a hundred, and the time grows by less than a quarter. It was 2.4 times as long.
#[test]
fn losses_cost_little_time() {
    let time = |loss: f64| {
        let mut recipe = Recipe::fat_tree(rina(UNLIMITED), 4, 4, 1 << 20);
        if loss > 0.0 {
            recipe = recipe.with_link_fault(loss, 0.0, 0.0, Duration::from_us(1));
        }
        let (result, found) = examine(&recipe, Checks::default());
        assert_eq!(found, [""; 0]);
        let jobs = result.expect("the run is possible").jobs;
        let ends = jobs[0].workers.iter().filter_map(|worker| worker.operations.last()?.ended).max();
        ends.expect("it has ended").since(Instant::ZERO).as_ps()
    };
    let (free, lossy) = (time(0.0), time(0.001));
    assert!(lossy * 4 < free * 5, "{lossy} and {free} ps");
}

/// `rina 4.5` to `4.7`: a host dies, also an agent and the coordinator; the others complete, with sums that are those of the same workers.
#[test]
fn the_others_complete_when_a_host_dies() {
    for rank in 0..6 {
        for at in [0, 3, 10, 15, 20, 25, 30, 40] {
            for aggregating in [0, 1, UNLIMITED] {
                let mut recipe = Recipe::fat_tree(rina(aggregating), 2, 3, 10_000).with_link_fault(0.005, 0.02, 0.02, Duration::from_us(5));
                recipe.jobs[0].elements = vec![10_000, 3, 5_000];
                recipe.jobs[0].patience = Duration::from_ms(5);
                recipe.faults.timed.push(TimedFault::HostDies { host: NodeId(rank), at: Instant::ZERO + Duration::from_us(at) });
                let (result, found) = examine(&recipe, Checks::default());
                assert_eq!(found, [""; 0], "rank {rank} dies at {at} us, {aggregating} aggregate");
                let workers = &result.expect("the run is possible").jobs[0].workers;
                let others = workers.iter().filter(|worker| worker.host != rank);
                let complete =
                    others.filter(|worker| worker.operations.len() == 3 && worker.operations.iter().all(|one| one.failure.is_none()));
                assert_eq!(complete.count(), 5);
            }
        }
    }
}

/// Two racks of so many workers under one root.
pub fn two_racks(first: u32, second: u32) -> (NetworkMap, Vec<NodeId>) {
    let hosts = first + second;
    let mut map = NetworkMap::new(hosts, &[1, 1, 2]);
    (0..hosts).for_each(|host| _ = map.join(NodeId(host), NodeId(hosts + u32::from(host >= first))));
    (hosts..hosts + 2).for_each(|leaf| _ = map.join(NodeId(leaf), NodeId(hosts + 2)));
    (map, (0..hosts).map(NodeId).collect())
}

pub fn model((map, hosts): (NetworkMap, Vec<NodeId>), elements: &[u64], limits: Limits, patience: Duration) -> NetworkModel {
    let spec = JobSpec {
        id: JobId(0),
        hosts: &hosts,
        servers: &[],
        system: rina(UNLIMITED),
        op: (),
        element_bytes: 4,
        payload_bytes: 4 * BLOCK as u32,
        window: 1,
        reliable: true,
        rto_initial: Duration::from_ps(16),
        rto_min: Duration::from_ps(1),
        patience,
        seed: 0,
    };
    NetworkModel::new(&spec, map, elements, limits).expect("the job fits the network")
}

const ONE_LOSS: Limits = Limits { losses: 1, duplicates: 0, early_timeouts: 0, rounds: 16 };

#[test]
fn every_behaviour_of_small_jobs_is_right() {
    assert_holds("rina, star of 2, 2 blocks", model(star(2), &[2 * BLOCK], ONE_LOSS, Duration::MAX), 100);
    assert_holds("rina, star of 2, 2 operations", model(star(2), &[BLOCK, 1], ONE_LOSS, Duration::MAX).with_late_worker(), 100);
    assert_holds("rina, a rack and a worker", model(two_racks(2, 1), &[1], ONE_LOSS, Duration::MAX), 1_000);
}

#[test]
#[ignore = "takes minutes: make check-models"]
fn minutes_of_rina_with_a_piece_for_each_rack() {
    assert_holds("rina, a rack and a worker, two pieces", model(two_racks(2, 1), &[2], ONE_LOSS, Duration::MAX), 1_000_000);
}

pub fn plant(bug: Planted) -> impl Fn(&mut AnyNode<Census>) {
    move |node| match node {
        AnyNode::RinaWorker(worker) => worker.plant(bug),
        AnyNode::RinaSwitch(switch) => switch.plant(bug),
        _ => {}
    }
}

/// `rina` P1, P4 to P6.
#[test]
fn planted_bugs_are_found_within_40_random_runs() {
    let recipes: Vec<Recipe> = (0..40).map(|seed| generate_for(seed, Some("rina"))).collect();
    let findings = |recipe: &Recipe, bug| match run::<Census>(recipe, plant(bug)) {
        Ok(result) => violations(recipe, &result),
        Err(words) => vec![words],
    };
    for recipe in &recipes {
        assert_eq!(findings(recipe, Planted::None), [""; 0], "without the bug:\n{recipe}");
    }
    for bug in [Planted::IgnoreBitmap, Planted::AddTwice] {
        let found = recipes.iter().filter(|recipe| !findings(recipe, bug).is_empty()).count();
        println!("{bug:?}: {found} runs show it");
        assert!(found >= 3, "{bug:?}: {found} runs show it");
    }
}

/// `rina 4.7`, P5: who hands out results before all have them cannot begin anew with the others; nor can who mixes epochs.
#[test]
fn bugs_in_the_end_of_an_epoch_are_found_when_a_host_dies() {
    let mut found = [0; 2];
    for at in 0..60 {
        let mut recipe = Recipe::fat_tree(rina(UNLIMITED), 2, 3, 2_000).with_link_fault(0.05, 0.0, 0.0, Duration::from_us(5));
        recipe.jobs[0].patience = Duration::from_ms(2);
        let host = NodeId(at % 6);
        recipe.faults.timed.push(TimedFault::HostDies { host, at: Instant::ZERO + Duration::from_us(2 + u64::from(at)) });
        let violations_of = |bug| match run::<Census>(&recipe, plant(bug)) {
            Ok(result) => violations(&recipe, &result),
            Err(words) => vec![words],
        };
        assert_eq!(violations_of(Planted::None), [""; 0]);
        for (found, bug) in found.iter_mut().zip([Planted::SkipCommit, Planted::KeepEpoch]) {
            *found += usize::from(!violations_of(bug).is_empty());
        }
    }
    println!("SkipCommit, KeepEpoch: {found:?} of 60 runs show it");
    assert!(found.iter().all(|found| *found >= 3), "{found:?}");
}

/// The same bugs in the smallest job.
#[test]
fn planted_bugs_have_counterexamples() {
    for bug in [Planted::IgnoreBitmap, Planted::AddTwice] {
        let limits = Limits { losses: 0, early_timeouts: 1, ..ONE_LOSS };
        let model = model(star(2), &[2 * BLOCK], limits, Duration::MAX).altered(plant(bug));
        assert_found(&format!("{bug:?}"), model, EXACT);
    }
}
