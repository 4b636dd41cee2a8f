//! The `fanin` program as a library: arguments, what is printed, exit codes. What the commands do is in crates of their own.
//!
//! A program with systems of its own has the same commands by calling [`run`] from its `main`. Some commands start more processes of the
//! program that they are in, so such a program must pass its arguments on as they are.
//!
//! | module | what it holds |
//! |---|---|
//! | `quantities` | durations and sizes on the command line |
//! | `trace` | `fanin trace`: what goes over simulated links, for Wireshark |
//! | `compare` | `fanin compare`: two results side by side |
//! | `pdf` | figures of papers as PDF |
//! | `repro` | `fanin repro`: results held against what a paper says |
//! | `model` | `fanin model`: formulas of papers, as tables |
//! | `generate` | `fanin workload`: training steps of published models |
//! | `import` | `fanin import`: traces and workloads of other tools |
//! | `workload` | workloads for people |
//! | `planner` | `fanin plan`: which switches to replace next |
//! | `bench` | `fanin bench sim`: the simulator's own speed |
//! | `allreduce` | `fanin bench allreduce`: collectives between processes |
//! | `stream` | `fanin bench stream`: sums inside TCP connections, and what they are measured against |
//! | `link` | `fanin bench link`: what a link carries, the yardstick for collectives over it |
//! | `operator` | `fanin operator`: reductions of one's own, checked and measured |
//! | `switch` | `fanin switch`: the software switch as a service |
//! | `manager` | `fanin manager`: where ranks meet that are hosts of a fabric |
//! | `fabric_worker` | `fanin fabric-worker`: the process of one host of a fabric |
//! | `demo` | `fanin demo`: real processes on this machine |
//! | `testbed` | `fanin testbed`: a workload on a fabric of real switch and host processes |
//! | `token`, `tls` | `fanin token`, `fanin tls`: tokens and certificates |
//! | `doctor` | `fanin doctor`: what is wrong here, and what mends it |
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(unexpected_cfgs, reason = "a fuzzer sets the cfg `fuzzing`"))]

#[macro_use(eprintln, print, println)]
extern crate fanin_terminal;

mod advise;
mod allreduce;
mod bench;
mod check;
mod compare;
mod demo;
mod doctor;
mod fabric_worker;
mod generate;
mod import;
mod link;
mod manager;
mod model;
mod operator;
mod pdf;
mod planner;
mod quantities;
mod repro;
mod stream;
mod switch;
mod testbed;
mod tls;
mod token;
mod top;
mod trace;
mod workload;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use fanin_simulate::{examples, sim};
use fanin_terminal::log::{self, LogFormat};
use fanin_terminal::output;

/// In-network aggregation: allreduce whose sums are computed on the way, simulated and for real.
#[derive(Parser, Debug)]
#[command(name = "fanin", version, max_term_width = 110, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  fanin sim --example quickstart
  fanin sim examples/quickstart.toml --out out/quickstart
  fanin sim examples/quickstart.toml --set jobs.0.message=1MiB --set run.repetitions=1
  fanin compare out/before out/after
  fanin trace examples/loss.toml --out loss.pcapng
  fanin repro canary --quick --out out/canary
  fanin model a2tp --flows 2..32 --aggregators 450,900
  fanin plan examples/networks/racks.toml --jobs examples/networks/jobs.toml --budget 6
  fanin advise examples/networks/racks.toml --jobs examples/networks/jobs.toml --budget 6
  fanin workload llama3-70b --dp 8 --tp 8 --pp 8 --micro-batches 16 --out step.toml --summary
  fanin import trace.0.json.gz trace.1.json.gz --out step.toml --summary
  fanin check canary --seeds 100
  fanin demo --loss 0.01
  fanin operator check examples/operators/log_sum_exp.wasm
  fanin tls new tls --name agg
  fanin switch --listen 0.0.0.0:7700 --keys keys.toml --tls-cert tls/agg.pem --tls-key tls/agg.key
  fanin manager FABRIC.toml
  fanin top 127.0.0.1:9470
  fanin testbed examples/testbed/fabric.toml examples/testbed/workload.toml
  fanin bench sim
  fanin bench allreduce --workers 4 --sizes 4KiB,64MiB

Exit codes: 0 all is well, 1 a run failed or was not exact, 2 the input is wrong.
RUST_LOG=debug writes what happens to standard error.";

#[derive(Subcommand, Debug)]
enum Command {
    /// Simulate a plan.
    Sim(sim::SimArgs),
    /// Compare two results: what changed, by how much, within noise or not.
    Compare(compare::CompareArgs),
    /// Write what goes over simulated links to a file for Wireshark.
    Trace(trace::TraceArgs),
    /// Reproduce a paper's figures and hold them against its claims.
    Repro(repro::ReproArgs),
    /// Evaluate the formulas of a paper.
    #[command(subcommand)]
    Model(model::ModelArgs),
    /// Find out what to buy: which system, which switches in which order, what it gains of an iteration and what it does not.
    Advise(Box<advise::AdviseArgs>),
    /// Find out which switches of a network to replace next by ones that aggregate.
    Plan(planner::PlannerArgs),
    /// Make the workload of a training step from a model's published sizes.
    Workload(generate::WorkloadArgs),
    /// Take over a trace or a workload of another tool.
    Import(import::ImportArgs),
    /// Run random plans with random faults and check what must be true of all of them.
    Check(check::CheckArgs),
    /// Measure speed.
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Look at a WebAssembly module that jobs could bring along as an operator.
    #[command(subcommand)]
    Operator(operator::OperatorCommand),
    /// Sum vectors for jobs of other processes, as a switch in the network would.
    Switch(Box<switch::SwitchArgs>),
    /// Make certificates for control connections, or show one.
    Tls(tls::TlsArgs),
    /// Make keys and tokens that admit ranks to a switch.
    Token(token::TokenArgs),
    /// Manage the switches of a fabric for jobs of other processes.
    Manager(manager::ManagerArgs),
    /// Watch switches: jobs, ranks, links, and which rank the others wait for.
    Top(top::TopArgs),
    /// Allreduce real tensors between real processes on this machine.
    Demo(demo::DemoArgs),
    /// Run a workload on a fabric of several real switches on this machine: losses, failures, background traffic.
    Testbed(testbed::TestbedArgs),
    /// List the examples that are in the program, or write them into a folder.
    Examples(examples::ExamplesArgs),
    /// Find out what keeps collectives from running, or from running well, and what mends it.
    Doctor(doctor::DoctorArgs),
    /// A node process of `fanin demo`.
    #[command(hide = true)]
    DemoNode(demo::NodeArgs),
    /// The process of one host of a fabric; takes its orders on standard input.
    #[command(hide = true)]
    FabricWorker(fabric_worker::FabricWorkerArgs),
    /// The process of one rank of `fanin testbed --chaos`; takes its orders on standard input.
    #[command(hide = true)]
    ChaosRank,
}

#[derive(Subcommand, Debug)]
enum BenchCommand {
    /// The simulator: packet-hops per second of processor time, events, bytes of code that every hop runs through.
    Sim(bench::BenchArgs),
    /// Collectives between real processes: time, bandwidth as nccl-tests print it, and whether every element is right.
    Allreduce(allreduce::AllreduceArgs),
    /// A link: bytes of UDP payload per second between two processes.
    Link(link::LinkArgs),
    /// Sums that a transparent switch makes inside TCP connections: goodput, beside a ring of the same workers and one TCP flow.
    Stream(stream::StreamArgs),
}

/// Runs the program with the arguments of this process; gives its exit code. Ends the process itself where arguments are wrong, where help
/// or the version is asked for, and after some signals.
pub fn run() -> ExitCode {
    main_with(std::env::args_os())
}

/// [`run`] with these arguments, of which the first is the program's name. To be called once in a process: it begins a log, and handles
/// signals.
pub fn main_with<T>(arguments: impl IntoIterator<Item = T>) -> ExitCode
where
    T: Into<std::ffi::OsString> + Clone,
{
    let arguments = Arguments::parse_from(arguments);
    // Nobody else handles signals of that kind here.
    fanin_operator::find_traps_by_signals();
    // A service logs more than the others, and in a form of its own.
    if !matches!(arguments.command, Command::Switch(_) | Command::Manager(_)) {
        log::begin("warn", LogFormat::Text, true);
    }
    output::finish(perform(&arguments.command))
}

fn perform(command: &Command) -> ExitCode {
    let done = match command {
        Command::Sim(args) => return sim::run(args, Some(pdf::of)),
        Command::Compare(args) => return compare::run(args),
        Command::Trace(args) => return trace::run(args),
        Command::Repro(args) => return repro::run(args),
        Command::Model(args) => return model::run(args),
        Command::Advise(args) => return advise::run(args),
        Command::Plan(args) => return planner::run(args),
        Command::Workload(args) => return generate::run(args),
        Command::Import(args) => return import::run(args),
        Command::Doctor(args) => return doctor::run(args),
        Command::Examples(args) => return examples::run(args),
        Command::Check(args) => {
            return check::run(args).unwrap_or_else(|error| {
                eprintln!("error: {error:#}");
                ExitCode::from(2)
            });
        }
        Command::Operator(command) => return operator::run(command),
        Command::Switch(args) => return switch::run(args),
        Command::Manager(args) => return manager::run(args),
        Command::Top(args) => return top::run(args),
        Command::Testbed(args) => return testbed::run(args),
        Command::Bench(BenchCommand::Sim(args)) => bench::run(args),
        Command::Bench(BenchCommand::Allreduce(args)) => allreduce::run(args),
        Command::Bench(BenchCommand::Link(args)) => link::run(args),
        Command::Bench(BenchCommand::Stream(args)) => stream::run(args),
        Command::Tls(args) => tls::run(args),
        Command::Token(args) => token::run(args),
        Command::Demo(args) => demo::run(args),
        Command::DemoNode(args) => demo::run_node(args),
        Command::FabricWorker(args) => return fabric_worker::run(args),
        Command::ChaosRank => return testbed::run_rank(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(1)
        }
    }
}
