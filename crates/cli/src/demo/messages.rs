//! What passes between the demo and its child processes: one JSON object a line, orders on the child's standard input, reports on
//! its standard output.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::fabric::{DemoFabric, Part};
use super::system::DemoSystem;
use crate::allreduce::Way;

/// What a child is to be.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Setup {
    pub(super) system: DemoSystem,
    /// The fabric, where there are several switches.
    pub(super) fabric: Option<DemoFabric>,
    /// The node: workers are `0..workers`, the switch follows, or the switches of the fabric and its manager.
    pub(super) number: u32,
    pub(super) workers: u32,
    pub(super) elements: u64,
    pub(super) way: Way,
    /// `None` where the manager of a fabric chooses.
    pub(super) payload_bytes: Option<u32>,
    pub(super) window: Option<u32>,
    pub(super) patience_ms: u64,
    pub(super) seed: u64,
    pub(super) loss: f64,
    pub(super) duplicate: f64,
    pub(super) reorder: f64,
    pub(super) corrupt: f64,
}

impl Setup {
    /// What the child is.
    pub(super) fn part(&self) -> Part {
        match &self.fabric {
            _ if self.number < self.workers => Part::Host,
            Some(fabric) => fabric.part(self.number, self.workers),
            None => Part::Manager,
        }
    }
}

/// From the demo to a child.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Order {
    /// Be this; bind a socket, if others need to know it.
    Setup(Setup),
    /// These are the sockets that others need to know, in the order of their nodes' numbers.
    Peers { sockets: Vec<SocketAddr> },
    /// Make the input of this iteration.
    Prepare { iteration: u32 },
    /// Run the operation.
    Run,
    /// Compare the output with the sums that it must be.
    Verify,
    /// Tell what happened, and end.
    End,
}

/// How an operation ended at a worker.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ended {
    /// Complete.
    Done,
    /// Not complete.
    Failed {
        /// The reason in words.
        text: String,
        /// The rank that is missing, where it is known.
        suspect_rank: Option<u32>,
    },
}

/// From a child to the demo.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Report {
    /// The socket is there, where there is one that others need to know.
    Bound { address: Option<SocketAddr> },
    /// Peers are known; packets are answered from now on. A worker says how its vectors travel.
    Ready { path: Option<PathFacts> },
    /// How far a worker is with its operation. Comes unasked.
    Live(Live),
    /// What the user should know while nothing moves. Comes unasked.
    Notice { text: String },
    /// The input is made.
    Prepared,
    /// The operation has ended.
    Finished { seconds: f64, cpu_seconds: f64, ended: Ended },
    /// The output is compared.
    Verified { wrong: u64, first_wrong: Option<u64> },
    /// What happened since the start.
    Statistics(ChildStatistics),
}

/// How a worker's vectors travel.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct PathFacts {
    /// In words.
    pub(super) text: String,
    /// Elements in a packet, in bytes; `None` where there are no packets.
    pub(super) payload_bytes: Option<u32>,
    /// Packets under way.
    pub(super) window: Option<u32>,
    pub(super) receive_buffer_bytes: Option<u64>,
}

/// How far a worker is with its operation.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Live {
    /// The part of the result that is here, from 0 to 1.
    pub(super) done: f64,
    /// Since the operation began.
    pub(super) seconds: f64,
    /// Packets sent again, in all operations up to now.
    pub(super) sent_again: u64,
}

/// What happened in a child.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct ChildStatistics {
    /// CPU time of the switch while the iterations ran; workers report theirs with each operation.
    pub(super) cpu_seconds: f64,
    pub(super) packets_sent: u64,
    pub(super) packets_received: u64,
    pub(super) datagrams: u64,
    pub(super) send_calls: u64,
    pub(super) turns: u64,
    pub(super) waits: u64,
    pub(super) slot_bytes_peak: u64,
    pub(super) broken: u64,
    /// Datagrams that the kernel refused to send.
    pub(super) refused_by_kernel: u64,
    /// By reason; zeros left out.
    pub(super) retransmitted: Vec<(String, u64)>,
    /// By reason; zeros left out.
    pub(super) dropped: Vec<(String, u64)>,
    /// By kind; zeros left out.
    pub(super) injected: Vec<(String, u64)>,
}
