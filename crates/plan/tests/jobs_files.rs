//! Jobs from files, and what is said of many jobs: how long they take beside each other and by themselves, and how evenly they share.

use std::fs;
use std::path::PathBuf;

use fanin_plan::results::RunRecord;
use fanin_plan::run::{check, run};
use fanin_plan::{Plan, PlanError};

const NETWORK: &str = "[network]\nshape = \"star\"\nhosts = 12\nrate = \"100Gb/s\"\nlatency = \"300ns\"\n";

/// A plan in a folder of its own, beside `jobs.csv` with this text.
fn plan(name: &str, jobs: &str, csv: &str, sets: &[&str]) -> Result<Plan, PlanError> {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("jobs-files-{name}"));
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("jobs.csv"), csv).unwrap();
    let file = folder.join("plan.toml");
    fs::write(&file, format!("{NETWORK}{jobs}")).unwrap();
    let sets: Vec<String> = sets.iter().map(|set| set.to_string()).collect();
    let plan = Plan::load(&file, &sets, None)?;
    check(&plan).map(|()| plan)
}

fn records(plan: &Plan) -> Vec<RunRecord> {
    run(plan, 2, || true).expect("it runs").into_iter().map(|run| run.record).collect()
}

fn refusal(name: &str, csv: &str) -> String {
    let error = plan(name, "[[jobs]]\nsystem = \"ring\"\nmessage = \"64KiB\"\nfile = \"jobs.csv\"\n", csv, &[]).expect_err("it is wrong");
    let text = error.to_string();
    text.rsplit_once("jobs-files-").map_or(text.clone(), |(_, rest)| rest.split_once('/').map_or(rest, |(_, rest)| rest).to_string())
}

#[test]
fn a_row_is_a_job_that_says_what_the_entry_does_not() {
    let jobs = "[[jobs]]\nsystem = \"ring\"\nworkers = 2\nplacement = [10, 11]\nmessage = \"4KiB\"\n\n\
                [[jobs]]\nsystem = \"tree\"\nworkers = 2\nmessage = \"64KiB\"\nfile = \"jobs.csv\"\n";
    let csv = "# arrivals of a morning\nstart, placement, message, system, workers\n5us,\"[0, 1, 2]\", , ring, 3\n0us, packed, 1KiB, , 4\n7us,,,,\n";
    let plan = plan("rows", jobs, csv, &[]).unwrap();
    let record = &records(&plan)[0];
    let seen: Vec<_> = record.jobs.iter().map(|job| (job.system, job.workers, job.message_bytes, job.begun_us)).collect();
    assert_eq!(seen, [("ring", 2, 4096, 0.0), ("ring", 3, 65536, 5.0), ("tree", 4, 1024, 0.0), ("tree", 2, 65536, 7.0)]);
    assert_eq!(record.jobs[1].workers_us.iter().map(|(host, _)| *host).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(record.is_good() && record.many.jct_us_max >= record.many.jct_us_p50);
}

#[test]
fn an_entry_with_a_file_is_varied_as_any_other() {
    let jobs = "[[jobs]]\nsystem = \"ring\"\nworkers = 4\nmessage = \"64KiB\"\nfile = \"jobs.csv\"\n\
                [sweep]\n\"jobs.0.system\" = [\"ring\", \"tree\"]\n";
    let plan = plan("swept", jobs, "message\n1KiB\n\n4KiB\n", &["jobs.0.workers=3"]).unwrap();
    let seen: Vec<Vec<_>> =
        records(&plan).iter().map(|run| run.jobs.iter().map(|job| (job.system, job.workers, job.message_bytes)).collect()).collect();
    assert_eq!(seen, [[("ring", 3, 1024), ("ring", 3, 4096)], [("tree", 3, 1024), ("tree", 3, 4096)]]);
}

#[test]
fn what_is_wrong_with_a_file_is_said_with_its_line() {
    let says = |name: &str, csv: &str, expected: &str| {
        let text = refusal(name, csv);
        assert!(text.contains(expected), "{text}");
    };
    says("value", "start, workers\n0us, 4\nsoon, 4\n", "jobs.csv:3: jobs[1].start = \"soon\": expected");
    says("key", "begin, workers\n0us, 4\n", "jobs.csv:2: jobs[0].begin = \"0us\": unknown key");
    says("workers", "workers\n6\n7\n", "jobs.csv:3: jobs[1].workers = 7: expected at most 6");
    says("useless", "workers, retries\n6, 3\n", "jobs.csv:2: jobs[0].retries");
    says("cells", "start, workers\n0us, 4\n0us\n", "jobs.csv:3: 1 cells: expected 2");
    says("twice", "workers, workers\n4, 4\n", "jobs.csv:1: column 2 = \"workers\": expected each key once");
    says("file", "workers, file\n4, jobs.csv\n", "jobs.csv:1: column 2 = \"file\": expected a key of [[jobs]]");
    says("empty", "workers\n", "plan.toml:9: jobs[0].file = \"jobs.csv\": expected a row for each job");
    says("nothing", "", "jobs[0].file = \"jobs.csv\": expected a row for each job");
    let of = |file: &str| format!("[[jobs]]\nsystem = \"ring\"\nfile = {file}\nmessage = \"64KiB\"\n");
    for (file, expected) in
        [("\"no.csv\"", "cannot be read"), ("\".\"", "expected a file of at most 64 MiB"), ("7", "expected the name of a CSV file")]
    {
        let text = plan("missing", &of(file), "", &[]).expect_err("it is wrong").to_string();
        assert!(text.contains(&format!("plan.toml:8: jobs[0].file = {file}: {expected}")), "{text}");
    }
    let text = plan("bytes", &of("\"jobs.csv\""), "workers\n4\n", &[]).map(|_| ()).and_then(|()| {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("jobs-files-bytes");
        fs::write(folder.join("jobs.csv"), b"workers\n\xff\n").unwrap();
        Plan::load(&folder.join("plan.toml"), &[], None).map(|_| ())
    });
    assert!(text.expect_err("no text").to_string().contains("jobs.csv:2: expected text in UTF-8"));
}

/// A plan of 60,000 jobs at a thousand points would take all memory before anything is run.
#[test]
fn rows_of_all_points_are_bounded() {
    let csv = format!("workers, start, message, payload\n{}", "2, 1us, 1KiB, 512\n".repeat(20_000));
    let jobs = "[[jobs]]\nsystem = \"ring\"\nfile = \"jobs.csv\"\n[sweep]\n\"jobs.0.window\" = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]\n\
                \"network.latency\" = [\"1ns\", \"2ns\", \"3ns\", \"4ns\", \"5ns\", \"6ns\", \"7ns\", \"8ns\", \"9ns\", \"10ns\", \"11ns\", \"12ns\"]\n";
    let text = plan("many", jobs, &csv, &[]).expect_err("too many").to_string();
    assert!(text.contains("jobs = 192 points x 20000 jobs, with those of files, take about"), "{text}");
}

/// Two jobs whose rings go through the same hosts' links have half of them each; one that comes when they have gone loses nothing.
#[test]
fn who_shares_links_is_slowed_down_and_who_does_not_is_not() {
    let jobs = "[[jobs]]\nsystem = \"ring\"\nmessage = \"2MiB\"\njobs_per_host = 3\nfile = \"jobs.csv\"\n\
                [run]\nalone = true\nseries_interval = \"20us\"\nrepetitions = 2\n";
    let csv = "start, placement\n0us,\"[0, 1, 2, 3]\"\n0us,\"[0, 1, 2, 3]\"\n5ms,\"[0, 1, 2, 3]\"\n0us,\"[4, 5, 6, 7]\"\n";
    for record in records(&plan("slowdown", jobs, csv, &[]).unwrap()) {
        let slowdown: Vec<f64> = record.jobs.iter().map(|job| job.slowdown.expect("it was asked for")).collect();
        assert!(slowdown[..2].iter().all(|slowdown| (1.8..2.2).contains(slowdown)), "{slowdown:?}");
        assert!(slowdown[2..].iter().all(|slowdown| (slowdown - 1.0).abs() < 0.01), "{slowdown:?}");
        assert_eq!(record.many.slowdown_max, slowdown.iter().copied().reduce(f64::max));
        let mean = slowdown.iter().sum::<f64>() / 4.0;
        assert!((record.many.slowdown_mean.unwrap() - mean).abs() < 1e-9);
        // Two have half of what the third one has: (1 + 1 + 2)^2 / (3 (1 + 1 + 4)) while all run, and 1 while two do.
        let fairness = (record.many.fairness.unwrap(), record.many.fairness_min.unwrap());
        assert!((0.87..0.99).contains(&fairness.0) && (0.8..0.92).contains(&fairness.1), "{fairness:?}");
    }
}

/// What is not asked for, or cannot be said of one job, is not there.
#[test]
fn a_job_by_itself_has_no_spread() {
    let jobs = "[[jobs]]\nsystem = \"tree\"\nworkers = 4\nmessage = \"256KiB\"\n[run]\nseries_interval = \"5us\"\n";
    let record = &records(&plan("single", jobs, "", &[]).unwrap())[0];
    let of_run = [record.many.jct_us_p50, record.many.slowdown_mean, record.many.fairness, record.jobs[0].alone_us];
    assert_eq!(of_run, [None; 4]);
}

/// Jobs have parts of a switch's memory; one by itself has all of it.
#[test]
fn by_itself_a_job_has_what_the_others_leave() {
    let jobs = "[[jobs]]\nsystem = \"switchml\"\nmessage = \"1MiB\"\nworkers = 6\ncopies = 2\n[run]\nalone = true\n";
    let network = |aggregators: u32| format!("network.aggregators={aggregators}");
    let slowdown = |name: &str, aggregators: u32| {
        let set = network(aggregators);
        records(&plan(name, jobs, "", &[&set]).unwrap())[0].many.slowdown_mean.unwrap()
    };
    let (scarce, plenty) = (slowdown("scarce", 8), slowdown("plenty", 512));
    assert!(scarce > 1.5 && plenty < 1.1, "{scarce} with 8 aggregators, {plenty} with 512");
}
