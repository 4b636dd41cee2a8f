//! Vectors by UDP: SwitchML between this rank and the switch, and beside it another system that was asked for; any system over a fabric or, where
//! these have no room or are gone, between hosts alone.

mod resume;

use std::sync::Arc;
use std::time::{Duration, Instant};

use fanin_control::{Admitted, FailureKind};
use fanin_core::{CollectiveKind, ElementOp, Failure, FailureReason, FixedPoint, Operator, Suspect};
use fanin_net::{Socket, Waker};
use fanin_operator::Faults;
use fanin_runtime::{BlockSet, CollectiveCall, RunError, Statistics, Vectors, Watch, WorkerDriver};
use fanin_systems::{AnyNode, OfferNumbers};

use super::VERDICT_WAIT;
use super::beside::SwitchJobs;
use super::fabric::FabricJobs;
use super::fabric::port::HostPort;
use super::hosts::HostJobs;
use super::patience::Patience;
use super::star::{broken, driver, node};
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
    /// At one switch, what is reduced there by another system than SwitchML, which was asked for.
    beside: Option<Box<Whole>>,
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
        let sums = Sums::in_fabric(config, admitted, &home, false);
        DatagramPath::of(config, admitted, sums, Some(home))
    }

    fn of(config: &Config, admitted: &Admitted, mut sums: Sums, home: Option<Home>) -> Self {
        let traffic = Arc::new(Traffic::of(sums.watch()));
        let beside = if home.is_none() { SwitchJobs::new(config, admitted, &traffic) } else { None };
        DatagramPath {
            config: config.clone(),
            sums,
            beside: beside.map(|jobs| Box::new(Whole::new(config, Jobs::Switch(Box::new(jobs))))),
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
            (None, Some(home)) => Sums::in_fabric(&self.config, &admitted, home, true),
            (None, None) => return Err(broken("no socket for vectors".into())),
        };
        match (self.sums.is_in_fabric(), sums.is_in_fabric()) {
            (true, false) => self.traffic.go_away(sums.watch()),
            // The same port.
            (true, true) => {}
            (false, true) => self.traffic.come_back(&self.sums.statistics(), sums.watch()),
            (false, false) => self.traffic.go_on(&self.sums.statistics(), sums.watch()),
        }
        if let Some(jobs) = self.beside() {
            jobs.renew(&admitted);
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

    /// The jobs beside the communicator's own at one switch, if there may be any.
    fn beside(&mut self) -> Option<&mut SwitchJobs> {
        match self.beside.as_mut().map(|whole| &mut whole.jobs) {
            Some(Jobs::Switch(jobs)) => Some(jobs),
            _ => None,
        }
    }

    /// Whether others may need answers of this rank when it has all of its results.
    pub(crate) fn has_jobs_beside(&self) -> bool {
        self.beside.is_some()
    }

    /// Nothing of the job is left in its fabric, or beside it at its switch.
    pub(crate) fn leave_others(&mut self) {
        if let Some(jobs) = self.beside() {
            jobs.clear();
        }
        if let Sums::Whole(whole, _) = &mut self.sums
            && let Jobs::Fabric(jobs) = &mut whole.jobs
        {
            jobs.clear();
        }
    }

    /// Whether a call is one for the system that was asked for at one switch: a reduction by an operator that is built in. All ranks say the same.
    fn is_beside(&self, call: &Call, what: &CollectiveCall) -> bool {
        let Some(Jobs::Switch(jobs)) = self.beside.as_ref().map(|whole| &whole.jobs) else { return false };
        let reduces = call.custom.is_none() && call.elements > 0 && !is_copy(what.kind);
        matches!(self.sums, Sums::Switch(_)) && reduces && jobs.offers(what.kind)
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
        // Where not SwitchML sums, no window bounds what a rank may lack.
        let is_whole = self.home.is_some() || self.by_hosts().is_some() || self.is_beside(call, &self.what(call));
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
        let (is_beside, asked) = (self.is_beside(call, what), Asked { what, custom: call.custom, link });
        let result = match (&mut self.sums, &mut self.beside) {
            (Sums::Whole(whole, _), _) => whole.collective(asked, vectors, &mut goes_on),
            (Sums::Switch(_), Some(beside)) if is_beside => beside.collective(asked, vectors, &mut goes_on),
            (Sums::Switch(driver), _) => driver.collective(what, vectors, (&mut self.delivered, first), goes_on).map_err(stop::Stop::Run),
        };
        let is_whole = is_beside || matches!(self.sums, Sums::Whole(..));
        let result = match result {
            Err(stop::Stop::Operator(text)) => {
                let rank = Some(self.config.rank);
                return Err(Stop::Failed(link.fail(link.failed_with(text, rank, Some(FailureKind::Operator)))));
            }
            Err(stop::Stop::Failed(error)) => return Err(Stop::Failed(link.failure().unwrap_or_else(|| link.fail(error)))),
            Err(stop::Stop::Path(why)) => return Err(self.verdict(link, patience).unwrap_or_else(|| Stop::Failed(link.fail(why)))),
            Err(stop::Stop::Run(error)) => Err(error),
            Ok(()) => Ok(()),
        };
        match (result, error) {
            (Ok(()), _) => {
                if is_whole {
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

/// Who sums.
enum Sums {
    Switch(Box<WorkerDriver<AnyNode<[u8]>>>),
    /// With the port that all jobs are behind.
    Whole(Box<Whole>, Arc<HostPort>),
}

impl Sums {
    fn new(config: &Config, admitted: &Admitted, socket: Socket) -> Result<Self, CommError> {
        if admitted.by_hosts.is_none() {
            return Ok(Sums::Switch(Box::new(dense_driver(config, admitted, socket)?)));
        }
        let jobs = HostJobs::new(config, admitted, socket)?;
        let port = jobs.port();
        Ok(Sums::Whole(Box::new(Whole::new(config, Jobs::Hosts(Box::new(jobs)))), port))
    }

    /// `again`: after the job was away.
    fn in_fabric(config: &Config, admitted: &Admitted, home: &Home, again: bool) -> Self {
        let jobs = Jobs::Fabric(Box::new(FabricJobs::new(config, home, admitted, again)));
        Sums::Whole(Box::new(Whole::new(config, jobs)), home.place.port.clone())
    }

    fn is_in_fabric(&self) -> bool {
        matches!(self, Sums::Whole(whole, _) if matches!(whole.jobs, Jobs::Fabric(_)))
    }

    fn watch(&mut self) -> Watch {
        match self {
            Sums::Switch(driver) => driver.watch(),
            Sums::Whole(_, port) => port.watch(),
        }
    }

    fn statistics(&self) -> Statistics {
        match self {
            Sums::Switch(driver) => driver.statistics(),
            Sums::Whole(_, port) => port.with(|driver| driver.statistics()),
        }
    }

    fn waker(&self) -> Waker {
        match self {
            Sums::Switch(driver) => driver.waker(),
            Sums::Whole(_, port) => port.waker(),
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
