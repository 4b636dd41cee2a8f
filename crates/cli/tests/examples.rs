//! `fanin sim --example` and `fanin examples`: what comes with the program works in a folder in which there is nothing.

mod common;

use std::fs;

use common::fanin;

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn every_example_can_be_run_in_an_empty_folder_and_leaves_nothing_there() {
    let folder = common::folder("examples_empty");
    let listed = text(&fanin(&folder, &["examples"]).stdout);
    let names: Vec<&str> = listed.lines().filter_map(|line| Some(line.split_once(':')?.0)).collect();
    assert!(names.contains(&"quickstart") && names.contains(&"shapes"), "{listed}");
    for name in names {
        let done = fanin(&folder, &["sim", "--example", name, "--check"]);
        assert_eq!(done.status.code(), Some(0), "{name}: {}", text(&done.stderr));
        assert!(text(&done.stdout).starts_with(&format!("examples/{name}.toml: ")), "{name}");
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
}

#[test]
fn an_example_with_files_beside_it_runs_and_writes_where_it_is_told() {
    let folder = common::folder("examples_out");
    let done = fanin(&folder, &["sim", "--example", "shapes", "--out", "out", "--set", "run.repetitions=1"]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    assert!(folder.join("out/results.csv").is_file());
    assert!(text(&done.stdout).contains("report: "), "{}", text(&done.stdout));
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
}

#[test]
fn examples_are_written_into_a_new_folder_and_overwrite_nothing() {
    let folder = common::folder("examples_written");
    assert_eq!(fanin(&folder, &["examples", "--out", "all"]).status.code(), Some(0));
    assert_eq!(fs::read(folder.join("all/quickstart.toml")).unwrap(), fs::read(common::examples().join("quickstart.toml")).unwrap());
    assert!(folder.join("all/testbed/fabric.toml").is_file());
    let again = fanin(&folder, &["examples", "--out", "all"]);
    assert_eq!(again.status.code(), Some(2));
    assert!(text(&again.stderr).contains("--out all: expected a folder that is new or empty"), "{}", text(&again.stderr));
}

#[test]
fn what_is_no_example_is_refused_by_name() {
    let folder = common::folder("examples_wrong");
    let done = fanin(&folder, &["sim", "--example", "quick"]);
    assert_eq!(done.status.code(), Some(2));
    let said = text(&done.stderr);
    assert!(said.contains("--example: \"quick\": expected one of dragonfly, ") && said.contains("quickstart"), "{said}");
    let both = fanin(&folder, &["sim", "plan.toml", "--example", "loss"]);
    assert_eq!(both.status.code(), Some(2), "{}", text(&both.stderr));
    assert_eq!(fanin(&folder, &["sim"]).status.code(), Some(2));
}
