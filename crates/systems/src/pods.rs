//! An allreduce by two systems: one sums inside of the pods of a network, another between them. What plans and campaigns have in common of it.
//!
//! A vector is cut into chunks, and each chunk takes three steps: a reduce-scatter in each pod, an allreduce of each share by those who have it in all
//! pods, and an all-gather in each pod. A step is an operation of a group of ranks, which is a job of the network of its own.
//!
//! **Pods** are what is left of a network without the switches of its highest level: those of a fat tree of three levels, and the leaves of one of two.

use std::collections::BTreeMap;

use fanin_core::{CollectiveKind, NetworkMap, NodeId};

use crate::canary::LeaderRule;
use crate::sharp::{RefusalRule, SharpMode};
use crate::system::System;

/// Whether a system has a way of its own for a collective, as its parameters are.
pub fn has_own(system: &System, kind: CollectiveKind) -> bool {
    let leads = match system {
        // Who leads blocks of other collectives follows from their root or their shares.
        System::Canary(parameters) => parameters.leader == LeaderRule::Rotating || kind == CollectiveKind::Allreduce,
        _ => true,
    };
    system.offers(kind) && leads
}

/// Whether a system can sum inside of pods: dense vectors, by a reduce-scatter and an all-gather of its own.
pub fn sums_inside(system: &System) -> bool {
    let own = |kind| has_own(system, kind);
    system.density().is_none() && own(CollectiveKind::ReduceScatter) && own(CollectiveKind::AllGather)
}

/// Whether a system can sum between pods: dense vectors, without servers, which would be hosts of no pod, and without groups that hold what others wait for.
pub fn sums_between(system: &System) -> bool {
    system.density().is_none() && system.servers() == 0 && !holds_and_waits(system)
}

/// Whether a group holds a part of its switches for as long as it lives, and waits for as long where it gets none. A job's groups live until all of them are
/// through: who waits for a group that holds something waits for ever, if that group needs what it has to do first.
pub fn holds_and_waits(system: &System) -> bool {
    matches!(system, System::Sharp(parameters) if parameters.mode == SharpMode::LowLatency && parameters.refused == RefusalRule::Wait)
}

/// The ranks in each pod, by host; pods in the order of their first hosts. `hosts` has the host of each rank.
pub fn of_hosts(map: &NetworkMap, hosts: &[NodeId]) -> Vec<Vec<u32>> {
    let pod_of = components(map);
    let mut by_host: Vec<(NodeId, u32)> = hosts.iter().copied().zip(0..).collect();
    by_host.sort_unstable();
    let mut order: BTreeMap<u32, usize> = BTreeMap::new();
    let mut pods: Vec<Vec<u32>> = Vec::new();
    for (host, rank) in by_host {
        let place = *order.entry(pod_of[host.index()]).or_insert(pods.len());
        if place == pods.len() {
            pods.push(Vec::new());
        }
        pods[place].push(rank);
    }
    pods
}

/// By node: the first node of what it hangs together with without the switches of the highest level.
fn components(map: &NetworkMap) -> Vec<u32> {
    let is_top = |node: NodeId| !map.is_host(node) && map.level(node) == map.top_level();
    let mut first = vec![u32::MAX; map.nodes() as usize];
    for start in (0..map.nodes()).map(NodeId) {
        if is_top(start) || first[start.index()] != u32::MAX {
            continue;
        }
        let mut open = vec![start];
        first[start.index()] = start.0;
        while let Some(node) = open.pop() {
            for next in map.neighbours(node).iter().map(|neighbour| neighbour.node) {
                if !is_top(next) && first[next.index()] == u32::MAX {
                    first[next.index()] = start.0;
                    open.push(next);
                }
            }
        }
    }
    first
}

/// What is summed in pods that have as many workers each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PodVectors {
    /// Length of a vector in elements, one at least.
    pub elements: u64,
    /// Chunks of a vector at most: each has an element for every worker of a pod, unless there are fewer in all.
    pub chunks: u64,
    /// Vectors, one after the other: a rank begins one when it has all of the one before.
    pub operations: u32,
    /// Workers of a pod.
    pub workers: u64,
}

/// Which of a chunk's three steps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum PodPart {
    /// The reduce-scatter in each pod.
    Reduce,
    /// The allreduce of a share by those who have it in all pods.
    Across,
    /// The all-gather in each pod.
    Gather,
}

impl PodPart {
    /// In the order of a chunk's steps.
    pub const ALL: [PodPart; 3] = [PodPart::Reduce, PodPart::Across, PodPart::Gather];

    /// In plans and in results.
    pub fn name(self) -> &'static str {
        match self {
            PodPart::Reduce => "reduce",
            PodPart::Across => "across",
            PodPart::Gather => "gather",
        }
    }

    /// What the workers of a group are asked for.
    pub fn kind(self) -> CollectiveKind {
        match self {
            PodPart::Reduce => CollectiveKind::ReduceScatter,
            PodPart::Across => CollectiveKind::Allreduce,
            PodPart::Gather => CollectiveKind::AllGather,
        }
    }
}

/// A step, which all ranks take: in their pod, or with those who have the same share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PodStep {
    /// Which of a chunk's three.
    pub part: PodPart,
    /// Of which vector.
    pub operation: u32,
    /// Of which of its chunks.
    pub chunk: u64,
    /// Length of what its group brings, in elements: the chunk, or a share of it, which is rounded up.
    pub elements: u64,
    /// The step that must be done before, by its place; none begins at once.
    pub after: Option<u32>,
}

impl PodVectors {
    /// Chunks of a vector: never so many that one has no element for each worker, where there are enough for one.
    pub fn chunks(&self) -> u64 {
        self.chunks.min(self.elements / self.workers.max(1)).max(1)
    }

    /// What ranks do, in the order in which each group takes its steps.
    pub fn steps(&self) -> Vec<PodStep> {
        let each = self.elements.div_ceil(self.chunks()).max(1);
        let mut steps: Vec<PodStep> = Vec::new();
        for operation in 0..self.operations {
            // An allreduce begins when its rank has all of the one before: groups gather chunks in turn, so the last one says it.
            let before = steps.len().checked_sub(1).map(|last| last as u32);
            for chunk in (0..self.chunks()).filter(|chunk| chunk * each < self.elements) {
                let own = each.min(self.elements - chunk * each);
                for part in PodPart::ALL {
                    let after = match part {
                        // Chunks that follow have their turn behind the first.
                        PodPart::Reduce => before.filter(|_| chunk == 0),
                        _ => Some(steps.len() as u32 - 1),
                    };
                    let elements = if part == PodPart::Across { own.div_ceil(self.workers.max(1)) } else { own };
                    steps.push(PodStep { part, operation, chunk, elements, after });
                }
            }
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CanaryParameters, SharpParameters};

    #[test]
    fn pods_are_what_hangs_together_without_the_highest_switches() {
        // Two pods of two leaves with two hosts under an aggregation switch each, and a core.
        let mut map = NetworkMap::new(8, &[1, 1, 1, 1, 2, 2, 3]);
        for host in 0..8 {
            map.join(NodeId(host), NodeId(8 + host / 2));
        }
        for leaf in 8..12 {
            map.join(NodeId(leaf), NodeId(12 + (leaf - 8) / 2));
        }
        for aggregation in [12, 13] {
            map.join(NodeId(aggregation), NodeId(14));
        }
        let of = |hosts: &[u32]| of_hosts(&map, &hosts.iter().copied().map(NodeId).collect::<Vec<_>>());
        assert_eq!(of(&[0, 1, 2, 3, 4, 5, 6, 7]), [[0, 1, 2, 3], [4, 5, 6, 7]]);
        // Ranks in any order, in pods by their hosts.
        assert_eq!(of(&[7, 2, 5, 0]), [[3, 1], [2, 0]]);
        assert_eq!(of_hosts(&NetworkMap::star(3), &[NodeId(2), NodeId(0)]), [[1], [0]]);
    }

    #[test]
    fn who_can_sum_where_follows_from_parameters() {
        let fixed = System::Canary(CanaryParameters { leader: LeaderRule::Fixed(0), ..CanaryParameters::default() });
        assert!(sums_inside(&System::canary()) && !sums_inside(&fixed) && sums_between(&fixed));
        assert!(!sums_inside(&System::tree(1)) && sums_between(&System::tree(1)));
        assert!(!sums_between(&System::flare(0.1)) && !sums_between(&System::flare(1.0)), "lists of pairs");
        let sharp = |mode, refused| System::Sharp(SharpParameters { mode, refused, ..SharpParameters::default() });
        assert!(
            sums_between(&sharp(SharpMode::LowLatency, RefusalRule::Host)) && sums_between(&sharp(SharpMode::Streaming, RefusalRule::Wait))
        );
        assert!(!sums_between(&sharp(SharpMode::LowLatency, RefusalRule::Wait)), "its groups would wait for each other for ever");
        assert_eq!(System::names_of("and", sums_inside), "canary, switchml and exchange");
        assert!(!System::all().iter().any(|system| system.servers() > 0 && sums_between(system)));
    }

    /// What each rank has of each element, by the step that it has done: ranks whose contributions are in it, each counted.
    struct Sums {
        pods: u64,
        vectors: PodVectors,
        /// By rank, operation and element.
        counted: Vec<Vec<Vec<BTreeMap<u64, u32>>>>,
    }

    impl Sums {
        fn new(pods: u64, vectors: PodVectors) -> Sums {
            let ranks = pods * vectors.workers;
            let own = |rank: u64| vec![vec![BTreeMap::from([(rank, 1)]); vectors.elements as usize]; vectors.operations as usize];
            Sums { pods, vectors, counted: (0..ranks).map(own).collect() }
        }

        /// Does a step at all ranks of a group: pod or share `group`.
        fn step(&mut self, step: &PodStep, group: u64) {
            let (workers, operation) = (self.vectors.workers, step.operation as usize);
            let each = self.vectors.elements.div_ceil(self.vectors.chunks());
            let (begin, end) = (step.chunk * each, (step.chunk * each + each).min(self.vectors.elements));
            let share = (end - begin).div_ceil(workers);
            let of = |place: u64| (begin + place * share).min(end)..(begin + (place + 1) * share).min(end);
            let members: Vec<u64> = match step.part {
                PodPart::Across => (0..self.pods).map(|pod| pod * workers + group).collect(),
                _ => (0..workers).map(|place| group * workers + place).collect(),
            };
            assert_eq!(step.elements, if step.part == PodPart::Across { share } else { end - begin }, "{step:?}");
            let sum = |sums: &Self, element: u64| {
                let mut all: BTreeMap<u64, u32> = BTreeMap::new();
                for member in &members {
                    for (rank, count) in &sums.counted[*member as usize][operation][element as usize] {
                        *all.entry(*rank).or_default() += count;
                    }
                }
                all
            };
            match step.part {
                PodPart::Reduce | PodPart::Across => {
                    let places: Vec<u64> = if step.part == PodPart::Across { vec![group] } else { (0..workers).collect() };
                    for place in places {
                        for element in of(place) {
                            let all = sum(self, element);
                            let takes = |member: u64| step.part == PodPart::Across || member % workers == place;
                            members.iter().filter(|member| takes(**member)).for_each(|member| {
                                self.counted[*member as usize][operation][element as usize] = all.clone();
                            });
                        }
                    }
                }
                PodPart::Gather => {
                    for place in 0..workers {
                        for element in of(place) {
                            let from = self.counted[members[place as usize] as usize][operation][element as usize].clone();
                            members.iter().for_each(|member| {
                                self.counted[*member as usize][operation][element as usize] = from.clone();
                            });
                        }
                    }
                }
            }
        }
    }

    /// Takes steps of groups in an order that is drawn among those that what stands before them allows, and looks at what comes of it.
    fn in_any_order(pods: u64, vectors: PodVectors, draw: &mut crate::Draw) {
        let steps = vectors.steps();
        let mut sums = Sums::new(pods, vectors);
        let groups = |part: PodPart| if part == PodPart::Across { vectors.workers } else { pods };
        let mut done: Vec<Vec<bool>> = steps.iter().map(|step| vec![false; groups(step.part) as usize]).collect();
        let members = |step: &PodStep, group: u64| -> Vec<(u64, u64)> {
            match step.part {
                PodPart::Across => (0..pods).map(|pod| (pod, group)).collect(),
                _ => (0..vectors.workers).map(|place| (group, place)).collect(),
            }
        };
        let has = |done: &[Vec<bool>], place: usize, (pod, share): (u64, u64)| {
            done[place][if steps[place].part == PodPart::Across { share } else { pod } as usize]
        };
        loop {
            let mut ready = Vec::new();
            for (place, step) in steps.iter().enumerate() {
                for group in (0..groups(step.part)).filter(|group| !done[place][*group as usize]) {
                    // Groups take their steps in turn, and ranks wait for what stands before.
                    let turn = steps[..place].iter().zip(&done).all(|(other, done)| other.part != step.part || done[group as usize]);
                    let come = |member: &(u64, u64)| step.after.is_none_or(|before| has(&done, before as usize, *member));
                    if turn && members(step, group).iter().all(come) {
                        ready.push((place, group));
                    }
                }
            }
            if ready.is_empty() {
                break;
            }
            let (place, group) = *draw.pick(&ready);
            sums.step(&steps[place], group);
            done[place][group as usize] = true;
        }
        assert!(done.iter().flatten().all(|done| *done), "{pods} pods, {vectors:?}: nobody can go on");
        let all: BTreeMap<u64, u32> = (0..pods * vectors.workers).map(|rank| (rank, 1)).collect();
        for (rank, operations) in sums.counted.iter().enumerate() {
            assert!(operations.iter().flatten().all(|counted| *counted == all), "{pods} pods, {vectors:?}, rank {rank}");
        }
    }

    /// Whoever is first: in the end each rank has the contribution of every rank to every element, once.
    #[test]
    fn three_steps_sum_everything_once_in_any_order() {
        for seed in 0..300 {
            let draw = &mut crate::Draw::new(seed, 1);
            let (pods, workers) = (draw.between(2, 4), draw.between(1, 4));
            let vectors =
                PodVectors { elements: draw.between(1, 23), chunks: draw.between(1, 5), operations: draw.between(1, 3) as u32, workers };
            in_any_order(pods, vectors, draw);
        }
    }

    #[test]
    fn a_vector_begins_when_the_one_before_is_gathered() {
        let steps = PodVectors { elements: 10, chunks: 3, operations: 2, workers: 2 }.steps();
        let shown: Vec<(&str, u32, u64, u64, Option<u32>)> =
            steps.iter().map(|step| (step.part.name(), step.operation, step.chunk, step.elements, step.after)).collect();
        assert_eq!(shown[..3], [("reduce", 0, 0, 4, None), ("across", 0, 0, 2, Some(0)), ("gather", 0, 0, 4, Some(1))]);
        assert_eq!(shown[6..9], [("reduce", 0, 2, 2, None), ("across", 0, 2, 1, Some(6)), ("gather", 0, 2, 2, Some(7))]);
        assert_eq!(shown[9], ("reduce", 1, 0, 4, Some(8)));
        // Fewer elements than workers: one chunk.
        assert_eq!(PodVectors { elements: 1, chunks: 4, operations: 1, workers: 3 }.steps().len(), 3);
    }
}
