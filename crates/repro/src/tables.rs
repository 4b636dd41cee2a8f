//! What is recorded of a figure as the table of its README, between two marks.

use anyhow::{Result, bail};

use fanin_pictures::table::number_text;

use super::causes::{Changed, Tried};
use super::claims::Class;
use super::evaluate::{Judged, Outcome};
use super::output::{measured_text, seeds_text, spread_text, verdict_text, window_text};

const BEGIN: &str = "<!-- results -->";
const END: &str = "<!-- end of results -->";

/// A change that is longer than this is not written out.
const CHANGE_MAX: usize = 60;

/// All claims of a figure, in Markdown: a row each, one below it for every other reading, and its causes below the table.
pub fn table(paper: &str, figure: &str, judged: &[Judged], causes: &[Tried]) -> String {
    let mut lines = vec![
        format!("`fanin repro {paper} {figure}` gave:"),
        String::new(),
        "| claim | the paper says | paper | measured | interval | seeds | window | verdict |".into(),
        "|---|---|---|---|---|---|---|---|".into(),
    ];
    for one in judged {
        let consistency = if one.claim.class == Class::Consistency { " (consistency)" } else { "" };
        let paper = one.claim.paper.map_or("-".into(), number_text);
        let name = format!("{}{consistency}", one.claim.id);
        lines.push(row([name, one.claim.text.clone(), paper], window_text(one), &one.outcome));
        for (reading, outcome) in &one.readings {
            lines.push(row([String::new(), format!("*{reading} reading*"), String::new()], String::new(), outcome));
        }
    }
    if !causes.is_empty() {
        lines.push(String::new());
        lines.extend(causes.iter().map(cause));
    }
    lines.join("\n")
}

fn row(head: [String; 3], window: String, outcome: &Outcome) -> String {
    let reason = outcome.reason.as_ref().map_or(String::new(), |reason| format!(" ({reason})"));
    let measured = [measured_text(&outcome.measured), spread_text(&outcome.spread), seeds_text(outcome)];
    let cells = head.into_iter().chain(measured).chain([window, verdict_text(outcome) + &reason]);
    // What is in a cell stays in it.
    format!("| {} |", cells.map(|cell| cell.replace('|', "\\|").replace('\n', " ")).collect::<Vec<_>>().join(" | "))
}

fn cause(tried: &Tried) -> String {
    let cause = &tried.cause;
    let change = Some(cause.change()).filter(|change| change.len() <= CHANGE_MAX).unwrap_or("a changed plan, in claims.toml".into());
    let of_claim = |changed: &Changed| {
        let with_verdict = |outcome: &Outcome| format!("{}, {}", measured_text(&outcome.measured), verdict_text(outcome));
        let after = changed.after.as_ref().map_or("not run".into(), with_verdict);
        let why = changed.reason.as_ref().map_or(String::new(), |why| format!(" ({why})"));
        format!("{}: {}; with the change {after}{why}.", changed.claim.id, with_verdict(&changed.before))
    };
    let said: Vec<String> = tried.claims.iter().map(of_claim).collect();
    let head = format!("- **{}**, `{}`: {} (`{change}`; expected {}).", tried.finding().text(), cause.id, cause.text, cause.wanted());
    format!("{head} {}", said.join(" ")).replace('\n', " ")
}

/// A README with another table between its marks.
///
/// # Errors
/// Where it does not have each mark once, in their order.
pub fn insert(readme: &str, table: &str) -> Result<String> {
    let (begins, ends): (Vec<_>, Vec<_>) = (readme.match_indices(BEGIN).collect(), readme.match_indices(END).collect());
    match (begins.as_slice(), ends.as_slice()) {
        ([(begin, _)], [(end, _)]) if begin < end => {
            Ok(format!("{}{BEGIN}\n{table}\n{END}{}", &readme[..*begin], &readme[end + END.len()..]))
        }
        _ => bail!("expected {BEGIN} and then {END}, each once"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::catalog::Catalog;
    use super::super::causes::{Cause, Direction, Finding};
    use super::super::evaluate::{Measured, Spread, Verdict};
    use super::super::interval::Seeds;
    use super::super::recorded::Recorded;
    use super::super::tasks::read;
    use super::*;

    fn outcome(measured: Measured, spread: Spread, seeds: usize) -> Outcome {
        let seeds = if seeds == 0 { Seeds::Any } else { Seeds::Drawn(seeds) };
        Outcome { measured, spread, seeds: Some(seeds), verdict: Verdict::NotReproduced, reason: None }
    }

    fn judged(class: &str, outcome: Outcome) -> Judged {
        let text =
            format!("id = \"faster\"\nclass = \"{class}\"\ntext = \"twice | as fast\"\npaper = 2.0\nvalue = {{}}\nwindow = [1.5, inf]\n");
        Judged { claim: toml::from_str(&text).expect("a claim"), outcome, readings: Vec::new() }
    }

    #[test]
    fn a_claim_is_a_row_and_each_reading_another() {
        let failing =
            Outcome { reason: Some("not at 5%".into()), ..outcome(Measured::Range([1.23456, 20000.4]), Spread::Number([1.1, 20100.0]), 5) };
        let mut one = judged("SIM", failing);
        one.readings.push(("literal".into(), outcome(Measured::Number(2.5), Spread::Number([2.5, 2.5]), 0)));
        let text = table("paper", "fig1", &[one], &[]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "`fanin repro paper fig1` gave:");
        assert_eq!(
            lines[4],
            "| faster | twice \\| as fast | 2.00 | 1.23 to 20000 | 1.10 to 20100 | 5 | at least 1.50 | not reproduced (not at 5%) |"
        );
        assert_eq!(lines[5], "|  | *literal reading* |  | 2.50 |  | any |  | not reproduced |");
    }

    #[test]
    fn orders_have_differences_in_percent_and_one_seed_is_marked() {
        let spread = Spread::Differences(vec![[0.0025, 0.0025], [-0.04, 0.31]]);
        let text = table("paper", "fig1", &[judged("consistency", outcome(Measured::List(vec![3.0, 2.0, 1.0]), spread, 1))], &[]);
        assert!(text.contains("| faster (consistency) | "), "{text}");
        assert!(text.ends_with("| 3.00, 2.00, 1.00 | by 0.3 %, -4 to 31 % | 1 | at least 1.50 | not reproduced (1 seed) |"), "{text}");
    }

    #[test]
    fn causes_stand_below_the_table() {
        let one = judged("SIM", outcome(Measured::Number(1.5), Spread::Number([1.5, 1.5]), 0));
        let after = outcome(Measured::Number(1.2), Spread::Number([1.2, 1.2]), 0);
        let cause = Cause {
            id: "rate".into(),
            text: "links are slow".into(),
            claims: vec!["faster".into()],
            set: vec!["network.rate=2Gb/s".into()],
            reading: None,
            plan: None,
            verdict: None,
            moves: Some(Direction::Up),
            margin: None,
        };
        let changed =
            Changed { claim: one.claim.clone(), before: one.outcome.clone(), after: Some(after), finding: Finding::Refuted, reason: None };
        let text = table("paper", "fig1", &[one], &[Tried { cause, claims: vec![changed] }]);
        let wanted = "\n\n- **cause refuted**, `rate`: links are slow (`network.rate=2Gb/s`; expected up). faster: 1.50, not reproduced; with the change 1.20, not reproduced.";
        assert!(text.ends_with(wanted), "{text}");
    }

    #[test]
    fn a_table_takes_the_place_of_an_older_one() {
        let readme = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        assert_eq!(insert(&readme, "new").expect("marks"), format!("before\n{BEGIN}\nnew\n{END}\nafter\n"));
        for wrong in ["no marks".to_string(), readme.repeat(2), format!("{END}{BEGIN}")] {
            let error = insert(&wrong, "new").expect_err("marks are missing").to_string();
            assert_eq!(error, "expected <!-- results --> and then <!-- end of results -->, each once");
        }
    }

    #[test]
    fn tables_in_readmes_are_what_is_recorded() {
        let experiments = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
        let catalog = Catalog::Folder(experiments);
        let mut wrong = Vec::new();
        for paper in catalog.papers() {
            for name in catalog.figures(&paper) {
                let figure = catalog.figure(&paper, &name).unwrap_or_else(|error| panic!("{error}"));
                let Some(record) = Recorded::of_figure(&figure).unwrap_or_else(|error| panic!("{error}")) else { continue };
                let (_, claims) = read(&figure).unwrap_or_else(|error| panic!("{error}"));
                let table = table(&paper, &name, &record.judged(&claims), &record.tried(&claims));
                let readme = insert(&figure.readme, &table).unwrap_or_else(|error| panic!("{}: {error}", figure.file("README.md")));
                if readme != figure.readme {
                    wrong.push(format!(
                        "{paper}/{name}/README.md is not what verdicts.json has: fanin repro {paper} {name} --dir experiments --tables"
                    ));
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
