//! containerlab's YAML: `topology.nodes` with a `kind` each, `topology.links` with their `endpoints`. Nodes of kind `linux` are hosts, all others
//! switches.

use saphyr_parser::{Event, Parser};

use super::builder::{Builder, Cable, Kind};
use crate::error::WorkloadError;
use crate::import::Input;
use crate::report::Report;

/// Lists and maps within each other at most.
const DEPTH_MAX: usize = 32;

/// A value and its line.
#[derive(Clone, Debug)]
struct Yaml {
    line: u64,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Text(String),
    List(Vec<Yaml>),
    Map(Vec<(Yaml, Yaml)>),
}

impl Yaml {
    fn get(&self, key: &str) -> Option<&Yaml> {
        match &self.what {
            What::Map(entries) => entries.iter().find(|(name, _)| name.text() == Some(key)).map(|(_, value)| value),
            _ => None,
        }
    }

    fn text(&self) -> Option<&str> {
        match &self.what {
            What::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// The first document. Values that stand for other ones (aliases) are refused: a short file could mean a very long one by them.
fn parse(text: &str, builder: &Builder<'_>) -> Result<Yaml, WorkloadError> {
    // Open lists and maps; of a map also the key that waits for its value.
    let mut open: Vec<(Yaml, Option<Yaml>)> = Vec::new();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| builder.error(error.marker().line() as u64, format!("not YAML: {}", error.info())))?;
        let line = span.start.line() as u64;
        let mut done = match event {
            Event::Scalar(text, ..) => Yaml { line, what: What::Text(text.to_string()) },
            Event::SequenceStart(..) | Event::MappingStart(..) => {
                if open.len() >= DEPTH_MAX {
                    return Err(builder.error(line, format!("expected at most {DEPTH_MAX} lists and maps within each other")));
                }
                let is_list = matches!(event, Event::SequenceStart(..));
                let what = if is_list { What::List(Vec::new()) } else { What::Map(Vec::new()) };
                open.push((Yaml { line, what }, None));
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some((done, _)) => done,
                None => continue,
            },
            Event::Alias(..) => return Err(builder.error(line, "an alias (*name): expected the value itself")),
            _ => continue,
        };
        match open.last_mut() {
            None => return Ok(done),
            Some((Yaml { what: What::List(items), .. }, _)) => items.push(done),
            Some((Yaml { what: What::Map(entries), .. }, key)) => match key.take() {
                Some(name) => entries.push((name, done)),
                None => {
                    std::mem::swap(key.get_or_insert(Yaml { line, what: What::Text(String::new()) }), &mut done);
                }
            },
            Some(_) => {}
        }
    }
    Err(builder.error(0, "expected topology: with nodes: and links:"))
}

/// Reads the file.
pub(super) fn read(input: &Input, builder: &mut Builder<'_>, report: &mut Report) -> Result<(), WorkloadError> {
    let file = parse(input.text()?, builder)?;
    let topology = file.get("topology").ok_or_else(|| builder.error(file.line, "expected topology:"))?;
    let What::Map(nodes) = &topology.get("nodes").ok_or_else(|| builder.error(topology.line, "expected nodes: in topology"))?.what else {
        return Err(builder.error(topology.line, "nodes: expected a name and its data for each"));
    };
    let usual = topology.get("defaults").and_then(|defaults| defaults.get("kind")).and_then(Yaml::text);
    let kind_of = |data: &Yaml| {
        let group = data.get("group").and_then(Yaml::text).and_then(|group| topology.get("groups")?.get(group)?.get("kind")?.text());
        data.get("kind").and_then(Yaml::text).or(group).or(usual).map(str::to_string)
    };
    // Labs of routers in software have no other nodes.
    let all_linux = nodes.iter().all(|(_, data)| kind_of(data).as_deref() == Some("linux"));
    for (name, data) in nodes {
        let text = name.text().ok_or_else(|| builder.error(name.line, "expected the name of a node"))?;
        let before = builder.nodes.len();
        let kind = match kind_of(data).as_deref() {
            Some("linux") if all_linux => Kind::Unknown,
            Some("linux") => Kind::Host,
            _ => Kind::Switch,
        };
        builder.node(text, kind, name.line)?;
        if builder.nodes.len() == before {
            return Err(builder.error(name.line, format!("{text:?}: expected each node once")));
        }
    }
    report.assume(match all_linux {
        true => "all nodes are of kind linux: those with one cable are hosts, others switches; rates and latencies are left to the plan",
        false => "nodes of kind linux are hosts, others switches; rates and latencies are left to the plan",
    });
    let empty = Vec::new();
    let links = match topology.get("links").map(|links| &links.what) {
        Some(What::List(links)) => links,
        _ => &empty,
    };
    for link in links {
        let ends = match link.get("endpoints").map(|ends| &ends.what) {
            Some(What::List(ends)) if ends.len() == 2 => [&ends[0], &ends[1]],
            _ => {
                report.leave("links without two endpoints", || format!("{}:{}", input.name, link.line));
                continue;
            }
        };
        let mut numbers = [0; 2];
        let mut is_known = true;
        for (end, number) in ends.into_iter().zip(&mut numbers) {
            // In the long form an end is a map.
            let expected = "endpoints: expected \"node:interface\", or node: and interface:";
            let text = end.text().or_else(|| end.get("node")?.text()).ok_or_else(|| builder.error(end.line, expected))?;
            let name = text.split(':').next().unwrap_or("");
            match builder.numbers.get(name) {
                Some(known) => *number = *known,
                None if ["host", "mgmt-net", "macvlan", "vxlan", "vxlan-stitch", "dummy"].contains(&name) => is_known = false,
                None => return Err(builder.error(end.line, format!("{text:?}: expected a node of nodes:"))),
            }
        }
        if !is_known {
            report.leave("links to the machine that runs the lab", || format!("{}:{}", input.name, link.line));
            continue;
        }
        let cable = Cable { from: numbers[0], to: numbers[1], bits_per_second: None, latency_ps: None, count: 1, cost: 1 };
        builder.cable(cable, link.line)?;
    }
    Ok(())
}
