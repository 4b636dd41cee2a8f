//! Packets between nodes of one host, as a job's worker and its server: they touch no link.

use std::collections::VecDeque;

/// Packets that may wait.
const WAITING_MAX: usize = 4_096;

/// What nodes of a host have for nodes of the same host.
#[derive(Debug, Default)]
pub(crate) struct Loopback {
    waiting: VecDeque<Vec<u8>>,
    /// Memory of packets that were delivered.
    spare: Vec<Vec<u8>>,
}

impl Loopback {
    /// Keeps a packet of so many bytes, which `write` fills in; false where too many wait.
    pub(crate) fn keep(&mut self, bytes: usize, write: impl FnOnce(&mut [u8])) -> bool {
        if self.waiting.len() == WAITING_MAX {
            return false;
        }
        let mut packet = self.spare.pop().unwrap_or_default();
        packet.clear();
        packet.resize(bytes, 0);
        write(&mut packet);
        self.waiting.push_back(packet);
        true
    }

    /// The next packet. Its memory comes back by [`Loopback::recycle`].
    pub(crate) fn take(&mut self) -> Option<Vec<u8>> {
        self.waiting.pop_front()
    }

    /// Whether none waits.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn recycle(&mut self, packet: Vec<u8>) {
        self.spare.push(packet);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_come_in_their_order_and_no_more_wait_than_may() {
        let mut here = Loopback::default();
        let kept = (0..WAITING_MAX + 2).filter(|number| here.keep(2, |out| out.copy_from_slice(&(*number as u16).to_le_bytes())));
        assert_eq!(kept.count(), WAITING_MAX);
        for number in 0..WAITING_MAX as u16 {
            let packet = here.take().unwrap();
            assert_eq!(packet, number.to_le_bytes());
            here.recycle(packet);
        }
        assert!(here.is_empty() && here.take().is_none());
        // Memory that was used before has nothing of before.
        assert!(here.keep(3, |out| assert_eq!(out, [0; 3])));
    }
}
