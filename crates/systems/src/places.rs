//! Where the nodes of a job of ATP or A2TP are: its server, the switches that aggregate, and which bit stands for which rank.

use std::collections::BTreeMap;

use fanin_core::{Address, NetworkMap, NodeId, PortId, Rank, Role};
use fanin_protocols::shared::aggregation::{Members, SERVERS_MAX};
use fanin_wire::atp::RankSet;

use crate::config::{BuildError, JobSpec};
use crate::layout::{aggregating, leaf_of};

/// Where a job's nodes are, for one of its servers.
pub(crate) struct Places {
    pub server: Address,
    pub server_switch: NodeId,
    /// By switch that aggregates: the ports and ranks of the workers there whose packets pass it.
    pub switches: BTreeMap<NodeId, Vec<(PortId, Rank)>>,
    /// Workers elsewhere than at the server's host whose switches only forward.
    pub alone: Vec<(Address, Rank)>,
    /// The bit that stands for each rank in sets.
    pub bits: Vec<Rank>,
}

impl Places {
    /// For each server.
    pub fn all<Op>(spec: &JobSpec<'_, Op>, map: &NetworkMap, aggregating: u32) -> Result<Vec<Places>, BuildError> {
        if spec.servers.len() > usize::from(SERVERS_MAX) {
            return Err(BuildError::new(
                "servers",
                spec.servers.len(),
                format!("at most {SERVERS_MAX}, or 0 for one at the host of rank 0"),
            ));
        }
        if let Some(twice) = (1..spec.servers.len()).find(|place| spec.servers[..*place].contains(&spec.servers[*place])) {
            return Err(BuildError::new("servers", spec.servers[twice], "each host once"));
        }
        let hosts = if spec.servers.is_empty() { &spec.hosts[..1] } else { spec.servers };
        hosts.iter().map(|&host| Places::of(spec, map, aggregating, host)).collect()
    }

    /// A server of its own, or one at the host of rank 0, whose worker reaches it without a switch. Of the switches next to workers and server
    /// those aggregate that have the most workers.
    fn of<Op>(spec: &JobSpec<'_, Op>, map: &NetworkMap, most: u32, host: NodeId) -> Result<Self, BuildError> {
        let server_switch = leaf_of(map, host)?.node;
        let mut switches = BTreeMap::from([(server_switch, Vec::new())]);
        for (rank, &worker) in spec.hosts.iter().enumerate().filter(|(_, worker)| **worker != host) {
            let leaf = leaf_of(map, worker)?;
            switches.entry(leaf.node).or_insert_with(Vec::new).push((leaf.their_port, Rank(rank as u32)));
        }
        let sizes: Vec<(NodeId, u32)> = switches.iter().map(|(switch, workers)| (*switch, workers.len() as u32)).collect();
        let able = aggregating(map, &sizes, most);
        let mut alone = Vec::new();
        switches.retain(|switch, workers| {
            let aggregates = able.contains(switch);
            if !aggregates {
                alone.extend(workers.iter().map(|(_, rank)| (Address::worker(spec.hosts[rank.index()]), *rank)));
            }
            aggregates
        });
        let bits = bits(spec.hosts.len(), &switches);
        Ok(Places { server: Address { node: host, role: Role::Server }, server_switch, switches, alone, bits })
    }

    pub fn is_wide(&self) -> bool {
        self.bits.len() > RankSet::GROUP as usize
    }

    pub fn bit(&self, rank: Rank) -> Rank {
        self.bits[rank.index()]
    }

    /// The workers at a switch whose packets pass it.
    fn members_at(&self, switch: NodeId) -> Members {
        self.switches.get(&switch).into_iter().flatten().map(|(_, rank)| self.bit(*rank)).collect()
    }

    /// How many workers complete an aggregator at a worker's switch, and at the server's; 0 where packets need not tell.
    pub fn fan_in(&self, switch: NodeId) -> [u8; 2] {
        if self.is_wide() {
            return [0; 2];
        }
        let all: usize = self.switches.values().map(Vec::len).sum();
        [self.switches.get(&switch).map_or(0, Vec::len) as u8, (all + self.alone.len()) as u8]
    }

    /// A switch's number in the job: 0 for the server's, from 1 on in the order of [`below`](Self::below).
    pub fn number(&self, switch: NodeId) -> u16 {
        let others = self.switches.keys().filter(|other| **other != self.server_switch);
        others.enumerate().find(|(_, other)| **other == switch).map_or(0, |(place, _)| place as u16 + 1)
    }

    /// The ranks of the switches of a job that is so large that packets name them, by the switch's number.
    pub fn by_number(&self) -> Vec<Members> {
        if !self.is_wide() {
            return Vec::new();
        }
        let passing = self.switches.values().flatten().map(|(_, rank)| *rank).chain(self.alone.iter().map(|(_, rank)| *rank));
        let first = if self.has_second_level() { passing.map(|rank| self.bit(rank)).collect() } else { Members::default() };
        std::iter::once(first).chain(self.others()).collect()
    }

    /// The ranks of the switches that aggregate, but for the server's.
    fn others(&self) -> impl Iterator<Item = Members> + '_ {
        self.switches.keys().filter(|switch| **switch != self.server_switch).map(|switch| self.members_at(*switch))
    }

    pub fn has_second_level(&self) -> bool {
        self.switches.contains_key(&self.server_switch)
    }

    /// Where what comes from the server goes: but for the server's own switch, the switches that aggregate, and workers next to others.
    pub fn below(&self) -> Vec<(Address, Members)> {
        let others = self.switches.keys().filter(|switch| **switch != self.server_switch).map(|switch| Address::switch(*switch));
        let alone = self.alone.iter().map(|(address, rank)| (*address, [self.bit(*rank)].into_iter().collect()));
        others.zip(self.others()).chain(alone).collect()
    }
}

/// The bit that stands for each rank in sets. A packet names ranks of one group of 64: where there are more, the workers of each switch are
/// in as few groups as they can be, so that what is there of a fragment has a name.
fn bits(workers: usize, switches: &BTreeMap<NodeId, Vec<(PortId, Rank)>>) -> Vec<Rank> {
    let mut bits: Vec<Option<Rank>> = vec![None; workers];
    if workers <= RankSet::GROUP as usize {
        return (0..workers as u32).map(Rank).collect();
    }
    let mut next = 0;
    for at_switch in switches.values() {
        if next % RankSet::GROUP + at_switch.len() as u32 > RankSet::GROUP {
            next = next.next_multiple_of(RankSet::GROUP);
        }
        for (_, rank) in at_switch {
            bits[rank.index()] = Some(Rank(next));
            next += 1;
        }
    }
    let mut rest = next..;
    bits.into_iter().map(|bit| bit.unwrap_or_else(|| Rank(rest.next().unwrap_or(0)))).collect()
}
