//! Why nothing moves: compares what the ranks of a job say that they are doing. Pure: calls in, verdict out.

use std::collections::BTreeMap;

use super::text::{ranks, span, verb};
use crate::call::{CallDescription, Signature};
use crate::message::FailureKind;

/// What the switch knows when it judges.
pub(super) struct Evidence<'a> {
    /// What ranks are doing, of those that have said it.
    pub calls: &'a BTreeMap<u32, CallDescription>,
    /// Ranks that are there and have not said it.
    pub unanswering: &'a [u32],
    /// Ranks whose connection is lost at the moment.
    pub detached: &'a [u32],
    /// Ranks that have left, with the number of the first operation that they have no part in.
    pub left: &'a BTreeMap<u32, u32>,
    /// Packets that have come from each rank.
    pub packets: &'a [u64],
    /// For how long nothing has moved, in ms.
    pub idle_ms: u64,
}

/// What is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// Nobody waits for anything.
    Fine,
    /// This cannot end well.
    Hopeless { kind: FailureKind, text: String, suspect: Option<u32> },
    /// This may still end well, but not for ever.
    Waiting { kind: FailureKind, text: String, suspect: Option<u32> },
}

/// Judges.
pub(super) fn judge(evidence: &Evidence<'_>) -> Verdict {
    if let Some(verdict) = mismatch(evidence.calls) {
        return verdict;
    }
    let calling = evidence.calls.iter().filter(|(_, call)| !call.is_idle());
    let Some(furthest) = calling.map(|(_, call)| call.operation).max() else { return Verdict::Fine };
    if let Some(verdict) = departure(evidence, furthest) {
        return verdict;
    }
    if let Some(verdict) = absence(evidence) {
        return verdict;
    }
    lateness(evidence, furthest).unwrap_or_else(|| standstill(evidence, furthest))
}

/// Ranks call different things as the same operation.
fn mismatch(calls: &BTreeMap<u32, CallDescription>) -> Option<Verdict> {
    let mut by_operation: BTreeMap<u32, Vec<(u32, Signature)>> = BTreeMap::new();
    for (&rank, call) in calls {
        if let Some(signature) = call.signature {
            by_operation.entry(call.operation).or_default().push((rank, signature));
        }
    }
    for (operation, said) in by_operation {
        let votes = |signature: &Signature| said.iter().filter(|(_, other)| other == signature).count();
        // What most ranks call is right, as far as anybody can tell; of equals, what the lowest rank calls.
        let (right, ours) = *said.iter().rev().max_by_key(|(_, signature)| votes(signature))?;
        if let Some((rank, theirs)) = said.iter().find(|(_, signature)| *signature != ours) {
            let text = format!("rank {rank} calls {theirs} as operation {operation} where rank {right} calls {ours}");
            return Some(Verdict::Hopeless { kind: FailureKind::Mismatch, text, suspect: Some(*rank) });
        }
    }
    None
}

/// A rank that is needed has left.
fn departure(evidence: &Evidence<'_>, furthest: u32) -> Option<Verdict> {
    let gone: Vec<u32> = evidence.left.iter().filter(|(_, first)| **first <= furthest).map(|(rank, _)| *rank).collect();
    let first = *gone.first()?;
    let waiting = in_call(evidence.calls, evidence.left[&first]);
    let who = format!("{} {} left the job", ranks(&gone), verb(&gone, "has", "have"));
    let text = format!("{who}, and {} {} in {}", ranks(&waiting), verb(&waiting, "waits", "wait"), describe(evidence.calls, furthest));
    Some(Verdict::Hopeless { kind: FailureKind::RankLeft, text, suspect: Some(first) })
}

/// A rank says nothing.
fn absence(evidence: &Evidence<'_>) -> Option<Verdict> {
    let since = span(evidence.idle_ms);
    let waiting = |kind, who: &[u32], what: &str| {
        let text = format!("nothing has moved for {since}, and {} {what}", ranks(who));
        Some(Verdict::Waiting { kind, text, suspect: who.first().copied() })
    };
    match (evidence.detached, evidence.unanswering) {
        ([], []) => None,
        ([], who) => waiting(FailureKind::RankSilent, who, verb(who, "does not say what it is doing", "do not say what they are doing")),
        (who, _) => waiting(FailureKind::RankLost, who, verb(who, "has lost its connection", "have lost their connections")),
    }
}

/// A rank has not come as far as the others.
fn lateness(evidence: &Evidence<'_>, furthest: u32) -> Option<Verdict> {
    let calls = evidence.calls;
    let behind = |call: &CallDescription| call.operation < furthest || call.is_idle() && call.operation <= furthest;
    let earliest = calls.values().filter(|call| behind(call)).map(|call| (call.operation, !call.is_idle())).min()?;
    let late: Vec<u32> =
        calls.iter().filter(|(_, call)| behind(call) && (call.operation, !call.is_idle()) == earliest).map(|(rank, _)| *rank).collect();
    let (operation, in_call) = earliest;
    let others: Vec<u32> = calls.iter().filter(|(rank, call)| !call.is_idle() && !late.contains(rank)).map(|(rank, _)| *rank).collect();
    let since = span(evidence.idle_ms);
    let wait = format!("{} {} waited for {since}", ranks(&others), verb(&others, "has", "have"));
    let text = if in_call {
        let blocks = block(&calls[&late[0]]);
        format!("{} {} still in {}{blocks}; {wait}", ranks(&late), verb(&late, "is", "are"), describe(calls, operation))
    } else {
        format!("{} {} not called {}; {wait}", ranks(&late), verb(&late, "has", "have"), describe(calls, operation))
    };
    Some(Verdict::Waiting { kind: FailureKind::RankLate, text, suspect: late.first().copied() })
}

/// All are in the same call.
fn standstill(evidence: &Evidence<'_>, operation: u32) -> Verdict {
    let calls = evidence.calls;
    let count = calls.len();
    let who = if count == 1 { "the only rank waits".into() } else { format!("all {count} ranks wait") };
    let blocks =
        calls.values().filter(|call| call.waiting_block.is_some()).min_by_key(|call| call.waiting_block).map_or(String::new(), block);
    let mut text = format!("{who} in {}{blocks}, and nothing has moved for {}", describe(calls, operation), span(evidence.idle_ms));
    let mute: Vec<u32> =
        calls.keys().copied().filter(|&rank| evidence.packets.get(rank as usize).is_some_and(|packets| *packets == 0)).collect();
    let mut suspect = None;
    if mute.is_empty() {
        let received = |rank: &u32| evidence.packets.get(*rank as usize).map(|packets| format!("{packets} from rank {rank}"));
        let received: Vec<String> = calls.keys().take(8).filter_map(received).collect();
        if !received.is_empty() {
            text += &format!(": the switch has received packets from all of them ({}); are they lost now?", received.join(", "));
        }
    } else {
        suspect = (mute.len() < count).then(|| mute[0]);
        text += &format!(": the switch has received no packet from {}: is UDP blocked between them?", ranks(&mute));
    }
    Verdict::Waiting { kind: FailureKind::NoProgress, text, suspect }
}

/// Ranks that are in this operation or a later one.
fn in_call(calls: &BTreeMap<u32, CallDescription>, operation: u32) -> Vec<u32> {
    calls.iter().filter(|(_, call)| !call.is_idle() && call.operation >= operation).map(|(rank, _)| *rank).collect()
}

/// `operation 17 (allreduce of 1000 f32 (sum))`.
fn describe(calls: &BTreeMap<u32, CallDescription>, operation: u32) -> String {
    match calls.values().find_map(|call| call.signature.filter(|_| call.operation == operation)) {
        Some(signature) => format!("operation {operation} ({signature})"),
        None => format!("operation {operation}"),
    }
}

/// `, block 17 of 64`, where that is known.
fn block(call: &CallDescription) -> String {
    call.waiting_block.map_or(String::new(), |block| format!(", block {block} of {}", call.total_blocks))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{CallKind, Op};

    fn signature(elements: u64) -> Signature {
        Signature { kind: CallKind::Allreduce, op: Op::F32_SUM, elements, part: None }
    }

    fn call(operation: u32, elements: u64) -> CallDescription {
        CallDescription { waiting_block: Some(17), total_blocks: 64, ..CallDescription::begun(operation, signature(elements), 64) }
    }

    fn verdict(calls: &[CallDescription], left: &[(u32, u32)], packets: &[u64]) -> Verdict {
        let left: BTreeMap<u32, u32> = left.iter().copied().collect();
        let calls =
            calls.iter().enumerate().map(|(rank, call)| (rank as u32, *call)).filter(|(rank, _)| !left.contains_key(rank)).collect();
        judge(&Evidence { calls: &calls, unanswering: &[], detached: &[], left: &left, packets, idle_ms: 5_000 })
    }

    fn hopeless(verdict: &Verdict) -> (&str, Option<u32>) {
        match verdict {
            Verdict::Hopeless { text, suspect, .. } => (text, *suspect),
            other => panic!("{other:?}"),
        }
    }

    fn waiting(verdict: &Verdict) -> (&str, Option<u32>) {
        match verdict {
            Verdict::Waiting { text, suspect, .. } => (text, *suspect),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn who_calls_something_else_than_most_is_named() {
        let found = verdict(&[call(3, 500), call(3, 1_000), call(3, 1_000)], &[], &[]);
        let text = "rank 0 calls allreduce of 500 f32 (sum) as operation 3 where rank 1 calls allreduce of 1000 f32 (sum)";
        assert_eq!(hopeless(&found), (text, Some(0)));
        let found = verdict(&[call(3, 500), call(3, 1_000)], &[], &[]);
        assert_eq!(hopeless(&found).1, Some(1), "of two, the higher rank differs from the lower one");
        // Different operations may differ.
        assert!(matches!(verdict(&[call(3, 500), call(4, 1_000)], &[], &[]), Verdict::Waiting { .. }));
    }

    #[test]
    fn who_has_not_called_is_named_with_what_the_others_call() {
        let found = verdict(&[call(17, 1_000), call(17, 1_000), call(17, 1_000), CallDescription::idle(17)], &[], &[]);
        let text = "rank 3 has not called operation 17 (allreduce of 1000 f32 (sum)); ranks 0, 1 and 2 have waited for 5 s";
        assert_eq!(waiting(&found), (text, Some(3)));
        // Behind by more than one: the earliest is to blame.
        let found = verdict(&[call(17, 1_000), call(16, 7), CallDescription::idle(16)], &[], &[]);
        let text = "rank 2 has not called operation 16 (allreduce of 7 f32 (sum)); ranks 0 and 1 have waited for 5 s";
        assert_eq!(waiting(&found), (text, Some(2)));
        let found = verdict(&[call(17, 1_000), call(16, 7)], &[], &[]);
        let text = "rank 1 is still in operation 16 (allreduce of 7 f32 (sum)), block 17 of 64; rank 0 has waited for 5 s";
        assert_eq!(waiting(&found), (text, Some(1)));
    }

    #[test]
    fn who_has_left_is_named_only_where_it_is_needed() {
        let found = verdict(&[call(2, 9), call(2, 9), call(2, 9)], &[(2, 2)], &[]);
        let text = "rank 2 has left the job, and ranks 0 and 1 wait in operation 2 (allreduce of 9 f32 (sum))";
        assert_eq!(hopeless(&found), (text, Some(2)));
        assert!(matches!(verdict(&[call(2, 9), call(2, 9), call(2, 9)], &[(2, 3)], &[]), Verdict::Waiting { .. }));
    }

    #[test]
    fn a_standstill_is_told_with_what_has_come_from_whom() {
        let calls = [call(3, 9), call(3, 9), call(3, 9)];
        let text = |packets: &[u64]| waiting(&verdict(&calls, &[], packets)).0.to_owned();
        let begin = "all 3 ranks wait in operation 3 (allreduce of 9 f32 (sum)), block 17 of 64, and nothing has moved for 5 s";
        assert_eq!(text(&[5, 6, 0]), format!("{begin}: the switch has received no packet from rank 2: is UDP blocked between them?"));
        assert_eq!(
            text(&[5, 6, 7]),
            format!(
                "{begin}: the switch has received packets from all of them (5 from rank 0, 6 from rank 1, 7 from rank 2); are they lost now?"
            )
        );
        assert_eq!(text(&[]), begin);
    }

    #[test]
    fn who_is_between_calls_with_nobody_waiting_is_fine() {
        assert_eq!(verdict(&[CallDescription::idle(3), CallDescription::idle(4)], &[], &[]), Verdict::Fine);
        assert_eq!(verdict(&[], &[(0, 3)], &[]), Verdict::Fine);
    }
}
