//! A workload run through with communication that takes no time: whether everybody gets to the end, and how long computing alone takes.

use std::collections::BTreeMap;

use crate::error::WorkloadError;
use crate::flat::{Flat, Lists, Step, node_name, written};
use crate::model::{Place, Workload};

/// Nodes of all ranks together at most; beyond that a workload is not run through.
pub const RUN_MAX: usize = 1 << 25;

/// What came out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Run {
    /// By rank: when it is done, in picoseconds.
    pub finished_ps: Vec<u64>,
}

/// Ends of transfers in the order of lists: the node, and its bytes.
type Ends = Vec<(u32, u64)>;

/// A meeting of the members of a group.
#[derive(Clone, Default)]
struct Meeting {
    waiting: Vec<u32>,
    last_ps: u64,
}

struct Through<'a> {
    workload: &'a Workload,
    flats: &'a [Flat],
    places: &'a [Vec<Option<Place>>],
    file: &'a str,
    /// By rank: its program, and where its nodes begin.
    program: Vec<u32>,
    base: Vec<u32>,
    /// By node of a rank: how much it still waits for, and when all that was done; then when it is done itself.
    pending: Vec<u32>,
    time_ps: Vec<u64>,
    /// By transfer: the other end's node.
    partner: BTreeMap<u32, u32>,
}

/// Pending of nodes that have begun, and that are done.
const BEGUN: u32 = u32::MAX - 1;
const DONE: u32 = u32::MAX;

/// Runs a workload through; `None` where it is too large.
///
/// # Errors
/// [`WorkloadError`]: a send without its receive, or ranks that wait for each other.
pub fn through(workload: &Workload, flats: &[Flat], places: &[Vec<Option<Place>>], file: &str) -> Result<Option<Run>, WorkloadError> {
    let program: Vec<u32> = workload.program_of_ranks().into_iter().map(|program| program.unwrap_or(0)).collect();
    let mut base = vec![0u32];
    let mut total = 0usize;
    for program in &program {
        total = total.saturating_add(flats[*program as usize].nodes.len());
        if total > RUN_MAX {
            return Ok(None);
        }
        base.push(total as u32);
    }
    let mut through =
        Through { workload, flats, places, file, program, base, pending: Vec::new(), time_ps: vec![0; total], partner: BTreeMap::new() };
    through.match_transfers()?;
    through.go()?;
    let finish = |rank: usize| {
        let (from, to) = (through.base[rank] as usize, through.base[rank + 1] as usize);
        through.time_ps[from..to].iter().copied().max().unwrap_or(0)
    };
    Ok(Some(Run { finished_ps: (0..workload.ranks as usize).map(finish).collect() }))
}

impl Through<'_> {
    fn flat(&self, rank: usize) -> &Flat {
        &self.flats[self.program[rank] as usize]
    }

    /// The rank and the index of a node of all.
    fn node(&self, global: u32) -> (usize, usize) {
        let rank = self.base.partition_point(|base| *base <= global) - 1;
        (rank, (global - self.base[rank]) as usize)
    }

    fn name(&self, global: u32) -> (String, u32) {
        let (rank, index) = self.node(global);
        let program = &self.workload.programs[self.program[rank] as usize];
        let at = self.flat(rank).nodes[index].written;
        (format!("rank {rank}, {}", node_name(self.workload, program, at)), written(self.workload, program, at).line)
    }

    fn error(&self, global: u32, what: &str) -> WorkloadError {
        let (name, line) = self.name(global);
        WorkloadError::new(self.file, format!("{name}: {what}")).at(u64::from(line))
    }

    /// The first send to a rank with a tag meets the first receive there.
    fn match_transfers(&mut self) -> Result<(), WorkloadError> {
        let mut ends: BTreeMap<(u32, u32, u32), [Ends; 2]> = BTreeMap::new();
        for rank in 0..self.workload.ranks {
            for (index, node) in self.flat(rank as usize).nodes.iter().enumerate() {
                let (transfer, is_receive) = match &node.step {
                    Step::Send(transfer) => (transfer, false),
                    Step::Receive(transfer) => (transfer, true),
                    _ => continue,
                };
                let global = self.base[rank as usize] + index as u32;
                let Some(peer) = transfer.peer.of(rank, self.workload.ranks) else {
                    return Err(self.error(global, &format!("expected another rank below {}", self.workload.ranks)));
                };
                let (from, to) = if is_receive { (peer, rank) } else { (rank, peer) };
                ends.entry((from, to, transfer.tag)).or_default()[usize::from(is_receive)].push((global, transfer.bytes));
            }
        }
        for ((from, to, tag), [sends, receives]) in ends {
            for number in 0..sends.len().max(receives.len()) {
                match (sends.get(number), receives.get(number)) {
                    (Some((send, sent)), Some((receive, received))) if sent == received => {
                        self.partner.insert(*send, *receive);
                        self.partner.insert(*receive, *send);
                    }
                    (Some((send, sent)), Some((_, received))) => {
                        return Err(self.error(*send, &format!("sends {sent} bytes with tag {tag}, of which rank {to} expects {received}")));
                    }
                    (Some((send, _)), None) => {
                        return Err(self.error(*send, &format!("sends with tag {tag} what rank {to} does not receive")));
                    }
                    (None, Some((receive, _))) => {
                        return Err(self.error(*receive, &format!("receives with tag {tag} what rank {from} does not send")));
                    }
                    (None, None) => {}
                }
            }
        }
        Ok(())
    }

    fn go(&mut self) -> Result<(), WorkloadError> {
        let successors: Vec<Lists> = self.flats.iter().map(Flat::successors).collect();
        let mut ready = Vec::new();
        for rank in 0..self.workload.ranks as usize {
            for index in 0..self.flat(rank).nodes.len() {
                let pending = self.flat(rank).after(index).len() as u32;
                if pending == 0 {
                    ready.push(self.base[rank] + index as u32);
                }
                self.pending.push(pending);
            }
        }
        let mut meetings: BTreeMap<(u32, u32, u32), Meeting> = BTreeMap::new();
        while let Some(global) = ready.pop() {
            self.pending[global as usize] = BEGUN;
            for (done, at_ps) in self.begin(global, &mut meetings) {
                self.time_ps[done as usize] = at_ps;
                self.pending[done as usize] = DONE;
                let (rank, index) = self.node(done);
                for successor in successors[self.program[rank] as usize].of(index) {
                    let successor = self.base[rank] + successor;
                    let time = &mut self.time_ps[successor as usize];
                    *time = (*time).max(at_ps);
                    self.pending[successor as usize] -= 1;
                    if self.pending[successor as usize] == 0 {
                        ready.push(successor);
                    }
                }
            }
        }
        self.all_done()
    }

    /// The nodes that are done now that this one has begun, and when.
    fn begin(&self, global: u32, meetings: &mut BTreeMap<(u32, u32, u32), Meeting>) -> Vec<(u32, u64)> {
        let (rank, index) = self.node(global);
        let now = self.time_ps[global as usize];
        match &self.flat(rank).nodes[index].step {
            Step::Compute(time) => vec![(global, now.saturating_add(time.as_ps()))],
            Step::Collective(collective, number) => {
                let Some(place) = self.places[collective.group as usize][rank] else { return Vec::new() };
                let key = (collective.group, place.instance, *number);
                let meeting = meetings.entry(key).or_default();
                meeting.waiting.push(global);
                meeting.last_ps = meeting.last_ps.max(now);
                if meeting.waiting.len() < self.workload.groups[collective.group as usize].members.size(place.instance) as usize {
                    return Vec::new();
                }
                let last_ps = meeting.last_ps;
                meetings.remove(&key).unwrap_or_default().waiting.into_iter().map(|node| (node, last_ps)).collect()
            }
            Step::Send(_) => {
                let mut done = vec![(global, now)];
                if let Some(receive) = self.partner.get(&global).filter(|receive| self.pending[**receive as usize] == BEGUN) {
                    done.push((*receive, now.max(self.time_ps[*receive as usize])));
                }
                done
            }
            Step::Receive(_) => match self.partner.get(&global).filter(|send| self.pending[**send as usize] == DONE) {
                Some(send) => vec![(global, now.max(self.time_ps[*send as usize]))],
                None => Vec::new(),
            },
        }
    }

    fn all_done(&self) -> Result<(), WorkloadError> {
        let stuck: Vec<u32> =
            self.pending.iter().enumerate().filter(|(_, pending)| **pending == BEGUN).map(|(node, _)| node as u32).take(3).collect();
        let Some(first) = stuck.first() else { return Ok(()) };
        let others: Vec<String> = stuck[1..].iter().map(|node| self.name(*node).0).collect();
        let others = if others.is_empty() { String::new() } else { format!("; so do {}", others.join("; ")) };
        Err(self.error(*first, &format!("waits for ever: ranks wait for each other{others}")))
    }
}
