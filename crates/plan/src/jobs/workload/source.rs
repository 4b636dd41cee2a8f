//! Where workloads come from: a file, or a model's published sizes.

use std::collections::BTreeMap;
use std::sync::Arc;

use fanin_core::Duration;
use fanin_workload::generate::{Recompute, Settings, Sharding, generate};
use fanin_workload::{Element, Workload, WorkloadError, validate};
use serde::Deserialize;

use crate::reading::read::read;
use crate::reading::tree::{Kind, Step, Tree};
use crate::reading::units::{Bytes, Count, Fraction, Time};
use crate::reading::{PlanError, Refuse, files};
use crate::schema::{Job, Source};

/// How long an operation of a workload may stand still where the plan does not say.
const PATIENCE: Duration = Duration::from_ms(10_000);

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
    /// What is computed again.
    #[serde(default)]
    pub recompute: RecomputeName,
    /// Parts of the model that a stage has.
    #[serde(default = "crate::schema::one")]
    pub virtual_stages: Count,
    /// Whether ranks of tensor parallelism send their shares between stages.
    #[serde(default)]
    pub scatter_gather: bool,
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

/// `recompute`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecomputeName {
    /// Nothing.
    #[default]
    None,
    /// The products of attention.
    Selective,
    /// The whole forward pass of a layer.
    Full,
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
            recompute: match self.recompute {
                RecomputeName::None => Recompute::None,
                RecomputeName::Selective => Recompute::Selective,
                RecomputeName::Full => Recompute::Full,
            },
            virtual_stages: self.virtual_stages.0,
            scatter_gather: self.scatter_gather,
            gpu: self.gpu.clone().unwrap_or(usual.gpu),
            utilisation: self.utilisation.map_or(usual.utilisation, |share| share.0),
            ranks_per_host: self.ranks_per_host.map_or(usual.ranks_per_host, |count| count.0),
            changes: self.set.iter().map(|(key, value)| format!("{key}={value}")).collect(),
            ..Settings::new(&self.model)
        })
    }
}

/// Workloads that were read, so that a sweep's points share them.
pub type Known = Vec<(String, Arc<Source>)>;

/// Reads the workloads of jobs.
///
/// # Errors
/// [`PlanError`] names the key, or the file and its line.
pub fn load(refuse: &Refuse<'_>, jobs: &mut [Job], known: &mut Known) -> Result<(), PlanError> {
    for (entry, job) in jobs.iter_mut().enumerate() {
        if job.common.workload.is_none() {
            continue;
        }
        let path = [Step::Key("jobs".into()), Step::Index(entry), Step::Key("workload".into())];
        let Some(tree) = refuse.tree.find(&path) else { continue };
        let text = tree.to_string();
        let source = match known.iter().find(|(other, _)| *other == text) {
            Some((_, source)) => source.clone(),
            None => {
                let source = Arc::new(read_source(refuse, entry, tree, &path)?);
                known.push((text, source.clone()));
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

/// What a workload's file has at most.
const BYTES_MAX: u64 = 1 << 30;

fn read_source(refuse: &Refuse<'_>, entry: usize, tree: &Tree, path: &[Step]) -> Result<Source, PlanError> {
    let shown = format!("jobs[{entry}].workload");
    let wrong = |name: String, error: WorkloadError| PlanError::new(refuse.file, format!("{name}: {error}")).at(refuse.origin(&shown));
    if let Kind::Text(name) = &tree.kind {
        let text = files::read_text(refuse.file, name, BYTES_MAX);
        let text = text.map_err(|error| refuse.at(&shown, format!("a file that can be read: {error}")))?;
        return source(&files::path(refuse.file, name).display().to_string(), &text)
            .map_err(|error| wrong(format!("{shown} = {name:?}"), error));
    }
    if tree.get("programs").is_some() {
        return source("workload", &tree.to_toml()).map_err(|error| wrong(shown.clone(), error));
    }
    let keys: ModelKeys = read(refuse.file, tree, path)?;
    let made = keys.settings().and_then(|settings| {
        let workload = generate(&settings)?;
        let checked = validate(&workload, &keys.model).map_err(|error| error.to_string())?;
        Ok(Source { workload, checked })
    });
    made.map_err(|error| PlanError::new(refuse.file, format!("{shown}: {error}")).at(refuse.origin(&shown)))
}

fn source(file: &str, text: &str) -> Result<Source, WorkloadError> {
    let workload = Workload::from_toml(file, text)?;
    let checked = validate(&workload, file)?;
    Ok(Source { workload, checked })
}
