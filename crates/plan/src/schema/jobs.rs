//! `[[jobs]]`: what each job does, where, and how.

use std::sync::Arc;

use fanin_core::{DType, Duration};
use fanin_systems::System;
use fanin_workload::CollectiveKind;
use serde::Deserialize;

use super::models::Model;
use super::noise::Noise;
use super::workloads::{Source, WorkloadFrom};
use super::{all, no_time, one, payload_default, yes};
use crate::reading::units::{Amount, Bytes, Count, Fraction, Rate, Time, Window};

/// The key that names a file with jobs, from the plan's folder on.
pub const FILE_KEY: &str = "file";

/// Keys of `[[jobs]]` that do not belong to the system.
pub const JOB_KEYS: &[&str] = &[
    "system",
    FILE_KEY,
    "workload",
    "groups",
    "across",
    "chunks",
    "local_rate",
    "local_latency",
    "collective",
    "root_rank",
    "copies",
    "workers",
    "servers",
    "server_placement",
    "placement",
    "jobs_per_host",
    "message",
    "payload",
    "element",
    "reproducible",
    "operator",
    "indices",
    "operations",
    "model",
    "scale",
    "iterations",
    "tensor",
    "compute",
    "compute_spread",
    "start",
    "start_skew",
    "arrivals",
    "crash",
    "noise",
    "window",
    "reliable",
    "rto_initial",
    "rto_min",
    "patience",
];

/// `[[jobs]]`: one job, or several alike.
#[derive(Clone, Debug)]
pub struct Job {
    /// The system and its own keys.
    pub system: System,
    /// Everything else.
    pub common: JobKeys,
    /// With a workload: systems of its groups, by name, where they differ.
    pub groups: Vec<(String, System)>,
    /// Where the job's hosts are divided into pods, in which `system` sums: what sums between them.
    pub across: Option<System>,
    /// What the job does, where a workload says it, or pods do.
    pub workload: Option<Arc<Source>>,
}

/// Keys of `[[jobs]]` that every system shares.
#[derive(Clone, Debug, Deserialize)]
pub struct JobKeys {
    /// How many jobs like this one.
    #[serde(default = "one")]
    pub copies: Count,
    /// Number of workers, or their share of all hosts. Not needed where `placement` lists them.
    pub workers: Option<Workers>,
    /// Servers, for systems that have them; as many as the system has where it is not given.
    pub servers: Option<Servers>,
    /// Which hosts servers have where these are not listed; chosen as those of the workers where it is not given.
    pub server_placement: Option<ServerPlacement>,
    /// Which hosts.
    #[serde(default)]
    pub placement: Placement,
    /// How many jobs a host of this one has at most, this one included.
    #[serde(default = "one")]
    pub jobs_per_host: Count,
    /// What ranks compute and communicate, in place of one vector: a workload's file, or a model.
    pub workload: Option<WorkloadFrom>,
    /// With pods: into how many chunks a vector is cut, which follow each other from step to step; 4 where it is
    /// not given.
    pub chunks: Option<Count>,
    /// With a workload: rate of a rank's link to the others of its host.
    #[serde(default = "local_rate_default")]
    pub local_rate: Rate,
    /// With a workload: delay of such a link.
    #[serde(default = "local_latency_default")]
    pub local_latency: Time,
    /// Which collective the job does, in place of an allreduce, by the words of workloads. What its system does not offer, its hosts do by
    /// messages. The length of the vector is that of the one which each worker brings, or, where it brings a part, of the one which it ends with.
    pub collective: Option<CollectiveKind>,
    /// Broadcast and reduce: the rank whose vector it is, or that gets the sum; 0 where it is not given.
    pub root_rank: Option<u32>,
    /// Length of the vector; that of `model` where it is not given.
    pub message: Option<Bytes>,
    /// Payload of a full packet.
    #[serde(default = "payload_default")]
    pub payload: Bytes,
    /// Element type.
    #[serde(default)]
    pub element: Element,
    /// Sums of floats have the same bits whatever the order and the tree: as integers, each on a grid of its own, as by `FANIN_REPRODUCIBLE=element`.
    /// Goodput is that of the floats.
    pub reproducible: Option<Reproducible>,
    /// Sparse vectors: what values at the same index are reduced by, a built-in operator or the file of one of the job's own (`*.wasm`), from the
    /// plan's folder on; sums where it is not given.
    pub operator: Option<String>,
    /// Sparse vectors: a file with the indices at which each rank has something, from the plan's folder on; they are drawn where it is not given.
    pub indices: Option<String>,
    /// How many allreduces, one after the other.
    #[serde(default = "one")]
    pub operations: Count,
    /// Trains this model: its length and its time to compute, unless the plan says otherwise.
    pub model: Option<Model>,
    /// Factor of the model's length and time.
    #[serde(default = "all")]
    pub scale: Fraction,
    /// Trains for so many iterations, in each of which workers compute and then reduce their vectors.
    pub iterations: Option<Count>,
    /// Training: the vector is reduced in operations of at most this length; as a whole where it is not given.
    pub tensor: Option<Bytes>,
    /// Training: how long workers compute in an iteration.
    pub compute: Option<Time>,
    /// Training: share of `compute` by which each worker's time differs at most in each iteration, at random.
    #[serde(default)]
    pub compute_spread: Fraction,
    /// When it begins.
    #[serde(default = "no_time")]
    pub start: Time,
    /// Copies begin one after the other from `start` on, at random, with this mean time between them (a Poisson process).
    pub arrivals: Option<Time>,
    /// When all its workers and servers stop at once.
    pub crash: Option<Time>,
    /// Each worker begins up to so much later, at random.
    #[serde(default = "no_time")]
    pub start_skew: Time,
    /// Host noise.
    pub noise: Option<Noise>,
    /// Packets that a worker has under way at most.
    #[serde(default = "window_default")]
    pub window: Window,
    /// Recover from losses.
    #[serde(default = "yes")]
    pub reliable: bool,
    /// First retransmission timeout, until round trips have been measured.
    #[serde(default = "rto_initial_default")]
    pub rto_initial: Time,
    /// Lower bound of the retransmission timeout.
    #[serde(default = "rto_min_default")]
    pub rto_min: Time,
    /// An operation without progress for so long has failed.
    #[serde(default = "patience_default")]
    pub patience: Time,
}

/// Which hosts carry a job's workers.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Placement {
    /// At random.
    #[default]
    Random,
    /// The first free ones: as few leaves as possible.
    Packed,
    /// Evenly over the leaves.
    Spread,
    /// These, by rank.
    Hosts(Vec<u32>),
}

/// How many workers a job has.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Workers {
    /// So many, or such a share of all hosts.
    Amount(Amount),
    /// Drawn anew for each job, from the first to the last, each as likely as the others.
    Between(u32, u32),
}

/// A job's servers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Servers {
    /// So many, on hosts that are chosen after those of the workers and in the same way.
    Count(u32),
    /// At these hosts.
    Hosts(Vec<u32>),
}

/// Which hosts servers have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServerPlacement {
    /// Those of the lowest numbers.
    Packed,
    /// Leaf by leaf in turn.
    Spread,
    /// Any.
    Random,
    /// Next to the switches with most of the job's workers.
    Near,
}

/// Element types.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Element {
    /// IEEE 754 binary32.
    #[default]
    F32,
    /// IEEE 754 binary64.
    F64,
    /// Signed, 32 bits.
    I32,
    /// Signed, 64 bits.
    I64,
    /// IEEE 754 binary16.
    F16,
    /// The upper half of a binary32.
    #[serde(rename = "bf16")]
    BF16,
    /// Signed, 8 bits.
    I8,
    /// Signed, 16 bits.
    I16,
    /// Unsigned, 8 bits.
    U8,
}

impl Element {
    /// The element type of the core.
    pub fn dtype(self) -> DType {
        match self {
            Element::F32 => DType::F32,
            Element::F64 => DType::F64,
            Element::I32 => DType::I32,
            Element::I64 => DType::I64,
            Element::F16 => DType::F16,
            Element::BF16 => DType::BF16,
            Element::I8 => DType::I8,
            Element::I16 => DType::I16,
            Element::U8 => DType::U8,
        }
    }
}

/// How sums of floats are made to have the same bits in every order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reproducible {
    /// As integers, each element on a grid of its own.
    Element,
}

/// NVLink of the fourth generation (H100): 900 GB/s, half of it each way (NVIDIA H100 Tensor Core GPU datasheet).
fn local_rate_default() -> Rate {
    Rate(3_600_000_000_000)
}

fn local_latency_default() -> Time {
    Time(Duration::from_us(1))
}

/// Fills an idle network of 100 Gb/s and a few microseconds several times over; what more would gain under congestion stands in queues.
fn window_default() -> Window {
    Window(512)
}

fn rto_initial_default() -> Time {
    Time(Duration::from_ms(1))
}

fn rto_min_default() -> Time {
    Time(Duration::from_us(100))
}

fn patience_default() -> Time {
    Time(Duration::from_ms(100))
}
