//! What came out of a run, for people: a row an operation, and below it what disturbed it and what was done about it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use comfy_table::{CellAlignment, ContentArrangement, Table};
use fanin_core::Tally;
use fanin_plan::units::bytes_text;

use super::results::{DeathRecord, JobRecord, OperationRecord, Record};
use crate::host::messages::OperationReport;
use fanin_pictures::table::STYLE;

/// Counts by name.
type Counts = BTreeMap<String, u64>;

/// All of it.
pub fn text(record: &Record) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "{}{} on {}, {}: {} hosts, {} switches left, seed {}",
        record.workload,
        record.sets.iter().map(|set| format!(" {set}")).collect::<String>(),
        record.fabric,
        record.place,
        record.hosts.len(),
        record.switches.len(),
        record.seed
    );
    for line in operations(record).lines() {
        out.extend([line.trim_end(), "\n"]);
    }
    for (number, job) in record.jobs.iter().enumerate() {
        let median = job.goodput_mbit_s_median.map_or("none complete".into(), |goodput| format!("median {goodput:.2} Mb/s"));
        let _ = writeln!(out, "job {number} ({}): goodput {median}{}", job.system, again(job));
    }
    for (number, job) in record.jobs.iter().enumerate() {
        for DeathRecord { rank, host, at_s, operation, done } in &job.deaths {
            let done = done * 100.0;
            let _ = writeln!(out, "rank {rank} of job {number}, on {host}, died after {at_s:.3} s (operation {operation} at {done:.0} %)");
        }
    }
    for stream in &record.streams {
        let share = stream.received.packets as f64 / stream.sent.packets.max(1) as f64 * 100.0;
        let _ = writeln!(
            out,
            "traffic {} -> {}: {:.2} Mb/s offered, {} packets sent, {:.1} % arrived",
            stream.from, stream.to, stream.offered_mbit_s, stream.sent.packets, share
        );
    }
    for event in &record.events {
        let at: Vec<String> =
            event.progress.iter().map(|(operation, done)| format!("operation {operation} at {:.0} %", done * 100.0)).collect();
        let _ = writeln!(out, "{} {} after {:.3} s ({})", event.action, event.node, event.at_s, at.join(", "));
        if let Some(lost) = event.lost {
            let unread = lost.packets_unread.map_or("an unknown number of".into(), |packets| packets.to_string());
            let _ = writeln!(
                out,
                "  in flight through it: {} blocks that it held, and {unread} packets sent to it and not read",
                lost.held_blocks
            );
        }
    }
    for (what, counts) in switch_counts(record) {
        let _ = writeln!(out, "{what}: {}", named(&counts));
    }
    let percent = |share: Option<f64>| share.map_or("?".into(), |share| format!("{:.0}", share * 100.0));
    let (idle, used) = (percent(record.cpu_idle_share), percent(record.cpu_used_share));
    let _ = writeln!(out, "{} processors, {idle} % idle and {used} % used by this run in {:.2} s", record.processors, record.wall_s);
    out
}

fn operations(record: &Record) -> Table {
    let mut table = Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["job", "operation", "vector", "workers", "time (s)", "goodput (Mb/s)", "idle", "sent again", "result"]);
    for column in table.column_iter_mut().skip(1).take(7) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let number = |value: Option<f64>, digits: usize| value.map_or("-".to_string(), |value| format!("{value:.digits$}"));
    for (index, job) in record.jobs.iter().enumerate() {
        for operation in &job.operations {
            let again: u64 = operation.workers.iter().flatten().flat_map(|end| end.counters.retransmitted.values()).sum();
            table.add_row([
                format!("{index} {}", job.system),
                operation.number.to_string(),
                bytes_text(job.message_bytes),
                job.workers.to_string(),
                number(operation.seconds, 3),
                number(operation.goodput_mbit_s, 2),
                number(operation.cpu_idle_share.map(|share| share * 100.0), 0) + " %",
                again.to_string(),
                verdict(operation),
            ]);
        }
    }
    table
}

fn verdict(operation: &OperationRecord) -> String {
    let OperationRecord { workers, exact, without, with_dead, .. } = operation;
    let ranks = |ranks: &[u32]| {
        let list = ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        format!("rank{} {list}", if ranks.len() == 1 { "" } else { "s" })
    };
    let (dead, failed) = (workers.iter().filter(|worker| worker.is_none()).count(), workers.iter().flatten());
    let failed = failed.filter(|end| end.error.is_some()).count();
    let wrong = workers.iter().flatten().any(|end| end.error.is_none() && end.wrong_elements > 0);
    match (*exact, wrong) {
        (true, _) if without.is_empty() && with_dead.is_empty() => "exact".into(),
        (true, _) if without.is_empty() => format!("exact with {} that died", ranks(with_dead)),
        (true, _) if with_dead.is_empty() => format!("exact without {}", ranks(without)),
        (true, _) => format!("exact without {}, with {} that died", ranks(without), ranks(with_dead)),
        (_, true) => "NOT EXACT".into(),
        _ => format!("{failed} failed, {dead} died"),
    }
}

/// What was sent again and what was injected, over all workers and operations.
fn again(job: &JobRecord) -> String {
    let mut out = String::new();
    let ends = || job.operations.iter().flat_map(|operation| operation.workers.iter().flatten());
    for (what, of) in [
        ("sent again", (|end| &end.counters.retransmitted) as fn(&OperationReport) -> &Counts),
        ("blocks begun anew, by generation", |end| &end.counters.begun_anew),
        ("counted at workers", |end| &end.counters.counted),
        ("injected at hosts", |end| &end.counters.injected),
    ] {
        let counts = sum(ends().map(of));
        if !counts.is_empty() {
            let _ = write!(out, "; {what}: {}", named(&counts));
        }
    }
    if let Some([p50, p99, max]) = block_times(sum(ends().map(|end| &end.counters.block_ns))).map(|times| times.map(|ns| ns as f64 / 1e6)) {
        let _ = write!(out, "; a block took {p50:.2} ms (median), {p99:.2} ms (99 %), {max:.2} ms at most");
    }
    out
}

/// Median, 99th percentile and longest of times in nanoseconds, each with how often there was one.
fn block_times(counts: Counts) -> Option<[u64; 3]> {
    let mut times: Vec<(u64, u64)> = counts.into_iter().filter_map(|(ns, count)| Some((ns.parse().ok()?, count))).collect();
    times.sort_unstable();
    let all: u64 = times.iter().map(|(_, count)| count).sum();
    let at = |share: f64| {
        let (wanted, mut before) = ((share * all as f64).ceil() as u64, 0);
        times.iter().find(|(_, count)| {
            before += count;
            before >= wanted
        })
    };
    Some([at(0.5)?.0, at(0.99)?.0, times.last()?.0])
}

fn sum<'a>(all: impl Iterator<Item = &'a Counts>) -> Counts {
    let mut totals = Counts::new();
    for (name, count) in all.flatten().filter(|(_, count)| **count > 0) {
        *totals.entry(name.clone()).or_default() += count;
    }
    totals
}

fn named(counts: &Counts) -> String {
    counts.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
}

/// Packets that switches dropped, marked or had injected faults into, by switch and port; what is zero is left out.
fn switch_counts(record: &Record) -> Vec<(String, Counts)> {
    let mut all = Vec::new();
    for switch in &record.switches {
        let mut counts = BTreeMap::new();
        for port in switch.status["ports"].as_array().into_iter().flatten() {
            let peer = port["peer"].as_str().unwrap_or("?");
            for (key, words) in [("dropped_full", "found no room to"), ("marked", "marked to"), ("went_down", "times lost sight of")] {
                counts.insert(format!("{words} {peer}"), port[key].as_u64().unwrap_or(0));
            }
        }
        for key in ["dropped", "injected"] {
            for (name, count) in switch.status[key].as_object().into_iter().flatten() {
                counts.insert(format!("{key} ({name})"), count.as_u64().unwrap_or(0));
            }
        }
        // What disturbs; how many packets were added says nothing about that.
        for tally in [Tally::Collision, Tally::Straggler, Tally::Restoration, Tally::Spill] {
            counts.insert(tally.name().to_string(), switch.status["counted"][tally.name()].as_u64().unwrap_or(0));
        }
        counts.retain(|_, count| *count > 0);
        if !counts.is_empty() {
            all.push((switch.name.clone(), counts));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::results::{EventRecord, LostRecord, StreamRecord, SwitchRecord};
    use super::*;
    use crate::host::messages::TrafficTotal;

    #[test]
    fn everything_that_happened_is_said() {
        let end = |seconds: f64, again: u64| {
            let mut end = OperationReport { seconds, ok: true, ..OperationReport::default() };
            end.counters.retransmitted.insert("timeout".into(), again);
            end.counters.begun_anew.insert("1".into(), again / 2);
            Some(end)
        };
        let mut job = JobRecord { system: "canary".into(), workers: 2, message_bytes: 1 << 20, ..JobRecord::default() };
        job.push(OperationRecord { workers: vec![end(0.5, 3), end(0.25, 4)], cpu_idle_share: Some(0.625), ..OperationRecord::default() });
        job.push(OperationRecord { number: 1, workers: vec![end(0.5, 0), None], ..OperationRecord::default() });
        let status = serde_json::json!({
            "ports": [{"peer": "spine0", "dropped_full": 12, "marked": 0, "went_down": 1}],
            "dropped": {"no node": 2}, "injected": {"loss": 5}, "counted": {"collisions": 9, "summed": 70},
        });
        let record = Record {
            fabric: "f.toml".into(),
            workload: "w.toml".into(),
            place: "loopback",
            seed: 7,
            processors: 2,
            wall_s: 1.5,
            cpu_idle_share: Some(0.5),
            cpu_used_share: Some(0.25),
            jobs: vec![job],
            streams: vec![StreamRecord {
                from: "host2".into(),
                to: "host5".into(),
                offered_mbit_s: 15.0,
                sent: TrafficTotal { packets: 1_000, bytes: 1_000_000 },
                received: TrafficTotal { packets: 570, bytes: 570_000 },
            }],
            events: vec![EventRecord {
                action: "kill",
                node: "spine1".into(),
                at_s: 0.25,
                progress: vec![(0, 0.5)],
                lost: Some(LostRecord { held_blocks: 3, packets_received: 99, packets_unread: Some(17) }),
            }],
            switches: vec![SwitchRecord { name: "leaf0".into(), status }],
            ..Record::default()
        };
        insta::assert_snapshot!(text(&record));
    }
}
