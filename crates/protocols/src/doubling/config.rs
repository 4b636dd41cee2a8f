//! What a worker is told when it is made, and with whom it exchanges lists.

use fanin_core::{Address, FlowLabel, JobId, PairFormat, Rank};
use fanin_wire::doubling::INDEX_BYTES;

use crate::shared::reliability::Reliability;

/// The longest window, in packets.
pub const WINDOW_MAX: u32 = 1 << 15;

/// One step of an operation at one worker: who it has to do with, and in which direction lists go.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Turn {
    /// The other worker.
    pub rank: Rank,
    /// Where it lives.
    pub address: Address,
    /// Whether this worker sends its list to it.
    pub sends: bool,
    /// Whether it sends its list to this worker.
    pub receives: bool,
}

/// What a worker of `workers` does, step by step; `None` where a step is nothing to it. With 2^m the largest power of two that is not above
/// `workers`, step 0 takes the lists of ranks from 2^m on to ranks 2^m below, steps 1 to m are exchanges of ranks that differ in bit 0 to m-1,
/// and step m+1 takes the result to those who only gave.
pub fn schedule(rank: Rank, workers: u32, address: impl Fn(Rank) -> Address) -> Vec<Option<Turn>> {
    let bits = workers.max(1).ilog2();
    let core = 1u32 << bits;
    let turn = |rank: u32, sends, receives| {
        let rank = Rank(rank);
        (rank.0 < workers).then(|| Turn { rank, address: address(rank), sends, receives })
    };
    let mut turns = vec![None; bits as usize + 2];
    let last = turns.len() - 1;
    if rank.0 >= core {
        turns[0] = turn(rank.0 - core, true, false);
        turns[last] = turn(rank.0 - core, false, true);
        return turns;
    }
    turns[0] = turn(rank.0 + core, false, true);
    for bit in 0..bits {
        turns[bit as usize + 1] = turn(rank.0 ^ 1 << bit, true, true);
    }
    turns[last] = turn(rank.0 + core, true, false);
    turns
}

/// What a worker is told.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct DoublingWorkerConfig<O> {
    /// The job.
    pub job: JobId,
    /// This worker.
    pub rank: Rank,
    /// What it does, step by step: see [`schedule`].
    pub turns: Vec<Option<Turn>>,
    /// Element type and operator.
    pub op: O,
    /// Most pairs in a packet; 1 to 65535.
    pub capacity: u32,
    /// Bytes of a value: 1, 2, 4 or 8.
    pub value_bytes: u32,
    /// With loss recovery, packets that are not acknowledged at most; the same at all workers, rounded up to a power of two, at most
    /// [`WINDOW_MAX`].
    pub window: u32,
    /// Label of what is sent, for flow hashing.
    pub flow: FlowLabel,
    /// Loss recovery and patience.
    pub reliability: Reliability,
}

impl<O> DoublingWorkerConfig<O> {
    /// How pairs lie in packets.
    pub fn format(&self) -> PairFormat {
        PairFormat { index_bytes: INDEX_BYTES, value_bytes: self.value_bytes }
    }

    /// Panics where a field is out of its range.
    pub(super) fn check(&self) {
        assert!((1..=u32::from(u16::MAX)).contains(&self.capacity), "a packet takes 1 to 65535 pairs");
        assert!(matches!(self.value_bytes, 1 | 2 | 4 | 8), "a value has 1, 2, 4 or 8 bytes");
        assert!((1..=WINDOW_MAX).contains(&self.window), "a window of 1 to 32768 packets");
        assert!(self.turns.len() <= usize::from(u8::MAX), "steps are numbered by 8 bits");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanin_core::NodeId;

    fn all(workers: u32) -> Vec<Vec<Option<Turn>>> {
        (0..workers).map(|rank| schedule(Rank(rank), workers, |rank| Address::worker(NodeId(rank.0)))).collect()
    }

    #[test]
    fn who_sends_is_received_from_in_the_same_step() {
        for workers in 1..70 {
            let all = all(workers);
            for (rank, turns) in all.iter().enumerate() {
                for (step, turn) in turns.iter().enumerate().filter_map(|(step, turn)| Some((step, turn.as_ref()?))) {
                    let other = all[turn.rank.index()][step].as_ref().expect("the other has to do with it, too");
                    assert_eq!((other.rank.index(), other.sends, other.receives), (rank, turn.receives, turn.sends), "{workers} workers");
                    assert_eq!(turn.address, Address::worker(NodeId(turn.rank.0)));
                }
            }
        }
    }

    #[test]
    fn every_contribution_reaches_every_worker_once() {
        for workers in 1..70usize {
            let all = all(workers as u32);
            let mut has: Vec<Vec<u32>> = (0..workers).map(|rank| (0..workers).map(|of| u32::from(of == rank)).collect()).collect();
            let last = all[0].len() - 1;
            for step in 0..=last {
                let before = has.clone();
                for (rank, turns) in all.iter().enumerate() {
                    let Some(turn) = turns[step].filter(|turn| turn.receives) else { continue };
                    let from = &before[turn.rank.index()];
                    has[rank] = if step == last { from.clone() } else { has[rank].iter().zip(from).map(|(a, b)| a + b).collect() };
                }
            }
            assert!(has.iter().flatten().all(|count| *count == 1), "{workers} workers: {has:?}");
        }
    }

    #[test]
    fn powers_of_two_take_their_logarithm_of_exchanges() {
        let turns = &all(8)[5];
        assert_eq!(turns.iter().map(|turn| turn.map(|turn| turn.rank.0)).collect::<Vec<_>>(), [None, Some(4), Some(7), Some(1), None]);
        let lone = &all(1)[0];
        assert!(lone.iter().all(Option::is_none));
    }
}
