//! What comes out of parts, put together.

use fanin_core::{NodeId, Wire, Worker};

use super::Again;
use super::cutting::Cutting;
use super::memory::Peaks;
use super::splitting::Split;
use crate::engine::{NONE, Simulation};
use crate::metrics::{Ended, MemorySampler, RunResult, SlotResult, Verdict};
use crate::series::Recorder;
use crate::vectors::{Simulated, Vectors};
use crate::watch::{Watched, gather};

/// Puts together what has come out by `end_ps`.
///
/// # Errors
/// [`Again`] where something went wrong, which one core tells in the order in which it happens.
pub(super) fn merge<N, P>(split: Split<N, P>, cutting: &Cutting, peaks: &Peaks, (ended, end_ps): (Ended, u64)) -> Result<RunResult, Again>
where
    N: Worker<P> + Clone,
    N::Header: Wire + Default,
    P: Simulated + ?Sized,
{
    let Split { mut whole, mut parts, .. } = split;
    let looked_at = LookedAt::take(&mut whole, &mut parts, end_ps)?;
    if parts.iter().any(|part| part.vectors.verdict().wrong > 0 || !part.net.broken.is_empty()) {
        return Err(Again("something is wrong"));
    }
    let (mut verdict, mut beginnings) = (Verdict::default(), Vec::new());
    whole.net.now = end_ps;
    whole.net.job_slots.fill(SlotResult::default());
    for part in &mut parts {
        whole.add_part(part, &mut verdict);
        let (to, from) = (&mut whole.net, &mut part.net);
        to.counters.add(&from.counters);
        to.tallies.iter_mut().zip(&from.tallies).for_each(|(to, from)| to.add(from));
        to.packets_marked += from.packets_marked;
        to.packet_hops += from.packet_hops;
        for (to, from) in to.job_slots.iter_mut().zip(&mut from.job_slots) {
            from.advance(end_ps);
            to.add(from);
        }
        if let Some(outbox) = from.outbox.take() {
            whole.events -= outbox.beginnings.len() as u64;
            beginnings.extend(outbox.beginnings);
        }
    }
    peaks.put(&mut whole.net.job_slots);
    beginnings.sort_unstable();
    beginnings.dedup();
    whole.events += beginnings.len() as u64;
    take_from_homes(&mut whole, &mut parts, cutting);
    let workers: Vec<usize> = whole.scenario.jobs.iter().map(|job| job.start.len()).collect();
    let mut result = whole.result(ended, verdict);
    result.watched = looked_at.watched;
    result.series = looked_at.series.map_or_else(Vec::new, |recorder| recorder.rows(&workers));
    Ok(result)
}

/// What somebody wanted to see while the parts ran.
struct LookedAt {
    series: Option<Box<Recorder>>,
    watched: Option<Watched>,
}

impl LookedAt {
    /// The last looks at all parts, which are then put together; memory over time comes to the whole.
    fn take<N, P>(whole: &mut Simulation<N, P>, parts: &mut [Simulation<N, P>], end_ps: u64) -> Result<Self, Again>
    where
        N: Worker<P> + Clone,
        N::Header: Wire + Default,
        P: Simulated + ?Sized,
    {
        const AGAIN: Again = Again("parts were looked at at different times");
        let (mut series, mut watchers, mut memory) = (None::<Box<Recorder>>, Vec::new(), Vec::new());
        for part in parts {
            part.sample_until(end_ps);
            if part.net.series.is_some() {
                part.sample_at(end_ps);
            }
            watchers.extend(part.take_watcher(end_ps).map(|watcher| *watcher));
            let sampler = std::mem::replace(&mut part.net.memory, MemorySampler::OFF);
            memory.push(sampler.finish(end_ps, &part.net.slots));
            match (&mut series, part.net.series.take()) {
                (Some(all), Some(recorder)) => all.add(&recorder).then_some(()).ok_or(AGAIN)?,
                (all, recorder) => *all = recorder,
            }
        }
        whole.net.series = None;
        whole.net.memory = MemorySampler::gather(memory.into_iter());
        let switches = whole.net.slots.len();
        let watched = whole.net.watcher.take().map(|watcher| gather(&watcher, watchers, switches).ok_or(AGAIN)).transpose()?;
        Ok(LookedAt { series, watched })
    }
}

/// What one part alone knows: links by their near ends, memory of switches, workers.
fn take_from_homes<N, P>(whole: &mut Simulation<N, P>, parts: &mut [Simulation<N, P>], cutting: &Cutting)
where
    N: Worker<P> + Clone,
    N::Header: Wire + Default,
    P: Simulated + ?Sized,
{
    let home = |node: NodeId| usize::from(cutting.part_of[node.index()]);
    for (number, link) in whole.net.links.iter_mut().enumerate() {
        std::mem::swap(link, &mut parts[home(link.from)].net.links[number]);
    }
    let hosts = whole.net.topology.map.hosts();
    for (number, slots) in (hosts..).zip(&mut whole.net.slots) {
        *slots = parts[home(NodeId(number))].net.slots[(number - hosts) as usize];
    }
    let mut workers: Vec<_> = parts.iter_mut().map(|part| std::mem::take(&mut part.workers).into_iter()).collect();
    while let Some(states) = workers.iter_mut().map(Iterator::next).collect::<Option<Vec<_>>>().filter(|states| !states.is_empty()) {
        whole.workers.extend(states.into_iter().find(|state| state.slot != NONE));
    }
}
