//! Workloads from published sizes of models: data, tensor, pipeline and expert parallelism.
//!
//! | module | what it holds |
//! |---|---|
//! | [`models`] | the data file: sizes, and what follows from them |
//! | [`convolution`] | layers of convolutional networks |
//! | [`buckets`] | buckets of gradients |
//! | [`build`] | lists of nodes, and times and lengths for them |
//! | [`layers`] | blocks for the layers of transformers |
//! | [`pipeline`] | stages of a pipeline, one forward and one backward pass in turn (1F1B) |
//! | [`sharded`] | parameters that are gathered layer by layer (FSDP, ZeRO-3) |
//!
//! Time of computing is operations over the GPU's peak times a utilisation: two operations for each parameter and token forward, and twice as
//! many backward. Updates of parameters, lookups in embeddings, norms and losses take no time.

use crate::kinds::Element;
use crate::model::{Hosts, Program, Workload};
use crate::ranks::RANKS_MAX;

pub mod buckets;
pub mod build;
pub mod convolution;
pub mod layers;
pub mod models;
pub mod pipeline;
pub mod sharded;

use build::{Division, Nodes, Rates};
use models::{Data, Transformer};

/// What becomes of gradients and parameters in data parallelism.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sharding {
    /// All have all: gradients are summed in buckets (DistributedDataParallel).
    Ddp,
    /// Gradients are reduced and scattered, parameters gathered after the update (ZeRO-1, Megatron's distributed optimizer).
    Zero,
    /// Parameters are gathered for each layer's pass, gradients reduced and scattered after it (FSDP, ZeRO-3).
    Fsdp,
}

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Settings {
    /// A name of the data file.
    pub model: String,
    /// Changes of its numbers: `layers=40`.
    pub changes: Vec<String>,
    /// Data parallelism: replicas.
    pub data: u32,
    /// Tensor parallelism: ranks that share each layer.
    pub tensor: u32,
    /// Pipeline stages.
    pub pipeline: u32,
    /// Expert parallelism: replicas that share the experts.
    pub expert: u32,
    /// Passes of an iteration.
    pub micro_batches: u32,
    /// Sequences, or images, of a rank in one pass; `None`: 1, or the data file's.
    pub micro_batch: Option<u32>,
    /// Tokens of a sequence; `None`: the data file's.
    pub sequence: Option<u32>,
    /// A name of the data file.
    pub gpu: String,
    /// Operations a second, in place of the GPU's.
    pub peak: Option<f64>,
    /// Share of the peak that computing reaches. 0.4 is what Llama 3's authors report of H100 (arXiv 2407.21783, table 4: 38 to 43 %).
    pub utilisation: f64,
    /// What becomes of gradients and parameters; `None`: [`Sharding::Ddp`] for convolutional networks, else [`Sharding::Zero`].
    pub sharding: Option<Sharding>,
    /// Cap of buckets, in bytes.
    pub bucket_bytes: u64,
    /// Type of gradients.
    pub gradient: Element,
    /// Whether activations between layers are divided among the ranks of tensor parallelism (Korthikanti et al., arXiv 2205.05198), so that
    /// sums become reduce-scatters and all-gathers.
    pub sequence_parallel: bool,
    /// Ranks of a host.
    pub ranks_per_host: u32,
}

impl Settings {
    /// A model on one rank, as [`generate`] does it where nothing is said.
    pub fn new(model: &str) -> Settings {
        Settings {
            model: model.into(),
            changes: Vec::new(),
            data: 1,
            tensor: 1,
            pipeline: 1,
            expert: 1,
            micro_batches: 1,
            micro_batch: None,
            sequence: None,
            gpu: "h100".into(),
            peak: None,
            utilisation: 0.4,
            sharding: None,
            bucket_bytes: buckets::CAP,
            gradient: Element::F32,
            sequence_parallel: false,
            ranks_per_host: 8,
        }
    }

    fn check(&self) -> Result<(), String> {
        let counts = [
            ("--dp", self.data),
            ("--tp", self.tensor),
            ("--pp", self.pipeline),
            ("--ep", self.expert),
            ("--micro-batches", self.micro_batches),
            ("--micro-batch", self.micro_batch.unwrap_or(1)),
            ("--sequence", self.sequence.unwrap_or(1)),
            ("--ranks-per-host", self.ranks_per_host),
        ];
        if let Some((name, _)) = counts.iter().find(|(_, value)| *value == 0) {
            return Err(format!("{name} 0: expected at least 1"));
        }
        let ranks = u128::from(self.data) * u128::from(self.tensor) * u128::from(self.pipeline);
        if ranks > u128::from(RANKS_MAX) {
            return Err(format!("{ranks} ranks, the product of --dp, --tp and --pp: expected at most {RANKS_MAX}"));
        }
        if !self.data.is_multiple_of(self.expert) {
            return Err(format!("--ep {}: expected a divisor of --dp {}", self.expert, self.data));
        }
        if self.micro_batches > 65_536 || self.micro_batch.unwrap_or(1) > 1 << 20 || self.sequence.unwrap_or(1) > 1 << 24 {
            return Err("expected --micro-batches of at most 65536, --micro-batch of 1048576, --sequence of 16777216".into());
        }
        if !(self.utilisation > 0.0 && self.utilisation <= 1.0) {
            return Err(format!("--utilisation {}: expected more than 0 and at most 1", self.utilisation));
        }
        if self.bucket_bytes == 0 {
            return Err("--bucket 0: expected at least 1 byte".into());
        }
        Ok(())
    }
}

/// A workload of one iteration.
///
/// # Errors
/// What does not fit, with the option's name.
pub fn generate(settings: &Settings) -> Result<Workload, String> {
    settings.check()?;
    let data = Data::load()?;
    let peak = match settings.peak {
        Some(peak) if peak.is_finite() && peak >= 1e9 => peak,
        Some(peak) => return Err(format!("--peak {peak}: expected at least 1e9 operations a second")),
        None => *data.gpus.get(&settings.gpu).ok_or_else(|| {
            let names: Vec<&str> = data.gpus.keys().map(String::as_str).collect();
            format!("--gpu {}: expected one of {}", settings.gpu, names.join(", "))
        })?,
    };
    let rates = Rates { operations_per_s: peak * settings.utilisation };
    let division = Division::new(settings);
    if let Some(table) = data.transformers.get(&settings.model) {
        let model = Transformer::of(table, &settings.changes)?;
        return match settings.sharding.unwrap_or(Sharding::Zero) {
            Sharding::Fsdp => sharded::workload(&model, settings, rates, division),
            _ => pipeline::workload(&model, settings, rates, division),
        };
    }
    let Some((network, parts)) = data.convolutional.get(&settings.model).zip(convolution::parts(&settings.model)) else {
        return Err(format!("{}: expected one of {}", settings.model, data.names()));
    };
    if division.ranks() != settings.data || settings.expert > 1 || !settings.changes.is_empty() {
        return Err(format!("{}: expected neither --tp, --pp, --ep nor --set: its replicas are whole", settings.model));
    }
    if settings.sharding.is_some_and(|sharding| sharding != Sharding::Ddp) {
        return Err(format!("{}: expected --sharding ddp", settings.model));
    }
    let batch = settings.micro_batch.map_or(network.batch, u64::from);
    convolutional(&parts, batch, settings, rates, division)
}

/// What the name and the source of a workload say.
pub(crate) fn named(settings: &Settings, division: Division, programs: Vec<Program>, blocks: Vec<crate::Block>) -> Workload {
    Workload {
        name: format!(
            "{}, dp {}, tp {}, pp {}, ep {}, micro-batches {}",
            settings.model, settings.data, settings.tensor, settings.pipeline, settings.expert, settings.micro_batches
        ),
        ranks: division.ranks(),
        hosts: Hosts::Each(settings.ranks_per_host),
        iterations: 1,
        source: match settings.peak {
            Some(peak) => format!("generated for {peak:e} operations a second at a utilisation of {}", settings.utilisation),
            None => format!("generated for {} at a utilisation of {}", settings.gpu, settings.utilisation),
        },
        groups: division.groups(),
        blocks,
        programs,
    }
}

fn convolutional(
    parts: &[convolution::Part],
    batch: u64,
    settings: &Settings,
    rates: Rates,
    division: Division,
) -> Result<Workload, String> {
    let mut nodes = Nodes::default();
    let mut ends = vec![0; parts.len()];
    for pass in 0..settings.micro_batches {
        let is_last = pass + 1 == settings.micro_batches;
        for part in parts {
            nodes.compute(&format!("forward {} {pass}", part.name), rates.time(part.operations * batch as f64)?);
        }
        for (index, part) in parts.iter().enumerate().rev() {
            let end = nodes.compute(&format!("backward {} {pass}", part.name), rates.time(2.0 * part.operations * batch as f64)?);
            if is_last {
                ends[index] = end;
            }
        }
    }
    if let Some(group) = division.data() {
        let tensors: Vec<Vec<u64>> = parts.iter().map(|part| part.tensors.clone()).collect();
        for (number, bucket) in buckets::buckets(&tensors, settings.gradient.bytes(), settings.bucket_bytes).into_iter().enumerate() {
            let sum = build::collective(crate::CollectiveKind::AllReduce, group, bucket.elements, settings.gradient)?;
            nodes.beside(&format!("gradients {number}"), sum, "data", &[ends[bucket.ready]]);
        }
    }
    let program = Program { name: "all".into(), ranks: (0..division.ranks()).collect(), nodes: nodes.list, line: 0 };
    Ok(named(settings, division, vec![program], Vec::new()))
}
