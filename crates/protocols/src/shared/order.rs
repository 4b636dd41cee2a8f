//! Which of a window's packets was sent longest ago: a doubly linked list through a fixed array, so that a packet that is answered
//! leaves in constant time and nothing is allocated while a job runs.

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Link {
    before: u32,
    after: u32,
}

const UNLINKED: Link = Link { before: NONE, after: NONE };

/// The order in which the slots of a window were last sent.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SendOrder {
    links: Box<[Link]>,
    first: u32,
    last: u32,
}

impl SendOrder {
    /// No slot sent yet; slots are numbered from 0 to `capacity - 1`.
    pub fn new(capacity: u32) -> Self {
        SendOrder { links: vec![UNLINKED; capacity as usize].into(), first: NONE, last: NONE }
    }

    /// The slot that was sent longest ago.
    #[inline]
    pub fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    /// Slot `slot`, which is not in the order, was just sent.
    #[inline]
    pub fn append(&mut self, slot: u32) {
        self.links[slot as usize] = Link { before: self.last, after: NONE };
        match self.last {
            NONE => self.first = slot,
            last => self.links[last as usize].after = slot,
        }
        self.last = slot;
    }

    /// Takes out slot `slot`, which is in the order.
    #[inline]
    pub fn remove(&mut self, slot: u32) {
        let Link { before, after } = std::mem::replace(&mut self.links[slot as usize], UNLINKED);
        match before {
            NONE => self.first = after,
            before => self.links[before as usize].after = after,
        }
        match after {
            NONE => self.last = before,
            after => self.links[after as usize].before = before,
        }
    }

    /// Slot `slot`, which is in the order, was sent again.
    #[inline]
    pub fn renew(&mut self, slot: u32) {
        self.remove(slot);
        self.append(slot);
    }

    /// Forgets all slots.
    pub fn clear(&mut self) {
        self.links.fill(UNLINKED);
        (self.first, self.last) = (NONE, NONE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_a_list() {
        let (mut order, mut model) = (SendOrder::new(16), Vec::new());
        for round in 0..20_000u64 {
            let slot = (fanin_core::hash::mix(3, round) % 16) as u32;
            match model.iter().position(|other| *other == slot) {
                None => {
                    order.append(slot);
                    model.push(slot);
                }
                Some(at) if round % 3 == 0 => {
                    order.renew(slot);
                    model.remove(at);
                    model.push(slot);
                }
                Some(at) => {
                    order.remove(slot);
                    model.remove(at);
                }
            }
            assert_eq!(order.first(), model.first().copied(), "round {round}");
        }
        order.clear();
        assert_eq!(order, SendOrder::new(16));
    }
}
