//! Vectors by UDP: SwitchML between this rank and the switch, any system over a fabric or, where these have no room or are gone, between hosts
//! alone.

mod resume;

use std::sync::Arc;
use std::time::{Duration, Instant};

use fanin_control::{Admitted, FailureKind, header_bytes_max};
use fanin_core::{Address, CollectiveKind, ElementOp, Failure, FailureReason, FixedPoint, JobId, NodeId, Operator, PortId, Suspect};
use fanin_net::shm::Waiting;
use fanin_net::{SenderConfig, Socket, Waker};
use fanin_operator::Faults;
use fanin_runtime::{BlockSet, CollectiveCall, DriverConfig, NodeConfig, PeerConfig, RunError, Statistics, Vectors, Watch, WorkerDriver};
use fanin_systems::{AnyNode, OfferNumbers};
use fanin_trust::LinkKeys;

use super::VERDICT_WAIT;
use super::fabric::FabricJobs;
use super::hosts::HostJobs;
use super::patience::Patience;
use super::star::{broken, node, tag_bytes};
use super::stop;
use super::traffic::Traffic;
use super::whole::{Asked, Jobs, Whole};
use crate::call::{Blocks, Buffers, Call, is_copy};
use crate::config::Config;
use crate::error::CommError;
use crate::link::Link;
use crate::meeting::fabric::{Home, Place};
use resume::Memory;

/// How often a rank whose path is gone says so.
const ASK_INTERVAL: Duration = Duration::from_secs(1);

/// Why a call has not ended well.
pub(super) enum Stop {
    /// The switch was restarted: the call goes on when the job was taken up again.
    Restarted,
    /// The job has failed.
    Failed(CommError),
}

/// One rank's end of the path.
pub(crate) struct DatagramPath {
    pub(super) config: Config,
    sums: Sums,
    traffic: Arc<Traffic>,
    /// What the job is in a fabric, where it is in one.
    pub(super) home: Option<Home>,
    pub(super) admitted: Admitted,
    /// Blocks of the running call whose result is here.
    pub(super) delivered: BlockSet,
    /// Blocks of the running call.
    total: u64,
    pub(super) memory: Memory,
}

impl DatagramPath {
    /// # Errors
    /// Where what the switch has said makes no sense.
    pub(crate) fn new(config: &Config, admitted: &Admitted, socket: Socket) -> Result<Self, CommError> {
        Ok(DatagramPath::of(config, admitted, Sums::new(config, admitted, socket)?, None))
    }

    /// In a fabric.
    pub(crate) fn in_fabric(config: &Config, admitted: &Admitted, home: Home) -> Self {
        let jobs = Jobs::Fabric(Box::new(FabricJobs::new(config, &home, admitted, false)));
        DatagramPath::of(config, admitted, Sums::Whole(Box::new(Whole::new(config, jobs))), Some(home))
    }

    fn of(config: &Config, admitted: &Admitted, mut sums: Sums, home: Option<Home>) -> Self {
        let traffic = Arc::new(Traffic::of(sums.watch()));
        DatagramPath {
            config: config.clone(),
            sums,
            traffic,
            home,
            admitted: admitted.clone(),
            delivered: BlockSet::default(),
            total: 0,
            memory: Memory::default(),
        }
    }

    /// The job goes on at another socket, or in its fabric again, with nothing under way.
    pub(super) fn renew(&mut self, admitted: Admitted, socket: Option<Socket>) -> Result<(), CommError> {
        let mut sums = match (socket, &self.home) {
            (Some(socket), _) => Sums::new(&self.config, &admitted, socket)?,
            (None, Some(home)) => {
                let jobs = Jobs::Fabric(Box::new(FabricJobs::new(&self.config, home, &admitted, true)));
                Sums::Whole(Box::new(Whole::new(&self.config, jobs)))
            }
            (None, None) => return Err(broken("no socket for vectors".into())),
        };
        match (self.sums.is_in_fabric(), sums.is_in_fabric()) {
            (true, false) => self.traffic.go_away(sums.watch()),
            // The same port.
            (true, true) => {}
            (false, true) => self.traffic.come_back(&self.sums.statistics(), sums.watch()),
            (false, false) => self.traffic.go_on(&self.sums.statistics(), sums.watch()),
        }
        self.sums = sums;
        self.admitted = admitted;
        Ok(())
    }

    /// This rank's host in its fabric, if it has one.
    pub(crate) fn place(&self) -> Option<Place> {
        self.home.as_ref().map(|home| home.place.clone())
    }

    /// Bytes of elements in a packet.
    pub(crate) fn payload_bytes(&self) -> u32 {
        self.admitted.payload_bytes
    }

    /// Nothing of the job is left in its fabric.
    pub(super) fn leave_fabric(&mut self) {
        if let Sums::Whole(whole) = &mut self.sums
            && let Jobs::Fabric(jobs) = &mut whole.jobs
        {
            jobs.clear();
        }
    }

    /// What has been sent and received, for other threads.
    pub(crate) fn traffic(&self) -> Arc<Traffic> {
        self.traffic.clone()
    }

    /// What has been sent and received, up to now.
    pub(crate) fn statistics(&self) -> Statistics {
        self.traffic.with(&self.sums.statistics())
    }

    /// Wakes a rank that sleeps in its socket.
    pub(crate) fn waker(&self) -> Waker {
        self.sums.waker()
    }

    /// Why hosts sum by themselves, if they do.
    pub(crate) fn by_hosts(&self) -> Option<&str> {
        self.admitted.by_hosts.as_deref()
    }

    /// How the call's vector is cut.
    pub(super) fn blocks(&self, call: &Call) -> Blocks {
        Blocks::new(call, (self.admitted.payload_bytes / call.width() as u32).max(1))
    }

    /// Runs a call.
    ///
    /// # Errors
    /// The job has failed.
    pub(crate) fn run(&mut self, call: &Call, buffers: &mut Buffers<'_>, link: &Link, mut patience: Patience<'_>) -> Result<(), CommError> {
        let total = self.blocks(call).count();
        link.begin(call.describe(total));
        self.delivered.reset(total);
        self.total = total;
        let mut result = match self.memory.plan_of(call.number) {
            Some(plan) => self.replay(&plan, Some((call, buffers)), link, &mut patience),
            None => self.collective((call, &self.what(call)), vectors(call, buffers), (0, total), link, &mut patience),
        };
        loop {
            match result {
                Ok(()) => break,
                Err(Stop::Failed(error)) => return Err(error),
                Err(Stop::Restarted) => result = self.resume(Some((call, buffers)), call.number, link, &mut patience),
            }
        }
        // Without a single switch no window bounds what a rank may lack.
        let is_whole = self.home.is_some() || self.by_hosts().is_some();
        let window = if is_whole { u32::MAX } else { self.admitted.window };
        if self.home.is_none() || link.may_go_by_hosts() || self.by_hosts().is_some() {
            self.memory.keep(call, &self.blocks(call), window, buffers);
        }
        link.end(call.number.wrapping_add(1));
        Ok(())
    }

    /// Runs a collective; `first` is the number of its first block in the call that it is a part of, and it has so many.
    pub(super) fn collective(
        &mut self,
        (call, what): (&Call, &CollectiveCall),
        vectors: Vectors<'_>,
        (first, count): (u64, u64),
        link: &Link,
        patience: &mut Patience<'_>,
    ) -> Result<(), Stop> {
        let (mut known, mut error, total) = (u32::MAX, None, self.total);
        let mut goes_on = |remaining| {
            if link.has_failed() || link.was_restarted() {
                return false;
            }
            if remaining != known {
                known = remaining;
                link.progress(total.saturating_sub(u64::from(remaining)));
                error = patience.go_on().err();
                return error.is_none();
            }
            error = patience.check(|| None).err();
            error.is_none()
        };
        let result = match &mut self.sums {
            Sums::Switch(driver) => driver.collective(what, vectors, (&mut self.delivered, first), goes_on),
            Sums::Whole(whole) => match whole.collective(Asked { what, custom: call.custom, link }, vectors, &mut goes_on) {
                Err(stop::Stop::Operator(text)) => {
                    let rank = Some(self.config.rank);
                    return Err(Stop::Failed(link.fail(link.failed_with(text, rank, Some(FailureKind::Operator)))));
                }
                Err(stop::Stop::Failed(error)) => return Err(Stop::Failed(link.failure().unwrap_or_else(|| link.fail(error)))),
                Err(stop::Stop::Path(why)) => return Err(self.verdict(link, patience).unwrap_or_else(|| Stop::Failed(link.fail(why)))),
                Err(stop::Stop::Run(error)) => Err(error),
                Ok(()) => Ok(()),
            },
        };
        match (result, error) {
            (Ok(()), _) => {
                if matches!(self.sums, Sums::Whole(_)) {
                    self.deliver(call, first, count);
                }
                Ok(())
            }
            (Err(_), Some(error)) => Err(Stop::Failed(error)),
            (Err(RunError::Stopped), None) if !link.has_failed() => Err(Stop::Restarted),
            // Another host may have heard first that the job goes on elsewhere, and has given up here.
            (Err(RunError::Failed(_)), None) if self.by_hosts().is_some() && link.await_restart(VERDICT_WAIT) => Err(Stop::Restarted),
            (Err(error), None) => {
                let is_mismatch = matches!(&error, RunError::Failed(Failure { reason: FailureReason::Mismatch, .. }));
                if !is_mismatch
                    && self.home.is_some()
                    && link.may_go_by_hosts()
                    && let Some(stop) = self.verdict(link, patience)
                {
                    return Err(stop);
                }
                Err(Stop::Failed(self.explain(error, link, patience)))
            }
        }
    }

    /// What becomes of a call that its path does not carry any more: that is seen elsewhere, once all ranks wait.
    fn verdict(&self, link: &Link, patience: &mut Patience<'_>) -> Option<Stop> {
        let limit = if link.may_go_by_hosts() { VERDICT_WAIT * 3 } else { VERDICT_WAIT };
        let begun = Instant::now();
        while begun.elapsed() < limit {
            if link.await_restart(ASK_INTERVAL) {
                return Some(Stop::Restarted);
            }
            if let Some(failure) = link.failure() {
                return Some(Stop::Failed(failure));
            }
            patience.ask();
        }
        None
    }

    /// Blocks of a part that hosts have done are here, all at once.
    fn deliver(&mut self, call: &Call, first: u64, count: u64) {
        let blocks = self.blocks(call);
        (first..first + count).filter(|index| call.receives(blocks.get(*index).share)).for_each(|index| self.delivered.insert(index));
    }

    /// The call as the protocol sees it.
    pub(super) fn what(&self, call: &Call) -> CollectiveCall {
        let numbers = OfferNumbers { fixed_point: self.config.fixed_point, customs: self.config.operators.len() };
        let scaled = self.config.fixed_point && call.custom.is_none() && numbers.built_in(call.op, true).is_some() && !is_copy(call.kind);
        let op_number = match call.custom {
            Some(custom) => numbers.custom(usize::from(custom.index)),
            None => numbers.built_in(call.op, scaled && call.elements > 0),
        };
        // Without elements ranks still meet, so that nobody takes a call for another one.
        let kind = if call.elements == 0 { CollectiveKind::Barrier } else { call.kind };
        CollectiveCall {
            kind,
            op: call.op,
            element_bytes: call.width() as u32,
            op_number: op_number.unwrap_or_default(),
            fixed_point: (scaled && call.elements > 0).then(|| FixedPoint::new(call.world, call.op.operator == Operator::Avg)),
            elements: call.elements * u64::from(call.shares()),
            // 0 would say that there is nothing to agree on.
            fingerprint: (call.fingerprint() as u32).max(1),
        }
    }

    /// Why the driver has stopped, in the switch's words if it has any.
    fn explain(&self, error: RunError, link: &Link, patience: &mut Patience<'_>) -> CommError {
        if let RunError::Failed(Failure { reason: FailureReason::Mismatch, .. }) = &error {
            patience.ask();
        }
        // The control connection knows who is gone, and learns it a moment later than the sockets for vectors.
        if let Some(failure) = link.await_failure(VERDICT_WAIT) {
            return failure;
        }
        let (suspect, kind) = match &error {
            RunError::Failed(failure) => (
                if let Suspect::Rank(rank) = failure.suspect { Some(rank.0) } else { None },
                (failure.reason == FailureReason::Mismatch).then_some(FailureKind::Mismatch),
            ),
            _ => (None, None),
        };
        let text = match (&error, &self.home) {
            (RunError::Failed(Failure { suspect: Suspect::Switch(node), .. }), Some(home)) => {
                format!("{error} ({})", home.place.fabric.name(*node))
            }
            _ => error.to_string(),
        };
        link.fail(link.failed_with(text, suspect, kind))
    }
}

/// The vectors as the driver needs them.
pub(super) fn vectors<'a>(call: &Call, buffers: &'a mut Buffers<'_>) -> Vectors<'a> {
    let own = u64::from(call.rank) * call.elements;
    match buffers {
        Buffers::InPlace(bytes) => Vectors::InPlace(bytes),
        Buffers::Apart { input, output } => Vectors::Apart {
            input,
            input_start: if call.kind == CollectiveKind::AllGather { own } else { 0 },
            output,
            output_start: if call.kind == CollectiveKind::ReduceScatter { own } else { 0 },
        },
    }
}

/// This rank's node behind its socket.
pub(crate) fn driver(
    config: &Config,
    admitted: &Admitted,
    socket: Socket,
    (node, op): (AnyNode<[u8]>, ElementOp),
) -> Result<WorkerDriver<AnyNode<[u8]>>, CommError> {
    let switch = NodeId(config.world);
    let peers = vec![PeerConfig { address: Address::switch(switch), socket: admitted.data, port: Some(PortId(0)) }];
    let of_node = NodeConfig {
        address: Address::worker(NodeId(config.rank)),
        job: JobId(admitted.job_id),
        system: admitted.system.number(),
        op,
        peers,
        routes: Vec::new(),
    };
    let how = DriverConfig {
        sender: SenderConfig { faults: config.faults, ..SenderConfig::default() },
        datagram_bytes_max: (admitted.payload_bytes + header_bytes_max(&admitted.system, config.fixed_point)) as usize
            + tag_bytes(admitted),
        epoch: Some(admitted.epoch),
        peers_epoch: Some(admitted.epoch),
        ..DriverConfig::default()
    };
    let mut driver = WorkerDriver::new(socket, node, of_node, &how)
        .map_err(|error| CommError::System { what: "the path to the switch".into(), reason: error.to_string() })?;
    driver.set_busy(config.waiting == Waiting::Busy);
    match &admitted.keys[..] {
        [] => {}
        [keys] => driver.protect(vec![LinkKeys::of_rank(keys)]),
        more => return Err(broken(format!("{} keys for packets to one switch", more.len()))),
    }
    Ok(driver)
}

/// Who sums.
enum Sums {
    Switch(Box<WorkerDriver<AnyNode<[u8]>>>),
    Whole(Box<Whole>),
}

impl Sums {
    fn new(config: &Config, admitted: &Admitted, socket: Socket) -> Result<Self, CommError> {
        Ok(match &admitted.by_hosts {
            None => Sums::Switch(Box::new(dense_driver(config, admitted, socket)?)),
            Some(_) => {
                let jobs = Jobs::Hosts(Box::new(HostJobs::new(config, admitted, socket)?));
                Sums::Whole(Box::new(Whole::new(config, jobs)))
            }
        })
    }

    fn is_in_fabric(&self) -> bool {
        matches!(self, Sums::Whole(whole) if matches!(whole.jobs, Jobs::Fabric(_)))
    }

    fn watch(&mut self) -> Watch {
        match self {
            Sums::Switch(driver) => driver.watch(),
            Sums::Whole(whole) => whole.watch(),
        }
    }

    fn statistics(&self) -> Statistics {
        match self {
            Sums::Switch(driver) => driver.statistics(),
            Sums::Whole(whole) => whole.statistics(),
        }
    }

    fn waker(&self) -> Waker {
        match self {
            Sums::Switch(driver) => driver.waker(),
            Sums::Whole(whole) => whole.waker(),
        }
    }
}

/// The node of dense vectors, for all types and operators, behind its socket.
fn dense_driver(config: &Config, admitted: &Admitted, socket: Socket) -> Result<WorkerDriver<AnyNode<[u8]>>, CommError> {
    let mut node = node(config, admitted, ElementOp::F32_SUM)?;
    let block_bytes = admitted.payload_bytes as usize;
    if let Some(operator) = config.operators.iter().find(|operator| operator.layout().element_bytes > block_bytes) {
        let (name, bytes) = (operator.name(), operator.layout().element_bytes);
        return Err(broken(format!("operator `{name}`: element_bytes = {bytes}: expected at most {block_bytes}, what a packet carries")));
    }
    // The switch computes: here only the lengths of elements matter.
    let faults = Faults::default();
    let custom = config.operators.iter().map(|operator| operator.payload_op(&faults)).collect();
    if !node.offer_with(config.fixed_point, custom) {
        return Err(broken(format!("{:?} does not do every type and operator", admitted.system)));
    }
    driver(config, admitted, socket, (node, ElementOp::F32_SUM))
}
