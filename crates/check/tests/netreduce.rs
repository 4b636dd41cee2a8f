//! NetReduce: every behaviour of small jobs; bugs put in on purpose, and a choice of the paper's, are found; and what its paper says of the
//! number of workers.

use crate::small::{Literal, assert_found, assert_holds, assert_literal_breaks, star, two_levels};
use fanin_check::model::{EXACT, Limits, NetworkModel, PROGRESS};
use fanin_check::{Recipe, generate_for, run, violations};
use fanin_core::{Census, Duration, JobId, NetworkMap, NodeId};
use fanin_protocols::netreduce::Planted;
use fanin_sim::{LinkSpeed, Shape};
use fanin_systems::{AnyNode, DeallocationRule, JobSpec, NetReduceParameters, RecoveryRule, System};

/// Elements of a message of one packet: four more are its header.
const SHORT: u64 = 4;
/// Elements of a message of two packets.
const LONG: u64 = 12;

fn with(change: impl Fn(&mut NetReduceParameters)) -> System {
    let mut parameters = NetReduceParameters { window_messages: 1, ..NetReduceParameters::default() };
    change(&mut parameters);
    System::NetReduce(parameters)
}

/// A job whose window has so many packets.
pub fn model((map, hosts): (NetworkMap, Vec<NodeId>), system: System, window: u32, elements: &[u64], limits: Limits) -> NetworkModel {
    let spec = JobSpec {
        id: JobId(0),
        hosts: &hosts,
        servers: &[],
        system,
        op: (),
        element_bytes: 4,
        payload_bytes: 32,
        window,
        reliable: true,
        // Times mean little here; but what a node may do again after some time, it may do at once.
        rto_initial: Duration::from_ps(16),
        rto_min: Duration::from_ps(1),
        // Who waits for a packet to come again has no other timer than its patience.
        patience: Duration::MAX,
        seed: 0,
    };
    NetworkModel::new(&spec, map, elements, limits).expect("the job fits the network")
}

const ONE_LOSS: Limits = Limits { losses: 1, duplicates: 0, early_timeouts: 0, rounds: 4 };

#[test]
fn every_behaviour_of_small_jobs_is_right() {
    let netreduce = with(|_| {});
    assert_holds("netreduce, star of 2, 2 messages", model(star(2), netreduce, 1, &[2 * SHORT], ONE_LOSS), 10_000);
    let no_loss = Limits { losses: 0, ..ONE_LOSS };
    assert_holds("netreduce, star of 2, a message of 2 packets", model(star(2), netreduce, 2, &[LONG], no_loss), 100_000);
    assert_holds("netreduce, star of 2, 2 operations", model(star(2), netreduce, 1, &[SHORT, 1], ONE_LOSS).with_late_worker(), 1_000);
    assert_holds("netreduce, two levels", model(two_levels(), netreduce, 1, &[SHORT], ONE_LOSS), 30_000);
}

/// The paper's: network cards alone recover what is lost.
#[test]
fn every_behaviour_of_small_jobs_whose_cards_recover_alone_is_right() {
    let cards = with(|parameters| parameters.recovery = RecoveryRule::Cards);
    assert_holds("netreduce, cards alone, 2 messages", model(star(2), cards, 1, &[2 * SHORT], ONE_LOSS), 1_500);
    let limits = Limits { early_timeouts: 1, ..ONE_LOSS };
    assert_holds("netreduce, cards alone, early timeouts", model(star(2), cards, 1, &[2 * SHORT], limits), 50_000);
    assert_holds("netreduce, cards alone, a message of 2 packets", model(star(2), cards, 2, &[LONG], ONE_LOSS), 100_000);
    assert_holds("netreduce, cards alone, two levels", model(two_levels(), cards, 1, &[SHORT], ONE_LOSS), 1_500);
}

#[test]
#[ignore = "takes minutes: make check-models"]
fn minutes_of_netreduce_with_losses_of_long_messages_and_early_timeouts() {
    let netreduce = with(|_| {});
    assert_holds("netreduce, star of 2, a message of 2 packets, a loss", model(star(2), netreduce, 2, &[LONG], ONE_LOSS), 1_000_000);
    let limits = Limits { early_timeouts: 1, ..ONE_LOSS };
    assert_holds("netreduce, star of 2, early timeouts", model(star(2), netreduce, 1, &[2 * SHORT], limits), 500_000);
}

/// `netreduce` P3, in the smallest job that shows it; P2 needs two messages of two packets, which have too many states
/// (`crates/protocols/tests/netreduce_literal.rs` has both).
#[test]
fn the_papers_rule_that_loses_sums_is_found() {
    let freed = with(|parameters| parameters.deallocation = DeallocationRule::Packet);
    let rule = Literal {
        clause: "NetReduce, free a slot (specification 5.2, step 5; P3)",
        says: "A slot becomes free when a packet one window later arrives.",
        instead: "when the sum one window later is complete: a packet of the fastest worker says nothing of the others, who may still need the sum again",
    };
    assert_literal_breaks("freed by a packet", model(star(2), freed, 1, &[3 * SHORT], ONE_LOSS), PROGRESS, rule);
}

fn plant(bug: Planted) -> impl Fn(&mut AnyNode<Census>) {
    move |node| {
        if let AnyNode::NetReduceSwitch(switch) = node {
            switch.plant(bug);
        }
    }
}

/// `netreduce` P4 and P6.
#[test]
fn planted_bugs_are_found_in_a_small_job() {
    for bug in [Planted::Accumulate, Planted::IgnoreOwner] {
        let limits = Limits { losses: 0, early_timeouts: 1, ..ONE_LOSS };
        assert_found(&format!("netreduce, {bug:?}"), model(star(2), with(|_| {}), 1, &[4 * SHORT], limits).altered(plant(bug)), EXACT);
    }
}

#[test]
fn planted_bugs_are_found_within_20_random_runs() {
    let recipes: Vec<Recipe> = (0..20).map(|seed| generate_for(seed, Some("netreduce"))).collect();
    let findings = |recipe: &Recipe, bug| match run::<Census>(recipe, plant(bug)) {
        Ok(result) => violations(recipe, &result),
        Err(words) => vec![words],
    };
    for recipe in &recipes {
        assert_eq!(findings(recipe, Planted::None), [""; 0], "without the bug:\n{recipe}");
    }
    // Packets of one connection rarely overtake each other by two windows.
    for (bug, at_least) in [(Planted::Accumulate, 3), (Planted::IgnoreOwner, 1)] {
        let is_wrong_sum = |what: &String| what.contains("is not the sum of all contributions");
        let found = recipes.iter().filter(|recipe| findings(recipe, bug).iter().any(is_wrong_sum)).count();
        println!("{bug:?}: {found} runs show it");
        assert!(found >= at_least, "{bug:?}: {found} runs show it");
    }
}

/// How long an allreduce of 4 MB takes, in microseconds: 1 KiB packets at 100 Gb/s, each frame with 82 bytes beside its payload.
fn duration_us(workers: u32, window_messages: u32, latency: Duration) -> f64 {
    let parameters = NetReduceParameters { window_messages, ..NetReduceParameters::default() };
    let mut recipe = Recipe::star(System::NetReduce(parameters), workers, 1_000_000);
    recipe.network.frame_overhead_bytes = 82;
    let link = LinkSpeed { bits_per_second: 100_000_000_000, latency };
    recipe.network.shape = Shape::Star { hosts: workers, link };
    let job = &mut recipe.jobs[0];
    (job.payload_bytes, job.window) = (1_024, 170 * window_messages);
    (job.rto_initial, job.rto_min) = (Duration::from_ms(1), Duration::from_ms(1));
    job.patience = Duration::from_ms(100);
    let result = run::<Census>(&recipe, |_| {}).expect("the run is possible");
    assert_eq!(violations(&recipe, &result), [""; 0]);
    let ends = result.jobs[0].workers.iter().map(|worker| worker.operations[0].ended.expect("all complete"));
    ends.max().expect("there are workers").as_ps() as f64 / 1e6
}

/// The paper's linear scaling: the time does not depend on the number of workers.
#[test]
fn time_does_not_depend_on_the_number_of_workers() {
    let times = [2, 4, 8, 16, 32].map(|workers| duration_us(workers, 2, Duration::from_ns(300)));
    println!("{times:?} us for 2 to 32 workers");
    let (least, most) = (times.iter().copied().fold(f64::MAX, f64::min), times.iter().copied().fold(0.0, f64::max));
    assert!(most / least < 1.05, "{times:?}");
    // 4 MB at 100 Gb/s times 1024 of 1106 bytes take 345.6 us.
    assert!(least > 345.0 && most < 370.0, "{times:?}");
}

/// With 6.3 us from a packet to its sum, as in the paper's Table 6: two messages of 170 packets fill the network. One is 2.2 times what is under
/// way in a round trip, but the next one goes only when all of it is back, so that the network rests for a round trip each time.
#[test]
fn a_window_of_one_message_does_not_fill_the_network() {
    let [one, two] = [1, 2].map(|messages| duration_us(6, messages, Duration::from_ns(3_100)));
    println!("{one} us with one message, {two} us with two");
    assert!(two < 365.0, "{two}");
    let share = two / one;
    assert!(share > 0.65 && share < 0.8, "{share}");
}
