//! From a simulation that has not begun to those of its parts.

use std::sync::Arc;

use fanin_core::{NodeId, Wire, Worker};

use super::cutting::Cutting;
use super::mailbox::Outbox;
use crate::engine::setup::mean_gap_ps;
use crate::engine::{NONE, Simulation, WorkerState};
use crate::link::link_flags;
use crate::metrics::WorkerResult;
use crate::net::Net;
use crate::queue::EventQueue;
use crate::vectors::Simulated;

/// A simulation whose nodes are in its parts; it takes in what comes out.
pub(super) struct Split<N: Worker<P>, P: Simulated + ?Sized> {
    pub whole: Simulation<N, P>,
    pub parts: Vec<Simulation<N, P>>,
}

impl<N, P> Split<N, P>
where
    N: Worker<P> + Clone,
    N::Header: Wire + Default,
    P: Simulated + ?Sized,
    P::Vectors: Clone,
{
    pub fn new(mut whole: Simulation<N, P>, cutting: &Cutting) -> Self {
        let part_of: Arc<[u16]> = cutting.part_of.clone().into();
        let mut parts: Vec<_> = (0..cutting.parts).map(|part| empty(&whole, cutting, &part_of, part)).collect();
        // By part and number of its node: the number that the node had. Nodes of a part have numbers in the same order, but smaller ones.
        let mut numbers = vec![Vec::new(); cutting.parts];
        let place = |at: u32| usize::from(cutting.part_of[at as usize]);
        // By number in the whole: number in its part.
        let mut local = Vec::with_capacity(whole.slots.len());
        for (number, (slot, fresh)) in whole.slots.drain(..).zip(whole.fresh.drain(..)).enumerate() {
            let part = place(slot.post.at);
            local.push(parts[part].slots.len() as u32);
            numbers[part].push(number as u32);
            parts[part].slots.push(slot);
            parts[part].fresh.push(fresh);
        }
        let each_node = whole.lookup.len() / cutting.part_of.len().max(1);
        for (index, &number) in whole.lookup.iter().enumerate().filter(|(_, number)| **number != NONE) {
            parts[place((index / each_node) as u32)].lookup[index] = local[number as usize];
        }
        for (host, slots) in whole.at_host.iter().enumerate() {
            parts[place(host as u32)].at_host[host] = slots.iter().map(|number| local[*number as usize]).collect();
        }
        for (job, nodes) in whole.shared_by.iter().enumerate() {
            for &number in nodes {
                let part = numbers.iter().position(|numbers| numbers.binary_search(&number).is_ok());
                part.into_iter().for_each(|part| parts[part].shared_by[job].push(local[number as usize]));
            }
        }
        split_workers(&mut whole, &mut parts, &local, place);
        for (part, numbers) in parts.iter_mut().zip(numbers) {
            part.begin_part();
            if let Some(outbox) = &mut part.net.outbox {
                outbox.numbers = numbers;
            }
        }
        Split { whole, parts }
    }
}

/// Workers, when they begin, and the nodes that jobs share.
fn split_workers<N, P>(whole: &mut Simulation<N, P>, parts: &mut [Simulation<N, P>], local: &[u32], place: impl Fn(u32) -> usize)
where
    N: Worker<P> + Clone,
    N::Header: Wire + Default,
    P: Simulated + ?Sized,
{
    for state in whole.workers.drain(..) {
        let home = place(state.result.host);
        for part in &mut *parts {
            part.workers.push(WorkerState::elsewhere(state.job, state.rank, state.result.host));
        }
        let part = &mut parts[home];
        part.workers_running += 1;
        part.running_in[usize::from(state.job)] += 1;
        let last = part.workers.len() - 1;
        part.workers[last] = WorkerState { slot: local[state.slot as usize], ..state };
    }
    for (time, worker) in whole.starts.drain(..) {
        let home = parts.iter_mut().find(|part| part.workers[worker as usize].slot != NONE);
        home.into_iter().for_each(|part| part.starts.push((time, worker)));
    }
}

/// A part without nodes yet.
fn empty<N, P>(whole: &Simulation<N, P>, cutting: &Cutting, part_of: &Arc<[u16]>, part: usize) -> Simulation<N, P>
where
    N: Worker<P> + Clone,
    N::Header: Wire + Default,
    P: Simulated + ?Sized,
    P::Vectors: Clone,
{
    let (topology, scenario, ids) = (Arc::clone(&whole.net.topology), whole.scenario.clone(), whole.net.ids);
    let gap_ps = mean_gap_ps(&topology, &scenario).saturating_mul(cutting.parts as u64);
    let queue = EventQueue::new(gap_ps, ids.wakes + whole.net.links.len() as u32);
    let mut net = Net::with_routes(topology, whole.net.channels.clone(), &scenario, ids, queue, Some(&whole.net.routes));
    let is_here = |node: NodeId| usize::from(cutting.part_of[node.index()]) == part;
    // Packets to hosts are looked at where sources learn of their arrival.
    let is_looked_at = |to: u32| !whole.sources.is_empty() && whole.net.topology.map.is_host(NodeId(to));
    for link in net.links.iter_mut().filter(|link| is_here(link.from) && (!is_here(NodeId(link.to)) || is_looked_at(link.to))) {
        link.flags |= link_flags::CUT;
    }
    for (link, of_whole) in net.links.iter_mut().zip(&whole.net.links) {
        link.flags |= of_whole.flags & link_flags::COUNTED;
    }
    let (first_switch, switches) = (net.topology.map.hosts(), net.slots.len() as u32);
    let own_switches = || (0..switches).filter(|switch| is_here(NodeId(first_switch + switch))).collect();
    let is_link_here = |cable: u32| is_here(whole.net.topology.links[cable as usize].from);
    net.watcher = whole.net.watcher.as_ref().map(|watcher| Box::new(watcher.of_part(is_link_here, own_switches())));
    (net.series, net.memory) = (whole.net.series.clone(), whole.net.memory.clone());
    net.shared_room_ps.clone_from(&whole.net.shared_room_ps);
    // Every change of memory is noted.
    net.watch_ps = 0;
    net.outbox = Some(Box::new(Outbox::new(Arc::clone(part_of), (part, cutting.parts), whole.sources.len(), ids.timers)));
    whole.without_nodes(net, scenario)
}

impl WorkerState {
    /// A worker of another part.
    fn elsewhere(job: u16, rank: u32, host: u32) -> Self {
        WorkerState {
            slot: NONE,
            job,
            rank,
            next_operation: 0,
            finished_elements: 0,
            result: WorkerResult { host, operations: Vec::new() },
            done: true,
            due: false,
        }
    }
}
