//! Quick and full verdicts of every shipped figure, held together.
//!
//! `--quick` must ask what the full run asks: with fewer seeds it may be less sure, and it may leave claims out that `quick.drops` lists,
//! but `reproduced` against `not reproduced` is a figure whose quick run has left the full one's regime, or a full run that no longer is what
//! the program gives. What full runs gave is recorded beside the plans, in `verdicts.json`.

mod common;

use std::path::Path;

use common::{folder, good, rows};
use serde_json::Value;

/// Figures without a record, and why there is none: they are not run. A figure that has one must not be here.
const UNRECORDED: &[(&str, &str)] = &[];

/// Figures whose quick run takes 20 s of processor time or more: `make check-verdicts` holds them.
const LONG: &[(&str, &str)] = &[
    ("a2tp", "fairness"),
    ("a2tp", "fairness_jobs"),
    ("a2tp", "fig12"),
    ("a2tp", "fig13_full"),
    ("all", "congestion"),
    ("all", "congestion_2to1"),
    ("all", "oversubscription"),
    ("all", "workloads"),
    ("canary", "fig02"),
    ("canary", "fig07"),
    ("canary", "fig08"),
    ("canary", "fig09"),
    ("canary", "fig10"),
    ("canary", "fig11"),
    ("netreduce", "machines"),
    ("rina", "loss"),
];

/// What is wrong with the claims of a paper's quick run.
fn wrong_of(paper: &str, judged: &[Value]) -> Vec<String> {
    let figures: Vec<&str> = judged.iter().map(|row| text(row, "figure")).collect();
    let mut wrong = Vec::new();
    for (index, figure) in figures.iter().enumerate() {
        if figures[..index].contains(figure) {
            continue;
        }
        let claims: Vec<&Value> = judged.iter().filter(|row| row["figure"] == *figure).collect();
        let command = format!("fanin repro {paper} {figure} --out OUT; fanin repro {paper} {figure} --dir experiments --record OUT");
        if claims.iter().all(|row| row["full"].is_null()) {
            wrong.push(format!("{paper}/{figure}: no full run is recorded: {command}"));
        } else if claims.iter().any(|row| row["full"]["fits"] != true) {
            wrong.push(format!("{paper}/{figure}: what is recorded is of another plan or other claims: {command}"));
        } else {
            wrong.extend(of_figure(&claims).into_iter().map(|what| format!("{paper}/{what}")));
        }
    }
    wrong
}

/// What is wrong with a figure's claims, in all readings.
fn of_figure(claims: &[&Value]) -> Vec<String> {
    let mut wrong: Vec<String> = Vec::new();
    let (mut decided, mut alike) = (false, false);
    for row in claims {
        let readings = row["readings"].as_array().expect("readings");
        for (name, one) in
            std::iter::once((String::new(), *row)).chain(readings.iter().map(|one| (format!(", {} reading", one["reading"]), one)))
        {
            let (quick, full) = (text(one, "verdict"), text(&one["full"], "verdict"));
            let both = format!("{}{name}: quick {}, full {}", text(row, "claim"), outcome(one), outcome(&one["full"]));
            let left_out = one["reason"].as_str().is_some_and(|reason| reason.starts_with("--quick leaves out "));
            decided |= name.is_empty() && is_decided(full);
            alike |= name.is_empty() && is_decided(full) && quick == full;
            match (quick, full) {
                (quick, full) if quick == full => {}
                ("cannot be tested here", _) if left_out => {}
                ("cannot be tested here", _) | (_, "cannot be tested here") | ("reported", _) | (_, "reported") => wrong.push(both),
                (quick, full) if is_decided(quick) && is_decided(full) => wrong.push(both),
                _ => {}
            }
        }
    }
    if decided && !alike {
        wrong.push(format!("{}: no claim is decided by the quick run as by the full one, so nothing is held", text(claims[0], "figure")));
    }
    wrong
}

fn is_decided(verdict: &str) -> bool {
    ["reproduced", "not reproduced"].contains(&verdict)
}

fn text<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().unwrap_or_else(|| panic!("{key} in {row}"))
}

fn outcome(one: &Value) -> String {
    format!("{} ({}, interval {}, seeds {})", text(one, "verdict"), one["measured"], one["interval"], one["seeds"])
}

/// Holds a paper's figures, the long ones or the others.
fn hold_those(paper: &str, long: bool) {
    let experiments = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let experiments = experiments.to_str().expect("a path in UTF-8");
    let listed = good(&folder(&format!("verdicts-of-{paper}")), &["repro"]);
    let all = listed.lines().find_map(|line| line.strip_prefix(paper)?.strip_prefix(": ")).expect("the paper");
    // Nothing is held of a figure without a record, so it is not run.
    let unrecorded = |figure: &&str| UNRECORDED.iter().any(|(name, _)| *name == format!("{paper}/{figure}"));
    let (without, figures): (Vec<&str>, Vec<&str>) = all.split(", ").partition(unrecorded);
    for figure in without {
        let file = Path::new(experiments).join(paper).join(figure).join("verdicts.json");
        assert!(!file.exists(), "{paper}/{figure} is recorded: take it off the list of those that are not");
    }
    let figures: Vec<&str> = figures.into_iter().filter(|figure| LONG.contains(&(paper, figure)) == long).collect();
    assert!(!figures.is_empty(), "{paper}: expected figures that are {}", if long { "long" } else { "not long" });
    let arguments = [&["repro", paper][..], &figures, &["--quick", "--no-causes", "--format", "json", "--dir", experiments]].concat();
    let judged = rows(&good(&folder(&format!("verdicts-{paper}-{long}")), &arguments));
    let wrong = wrong_of(paper, &judged);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn hold(paper: &str) {
    hold_those(paper, false);
}

#[test]
#[ignore = "takes minutes: make check-verdicts"]
fn minutes_of_long_figures_quick_and_full_verdicts_agree() {
    let papers: std::collections::BTreeSet<&str> = LONG.iter().map(|(paper, _)| *paper).collect();
    papers.into_iter().for_each(|paper| hold_those(paper, true));
}

#[test]
fn quick_and_full_verdicts_of_canary_agree() {
    hold("canary");
}

#[test]
fn quick_and_full_verdicts_of_flare_agree() {
    hold("flare");
}

#[test]
fn quick_and_full_verdicts_of_netreduce_agree() {
    hold("netreduce");
}

#[test]
fn quick_and_full_verdicts_of_rina_agree() {
    hold("rina");
}

#[test]
fn quick_and_full_verdicts_of_a2tp_agree() {
    hold("a2tp");
}

#[test]
fn quick_and_full_verdicts_of_all_systems_agree() {
    hold("all");
}

#[test]
fn every_paper_is_held_and_every_exception_is_of_a_figure() {
    let listed = good(&folder("verdicts-list"), &["repro"]);
    let papers: Vec<(&str, &str)> = listed.lines().filter_map(|line| line.split_once(": ")).collect();
    let this = include_str!("verdicts.rs");
    for (paper, _) in &papers {
        assert!(this.contains(&format!("    hold({paper:?});")), "{paper} is held by no test here");
    }
    let is_there =
        |paper: &str, figure: &str| papers.iter().any(|(other, all)| *other == paper && all.split(", ").any(|one| one == figure));
    for (paper, figure) in LONG {
        assert!(is_there(paper, figure), "{paper}/{figure}: expected a figure");
    }
    for (name, why) in UNRECORDED {
        let (paper, figure) = name.split_once('/').expect("PAPER/FIGURE");
        assert!(is_there(paper, figure) && !why.is_empty(), "{name}: expected a figure, and a reason");
    }
}

/// A claim of a quick run, with what is recorded of the full one.
fn claim(quick: &str, reason: Option<&str>, full: Option<(&str, bool)>) -> Value {
    let full = full.map(
        |(verdict, fits)| serde_json::json!({"verdict": verdict, "fits": fits, "measured": 0.25, "interval": [0.125, 0.375], "seeds": 5}),
    );
    serde_json::json!({
        "claim": "fig1/faster", "figure": "fig1", "verdict": quick, "reason": reason, "measured": 0.5, "interval": [0.45, 0.55], "seeds": 1,
        "full": full, "readings": [],
    })
}

#[test]
fn what_does_not_agree_is_told() {
    let of = |claims: &[Value]| wrong_of("paper", claims).join("; ");
    let held = || claim("reproduced", None, Some(("reproduced", true)));
    assert_eq!(of(&[held()]), "");
    assert_eq!(
        of(&[held(), claim("reproduced", None, Some(("not reproduced", true)))]),
        "paper/fig1/faster: quick reproduced (0.5, interval [0.45,0.55], seeds 1), full not reproduced (0.25, interval [0.125,0.375], seeds 5)"
    );
    assert_eq!(
        of(&[held(), claim("undecided", None, Some(("not reproduced", true))), claim("reproduced", None, Some(("undecided", true)))]),
        ""
    );
    assert!(of(&[claim("undecided", None, Some(("reproduced", true)))]).contains("nothing is held"));
    assert_eq!(of(&[claim("undecided", None, Some(("undecided", true)))]), "", "nothing is decided by the full run");
    let left_out = claim("cannot be tested here", Some("--quick leaves out 32"), Some(("reproduced", true)));
    assert_eq!(of(&[held(), left_out.clone()]), "");
    assert!(of(&[left_out]).contains("nothing is held"));
    assert!(
        of(&[held(), claim("cannot be tested here", Some("no count"), Some(("reproduced", true)))]).contains("quick cannot be tested here")
    );
    let of_reading = claim("reproduced", None, Some(("not reproduced", true)));
    let mut two = held();
    two["readings"] = serde_json::json!([of_reading]);
    two["readings"][0]["reading"] = "literal".into();
    assert!(of(&[two]).contains("faster, \"literal\" reading: quick reproduced"));
}

#[test]
fn a_missing_or_stale_record_is_told_with_the_command_that_makes_it() {
    let (none, stale) = (claim("reproduced", None, None), claim("reproduced", None, Some(("reproduced", false))));
    let command = "fanin repro paper fig1 --out OUT; fanin repro paper fig1 --dir experiments --record OUT";
    assert_eq!(wrong_of("paper", &[none]), [format!("paper/fig1: no full run is recorded: {command}")]);
    assert_eq!(wrong_of("paper", &[stale]), [format!("paper/fig1: what is recorded is of another plan or other claims: {command}")]);
}

/// Fig. 8 of A2TP takes the iterations of a training by what `fig08_iterations` measured: the two must not part.
#[test]
fn times_of_iterations_are_those_that_were_measured() {
    let a2tp = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/a2tp");
    let read = |file: &str| std::fs::read_to_string(a2tp.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
    let plan: toml::Table = read("fig08/plan.toml").parse().expect("TOML");
    let record: Value = serde_json::from_str(&read("fig08_iterations/verdicts.json")).expect("JSON");
    let of = |list: &Value, id: &str| {
        let one = list.as_array().and_then(|list| list.iter().find(|one| one["id"] == id));
        one.unwrap_or_else(|| panic!("{id} in {list}")).clone()
    };
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{value} is no number"));
    let straggler = &of(&record["claims"], "straggler-slower")["measured"];
    let reading = &of(&record["causes"], "servers-limit")["claims"][0]["changed"]["measured"];
    let measured = [
        ("A2TP", 1.0),
        ("ATP", 1.0 / number(&of(&record["claims"], "atp-vgg16")["measured"])),
        ("SwitchML", 1.0 / number(&of(&record["claims"], "switchml-vgg16")["measured"])),
        ("SwitchML, other reading", 1.0 / number(reading)),
        ("A2TP, job B", number(&straggler[1])),
        ("A2TP, job B, ResNet50", number(&straggler[0])),
    ];
    let series = plan["series"].as_array().expect("series");
    assert_eq!(series.len(), measured.len());
    for (series, (name, times)) in series.iter().zip(measured) {
        assert_eq!(series["name"].as_str(), Some(name));
        let time = &series["set"]["model.iteration_us"];
        let of_plan = time.as_float().or_else(|| time.as_integer().map(|time| time as f64)).expect("a time");
        assert!((of_plan / 1_000.0 / times - 1.0).abs() < 1e-5, "{name}: an iteration of {of_plan} us is not {times} times 1 ms");
    }
}
