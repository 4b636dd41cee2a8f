//! What passes between the testbed and a host's process: one JSON object a line, orders on its standard input, events on its standard
//! output.

use std::collections::BTreeMap;

use super::stub::JobAnnouncement;
use serde::{Deserialize, Serialize};

/// From the testbed to a host.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub enum Order {
    /// Be a worker of this job. Answered by [`Event::JobReady`].
    Job {
        /// The job; the rank is the host's place among its hosts.
        job: JobAnnouncement,
        /// What it runs.
        operations: Vec<Operations>,
        /// Seed of the vectors.
        vector_seed: u64,
        /// So long after the start, in ms.
        start_delay_ms: u64,
    },
    /// Run all operations, one after the other.
    Start {
        /// The job.
        job: u16,
    },
    /// Send a stream from now on, whatever becomes of it.
    Traffic {
        /// Its number.
        id: u32,
        /// The host that receives.
        to: String,
        /// On the wire, counted as the fabric counts.
        bits_per_second: u64,
        /// Payload of a packet.
        payload_bytes: u32,
        /// The switch above the leaf that it takes.
        via: Option<String>,
    },
    /// Send this stream no more. Answered by [`Event::TrafficStopped`].
    StopTraffic {
        /// Its number.
        id: u32,
    },
    /// Tell what happened, and end. Answered by [`Event::Status`].
    End,
}

/// Operations that are alike.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Operations {
    /// The collective.
    pub kind: &'static str,
    /// Elements of the whole vector.
    pub elements: u64,
    /// How many.
    pub count: u32,
    /// The rank at the root, where the collective has one.
    pub root: u32,
}

/// From a host to the testbed. Fields that nobody reads here are left out.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The socket is open.
    Ready,
    /// The link to the leaf has changed.
    Link {
        /// `"up"`, `"one-way"` or `"down"`.
        state: String,
    },
    /// Packets of the job are answered from now on.
    JobReady,
    /// How far the operation that runs is.
    Progress {
        /// Its number.
        operation: u32,
        /// The part of the result that is here, from 0 to 1.
        done: f64,
    },
    /// An operation has ended just now; its result is compared next.
    Finished {
        /// Its number.
        operation: u32,
        /// From its beginning at this worker to its end.
        seconds: f64,
    },
    /// An operation has ended, and its result is compared.
    Operation(OperationEnd),
    /// No further operation is run.
    JobDone,
    /// A stream has ended.
    TrafficStopped {
        /// Its number.
        id: u32,
        /// What was sent.
        #[serde(flatten)]
        sent: TrafficCount,
    },
    /// An order cannot be obeyed.
    Refused {
        /// Why.
        text: String,
    },
    /// What happened since the start.
    Status(HostStatus),
}

/// How an operation ended at a worker.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct OperationEnd {
    /// Its number.
    pub operation: u32,
    /// From its beginning at this worker to its end.
    pub seconds: f64,
    /// CPU time of the process meanwhile.
    pub cpu_seconds: f64,
    /// It is complete, and every element is right.
    pub ok: bool,
    /// Elements that are not what they must be.
    pub wrong_elements: u64,
    /// The first of them.
    pub first_wrong: Option<u64>,
    /// Why it is not complete.
    pub error: Option<String>,
    /// Who is missing, where that is known.
    pub suspect: Option<String>,
    /// What happened during it.
    pub counters: WorkerCounters,
}

/// Counts by name; zeros may be missing.
pub type Counts = BTreeMap<String, u64>;

/// What a worker counts.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerCounters {
    /// Packets.
    pub packets_sent: u64,
    /// Packets.
    pub packets_received: u64,
    /// Packets sent again, by reason.
    pub retransmitted: Counts,
    /// Packets dropped, by reason.
    pub dropped: Counts,
    /// Injected faults, by kind.
    pub injected: Counts,
    /// What the system itself counts, as blocks issued again.
    pub protocol: Counts,
}

/// What happened at a host.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct HostStatus {
    /// CPU time of the process, all of it.
    pub cpu_seconds: f64,
    /// Since the start.
    pub counters: WorkerCounters,
    /// Its port to the leaf, as it says.
    #[serde(default)]
    pub port: serde_json::Value,
    /// Streams.
    pub traffic_sent: TrafficCount,
    /// Streams.
    pub traffic_received: TrafficCount,
}

/// What went or came of streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TrafficCount {
    /// Packets.
    pub packets: u64,
    /// Payload.
    pub bytes: u64,
}
