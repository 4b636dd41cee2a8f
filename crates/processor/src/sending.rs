//! Hosts: in which order they send their blocks, when, and what the window holds back.

use fanin_core::hash::{derive, mix};

use crate::config::{Arrivals, Config, Sending, ticks};

/// Streams of random numbers.
#[derive(Clone, Copy)]
pub(crate) enum Stream {
    /// Gaps between packets, by host.
    Gaps = 1,
    /// Buffers that packets wait for, by host.
    Buffers = 2,
    /// What hosts contribute.
    Values = 3,
}

/// Number `index` of host `host`'s stream.
pub(crate) fn random(seed: u64, stream: Stream, host: u32, index: u64) -> u64 {
    mix(derive(derive(seed, stream as u64), u64::from(host)), index)
}

/// One host.
#[derive(Clone, Copy, Default, Debug)]
struct Host {
    /// Packets that it has sent.
    sent: u32,
    /// When its link is free for the next one.
    free_at: u64,
    /// Its next block waits for the end of another one.
    waits: bool,
}

/// All hosts.
#[derive(Debug)]
pub(crate) struct Hosts {
    hosts: Vec<Host>,
    order: Order,
    arrivals: Arrivals,
    /// Mean gap between packets of one host, in ticks.
    gap: u64,
    seed: u64,
}

impl Hosts {
    pub fn new(config: &Config) -> Self {
        let one = ticks(config.interarrival);
        let host = |number: u32| Host { free_at: u64::from(number) * one, ..Host::default() };
        Hosts {
            hosts: (0..config.children).map(host).collect(),
            order: Order::new(config),
            arrivals: config.arrivals,
            gap: u64::from(config.children) * one,
            seed: config.seed,
        }
    }

    /// The host's next block, if there is one.
    pub fn next_block(&self, host: u32) -> Option<u32> {
        let sent = self.hosts[host as usize].sent;
        (sent < self.order.blocks).then(|| self.order.block(host, sent))
    }

    /// When its link is free for its next packet.
    pub fn free_at(&self, host: u32) -> u64 {
        self.hosts[host as usize].free_at
    }

    /// It sends its next packet now. Gives how many it has sent before.
    pub fn send(&mut self, host: u32, now: u64) -> u32 {
        let state = &mut self.hosts[host as usize];
        let number = state.sent;
        let gap = match self.arrivals {
            Arrivals::Regular => self.gap,
            Arrivals::Exponential => {
                let bits = random(self.seed, Stream::Gaps, host, u64::from(number)) >> 11;
                // In (0, 1], so that its logarithm is finite.
                let uniform = (bits + 1) as f64 / (1u64 << 53) as f64;
                libm::round(-libm::log(uniform) * self.gap as f64) as u64
            }
        };
        state.sent += 1;
        state.free_at = now + gap;
        number
    }

    /// Its next block has to wait until another has ended.
    pub fn wait(&mut self, host: u32) {
        self.hosts[host as usize].waits = true;
    }

    /// Whether it has waited; it does no longer.
    pub fn wake(&mut self, host: u32) -> bool {
        std::mem::take(&mut self.hosts[host as usize].waits)
    }
}

/// Which block is a host's n-th.
#[derive(Clone, Copy, Debug)]
struct Order {
    sending: Sending,
    children: u32,
    blocks: u32,
    window: u32,
}

impl Order {
    fn new(config: &Config) -> Self {
        Order { sending: config.sending, children: config.children, blocks: config.blocks, window: config.window.min(config.blocks) }
    }

    fn block(&self, host: u32, number: u32) -> u32 {
        let (first, length) = match self.sending {
            Sending::Aligned => return number,
            Sending::Staggered => (0, self.blocks),
            Sending::StaggeredInWindow => {
                let first = number / self.window * self.window;
                (first, self.window.min(self.blocks - first))
            }
        };
        let offset = (u64::from(host) * u64::from(length) / u64::from(self.children)) as u32;
        first + (number - first + offset) % length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_sends_every_block_once_and_window_after_window() {
        for sending in [Sending::Aligned, Sending::Staggered, Sending::StaggeredInWindow] {
            let order = Order { sending, children: 5, blocks: 23, window: 8 };
            for host in 0..5 {
                let mut blocks: Vec<u32> = (0..23).map(|number| order.block(host, number)).collect();
                if sending != Sending::Staggered {
                    assert!(blocks.iter().zip(0u32..).all(|(block, number)| block / 8 == number / 8), "{sending:?} {blocks:?}");
                }
                blocks.sort_unstable();
                assert!(blocks.iter().copied().eq(0..23), "{sending:?}");
            }
        }
    }

    #[test]
    fn staggered_hosts_begin_evenly_spread() {
        let order = Order { sending: Sending::Staggered, children: 4, blocks: 16, window: 16 };
        let first: Vec<u32> = (0..4).map(|host| order.block(host, 0)).collect();
        assert_eq!(first, [0, 4, 8, 12]);
    }
}
