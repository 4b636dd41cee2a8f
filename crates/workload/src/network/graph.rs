//! networkx's node-link JSON (`networkx.node_link_data`): nodes with `id` and `kind` (`host` or `switch`), links with `source`, `target`, `rate`,
//! `latency`, `count` and `cost`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::builder::{Builder, Cable, Kind, RATE_EXPECTED, latency_of, rate_of};
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

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), String::from)
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
    let usual = speed(&file.graph, "graph", builder)?;
    let mut numbers = BTreeMap::new();
    for (index, node) in file.nodes.iter().enumerate() {
        let id = node.get("id").ok_or_else(|| builder.error(0, format!("nodes[{index}]: expected an id")))?;
        let kind = match node.get("kind").map(text).as_deref() {
            Some("host") => Kind::Host,
            Some("switch") => Kind::Switch,
            None => Kind::Unknown,
            Some(other) => return Err(builder.error(0, format!("nodes[{index}]: kind = {other:?}: expected host or switch"))),
        };
        let name = node.get("name").map_or_else(|| text(id), text);
        let before = builder.nodes.len();
        let number = builder.node(&name, kind, 0)?;
        if builder.nodes.len() == before || numbers.insert(id.to_string(), number).is_some() {
            return Err(builder.error(0, format!("nodes[{index}]: {name:?}: expected each node once")));
        }
        let unknown = node.keys().filter(|key| !["id", "kind", "name"].contains(&key.as_str())).count();
        report.leave_many("data of nodes beside id, kind and name", unknown as u64, || format!("{}: nodes[{index}]", input.name));
    }
    for (index, link) in file.links.iter().enumerate() {
        let place = format!("links[{index}]");
        let end = |key: &str| {
            let id = link.get(key).ok_or_else(|| builder.error(0, format!("{place}: expected a {key}")))?;
            numbers
                .get(&id.to_string())
                .copied()
                .ok_or_else(|| builder.error(0, format!("{place}: {key} = {id}: expected the id of a node")))
        };
        let (from, to) = (end("source")?, end("target")?);
        let (rate, latency) = speed(link, &place, builder)?;
        let (count, cost) = (count(link, "count", &place, builder)?, count(link, "cost", &place, builder)?);
        let known = ["source", "target", "key", "rate", "latency", "count", "cost"];
        let unknown = link.keys().filter(|key| !known.contains(&key.as_str())).count();
        report.leave_many("data of links that networks do not have", unknown as u64, || format!("{}: {place}", input.name));
        builder.cable(Cable { from, to, bits_per_second: rate.or(usual.0), latency_ps: latency.or(usual.1), count, cost }, 0)?;
    }
    Ok(())
}
