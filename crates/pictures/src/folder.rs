//! The files of a plan's results.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};
use fanin_plan::Plan;
use fanin_plan::columns::write_csv;
use fanin_plan::frames::{self, Frame};
use fanin_plan::results::{RunRecord, write_json};
use fanin_plan::run::Finished;

use crate::plot;

/// Writes everything but the report.
///
/// # Errors
/// Those of drawing and of writing files.
pub fn write_folder(folder: &Path, plan: &Plan, finished: &[Finished]) -> Result<()> {
    let records: Vec<&RunRecord> = finished.iter().map(|run| &run.record).collect();
    let create = |name: &str| File::create(folder.join(name)).map(BufWriter::new).with_context(|| name.to_string());
    write_json(&records, true, &mut create("results.json")?)?;
    write_csv(&records, &mut create("results.csv")?)?;
    if records.iter().any(|record| record.jobs.len() > 1) {
        write_frame(&frames::jobs(&records), create("jobs.csv")?)?;
    }
    if records.iter().any(|record| record.jobs.iter().any(|job| job.workload.is_some())) {
        write_frame(&frames::communication(&records), create("communication.csv")?)?;
    }
    if finished.iter().any(|run| !run.memory.is_empty()) {
        write_memory(plan, finished, create("memory.csv")?)?;
    }
    if finished.iter().any(|run| !run.series.is_empty()) {
        write_frame(&frames::series(plan, finished), create("series.csv")?)?;
    }
    write_links(plan, finished, create("links.csv")?)?;
    fs::write(folder.join("plan.toml"), plan.text_with_sets()).context("plan.toml")?;
    fs::write(folder.join("about.json"), about()).context("about.json")?;
    plot::write_all(folder, plan, finished)
}

/// Which program wrote this: its version, and the commit where whoever built it has said so.
fn about() -> String {
    format!("{:#}\n", serde_json::json!({ "fanin": env!("CARGO_PKG_VERSION"), "commit": option_env!("FANIN_COMMIT") }))
}

fn write_frame(frame: &Frame, out: impl Write) -> Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(frame.columns.iter().map(|(name, _)| name))?;
    for row in 0..frame.rows() {
        writer.write_record(frame.columns.iter().map(|(_, column)| column.text(row)))?;
    }
    writer.flush()?;
    Ok(())
}

/// Memory of the switches over time in the first repetition of each point.
fn write_memory(plan: &Plan, finished: &[Finished], out: impl Write) -> Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(plan.axes.iter().map(|axis| axis.name.as_str()).chain(["time_us", "switch_bytes_max", "bytes_total"]))?;
    for run in finished {
        for sample in &run.memory {
            let time_us = sample.at.as_ps() as f64 / 1e6;
            let numbers = [time_us.to_string(), sample.bytes_max.to_string(), sample.bytes_total.to_string()];
            let labels = plan.points[run.point].labels.iter().map(String::as_str);
            writer.write_record(labels.chain(numbers.iter().map(String::as_str)))?;
        }
    }
    writer.flush()?;
    Ok(())
}

/// Every link of the first repetition of each point.
fn write_links(plan: &Plan, finished: &[Finished], out: impl Write) -> Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    let columns = ["from", "to", "bytes", "packets", "utilization", "queue_bytes_peak", "packets_dropped"];
    writer.write_record(plan.axes.iter().map(|axis| axis.name.as_str()).chain(columns))?;
    for run in finished {
        for link in &run.links {
            let numbers = [
                link.bytes.to_string(),
                link.packets.to_string(),
                link.utilization.to_string(),
                link.queue_bytes_peak.to_string(),
                link.packets_dropped.to_string(),
            ];
            let labels = plan.points[run.point].labels.iter().map(String::as_str);
            writer.write_record(labels.chain([&*link.from, &*link.to]).chain(numbers.iter().map(String::as_str)))?;
        }
    }
    writer.flush()?;
    Ok(())
}
