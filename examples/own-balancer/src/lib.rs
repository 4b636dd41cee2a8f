//! REPS, recycled entropies (Bonato et al., "REPS: Recycled Entropy Packet Spraying for Adaptive Load Balancing and Failure Mitigation",
//! arXiv 2407.21625): a packet takes the way that its entropy hashes to. An entropy whose packet was acknowledged without a mark (ECN) is used
//! again; one whose packet came marked is forgotten, and where none is left a new one is drawn.
//!
//! In the paper senders draw entropies and acknowledgements bring them back. Here the first switch of a packet draws for its pair of hosts, and the
//! last one is their receiver: it gives back what it has seen by the packets that go the other way, one entropy a packet. Where nothing goes the
//! other way, everything is sprayed at random, as in the paper before the first acknowledgement. The paper's freezing after timeouts is left out,
//! since a switch sees none; links that are down are passed over by every balancer.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, VecDeque};

use fanin_core::{NetworkMap, NodeId};
use fanin_sim::own::Refusal;
use fanin_sim::random::Random;
use fanin_sim::routing::own::{Choose, OwnBalancer, Passing, Ways};
use serde::{Deserialize, Serialize};

/// Set on what a packet carries: it has an entropy, in the low half; and it gives one back, in the high half.
const HAS: u64 = 1 << 31;
const GIVES: u64 = 1 << 63;
const ENTROPY: u64 = 0xffff;

/// The parameters: keys of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Reps {
    /// Entropies that a pair of hosts keeps to be used again: the paper has 8.
    pub cache: usize,
}

impl Default for Reps {
    fn default() -> Self {
        Reps { cache: 8 }
    }
}

impl OwnBalancer for Reps {
    const NAME: &'static str = "reps";
    const LOOKS_AT_ARRIVALS: bool = true;
    type Switch = RepsSwitch;

    fn check(&self, _map: &NetworkMap) -> Result<(), Refusal> {
        let fits = (1..=1024).contains(&self.cache);
        if fits { Ok(()) } else { Err(Refusal::new("cache", self.cache, "1 to 1024 entropies")) }
    }

    fn switch(&self, _at: NodeId, _map: &NetworkMap, random: Random) -> RepsSwitch {
        RepsSwitch { cache: self.cache, random, good: BTreeMap::new(), seen: BTreeMap::new() }
    }
}

/// What a switch keeps, by pair of hosts: as the first switch of the packets from the one to the other, and as their last one.
#[derive(Debug)]
pub struct RepsSwitch {
    cache: usize,
    random: Random,
    /// Entropies to be used again, the oldest first.
    good: BTreeMap<(NodeId, NodeId), VecDeque<u64>>,
    /// Entropies that came without a mark and have not been given back.
    seen: BTreeMap<(NodeId, NodeId), VecDeque<u64>>,
}

/// Keeps the newest `most`.
fn keep(list: &mut VecDeque<u64>, entropy: u64, most: usize) {
    if list.len() == most {
        list.pop_front();
    }
    list.push_back(entropy);
}

impl Choose for RepsSwitch {
    fn choose(&mut self, packet: &mut Passing, ways: &Ways<'_>) -> u32 {
        if packet.first {
            let there = (packet.source, packet.destination);
            let again = self.good.get_mut(&there).and_then(VecDeque::pop_front);
            packet.tag = HAS | again.unwrap_or_else(|| self.random.bits() & ENTROPY);
            let back = (packet.destination, packet.source);
            if let Some(entropy) = self.seen.get_mut(&back).and_then(VecDeque::pop_front) {
                packet.tag |= GIVES | entropy << 32;
            }
        }
        // Another way at each switch for the same entropy: `flow` differs from switch to switch.
        let hash = fanin_core::hash::mix(packet.flow, packet.tag & ENTROPY);
        (((hash >> 32) * u64::from(ways.count())) >> 32) as u32
    }

    fn arrive(&mut self, packet: &mut Passing) {
        if !packet.last || packet.tag & HAS == 0 {
            return;
        }
        if !packet.marked {
            let list = self.seen.entry((packet.source, packet.destination)).or_default();
            keep(list, packet.tag & ENTROPY, self.cache);
        }
        if packet.tag & GIVES != 0 {
            let list = self.good.entry((packet.destination, packet.source)).or_default();
            keep(list, packet.tag >> 32 & ENTROPY, self.cache);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanin_core::Instant;
    use fanin_sim::random::Purpose;
    use fanin_sim::routing::own::Queue;

    fn switch() -> RepsSwitch {
        RepsSwitch { cache: 8, random: Random::new(1, Purpose::Routing, 0), good: BTreeMap::new(), seen: BTreeMap::new() }
    }

    fn packet(source: u32, destination: u32, first: bool, marked: bool, tag: u64) -> Passing {
        Passing {
            now: Instant::ZERO,
            source: NodeId(source),
            destination: NodeId(destination),
            flow: 77,
            bytes: 1_081,
            marked,
            background: false,
            first,
            last: !first,
            tag,
        }
    }

    /// The entropies of packets from host 0 to host 9 that leaf 0 sends, each of which leaf 1 gets and answers; `marked`: they come with a mark.
    fn entropies(count: usize, marked: bool) -> Vec<u64> {
        let (mut here, mut there) = (switch(), switch());
        let look = |link: u32| Queue { is_up: true, ps: 0, link };
        let ways = Ways::new(64, &look);
        let one = |_| {
            let mut packet_there = packet(0, 9, true, false, 0);
            let way = here.choose(&mut packet_there, &ways);
            assert!(way < 64);
            there.arrive(&mut packet(0, 9, false, marked, packet_there.tag));
            let mut packet_back = packet(9, 0, true, false, 0);
            there.choose(&mut packet_back, &ways);
            here.arrive(&mut packet(9, 0, false, false, packet_back.tag));
            packet_there.tag & ENTROPY
        };
        (0..count).map(one).collect()
    }

    #[test]
    fn what_comes_without_a_mark_is_used_again_and_what_comes_marked_never() {
        let good = entropies(50, false);
        assert!(good.iter().all(|entropy| *entropy == good[0]), "{good:?}");
        let mut marked = entropies(50, true);
        marked.sort_unstable();
        marked.dedup();
        assert_eq!(marked.len(), 50);
    }

    #[test]
    fn no_more_than_the_cache_is_kept_and_the_newest_are() {
        let mut list = VecDeque::new();
        (0..20).for_each(|entropy| keep(&mut list, entropy, 8));
        assert_eq!(list, (12..20).collect::<Vec<u64>>());
    }
}
