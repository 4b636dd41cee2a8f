//! htsim's `.topo`: two or three tiers of a fat tree by the ports of their switches.

use super::builder::{Builder, CABLES_MAX, Cable, Kind, NODES_MAX, is_rate};
use crate::error::WorkloadError;
use crate::import::Input;
use crate::report::Report;

/// Whether a text begins as such a file does.
pub fn looks_like(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let is_head = |line: &str| {
        line.split_whitespace().next().is_some_and(|word| ["nodes", "tiers", "podsize"].contains(&word.to_lowercase().as_str()))
    };
    lines.next().is_some_and(is_head) && text.to_lowercase().contains("tiers")
}

#[derive(Clone, Copy, Default)]
struct Tier {
    gbps: u64,
    down: u64,
    up: u64,
    latency_ns: u64,
    switch_ns: u64,
    oversubscribed: Option<u64>,
    line: u64,
}

#[derive(Default)]
struct Shape {
    nodes: u64,
    tiers: u64,
    pod: u64,
    all: Vec<Tier>,
}

/// Reads the file.
pub(super) fn read(input: &Input, builder: &mut Builder<'_>, report: &mut Report) -> Result<(), WorkloadError> {
    let shape = shape(input, builder, report)?;
    if shape.tiers as usize != shape.all.len() || !(2..=3).contains(&shape.tiers) {
        return Err(
            builder.error(0, format!("Tiers {}, of which {} are there: expected 2 or 3, and all of them", shape.tiers, shape.all.len()))
        );
    }
    if shape.nodes == 0 || shape.nodes > NODES_MAX as u64 {
        return Err(builder.error(0, format!("Nodes {}: expected 1 to {NODES_MAX}", shape.nodes)));
    }
    for (number, tier) in shape.all.iter().enumerate() {
        let is_top = number + 1 == shape.all.len();
        let wrong = |key: &str, value: u64| builder.error(tier.line, format!("tier {number}: {key} {value}: expected 1 to 65536"));
        let keys = [("Radix_Down", tier.down), ("Radix_Up", tier.up)];
        if let Some((key, value)) = keys.into_iter().take(if is_top { 1 } else { 2 }).find(|(_, value)| *value == 0 || *value > 65_536) {
            return Err(wrong(key, value));
        }
        if !tier.gbps.checked_mul(1_000_000_000).is_some_and(is_rate) {
            return Err(builder.error(tier.line, format!("tier {number}: Downlink_speed_Gbps {}: expected 1 to 100000", tier.gbps)));
        }
        if let (Some(expected), false) = (tier.oversubscribed, is_top) {
            let upper = shape.all[number + 1].gbps;
            if tier.down.checked_mul(tier.gbps) != tier.up.saturating_mul(upper).checked_mul(expected) {
                let what =
                    format!("tier {number}: Oversubscribed {expected}: expected what {} ports down and {} up give", tier.down, tier.up);
                return Err(builder.error(tier.line, what));
            }
        }
    }
    wire(&shape, builder)
}

fn shape(input: &Input, builder: &Builder<'_>, report: &mut Report) -> Result<Shape, WorkloadError> {
    let mut shape = Shape::default();
    for (index, line) in input.text()?.lines().enumerate() {
        let line_number = index as u64 + 1;
        let line = line.split('#').next().unwrap_or("").trim();
        if line.is_empty() {
            continue;
        }
        let mut words = line.split_whitespace();
        let (key, value) = (words.next().unwrap_or("").to_lowercase(), words.next().unwrap_or(""));
        let number =
            value.parse::<u64>().map_err(|_| builder.error(line_number, format!("{line:?}: expected a key and a whole number")))?;
        let count = shape.all.len();
        match (key.as_str(), shape.all.last_mut()) {
            ("nodes", None) => shape.nodes = number,
            ("tiers", None) => shape.tiers = number,
            ("podsize", None) => shape.pod = number,
            ("tier", _) if number as usize == count && count < 3 => shape.all.push(Tier { line: line_number, ..Tier::default() }),
            ("downlink_speed_gbps", Some(tier)) => tier.gbps = number,
            ("radix_down", Some(tier)) => tier.down = number,
            ("radix_up", Some(tier)) => tier.up = number,
            ("downlink_latency_ns", Some(tier)) => tier.latency_ns = number,
            ("switch_latency_ns", Some(tier)) => tier.switch_ns = number,
            ("oversubscribed", Some(tier)) => tier.oversubscribed = Some(number),
            ("queue_up" | "queue_down" | "queue_size_up" | "queue_size_down", Some(_)) => {
                report.leave("lengths of queues, which are the plan's", || format!("{}:{line_number}", input.name));
            }
            ("bundle", Some(_)) => {
                report.leave("Bundle: cables in parallel follow from the numbers of ports", || format!("{}:{line_number}", input.name));
            }
            _ => return Err(builder.error(line_number, format!("{line:?}: expected a key of htsim's at its place"))),
        }
    }
    Ok(shape)
}

/// Half of a switch's latency is at each of its cables, so that whole ways are right.
fn latency_ps(tier: Tier, lower_switch_ns: u64) -> u64 {
    tier.latency_ns.saturating_mul(1_000).saturating_add(tier.switch_ns.saturating_add(lower_switch_ns).saturating_mul(500))
}

fn quotient(builder: &Builder<'_>, what: &str, value: u64, by: u64) -> Result<u64, WorkloadError> {
    if by > 0 && value > 0 && value.is_multiple_of(by) {
        Ok(value / by)
    } else {
        Err(builder.error(0, format!("{what}: expected {value} to be a multiple of {by}")))
    }
}

fn wire(shape: &Shape, builder: &mut Builder<'_>) -> Result<(), WorkloadError> {
    let (low, middle) = (shape.all[0], shape.all[1]);
    let leaves = quotient(builder, "Nodes by Radix_Down of tier 0", shape.nodes, low.down)?;
    let rate = |tier: Tier| Some(tier.gbps * 1_000_000_000);
    let (lower, upper) = if shape.tiers == 2 { ("leaf", "spine") } else { ("tor", "aggregation") };
    let (host_ps, middle_ps) = (latency_ps(low, 0), latency_ps(middle, low.switch_ns));
    let mut leaf_numbers = Vec::new();
    for leaf in 0..leaves {
        let from = builder.node(&format!("{lower}{leaf}"), Kind::Switch, 0)?;
        leaf_numbers.push(from);
        for host in leaf * low.down..(leaf + 1) * low.down {
            let to = builder.node(&format!("host{host}"), Kind::Host, 0)?;
            builder.cable(Cable { from, to, bits_per_second: rate(low), latency_ps: Some(host_ps), count: 1, cost: 1 }, 0)?;
        }
    }
    let pod = if shape.tiers == 2 { shape.nodes } else { shape.pod };
    let of_pod = quotient(builder, "Podsize by Radix_Down of tier 0", pod, low.down)?;
    let pods = quotient(builder, "Nodes by Podsize", shape.nodes, pod)?;
    let uppers = quotient(builder, "cables from tier 0 by Radix_Down of tier 1", of_pod * low.up, middle.down)?;
    let parallel = quotient(builder, "Radix_Up of tier 0 by switches above", low.up, uppers)?;
    if leaves.saturating_mul(uppers) > CABLES_MAX as u64 {
        return Err(builder.error(0, format!("expected at most {CABLES_MAX} cables between tiers")));
    }
    let mut upper_numbers = Vec::new();
    for pod in 0..pods {
        for number in 0..uppers {
            let from = builder.node(&format!("{upper}{}", pod * uppers + number), Kind::Switch, 0)?;
            upper_numbers.push(from);
            for to in &leaf_numbers[(pod * of_pod) as usize..((pod + 1) * of_pod) as usize] {
                let cable =
                    Cable { from, to: *to, bits_per_second: rate(middle), latency_ps: Some(middle_ps), count: parallel as u32, cost: 1 };
                builder.cable(cable, 0)?;
            }
        }
    }
    if shape.tiers == 2 { Ok(()) } else { cores(shape, builder, &upper_numbers, uppers, pods) }
}

/// Switch i of each pod is joined to the i-th group of cores.
fn cores(shape: &Shape, builder: &mut Builder<'_>, uppers: &[u32], of_pod: u64, pods: u64) -> Result<(), WorkloadError> {
    let (middle, top) = (shape.all[1], shape.all[2]);
    let cores = quotient(builder, "cables from tier 1 by Radix_Down of tier 2", of_pod * pods * middle.up, top.down)?;
    let of_group = quotient(builder, "cores by switches of a pod", cores, of_pod)?;
    let parallel = quotient(builder, "Radix_Up of tier 1 by cores of a group", middle.up, of_group)?;
    if cores.saturating_mul(pods) > CABLES_MAX as u64 {
        return Err(builder.error(0, format!("expected at most {CABLES_MAX} cables between tiers")));
    }
    let latency_ps = Some(latency_ps(top, middle.switch_ns));
    for core in 0..cores {
        let from = builder.node(&format!("core{core}"), Kind::Switch, 0)?;
        for pod in 0..pods {
            let to = uppers[(pod * of_pod + core / of_group) as usize];
            let bits_per_second = Some(top.gbps * 1_000_000_000);
            builder.cable(Cable { from, to, bits_per_second, latency_ps, count: parallel as u32, cost: 1 }, 0)?;
        }
    }
    Ok(())
}
