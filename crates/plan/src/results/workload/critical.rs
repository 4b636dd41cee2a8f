//! What the end of the last rank waited for: from there back, always over what came last, to the beginning.

use std::collections::BTreeMap;

use fanin_sim::programs::{Call, LaneKind, ProgramResult, Span, Step};

use crate::jobs::workload::lanes::PreparedProgram;

/// A part of the critical path: the rank, its step, and from when to when the path follows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// The rank.
    pub rank: u32,
    /// Its step.
    pub step: u32,
    /// From when, in picoseconds.
    pub from_ps: u64,
    /// Until when.
    pub to_ps: u64,
}

/// Who takes part in what.
struct Members<'a> {
    program: &'a PreparedProgram,
    result: &'a ProgramResult,
    /// By lane and operation: the ranks that take part, with their steps.
    of: BTreeMap<(u32, u32), Vec<(u32, u32)>>,
    /// By program: by step, those that it waits for.
    before: Vec<Vec<Vec<u32>>>,
}

/// Parts at most: a path is no longer than all steps.
const PARTS_MAX: usize = 1 << 22;

/// The critical path, from its end back. Empty where the job did not end.
pub fn path(program: &PreparedProgram, result: &ProgramResult) -> Vec<Part> {
    if result.ended.is_none() {
        return Vec::new();
    }
    let members = Members::new(program, result);
    let all = (0..).zip(&result.ranks).flat_map(|(rank, spans)| (0..).zip(spans).map(move |(step, span)| (span.ended_ps, rank, step)));
    // Of those that end last, the first rank's.
    let Some((_, rank, step)) = all.max_by_key(|(ended, rank, _)| (*ended, std::cmp::Reverse(*rank))) else { return Vec::new() };
    let mut parts: Vec<Part> = Vec::new();
    let mut at = Some((rank, step));
    while let Some((rank, step)) = at.take() {
        if parts.len() >= PARTS_MAX {
            break;
        }
        let span = members.span((rank, step));
        let to_ps = parts.last().map_or(span.ended_ps, |part: &Part| part.from_ps.min(span.ended_ps));
        let (from_ps, next) = members.waited_for((rank, step), to_ps);
        parts.push(Part { rank, step, from_ps: from_ps.min(to_ps), to_ps });
        at = next;
    }
    parts
}

impl<'a> Members<'a> {
    fn new(program: &'a PreparedProgram, result: &'a ProgramResult) -> Self {
        let mut of: BTreeMap<(u32, u32), Vec<(u32, u32)>> = BTreeMap::new();
        for (rank, about) in (0..).zip(&program.job.ranks) {
            for (step, kind) in (0..).zip(&program.job.programs[about.program as usize].steps) {
                if let Step::Call(call) = kind {
                    let Call { lane, operation, .. } = about.calls[*call as usize];
                    of.entry((lane, operation)).or_default().push((rank, step));
                }
            }
        }
        let before = program.job.programs.iter().map(|program| {
            let mut before = vec![Vec::new(); program.steps.len()];
            for step in 0..program.steps.len() as u32 {
                program.successors(step).iter().for_each(|next| before[*next as usize].push(step));
            }
            before
        });
        Members { program, result, of, before: before.collect() }
    }

    fn span(&self, (rank, step): (u32, u32)) -> Span {
        self.result.ranks[rank as usize][step as usize]
    }

    fn call(&self, (rank, step): (u32, u32)) -> Option<Call> {
        let about = &self.program.job.ranks[rank as usize];
        match self.program.job.programs[about.program as usize].steps[step as usize] {
            Step::Compute(_) => None,
            Step::Call(call) => Some(about.calls[call as usize]),
        }
    }

    /// What a step waited for to begin: the one that ended last.
    fn last_before(&self, (rank, step): (u32, u32)) -> Option<(u32, u32)> {
        let program = self.program.job.ranks[rank as usize].program as usize;
        let before = self.before[program][step as usize].iter();
        before.map(|before| (rank, *before)).max_by_key(|at| (self.span(*at).ended_ps, std::cmp::Reverse(at.1)))
    }

    /// From when a step was under way itself, and what it waited for then.
    fn waited_for(&self, at: (u32, u32), to_ps: u64) -> (u64, Option<(u32, u32)>) {
        let begun_ps = self.span(at).begun_ps;
        let own = (begun_ps, self.last_before(at));
        let Some(call) = self.call(at) else { return own };
        let came = |(lane, operation): (u32, u32)| self.of.get(&(lane, operation)).into_iter().flatten().copied();
        if self.program.job.lanes[call.lane as usize].kind == LaneKind::Transfers {
            // What was there before it was asked for cost nothing.
            let sender = came((call.lane, call.operation)).find(|other| self.call(*other).is_some_and(|call| call.sends));
            return match sender.filter(|_| !call.sends && begun_ps < to_ps) {
                Some(sender) => (self.span(sender).begun_ps, self.last_before(sender)),
                None => own,
            };
        }
        let last = came((call.lane, call.operation)).filter(|other| self.span(*other).begun_ps <= to_ps);
        let last = last.max_by_key(|other| (self.span(*other).begun_ps, std::cmp::Reverse(other.0))).unwrap_or(at);
        let last_ps = self.span(last).begun_ps;
        // The lane does one after the other.
        let before = call.operation.checked_sub(1).map(|before| (call.lane, before));
        let busy = before.into_iter().flat_map(came).filter(|other| self.span(*other).ended_ps <= to_ps);
        match busy.max_by_key(|other| (self.span(*other).ended_ps, std::cmp::Reverse(other.0))) {
            Some(other) if self.span(other).ended_ps > last_ps => (self.span(other).ended_ps, Some(other)),
            _ => (last_ps, self.last_before(last)),
        }
    }
}
