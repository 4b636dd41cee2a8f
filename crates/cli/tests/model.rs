//! `fanin model` and figures that are computed: the same numbers in every format, claims are held against them, and what makes no sense is
//! refused by name.

mod common;

use std::fs;

use common::{folder, good, refused, rows};

#[test]
fn every_format_has_the_same_numbers() {
    let folder = folder("model-formats");
    let arguments = ["model", "a2tp", "--flows", "2,32", "--aggregators", "450,900", "--format"];
    let objects = rows(&good(&folder, &[&arguments[..], &["json"]].concat()));
    let places: Vec<(f64, f64)> =
        objects.iter().map(|row| (row["flows"].as_f64().expect("N"), row["aggregators"].as_f64().expect("M"))).collect();
    assert_eq!(places, [(2.0, 450.0), (2.0, 900.0), (32.0, 450.0), (32.0, 900.0)]);
    let csv = good(&folder, &[&arguments[..], &["csv"]].concat());
    let mut lines = csv.lines();
    let header: Vec<&str> = lines.next().expect("a header").split(',').collect();
    for (line, object) in lines.zip(&objects) {
        for (key, cell) in header.iter().zip(line.split(',')) {
            let (in_csv, in_json): (f64, f64) = (cell.parse().expect("a number"), object[*key].as_f64().expect("a number"));
            // The reader of JSON here may miss the last binary digit.
            assert!((in_csv - in_json).abs() <= 1e-12 * in_csv.abs(), "{key}: {in_csv} is not {in_json}");
        }
    }
    let table = good(&folder, &[&arguments[..], &["table"]].concat());
    assert!(table.contains(" 0.042 ") && table.contains("threshold_min: lowest H with C_min >= 0, equation 14\n"), "{table}");
}

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    let folder = folder("model-refused");
    assert_eq!(
        refused(&folder, &["model", "a2tp", "--flows", "9", "--aggregators", "8"]),
        "error: flows = 9: expected at most as many as aggregators (8): a window holds one fragment or more"
    );
    assert!(refused(&folder, &["model", "a2tp", "--threshold", "0..1"]).contains("\"0..1\": expected a step, such as 0..1:0.1"));
    assert_eq!(
        refused(&folder, &["model", "a2tp", "--flows", "1..1000", "--aggregators", "1000..2000"]),
        "error: 1001000 combinations: expected at most 100000"
    );
}

#[test]
fn figures_that_are_computed_are_judged_and_drawn_as_others_are() {
    let folder = folder("model-repro");
    let judged = rows(&good(&folder, &["repro", "a2tp", "fig04", "fig05", "--format", "json", "--out", "out"]));
    let verdict = |claim: &str| judged.iter().find(|row| row["claim"] == claim).map(|row| row["verdict"].clone()).expect("the claim");
    assert_eq!(verdict("fig04/no-straggling"), "reproduced");
    assert_eq!(verdict("fig05/32-flows-450"), "reproduced");
    assert_eq!(verdict("fig05/two-flows-450"), "not reproduced");
    let page = fs::read_to_string(folder.join("out/report.html")).expect("a page");
    assert!(page.contains("<section id=\"fig05\">") && page.matches("<svg").count() == 3);
    for file in ["fig05/results.json", "fig05/results.csv", "fig05/bound.svg", "fig05/plan.toml", "fig04/decrease.svg"] {
        assert!(folder.join("out").join(file).is_file(), "{file}");
    }
}

#[test]
fn claims_speak_of_what_the_model_has() {
    let folder = folder("model-claims");
    let figure = folder.join("experiments/paper/fig1");
    fs::create_dir_all(&figure).expect("a folder");
    fs::write(figure.join("plan.toml"), "[model]\nname = \"a2tp-decrease\"\n").expect("a plan");
    let claims = "title = \"t\"\n[[claims]]\nid = \"a\"\nclass = \"ANA\"\ntext = \"b\"\nvalue = { }\nwindow = [0, 1]\n";
    fs::write(figure.join("claims.toml"), claims).expect("claims");
    assert_eq!(
        refused(&folder, &["repro", "paper", "--dir", "experiments"]),
        "error: experiments/paper/fig1/claims.toml:6: claims[0].value = \"goodput_gbps\": expected a field, one of decrease, kept, congestion, straggling"
    );
}
