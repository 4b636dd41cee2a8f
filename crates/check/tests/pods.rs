//! Jobs in pods: one system inside, another between.

use fanin_check::generate::PODS;
use fanin_check::{Checks, Demand, JobRecipe, PodsRecipe, Recipe, campaign, generate_for, run, violations};
use fanin_core::{Census, Duration, Instant, NodeId};
use fanin_sim::RunResult;
use fanin_sim::faults::TimedFault;
use fanin_sim::programs::Span;
use fanin_systems::pods::{PodVectors, sums_between, sums_inside};
use fanin_systems::{RefusalRule, SharpMode, SharpParameters, System};

/// Seeds of the campaign of pods alone.
const SEEDS: u64 = 300;

#[test]
fn jobs_in_pods_bear_what_the_others_bear_whoever_sums_inside_and_between() {
    let report = campaign(5_000_000, SEEDS, Checks { only: Some(PODS), twice: false, ..Checks::default() });
    println!("{report}");
    report.assert_clean();
    let of = |can: fn(&System) -> bool| System::all().into_iter().filter(can).map(|system| system.name());
    for inside in of(sums_inside) {
        for across in of(sums_between) {
            let pair = format!("{inside} and {across}");
            assert!(report.pods.get(&pair).copied().unwrap_or_default() > SEEDS / 200, "{pair}: {:?}", report.pods);
        }
    }
    let all: u64 = report.pods.values().sum();
    assert!(all > SEEDS * 9 / 10, "{report}");
    assert!(report.pods_complete > SEEDS / 2 && all - report.pods_complete > SEEDS / 20, "{report}");
    assert!(report.runs_with_deaths > SEEDS / 40 && report.retransmitted > 20 * SEEDS, "{report}");
}

/// Campaigns of all systems have some, and those of one system have that one in both places.
#[test]
fn other_campaigns_have_some_too() {
    let count = |only| (0..400).filter(|&seed| !generate_for(seed, only).pods.is_empty()).count();
    assert!(count(None) > 10, "{}", count(None));
    assert_eq!(count(Some("tree")), 0, "it has no reduce-scatter");
    for name in ["canary", "switchml", "exchange"] {
        let drawn: Vec<Recipe> = (0..400).map(|seed| generate_for(seed, Some(name))).filter(|recipe| !recipe.pods.is_empty()).collect();
        assert!(drawn.len() > 10, "{name}: {}", drawn.len());
        assert!(drawn.iter().all(|recipe| recipe.jobs.iter().all(|job| job.system.name() == name)), "{name}");
    }
}

/// Three leaves of two workers, Canary inside and a ring between, two vectors in three chunks.
fn canary_and_rings() -> Recipe {
    let mut recipe = Recipe::fat_tree(System::canary(), 3, 2, 600);
    let across = Recipe::fat_tree(System::named("ring").unwrap(), 3, 2, 600).jobs.remove(0);
    let pods = PodsRecipe {
        first: 0,
        pods: [[0, 1], [2, 3], [4, 5]].map(|pod| pod.map(NodeId).to_vec()).to_vec(),
        vectors: PodVectors { elements: 601, chunks: 3, operations: 2, workers: 2 },
        start: vec![Instant::ZERO; 6],
    };
    recipe.jobs = JobRecipe::groups(&pods, &recipe.jobs[0], &across);
    recipe.pods = vec![pods];
    recipe
}

fn ran(recipe: &Recipe) -> RunResult {
    let result = run::<Census>(recipe, |_| {}).unwrap();
    assert_eq!(violations(recipe, &result), Vec::<String>::new(), "{recipe}");
    result
}

#[test]
fn every_step_is_done_once_and_in_its_turn() {
    for seed in 0..20 {
        let mut recipe = canary_and_rings().with_link_fault(0.01, 0.02, 0.05, Duration::from_us(3));
        recipe.seed = seed;
        let result = ran(&recipe);
        let program = &result.programs[0];
        assert!(program.ended.is_some() && program.failure.is_none());
        let steps = recipe.pods[0].vectors.steps();
        assert_eq!(steps.len(), 18);
        for spans in &program.ranks {
            assert!(spans.iter().all(|span| span.ended_ps >= span.begun_ps && span.ended_ps != Span::NEVER));
        }
        // The second vector begins at a rank when the first is there.
        assert!(program.ranks.iter().all(|spans| spans[9].begun_ps >= spans[8].ended_ps));
    }
}

/// A worker that dies in the middle ends the whole: what fails first names it, or somebody who waits for it.
#[test]
fn a_step_that_fails_ends_the_whole() {
    for victim in 0..6 {
        let mut recipe = canary_and_rings();
        recipe.demand = Demand::MayFail;
        recipe.jobs.iter_mut().for_each(|job| job.patience = Duration::from_ms(2));
        recipe.faults.timed = vec![TimedFault::HostDies { host: NodeId(victim), at: Instant::from_ps(8_000_000) }];
        let result = ran(&recipe);
        let program = &result.programs[0];
        assert!(program.ended.is_none() && program.failure.is_some(), "{victim}: {program:?}");
        let unfinished = program.ranks.iter().filter(|spans| spans.iter().any(|span| span.ended_ps == Span::NEVER)).count();
        assert_eq!(unfinished, 6, "{victim}");
    }
}

#[test]
fn what_is_out_of_its_turn_is_found() {
    let recipe = canary_and_rings();
    let good = ran(&recipe);
    let words = |change: &dyn Fn(&mut RunResult)| {
        let mut result = good.clone();
        change(&mut result);
        violations(&recipe, &result).join("; ")
    };
    let begins_early = words(&|result| result.programs[0].ranks[2][1].begun_ps = 0);
    assert!(begins_early.contains("rank 2, across 0.0 began at 0 ps, before what it waits for had ended"), "{begins_early}");
    let overtakes = words(&|result| result.programs[0].ranks[1][0].ended_ps = result.programs[0].ranks[1][3].ended_ps + 1);
    assert!(overtakes.contains("rank 1, reduce 0.1 ended before one that its group takes first"), "{overtakes}");
    let left = words(&|result| result.programs[0].ranks[5][17] = Span { begun_ps: 0, ended_ps: Span::NEVER });
    assert!(left.contains("ended where 5 of 6 ranks are through"), "{left}");
    let nothing = words(&|result| result.programs[0].ended = None);
    assert!(nothing.contains("neither ended nor failed"), "{nothing}");
}

/// Seed 5000393 of an earlier campaign: groups of SHARP hold quotas for as long as they live, which is until all are through. One that waits for another's waits
/// for ever; where its hosts do what is refused, or where groups stream and give their switches back, all end. So plans refuse the first, and campaigns draw none.
#[test]
fn groups_that_hold_and_wait_would_never_end() {
    let ends = |mode, refused| {
        let mut recipe = canary_and_rings();
        recipe.demand = Demand::MayFail;
        for job in &mut recipe.jobs {
            job.patience = Duration::from_ms(20);
            if job.system.name() == "ring" {
                job.system = System::Sharp(SharpParameters { mode, refused, quota: 8, outstanding: 8, ..SharpParameters::default() });
            }
        }
        run::<Census>(&recipe, |_| {}).unwrap().programs[0].ended.is_some()
    };
    assert!(!ends(SharpMode::LowLatency, RefusalRule::Wait));
    assert!(ends(SharpMode::LowLatency, RefusalRule::Host));
    assert!(ends(SharpMode::Streaming, RefusalRule::Wait));
}
