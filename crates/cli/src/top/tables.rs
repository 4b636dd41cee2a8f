//! What is shown: tables of switches, ranks and links.

use std::collections::BTreeSet;
use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets};

use super::scrape::Scrape;

/// What two rounds of scrapes of the same switches show.
pub(super) fn render(addresses: &[String], before: &[Result<Scrape, String>], now: &[Result<Scrape, String>]) -> String {
    let (mut switches, mut ranks, mut links, mut silent) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut contributors = Vec::new();
    for ((address, before), now) in addresses.iter().zip(before).zip(now) {
        match (before, now) {
            (Ok(before), Ok(now)) => {
                switches.push(switch(address, before, now));
                ranks.extend(ranks_of(before, now));
                contributors.extend(contributors_of(address, before, now));
                links.extend(links_of(address, before, now));
            }
            (_, Err(error)) | (Err(error), _) => silent.push(error.clone()),
        }
    }
    let mut text = String::new();
    let titled = [
        (vec!["switch", "jobs", "memory", "CPU", "packets/s", "dropped/s", "sent again/s"], switches),
        (vec!["job", "rank", "goodput", "packets/s", "last", "waited"], ranks),
        (vec!["switch", "job number", "contributor", "sums/s", "last", "waited"], contributors),
        (vec!["switch", "link to", "state", "sent", "queue", "dropped/s"], links),
    ];
    for (titles, rows) in titled.into_iter().filter(|(_, rows)| !rows.is_empty()) {
        let _ = writeln!(text, "{}\n", table(&titles, rows));
    }
    for error in silent {
        let _ = writeln!(text, "no answer: {error}");
    }
    text
}

fn table(titles: &[&str], rows: Vec<Vec<String>>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(titles).add_rows(rows);
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table
}

/// A switch of either kind.
fn switch(address: &str, before: &Scrape, now: &Scrape) -> Vec<String> {
    let either = |single: &str, fabric: &str| {
        let rate = |name: &str| now.rate(before, name, &[]);
        rate(single).or_else(|| rate(fabric)).map_or("-".into(), count)
    };
    let running = now.get("fanin_switch_jobs", &[("phase", "running")]).or_else(|| now.get("fanin_fabric_jobs", &[]));
    vec![
        address.to_owned(),
        running.map_or("-".into(), count),
        now.get("process_resident_memory_bytes", &[]).map_or("-".into(), bytes),
        now.rate(before, "process_cpu_seconds_total", &[]).map_or("-".into(), share),
        either("fanin_switch_received_packets_total", "fanin_fabric_port_received_packets_total"),
        either("fanin_switch_dropped_packets_total", "fanin_fabric_port_dropped_packets_total"),
        either("fanin_switch_retransmitted_packets_total", "fanin_fabric_retransmitted_packets_total"),
    ]
}

fn ranks_of(before: &Scrape, now: &Scrape) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let ids = |key: &str, of: &[(&str, &str)]| -> Vec<String> {
        let all = now.all("fanin_switch_rank_received_packets_total").iter();
        let has = |labels: &std::collections::BTreeMap<String, String>| {
            of.iter().all(|(key, value)| labels.get(*key).is_some_and(|is| is == value))
        };
        let found: BTreeSet<String> =
            all.filter(|sample| has(&sample.labels)).filter_map(|sample| sample.labels.get(key).cloned()).collect();
        let mut found: Vec<String> = found.into_iter().collect();
        found.sort_by_key(|number| number.parse::<u64>().unwrap_or(0));
        found
    };
    for job in ids("job_id", &[]) {
        let name = now.all("fanin_switch_rank_received_packets_total").iter().find(|sample| sample.labels.get("job_id") == Some(&job));
        let name = name.and_then(|sample| sample.labels.get("job")).cloned().unwrap_or_default();
        let sums = now.rate(before, "fanin_switch_rank_completed_sums_total", &[("job_id", &job)]).unwrap_or(0.0);
        for rank in ids("rank", &[("job_id", &job)]) {
            let rate = |what: &str| now.rate(before, what, &[("job_id", &job), ("rank", &rank)]).unwrap_or(0.0);
            let completed = rate("fanin_switch_rank_completed_sums_total");
            rows.push(vec![
                name.clone(),
                rank.clone(),
                format!("{}/s", bytes(rate("fanin_switch_rank_sent_payload_bytes_total"))),
                count(rate("fanin_switch_rank_received_packets_total")),
                if sums > 0.0 { share(completed / sums) } else { "-".into() },
                share(rate("fanin_switch_rank_awaited_seconds_total")),
            ]);
        }
    }
    rows
}

/// Who contributes to jobs at a switch of a fabric.
fn contributors_of(address: &str, before: &Scrape, now: &Scrape) -> Vec<Vec<String>> {
    const COMPLETED: &str = "fanin_fabric_job_completed_sums_total";
    let row = |sample: &super::scrape::Sample| {
        let label = |key: &str| sample.labels.get(key).cloned().unwrap_or_default();
        let (job, contributor) = (label("job_id"), label("contributor"));
        let sums = now.rate(before, COMPLETED, &[("job_id", &job)]).unwrap_or(0.0);
        let rate = |what: &str| now.rate(before, what, &[("job_id", &job), ("contributor", &contributor)]).unwrap_or(0.0);
        let (completed, waited) = (rate(COMPLETED), rate("fanin_fabric_job_awaited_seconds_total"));
        let last = if sums > 0.0 { share(completed / sums) } else { "-".into() };
        vec![address.to_owned(), job, contributor, count(completed), last, share(waited)]
    };
    now.all(COMPLETED).iter().map(row).collect()
}

fn links_of(address: &str, before: &Scrape, now: &Scrape) -> Vec<Vec<String>> {
    let row = |sample: &super::scrape::Sample| {
        let label = |key: &str| sample.labels.get(key).cloned().unwrap_or_default();
        let port = label("port");
        let of = [("port", port.as_str())];
        vec![
            address.to_owned(),
            label("peer"),
            if sample.value > 0.0 { "up".into() } else { "DOWN".into() },
            format!("{}/s", bytes(now.rate(before, "fanin_fabric_port_sent_bytes_total", &of).unwrap_or(0.0))),
            bytes(now.get("fanin_fabric_queue_bytes", &of).unwrap_or(0.0)),
            count(now.rate(before, "fanin_fabric_port_dropped_packets_total", &of).unwrap_or(0.0)),
        ]
    };
    now.all("fanin_fabric_link_up").iter().map(row).collect()
}

/// `12`, `3.4k`, `5.6M`.
fn count(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{:.1}M", value / 1e6),
        value if value >= 1e4 => format!("{:.1}k", value / 1e3),
        value => format!("{value:.0}"),
    }
}

/// In powers of 1000, as rates of links are.
fn bytes(value: f64) -> String {
    match value {
        value if value >= 1e9 => format!("{:.2} GB", value / 1e9),
        value if value >= 1e6 => format!("{:.1} MB", value / 1e6),
        value if value >= 1e3 => format!("{:.1} kB", value / 1e3),
        value => format!("{value:.0} B"),
    }
}

fn share(value: f64) -> String {
    format!("{:.0} %", 100.0 * value)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn the_rank_that_others_wait_for_is_seen_at_a_glance() {
        let page = |seconds: u32| {
            let mut text = format!("fanin_switch_jobs{{phase=\"running\"}} 1\nprocess_cpu_seconds_total {}\n", f64::from(seconds) * 0.25);
            for (rank, completed, awaited) in [(0, 5, 0.01), (1, 95, 0.9), (10, 0, 0.0)] {
                let labels = format!("{{job=\"train\",job_id=\"7\",rank=\"{rank}\"}}");
                let of = |name: &str, value: f64| format!("fanin_switch_rank_{name}_total{labels} {}\n", value * f64::from(seconds));
                text += &of("received_packets", 20_000.0);
                text += &of("sent_payload_bytes", 2.5e6);
                text += &of("completed_sums", f64::from(completed));
                text += &of("awaited_seconds", awaited);
            }
            text
        };
        let start = Instant::now();
        let (before, now) = (Scrape::of(&page(0), start), Scrape::of(&page(2), start + Duration::from_secs(2)));
        let text = render(&["s:1".into(), "t:2".into()], &[Ok(before), Err("t:2: refused".into())], &[Ok(now), Err("t:2: refused".into())]);
        let words: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(words.contains(&vec!["train", "1", "2.5", "MB/s", "20.0k", "95", "%", "90", "%"]), "{text}");
        assert!(words.contains(&vec!["train", "10", "2.5", "MB/s", "20.0k", "0", "%", "0", "%"]), "{text}");
        assert!(text.contains("s:1") && text.contains("25 %") && text.ends_with("no answer: t:2: refused\n"), "{text}");
    }

    #[test]
    fn links_of_a_fabric_are_shown_with_their_state() {
        let page = "fanin_fabric_jobs 2\nfanin_fabric_link_up{port=\"0\",peer=\"spine0\"} 0\nfanin_fabric_link_up{port=\"1\",peer=\"host1\"} 1\n\
                    fanin_fabric_queue_bytes{port=\"1\",peer=\"host1\"} 1500\nfanin_fabric_port_sent_bytes_total{port=\"1\",peer=\"host1\"} 3000000\n\
                    fanin_fabric_job_completed_sums_total{job_id=\"3\",contributor=\"host0\"} 10\n\
                    fanin_fabric_job_completed_sums_total{job_id=\"3\",contributor=\"host1\"} 90\n\
                    fanin_fabric_job_awaited_seconds_total{job_id=\"3\",contributor=\"host1\"} 0.8\n";
        let start = Instant::now();
        let (before, now) = (Scrape::of("", start), Scrape::of(page, start + Duration::from_secs(1)));
        let text = render(&["leaf0:9470".into()], &[Ok(before)], &[Ok(now)]);
        let words: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(words.contains(&vec!["leaf0:9470", "3", "host1", "90", "90", "%", "80", "%"]), "{text}");
        assert!(text.contains("DOWN") && text.contains("3.0 MB/s") && text.contains("1.5 kB"), "{text}");
    }
}
