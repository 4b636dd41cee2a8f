//! What comes out of a run.

use fanin_core::{DropReason, Duration, Failure, Instant, RetransmitReason};

/// One operation at one worker.
#[derive(Clone, PartialEq, Debug)]
pub struct OperationResult {
    /// When the worker submitted it.
    pub submitted: Instant,
    /// When it ended; `None` where the run ended first.
    pub ended: Option<Instant>,
    /// Why it failed, if it did.
    pub failure: Option<Failure>,
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
}

impl JobResult {
    /// Time from the first submission to the last end of operation `operation`; `None` unless all workers completed it.
    pub fn completion(&self, operation: usize) -> Option<Duration> {
        let mut first = Instant::FAR_FUTURE;
        let mut last = Instant::ZERO;
        for worker in &self.workers {
            let result = worker.operations.get(operation)?;
            if result.failure.is_some() {
                return None;
            }
            first = first.min(result.submitted);
            last = last.max(result.ended?);
        }
        Some(last.since(first))
    }

    /// Goodput of operation `operation` in Gb/s: bytes of the user's vector over the completion time of the slowest worker.
    pub fn goodput_gbps(&self, operation: usize) -> Option<f64> {
        let time = self.completion(operation)?;
        let bits = *self.message_bytes.get(operation)? as f64 * 8.0;
        Some(if time == Duration::ZERO { 0.0 } else { bits / (time.as_ps() as f64 / 1e12) / 1e9 })
    }

    /// Whether every worker completed every operation.
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
}

impl SlotResult {
    #[inline]
    pub(crate) fn take(&mut self, bytes: u32) {
        self.bytes += u64::from(bytes);
        self.slots += 1;
        self.bytes_peak = self.bytes_peak.max(self.bytes);
        self.slots_peak = self.slots_peak.max(self.slots);
    }

    #[inline]
    pub(crate) fn free(&mut self, bytes: u32) {
        self.bytes = self.bytes.saturating_sub(u64::from(bytes));
        self.slots = self.slots.saturating_sub(1);
    }
}

/// Counters by reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counters {
    drops: Vec<u64>,
    retransmissions: Vec<u64>,
}

impl Default for Counters {
    fn default() -> Self {
        Counters { drops: vec![0; DropReason::ALL.len()], retransmissions: vec![0; RetransmitReason::ALL.len()] }
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
    /// By link number.
    pub links: Vec<LinkResult>,
    /// By switch, in the order of their ids.
    pub slots: Vec<SlotResult>,
    /// Drops and retransmissions by reason.
    pub counters: Counters,
    /// Packets that were marked.
    pub packets_marked: u64,
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

impl RunResult {
    /// Mean utilisation of all links.
    pub fn link_utilization_mean(&self) -> f64 {
        if self.links.is_empty() { 0.0 } else { self.links.iter().map(|link| link.utilization).sum::<f64>() / self.links.len() as f64 }
    }

    /// The most payload memory that any switch had in use.
    pub fn switch_bytes_peak(&self) -> u64 {
        self.slots.iter().map(|slot| slot.bytes_peak).max().unwrap_or(0)
    }
}
