//! Jobs whose hosts are divided into pods: one system sums inside of each, another between them. Each group is a job of the recipe, which begins
//! nothing by itself.

use std::ops::Range;
use std::sync::Arc;

use fanin_core::{Duration, Instant, NodeId};
use fanin_sim::programs::{Call, Lane, LaneKind, LaneOperation, Program, ProgramJob, ProgramRank, Step};
use fanin_systems::pods::{PodPart, PodStep, PodVectors};

/// A job in pods.
#[derive(Clone, PartialEq, Debug)]
pub struct PodsRecipe {
    /// The first of its groups among the recipe's jobs: those that reduce, a pod each; those across, a place in pods each; those that gather.
    pub first: usize,
    /// The hosts of each pod, in the order of their numbers, as many in each. Ranks are numbered by pod and place.
    pub pods: Vec<Vec<NodeId>>,
    /// What they sum.
    pub vectors: PodVectors,
    /// When each rank begins.
    pub start: Vec<Instant>,
}

impl PodsRecipe {
    /// How many groups do a part.
    fn groups(&self, part: PodPart) -> usize {
        if part == PodPart::Across { self.vectors.workers as usize } else { self.pods.len() }
    }

    /// The first group of a part, among its own.
    fn base(&self, part: PodPart) -> usize {
        PodPart::ALL.iter().take_while(|other| **other < part).map(|other| self.groups(*other)).sum()
    }

    /// Its groups among the recipe's jobs.
    pub fn jobs(&self) -> Range<usize> {
        self.first..self.first + self.base(PodPart::Gather) + self.pods.len()
    }

    /// The hosts of each of its groups, and what the group does, in the order of the recipe's jobs.
    pub fn members(&self) -> Vec<(PodPart, Vec<NodeId>)> {
        let of = |part: PodPart| {
            (0..self.groups(part)).map(move |group| match part {
                PodPart::Across => (part, self.pods.iter().map(|pod| pod[group]).collect()),
                _ => (part, self.pods[group].clone()),
            })
        };
        PodPart::ALL.into_iter().flat_map(of).collect()
    }

    /// Elements of a step's operation: shares of a pod's workers are equal, and are rounded up.
    pub fn elements(&self, step: &PodStep) -> u64 {
        let shares = if step.part == PodPart::Across { 1 } else { self.vectors.workers };
        step.elements.div_ceil(shares) * shares
    }

    /// Two of its groups among the recipe's jobs: one inside of a pod, and one between them.
    pub fn one_of_each(&self) -> [usize; 2] {
        [PodPart::Reduce, PodPart::Across].map(|part| self.first + self.base(part))
    }

    /// The group in which a rank takes a step, and its place there.
    pub fn place(&self, rank: u32, part: PodPart) -> (u32, u32) {
        let workers = self.vectors.workers as u32;
        let (pod, place) = (rank / workers, rank % workers);
        let (group, at) = if part == PodPart::Across { (place, pod) } else { (pod, place) };
        (self.base(part) as u32 + group, at)
    }

    /// The job as the simulator runs it.
    pub fn program(&self) -> ProgramJob {
        let steps = self.vectors.steps();
        let operation = |step: &PodStep| LaneOperation {
            kind: step.part.kind(),
            elements: self.elements(step),
            before: Duration::ZERO,
            after: Duration::ZERO,
        };
        let lanes = (0..).zip(self.members()).map(|(number, (part, hosts)): (usize, _)| Lane {
            kind: LaneKind::Group,
            job: Some((self.first + number) as u16),
            hosts: vec![1; hosts.len()],
            operations: steps.iter().filter(|step| step.part == part).map(operation).collect(),
        });
        // How many of its part come before each step.
        let turn = |place: usize| steps[..place].iter().filter(|step| step.part == steps[place].part).count() as u32;
        let turns: Vec<u32> = (0..steps.len()).map(turn).collect();
        let calls = |rank: u32| {
            let call = |(step, operation): (&PodStep, &u32)| {
                let (lane, host) = self.place(rank, step.part);
                Call { lane, host, operation: *operation, sends: false }
            };
            steps.iter().zip(&turns).map(call).collect()
        };
        let ranks = (0..).zip(self.pods.iter().flatten()).zip(&self.start);
        ProgramJob {
            programs: vec![Arc::new(Program::new((0..steps.len() as u32).map(Step::Call).collect(), &|step| {
                steps[step].after.into_iter().collect()
            }))],
            ranks: ranks.map(|((rank, host), start)| ProgramRank { program: 0, host: host.0, start: *start, calls: calls(rank) }).collect(),
            lanes: lanes.collect(),
            compute_spread: 0.0,
            crash: None,
            seed: self.first as u64,
        }
    }

    /// The ranks of a group, by its number among its own, in the order of its workers.
    pub fn ranks_of(&self, lane: u32) -> Vec<u32> {
        let ranks = 0..self.start.len() as u32;
        ranks.filter(|rank| PodPart::ALL.iter().any(|part| self.place(*rank, *part).0 == lane)).collect()
    }
}
