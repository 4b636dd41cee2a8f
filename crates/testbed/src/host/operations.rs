//! A job's operations at one worker, one after the other: inputs are made and results compared on another thread, so that the host goes on
//! answering its neighbours.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use fanin_core::payload::Sparsity;
use fanin_core::{CollectiveKind, Suspect};
use fanin_runtime::clock::process_cpu_time;
use fanin_runtime::{BlockSet, CollectiveCall, RunError, Vectors as Memory};

use super::messages::{Event, HostCounters, OperationReport, Operations};
use super::sparse::SparseVectors;
use super::vectors::Vectors;
use super::{Host, Job, host_counters};

/// How often progress is told at most.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(50);

/// How an operation went.
struct Timed {
    seconds: f64,
    cpu_seconds: f64,
    result: Result<(), RunError>,
    counters: HostCounters,
}

impl Host {
    /// Runs a job's operations; after one that fails the job cannot go on.
    pub(super) fn run_job(&mut self, job: &Job) -> Result<()> {
        let all = job.operations.iter().flat_map(|operations| std::iter::repeat_n(*operations, operations.count as usize));
        let (mut input, mut output, mut failed) = (Vec::new(), Vec::new(), 0);
        for (number, operation) in (0u32..).zip(all) {
            let report = match self.run_operation(job, number, &operation, &mut input, &mut output) {
                Ok(report) => report,
                // There are no orders any more: nobody wants to know.
                Err(RunError::Stopped) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            failed += u32::from(!report.ok);
            let goes_on = report.error.is_none();
            self.voice.say(&Event::Operation(Box::new(report)));
            if !goes_on {
                break;
            }
        }
        self.voice.say(&Event::JobDone { job: job.number, failed });
        Ok(())
    }

    fn run_operation(
        &mut self,
        job: &Job,
        number: u32,
        operation: &Operations,
        input: &mut Vec<u8>,
        output: &mut Vec<u8>,
    ) -> Result<OperationReport, RunError> {
        if let Some(sparsity) = job.sparsity {
            return self.run_sparse(job, number, operation, sparsity);
        }
        let kind = CollectiveKind::from(operation.call());
        let vectors = Vectors::new(kind, self.op, job.workers, operation.elements, &job.vectors, number);
        self.meanwhile(|| {
            vectors.fill(job.rank, input);
            // All ones is not a number, which no element may be left at.
            output.clear();
            output.resize(input.len(), 0xff);
        })?;
        let memory = Memory::Apart { input, input_start: 0, output, output_start: 0 };
        let timed = self.timed(job, number, operation, memory)?;
        let (mut report, is_complete) = self.report(job, number, operation, timed);
        if is_complete {
            report.without = self.driver.excluded().iter().map(|rank| rank.0).collect();
            let without = &report.without;
            let (wrong, first_wrong) = self.meanwhile(|| vectors.compare(job.rank, without, output))?;
            (report.ok, report.wrong_elements, report.first_wrong) = (wrong == 0, wrong, first_wrong);
            report.bits = vectors.digest(output);
        }
        Ok(report)
    }

    /// An operation on sparse vectors.
    fn run_sparse(&mut self, job: &Job, number: u32, operation: &Operations, sparsity: Sparsity) -> Result<OperationReport, RunError> {
        let mut vectors = SparseVectors::new(job, self.op, operation.elements, sparsity, number);
        let input = self.meanwhile(|| vectors.entries(job.rank))?;
        let mut output = Vec::new();
        let memory = Memory::Sparse { size: operation.elements, input: &input, output: &mut output };
        let timed = self.timed(job, number, operation, memory)?;
        let (mut report, is_complete) = self.report(job, number, operation, timed);
        if is_complete {
            output.sort_unstable_by_key(|entry| entry.index);
            report.bits = vectors.digest(&output);
            let (wrong, first_wrong) = self.meanwhile(|| vectors.compare(&output))?;
            (report.ok, report.wrong_elements, report.first_wrong) = (wrong == 0, wrong, first_wrong);
        }
        Ok(report)
    }

    /// Says that an operation has ended, and what is known of it before its result is compared; also whether there is one.
    fn report(&self, job: &Job, number: u32, operation: &Operations, timed: Timed) -> (OperationReport, bool) {
        let Timed { seconds, cpu_seconds, result, counters } = timed;
        self.voice.say(&Event::Finished { job: job.number, operation: number, seconds, cpu_seconds });
        let mut report = OperationReport {
            job: job.number,
            operation: number,
            kind: operation.kind,
            elements: operation.elements,
            seconds,
            cpu_seconds,
            counters,
            ..OperationReport::default()
        };
        match &result {
            Ok(()) => {
                let bits = (operation.elements * self.op.dtype.bytes() as u64 * 8) as f64;
                report.goodput_bits_per_second = if seconds > 0.0 { bits / seconds } else { 0.0 };
            }
            Err(error) => {
                report.suspect = self.suspect(error);
                report.error = Some(error.to_string());
            }
        }
        (report, result.is_ok())
    }

    fn suspect(&self, error: &RunError) -> Option<String> {
        let RunError::Failed(failure) = error else { return None };
        match failure.suspect {
            Suspect::Unknown => None,
            Suspect::Rank(rank) => Some(format!("rank {rank}")),
            Suspect::Switch(node) => Some(format!("switch {}", self.fabric.name(node))),
        }
    }

    /// Runs one operation and measures it. An operation on a single element ahead of it, not timed, is a barrier: afterwards all workers
    /// begin within a round trip.
    fn timed(&mut self, job: &Job, number: u32, operation: &Operations, memory: Memory<'_>) -> Result<Timed, RunError> {
        let call = CollectiveCall {
            kind: CollectiveKind::from(operation.call()),
            op: self.op,
            element_bytes: self.op.dtype.bytes() as u32,
            op_number: 0,
            fixed_point: job.fixed_point,
            elements: operation.elements,
            fingerprint: 0,
        };
        let ready = self.barrier(&call, matches!(memory, Memory::Sparse { .. }));
        let before = host_counters(&self.driver.fabric_status());
        let (start, cpu) = (Instant::now(), process_cpu_time());
        let result = match ready {
            Ok(()) => {
                // Of sparse vectors it is not known here how they are cut: the first number that is told is that of all blocks.
                let mut blocks = match &memory {
                    Memory::Apart { output, .. } => (output.len() as u64).div_ceil(u64::from(job.payload_bytes.max(1))),
                    Memory::Sparse { .. } | Memory::InPlace(_) => 0,
                };
                let mut told = start;
                let mut delivered = BlockSet::default();
                delivered.reset(blocks + u64::from(job.workers));
                let progress = |remaining: u32| {
                    blocks = blocks.max(u64::from(remaining));
                    if remaining > 0 && told.elapsed() >= PROGRESS_INTERVAL {
                        told = Instant::now();
                        let done = 1.0 - (f64::from(remaining) / blocks.max(1) as f64).min(1.0);
                        self.voice.say(&Event::Progress { job: job.number, operation: number, done });
                    }
                    true
                };
                self.driver.collective(&call, memory, (&mut delivered, 0), progress)
            }
            Err(error) => Err(error),
        };
        let (seconds, cpu_seconds) = (start.elapsed().as_secs_f64(), process_cpu_time().saturating_sub(cpu).as_secs_f64());
        let counters = difference(&host_counters(&self.driver.fabric_status()), &before);
        match result {
            // Not a word about the job: the host cannot go on.
            Err(error @ (RunError::Stopped | RunError::Socket(_) | RunError::NoJob)) => Err(error),
            result => Ok(Timed { seconds, cpu_seconds, result, counters }),
        }
    }
}

impl Host {
    /// An operation on a single element.
    fn barrier(&mut self, call: &CollectiveCall, is_sparse: bool) -> Result<(), RunError> {
        if !is_sparse {
            let one = vec![0; self.op.dtype.bytes()];
            return self.driver.allreduce(&one, &mut one.clone());
        }
        let (call, mut output) = (CollectiveCall { elements: 1, ..*call }, Vec::new());
        let memory = Memory::Sparse { size: 1, input: &[], output: &mut output };
        self.driver.collective(&call, memory, (&mut BlockSet::default(), 0), |_| true)
    }
}

/// What has happened between two looks.
fn difference(now: &HostCounters, before: &HostCounters) -> HostCounters {
    let maps = |now: &BTreeMap<String, u64>, before: &BTreeMap<String, u64>| {
        let since = |(name, count): (&String, &u64)| (name.clone(), count - before.get(name).copied().unwrap_or(0));
        now.iter().map(since).filter(|(_, count)| *count > 0).collect()
    };
    HostCounters {
        packets_sent: now.packets_sent - before.packets_sent,
        packets_received: now.packets_received - before.packets_received,
        payload_bytes_sent: now.payload_bytes_sent - before.payload_bytes_sent,
        payload_bytes_received: now.payload_bytes_received - before.payload_bytes_received,
        marked_received: now.marked_received - before.marked_received,
        retransmitted: maps(&now.retransmitted, &before.retransmitted),
        begun_anew: maps(&now.begun_anew, &before.begun_anew),
        counted: maps(&now.counted, &before.counted),
        block_ns: maps(&now.block_ns, &before.block_ns),
        dropped: maps(&now.dropped, &before.dropped),
        injected: maps(&now.injected, &before.injected),
    }
}
