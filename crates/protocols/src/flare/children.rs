//! When a block is complete (`flare 4.6`): each child numbers its packets of the block, and its last one says how many there are.

use crate::shared::arrivals::{Arrivals, PacketError};

/// What has come from all children.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Children {
    children: Vec<Arrivals>,
    done: u32,
}

impl Children {
    /// So many children, from whom nothing has come.
    pub fn new(children: u32) -> Self {
        Children { children: vec![Arrivals::default(); children as usize], done: 0 }
    }

    /// A packet has come: `packets` is 0 unless it is the child's last one. False: it has come before, and changes nothing.
    ///
    /// # Errors
    /// [`PacketError`] where it contradicts what has come before; it changes nothing.
    pub fn take(&mut self, child: u32, number: u32, packets: u32) -> Result<bool, PacketError> {
        let state = self.children.get_mut(child as usize).ok_or(PacketError::NoChild)?;
        let is_new = state.take(number, packets)?;
        self.done += u32::from(is_new && state.are_all());
        Ok(is_new)
    }

    /// Whether this packet of a child has come.
    pub fn has(&self, child: u32, number: u32) -> bool {
        self.children.get(child as usize).is_some_and(|packets| packets.has(number))
    }

    /// Whether all packets of a child have come.
    pub fn is_done(&self, child: u32) -> bool {
        self.children.get(child as usize).is_some_and(Arrivals::are_all)
    }

    /// Whether any packet of a child has come.
    pub fn has_some(&self, child: u32) -> bool {
        self.children.get(child as usize).is_some_and(Arrivals::are_some)
    }

    /// How many packets of a child have come.
    pub fn received(&self, child: u32) -> u32 {
        self.children.get(child as usize).map_or(0, Arrivals::received)
    }

    /// The number of the first packet of a child that has not come.
    pub fn first_missing(&self, child: u32) -> u16 {
        self.children.get(child as usize).map_or(0, Arrivals::first_missing)
    }

    /// Whether all packets of all children have come.
    pub fn are_done(&self) -> bool {
        self.done as usize == self.children.len()
    }

    /// The first child of whom something is missing.
    pub fn missing(&self) -> Option<u32> {
        self.children.iter().position(|child| !child.are_all()).map(|child| child as u32)
    }

    /// Forgets everything; memory stays.
    pub fn clear(&mut self) {
        self.done = 0;
        self.children.iter_mut().for_each(Arrivals::clear);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_done_when_all_have_come_in_any_order() {
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]] {
            let mut children = Children::new(1);
            for (step, number) in order.into_iter().enumerate() {
                assert_eq!(children.missing(), Some(0));
                assert_eq!(children.take(0, number, if number == 2 { 3 } else { 0 }), Ok(true));
                assert_eq!(children.are_done(), step == 2, "{order:?}");
            }
            assert_eq!(children.missing(), None);
        }
    }

    #[test]
    fn copies_change_nothing() {
        let mut children = Children::new(2);
        assert_eq!((children.take(0, 0, 0), children.take(0, 0, 0)), (Ok(true), Ok(false)));
        assert_eq!((children.take(0, 1, 2), children.take(0, 1, 2)), (Ok(true), Ok(false)));
        assert!(!children.are_done());
        assert_eq!(children.take(1, 0, 1), Ok(true));
        assert!(children.are_done());
    }

    #[test]
    fn the_first_that_is_missing_is_told() {
        let mut arrivals = Arrivals::default();
        assert_eq!((arrivals.first_missing(), arrivals.are_some()), (0, false));
        for number in (0..64).chain([65]) {
            arrivals.take(number, 0).expect("fine");
        }
        assert_eq!((arrivals.first_missing(), arrivals.are_some()), (64, true));
        arrivals.take(64, 0).expect("fine");
        assert_eq!(arrivals.first_missing(), 66);
    }

    #[test]
    fn more_than_255_packets_are_counted() {
        let mut children = Children::new(1);
        for number in 0..1_000 {
            assert!(!children.are_done());
            assert_eq!(children.take(0, number, if number == 999 { 1_000 } else { 0 }), Ok(true));
        }
        assert!(children.are_done());
    }

    #[test]
    fn contradictions_are_refused_and_change_nothing() {
        let mut children = Children::new(2);
        children.take(0, 5, 0).expect("fine");
        let before = children.clone();
        assert_eq!(children.take(2, 0, 0), Err(PacketError::NoChild));
        assert_eq!(children.take(0, 2, 3), Err(PacketError::Packets), "number 5 has come");
        assert_eq!(children, before);
        children.take(0, 6, 7).expect("fine");
        let before = children.clone();
        assert_eq!(children.take(0, 7, 0), Err(PacketError::Number));
        assert_eq!(children.take(0, 7, 8), Err(PacketError::Packets));
        assert_eq!(children, before);
    }

    #[test]
    fn after_clear_all_is_as_new() {
        let mut children = Children::new(1);
        children.take(0, 0, 1).expect("fine");
        children.clear();
        assert!(!children.are_done());
        assert_eq!(children.take(0, 0, 2), Ok(true));
        assert_eq!(children.take(0, 1, 0), Ok(true));
        assert!(children.are_done());
    }
}
