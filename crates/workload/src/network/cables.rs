//! A table of cables as CSV: `from,to` and, where they are there, `rate,latency,count,cost,from_kind,to_kind`. Columns are apart by commas,
//! semicolons or tabs.

use super::builder::{Builder, Cable, KIND_EXPECTED, Kind, Names, RATE_EXPECTED, latency_of, named, rate_of, with_unit};
use crate::error::WorkloadError;
use crate::import::Input;
use crate::report::Report;

/// Columns, each with other names for it.
const COLUMNS: Names = &[
    (
        "from",
        &[
            "source",
            "src",
            "a",
            "node_a",
            "device_a",
            "a_node",
            "a_device",
            "a_end",
            "end_a",
            "side_a",
            "endpoint_a",
            "node1",
            "device1",
            "from_node",
            "from_device",
            "source_node",
            "source_device",
            "src_node",
            "src_device",
            "local",
            "local_node",
            "local_device",
        ],
    ),
    (
        "to",
        &[
            "target",
            "destination",
            "dst",
            "dest",
            "b",
            "z",
            "node_b",
            "device_b",
            "b_node",
            "b_device",
            "b_end",
            "end_b",
            "side_b",
            "endpoint_b",
            "node_z",
            "device_z",
            "z_end",
            "side_z",
            "node2",
            "device2",
            "to_node",
            "to_device",
            "target_node",
            "target_device",
            "destination_node",
            "destination_device",
            "dst_node",
            "dst_device",
            "remote",
            "remote_node",
            "remote_device",
            "neighbor",
            "neighbour",
        ],
    ),
    ("rate", &["bandwidth", "speed", "capacity", "bw", "link_speed", "link_rate"]),
    ("latency", &["delay", "link_delay", "link_latency"]),
    ("count", &["cables", "links"]),
    ("cost", &["metric"]),
    ("from_kind", &["source_kind", "src_kind", "from_type", "source_type", "src_type", "from_role", "source_role"]),
    ("to_kind", &["target_kind", "destination_kind", "dst_kind", "to_type", "target_type", "dst_type", "to_role", "target_role"]),
];

/// What is between columns, by the head of the table.
fn separator(line: &str) -> char {
    [',', ';', '\t'].into_iter().max_by_key(|one| (line.matches(*one).count(), *one == ',')).unwrap_or(',')
}

/// The first line that is neither empty nor a comment.
pub(super) fn head_of(text: &str) -> &str {
    text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#')).unwrap_or("")
}

/// Whether a line is the head of such a table.
pub fn looks_like(line: &str) -> bool {
    let names: Vec<&str> = line.split(separator(line)).map(|name| name.trim().trim_matches('"')).collect();
    let has = |column| names.iter().any(|name| named(name, COLUMNS).is_some_and(|(found, _)| found == column));
    has("from") && has("to") && names.iter().all(|name| !name.is_empty())
}

/// Reads the file.
pub(super) fn read(input: &Input, builder: &mut Builder<'_>, report: &mut Report) -> Result<(), WorkloadError> {
    let text = input.text()?;
    let between = separator(head_of(text)) as u8;
    let mut reader =
        csv::ReaderBuilder::new().trim(csv::Trim::All).flexible(true).comment(Some(b'#')).delimiter(between).from_reader(text.as_bytes());
    let head = reader.headers().map_err(|error| builder.error(1, error.to_string()))?.clone();
    let first = reader.headers().ok().and_then(csv::StringRecord::position).map_or(1, csv::Position::line);
    let mut names: Vec<Option<(&str, Option<&str>)>> = Vec::new();
    for name in &head {
        let found = named(name, COLUMNS);
        if found.is_some_and(|(found, _)| names.iter().flatten().any(|(other, _)| *other == found)) {
            return Err(builder.error(first, format!("column {name:?}: expected one column of each kind")));
        }
        if found.is_none() {
            report.leave(format!("column {name:?}"), || format!("{}:{first}", input.name));
        }
        names.push(found);
    }
    for record in reader.records() {
        let record = record.map_err(|error| builder.error(error.position().map_or(1, csv::Position::line), error.to_string()))?;
        let line = record.position().map_or(1, csv::Position::line);
        let more = record.iter().skip(names.len()).filter(|value| !value.is_empty()).count();
        report.leave_many("values beyond the last column", more as u64, || format!("{}:{line}", input.name));
        let get = |name: &str| {
            let at = names.iter().position(|one| one.is_some_and(|(known, _)| known == name))?;
            record.get(at).filter(|value| !value.is_empty())
        };
        let quantity = |name: &str| {
            let (_, unit) = names.iter().flatten().find(|(known, _)| *known == name)?;
            Some(with_unit(get(name)?, *unit))
        };
        let wrong =
            |name: &str, expected: &str| builder.error(line, format!("{name} = {:?}: expected {expected}", get(name).unwrap_or("")));
        let count = |name: &str| match get(name) {
            None => Ok(1),
            Some(value) => value.parse().ok().filter(|value| (1..=65_536).contains(value)).ok_or_else(|| wrong(name, "1 to 65536")),
        };
        let kind = |name: &str| match get(name) {
            None => Ok(Kind::Unknown),
            Some(word) => Kind::of(word).ok_or_else(|| wrong(name, KIND_EXPECTED)),
        };
        let bits_per_second = quantity("rate").map(|text| rate_of(&text).ok_or_else(|| wrong("rate", RATE_EXPECTED))).transpose()?;
        let latency_ps =
            quantity("latency").map(|text| latency_of(&text).ok_or_else(|| wrong("latency", "a time, such as \"300ns\""))).transpose()?;
        let (count, cost, kinds) = (count("count")?, count("cost")?, (kind("from_kind")?, kind("to_kind")?));
        let end = |name: &str| get(name).ok_or_else(|| wrong(name, "the name of a host or a switch"));
        let ends = (end("from")?, end("to")?);
        let (from, to) = (builder.node(ends.0, kinds.0, line)?, builder.node(ends.1, kinds.1, line)?);
        builder.cable(Cable { from, to, bits_per_second, latency_ps, count, cost }, line)?;
    }
    Ok(())
}
