//! Vectors between hosts alone, over their own sockets: where the switch, or the fabric, has no room for the job or is gone.
//!
//! An allreduce goes round a ring (`ring`), everything else by messages (`exchange`). Both have jobs of one element type and operator, so there
//! is one for each kind of call, with a number that all ranks give it.

use std::collections::BTreeSet;
use std::sync::Arc;

use fanin_control::{Admitted, header_bytes_max};
use fanin_core::{Address, CollectiveKind, DType, ElementOp, JobId, NodeId, PortId};
use fanin_net::shm::Waiting;
use fanin_net::{SenderConfig, Socket};
use fanin_runtime::{BlockSet, CollectiveCall, DriverConfig, NodeConfig, PeerConfig, RunError, Vectors, WorkerDriver};
use fanin_systems::{ExchangeParameters, RingParameters, System};
use fanin_trust::{LinkKeys, PacketKeys};

use super::fabric::port::HostPort;
use super::star::{node, tag_bytes};
use super::stop::Stop;
use crate::call::copies;
use crate::config::Config;
use crate::error::CommError;

/// The keys of this rank's hops to all others, as the switch has told them.
fn keys_of(rank: u32, admitted: &Admitted) -> Result<Vec<LinkKeys>, CommError> {
    let others: Vec<u32> = admitted.peers.iter().map(|peer| peer.rank).filter(|other| *other != rank).collect();
    if others.len() != admitted.keys.len() {
        let reason = format!("{} keys for packets to {} hosts", admitted.keys.len(), others.len());
        return Err(CommError::System { what: "the paths to other hosts".into(), reason });
    }
    // Of two ranks, the first is what a rank is at a switch.
    let ends = |(other, keys): (u32, &PacketKeys)| if rank < other { LinkKeys::of_rank(keys) } else { LinkKeys::of_switch(keys) };
    Ok(others.into_iter().zip(&admitted.keys).map(ends).collect())
}

/// Payloads hold whole elements of every type.
const STEP_BYTES: u32 = 8;

/// Jobs of one rank among the others.
pub(crate) struct HostJobs {
    port: Arc<HostPort>,
    config: Config,
    admitted: Admitted,
    /// Jobs that have a node here.
    jobs: BTreeSet<JobId>,
}

impl HostJobs {
    /// # Errors
    /// Where what was admitted makes no sense.
    pub(crate) fn new(config: &Config, admitted: &Admitted, socket: Socket) -> Result<Self, CommError> {
        let barrier = (System::Exchange(ExchangeParameters::default()), copies(DType::U8));
        let (payload_bytes, longest) = packets(config, admitted);
        let admitted = Admitted { payload_bytes, ..admitted.clone() };
        let first = number(CollectiveKind::Barrier, barrier.1);
        let others = admitted.peers.iter().filter(|peer| peer.rank != config.rank);
        let peer = |(port, peer): (u16, &fanin_control::PeerInfo)| PeerConfig {
            address: Address::worker(NodeId(peer.rank)),
            socket: peer.address,
            port: Some(PortId(port)),
        };
        let of_node = NodeConfig {
            address: Address::worker(NodeId(config.rank)),
            job: first,
            system: barrier.0.number(),
            op: barrier.1,
            peers: (0..).zip(others).map(peer).collect(),
            routes: Vec::new(),
        };
        let how = DriverConfig {
            sender: SenderConfig { faults: config.faults, ..SenderConfig::default() },
            datagram_bytes_max: longest as usize + tag_bytes(&admitted),
            epoch: Some(admitted.epoch),
            peers_epoch: Some(admitted.epoch),
            ..DriverConfig::default()
        };
        let node = node(config, &Admitted { system: barrier.0, ..admitted.clone() }, barrier.1)?;
        let mut driver = WorkerDriver::new(socket, node, of_node, &how)
            .map_err(|error| CommError::System { what: "the paths to other hosts".into(), reason: error.to_string() })?;
        driver.set_busy(config.waiting == Waiting::Busy);
        if !admitted.keys.is_empty() {
            driver.protect(keys_of(config.rank, &admitted)?);
        }
        Ok(HostJobs { port: HostPort::around(driver)?, config: config.clone(), admitted, jobs: BTreeSet::from([first]) })
    }

    /// Where all of its jobs are.
    pub(super) fn port(&self) -> Arc<HostPort> {
        self.port.clone()
    }

    /// Runs what the system of its kind has.
    ///
    /// # Errors
    /// [`Stop`].
    pub(super) fn run(&mut self, what: &CollectiveCall, vectors: Vectors<'_>, goes_on: &mut dyn FnMut(u32) -> bool) -> Result<(), Stop> {
        let job = number(what.kind, what.op);
        let is_new = self.jobs.insert(job);
        let system = system_of(what.kind);
        let made = is_new.then(|| node(&self.config, &Admitted { system, job_id: job.0, ..self.admitted.clone() }, what.op)).transpose();
        let made = made.map_err(|error| Stop::Operator(error.to_string()))?;
        self.port.with(|driver| {
            if let Some(node) = made {
                driver.add_job(job, system.number(), node);
            }
            if !driver.select(job) {
                return Err(Stop::Run(RunError::NoJob));
            }
            let result = driver.collective(what, vectors, (&mut BlockSet::default(), 0), goes_on);
            driver.publish();
            result.map_err(Stop::Run)
        })
    }
}

/// The system that runs calls of a kind.
fn system_of(kind: CollectiveKind) -> System {
    let ring = System::Ring(RingParameters::default());
    if ring.offers(kind) { ring } else { System::Exchange(ExchangeParameters::default()) }
}

/// Bytes of elements in a packet of hosts, and the longest datagram: they are no longer than those to the switch, whose headers may be shorter.
fn packets(config: &Config, admitted: &Admitted) -> (u32, u32) {
    let longest = admitted.payload_bytes + header_bytes_max(&admitted.system, config.fixed_point);
    let systems = [CollectiveKind::Allreduce, CollectiveKind::Barrier].map(system_of);
    let headers = systems.iter().map(|system| header_bytes_max(system, false)).max().unwrap_or_default();
    ((longest.saturating_sub(headers) / STEP_BYTES * STEP_BYTES).max(STEP_BYTES), longest)
}

/// The number of the job of a kind of call, the same at all ranks.
fn number(kind: CollectiveKind, op: ElementOp) -> JobId {
    // Roots and pieces are of each call, and not of the job.
    let kinds = match kind {
        CollectiveKind::Allreduce => 0,
        CollectiveKind::Reduce { .. } => 1,
        CollectiveKind::Broadcast { .. } => 2,
        CollectiveKind::Barrier => 3,
        CollectiveKind::ReduceScatter => 4,
        CollectiveKind::AllGather => 5,
        CollectiveKind::AllToAll { .. } => 6,
    };
    JobId(1 + (kinds << 12 | u16::from(op.dtype.number() & 63) << 6 | u16::from(op.operator.number() & 63)))
}
