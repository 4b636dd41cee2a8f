//! What a call needs of its communicator, and how it runs.

use std::sync::{Arc, Mutex, OnceLock};

use fanin_control::FailureKind;
use fanin_core::{CollectiveKind, DType, ElementOp, OrderFree};
use fanin_systems::System;

use crate::call::{Buffers, Call, CallOp, Of, SparseStep, copies, is_copy};
use crate::config::{Config, Meeting};
use crate::error::CommError;
use crate::link::Link;
use crate::lock::locked;
use crate::meeting::Wanted;
use crate::meeting::fabric::Place;
use crate::path::fabric::dense_of;
use crate::path::hierarchy::Levels;
use crate::path::patience::Patience;
use crate::path::traffic::Traffic;
use crate::path::{Path, alone};
use crate::reproducible::{Reduction, Reproducible, Scratch};
use crate::sparse::SwitchWay;
use crate::timeouts::Timeouts;
use crate::turns::Turns;

/// What a call needs, shared with the thread that runs calls in the background.
pub(crate) struct Core {
    pub(crate) config: Config,
    /// `None` for a job of one rank.
    pub(crate) link: Option<Arc<Link>>,
    pub(crate) engine: Mutex<Engine>,
    pub(crate) turns: Turns,
    pub(crate) timeouts: Timeouts,
    /// Counts of a path by UDP, also while a call holds the engine.
    pub(crate) traffic: Option<Arc<Traffic>>,
    /// Bytes of elements in a packet of a path by UDP.
    pub(crate) payload_bytes: Option<u32>,
    /// Where the switch sums sparse vectors, and the counts of that.
    pub(crate) switch_way: Mutex<SwitchWay>,
    pub(crate) switch_traffic: OnceLock<Arc<Traffic>>,
    /// Where ranks share hosts: the communicators that this one consists of, also while a call holds the engine.
    pub(crate) levels: Option<Arc<Levels>>,
}

/// What a call has to itself while it runs.
pub(crate) struct Engine {
    pub(crate) path: Path,
    /// The number of the next call.
    pub(crate) next: u32,
    pub(crate) closed: bool,
    /// Of reproducible reductions.
    pub(crate) scratch: Scratch,
}

impl Core {
    /// Runs a call whose turn it is.
    pub(crate) fn run(&self, kind: CollectiveKind, op: CallOp, elements: u64, buffers: &mut Buffers<'_>) -> Result<(), CommError> {
        self.run_step(kind, op, elements, buffers, None)
    }

    /// Runs a call, or a step of one whose turn it is.
    pub(crate) fn run_step(
        &self,
        kind: CollectiveKind,
        op: impl Into<CallOp>,
        elements: u64,
        buffers: &mut Buffers<'_>,
        sparse: Option<SparseStep>,
    ) -> Result<(), CommError> {
        self.run_part(kind, op, elements, buffers, (None, sparse))
    }

    /// Runs a part of what users have called, whose turn it is.
    pub(crate) fn run_part(
        &self,
        kind: CollectiveKind,
        op: impl Into<CallOp>,
        elements: u64,
        buffers: &mut Buffers<'_>,
        (part, sparse): Of,
    ) -> Result<(), CommError> {
        let mut engine = locked(&self.engine);
        if engine.closed {
            return Err(CommError::Closed { job: self.config.job.clone() });
        }
        if let Some(failure) = self.link.as_ref().and_then(|link| link.failure()) {
            return Err(failure);
        }
        let (op, custom) = match op.into() {
            // What is only copied needs no operator, and a mean would divide.
            CallOp::BuiltIn(op) if is_copy(kind) => (copies(op.dtype), None),
            CallOp::BuiltIn(op) => (op, None),
            CallOp::Custom(operator) => (copies(DType::U8), Some(operator.0)),
        };
        let Config { world, rank, .. } = self.config;
        let call = Call { number: engine.next, kind, op, custom, elements, world, rank, part, sparse };
        buffers.check(&call).map_err(CommError::Arguments)?;
        // Without another rank, or an element, nothing is added; what a job's own operator does is its own.
        let is_free = custom.is_none() && !is_copy(kind) && elements > 0 && world > 1;
        let result = if let Some(by) = self.config.reproducible.filter(|_| is_free) {
            OrderFree::of(op, world, by)
                .map_err(|error| CommError::Arguments(error.to_string()))
                .and_then(|how| self.run_free(&mut engine, how, call, buffers))
        } else {
            self.run_one(&mut engine, &call, buffers)
        };
        if let (Err(error), Some(link)) = (&result, &self.link) {
            link.fail(error.clone());
        }
        result
    }

    /// Whether ranks meet at the manager of a fabric.
    pub(crate) fn is_in_fabric(&self) -> bool {
        matches!(self.config.meeting, Meeting::Fabric(_))
    }

    /// This rank's host in a fabric, where vectors go over one.
    pub(crate) fn place(&self) -> Option<Place> {
        if let Path::Fabric(path) = &locked(&self.engine).path { path.place() } else { None }
    }

    /// The system of the job's dense sums.
    pub(crate) fn dense_system(&self) -> System {
        if self.is_in_fabric() { dense_of(&self.config) } else { Wanted::DENSE.system }
    }

    /// The number of the next call.
    pub(crate) fn next_call(&self) -> u32 {
        locked(&self.engine).next
    }

    /// Number of ranks.
    pub(crate) fn world(&self) -> u32 {
        self.config.world
    }

    /// Whether dense reductions of such elements are less exact than lists: as block fixed point.
    pub(crate) fn rounds(&self, op: ElementOp) -> bool {
        self.config.fixed_point && op.dtype == DType::F32
    }

    /// A rank has said what cannot be: the job has failed.
    pub(crate) fn broken(&self, text: String, rank: u32) -> CommError {
        match (&self.link, &self.levels) {
            (Some(link), _) => link.fail(link.failed_with(text, Some(rank), Some(FailureKind::Protocol))),
            (None, Some(levels)) => levels.abort(&text),
            (None, None) => CommError::Arguments(text),
        }
    }

    /// Runs a reduction whose bits do not depend on the order, in parts.
    fn run_free(&self, engine: &mut Engine, how: OrderFree, whole: Call, buffers: &mut Buffers<'_>) -> Result<(), CommError> {
        let mut scratch = std::mem::take(&mut engine.scratch);
        let mut run = |part, (kind, op, elements): Reduction, vector: &mut [u8]| {
            let call = Call { number: engine.next, kind, op, elements, part: Some((Some(part), whole.asked())), ..whole };
            self.run_one(engine, &call, &mut Buffers::InPlace(vector))
        };
        let result = match how {
            OrderFree::AsItIs => return self.run_one(engine, &whole, buffers),
            OrderFree::ByElement(sum) => Reproducible::new(&mut run, whole, buffers).sum_by_element(sum, &mut scratch),
            OrderFree::Scaled(sum) => Reproducible::new(&mut run, whole, buffers).sum(sum, &mut scratch),
            OrderFree::Ordered(order) => Reproducible::new(&mut run, whole, buffers).extremum(order, &mut scratch),
        };
        engine.scratch = scratch;
        result
    }

    /// Runs one operation, which is the next one.
    fn run_one(&self, engine: &mut Engine, call: &Call, buffers: &mut Buffers<'_>) -> Result<(), CommError> {
        engine.next = engine.next.wrapping_add(1);
        match (&mut engine.path, &self.link) {
            (Path::Memory(path), Some(link)) => path.run(call, buffers, link, self.patience(link)),
            (Path::Datagrams(path) | Path::Fabric(path), Some(link)) => path.run(call, buffers, link, self.patience(link)),
            (Path::Hierarchy(path), _) => path.run(call, buffers, self.timeouts.running()),
            (Path::Alone(operators), _) => alone::run(call, buffers, operators).map_err(|text| self.failed_alone(text)),
            (_, None) => Err(CommError::Closed { job: self.config.job.clone() }),
        }
    }

    /// The switch was restarted: takes the job up again, unless a call runs, which does it itself.
    pub(crate) fn resume_if_idle(&self) {
        let Ok(mut engine) = self.engine.try_lock() else { return };
        let next = engine.next;
        if let (Path::Datagrams(path) | Path::Fabric(path), Some(link)) = (&mut engine.path, &self.link)
            && link.was_restarted()
            && let Err(error) = path.resume_idle(next, link, self.patience(link))
        {
            link.fail(error);
        }
    }

    /// An operator of a job of one rank has failed.
    fn failed_alone(&self, text: String) -> CommError {
        CommError::Failed { job: self.config.job.clone(), text, suspect_rank: Some(self.config.rank), kind: Some(FailureKind::Operator) }
    }

    /// Ends the job at this rank, and so at all.
    pub(crate) fn fail(&self, text: &str) -> CommError {
        match (&self.link, &self.levels) {
            (Some(link), _) => link.abort(text),
            (None, Some(levels)) => levels.abort(text),
            (None, None) => {
                locked(&self.engine).closed = true;
                CommError::Closed { job: self.config.job.clone() }
            }
        }
    }

    fn patience<'a>(&'a self, link: &'a Link) -> Patience<'a> {
        Patience::new(link, &self.config.interrupt, self.config.stall_notice, self.timeouts.running())
    }
}
