//! The receiving end of a reliable channel: takes every packet once, in any order, and says what has arrived.

use fanin_core::DropReason;

use super::serial::newer;

/// Which packets of a channel have arrived.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ReceiveWindow {
    /// The first packet that has not arrived.
    next: u32,
    /// Number of packets behind `next` that have arrived.
    ahead: u32,
    /// Bit `s mod capacity`: packet `s`, behind `next`, has arrived.
    arrived: Box<[u64]>,
}

impl ReceiveWindow {
    /// Packets may be up to `window` ahead of the first one that is missing; at least the sender's window.
    pub fn new(window: u32) -> Self {
        let words = window.max(64).next_power_of_two() / 64;
        ReceiveWindow { next: 0, ahead: 0, arrived: vec![0; words as usize].into() }
    }

    /// Begins anew with number 0.
    pub fn restart(&mut self) {
        (self.next, self.ahead) = (0, 0);
        self.arrived.fill(0);
    }

    #[inline]
    fn place(&self, sequence: u32) -> (usize, u64) {
        let slot = sequence & (self.arrived.len() as u32 * 64 - 1);
        (slot as usize / 64, 1 << (slot % 64))
    }

    /// Whether the packet is new and within the window; changes nothing.
    ///
    /// # Errors
    /// [`DropReason::Duplicate`] or [`DropReason::OutsideWindow`].
    #[inline]
    pub fn check(&self, sequence: u32) -> Result<(), DropReason> {
        if newer(self.next, sequence) {
            return Err(DropReason::Duplicate);
        }
        if sequence.wrapping_sub(self.next) >= self.arrived.len() as u32 * 64 {
            return Err(DropReason::OutsideWindow);
        }
        let (word, bit) = self.place(sequence);
        if self.arrived[word] & bit == 0 { Ok(()) } else { Err(DropReason::Duplicate) }
    }

    /// Takes a packet that [`ReceiveWindow::check`] found new. Says whether it came in order, with nothing missing before it and
    /// nothing known behind it.
    #[inline]
    pub fn accept(&mut self, sequence: u32) -> bool {
        if sequence != self.next {
            let (word, bit) = self.place(sequence);
            self.arrived[word] |= bit;
            self.ahead += 1;
            return false;
        }
        self.next = self.next.wrapping_add(1);
        if self.ahead == 0 {
            return true;
        }
        loop {
            let (word, bit) = self.place(self.next);
            if self.arrived[word] & bit == 0 {
                return false;
            }
            self.arrived[word] &= !bit;
            self.ahead -= 1;
            self.next = self.next.wrapping_add(1);
        }
    }

    /// The first packet that has not arrived.
    #[inline]
    pub fn next(&self) -> u32 {
        self.next
    }

    /// Which of the `bits` packets behind [`ReceiveWindow::next`] have arrived: bit i is packet `next` + 1 + i.
    #[inline]
    pub fn mask(&self, bits: u32) -> u64 {
        self.mask_from(0, bits)
    }

    /// The same of the packets that come `skipped` behind those; none outside of the window.
    #[inline]
    pub fn mask_from(&self, skipped: u32, bits: u32) -> u64 {
        if self.ahead == 0 {
            return 0;
        }
        let begins = self.next.wrapping_add(1).wrapping_add(skipped);
        let within = (self.arrived.len() as u32 * 64 - 1).saturating_sub(skipped);
        (0..bits.min(within)).fold(0, |mask, bit| {
            let (word, place) = self.place(begins.wrapping_add(bit));
            if self.arrived[word] & place == 0 { mask } else { mask | 1 << bit }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_packet_is_taken_once_in_any_order() {
        let mut window = ReceiveWindow::new(64);
        (window.next, window.ahead) = (u32::MAX - 1_000, 0);
        let start = window.next;
        let mut taken = vec![false; 3_000];
        for round in 0..60_000u64 {
            let offset = window.next().wrapping_sub(start) + (fanin_core::hash::mix(9, round) % 90) as u32;
            let offset = offset.saturating_sub(20).min(2_999);
            let sequence = start.wrapping_add(offset);
            let distance = sequence.wrapping_sub(window.next()) as i32;
            match window.check(sequence) {
                Ok(()) => {
                    assert!(!std::mem::replace(&mut taken[offset as usize], true), "{offset} twice");
                    window.accept(sequence);
                }
                Err(DropReason::Duplicate) => assert!(taken[offset as usize]),
                Err(reason) => assert!(reason == DropReason::OutsideWindow && distance >= 64, "{distance}"),
            }
            let first_missing = taken.iter().position(|taken| !taken).unwrap_or(taken.len());
            assert_eq!(window.next(), start.wrapping_add(first_missing as u32));
            let expected = (0..48).filter(|bit| taken.get(first_missing + 1 + bit) == Some(&true)).fold(0u64, |mask, bit| mask | 1 << bit);
            assert_eq!(window.mask(48), expected);
            let further = (0..48).filter(|bit| taken.get(first_missing + 31 + bit) == Some(&true) && *bit + 30 < 63);
            assert_eq!(window.mask_from(30, 48), further.fold(0u64, |mask, bit| mask | 1 << bit));
        }
        assert!(taken.iter().all(|taken| *taken));
    }

    #[test]
    fn in_order_means_nothing_missing_and_nothing_ahead() {
        let mut window = ReceiveWindow::new(8);
        assert!(window.accept(0));
        assert!(!window.accept(2));
        assert!(!window.accept(1));
        assert!(window.accept(3));
    }
}
