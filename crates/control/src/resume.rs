//! After a restart of the switch: what is left of the operations that were running, from what each rank has.
//!
//! A block whose result has been delivered to anybody must not be summed again: ranks may have changed their inputs since, and another
//! order of summands would give other bits than the ones that somebody already uses. So it is sent by a rank that still holds it. Of a block
//! whose result only some ranks get, the others keep what they have contributed for a while: as long as nobody has the result, it is summed
//! anew from that.

use std::collections::BTreeSet;

use crate::call::Signature;
use crate::message::{BlockRange, OperationPlan, Progress, ResumeState, Segment, Source};

/// How many operations ranks can be apart. They are one apart where everybody waits for everybody, and a few where a rank may run ahead
/// (broadcasts).
pub const OPERATIONS_APART_MAX: u32 = 64;

/// How many ranges a list can have.
pub const RANGES_MAX: usize = 16_384;

/// Why a job cannot go on.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ResumeError {
    /// A rank's lists make no sense.
    #[error("what rank {rank} says about operation {operation} makes no sense: {what}")]
    Nonsense {
        /// The rank.
        rank: u32,
        /// The operation.
        operation: u32,
        /// What is wrong.
        what: &'static str,
    },
    /// Ranks were in different calls.
    #[error("rank {rank} calls {theirs} as operation {operation} where rank {other} calls {ours}")]
    Mismatch {
        /// The operation.
        operation: u32,
        /// The rank that differs.
        rank: u32,
        /// What it calls.
        theirs: Signature,
        /// The rank that it differs from.
        other: u32,
        /// What that one calls.
        ours: Signature,
    },
    /// Ranks cut a vector into different numbers of blocks.
    #[error("rank {rank} cuts operation {operation} into {blocks} blocks where others have {expected}")]
    Blocks {
        /// The operation.
        operation: u32,
        /// The rank that differs.
        rank: u32,
        /// How many blocks it has.
        blocks: u64,
        /// How many the others have.
        expected: u64,
    },
    /// Nobody could be so far ahead.
    #[error("rank {rank} is in operation {ahead}, too far from operation {behind}, which not all have finished")]
    TooFarApart {
        /// The rank that is ahead.
        rank: u32,
        /// Its operation.
        ahead: u32,
        /// The earliest one.
        behind: u32,
    },
    /// Somebody needs a result that nobody has any more.
    #[error("rank {needs} needs block {block} of operation {operation}, which rank {had} has had, but nobody holds it any more")]
    Lost {
        /// The operation.
        operation: u32,
        /// The first such block.
        block: u64,
        /// A rank that needs it.
        needs: u32,
        /// A rank that finished it.
        had: u32,
    },
}

impl ResumeError {
    /// The rank that is to blame or, where nobody is, that cannot go on.
    pub fn rank(&self) -> u32 {
        match self {
            ResumeError::Nonsense { rank, .. }
            | ResumeError::Mismatch { rank, .. }
            | ResumeError::Blocks { rank, .. }
            | ResumeError::TooFarApart { rank, .. } => *rank,
            ResumeError::Lost { needs, .. } => *needs,
        }
    }
}

/// Checks what can be seen from one rank alone: lists ascend, do not overlap, do not leave the operation, and what is held is finished.
///
/// # Errors
/// [`ResumeError::Nonsense`].
pub fn check(rank: u32, state: &ResumeState) -> Result<(), ResumeError> {
    let mut before = None;
    for Progress { call, finished, held, contributions } in &state.progress {
        let wrong = |what| Err(ResumeError::Nonsense { rank, operation: call.operation, what });
        if call.signature.is_none() {
            return wrong("it is not a call");
        }
        if before.replace(call.operation).is_some_and(|before| before >= call.operation) {
            return wrong("operations do not ascend");
        }
        if finished.len().max(held.len()).max(contributions.len()) > RANGES_MAX {
            return wrong("too many ranges");
        }
        if [finished, held, contributions].into_iter().any(|ranges| !ascend(ranges, call.total_blocks)) {
            return wrong("ranges of blocks do not ascend, overlap, are empty or leave the operation");
        }
        if call.operation >= state.operation && !contained(held, finished) {
            return wrong("a block is held but not finished");
        }
        if call.operation >= state.operation && !contributions.is_empty() {
            return wrong("it runs, and contributes to all blocks anyway");
        }
    }
    Ok(())
}

fn ascend(ranges: &[BlockRange], total: u64) -> bool {
    let mut from = 0;
    ranges.iter().all(|range| {
        let fits = range.first >= from && range.blocks > 0 && range.first.checked_add(range.blocks).is_some_and(|end| end <= total);
        from = range.end();
        fits
    })
}

/// Whether every block of `inner` is in `outer`; both ascend. Neighbouring ranges of `outer` count as one.
fn contained(inner: &[BlockRange], outer: &[BlockRange]) -> bool {
    let mut outer = outer.iter().copied().peekable();
    inner.iter().all(|range| {
        let mut at = range.first;
        while at < range.end() {
            match outer.peek() {
                Some(next) if next.end() <= at => drop(outer.next()),
                Some(next) if next.first <= at => at = next.end(),
                _ => return false,
            }
        }
        true
    })
}

/// What is left, given what every rank has; `states[r]` is rank r's. Operations come in ascending order, from the earliest that somebody
/// has not finished to the last that somebody has begun.
///
/// # Errors
/// [`ResumeError`]: the job cannot go on.
pub fn merge(states: &[ResumeState]) -> Result<Vec<OperationPlan>, ResumeError> {
    for (rank, state) in states.iter().enumerate() {
        check(rank as u32, state)?;
    }
    let Some(earliest) = states.iter().map(|state| state.operation).min() else { return Ok(Vec::new()) };
    // One past the last operation that a rank has begun.
    let end = |state: &ResumeState| state.progress.last().map_or(0, |last| last.call.operation.saturating_add(1)).max(state.operation);
    let Some((ahead, last)) = states.iter().enumerate().max_by_key(|(_, state)| end(state)) else { return Ok(Vec::new()) };
    if end(last) - earliest > OPERATIONS_APART_MAX {
        return Err(ResumeError::TooFarApart { rank: ahead as u32, ahead: end(last) - 1, behind: earliest });
    }
    (earliest..end(last)).map(|operation| merge_operation(operation, states)).collect()
}

/// One rank's part in one operation.
struct Part<'a> {
    rank: u32,
    /// All blocks are finished here, whatever the lists say.
    complete: bool,
    progress: Option<&'a Progress>,
}

fn merge_operation(operation: u32, states: &[ResumeState]) -> Result<OperationPlan, ResumeError> {
    let parts: Vec<Part<'_>> = states
        .iter()
        .enumerate()
        .map(|(rank, state)| Part {
            rank: rank as u32,
            complete: operation < state.operation,
            progress: state.progress.iter().find(|progress| progress.call.operation == operation),
        })
        .collect();
    let Some(total) = agree(operation, &parts)? else {
        // Nobody knows what the operation was, so nobody has its result.
        let had = parts.iter().find(|part| part.complete);
        let needs = parts.iter().find(|part| !part.complete);
        return match (had, needs) {
            (Some(had), Some(needs)) => Err(ResumeError::Lost { operation, block: 0, needs: needs.rank, had: had.rank }),
            _ => Ok(OperationPlan { operation, segments: Vec::new() }),
        };
    };
    Ok(OperationPlan { operation, segments: sweep(operation, total, &parts)? })
}

/// The number of blocks, if anybody knows the operation, and all who do agree about it.
fn agree(operation: u32, parts: &[Part<'_>]) -> Result<Option<u64>, ResumeError> {
    let mut known = parts.iter().filter_map(|part| {
        let call = &part.progress?.call;
        Some((part.rank, call.signature?, call.total_blocks))
    });
    let Some((other, ours, expected)) = known.next() else { return Ok(None) };
    for (rank, theirs, blocks) in known {
        if theirs != ours {
            return Err(ResumeError::Mismatch { operation, rank, theirs, other, ours });
        }
        if blocks != expected {
            return Err(ResumeError::Blocks { operation, rank, blocks, expected });
        }
    }
    Ok(Some(expected))
}

/// What a rank has of a block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum List {
    Finished,
    Held,
    Contributions,
}

/// A place where a list begins or ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Edge {
    block: u64,
    rank: u32,
    list: List,
    begins: bool,
}

/// Goes over the blocks from the first to the last, knowing at each who has finished it, who holds it and who can contribute once more.
fn sweep(operation: u32, total: u64, parts: &[Part<'_>]) -> Result<Vec<Segment>, ResumeError> {
    let everything = [BlockRange::new(0, total)];
    let mut edges = Vec::new();
    for part in parts {
        let finished = if part.complete { &everything[..] } else { part.progress.map_or(&[][..], |progress| &progress.finished) };
        let held = part.progress.map_or(&[][..], |progress| &progress.held);
        let contributions = part.progress.map_or(&[][..], |progress| &progress.contributions);
        for (ranges, list) in [(finished, List::Finished), (held, List::Held), (contributions, List::Contributions)] {
            for range in ranges.iter().filter(|range| range.blocks > 0) {
                edges.push(Edge { block: range.first, rank: part.rank, list, begins: true });
                edges.push(Edge { block: range.end(), rank: part.rank, list, begins: false });
            }
        }
    }
    edges.sort_unstable();
    let (mut finished, mut holders, mut contributors) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let (mut segments, mut from, mut next) = (Vec::new(), 0, 0);
    while from < total {
        while let Some(edge) = edges.get(next).filter(|edge| edge.block == from) {
            // A list that goes on where it ends has both edges here, the end first.
            let set = match edge.list {
                List::Finished => &mut finished,
                List::Held => &mut holders,
                List::Contributions => &mut contributors,
            };
            if edge.begins {
                set.insert(edge.rank)
            } else {
                set.remove(&edge.rank)
            };
            next += 1;
        }
        let to = edges.get(next).map_or(total, |edge| edge.block);
        if finished.len() < parts.len() {
            let source = match (finished.difference(&contributors).next(), holders.first()) {
                (None, _) => Source::Sum,
                (Some(_), Some(holder)) => Source::Holder(*holder),
                (Some(&had), None) => {
                    let needs = parts.iter().map(|part| part.rank).find(|rank| !finished.contains(rank)).unwrap_or_default();
                    return Err(ResumeError::Lost { operation, block: from, needs, had });
                }
            };
            append(&mut segments, Segment { first_block: from, blocks: to - from, source });
        }
        from = to;
    }
    Ok(segments)
}

/// Adds a segment, as part of the last one where it goes on with the same source.
fn append(segments: &mut Vec<Segment>, segment: Segment) {
    match segments.last_mut() {
        Some(last) if last.source == segment.source && last.first_block + last.blocks == segment.first_block => {
            last.blocks += segment.blocks
        }
        _ => segments.push(segment),
    }
}
