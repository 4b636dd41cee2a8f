//! What nodes are told when they are made.

use fanin_core::{Duration, JobId};

use crate::shared::trees::{TreeSwitchConfig, TreeWorkerConfig};

/// How a job uses its tree.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// So many operations under way, for as long as the job lives.
    LowLatency {
        /// The job's quota; a power of two, and the window of its tree.
        quota: u32,
    },
    /// As much as the window allows; one job at a time has what it streams through ([`Streams`]), and for one operation.
    Streaming,
}

/// What a job that streams has for itself at a switch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Streams {
    /// All of it: one streaming tree a switch, as in the first Quantum (baselines 6).
    #[default]
    Switch,
    /// The ports of its tree: one streaming tree a port, as in Quantum-2. Jobs whose trees have no port in common stream side by side.
    Port,
}

/// What a worker is told.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SharpWorkerConfig<O> {
    /// Its tree.
    pub tree: TreeWorkerConfig<O>,
    /// How it is used; the same at all workers and switches of the job.
    pub mode: Mode,
    /// How long to wait at least before a question is asked again that was refused.
    pub retry_after: Duration,
}

/// What a switch is told of a job.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SharpJob<O> {
    /// Its place in the job's tree; of `trees` the first is used.
    pub tree: TreeSwitchConfig<O>,
    /// How it is used.
    pub mode: Mode,
}

impl<O> SharpJob<O> {
    /// The job.
    pub fn job(&self) -> JobId {
        self.tree.job
    }
}
