//! Random runs from seeds: nothing is wrong in any of them, and enough happens in them for that to mean something.

use std::collections::BTreeMap;

use fanin_check::{Checks, Demand, Recipe, campaign, examine, generate, generate_for, has_parts, run, run_in_parts};
use fanin_core::{Census, DropReason};
use fanin_sim::faults::{FaultPlan, LinkFault, Strays};
use fanin_sim::routing::Balancer;
use fanin_systems::System;

/// Seeds of the campaign. `fanin check` runs as many as one likes.
const SEEDS: u64 = 1_200;

/// The first campaign runs each seed again, to see that nothing but the seed matters; those of one system need not.
fn of_one_system() -> Checks {
    Checks { twice: false, ..Checks::default() }
}

#[test]
fn thousands_of_random_runs_are_as_they_must_be() {
    let report = campaign(0, SEEDS, Checks::default());
    println!("{report}");
    report.assert_clean();
    assert_eq!(report.runs, SEEDS);
    for (system, at_least) in [
        ("tree", SEEDS / 20),
        ("atp", SEEDS / 20),
        ("a2tp", SEEDS / 20),
        ("panama", SEEDS / 20),
        ("netreduce", SEEDS / 20),
        ("machines", SEEDS / 20),
        ("rina", SEEDS / 20),
        ("ring", SEEDS / 6),
        ("switchml", SEEDS / 6),
        ("canary", SEEDS / 20),
    ] {
        assert!(report.jobs[system] > at_least, "{system}: {:?}", report.jobs);
    }
    for system in System::NAMES {
        assert!(report.jobs[system] > SEEDS / 40, "{system}: {:?}", report.jobs);
    }
    for kind in ["allreduce", "reduce", "broadcast", "barrier", "reduce-scatter", "all-gather"] {
        assert!(report.operations[kind] > SEEDS / 20, "{kind}: {:?}", report.operations);
    }
    assert!(report.jobs_complete > SEEDS && report.jobs_failed > SEEDS / 20, "{report}");
    assert!(report.runs_must_complete > SEEDS / 2 && report.runs_with_deaths > SEEDS / 20, "{report}");
    assert!(report.pieces_checked > 500 * SEEDS && report.retransmitted > 100 * SEEDS && report.marked > SEEDS, "{report}");
    let reasons = [
        DropReason::QueueFull,
        DropReason::InjectedLoss,
        DropReason::Corrupted,
        DropReason::Down,
        DropReason::Repeated,
        DropReason::HostDead,
        DropReason::Duplicate,
        DropReason::Stale,
        DropReason::NotReady,
        DropReason::InProgress,
    ];
    for reason in reasons {
        assert!(report.dropped(reason) > 100, "{}: {report}", reason.name());
    }
}

/// Of static trees, also those that only count: what passes switches that only forward is summed further up.
#[test]
fn some_networks_have_switches_that_only_forward() {
    for only in ["tree", "panama"] {
        let partial = (0..300).filter(|&seed| !generate_for(seed, Some(only)).forwarding.is_empty()).count();
        assert!(partial > 30, "{only}: {partial} runs");
        let report = campaign(0, 300, Checks { only: Some(only), ..Checks::default() });
        report.assert_clean();
    }
}

/// Packets that pass a switch's pipeline several times, and multicasts that do.
#[test]
fn some_networks_have_switches_that_lead_packets_back() {
    for only in ["tree", "canary", "switchml"] {
        let recipes = (0..400).map(|seed| generate_for(seed, Some(only)));
        let led_back =
            recipes.filter_map(|recipe| recipe.pipeline).filter(|pipeline| pipeline.shard_ports.is_some() || pipeline.pass_bytes < 512);
        assert!(led_back.count() > 20, "{only}");
        campaign(0, 150, Checks { only: Some(only), ..Checks::default() }).assert_clean();
    }
}

/// Systems that `nvls` is refused for: what they sum at switches does not go through cards.
const CANNOT_BE_CARRIED: [&str; 5] = ["canary", "atp", "a2tp", "netreduce", "rina"];

/// Machines' switches sum, and hosts carry the sums. Only seeds with such networks are run here.
#[test]
fn some_networks_are_machines_whose_hosts_carry_what_is_summed_inside() {
    let (mut runs, mut systems) = (0, BTreeMap::<&str, u32>::new());
    for seed in 0..4_000 {
        let recipe = generate(seed);
        if !recipe.topology().is_ok_and(|topology| topology.map.has_carriers()) {
            continue;
        }
        let (result, findings) = examine(&recipe, of_one_system());
        assert!(result.is_some() && findings.is_empty(), "seed {seed}: {findings:?}\n{recipe}");
        runs += 1;
        recipe.jobs.iter().for_each(|job| *systems.entry(job.system.name()).or_default() += 1);
    }
    println!("{runs} runs: {systems:?}");
    let others: Vec<&str> = System::NAMES.iter().copied().filter(|name| !systems.contains_key(name)).collect();
    assert_eq!(others, CANNOT_BE_CARRIED, "{systems:?}");
}

/// A network in two parts for a while, or for good; and links that carry nothing in one direction. No seed of theirs is run here: the other campaigns
/// have them.
#[test]
fn some_networks_fall_apart_and_some_links_go_one_way_only() {
    let recipes: Vec<_> = (0..SEEDS).map(generate).collect();
    let one_way = recipes.iter().filter(|recipe| recipe.has_deaf_links()).count();
    let cut = recipes.iter().filter(|recipe| recipe.is_cut_in_two());
    let (for_a_while, for_good): (Vec<_>, Vec<_>) = cut.partition(|recipe| recipe.demand == Demand::MustComplete);
    assert!(one_way > 15 && for_a_while.len() > 10 && for_good.len() > 5, "{one_way} {} {}", for_a_while.len(), for_good.len());
}

/// A seed's run without what keeps runs on one core.
fn without_what_keeps_it_on_one_core(seed: u64) -> Recipe {
    let mut recipe = generate(seed);
    (recipe.network.lossless, recipe.network.trimming, recipe.pipeline, recipe.drain) = (None, None, None, false);
    for balancer in [&mut recipe.network.collective_balancer, &mut recipe.network.background_balancer] {
        if !matches!(balancer, Balancer::Ecmp | Balancer::Destination | Balancer::Adaptive { .. }) {
            *balancer = if seed.is_multiple_of(2) { Balancer::Ecmp } else { Balancer::Adaptive { threshold: 0.5 } };
        }
    }
    recipe.limits.clear();
    let (strays, links) = (Strays::default(), std::mem::take(&mut recipe.faults.links));
    let in_order = |fault| LinkFault { duplication: 0.0, reordering: 0.0, ..fault };
    let links = if recipe.traffic.is_empty() { links.into_iter().map(in_order).collect() } else { Vec::new() };
    recipe.faults = FaultPlan { links, timed: Vec::new(), strays, ..recipe.faults };
    recipe.traffic.iter_mut().for_each(|traffic| traffic.congestion = None);
    recipe.jobs.iter_mut().for_each(|job| job.noise_probability = 0.0);
    recipe
}

/// Runs of any systems in networks that have parts give the same to the last count on one core and on several.
#[test]
fn random_runs_in_parts_give_what_one_core_gives() {
    let mut compared = 0;
    for seed in 0..300 {
        let (recipe, parts) = (without_what_keeps_it_on_one_core(seed), 2 + (seed % 3) as usize);
        if has_parts(&recipe, parts) {
            let one = run::<Census>(&recipe, |_| {});
            assert!(one.is_ok() && run_in_parts::<Census>(&recipe, parts) == one, "seed {seed} in {parts} parts");
            compared += 1;
        }
    }
    println!("{compared} runs have parts");
    assert!(compared > 75, "{compared}");
}

#[test]
fn a_seed_always_gives_the_same_recipe_and_seeds_give_different_ones() {
    let recipes: Vec<_> = (0..200).map(generate).collect();
    assert_eq!(recipes, (0..200).map(generate).collect::<Vec<_>>());
    for (index, recipe) in recipes.iter().enumerate() {
        assert!(recipes[..index].iter().all(|other| other.jobs != recipe.jobs), "seed {index}");
    }
}

#[test]
fn a_campaign_does_not_depend_on_the_number_of_threads() {
    let once = Checks { twice: false, elements: false, threads: 1, only: None };
    assert_eq!(campaign(50, 100, once), campaign(50, 100, Checks { threads: 3, ..once }));
}

/// Seeds of the campaign of Canary alone.
const CANARY_SEEDS: u64 = 400;

#[test]
fn canary_bears_what_the_others_bear() {
    let report = campaign(1_000_000, CANARY_SEEDS, Checks { only: Some("canary"), ..of_one_system() });
    println!("{report}");
    report.assert_clean();
    assert_eq!(report.jobs.keys().collect::<Vec<_>>(), [&"canary"]);
    assert!(report.jobs_complete > CANARY_SEEDS / 2 && report.jobs_failed > CANARY_SEEDS / 20, "{report}");
}

/// Seeds of the campaign of SwitchML alone.
const SWITCHML_SEEDS: u64 = 600;

#[test]
fn switchml_bears_what_goes_wrong_in_every_collective() {
    let report = campaign(2_000_000, SWITCHML_SEEDS, Checks { only: Some("switchml"), ..of_one_system() });
    println!("{report}");
    report.assert_clean();
    assert_eq!(report.jobs.keys().collect::<Vec<_>>(), [&"switchml"]);
    for kind in ["allreduce", "reduce", "broadcast", "barrier", "reduce-scatter", "all-gather"] {
        assert!(report.operations[kind] > SWITCHML_SEEDS / 10, "{kind}: {:?}", report.operations);
    }
    assert!(report.jobs_complete > SWITCHML_SEEDS / 2 && report.jobs_failed > SWITCHML_SEEDS / 20, "{report}");
    assert!(report.retransmitted > 100 * SWITCHML_SEEDS, "{report}");
}

/// Seeds of the campaign of PANAMA alone.
const PANAMA_SEEDS: u64 = 300;

#[test]
fn panama_bears_what_the_others_bear() {
    let report = campaign(2_000_000, PANAMA_SEEDS, Checks { only: Some("panama"), ..of_one_system() });
    println!("{report}");
    report.assert_clean();
    assert_eq!(report.jobs.keys().collect::<Vec<_>>(), [&"panama"]);
    assert!(report.jobs_complete > PANAMA_SEEDS / 2 && report.jobs_failed > PANAMA_SEEDS / 20 && report.marked > PANAMA_SEEDS, "{report}");
}

/// Seeds of the campaign of NetReduce alone.
const NETREDUCE_SEEDS: u64 = 600;

#[test]
fn netreduce_bears_what_the_others_bear() {
    let report = campaign(3_000_000, NETREDUCE_SEEDS, Checks { only: Some("netreduce"), ..of_one_system() });
    println!("{report}");
    report.assert_clean();
    assert_eq!(report.jobs.keys().collect::<Vec<_>>(), [&"netreduce"]);
    assert!(report.jobs_complete > NETREDUCE_SEEDS / 2 && report.jobs_failed > NETREDUCE_SEEDS / 20, "{report}");
    assert!(report.retransmitted > 100 * NETREDUCE_SEEDS, "{report}");
}

/// Seeds of the campaign of SHARP alone.
const SHARP_SEEDS: u64 = 300;

#[test]
fn sharp_bears_what_the_others_bear() {
    let report = campaign(4_000_000, SHARP_SEEDS, Checks { only: Some("sharp"), ..of_one_system() });
    println!("{report}");
    report.assert_clean();
    assert_eq!(report.jobs.keys().collect::<Vec<_>>(), [&"sharp"]);
    assert!(report.jobs_complete > SHARP_SEEDS / 2 && report.jobs_failed > SHARP_SEEDS / 20, "{report}");
    assert!(report.retransmitted > 50 * SHARP_SEEDS, "{report}");
}

/// Seeds of the campaign of allreduces over machines alone.
const MACHINES_SEEDS: u64 = 100;

#[test]
fn allreduces_over_machines_bear_what_the_others_bear() {
    let report = campaign(4_000_000, MACHINES_SEEDS, Checks { only: Some("machines"), ..of_one_system() });
    println!("{report}");
    report.assert_clean();
    assert_eq!(report.jobs.keys().collect::<Vec<_>>(), [&"machines"]);
    assert!(report.jobs_complete > MACHINES_SEEDS / 2 && report.jobs_failed > MACHINES_SEEDS / 20, "{report}");
    assert!(report.retransmitted > 100 * MACHINES_SEEDS && report.marked > MACHINES_SEEDS, "{report}");
}
