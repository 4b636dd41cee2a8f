//! `fanin trace`: what went over the links of a simulated network, as a file for Wireshark.
//!
//! | module | what it holds |
//! |---|---|
//! | [`block`] | packets of one block, and a picture of its tree |
//! | [`dissector`] | what shows the packets' fields in Wireshark |
//! | [`frames`] | the frames that simulated packets would be |
//! | [`pcapng`] | the file |
//! | [`switch`] | the same of a switch's ports |

mod block;
mod dissector;
mod frames;
mod pcapng;
pub mod switch;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use fanin_core::units;
use fanin_core::{Duration, Instant};
use fanin_plan::units::bytes_text;
use fanin_plan::{Plan, Prepared, run};
use fanin_sim::JobSchedule;
use fanin_sim::trace::{Keep, TraceConfig};
use fanin_systems::AnyHeader;

use frames::Frames;
use pcapng::{Direction, PcapNg};

/// Write what goes over links of a simulated network to a file for Wireshark, tshark or scapy (pcapng).
///
/// The plan is run once, with real elements, until as many packets are there as are wanted. Each link is an interface of the file, each packet stands there at the simulated time at which it
/// has arrived at the link's far end. Packets of NetReduce are RoCEv2; those of other systems are what Fanin's processes send each other.
#[derive(Args, Clone, Debug)]
#[command(after_help = TRACE_HELP)]
pub struct TraceArgs {
    /// The plan.
    #[arg(required_unless_present = "dissector")]
    pub plan: Option<PathBuf>,
    /// The file.
    #[arg(long, value_name = "FILE.pcapng", required_unless_present = "dissector")]
    pub out: Option<PathBuf>,
    /// Writes a dissector for Wireshark and tshark, which shows the fields of all of Fanin's packets, and ends.
    #[arg(long, value_name = "FILE.lua", exclusive = true)]
    pub dissector: Option<PathBuf>,
    /// Only packets of this block, as they name it themselves (Canary's blocks, a tree's; of ATP and servers the fragment).
    #[arg(long, value_name = "N")]
    pub block: Option<u64>,
    /// With --block: of this job only, from 0 on; of all by default.
    #[arg(long, value_name = "N", requires = "block")]
    pub job: Option<u16>,
    /// With --block: draws the links that the block's contributions and sums took.
    #[arg(long, value_name = "FILE.svg", requires = "block")]
    pub picture: Option<PathBuf>,
    /// Which links, by their ends: host0-switch0 is from host 0 to the switch. All by default.
    #[arg(long, value_name = "FROM-TO,..", value_delimiter = ',')]
    pub links: Vec<String>,
    /// The most packets; the first ones are kept.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub packets: u32,
    /// From when on, in simulated time, as 10us.
    #[arg(long, value_name = "TIME", default_value = "0us", value_parser = time)]
    pub from: Duration,
    /// Until when. [default: the end]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub until: Option<Duration>,
    /// Which of the plan's runs, from 0 on, as `fanin sim --check` lists them.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub run: usize,
    /// Seed of the first repetition, in place of the plan's.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    pub seed: Option<u64>,
    /// Changes a value of the plan. May be given several times.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

const TRACE_HELP: &str = "\
Examples:
  fanin trace examples/loss.toml --out loss.pcapng --links host0-leaf0,leaf0-host0 --packets 500
  fanin trace plan.toml --set 'jobs.0.system=\"netreduce\"' --from 10us --until 20us --out netreduce.pcapng
  tshark -r netreduce.pcapng -Y infiniband
  fanin trace plan.toml --block 12 --picture tree.svg --out block.pcapng
  fanin trace --dissector fanin.lua && tshark -X lua_script:fanin.lua -r block.pcapng

What a running switch sees: fanin switch --transparent .. --trace FILE.";

/// A time of 0 or more.
fn time(text: &str) -> Result<Duration, String> {
    units::time_of(text).ok_or_else(|| format!("expected {}", units::TIME_EXPECTED))
}

/// Runs the command: 0 if all is well, 1 if the run failed or the file could not be written, 2 if the input is wrong.
pub fn run(args: &TraceArgs) -> ExitCode {
    if let Some(path) = &args.dissector {
        return match std::fs::write(path, dissector::lua()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {}: {error}", path.display());
                ExitCode::from(1)
            }
        };
    }
    let (Some(plan), Some(out)) = (&args.plan, &args.out) else { unreachable!("clap requires both") };
    if let Some(until) = args.until.filter(|until| *until < args.from) {
        return wrong(&format!("--until {until}: expected no time before --from {}", args.from));
    }
    let plan = match Plan::load(plan, &args.set, args.seed).and_then(|plan| plan.check_keys().map(|()| plan)) {
        Ok(plan) => plan,
        Err(error) => return wrong(&error),
    };
    let runs = run::runs(&plan);
    let Some(&(point, repetition)) = runs.get(args.run) else {
        return wrong(&format!("--run {}: expected 0 to {}, the plan's runs", args.run, runs.len() - 1));
    };
    let prepared = match plan.prepare(&plan.points[point], repetition) {
        Ok(prepared) => prepared,
        Err(error) => return wrong(&error),
    };
    if let Some(error) = too_large(&prepared) {
        return wrong(&error);
    }
    let links = match chosen(&prepared, &args.links) {
        Ok(links) => links,
        Err(error) => return wrong(&error),
    };
    let keep = match args.block.map_or_else(|| Ok(Keep::all()), |block| block::keep(&prepared, block, args.job)) {
        Ok(keep) => keep,
        Err(error) => return wrong(&error),
    };
    match write(args, out, &prepared, &links, keep) {
        Ok(good) => ExitCode::from(if good { 0 } else { 1 }),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(1)
        }
    }
}

fn wrong(error: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::from(2)
}

/// Memory for vectors, inputs and outputs, in bytes at most.
const VECTOR_BYTES_MAX: u64 = 1 << 30;

/// Real elements take real memory.
fn too_large(prepared: &Prepared) -> Option<String> {
    let of_job = |job: &JobSchedule| {
        let longest = job.elements.iter().max().copied().unwrap_or(0);
        longest.saturating_mul(u64::from(job.element_bytes)).saturating_mul(2 * job.start.len() as u64)
    };
    let bytes = prepared.scenario.jobs.iter().map(of_job).fold(0, u64::saturating_add);
    let words = || format!("vectors of {}: expected at most {} of all workers", bytes_text(bytes), bytes_text(VECTOR_BYTES_MAX));
    (bytes > VECTOR_BYTES_MAX)
        .then(|| format!("{}, since elements are real here; shorter messages do, as --set jobs.0.message=64KiB", words()))
}

/// A link's name.
fn name(prepared: &Prepared, link: u32) -> String {
    let cable = &prepared.topology.links[link as usize];
    format!("{}-{}", prepared.topology.name(cable.from), prepared.topology.name(cable.to))
}

/// Numbers of links by their names; parallel ones have one name.
fn chosen(prepared: &Prepared, names: &[String]) -> Result<Vec<u32>, String> {
    let all = 0..prepared.topology.links.len() as u32;
    if names.is_empty() {
        return Ok(all.collect());
    }
    let mut numbers: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    all.for_each(|link| numbers.entry(name(prepared, link)).or_default().push(link));
    let mut links = Vec::new();
    for name in names {
        let found = numbers.get(name).ok_or_else(|| {
            let some: Vec<&str> = numbers.keys().take(4).map(String::as_str).collect();
            format!("--links {name}: expected the two ends of a link, as {}", some.join(", "))
        })?;
        links.extend(found);
    }
    links.sort_unstable();
    links.dedup();
    Ok(links)
}

/// Whether the run ended well.
fn write(args: &TraceArgs, out: &Path, prepared: &Prepared, links: &[u32], keep: Keep<AnyHeader>) -> Result<bool> {
    let names: Vec<String> = links.iter().map(|&link| name(prepared, link)).collect();
    // Before the run: a file that cannot be written should not cost its time.
    let mut file = PcapNg::create(out, &names)?;
    let config = TraceConfig {
        links: Some(links.to_vec()),
        packets_max: args.packets as usize,
        from: Instant::ZERO + args.from,
        until: args.until.map_or(Instant::from_ps(u64::MAX), |until| Instant::ZERO + until),
    };
    let (result, trace) = run::traced(prepared, config, keep)?;
    let mut frames = Frames::new(prepared);
    for packet in &trace.packets {
        let interface = links.binary_search(&packet.link).expect("no other links are looked at");
        file.add(interface, packet.at.as_ps() / 1_000, Direction::In, &frames.frame(packet))?;
    }
    file.finish()?;
    if let (Some(path), Some(number)) = (&args.picture, args.block) {
        block::draw(path, prepared, number, &trace.packets)?;
    }
    let end = if trace.is_full { "; the run was ended there" } else { "" };
    println!("{} packets of {} links in {}{end}", trace.packets.len(), links.len(), out.display());
    Ok(result.verdict.wrong == 0)
}
