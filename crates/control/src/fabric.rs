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

use fanin_core::{Address, DType, Duration, ElementOp, FixedPoint, JobId, JobNodes, Length, NetworkMap, NodeId, Operator, PayloadOp, Role};
use fanin_systems::{AnyNode, BuildError, JobSpec, System, build, check_operator, shared};
use serde::{Deserialize, Serialize};

use crate::call::Op;
use crate::jobs::OpenJob;
use crate::message::{Admitted, Hello, OperatorWish, SwitchHello};

/// The operation whose accumulators do for all others: halves are summed in twice their length.
const WIDEST: PayloadOp = PayloadOp::BuiltIn(ElementOp { dtype: DType::F16, operator: Operator::Sum });

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
    /// The hosts of its servers, for systems that have servers; none for one at the host of rank 0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<u32>,
    /// The operator that reduces, in place of that of `op`, whose type elements have all the same: the fabric's own, or one that the job
    /// brings along.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator: Option<OperatorName>,
    /// What that operator does, as whoever makes nodes has it; it does not travel.
    #[serde(skip)]
    pub kernel: Option<PayloadOp>,
}

/// An operator that a fabric's file names, or that a job brings along.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperatorName {
    /// Its name there.
    pub name: String,
    /// The SHA-256 of its module, as 64 hexadecimal digits: all must have the same.
    pub sha256: String,
    /// The module of one that the job brings along, as hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
}

impl From<&OperatorWish> for OperatorName {
    fn from(wish: &OperatorWish) -> Self {
        OperatorName { name: wish.name.clone(), sha256: wish.digest.clone(), module: wish.module.clone() }
    }
}

/// What a job takes of a switch's memory at most, where it has a node there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SwitchMemory {
    /// Slots that it may have in use.
    pub slots: u64,
    /// Bytes of one: its sums, in two versions or wider than the elements, and what is known of it.
    pub slot_bytes: u64,
    /// The number of the system, where all its jobs have one memory together.
    pub shared: Option<u8>,
    /// The parameter that says how many slots there are.
    pub key: &'static str,
}

impl SwitchMemory {
    /// All of it.
    pub fn bytes(&self) -> u64 {
        self.slots.saturating_mul(self.slot_bytes)
    }
}

/// What a switch knows of a slot, beside its sums.
const SLOT_STATE_BYTES: u64 = 64;

/// What manager and ranks both know of a job of ranks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RanksJob {
    job: u16,
    system: System,
    payload_bytes: u32,
    window: u32,
    patience_ms: u64,
    seed: u64,
}

impl From<&OpenJob> for RanksJob {
    fn from(open: &OpenJob) -> Self {
        let OpenJob { job_id: job, system, payload_bytes, window, patience_ms, seed, .. } = *open;
        RanksJob { job, system, payload_bytes, window, patience_ms, seed }
    }
}

impl From<&Admitted> for RanksJob {
    fn from(admitted: &Admitted) -> Self {
        let Admitted { job_id: job, system, payload_bytes, window, patience_ms, seed, .. } = *admitted;
        RanksJob { job, system, payload_bytes, window, patience_ms, seed }
    }
}

/// Timeouts of a job of ranks: as on the testbed, where fabrics of software switches are at home.
const RTO_INITIAL_US: u64 = 200_000;
const RTO_MIN_US: u64 = 20_000;
/// What a job of ranks waits for at least, in ms. Ranks know better how long a call may take, and end it first.
const PATIENCE_MS_MIN: u64 = 600_000;

impl JobAnnouncement {
    /// The job that a manager has admitted, whose ranks are these hosts, by rank: what its switches are told, and what its ranks conclude.
    pub fn of_ranks(admitted: &RanksJob, op: Op, hosts: Vec<u32>) -> Self {
        JobAnnouncement {
            job: admitted.job,
            system: admitted.system,
            op,
            payload_bytes: admitted.payload_bytes,
            window: admitted.window,
            reliable: true,
            rto_initial_us: RTO_INITIAL_US,
            rto_min_us: RTO_MIN_US,
            patience_ms: admitted.patience_ms.saturating_mul(2).max(PATIENCE_MS_MIN),
            seed: admitted.seed,
            hosts,
            servers: Vec::new(),
            operator: None,
            kernel: None,
        }
    }

    /// What the job takes of a switch's memory at most, found out without taking any.
    ///
    /// # Errors
    /// [`BuildError`] names the field that makes no sense.
    pub fn switch_memory(&self, switch: NodeId, map: &NetworkMap) -> Result<SwitchMemory, BuildError> {
        self.with_spec(map, |spec| {
            Ok(SwitchMemory {
                slots: spec.switch_slots(u64::MAX),
                slot_bytes: spec.slot_bytes(map, switch).saturating_mul(2).saturating_add(SLOT_STATE_BYTES),
                shared: spec.shares_slots().then(|| spec.system.number()),
                key: spec.slots_key(),
            })
        })
    }

    /// The rank of the worker at a host.
    pub fn rank_of(&self, host: NodeId) -> Option<u32> {
        self.hosts.iter().position(|&node| node == host.0).map(|rank| rank as u32)
    }

    /// All nodes that are the job's own in a fabric with this map.
    ///
    /// # Errors
    /// [`BuildError`] names the field that contradicts the network or another field.
    pub fn nodes(&self, map: &NetworkMap) -> Result<JobNodes<AnyNode<[u8]>>, BuildError> {
        self.with_spec(map, |spec| {
            let spec = JobSpec { system: spec.system.with_real_elements(), ..spec.clone() };
            let mut nodes = build::<[u8]>(&spec, map)?;
            if spec.system.fixed_point() {
                nodes.others.iter_mut().for_each(|placed| placed.node.adds_integers());
            }
            Ok(nodes)
        })
    }

    /// Whether the job can be in a fabric with this map, found out without memory for its nodes.
    ///
    /// # Errors
    /// As [`JobAnnouncement::nodes`].
    pub fn check(&self, map: &NetworkMap) -> Result<(), BuildError> {
        self.with_spec(map, |spec| {
            let JobSpec { id, hosts, servers, system, op: _, element_bytes, payload_bytes, window, reliable, .. } = *spec;
            let JobSpec { rto_initial, rto_min, patience, seed, .. } = *spec;
            let spec = JobSpec {
                id,
                hosts,
                servers,
                system,
                op: (),
                element_bytes,
                payload_bytes,
                window,
                reliable,
                rto_initial,
                rto_min,
                patience,
                seed,
            };
            build::<Length>(&spec, map).map(drop)
        })?;
        // What depends on the operator: lengths have none.
        check_operator::<[u8]>(&self.system, &self.payload_op()?)
    }

    /// The job's node at a switch: its own, or one that later jobs may share; `None` where it has none.
    ///
    /// # Errors
    /// As [`JobAnnouncement::nodes`].
    pub fn node_at(&self, switch: NodeId, map: &NetworkMap) -> Result<Option<AnyNode<[u8]>>, BuildError> {
        let at = Address::switch(switch);
        self.with_spec(map, |spec| {
            let spec = &at_switches(spec);
            if let Some(placed) = build::<[u8]>(spec, map)?.others.into_iter().find(|placed| placed.at == at) {
                return Ok(Some(placed.node));
            }
            // Its memory does for every element type: jobs of other types may come.
            let any_type = JobSpec { op: WIDEST, ..spec.clone() };
            let nodes = shared::<[u8]>(&[any_type], map).map_err(|(_, error)| error)?;
            let Some(mut node) = nodes.into_iter().find(|node| node.placed.at == at).map(|node| node.placed.node) else {
                return Ok(None);
            };
            node.admit(switch, spec, map)?;
            Ok(Some(node))
        })
    }

    /// Lets the job share the node of a switch; false where the node is not one that jobs share, or not of this job's kind.
    ///
    /// # Errors
    /// [`BuildError`] where the job does not fit the node as the jobs before it have it.
    pub fn join(&self, node: &mut AnyNode<[u8]>, switch: NodeId, map: &NetworkMap) -> Result<bool, BuildError> {
        self.with_spec(map, |spec| node.admit(switch, &at_switches(spec), map))
    }

    /// How elements become integers on the wire: for the drivers of workers. `None` where they go as they are.
    pub fn fixed_point(&self) -> Option<FixedPoint> {
        let ElementOp { dtype, operator } = self.op.into();
        let workers = self.hosts.len() as u32;
        let fits = dtype == DType::F32 && (1..=FixedPoint::WORKERS_MAX).contains(&workers);
        match operator {
            Operator::Sum | Operator::Avg if fits && self.system.fixed_point() => Some(FixedPoint::new(workers, operator == Operator::Avg)),
            _ => None,
        }
    }

    /// The address of a server of the job at a host, if it has one there.
    pub fn server_at(&self, host: NodeId) -> Option<Address> {
        let is_default = self.servers.is_empty() && self.system.servers() > 0 && self.hosts.first() == Some(&host.0);
        let is_one = is_default || self.servers.contains(&host.0);
        (is_one && self.hosts.len() > 1).then_some(Address { node: host, role: Role::Server })
    }

    /// What reduces elements.
    fn payload_op(&self) -> Result<PayloadOp, BuildError> {
        let Some(OperatorName { name, .. }) = &self.operator else { return Ok(ElementOp::from(self.op).into()) };
        if !self.system.takes_operators() {
            let takers = System::names_of("or", System::takes_operators);
            let expected = format!("one that is built in: among the switches of a fabric only those of {takers} run others");
            return Err(BuildError::new("operator", name, expected));
        }
        self.kernel.clone().ok_or_else(|| BuildError::new("operator", name, "an operator that was loaded here"))
    }

    fn with_spec<R>(&self, map: &NetworkMap, act: impl FnOnce(&JobSpec<'_, PayloadOp>) -> Result<R, BuildError>) -> Result<R, BuildError> {
        let op = ElementOp::from(self.op);
        if let Err(error) = ElementOp::new(op.dtype, op.operator) {
            return Err(BuildError::new("operator", self.op.operator, format!("one that {} has: {error}", op.dtype)));
        }
        if self.op.custom.is_some() {
            return Err(BuildError::new("operator", self.op, "one that is built in: switches of a fabric run no others"));
        }
        let payload_op = self.payload_op()?;
        if self.system.fixed_point() && self.fixed_point().is_none() {
            return Err(BuildError::new("fixed_point", true, "false, unless elements are 32-bit floats that are summed or averaged"));
        }
        for (field, nodes) in [("hosts", &self.hosts), ("servers", &self.servers)] {
            if let Some(stranger) = nodes.iter().find(|host| **host >= map.hosts()) {
                return Err(BuildError::new(field, stranger, format!("numbers of hosts, below {}", map.hosts())));
            }
        }
        let nodes = |numbers: &[u32]| -> Vec<NodeId> { numbers.iter().copied().map(NodeId).collect() };
        let (hosts, servers) = (nodes(&self.hosts), nodes(&self.servers));
        let spec = JobSpec {
            id: JobId(self.job),
            hosts: &hosts,
            servers: &servers,
            system: self.system,
            op: payload_op,
            element_bytes: op.dtype.bytes() as u32,
            payload_bytes: self.payload_bytes,
            window: self.window,
            reliable: self.reliable,
            rto_initial: Duration::from_us(self.rto_initial_us),
            rto_min: Duration::from_us(self.rto_min_us),
            patience: Duration::from_ms(self.patience_ms),
            seed: self.seed,
        };
        act(&spec)
    }
}

/// A job as its switches have it: what comes to be added there in fixed point are integers.
fn at_switches<'a>(spec: &JobSpec<'a, PayloadOp>) -> JobSpec<'a, PayloadOp> {
    let op = if spec.system.fixed_point() { ElementOp::I32_SUM.into() } else { spec.op.clone() };
    JobSpec { op, ..spec.clone() }
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
    /// What nodes of all jobs have counted beside packets, also of those that have ended, by what it is; zeros left out.
    #[serde(default)]
    pub counted: BTreeMap<String, u64>,
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
    /// Bytes of vectors that it sent to workers, copies of a multicast counted one by one.
    #[serde(default)]
    pub payload_bytes_to_workers: u64,
    /// Packets that it dropped, by reason; zeros left out.
    pub dropped: BTreeMap<String, u64>,
    /// Packets that it sent again, by reason; zeros left out.
    pub retransmitted: BTreeMap<String, u64>,
    /// What it has counted beside packets, by what it is; zeros left out.
    #[serde(default)]
    pub counted: BTreeMap<String, u64>,
    /// Aggregator memory in use.
    pub slot_bytes: u64,
    /// The most that was in use at once.
    pub slot_bytes_peak: u64,
    /// Who contributes here, and how often each was the last one; none where there is only one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last: Vec<LastStatus>,
    /// How the job's operator has failed here, if it has one and it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator_fault: Option<String>,
}

/// How often sums of a job had only one contributor to wait for, at a switch of a fabric.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LastStatus {
    /// The name of the neighbour: a host, or a switch with the sums of what is below it.
    pub contributor: String,
    /// Sums that it completed, as the last of all.
    pub completed: u64,
    /// How long these had nothing but it to wait for, together, in us.
    pub awaited_us: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanin_systems::AtpParameters;

    fn announcement() -> JobAnnouncement {
        JobAnnouncement {
            operator: None,
            kernel: None,
            job: 7,
            system: System::tree(1),
            op: Op::F32_SUM,
            payload_bytes: 1024,
            window: 64,
            reliable: true,
            rto_initial_us: 100_000,
            rto_min_us: 5_000,
            patience_ms: 1_000,
            seed: 1,
            hosts: vec![2, 0],
            servers: Vec::new(),
        }
    }

    #[test]
    fn a_job_is_announced_as_json_that_people_can_read() {
        let text = serde_json::to_string(&FabricRequest::Announce(Box::new(announcement()))).unwrap();
        let expected =
            r#"{"announce":{"job":7,"system":{"system":"tree","trees":1,"sum_order":"arrival"},"op":{"dtype":"f32","operator":"sum"},"#;
        assert!(text.starts_with(expected), "{text}");
        let again: FabricRequest = serde_json::from_str(&text).unwrap();
        assert_eq!(again, FabricRequest::Announce(Box::new(announcement())));
        assert!(serde_json::from_str::<FabricRequest>(&text.replace("\"seed\"", "\"sead\"")).is_err());
    }

    #[test]
    fn jobs_share_a_switch_whose_aggregators_they_agree_about() {
        let (map, switch) = (NetworkMap::star(4), NodeId(4));
        let first = JobAnnouncement { system: System::a2tp(), ..announcement() };
        let mut node = first.node_at(switch, &map).unwrap().unwrap();
        let half = Op { dtype: DType::BF16, ..Op::F32_SUM };
        let mut second = JobAnnouncement { job: 8, system: System::atp(), hosts: vec![1, 3], op: half, ..announcement() };
        assert_eq!(second.join(&mut node, switch, &map), Ok(true));
        second.payload_bytes = 2_048;
        let refused = second.join(&mut node, switch, &map).unwrap_err().to_string();
        assert_eq!(refused, "payload = 2048: expected at most 1024, the length of the aggregators that the first job has brought");
        let fewer = AtpParameters { aggregators: 9, ..AtpParameters::default() };
        let other = JobAnnouncement { system: System::Atp(fewer), payload_bytes: 1_024, ..second.clone() };
        let refused = other.join(&mut node, switch, &map).unwrap_err().to_string();
        assert_eq!(refused, "aggregators = 9: expected 450, as in the jobs that run: they share them");
        assert_eq!(announcement().join(&mut node, switch, &map), Ok(false), "a tree has nodes of its own");
        assert_eq!(first.server_at(NodeId(2)), Some(Address { node: NodeId(2), role: Role::Server }));
        let elsewhere = JobAnnouncement { servers: vec![3, 1], ..first };
        assert_eq!(elsewhere.server_at(NodeId(2)), None);
        assert!(
            elsewhere.server_at(NodeId(3)).is_some()
                && elsewhere.server_at(NodeId(1)).is_some()
                && announcement().server_at(NodeId(2)).is_none()
        );
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
        let mut whole = announcement();
        assert_eq!(whole.check(&map), Ok(()));
        whole.window = 0;
        assert_eq!(whole.check(&map).unwrap_err().to_string(), "window = 0: expected 1 to 1048576 packets");
        assert_eq!(refused(|job| job.hosts.push(3)), "hosts = 3: expected numbers of hosts, below 3");
        assert_eq!(refused(|job| job.payload_bytes = 1_023), "payload = 1023: expected a multiple of 4, the length of an element");
    }
}
