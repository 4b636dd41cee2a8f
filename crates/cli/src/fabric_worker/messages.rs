//! What passes between a testbed and the process of a host: one JSON object a line, orders on the child's standard input, events on its
//! standard output.

use std::collections::BTreeMap;

use fanin_control::fabric::PortStatus;
use fanin_control::{CallKind, JobAnnouncement};
use serde::{Deserialize, Serialize};

/// From the testbed to a host.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub(crate) enum Order {
    /// Be a worker of this job and make ready for these operations, be its server, or both: as the job has it.
    Job {
        /// The job, as it is announced to the switches.
        job: Box<JobAnnouncement>,
        /// Its operations.
        operations: Vec<Operations>,
        /// Seed of the vectors; the same at all workers.
        vector_seed: u64,
    },
    /// Run the job's operations, one after the other.
    Start {
        /// The job.
        job: u16,
    },
    /// Send background traffic from now on, whatever becomes of it.
    Traffic(Stream),
    /// End a stream.
    StopTraffic {
        /// Which one.
        id: u32,
    },
    /// Tell what happened up to now.
    Status,
    /// Tell what happened, and end.
    End,
}

/// Operations of one kind, one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Operations {
    /// `allreduce`, `reduce`, `broadcast`, `barrier`, `reduce-scatter` or `all-gather`.
    pub(crate) kind: KindName,
    /// Length of the whole vector in elements.
    pub(crate) elements: u64,
    /// How many.
    #[serde(default = "one")]
    pub(crate) count: u32,
    /// The rank that is special to a reduce or broadcast.
    #[serde(default)]
    pub(crate) root: u32,
}

fn one() -> u32 {
    1
}

/// Kinds of operation, under the names of messages and tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum KindName {
    #[default]
    Allreduce,
    Reduce,
    Broadcast,
    Barrier,
    ReduceScatter,
    AllGather,
}

impl Operations {
    /// What is called.
    pub(crate) fn call(&self) -> CallKind {
        match self.kind {
            KindName::Allreduce => CallKind::Allreduce,
            KindName::Reduce => CallKind::Reduce { root: self.root },
            KindName::Broadcast => CallKind::Broadcast { root: self.root },
            KindName::Barrier => CallKind::Barrier,
            KindName::ReduceScatter => CallKind::ReduceScatter,
            KindName::AllGather => CallKind::AllGather,
        }
    }
}

/// A stream of background traffic.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Stream {
    /// Names the stream at its host.
    pub(crate) id: u32,
    /// The host that it goes to, by name.
    pub(crate) to: String,
    /// Of whole datagrams, without IP and UDP headers.
    pub(crate) bits_per_second: u64,
    /// Bytes behind the headers of a datagram.
    pub(crate) payload_bytes: u16,
    /// The switch above this host's leaf that it goes by.
    pub(crate) via: Option<String>,
}

/// From a host to the testbed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Event {
    /// The socket is open.
    Ready {
        /// The host's name and number in the fabric.
        name: String,
        node: u32,
        /// Its socket.
        address: String,
    },
    /// The link to the leaf has changed: `up`, `one-way` or `down`.
    Link { state: String },
    /// What the job has here is there.
    JobReady {
        job: u16,
        /// Of its worker, if it has one here.
        rank: Option<u32>,
        /// Its server is here.
        server: bool,
    },
    /// How far the running operation is; at most every 50 ms.
    Progress {
        job: u16,
        operation: u32,
        /// The part of the result that is here, from 0 to 1.
        done: f64,
    },
    /// An operation has ended just now; its result is not yet compared.
    Finished { job: u16, operation: u32, seconds: f64, cpu_seconds: f64 },
    /// What became of an operation.
    Operation(Box<OperationReport>),
    /// All operations have been run, or one has failed.
    JobDone {
        job: u16,
        /// Operations that failed or gave a wrong result.
        failed: u32,
    },
    /// A stream has ended.
    TrafficStopped { id: u32, packets: u64, bytes: u64 },
    /// An order that cannot be carried out.
    Refused { order: String, text: String },
    /// What happened up to now.
    Status(Box<HostStatus>),
}

/// What became of an operation.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct OperationReport {
    pub(crate) job: u16,
    pub(crate) operation: u32,
    pub(crate) kind: KindName,
    /// Length of the whole vector.
    pub(crate) elements: u64,
    /// From the call to its result at this worker; the workers' barrier before it is not part of it.
    pub(crate) seconds: f64,
    /// Processor time of this process within it.
    pub(crate) cpu_seconds: f64,
    /// Bits of the vector over the time.
    pub(crate) goodput_bits_per_second: f64,
    /// Complete, and every element of the result is right.
    pub(crate) ok: bool,
    pub(crate) wrong_elements: u64,
    pub(crate) first_wrong: Option<u64>,
    /// Ranks whose contributions the result lacks: the job has gone on without them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) without: Vec<u32>,
    /// Why it is not complete.
    pub(crate) error: Option<String>,
    /// Who is missing, as far as is known: `rank 3`, `switch leaf0`.
    pub(crate) suspect: Option<String>,
    /// What happened within it.
    pub(crate) counters: HostCounters,
}

/// Counts of a host; zeros left out of maps.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct HostCounters {
    pub(crate) packets_sent: u64,
    pub(crate) packets_received: u64,
    pub(crate) payload_bytes_sent: u64,
    pub(crate) payload_bytes_received: u64,
    pub(crate) marked_received: u64,
    /// By reason.
    pub(crate) retransmitted: BTreeMap<String, u64>,
    /// Blocks that this host, as their leader, had begun anew, by the new generation.
    #[serde(default)]
    pub(crate) begun_anew: BTreeMap<String, u64>,
    /// What the host's nodes have counted beside packets, by what it is.
    #[serde(default)]
    pub(crate) counted: BTreeMap<String, u64>,
    /// How many blocks took so many nanoseconds, to within 2 %, from when the worker came to them.
    #[serde(default)]
    pub(crate) block_ns: BTreeMap<String, u64>,
    /// By reason.
    pub(crate) dropped: BTreeMap<String, u64>,
    /// By kind.
    pub(crate) injected: BTreeMap<String, u64>,
}

/// What happened at a host up to now.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct HostStatus {
    pub(crate) name: String,
    /// `up`, `one-way` or `down`.
    pub(crate) link: String,
    pub(crate) cpu_seconds: f64,
    pub(crate) counters: HostCounters,
    pub(crate) port: PortStatus,
    /// Of streams that still run.
    pub(crate) traffic_sent: TrafficTotal,
    pub(crate) traffic_received: TrafficTotal,
}

/// Background traffic.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct TrafficTotal {
    pub(crate) packets: u64,
    /// Whole datagrams, without IP and UDP headers.
    pub(crate) bytes: u64,
}
