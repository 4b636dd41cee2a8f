//! `fanin testbed`: a workload on a fabric of real switch and host processes on this machine.

mod args;
mod chaos;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Context, Result};
use fanin_fabric::Fabric;
use fanin_testbed::place::Place;
use fanin_testbed::report;
use fanin_testbed::results::Record;
use fanin_testbed::run::{self as testbed, Folder, Means};
use fanin_testbed::workload::Workload;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use args::Format;
pub use args::TestbedArgs;
pub use chaos::run_rank;

/// Runs a workload. The exit code says how it came out: see `fanin testbed --help`.
pub fn run(args: &TestbedArgs) -> ExitCode {
    match (&args.fabric, &args.workload) {
        (Some(fabric), Some(workload)) => run_workload(args, fabric, workload),
        // The arguments say that there are both unless there is chaos.
        _ => run_chaos(args),
    }
}

fn run_chaos(args: &TestbedArgs) -> ExitCode {
    let scenario = match chaos::scenario(&args.chaos) {
        Ok(scenario) => scenario,
        Err(error) => return failed(&error, 2),
    };
    if args.check {
        return chaos::print_scenario(scenario).map_or_else(|error| failed(&error, 1), |()| ExitCode::SUCCESS);
    }
    let (interruption, folder) = match Interruption::watch().and_then(|watch| Ok((watch, Folder::make(args.logs.as_deref())?))) {
        Ok(made) => made,
        Err(error) => return failed(&error, 2),
    };
    let result = chaos::perform(args, scenario, folder.path(), &interruption.flag);
    let code = match &result {
        Ok(summary) if summary.findings.is_empty() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(1),
        Err(error) => failed(error, 1),
    };
    if code == ExitCode::SUCCESS {
        folder.discard();
    }
    interruption.signal().map_or(code, |signal| ExitCode::from(128 + signal))
}

fn run_workload(args: &TestbedArgs, fabric_file: &Path, workload_file: &Path) -> ExitCode {
    let read = Fabric::load(fabric_file).and_then(|fabric| Ok((Workload::load(workload_file, &args.set, &fabric)?, fabric)));
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
    let (place, fabric) = match Place::make(args.place.into(), fabric) {
        Ok(made) => made,
        Err(error) => return failed(&error, 2),
    };
    let result = perform(&workload, &fabric, &place, folder.path(), &interruption.flag).map(|record| Record {
        fabric: fabric_file.display().to_string(),
        workload: workload_file.display().to_string(),
        sets: args.set.clone(),
        ..record
    });
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
    settle(&folder, code == ExitCode::SUCCESS);
    code
}

fn failed(error: &anyhow::Error, code: u8) -> ExitCode {
    eprintln!("error: {error:#}");
    ExitCode::from(code)
}

fn perform(workload: &Workload, fabric: &Fabric, place: &Place, folder: &Path, interrupted: &AtomicBool) -> Result<Record> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    testbed::run(workload, fabric, place, &Means { program: &program, folder, interrupted })
}

fn print(args: &TestbedArgs, record: &Record) -> Result<()> {
    if let Some(out) = &args.out {
        testbed::write(out, record)?;
    }
    match args.format {
        Format::Table => print!("{}", report::text(record)),
        Format::Json => println!("{}", serde_json::to_string_pretty(record)?),
    }
    Ok(())
}

/// Removes the folder after a good run, and says where it is after a bad one.
fn settle(folder: &Folder, good: bool) {
    if good {
        folder.discard();
    } else {
        eprintln!("the logs of all processes are in {}", folder.path().display());
    }
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
