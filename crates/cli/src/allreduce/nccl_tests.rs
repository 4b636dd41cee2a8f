//! Results as nccl-tests write them with `-J FILE` (version 3 of their format, nccl-tests 2.19), for tools that read those.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use chrono::Utc;
use serde::Serialize;

use super::{AllreduceArgs, Kind, Row};

/// The version of the format.
const VERSION: u32 = 3;
/// How times are written; in UTC here.
const TIME: &str = "%Y-%m-%d %H:%M:%S";
/// Nothing is reduced.
const NO_OPERATOR: &str = "none";

/// The file.
#[derive(Serialize)]
struct File {
    version: u32,
    start_time: String,
    args: Vec<String>,
    /// Variables of the environment as `NAME=VALUE`: those that are Fanin's.
    env: Vec<String>,
    /// There is none.
    nccl_version: u32,
    config: Config,
    devices: Vec<Device>,
    results: Vec<Line>,
    out_of_bounds: OutOfBounds,
    average_bus_bandwidth: AverageBandwidth,
    end_time: String,
}

#[derive(Serialize)]
struct Config {
    nthreads: u32,
    ngpus: u32,
    minimum_bytes: u64,
    maximum_bytes: u64,
    step_factor: u64,
    warmup_iters: u32,
    iterations: u32,
    aggregated_iterations: u32,
    validation: u32,
    graph: u32,
    blocking_collectives: bool,
    per_iter_timing: bool,
    per_iter_skip: u32,
    parallel_init: bool,
}

/// A rank; where nccl-tests have a GPU there is the way of vectors.
#[derive(Serialize)]
struct Device {
    rank: u32,
    group: u32,
    device: u32,
    device_info: String,
}

#[derive(Serialize)]
struct Line {
    size: u64,
    count: u64,
    #[serde(rename = "type")]
    dtype: &'static str,
    redop: &'static str,
    root: &'static str,
    out_of_place: Option<Body>,
    in_place: Option<Body>,
    actual_iterations: u32,
    experiment_name: &'static str,
}

#[derive(Serialize)]
struct Body {
    /// Microseconds.
    time: f64,
    /// 10^9 bytes a second, as the next.
    alg_bw: f64,
    bus_bw: f64,
    nwrong: f64,
}

#[derive(Serialize)]
struct OutOfBounds {
    count: u64,
    okay: bool,
}

#[derive(Serialize)]
struct AverageBandwidth {
    bandwidth: f64,
    okay: &'static str,
}

/// Now, as the format has it.
pub fn now() -> String {
    Utc::now().format(TIME).to_string()
}

/// Looks whether the file can be written, before anything is measured; what is in it stays.
///
/// # Errors
/// Where it cannot.
pub fn check(to: &Path) -> Result<()> {
    let opened = fs::OpenOptions::new().create(true).append(true).open(to);
    opened.map(drop).with_context(|| format!("--json-nccl-tests {}: cannot be written", to.display()))
}

/// Writes the rows of a run that has begun at `start_time` ([`now`]).
///
/// # Errors
/// Where the file cannot be written.
pub fn write(to: &Path, args: &AllreduceArgs, ranks: u32, rows: &[Row], start_time: String) -> Result<()> {
    let file = File {
        version: VERSION,
        start_time,
        args: std::env::args().collect(),
        env: std::env::vars().filter(|(name, _)| name.starts_with("FANIN_")).map(|(name, value)| format!("{name}={value}")).collect(),
        nccl_version: 0,
        config: config(rows),
        devices: (0..ranks).map(|rank| device(rank, rows)).collect(),
        results: rows.iter().map(|row| line(args.collective, row)).collect(),
        out_of_bounds: OutOfBounds { count: rows.iter().map(|row| row.wrong).sum(), okay: rows.iter().all(|row| row.wrong == 0) },
        average_bus_bandwidth: AverageBandwidth {
            bandwidth: rows.iter().map(|row| row.busbw_mb_s / 1e3).sum::<f64>() / rows.len().max(1) as f64,
            okay: "unchecked",
        },
        end_time: now(),
    };
    let mut text = serde_json::to_string_pretty(&file)?;
    text.push('\n');
    fs::write(to, text).with_context(|| format!("--json-nccl-tests {}: cannot be written", to.display()))
}

fn config(rows: &[Row]) -> Config {
    Config {
        nthreads: 1,
        // A process is a rank, with one vector.
        ngpus: 1,
        minimum_bytes: rows.iter().map(|row| row.size_bytes).min().unwrap_or(0),
        maximum_bytes: rows.iter().map(|row| row.size_bytes).max().unwrap_or(0),
        step_factor: 2,
        warmup_iters: 1,
        iterations: rows.iter().map(|row| row.iterations).max().unwrap_or(0),
        aggregated_iterations: 1,
        validation: 1,
        graph: 0,
        blocking_collectives: true,
        per_iter_timing: false,
        per_iter_skip: 0,
        parallel_init: false,
    }
}

fn device(rank: u32, rows: &[Row]) -> Device {
    Device { rank, group: 0, device: 0, device_info: rows.first().map_or_else(String::new, |row| row.path.clone()) }
}

fn line(collective: Kind, row: &Row) -> Line {
    let body = || Some(Body { time: row.time_us, alg_bw: row.algbw_mb_s / 1e3, bus_bw: row.busbw_mb_s / 1e3, nwrong: row.wrong as f64 });
    let reduces = !matches!(collective, Kind::Broadcast | Kind::AllGather);
    Line {
        size: row.size_bytes,
        count: row.elements,
        dtype: type_name(&row.dtype),
        redop: if reduces { operator_name(&row.op) } else { NO_OPERATOR },
        root: if matches!(collective, Kind::Reduce | Kind::Broadcast) { "0" } else { "-1" },
        out_of_place: if row.in_place { None } else { body() },
        in_place: if row.in_place { body() } else { None },
        actual_iterations: row.iterations,
        experiment_name: collective_name(collective),
    }
}

/// The word of nccl-tests for an element type; it has none for 16-bit integers.
fn type_name(dtype: &str) -> &'static str {
    match dtype {
        "f32" => "float",
        "f64" => "double",
        "f16" => "half",
        "bf16" => "bfloat16",
        "i8" => "int8",
        "u8" => "uint8",
        "i16" => "int16",
        "i32" => "int32",
        _ => "int64",
    }
}

/// Its word for an operator; operators that NCCL does not have keep theirs.
fn operator_name(op: &str) -> &'static str {
    const NAMES: &[&str] = &["sum", "prod", "min", "max", "avg", "and", "or", "xor", "minimum", "maximum"];
    NAMES.iter().find(|name| **name == op).copied().unwrap_or(NO_OPERATOR)
}

fn collective_name(collective: Kind) -> &'static str {
    match collective {
        Kind::Allreduce => "AllReduce",
        Kind::Reduce => "Reduce",
        Kind::Broadcast => "Broadcast",
        Kind::ReduceScatter => "ReduceScatter",
        Kind::AllGather => "AllGather",
    }
}
