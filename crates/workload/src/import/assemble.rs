//! One workload from what each rank does: kinds of groups from lists of ranks, one program for ranks that do the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fanin_core::Duration;

use crate::error::WorkloadError;
use crate::kinds::{CollectiveKind, Element};
use crate::model::{Action, Collective, Group, Hosts, Members, Node, Peer, Program, Transfer, Workload};
use crate::ranks::RANKS_MAX;
use crate::report::Report;

/// What a rank does, as its file says it.
#[derive(Clone, Debug)]
pub struct RawNode {
    /// Its name.
    pub id: String,
    /// What is done.
    pub action: RawAction,
    /// Indices of nodes of the same rank.
    pub after: Vec<u32>,
    /// The stream; `None`: no order but that of `after`.
    pub stream: Option<Arc<str>>,
    /// How long communication took.
    pub measured: Option<Duration>,
    /// Where it stands, for reports.
    pub place: String,
}

/// What a node does, with its group as a list of ranks.
#[derive(Clone, Debug)]
pub enum RawAction {
    /// Computes.
    Compute(Duration),
    /// Takes part in a collective of a list of ranks that [`Lists`] knows.
    Collective {
        /// What it does.
        kind: CollectiveKind,
        /// The list's number.
        list: usize,
        /// Bytes, see the kind.
        bytes: u64,
        /// Type of the elements.
        element: Element,
        /// The root's position.
        root: u32,
    },
    /// Sends.
    Send(Transfer),
    /// Receives.
    Receive(Transfer),
}

/// The lists of ranks that collectives are of, each once for each label.
#[derive(Clone, Debug, Default)]
pub struct Lists {
    all: Vec<(String, Vec<u32>)>,
    numbers: BTreeMap<(String, Vec<u32>), usize>,
}

impl Lists {
    /// The number of a list; groups of one label are of one kind where they have no rank in common.
    pub fn number(&mut self, label: &str, ranks: Vec<u32>) -> usize {
        let key = (label.to_string(), ranks);
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        let number = self.all.len();
        self.all.push(key.clone());
        self.numbers.insert(key, number);
        number
    }
}

/// What all files say together.
#[derive(Debug)]
pub struct Raw {
    /// The workload's name.
    pub name: String,
    /// Where it comes from.
    pub source: String,
    /// How many ranks there are.
    pub ranks: u32,
    /// Iterations in it.
    pub iterations: u32,
    /// By rank: what it does. Ranks that are missing do what the first one does.
    pub programs: BTreeMap<u32, Vec<RawNode>>,
    /// The lists of ranks.
    pub lists: Lists,
}

impl Raw {
    /// The workload.
    ///
    /// # Errors
    /// There is nothing in it, or it has too many ranks.
    pub fn assemble(mut self, file: &str, report: &mut Report) -> Result<Workload, WorkloadError> {
        if self.ranks == 0 || self.ranks > RANKS_MAX {
            return Err(WorkloadError::new(file, format!("{} ranks: expected 1 to {RANKS_MAX}", self.ranks)));
        }
        if let Some(rank) = self.programs.keys().find(|rank| **rank >= self.ranks) {
            return Err(WorkloadError::new(file, format!("rank {rank}: expected one below {}", self.ranks)));
        }
        let Some(first) = self.programs.keys().next().copied() else {
            return Err(WorkloadError::new(file, "expected a rank that does something"));
        };
        let missing = self.ranks as usize - self.programs.len();
        if missing > 0 {
            let them = if missing == 1 { "a rank has".to_string() } else { format!("{missing} ranks have") };
            report.assume(format!("{them} no file: expected to do what rank {first} does"));
            self.leave_transfers(report);
        }
        self.leave_foreign(report);
        let (groups, of_list) = self.groups(missing > 0, report);
        let mut programs: Vec<Program> = Vec::new();
        for (rank, raw) in &self.programs {
            let nodes = nodes(raw, &of_list, report);
            if nodes.is_empty() {
                return Err(WorkloadError::new(file, format!("rank {rank}: nothing of it can be taken over")));
            }
            match programs.iter_mut().find(|program| program.nodes == nodes) {
                Some(program) => program.ranks.push(*rank),
                None => programs.push(Program { name: format!("rank {rank}").into(), ranks: vec![*rank], nodes, line: 0 }),
            }
        }
        if missing > 0 {
            let present: BTreeSet<u32> = self.programs.keys().copied().collect();
            programs[0].ranks.extend((0..self.ranks).filter(|rank| !present.contains(rank)));
            programs[0].ranks.sort_unstable();
        }
        Ok(Workload {
            name: self.name,
            ranks: self.ranks,
            hosts: Hosts::Each(1),
            iterations: self.iterations.max(1),
            source: self.source,
            groups,
            blocks: Vec::new(),
            programs,
        })
    }

    /// Leaves out sends and receives of two ranks that do not fit together: traces begin and end where they are switched on and off.
    pub fn leave_unmatched(&mut self, report: &mut Report) {
        // By sender, receiver and tag: the lengths in order, of what is sent and of what is received.
        let mut lengths: BTreeMap<(u32, u32, u32), [Vec<u64>; 2]> = BTreeMap::new();
        let of = |rank: u32, action: &RawAction| match action {
            RawAction::Send(Transfer { peer: Peer::Rank(peer), bytes, tag }) => Some(((rank, *peer, *tag), 0, *bytes)),
            RawAction::Receive(Transfer { peer: Peer::Rank(peer), bytes, tag }) => Some(((*peer, rank, *tag), 1, *bytes)),
            _ => None,
        };
        for (rank, nodes) in &self.programs {
            for (key, side, bytes) in nodes.iter().filter_map(|node| of(*rank, &node.action)) {
                lengths.entry(key).or_default()[side].push(bytes);
            }
        }
        let fits = |key: &(u32, u32, u32)| lengths.get(key).is_some_and(|[sent, received]| sent == received);
        let is_there = |rank: u32| self.programs.contains_key(&rank);
        let whole: BTreeSet<(u32, u32, u32)> =
            lengths.keys().filter(|key| fits(key) || !is_there(key.0) || !is_there(key.1)).copied().collect();
        for (rank, nodes) in &mut self.programs {
            let keep: Vec<bool> = nodes.iter().map(|node| of(*rank, &node.action).is_none_or(|(key, ..)| whole.contains(&key))).collect();
            for (node, _) in nodes.iter().zip(&keep).filter(|(_, keep)| !**keep) {
                report.leave("sends and receives of two ranks whose files do not have the same ones", || node.place.clone());
            }
            retain(nodes, &keep);
        }
    }

    /// Members of an all-to-all bring as much as they have for others: the longest counts, at all of them.
    pub fn even_out(&mut self, report: &mut Report) {
        let mut longest: BTreeMap<(usize, usize), (u64, bool)> = BTreeMap::new();
        let mut visit = |visit: &mut dyn FnMut((usize, usize), &mut u64)| {
            for nodes in self.programs.values_mut() {
                let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
                for node in nodes {
                    let RawAction::Collective { kind, list, bytes, .. } = &mut node.action else { continue };
                    let count = counts.entry(*list).or_default();
                    *count += 1;
                    if *kind == CollectiveKind::AllToAll {
                        visit((*list, *count), bytes);
                    }
                }
            }
        };
        visit(&mut |key, bytes| {
            let (most, differs) = longest.entry(key).or_insert((*bytes, false));
            (*most, *differs) = ((*most).max(*bytes), *differs || *most != *bytes);
        });
        visit(&mut |key, bytes| *bytes = longest[&key].0);
        if longest.values().any(|(_, differs)| *differs) {
            report.assume("all-to-alls of different lengths at their members have the longest at all of them");
        }
    }

    /// Where ranks are missing, nobody knows who sends what to them.
    fn leave_transfers(&mut self, report: &mut Report) {
        for nodes in self.programs.values_mut() {
            let keep: Vec<bool> = nodes.iter().map(|node| !matches!(node.action, RawAction::Send(_) | RawAction::Receive(_))).collect();
            for (node, _) in nodes.iter().zip(&keep).filter(|(_, keep)| !**keep) {
                report.leave("sends and receives: expected the files of all ranks", || node.place.clone());
            }
            retain(nodes, &keep);
        }
    }

    /// A rank cannot take part in a group that it is not in.
    fn leave_foreign(&mut self, report: &mut Report) {
        let members: Vec<BTreeSet<u32>> = self.lists.all.iter().map(|(_, ranks)| ranks.iter().copied().collect()).collect();
        for (rank, nodes) in &mut self.programs {
            let is_in = |node: &RawNode| !matches!(&node.action, RawAction::Collective { list, .. } if !members[*list].contains(rank));
            let keep: Vec<bool> = nodes.iter().map(is_in).collect();
            for (node, _) in nodes.iter().zip(&keep).filter(|(_, keep)| !**keep) {
                report.leave("collectives of groups that the rank itself is not in", || node.place.clone());
            }
            retain(nodes, &keep);
        }
    }

    /// Kinds of groups, and by list the kind, where there is one.
    fn groups(&self, incomplete: bool, report: &mut Report) -> (Vec<Group>, Vec<Option<u32>>) {
        // Lists of one label are of one kind as long as no rank is in two of them.
        let mut kinds: Vec<(String, BTreeSet<u32>, Vec<usize>)> = Vec::new();
        let mut kind_of = vec![0; self.lists.all.len()];
        for (number, (label, ranks)) in self.lists.all.iter().enumerate() {
            let fits = |kind: &(String, BTreeSet<u32>, Vec<usize>)| kind.0 == *label && ranks.iter().all(|rank| !kind.1.contains(rank));
            let place = kinds.iter().position(fits).unwrap_or_else(|| {
                kinds.push((label.clone(), BTreeSet::new(), Vec::new()));
                kinds.len() - 1
            });
            kinds[place].1.extend(ranks);
            kinds[place].2.push(number);
            kind_of[number] = place;
        }
        let (mut groups, mut names) = (Vec::new(), BTreeSet::new());
        let mut of_kind = Vec::new();
        for (label, covered, lists) in &kinds {
            let lists: Vec<&Vec<u32>> = lists.iter().map(|number| &self.lists.all[*number].1).collect();
            let strided = strided(&lists, self.ranks);
            let all = covered.len() == self.ranks as usize;
            let members = match strided {
                Some(members) if all || incomplete => Some(members),
                _ if all || !incomplete => Some(Members::Listed(lists.into_iter().cloned().collect())),
                _ => None,
            };
            if members.is_some() && incomplete && !all {
                report.assume(format!("groups {label:?} go on in the same way over all ranks"));
            }
            of_kind.push(members.map(|members| {
                let unique = (1..).map(|number| if number == 1 { label.clone() } else { format!("{label} {number}") });
                let name = unique.into_iter().find(|name| names.insert(name.clone())).unwrap_or_default();
                groups.push(Group { name: name.into(), members, line: 0 });
                groups.len() as u32 - 1
            }));
        }
        (groups, kind_of.into_iter().map(|kind| of_kind[kind]).collect())
    }
}

/// The size and the stride that give all of these lists.
fn strided(lists: &[&Vec<u32>], ranks: u32) -> Option<Members> {
    let first = lists.first()?;
    let size = first.len() as u32;
    let stride = if size < 2 { 1 } else { first[1].checked_sub(first[0]).filter(|stride| *stride > 0)? };
    let block = size.checked_mul(stride).filter(|block| *block > 0 && ranks.is_multiple_of(*block))?;
    let fits = |list: &&Vec<u32>| {
        list.len() == size as usize
            && list.windows(2).all(|pair| pair[1].checked_sub(pair[0]) == Some(stride))
            && list[0] % block < stride
            && list[0] < ranks
    };
    lists.iter().all(fits).then_some(Members::Strided { size, stride })
}

/// Takes nodes out of a list; what came after one of them comes after what that came after.
pub fn retain(nodes: &mut Vec<RawNode>, keep: &[bool]) {
    if keep.iter().all(|keep| *keep) {
        return;
    }
    let mut places = vec![None; nodes.len()];
    let mut count = 0u32;
    for (place, keep) in places.iter_mut().zip(keep) {
        if *keep {
            *place = Some(count);
            count += 1;
        }
    }
    let before: Vec<Vec<u32>> = nodes.iter().map(|node| node.after.clone()).collect();
    let mut index = 0;
    nodes.retain_mut(|node| {
        let stays = keep[index];
        index += 1;
        if stays {
            let (mut after, mut seen, mut open) = (BTreeSet::new(), BTreeSet::new(), node.after.clone());
            while let Some(one) = open.pop() {
                if seen.insert(one) {
                    match places[one as usize] {
                        Some(place) => drop(after.insert(place)),
                        None => open.extend(&before[one as usize]),
                    }
                }
            }
            node.after = after.into_iter().collect();
        }
        stays
    });
}

fn nodes(raw: &[RawNode], of_list: &[Option<u32>], report: &mut Report) -> Vec<Node> {
    let mut kept = raw.to_vec();
    let usable = |node: &RawNode| match &node.action {
        RawAction::Collective { list, bytes, kind, .. } => of_list[*list].is_some() && (*bytes > 0 || *kind == CollectiveKind::Barrier),
        RawAction::Send(transfer) | RawAction::Receive(transfer) => transfer.bytes > 0,
        RawAction::Compute(_) => true,
    };
    let keep: Vec<bool> = raw.iter().map(usable).collect();
    for (node, _) in raw.iter().zip(&keep).filter(|(_, keep)| !**keep) {
        let known = !matches!(&node.action, RawAction::Collective { list, .. } if of_list[*list].is_none());
        let what = if known {
            "communication of 0 bytes"
        } else {
            "collectives of groups of which not all ranks are known: expected the files of all ranks"
        };
        report.leave(what, || node.place.clone());
    }
    retain(&mut kept, &keep);
    let mut ids = BTreeSet::new();
    kept.into_iter()
        .map(|node| {
            let mut id = node.id;
            if id.is_empty() || ids.contains(&id) {
                let base = if id.is_empty() { "node".to_string() } else { id };
                let unique = |number: &usize| !ids.contains(&format!("{base} {number}"));
                let number = (ids.len()..).find(unique).unwrap_or(0);
                id = format!("{base} {number}");
            }
            ids.insert(id.clone());
            let action = match node.action {
                RawAction::Compute(time) => Action::Compute(time),
                RawAction::Collective { kind, list, bytes, element, root } => {
                    let is_whole = bytes % element.bytes() == 0;
                    if !is_whole {
                        report.assume("vectors that are no whole number of elements have elements of u8");
                    }
                    let element = if is_whole { element } else { Element::U8 };
                    Action::Collective(Collective { kind, group: of_list[list].unwrap_or(0), bytes, element, root })
                }
                RawAction::Send(transfer) => Action::Send(transfer),
                RawAction::Receive(transfer) => Action::Receive(transfer),
            };
            Node { id: id.into(), action, after: node.after, stream: node.stream, measured: node.measured, line: 0 }
        })
        .collect()
}

/// A transfer with this rank.
pub fn transfer(peer: u32, bytes: u64, tag: u32) -> Transfer {
    Transfer { peer: Peer::Rank(peer), bytes, tag }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(after: &[u32]) -> RawNode {
        let action = RawAction::Compute(Duration::from_ns(1));
        RawNode { id: String::new(), action, after: after.to_vec(), stream: None, measured: None, place: String::new() }
    }

    #[test]
    fn what_came_after_something_left_out_comes_after_what_was_before_it() {
        let mut nodes = vec![node(&[]), node(&[0]), node(&[1]), node(&[2, 0])];
        retain(&mut nodes, &[true, false, false, true]);
        assert_eq!(nodes.iter().map(|node| node.after.clone()).collect::<Vec<_>>(), [vec![], vec![0]]);
    }

    #[test]
    fn lists_with_one_distance_are_strided() {
        assert_eq!(strided(&[&vec![1, 5], &vec![0, 4]], 16), Some(Members::Strided { size: 2, stride: 4 }));
        assert_eq!(strided(&[&vec![4, 8]], 16), None, "4 is a second member");
        assert_eq!(strided(&[&vec![0, 1, 2]], 16), None);
        assert_eq!(strided(&[&vec![0, 1, 3]], 6), None);
    }
}
