//! Who gets how many of A2TP's aggregators (its paper's section 8): jobs of different priority, a severe straggler with a minimum, and
//! fairness in place of efficiency; each in whole runs on one switch, whose aggregators two jobs want.

use crate::atp::{beside_each_other, rack};
use fanin_check::{run_sampled, violations};
use fanin_core::{Census, Duration, Gauge, Instant, NodeId};
use fanin_sim::Shape;
use fanin_sim::limits::HostLimit;
use fanin_sim::series::SeriesRow;
use fanin_systems::{A2tpParameters, CollisionRule, System};

/// Aggregators of the switch, and the longest window of each job: one of them could use all.
const AGGREGATORS: u32 = 128;

/// What a job had, mean over the time in which both ran and windows had settled.
#[derive(Clone, Copy, Debug)]
struct Had {
    goodput_gbps: f64,
    /// Its window for aggregators (ACW), and the least that it was.
    window: f64,
    window_least: f64,
    /// Aggregators that it had taken.
    slots: f64,
}

/// Two jobs of four workers and a server each; round trips of 16 us, of which a window fills a sixth, so that links do not matter. One
/// worker of the second job sends so many packets a second, where that is given.
fn two_jobs(parameters: [A2tpParameters; 2], bytes: [u64; 2], straggler: Option<u64>) -> [Had; 2] {
    let systems = parameters.map(|parameters| System::A2tp(A2tpParameters { aggregators: AGGREGATORS, ..parameters }));
    let mut recipe = rack(&systems, &[AGGREGATORS; 2], 1 << 20);
    if let Shape::Star { link, .. } = &mut recipe.network.shape {
        link.latency = Duration::from_us(4);
    }
    recipe.network.queue_bytes = 1 << 20;
    recipe.jobs.iter_mut().zip(bytes).for_each(|(job, bytes)| job.elements = vec![bytes / 4]);
    recipe.limits.extend(straggler.map(|packets_per_second| HostLimit {
        hosts: vec![recipe.jobs[1].hosts[3]],
        send_packets_per_second: Some(packets_per_second),
        receive_packets_per_second: None,
        send_bits_per_second: None,
        receive_queue_packets: u32::MAX,
        receive_mark_packets: u32::MAX,
        from: Instant::ZERO,
        until: Instant::FAR_FUTURE,
    }));
    let result = run_sampled::<Census>(&recipe, Duration::from_us(20)).expect("it runs");
    assert_eq!(violations(&recipe, &result), [""; 0], "{recipe}");
    let ends = result.jobs.iter().map(|job| job.completion(0).expect("it has ended"));
    let both = Instant::ZERO + ends.min().expect("two jobs");
    let settled = Instant::from_ps(both.as_ps() / 2);
    [0, 1].map(|job| had(result.series.iter().filter(|row| row.job == job && row.at > settled && row.at < both)))
}

fn had<'a>(rows: impl Iterator<Item = &'a SeriesRow>) -> Had {
    let rows: Vec<&SeriesRow> = rows.collect();
    let mean = |of: &dyn Fn(&SeriesRow) -> f64| rows.iter().map(|row| of(row)).sum::<f64>() / rows.len() as f64;
    let window = |row: &SeriesRow| row.gauges[Gauge::AggregatorWindow.index()].expect("workers tell it");
    assert!(rows.len() > 50, "{} intervals", rows.len());
    Had {
        goodput_gbps: mean(&|row| row.goodput_gbps),
        window: mean(&window),
        window_least: rows.iter().map(|row| window(row)).fold(f64::INFINITY, f64::min),
        slots: mean(&|row| row.slots),
    }
}

const PLAIN: fn() -> A2tpParameters = A2tpParameters::default;

/// Two jobs that differ in nothing but priority. Where collisions decide, windows are to each other about as priorities are; less far apart
/// where the smaller one is so small that each of its fragments meets a collision, for of several a fragment tells one.
#[test]
fn jobs_of_higher_priority_have_more_aggregators() {
    let ratios = [1.0, 2.0, 4.0].map(|priority| {
        let [first, second] = two_jobs([A2tpParameters { priority, ..PLAIN() }, PLAIN()], [6_000_000; 2], None);
        println!("priority {priority}: {first:?}, {second:?}");
        assert!(first.window + second.window > f64::from(AGGREGATORS), "aggregators are what there is too little of");
        let goodput = first.goodput_gbps / second.goodput_gbps;
        assert!((0.9..1.3).contains(&goodput), "links are not");
        (first.window / second.window, first.slots / second.slots)
    });
    for (ratio, band) in ratios.iter().zip([0.8..1.25, 1.3..2.6, 1.9..5.2]) {
        assert!(band.contains(&ratio.0) && band.contains(&ratio.1), "{ratios:?}");
    }
    assert!(ratios[2].0 > 1.2 * ratios[1].0 && ratios[1].0 > 1.2 * ratios[0].0, "{ratios:?}");
}

/// A straggler with a fifth of the rate gives up nearly all aggregators, but for the minimum that its job was promised. It makes the
/// progress of its slowest worker either way: what goes to no aggregator goes to the server.
#[test]
fn a_severe_straggler_keeps_its_minimum_and_its_progress() {
    let straggler = 1_600_000;
    let run = |aggregators_min| two_jobs([PLAIN(), A2tpParameters { aggregators_min, ..PLAIN() }], [8_000_000, 1_600_000], Some(straggler));
    let ([other, without], [beside, with]) = (run(1), run(32));
    println!("without a minimum {other:?} {without:?}, with 32 {beside:?} {with:?}");
    assert!(without.window < 32.0 && with.window_least >= 32.0, "{without:?} {with:?}");
    assert!(with.slots > 1.3 * without.slots, "{without:?} {with:?}");
    assert!(beside.window < other.window && beside.slots > 2.0 * with.slots, "the rest is the other's: {other:?} {beside:?}");
    let fastest_gbps = straggler as f64 * 248.0 * 8.0 / 1e9;
    assert!(without.goodput_gbps > 0.93 * fastest_gbps && with.goodput_gbps > 0.93 * fastest_gbps, "{without:?} {with:?}");
    assert!(beside.goodput_gbps > 0.95 * other.goodput_gbps, "{other:?} {beside:?}");
}

/// With a tenth of the rate: fairness leaves the straggler half as many aggregators again as efficiency does, and more, and the job in step has
/// fewer; where nobody straggles both have the same.
#[test]
fn fairness_gives_a_straggler_aggregators_that_efficiency_takes_from_it() {
    let run = |fair, bytes, straggler| two_jobs([A2tpParameters { fair, ..PLAIN() }; 2], bytes, straggler);
    let [efficient, fair] = [false, true].map(|fair| run(fair, [24_000_000, 3_000_000], Some(800_000)));
    println!("efficient {efficient:?}, fair {fair:?}");
    assert!(fair[1].window > 1.5 * efficient[1].window && fair[1].slots > 1.3 * efficient[1].slots, "{efficient:?} {fair:?}");
    assert!(fair[0].slots < 0.98 * efficient[0].slots, "{efficient:?} {fair:?}");
    let equal = run(true, [6_000_000; 2], None);
    let ratio = equal[0].window / equal[1].window;
    assert!((0.8..1.25).contains(&ratio), "{equal:?}");
}

/// A job that dies leaves its aggregators to the other one, which has them within a few round trips of the first that it wants: by the time
/// for which nothing was heard of them, for nobody tells the switch.
#[test]
fn what_a_crashed_job_had_is_the_others_after_the_time_for_zombies() {
    let reclaim = Duration::from_us(200);
    let parameters = A2tpParameters { aggregators: AGGREGATORS, reclaim_ps: reclaim.as_ps(), ..PLAIN() };
    let mut recipe = rack(&[System::A2tp(parameters); 2], &[AGGREGATORS; 2], 9_000_000);
    if let Shape::Star { link, .. } = &mut recipe.network.shape {
        link.latency = Duration::from_us(4);
    }
    recipe.network.queue_bytes = 1 << 20;
    recipe.jobs.iter_mut().for_each(|job| job.patience = Duration::from_ms(20));
    let at = Instant::from_ps(1_500_000_000);
    let host: NodeId = recipe.jobs[1].hosts[2];
    recipe.faults.timed = vec![fanin_sim::faults::TimedFault::HostDies { host, at }];
    recipe.demand = fanin_check::Demand::MayFail;
    let result = run_sampled::<Census>(&recipe, Duration::from_us(20)).expect("it runs");
    assert_eq!(violations(&recipe, &result), [""; 0], "{recipe}");
    assert!(result.jobs[0].is_complete() && result.jobs[1].first_failure().is_some());
    let end = Instant::ZERO + result.jobs[0].completion(0).expect("it has ended");
    let mean = |job: u32, from: Instant, until: Instant, of: &dyn Fn(&SeriesRow) -> f64| {
        let rows: Vec<f64> = result.series.iter().filter(|row| row.job == job && row.at > from && row.at < until).map(of).collect();
        assert!(rows.len() > 20, "{} intervals", rows.len());
        rows.iter().sum::<f64>() / rows.len() as f64
    };
    let slots = |row: &SeriesRow| row.slots;
    let window = |row: &SeriesRow| row.gauges[Gauge::AggregatorWindow.index()].expect("workers tell it");
    let (before, settled) = (Instant::from_ps(at.as_ps() / 2), at + reclaim.times(5));
    let (shared, alone) = (mean(0, before, at, &window), mean(0, settled, end, &window));
    let (shared_slots, alone_slots) = (mean(0, before, at, &slots), mean(0, settled, end, &slots));
    println!("window {shared:.1}, then {alone:.1}; slots {shared_slots:.1}, then {alone_slots:.1}");
    assert!(alone > 1.25 * shared && alone_slots > 1.25 * shared_slots, "{shared} {alone}, {shared_slots} {alone_slots}");
    assert_eq!(result.slots[0].slots, 0, "nothing is left in the end");
}

/// What both jobs of a run in the paper's network had, in stretches of 2 ms, some 100 round trips, from 2 ms after both have begun to when
/// one ends; each has so many bytes.
fn stretches(parameters: [A2tpParameters; 2], level: f64, starts_ms: [u64; 2], bytes: [u64; 2]) -> Vec<[Had; 2]> {
    stretches_with_noise(0.0, parameters, level, starts_ms, bytes)
}

/// The same where this share of the packets of both jobs leaves its host 5 us late.
fn stretches_with_noise(noise: f64, parameters: [A2tpParameters; 2], level: f64, starts_ms: [u64; 2], bytes: [u64; 2]) -> Vec<[Had; 2]> {
    let at = |ms: u64| Instant::ZERO + Duration::from_ms(ms);
    let mut recipe = beside_each_other(parameters, level, bytes[0]);
    for (job, (start, bytes)) in recipe.jobs.iter_mut().zip(starts_ms.into_iter().zip(bytes)) {
        job.start.fill(at(start));
        job.elements = vec![bytes / 4];
        (job.noise_probability, job.noise_delay) = (noise, Duration::from_us(5).into());
    }
    let result = run_sampled::<Census>(&recipe, Duration::from_us(20)).expect("it runs");
    assert_eq!(violations(&recipe, &result), [""; 0], "{recipe}");
    let ends = result.jobs.iter().map(|job| job.completion(0).expect("it has ended"));
    let both_ms = ends.min().expect("two jobs").as_ps() / 1_000_000_000;
    let rows = |job: u32, from: u64| result.series.iter().filter(move |row| row.job == job && row.at > at(from) && row.at <= at(from + 2));
    (starts_ms[0].max(starts_ms[1]) + 2..both_ms - 2).step_by(2).map(|from| [0, 1].map(|job| had(rows(job, from)))).collect()
}

/// Jain's index of two goodputs.
fn jain(had: &[Had; 2]) -> f64 {
    let [a, b] = had.each_ref().map(|job| job.goodput_gbps);
    (a + b).powi(2) / (2.0 * (a * a + b * b))
}

const SHARED: fn() -> A2tpParameters = || A2tpParameters { collisions: CollisionRule::Shared, ..PLAIN() };

/// Paper, section 8: over two thousand round trips, begun together or one 250 round trips later. Where owners are told of collisions the later one
/// never comes up, however long it goes on.
#[test]
fn two_equal_jobs_share_whenever_they_begin() {
    for start_ms in [0, 4] {
        let shared = stretches([SHARED(); 2], 1.0, [0, start_ms], [130_000_000, 112_000_000]);
        let index: Vec<f64> = shared.iter().map(jain).collect();
        println!("second after {start_ms} ms: {index:.3?}");
        assert!(shared.len() >= 17 && index.iter().all(|index| *index > 0.95), "{index:?}");
    }
    let owners = stretches([PLAIN(); 2], 1.0, [0, 4], [112_000_000; 2]);
    println!("owners told: {:.3?}", owners.iter().map(jain).collect::<Vec<_>>());
    assert!(owners.iter().skip(2).all(|had| jain(had) < 0.9), "{owners:?}");
}

/// Where workers are late by chance both jobs are as late as the other, and neither is to blame for collisions: no stretch of 2 ms is as uneven as
/// where owners are told.
#[test]
fn two_equal_jobs_share_where_packets_are_late_by_chance() {
    let shared = stretches_with_noise(0.05, [SHARED(); 2], 1.0, [0, 4], [80_000_000, 66_000_000]);
    let index: Vec<f64> = shared.iter().map(jain).collect();
    println!("{index:.3?}");
    assert!(shared.len() >= 8 && index.iter().all(|index| *index > 0.9), "{index:?}");
}

/// Fig. 2: a straggler that comes later takes next to nothing from a job in step, though collisions are shared out: it is told of its own alone. Shared
/// out alike, with the straggler as well, the job in step had 24 to 28 Gb/s of 51.
#[test]
fn what_a_straggler_meets_is_not_told_to_a_job_in_step() {
    let had = stretches([SHARED(); 2], 0.25, [0, 4], [130_000_000, 26_000_000]);
    println!("a job in step first: {had:.1?}");
    assert!(had.len() >= 2 && had.iter().all(|[first, late]| first.goodput_gbps > 45.0 && late.window < 0.2 * first.window), "{had:?}");
}

/// A straggler that was there first gives its aggregators up to a job in step within 300 round trips of it: gamma is no weaker where jobs are
/// told alike. Of two jobs of different priority windows are as priorities, as far as the longest one allows.
#[test]
fn where_jobs_are_told_alike_stragglers_yield_and_priorities_weigh() {
    let straggles = stretches([SHARED(); 2], 0.2, [10, 0], [60_000_000, 26_000_000]);
    println!("a straggler first: {straggles:.1?}");
    assert!(straggles.iter().skip(2).all(|[late, first]| late.window > 3.0 * first.window && late.goodput_gbps > 35.0), "{straggles:?}");
    let ratio = |priority: f64| {
        let had = stretches([A2tpParameters { priority, ..SHARED() }, SHARED()], 1.0, [0; 2], [60_000_000; 2]);
        let sum = |job: usize| had.iter().skip(2).map(|had| had[job].window).sum::<f64>();
        sum(0) / sum(1)
    };
    let ratios = [1.0, 2.0, 4.0].map(ratio);
    println!("windows by priority: {ratios:.2?}");
    for (ratio, band) in ratios.iter().zip([0.8..1.25, 1.5..2.6, 2.6..5.0]) {
        assert!(band.contains(ratio), "{ratios:?}");
    }
}
