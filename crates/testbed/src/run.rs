//! A run, what it needs on this machine, and the files that it writes.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use anyhow::{Context, Result};
use fanin_fabric::Fabric;

use super::conduct::Conductor;
use super::crew::{Crew, FABRIC_FILE};
use super::place::Place;
use super::results::Record;
use super::series;
use super::workload::Workload;

/// What a run needs beside its fabric and its workload.
#[derive(Clone, Copy, Debug)]
pub struct Means<'a> {
    /// The `fanin` program, of which switches and hosts are processes.
    pub program: &'a Path,
    /// Where the fabric's file and the processes' logs are written.
    pub folder: &'a Path,
    /// Ends the run as soon as it is set.
    pub interrupted: &'a AtomicBool,
}

/// Runs a workload, with the seed that it has. `fabric` is that which [`Place::make`] gave. The names of files in the record are empty.
///
/// # Errors
/// Where a process cannot be started or fails, where nothing moves, and after an interruption. All processes have ended then.
pub fn run(workload: &Workload, fabric: &Fabric, place: &Place, means: &Means<'_>) -> Result<Record> {
    let file = means.folder.join(FABRIC_FILE);
    fs::write(&file, fabric.to_toml()).with_context(|| format!("{} cannot be written", file.display()))?;
    let run = &workload.general.run;
    let crew = Crew::new(place, fabric, means.program, means.folder, workload.general.faults, run.seed);
    let mut record = Conductor::new(fabric, place, workload, run.seed, crew, means.interrupted).run()?;
    record.place = place.name();
    record.seed = run.seed;
    record.problems = record.judge(workload);
    Ok(record)
}

/// Writes results as JSON, and beside that jobs over time where they were sampled.
///
/// # Errors
/// Those of writing files and of drawing.
pub fn write(out: &Path, record: &Record) -> Result<()> {
    let json = serde_json::to_string_pretty(record)?;
    fs::write(out, format!("{json}\n")).with_context(|| format!("{} cannot be written", out.display()))?;
    if !record.series.is_empty() {
        let names: Vec<String> = record.jobs.iter().map(|job| job.system.clone()).collect();
        series::write(out, &names, &record.series)?;
    }
    Ok(())
}

/// How many folders this process has made.
static MADE: AtomicU32 = AtomicU32::new(0);

/// Where a run keeps the fabric's file and its processes' logs.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// It is the user's.
    keep: bool,
}

impl Folder {
    /// Makes the wanted folder, or a temporary one.
    ///
    /// # Errors
    /// Where it cannot be made.
    pub fn make(wanted: Option<&Path>) -> Result<Self> {
        // A process may make several at a time.
        let more = MADE.fetch_add(1, Ordering::Relaxed);
        let more = if more == 0 { String::new() } else { format!("-{more}") };
        let temporary = || std::env::temp_dir().join(format!("fanin-testbed-{}{more}", std::process::id()));
        let folder = Folder { path: wanted.map_or_else(temporary, Path::to_path_buf), keep: wanted.is_some() };
        fs::create_dir_all(&folder.path).with_context(|| format!("{} cannot be made", folder.path.display()))?;
        Ok(folder)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it, unless it is the user's.
    pub fn discard(&self) {
        if !self.keep {
            // A folder left behind is no reason to fail.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}
