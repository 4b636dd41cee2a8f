//! Where workloads come from: a file, or a model's published sizes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use fanin_core::Duration;
use fanin_workload::generate::{Settings, Sharding, generate};
use fanin_workload::{Checked, Element, Workload, validate};
use serde::Deserialize;

use crate::errors::{PlanError, Refuse};
use crate::schema::Job;
use crate::units::{Bytes, Count, Fraction, Time};

/// How long an operation of a workload may stand still where the plan does not say.
const PATIENCE: Duration = Duration::from_ms(10_000);

/// `workload`.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(untagged, expecting = "the name of a file, or a table with a model")]
pub enum WorkloadFrom {
    /// A file, from the plan's folder on.
    File(String),
    /// A generated one.
    Model(ModelKeys),
}

/// A generated workload: the options of `fanin workload`.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelKeys {
    /// A model of `crates/workload/models.toml`.
    pub model: String,
    /// Data parallelism.
    #[serde(default = "crate::schema::one")]
    pub dp: Count,
    /// Tensor parallelism.
    #[serde(default = "crate::schema::one")]
    pub tp: Count,
    /// Pipeline stages.
    #[serde(default = "crate::schema::one")]
    pub pp: Count,
    /// Expert parallelism.
    #[serde(default = "crate::schema::one")]
    pub ep: Count,
    /// Passes of an iteration.
    #[serde(default = "crate::schema::one")]
    pub micro_batches: Count,
    /// Sequences, or images, of a rank in one pass.
    pub micro_batch: Option<Count>,
    /// Tokens of a sequence.
    pub sequence: Option<Count>,
    /// What becomes of gradients and parameters.
    pub sharding: Option<ShardingName>,
    /// Cap of buckets.
    pub bucket: Option<Bytes>,
    /// Type of gradients.
    pub gradient: Option<String>,
    /// Whether activations between layers are divided.
    #[serde(default)]
    pub sequence_parallel: bool,
    /// A GPU of the data file.
    pub gpu: Option<String>,
    /// Share of its peak that computing reaches.
    pub utilisation: Option<Fraction>,
    /// Ranks of a host.
    pub ranks_per_host: Option<Count>,
    /// Changes of the model's sizes, as `layers = 40`.
    #[serde(default)]
    pub set: BTreeMap<String, toml::Value>,
}

/// `sharding`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShardingName {
    /// Sums in buckets.
    Ddp,
    /// Reduce-scatter in buckets, all-gather after the update.
    Zero,
    /// Parameters are gathered for each layer.
    Fsdp,
}

/// A workload in which all holds.
#[derive(Debug)]
pub struct Source {
    /// The workload.
    pub workload: Workload,
    /// What is known of it.
    pub checked: Checked,
}

impl ModelKeys {
    fn settings(&self) -> Result<Settings, String> {
        let usual = Settings::new(&self.model);
        let gradient = match &self.gradient {
            None => usual.gradient,
            Some(name) => Element::of_name(name).ok_or_else(|| format!("gradient {name:?}: expected one of {}", Element::names()))?,
        };
        Ok(Settings {
            data: self.dp.0,
            tensor: self.tp.0,
            pipeline: self.pp.0,
            expert: self.ep.0,
            micro_batches: self.micro_batches.0,
            micro_batch: self.micro_batch.map(|count| count.0),
            sequence: self.sequence.map(|count| count.0),
            sharding: self.sharding.map(|name| match name {
                ShardingName::Ddp => Sharding::Ddp,
                ShardingName::Zero => Sharding::Zero,
                ShardingName::Fsdp => Sharding::Fsdp,
            }),
            bucket_bytes: self.bucket.map_or(usual.bucket_bytes, |bytes| bytes.0),
            gradient,
            sequence_parallel: self.sequence_parallel,
            gpu: self.gpu.clone().unwrap_or(usual.gpu),
            utilisation: self.utilisation.map_or(usual.utilisation, |share| share.0),
            ranks_per_host: self.ranks_per_host.map_or(usual.ranks_per_host, |count| count.0),
            changes: self.set.iter().map(|(key, value)| format!("{key}={value}")).collect(),
            ..Settings::new(&self.model)
        })
    }
}

/// Workloads that were read, so that a sweep's points share them.
pub type Known = Vec<(WorkloadFrom, Arc<Source>)>;

/// Reads the workloads of jobs.
///
/// # Errors
/// [`PlanError`] names the key, or the file and its line.
pub fn load(refuse: &Refuse<'_>, jobs: &mut [Job], known: &mut Known) -> Result<(), PlanError> {
    for (entry, job) in jobs.iter_mut().enumerate() {
        let Some(from) = &job.common.workload else { continue };
        let source = match known.iter().find(|(other, _)| other == from) {
            Some((_, source)) => source.clone(),
            None => {
                let source = Arc::new(read(refuse, entry, from)?);
                known.push((from.clone(), source.clone()));
                source
            }
        };
        job.workload = Some(source);
        // Ranks come to collectives far apart, where some compute longer than others.
        if !refuse.has(&format!("jobs[{entry}].patience")) {
            job.common.patience = Time(PATIENCE);
        }
    }
    Ok(())
}

fn read(refuse: &Refuse<'_>, entry: usize, from: &WorkloadFrom) -> Result<Source, PlanError> {
    let path = format!("jobs[{entry}].workload");
    match from {
        WorkloadFrom::File(name) => {
            let file = Path::new(refuse.file).parent().map_or_else(|| name.into(), |folder| folder.join(name));
            let text = fs::read_to_string(&file).map_err(|error| refuse.at(&path, format!("a file that can be read: {error}")))?;
            let shown = file.display().to_string();
            let source = Workload::from_toml(&shown, &text).and_then(|workload| {
                let checked = validate(&workload, &shown)?;
                Ok(Source { workload, checked })
            });
            source.map_err(|error| PlanError::new(refuse.file, format!("{path} = {name:?}: {error}")).at(refuse.origin(&path)))
        }
        WorkloadFrom::Model(keys) => {
            let made = keys.settings().and_then(|settings| {
                let workload = generate(&settings)?;
                let checked = validate(&workload, &keys.model).map_err(|error| error.to_string())?;
                Ok(Source { workload, checked })
            });
            made.map_err(|error| PlanError::new(refuse.file, format!("{path}: {error}")).at(refuse.origin(&path)))
        }
    }
}
