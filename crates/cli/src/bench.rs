//! `fanin bench sim`: how fast the simulator is on this machine, in packet-hops (packets leaving a transmitter) per second of processor
//! time, on one thread. Neighbours' load disturbs such rates, so the best of several repetitions counts; events per hop do not change, and
//! instructions per hop, where the processor's counters can be read, hardly do.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use comfy_table::{CellAlignment, Table};
use fanin_core::{Census, Length};
use fanin_plan::{Plan, Point, Prepared};
use fanin_repro::catalog::Catalog;
use fanin_sim::vectors::Simulated;
use fanin_sim::workloads::{Nobody, w1};
use fanin_sim::{RunResult, Simulation, Topology};
use fanin_simulation::{AnySimulation, Runs};
use perf_event::events::Hardware;
use perf_event::{Builder, Counter};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// Measure the simulator: workload W1 (1024 hosts, a permutation of 1 MiB a host, random spines), the cell of Canary's Fig. 8 in which
/// 512 hosts reduce and 512 send to each other (lossless, 4 MiB), and allreduces over 1024 hosts.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct BenchArgs {
    /// How to print the result.
    #[arg(long, value_enum, default_value_t = BenchFormat::Table)]
    pub format: BenchFormat,
    /// Each measurement is made so often; the fastest counts.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub repetitions: u32,
    /// Measure only this workload.
    #[arg(long, value_name = "WORKLOAD", value_parser = ["w1", "fig08", "ring", "tree"])]
    pub only: Option<String>,
    /// Measure only with this payload.
    #[arg(long, value_parser = ["length", "census"])]
    pub payload: Option<String>,
    /// Packets of 1 KiB that each host sends in W1. The difference between a longer and a shorter run is free of set-up.
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub packets: u64,
    /// Bytes that each of the 512 hosts reduces in fig08.
    #[arg(long, value_name = "SIZE", default_value = "4MiB")]
    pub message: String,
}

const AFTER_HELP: &str = "\
Instructions are counted where the kernel lets a process read its own counters (kernel.perf_event_paranoid at most 2, and a
machine that has them). Where it does not, a simulator of processors counts them, set-up included:
  valgrind --tool=callgrind fanin bench sim --only fig08 --payload census --repetitions 1";

impl BenchArgs {
    fn wants(&self, name: &str, payload: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == name) && self.payload.as_deref().is_none_or(|only| only == payload)
    }
}

/// Output formats.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum BenchFormat {
    /// For people.
    Table,
    /// An array with an object a measurement.
    Json,
}

/// One measurement.
#[derive(Clone, Debug, Serialize)]
struct Measurement {
    name: &'static str,
    payload: &'static str,
    packet_hops: u64,
    events: u64,
    events_per_hop: f64,
    /// Of the processor, outside of the kernel; absent where they cannot be counted.
    instructions: Option<u64>,
    instructions_per_hop: Option<f64>,
    cpu_s: f64,
    packet_hops_per_cpu_s: f64,
    wall_s: f64,
}

/// An allreduce over all 1024 hosts of W1's network.
const COLLECTIVE: &str = r#"
[network]
shape = "fat-tree"
leaves = 32
hosts_per_leaf = 32
spines = 32
rate = "100Gb/s"
latency = "300ns"
routing = "random"

[[jobs]]
system = "tree"
workers = 1024
placement = "packed"
message = "1MiB"
"#;

/// Runs the command.
///
/// # Errors
/// Where a run goes wrong, which would make its speed worthless.
pub fn run(args: &BenchArgs) -> Result<()> {
    let mut measurements = Vec::new();
    measurements.extend(fastest(args, "w1", "length", || workload::<Length>(args.packets))?);
    measurements.extend(fastest(args, "w1", "census", || workload::<Census>(args.packets))?);
    if args.wants("fig08", "length") || args.wants("fig08", "census") {
        let prepared = fig08(&args.message)?;
        measurements.extend(fastest(args, "fig08", "length", || collective::<Length>(&prepared))?);
        measurements.extend(fastest(args, "fig08", "census", || collective::<Census>(&prepared))?);
    }
    for (name, sets) in [("ring", ["jobs.0.system=ring"]), ("tree", ["jobs.0.trees=4"])] {
        let sets: Vec<String> = sets.iter().map(|set| set.to_string()).collect();
        let plan = Plan::parse("bench", COLLECTIVE, &sets, None)?;
        let prepared = plan.prepare(&plan.points[0], 0)?;
        measurements.extend(fastest(args, name, "length", || collective::<Length>(&prepared))?);
        measurements.extend(fastest(args, name, "census", || collective::<Census>(&prepared))?);
    }
    let mut out = io::stdout().lock();
    match args.format {
        BenchFormat::Table => writeln!(out, "{}", table(args, &measurements)),
        BenchFormat::Json => writeln!(out, "{}", serde_json::to_string_pretty(&measurements)?),
    }
    .context("standard output")
}

/// Builds the simulation of W1 with so many packets a host, to be run.
fn workload<P: Simulated + ?Sized>(packets: u64) -> Result<Simulation<Nobody, P>> {
    let mut scenario = w1(1);
    for traffic in &mut scenario.traffic {
        traffic.message_bytes = packets * u64::from(traffic.payload_bytes);
    }
    let topology = Topology::new(&scenario.network.shape)?;
    Ok(Simulation::new(topology, scenario, Vec::new(), &[])?)
}

/// The congested cell of Canary's Fig. 8 with half of the hosts: the plan's network and traffic, the series "Canary".
fn fig08(message: &str) -> Result<Prepared> {
    let figure = Catalog::Embedded.figure("canary", "fig08")?;
    let sets = ["jobs.0.workers=50%", &format!("jobs.0.message={message}")].map(str::to_string);
    let plan = Plan::parse(&figure.file("plan.toml"), &figure.plan, &sets, None)?;
    let wanted = |point: &&Point| ["Canary", "congested"].iter().all(|name| point.labels.iter().any(|label| label == name));
    let point = plan.points.iter().find(wanted).context("the plan of Fig. 8 has no congested run of Canary")?;
    Ok(plan.prepare(point, 0)?)
}

/// Builds the simulation of an allreduce, to be run.
fn collective<P: Simulated<Op = ()> + ?Sized>(prepared: &Prepared) -> Result<Collective<P>> {
    let nodes = prepared.nodes::<P>(|_| ())?;
    Ok(Collective(Simulation::new(Arc::clone(&prepared.topology), prepared.scenario.clone(), nodes, &[()])?))
}

/// The simulation of an allreduce.
struct Collective<P: Simulated + ?Sized>(AnySimulation<P>);

/// A simulation, whatever its nodes and payload.
trait Finish {
    fn finish(self) -> RunResult;
}

impl<P: Simulated + ?Sized> Finish for Simulation<Nobody, P>
where
    Nobody: fanin_core::Worker<P>,
    <Nobody as fanin_core::Node<P>>::Header: fanin_core::Wire + Default,
{
    fn finish(self) -> RunResult {
        self.run()
    }
}

impl<P: Runs + ?Sized> Finish for Collective<P> {
    fn finish(self) -> RunResult {
        P::run(self.0)
    }
}

/// The fastest of several runs, if the measurement is wanted; building the simulation is not counted.
fn fastest<R: Finish>(
    args: &BenchArgs,
    name: &'static str,
    payload: &'static str,
    build: impl Fn() -> Result<R>,
) -> Result<Option<Measurement>> {
    if !args.wants(name, payload) {
        return Ok(None);
    }
    let mut best: Option<Measurement> = None;
    for _ in 0..args.repetitions {
        let simulation = build()?;
        let counter = instructions();
        let (wall, cpu) = (Instant::now(), cpu_s());
        let result = simulation.finish();
        let (cpu_s, wall_s) = (cpu_s() - cpu, wall.elapsed().as_secs_f64());
        let instructions = counter.and_then(counted);
        ensure!(result.verdict.wrong == 0 && result.broken.is_empty(), "{name} with {payload} went wrong: {:?}", result.verdict);
        ensure!(result.jobs.iter().all(fanin_sim::JobResult::is_complete), "{name} with {payload} did not complete: {:?}", result.ended);
        let measurement = Measurement {
            name,
            payload,
            packet_hops: result.packet_hops,
            events: result.events,
            events_per_hop: result.events as f64 / result.packet_hops as f64,
            instructions,
            instructions_per_hop: instructions.map(|count| count as f64 / result.packet_hops as f64),
            cpu_s,
            packet_hops_per_cpu_s: result.packet_hops as f64 / cpu_s,
            wall_s,
        };
        if best.as_ref().is_none_or(|best| measurement.cpu_s < best.cpu_s) {
            best = Some(measurement);
        }
    }
    best.map(Some).context("no repetition")
}

/// A running counter of this thread's instructions; `None` where there is none, or it may not be read.
fn instructions() -> Option<Counter> {
    let mut counter = Builder::new(Hardware::INSTRUCTIONS).build().ok()?;
    counter.enable().ok()?;
    Some(counter)
}

/// What a counter says, unless the processor had no time for it.
fn counted(mut counter: Counter) -> Option<u64> {
    counter.disable().ok()?;
    counter.read().ok().filter(|count| *count > 0)
}

/// Processor time of this process so far.
fn cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn table(args: &BenchArgs, measurements: &[Measurement]) -> String {
    let mut table = Table::new();
    table.load_style(fanin_pictures::table::STYLE);
    table.set_header([
        "workload",
        "payload",
        "packet-hops",
        "events per hop",
        "instructions per hop",
        "CPU (s)",
        "M packet-hops per CPU-second",
    ]);
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for measured in measurements {
        table.add_row([
            measured.name.to_string(),
            measured.payload.to_string(),
            measured.packet_hops.to_string(),
            format!("{:.2}", measured.events_per_hop),
            measured.instructions_per_hop.map_or_else(|| "not available".to_string(), |count| format!("{count:.0}")),
            format!("{:.3}", measured.cpu_s),
            format!("{:.2}", measured.packet_hops_per_cpu_s / 1e6),
        ]);
    }
    format!("The fastest of {} on one thread:\n{table}", args.repetitions)
}
