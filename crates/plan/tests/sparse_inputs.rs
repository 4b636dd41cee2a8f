//! Sparse vectors as gradients have them: indices that ranks share, indices of buckets, indices from a file.

use std::fs;
use std::path::PathBuf;

use fanin_plan::results::RunRecord;
use fanin_plan::run::{check, run};
use fanin_plan::{Plan, PlanError};
use fanin_systems::System;

/// Systems whose vectors are sparse.
fn sparse() -> Vec<&'static str> {
    let sparse: Vec<&str> = System::all().iter().filter(|system| system.sparsity().is_some()).map(System::name).collect();
    assert!(sparse.len() > 1);
    sparse
}

const NETWORK: &str =
    "[network]\nshape = \"fat-tree\"\nleaves = 2\nhosts_per_leaf = 4\nspines = 1\nrate = \"100Gb/s\"\nlatency = \"300ns\"\n";

fn record(name: &str, job: &str, indices: &str) -> Result<RunRecord, PlanError> {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("sparse-inputs-{name}"));
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("indices.txt"), indices).unwrap();
    let file = folder.join("plan.toml");
    fs::write(&file, format!("{NETWORK}[[jobs]]\nworkers = 8\nplacement = \"packed\"\n{job}")).unwrap();
    let plan = Plan::load(&file, &[], None)?;
    check(&plan)?;
    let record = run(&plan, 1, || true).expect("it runs").remove(0).record;
    assert!(record.is_good(), "{:?} {}", record.failure, record.census);
    Ok(record)
}

/// Where all ranks have the same indices, the sum is as sparse as each of them; where none is shared, it is as long as all of them.
#[test]
fn what_ranks_share_makes_the_sum_shorter() {
    for system in sparse() {
        let bytes = |overlap: f64, picks: &str| {
            let name = format!("{system}-{overlap}-{picks}");
            let job = format!("system = \"{system}\"\nmessage = \"1MiB\"\ndensity = 0.02\noverlap = {overlap}\npicks = \"{picks}\"\n");
            record(&name, &job, "").unwrap().link_bytes as f64
        };
        for picks in ["random", "buckets"] {
            let (none, half, all) = (bytes(0.0, picks), bytes(0.5, picks), bytes(1.0, picks));
            assert!(all < half * 0.9 && half < none * 0.9, "{system} {picks}: {none}, {half} and {all} bytes on links");
        }
    }
}

/// The sums of lists from a file are exact, and their length is what the lists say: once all ranks have the same, once none has what another has.
#[test]
fn indices_come_from_a_file() {
    let line = |first: usize, step: usize| (first..20_000).step_by(step).map(|index| index.to_string()).collect::<Vec<_>>();
    let job = |system: &str| format!("system = \"{system}\"\nmessage = \"80000B\"\nindices = \"indices.txt\"\noperations = 2\n");
    for system in sparse() {
        let same = (0..8).map(|_| line(3, 80).join(" ") + "\n").collect::<String>();
        let apart = (0..8).map(|rank| line(rank * 10, 80).join(",") + "\n").collect::<String>();
        let bytes = |name: &str, text: &str| record(&format!("{system}-{name}"), &job(system), text).unwrap().link_bytes as f64;
        let (same, apart) = (bytes("same", &same), bytes("apart", &apart));
        assert!(same < apart * 0.7, "{system}: {same} bytes where all have the same indices, {apart} where none has another's");
    }
}

#[test]
fn what_is_wrong_with_a_file_of_indices_is_said_with_its_line() {
    let job = "system = \"flare\"\nmessage = \"4000B\"\nindices = \"indices.txt\"\n";
    let says = |name: &str, job: &str, text: &str, expected: &str| {
        let error = record(name, job, text).expect_err("it is wrong").to_string();
        assert!(error.contains(expected), "{error}");
    };
    let eight = "0 1 2\n".repeat(8);
    says("long", job, &eight.replacen("1", "1000", 1), "indices.txt:1: index \"1000\": expected a whole number below 1000");
    says("word", job, &format!("# ranks\n0 one\n{eight}"), "indices.txt:2: index \"one\": expected a whole number");
    says("twice", job, &format!("4 1 4\n{eight}"), "indices.txt:1: index 4: expected each index once");
    says("ranks", job, "0 1 2\n", "jobs[0].indices = \"indices.txt\": expected a file with a line for each of 8 workers; it has 1");
    says("none", job, &"\n".repeat(8), "expected a file with at least one index");
    says("missing", &job.replace("indices.txt", "no.txt"), "", "jobs[0].indices = \"no.txt\": expected a file that can be read");
    says("dense", &job.replace("flare", "tree"), &eight, &format!("no such key without {}", sparse().join(" or ")));
    says("both", &format!("{job}overlap = 0.5\n"), &eight, "jobs[0].overlap = 0.5: expected no such key beside indices");
    says("share", "system = \"flare\"\nmessage = \"4000B\"\noverlap = 1.5\n", "", "overlap");
}
