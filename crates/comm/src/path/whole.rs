//! Collectives of whole vectors, by systems whose jobs have one element type and operator each: what stops has done nothing, and its input is what it
//! was.
//!
//! Operators that the job has brought along run at every rank, over the gathered vectors and in the order of ranks.
//!
//! No rank is more than one call ahead of another: a collective that some ranks could leave before others have begun it ends with a barrier.
//! So a job can go on elsewhere with what each rank keeps of its last call.

use std::ops::Range;

use fanin_control::CustomCall;
use fanin_core::{CollectiveKind, DType, ElementOp, Operator, Rank};
use fanin_runtime::{CollectiveCall, RunError, Vectors};

use super::beside::SwitchJobs;
use super::fabric::FabricJobs;
use super::hosts::HostJobs;
use super::mean;
use super::operators::Operators;
use super::stop::Stop;
use crate::call::{copies, is_copy};
use crate::config::{Config, Fallback};
use crate::link::Link;

/// How much of each rank's vector is gathered at once for an operator of the job's own, in bytes.
pub(super) const GATHERED_BYTES: usize = 256 << 10;

/// Who sums.
pub(crate) enum Jobs {
    /// Hosts alone.
    Hosts(Box<HostJobs>),
    /// Switches of a fabric, or hosts over it.
    Fabric(Box<FabricJobs>),
    /// One switch, and what is reduced there by the system that was asked for.
    Switch(Box<SwitchJobs>),
}

/// One rank among the others.
pub(crate) struct Whole {
    pub(crate) jobs: Jobs,
    config: Config,
    operators: Operators,
    /// A copy of what a call contributes where the result takes its place: it may be asked for again, also elsewhere.
    input: Vec<u8>,
    /// All shares of a reduction of which a rank gets one; what all have given, for an operator of the job's own.
    sums: Vec<u8>,
}

/// What runs, which operator of the job's own is meant, and what the job is told of it.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) what: &'a CollectiveCall,
    pub(crate) custom: Option<CustomCall>,
    pub(crate) link: &'a Link,
}

/// Two vectors that are apart.
struct Apart<'a> {
    input: &'a [u8],
    input_start: u64,
    output: &'a mut [u8],
    output_start: u64,
}

impl Whole {
    pub(crate) fn new(config: &Config, jobs: Jobs) -> Self {
        Whole { jobs, config: config.clone(), operators: Operators::new(&config.operators), input: Vec::new(), sums: Vec::new() }
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
            Some(custom) if !is_copy(kind) => self.own_operator(asked, custom, vectors, goes_on)?,
            _ => self.built_in(asked, vectors, goes_on)?,
        }
        if matches!(kind, CollectiveKind::Reduce { .. } | CollectiveKind::Broadcast { .. }) && self.may_go_elsewhere() {
            self.barrier(asked, goes_on)?;
        }
        Ok(())
    }

    /// Returns once all ranks are here.
    fn barrier(&mut self, asked: Asked<'_>, goes_on: &mut dyn FnMut(u32) -> bool) -> Result<(), Stop> {
        let barrier = of_bytes(CollectiveKind::Barrier, 0, asked.what.fingerprint);
        self.run(Asked { what: &barrier, ..asked }, Vectors::InPlace(&mut []), goes_on).map(drop)
    }

    /// A collective by an operator that is built in, or by none.
    fn built_in(&mut self, asked: Asked<'_>, vectors: Apart<'_>, goes_on: &mut dyn FnMut(u32) -> bool) -> Result<(), Stop> {
        let CollectiveCall { kind, op, element_bytes: asked_bytes, .. } = *asked.what;
        let what = as_bytes(asked.what);
        // Other kinds are for hosts, which add in another order.
        let in_order = matches!(&self.jobs, Jobs::Fabric(jobs) if jobs.keeps_order(kind));
        let what = CollectiveCall { kind: if in_order { CollectiveKind::Allreduce } else { kind }, ..what };
        let mut has_mean = op.operator == Operator::Avg && !is_copy(kind) && !self.divides(what.kind);
        let what = if has_mean { CollectiveCall { op: ElementOp { operator: Operator::Sum, ..op }, ..what } } else { what };
        let Apart { input, input_start, output, output_start } = vectors;
        let scale = if is_copy(kind) { u64::from(asked_bytes) } else { 1 };
        let (input_start, output_start) = (input_start * scale, output_start * scale);
        if !is_copy(kind) && output.len() < input.len() {
            // Hosts add up on the way what others get, for which a rank's own share, or nothing, has no room.
            let mut sums = std::mem::take(&mut self.sums);
            sums.resize(input.len(), 0);
            let result = self.run(
                Asked { what: &what, ..asked },
                Vectors::Apart { input, input_start, output: &mut sums, output_start: 0 },
                goes_on,
            );
            let own = output_start as usize * what.element_bytes as usize;
            if result.is_ok() {
                output.copy_from_slice(&sums[own..own + output.len()]);
            }
            self.sums = sums;
            has_mean |= result?;
        } else {
            let vectors = Vectors::Apart { input, input_start, output: &mut *output, output_start };
            has_mean |= self.run(Asked { what: &what, ..asked }, vectors, goes_on)?;
        }
        if has_mean && self.receives_any(kind) {
            mean::divide(op.dtype, output, self.config.world);
        }
        Ok(())
    }

    /// A reduction by an operator that the job has brought along.
    fn own_operator(
        &mut self,
        asked: Asked<'_>,
        custom: CustomCall,
        vectors: Apart<'_>,
        goes_on: &mut dyn FnMut(u32) -> bool,
    ) -> Result<(), Stop> {
        let (world, width) = (self.config.world as usize, custom.element_bytes as usize);
        let Apart { input, output, output_start, .. } = vectors;
        if self.at_switches(asked, custom, (input, &mut *output, output_start), goes_on)? {
            return Ok(());
        }
        let step = (GATHERED_BYTES / width).max(1) * width;
        let what = asked.what;
        let receives = self.receives_any(what.kind);
        let mut gathered = std::mem::take(&mut self.sums);
        let first = output_start as usize * width;
        for from in (0..input.len()).step_by(step) {
            let own = &input[from..input.len().min(from + step)];
            gathered.resize(own.len() * world, 0);
            let gather = of_bytes(CollectiveKind::AllGather, (own.len() * world) as u64, what.fingerprint);
            let input_start = (own.len() * self.config.rank as usize) as u64;
            self.run(
                Asked { what: &gather, ..asked },
                Vectors::Apart { input: own, input_start, output: &mut gathered, output_start: 0 },
                goes_on,
            )?;
            let Some(part) = overlap(first..first + output.len(), from..from + own.len()).filter(|_| receives) else { continue };
            let within = part.start - from..part.end - from;
            let inputs = gathered.chunks_exact(own.len()).map(|vector| &vector[within.clone()]);
            let result = self.operators.reduce(custom.index, self.config.world, inputs, &mut output[part.start - first..part.end - first]);
            result.map_err(|error| Stop::Operator(self.operators.fault().map_or_else(|| error.to_string(), str::to_owned)))?;
        }
        self.sums = gathered;
        Ok(())
    }

    /// The same at the switches of a fabric; false where these do not run the operator.
    fn at_switches(
        &mut self,
        asked: Asked<'_>,
        custom: CustomCall,
        (input, output, output_start): (&[u8], &mut [u8], u64),
        goes_on: &mut dyn FnMut(u32) -> bool,
    ) -> Result<bool, Stop> {
        let Jobs::Fabric(jobs) = &mut self.jobs else { return Ok(false) };
        let Some(operator) = self.config.operators.get(usize::from(custom.index)) else { return Ok(false) };
        if !jobs.runs_own(custom.index, operator) {
            return Ok(false);
        }
        let (operator, told) = ((custom.index, operator), (asked.what.fingerprint, asked.link));
        if output.len() == input.len() {
            return jobs.reduce_by_own(operator, (input, output), told, goes_on);
        }
        // All get all of it, and some need a part only.
        self.sums.resize(input.len(), 0);
        let is_done = jobs.reduce_by_own(operator, (input, &mut self.sums[..]), told, goes_on)?;
        let first = output_start as usize * custom.element_bytes as usize;
        if is_done && !output.is_empty() {
            output.copy_from_slice(&self.sums[first..first + output.len()]);
        }
        Ok(is_done)
    }

    /// Whether this rank gets anything.
    fn receives_any(&self, kind: CollectiveKind) -> bool {
        (0..kind.shares(self.config.world)).any(|share| kind.receives(Rank(self.config.rank), share))
    }

    /// Whether the job may have to go on elsewhere, with what ranks have kept, and some may be further than others by more than a call.
    fn may_go_elsewhere(&self) -> bool {
        match self.jobs {
            Jobs::Hosts(_) => true,
            Jobs::Fabric(_) => self.config.fallback != Some(Fallback::Error),
            // Nobody has its end of a reduction there before all have contributed, and it copies nothing.
            Jobs::Switch(_) => false,
        }
    }

    /// Whether what runs calls of a kind divides sums itself where means are asked for.
    fn divides(&self, kind: CollectiveKind) -> bool {
        match &self.jobs {
            Jobs::Hosts(_) => false,
            Jobs::Fabric(jobs) => jobs.divides(kind),
            Jobs::Switch(jobs) => jobs.divides(),
        }
    }

    /// Runs what the system of its kind has; says whether a mean was asked for and is only a sum.
    fn run(&mut self, asked: Asked<'_>, vectors: Vectors<'_>, goes_on: &mut dyn FnMut(u32) -> bool) -> Result<bool, Stop> {
        let what = CollectiveCall { op_number: 0, fixed_point: None, ..*asked.what };
        match &mut self.jobs {
            Jobs::Hosts(jobs) => jobs.run(&what, vectors, goes_on).map(|()| false),
            Jobs::Fabric(jobs) => jobs.run(&what, vectors, asked.link, goes_on),
            Jobs::Switch(jobs) => jobs.run(&what, vectors, asked.link, goes_on).map(|()| false),
        }
    }
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
pub(super) fn overlap(one: Range<usize>, other: Range<usize>) -> Option<Range<usize>> {
    let both = one.start.max(other.start)..one.end.min(other.end);
    (both.start < both.end).then_some(both)
}
