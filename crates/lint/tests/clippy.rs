//! Shows that every line of the purity rules fires: clippy runs with them over a crate that breaks each.

use std::path::Path;
use std::process::Command;

#[test]
fn every_purity_rule_fires_on_the_crate_that_breaks_them_all() {
    let lint = Path::new(env!("CARGO_MANIFEST_DIR"));
    let rules_folder = lint.join("../core");
    let output = Command::new(env!("CARGO"))
        .args(["clippy", "--offline", "--quiet", "--message-format", "short"])
        .current_dir(lint.join("tests/fixtures/impure"))
        .env("CLIPPY_CONF_DIR", &rules_folder)
        .env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("impure"))
        // Otherwise clippy finds nothing to do where the crate was already checked with other rules.
        .env("CARGO_INCREMENTAL", "0")
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{report}");

    let rules: toml::Table = std::fs::read_to_string(rules_folder.join("clippy.toml")).unwrap().parse().unwrap();
    let mut count = 0;
    for (key, kind) in [("disallowed-types", "type"), ("disallowed-methods", "method")] {
        for rule in rules[key].as_array().unwrap() {
            let path = rule["path"].as_str().unwrap();
            assert!(report.contains(&format!("use of a disallowed {kind} `{path}`")), "{path} did not fire:\n{report}");
            count += 1;
        }
    }
    assert!(count >= 50, "only {count} rules were read");
    assert!(report.contains("this function has too many lines (90/80)"), "{report}");
}
