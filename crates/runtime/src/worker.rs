//! A worker: runs collective operations, one call each.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fanin_core::{Collective, CollectiveKind, ElementOp, Failure, FixedPoint, JobId, OpError, OperationId, Rank, Role, Worker};
use fanin_net::{Socket, Waker};
use fanin_trust::{LinkKeys, PacketKeys};

use crate::blocks::BlockSet;
use crate::config::{ConfigError, NodeConfig};
use crate::driver::{Driver, DriverConfig, Statistics};
use crate::fabric::{FabricConfig, FabricRemote, FabricStatus, LinkObserver};
use crate::switch::STOP_CHECK;
use crate::tensors::{Tensors, Vectors};
use crate::watch::Watch;

/// Why a call of [`WorkerDriver::allreduce`] did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The operation failed; names who is missing, as far as is known.
    #[error("{0}")]
    Failed(#[from] Failure),
    /// The stop flag was set. Peers have been told where the system can tell them.
    #[error("stopped before the operation was complete")]
    Stopped,
    /// The vectors do not fit each other or the element type.
    #[error("input and output do not fit: {0}")]
    Vectors(#[from] OpError),
    /// A worker of a fabric has not been given a job.
    #[error("there is no job to run this for")]
    NoJob,
    /// The socket does not work.
    #[error("the socket failed: {0}")]
    Socket(#[from] io::Error),
}

/// Runs the node of a worker.
///
/// Peers may still need answers from a worker that has finished an operation: packets that acknowledge its last ones may be lost.
/// Between operations the node only lives while [`WorkerDriver::serve_until`] or [`WorkerDriver::serve_for`] runs.
pub struct WorkerDriver<N> {
    driver: Driver<N>,
    /// Element type and operator of the job.
    op: ElementOp,
    next_operation: OperationId,
    /// The next operation of each job of several, and which job is selected.
    operations: BTreeMap<JobId, OperationId>,
    selected: Option<JobId>,
    fixed_point: Option<FixedPoint>,
    /// Whose contributions the last result lacks.
    excluded: Vec<Rank>,
    stop: Arc<AtomicBool>,
    busy: bool,
}

/// A collective, for a job whose operations differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CollectiveCall {
    /// What is computed.
    pub kind: CollectiveKind,
    /// Element type and operator. What aggregators compute is what the number says.
    pub op: ElementOp,
    /// Bytes of an element: those of its type, unless the operator is one that the job has brought along.
    pub element_bytes: u32,
    /// Their number in the job: [`Collective::op`].
    pub op_number: u8,
    /// How elements become integers on the wire, where they do.
    pub fixed_point: Option<FixedPoint>,
    /// Length of the whole vector in elements.
    pub elements: u64,
    /// What all workers must agree on: [`Collective::fingerprint`].
    pub fingerprint: u32,
}

impl<N: Worker<[u8]>> WorkerDriver<N> {
    /// Puts `node` behind `socket`.
    ///
    /// # Errors
    /// [`ConfigError`] where the peers make no sense.
    pub fn new(socket: Socket, node: N, config: NodeConfig, how: &DriverConfig) -> Result<Self, ConfigError> {
        Ok(WorkerDriver::around(Driver::new(socket, node, &config, how)?, config.op))
    }

    /// A host of a fabric, without a worker until [`WorkerDriver::set_job`].
    ///
    /// # Errors
    /// [`ConfigError`] where the ports make no sense.
    pub fn in_fabric(socket: Socket, config: &FabricConfig, how: &DriverConfig) -> Result<Self, ConfigError> {
        Ok(WorkerDriver::around(Driver::in_fabric(socket, config, how)?, ElementOp::F32_SUM))
    }

    fn around(driver: Driver<N>, op: ElementOp) -> Self {
        WorkerDriver {
            driver,
            op,
            next_operation: OperationId(0),
            operations: BTreeMap::new(),
            selected: None,
            fixed_point: None,
            excluded: Vec::new(),
            stop: Arc::default(),
            busy: false,
        }
    }

    /// Makes this the worker of a job; it is not that of the job before any more, nor has it that one's fixed point.
    pub fn set_job(&mut self, job: JobId, system: u8, op: ElementOp, node: N) {
        self.end_job();
        self.driver.admit_job(job, Role::Worker, system, node);
        (self.op, self.next_operation, self.fixed_point) = (op, OperationId(0), None);
    }

    /// Leaves the job: packets of it are dropped from now on.
    pub fn end_job(&mut self) {
        if let Some(job) = self.driver.job() {
            self.driver.end_role(job, Role::Worker);
        }
    }

    /// Adds the worker of a job beside those of others, each of which numbers its own operations; false where the job has one here.
    /// [`WorkerDriver::select`] says whose operations run.
    pub fn add_job(&mut self, job: JobId, system: u8, node: N) -> bool {
        let is_new = self.driver.admit_job(job, Role::Worker, system, node);
        if is_new {
            self.operations.insert(job, OperationId(0));
        }
        is_new
    }

    /// From now on operations are those of this job; false where it has no worker here. Others' workers go on answering their peers.
    pub fn select(&mut self, job: JobId) -> bool {
        if !self.driver.select(job) {
            return false;
        }
        if let Some(before) = self.selected.replace(job) {
            self.operations.insert(before, self.next_operation);
        }
        self.next_operation = self.operations.get(&job).copied().unwrap_or(OperationId(0));
        true
    }

    /// Ends what a job has here, worker and server; says whether it had anything.
    pub fn remove_job(&mut self, job: JobId) -> bool {
        if self.selected == Some(job) {
            self.selected = None;
        }
        self.operations.remove(&job);
        self.driver.end_job(job)
    }

    /// Makes this host the server of a job, whether or not it has a worker of that or another one; false where it is that already. It
    /// serves while operations run and between them.
    pub fn add_server(&mut self, job: JobId, system: u8, node: N) -> bool {
        self.driver.admit_job(job, Role::Server, system, node)
    }

    /// Gives the server of a job up; says whether it was here.
    pub fn end_server(&mut self, job: JobId) -> bool {
        self.driver.end_role(job, Role::Server)
    }

    /// Asks and tells a host of a fabric from another thread, while it runs operations or serves.
    pub fn remote(&mut self) -> FabricRemote<N> {
        self.driver.remote()
    }

    /// Calls `observer` whenever a link of a fabric changes, and now for each.
    pub fn observe_links(&mut self, observer: LinkObserver) {
        self.driver.observe_links(observer);
    }

    /// How things are at a host of a fabric.
    pub fn fabric_status(&mut self) -> FabricStatus {
        self.driver.fabric_status()
    }

    /// Lets binary32 elements go on the wire as block fixed point, for a node that works so. The same at all workers of the job.
    pub fn set_fixed_point(&mut self, fixed_point: FixedPoint) {
        self.fixed_point = Some(fixed_point);
    }

    /// `output := reduction of the inputs of all workers`. Every worker makes the same calls in the same order, with vectors of the
    /// same length, which may be 0. Both vectors hold little-endian elements of the job's type, at any alignment.
    ///
    /// # Errors
    /// [`RunError`]; the output is undefined then.
    pub fn allreduce(&mut self, input: &[u8], output: &mut [u8]) -> Result<(), RunError> {
        let operation = self.next_operation;
        let mut tensors = Tensors::lend(self.op, operation, input, output)?.with_fixed_point(self.fixed_point);
        let collective = Collective::allreduce(operation, tensors.elements());
        let result = self.run(collective, &mut tensors, |_| true);
        self.excluded = tensors.into_excluded();
        result
    }

    /// Ranks whose contributions the result of the last operation lacks, where a system goes on without those that are gone; in ascending
    /// order. Empty for all others.
    pub fn excluded(&self) -> &[Rank] {
        &self.excluded
    }

    /// Any collective that the node's system offers. Every worker makes the same calls in the same order.
    ///
    /// Pieces whose result is here are written down in `delivered`, the first one under the number beside it.
    ///
    /// `goes_on` is told, at least every 100 ms, how many blocks are not complete here (0 where the system does not count them), and says
    /// whether to go on.
    ///
    /// # Errors
    /// As [`WorkerDriver::allreduce`]; [`RunError::Stopped`] where `goes_on` said no.
    pub fn collective(
        &mut self,
        call: &CollectiveCall,
        vectors: Vectors<'_>,
        delivered: (&mut BlockSet, u64),
        goes_on: impl FnMut(u32) -> bool,
    ) -> Result<(), RunError> {
        let operation = self.next_operation;
        let CollectiveCall { kind, op, element_bytes, op_number, fixed_point, elements, fingerprint } = *call;
        let (delivered, first) = delivered;
        let tensors = Tensors::new(op, operation, vectors).with_element_bytes(element_bytes as usize);
        let mut tensors = tensors.with_fixed_point(fixed_point).with_delivered(delivered, first);
        let result = self.run(Collective { operation, kind, elements, op: op_number, fingerprint }, &mut tensors, goes_on);
        self.excluded = tensors.into_excluded();
        result
    }

    fn run(&mut self, collective: Collective, tensors: &mut Tensors<'_>, mut goes_on: impl FnMut(u32) -> bool) -> Result<(), RunError> {
        let operation = collective.operation;
        self.next_operation = OperationId(operation.0.wrapping_add(1));
        self.driver.call(tensors, |node, now, tx| node.submit(now, collective, tx)).ok_or(RunError::NoJob)?;
        let limit = if self.busy { Duration::ZERO } else { STOP_CHECK };
        loop {
            let node = self.driver.node_mut().ok_or(RunError::NoJob)?;
            while let Some(outcome) = node.poll() {
                if outcome.operation == operation {
                    return outcome.result.map_err(RunError::Failed);
                }
            }
            if self.stop.load(Ordering::Relaxed) || !goes_on(node.remaining().unwrap_or(0)) {
                self.driver.call(tensors, |node, now, tx| node.cancel(now, operation, tx));
                return Err(RunError::Stopped);
            }
            self.driver.turn(tensors, limit)?;
        }
    }

    /// In a fabric: packets of the host's ports are made and taken with these keys from now on, by port. Where they are others than before, its
    /// neighbours have yet to be heard with them.
    pub fn protect_links(&mut self, keys: &[PacketKeys]) {
        self.driver.protect_links(keys);
    }

    /// As [`SwitchDriver::protect`](crate::SwitchDriver::protect).
    pub fn protect(&mut self, keys: Vec<LinkKeys>) {
        self.driver.protect(keys);
    }

    /// Never sleep while an operation runs: the shortest delay, for workers that have a core each.
    pub fn set_busy(&mut self, busy: bool) {
        self.busy = busy;
    }

    /// Answers peers until `done` is set or the worker is stopped. A [`WorkerDriver::waker`] makes that immediate.
    ///
    /// # Errors
    /// What the kernel reports while waiting or receiving.
    pub fn serve_until(&mut self, done: &AtomicBool) -> io::Result<()> {
        let mut tensors = Tensors::none(self.op);
        while !done.load(Ordering::Relaxed) && !self.stop.load(Ordering::Relaxed) {
            self.driver.turn(&mut tensors, STOP_CHECK)?;
        }
        Ok(())
    }

    /// Answers peers for this long.
    ///
    /// # Errors
    /// What the kernel reports while waiting or receiving.
    pub fn serve_for(&mut self, span: Duration) -> io::Result<()> {
        let (start, mut tensors) = (Instant::now(), Tensors::none(self.op));
        while let Some(left) = span.checked_sub(start.elapsed()).filter(|left| !left.is_zero()) {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            self.driver.turn(&mut tensors, left.min(STOP_CHECK))?;
        }
        Ok(())
    }

    /// The flag that ends a running operation, for a signal handler or another thread.
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }

    /// Uses `stop` as the flag that ends a running operation.
    pub fn set_stop_flag(&mut self, stop: Arc<AtomicBool>) {
        self.stop = stop;
    }

    /// The address of the socket.
    pub fn local_address(&self) -> SocketAddr {
        self.driver.local_address()
    }

    /// Interrupts the loop from another thread.
    pub fn waker(&self) -> Waker {
        self.driver.waker()
    }

    /// Counts that another thread may look at while an operation runs.
    pub fn watch(&mut self) -> Watch {
        self.driver.watch()
    }

    /// Writes down, where there is a [`WorkerDriver::watch`], what has been done up to now.
    pub fn publish(&mut self) {
        self.driver.publish_last();
    }

    /// The node, to be looked at.
    ///
    /// # Panics
    /// At a host of a fabric that has no job.
    pub fn node(&self) -> &N {
        self.driver.node().expect("a job was given")
    }

    /// What has been done so far.
    pub fn statistics(&self) -> Statistics {
        self.driver.statistics()
    }
}
