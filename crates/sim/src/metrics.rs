//! What comes out of a run.

use fanin_core::{DropReason, Duration, Failure, Histogram, Instant, NetworkMap, NodeId, Rank, RetransmitReason, Tally};

use crate::programs::ProgramResult;
use crate::series::SeriesRow;
use crate::watch::Watched;

/// One operation at one worker.
#[derive(Clone, PartialEq, Debug)]
pub struct OperationResult {
    /// When the worker submitted it.
    pub submitted: Instant,
    /// When it ended; `None` where the run ended first.
    pub ended: Option<Instant>,
    /// Why it failed, if it did.
    pub failure: Option<Failure>,
    /// Ranks whose contributions its result lacks, where a system goes on without those that are gone; in ascending order.
    pub without: Vec<Rank>,
}

impl OperationResult {
    /// Whether it ended with a result.
    pub fn is_complete(&self) -> bool {
        self.ended.is_some() && self.failure.is_none()
    }
}

/// One worker.
#[derive(Clone, PartialEq, Debug)]
pub struct WorkerResult {
    /// The host that it ran on.
    pub host: u32,
    /// Its operations, in order.
    pub operations: Vec<OperationResult>,
}

/// One job.
#[derive(Clone, PartialEq, Debug)]
pub struct JobResult {
    /// By rank.
    pub workers: Vec<WorkerResult>,
    /// Bytes of each operation's vector.
    pub message_bytes: Vec<u64>,
    /// When the first worker began, computing included.
    pub begun: Instant,
    /// When the job crashed, if it did.
    pub crashed: Option<Instant>,
    /// Ranks that have died of a job that goes on without them: what these have not ended nobody waits for. Whoever runs the job says so.
    pub gone: Vec<Rank>,
}

impl JobResult {
    /// Ranks that operation `operation` was completed without, as those say that completed it and are not lacked themselves; in ascending
    /// order.
    pub fn without(&self, operation: usize) -> &[Rank] {
        let completed = |worker: &'_ WorkerResult| worker.operations.get(operation).is_some_and(|result| result.is_complete());
        let says =
            |(rank, worker): (u32, &'_ WorkerResult)| completed(worker) && !worker.operations[operation].without.contains(&Rank(rank));
        // Who was left out may have completed it among all before the others had to begin anew: the longest list is the last one.
        let lists = (0..).zip(&self.workers).filter(|one| says(*one)).map(|(_, worker)| worker.operations[operation].without.as_slice());
        lists.max_by_key(|list| list.len()).unwrap_or(&[])
    }

    /// Those that must have completed operation `operation`: all but those that the others went on without, and but those that have died and
    /// had not ended it. What the latter had contributed may be in it all the same.
    pub fn there(&self, operation: usize) -> impl Iterator<Item = &WorkerResult> {
        let without = self.without(operation);
        let ended = move |worker: &WorkerResult| worker.operations.get(operation).is_some_and(|result| result.ended.is_some());
        let counts = move |rank: Rank, worker: &WorkerResult| !without.contains(&rank) && (ended(worker) || !self.gone.contains(&rank));
        (0..).zip(&self.workers).filter(move |(rank, worker)| counts(Rank(*rank), worker)).map(|(_, worker)| worker)
    }

    /// Time from the first submission to the last end of operation `operation`; `None` unless all workers completed it but those that the
    /// others went on without.
    pub fn completion(&self, operation: usize) -> Option<Duration> {
        let mut first = Instant::FAR_FUTURE;
        let mut last = Instant::ZERO;
        for worker in self.there(operation) {
            let result = worker.operations.get(operation)?;
            if result.failure.is_some() {
                return None;
            }
            first = first.min(result.submitted);
            last = last.max(result.ended?);
        }
        // Without anybody nothing is complete.
        (first <= last).then(|| last.since(first))
    }

    /// Goodput of operation `operation` in Gb/s: bytes of the user's vector over the completion time of the slowest worker.
    pub fn goodput_gbps(&self, operation: usize) -> Option<f64> {
        let time = self.completion(operation)?;
        let bits = *self.message_bytes.get(operation)? as f64 * 8.0;
        Some(if time == Duration::ZERO { 0.0 } else { bits / (time.as_ps() as f64 / 1e12) / 1e9 })
    }

    /// Whether every worker completed every operation but those that the others went on without.
    pub fn is_complete(&self) -> bool {
        (0..self.message_bytes.len()).all(|operation| self.completion(operation).is_some())
    }

    /// The first failure, by rank.
    pub fn first_failure(&self) -> Option<(u32, &Failure)> {
        self.workers.iter().enumerate().find_map(|(rank, worker)| {
            worker.operations.iter().find_map(|operation| operation.failure.as_ref()).map(|failure| (rank as u32, failure))
        })
    }
}

/// One link over the whole run.
#[derive(Clone, PartialEq, Debug)]
pub struct LinkResult {
    /// The sending node.
    pub from: u32,
    /// The receiving node.
    pub to: u32,
    /// Bytes sent, frame overhead included.
    pub bytes: u64,
    /// Packets sent.
    pub packets: u64,
    /// Share of the run in which the link was sending.
    pub utilization: f64,
    /// The longest queue, in bytes.
    pub queue_bytes_peak: u64,
    /// Packets that found the queue full.
    pub packets_dropped: u64,
}

/// Memory in use at one switch, counted by its nodes' [`fanin_core::Event::SlotTaken`] and `SlotFreed`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SlotResult {
    /// Payload bytes in use at the end.
    pub bytes: u64,
    /// The most at any time.
    pub bytes_peak: u64,
    /// Slots in use at the end.
    pub slots: u64,
    /// The most at any time.
    pub slots_peak: u64,
    /// Slots taken over the whole run.
    pub taken: u64,
    /// Bytes in use, integrated over time: byte-picoseconds.
    pub byte_ps: u128,
    /// When slots were taken, summed over all that were: with `freed_at_ps` how long they were held, whichever was freed when.
    taken_at_ps: u128,
    /// When slots were freed, summed likewise.
    freed_at_ps: u128,
    /// Up to when the integral goes.
    pub(crate) until_ps: u64,
}

impl SlotResult {
    /// Carries the integral on to `now_ps`.
    #[inline]
    pub(crate) fn advance(&mut self, now_ps: u64) {
        let span = now_ps - self.until_ps;
        self.byte_ps += u128::from(self.bytes) * u128::from(span);
        self.until_ps = now_ps;
    }

    /// Bytes in use, mean over the run.
    pub fn bytes_mean(&self) -> f64 {
        if self.until_ps == 0 { 0.0 } else { self.byte_ps as f64 / self.until_ps as f64 }
    }

    /// Slots in use, mean over the run.
    pub fn slots_mean(&self) -> f64 {
        if self.until_ps == 0 { 0.0 } else { self.held_ps() as f64 / self.until_ps as f64 }
    }

    /// How long all slots that were taken have been held together, in picoseconds; those still in use until the end of the run. From the
    /// times of single events, not from how many slots were in use, so that one can be held against the other.
    pub fn held_ps(&self) -> u128 {
        self.freed_at_ps + u128::from(self.slots) * u128::from(self.until_ps) - self.taken_at_ps
    }

    #[inline]
    pub(crate) fn take(&mut self, now_ps: u64, bytes: u32) {
        self.advance(now_ps);
        self.taken += 1;
        self.taken_at_ps += u128::from(now_ps);
        self.bytes += u64::from(bytes);
        self.slots += 1;
        self.bytes_peak = self.bytes_peak.max(self.bytes);
        self.slots_peak = self.slots_peak.max(self.slots);
    }

    #[inline]
    pub(crate) fn free(&mut self, now_ps: u64, bytes: u32) {
        self.advance(now_ps);
        // A node that comes back without its state may free what it does not have.
        self.freed_at_ps += u128::from(now_ps) * u128::from(self.slots > 0);
        self.bytes = self.bytes.saturating_sub(u64::from(bytes));
        self.slots = self.slots.saturating_sub(1);
    }

    /// Adds those of another part of the network; both go up to the same time. What was the most at any time is not known by that.
    pub(crate) fn add(&mut self, other: &SlotResult) {
        self.bytes += other.bytes;
        self.slots += other.slots;
        self.taken += other.taken;
        self.byte_ps += other.byte_ps;
        self.taken_at_ps += other.taken_at_ps;
        self.freed_at_ps += other.freed_at_ps;
        self.until_ps = other.until_ps;
    }

    /// The switch has lost everything.
    pub(crate) fn lose_all(&mut self, now_ps: u64) {
        self.lose(now_ps, self.slots, self.bytes);
    }

    /// So many slots are lost at once.
    pub(crate) fn lose(&mut self, now_ps: u64, slots: u64, bytes: u64) {
        self.advance(now_ps);
        let slots = slots.min(self.slots);
        self.freed_at_ps += u128::from(now_ps) * u128::from(slots);
        self.slots -= slots;
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// Memory in use at all switches at one time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemorySample {
    /// When.
    pub at: Instant,
    /// Payload bytes in use at the switch that has most.
    pub bytes_max: u64,
    /// Payload bytes in use at all switches together.
    pub bytes_total: u64,
}

/// Samples of memory that are kept at most. Where there would be more, every second one is left out, however short the interval is.
const SAMPLES_MAX: usize = 1 << 18;

/// Takes samples of memory at a fixed interval. It costs no events: a sample is taken when memory next changes after its time has come,
/// and until then nothing has changed.
#[derive(Clone, Debug)]
pub(crate) struct MemorySampler {
    interval_ps: u64,
    /// Time of the next sample; never without an interval.
    pub next_ps: u64,
    samples: Vec<MemorySample>,
}

impl MemorySampler {
    pub const OFF: MemorySampler = MemorySampler { interval_ps: u64::MAX, next_ps: u64::MAX, samples: Vec::new() };

    pub fn new(interval: Duration) -> Self {
        MemorySampler { interval_ps: interval.as_ps().max(1), next_ps: 0, samples: Vec::new() }
    }

    /// Takes all samples that are due before memory changes at `now_ps`.
    #[cold]
    pub fn sample(&mut self, now_ps: u64, slots: &[SlotResult]) {
        let bytes_max = slots.iter().map(|slot| slot.bytes).max().unwrap_or(0);
        let bytes_total = slots.iter().map(|slot| slot.bytes).sum();
        while self.next_ps <= now_ps {
            if self.samples.len() >= SAMPLES_MAX {
                self.leave_out_every_second();
            }
            self.samples.push(MemorySample { at: Instant::from_ps(self.next_ps), bytes_max, bytes_total });
            self.next_ps = self.next_ps.saturating_add(self.interval_ps);
        }
    }

    /// The interval is twice as long from now on, and as if it had always been.
    fn leave_out_every_second(&mut self) {
        self.interval_ps = self.interval_ps.saturating_mul(2);
        let mut place = 0;
        self.samples.retain(|_| {
            place += 1;
            place % 2 == 1
        });
        self.next_ps = self.samples.last().map_or(0, |last| last.at.as_ps().saturating_add(self.interval_ps));
    }

    /// What parts of a network have found, put together: each when it has ended, with its own switches.
    pub fn gather(parts: impl Iterator<Item = Vec<MemorySample>>) -> Self {
        let mut samples: Vec<MemorySample> = Vec::new();
        for part in parts {
            if samples.is_empty() {
                samples = part;
                continue;
            }
            for (sample, other) in samples.iter_mut().zip(part) {
                sample.bytes_max = sample.bytes_max.max(other.bytes_max);
                sample.bytes_total += other.bytes_total;
            }
        }
        MemorySampler { samples, ..MemorySampler::OFF }
    }

    pub fn finish(mut self, end_ps: u64, slots: &[SlotResult]) -> Vec<MemorySample> {
        if self.next_ps <= end_ps {
            self.sample(end_ps, slots);
        }
        self.samples
    }
}

/// What a job's nodes have counted ([`Tally`]), by how far they are from hosts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tallies {
    counts: [[u64; Tally::ALL.len()]; Tallies::LEVELS.len()],
    /// How long workers have waited for blocks.
    pub block_times: Histogram,
}

impl Tallies {
    /// Hosts, switches next to hosts, switches next to those, and all others.
    pub const LEVELS: [&'static str; 4] = ["host", "leaf", "spine", "core"];

    /// The level of each node of a network.
    pub fn levels(map: &NetworkMap) -> Vec<u8> {
        let highest = Self::LEVELS.len() as u8 - 1;
        let mut levels: Vec<u8> = (0..map.nodes()).map(|node| if map.is_host(NodeId(node)) { 0 } else { highest }).collect();
        for level in 1..highest {
            for switch in map.switches() {
                let is_below = |neighbour: &fanin_core::map::Neighbour| levels[neighbour.node.index()] < level;
                if levels[switch.index()] > level && map.neighbours(switch).iter().any(is_below) {
                    levels[switch.index()] = level;
                }
            }
        }
        levels
    }

    #[inline]
    pub(crate) fn count(&mut self, level: u8, tally: Tally) {
        self.counts[usize::from(level)][tally.index()] += 1;
    }

    /// The count of all nodes.
    pub fn total(&self, tally: Tally) -> u64 {
        self.counts.iter().map(|counts| counts[tally.index()]).sum()
    }

    /// The count at a level, by its place in [`Tallies::LEVELS`].
    pub fn at(&self, level: usize, tally: Tally) -> u64 {
        self.counts[level][tally.index()]
    }

    /// Adds those of another job.
    pub fn add(&mut self, other: &Tallies) {
        self.counts.iter_mut().flatten().zip(other.counts.iter().flatten()).for_each(|(to, from)| *to += from);
        self.block_times.merge(&other.block_times);
    }
}

/// Counters by reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counters {
    drops: Vec<u64>,
    retransmissions: Vec<u64>,
    /// By generation, from 1 on.
    begun_anew: Vec<u64>,
}

impl Default for Counters {
    fn default() -> Self {
        Counters { drops: vec![0; DropReason::ALL.len()], retransmissions: vec![0; RetransmitReason::ALL.len()], begun_anew: Vec::new() }
    }
}

impl Counters {
    #[inline]
    pub(crate) fn drop(&mut self, reason: DropReason) {
        self.drops[reason.index()] += 1;
    }

    #[inline]
    pub(crate) fn retransmit(&mut self, reason: RetransmitReason) {
        self.retransmissions[reason.index()] += 1;
    }

    #[cold]
    pub(crate) fn begin_anew(&mut self, generation: u8) {
        let place = usize::from(generation.max(1)) - 1;
        if self.begun_anew.len() <= place {
            self.begun_anew.resize(place + 1, 0);
        }
        self.begun_anew[place] += 1;
    }

    /// Adds those of another part of the network.
    pub(crate) fn add(&mut self, other: &Counters) {
        self.drops.iter_mut().zip(&other.drops).for_each(|(to, from)| *to += from);
        self.retransmissions.iter_mut().zip(&other.retransmissions).for_each(|(to, from)| *to += from);
        self.begun_anew.resize(self.begun_anew.len().max(other.begun_anew.len()), 0);
        self.begun_anew.iter_mut().zip(&other.begun_anew).for_each(|(to, from)| *to += from);
    }

    /// Blocks that were begun anew, by their new generation, from 1 on.
    pub fn begun_anew(&self) -> impl Iterator<Item = (u8, u64)> + '_ {
        (1..).zip(self.begun_anew.iter().copied())
    }

    /// Packets dropped for this reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops[reason.index()]
    }

    /// Packets dropped for any reason.
    pub fn dropped_total(&self) -> u64 {
        self.drops.iter().sum()
    }

    /// Packets dropped, by reason, without the reasons that did not occur.
    pub fn drops(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        DropReason::ALL.iter().map(|reason| (reason.name(), self.dropped(*reason))).filter(|(_, count)| *count > 0)
    }

    /// Packets sent again, by reason, without the reasons that did not occur.
    pub fn retransmissions(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        RetransmitReason::ALL.iter().map(|reason| (reason.name(), self.retransmissions[reason.index()])).filter(|(_, count)| *count > 0)
    }

    /// Packets sent again for any reason.
    pub fn retransmitted_total(&self) -> u64 {
        self.retransmissions.iter().sum()
    }
}

/// What the oracle found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Verdict {
    /// Pieces whose value was checked.
    pub pieces_checked: u64,
    /// Pieces with a wrong value, delivered twice, or missing from a completed operation.
    pub wrong: u64,
    /// The first of them, in words.
    pub first_wrong: Option<String>,
    /// Of real elements that are not whole numbers: a hash of all ranks' results, the same for the same bits, whenever and in whichever order they
    /// came.
    pub results: u64,
}

impl Verdict {
    pub(crate) fn blame(&mut self, what: impl FnOnce() -> String) {
        self.wrong += 1;
        if self.first_wrong.is_none() {
            self.first_wrong = Some(what());
        }
    }
}

/// Why the run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// Every job has ended (and, with `drain`, nothing moves any more).
    JobsDone,
    /// There are no jobs, and the traffic is through.
    TrafficDone,
    /// Nothing will ever happen again, but a job has not ended.
    Stuck,
    /// Links of a lossless network wait for each other in a circle; see [`RunResult::deadlock`].
    Deadlock,
    /// The time limit was reached.
    TimeLimit,
}

/// A whole run.
#[derive(Clone, PartialEq, Debug)]
pub struct RunResult {
    /// Why the run ended.
    pub ended: Ended,
    /// The links of a deadlock, each of which waits for the next: names of their two ends.
    pub deadlock: Vec<(String, String)>,
    /// Simulated time at the end.
    pub end: Instant,
    /// By job.
    pub jobs: Vec<JobResult>,
    /// By job of programs.
    pub programs: Vec<ProgramResult>,
    /// By link number.
    pub links: Vec<LinkResult>,
    /// By switch, in the order of their ids.
    pub slots: Vec<SlotResult>,
    /// By job: memory in use at all switches together. Where several jobs share a switch, this is how they share it.
    pub job_slots: Vec<SlotResult>,
    /// By switch with cores: what they have done. Empty where switches compute in no time.
    pub processors: Vec<ProcessorResult>,
    /// What switches have done whose pipelines are passed several times.
    pub pipelines: Vec<PipelineResult>,
    /// Memory over time, where [`crate::Simulation::sample_memory`] has asked for it.
    pub memory: Vec<MemorySample>,
    /// Jobs over time, where [`crate::Simulation::sample_series`] has asked for it: by time and job.
    pub series: Vec<SeriesRow>,
    /// Blocks and queues, where [`crate::Simulation::watch`] has asked for them.
    pub watched: Option<Watched>,
    /// Drops and retransmissions by reason.
    pub counters: Counters,
    /// By job: what its nodes have counted.
    pub tallies: Vec<Tallies>,
    /// Packets that were marked.
    pub packets_marked: u64,
    /// Packets that were cut, where switches do that in place of dropping them.
    pub packets_trimmed: u64,
    /// What the oracle found.
    pub verdict: Verdict,
    /// Broken invariants that nodes reported.
    pub broken: Vec<&'static str>,
    /// Payload bytes of background traffic that arrived.
    pub background_bytes: u64,
    /// Mean rate of background traffic that arrived per sending host, in Gb/s of payload.
    pub background_gbps: f64,
    /// Packets that left a transmitter.
    pub packet_hops: u64,
    /// Events of the event queue.
    pub events: u64,
}

/// What the cores of a switch have done.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ProcessorResult {
    /// The switch.
    pub switch: NodeId,
    /// Its cores.
    pub cores: u32,
    /// Packets that were worked at.
    pub packets: u64,
    /// Time of all cores together that they had a packet, waiting for a lock included.
    pub busy_ps: u128,
    /// Of that, time for which cores waited for a lock.
    pub locked_ps: u128,
    /// Time of all packets together that they waited for a core.
    pub waited_ps: u128,
    /// The most bytes that waited or were worked at.
    pub bytes_peak: u64,
    /// Packets that found no room.
    pub packets_dropped: u64,
    /// Of clusters whose working memory has an end: the most bytes that one of them had in use, and packets that waited for it.
    pub working: Option<(u64, u64)>,
}

/// What the ports of a switch have done that lead packets back to its pipeline's beginning.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PipelineResult {
    /// The switch.
    pub switch: NodeId,
    /// Packets that passed again.
    pub packets: u64,
    /// Their further passes.
    pub passes: u64,
    /// For how long these ports were busy.
    pub busy_ps: u128,
    /// Contributions that found no room before them.
    pub packets_dropped: u64,
}

impl RunResult {
    /// The share of time for which the ports that lead back were busy, at the switch where they were most; `None` without any.
    pub fn recirculation_busy(&self) -> Option<f64> {
        let end = self.end.as_ps();
        let share = |of: &PipelineResult| if end == 0 { 0.0 } else { of.busy_ps as f64 / end as f64 };
        self.pipelines.iter().map(share).max_by(f64::total_cmp)
    }

    /// The share of time for which the cores of the busiest switch had a packet; `None` without cores.
    pub fn cores_busy(&self) -> Option<f64> {
        let end = self.end.as_ps();
        let share = |of: &ProcessorResult| if end == 0 { 0.0 } else { of.busy_ps as f64 / (end as f64 * f64::from(of.cores)) };
        self.processors.iter().map(share).max_by(f64::total_cmp)
    }

    /// The share of the time for which cores had a packet in which they waited for a lock, over all switches; `None` without cores.
    pub fn cores_locked(&self) -> Option<f64> {
        let sum = |of: fn(&ProcessorResult) -> u128| self.processors.iter().map(of).sum::<u128>();
        let (busy, locked) = (sum(|of| of.busy_ps), sum(|of| of.locked_ps));
        (!self.processors.is_empty()).then(|| if busy == 0 { 0.0 } else { locked as f64 / busy as f64 })
    }

    /// How long a packet waits for a core, in us: the mean over all switches; `None` without cores.
    pub fn core_wait_us(&self) -> Option<f64> {
        let packets: u64 = self.processors.iter().map(|of| of.packets).sum();
        let waited_ps: u128 = self.processors.iter().map(|of| of.waited_ps).sum();
        (!self.processors.is_empty()).then(|| if packets == 0 { 0.0 } else { waited_ps as f64 / 1e6 / packets as f64 })
    }

    /// The most working memory that a cluster of cores had in use; `None` where it has no end.
    pub fn cluster_bytes_peak(&self) -> Option<u64> {
        self.processors.iter().filter_map(|of| of.working).map(|(bytes, _)| bytes).max()
    }

    /// The share of contributions that waited for working memory, of all switches; `None` where it has no end.
    pub fn cluster_waits(&self) -> Option<f64> {
        let waited: u64 = self.processors.iter().filter_map(|of| of.working).map(|(_, waited)| waited).sum();
        let packets: u64 = self.processors.iter().map(|of| of.packets).sum();
        self.cluster_bytes_peak().map(|_| if packets == 0 { 0.0 } else { waited as f64 / packets as f64 })
    }

    /// Mean utilisation of all links.
    pub fn link_utilization_mean(&self) -> f64 {
        if self.links.is_empty() { 0.0 } else { self.links.iter().map(|link| link.utilization).sum::<f64>() / self.links.len() as f64 }
    }

    /// The most payload memory that any switch had in use.
    pub fn switch_bytes_peak(&self) -> u64 {
        self.slots.iter().map(|slot| slot.bytes_peak).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_integrated_over_time() {
        let mut slots = SlotResult::default();
        slots.take(100, 1_000);
        slots.take(200, 500);
        slots.free(400, 1_000);
        slots.advance(1_000);
        assert_eq!(slots.byte_ps, 1_000 * 100 + 1_500 * 200 + 500 * 600);
        // The first or the second was freed: 300 + 800 or 200 + 900.
        assert_eq!(slots.held_ps(), 1_100);
        assert_eq!((slots.taken, slots.bytes_peak, slots.bytes), (2, 1_500, 500));
        assert!((slots.bytes_mean() - 700.0).abs() < 1e-9);
    }

    #[test]
    fn a_switch_that_fails_holds_nothing_any_longer() {
        let mut slots = SlotResult::default();
        slots.take(100, 10);
        slots.take(200, 10);
        slots.lose_all(300);
        slots.free(400, 10);
        slots.advance(1_000);
        assert_eq!((slots.held_ps(), slots.byte_ps, slots.bytes), (300, 3_000, 0));
    }

    #[test]
    fn samples_are_bounded_however_short_their_interval_is() {
        let slots = [SlotResult { bytes: 7, ..SlotResult::default() }];
        let mut sampler = MemorySampler::new(Duration::from_ps(1));
        // A second, in picoseconds: 10^12 samples, if all were taken.
        sampler.sample(1_000_000_000_000, &slots);
        let samples = sampler.finish(1_000_000_000_000, &slots);
        assert!((SAMPLES_MAX / 4..=SAMPLES_MAX).contains(&samples.len()), "{}", samples.len());
        let gap = samples[1].at.as_ps() - samples[0].at.as_ps();
        assert!(gap.is_power_of_two() && samples.windows(2).all(|pair| pair[1].at.as_ps() - pair[0].at.as_ps() == gap));
        assert!(1_000_000_000_000 - samples.last().unwrap().at.as_ps() < gap);
    }

    #[test]
    fn samples_show_memory_as_it_was_at_their_time() {
        let mut sampler = MemorySampler::new(Duration::from_ps(100));
        let mut slots = [SlotResult::default(); 2];
        for (now, slot, bytes) in [(50, 0, 10), (150, 1, 7), (420, 0, 5)] {
            if now >= sampler.next_ps {
                sampler.sample(now, &slots);
            }
            slots[slot].take(now, bytes);
        }
        let samples = sampler.finish(500, &slots);
        let seen: Vec<(u64, u64, u64)> = samples.iter().map(|one| (one.at.as_ps(), one.bytes_max, one.bytes_total)).collect();
        assert_eq!(seen, [(0, 0, 0), (100, 10, 10), (200, 10, 17), (300, 10, 17), (400, 10, 17), (500, 15, 22)]);
    }
}
