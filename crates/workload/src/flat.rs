//! A program without calls: every node that a rank does, with all that it waits for.

use std::collections::BTreeMap;
use std::sync::Arc;

use fanin_core::Duration;

use crate::model::{Action, Collective, Node, Program, Transfer, Workload};

/// Nodes of all programs and blocks at most, with blocks counted as often as they are done.
pub const NODES_MAX: usize = 1 << 24;
/// What they wait for at most, in all.
const EDGES_MAX: usize = 1 << 26;
/// Blocks within blocks at most.
pub const DEPTH_MAX: u32 = 16;

/// Where a node is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written {
    /// Index of the block; `None`: in the program itself.
    pub block: Option<u32>,
    /// Index in the list of nodes.
    pub index: u32,
}

/// What a node of a flat program does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Computes for so long.
    Compute(Duration),
    /// Takes part in its group's collective of this number: the first of the group in the order of the list is 0, the same at all members.
    Collective(Collective, u32),
    /// Sends.
    Send(Transfer),
    /// Receives.
    Receive(Transfer),
}

/// A node of a flat program.
#[derive(Clone, PartialEq, Debug)]
pub struct FlatNode {
    /// What it does.
    pub step: Step,
    /// The stream, an index in [`Flat::streams`].
    pub stream: Option<u32>,
    /// Where it is written.
    pub written: Written,
}

/// A program without calls. The order is that of the file, in which a node may stand before one that it waits for.
#[derive(Clone, PartialEq, Debug)]
pub struct Flat {
    /// The nodes.
    pub nodes: Vec<FlatNode>,
    /// Names of streams.
    pub streams: Vec<Arc<str>>,
    /// All that nodes wait for: by `after`, by calls, and by the order of streams.
    after: Vec<u32>,
    /// Where each node's part of `after` begins, and the end.
    starts: Vec<u32>,
}

impl Flat {
    /// The nodes that must be done before this one begins, the one before it in its stream included.
    pub fn after(&self, node: usize) -> &[u32] {
        &self.after[self.starts[node] as usize..self.starts[node + 1] as usize]
    }

    /// How many things nodes wait for, in all.
    pub fn edges(&self) -> usize {
        self.after.len()
    }

    /// By node: those that wait for it.
    pub fn successors(&self) -> Lists {
        let mut counts = vec![0u32; self.nodes.len() + 1];
        self.after.iter().for_each(|before| counts[*before as usize + 1] += 1);
        for index in 1..counts.len() {
            counts[index] += counts[index - 1];
        }
        let (starts, mut next) = (counts.clone(), counts);
        let mut items = vec![0; self.after.len()];
        for node in 0..self.nodes.len() {
            for before in self.after(node) {
                let place = &mut next[*before as usize];
                items[*place as usize] = node as u32;
                *place += 1;
            }
        }
        Lists { items, starts }
    }

    /// The nodes in an order in which each comes after all that it waits for.
    ///
    /// # Errors
    /// The nodes of a cycle.
    pub fn order(&self) -> Result<Vec<u32>, Vec<u32>> {
        let successors = self.successors();
        let mut pending: Vec<u32> = (0..self.nodes.len()).map(|node| self.after(node).len() as u32).collect();
        let mut order: Vec<u32> = (0..self.nodes.len() as u32).filter(|node| pending[*node as usize] == 0).collect();
        let mut next = 0;
        while let Some(node) = order.get(next).copied() {
            next += 1;
            for successor in successors.of(node as usize) {
                pending[*successor as usize] -= 1;
                if pending[*successor as usize] == 0 {
                    order.push(*successor);
                }
            }
        }
        if order.len() == self.nodes.len() { Ok(order) } else { Err(self.cycle(&pending)) }
    }

    /// A cycle among nodes that are never done: from any of them back over those that are not done either, until one comes again.
    fn cycle(&self, pending: &[u32]) -> Vec<u32> {
        let Some(mut node) = pending.iter().position(|count| *count > 0) else { return Vec::new() };
        let (mut seen, mut path) = (BTreeMap::new(), Vec::new());
        while !seen.contains_key(&node) {
            seen.insert(node, path.len());
            path.push(node as u32);
            let Some(before) = self.after(node).iter().find(|before| pending[**before as usize] > 0) else { break };
            node = *before as usize;
        }
        path.split_off(seen.get(&node).copied().unwrap_or(0).min(path.len()))
    }
}

/// The node that was written there.
pub fn written<'a>(workload: &'a Workload, program: &'a Program, at: Written) -> &'a Node {
    match at.block {
        Some(block) => &workload.blocks[block as usize].nodes[at.index as usize],
        None => &program.nodes[at.index as usize],
    }
}

/// A node's name with that of its program, and of its block.
pub fn node_name(workload: &Workload, program: &Program, at: Written) -> String {
    let id = &written(workload, program, at).id;
    match at.block {
        Some(block) => format!("node {:?} of block {:?} in program {:?}", &**id, &*workload.blocks[block as usize].name, &*program.name),
        None => format!("node {:?} of program {:?}", &**id, &*program.name),
    }
}

/// A list for each node.
#[derive(Clone, Debug)]
pub struct Lists {
    items: Vec<u32>,
    starts: Vec<u32>,
}

impl Lists {
    /// The list of a node.
    pub fn of(&self, node: usize) -> &[u32] {
        &self.items[self.starts[node] as usize..self.starts[node + 1] as usize]
    }
}

/// Why a program cannot be made flat.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TooLarge(pub String);

/// A list of nodes, flat, before the order of streams.
#[derive(Clone, Default)]
struct Template {
    steps: Vec<(Written, Option<u32>)>,
    after: Vec<Vec<u32>>,
    edges: usize,
    roots: Vec<u32>,
    sinks: Vec<u32>,
}

/// Makes programs flat; what all of them share is made once.
pub struct Flattener<'a> {
    workload: &'a Workload,
    blocks: Vec<Option<Template>>,
    streams: Vec<Arc<str>>,
    numbers: BTreeMap<Arc<str>, u32>,
    /// Nodes and dependencies made so far.
    made: usize,
    edges: usize,
    edges_max: usize,
}

impl<'a> Flattener<'a> {
    /// For the programs of this workload, whose indices must be right ([`crate::validate()`] looks at them first).
    pub fn new(workload: &'a Workload) -> Self {
        let blocks = vec![None; workload.blocks.len()];
        Flattener { workload, blocks, streams: Vec::new(), numbers: BTreeMap::new(), made: 0, edges: 0, edges_max: EDGES_MAX }
    }

    /// A program without calls.
    ///
    /// # Errors
    /// It is larger than [`NODES_MAX`] nodes, or its blocks call each other without end.
    pub fn flat(&mut self, nodes: &[Node]) -> Result<Flat, TooLarge> {
        let template = self.template(None, nodes, 0)?;
        let mut last: BTreeMap<u32, u32> = BTreeMap::new();
        let mut flat = Flat {
            nodes: Vec::with_capacity(template.steps.len()),
            streams: Vec::new(),
            after: Vec::with_capacity(template.edges + template.steps.len()),
            starts: vec![0],
        };
        let mut sequences: BTreeMap<u32, u32> = BTreeMap::new();
        // Numbers of all programs' streams become those of this one's.
        let mut numbers: BTreeMap<u32, u32> = BTreeMap::new();
        for (index, (written, stream)) in template.steps.iter().enumerate() {
            let stream = stream.map(|stream| {
                *numbers.entry(stream).or_insert_with(|| {
                    flat.streams.push(self.streams[stream as usize].clone());
                    flat.streams.len() as u32 - 1
                })
            });
            flat.after.extend(&template.after[index]);
            if let Some(before) = stream.and_then(|stream| last.insert(stream, index as u32))
                && !template.after[index].contains(&before)
            {
                flat.after.push(before);
            }
            flat.starts.push(flat.after.len() as u32);
            let step = match &self.node(nodes, *written).action {
                Action::Compute(time) => Step::Compute(*time),
                Action::Collective(collective) => {
                    let sequence = sequences.entry(collective.group).or_default();
                    *sequence += 1;
                    Step::Collective(*collective, *sequence - 1)
                }
                Action::Send(transfer) => Step::Send(*transfer),
                Action::Receive(transfer) => Step::Receive(*transfer),
                Action::Call { .. } => unreachable!("calls are no steps of a template"),
            };
            flat.nodes.push(FlatNode { step, stream, written: *written });
        }
        Ok(flat)
    }

    /// Dependencies that one more list of nodes may have. Blocks are kept, and programs are, so that all of them count together.
    fn edges_left(&self) -> usize {
        self.edges_max.saturating_sub(self.edges)
    }

    fn node<'n>(&'n self, nodes: &'n [Node], written: Written) -> &'n Node {
        match written.block {
            Some(block) => &self.workload.blocks[block as usize].nodes[written.index as usize],
            None => &nodes[written.index as usize],
        }
    }

    fn stream(&mut self, name: &Arc<str>) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.streams.len() as u32;
        self.streams.push(name.clone());
        self.numbers.insert(name.clone(), number);
        number
    }

    fn block(&mut self, block: u32, depth: u32) -> Result<Template, TooLarge> {
        if depth >= DEPTH_MAX {
            return Err(TooLarge(format!("expected at most {DEPTH_MAX} blocks within blocks, and none within itself")));
        }
        if let Some(template) = &self.blocks[block as usize] {
            return Ok(template.clone());
        }
        let workload = self.workload;
        let template = self.template(Some(block), &workload.blocks[block as usize].nodes, depth)?;
        self.blocks[block as usize] = Some(template.clone());
        Ok(template)
    }

    fn template(&mut self, block: Option<u32>, nodes: &[Node], depth: u32) -> Result<Template, TooLarge> {
        let mut template = Template::default();
        // By node of the list: the flat nodes that it begins with, and those that end it.
        let mut ends: Vec<(Vec<u32>, Vec<u32>)> = Vec::with_capacity(nodes.len());
        for (index, node) in nodes.iter().enumerate() {
            if let Action::Call { block, times, overlap } = node.action {
                let inner = self.block(block, depth + 1)?;
                ends.push(template.inline(&inner, (times, overlap), self.edges_left())?);
            } else {
                let stream = node.stream.as_ref().map(|name| self.stream(name));
                let place = template.steps.len() as u32;
                template.steps.push((Written { block, index: index as u32 }, stream));
                template.after.push(Vec::new());
                ends.push((vec![place], vec![place]));
            }
            // Blocks are kept, so that all of them count together.
            if self.made.saturating_add(template.steps.len()) > NODES_MAX {
                return Err(TooLarge(format!("expected at most {NODES_MAX} nodes in all, with blocks counted as often as they are done")));
            }
        }
        self.made += template.steps.len();
        for (node, (begin, _)) in nodes.iter().zip(&ends) {
            for before in &node.after {
                let end = &ends[*before as usize].1;
                template.grow(begin.len().saturating_mul(end.len()), self.edges_left())?;
                begin.iter().for_each(|place| template.after[*place as usize].extend(end));
            }
        }
        self.edges = self.edges.saturating_add(template.edges);
        let mut is_sink = vec![true; template.steps.len()];
        template.after.iter().flatten().for_each(|before| is_sink[*before as usize] = false);
        template.roots = (0..template.steps.len() as u32).filter(|place| template.after[*place as usize].is_empty()).collect();
        template.sinks = (0..template.steps.len() as u32).filter(|place| is_sink[*place as usize]).collect();
        Ok(template)
    }
}

impl Template {
    fn grow(&mut self, edges: usize, left: usize) -> Result<(), TooLarge> {
        self.edges = self.edges.saturating_add(edges);
        if self.edges > left { Err(TooLarge(format!("expected at most {EDGES_MAX} dependencies in all"))) } else { Ok(()) }
    }

    /// Puts a block at the end so many times; gives what the call begins with and what ends it. Repetitions that overlap wait for the order of
    /// streams only, so each of them may begin with the call, and each of them may end last.
    fn inline(&mut self, inner: &Template, (times, overlap): (u32, bool), left: usize) -> Result<(Vec<u32>, Vec<u32>), TooLarge> {
        let shifted = |places: &[u32], by: usize| -> Vec<u32> { places.iter().map(|place| place + by as u32).collect() };
        let more = inner.steps.len().saturating_mul(times as usize);
        if self.steps.len().saturating_add(more) > NODES_MAX {
            return Err(TooLarge(format!("expected at most {NODES_MAX} nodes in all, with blocks counted as often as they are done")));
        }
        let (mut begin, mut end) = (Vec::new(), Vec::new());
        for time in 0..times {
            let base = self.steps.len();
            self.grow(inner.edges, left)?;
            self.steps.extend(&inner.steps);
            self.after.extend(inner.after.iter().map(|places| shifted(places, base)));
            let roots = shifted(&inner.roots, base);
            let sinks = shifted(&inner.sinks, base);
            if overlap {
                begin.extend(roots);
                end.extend(sinks);
                continue;
            }
            if time == 0 {
                begin = roots;
            } else {
                self.grow(roots.len().saturating_mul(end.len()), left)?;
                roots.iter().for_each(|root| self.after[*root as usize].extend(&end));
            }
            end = sinks;
        }
        Ok((begin, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Block, Hosts};

    fn compute(id: &str) -> Node {
        Node::new(id, Action::Compute(Duration::from_ns(1)))
    }

    fn workload(blocks: Vec<Block>) -> Workload {
        let (name, source) = (String::new(), String::new());
        Workload { name, ranks: 1, hosts: Hosts::Each(1), iterations: 1, source, groups: vec![], blocks, programs: vec![] }
    }

    #[test]
    fn calls_run_one_after_the_other_and_streams_keep_their_order() {
        let block = Block { name: "b".into(), nodes: vec![compute("x"), compute("y").on("other").after([0])], line: 0 };
        let workload = workload(vec![block]);
        let call = Node::new("c", Action::Call { block: 0, times: 2, overlap: false }).after([0]);
        let flat = Flattener::new(&workload).flat(&[compute("a").unordered(), call, compute("z").unordered().after([1])]).unwrap();
        // a, then x0 y0 x1 y1, then z.
        let after: Vec<Vec<u32>> = (0..6).map(|node| flat.after(node).to_vec()).collect();
        assert_eq!(after, [vec![], vec![0], vec![1], vec![2, 1], vec![3, 2], vec![4]]);
        assert_eq!(flat.order().unwrap(), [0, 1, 2, 3, 4, 5]);
        assert_eq!(flat.nodes[3].written, Written { block: Some(0), index: 0 });
    }

    #[test]
    fn repetitions_that_overlap_wait_for_their_streams_only() {
        let block = Block { name: "b".into(), nodes: vec![compute("x"), compute("y").on("other").after([0])], line: 0 };
        let workload = workload(vec![block]);
        let call = Node::new("c", Action::Call { block: 0, times: 3, overlap: true }).after([0]);
        let flat = Flattener::new(&workload).flat(&[compute("a").unordered(), call, compute("z").unordered().after([1])]).unwrap();
        // a, then x0 y0 x1 y1 x2 y2, then z. x1 waits for a and x0, which is before it in its stream, but not for y0; z waits for all three y.
        let after: Vec<Vec<u32>> = (0..8).map(|node| flat.after(node).to_vec()).collect();
        let expected: [&[u32]; 8] = [&[], &[0], &[1], &[0, 1], &[3, 2], &[0, 3], &[5, 4], &[2, 4, 6]];
        assert_eq!(after, expected);
    }

    #[test]
    fn streams_are_those_of_the_program_and_dependencies_of_all_count_together() {
        let workload = workload(vec![]);
        let mut flattener = Flattener::new(&workload);
        flattener.edges_max = 3;
        let chain = [compute("a").on("x"), compute("b").on("y").after([0]), compute("c").on("x").after([1])];
        let first = flattener.flat(&chain).unwrap();
        let second = flattener.flat(&[compute("a").on("z"), compute("b").on("y").after([0])]).unwrap();
        let names = |flat: &Flat| -> Vec<String> {
            flat.nodes.iter().map(|node| flat.streams[node.stream.unwrap() as usize].to_string()).collect()
        };
        assert_eq!((names(&first), first.streams.len()), (vec!["x".into(), "y".into(), "x".into()], 2));
        assert_eq!((names(&second), second.streams.len()), (vec!["z".into(), "y".into()], 2));
        assert!(flattener.flat(&chain).unwrap_err().0.contains("dependencies in all"));
    }

    #[test]
    fn a_cycle_is_found_and_its_nodes_named() {
        let workload = workload(vec![]);
        let nodes = [compute("a").unordered(), compute("b").unordered().after([2]), compute("c").unordered().after([1, 0])];
        let mut cycle = Flattener::new(&workload).flat(&nodes).unwrap().order().unwrap_err();
        cycle.sort_unstable();
        assert_eq!(cycle, [1, 2]);
    }

    #[test]
    fn what_does_not_end_or_is_too_large_is_refused() {
        let call = |block, times| Node::new("c", Action::Call { block, times, overlap: false });
        let itself = workload(vec![Block { name: "b".into(), nodes: vec![call(0, 1)], line: 0 }]);
        assert!(Flattener::new(&itself).flat(&[call(0, 1)]).unwrap_err().0.contains("none within itself"));
        let nested: Vec<Block> = (0..5)
            .map(|at| {
                let nodes = if at == 0 { vec![compute("x")] } else { vec![call(at - 1, 1_000)] };
                Block { name: format!("b{at}").into(), nodes, line: 0 }
            })
            .collect();
        assert!(Flattener::new(&workload(nested)).flat(&[call(4, u32::MAX)]).unwrap_err().0.contains("nodes"));
    }
}
