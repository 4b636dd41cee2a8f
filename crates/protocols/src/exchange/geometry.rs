//! Which messages a rank sends and gets in a collective.

use fanin_core::hash::mix;
use fanin_core::{Collective, CollectiveKind};

use crate::shared::chunks::Chunks;

/// What becomes of a packet that has come.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Apply {
    /// It is added to this rank's elements, and the sum goes on.
    Fold,
    /// It is added to this rank's elements, and the sum is final.
    FoldLast,
    /// It is final.
    Store,
    /// It carries nothing. This rank's next message, which says that all of the rounds before have come, goes when they have.
    Meet,
}

impl Apply {
    /// Whether such packets carry what is final, or nothing; else partial sums.
    #[inline]
    pub fn is_copy(self) -> bool {
        matches!(self, Apply::Store | Apply::Meet)
    }
}

/// What ranks must agree on, in 8 bits: those that do not find each other out by the first packet, but for one in 256.
pub(super) fn digest(collective: &Collective) -> u8 {
    let (kind, root) = match collective.kind {
        CollectiveKind::Allreduce => (0, 0),
        CollectiveKind::ReduceScatter => (1, 0),
        CollectiveKind::AllGather => (2, 0),
        CollectiveKind::AllToAll { workers } => (3, workers),
        CollectiveKind::Barrier => (4, 0),
        CollectiveKind::Reduce { root } => (5, root.0),
        CollectiveKind::Broadcast { root } => (6, root.0),
    };
    let words = [u64::from(root), collective.elements, u64::from(collective.op), u64::from(collective.fingerprint)];
    words.into_iter().fold(kind, mix) as u8
}

/// A message that comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Incoming {
    /// The rank that sends it.
    pub from: u32,
    /// The chunk that it moves.
    pub chunk: u32,
    pub apply: Apply,
    /// Which of this rank's messages its packets go on in.
    pub next: Option<u16>,
}

/// A message that is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Outgoing {
    /// The rank that gets it.
    pub to: u32,
    /// The chunk that it moves.
    pub chunk: u32,
    /// It moves this rank's own elements; else what has come.
    pub own: bool,
    /// It moves what is final, or this rank's own part of what is not reduced.
    pub copy: bool,
}

/// A collective as one rank sees it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Schedule {
    kind: CollectiveKind,
    workers: u32,
    rank: u32,
}

impl Schedule {
    /// The schedule of rank `rank` of `workers`; `None` where the collective makes no sense for so many: a root that is none of them, a vector that
    /// cannot be divided among them, a barrier with a vector.
    pub fn new(collective: &Collective, workers: u32, rank: u32) -> Option<Self> {
        let kind = collective.kind;
        let makes_sense = match kind {
            CollectiveKind::Reduce { root } | CollectiveKind::Broadcast { root } => root.0 < workers,
            CollectiveKind::Barrier => collective.elements == 0,
            CollectiveKind::AllToAll { workers: all } => all == workers && workers <= 1 << 15,
            CollectiveKind::Allreduce | CollectiveKind::ReduceScatter | CollectiveKind::AllGather => true,
        };
        let divides = collective.elements.is_multiple_of(u64::from(kind.shares(workers)));
        (makes_sense && divides).then_some(Schedule { kind, workers, rank })
    }

    /// How many chunks the vector is cut into.
    pub(super) fn chunks(&self) -> u32 {
        match self.kind {
            CollectiveKind::Allreduce => self.workers,
            kind => kind.shares(self.workers),
        }
    }

    /// What this rank is called in the chain that begins with, or ends at, `root`: places behind it.
    fn behind(&self, root: u32) -> u32 {
        (self.rank + self.workers - root) % self.workers
    }

    /// The rank so many places behind this one.
    fn other(&self, distance: u32) -> u32 {
        (self.rank + distance % self.workers) % self.workers
    }

    /// The chunk so many places before this rank's.
    fn chunk(&self, before: u32) -> u32 {
        (self.rank + 2 * self.workers - before) % self.workers
    }

    /// How many messages this rank sends.
    pub fn sends(&self) -> u32 {
        let others = self.workers - 1;
        match self.kind {
            CollectiveKind::Allreduce => 2 * others,
            CollectiveKind::ReduceScatter | CollectiveKind::AllGather | CollectiveKind::AllToAll { .. } => others,
            CollectiveKind::Broadcast { root } => u32::from(self.behind(root.0) < others),
            CollectiveKind::Reduce { root } => u32::from(self.behind(root.0) > 0),
            CollectiveKind::Barrier => self.workers.next_power_of_two().ilog2(),
        }
    }

    /// How many messages come.
    pub fn receives(&self) -> u32 {
        let others = self.workers - 1;
        match self.kind {
            CollectiveKind::Broadcast { root } => u32::from(self.behind(root.0) > 0),
            // The chain begins behind the root, and ends at it.
            CollectiveKind::Reduce { root } => u32::from(others > 0 && self.behind(root.0) != 1),
            _ => self.sends(),
        }
    }

    /// Message number `message`, below [`Schedule::sends`].
    pub(super) fn outgoing(&self, message: u32) -> Outgoing {
        let ring = |chunk, copy| Outgoing { to: self.other(1), chunk, own: message == 0, copy };
        match self.kind {
            CollectiveKind::Allreduce => ring(self.chunk(message), message + 1 >= self.workers),
            CollectiveKind::ReduceScatter => ring(self.chunk(message + 1), false),
            CollectiveKind::AllGather => ring(self.chunk(message), true),
            CollectiveKind::Broadcast { root } => Outgoing { own: self.behind(root.0) == 0, ..ring(0, true) },
            CollectiveKind::Reduce { root } => Outgoing { own: self.behind(root.0) == 1, ..ring(0, false) },
            CollectiveKind::AllToAll { .. } => {
                let to = self.other(message + 1);
                Outgoing { to, chunk: to * self.workers + self.rank, own: true, copy: true }
            }
            CollectiveKind::Barrier => Outgoing { to: self.other(1 << message), ..ring(0, true) },
        }
    }

    /// The message that its sender calls number `message`, below [`Schedule::receives`].
    pub(super) fn incoming(&self, message: u32) -> Incoming {
        let next = |count: u32| (message + 1 < count).then_some(message as u16 + 1);
        let from = self.other(self.workers - 1);
        match self.kind {
            CollectiveKind::Allreduce => {
                let apply = match message + 2 {
                    end if end < self.workers => Apply::Fold,
                    end if end == self.workers => Apply::FoldLast,
                    _ => Apply::Store,
                };
                Incoming { from, chunk: self.chunk(message + 1), apply, next: next(self.sends()) }
            }
            CollectiveKind::ReduceScatter => {
                let apply = if message + 2 == self.workers { Apply::FoldLast } else { Apply::Fold };
                Incoming { from, chunk: self.chunk(message + 2), apply, next: next(self.sends()) }
            }
            CollectiveKind::AllGather => Incoming { from, chunk: self.chunk(message + 1), apply: Apply::Store, next: next(self.sends()) },
            CollectiveKind::Broadcast { .. } => Incoming { from, chunk: 0, apply: Apply::Store, next: (self.sends() > 0).then_some(0) },
            CollectiveKind::Reduce { .. } => {
                let goes_on = self.sends() > 0;
                let apply = if goes_on { Apply::Fold } else { Apply::FoldLast };
                Incoming { from, chunk: 0, apply, next: goes_on.then_some(0) }
            }
            CollectiveKind::AllToAll { .. } => {
                let from = self.other(self.workers - 1 - message);
                Incoming { from, chunk: self.rank * self.workers + from, apply: Apply::Store, next: None }
            }
            CollectiveKind::Barrier => {
                let from = self.other(self.workers - (1 << message) % self.workers);
                Incoming { from, chunk: 0, apply: Apply::Meet, next: None }
            }
        }
    }

    /// The chunk of this rank's own elements that is a part of its result as it is.
    pub(super) fn kept(&self) -> Option<u32> {
        match self.kind {
            CollectiveKind::AllGather => Some(self.rank),
            CollectiveKind::AllToAll { .. } => Some(self.rank * self.workers + self.rank),
            CollectiveKind::Broadcast { root } if root.0 == self.rank => Some(0),
            CollectiveKind::Allreduce | CollectiveKind::ReduceScatter if self.workers == 1 => Some(0),
            CollectiveKind::Reduce { .. } if self.workers == 1 => Some(0),
            _ => None,
        }
    }

    /// Whether messages bring this rank a result, or in a barrier word of all others: not where it is the root of a broadcast, and not in a
    /// reduce whose root is another one.
    pub(super) fn gets_result(&self) -> bool {
        match self.kind {
            CollectiveKind::Reduce { root } => root.0 == self.rank,
            CollectiveKind::Broadcast { root } => root.0 != self.rank,
            _ => true,
        }
    }

    /// Packets of a message that moves this chunk: one without anything in a barrier.
    pub(super) fn packets(&self, chunks: &Chunks, chunk: u32) -> u32 {
        if self.kind == CollectiveKind::Barrier { 1 } else { chunks.segments(chunk) }
    }

    /// Whether nobody has anything to say.
    pub(super) fn is_empty(&self, collective: &Collective) -> bool {
        self.workers == 1 || collective.elements == 0 && self.kind != CollectiveKind::Barrier
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanin_core::{OperationId, Rank};

    fn kinds(workers: u32) -> Vec<CollectiveKind> {
        let roots = (0..workers).map(Rank);
        let rooted = roots.flat_map(|root| [CollectiveKind::Reduce { root }, CollectiveKind::Broadcast { root }]);
        let others =
            [CollectiveKind::Allreduce, CollectiveKind::ReduceScatter, CollectiveKind::AllGather, CollectiveKind::AllToAll { workers }];
        others.into_iter().chain(rooted).collect()
    }

    fn schedules(kind: CollectiveKind, workers: u32) -> Vec<Schedule> {
        let elements = if kind == CollectiveKind::Barrier { 0 } else { 1_200 * u64::from(kind.shares(workers)) };
        let collective = Collective { kind, ..Collective::allreduce(OperationId(0), elements) };
        (0..workers).map(|rank| Schedule::new(&collective, workers, rank).unwrap()).collect()
    }

    /// Every message that is sent is one that comes, with the same chunk, and none comes that is not sent.
    #[test]
    fn what_is_sent_is_what_comes() {
        for workers in 1..9 {
            for kind in kinds(workers).into_iter().chain([CollectiveKind::Barrier]) {
                let all = schedules(kind, workers);
                let mut sent: Vec<(u32, u32, u32)> = Vec::new();
                for (rank, schedule) in all.iter().enumerate() {
                    for message in 0..schedule.sends() {
                        let outgoing = schedule.outgoing(message);
                        assert_ne!(outgoing.to as usize, rank, "{kind:?} of {workers}");
                        let incoming = all[outgoing.to as usize].incoming(message);
                        assert_eq!((incoming.from as usize, incoming.chunk), (rank, outgoing.chunk), "{kind:?} of {workers}");
                        sent.push((outgoing.to, message, outgoing.chunk));
                    }
                }
                let comes: u32 = all.iter().map(Schedule::receives).sum();
                sent.sort_unstable();
                sent.dedup();
                assert_eq!(sent.len() as u32, comes, "{kind:?} of {workers}");
            }
        }
    }

    /// Sets of contributions take the place of elements: each rank ends with those that the kind says, each once.
    #[test]
    fn every_contribution_is_in_every_result_once() {
        for workers in 1..9u32 {
            for kind in kinds(workers) {
                let all = schedules(kind, workers);
                let chunks = all[0].chunks();
                // By rank and chunk: how often each rank's elements are in it, and whether it is final.
                let own = |rank: u32| (0..workers).map(|other| u32::from(other == rank)).collect::<Vec<u32>>();
                let mut output = vec![vec![(Vec::new(), false); chunks as usize]; workers as usize];
                let mut queue: Vec<(u32, u32)> = Vec::new();
                for (rank, schedule) in (0..workers).zip(&all) {
                    if let Some(chunk) = schedule.kept() {
                        output[rank as usize][chunk as usize] = (own(rank), true);
                    }
                    queue.extend((0..schedule.sends()).filter(|message| schedule.outgoing(*message).own).map(|message| (rank, message)));
                }
                while let Some((rank, message)) = queue.pop() {
                    let outgoing = all[rank as usize].outgoing(message);
                    let moved = if outgoing.own { own(rank) } else { output[rank as usize][outgoing.chunk as usize].0.clone() };
                    let incoming = all[outgoing.to as usize].incoming(message);
                    let mut sum = if incoming.apply == Apply::Store { vec![0; workers as usize] } else { own(outgoing.to) };
                    sum.iter_mut().zip(&moved).for_each(|(sum, moved)| *sum += moved);
                    output[outgoing.to as usize][incoming.chunk as usize] = (sum, incoming.apply != Apply::Fold);
                    queue.extend(incoming.next.map(|next| (outgoing.to, u32::from(next))));
                }
                let shares = kind.shares(workers);
                for (rank, chunk) in (0..workers).flat_map(|rank| (0..chunks).map(move |chunk| (rank, chunk))) {
                    let share = if shares == chunks { chunk } else { 0 };
                    let (sum, is_final) = &output[rank as usize][chunk as usize];
                    assert_eq!(*is_final, kind.receives(Rank(rank), share), "{kind:?} of {workers}: rank {rank}, chunk {chunk}");
                    let right: Vec<u32> = (0..workers).map(|other| u32::from(kind.contributes(Rank(other), share))).collect();
                    assert!(!is_final || *sum == right, "{kind:?} of {workers}: rank {rank}, chunk {chunk}: {sum:?}");
                }
            }
        }
    }

    #[test]
    fn a_barrier_hears_of_everybody() {
        for workers in 1..20u32 {
            let all = schedules(CollectiveKind::Barrier, workers);
            let mut known: Vec<u64> = (0..workers).map(|rank| 1 << rank).collect();
            for round in 0..all[0].sends() {
                let before = known.clone();
                for (rank, schedule) in all.iter().enumerate() {
                    known[rank] |= before[schedule.incoming(round).from as usize];
                }
            }
            assert!(known.iter().all(|set| *set == (1 << workers) - 1), "{workers} workers");
        }
    }

    #[test]
    fn what_makes_no_sense_has_no_schedule() {
        let schedule = |kind, elements| Schedule::new(&Collective { kind, ..Collective::allreduce(OperationId(0), elements) }, 3, 0);
        assert_eq!(schedule(CollectiveKind::Reduce { root: Rank(3) }, 9), None);
        assert_eq!(schedule(CollectiveKind::ReduceScatter, 10), None);
        assert_eq!(schedule(CollectiveKind::AllToAll { workers: 3 }, 12), None);
        assert_eq!(schedule(CollectiveKind::AllToAll { workers: 2 }, 18), None);
        assert_eq!(schedule(CollectiveKind::Barrier, 1), None);
        assert!(schedule(CollectiveKind::Allreduce, 10).is_some() && schedule(CollectiveKind::AllToAll { workers: 3 }, 18).is_some());
    }
}
