//! What passes between a testbed and the process of a host: one JSON object a line, orders on the child's standard input, events on its
//! standard output.

use std::collections::BTreeMap;

use fanin_control::fabric::PortStatus;
use fanin_control::{CallKind, JobAnnouncement};
use serde::{Deserialize, Serialize};

/// From the testbed to a host.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub enum Order {
    /// Be a worker of this job and make ready for these operations, be its server, or both: as the job has it.
    Job {
        /// The job, as it is announced to the switches.
        job: Box<JobAnnouncement>,
        /// Its operations.
        operations: Vec<Operations>,
        /// Seed of the vectors; the same at all workers.
        vector_seed: u64,
        /// Values are such that sums of them are rounded.
        #[serde(default)]
        are_rounded: bool,
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
pub struct Operations {
    /// `allreduce`, `reduce`, `broadcast`, `barrier`, `reduce-scatter` or `all-gather`.
    pub kind: KindName,
    /// Length of the whole vector in elements.
    pub elements: u64,
    /// How many.
    #[serde(default = "one")]
    pub count: u32,
    /// The rank that is special to a reduce or broadcast.
    #[serde(default)]
    pub root: u32,
}

fn one() -> u32 {
    1
}

/// Kinds of operation, under the names of messages and tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KindName {
    /// Every worker gets the sum.
    #[default]
    Allreduce,
    /// One worker gets the sum.
    Reduce,
    /// Every worker gets the vector of one.
    Broadcast,
    /// No worker goes on before all have come.
    Barrier,
    /// Every worker gets its share of the sum.
    ReduceScatter,
    /// Every worker gets everybody's share.
    AllGather,
}

impl Operations {
    /// What is called.
    pub fn call(&self) -> CallKind {
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
pub struct Stream {
    /// Names the stream at its host.
    pub id: u32,
    /// The host that it goes to, by name.
    pub to: String,
    /// Of whole datagrams, without IP and UDP headers.
    pub bits_per_second: u64,
    /// Bytes behind the headers of a datagram.
    pub payload_bytes: u16,
    /// The switch above this host's leaf that it goes by.
    pub via: Option<String>,
}

/// From a host to the testbed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The socket is open.
    Ready {
        /// The host's name in the fabric.
        name: String,
        /// Its number.
        node: u32,
        /// Its socket.
        address: String,
    },
    /// The link to the leaf has changed: `up`, `one-way` or `down`.
    Link {
        /// What it is now.
        state: String,
    },
    /// What the job has here is there.
    JobReady {
        /// The job.
        job: u16,
        /// Of its worker, if it has one here.
        rank: Option<u32>,
        /// Its server is here.
        server: bool,
    },
    /// How far the running operation is; at most every 50 ms.
    Progress {
        /// The job.
        job: u16,
        /// The operation's number.
        operation: u32,
        /// The part of the result that is here, from 0 to 1.
        done: f64,
    },
    /// An operation has ended just now; its result is not yet compared.
    Finished {
        /// The job.
        job: u16,
        /// The operation's number.
        operation: u32,
        /// From the call to its result at this worker.
        seconds: f64,
        /// Processor time of this process within it.
        cpu_seconds: f64,
    },
    /// What became of an operation.
    Operation(Box<OperationReport>),
    /// All operations have been run, or one has failed.
    JobDone {
        /// The job.
        job: u16,
        /// Operations that failed or gave a wrong result.
        failed: u32,
    },
    /// A stream has ended.
    TrafficStopped {
        /// Which one.
        id: u32,
        /// What it has sent.
        packets: u64,
        /// Whole datagrams, without IP and UDP headers.
        bytes: u64,
    },
    /// An order that cannot be carried out.
    Refused {
        /// What was to be done.
        order: String,
        /// Why it cannot be.
        text: String,
    },
    /// What happened up to now.
    Status(Box<HostStatus>),
}

/// What became of an operation.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct OperationReport {
    /// Its job.
    pub job: u16,
    /// Its number within the job.
    pub operation: u32,
    /// What was called.
    pub kind: KindName,
    /// Length of the whole vector.
    pub elements: u64,
    /// From the call to its result at this worker; the workers' barrier before it is not part of it.
    pub seconds: f64,
    /// Processor time of this process within it.
    pub cpu_seconds: f64,
    /// Bits of the vector over the time.
    pub goodput_bits_per_second: f64,
    /// Complete, and every element of the result is right.
    pub ok: bool,
    /// How many elements of the result are wrong.
    pub wrong_elements: u64,
    /// The first of them.
    pub first_wrong: Option<u64>,
    /// Ranks whose contributions the result lacks: the job has gone on without them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<u32>,
    /// Of values whose sums are rounded: stands for all bits of the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bits: Option<String>,
    /// Why it is not complete.
    pub error: Option<String>,
    /// Who is missing, as far as is known: `rank 3`, `switch leaf0`.
    pub suspect: Option<String>,
    /// What happened within it.
    pub counters: HostCounters,
}

/// Counts of a host; zeros left out of maps.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct HostCounters {
    /// Packets of its jobs.
    pub packets_sent: u64,
    /// Packets of its jobs.
    pub packets_received: u64,
    /// Bytes of elements.
    pub payload_bytes_sent: u64,
    /// Bytes of elements.
    pub payload_bytes_received: u64,
    /// Packets that came with a mark of congestion.
    pub marked_received: u64,
    /// By reason.
    pub retransmitted: BTreeMap<String, u64>,
    /// Blocks that this host, as their leader, had begun anew, by the new generation.
    #[serde(default)]
    pub begun_anew: BTreeMap<String, u64>,
    /// What the host's nodes have counted beside packets, by what it is.
    #[serde(default)]
    pub counted: BTreeMap<String, u64>,
    /// How many blocks took so many nanoseconds, to within 2 %, from when the worker came to them.
    #[serde(default)]
    pub block_ns: BTreeMap<String, u64>,
    /// By reason.
    pub dropped: BTreeMap<String, u64>,
    /// By kind.
    pub injected: BTreeMap<String, u64>,
}

/// What happened at a host up to now.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct HostStatus {
    /// The host's name.
    pub name: String,
    /// `up`, `one-way` or `down`.
    pub link: String,
    /// Processor time of its process.
    pub cpu_seconds: f64,
    /// What its nodes counted.
    pub counters: HostCounters,
    /// Its link to the leaf.
    pub port: PortStatus,
    /// Of streams that still run.
    pub traffic_sent: TrafficTotal,
    /// Of all streams that came here.
    pub traffic_received: TrafficTotal,
}

/// Background traffic.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TrafficTotal {
    /// Packets.
    pub packets: u64,
    /// Whole datagrams, without IP and UDP headers.
    pub bytes: u64,
}
