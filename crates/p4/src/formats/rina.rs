//! Packets of Rina around its switch, on Ethernet. The paper has no format: these are the fields of Fanin's own ([`fanin_wire::rina`]), big-endian and
//! in the same places for all kinds.
//!
//! | here | in Fanin's message |
//! |---|---|
//! | `kind` | tasks, pulls, gradients, sums and results, by Fanin's numbers; others are between workers, and no switch looks at them |
//! | `flag`, `value` | pull: `fresh` and `count`; gradient: whether it met congestion, for there is no IPv4 header, and `member`; sum: `marked`; result: the way |
//! | a task's `value` | `count`: 1. A longer task would take a pass for each of its pieces |
//! | `members`, `next`, `contributors`, `to`, `group`, `hops` | the last eight bytes, by kind |
//! | data, big-endian | the payload, little-endian; always 64 integers |
//! | none | that a switch knows nothing of an operation (`Unknown`): the agent's timeouts show it |

use fanin_core::{Malformed, NodeId};
use fanin_wire::rina::{Item, MEMBERS_MAX, Members, RinaHeader, Way};

use super::{Header, field, swap_elements};
use crate::frames::{ETHERNET, Mac, ethernet};

/// Behind Ethernet.
pub const RINA: Header = Header {
    name: "rina",
    source: "`rina 2`; the paper gives no format",
    fields: &[
        field("kind", 8, "1 task, 2 pull, 3 gradient, 4 sum, 5 result"),
        field("flag", 1, "pull: the switch begins; gradient, sum: met congestion"),
        field("value", 7, "task, pull: 1 piece; gradient: which worker; result: 0 direct, 1 relayed, 2 repair"),
        field("epoch", 16, "workers that the sender knows to be excluded"),
        field("operation", 16, "its number's low half"),
        field("partition", 16, "partition"),
        field("asks", 1, "the sender waits for the acknowledgement"),
        field("number", 31, "packet between two groups"),
        field("segment", 32, "packet of the partition"),
    ],
};

/// Behind that in tasks.
pub const RINA_TASK: Header = Header {
    name: "rina_task",
    source: "`rina 2`",
    fields: &[field("members", 48, "a bit for each worker of the switch"), field("next", 16, "rank that gets the sums")],
};

/// Behind that in gradients and sums.
pub const RINA_SUM: Header =
    Header { name: "rina_sum", source: "`rina 2`", fields: &[field("contributors", 16, "ranks in it"), field("pad", 48, "zero")] };

/// Behind that in results.
pub const RINA_RESULT: Header = Header {
    name: "rina_result",
    source: "`rina 2`",
    fields: &[
        field("to", 32, "host of the next group"),
        field("group", 16, "group that counts it"),
        field("hops", 16, "groups that follow"),
    ],
};

/// Ethernet's number for Rina: one for experiments (IEEE 802).
pub const KIND_RINA: u64 = 0x88b5;
/// Elements of a packet.
pub const ELEMENTS: usize = 64;
/// Kinds.
pub const TASK: u64 = 1;
/// A switch asks for a piece.
pub const PULL: u64 = 2;
/// A worker's contribution.
pub const GRADIENT: u64 = 3;
/// What a group has summed.
pub const SUM: u64 = 4;
/// The sum of all.
pub const RESULT: u64 = 5;

/// Bytes in front of the elements.
pub const FRONT: usize = ETHERNET.bytes() + RINA.bytes() + RINA_SUM.bytes();

/// What a frame says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RinaFrame {
    /// The message.
    pub header: RinaHeader,
    /// A gradient met congestion on its way.
    pub marked: bool,
    /// Little-endian, as the state machine has them; empty in tasks and pulls.
    pub elements: Vec<u8>,
}

impl RinaFrame {
    /// Reads a frame. Behind a task there may be anything, as where a frame is filled up.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(frame: &[u8]) -> Result<Self, Malformed> {
        let (ethernet, rest) = ETHERNET.split(frame)?;
        ETHERNET.require(ethernet, "kind", KIND_RINA)?;
        let (rina, rest) = RINA.split(rest)?;
        let (own, data) = RINA_SUM.split(rest)?;
        let get = |name| RINA.get(rina, name);
        let item =
            Item::new(get("epoch") as u16, get("operation") as u16, get("partition") as u16, get("number") as u32, get("segment") as u32);
        let item = item.asking(get("asks") == 1);
        let flag = get("flag") == 1;
        let header = match get("kind") {
            TASK => {
                RINA.require(rina, "flag", 0)?;
                RINA.require(rina, "value", 1)?;
                let task = |name| RINA_TASK.get(own, name);
                RinaHeader::Task { item, count: 1, members: Members::new(task("members")), next: task("next") as u16 }
            }
            GRADIENT => {
                RINA_SUM.require(own, "pad", 0)?;
                if get("value") >= u64::from(MEMBERS_MAX) {
                    return Err(Malformed::Field { name: "value", value: get("value") });
                }
                RinaHeader::Gradient { item, member: get("value") as u8, contributors: RINA_SUM.get(own, "contributors") as u16 }
            }
            RESULT => {
                RINA.require(rina, "flag", 0)?;
                let way = match get("value") {
                    0 => Way::Direct,
                    1 => Way::Relayed,
                    2 => Way::Repair,
                    value => return Err(Malformed::Field { name: "value", value }),
                };
                let result = |name| RINA_RESULT.get(own, name);
                RinaHeader::Result {
                    item,
                    way,
                    to: NodeId(result("to") as u32),
                    group: result("group") as u16,
                    hops: result("hops") as u16,
                }
            }
            kind => return Err(Malformed::Field { name: "kind", value: kind }),
        };
        if matches!(header, RinaHeader::Task { .. }) {
            return Ok(RinaFrame { header, marked: false, elements: Vec::new() });
        }
        if data.len() != 4 * ELEMENTS {
            return Err(Malformed::Truncated { needed: 4 * ELEMENTS, got: data.len() });
        }
        Ok(RinaFrame { header, marked: flag && get("kind") == GRADIENT, elements: swap_elements(data) })
    }

    /// The frame.
    ///
    /// # Panics
    /// Where the message is one that there is no kind for here.
    pub fn emit(&self, src: Mac, dst: Mac) -> Vec<u8> {
        let item = |kind: u64, item: Item, flag: bool, value: u64| {
            RINA.with(&[
                ("kind", kind),
                ("flag", flag.into()),
                ("value", value),
                ("epoch", item.epoch.into()),
                ("operation", item.operation.into()),
                ("partition", item.partition.into()),
                ("asks", item.asks().into()),
                ("number", item.number().into()),
                ("segment", item.segment().into()),
            ])
        };
        let (rina, own) = match self.header {
            RinaHeader::Task { item: at, count, members, next } => {
                (item(TASK, at, false, count.into()), RINA_TASK.with(&[("members", members.bits()), ("next", next.into())]))
            }
            RinaHeader::Pull { item: at, count, fresh } => (item(PULL, at, fresh, count.into()), RINA_SUM.with(&[])),
            RinaHeader::Gradient { item: at, member, contributors } => {
                (item(GRADIENT, at, self.marked, member.into()), RINA_SUM.with(&[("contributors", contributors.into())]))
            }
            RinaHeader::Sum { item: at, marked, contributors } => {
                (item(SUM, at, marked, 0), RINA_SUM.with(&[("contributors", contributors.into())]))
            }
            RinaHeader::Result { item: at, way, to, group, hops } => {
                let fields = [("to", to.0.into()), ("group", group.into()), ("hops", hops.into())];
                (item(RESULT, at, false, way as u64), RINA_RESULT.with(&fields))
            }
            ref other => panic!("{other:?} is no packet around a switch"),
        };
        ethernet(src, dst, KIND_RINA, &[rina, own, swap_elements(&self.elements)].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at() -> Item {
        Item::new(0x0102, 0x0304, 0x0506, 0x0708_090a, 0x0b0c_0d0e)
    }

    fn frame(header: RinaHeader) -> RinaFrame {
        let is_task = matches!(header, RinaHeader::Task { .. } | RinaHeader::Pull { .. });
        RinaFrame { header, marked: false, elements: if is_task { Vec::new() } else { (0..=255).collect() } }
    }

    #[test]
    fn golden_bytes() {
        let gradient =
            RinaFrame { marked: true, ..frame(RinaHeader::Gradient { item: at().asking(true), member: 5, contributors: 0x1011 }) };
        let bytes = gradient.emit(Mac(1), Mac(2));
        let expected = [
            &[0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 1, 0x88, 0xb5][..],
            &[3, 0x85, 1, 2, 3, 4, 5, 6, 0x87, 8, 9, 10, 11, 12, 13, 14],
            &[0x10, 0x11, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(bytes[..FRONT], expected.concat());
        assert_eq!((bytes[FRONT..FRONT + 4].to_vec(), bytes.len()), (vec![3, 2, 1, 0], 294));
        assert_eq!([RINA_TASK, RINA_SUM, RINA_RESULT].map(|header| header.bytes()), [8; 3]);
    }

    #[test]
    fn what_is_written_is_read() {
        let members = Members::new(0x8000_0000_0001);
        let all = [
            frame(RinaHeader::Task { item: at(), count: 1, members, next: 7 }),
            frame(RinaHeader::Gradient { item: at(), member: 47, contributors: 1 }),
            frame(RinaHeader::Result { item: at().asking(true), way: Way::Repair, to: NodeId(0x0102_0304), group: 5, hops: 6 }),
        ];
        for frame in all {
            assert_eq!(RinaFrame::parse(&frame.emit(Mac(1), Mac(2))), Ok(frame));
        }
    }

    #[test]
    fn a_wrong_field_is_named() {
        let good = frame(RinaHeader::Gradient { item: at(), member: 1, contributors: 1 }).emit(Mac(1), Mac(2));
        let error = |at: usize, value: u8| {
            let mut bytes = good.clone();
            bytes[at] = value;
            match RinaFrame::parse(&bytes) {
                Err(Malformed::Field { name, .. }) => name,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!((error(13, 0), error(14, 9), error(14, 4), error(35, 1)), ("kind", "kind", "kind", "pad"));
        assert!((0..good.len()).all(|length| RinaFrame::parse(&good[..length]).is_err()));
        let task = frame(RinaHeader::Task { item: at(), count: 1, members: Members::new(1), next: 0 }).emit(Mac(1), Mac(2));
        let mut wrong = task.clone();
        wrong[15] = 2;
        assert_eq!(RinaFrame::parse(&wrong), Err(Malformed::Field { name: "value", value: 2 }));
        assert_eq!(RinaFrame::parse(&[&task[..], &[0; 22]].concat()).unwrap().emit(Mac(1), Mac(2)), task, "a frame that is filled up");
    }
}
