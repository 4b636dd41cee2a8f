//! Long vectors, of which only the beginning is simulated (`run.steady`): what is said of the whole is what the whole gives.

use fanin_plan::Plan;
use fanin_plan::results::RunRecord;
use fanin_plan::run::{check, run};

/// Half of the hosts reduce, the others send to each other or do not.
const PLAN: &str = r#"
[network]
shape = "fat-tree"
leaves = 4
hosts_per_leaf = 4
spines = 4
rate = "100Gb/s"
latency = "300ns"
ecn = "80kB"

[[jobs]]
system = "tree"
workers = 8
placement = "random"
message = "32MiB"
payload = "4KiB"
window = 32

[[traffic]]
pattern = "uniform"
hosts = "rest"
message = "64KiB"
load = 0.5

[run]
steady = "1%"
"#;

/// The vector.
const WHOLE: u64 = 32 << 20;

fn records(sets: &[&str], threads: usize) -> Vec<RunRecord> {
    let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
    let plan = Plan::parse("plan.toml", PLAN, &sets, None).unwrap();
    check(&plan).unwrap();
    run(&plan, threads, || true).unwrap().into_iter().map(|finished| finished.record).collect()
}

fn refused(sets: &[&str]) -> String {
    let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
    Plan::parse("plan.toml", PLAN, &sets, None).and_then(|plan| check(&plan)).unwrap_err().to_string()
}

const SYSTEMS: [&str; 12] = [
    "[{ name = \"ring\", set = { \"jobs.0.system\" = \"ring\" } }]",
    "[{ name = \"ps\", set = { \"jobs.0.system\" = \"ps\", \"jobs.0.servers\" = 0 } }]",
    "[{ name = \"tree\", set = { \"jobs.0.system\" = \"tree\" } }]",
    "[{ name = \"4 trees\", set = { \"jobs.0.system\" = \"tree\", \"jobs.0.trees\" = 4 } }]",
    "[{ name = \"SHARP\", set = { \"jobs.0.system\" = \"sharp\", \"jobs.0.mode\" = \"streaming\" } }]",
    "[{ name = \"SwitchML\", set = { \"jobs.0.system\" = \"switchml\" } }]",
    "[{ name = \"ATP\", set = { \"jobs.0.system\" = \"atp\" } }]",
    "[{ name = \"A2TP\", set = { \"jobs.0.system\" = \"a2tp\" } }]",
    "[{ name = \"PANAMA\", set = { \"jobs.0.system\" = \"panama\", \"jobs.0.trees\" = 4 } }]",
    "[{ name = \"NetReduce\", set = { \"jobs.0.system\" = \"netreduce\" } }]",
    "[{ name = \"Rina\", set = { \"jobs.0.system\" = \"rina\" } }]",
    "[{ name = \"Canary\", set = { \"jobs.0.system\" = \"canary\" } }]",
];

/// What is said of a vector, and what the whole gives.
struct Compared {
    system: String,
    loaded: bool,
    simulated: u64,
    whole: u64,
    error: f64,
    off: f64,
}

/// Every system, idle and beside traffic, at the plan's share and with what cannot be reached, for which all is simulated.
fn compared(sets: &[&str]) -> Vec<Compared> {
    let mut all = Vec::new();
    for (system, loaded) in SYSTEMS.iter().flat_map(|system| [(system, false), (system, true)]) {
        let own = [format!("series={system}"), format!("traffic.0.enabled={loaded}")];
        let sets: Vec<&str> = own.iter().map(String::as_str).chain(sets.iter().copied()).collect();
        let wholes = records(&[&sets[..], &["run.steady=0.0000001"]].concat(), 1);
        for (said, whole) in records(&sets, 1).into_iter().zip(wholes) {
            let us = said.completion_us.unwrap();
            let goodput = said.message_bytes as f64 * 8.0 / us / 1e3;
            assert!((said.goodput_gbps.unwrap() - goodput).abs() < 1e-6 * goodput, "{said:?}");
            all.push(Compared {
                system: said.series.clone().unwrap(),
                loaded,
                simulated: said.simulated_bytes.unwrap(),
                whole: said.message_bytes,
                error: said.steady_error.unwrap(),
                off: us / whole.completion_us.unwrap() - 1.0,
            });
        }
    }
    all
}

/// With 99 % the error is what is said at most; here no time is further off than by what is said or, where that is less, one in a thousand.
#[test]
fn the_time_of_the_whole_is_what_was_said_of_it() {
    let all = compared(&[]);
    for Compared { system, loaded, simulated, whole, error, off } in &all {
        let told = format!("{system}, loaded {loaded}: {simulated} of {whole} bytes, said {error:.5}, off {off:.5}");
        println!("{told}");
        assert!(*error <= 0.01 && off.abs() <= error.max(1e-3), "{told}");
        assert!(simulated < whole || (*off, *error) == (0.0, 0.0), "{told}");
    }
    let in_part = all.iter().filter(|one| one.simulated < one.whole).count();
    assert!(in_part >= 8 && all.iter().all(|one| one.whole == WHOLE), "{in_part}");
}

/// The table of docs/performance.md, `--nocapture` prints it: by system and traffic, of five seeds, how many runs simulated a part, how large that was on
/// average, the largest error that was said and the largest there was, and how many were further off than was said by more than a millionth.
#[test]
#[ignore = "minutes of simulation: measures how often what is said holds"]
fn minutes_of_long_vectors_against_the_whole() {
    let all = compared(&["jobs.0.message=128MiB", "jobs.0.window=64", "traffic.0.load=0.75", "run.repetitions=5"]);
    println!("| system | traffic | runs in part | part | said | off | further off |\n|---|---|---|---|---|---|---|");
    let (mut in_part, mut wrong) = (0, 0);
    for runs in all.chunks(5) {
        let parts: Vec<&Compared> = runs.iter().filter(|run| run.simulated < run.whole).collect();
        let mean = parts.iter().map(|run| run.simulated as f64 / run.whole as f64).sum::<f64>() / parts.len().max(1) as f64;
        let most = |value: fn(&Compared) -> f64| parts.iter().map(|run| value(run)).fold(0.0_f64, f64::max) * 100.0;
        let further = parts.iter().filter(|run| run.off.abs() > run.error + 1e-6).count();
        let traffic = if runs[0].loaded { "75 %" } else { "none" };
        println!(
            "| {} | {traffic} | {} | {:.0} % | {:.3} % | {:.3} % | {further} |",
            runs[0].system,
            parts.len(),
            (mean * 100.0).abs(),
            most(|run| run.error),
            most(|run| run.off.abs())
        );
        (in_part, wrong) = (in_part + parts.len(), wrong + further);
    }
    println!("{in_part} of {} in part, {wrong} further off", all.len());
    assert!(wrong * 20 <= in_part, "{wrong} of {in_part}");
}

#[test]
fn all_times_are_of_the_whole_and_do_not_depend_on_threads() {
    let sets = ["jobs.0.message=64MiB", "traffic.0.enabled=false", "run.repetitions=2"];
    let [one, several] = [1, 4].map(|threads| records(&sets, threads));
    for (record, other) in one.iter().zip(&several) {
        let without = |record: &RunRecord| format!("{:?}", RunRecord { wall_s: 0.0, ..record.clone() });
        assert_eq!(without(record), without(other));
        let (job, us) = (&record.jobs[0], record.completion_us.unwrap());
        assert!(record.simulated_bytes.unwrap() <= WHOLE / 2 && (record.message_bytes, job.message_bytes) == (64 << 20, 64 << 20));
        let times = [job.completion_us, job.jct_us, job.worker_us_max, record.jct_us, record.operation_us_max, record.operation_us_p50];
        assert!(times.iter().all(|time| (time.unwrap() - us).abs() < 0.01 * us), "{times:?}");
        // What is counted is of the part.
        assert!(record.simulated_us < us / 3.0, "{record:?}");
    }
}

/// As long as the whole would take, and not only its part.
#[test]
fn a_vector_that_takes_longer_than_the_run_may_is_not_complete() {
    let sets = ["jobs.0.message=64MiB", "traffic.0.enabled=false", "run.time_limit=4ms", "run.expect=failure"];
    let record = records(&sets, 1).remove(0);
    assert_eq!((record.ended, record.completion_us, record.goodput_gbps), ("time_limit", None, None));
    let why = record.failure.unwrap();
    assert!(
        why.starts_with("job 0: its vector takes until ") && why.ends_with("the run is given up at 4000.0 us (run.time_limit)"),
        "{why}"
    );
}

#[test]
fn a_part_that_fails_is_a_run_that_fails() {
    let record = records(&["jobs.0.patience=1us", "jobs.0.reliable=true", "run.time_limit=2us", "run.expect=failure"], 1).remove(0);
    assert!(record.failure.is_some() && record.completion_us.is_none() && record.steady_error.is_none(), "{record:?}");
    assert!(record.simulated_bytes.is_some_and(|bytes| bytes < WHOLE));
}

#[test]
fn plans_whose_beginning_says_nothing_of_the_rest_are_refused() {
    for (sets, expected) in [
        (&["jobs.0.copies=2", "jobs.0.workers=4"][..], "a plan with one job"),
        (&["jobs.0.operations=2"], "a job of one operation with a vector"),
        (&["jobs.0.system=flare", "jobs.0.density=0.1"], "a dense vector"),
        (
            &["faults.timed=[{ kind = \"host-stall\", host = \"host3\", from = \"3us\", until = \"5us\" }]"],
            "a plan whose faults last as long as the run",
        ),
        (&["limits=[{ hosts = [0], rate = \"1Gb/s\", from = \"1us\" }]"], "a plan whose limits last as long as the run"),
        (&["traffic.0.messages=4"], "a plan whose other traffic lasts as long as the run"),
        (&["run.series_interval=1us"], "a plan without series_interval"),
        (&["run.alone=true"], "a plan without alone"),
        (&["run.steady=0"], "a share above 0 and at most 20%"),
        (&["run.steady=0.5"], "a share above 0 and at most 20%"),
    ] {
        let said = refused(sets);
        assert!(said.contains("run.steady = ") && said.contains(&format!("expected {expected}")), "{sets:?}: {said}");
    }
}
