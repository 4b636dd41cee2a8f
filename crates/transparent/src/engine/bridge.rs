//! Which host is behind which port: a learning bridge.

use std::collections::HashMap;

use fanin_core::{Duration, Instant};

/// Addresses that are remembered; where more are seen, further ones are not learnt, and frames to them go everywhere.
const ADDRESSES_MAX: usize = 65_536;
/// How long an address that is silent is remembered (IEEE 802.1D).
const MEMORY: Duration = Duration::from_us(300_000_000);

type Mac = [u8; 6];

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Bridge {
    ports: usize,
    behind: HashMap<Mac, (usize, Instant)>,
}

impl Bridge {
    pub fn new(ports: usize) -> Self {
        Bridge { ports, behind: HashMap::new() }
    }

    /// The sender of a frame is behind the port that it came by.
    pub fn learn(&mut self, now: Instant, port: usize, frame: &[u8]) {
        let Some(source) = address(frame, 6).filter(|mac| mac[0] & 1 == 0) else { return };
        if self.behind.len() >= ADDRESSES_MAX && !self.behind.contains_key(&source) {
            self.behind.retain(|_, (_, seen)| now.since(*seen) < MEMORY);
            if self.behind.len() >= ADDRESSES_MAX {
                return;
            }
        }
        self.behind.insert(source, (port, now));
    }

    /// Nobody is behind a port any more.
    pub fn forget(&mut self, port: usize) {
        self.behind.retain(|_, (behind, _)| *behind != port);
    }

    /// Calls for each port by which a frame goes on that came by `from`; a frame made here came by none (`usize::MAX`).
    pub fn forward(&self, from: usize, frame: &[u8], mut send: impl FnMut(usize)) {
        let Some(destination) = address(frame, 0) else { return };
        match self.behind.get(&destination) {
            Some(&(port, _)) if destination[0] & 1 == 0 => {
                if port != from {
                    send(port);
                }
            }
            _ => (0..self.ports).filter(|&port| port != from).for_each(send),
        }
    }
}

fn address(frame: &[u8], at: usize) -> Option<Mac> {
    frame.get(at..at + 6)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_go_everywhere_until_their_receiver_was_heard() {
        let mut bridge = Bridge::new(3);
        let frame = |to: u8, from: u8| [[to; 6], [from; 6]].concat();
        let ports = |bridge: &Bridge, from, frame: &[u8]| {
            let mut ports = Vec::new();
            bridge.forward(from, frame, |port| ports.push(port));
            ports
        };
        bridge.learn(Instant::ZERO, 1, &frame(4, 2));
        assert_eq!(ports(&bridge, 1, &frame(4, 2)), [0, 2]);
        assert_eq!(ports(&bridge, 0, &frame(2, 4)), [1]);
        assert_eq!(ports(&bridge, 1, &frame(2, 4)), [0; 0], "the receiver has it already");
        // Everybody's address is nobody's port, whoever claims it.
        bridge.learn(Instant::ZERO, 2, &frame(4, 0xff));
        assert_eq!(ports(&bridge, 0, &frame(0xff, 2)), [1, 2]);
        assert_eq!(ports(&bridge, 0, &[1, 2, 3]), [0; 0]);
        bridge.forget(1);
        assert_eq!(ports(&bridge, 0, &frame(2, 4)), [1, 2]);
    }
}
