//! What must hold in a workload, and what is said where it does not.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::WorkloadError;
use crate::flat::{Flat, Flattener, Step, Written, node_name, written};
use crate::kinds::CollectiveKind;
use crate::model::{Action, Collective, Hosts, Members, Node, Peer, Place, Program, Workload};
use crate::ranks::RANKS_MAX;
use crate::run::{self, Run};

/// Kinds of groups times ranks at most: each kind has a place for each rank.
const PLACES_MAX: usize = 1 << 27;

/// A workload in which all holds, ready to be run.
#[derive(Clone, Debug)]
pub struct Checked {
    /// By program: it without calls.
    pub flats: Vec<Flat>,
    /// By kind of groups: by rank, where it is.
    pub places: Vec<Vec<Option<Place>>>,
    /// What came out when it was run through with communication that takes no time; `None` where it is too large for that, which leaves
    /// open whether every send is received and everybody gets to the end.
    pub run: Option<Run>,
}

/// Looks at everything. `file` is for errors.
///
/// # Errors
/// [`WorkloadError`] with the line of the file, or the name of the node, and what was expected.
pub fn validate(workload: &Workload, file: &str) -> Result<Checked, WorkloadError> {
    let check = Check { workload, file };
    check.head()?;
    check.groups()?;
    check.names()?;
    for block in &workload.blocks {
        check.nodes(&format!("block {:?}", &*block.name), &block.nodes, block.line)?;
    }
    for program in &workload.programs {
        check.nodes(&format!("program {:?}", &*program.name), &program.nodes, program.line)?;
    }
    check.every_rank_has_a_program()?;
    let places: Vec<_> = workload.groups.iter().map(|group| group.members.places(workload.ranks)).collect();
    let mut flattener = Flattener::new(workload);
    let mut flats = Vec::with_capacity(workload.programs.len());
    for program in &workload.programs {
        let name = &program.name;
        let flat = flattener.flat(&program.nodes).map_err(|error| check.error(program.line, format!("program {name:?}: {}", error.0)))?;
        check.ranks_are_in_their_groups(program, &flat, &places)?;
        check.no_cycle(program, &flat)?;
        flats.push(flat);
    }
    check.members_agree(&flats, &places)?;
    let run = run::through(workload, &flats, &places, file)?;
    Ok(Checked { flats, places, run })
}

struct Check<'a> {
    workload: &'a Workload,
    file: &'a str,
}

/// A collective in words.
fn words(workload: &Workload, collective: &Collective) -> String {
    let root = if collective.kind.has_root() { format!(" from or to its member {}", collective.root) } else { String::new() };
    format!("{} of {} bytes of {}{root} in group {:?}", collective.kind, collective.bytes, collective.element, {
        &*workload.groups[collective.group as usize].name
    })
}

impl Check<'_> {
    fn error(&self, line: u32, what: String) -> WorkloadError {
        WorkloadError::new(self.file, what).at(u64::from(line))
    }

    fn head(&self) -> Result<(), WorkloadError> {
        let ranks = self.workload.ranks;
        if ranks == 0 || ranks > RANKS_MAX {
            return Err(self.error(0, format!("ranks = {ranks}: expected 1 to {RANKS_MAX}")));
        }
        if self.workload.iterations == 0 {
            return Err(self.error(0, "iterations = 0: expected at least 1".into()));
        }
        match &self.workload.hosts {
            Hosts::Each(0) => Err(self.error(0, "ranks_per_host = 0: expected at least 1".into())),
            Hosts::Listed(hosts) if hosts.len() != ranks as usize => {
                Err(self.error(0, format!("hosts has {} entries: expected one for each of {ranks} ranks", hosts.len())))
            }
            Hosts::Listed(hosts) if hosts.iter().any(|host| *host >= RANKS_MAX) => {
                Err(self.error(0, format!("hosts: expected numbers below {RANKS_MAX}")))
            }
            _ => Ok(()),
        }
    }

    fn groups(&self) -> Result<(), WorkloadError> {
        let ranks = self.workload.ranks;
        let count = self.workload.groups.len();
        if count.saturating_mul(ranks as usize) > PLACES_MAX {
            return Err(self.error(0, format!("{count} groups of {ranks} ranks: expected a product of at most {PLACES_MAX}")));
        }
        for group in &self.workload.groups {
            let name = &*group.name;
            match &group.members {
                Members::Strided { size, stride } => {
                    let block = u64::from(*size) * u64::from(*stride);
                    if block == 0 || u64::from(ranks) % block != 0 {
                        let what =
                            format!("group {name:?}: size {size} times stride {stride} is {block}: expected a divisor of {ranks} ranks");
                        return Err(self.error(group.line, what));
                    }
                }
                Members::Listed(all) => {
                    let mut seen = BTreeSet::new();
                    for members in all {
                        if members.is_empty() {
                            return Err(self.error(group.line, format!("group {name:?}: expected members in each list")));
                        }
                        for rank in members {
                            if *rank >= ranks {
                                return Err(self.error(group.line, format!("group {name:?}: rank {rank}: expected one below {ranks}")));
                            }
                            if !seen.insert(*rank) {
                                let what = format!("group {name:?}: rank {rank} is there twice: expected each rank in one of them at most");
                                return Err(self.error(group.line, what));
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn names(&self) -> Result<(), WorkloadError> {
        let workload = self.workload;
        let groups = workload.groups.iter().map(|one| ("group", &one.name, one.line));
        let blocks = workload.blocks.iter().map(|one| ("block", &one.name, one.line));
        let programs = workload.programs.iter().map(|one| ("program", &one.name, one.line));
        let mut seen = BTreeSet::new();
        for (what, name, line) in groups.chain(blocks).chain(programs) {
            if name.is_empty() || !seen.insert((what, name)) {
                return Err(self.error(line, format!("{what} {:?}: expected a name that no other {what} has", &**name)));
            }
        }
        Ok(())
    }

    fn nodes(&self, of: &str, nodes: &[Node], line: u32) -> Result<(), WorkloadError> {
        if nodes.is_empty() {
            return Err(self.error(line, format!("{of}: expected nodes")));
        }
        let mut ids = BTreeSet::new();
        for (index, node) in nodes.iter().enumerate() {
            let refuse = |what: String| Err(self.error(node.line, format!("node {:?} of {of}: {what}", &*node.id)));
            if node.id.is_empty() || !ids.insert(&node.id) {
                return refuse("expected an id that no other node there has".into());
            }
            let mut before = BTreeSet::new();
            for other in &node.after {
                if *other as usize >= nodes.len() || !before.insert(*other) {
                    return refuse("after: expected other nodes there, each once".into());
                }
                if *other as usize == index {
                    return refuse("after: it waits for itself".into());
                }
            }
            match &node.action {
                Action::Compute(_) => {}
                Action::Collective(collective) => self.collective(collective).or_else(refuse)?,
                Action::Send(transfer) | Action::Receive(transfer) => {
                    if transfer.bytes == 0 {
                        return refuse("bytes = 0: expected at least 1".into());
                    }
                    if transfer.peer == Peer::Offset(0) {
                        return refuse("expected another rank than itself".into());
                    }
                }
                Action::Call { block, times, .. } => {
                    if *block as usize >= self.workload.blocks.len() || *times == 0 || node.stream.is_some() {
                        return refuse("expected a block that there is, at least once, in no stream".into());
                    }
                }
            }
        }
        Ok(())
    }

    fn collective(&self, collective: &Collective) -> Result<(), String> {
        let Some(group) = self.workload.groups.get(collective.group as usize) else {
            return Err("group: expected one that there is".into());
        };
        let (bytes, element) = (collective.bytes, collective.element);
        if (bytes == 0) != (collective.kind == CollectiveKind::Barrier) {
            return Err(format!("bytes = {bytes}: expected none for a barrier, and some for anything else"));
        }
        if bytes % element.bytes() != 0 {
            return Err(format!("bytes = {bytes}: expected a multiple of {} for elements of {element}", element.bytes()));
        }
        let smallest = match &group.members {
            Members::Strided { size, .. } => Some(*size),
            Members::Listed(all) => all.iter().map(|members| members.len() as u32).min(),
        };
        let limit = if collective.kind.has_root() { smallest.unwrap_or(0) } else { 1 };
        if collective.root >= limit {
            return Err(format!("root = {}: expected a position in every group {:?}, below {limit}", collective.root, &*group.name));
        }
        Ok(())
    }

    fn every_rank_has_a_program(&self) -> Result<(), WorkloadError> {
        let mut of: Vec<Option<usize>> = vec![None; self.workload.ranks as usize];
        for (index, program) in self.workload.programs.iter().enumerate() {
            let name = &*program.name;
            for rank in &program.ranks {
                match of.get_mut(*rank as usize) {
                    Some(place @ None) => *place = Some(index),
                    Some(Some(other)) => {
                        let other = &*self.workload.programs[*other].name;
                        return Err(self.error(program.line, format!("program {name:?}: rank {rank} is in program {other:?}, too")));
                    }
                    None => {
                        let what = format!("program {name:?}: rank {rank}: expected one below {}", self.workload.ranks);
                        return Err(self.error(program.line, what));
                    }
                }
            }
        }
        match of.iter().position(Option::is_none) {
            Some(rank) => Err(self.error(0, format!("rank {rank} is in no program: expected every rank in one"))),
            None => Ok(()),
        }
    }

    fn ranks_are_in_their_groups(&self, program: &Program, flat: &Flat, places: &[Vec<Option<Place>>]) -> Result<(), WorkloadError> {
        let mut seen = BTreeSet::new();
        for node in &flat.nodes {
            let Step::Collective(collective, _) = &node.step else { continue };
            if !seen.insert(collective.group) {
                continue;
            }
            if let Some(rank) = program.ranks.iter().find(|rank| places[collective.group as usize][**rank as usize].is_none()) {
                let (name, group) =
                    (node_name(self.workload, program, node.written), &*self.workload.groups[collective.group as usize].name);
                let line = written(self.workload, program, node.written).line;
                return Err(self.error(line, format!("{name}: rank {rank} is in no group {group:?}")));
            }
        }
        Ok(())
    }

    fn no_cycle(&self, program: &Program, flat: &Flat) -> Result<(), WorkloadError> {
        let Err(cycle) = flat.order() else { return Ok(()) };
        let node = |place: &u32| written(self.workload, program, flat.nodes[*place as usize].written);
        let names: Vec<String> = cycle.iter().take(8).map(|place| format!("{:?}", &*node(place).id)).collect();
        let more = if cycle.len() > names.len() { ", .." } else { "" };
        let line = cycle.first().map_or(program.line, |place| node(place).line);
        let what = format!(
            "program {:?}: nodes wait for each other, by after or by the order of their streams: {}{more}",
            &*program.name,
            names.join(" after ")
        );
        Err(self.error(line, what))
    }

    /// Members of a group must do the same collectives in the same order. That depends on their programs only.
    fn members_agree(&self, flats: &[Flat], places: &[Vec<Option<Place>>]) -> Result<(), WorkloadError> {
        let of = self.workload.program_of_ranks();
        for (group, places) in places.iter().enumerate() {
            let mut lists: BTreeMap<u32, Vec<(&Collective, Written)>> = BTreeMap::new();
            // By group of the kind: a program of a member of it. Pairs that were compared need not be compared again.
            let mut first: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
            let mut same: BTreeSet<(u32, u32)> = BTreeSet::new();
            for (rank, place) in places.iter().enumerate() {
                let (Some(place), Some(program)) = (place, of[rank]) else { continue };
                let (one, before) = *first.entry(place.instance).or_insert((program, rank as u32));
                if one == program || !same.insert((one, program)) {
                    continue;
                }
                for index in [one, program] {
                    lists.entry(index).or_insert_with(|| of_group(&flats[index as usize], group as u32));
                }
                self.same((one, before, &lists[&one]), (program, rank as u32, &lists[&program]))?;
            }
        }
        Ok(())
    }

    fn same(&self, one: Side<'_>, other: Side<'_>) -> Result<(), WorkloadError> {
        let count = one.2.len().max(other.2.len());
        for number in 0..count {
            let (here, there) = (one.2.get(number), other.2.get(number));
            if here.map(|(collective, _)| collective) == there.map(|(collective, _)| collective) {
                continue;
            }
            let say = |side: Side<'_>| {
                let program = &self.workload.programs[side.0 as usize];
                match side.2.get(number) {
                    Some((collective, at)) => {
                        format!("rank {} has {} ({})", side.1, words(self.workload, collective), node_name(self.workload, program, *at))
                    }
                    None => format!("rank {} has none (program {:?})", side.1, &*program.name),
                }
            };
            let line = there.or(here).map_or(0, |(_, at)| {
                let program = if there.is_some() { other.0 } else { one.0 };
                written(self.workload, &self.workload.programs[program as usize], *at).line
            });
            let what = format!("members disagree about collective {number} of their group: {}, {}", say(one), say(other));
            return Err(self.error(line, what));
        }
        Ok(())
    }
}

/// A program, a rank that does it, and its collectives of a group.
type Side<'a> = (u32, u32, &'a [(&'a Collective, Written)]);

fn of_group(flat: &Flat, group: u32) -> Vec<(&Collective, Written)> {
    let one = |node: &crate::flat::FlatNode| matches!(&node.step, Step::Collective(collective, _) if collective.group == group);
    flat.nodes
        .iter()
        .filter(|node| one(node))
        .filter_map(|node| match &node.step {
            Step::Collective(collective, _) => Some((collective, node.written)),
            _ => None,
        })
        .collect()
}
