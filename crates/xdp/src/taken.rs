//! What a job had in the kernel: its counts, and all of its state when it leaves.

use fanin_core::{DropReason, Duration, RetransmitReason, Tally};
use fanin_systems::AnyNode;

use crate::layout::{AGGREGATING, COUNTS, DONE, LATE_LIMITS, RANK, Up, VERSION};

/// What has passed between the program and a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct XdpRankCounts {
    /// Contributions that the slots have seen.
    pub packets_received: u64,
    /// Bytes of their elements.
    pub payload_bytes_received: u64,
    /// Packets that were dropped before that.
    pub packets_dropped: u64,
    /// Packets to it.
    pub packets_sent: u64,
    /// Bytes of their elements.
    pub payload_bytes_sent: u64,
    /// Sums that it completed, as the last of all.
    pub completed: u64,
    /// How long these had nothing but it to wait for, together.
    pub awaited: Duration,
    /// Those among them that waited longer than each of [`XdpJob::late`](crate::XdpJob::late).
    pub late: [u64; LATE_LIMITS],
}

impl XdpRankCounts {
    /// From the bytes of a value of the map.
    pub fn of(value: &[u8]) -> Self {
        let get = |name| RANK.get(value, name);
        XdpRankCounts {
            packets_received: get("packets_received"),
            payload_bytes_received: get("payload_bytes_received"),
            packets_dropped: get("packets_dropped"),
            packets_sent: get("packets_sent"),
            payload_bytes_sent: get("payload_bytes_sent"),
            completed: get("completed"),
            awaited: Duration::from_ns(get("awaited_ns")),
            late: std::array::from_fn(|index| RANK.item(value, "late", index)),
        }
    }
}

/// Counts of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct XdpCounts {
    /// Packets that went no further, by [`DropReason`].
    pub dropped: Vec<u64>,
    /// Frames that went up the stack, by [`Up`].
    pub up: Vec<u64>,
    /// Packets sent again, by [`RetransmitReason`].
    pub retransmitted: Vec<u64>,
    /// What systems count besides, by [`Tally`].
    pub tallies: Vec<u64>,
    /// By rank.
    pub ranks: Vec<XdpRankCounts>,
}

impl Default for XdpCounts {
    fn default() -> Self {
        XdpCounts {
            dropped: vec![0; DropReason::ALL.len()],
            up: vec![0; Up::ALL.len()],
            retransmitted: vec![0; RetransmitReason::ALL.len()],
            tallies: vec![0; Tally::ALL.len()],
            ranks: Vec::new(),
        }
    }
}

impl XdpCounts {
    /// Adds the counts of one processor.
    pub fn add(&mut self, value: &[u8]) {
        let add = |to: &mut Vec<u64>, name| to.iter_mut().enumerate().for_each(|(at, count)| *count += COUNTS.item(value, name, at));
        add(&mut self.dropped, "dropped");
        add(&mut self.up, "up");
        add(&mut self.retransmitted, "retransmitted");
        add(&mut self.tallies, "tallies");
    }

    /// Frames that went up for this reason.
    pub fn up_for(&self, up: Up) -> u64 {
        self.up[up as usize]
    }

    /// Packets dropped for this reason.
    pub fn dropped_for(&self, reason: DropReason) -> u64 {
        self.dropped[reason.index()]
    }

    /// Why packets of the job that only user space can add have gone up since `before`; nothing where none have.
    pub fn takes_job(&self, before: &XdpCounts) -> Vec<Up> {
        Up::ALL.iter().copied().filter(|up| up.takes_job() && self.up_for(*up) > before.up_for(*up)).collect()
    }
}

/// Where the numbers of a link are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Numbers {
    /// Of the next packet to the rank.
    pub next: u32,
    /// Of the last one from it. Of a job of Canary, one that all are below that have come, where it goes to the kernel; that leaves, and a window's
    /// span, where it comes from there.
    pub heard: u32,
}

/// A version of a slot that holds something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TakenVersion {
    /// The slot.
    pub slot: u16,
    /// Its round.
    pub round: u32,
    /// Whether all have contributed.
    pub is_done: bool,
    /// Bit r: rank r has contributed.
    pub arrived: u64,
    /// The call's operator.
    pub op: u8,
    /// The call's receiver.
    pub receiver: u16,
    /// The call's fingerprint.
    pub fingerprint: u32,
    /// The largest exponent, where the operator is in fixed point.
    pub exponent: i16,
    /// What has been added.
    pub sum: Vec<u8>,
}

impl TakenVersion {
    /// As a value of the map, of a job with so many ranks.
    pub fn value(&self, ranks: u32) -> Vec<u8> {
        let mut value = vec![0; VERSION.bytes()];
        let missing = u64::from(ranks.saturating_sub(self.arrived.count_ones()));
        for (name, number) in [
            ("round", self.round.into()),
            ("state", if self.is_done { DONE } else { AGGREGATING }),
            ("op", self.op.into()),
            ("receiver", self.receiver.into()),
            ("fingerprint", self.fingerprint.into()),
            ("exponent", u64::from(self.exponent as u16)),
            ("bytes", self.sum.len() as u64),
            ("missing", missing),
            ("arrived", self.arrived),
        ] {
            VERSION.set(&mut value, name, number);
        }
        let (at, _) = VERSION.field("sum");
        value[at..at + self.sum.len()].copy_from_slice(&self.sum);
        value
    }

    /// From the bytes of a value of the map; `None` where it holds nothing.
    pub fn of(slot: u32, value: &[u8]) -> Option<Self> {
        let get = |name| VERSION.get(value, name);
        let state = get("state");
        if state != AGGREGATING && state != DONE {
            return None;
        }
        Some(TakenVersion {
            slot: slot as u16,
            round: get("round") as u32,
            is_done: state == DONE,
            arrived: get("arrived"),
            op: get("op") as u8,
            receiver: get("receiver") as u16,
            fingerprint: get("fingerprint") as u32,
            exponent: get("exponent") as u16 as i16,
            sum: VERSION.slice(value, "sum").get(..get("bytes") as usize)?.to_vec(),
        })
    }
}

/// What a switch's node holds, for the kernel to go on with; `None` where the node is none that has a program, or where something waits for room
/// on its way, which takes a moment.
pub fn kept(node: &AnyNode<[u8]>) -> Option<Vec<TakenVersion>> {
    let versions = node.kept()?.into_iter().map(|kept| TakenVersion {
        slot: kept.slot,
        round: kept.number,
        is_done: kept.is_done,
        arrived: kept.arrived,
        op: kept.op,
        receiver: kept.receiver,
        fingerprint: kept.fingerprint,
        exponent: kept.exponent,
        sum: kept.acc.as_bytes().to_vec(),
    });
    Some(versions.collect())
}

/// All that a job had in the kernel.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Taken {
    /// What slots hold.
    pub versions: Vec<TakenVersion>,
    /// By rank.
    pub numbers: Vec<Numbers>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_version_holds_comes_back_from_its_value() {
        let version = TakenVersion {
            slot: 3,
            round: u32::MAX,
            is_done: false,
            arrived: 0b1011,
            op: 9,
            receiver: 2,
            fingerprint: 0x1234_5678,
            exponent: -126,
            sum: (0..20).collect(),
        };
        for version in [TakenVersion { is_done: true, arrived: u64::MAX, sum: Vec::new(), ..version.clone() }, version] {
            let value = version.value(64);
            assert_eq!(VERSION.get(&value, "missing"), 64 - u64::from(version.arrived.count_ones()));
            assert_eq!(TakenVersion::of(3, &value), Some(version));
        }
        assert_eq!(TakenVersion::of(0, &vec![0; VERSION.bytes()]), None);
    }
}
