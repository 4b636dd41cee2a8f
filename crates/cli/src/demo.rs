//! `fanin demo`: an allreduce between real processes on this machine, checked element by element.
//!
//! This process starts the others, tells each who its peers are, and collects what they measured. It carries no packets.
//!
//! | module | what it holds |
//! |---|---|
//! | [`messages`] | what passes between this process and its children, as JSON lines |
//! | [`child`] | a worker or switch process |
//! | [`crew`] | the child processes seen from here |
//! | [`nodes`] | which nodes the systems consist of, and how they are joined |
//! | [`vectors`] | the inputs, and the sums that they must give |
//! | [`report`] | what is printed |

mod child;
mod crew;
mod messages;
mod nodes;
mod report;
mod vectors;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use signal_hook::consts::{SIGINT, SIGTERM};

pub use child::{NodeArgs, run as run_node};
use crew::{Crew, Lost};
use messages::{Ended, Order, Report, Setup};
use report::{Iteration, Summary};

/// Allreduce real tensors between real processes on this machine, over UDP on loopback.
///
/// Starts a switch process and worker processes, sums vectors of float32 over them, compares every element of every worker with an
/// independently computed sum, and prints the goodput (size of the vector / time of the slowest worker).
#[derive(Args, Clone, Debug)]
pub struct DemoArgs {
    /// The system that does it.
    #[arg(long, value_enum, default_value_t = DemoSystem::Tree)]
    pub system: DemoSystem,
    /// Number of worker processes.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub workers: u32,
    /// Length of the vector, a multiple of 4 bytes: `64MiB`, `100kB`, `4`, `0`.
    #[arg(long, default_value = "64MiB", value_parser = parse_size)]
    pub size: u64,
    /// How many operations are run one after the other.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub iterations: u32,
    /// Probability that an outgoing packet is lost.
    #[arg(long, default_value_t = 0.0, value_parser = parse_probability)]
    pub loss: f64,
    /// Probability that an outgoing packet is sent twice.
    #[arg(long, default_value_t = 0.0, value_parser = parse_probability)]
    pub duplicate: f64,
    /// Probability that an outgoing packet is held back and overtaken.
    #[arg(long, default_value_t = 0.0, value_parser = parse_probability)]
    pub reorder: f64,
    /// Probability that an outgoing packet is damaged, and so discarded at the receiver.
    #[arg(long, default_value_t = 0.0, value_parser = parse_probability)]
    pub corrupt: f64,
    /// Seed of the vectors and of the injected faults.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Elements per packet, in bytes, a multiple of 4.
    #[arg(long, default_value_t = nodes::PAYLOAD_BYTES_DEFAULT, value_parser = parse_payload)]
    pub payload: u32,
    /// Packets of a worker that may be on their way at once.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub window: Option<u32>,
    /// Kill this worker in the middle of a run, to see what the others say.
    #[arg(long, value_name = "RANK")]
    pub kill: Option<u32>,
    /// Seconds without progress after which an operation is given up.
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0, value_parser = parse_patience)]
    pub patience: f64,
    /// How to print the result.
    #[arg(long, value_enum, default_value_t = DemoFormat::Table)]
    pub format: DemoFormat,
}

/// The systems that the demo can run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DemoSystem {
    /// Sums are computed by a switch process.
    Tree,
    /// Workers in a ring; no switch.
    Ring,
    /// Sums are computed by a switch process with a pool of slots.
    #[value(name = "switchml")]
    SwitchMl,
}

impl DemoSystem {
    /// The name in results.
    pub const fn name(self) -> &'static str {
        match self {
            DemoSystem::Tree => "tree",
            DemoSystem::Ring => "ring",
            DemoSystem::SwitchMl => "switchml",
        }
    }
}

/// Output formats.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum DemoFormat {
    /// For people.
    Table,
    /// One JSON object.
    Json,
}

/// Reads a number of bytes of float32 with an optional unit.
fn parse_size(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    if bytes % 4 != 0 {
        return Err(format!("{bytes} bytes are not a whole number of float32 elements (4 bytes each)"));
    }
    Ok(bytes)
}

/// Reads a number of bytes with an optional unit.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 8] = [
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("kB", 1_000),
        ("KB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("B", 1),
    ];
    let (digits, factor) = UNITS.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor))).unwrap_or((text, 1));
    let number: u64 = digits.trim().parse().map_err(|_| "expected a whole number of bytes, as in 64MiB, 100kB or 4096".to_string())?;
    Ok(number.checked_mul(factor).filter(|bytes| *bytes <= 16 << 30).ok_or("larger than 16 GiB")?)
}

/// Reads a probability.
fn parse_probability(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "expected a number between 0 and 1".to_string())?;
    if (0.0..1.0).contains(&value) { Ok(value) } else { Err("expected a probability of at least 0 and less than 1".into()) }
}

/// Reads a payload length.
fn parse_payload(text: &str) -> Result<u32, String> {
    let bytes = parse_size(text)?;
    let max = u64::from(nodes::PAYLOAD_BYTES_MAX);
    if (4..=max).contains(&bytes) {
        Ok(bytes as u32)
    } else {
        Err(format!("a packet holds at least 4 and at most {max} bytes of elements"))
    }
}

/// Reads a time in seconds.
fn parse_patience(text: &str) -> Result<f64, String> {
    let value: f64 = text.trim_end_matches('s').parse().map_err(|_| "expected a number of seconds".to_string())?;
    if (0.01..=3_600.0).contains(&value) { Ok(value) } else { Err("expected between 0.01 and 3600 seconds".into()) }
}

/// Runs the demo.
///
/// # Errors
/// Where a process cannot be started, a worker dies or fails, or a sum is wrong. With `--kill` it is an error if a survivor
/// neither has all sums nor names the worker that was killed.
pub fn run(args: &DemoArgs) -> Result<()> {
    if let Some(rank) = args.kill {
        ensure!(rank < args.workers, "--kill {rank}: there are only workers 0 to {}", args.workers - 1);
        ensure!(args.workers > 1, "--kill: nobody is left to notice");
    }
    let interruption = Interruption::watch()?;
    let mut crew = Crew::start(args, &interruption.flag)?;
    let summary = conduct(args, &mut crew);
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
            std::process::exit(128 + self.signal.load(Ordering::Relaxed) as i32);
        }
    }
}

/// What every worker process is told.
fn setup(args: &DemoArgs, number: u32) -> Setup {
    Setup {
        system: args.system,
        number,
        workers: args.workers,
        elements: args.size / 4,
        payload_bytes: args.payload,
        window: args.window,
        patience_ms: (args.patience * 1e3) as u64,
        seed: args.seed,
        loss: args.loss,
        duplicate: args.duplicate,
        reorder: args.reorder,
        corrupt: args.corrupt,
    }
}

/// Leads all processes through the iterations.
fn conduct(args: &DemoArgs, crew: &mut Crew) -> Result<Summary> {
    crew.order_all(|number| Order::Setup(setup(args, number)))?;
    let mut addresses = vec![None; crew.len()];
    let mut receive_buffer_bytes = u64::MAX;
    crew.collect_all(|number, report| match report {
        Report::Bound { address, receive_buffer_bytes: bytes } => {
            addresses[number as usize] = Some(address);
            receive_buffer_bytes = receive_buffer_bytes.min(bytes);
            Ok(())
        }
        other => bail!("unexpected {other:?}"),
    })?;
    let sockets: Vec<_> = addresses.into_iter().flatten().collect();
    crew.order_all(|_| Order::Peers { sockets: sockets.clone() })?;
    crew.collect_all(|_, report| if matches!(report, Report::Ready) { Ok(()) } else { bail!("unexpected {report:?}") })?;

    let mut iterations = Vec::new();
    for number in 0..args.iterations {
        let iteration = iterate(args, crew, number, kill_delay(args, &iterations))?;
        let failed = iteration.ended.iter().any(|ended| !matches!(ended, Some(Ended::Done)));
        iterations.push(iteration);
        if failed {
            break;
        }
    }
    // A worker that was killed only after it had contributed everything is missed in the next operation.
    if args.kill.is_some() && iterations.iter().all(|iteration| iteration.survivors_done()) {
        iterations.push(iterate(args, crew, args.iterations, None)?);
    }
    let mut summary = Summary { iterations, receive_buffer_bytes, statistics: vec![None; crew.len()] };
    crew.order_all(|_| Order::End)?;
    crew.collect(Duration::from_secs(10), |number, report| {
        if let Report::Statistics(statistics) = report {
            summary.statistics[number as usize] = Some(statistics);
        }
        Ok(())
    })?;
    Ok(summary)
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
    crew.order_workers(|_| Order::Prepare { iteration: number })?;
    crew.collect_workers(|_, report| if matches!(report, Report::Prepared) { Ok(()) } else { bail!("unexpected {report:?}") })?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_units_and_refused_with_a_reason() {
        assert_eq!(parse_size("64MiB"), Ok(64 << 20));
        assert_eq!(parse_size("100kB"), Ok(100_000));
        assert_eq!(parse_size("0"), Ok(0));
        assert!(parse_size("5").unwrap_err().contains("whole number of float32"));
        assert!(parse_size("64 parsecs").unwrap_err().contains("64MiB"));
        assert!(parse_size("99999999GiB").is_err() && parse_size("99999999999999999999GiB").is_err());
        assert!(parse_payload("70000").unwrap_err().contains("at most"));
        assert!(parse_probability("1.5").is_err() && parse_probability("NaN").is_err());
        assert_eq!(parse_patience("2s"), Ok(2.0));
    }
}
