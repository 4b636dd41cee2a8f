//! Verdicts as a table for people.

use comfy_table::{Cell, CellAlignment, Color, ContentArrangement, Table};
use fanin_pictures::table::{STYLE, number_text};

use super::causes::{Changed, Finding, Tried};
use super::claims::{Class, MARGIN, Window};
use super::evaluate::{Judged, Measured, Outcome, Spread, Verdict};
use super::figure::Done;
use super::interval::Seeds;

/// What was measured, for people.
pub fn measured_text(measured: &Measured) -> String {
    match measured {
        Measured::Nothing => "-".into(),
        Measured::Number(value) => number_text(*value),
        Measured::Range([low, high]) => format!("{} to {}", number_text(*low), number_text(*high)),
        Measured::List(values) => values.iter().map(|value| number_text(*value)).collect::<Vec<_>>().join(", "),
    }
}

/// In what interval it lies, for people; of an order, the differences of neighbours in percent. Empty where it is a point.
pub fn spread_text(spread: &Spread) -> String {
    let percent = |share: f64| format!("{:.3}", share * 100.0).trim_end_matches('0').trim_end_matches('.').to_string();
    let rounded = |share: f64| if share.abs() < 0.1 { percent((share * 1000.0).round() / 1000.0) } else { format!("{:.0}", share * 100.0) };
    match spread {
        Spread::Nothing => String::new(),
        Spread::Number([low, high]) if low == high => String::new(),
        Spread::Number([low, high]) => format!("{} to {}", number_text(*low), number_text(*high)),
        Spread::Differences(pairs) => {
            let one = |[low, high]: &[f64; 2]| match low == high {
                true => format!("{} %", rounded(*low)),
                false => format!("{} to {} %", rounded(*low), rounded(*high)),
            };
            format!("by {}", pairs.iter().map(one).collect::<Vec<_>>().join(", "))
        }
    }
}

/// A number with its interval, for people.
pub fn with_spread(outcome: &Outcome) -> String {
    let (measured, spread) = (measured_text(&outcome.measured), spread_text(&outcome.spread));
    // Several places whose intervals are points span nothing more than what is shown.
    if spread.is_empty() || spread == measured { measured } else { format!("{measured} ({spread})") }
}

/// How many seeds, for people.
pub fn seeds_text(outcome: &Outcome) -> String {
    match outcome.seeds {
        None => "-".into(),
        Some(Seeds::Any) => "any".into(),
        Some(Seeds::Drawn(seeds)) => seeds.to_string(),
    }
}

/// The verdict, with a mark where it is of one seed.
pub fn verdict_text(outcome: &Outcome) -> String {
    let mark = if outcome.seeds == Some(Seeds::Drawn(1)) { " (1 seed)" } else { "" };
    format!("{}{mark}", outcome.verdict.text())
}

/// What agrees with the claim, for people: a window or an order.
pub fn window_text(judged: &Judged) -> String {
    let claim = &judged.claim;
    if let Some(order) = &claim.order {
        let per = claim.per.as_ref().map(|per| format!(" per {}", per.describe())).unwrap_or_default();
        let names = order.iter().map(|one| one.describe() + &per).collect::<Vec<_>>().join(" > ");
        let margin = claim.margin.filter(|margin| *margin != MARGIN).map(|margin| format!(", by {} %", number_text(margin * 100.0)));
        return names + &margin.unwrap_or_default();
    }
    match claim.window {
        None => "-".into(),
        Some(window) if window.low == f64::NEG_INFINITY => format!("at most {}", number_text(window.high)),
        Some(window) if window.high == f64::INFINITY => format!("at least {}", number_text(window.low)),
        Some(Window { low, high }) => match (number_text(low), number_text(high)) {
            // Closer to each other than three digits.
            (first, second) if first == second && low != high => format!("{low} to {high}"),
            (first, second) => format!("{first} to {second}"),
        },
    }
}

/// The verdict of a full run, where it is recorded and another one.
pub fn full_text(outcome: &Outcome, full: Option<Outcome>) -> Option<String> {
    full.filter(|full| full.verdict != outcome.verdict).map(|full| format!("full: {}", verdict_text(&full)))
}

fn verdict_cell(outcome: &Outcome, full: Option<Outcome>) -> Cell {
    let color = match outcome.verdict {
        Verdict::Reproduced => Color::Green,
        Verdict::NotReproduced => Color::Red,
        Verdict::Undecided | Verdict::CannotBeTested => Color::Yellow,
        Verdict::Reported => Color::Reset,
    };
    let full = full_text(outcome, full).map_or(String::new(), |full| format!(", {full}"));
    Cell::new(verdict_text(outcome) + &full).fg(color)
}

/// A figure's claims: a row each, one below it for every other reading, and its causes below the table.
pub fn table(done: &Done, quick: bool) -> String {
    let mut table = Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["claim", "class", "paper", "measured", "interval", "seeds", "window", "verdict"]);
    for judged in &done.judged {
        let paper = judged.claim.paper.map_or("-".into(), number_text);
        let id = &judged.claim.id;
        let row = |name: String, outcome: &Outcome, reading: Option<&str>| {
            let texts = [
                name,
                judged.claim.class.text().into(),
                paper.clone(),
                measured_text(&outcome.measured),
                spread_text(&outcome.spread),
                seeds_text(outcome),
                window_text(judged),
            ];
            texts.into_iter().map(Cell::new).chain([verdict_cell(outcome, done.full(id, reading))]).collect::<Vec<_>>()
        };
        table.add_row(row(id.clone(), &judged.outcome, None));
        for (reading, outcome) in &judged.readings {
            table.add_row(row(format!("  {reading} reading"), outcome, Some(reading)));
        }
    }
    for column in table.column_iter_mut().skip(2).take(4) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mark = if quick { ", QUICK: fewer repetitions and points than the figure has" } else { "" };
    let mut text = format!("{} {}: {}{mark}\n", done.figure.paper, done.figure.name, done.title);
    for line in table.lines() {
        text.extend([line.trim_end(), "\n"]);
    }
    if done.judged.iter().any(|judged| judged.outcome.seeds == Some(Seeds::Any)) {
        text.push_str("seeds any: the plan draws nothing: one value\n");
    }
    text.push_str(match (quick, &done.recorded) {
        (true, Some(recorded)) if recorded.fits(&done.digest) => "full: what a full run gave, where it is another verdict\n",
        (true, Some(_)) => "the full run that is recorded was of another plan or other claims, and is not shown\n",
        _ => "",
    });
    done.judged.iter().for_each(|judged| text.push_str(&reasons(judged)));
    done.causes.iter().for_each(|tried| text.push_str(&cause_lines(tried)));
    text.push('\n');
    text
}

/// Where a claim fails, or why it has no verdict, in each reading: a line each.
fn reasons(judged: &Judged) -> String {
    let mut text = String::new();
    let outcomes = std::iter::once((None, &judged.outcome)).chain(judged.readings.iter().map(|(name, outcome)| (Some(name), outcome)));
    for (reading, outcome) in outcomes {
        if let Some(reason) = &outcome.reason {
            let reading = reading.map_or(String::new(), |name| format!(", {name} reading"));
            text.push_str(&format!("{}{reading}: {reason}\n", judged.claim.id));
        }
    }
    text
}

/// A claim of a cause before and after its change, for people.
pub fn changed_text(changed: &Changed) -> String {
    let before = format!("{} {}", measured_text(&changed.before.measured), changed.before.verdict.text());
    let after = changed.after.as_ref().map(|after| format!(" -> {} {}", with_spread(after), verdict_text(after)));
    let reason = changed.reason.as_ref().map(|reason| format!(" ({reason})"));
    format!("{}: {before}{}{}", changed.claim.id, after.unwrap_or_default(), reason.unwrap_or_default())
}

fn cause_lines(tried: &Tried) -> String {
    let cause = &tried.cause;
    let mut text = format!("{}: {}: {} ({}; expected {})\n", tried.finding().text(), cause.id, cause.text, cause.change(), cause.wanted());
    for changed in &tried.claims {
        text.extend(["    ", &changed_text(changed), "\n"]);
    }
    text
}

/// How many claims have which verdict: those that could fail, and those of the class consistency apart.
pub struct Counts {
    /// Claims that could fail.
    pub claims: Vec<(Verdict, usize)>,
    /// Of those that are decided, how many by one seed of a plan that draws.
    pub by_one_seed: usize,
    /// Those of the class consistency.
    pub consistency: Vec<(Verdict, usize)>,
    /// Causes.
    pub causes: Vec<(Finding, usize)>,
}

/// Counts verdicts.
pub fn counts(all: &[Done]) -> Counts {
    let of = |consistency: bool| {
        all.iter().flat_map(|done| &done.judged).filter(move |one| (one.claim.class == Class::Consistency) == consistency)
    };
    let by_verdict = |consistency: bool| {
        let count = |verdict: Verdict| of(consistency).filter(|judged| judged.outcome.verdict == verdict).count();
        Verdict::ALL.map(|verdict| (verdict, count(verdict))).to_vec()
    };
    let decided = |outcome: &Outcome| matches!(outcome.verdict, Verdict::Reproduced | Verdict::NotReproduced);
    let by_one_seed = of(false).filter(|judged| decided(&judged.outcome) && judged.outcome.seeds == Some(Seeds::Drawn(1))).count();
    let causes = || all.iter().flat_map(|done| &done.causes).map(Tried::finding);
    let causes = Finding::ALL.map(|finding| (finding, causes().filter(|other| *other == finding).count())).to_vec();
    Counts { claims: by_verdict(false), by_one_seed, consistency: by_verdict(true), causes }
}

/// How many claims have which verdict, and how many causes, in a line.
pub fn summary(all: &[Done]) -> String {
    let Counts { claims, by_one_seed, consistency, causes } = counts(all);
    let total = |counts: &[(Verdict, usize)]| counts.iter().map(|(_, count)| count).sum::<usize>();
    let each = |counts: &[(Verdict, usize)], all: bool| {
        let shown = counts.iter().filter(|(_, count)| all || *count > 0);
        shown.map(|(verdict, count)| format!("{count} {}", verdict.text())).collect::<Vec<_>>().join(", ")
    };
    let mut text = format!("{} claims: {}", total(&claims), each(&claims, true));
    if by_one_seed > 0 {
        text.push_str(&format!(" ({by_one_seed} decided by 1 seed)"));
    }
    if total(&consistency) > 0 {
        text.push_str(&format!("; {} of consistency, counted apart: {}", total(&consistency), each(&consistency, false)));
    }
    if causes.iter().any(|(_, count)| *count > 0) {
        let number: usize = causes.iter().map(|(_, count)| count).sum();
        let each: Vec<String> =
            causes.iter().map(|(finding, count)| format!("{count} {}", finding.text().trim_start_matches("cause "))).collect();
        text.push_str(&format!("; {number} cause{}: {}", if number == 1 { "" } else { "s" }, each.join(", ")));
    }
    format!("{text}; {} runs\n", all.iter().map(Done::runs).sum::<usize>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        let shown = [0.0, 354.2, 94.73, 1.5, 0.8, 0.0123, 0.0001, -0.25].map(number_text);
        assert_eq!(shown, ["0", "354", "94.7", "1.50", "0.800", "0.012", "1.0e-4", "-0.250"]);
    }

    #[test]
    fn intervals_are_shown_where_they_are_more_than_a_point() {
        let shown = [
            Spread::Nothing,
            Spread::Number([2.0, 2.0]),
            Spread::Number([0.82, 0.951]),
            Spread::Differences(vec![[0.0025, 0.0025], [-0.042, 0.31]]),
        ];
        assert_eq!(shown.each_ref().map(spread_text), ["", "", "0.820 to 0.951", "by 0.3 %, -4.2 to 31 %"]);
    }
}
