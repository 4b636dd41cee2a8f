//! Which way a sparse allreduce takes, and why.

use std::fmt;

use fanin_core::ElementOp;

use super::lists::Packed;
use super::plan::Plan;
use crate::config::SparsePath;

/// How a sparse allreduce was computed, and why so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SparseReport {
    /// Which way was taken.
    pub way: SparseWay,
    /// Entries that all ranks have given together.
    pub entries: u64,
    /// Entries of the rank with the most.
    pub longest: u64,
    /// What a rank receives with lists, in bytes; that is more than it sends.
    pub lists_bytes: u64,
    /// What it receives with a dense vector, in bytes, and as much it sends.
    pub dense_bytes: u64,
    /// What it receives at most where the switch sums, in bytes; `None` where that cannot be.
    pub switch_bytes: Option<u64>,
    /// Why the switch does not sum; `None` where it does, or there is only one rank.
    pub no_switch: Option<NoSwitch>,
}

/// Ways in which a sparse allreduce is computed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SparseWay {
    /// There is only one rank.
    Alone,
    /// The switch sums pairs of index and value.
    Switch,
    /// Every rank gets the lists of all ranks and merges them.
    Lists,
    /// A dense allreduce, since all else would be more bytes.
    Dense,
}

impl SparseWay {
    /// Its name: `alone`, `switch`, `lists` or `dense`.
    pub const fn name(self) -> &'static str {
        match self {
            SparseWay::Alone => "alone",
            SparseWay::Switch => "switch",
            SparseWay::Lists => "lists",
            SparseWay::Dense => "dense",
        }
    }
}

/// Why a switch does not sum sparse vectors.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NoSwitch {
    /// Vectors travel through shared memory.
    SharedMemory,
    /// Vectors travel over a fabric of several switches, whose system sums dense ones.
    Fabric,
    /// Several ranks share hosts of a fabric, and have lists in common first.
    SharedHosts,
    /// The hosts of a fabric sum by themselves at the moment.
    ByHosts,
    /// The job does not want it ([`SparsePath::Lists`]).
    NotWanted,
    /// The job's binary32 floats go as block fixed point, and sparse ones are summed exactly by ranks.
    FixedPoint,
    /// Floats are to have the same bits every time, and a switch adds them in the order in which they come.
    Reproducible,
    /// Packets have no room for a pair, or there would be too many blocks.
    TooLong,
    /// It would save too few bytes.
    LittleSaved,
    /// It is being restarted.
    Restarted,
    /// A rank did not get the switch's sum, this time or several times in a row; a notice says why.
    Failed,
}

impl NoSwitch {
    /// In words.
    pub const fn reason(self) -> &'static str {
        match self {
            NoSwitch::SharedMemory => "ranks share memory",
            NoSwitch::Fabric => "the fabric sums dense vectors, and sparse ones where its system is flare",
            NoSwitch::SharedHosts => "ranks share hosts of the fabric",
            NoSwitch::ByHosts => "hosts sum by themselves",
            NoSwitch::NotWanted => "lists are wanted",
            NoSwitch::FixedPoint => "float32 is block fixed point there",
            NoSwitch::Reproducible => "floats must be reproducible",
            NoSwitch::TooLong => "there are too many blocks, or no room for an element in a packet",
            NoSwitch::LittleSaved => "that would save few bytes",
            NoSwitch::Restarted => "it is being restarted",
            NoSwitch::Failed => "a rank did not get its sum",
        }
    }
}

impl fmt::Display for SparseReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SparseReport { way, entries, longest, lists_bytes, dense_bytes, switch_bytes, no_switch } = self;
        match way {
            SparseWay::Alone => return f.write_str("alone: one rank, nothing travels"),
            SparseWay::Switch => f.write_str("switch: summed by the switch")?,
            SparseWay::Lists => f.write_str("lists: gathered, and merged by every rank")?,
            SparseWay::Dense => f.write_str("dense: a dense allreduce, as lists would be more bytes")?,
        }
        if let Some(why) = no_switch {
            write!(f, "; not by the switch: {}", why.reason())?;
        }
        write!(f, " ({entries} entries, {longest} at most at a rank; {lists_bytes} bytes for each rank with lists, {dense_bytes} dense")?;
        match switch_bytes {
            Some(bytes) => write!(f, ", {bytes} at most through the switch)"),
            None => f.write_str(")"),
        }
    }
}

/// An agreement costs a round trip, and packets of pairs more of the processor than full ones of lists: about as long as so many bytes take
/// at 1 Gb/s.
const SAVED_MIN: u64 = 64 << 10;

/// What there is to choose from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choices {
    pub(super) may_be_dense: bool,
    pub(super) plan: Result<Plan, NoSwitch>,
    pub(super) wanted: SparsePath,
}

impl SparseReport {
    /// Which way the same counts lead to at all ranks: to the one with fewer bytes that a rank receives, as links carry as much each way at
    /// once and no rank sends more than it receives. The longest list counts for all, since parts of a gathering are equally long.
    pub(super) fn choose(counts: &[u64], size: u64, op: ElementOp, choices: &Choices) -> Self {
        let longest = counts.iter().copied().max().unwrap_or_default();
        let entries = counts.iter().fold(0u64, |sum, count| sum.saturating_add(*count));
        let share = Packed::new(size, longest, op).bytes();
        let lists_bytes = share.saturating_mul(counts.len() as u64);
        let dense_bytes = size.saturating_mul(op.dtype.bytes() as u64).saturating_add(size.div_ceil(8));
        let is_dense = choices.may_be_dense && dense_bytes < lists_bytes;
        let others = if is_dense { dense_bytes } else { lists_bytes };
        let switch = choices.plan.map(|plan| plan.bytes(size, entries));
        let switch_bytes = switch.ok();
        let no_switch = match switch {
            Err(why) => Some(why),
            // Nobody has anything: there is nothing to do.
            Ok(_) if longest == 0 => Some(NoSwitch::LittleSaved),
            Ok(bytes) if choices.wanted == SparsePath::Auto && bytes.saturating_add(SAVED_MIN) > others => Some(NoSwitch::LittleSaved),
            Ok(_) => None,
        };
        let way = match (counts.len(), no_switch) {
            (1, _) => SparseWay::Alone,
            (_, None) => SparseWay::Switch,
            _ if is_dense => SparseWay::Dense,
            _ => SparseWay::Lists,
        };
        let no_switch = no_switch.filter(|_| way != SparseWay::Alone);
        SparseReport { way, entries, longest, lists_bytes, dense_bytes, switch_bytes, no_switch }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_with_fewer_bytes_is_taken() {
        // f32: a list of n entries is 8 n bytes, from each of two; dense, 1000 elements are 4125 bytes.
        let choices = |may_be_dense| Choices { may_be_dense, plan: Err(NoSwitch::SharedMemory), wanted: SparsePath::Auto };
        let of = |longest: u64, may: bool| SparseReport::choose(&[longest, 1], 1_000, ElementOp::F32_SUM, &choices(may));
        let report = of(257, true);
        assert_eq!((report.way, report.lists_bytes, report.dense_bytes, report.entries), (SparseWay::Lists, 4_112, 4_125, 258));
        assert_eq!(of(258, true).way, SparseWay::Dense);
        assert_eq!(of(258, false).way, SparseWay::Lists);
        let alone = SparseReport::choose(&[9], 9, ElementOp::F32_SUM, &choices(true));
        assert_eq!((alone.way, alone.no_switch), (SparseWay::Alone, None));
        let text = of(258, true).to_string();
        assert!(
            text.starts_with("dense: a dense allreduce, as lists would be more bytes; not by the switch: ranks share memory (259 "),
            "{text}"
        );
    }

    #[test]
    fn the_switch_sums_where_that_saves_bytes_or_is_wanted() {
        let of = |size: u64, counts: &[u64], wanted| {
            let longest = *counts.iter().max().unwrap();
            let plan = Plan::new(ElementOp::F32_SUM, counts.len() as u32, 1_440, size, longest).ok_or(NoSwitch::TooLong);
            SparseReport::choose(counts, size, ElementOp::F32_SUM, &Choices { may_be_dense: true, plan, wanted })
        };
        // Lists: 4 times 10,000 entries of 8 bytes. The switch: as many of 6, and headers.
        let report = of(1_000_000, &[10_000; 4], SparsePath::Auto);
        assert_eq!((report.way, report.lists_bytes, report.no_switch), (SparseWay::Switch, 320_000, None));
        assert!((240_000..250_000).contains(&report.switch_bytes.unwrap()), "{report}");
        assert!(
            report.to_string().starts_with("switch: summed by the switch (40000 entries, 10000 at most at a rank; 320000 bytes"),
            "{report}"
        );
        let few = of(1_000_000, &[1_000; 4], SparsePath::Auto);
        assert_eq!((few.way, few.no_switch), (SparseWay::Lists, Some(NoSwitch::LittleSaved)));
        assert_eq!(of(1_000_000, &[1_000; 4], SparsePath::Switch).way, SparseWay::Switch);
        assert_eq!(of(1_000_000, &[900_000; 4], SparsePath::Auto).way, SparseWay::Dense);
        // All that ranks have together is longer than the vector with 4 bytes for each element.
        assert_eq!(of(1_000_000, &[200_000; 4], SparsePath::Auto).way, SparseWay::Dense);
        assert_eq!(of(1_000_000, &[0; 4], SparsePath::Switch).way, SparseWay::Lists);
        assert_eq!(of(1 << 62, &[5; 4], SparsePath::Switch).no_switch, Some(NoSwitch::TooLong));
    }
}
