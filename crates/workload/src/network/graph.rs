//! networkx's node-link JSON (`networkx.node_link_data`): nodes with `id` and `kind` (`host` or `switch`), links with `source`, `target`, `rate`,
//! `latency`, `count` and `cost`. Keys have other names as well, see `KEYS`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::builder::{Builder, Cable, KIND_EXPECTED, Kind, Names, RATE_EXPECTED, latency_of, named, rate_of, with_unit};
use crate::error::WorkloadError;
use crate::import::Input;
use crate::report::Report;

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    directed: Option<bool>,
    #[serde(default)]
    graph: Map<String, Value>,
    nodes: Vec<Map<String, Value>>,
    #[serde(alias = "edges")]
    links: Vec<Map<String, Value>>,
}

/// Keys of nodes, of links and of the graph, each with other names for it.
const KEYS: Names = &[
    ("kind", &["type", "role"]),
    ("rate", &["bandwidth", "speed", "capacity", "bw", "link_speed", "link_rate"]),
    ("latency", &["delay", "link_delay", "link_latency"]),
    ("name", &["label"]),
    ("id", &[]),
    ("source", &["src", "from"]),
    ("target", &["dst", "to", "destination"]),
    ("key", &[]),
    ("count", &[]),
    ("cost", &[]),
];

/// The same data by the names of [`KEYS`], and how many others there are. What has the name itself counts before other words for it.
fn by_name(of: &Map<String, Value>, known: &[&str]) -> (Map<String, Value>, u64) {
    let (mut found, mut unknown) = (Map::new(), 0);
    for (key, value) in of {
        match named(key, KEYS).filter(|(name, _)| known.contains(name)) {
            Some((name, unit)) if name == key || !of.contains_key(name) && !found.contains_key(name) => {
                let value = if unit.is_some() { Value::String(with_unit(&text(value), unit)) } else { value.clone() };
                drop(found.insert(name.into(), value))
            }
            _ => unknown += 1,
        }
    }
    (found, unknown)
}

/// A value as a name: nodes of networkx may be lists of numbers, as in grids.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            items.iter().map(|item| item.as_str().map_or_else(|| item.to_string(), String::from)).collect::<Vec<_>>().join("_")
        }
        // 100e9 is as whole a number as 100000000000.
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(float) if float.fract() == 0.0 && (0.0..1e18).contains(&float) => (float as u64).to_string(),
            _ => number.to_string(),
        },
        other => other.to_string(),
    }
}

/// Rate and latency of a link, or of all.
fn speed(of: &Map<String, Value>, place: &str, builder: &Builder<'_>) -> Result<(Option<u64>, Option<u64>), WorkloadError> {
    let read = |key: &str, read: fn(&str) -> Option<u64>, expected: &str| match of.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match read(&text(value)) {
            Some(found) => Ok(Some(found)),
            None => Err(builder.error(0, format!("{place}: {key} = {value}: expected {expected}"))),
        },
    };
    Ok((read("rate", rate_of, RATE_EXPECTED)?, read("latency", latency_of, "a time, such as \"300ns\"")?))
}

fn count(of: &Map<String, Value>, key: &str, place: &str, builder: &Builder<'_>) -> Result<u32, WorkloadError> {
    match of.get(key) {
        None | Some(Value::Null) => Ok(1),
        Some(value) => value
            .as_u64()
            .and_then(|value| u32::try_from(value).ok())
            .filter(|value| (1..=65_536).contains(value))
            .ok_or_else(|| builder.error(0, format!("{place}: {key} = {value}: expected 1 to 65536"))),
    }
}

/// Reads the file.
pub(super) fn read(input: &Input, builder: &mut Builder<'_>, report: &mut Report) -> Result<(), WorkloadError> {
    let file: File = serde_json::from_slice(&input.bytes).map_err(|error| builder.error(error.line() as u64, error.to_string()))?;
    if file.directed == Some(true) {
        let what = "directed = true: expected a graph whose links go both ways, as networkx's to_undirected() makes it";
        return Err(builder.error(0, what));
    }
    let (graph, unknown) = by_name(&file.graph, &["rate", "latency", "name"]);
    report.leave_many("data of the graph that networks do not have", unknown, || input.name.clone());
    let usual = speed(&graph, "graph", builder)?;
    let (mut numbers, mut by_index) = (BTreeMap::new(), Vec::new());
    for (index, node) in file.nodes.iter().enumerate() {
        let (node, unknown) = by_name(node, &["id", "kind", "name"]);
        let id = node.get("id").or_else(|| node.get("name")).ok_or_else(|| builder.error(0, format!("nodes[{index}]: expected an id")))?;
        let wrong = |word: &str| builder.error(0, format!("nodes[{index}]: kind = {word:?}: expected {KIND_EXPECTED}"));
        let kind = node.get("kind").map(text).map(|word| Kind::of(&word).ok_or_else(|| wrong(&word)));
        let kind = kind.transpose()?.unwrap_or(Kind::Unknown);
        let name = node.get("name").map_or_else(|| text(id), text);
        let before = builder.nodes.len();
        let number = builder.node(&name, kind, 0)?;
        by_index.push(number);
        if builder.nodes.len() == before || numbers.insert(id.to_string(), number).is_some() {
            return Err(builder.error(0, format!("nodes[{index}]: {name:?}: expected each node once")));
        }
        report.leave_many("data of nodes beside id, kind and name", unknown, || format!("{}: nodes[{index}]", input.name));
    }
    let has_number = file.nodes.iter().any(|node| node.get("id").is_some_and(Value::is_number));
    for (index, link) in file.links.iter().enumerate() {
        let (link, unknown) = by_name(link, &["source", "target", "key", "rate", "latency", "count", "cost"]);
        let place = format!("links[{index}]");
        let end = |key: &str| {
            let id = link.get(key).ok_or_else(|| builder.error(0, format!("{place}: expected a {key}")))?;
            let by_place = || {
                // So networkx 1 wrote links.
                let place = id.as_u64().filter(|_| !has_number)?;
                by_index.get(usize::try_from(place).ok()?).copied()
            };
            numbers
                .get(&id.to_string())
                .copied()
                .or_else(by_place)
                .ok_or_else(|| builder.error(0, format!("{place}: {key} = {id}: expected the id of a node")))
        };
        let (from, to) = (end("source")?, end("target")?);
        let (rate, latency) = speed(&link, &place, builder)?;
        let (count, cost) = (count(&link, "count", &place, builder)?, count(&link, "cost", &place, builder)?);
        report.leave_many("data of links that networks do not have", unknown, || format!("{}: {place}", input.name));
        builder.cable(Cable { from, to, bits_per_second: rate.or(usual.0), latency_ps: latency.or(usual.1), count, cost }, 0)?;
    }
    Ok(())
}
