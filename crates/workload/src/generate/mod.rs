//! Workloads from published sizes of models: data, tensor, pipeline and expert parallelism.
//!
//! | module | what it holds |
//! |---|---|
//! | [`settings`] | what is asked for |
//! | [`models`] | the data file: sizes, and what follows from them |
//! | [`convolution`] | layers of convolutional networks |
//! | [`buckets`] | buckets of gradients |
//! | [`build`] | lists of nodes, and times and lengths for them |
//! | [`layers`] | blocks for the layers of transformers |
//! | [`pipeline`] | stages of a pipeline, one forward and one backward pass in turn (1F1B), or interleaved |
//! | [`sharded`] | parameters that are gathered layer by layer (FSDP, ZeRO-3) |
//!
//! Time of computing is operations over the GPU's peak times a utilisation: two operations for each parameter and token forward, and twice as
//! many backward. Updates of parameters, lookups in embeddings, norms and losses take no time.

use crate::kinds::CollectiveKind;
use crate::model::{Program, Workload};

pub mod buckets;
pub mod build;
pub mod convolution;
pub mod layers;
pub mod models;
pub mod pipeline;
pub mod settings;
pub mod sharded;

use build::{Division, Nodes, Rates, named};
use models::{Data, Transformer};
pub use settings::{Recompute, Settings, Sharding};

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
    if settings.recompute != Recompute::None {
        return Err(format!("{}: expected no --recompute: it is for layers of transformers", settings.model));
    }
    if settings.sharding.is_some_and(|sharding| sharding != Sharding::Ddp) {
        return Err(format!("{}: expected --sharding ddp", settings.model));
    }
    let batch = settings.micro_batch.map_or(network.batch, u64::from);
    convolutional(&parts, batch, settings, rates, division)
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
            let sum = build::collective(CollectiveKind::AllReduce, group, bucket.elements, settings.gradient)?;
            nodes.beside(&format!("gradients {number}"), sum, "data", &[ends[bucket.ready]]);
        }
    }
    let program = Program { name: "all".into(), ranks: (0..division.ranks()).collect(), nodes: nodes.list, line: 0 };
    Ok(named(settings, division, vec![program], Vec::new()))
}
