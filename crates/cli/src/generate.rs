//! `fanin workload`: training steps of published models.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueEnum};
use fanin_workload::generate::{Recompute, Settings, Sharding, generate};
use fanin_workload::{Element, Summary, WorkloadError, durations, validate};

use crate::{import, quantities, workload};

/// Arguments of `fanin workload`.
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub struct WorkloadArgs {
    /// llama3-8b, llama3-70b, llama3-405b, gpt3-175b, mixtral-8x7b, deepseek-v3, bert, bert-large, resnet50 or vgg16
    model: String,
    /// Write the workload here
    #[arg(long, required_unless_present = "summary")]
    out: Option<PathBuf>,
    /// Say what is in it
    #[arg(long)]
    summary: bool,
    /// Data parallelism: replicas
    #[arg(long, default_value_t = 1)]
    dp: u32,
    /// Tensor parallelism: ranks that share each layer
    #[arg(long, default_value_t = 1)]
    tp: u32,
    /// Pipeline stages, one forward and one backward pass in turn
    #[arg(long, default_value_t = 1)]
    pp: u32,
    /// Expert parallelism: replicas that share the experts; a divisor of --dp
    #[arg(long, default_value_t = 1)]
    ep: u32,
    /// Passes of a step
    #[arg(long, default_value_t = 1)]
    micro_batches: u32,
    /// Sequences, or images, of a rank in a pass; 1, or 32 images, unless given
    #[arg(long)]
    micro_batch: Option<u32>,
    /// Tokens of a sequence; the model's unless given
    #[arg(long)]
    sequence: Option<u32>,
    /// h100, h200, a100, v100, b200 or mi300x: its peak of 16-bit operations
    #[arg(long, default_value = "h100")]
    gpu: String,
    /// Peak operations a second, in place of --gpu, as 989e12
    #[arg(long, value_name = "OPERATIONS")]
    peak: Option<f64>,
    /// The share of the peak that computing reaches
    #[arg(long, default_value_t = 0.4)]
    utilisation: f64,
    /// What becomes of gradients and parameters; ddp for resnet50 and vgg16, else zero, unless given
    #[arg(long, value_enum)]
    sharding: Option<ShardingName>,
    /// Cap of buckets of gradients
    #[arg(long, value_name = "BYTES", default_value = "25MiB", value_parser = quantities::bytes)]
    bucket: u64,
    /// Type of gradients
    #[arg(long, default_value = "f32", value_parser = import::element)]
    gradient: Element,
    /// Divide activations among the ranks of --tp, too: reduce-scatters and all-gathers in place of sums
    #[arg(long)]
    sequence_parallel: bool,
    /// What of a layer's forward pass is computed again before its backward pass
    #[arg(long, value_enum, default_value_t = RecomputeName::None)]
    recompute: RecomputeName,
    /// Parts of the model that each stage of --pp has, in an interleaved schedule; --micro-batches is a multiple of --pp then
    #[arg(long, value_name = "N", default_value_t = 1)]
    virtual_stages: u32,
    /// Each rank of --tp sends its share of the activations to the next stage of --pp, whose ranks gather them
    #[arg(long)]
    scatter_gather: bool,
    /// Ranks of a host
    #[arg(long, default_value_t = 8)]
    ranks_per_host: u32,
    /// Change one of the model's numbers, as layers=40; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Take times of computing from this trace, in place of computed ones: files of one format that fanin import reads, or a workload
    #[arg(long, value_name = "FILE", num_args = 1..)]
    durations: Vec<PathBuf>,
}

const AFTER: &str = "\
Computing takes operations over peak times utilisation: two for each parameter and token forward, twice as many backward, and attention's products.
ddp: gradients are summed in buckets. zero: they are reduced and scattered, and parameters gathered after the update. fsdp: parameters are
gathered for each layer's pass. crates/workload/models.toml has the sizes and their sources; docs/workloads.md describes what is written.
--durations: computations of the same name as in the trace take its time, all others their part of its time between the same collectives.
Exit codes: 0 all is well, 2 the input is wrong.";

/// What becomes of gradients and parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum ShardingName {
    /// Sums of buckets.
    Ddp,
    /// Reduced, scattered and gathered once a step.
    Zero,
    /// Gathered layer by layer.
    Fsdp,
}

/// What is computed again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum RecomputeName {
    /// Nothing.
    None,
    /// The products of attention.
    Selective,
    /// All of it, with what it communicates.
    Full,
}

impl WorkloadArgs {
    fn settings(&self) -> Settings {
        Settings {
            model: self.model.clone(),
            changes: self.set.clone(),
            data: self.dp,
            tensor: self.tp,
            pipeline: self.pp,
            expert: self.ep,
            micro_batches: self.micro_batches,
            micro_batch: self.micro_batch,
            sequence: self.sequence,
            gpu: self.gpu.clone(),
            peak: self.peak,
            utilisation: self.utilisation,
            sharding: self.sharding.map(|one| match one {
                ShardingName::Ddp => Sharding::Ddp,
                ShardingName::Zero => Sharding::Zero,
                ShardingName::Fsdp => Sharding::Fsdp,
            }),
            bucket_bytes: self.bucket,
            gradient: self.gradient,
            sequence_parallel: self.sequence_parallel,
            recompute: match self.recompute {
                RecomputeName::None => Recompute::None,
                RecomputeName::Selective => Recompute::Selective,
                RecomputeName::Full => Recompute::Full,
            },
            virtual_stages: self.virtual_stages,
            scatter_gather: self.scatter_gather,
            ranks_per_host: self.ranks_per_host,
        }
    }
}

/// Runs the command.
pub fn run(args: &WorkloadArgs) -> ExitCode {
    match generated(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(if error.is::<WorkloadError>() { 2 } else { 1 })
        }
    }
}

fn generated(args: &WorkloadArgs) -> Result<()> {
    let mut made = generate(&args.settings()).map_err(|what| WorkloadError::new("fanin workload", what))?;
    let inputs = import::inputs(&args.durations)?;
    let measured = if inputs.is_empty() { None } else { Some(durations::apply(&mut made, &inputs)?) };
    let checked = validate(&made, "fanin workload")?;
    if let Some(out) = &args.out {
        import::written(&made, out)?;
    }
    if let Some(measured) = &measured {
        print!("{}", workload::durations(measured, inputs.len()));
    }
    if args.summary {
        print!("{}\n{}", made.name.clone() + "\n", workload::summary(&Summary::new(&made, &checked)));
    }
    Ok(())
}
