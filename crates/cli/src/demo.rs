//! `fanin demo`: an allreduce between real processes on this machine, checked element by element.
//!
//! This process starts the others, tells each who its peers are, and collects what they measured. It carries no packets.
//!
//! | module | what it holds |
//! |---|---|
//! | [`args`] | what the user can ask for |
//! | [`system`] | which systems there are |
//! | [`fabric`] | the switches of `--fabric` |
//! | [`messages`] | what passes between this process and its children, as JSON lines |
//! | [`child`] | a worker or switch process |
//! | [`crew`] | the child processes seen from here |
//! | [`nodes`] | which nodes the systems consist of, and how they are joined, where workers have no communicators |
//! | [`view`] | what is shown while it runs |
//! | [`report`] | what is printed at the end |

mod args;
mod child;
mod crew;
mod fabric;
mod messages;
mod nodes;
mod report;
mod system;
mod view;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGINT, SIGTERM};

pub use args::{DemoArgs, DemoFormat, parse_probability};
pub use child::{NodeArgs, run as run_node};
use crew::{Crew, Lost};
use fabric::DemoFabric;
use messages::{Ended, Order, PathFacts, Report, Setup};
use report::{Iteration, Summary};
use view::Phase;

/// Runs the demo.
///
/// # Errors
/// Where a process cannot be started, a worker dies or fails, or a sum is wrong. With `--kill` it is an error if a survivor
/// neither has all sums nor names the worker that was killed.
pub fn run(args: &DemoArgs) -> Result<()> {
    args.check()?;
    let interruption = Interruption::watch()?;
    let fabric = args.fabric.as_deref().map(|what| DemoFabric::make(what, args.workers)).transpose()?;
    let plan = Setup { fabric, ..setup(args)? };
    let mut crew = Crew::start(args, others(&plan), &interruption.flag)?;
    let summary = conduct(args, &plan, &mut crew);
    crew.view.close();
    crew.dismiss();
    interruption.obey();
    let summary = summary?;
    match args.format {
        DemoFormat::Table => print!("{}", summary.table(args)),
        DemoFormat::Json => println!("{}", summary.json(args)?),
    }
    summary.verdict(args)
}

/// Ctrl-C and SIGTERM. The first one ends the demo in order, the second one at once; the children notice that and end as well.
struct Interruption {
    flag: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

impl Interruption {
    fn watch() -> Result<Self> {
        let this = Interruption { flag: Arc::default(), signal: Arc::default() };
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, this.flag.clone())
                .and_then(|_| signal_hook::flag::register_usize(signal, this.signal.clone(), signal as usize))
                .and_then(|_| signal_hook::flag::register(signal, this.flag.clone()))
                .context("cannot watch for signals")?;
        }
        Ok(this)
    }

    /// Ends this process, as shells expect it, if it was told to.
    fn obey(&self) {
        if self.flag.load(Ordering::Relaxed) {
            eprintln!("interrupted; all processes of the demo have ended");
            fanin_terminal::output::leave(128 + self.signal.load(Ordering::Relaxed) as i32);
        }
    }
}

/// The processes beside the workers, by name.
fn others(plan: &Setup) -> Vec<String> {
    match &plan.fabric {
        Some(fabric) => fabric.switches.iter().cloned().chain(["the manager".to_string()]).collect(),
        None => (0..nodes::switches(&plan.system)).map(|_| "the switch".to_string()).collect(),
    }
}

/// What every process is told, beside its number and the fabric.
fn setup(args: &DemoArgs) -> Result<Setup> {
    Ok(Setup {
        system: args.system()?,
        fabric: None,
        number: 0,
        workers: args.workers,
        elements: args.size / 4,
        way: args.way(),
        payload_bytes: args.payload.or(args.fabric.is_none().then_some(nodes::PAYLOAD_BYTES_DEFAULT)),
        window: args.window,
        patience_ms: (args.patience * 1e3) as u64,
        seed: args.seed,
        loss: args.loss,
        duplicate: args.duplicate,
        reorder: args.reorder,
        corrupt: args.corrupt,
    })
}

/// Leads all processes through the iterations.
fn conduct(args: &DemoArgs, plan: &Setup, crew: &mut Crew) -> Result<Summary> {
    crew.order_all(|number| Order::Setup(Setup { number, ..plan.clone() }))?;
    let mut addresses = vec![None; crew.len()];
    crew.collect_all(|number, report| match report {
        Report::Bound { address } => {
            addresses[number as usize] = address;
            Ok(())
        }
        other => bail!("unexpected {other:?}"),
    })?;
    let sockets: Vec<_> = addresses.into_iter().flatten().collect();
    crew.order_all(|_| Order::Peers { sockets: sockets.clone() })?;
    let mut paths = Vec::new();
    crew.collect_all(|_, report| match report {
        Report::Ready { path } => {
            paths.extend(path);
            Ok(())
        }
        other => bail!("unexpected {other:?}"),
    })?;
    let path = common_path(paths);
    crew.view.travels(&path.text);

    let mut iterations = Vec::new();
    for number in 0..args.iterations {
        let iteration = iterate(args, crew, number, kill_delay(args, &iterations))?;
        let failed = iteration.ended.iter().any(|ended| !matches!(ended, Some(Ended::Done))) || !iteration.lost.is_empty();
        iterations.push(iteration);
        if failed {
            break;
        }
    }
    // A worker that was killed only after it had contributed everything is missed in the next operation.
    if args.kill.is_some() && iterations.iter().all(|iteration| iteration.survivors_done()) {
        iterations.push(iterate(args, crew, args.iterations, None)?);
    }
    let mut summary = Summary { system: plan.system.name().to_string(), iterations, path, statistics: vec![None; crew.len()] };
    crew.end(|number, report| {
        if let Report::Statistics(statistics) = report {
            summary.statistics[number as usize] = Some(statistics);
        }
        Ok(())
    })?;
    Ok(summary)
}

/// How vectors travel: as the first worker says that sends packets, with the smallest of all buffers.
fn common_path(paths: Vec<PathFacts>) -> PathFacts {
    let smallest = paths.iter().filter_map(|path| path.receive_buffer_bytes).min();
    let sends = paths.iter().position(|path| path.payload_bytes.is_some()).unwrap_or(0);
    PathFacts { receive_buffer_bytes: smallest, ..paths.into_iter().nth(sends).unwrap_or_default() }
}

/// When the worker is killed in the next iteration, if it is: half-way through the second one, by the time that the first one took.
fn kill_delay(args: &DemoArgs, before: &[Iteration]) -> Option<(u32, Duration)> {
    let rank = args.kill?;
    match before {
        [] if args.iterations == 1 => Some((rank, Duration::from_millis(5))),
        [first] => Some((rank, Duration::from_secs_f64(first.slowest_s().unwrap_or(0.0) / 2.0))),
        _ => None,
    }
}

/// One operation: inputs are made, the operation runs, outputs are checked; the three never overlap, so that only the operation is
/// timed.
fn iterate(args: &DemoArgs, crew: &mut Crew, number: u32, kill: Option<(u32, Duration)>) -> Result<Iteration> {
    let mut iteration = Iteration::new(number, args.workers);
    crew.view.begin(number);
    crew.order_workers(|_| Order::Prepare { iteration: number })?;
    crew.collect_workers(|_, report| if matches!(report, Report::Prepared) { Ok(()) } else { bail!("unexpected {report:?}") })?;
    crew.view.phase(Phase::Summing);
    crew.order_workers(|_| Order::Run)?;
    if let Some((rank, delay)) = kill {
        std::thread::sleep(delay);
        crew.kill(rank)?;
    }
    crew.collect_workers(|rank, report| match report {
        Report::Finished { seconds, cpu_seconds, ended } => {
            iteration.finish(rank, seconds, cpu_seconds, ended);
            Ok(())
        }
        other => bail!("unexpected {other:?}"),
    })?;
    crew.view.finished(&iteration);
    iteration.lost = crew.lost().iter().map(Lost::to_string).collect();
    let done: Vec<bool> = iteration.ended.iter().map(|ended| *ended == Some(Ended::Done)).collect();
    crew.ask_some(&done, &Order::Verify, |rank, report| match report {
        Report::Verified { wrong, first_wrong } => {
            iteration.verify(rank, wrong, first_wrong);
            Ok(())
        }
        other => bail!("unexpected {other:?}"),
    })?;
    Ok(iteration)
}
