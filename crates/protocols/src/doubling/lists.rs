//! The lists of a step: the one that is sent, and those that come.

use std::sync::Arc;

use fanin_core::{DropReason, ElementOp, OpError, Pair};

use crate::shared::arrivals::Arrivals;

/// A list that is sent: kept until all of its packets have come at the other end, as they may have to be sent again. It is the worker's sum as it
/// was when the step began, and shared with it: a list of its own would be as large again.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Outgoing {
    /// Number of its first packet among all that this worker has sent.
    pub base: u32,
    pub packets: u32,
    pub pairs: Arc<Vec<Pair>>,
}

impl Outgoing {
    /// A list whose first packet is number `base` of all; an empty one takes a packet, too.
    pub fn begin(&mut self, base: u32, capacity: u32, pairs: &Arc<Vec<Pair>>) {
        self.pairs = Arc::clone(pairs);
        self.base = base;
        self.packets = pairs.len().div_ceil(capacity as usize).max(1) as u32;
    }

    /// Nobody will ask for it again.
    pub fn forget(&mut self) {
        self.pairs = Arc::default();
    }

    /// The pairs of a packet.
    pub fn packet(&self, number: u32, capacity: u32) -> &[Pair] {
        let first = number as usize * capacity as usize;
        &self.pairs[first..self.pairs.len().min(first + capacity as usize)]
    }

    pub fn is_last(&self, number: u32) -> bool {
        number + 1 == self.packets
    }
}

/// A list that comes, or has come.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Incoming {
    /// The operation that it is of, and the digest of that, as its first packet says; `None` where nothing has come yet.
    pub name: Option<(u32, u32)>,
    arrivals: Arrivals,
    /// The highest index that has come.
    highest: u32,
    pub pairs: Vec<Pair>,
    /// Its last packet has come.
    last_came: bool,
}

impl Incoming {
    /// Makes the place one of this operation, if it is of an older one. The digest is that of the operation's first packet.
    pub fn open(&mut self, operation: u32, digest: u32) {
        if self.name.is_some_and(|(known, _)| known == operation) {
            return;
        }
        self.name = Some((operation, digest));
        self.arrivals.clear();
        self.pairs.clear();
        (self.highest, self.last_came) = (0, false);
    }

    /// Whether all of the list of this operation is here.
    pub fn is_whole(&self, operation: u32) -> bool {
        self.name.is_some_and(|(known, _)| known == operation) && self.arrivals.are_all()
    }

    /// Whether the last packet of the list of this operation is here.
    pub fn has_last(&self, operation: u32) -> bool {
        self.name.is_some_and(|(known, _)| known == operation) && self.last_came
    }

    /// Whether all indices that are here are of a vector of so many elements.
    pub fn fits(&self, elements: u64) -> bool {
        self.pairs.is_empty() || u64::from(self.highest) < elements
    }

    /// A packet has come. `ahead` is how far its number may be ahead of as many packets as there are.
    ///
    /// # Errors
    /// [`DropReason::Duplicate`] where it is here; [`DropReason::OutsideWindow`]; [`DropReason::Mismatch`] where it contradicts others. Changes
    /// nothing then.
    pub fn take(&mut self, number: u32, last: bool, ahead: u32, pairs: impl Iterator<Item = Pair>) -> Result<(), DropReason> {
        if number >= self.arrivals.received().saturating_add(ahead) {
            return Err(DropReason::OutsideWindow);
        }
        match self.arrivals.take(number, if last { number + 1 } else { 0 }) {
            Ok(true) => {}
            Ok(false) => return Err(DropReason::Duplicate),
            Err(_) => return Err(DropReason::Mismatch),
        }
        self.last_came |= last;
        self.add(pairs);
        Ok(())
    }

    /// Puts pairs to the others.
    pub fn add(&mut self, pairs: impl Iterator<Item = Pair>) {
        let start = self.pairs.len();
        self.pairs.extend(pairs);
        self.highest = self.pairs[start..].iter().map(|pair| pair.index).fold(self.highest, u32::max);
    }
}

/// `list := list + other`, with the one of the lower rank on the left, so that all workers get the same bits. Nothing is left of the other one.
pub(super) fn merge(op: ElementOp, list: &mut Arc<Vec<Pair>>, other: &mut Vec<Pair>, other_is_lower: bool) -> Result<(), OpError> {
    let other = std::mem::take(other);
    if list.is_empty() || other.is_empty() {
        if list.is_empty() {
            *list = Arc::new(other);
        }
        return op.merge(Arc::make_mut(list));
    }
    let mut sum = Vec::with_capacity(list.len() + other.len());
    let (left, right) = if other_is_lower { (&other[..], &list[..]) } else { (&list[..], &other[..]) };
    sum.extend_from_slice(left);
    sum.extend_from_slice(right);
    drop(other);
    let merged = op.merge(&mut sum);
    sum.shrink_to_fit();
    *list = Arc::new(sum);
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(index: u32, value: i32) -> Pair {
        Pair { index, bits: u64::from(value as u32) }
    }

    #[test]
    fn an_empty_list_is_one_packet() {
        let mut list = Outgoing::default();
        list.begin(7, 4, &Arc::default());
        assert_eq!((list.packets, list.packet(0, 4), list.is_last(0)), (1, &[][..], true));
        let pairs: Vec<Pair> = (0..9).map(|index| pair(index, 1)).collect();
        list.begin(8, 4, &Arc::new(pairs.clone()));
        assert_eq!((list.packets, list.packet(1, 4), list.packet(2, 4)), (3, &pairs[4..8], &pairs[8..]));
        assert!(list.is_last(2) && !list.is_last(1));
        list.forget();
        assert!(list.pairs.is_empty());
    }

    #[test]
    fn packets_come_in_any_order_and_count_once() {
        let mut list = Incoming::default();
        list.open(3, 9);
        assert_eq!(list.take(1, true, 4, [pair(8, 1)].into_iter()), Ok(()));
        assert!(!list.is_whole(3) && list.has_last(3));
        assert_eq!(list.take(1, true, 4, [pair(8, 1)].into_iter()), Err(DropReason::Duplicate));
        assert_eq!(list.take(2, false, 4, [pair(9, 1)].into_iter()), Err(DropReason::Mismatch), "1 is the last one");
        assert_eq!(list.take(5, false, 4, [pair(9, 1)].into_iter()), Err(DropReason::OutsideWindow));
        assert_eq!(list.take(0, false, 4, [pair(2, 5)].into_iter()), Ok(()));
        assert!(list.is_whole(3) && !list.is_whole(2) && list.fits(9) && !list.fits(8));
        list.open(3, 9);
        assert!(list.is_whole(3), "it is open already");
        list.open(5, 1);
        assert!(!list.is_whole(5) && list.pairs.is_empty() && !list.has_last(5));
    }

    #[test]
    fn both_sides_of_an_exchange_get_the_same() {
        let (low, high) = ([pair(1, 4), pair(5, -3)], [pair(0, 7), pair(5, 3)]);
        let (mut left, mut right) = (Arc::new(low.to_vec()), Arc::new(high.to_vec()));
        merge(ElementOp::I32_SUM, &mut left, &mut high.to_vec(), false).unwrap();
        merge(ElementOp::I32_SUM, &mut right, &mut low.to_vec(), true).unwrap();
        assert_eq!(left[..], [pair(0, 7), pair(1, 4), pair(5, 0)], "a sum that cancels out is there");
        assert_eq!(left, right);
    }
}
