//! Samples of jobs over time: see [`crate::series`].

use fanin_core::{Duration, Instant, OperationId, Tally, Wire, Worker};

use super::Simulation;
use crate::link::link_flags;
use crate::metrics::RunResult;
use crate::net::Net;
use crate::series::{Recorder, Totals};
use crate::setup::SetupError;
use crate::trace::{Keep, Trace, TraceConfig, Tracer};
use crate::vectors::{Simulated, Vectors};
use crate::watch::{Peak, WatchConfig, Watched, Watcher};

impl<N, P> Simulation<N, P>
where
    N: Worker<P> + Clone,
    N::Header: Wire + Default,
    P: Simulated + ?Sized,
{
    /// Asks for jobs over time at this interval.
    pub fn sample_series(&mut self, interval: Duration) {
        let recorder = Recorder::new(interval, self.scenario.jobs.len(), self.net.slots.len());
        for link in self.net.links.iter_mut().filter(|link| link.has(link_flags::TO_HOST)) {
            link.flags |= link_flags::COUNTED;
        }
        self.net.series = Some(Box::new(recorder));
        // Every change of memory is looked at.
        self.net.watch_ps = 0;
    }

    /// Runs to the end and keeps packets of some links. The run is the same as without, but that it ends, as by its time limit, where no
    /// further packet would be kept.
    pub fn run_traced(mut self, config: TraceConfig, keep: Keep<N::Header>) -> (RunResult, Trace<N::Header, P::Owned>) {
        self.scenario.time_limit = self.scenario.time_limit.min(config.until.since(Instant::ZERO));
        let tracer = Tracer::new(config, keep, self.net.topology.links.len());
        for (number, link) in (0..).zip(&mut self.net.links) {
            if tracer.looks_at(self.net.channels.cable(number)) {
                link.flags |= link_flags::COUNTED;
            }
        }
        self.net.trace = Some(Box::new(tracer));
        let ended = self.run_events();
        let trace = self.net.trace.take().expect("nobody else takes it").into_trace();
        let verdict = self.vectors.verdict().clone();
        (self.result(ended, verdict), trace)
    }

    /// Asks for blocks of a collective, and for queues of links. The run is the same as without.
    ///
    /// # Errors
    /// [`SetupError`] where there is no such job or link.
    pub fn watch(&mut self, config: WatchConfig) -> Result<(), SetupError> {
        if let Some(blocks) = config.blocks.filter(|blocks| usize::from(blocks.job) >= self.scenario.jobs.len()) {
            return Err(SetupError::new("watch.blocks", blocks.job, format!("a job below {}", self.scenario.jobs.len())));
        }
        let links = self.net.topology.links.len();
        if let Some(link) = config.links.iter().find(|link| **link as usize >= links) {
            return Err(SetupError::new("watch.links", link, format!("a link below {links}")));
        }
        self.net.watcher = Some(Box::new(Watcher::new(config)));
        Ok(())
    }

    /// A worker begins an operation, which somebody may look at.
    pub(super) fn watch_operation(&mut self, worker: u32, operation: OperationId) {
        let Some(watcher) = &self.net.watcher else { return };
        let state = &self.workers[worker as usize];
        self.slots[state.slot as usize].post.is_watched = watcher.looks_at(state.job, operation.0);
    }

    /// When the next sample is due.
    pub(super) fn next_sample_ps(&self) -> u64 {
        let series_ps = self.net.series.as_ref().map_or(u64::MAX, |recorder| recorder.next_ps);
        series_ps.min(self.net.watcher.as_ref().map_or(u64::MAX, |watcher| watcher.next_ps))
    }

    /// Takes the samples that are due before `time_ps`; gives the time of the next.
    #[cold]
    pub(crate) fn sample_until(&mut self, time_ps: u64) -> u64 {
        while let Some(due_ps) = self.net.watcher.as_ref().map(|watcher| watcher.next_ps).filter(|due_ps| *due_ps < time_ps) {
            self.sample_queues(due_ps);
        }
        while let Some(due_ps) = self.net.series.as_ref().map(|recorder| recorder.next_ps).filter(|due_ps| *due_ps < time_ps) {
            self.sample_at(due_ps);
        }
        self.next_sample_ps()
    }

    /// The longest queues since the last look, up to `at_ps`.
    fn sample_queues(&mut self, at_ps: u64) {
        let Net { watcher, links, channels, slots, .. } = &mut self.net;
        let Some(watcher) = watcher else { return };
        let mut peak = |cable: &u32| {
            let mut peak = Peak { bytes: 0, ps: 0, sent: 0 };
            for number in channels.of_cable(*cable) {
                let link = &mut links[number as usize];
                // What is still queued has not been sent.
                let sent = link.bytes_sent.saturating_sub(link.bytes_in(link.busy_until.saturating_sub(at_ps)));
                peak.bytes = peak.bytes.max(link.bytes_in(link.peak_ps));
                peak.ps = peak.ps.max(link.peak_ps);
                peak.sent += sent;
                // The next interval begins with what is still queued.
                link.peak_ps = link.queued_ps(at_ps);
            }
            peak
        };
        let peaks: Vec<Peak> = watcher.links().iter().map(&mut peak).collect();
        watcher.sample(at_ps, &peaks, slots.iter().map(|slot| slot.bytes).collect());
    }

    /// What was looked at, when the run has ended; links get back their longest queues.
    pub(super) fn take_watched(&mut self, end_ps: u64) -> Option<Watched> {
        self.take_watcher(end_ps).map(|watcher| watcher.finish())
    }

    /// The same before it is put together with what was looked at in other parts of the network.
    pub(crate) fn take_watcher(&mut self, end_ps: u64) -> Option<Box<Watcher>> {
        if self.net.watcher.as_ref()?.is_open(end_ps) {
            self.sample_queues(end_ps);
        }
        let watcher = self.net.watcher.take()?;
        for (cable, longest_ps) in watcher.links().iter().zip(watcher.longest_ps()) {
            let link = &mut self.net.links[*cable as usize];
            link.peak_ps = link.peak_ps.max(*longest_ps);
        }
        Some(watcher)
    }

    /// Takes a sample at `at_ps`.
    pub(crate) fn sample_at(&mut self, at_ps: u64) {
        let mut totals = vec![Totals::default(); self.scenario.jobs.len()];
        for (number, worker) in self.workers.iter().enumerate() {
            let job = &self.scenario.jobs[usize::from(worker.job)];
            let running = if worker.is_running() { self.vectors.delivered_elements(number as u32) } else { 0 };
            totals[usize::from(worker.job)].bytes += (worker.finished_elements + running) * u64::from(job.element_bytes);
        }
        self.workers.iter().filter(|worker| !worker.done).for_each(|worker| totals[usize::from(worker.job)].said.runs = true);
        // Whether a job runs elsewhere is not known in a part of a network.
        let is_part = self.net.outbox.is_some();
        for slot in &self.slots {
            let said = &mut totals[usize::from(slot.post.job)].said;
            if is_part || said.runs {
                let sums = if slot.post.worker.is_some() { &mut said.by_workers } else { &mut said.by_others };
                slot.node.gauges(&mut |gauge, value| sums[gauge.index()].add(value));
            }
        }
        for (job, totals) in totals.iter_mut().enumerate() {
            totals.collisions = self.net.tallies[job].total(Tally::Collision);
        }
        if let Some(recorder) = &mut self.net.series {
            recorder.sample(at_ps, totals);
        }
    }
}
