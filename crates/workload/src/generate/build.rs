//! Lists of nodes, and times and lengths for them.

use fanin_core::Duration;

use super::settings::Settings;
use crate::kinds::{CollectiveKind, Element};
use crate::model::{Action, Block, Collective, Group, Hosts, Members, Node, Peer, Program, Transfer, Workload};

/// How fast computing goes.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// Operations a second that are reached.
    pub operations_per_s: f64,
}

impl Rates {
    /// The time of so many operations.
    ///
    /// # Errors
    /// It is more than a day.
    pub fn time(self, operations: f64) -> Result<Duration, String> {
        let ps = operations / self.operations_per_s * 1e12;
        // Whole nanoseconds: nobody knows more.
        if ps.is_finite() && ps < 8.64e16 {
            Ok(Duration::from_ns((ps / 1e3).round() as u64))
        } else {
            Err(format!("a computation of {operations:e} operations: expected less than a day"))
        }
    }
}

/// How ranks are divided: tensor parallelism is innermost, then experts, then data; stages of the pipeline are outermost, as in Megatron.
#[derive(Clone, Copy, Debug)]
pub struct Division {
    tensor: u32,
    data: u32,
    expert: u32,
    pipeline: u32,
    tied: bool,
}

impl Division {
    /// The division that is asked for.
    pub fn new(settings: &Settings) -> Self {
        let Settings { tensor, data, expert, pipeline, .. } = *settings;
        Division { tensor, data, expert, pipeline, tied: false }
    }

    /// The same with groups of the first and last stage, which share a matrix.
    pub fn tied(mut self, tied: bool) -> Self {
        self.tied = tied && self.pipeline > 1;
        self
    }

    /// Ranks of all.
    pub fn ranks(self) -> u32 {
        self.tensor * self.data * self.pipeline
    }

    /// Ranks of a stage, which are consecutive.
    pub fn of_stage(self) -> u32 {
        self.tensor * self.data
    }

    fn kinds(self) -> Vec<(&'static str, u32, u32)> {
        let Division { tensor, data, expert, .. } = self;
        let all =
            [("tensor", tensor, 1), ("data", data, tensor), ("expert", expert, tensor), ("expert data", data / expert, tensor * expert)];
        all.into_iter().filter(|(name, size, _)| *size > 1 && (*name != "expert data" || expert > 1)).collect()
    }

    /// Groups of more than one member.
    pub fn groups(self) -> Vec<Group> {
        let group =
            |(name, size, stride): (&str, u32, u32)| Group { name: name.into(), members: Members::Strided { size, stride }, line: 0 };
        let mut groups: Vec<Group> = self.kinds().into_iter().map(group).collect();
        if self.tied {
            let distance = self.of_stage() * (self.pipeline - 1);
            let members = Members::Listed((0..self.of_stage()).map(|rank| vec![rank, rank + distance]).collect());
            groups.push(Group { name: "embedding".into(), members, line: 0 });
        }
        groups
    }

    fn index(self, name: &str) -> Option<u32> {
        self.kinds().iter().position(|(kind, ..)| *kind == name).map(|index| index as u32)
    }

    /// The group of tensor parallelism; as the others `None` where it has one member.
    pub fn tensor(self) -> Option<u32> {
        self.index("tensor")
    }

    /// The group of data parallelism.
    pub fn data(self) -> Option<u32> {
        self.index("data")
    }

    /// The group of expert parallelism.
    pub fn expert(self) -> Option<u32> {
        self.index("expert")
    }

    /// The group of data parallelism of experts.
    pub fn expert_data(self) -> Option<u32> {
        if self.expert > 1 { self.index("expert data") } else { self.data() }
    }

    /// The group of the first and the last stage.
    pub fn embedding(self) -> Option<u32> {
        self.tied.then(|| self.kinds().len() as u32)
    }
}

/// A collective of so many elements.
///
/// # Errors
/// There are too many.
pub fn collective(kind: CollectiveKind, group: u32, elements: u64, element: Element) -> Result<Action, String> {
    let bytes =
        elements.max(1).checked_mul(element.bytes()).ok_or_else(|| format!("{elements} elements: expected less than 2^64 bytes"))?;
    Ok(Action::Collective(Collective { kind, group, bytes, element, root: 0 }))
}

/// A product that fits 64 bits.
///
/// # Errors
/// It does not.
pub fn product(factors: &[u64]) -> Result<u64, String> {
    factors
        .iter()
        .try_fold(1u64, |all, one| all.checked_mul(*one))
        .ok_or_else(|| format!("the product of {factors:?}: expected less than 2^64"))
}

/// What the name and the source of a workload say.
pub fn named(settings: &Settings, division: Division, programs: Vec<Program>, blocks: Vec<Block>) -> Workload {
    Workload {
        name: format!(
            "{}, dp {}, tp {}, pp {}, ep {}, micro-batches {}",
            settings.model, settings.data, settings.tensor, settings.pipeline, settings.expert, settings.micro_batches
        ),
        ranks: division.ranks(),
        hosts: Hosts::Each(settings.ranks_per_host),
        iterations: 1,
        source: match settings.peak {
            Some(peak) => format!("generated for {peak:e} operations a second at a utilisation of {}", settings.utilisation),
            None => format!("generated for {} at a utilisation of {}", settings.gpu, settings.utilisation),
        },
        groups: division.groups(),
        blocks,
        programs,
    }
}

/// A list of nodes that mostly come one after the other.
#[derive(Default)]
pub struct Nodes {
    /// The nodes.
    pub list: Vec<Node>,
    /// What the next one comes after.
    pub last: Option<u32>,
}

impl Nodes {
    fn push(&mut self, node: Node) -> u32 {
        self.list.push(node);
        self.list.len() as u32 - 1
    }

    fn next(&mut self, node: Node) -> u32 {
        let place = self.push(node.after(self.last));
        self.last = Some(place);
        place
    }

    /// Computes, after all before.
    pub fn compute(&mut self, id: &str, time: Duration) -> u32 {
        self.next(Node::new(id, Action::Compute(time)))
    }

    /// Communicates in a stream, after all before.
    pub fn communicate(&mut self, id: &str, action: Action, stream: &str) -> u32 {
        self.next(Node::new(id, action).on(stream))
    }

    /// Does a block, after all before and these.
    pub fn call(&mut self, id: &str, block: u32, times: u32, after: &[u32]) -> u32 {
        self.next(Node::new(id, Action::Call { block, times, overlap: false }).after(after.iter().copied()))
    }

    /// Communicates in a stream beside all that comes next, after these nodes only.
    pub fn beside(&mut self, id: &str, action: Action, stream: &str, after: &[u32]) -> u32 {
        self.push(Node::new(id, action).on(stream).after(after.iter().copied()))
    }

    /// Receives beside all before; what comes next comes after it, too.
    pub fn receive(&mut self, id: &str, offset: i64, bytes: u64, tag: u32, stream: &str) -> u32 {
        let place = self.beside(id, Action::Receive(Transfer { peer: Peer::Offset(offset), bytes, tag }), stream, &[]);
        // A node for both to be waited for: nothing is computed.
        let before = self.last;
        self.last = None;
        let gate = Node::new(format!("{id} is here"), Action::Compute(Duration::from_ps(0))).after(before.into_iter().chain([place]));
        self.last = Some(self.push(gate));
        place
    }

    /// Sends beside all that comes next.
    pub fn send(&mut self, id: &str, offset: i64, bytes: u64, tag: u32, stream: &str) -> u32 {
        let after: Vec<u32> = self.last.into_iter().collect();
        self.beside(id, Action::Send(Transfer { peer: Peer::Offset(offset), bytes, tag }), stream, &after)
    }
}
