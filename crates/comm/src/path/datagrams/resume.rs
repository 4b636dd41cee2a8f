//! The switch was restarted, or hosts go on without it: ranks tell whoever takes the job which blocks each has, and go on. A block that anybody has finished is sent from there and
//! never summed again, for its inputs may have changed since and another order of summands would give other bits; the rest is summed anew. So
//! a rank keeps the end of its last call: results, and of blocks whose result it did not get, what it has contributed.

use std::collections::VecDeque;
use std::ops::Range;

use fanin_control::{BlockRange, OperationPlan, Progress, ResumeState, Segment, Source};
use fanin_core::{CollectiveKind, Rank, hash};
use fanin_runtime::{BlockSet, CollectiveCall, Vectors};

use super::{DatagramPath, Stop};
use crate::call::{Blocks, Buffers, Call};
use crate::error::CommError;
use crate::link::{Link, Opened};
use crate::meeting::{self, NotRejoined};
use crate::path::fabric;
use crate::path::patience::Patience;

/// What a rank remembers beyond its running call.
#[derive(Default)]
pub(crate) struct Memory {
    /// The end of the last call.
    kept: Option<Kept>,
    /// What is left of calls that this rank has not made yet.
    plans: VecDeque<OperationPlan>,
}

/// The end of a call's vector: the results that this rank got, and elsewhere what it has contributed. No rank can lack more of it than a
/// window: a rank sends a block only when it has the result of the one a window before, or has heard of it (`switchml 10`).
struct Kept {
    call: Call,
    first_block: u64,
    total_blocks: u64,
    bytes: Vec<u8>,
}

impl Kept {
    /// What is told of it.
    fn describe(&self, blocks: &Blocks) -> Progress {
        let (mut held, mut contributions): (Vec<BlockRange>, Vec<BlockRange>) = Default::default();
        for index in self.first_block..self.total_blocks {
            // Of a barrier there is no result; that it is over is all there is to know, and a rank that was in it knows.
            let is_known = self.call.kind == CollectiveKind::Barrier || self.call.receives(blocks.get(index).share);
            let list = if is_known { &mut held } else { &mut contributions };
            match list.last_mut() {
                Some(last) if last.end() == index => last.blocks += 1,
                _ => list.push(BlockRange::new(index, 1)),
            }
        }
        let finished = vec![BlockRange::new(0, self.total_blocks)];
        Progress { call: self.call.describe(self.total_blocks), finished, held, contributions }
    }
}

impl Memory {
    /// A call has ended here, and may not have at others.
    pub(crate) fn keep(&mut self, call: &Call, blocks: &Blocks, window: u32, buffers: &mut Buffers<'_>) {
        let mut bytes = self.kept.take().map_or_else(Vec::new, |kept| kept.bytes);
        bytes.clear();
        let total_blocks = blocks.count();
        let first_block = total_blocks.saturating_sub(u64::from(window));
        for index in first_block..total_blocks {
            let block = blocks.get(index);
            if let Some(result) = buffers.output(call, &block) {
                bytes.extend_from_slice(result);
            } else if let Some(contribution) = buffers.input(call, &block) {
                bytes.extend_from_slice(contribution);
            }
        }
        self.kept = Some(Kept { call: *call, first_block, total_blocks, bytes });
    }

    /// What is left of a call after a restart, if anything is known of it.
    pub(crate) fn plan_of(&mut self, number: u32) -> Option<OperationPlan> {
        self.plans.pop_front_if(|plan| plan.operation == number)
    }
}

/// A call that runs, with its vectors.
type Running<'r, 'b> = Option<(&'r Call, &'r mut Buffers<'b>)>;

impl DatagramPath {
    /// Takes the job up again at the switch, which knows nothing of it any more, and goes on to the end of the running call, if one runs.
    /// `next` is the number of that call, or of the next one.
    pub(super) fn resume(&mut self, mut running: Running<'_, '_>, next: u32, link: &Link, patience: &mut Patience<'_>) -> Result<(), Stop> {
        let state = self.state(running.as_ref().map(|(call, _)| *call), next);
        let rejoined = loop {
            let place = link.place();
            // What it had in a fabric, or beside it at its switch, is over, or is begun anew.
            self.leave_others();
            let rejoined = match &self.home {
                None => meeting::rejoin(&self.config, &place, &state),
                Some(home) => meeting::fabric::rejoin(&self.config, home, &place, &state, |config, place, admitted, op| {
                    fabric::enter(config, place, admitted, (op, None))
                }),
            };
            match rejoined {
                Ok(rejoined) => break rejoined,
                Err(NotRejoined::SentBack) => link.go_home(),
                Err(NotRejoined::Failed(error)) if link.go_elsewhere(&place, &error) => {}
                Err(NotRejoined::Failed(error)) => return Err(Stop::Failed(error)),
            }
            patience.check(|| None).map_err(Stop::Failed)?;
        };
        let meeting::Rejoined { stream, session, join, admitted, socket, plans } = rejoined;
        self.renew(admitted.clone(), socket).map_err(Stop::Failed)?;
        self.memory.plans = plans.into();
        link.set_waker(self.waker());
        link.resumed(Opened { stream, session, join, admitted });
        patience.moved();
        while let Some(plan) = self.memory.plans.pop_front_if(|plan| plan.operation < next) {
            self.replay(&plan, None, link, patience)?;
        }
        let Some((call, buffers)) = running.take() else { return Ok(()) };
        match self.memory.plan_of(call.number) {
            Some(plan) => self.replay(&plan, Some((call, buffers)), link, patience),
            // All ranks have all of it, so nothing is left to do.
            None => Ok(()),
        }
    }

    /// As [`DatagramPath::resume`], between two calls.
    ///
    /// # Errors
    /// The job cannot go on.
    pub(crate) fn resume_idle(&mut self, next: u32, link: &Link, mut patience: Patience<'_>) -> Result<(), CommError> {
        loop {
            match self.resume(None, next, link, &mut patience) {
                Ok(()) => return Ok(()),
                Err(Stop::Failed(error)) => return Err(error),
                // Once more in the meantime.
                Err(Stop::Restarted) => {}
            }
        }
    }

    /// What this rank has.
    fn state(&self, running: Option<&Call>, next: u32) -> ResumeState {
        let mut progress = Vec::new();
        if let Some(kept) = &self.memory.kept {
            progress.push(kept.describe(&self.blocks(&kept.call)));
        }
        if let Some(call) = running {
            let runs = |set: &BlockSet| set.runs().into_iter().map(|(first, blocks)| BlockRange::new(first, blocks)).collect::<Vec<_>>();
            let finished = runs(&self.delivered);
            let (call, contributions) = (call.describe(self.blocks(call).count()), Vec::new());
            progress.push(Progress { call, held: finished.clone(), finished, contributions });
        }
        ResumeState { instance: self.admitted.instance, payload_bytes: self.admitted.payload_bytes, operation: next, progress }
    }

    /// Does what is left of a call, with its vectors where it runs here, and otherwise with what was kept of it.
    pub(super) fn replay(
        &mut self,
        plan: &OperationPlan,
        mut running: Running<'_, '_>,
        link: &Link,
        patience: &mut Patience<'_>,
    ) -> Result<(), Stop> {
        for segment in &plan.segments {
            let kept = self.memory.kept.as_ref().map(|kept| kept.call);
            let Some(call) = running.as_ref().map(|(call, _)| **call).or(kept).filter(|call| call.number == plan.operation) else {
                let text = format!(
                    "operation {} cannot go on after the restart of the switch: rank {} knows nothing of it",
                    plan.operation, self.config.rank
                );
                return Err(Stop::Failed(link.fail(link.failed_with(text, Some(self.config.rank), None))));
            };
            let blocks = self.blocks(&call);
            for part in parts(segment, &blocks) {
                self.part(&call, &blocks, &part, running.as_mut().map(|(_, buffers)| &mut **buffers), link, patience)?;
            }
        }
        Ok(())
    }

    /// Does neighbouring blocks of one share.
    fn part(
        &mut self,
        call: &Call,
        blocks: &Blocks,
        part: &Segment,
        buffers: Option<&mut Buffers<'_>>,
        link: &Link,
        patience: &mut Patience<'_>,
    ) -> Result<(), Stop> {
        let what = self.part_of(call, blocks, part);
        let bytes = blocks.span(call, part.first_block, part.blocks);
        let share = blocks.get(part.first_block).share;
        let mut scratch = Vec::new();
        let vectors = match (buffers, part.source) {
            (Some(buffers), Source::Sum) => buffers.part(call, share, bytes),
            (Some(buffers), Source::Holder(_)) => match buffers.output_part(call, share, bytes.clone()) {
                Some(output) => Vectors::InPlace(output),
                None => Vectors::InPlace(blank(&mut scratch, bytes.len())),
            },
            (None, _) => match self.memory.kept_part(blocks, call, bytes.clone()) {
                Some(kept) => {
                    scratch.extend_from_slice(kept);
                    Vectors::InPlace(&mut scratch)
                }
                None => Vectors::InPlace(blank(&mut scratch, bytes.len())),
            },
        };
        self.collective((call, &what), vectors, (part.first_block, part.blocks), link, patience)
    }

    /// The part as a collective of its own.
    fn part_of(&self, call: &Call, blocks: &Blocks, part: &Segment) -> CollectiveCall {
        let share = Rank(blocks.get(part.first_block).share);
        let kind = match (part.source, call.kind) {
            (Source::Holder(rank), _) => CollectiveKind::Broadcast { root: Rank(rank) },
            (Source::Sum, CollectiveKind::ReduceScatter) => CollectiveKind::Reduce { root: share },
            (Source::Sum, CollectiveKind::AllGather) => CollectiveKind::Broadcast { root: share },
            (Source::Sum, kind) => kind,
        };
        let width = call.width();
        let elements = (blocks.span(call, part.first_block, part.blocks).len() / width) as u64;
        let whole = self.what(&Call { kind, elements, ..*call });
        let source = if let Source::Holder(rank) = part.source { u64::from(rank) + 1 } else { 0 };
        let fingerprint = [part.first_block, part.blocks, source].into_iter().fold(u64::from(whole.fingerprint), hash::mix);
        CollectiveCall { fingerprint: (fingerprint as u32).max(1), ..whole }
    }
}

impl Memory {
    /// What was kept of a part of the whole vector, if all of it was.
    fn kept_part(&self, blocks: &Blocks, call: &Call, bytes: Range<usize>) -> Option<&[u8]> {
        let kept = self.kept.as_ref().filter(|kept| kept.call.number == call.number)?;
        let start = blocks.bytes(call, kept.first_block).start;
        kept.bytes.get(bytes.start.checked_sub(start)?..bytes.end.checked_sub(start)?)
    }
}

fn blank(scratch: &mut Vec<u8>, bytes: usize) -> &mut [u8] {
    scratch.resize(bytes, 0);
    scratch
}

/// A segment in parts that do not cross the end of a share.
fn parts(segment: &Segment, blocks: &Blocks) -> Vec<Segment> {
    let (mut parts, mut first, end) = (Vec::new(), segment.first_block, segment.first_block + segment.blocks);
    while first < end {
        let next = blocks.end_of_share(first).min(end);
        parts.push(Segment { first_block: first, blocks: next - first, source: segment.source });
        first = next;
    }
    parts
}
