//! Vectors between hosts alone, over their own sockets: where the switch has no room for the job, or is gone.
//!
//! An allreduce goes round a ring (`ring`), everything else by messages (`exchange`). Both have jobs of one element type and operator, so there
//! is one for each kind of call, with a number that all ranks give it. Operators that the job has brought along run at every rank, over the
//! gathered vectors and in the order of ranks.
//!
//! No rank is more than one call ahead of another: a collective that some ranks could leave before others have begun it ends with a barrier.
//! So a job can go back to its switch with what each rank keeps of its last call.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use fanin_control::{Admitted, CustomCall, header_bytes_max};
use fanin_core::{Address, CollectiveKind, DType, ElementOp, JobId, NodeId, Operator, PortId, Rank};
use fanin_net::shm::Waiting;
use fanin_net::{SenderConfig, Socket, Waker};
use fanin_runtime::{BlockSet, CollectiveCall, DriverConfig, NodeConfig, PeerConfig, RunError, Statistics, Vectors, Watch, WorkerDriver};
use fanin_systems::{ExchangeParameters, RingParameters, System};

use super::fabric::port::HostPort;
use super::mean;
use super::operators::Operators;
use super::star::node;
use crate::call::{copies, is_copy};
use crate::config::Config;
use crate::error::CommError;

/// Payloads hold whole elements of every type.
const STEP_BYTES: u32 = 8;
/// How much of each rank's vector is gathered at once for an operator of the job's own, in bytes.
const GATHERED_BYTES: usize = 256 << 10;

/// One rank among the others.
pub(crate) struct Hosts {
    port: Arc<HostPort>,
    config: Config,
    admitted: Admitted,
    /// Jobs that have a node here.
    jobs: BTreeSet<JobId>,
    operators: Operators,
    /// A copy of what a call contributes where the result takes its place: it may be asked for again, also by a switch.
    input: Vec<u8>,
    /// All shares of a reduction of which a rank gets one; what all have given, for an operator of the job's own.
    sums: Vec<u8>,
}

/// What runs, and which operator of the job's own is meant.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) what: &'a CollectiveCall,
    pub(crate) custom: Option<CustomCall>,
}

/// Two vectors that are apart.
struct Apart<'a> {
    input: &'a [u8],
    input_start: u64,
    output: &'a mut [u8],
    output_start: u64,
}

/// Where a call stops.
pub(crate) enum Stop {
    Run(RunError),
    /// An operator of the job's own has failed, in words.
    Operator(String),
}

impl From<RunError> for Stop {
    fn from(error: RunError) -> Self {
        Stop::Run(error)
    }
}

impl Hosts {
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
            datagram_bytes_max: longest as usize,
            epoch: Some(admitted.epoch),
            peers_epoch: Some(admitted.epoch),
            ..DriverConfig::default()
        };
        let node = node(config, &Admitted { system: barrier.0, ..admitted.clone() }, barrier.1)?;
        let mut driver = WorkerDriver::new(socket, node, of_node, &how)
            .map_err(|error| CommError::System { what: "the paths to other hosts".into(), reason: error.to_string() })?;
        driver.set_busy(config.waiting == Waiting::Busy);
        Ok(Hosts {
            port: HostPort::around(driver)?,
            config: config.clone(),
            admitted,
            jobs: BTreeSet::from([first]),
            operators: Operators::new(&config.operators),
            input: Vec::new(),
            sums: Vec::new(),
        })
    }

    pub(crate) fn statistics(&self) -> Statistics {
        self.port.with(|driver| driver.statistics())
    }

    pub(crate) fn watch(&self) -> Watch {
        self.port.watch()
    }

    pub(crate) fn waker(&self) -> Waker {
        self.port.waker()
    }

    /// Runs a collective. Where it stops, the input is what it was.
    ///
    /// # Errors
    /// [`Stop`].
    pub(crate) fn collective(&mut self, asked: Asked<'_>, vectors: Vectors<'_>, goes_on: &mut dyn FnMut(u32) -> bool) -> Result<(), Stop> {
        let kind = asked.what.kind;
        match vectors {
            Vectors::InPlace(bytes) => {
                let mut input = std::mem::take(&mut self.input);
                input.clear();
                input.extend_from_slice(bytes);
                let vectors = Apart { input: &input, input_start: 0, output: bytes, output_start: 0 };
                let result = self.apart(asked, vectors, goes_on);
                if result.is_err() || !self.receives_any(kind) {
                    bytes.copy_from_slice(&input);
                } else if kind == CollectiveKind::ReduceScatter {
                    // Others' shares stay what they were.
                    let share = bytes.len() / self.config.world as usize;
                    let own = self.config.rank as usize * share;
                    bytes[..own].copy_from_slice(&input[..own]);
                    bytes[own + share..].copy_from_slice(&input[own + share..]);
                }
                self.input = input;
                result
            }
            Vectors::Apart { input, input_start, output, output_start } => {
                self.apart(asked, Apart { input, input_start, output, output_start }, goes_on)
            }
            // Sparse vectors are gathered, as dense ones.
            Vectors::Sparse { .. } => Err(Stop::Run(RunError::NoJob)),
        }
    }

    fn apart(&mut self, asked: Asked<'_>, vectors: Apart<'_>, goes_on: &mut dyn FnMut(u32) -> bool) -> Result<(), Stop> {
        let kind = asked.what.kind;
        match asked.custom {
            Some(custom) if !is_copy(kind) => self.own_operator(asked.what, custom, vectors, goes_on)?,
            _ => self.built_in(asked.what, vectors, goes_on)?,
        }
        if matches!(kind, CollectiveKind::Reduce { .. } | CollectiveKind::Broadcast { .. }) {
            self.barrier(asked.what.fingerprint, goes_on)?;
        }
        Ok(())
    }

    /// Returns once all ranks are here.
    fn barrier(&mut self, fingerprint: u32, goes_on: &mut dyn FnMut(u32) -> bool) -> Result<(), Stop> {
        self.run(&of_bytes(CollectiveKind::Barrier, 0, fingerprint), Vectors::InPlace(&mut []), goes_on)
    }

    /// A collective by an operator that is built in, or by none.
    fn built_in(&mut self, what: &CollectiveCall, vectors: Apart<'_>, goes_on: &mut dyn FnMut(u32) -> bool) -> Result<(), Stop> {
        let CollectiveCall { kind, op, element_bytes: asked_bytes, .. } = *what;
        let what = as_bytes(what);
        let has_mean = op.operator == Operator::Avg && !is_copy(kind);
        let what = if has_mean { CollectiveCall { op: ElementOp { operator: Operator::Sum, ..op }, ..what } } else { what };
        let Apart { input, input_start, output, output_start } = vectors;
        let scale = if is_copy(kind) { u64::from(asked_bytes) } else { 1 };
        let (input_start, output_start) = (input_start * scale, output_start * scale);
        if kind == CollectiveKind::ReduceScatter && output.len() < input.len() {
            // Hosts add up others' shares on the way, for which a rank's own share has no room.
            let mut sums = std::mem::take(&mut self.sums);
            sums.resize(input.len(), 0);
            let result = self.run(&what, Vectors::Apart { input, input_start, output: &mut sums, output_start: 0 }, goes_on);
            let own = output_start as usize * what.element_bytes as usize;
            if result.is_ok() {
                output.copy_from_slice(&sums[own..own + output.len()]);
            }
            self.sums = sums;
            result?;
        } else {
            self.run(&what, Vectors::Apart { input, input_start, output: &mut *output, output_start }, goes_on)?;
        }
        if has_mean && self.receives_any(kind) {
            mean::divide(op.dtype, output, self.config.world);
        }
        Ok(())
    }

    /// A reduction by an operator that the job has brought along.
    fn own_operator(
        &mut self,
        what: &CollectiveCall,
        custom: CustomCall,
        vectors: Apart<'_>,
        goes_on: &mut dyn FnMut(u32) -> bool,
    ) -> Result<(), Stop> {
        let (world, width) = (self.config.world as usize, custom.element_bytes as usize);
        let Apart { input, output, output_start, .. } = vectors;
        let step = (GATHERED_BYTES / width).max(1) * width;
        let receives = self.receives_any(what.kind);
        let mut gathered = std::mem::take(&mut self.sums);
        let first = output_start as usize * width;
        for from in (0..input.len()).step_by(step) {
            let own = &input[from..input.len().min(from + step)];
            gathered.resize(own.len() * world, 0);
            let gather = of_bytes(CollectiveKind::AllGather, (own.len() * world) as u64, what.fingerprint);
            let input_start = (own.len() * self.config.rank as usize) as u64;
            self.run(&gather, Vectors::Apart { input: own, input_start, output: &mut gathered, output_start: 0 }, goes_on)?;
            let Some(part) = overlap(first..first + output.len(), from..from + own.len()).filter(|_| receives) else { continue };
            let within = part.start - from..part.end - from;
            let inputs = gathered.chunks_exact(own.len()).map(|vector| &vector[within.clone()]);
            let result = self.operators.reduce(custom.index, self.config.world, inputs, &mut output[part.start - first..part.end - first]);
            result.map_err(|error| Stop::Operator(self.operators.fault().map_or_else(|| error.to_string(), str::to_owned)))?;
        }
        self.sums = gathered;
        Ok(())
    }

    /// Whether this rank gets anything.
    fn receives_any(&self, kind: CollectiveKind) -> bool {
        (0..kind.shares(self.config.world)).any(|share| kind.receives(Rank(self.config.rank), share))
    }

    /// Runs what the system of its kind has.
    fn run(&mut self, what: &CollectiveCall, vectors: Vectors<'_>, goes_on: &mut dyn FnMut(u32) -> bool) -> Result<(), Stop> {
        let what = CollectiveCall { op_number: 0, fixed_point: None, ..*what };
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
            let result = driver.collective(&what, vectors, (&mut BlockSet::default(), 0), goes_on);
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

/// A collective of bytes, which are only copied.
fn of_bytes(kind: CollectiveKind, elements: u64, fingerprint: u32) -> CollectiveCall {
    CollectiveCall { kind, op: copies(DType::U8), element_bytes: 1, op_number: 0, fixed_point: None, elements, fingerprint }
}

/// What is only copied goes as bytes, so that it needs one job for all types.
fn as_bytes(what: &CollectiveCall) -> CollectiveCall {
    if is_copy(what.kind) {
        let elements = what.elements * u64::from(what.element_bytes);
        CollectiveCall { op: copies(DType::U8), element_bytes: 1, elements, ..*what }
    } else {
        *what
    }
}

/// What two ranges have in common, if anything.
fn overlap(one: Range<usize>, other: Range<usize>) -> Option<Range<usize>> {
    let both = one.start.max(other.start)..one.end.min(other.end);
    (both.start < both.end).then_some(both)
}
