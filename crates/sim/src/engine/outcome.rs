//! What comes out of a run, when it has ended.

use fanin_core::{Instant, NodeId, Wire, Worker};

use super::Simulation;
use crate::metrics::{Ended, JobResult, LinkResult, RunResult, Verdict};
use crate::vectors::Simulated;

impl<N, P> Simulation<N, P>
where
    N: Worker<P> + Clone,
    N::Header: Wire + Default,
    P: Simulated + ?Sized,
{
    /// What has come out, and what the oracle says.
    pub(crate) fn result(mut self, ended: Ended, mut verdict: Verdict) -> RunResult {
        let end = self.net.now;
        if self.net.series.is_some() {
            self.sample_at(end);
        }
        let watched = self.take_watched(end);
        self.blame_traffic(&mut verdict);
        self.net.slots.iter_mut().chain(&mut self.net.job_slots).for_each(|slots| slots.advance(end));
        let mut jobs: Vec<JobResult> = self
            .scenario
            .jobs
            .iter()
            .zip(&self.crashed)
            .map(|(job, crashed)| JobResult {
                begun: job.start.iter().copied().min().unwrap_or_default(),
                crashed: *crashed,
                gone: Vec::new(),
                workers: Vec::with_capacity(job.start.len()),
                message_bytes: job.elements.iter().map(|elements| elements * u64::from(job.element_bytes)).collect(),
            })
            .collect();
        let workers: Vec<usize> = self.scenario.jobs.iter().map(|job| job.start.len()).collect();
        for worker in self.workers {
            jobs[worker.job as usize].workers.push(worker.result);
        }
        for number in self.net.topology.links.len()..self.net.links.len() {
            self.net.count_channel(number as u32);
        }
        let links = self.net.links[..self.net.topology.links.len()].iter().map(|link| {
            // What is still queued has not been sent.
            let queued_ps = link.busy_until.saturating_sub(end);
            let bytes = link.bytes_sent.saturating_sub(link.bytes_in(queued_ps));
            LinkResult {
                from: link.from.0,
                to: link.to,
                bytes,
                packets: link.packets_sent,
                utilization: if end == 0 { 0.0 } else { (bytes as f64 / link.bytes_in(end).max(1) as f64).min(1.0) },
                queue_bytes_peak: link.bytes_in(link.peak_ps),
                packets_dropped: link.packets_dropped,
            }
        });
        let (generated_bytes, generators) = self.generated.delivered();
        let of_flows: u64 =
            self.flows.iter().map(|flow| flow.bytes_delivered).sum::<u64>() + generated_bytes + self.connections.delivered();
        let background_bytes = of_flows + self.sources.iter().map(|source| source.bytes_delivered).sum::<u64>();
        let senders = (self.sources.len() + self.flows.len() + generators + self.connections.count()) as f64;
        let name = |node: NodeId| self.net.topology.name(node);
        let ends = |&link: &u32| {
            let cable = self.net.cable(link as usize);
            (name(cable.from), name(cable.to))
        };
        RunResult {
            ended,
            deadlock: self.deadlock.iter().map(ends).collect(),
            end: Instant::from_ps(end),
            jobs,
            links: links.collect(),
            programs: self.programs.results(),
            processors: self.processors.as_ref().map_or_else(Vec::new, |known| known.results()),
            pipelines: self.pipelines.as_ref().map_or_else(Vec::new, |known| known.results()),
            memory: self.net.memory.finish(end, &self.net.slots),
            series: self.net.series.take().map_or_else(Vec::new, |recorder| recorder.rows(&workers)),
            watched,
            slots: self.net.slots,
            job_slots: self.net.job_slots,
            counters: self.net.counters,
            tallies: self.net.tallies,
            packets_marked: self.net.packets_marked,
            packets_trimmed: self.net.trims.as_ref().map_or(0, |trims| trims.count),
            verdict,
            broken: self.net.broken,
            background_bytes,
            background_gbps: if senders == 0.0 || end == 0 { 0.0 } else { background_bytes as f64 * 8e3 / end as f64 / senders },
            packet_hops: self.net.packet_hops,
            events: self.events,
        }
    }

    /// Whether what is beside jobs has arrived as it was sent.
    fn blame_traffic(&self, verdict: &mut Verdict) {
        if let Some(source) = self.sources.iter().find(|source| source.is_idle() && source.balance != 0) {
            verdict.blame(|| format!("background traffic of host {}: what arrived is not what was sent", source.host));
        }
        for (config, _) in self.scenario.flows.iter().zip(&self.flows).filter(|(_, flow)| flow.in_flight == 0 && flow.balance != 0) {
            verdict.blame(|| format!("flow of host {}: what arrived is not what was sent", config.from));
        }
        if let Some(host) = self.generated.unbalanced().or_else(|| self.connections.unbalanced()) {
            verdict.blame(|| format!("traffic of host {host}: what arrived is not what was sent"));
        }
    }
}
