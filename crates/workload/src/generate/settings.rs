//! What is asked for.

use super::buckets::CAP;
use crate::kinds::Element;
use crate::ranks::RANKS_MAX;

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

/// What is computed again before a layer's backward pass, since its activations were not kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Recompute {
    /// Nothing.
    #[default]
    None,
    /// The products of attention (Korthikanti et al., arXiv 2205.05198, 5): their activations are large, and they are few operations.
    Selective,
    /// The whole layer's forward pass, with what it communicates: its inputs alone are kept.
    Full,
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
    /// What is computed again.
    pub recompute: Recompute,
    /// Parts of the model that a rank of the pipeline has, each of as many layers (interleaved schedule: Narayanan et al., arXiv 2104.04473, 2.2.2).
    pub virtual_stages: u32,
    /// Whether each rank of tensor parallelism sends its share of the activations to the next stage, whose ranks gather them (the same, 4.1).
    pub scatter_gather: bool,
    /// Ranks of a host.
    pub ranks_per_host: u32,
}

impl Settings {
    /// A model on one rank, as [`super::generate`] does it where nothing is said.
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
            bucket_bytes: CAP,
            gradient: Element::F32,
            sequence_parallel: false,
            recompute: Recompute::None,
            virtual_stages: 1,
            scatter_gather: false,
            ranks_per_host: 8,
        }
    }

    /// Whether it can be.
    ///
    /// # Errors
    /// The option that does not do.
    pub fn check(&self) -> Result<(), String> {
        let counts = [
            ("--dp", self.data),
            ("--tp", self.tensor),
            ("--pp", self.pipeline),
            ("--ep", self.expert),
            ("--micro-batches", self.micro_batches),
            ("--micro-batch", self.micro_batch.unwrap_or(1)),
            ("--sequence", self.sequence.unwrap_or(1)),
            ("--ranks-per-host", self.ranks_per_host),
            ("--virtual-stages", self.virtual_stages),
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
        self.check_pipeline()?;
        if !(self.utilisation > 0.0 && self.utilisation <= 1.0) {
            return Err(format!("--utilisation {}: expected more than 0 and at most 1", self.utilisation));
        }
        if self.bucket_bytes == 0 {
            return Err("--bucket 0: expected at least 1 byte".into());
        }
        Ok(())
    }

    fn check_pipeline(&self) -> Result<(), String> {
        if self.virtual_stages > 1 {
            if self.pipeline < 2 {
                return Err(format!("--virtual-stages {}: expected --pp of 2 or more", self.virtual_stages));
            }
            if !self.micro_batches.is_multiple_of(self.pipeline) {
                return Err(format!(
                    "--micro-batches {}: expected a multiple of --pp {} with --virtual-stages",
                    self.micro_batches, self.pipeline
                ));
            }
        }
        if self.scatter_gather && (self.tensor < 2 || self.pipeline < 2) {
            return Err("--scatter-gather: expected --tp and --pp of 2 or more".into());
        }
        if self.scatter_gather && self.sequence_parallel {
            return Err("--scatter-gather: expected no --sequence-parallel, by which each rank has its share only".into());
        }
        Ok(())
    }
}
