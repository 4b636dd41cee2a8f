//! Runs that are computed elsewhere give what they give here, with all files that the plan names.

use std::fs;
use std::path::Path;

use fanin_plan::columns::write_csv;
use fanin_plan::elsewhere::{bundle, part, results};
use fanin_plan::results::{RunRecord, write_json};
use fanin_plan::run::view::Looks;
use fanin_plan::run::{self, Finished};
use fanin_plan::{Plan, files, frames};

/// All that is written of runs, but the time that they took.
fn written(plan: &Plan, mut finished: Vec<Finished>) -> String {
    finished.iter_mut().for_each(|run| run.record.wall_s = 0.0);
    let records: Vec<&RunRecord> = finished.iter().map(|run| &run.record).collect();
    let (mut csv, mut json) = (Vec::new(), Vec::new());
    write_csv(&records, &mut csv).unwrap();
    write_json(&records, true, &mut json).unwrap();
    let tables = [frames::links(plan, &finished), frames::memory(plan, &finished), frames::series(plan, &finished)];
    let timelines: Vec<_> = finished.iter().map(|run| &run.timelines).collect();
    let views: Vec<_> = finished.iter().map(|run| &run.view).collect();
    format!("{}{}{tables:?}{timelines:?}{views:?}", String::from_utf8(csv).unwrap(), String::from_utf8(json).unwrap())
}

/// Runs a plan here and in parts of several lengths from a bundle, and gives the bundle.
#[track_caller]
fn same(plan: &Plan) -> Vec<u8> {
    run::check(plan).unwrap();
    let bundle = bundle(plan, true);
    let (here, total) =
        (written(plan, run::run_and_look(plan, 2, Looks { wanted: None, page: true }, || true).unwrap().0), run::runs(plan).len());
    for length in [1, 3, total] {
        let parts = (0..total).step_by(length).map(|first| (first, part(&bundle, first, length.min(total - first)).unwrap()));
        let finished: Vec<Finished> = parts.flat_map(|(first, bytes)| results(plan, first, &bytes).unwrap()).collect();
        assert_eq!(here, written(plan, finished), "in parts of {length}");
    }
    bundle
}

const JOBS: &str = r#"
    [network]
    shape = "fat-tree"
    leaves = 2
    hosts_per_leaf = 4
    spines = 2
    rate = "100Gb/s"
    latency = "300ns"
    [[jobs]]
    system = "canary"
    workers = 5
    message = "64KiB"
    [[jobs]]
    system = "tree"
    workers = 3
    message = "4KiB"
    [faults]
    links = [{ loss = 0.01 }]
    [sweep]
    "jobs.0.message" = ["4KiB", "48KiB"]
    "jobs.1.trees" = [1, 2]
    [run]
    seed = 9223372036854775807
    repetitions = 2
    alone = true
    memory_interval = "5us"
    series_interval = "5us"
"#;

#[test]
fn runs_elsewhere_give_the_same_bytes() {
    let plan = Plan::parse("plan", JOBS, &["jobs.0.message=32KiB".into()], None).unwrap();
    same(&plan);
    same(&Plan::parse("plan", JOBS, &[], Some(7)).unwrap());
    // Of a plan that has fewer points than its text.
    let mut fewer = Plan::parse("plan", JOBS, &[], Some(7)).unwrap();
    fewer.points.remove(1);
    same(&fewer);
}

#[test]
fn files_come_along() {
    files::keep();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("elsewhere");
    fs::create_dir_all(&folder).unwrap();
    let at = |name: &str| folder.join(name);
    let network = "
        hosts = [\"h[0-7]\"]
        [defaults]
        rate = \"100Gb/s\"
        latency = \"300ns\"
        [[switches]]
        name = \"s\"
        aggregates = true
        [[links]]
        from = \"s\"
        to = \"h[0-7]\"
    ";
    fs::write(at("net.toml"), network).unwrap();
    fs::write(at("jobs.csv"), "system,message\ntree,4KiB\nring,8KiB\n").unwrap();
    fs::write(at("indices.txt"), "1 5 9\n5 7\n5\n2 5\n").unwrap();
    let text = "
        [network]
        shape = \"file\"
        file = \"net.toml\"
        [[jobs]]
        file = \"jobs.csv\"
        workers = 2
        [[jobs]]
        system = \"flare\"
        workers = 4
        message = \"4KiB\"
        indices = \"indices.txt\"
        [run]
        repetitions = 3
    ";
    fs::write(at("plan.toml"), text).unwrap();
    let plan = Plan::load(&at("plan.toml"), &[], None).unwrap();
    let bundle = same(&plan);
    // They are not read where the bundle is.
    fs::remove_dir_all(&folder).unwrap();
    let again = part(&bundle, 0, 1).unwrap();
    assert!(results(&plan, 0, &again).is_ok());
}

#[test]
fn jobs_that_train_come_back_with_what_ranks_did() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/workload.toml");
    let plan = Plan::load(&example, &["run.repetitions=1".into()], None).unwrap();
    let bytes = same(&plan);
    let finished = results(&plan, 0, &part(&bytes, 0, 1).unwrap()).unwrap();
    assert!(finished[0].timelines.iter().any(|timeline| !timeline.ranks.is_empty()));
    assert!(finished[0].record.jobs.iter().any(|job| job.workload.as_ref().is_some_and(|workload| !workload.communication.is_empty())));
}

#[test]
fn what_is_not_a_bundle_or_its_results_is_refused() {
    let plan = Plan::parse("plan", JOBS, &[], None).unwrap();
    let whole = bundle(&plan, false);
    let words = part(&whole[..whole.len() - 1], 0, 1).unwrap_err().to_string();
    assert!(words.starts_with("a bundle of runs: not readable"), "{words}");
    assert_eq!(part(&whole, 7, 2).unwrap_err().to_string(), "a bundle of runs: runs 7 to 9: expected 0 to 8");
    let done = part(&whole, 2, 1).unwrap();
    let words = results(&plan, 3, &done).unwrap_err().to_string();
    assert!(words.starts_with("results of runs: point, repetition and seed"), "{words}");
    assert!(results(&plan, 2, &done[..done.len() / 2]).is_err());
    let version = env!("CARGO_PKG_VERSION").as_bytes();
    let place = whole.windows(version.len()).position(|bytes| bytes == version).unwrap();
    let mut other = whole.clone();
    other[place] = b'9';
    let words = part(&other, 0, 1).unwrap_err().to_string();
    assert!(words.contains("made by Fanin 9"), "{words}");
}

#[test]
fn tables_of_parts_have_the_same_columns() {
    let plan = Plan::parse("plan", JOBS, &[], None).unwrap();
    let finished = run::run(&plan, 2, || true).unwrap();
    let kind = |column: &frames::Column| std::mem::discriminant(column);
    let columns = |part: &[(&'static str, frames::Frame)]| -> Vec<_> {
        part.iter().flat_map(|(table, frame)| frame.columns.iter().map(|(name, column)| (*table, name.clone(), kind(column)))).collect()
    };
    let whole = frames::of_part(&plan, 0, &finished);
    let parts: Vec<_> = (0..finished.len()).map(|run| frames::of_part(&plan, run, &finished[run..=run])).collect();
    for part in &parts {
        assert_eq!(columns(part), columns(&whole));
    }
    for (table, (name, frame)) in whole.iter().enumerate() {
        let rows: usize = parts.iter().map(|part| part[table].1.rows()).sum();
        assert_eq!(rows, frame.rows(), "{name}");
    }
    let runs = &whole[0].1;
    let column = |name: &str| runs.columns.iter().find(|(other, _)| other == name).map(|(_, column)| column);
    assert_eq!(column("run"), Some(&frames::Column::Count((0..8).map(Some).collect())));
    assert_eq!(column("params.jobs.1.trees"), Some(&frames::Column::Integer([1, 1, 2, 2, 1, 1, 2, 2].map(Some).to_vec())));
    assert!(column("wall_s").is_none());
    // What is there for all runs is what is there for one.
    let (_, of_last) = &parts[7][0];
    let last = |frame: &frames::Frame, row| frame.columns.iter().map(|(name, column)| (name.clone(), column.text(row))).collect::<Vec<_>>();
    assert_eq!(last(of_last, 0), last(runs, 7));
    let (_, jobs) = &parts[7][1];
    assert_eq!(jobs.columns[0].1, frames::Column::Count(vec![Some(7), Some(7)]));
}
