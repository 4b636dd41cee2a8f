//! What is said to a switch of a fabric: jobs begin and end, and how are things? One TCP connection can say all of it; each request has
//! one answer.
//!
//! ```text
//!   testbed or worker                switch
//!    | Hello{version} -------------->  |
//!    | <--------------- Hello{version} |  another version: Refused, and the end
//!    | Announce{job, system, ...} -->  |
//!    | <---- Announced{job} | Refused  |
//!    | End{job} -------------------->  |
//!    | <-------- Ended{job} | Refused  |
//!    | Status ---------------------->  |
//!    | <---------------- Status{...}   |
//! ```

use std::collections::BTreeMap;

use fanin_core::{Duration, ElementOp, JobId, JobNodes, NetworkMap, NodeId};
use fanin_systems::{AnyNode, BuildError, JobSpec, System, build};
use serde::{Deserialize, Serialize};

use crate::call::Op;
use crate::message::{Hello, SwitchHello};

/// A request to a switch of a fabric.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FabricRequest {
    /// The first message.
    Hello(Hello),
    /// A job begins. Packets of it are summed from the answer on.
    Announce(Box<JobAnnouncement>),
    /// A job ends: its memory is given back, and packets of it pass as those of strangers.
    End {
        /// The job.
        job: u16,
    },
    /// How are things?
    Status,
}

/// The answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FabricReply {
    /// To `Hello`.
    Hello(SwitchHello),
    /// To `Announce`.
    Announced {
        /// The job.
        job: u16,
        /// The job has a node at this switch; otherwise the switch only passes its packets on.
        takes_part: bool,
    },
    /// To `End`.
    Ended {
        /// The job.
        job: u16,
    },
    /// To `Status`.
    Status(Box<SwitchStatus>),
    /// To anything that cannot be done.
    Refused {
        /// Why, in words.
        text: String,
    },
}

/// Everything that the nodes of a job are made from, besides the fabric.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobAnnouncement {
    /// The job's number in packets.
    pub job: u16,
    /// The system that sums.
    pub system: System,
    /// Element type and operator.
    pub op: Op,
    /// Bytes of elements in a full packet.
    pub payload_bytes: u32,
    /// Packets that a worker has under way at most; [`fanin_systems::UNLIMITED`] where the system can do without a limit.
    pub window: u32,
    /// Recover from losses.
    pub reliable: bool,
    /// First retransmission timeout, in us.
    pub rto_initial_us: u64,
    /// Lower bound of the retransmission timeout, in us.
    pub rto_min_us: u64,
    /// An operation without progress for so long has failed, in ms.
    pub patience_ms: u64,
    /// Seed of the job's random choices.
    pub seed: u64,
    /// The hosts of its workers by rank, as numbers of nodes.
    pub hosts: Vec<u32>,
}

impl JobAnnouncement {
    /// The rank of the worker at a host.
    pub fn rank_of(&self, host: NodeId) -> Option<u32> {
        self.hosts.iter().position(|&node| node == host.0).map(|rank| rank as u32)
    }

    /// All nodes of the job in a fabric with this map.
    ///
    /// # Errors
    /// [`BuildError`] names the field that contradicts the network or another field.
    pub fn nodes(&self, map: &NetworkMap) -> Result<JobNodes<AnyNode<[u8]>>, BuildError> {
        let op = ElementOp::from(self.op);
        if let Err(error) = ElementOp::new(op.dtype, op.operator) {
            return Err(BuildError::new("operator", self.op.operator, format!("one that {} has: {error}", op.dtype)));
        }
        if let Some(stranger) = self.hosts.iter().find(|host| **host >= map.hosts()) {
            return Err(BuildError::new("hosts", stranger, format!("numbers of hosts, below {}", map.hosts())));
        }
        let hosts: Vec<NodeId> = self.hosts.iter().copied().map(NodeId).collect();
        let spec = JobSpec {
            id: JobId(self.job),
            hosts: &hosts,
            servers: &[],
            system: self.system,
            op,
            element_bytes: op.dtype.bytes() as u32,
            payload_bytes: self.payload_bytes,
            window: self.window,
            reliable: self.reliable,
            rto_initial: Duration::from_us(self.rto_initial_us),
            rto_min: Duration::from_us(self.rto_min_us),
            patience: Duration::from_ms(self.patience_ms),
            seed: self.seed,
        };
        build::<[u8]>(&spec, map)
    }
}

/// How a switch of a fabric is, and what it has done since it started.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct SwitchStatus {
    /// Its name in the fabric's file.
    pub name: String,
    /// By port number.
    pub ports: Vec<PortStatus>,
    /// Jobs that run.
    pub jobs: Vec<JobStatus>,
    /// Packets that were dropped, by reason, of all jobs and of none; zeros left out.
    pub dropped: BTreeMap<String, u64>,
    /// Packets that were passed on.
    pub forwarded: u64,
    /// Those among them that were background traffic.
    pub background_forwarded: u64,
    /// Neighbours that came back as another process.
    pub peers_restarted: u64,
    /// Processor time of the process.
    pub cpu_seconds: f64,
    /// Injected faults, by kind; zeros left out.
    pub injected: BTreeMap<String, u64>,
}

/// How a port of a fabric is.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct PortStatus {
    /// Its number.
    pub port: u16,
    /// The name of the neighbour.
    pub peer: String,
    /// `down`, `one-way` or `up`.
    pub state: String,
    /// Bytes in the queue.
    pub queue_bytes: u64,
    /// The most that were in it at once.
    pub queue_bytes_peak: u64,
    /// Packets that have left by it, hellos not counted.
    pub packets_sent: u64,
    /// Their bytes, whole datagrams without IP and UDP headers.
    pub bytes_sent: u64,
    /// Packets that have entered by it, hellos not counted.
    pub packets_received: u64,
    /// Packets that were marked here.
    pub marked: u64,
    /// Packets that found the queue full.
    pub dropped_full: u64,
    /// Packets that found the link down.
    pub dropped_down: u64,
    /// Times that the link went out of use.
    pub went_down: u64,
}

impl PortStatus {
    /// Each side of the link hears the other.
    pub fn is_up(&self) -> bool {
        self.state == "up"
    }
}

/// What a job's node at a switch has done.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct JobStatus {
    /// The job.
    pub job: u16,
    /// Packets that reached the node.
    pub packets_received: u64,
    /// Packets that it sent.
    pub packets_sent: u64,
    /// Packets that it dropped, by reason; zeros left out.
    pub dropped: BTreeMap<String, u64>,
    /// Packets that it sent again, by reason; zeros left out.
    pub retransmitted: BTreeMap<String, u64>,
    /// Aggregator memory in use.
    pub slot_bytes: u64,
    /// The most that was in use at once.
    pub slot_bytes_peak: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanin_core::Address;

    fn announcement() -> JobAnnouncement {
        JobAnnouncement {
            job: 7,
            system: System::Tree { trees: 1 },
            op: Op::F32_SUM,
            payload_bytes: 1024,
            window: 64,
            reliable: true,
            rto_initial_us: 100_000,
            rto_min_us: 5_000,
            patience_ms: 1_000,
            seed: 1,
            hosts: vec![2, 0],
        }
    }

    #[test]
    fn a_job_is_announced_as_json_that_people_can_read() {
        let text = serde_json::to_string(&FabricRequest::Announce(Box::new(announcement()))).unwrap();
        let expected =
            r#"{"announce":{"job":7,"system":{"system":"tree","trees":1},"op":{"dtype":"f32","operator":"sum"},"payload_bytes":1024,"#;
        assert!(text.starts_with(expected), "{text}");
        let again: FabricRequest = serde_json::from_str(&text).unwrap();
        assert_eq!(again, FabricRequest::Announce(Box::new(announcement())));
        assert!(serde_json::from_str::<FabricRequest>(&text.replace("\"seed\"", "\"sead\"")).is_err());
    }

    #[test]
    fn its_nodes_are_those_of_the_registry_and_what_cannot_be_is_named() {
        let map = NetworkMap::star(3);
        let nodes = announcement().nodes(&map).unwrap();
        let at: Vec<Address> = nodes.workers.iter().map(|placed| placed.at).collect();
        assert_eq!(at, [Address::worker(NodeId(2)), Address::worker(NodeId(0))]);
        assert_eq!(announcement().rank_of(NodeId(0)), Some(1));
        assert_eq!(announcement().rank_of(NodeId(1)), None);
        let refused = |change: fn(&mut JobAnnouncement)| {
            let mut job = announcement();
            change(&mut job);
            job.nodes(&map).unwrap_err().to_string()
        };
        assert_eq!(refused(|job| job.hosts.push(3)), "hosts = 3: expected numbers of hosts, below 3");
        assert_eq!(refused(|job| job.payload_bytes = 1_023), "payload = 1023: expected a multiple of 4, the length of an element");
    }
}
