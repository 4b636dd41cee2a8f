//! A table of cables as CSV: `from,to` and, where they are there, `rate,latency,count,cost,from_kind,to_kind`.

use super::builder::{Builder, Cable, Kind, RATE_EXPECTED, latency_of, rate_of};
use crate::error::WorkloadError;
use crate::import::Input;
use crate::report::Report;

const COLUMNS: [&str; 8] = ["from", "to", "rate", "latency", "count", "cost", "from_kind", "to_kind"];

/// Whether a line is the head of such a table.
pub fn looks_like(line: &str) -> bool {
    let names: Vec<&str> = line.split(',').map(str::trim).collect();
    names.contains(&"from") && names.contains(&"to") && names.iter().all(|name| !name.is_empty())
}

/// Reads the file.
pub(super) fn read(input: &Input, builder: &mut Builder<'_>, report: &mut Report) -> Result<(), WorkloadError> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).flexible(true).from_reader(input.text()?.as_bytes());
    let names = reader.headers().map_err(|error| builder.error(1, error.to_string()))?.clone();
    for name in names.iter().filter(|name| !COLUMNS.contains(name)) {
        report.leave(format!("column {name:?}"), || format!("{}:1", input.name));
    }
    for record in reader.records() {
        let record = record.map_err(|error| builder.error(error.position().map_or(1, csv::Position::line), error.to_string()))?;
        let line = record.position().map_or(1, csv::Position::line);
        let get = |name: &str| {
            let at = names.iter().position(|one| one == name)?;
            record.get(at).filter(|value| !value.is_empty())
        };
        let wrong =
            |name: &str, expected: &str| builder.error(line, format!("{name} = {:?}: expected {expected}", get(name).unwrap_or("")));
        let count = |name: &str| match get(name) {
            None => Ok(1),
            Some(value) => value.parse().ok().filter(|value| (1..=65_536).contains(value)).ok_or_else(|| wrong(name, "1 to 65536")),
        };
        let kind = |name: &str| match get(name) {
            None => Ok(Kind::Unknown),
            Some("host") => Ok(Kind::Host),
            Some("switch") => Ok(Kind::Switch),
            Some(_) => Err(wrong(name, "host or switch")),
        };
        let bits_per_second = get("rate").map(|text| rate_of(text).ok_or_else(|| wrong("rate", RATE_EXPECTED))).transpose()?;
        let latency_ps =
            get("latency").map(|text| latency_of(text).ok_or_else(|| wrong("latency", "a time, such as \"300ns\""))).transpose()?;
        let (count, cost, kinds) = (count("count")?, count("cost")?, (kind("from_kind")?, kind("to_kind")?));
        let from = builder.node(get("from").unwrap_or(""), kinds.0, line)?;
        let to = builder.node(get("to").unwrap_or(""), kinds.1, line)?;
        builder.cable(Cable { from, to, bits_per_second, latency_ps, count, cost }, line)?;
    }
    Ok(())
}
