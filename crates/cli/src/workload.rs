//! Workloads for people: what is in one, and what an importer says.

use std::fmt::Write;

use comfy_table::{CellAlignment, ContentArrangement, Table};
use fanin_core::Duration;
use fanin_pictures::table::STYLE;
use fanin_plan::units::bytes_about;
use fanin_workload::durations::Durations;
use fanin_workload::network::{Cable, Network};
use fanin_workload::summary::CollectiveRow;
use fanin_workload::{Report, Summary};

/// What an importer took, left out and assumed.
pub fn report(report: &Report, files: usize) -> String {
    let mut text = format!("{}, {}\n", report.format, counted(files as u64, "file"));
    for one in &report.left_out {
        let _ = writeln!(text, "left out: {} ({} times, first {})", one.what, one.count, one.first);
    }
    for one in &report.assumed {
        let _ = writeln!(text, "assumed: {one}");
    }
    text
}

/// What a trace said of a model's computations.
pub fn durations(found: &Durations, files: usize) -> String {
    let all = found.by_name + found.by_collectives + found.computed;
    let between = if found.by_collectives > 0 {
        format!(" between collectives of {}", counted(found.iterations.into(), "iteration"))
    } else {
        String::new()
    };
    format!(
        "durations of {}, by their names {}, by the time{between} {}, as computed {}\nfrom {}",
        counted(all, "computation"),
        found.by_name,
        found.by_collectives,
        found.computed,
        report(&found.report, files)
    )
}

/// A time for people.
fn time(time: Duration) -> String {
    let ps = time.as_ps() as f64;
    let (scale, unit) =
        [(1e12, "s"), (1e9, "ms"), (1e6, "us"), (1e3, "ns")].into_iter().find(|(scale, _)| ps >= *scale).unwrap_or((1.0, "ps"));
    format!("{:.2} {unit}", ps / scale)
}

/// A number of things.
fn counted(count: u64, what: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} {what}{s}")
}

fn range(low: &str, high: &str) -> String {
    if low == high { low.to_string() } else { format!("{low} to {high}") }
}

/// What is in a workload.
pub fn summary(summary: &Summary) -> String {
    let mut text = format!(
        "{}, {}, {}, {}, {}\n",
        counted(u64::from(summary.ranks), "rank"),
        counted(u64::from(summary.hosts), "host"),
        counted(u64::from(summary.iterations), "iteration"),
        counted(u64::from(summary.programs), "program"),
        counted(summary.nodes, "node")
    );
    let groups: Vec<String> = summary
        .groups
        .iter()
        .map(|group| {
            format!("{} ({} of {})", group.name, group.instances, range(&group.members.0.to_string(), &group.members.1.to_string()))
        })
        .collect();
    if !groups.is_empty() {
        let _ = writeln!(text, "groups: {}", groups.join(", "));
    }
    let _ = writeln!(text, "computing, a rank: {}", range(&time(summary.compute.0), &time(summary.compute.1)));
    if summary.measured.as_ps() > 0 {
        let _ = writeln!(text, "communication as measured, the rank with most: {}", time(summary.measured));
    }
    let _ = match summary.span {
        Some(span) => writeln!(text, "span, if communication took no time: {}", time(span)),
        None => writeln!(text, "span: not run through, since there are too many nodes; whether all sends are received is not known"),
    };
    if summary.collectives.is_empty() && summary.sends.is_none() {
        return text + "no communication\n";
    }
    let _ = writeln!(text, "\n{}", rows(summary));
    text
}

fn rows(summary: &Summary) -> String {
    let mut table = Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["collective", "group", "type", "a rank", "in all", "lengths", "bytes", "elements an iteration", "bytes a rank"]);
    for row in &summary.collectives {
        let CollectiveRow { kind, group, element, of_rank, in_all, lengths, bytes, bytes_of_rank } = row;
        table.add_row([
            kind.to_string(),
            group.clone(),
            element.to_string(),
            of_rank.to_string(),
            in_all.to_string(),
            lengths.to_string(),
            range(&bytes.0.to_string(), &bytes.1.to_string()),
            row.elements_an_iteration(summary.iterations).to_string(),
            bytes_about(*bytes_of_rank),
        ]);
    }
    if let Some(sends) = &summary.sends {
        table.add_row([
            "send".into(),
            "-".into(),
            "-".into(),
            sends.of_rank.to_string(),
            sends.in_all.to_string(),
            "-".into(),
            range(&sends.bytes.0.to_string(), &sends.bytes.1.to_string()),
            "-".into(),
            bytes_about(sends.bytes_of_rank),
        ]);
    }
    for column in 3..9 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.lines().map(|line| line.trim_end().to_string()).collect::<Vec<_>>().join("\n")
}

/// What is in a network: hosts, switches, and cables by rate.
pub fn network(network: &Network) -> String {
    let (hosts, switches) = (network.hosts() as u64, network.switches() as u64);
    let mut text = format!("{}, {}, {}\n", counted(hosts, "host"), plural(switches, "switch"), counted(network.cable_count(), "cable"));
    let is_host = |cable: &Cable| network.nodes[cable.to as usize].is_host;
    for (what, of_hosts) in [("of hosts", true), ("between switches", false)] {
        let mut rates: std::collections::BTreeMap<Option<u64>, u64> = std::collections::BTreeMap::new();
        for cable in network.cables.iter().filter(|cable| is_host(cable) == of_hosts) {
            *rates.entry(cable.bits_per_second).or_default() += u64::from(cable.count);
        }
        for (rate, count) in rates {
            let rate =
                rate.map_or_else(|| "of a rate that is left to the plan".to_string(), |rate| format!("of {} Gb/s", rate as f64 / 1e9));
            let _ = writeln!(text, "cables {what}: {count} {rate}");
        }
    }
    text
}

/// A number of things whose plural ends in `es`.
fn plural(count: u64, what: &str) -> String {
    let es = if count == 1 { "" } else { "es" };
    format!("{count} {what}{es}")
}
