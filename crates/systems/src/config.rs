//! Job configuration: which system, with which parameters.

use fanin_core::{Duration, JobId, NodeId};
use fanin_protocols::shared::step::StepCost;
use serde::{Deserialize, Serialize};

use crate::system::System;

/// A job's configuration contradicts itself or the network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BuildError {
    /// The field.
    pub field: String,
    /// Its value.
    pub value: String,
    /// What would have been right.
    pub expected: String,
}

impl BuildError {
    /// `field` has `value`, where `expected` is expected.
    pub fn new(field: impl Into<String>, value: impl ToString, expected: impl Into<String>) -> Self {
        BuildError { field: field.into(), value: value.to_string(), expected: expected.into() }
    }
}

impl std::fmt::Display for BuildError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} = {}: expected {}", self.field, self.value, self.expected)
    }
}

impl std::error::Error for BuildError {}

/// In which order the ring visits the workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RingOrder {
    /// By host number: neighbours in the network are neighbours in the ring.
    #[default]
    Host,
    /// By rank, that is in the order in which hosts were allocated.
    Placement,
}

/// What a step costs its host before its first packet goes, in rings and in allreduces of several steps (rina 5, equation 3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StepParameters {
    /// Cost of each step at its host, before the step's first packet; not for `"parallel-netreduce"`.
    pub step_overhead_ps: u64,
    /// Standard deviation of that cost, which each worker then draws for each step from `run.seed`: normal, never below zero.
    pub step_deviation_ps: u64,
}

impl StepParameters {
    /// Steps begin at once.
    pub const NONE: StepParameters = StepParameters { step_overhead_ps: 0, step_deviation_ps: 0 };

    /// As the protocols have it; `seed` decides on the draws.
    pub(crate) fn cost(self, seed: u64) -> StepCost {
        StepCost { overhead: Duration::from_ps(self.step_overhead_ps), deviation: Duration::from_ps(self.step_deviation_ps), seed }
    }
}

/// A window that does not limit: a worker sends as much as its way out takes.
pub const UNLIMITED: u32 = u32::MAX;

/// One job: who takes part and how.
#[derive(Clone, Debug)]
pub struct JobSpec<'a, Op> {
    /// The job's number.
    pub id: JobId,
    /// The hosts of its workers, by rank.
    pub hosts: &'a [NodeId],
    /// The hosts of its servers, for systems that have servers; none of them has a worker of the job.
    pub servers: &'a [NodeId],
    /// The system.
    pub system: System,
    /// Element type and operator.
    pub op: Op,
    /// Bytes of an element on the wire.
    pub element_bytes: u32,
    /// Payload of a full packet in bytes; a whole number of elements.
    pub payload_bytes: u32,
    /// Packets that a worker has under way at most; [`UNLIMITED`] where the system can do without a limit (Canary).
    pub window: u32,
    /// Recover from losses; without it the network must lose nothing.
    pub reliable: bool,
    /// First retransmission timeout, until round trips have been measured.
    pub rto_initial: Duration,
    /// Lower bound of the retransmission timeout.
    pub rto_min: Duration,
    /// An operation without progress for so long has failed.
    pub patience: Duration,
    /// Seed of the job's random choices (roots of trees, costs of steps).
    pub seed: u64,
}

impl<'a, Op> JobSpec<'a, Op> {
    /// The same job, whatever its operator.
    pub(crate) fn without_operator(&self) -> JobSpec<'a, ()> {
        self.with_operator(())
    }

    /// The same job with another operator.
    pub(crate) fn with_operator<Other>(&self, op: Other) -> JobSpec<'a, Other> {
        let JobSpec {
            id,
            hosts,
            servers,
            system,
            element_bytes,
            payload_bytes,
            window,
            reliable,
            rto_initial,
            rto_min,
            patience,
            seed,
            ..
        } = *self;
        JobSpec { id, hosts, servers, system, op, element_bytes, payload_bytes, window, reliable, rto_initial, rto_min, patience, seed }
    }
}
