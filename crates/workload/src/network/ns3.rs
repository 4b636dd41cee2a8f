//! Topology files of HPCC's ns-3 (`nodes switches links`) and of SimAI's (`nodes gpus-per-server nvswitches switches links gpu`): the numbers of
//! the switches, then a cable a line: both ends, rate, latency, share of errors.

use std::collections::BTreeSet;

use super::builder::{Builder, Cable, Kind, NODES_MAX, RATE_EXPECTED, latency_of, rate_of};
use crate::error::WorkloadError;
use crate::import::Input;
use crate::report::Report;

/// Whether a text begins as such a file does.
pub fn looks_like(text: &str) -> bool {
    let words: Vec<&str> = super::cables::head_of(text).split_whitespace().collect();
    let numbers = words.iter().filter(|word| word.parse::<u64>().is_ok()).count();
    matches!((words.len(), numbers), (3, 3) | (6 | 7, 5..=6))
}

/// Reads the file.
pub(super) fn read(input: &Input, builder: &mut Builder<'_>, report: &mut Report) -> Result<(), WorkloadError> {
    let mut lines = input.text()?.lines().enumerate().map(|(index, line)| (index as u64 + 1, line.split_whitespace().collect::<Vec<_>>()));
    let mut next = || lines.by_ref().find(|(_, words)| !words.is_empty() && !words[0].starts_with('#'));
    let (line, head) = next().ok_or_else(|| builder.error(0, "expected a first line"))?;
    let number = |word: &str, line: u64| {
        word.parse::<u32>().map_err(|_| builder.error(line, format!("{word:?}: expected a whole number"))).and_then(|number| {
            let most = NODES_MAX as u32 * 8;
            if number <= most { Ok(number) } else { Err(builder.error(line, format!("{number}: expected at most {most}"))) }
        })
    };
    let numbers = head.iter().filter(|word| word.parse::<u64>().is_ok()).map(|word| number(word, line)).collect::<Result<Vec<_>, _>>()?;
    let (nodes, nvswitches, switches, links) = match (head.len(), numbers.as_slice()) {
        (3, &[nodes, switches, links]) => (nodes, 0, switches, links),
        (6 | 7, &[nodes, _, nvswitches, switches, links, ..]) => (nodes, nvswitches, switches, links),
        _ => return Err(builder.error(line, "expected 3 numbers (HPCC), or 5 and a GPU's name (SimAI)")),
    };
    if nodes as usize > NODES_MAX {
        return Err(builder.error(line, format!("{nodes} nodes: expected at most {NODES_MAX}")));
    }
    let mut ids = Vec::new();
    let expected = nvswitches as usize + switches as usize;
    while ids.len() < expected {
        let (line, words) = next().ok_or_else(|| builder.error(0, format!("{} switches: expected {expected}", ids.len())))?;
        for word in words {
            let id = number(word, line)?;
            if id >= nodes {
                return Err(builder.error(line, format!("switch {id}: expected one below {nodes}")));
            }
            ids.push(id);
        }
    }
    if ids.len() > expected {
        return Err(builder.error(0, format!("{} switches: expected {expected}", ids.len())));
    }
    let nv: BTreeSet<u32> = ids[..nvswitches as usize].iter().copied().collect();
    let others: BTreeSet<u32> = ids[nvswitches as usize..].iter().copied().collect();
    let mut found = Vec::new();
    while let Some((line, words)) = next() {
        // HPCC's own files end with words that say what their lines are.
        if found.len() >= links as usize && words[0].starts_with(|one: char| one.is_alphabetic()) {
            report.leave("lines of text behind the last link", || format!("{}:{line}", input.name));
            continue;
        }
        let &[from, to, rate, latency, errors] = words.as_slice() else {
            return Err(builder.error(line, format!("{} words: expected both ends, rate, latency and share of errors", words.len())));
        };
        let ends = [number(from, line)?, number(to, line)?];
        if let Some(end) = ends.iter().find(|end| **end >= nodes) {
            return Err(builder.error(line, format!("{end}: expected a node below {nodes}")));
        }
        let rate = rate_of(rate).ok_or_else(|| builder.error(line, format!("{rate:?}: expected {RATE_EXPECTED}")))?;
        let latency = latency_of(latency).ok_or_else(|| builder.error(line, format!("{latency:?}: expected a time, such as \"1us\"")))?;
        let errors = errors.parse::<f64>().map_err(|_| builder.error(line, format!("{errors:?}: expected a share of errors")))?;
        if errors != 0.0 {
            report.leave("shares of errors, which are the plan's faults", || format!("{}:{line}", input.name));
        }
        found.push((line, ends, rate, latency));
    }
    if found.len() != links as usize {
        return Err(builder.error(line, format!("{} links: expected the {links} that the first line says", found.len())));
    }
    let host = if nvswitches > 0 { "gpu" } else { "host" };
    let kind = |id: &u32| match (nv.contains(id), others.contains(id)) {
        (true, _) => ("nvswitch", Kind::Switch),
        (_, true) => ("switch", Kind::Switch),
        _ => (host, Kind::Host),
    };
    for id in 0..nodes {
        let (name, kind) = kind(&id);
        builder.node(&format!("{name}{id}"), kind, 0)?;
    }
    // A GPU's first cable is the one to the network: the switch there is the one that adds its contributions up.
    found.sort_by_key(|(_, ends, ..)| ends.iter().any(|end| nv.contains(end)));
    for (line, ends, rate, latency) in found {
        let name = |id: u32| format!("{}{id}", kind(&id).0);
        let (from, to) = (builder.node(&name(ends[0]), Kind::Unknown, line)?, builder.node(&name(ends[1]), Kind::Unknown, line)?);
        let cable = Cable { from, to, bits_per_second: Some(rate), latency_ps: Some(latency), count: 1, cost: 1 };
        builder.cable(cable, line)?;
    }
    Ok(())
}
