//! Sums to which each of several contributes once, and the slots that a switch keeps them in, for systems whose workers push blocks
//! ([`blocks`](super::blocks)).

use fanin_core::{DropReason, Event, Payload, Tx, Wire};

use crate::shared::state::node_state;

/// What a slot keeps of a block, and forgets for another one.
pub trait Clear {
    /// Nothing is kept any more.
    fn clear(&mut self);
}

impl<S: Clear, const N: usize> Clear for [S; N] {
    fn clear(&mut self) {
        self.iter_mut().for_each(Clear::clear);
    }
}

impl<A: Clear, B: Clear> Clear for (A, B) {
    fn clear(&mut self) {
        self.0.clear();
        self.1.clear();
    }
}

/// A sum to which each of up to [`Sum::MOST`] contributes once, however often its part comes.
pub struct Sum<P: Payload + ?Sized> {
    /// A bit for each who has contributed.
    from: u64,
    is_final: bool,
    acc: P::Acc,
}

node_state!(Sum { from, is_final, acc });

impl<P: Payload + ?Sized> Clear for Sum<P> {
    fn clear(&mut self) {
        (self.from, self.is_final) = (0, false);
    }
}

impl<P: Payload + ?Sized> Sum<P> {
    /// So many can contribute.
    pub const MOST: usize = 64;

    /// Nothing yet, of blocks of up to so many bytes.
    pub fn new(op: &P::Op, block_bytes: u32) -> Self {
        Sum { from: 0, is_final: false, acc: P::accumulator(op, block_bytes as usize) }
    }

    /// Adds the part of number `who`, below [`Sum::MOST`].
    ///
    /// # Errors
    /// [`DropReason::Duplicate`] where it is in the sum already, or the sum is final; [`DropReason::Mismatch`] where its length or type is another
    /// one, or there is no such number.
    pub fn add(&mut self, who: u16, payload: &P, op: &mut P::Op) -> Result<(), DropReason> {
        let bit = 1u64.checked_shl(who.into()).ok_or(DropReason::Mismatch)?;
        if self.is_final || self.from & bit != 0 {
            return Err(DropReason::Duplicate);
        }
        let added = if self.from == 0 { payload.assign(&mut self.acc, op) } else { payload.reduce(&mut self.acc, op) };
        added.map_err(|_| DropReason::Mismatch)?;
        self.from |= bit;
        Ok(())
    }

    /// How many have contributed.
    pub fn count(&self) -> usize {
        self.from.count_ones() as usize
    }

    /// All have contributed: the sum becomes what the operator makes of it for so many workers, such as a mean.
    pub fn finish(&mut self, op: &P::Op, workers: u32) {
        P::finish(&mut self.acc, op, workers);
        self.is_final = true;
    }

    /// The sum is what others have made.
    ///
    /// # Errors
    /// [`DropReason::Duplicate`] where it is final already; [`DropReason::Mismatch`] where its length or type is another one.
    pub fn put(&mut self, payload: &P, op: &mut P::Op) -> Result<(), DropReason> {
        if self.is_final {
            return Err(DropReason::Duplicate);
        }
        payload.assign(&mut self.acc, op).map_err(|_| DropReason::Mismatch)?;
        self.is_final = true;
        Ok(())
    }

    /// Whether it is what workers are to have.
    pub fn is_final(&self) -> bool {
        self.is_final
    }

    /// The sum so far.
    pub fn acc(&self) -> &P::Acc {
        &self.acc
    }

    /// The sum so far, as a packet of this node's would carry it.
    pub fn view(&self) -> &P {
        P::view(&self.acc)
    }
}

/// Slots of blocks: twice as many as a window has. Who pushes block n + 2 W has the sum of n + W, to which everybody has contributed who had the sum
/// of n. So nobody can still ask for what is in a slot that is used again.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Slots<S> {
    /// The block, and what is kept of it.
    slots: Vec<(Option<u32>, S)>,
    /// Bytes of a slot, for statistics.
    bytes: u32,
}

impl<S: Clear> Slots<S> {
    /// For windows of so many blocks; `bytes` is what `new` takes in a switch's memory.
    pub fn new(window: u32, bytes: u32, new: impl Fn() -> S) -> Self {
        Slots { slots: (0..2 * window.next_power_of_two()).map(|_| (None, new())).collect(), bytes }
    }

    /// Where a block is kept, from now on; nothing where a later block is there, which is noted.
    pub fn at<H: Wire, P: Payload + ?Sized>(&mut self, block: u32, tx: &mut impl Tx<H, P>) -> Option<&mut S> {
        let place = block as usize % self.slots.len();
        let (known, slot) = &mut self.slots[place];
        if known.is_some_and(|known| known > block) {
            tx.note(Event::Dropped(DropReason::Stale));
            return None;
        }
        if *known != Some(block) {
            *known = Some(block);
            slot.clear();
            tx.note(Event::SlotTaken { bytes: self.bytes });
        }
        Some(slot)
    }

    /// A block's sum is made: what its slot holds is needed by nobody but those who have lost it.
    pub fn done<H: Wire, P: Payload + ?Sized>(&self, tx: &mut impl Tx<H, P>) {
        tx.note(Event::SlotFreed { bytes: self.bytes });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanin_core::{Body, Egress, Length, OpError, Piece};
    use fanin_wire::tree::TreeHeader;

    /// Keeps what is noted.
    #[derive(Default)]
    struct Notes(Vec<Event>);

    impl Tx<TreeHeader, Length> for Notes {
        fn send(&mut self, _to: Egress<'_>, _header: &TreeHeader, _body: Body<'_, Length>) {}

        fn room(&mut self, _to: Egress<'_>) -> bool {
            true
        }

        fn note(&mut self, event: Event) {
            self.0.push(event);
        }

        fn contribute(&mut self, _piece: Piece, _acc: &mut <Length as Payload>::Acc, _first: bool) -> Result<(), OpError> {
            Ok(())
        }

        fn fold(&mut self, _piece: Piece, _payload: &Length) -> Result<(), OpError> {
            Ok(())
        }

        fn deliver(&mut self, _piece: Piece, _body: Body<'_, Length>) -> Result<(), OpError> {
            Ok(())
        }
    }

    impl Clear for i32 {
        fn clear(&mut self) {
            *self = 0;
        }
    }

    #[test]
    fn a_block_has_one_slot_until_one_that_comes_two_windows_later() {
        let (mut slots, mut notes) = (Slots::new(3, 100, || 0), Notes::default());
        *slots.at(1, &mut notes).unwrap() = 7;
        assert_eq!((slots.at(1, &mut notes), notes.0.len()), (Some(&mut 7), 1));
        assert_eq!((slots.at(2, &mut notes), notes.0.len()), (Some(&mut 0), 2));
        assert_eq!(slots.at(1, &mut notes), Some(&mut 7));
        // Eight slots: 9 is where 1 was.
        assert_eq!(slots.at(9, &mut notes), Some(&mut 0));
        assert_eq!(slots.at(1, &mut notes), None);
        assert_eq!(notes.0.last(), Some(&Event::Dropped(DropReason::Stale)));
        assert_eq!(notes.0.iter().filter(|event| **event == Event::SlotTaken { bytes: 100 }).count(), 3);
    }

    #[test]
    fn each_contributes_once_and_what_is_final_stays() {
        let (mut sum, part) = (Sum::<Length>::new(&(), 100), Length(100));
        assert_eq!((sum.add(3, &part, &mut ()), sum.add(3, &part, &mut ())), (Ok(()), Err(DropReason::Duplicate)));
        assert_eq!((sum.add(63, &part, &mut ()), sum.add(64, &part, &mut ())), (Ok(()), Err(DropReason::Mismatch)));
        assert_eq!((sum.count(), sum.is_final()), (2, false));
        sum.finish(&(), 2);
        assert_eq!((sum.add(5, &part, &mut ()), sum.put(&part, &mut ())), (Err(DropReason::Duplicate), Err(DropReason::Duplicate)));
        sum.clear();
        assert_eq!((sum.count(), sum.put(&part, &mut ()), sum.is_final()), (0, Ok(()), true));
    }
}
