//! A workload: ranks, their groups, and what they do.

use std::sync::Arc;

use fanin_core::Duration;

use crate::kinds::{CollectiveKind, Element};

/// The computations and the communication of a job, for some of its iterations.
#[derive(Clone, PartialEq, Debug)]
pub struct Workload {
    /// Its name, for people.
    pub name: String,
    /// How many ranks there are; at most [`crate::RANKS_MAX`].
    pub ranks: u32,
    /// On which of the job's hosts ranks run.
    pub hosts: Hosts,
    /// How many iterations (training steps) the programs hold.
    pub iterations: u32,
    /// Where it comes from, for people; empty where nothing is said.
    pub source: String,
    /// Groups of ranks.
    pub groups: Vec<Group>,
    /// Parts of programs that are done several times.
    pub blocks: Vec<Block>,
    /// What ranks do. Every rank is in exactly one of them.
    pub programs: Vec<Program>,
}

/// On which of the job's hosts ranks run; hosts are numbered from 0.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Hosts {
    /// So many consecutive ranks on each; 1: each rank has a host of its own.
    Each(u32),
    /// By rank: its host.
    Listed(Vec<u32>),
}

impl Hosts {
    /// The host of a rank.
    pub fn of(&self, rank: u32) -> u32 {
        match self {
            Hosts::Each(count) => rank / (*count).max(1),
            Hosts::Listed(hosts) => hosts.get(rank as usize).copied().unwrap_or(0),
        }
    }

    /// How many hosts there are for so many ranks.
    pub fn count(&self, ranks: u32) -> u32 {
        match self {
            Hosts::Each(count) => ranks.div_ceil((*count).max(1)),
            Hosts::Listed(hosts) => hosts.iter().max().map_or(0, |last| last.saturating_add(1)),
        }
    }
}

/// Groups of one kind, such as all groups of tensor parallelism: a rank is in one of them at most, and calls it by the name of the kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// The name.
    pub name: Arc<str>,
    /// Who is in which.
    pub members: Members,
    /// The line of the file; 0 where there is none.
    pub line: u32,
}

/// The members of groups of one kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Members {
    /// `size` ranks with a distance of `stride`, from rank 0 on until all ranks are in one: with 2 and 4, ranks 0 and 4, 1 and 5, 2 and 6,
    /// 3 and 7, 8 and 12, ...
    Strided {
        /// Members of each group.
        size: u32,
        /// The distance between them.
        stride: u32,
    },
    /// Each group's members, in their order.
    Listed(Vec<Vec<u32>>),
}

/// A rank's place in a group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Place {
    /// Which group of the kind.
    pub instance: u32,
    /// The rank's position in it.
    pub position: u32,
}

impl Members {
    /// Groups of the kind, among so many ranks.
    pub fn instances(&self, ranks: u32) -> u32 {
        match self {
            Members::Strided { size, .. } => ranks / (*size).max(1),
            Members::Listed(all) => all.len() as u32,
        }
    }

    /// Members of one of the groups.
    pub fn size(&self, instance: u32) -> u32 {
        match self {
            Members::Strided { size, .. } => *size,
            Members::Listed(all) => all.get(instance as usize).map_or(0, |ranks| ranks.len() as u32),
        }
    }

    /// The members of one of the groups, in their order.
    pub fn of(&self, instance: u32) -> Vec<u32> {
        match self {
            Members::Strided { size, stride } => {
                let stride = (*stride).max(1);
                let first = instance / stride * stride * size + instance % stride;
                (0..*size).map(|position| first + position * stride).collect()
            }
            Members::Listed(all) => all.get(instance as usize).cloned().unwrap_or_default(),
        }
    }

    /// Where each rank is; `None` for those in no group.
    pub fn places(&self, ranks: u32) -> Vec<Option<Place>> {
        match self {
            Members::Strided { size, stride } => {
                let (size, stride) = ((*size).max(1), (*stride).max(1));
                let place = |rank: u32| {
                    let block = rank / stride / size;
                    Some(Place { instance: block * stride + rank % stride, position: rank / stride % size })
                };
                (0..ranks).map(place).collect()
            }
            Members::Listed(all) => {
                let mut places = vec![None; ranks as usize];
                for (instance, members) in all.iter().enumerate() {
                    for (position, rank) in members.iter().enumerate() {
                        if let Some(place) = places.get_mut(*rank as usize) {
                            *place = Some(Place { instance: instance as u32, position: position as u32 });
                        }
                    }
                }
                places
            }
        }
    }
}

/// A part of programs that is done several times. Streams are those of the rank that does it.
#[derive(Clone, PartialEq, Debug)]
pub struct Block {
    /// The name.
    pub name: Arc<str>,
    /// What it does.
    pub nodes: Vec<Node>,
    /// The line of the file; 0 where there is none.
    pub line: u32,
}

/// What some ranks do.
#[derive(Clone, PartialEq, Debug)]
pub struct Program {
    /// The name.
    pub name: Arc<str>,
    /// The ranks that do it, each by itself.
    pub ranks: Vec<u32>,
    /// What they do.
    pub nodes: Vec<Node>,
    /// The line of the file; 0 where there is none.
    pub line: u32,
}

/// One thing that a rank does. It begins when all nodes that it comes after are done, and all nodes before it in its stream.
#[derive(Clone, PartialEq, Debug)]
pub struct Node {
    /// Its name, for people and for `after`; one of its kind in its program or block.
    pub id: Arc<str>,
    /// What is done.
    pub action: Action,
    /// Indices of nodes of the same list that must be done before; in any order, each once.
    pub after: Vec<u32>,
    /// The stream, whose nodes run one after the other in the order of the list; `None`: it waits for nothing but `after`. Calls have none.
    pub stream: Option<Arc<str>>,
    /// How long it took where it was measured: of communication, which takes as long as the network takes, for comparison only.
    pub measured: Option<Duration>,
    /// The line of the file; 0 where there is none.
    pub line: u32,
}

/// What a node does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Computes for so long.
    Compute(Duration),
    /// Takes part in a collective of its group; done when the rank has all that is its own, and all that it sends is sent.
    Collective(Collective),
    /// Sends; done when the last byte has left, whether or not anybody receives.
    Send(Transfer),
    /// Receives; done when the last byte is there.
    Receive(Transfer),
    /// Does a block, `times` times.
    Call {
        /// Index in [`Workload::blocks`].
        block: u32,
        /// How often; at least once.
        times: u32,
        /// Whether a repetition may begin before the one before it is done; only the order of streams holds then.
        overlap: bool,
    },
}

/// A collective of a group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Collective {
    /// What it does; the kind says what `bytes` are of.
    pub kind: CollectiveKind,
    /// Index in [`Workload::groups`].
    pub group: u32,
    /// Bytes, see the kind; 0 for a barrier only.
    pub bytes: u64,
    /// Type of the elements.
    pub element: Element,
    /// The root's position in its group; 0 where there is no root.
    pub root: u32,
}

/// Bytes from one rank to another. The first send to a rank with a tag meets the first receive there of the same tag, and so on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Transfer {
    /// The other end.
    pub peer: Peer,
    /// How many.
    pub bytes: u64,
    /// The tag.
    pub tag: u32,
}

/// The other end of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Peer {
    /// This rank.
    Rank(u32),
    /// The rank so far above (below, where negative) the one that does it.
    Offset(i64),
}

impl Peer {
    /// The rank that is meant by `rank`; `None` where there is none among `ranks`, or it is the same.
    pub fn of(self, rank: u32, ranks: u32) -> Option<u32> {
        let other = match self {
            Peer::Rank(other) => other,
            Peer::Offset(offset) => u32::try_from(i64::from(rank).checked_add(offset)?).ok()?,
        };
        (other < ranks && other != rank).then_some(other)
    }
}

/// The stream of nodes that say nothing else: computations.
pub const COMPUTE_STREAM: &str = "compute";
/// The stream of nodes that say nothing else: communication.
pub const COMMUNICATION_STREAM: &str = "communication";

impl Action {
    /// The stream of a node that says nothing else; calls have none.
    pub fn usual_stream(&self) -> Option<&'static str> {
        match self {
            Action::Compute(_) => Some(COMPUTE_STREAM),
            Action::Call { .. } => None,
            _ => Some(COMMUNICATION_STREAM),
        }
    }
}

impl Node {
    /// A node in the stream that is usual for it, after nothing.
    pub fn new(id: impl Into<Arc<str>>, action: Action) -> Self {
        let stream = action.usual_stream().map(Arc::from);
        Node { id: id.into(), action, after: Vec::new(), stream, measured: None, line: 0 }
    }

    /// The same in this stream.
    pub fn on(mut self, stream: &str) -> Self {
        self.stream = Some(stream.into());
        self
    }

    /// The same, waiting for its dependencies only.
    pub fn unordered(mut self) -> Self {
        self.stream = None;
        self
    }

    /// The same, after these nodes of its list.
    pub fn after(mut self, nodes: impl IntoIterator<Item = u32>) -> Self {
        for node in nodes {
            if !self.after.contains(&node) {
                self.after.push(node);
            }
        }
        self
    }

    /// The same with the time that was measured.
    pub fn measured(mut self, time: Duration) -> Self {
        self.measured = Some(time);
        self
    }
}

impl Workload {
    /// The index of a kind of groups.
    pub fn group(&self, name: &str) -> Option<u32> {
        self.groups.iter().position(|group| &*group.name == name).map(|index| index as u32)
    }

    /// By rank: the index of its program; `None` for ranks in none, which [`crate::validate()`] refuses.
    pub fn program_of_ranks(&self) -> Vec<Option<u32>> {
        let mut of = vec![None; self.ranks as usize];
        for (index, program) in self.programs.iter().enumerate() {
            for rank in &program.ranks {
                if let Some(place) = of.get_mut(*rank as usize) {
                    *place = Some(index as u32);
                }
            }
        }
        of
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strided_groups_are_those_that_their_lists_say() {
        let strided = Members::Strided { size: 2, stride: 4 };
        let listed = Members::Listed((0..8).map(|instance| strided.of(instance)).collect());
        assert_eq!(strided.of(0), [0, 4]);
        assert_eq!(strided.of(4), [8, 12]);
        assert_eq!(strided.instances(16), 8);
        assert_eq!(strided.places(16), listed.places(16));
        assert_eq!(strided.places(16)[13], Some(Place { instance: 5, position: 1 }));
    }

    #[test]
    fn peers_are_found_among_the_ranks_only() {
        assert_eq!((Peer::Offset(-2).of(3, 4), Peer::Offset(1).of(3, 4), Peer::Rank(3).of(3, 4)), (Some(1), None, None));
        assert_eq!((Peer::Offset(i64::MAX).of(3, 4), Peer::Offset(-4).of(3, 4), Peer::Rank(2).of(3, 4)), (None, None, Some(2)));
    }

    #[test]
    fn ranks_fill_hosts() {
        assert_eq!((Hosts::Each(8).of(17), Hosts::Each(8).count(20)), (2, 3));
        assert_eq!((Hosts::Listed(vec![0, 3]).of(1), Hosts::Listed(vec![0, 3]).count(2)), (3, 4));
    }
}
