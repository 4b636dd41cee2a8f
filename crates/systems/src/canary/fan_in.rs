//! How many contributions of a block can come to each switch: a count on the map, by the leader's leaf.

use std::sync::Arc;

use fanin_core::{NetworkMap, NodeId};
use fanin_protocols::canary::FanIn;

use crate::config::BuildError;
use crate::layout::{leaf_of, leaves_of};

/// What switches are told of one job.
pub(super) struct FanIns {
    /// The leaves of its workers, ascending, and how many workers each has.
    leaves: Vec<(NodeId, u16)>,
    /// For each host the number of its leaf.
    leaf_of: Arc<[u16]>,
    /// How far it is from each leaf to each other one.
    between: Vec<Vec<u32>>,
}

impl FanIns {
    /// For the job of these workers.
    ///
    /// # Errors
    /// [`BuildError`] where a host has no cable.
    pub(super) fn of(map: &NetworkMap, hosts: &[NodeId]) -> Result<Self, BuildError> {
        let mut leaves: Vec<(NodeId, u16)> = leaves_of(map, hosts)?.into_iter().map(|leaf| (leaf, 0)).collect();
        let mut numbers = vec![FanIn::NO_LEAF; map.hosts() as usize];
        for &host in hosts {
            let leaf = leaf_of(map, host)?.node;
            if let Ok(number) = leaves.binary_search_by_key(&leaf, |(leaf, _)| *leaf) {
                leaves[number].1 += 1;
                numbers[host.index()] = number as u16;
            }
        }
        let from = |(leaf, _): &(NodeId, u16)| {
            let distances = map.distances(*leaf);
            leaves.iter().map(|(other, _)| distances[other.index()]).collect()
        };
        let between = leaves.iter().map(from).collect();
        Ok(FanIns { leaf_of: numbers.into(), between, leaves })
    }

    /// What this switch is told: of blocks that are led at a leaf there come at most the contributions of workers from whose leaf a shortest
    /// way leads through here, and to the leaf itself all but the leader's.
    pub(super) fn at(&self, map: &NetworkMap, switch: NodeId) -> FanIn {
        let distances = map.distances(switch);
        let to = |(leaf, _): &(NodeId, u16)| distances[leaf.index()];
        let led_at = |(number, leader): (usize, &(NodeId, u16))| {
            let passes = |(from, direct): &(&(NodeId, u16), &u32)| {
                **direct > 0 && u64::from(to(from)) + u64::from(to(leader)) == u64::from(**direct)
            };
            let come = self.leaves.iter().zip(&self.between[number]).filter(passes).map(|((_, workers), _)| *workers).sum::<u16>();
            if leader.0 == switch { come + leader.1 - 1 } else { come }
        };
        FanIn::new(Arc::clone(&self.leaf_of), self.leaves.iter().enumerate().map(led_at).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What can come to each switch, by the host that leads.
    fn counts(map: &NetworkMap, hosts: &[u32], leaders: &[u32]) -> Vec<Vec<Option<u16>>> {
        let hosts: Vec<NodeId> = hosts.iter().copied().map(NodeId).collect();
        let fan_ins = FanIns::of(map, &hosts).unwrap();
        let at = |switch| {
            let fan_in = fan_ins.at(map, switch);
            leaders.iter().map(|leader| fan_in.of(NodeId(*leader))).collect()
        };
        map.switches().map(at).collect()
    }

    #[test]
    fn leaves_expect_their_own_workers_and_spines_those_of_other_leaves() {
        // Three leaves of three hosts, two spines.
        let mut map = NetworkMap::new(9, &[1, 1, 1, 2, 2]);
        for host in 0..9 {
            map.join(NodeId(host), NodeId(9 + host / 3));
        }
        for leaf in 9..12 {
            for spine in 12..14 {
                map.join(NodeId(leaf), NodeId(spine));
            }
        }
        // Three workers, two, and one.
        let found = counts(&map, &[0, 1, 2, 3, 5, 8], &[0, 3, 8]);
        let [first, second, third] = [[5, 3, 3], [2, 5, 2], [1, 1, 5]].map(|counts| counts.map(Some).to_vec());
        let spine = [3, 4, 5].map(Some).to_vec();
        assert_eq!(found, [first, second, third, spine.clone(), spine]);
        assert_eq!(counts(&map, &[0, 8], &[1])[0], [None], "who is no worker leads nothing");
    }

    #[test]
    fn a_spine_that_no_shortest_way_passes_expects_nothing() {
        // Two leaves next to each other, and a longer way round.
        let mut map = NetworkMap::new(2, &[1, 1, 2]);
        for (a, b) in [(0, 2), (1, 3), (2, 3), (2, 4), (3, 4)] {
            map.join(NodeId(a), NodeId(b));
        }
        assert_eq!(counts(&map, &[0, 1], &[0, 1]), [[Some(1); 2], [Some(1); 2], [None; 2]].map(|found| found.to_vec()));
    }

    #[test]
    fn aggregators_of_a_pod_expect_its_workers_and_cores_those_of_other_pods() {
        // Two pods of two leaves, each with one host, an aggregator for each pod, and a core.
        let mut map = NetworkMap::new(4, &[1, 1, 1, 1, 2, 2, 3]);
        for (a, b) in [(0, 4), (1, 5), (2, 6), (3, 7), (4, 8), (5, 8), (6, 9), (7, 9), (8, 10), (9, 10)] {
            map.join(NodeId(a), NodeId(b));
        }
        let found = counts(&map, &[0, 1, 2, 3], &[0]);
        let expected = [Some(3), Some(1), Some(1), Some(1), Some(3), Some(2), Some(2)];
        assert_eq!(found, expected.map(|count| vec![count]));
    }
}
