//! Canary's jobs that share the arrays of their switches: every behaviour of two small jobs, random runs, bugs that are found, and as many
//! collisions as there must be.

use fanin_check::model::{EXACT, Limits, NEVER_STUCK, NetworkModel};
use fanin_check::{Checks, JobRecipe, Recipe, campaign, generate_for, run, violations};
use fanin_core::{Census, Duration, JobId, NetworkMap, NodeId, Tally};
use fanin_protocols::canary::Planted;
use fanin_sim::RunResult;
use fanin_systems::{AnyNode, CanaryParameters, CanaryWindows, JobSpec, Placement, System};

use crate::small::{BLOCK, assert_found, assert_holds};

fn parameters(descriptors: u32, placement: Placement) -> CanaryParameters {
    CanaryParameters { timeout_ps: 1_000, descriptors, placement, shared: true, ..CanaryParameters::default() }
}

/// Two jobs of so many workers on one switch.
fn two_jobs(parameters: CanaryParameters, workers: [u32; 2], elements: [&[u64]; 2], reliable: bool, limits: Limits) -> NetworkModel {
    let all = workers[0] + workers[1];
    let hosts: Vec<NodeId> = (0..all).map(NodeId).collect();
    let (one, other) = hosts.split_at(workers[0] as usize);
    let spec = |job: usize| JobSpec {
        // Their numbers are the same in packets.
        id: JobId(256 * job as u16),
        hosts: [one, other][job],
        servers: &[],
        system: System::Canary(parameters),
        op: (),
        element_bytes: 4,
        payload_bytes: 4 * BLOCK as u32,
        window: 2,
        reliable,
        rto_initial: Duration::from_ps(16),
        rto_min: Duration::from_ps(1),
        patience: Duration::MAX,
        seed: 0,
    };
    let jobs = [(spec(0), elements[0]), (spec(1), elements[1])];
    NetworkModel::of_jobs(&jobs, NetworkMap::star(all), limits).expect("the jobs fit the network").with_ends()
}

fn without_losses(parameters: CanaryParameters, workers: [u32; 2], elements: [&[u64]; 2]) -> NetworkModel {
    two_jobs(parameters, workers, elements, false, Limits::default()).with_timeouts_at_any_time()
}

fn planted(bug: Planted) -> impl Fn(&mut AnyNode<Census>) {
    move |node| match node {
        AnyNode::CanarySharedSwitch(switch) => switch.plant(bug),
        AnyNode::CanaryWorker(worker) => worker.plant(bug),
        _ => {}
    }
}

#[test]
fn jobs_that_collide_are_exact() {
    for placement in [Placement::Hash, Placement::TwoPlaces] {
        let model = without_losses(parameters(1, placement), [2, 2], [&[2 * BLOCK], &[2 * BLOCK]]);
        assert_holds(&format!("{placement:?}, 1 place, 2 blocks each"), model, 500);
        let model = without_losses(parameters(2, placement), [2, 2], [&[2 * BLOCK, 1], &[BLOCK]]);
        assert_holds(&format!("{placement:?}, 2 places, 2 operations and one"), model, 500);
    }
    let model = without_losses(parameters(1, Placement::Hash), [3, 3], [&[BLOCK], &[BLOCK]]);
    assert_holds("1 place, 3 workers each", model, 500);
}

#[test]
fn jobs_that_collide_are_exact_whatever_is_lost() {
    let limits = Limits { losses: 1, early_timeouts: 0, duplicates: 0, rounds: 12 };
    for placement in [Placement::Hash, Placement::TwoPlaces] {
        let parameters = CanaryParameters { timeout_ps: 2, lifetime_ps: 1_000, generations: 1, ..parameters(1, placement) };
        assert_holds(&format!("{placement:?}, a loss"), two_jobs(parameters, [2, 2], [&[BLOCK], &[BLOCK]], true, limits), 300);
    }
}

/// Workers of one job are gone at any moment: what they have left does not keep the other from its sums, and goes when switches are told.
#[test]
fn a_job_that_crashes_leaves_nothing_to_the_other() {
    let model = || without_losses(parameters(1, Placement::Hash), [2, 2], [&[2 * BLOCK], &[BLOCK]]).with_crash_of(1);
    assert_holds("a crash", model(), 500);
    assert_found("a crash, KeepPlaces", model().altered(planted(Planted::KeepPlaces)), EXACT);
}

#[test]
fn bugs_between_jobs_have_counterexamples() {
    let taken_over = without_losses(parameters(1, Placement::Hash), [2, 2], [&[BLOCK], &[BLOCK]]).altered(planted(Planted::TakeOver));
    assert_found("TakeOver", taken_over, NEVER_STUCK);
    // Which blocks want the same places is a matter of the hash: of these, some do.
    let model = || without_losses(parameters(2, Placement::TwoPlaces), [3, 2], [&[2 * BLOCK], &[2 * BLOCK]]);
    assert_holds("TwoPlaces, 2 blocks each", model(), 1_000);
    assert_found("ForgetSecondPlace", model().altered(planted(Planted::ForgetSecondPlace)), NEVER_STUCK);
}

/// Seeds of the campaign. `fanin check canary` runs as many as one likes.
const SEEDS: u64 = 150;

#[test]
fn shared_arrays_bear_what_others_bear() {
    let report = campaign(60_000, SEEDS, Checks { only: Some("canary"), ..Checks::default() });
    println!("{report}");
    report.assert_clean();
    let shares = |recipe: &Recipe| recipe.jobs.iter().filter(|job| is_shared(job)).count() > 1;
    let shared = (60_000..60_000 + SEEDS).filter(|seed| shares(&generate_for(*seed, Some("canary")))).count();
    assert!(shared as u64 > SEEDS / 8, "{shared} of {SEEDS} runs have jobs that share their arrays");
}

fn is_shared(job: &JobRecipe) -> bool {
    matches!(job.system, System::Canary(parameters) if parameters.shared)
}

/// What the checker says of a run with a bug.
fn findings(recipe: &Recipe, bug: Planted) -> Vec<String> {
    match run::<Census>(recipe, planted(bug)) {
        Ok(result) => violations(recipe, &result),
        Err(words) => vec![words],
    }
}

/// Most jobs have no second places, and most blocks that have do not come to theirs: the second bug takes more runs than the first.
#[test]
fn bugs_of_shared_arrays_are_found_within_600_random_runs() {
    let recipe = |seed: u64| generate_for(70_000 + seed, Some("canary"));
    assert_eq!((0..60).find(|seed| !findings(&recipe(*seed), Planted::None).is_empty()), None);
    for bug in [Planted::TakeOver, Planted::ForgetSecondPlace] {
        let first = (0..600).find(|seed| !findings(&recipe(*seed), bug).is_empty());
        println!("{bug:?}: found by run {first:?}");
        assert!(first.is_some(), "{bug:?}");
    }
}

/// Jobs beside each other on leaves and spines, each on hosts of its own, with arrays of so many places.
fn beside_each_other(jobs: u32, parameters: CanaryParameters, window: u32) -> RunResult {
    let workers = 64 / jobs;
    let mut recipe = Recipe::fat_tree(System::Canary(parameters), 8, 8, 200_000);
    let job = recipe.jobs.pop().expect("a job");
    recipe.jobs = (0..jobs)
        .map(|number| {
            let hosts: Vec<NodeId> = (0..workers).map(|worker| NodeId(worker * jobs + number)).collect();
            JobRecipe { start: vec![Default::default(); hosts.len()], hosts, window, reliable: false, ..job.clone() }
        })
        .collect();
    // It ends with the jobs, and so does the time over which the array's use is averaged.
    recipe.drain = false;
    let result = run::<Census>(&recipe, |_| {}).expect("a run");
    assert_eq!(violations(&recipe, &result), [""; 0], "{recipe}");
    result
}

/// Windows that follow collisions are as long as the array has room for: fewer packets go to leaders unsummed.
#[test]
fn windows_that_follow_collisions_leave_room_in_the_array() {
    for placement in [Placement::Hash, Placement::TwoPlaces] {
        let fixed = CanaryParameters { shared: true, ..parameters(256, placement) };
        let follows = CanaryParameters { windows: CanaryWindows::A2tp, initial: 64, window_min: 4, collision_weight: 0.5, ..fixed };
        let [long, following] = [fixed, follows].map(|parameters| collided(&beside_each_other(4, parameters, 256)));
        println!("{placement:?}: {long} of packets collide, and {following} with windows that follow");
        assert!(following < 0.5 * long, "{placement:?}: {following}, and {long} with a window of 256");
    }
}

fn collided(result: &RunResult) -> f64 {
    let total = |tally| result.tallies.iter().map(|tallies| tallies.total(tally)).sum::<u64>() as f64;
    let collided = total(Tally::Collision);
    collided / (collided + total(Tally::Summed) + total(Tally::Straggler))
}

/// A block finds its place taken as often as other blocks take it: the share of packets that collide is that of the array that is in use.
#[test]
fn as_many_packets_collide_as_of_the_array_is_in_use() {
    for (jobs, places) in [(1, 512u32), (4, 512), (4, 2_048), (8, 1_024)] {
        let share = |placement| {
            let result = beside_each_other(jobs, CanaryParameters { shared: true, ..parameters(places, placement) }, 64);
            // At leaves, where all packets of workers come by.
            let leaves = &result.slots[..8];
            let in_use = leaves.iter().map(|slots| slots.slots_mean()).sum::<f64>() / 8.0 / f64::from(places);
            (collided(&result), in_use)
        };
        let (found, in_use) = share(Placement::Hash);
        println!("{jobs} jobs, {places} places: {found} of packets collide, {in_use} of the array is in use");
        assert!(found > 0.4 * in_use && found < 2.0 * in_use, "{jobs} jobs, {places} places: {found}, in use {in_use}");
        let (two, in_use) = share(Placement::TwoPlaces);
        println!("with a second place {two}, in use {in_use}");
        assert!(two < 0.6 * found, "{jobs} jobs, {places} places: {two} with a second place, {found} with one");
    }
}
