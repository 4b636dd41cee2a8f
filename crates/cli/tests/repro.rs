//! `fanin repro`: claims are held against what comes out, wrong claims are refused before anything runs, and the report is one page that
//! needs nothing else.

mod common;

use std::fs;
use std::path::Path;

use common::{folder, good, refused, rows};

const PLAN: &str = r#"[network]
shape = "star"
hosts = 8
rate = "100Gb/s"
latency = "300ns"

[[jobs]]
system = "tree"
workers = 4
message = "16KiB"

[[traffic]]
pattern = "uniform"
hosts = "all"
message = "16KiB"

[[series]]
name = "ring"
set = { "jobs.0.system" = "ring" }

[[series]]
name = "tree <b>&"
set = { "jobs.0.system" = "tree" }

[sweep.condition]
idle = { "traffic.0.enabled" = false }
congested = { "traffic.0.enabled" = true }
other = { "traffic.0.enabled" = true, "traffic.0.load" = 0.5 }

[sweep]
"jobs.0.message" = ["4KiB", "64KiB"]

[run]
repetitions = 2
memory_interval = "1us"
"#;

const HEAD: &str = r#"title = "A figure of <i>tests</i>"

[quick]
set = ["run.repetitions=1", 'sweep.jobs.0.message=["4KiB"]']
DROPS

[[readings]]
name = "half"
text = "background at half load"
replace = { condition = { congested = "other" } }
"#;

/// One of each kind, with the verdict that it must get.
const CLAIMS: &[(&str, &str)] = &[
    (
        "reproduced",
        r#"value = { series = "ring", condition = "idle", "jobs.0.message" = "4KiB" }
window = [0.1, 100]
paper = 50"#,
    ),
    (
        "not reproduced",
        r#"value = { series = "ring", condition = "idle", "jobs.0.message" = "4KiB" }
window = [1000, inf]"#,
    ),
    (
        "reproduced",
        r#"where = { condition = "congested" }
ratio = [{ series = "tree <b>&" }, { series = "ring" }]
window = [0.5, inf]
at_each = ["jobs.0.message"]"#,
    ),
    (
        "not reproduced",
        r#"field = "completion_us"
where = { condition = "idle", "jobs.0.message" = "64KiB" }
difference = [{ series = "tree <b>&" }, { series = "ring" }]
window = [0, inf]"#,
    ),
    (
        "reproduced",
        r#"where = { condition = "idle" }
order = [{ series = "tree <b>&" }, { series = "ring" }]
at_each = ["jobs.0.message"]"#,
    ),
    (
        "not reproduced",
        r#"where = { condition = "idle" }
order = [{ series = "ring" }, { series = "tree <b>&" }]
at_some = ["jobs.0.message"]"#,
    ),
    (
        "reproduced",
        r#"where = { condition = "idle", "jobs.0.message" = "4KiB", series = ["ring", "tree <b>&"] }
ratio = [{ over = "lowest" }, { over = "highest" }]
window = [0, 1]
repetitions = "lowest""#,
    ),
    ("cannot be tested here", r#"untestable = "there is no such machine""#),
    (
        "reported",
        r#"value = { series = "ring", condition = "idle", "jobs.0.message" = "4KiB" }
reported = "the text gives no tolerance""#,
    ),
    (
        "not reproduced",
        r#"where = { condition = "idle" }
order = [{ series = "ring" }, { series = "tree <b>&" }]
at_each = ["jobs.0.message"]"#,
    ),
    (
        "not reproduced",
        r#"where = { condition = "idle", "jobs.0.message" = "64KiB" }
order = [{ series = "tree <b>&" }, { series = "ring" }]
margin = 1.9"#,
    ),
    (
        "undecided",
        r#"value = { series = "ring", condition = "congested", "jobs.0.message" = "64KiB" }
window = [MEAN, inf]"#,
    ),
    (
        "reproduced",
        r#"field = "completion_us"
where = { condition = "idle", series = "ring" }
per = { series = "tree <b>&" }
order = [{ "jobs.0.message" = "4KiB" }, { "jobs.0.message" = "64KiB" }]"#,
    ),
];

/// What each cause must come to, of the claims above.
const CAUSES: &[(&str, &str)] = &[
    (
        "cause shown",
        r#"claims = ["claim-0", "claim-8"]
set = ["network.rate=50Gb/s"]
moves = "down"
margin = 0.1"#,
    ),
    (
        "cause refuted",
        r#"claims = ["claim-0"]
set = ["network.rate=50Gb/s"]
moves = "up""#,
    ),
    (
        "cause shown",
        r#"claims = ["claim-1"]
plan = "faster.toml"
verdict = "reproduced""#,
    ),
    (
        "cause refuted",
        r#"claims = ["claim-1"]
set = ["network.rate=200Gb/s"]
verdict = "reproduced""#,
    ),
    (
        "cause not tested",
        r#"claims = ["claim-0"]
set = ["network.latency=301ns"]
verdict = "reproduced""#,
    ),
    (
        "cause refuted",
        r#"claims = ["claim-2"]
reading = "half"
verdict = "not reproduced""#,
    ),
];

/// The claims, with CAUSES below them.
fn with_causes() -> String {
    let one =
        |(index, (_, body)): (usize, &(&str, &str))| format!("\n[[causes]]\nid = \"cause-{index}\"\ntext = \"since <{index}>\"\n{body}\n");
    claims(CLAIMS) + &CAUSES.iter().enumerate().map(one).collect::<String>()
}

fn claims(all: &[(&str, &str)]) -> String {
    let one = |(index, (_, body)): (usize, &(&str, &str))| {
        format!(
            "\n[[claims]]\nid = \"claim-{index}\"\nclass = \"{}\"\ntext = \"says <{index}>\"\n{body}\n",
            ["SIM", "HW", "consistency"][usize::from(index == 7) + 2 * usize::from(index == 9)]
        )
    };
    // What --quick leaves out, of the claims above.
    let dropped = (0..all.len()).filter(|index| all[*index].1.contains("\"64KiB\"")).map(|index| format!("claim-{index}"));
    let drops = format!("drops = {:?}", dropped.collect::<Vec<_>>());
    HEAD.replace("DROPS", &drops) + &all.iter().enumerate().map(one).collect::<String>().replace("MEAN", "24")
}

fn experiment(folder: &Path, plan: &str, claims: &str) {
    let figure = folder.join("experiments/paper/fig1");
    fs::create_dir_all(&figure).expect("a folder");
    fs::write(figure.join("plan.toml"), plan).expect("a plan");
    fs::write(figure.join("claims.toml"), claims).expect("claims");
    fs::write(figure.join("README.md"), "# Choices <of> ours\n").expect("a README");
    fs::write(figure.join("faster.toml"), plan.replace("100Gb/s", "100000Gb/s").replace("300ns", "1ns")).expect("another plan");
}

const RUN: [&str; 4] = ["repro", "paper", "--dir", "experiments"];

#[test]
fn each_kind_of_claim_gets_its_verdict() {
    let folder = folder("repro-verdicts");
    experiment(&folder, PLAN, &claims(CLAIMS));
    let judged = rows(&good(&folder, &[&RUN[..], &["--format", "json"]].concat()));
    assert_eq!(judged.len(), CLAIMS.len());
    for ((index, row), (verdict, _)) in judged.iter().enumerate().zip(CLAIMS) {
        assert_eq!(row["claim"], format!("fig1/claim-{index}"));
        assert_eq!(row["paper"], format!("says <{index}>"));
        assert_eq!(row["verdict"], *verdict, "{row}");
        assert_eq!(row["quick"], false);
    }
    assert_eq!(judged[0]["window"], serde_json::json!([0.1, 100.0]));
    assert_eq!((&judged[0]["paper_value"], judged[0]["measured"].is_f64()), (&serde_json::json!(50.0), true));
    assert_eq!(judged[1]["window"], serde_json::json!([1000.0, null]));
    assert_eq!(judged[9]["reason"], "not at 2 of 2 places, first jobs.0.message 4KiB");
    let range = judged[2]["measured"].as_array().expect("the lowest and highest");
    assert!(range.len() == 2 && range[0].as_f64() <= range[1].as_f64(), "{range:?}");
    let half = &judged[2]["readings"][0];
    assert_eq!((&half["reading"], &half["verdict"]), (&serde_json::json!("half"), &serde_json::json!("reproduced")));
    assert_ne!(half["measured"], judged[2]["measured"], "another reading looks at other runs");
    assert_eq!(judged[0]["readings"], serde_json::json!([]), "idle runs are the same in both readings");
    assert_eq!(judged[4]["window"], "tree <b>& > ring");
    assert_eq!(judged[4]["measured"].as_array().map(Vec::len), Some(2));
    assert_eq!(judged[5]["reason"], "at 0 of 2 places");
    assert_eq!(judged[12]["window"], "4KiB per tree <b>& > 64KiB per tree <b>&");
    let shares = judged[12]["measured"].as_array().expect("two shares").iter().filter_map(serde_json::Value::as_f64).collect::<Vec<_>>();
    assert!(shares.len() == 2 && shares.iter().all(|share| (0.1..100.0).contains(share)), "times over times: {shares:?}");
    assert_eq!((&judged[7]["measured"], &judged[7]["class"]), (&serde_json::Value::Null, &serde_json::json!("HW")));
    assert!(judged[8]["measured"].is_f64() && judged[8]["reason"] == "the text gives no tolerance", "{}", judged[8]);
    assert_eq!((&judged[9]["class"], &judged[9]["margin"]), (&serde_json::json!("consistency"), &serde_json::json!(0.01)));
}

#[test]
fn a_verdict_says_what_interval_and_how_many_seeds_it_comes_from() {
    let folder = folder("repro-intervals");
    experiment(&folder, PLAN, &claims(CLAIMS));
    let judged = rows(&good(&folder, &[&RUN[..], &["--format", "json"]].concat()));
    let ends = |value: &serde_json::Value| {
        value.as_array().expect("two ends").iter().map(|end| end.as_f64().expect("a number")).collect::<Vec<_>>()
    };
    let (wide, number) = (ends(&judged[11]["interval"]), judged[11]["measured"].as_f64().expect("a number"));
    assert!(wide[0] < number && number < wide[1], "two seeds of a plan that draws: {wide:?} {number}");
    assert_eq!((&judged[11]["seeds"], &judged[11]["draws"]), (&serde_json::json!(2), &serde_json::json!(true)));
    let point = ends(&judged[0]["interval"]);
    assert_eq!(point[0], point[1], "two seeds that agree");
    assert_eq!(judged[4]["interval"].as_array().map(Vec::len), Some(1), "of an order, one for each pair: {}", judged[4]);
    assert_eq!((&judged[7]["interval"], &judged[7]["seeds"]), (&serde_json::Value::Null, &serde_json::Value::Null));
    let table = good(&folder, &RUN);
    let summary = table.lines().last().expect("a summary");
    assert!(table.contains("undecided") && table.contains("by "), "{table}");
    assert!(
        summary.starts_with("12 claims: 5 reproduced, 4 not reproduced, 1 undecided, 1 reported, 1 cannot be tested here"),
        "{summary}"
    );
    assert!(summary.contains("; 1 of consistency, counted apart: 1 not reproduced; "), "{summary}");
    let quick = good(&folder, &[&RUN[..], &["--quick"]].concat());
    assert!(quick.contains("reproduced (1 seed)") && quick.contains("decided by 1 seed)"), "{quick}");
}

#[test]
fn a_plan_that_is_said_to_draw_nothing_has_one_value_and_is_held_to_it() {
    let folder = folder("repro-draws");
    let fixed = |claims: String| claims.replacen("\n\n", "\ndraws = false\n\n", 1);
    experiment(&folder, &PLAN.replace("repetitions = 2", "repetitions = 1"), &fixed(claims(CLAIMS)));
    let judged = rows(&good(&folder, &[&RUN[..], &["--format", "json"]].concat()));
    assert_eq!((&judged[0]["seeds"], &judged[0]["draws"]), (&serde_json::Value::Null, &serde_json::json!(false)));
    assert!(good(&folder, &RUN).contains("seeds any: the plan draws nothing: one value"));
    let output = common::fanin(&folder, &[&RUN[..], &["--set", "run.repetitions=2"]].concat());
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "background traffic is drawn: {errors}");
    assert!(errors.contains("its numbers are not those of other seeds; expected so by draws = false"), "{errors}");
}

#[test]
fn what_is_sampled_is_of_all_seeds_and_what_is_not_sampled_is_not_measured() {
    let folder = folder("repro-sampled");
    let body = r#"field = "jobs.0.together.goodput_gbps"
value = { series = "ring", condition = "congested", "jobs.0.message" = "64KiB" }
window = [0.01, 1000]"#;
    for (plan, seeds, verdict) in [
        (PLAN.replace("[run]", "[run]\nseries_interval = \"1us\""), serde_json::json!(2), "reproduced"),
        (PLAN.to_string(), serde_json::Value::Null, "cannot be tested here"),
    ] {
        experiment(&folder, &plan, &claims(&[("", body)]));
        let judged = rows(&good(&folder, &[&RUN[..], &["--format", "json"]].concat()));
        assert_eq!((&judged[0]["seeds"], &judged[0]["verdict"]), (&seeds, &serde_json::json!(verdict)), "{}", judged[0]);
    }
}

#[test]
fn a_cause_is_run_and_is_shown_or_refuted() {
    let folder = folder("repro-causes");
    experiment(&folder, PLAN, &with_causes());
    let judged = rows(&good(&folder, &[&RUN[..], &["--format", "json"]].concat()));
    for (index, (finding, _)) in CAUSES.iter().enumerate() {
        let of_claims = judged.iter().flat_map(|row| row["causes"].as_array().expect("causes"));
        let of_cause: Vec<_> = of_claims.filter(|row| row["cause"] == format!("cause-{index}")).collect();
        assert!(!of_cause.is_empty(), "cause-{index}");
        for row in of_cause {
            assert_eq!(
                (&row["of_all"], &row["text"]),
                (&serde_json::json!(finding), &serde_json::json!(format!("since <{index}>"))),
                "{row}"
            );
        }
    }
    let of_zero = judged[0]["causes"].as_array().expect("causes");
    assert_eq!((&of_zero[0]["change"], &of_zero[0]["expected"]), (&serde_json::json!("network.rate=50Gb/s"), &serde_json::json!("down")));
    assert!(of_zero[0]["changed"]["measured"].as_f64() < judged[0]["measured"].as_f64(), "{}", of_zero[0]);
    assert_eq!(of_zero[2]["why"], "reproduced without the change, too");
    let table = good(&folder, &[&RUN[..], &["--out", "out"]].concat());
    assert!(table.contains("; 6 causes: 2 shown, 3 refuted, 1 not tested; "), "{table}");
    assert!(table.contains("cause refuted: cause-1: since <1> (network.rate=50Gb/s; expected up)"), "{table}");
    let page = fs::read_to_string(folder.join("out/report.html")).expect("a report");
    assert!(page.contains("since &#60;1&#62;") && page.contains("cause-refuted"), "causes beside claims");
    let without = good(&folder, &[&RUN[..], &["--no-causes"]].concat());
    assert!(without.contains("; 6 causes: 0 shown, 0 refuted, 6 not tested; "), "{without}");
}

#[test]
fn a_ratio_is_that_of_the_rows_of_results() {
    let folder = folder("repro-ratio");
    experiment(&folder, PLAN, &claims(&CLAIMS[..3]));
    let judged = rows(&good(&folder, &[&RUN[..], &["--format", "json", "--out", "out"]].concat()));
    let results = rows(&fs::read_to_string(folder.join("out/fig1/results.json")).expect("results"));
    let goodput = |series: &str, message: &str, repetition: u64| {
        let fits = |row: &&serde_json::Value| {
            row["series"] == series
                && row["params"]["jobs.0.message"] == message
                && row["params"]["traffic.0.enabled"] == true
                && row["params"].get("traffic.0.load").is_none()
                && row["repetition"] == repetition
        };
        results.iter().find(fits).expect("a run")["goodput_gbps"].as_f64().expect("a number")
    };
    let ratio = |message: &str| {
        let each = [0, 1].map(|repetition| goodput("tree <b>&", message, repetition) / goodput("ring", message, repetition));
        (each[0] + each[1]) / 2.0
    };
    let (small, large) = (ratio("4KiB"), ratio("64KiB"));
    let measured = judged[2]["measured"].as_array().expect("a range").iter().map(|end| end.as_f64().expect("a number")).collect::<Vec<_>>();
    assert!(
        (measured[0] - small.min(large)).abs() < 1e-12 && (measured[1] - small.max(large)).abs() < 1e-12,
        "{measured:?} {small} {large}"
    );
}

#[test]
fn a_quick_run_says_so_and_what_it_leaves_out() {
    let folder = folder("repro-quick");
    experiment(&folder, PLAN, &claims(CLAIMS));
    let judged = rows(&good(&folder, &[&RUN[..], &["--format", "json", "--quick"]].concat()));
    assert!(judged.iter().all(|row| row["quick"] == true));
    assert_eq!(judged[3]["verdict"], "cannot be tested here");
    assert_eq!(judged[3]["reason"], "--quick leaves out idle, 64KiB, tree <b>&");
    assert_eq!(judged[2]["verdict"], "reproduced", "at the places that are left");
    let table = good(&folder, &[&RUN[..], &["--quick"]].concat());
    assert!(table.contains("QUICK") && table.contains("12 claims: "), "{table}");
}

#[test]
fn a_claim_that_quick_leaves_out_is_listed_and_none_that_it_does_not() {
    let folder = folder("repro-drops");
    let all = claims(CLAIMS);
    let drops = r#"drops = ["claim-3", "claim-10", "claim-11", "claim-12"]"#;
    assert!(all.contains(drops), "{all}");
    for (listed, expected) in [
        (
            r#"drops = ["claim-3", "claim-11", "claim-12"]"#,
            "\"claim-10\": expected it listed: --quick leaves out idle, 64KiB, tree <b>&; drops = [\"claim-3\", \"claim-10\", \"claim-11\", \"claim-12\"]",
        ),
        (
            r#"drops = ["claim-0", "claim-3", "claim-10", "claim-11", "claim-12"]"#,
            "\"claim-0\": expected no claim of which --quick leaves nothing out; drops = [\"claim-3\", \"claim-10\", \"claim-11\", \"claim-12\"]",
        ),
        (
            r#"drops = ["claim-3", "claim-10", "claim-11", "claim-12", "claim-7"]"#,
            "\"claim-7\": expected claims of this file that are measured, each once",
        ),
        (r#"drops = ["claim-3", "claim-3"]"#, "\"claim-3\": expected claims of this file that are measured, each once"),
    ] {
        experiment(&folder, PLAN, &all.replace(drops, listed));
        let said = refused(&folder, &[&RUN[..], &["--quick"]].concat());
        assert_eq!(said, format!("error: experiments/paper/fig1/claims.toml:5: quick.drops = {expected}"));
    }
}

/// The README of a figure, with a place for the table.
const README: &str = "# Choices\n\n<!-- results -->\nold\n<!-- end of results -->\n\nafter\n";

#[test]
fn a_full_run_is_recorded_and_a_quick_one_says_where_it_differs() {
    let folder = folder("repro-record");
    let all = with_causes();
    experiment(&folder, PLAN, &all);
    let (readme, record) = (folder.join("experiments/paper/fig1/README.md"), folder.join("experiments/paper/fig1/verdicts.json"));
    fs::write(&readme, README).expect("a README");
    let none = rows(&good(&folder, &[&RUN[..], &["--quick", "--format", "json"]].concat()));
    assert!(none.iter().all(|row| row["full"].is_null()), "nothing is recorded");
    good(&folder, &[&RUN[..], &["--out", "out"]].concat());
    assert_eq!(good(&folder, &[&RUN[..], &["--record", "out"]].concat()), "paper: fig1\n");
    let recorded = fs::read_to_string(&record).expect("a record");
    assert_eq!(recorded, fs::read_to_string(folder.join("out/fig1/verdicts.json")).expect("a record"));
    let table = fs::read_to_string(&readme).expect("a README");
    assert!(
        table.starts_with("# Choices\n\n<!-- results -->\n`fanin repro paper fig1` gave:\n") && table.ends_with("-->\n\nafter\n"),
        "{table}"
    );
    assert!(
        table.contains("| claim-3 | says <3> | ")
            && table.contains("|  | *half reading* | ")
            && table.contains("- **cause shown**, `cause-0`: ")
    );
    let judged = rows(&good(&folder, &[&RUN[..], &["--quick", "--format", "json"]].concat()));
    assert!(judged.iter().all(|row| row["full"]["fits"] == true));
    assert_eq!((&judged[3]["verdict"], &judged[3]["full"]["verdict"]), (&"cannot be tested here".into(), &"not reproduced".into()));
    assert_eq!(judged[2]["full"]["measured"].as_array().map(Vec::len), Some(2), "a range stays one");
    assert!(judged[2]["readings"][0]["full"]["verdict"].is_string());
    let quick = good(&folder, &[&RUN[..], &["--quick", "--no-causes", "--out", "quick"]].concat());
    assert!(quick.contains("cannot be tested here, full: not reproduced"), "{quick}");
    let page = fs::read_to_string(folder.join("quick/report.html")).expect("a report");
    assert!(page.contains("<span class=\"muted\">full: not reproduced</span>"));
    let changed = rows(&good(&folder, &[&RUN[..], &["--quick", "--format", "json", "--set", "network.rate=50Gb/s"]].concat()));
    assert!(changed.iter().all(|row| row["full"].is_null()), "a changed plan has no full run");
    fs::write(&readme, README).expect("a README");
    assert_eq!(good(&folder, &[&RUN[..], &["--tables"]].concat()), "paper: fig1\n");
    assert_eq!(fs::read_to_string(&readme).expect("a README"), table, "the table is that of the record");
    fs::write(folder.join("experiments/paper/fig1/claims.toml"), all.replace("window = [1000, inf]", "window = [2000, inf]"))
        .expect("claims");
    let stale = good(&folder, &[&RUN[..], &["--quick", "--no-causes"]].concat());
    assert!(stale.contains("was of another plan or other claims, and is not shown") && !stale.contains("full: not"), "{stale}");
    let said = refused(&folder, &[&RUN[..], &["--record", "out"]].concat());
    assert!(said.contains("out/fig1/verdicts.json: expected what was run with the plan and the claims that are there now, "), "{said}");
}

#[test]
fn what_is_not_a_full_run_is_not_recorded() {
    let folder = folder("repro-not-recorded");
    experiment(&folder, PLAN, &claims(&CLAIMS[..4]));
    let refuse = |arguments: &[&str], expected: &str| {
        let said = refused(&folder, &[&RUN[..], arguments].concat());
        assert!(said.contains(expected), "{said}");
    };
    let only = "out/fig1/verdicts.json: expected it there; only a full run writes it";
    for arguments in [&["--quick"][..], &["--no-causes"], &["--set", "run.seed=2"]] {
        // In the folder of a full run, too, whose results it takes the place of.
        good(&folder, &[&RUN[..], &["--out", "out"]].concat());
        assert!(folder.join("out/fig1/verdicts.json").is_file());
        good(&folder, &[&RUN[..], &["--out", "out"], arguments].concat());
        refuse(&["--record", "out"], only);
    }
    experiment(&folder, &PLAN.replace("repetitions = 2", "repetitions = 2\ntime_limit = \"3us\""), &claims(&CLAIMS[..4]));
    assert_eq!(common::fanin(&folder, &[&RUN[..], &["--out", "out"]].concat()).status.code(), Some(1));
    refuse(&["--record", "out"], only);
    refuse(&["--record", "nowhere"], "paper: nothing to record, and nothing that is recorded");
    refuse(&["fig1", "--record", "nowhere"], "fig1: expected a folder of this name");
    refuse(&["fig2", "--tables"], "\"fig2\": expected one of fig1");
    experiment(&folder, PLAN, &claims(&CLAIMS[..4]));
    good(&folder, &[&RUN[..], &["--out", "out"]].concat());
    refuse(&["--record", "out"], "fig1/README.md: expected <!-- results --> and then <!-- end of results -->, each once");
    assert!(!folder.join("experiments/paper/fig1/verdicts.json").exists(), "nothing is written where one thing is wrong");
    fs::write(folder.join("experiments/paper/fig1/verdicts.json"), "{}").expect("a file");
    refuse(&["--quick"], "fig1/verdicts.json: expected what a full run gave, as `fanin repro` writes it: missing field");
}

#[test]
fn the_report_is_one_page_and_escapes_what_it_shows() {
    let folder = folder("repro-report");
    experiment(&folder, PLAN, &claims(CLAIMS));
    good(&folder, &[&RUN[..], &["--out", "out"]].concat());
    let page = fs::read_to_string(folder.join("out/report.html")).expect("a report");
    for wanted in [
        "says &#60;3&#62;",
        "A figure of &#60;i&#62;tests",
        "not reproduced",
        "half reading",
        "there is no such machine",
        "tree &#60;b&#62;&#38;",
    ] {
        assert!(page.contains(wanted), "{wanted}");
    }
    assert!(page.contains("Choices &#60;of&#62; ours") && page.contains("[sweep.condition]"), "README and plan");
    assert!(!page.contains("<b>") && !page.contains("<i>tests"), "texts are escaped, in pictures too");
    assert_eq!(page.matches("class=\"svg\"><svg").count(), 4, "goodput, links, completion over sizes, memory");
    // Programs are in the page, with addresses in their licences; what they ask for is tried in a browser (scripts/report_tests.py).
    let mut parts = page.split("<script");
    let mut outside = parts.next().unwrap_or_default().replace("http://www.w3.org/2000/svg", "");
    for part in parts {
        let (head, rest) = part.split_once('>').expect("a tag ends");
        assert!(!head.contains("src"), "{head}");
        outside.push_str(&rest.split_once("</script>").expect("a program ends").1.replace("http://www.w3.org/2000/svg", ""));
    }
    for foreign in ["http://", "https://", "src=", "<link", "url("] {
        assert!(!outside.contains(foreign), "{foreign}");
    }
    for file in ["claims.json", "fig1/results.json", "fig1/results.csv", "fig1/memory.csv", "fig1/goodput.svg", "fig1/plan.toml"] {
        assert!(folder.join("out").join(file).is_file(), "{file}");
    }
}

#[test]
fn a_run_without_its_number_is_a_reason_and_an_error() {
    let folder = folder("repro-failed");
    experiment(&folder, &PLAN.replace("repetitions = 2", "repetitions = 2\ntime_limit = \"3us\""), &claims(CLAIMS));
    let output = common::fanin(&folder, &[&RUN[..], &["--format", "json"]].concat());
    assert_eq!(output.status.code(), Some(1));
    let judged = rows(&String::from_utf8(output.stdout).expect("text"));
    assert_eq!((&judged[0]["verdict"], &judged[0]["measured"]), (&serde_json::json!("not reproduced"), &serde_json::Value::Null));
    let reason = judged[0]["reason"].as_str().expect("a reason");
    assert!(reason.starts_with("no goodput_gbps at series ring, ") && reason.contains("time limit of 3"), "{reason}");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(errors.contains("error: fig1: series ring, "), "{errors}");
}

/// A claim, and the error after `experiments/paper/fig1/claims.toml:`.
const WRONG: &[(&str, &str)] = &[
    (
        "value = { series = \"rings\" }\nwindow = [0, 1]",
        "16: claims[0].value = \"rings\": expected a place on the axis \"series\" of the plan: \"ring\", \"tree <b>&\"",
    ),
    (
        "value = { serie = \"ring\" }\nwindow = [0, 1]",
        "16: claims[0].value = \"serie\": expected what the plan varies: \"series\", \"condition\", \"jobs.0.message\"",
    ),
    (
        "value = { series = \"ring\" }\nwindow = [0, 1]",
        "16: claims[0].value = ring: expected one place on the axis \"condition\", at_each, at_some, or over = \"lowest\" or the like",
    ),
    ("field = \"goodputs\"\nvalue = { over = \"mean\" }\nwindow = [0, 1]", "17: claims[0].value = \"goodputs\": expected a field, one of "),
    ("value = { over = \"mean\" }", "12: claims[0] = \"claim-0\": expected a window, [lowest, highest], or reported with a reason"),
    (
        "value = { over = \"mean\" }\nuntestable = \"no tolerance\"",
        "17: claims[0].untestable = ...: expected reported with a reason where something is measured",
    ),
    (
        "value = { over = \"mean\" }\nwindow = [0, 1]\nreported = \"no tolerance\"",
        "17: claims[0].window = ...: expected no window where what is measured is only reported",
    ),
    (
        "reported = \"no tolerance\"\nuntestable = \"no machine\"",
        "16: claims[0].reported = ...: expected value, ratio, difference or order beside it",
    ),
    (
        "value = { over = \"mean\" }\nwindow = [0, 1]\nmargin = 0.1",
        "18: claims[0].margin = 0.1: expected a share, 0 or more and below 2, beside order",
    ),
    (
        "value = { over = \"mean\" }\nwindow = [0, 1]\n[[causes]]\nid = \"a\"\ntext = \"b\"\nclaims = [\"claim\"]\nset = [\"run.seed=2\"]\nmoves = \"up\"",
        "21: causes[0].claims = \"claim\": expected a claim of this file",
    ),
    (
        "value = { over = \"mean\" }\nwindow = [0, 1]\n[[causes]]\nid = \"a\"\ntext = \"b\"\nclaims = [\"claim-0\"]\nset = [\"run.seed=2\"]\nreading = \"half\"\nmoves = \"up\"",
        "18: causes[0] = \"a\": expected one of set, reading and plan",
    ),
    (
        "value = { over = \"mean\" }\nwindow = [0, 1]\n[[causes]]\nid = \"a\"\ntext = \"b\"\nclaims = [\"claim-0\"]\nset = [\"run.seed=2\"]",
        "18: causes[0] = \"a\": expected one of verdict and moves",
    ),
    (
        "value = { over = \"mean\" }\nwindow = [0, 1]\n[[causes]]\nid = \"a\"\ntext = \"b\"\nclaims = [\"claim-0\"]\nset = [\"run.seed=2\"]\nverdict = \"undecided\"",
        "23: causes[0].verdict = \"undecided\": expected \"reproduced\" or \"not reproduced\"",
    ),
    (
        "value = { over = \"mean\" }\nwindow = [0, 1]\n[[causes]]\nid = \"a\"\ntext = \"b\"\nclaims = [\"claim-0\"]\nset = [\"network.rates=2\"]\nmoves = \"up\"",
        " causes, a: experiments/paper/fig1/plan.toml",
    ),
    (
        "value = { over = \"mean\" }\nwindow = [2, 1]",
        "17: claims[0].window = [2, 1]: expected [lowest, highest], such as [0.7, 0.9] or [1.5, inf]",
    ),
    ("value = { over = \"mean\" }\nwindow = [1, 2, 3]", "17: claims[0].window = [1, 2, 3]: expected 2 items"),
    (
        "value = { over = \"most\" }\nwindow = [0, 1]",
        "16: claims[0].value = { over = \"most\" }: over: expected \"median\", \"mean\", \"lowest\" or \"highest\"",
    ),
    ("value = { over = \"mean\" }\nratio = [{}, {}]\nwindow = [0, 1]", "17: claims[0].ratio = ...: expected one of value and ratio"),
    ("order = [{ over = \"mean\" }]", "16: claims[0].order = ...: expected two or more, the highest first"),
    ("value = { over = \"mean\" }\nper = {}\nwindow = [0, 1]", "17: claims[0].per = ...: expected order beside it"),
    ("", "12: claims[0] = \"claim-0\": expected value, ratio, difference or order, or untestable with a reason"),
    ("windows = [0, 1]", "16: claims[0].windows = [0, 1]: unknown key; did you mean window? Expected one of "),
    ("class = \"SIN\"", "not TOML: "),
];

#[test]
fn wrong_claims_are_refused_with_file_line_key_value_and_what_was_expected() {
    let folder = folder("repro-wrong");
    for (body, expected) in WRONG {
        experiment(&folder, PLAN, &claims(&[("", body)]));
        let said = refused(&folder, &[&RUN[..], &["--format", "json"]].concat());
        let place = "error: experiments/paper/fig1/claims.toml:";
        let matches = said.strip_prefix(place).is_some_and(|rest| rest.contains(expected));
        assert!(matches, "{body}\n{said}\n{place}{expected}");
    }
    let unknown = refused(&folder, &["repro", "paper", "fig2", "--dir", "experiments"]);
    assert_eq!(unknown, "error: fanin repro: \"fig2\": expected one of fig1");
    let unknown = refused(&folder, &["repro", "papers", "--dir", "experiments"]);
    assert_eq!(unknown, "error: fanin repro: \"papers\": expected one of paper");
}

#[test]
fn the_program_carries_its_experiments() {
    let folder = folder("repro-embedded");
    let listed = good(&folder, &["repro"]);
    assert!(
        listed
            .contains("canary: adaptive_timeout, arithmetic, fig02, fig06, fig07, fig08, fig09, fig10, fig11, loss, memory, parameters, prototype, reproducible, sensitivity, small, table, windows\n"),
        "{listed}"
    );
    let judged = rows(&good(&folder, &["repro", "canary", "fig06", "--format", "json"]));
    assert!(judged.iter().any(|row| row["class"] == "HW" && row["verdict"] == "cannot be tested here"));
    let simulated = judged.iter().find(|row| row["claim"] == "fig06/goodput-of-the-simulator").expect("the claim");
    assert_eq!(simulated["verdict"], "reproduced", "{simulated}");
}
