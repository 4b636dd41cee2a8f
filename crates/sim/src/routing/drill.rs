//! DRILL(d, m): a switch compares a few queues of its own for each packet (Ghorbani et al., SIGCOMM 2017, 3.2).
//!
//! Of the ways to a destination it draws d at random, adds the m shortest that it looked at when it last chose among the same ways, and
//! takes the one with the shortest queue. Nobody tells it of queues elsewhere: where ways differ behind the next switch it does not see
//! that (the paper divides such networks into parts that are symmetric; that is not done here).

use std::collections::BTreeMap;

use crate::random::Random;
use crate::routing::{Balancer, Routes};

/// Nothing remembered.
const NONE: u32 = u32::MAX;
const MOST: usize = Balancer::DRILL_MAX as usize;

/// What switches remember.
#[derive(Clone, Debug)]
pub(crate) struct Drill {
    random: Random,
    samples: u8,
    memory: usize,
    /// By place of a first way: which set of ways begins there. Ways to different destinations are often the same.
    sets: Vec<u32>,
    /// By set: indices of the shortest queues of the last choice, the shortest first.
    shortest: Vec<u32>,
}

/// The ways that were looked at: queue and index, the shortest first, those that are equal in the order in which they came.
struct Looked {
    ways: [(u64, u32); 2 * MOST],
    count: usize,
}

impl Looked {
    fn add(&mut self, queue: u64, index: u32) {
        if self.ways[..self.count].iter().any(|&(_, other)| other == index) {
            return;
        }
        let mut place = self.count;
        while place > 0 && self.ways[place - 1].0 > queue {
            self.ways[place] = self.ways[place - 1];
            place -= 1;
        }
        self.ways[place] = (queue, index);
        self.count += 1;
    }
}

impl Drill {
    /// `samples` is d, `memory` is m.
    pub fn new(routes: &Routes, samples: u8, memory: u8, random: Random) -> Self {
        let mut numbers: BTreeMap<&[u32], u32> = BTreeMap::new();
        let mut sets = vec![0; routes.places()];
        for (first, links) in routes.choices() {
            let next = numbers.len() as u32;
            sets[first as usize] = *numbers.entry(links).or_insert(next);
        }
        let memory = usize::from(memory).min(MOST);
        Drill { random, samples: samples.min(Balancer::DRILL_MAX), memory, sets, shortest: vec![NONE; numbers.len() * memory] }
    }

    /// The way to take of `count` whose first one is at place `first`. `queue` tells how long the queue of a way is.
    pub fn choose(&mut self, first: u32, count: u32, queue: impl Fn(u32) -> u64) -> u32 {
        let from = self.sets[first as usize] as usize * self.memory;
        let shortest = &mut self.shortest[from..from + self.memory];
        let mut looked = Looked { ways: [(0, 0); 2 * MOST], count: 0 };
        for _ in 0..self.samples {
            let index = self.random.below(count);
            looked.add(queue(index), index);
        }
        for &index in shortest.iter().filter(|index| **index != NONE) {
            looked.add(queue(index), index);
        }
        for (remembered, place) in shortest.iter_mut().zip(0..) {
            *remembered = if place < looked.count { looked.ways[place].1 } else { NONE };
        }
        looked.ways[0].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Purpose;
    use crate::setup::LinkSpeed;
    use crate::shape::Shape;
    use crate::topology::Topology;
    use fanin_core::Duration;

    fn routes() -> Routes {
        let link = LinkSpeed { bits_per_second: 100_000_000_000, latency: Duration::from_ns(300) };
        let shape = Shape::FatTree2 { leaves: 3, hosts_per_leaf: 2, spines: 8, parallel_links: 1, host_link: link, fabric_link: link };
        Routes::new(&Topology::new(&shape).unwrap())
    }

    fn drill(samples: u8, memory: u8) -> (Drill, u32) {
        let routes = routes();
        let (first, count) = routes.ways(6, 5);
        assert_eq!(count, 8);
        // Ways from one leaf to both others are the same set, and have one memory; so are those from a spine to each of the seven others.
        assert_eq!(routes.choices().count(), 3 * 2 + 8 * 7);
        let drill = Drill::new(&routes, samples, memory, Random::new(1, Purpose::Routing, 1));
        assert_eq!(drill.shortest.len(), (3 + 8) * usize::from(memory));
        assert_eq!(drill.sets[first as usize], drill.sets[routes.ways(6, 3).0 as usize]);
        (drill, first)
    }

    #[test]
    fn what_was_shortest_is_remembered_and_looked_at_again() {
        let (mut drill, first) = drill(1, 1);
        // Way 5 is always the shortest: once it has been drawn it is taken for ever.
        let chosen: Vec<u32> = (0..200).map(|_| drill.choose(first, 8, |way| u64::from(way != 5))).collect();
        let found = chosen.iter().position(|way| *way == 5).expect("it is drawn one day");
        assert!(chosen[found..].iter().all(|way| *way == 5));
        // It is not taken any more when it is the longest.
        assert!((0..20).map(|_| drill.choose(first, 8, |way| u64::from(way == 5))).filter(|way| *way == 5).count() <= 2);
    }

    #[test]
    fn without_memory_it_is_the_shorter_of_samples() {
        let (mut drill, first) = drill(2, 0);
        let mut taken = [0u32; 8];
        for _ in 0..64_000 {
            taken[drill.choose(first, 8, u64::from) as usize] += 1;
        }
        // The smaller of two draws from 0..8 is k with probability (15 - 2k) / 64.
        for (way, &count) in taken.iter().enumerate() {
            let expected = 1_000 * (15 - 2 * way as u32);
            assert!(count.abs_diff(expected) < 500, "{taken:?}");
        }
    }

    #[test]
    fn as_many_samples_as_ways_find_the_shortest() {
        let (mut drill, first) = drill(8, 8);
        for _ in 0..20 {
            drill.choose(first, 8, |_| 0);
        }
        // By now it remembers all of them.
        assert_eq!(drill.choose(first, 8, |way| u64::from(way.abs_diff(6))), 6);
    }
}
