//! `fanin testbed`: a workload on a fabric of real switch and host processes on this machine.
//!
//! This process starts the others, tells them what to do, does to them what the workload says, and collects what they have counted. It
//! carries no packets.
//!
//! | module | what it holds |
//! |---|---|
//! | [`args`] | what the user can ask for |
//! | [`workload`] | `WORKLOAD.toml`: read and held against the fabric |
//! | [`place`] | where the nodes run: loopback or namespaces |
//! | [`namespaces`] | a network namespace for each node, a veth for each link |
//! | [`process`] | one node's process |
//! | [`crew`] | all processes |
//! | [`schedule`] | what is due when: events, streams |
//! | [`job`] | a job as it runs |
//! | [`conduct`] | a run from its first process to its results |
//! | [`idle`] | how much of the processors' time nobody used |
//! | [`series`] | jobs over time, as the switches count |
//! | [`results`] | what came out, and whether it is as the workload expects |
//! | [`report`] | the same for people |

mod args;
mod conduct;
mod crew;
mod idle;
mod job;
mod namespaces;
mod place;
mod process;
mod report;
mod results;
mod schedule;
mod series;
mod workload;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Context, Result};
use fanin_fabric::Fabric;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use args::Format;
pub use args::TestbedArgs;
use conduct::Conductor;
use crew::{Crew, FABRIC_FILE};
use place::{Place, PlaceName};
use results::Record;
use workload::Workload;

/// Runs a workload. The exit code says how it came out: see `fanin testbed --help`.
pub fn run(args: &TestbedArgs) -> ExitCode {
    let read = Fabric::load(&args.fabric).and_then(|fabric| Ok((Workload::load(&args.workload, &args.set, &fabric)?, fabric)));
    let (mut workload, fabric) = match read {
        Ok(read) => read,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    if args.check {
        print!("{}", fabric.to_toml());
        return ExitCode::SUCCESS;
    }
    if let Some(seed) = args.seed {
        workload.general.run.seed = seed;
    }
    let interruption = match Interruption::watch() {
        Ok(interruption) => interruption,
        Err(error) => return failed(&error, 1),
    };
    let folder = match Folder::make(args.logs.as_deref()) {
        Ok(folder) => folder,
        Err(error) => return failed(&error, 2),
    };
    let (place, fabric) = match Place::make(args.place, fabric) {
        Ok(made) => made,
        Err(error) => return failed(&error, 2),
    };
    let result = perform(args, &workload, &fabric, &place, &folder, &interruption.flag);
    // Before anything is said: whoever reads it may rely on nothing being left.
    drop(place);
    if let Some(signal) = interruption.signal() {
        eprintln!("interrupted; all processes of the testbed have ended, and what it made is removed");
        folder.discard();
        return ExitCode::from(128 + signal);
    }
    let code = match result.and_then(|record| print(args, &record).map(|()| record)) {
        Ok(record) if record.problems.is_empty() => ExitCode::SUCCESS,
        Ok(record) => {
            for problem in &record.problems {
                eprintln!("error: {problem}");
            }
            ExitCode::from(1)
        }
        Err(error) => failed(&error, 1),
    };
    folder.settle(code == ExitCode::SUCCESS);
    code
}

fn failed(error: &anyhow::Error, code: u8) -> ExitCode {
    eprintln!("error: {error:#}");
    ExitCode::from(code)
}

fn perform(
    args: &TestbedArgs,
    workload: &Workload,
    fabric: &Fabric,
    place: &Place,
    folder: &Folder,
    interrupted: &AtomicBool,
) -> Result<Record> {
    let file = folder.path.join(FABRIC_FILE);
    fs::write(&file, fabric.to_toml()).with_context(|| format!("{} cannot be written", file.display()))?;
    let run = &workload.general.run;
    let crew = Crew::new(place, fabric, &folder.path, workload.general.faults, run.seed)?;
    let mut record = Conductor::new(fabric, place, workload, run.seed, crew, interrupted).run()?;
    record.fabric = args.fabric.display().to_string();
    record.workload = args.workload.display().to_string();
    record.sets = args.set.clone();
    record.place = if args.place == PlaceName::Loopback { "loopback" } else { "namespaces" };
    record.seed = run.seed;
    record.problems = record.judge(workload);
    Ok(record)
}

fn print(args: &TestbedArgs, record: &Record) -> Result<()> {
    let json = serde_json::to_string_pretty(record)?;
    if let Some(out) = &args.out {
        fs::write(out, format!("{json}\n")).with_context(|| format!("{} cannot be written", out.display()))?;
        if !record.series.is_empty() {
            let names: Vec<String> = record.jobs.iter().map(|job| job.system.clone()).collect();
            series::write(out, &names, &record.series)?;
        }
    }
    match args.format {
        Format::Table => print!("{}", report::text(record)),
        Format::Json => println!("{json}"),
    }
    Ok(())
}

/// Signals that end a run. However many come, what was made is removed before this process ends.
struct Interruption {
    flag: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

impl Interruption {
    fn watch() -> Result<Self> {
        let this = Interruption { flag: Arc::default(), signal: Arc::default() };
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register_usize(signal, this.signal.clone(), signal as usize)
                .and_then(|_| signal_hook::flag::register(signal, this.flag.clone()))
                .context("cannot watch for signals")?;
        }
        Ok(this)
    }

    /// The one that came, if one has.
    fn signal(&self) -> Option<u8> {
        self.flag.load(Ordering::Relaxed).then(|| self.signal.load(Ordering::Relaxed) as u8)
    }
}

/// Where a run keeps the fabric's file and its processes' logs.
struct Folder {
    path: PathBuf,
    /// It is the user's.
    keep: bool,
}

impl Folder {
    fn make(wanted: Option<&Path>) -> Result<Self> {
        let temporary = || std::env::temp_dir().join(format!("fanin-testbed-{}", std::process::id()));
        let folder = Folder { path: wanted.map_or_else(temporary, Path::to_path_buf), keep: wanted.is_some() };
        fs::create_dir_all(&folder.path).with_context(|| format!("{} cannot be made", folder.path.display()))?;
        Ok(folder)
    }

    /// Removes it, unless it is the user's.
    fn discard(&self) {
        if !self.keep {
            // A folder left behind is no reason to fail.
            let _ = fs::remove_dir_all(&self.path);
        }
    }

    /// Removes it after a good run, and says where it is after a bad one.
    fn settle(&self, good: bool) {
        if good {
            self.discard();
        } else {
            eprintln!("the logs of all processes are in {}", self.path.display());
        }
    }
}
