//! Sparse vectors through the job's switch, or the switches of a fabric: Flare, as a job of its own beside the communicator's (`flare 1`).
//!
//! Ranks conclude from the same counts how blocks are cut and what the switch keeps its sums in ([`Plan`]), and open the job when it is first
//! of use. Whether all have got the sum is agreed upon through the communicator's own job, which survives a restart of the switch: where one
//! has not, all gather their lists instead. So a sum is the switch's at all ranks or at none.

use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use fanin_core::{CollectiveKind, ElementOp, JobId};
use fanin_runtime::{BlockSet, CollectiveCall, RunError, SparseEntry, Vectors, WorkerDriver};
use fanin_systems::{AnyNode, System};

use super::lists::Entries;
use super::plan::Plan;
use crate::call::Call;
use crate::config::{Config, Fallback, Meeting, Transport};
use crate::error::CommError;
use crate::link::{Link, Opened, Survival};
use crate::meeting::fabric::{self, Place};
use crate::meeting::{self, Wanted};
use crate::path::fabric::enter;
use crate::path::patience::Patience;
use crate::path::star;
use crate::path::traffic::Traffic;
use crate::runner::Runner;

/// A job whose sums could not be had so often in a row is not opened again.
const FAILURES_MAX: u32 = 3;

/// What a communicator has of it. All of it is the same at all ranks.
#[derive(Default)]
pub(crate) struct SwitchWay {
    job: Option<FlareJob>,
    /// Jobs that were opened.
    opened: u32,
    /// Sums in a row that a rank did not get.
    failed: u32,
}

impl SwitchWay {
    /// Whether it is of use to try.
    pub(crate) fn is_open(&self) -> bool {
        self.failed < FAILURES_MAX
    }

    /// The sum of what all ranks give. An error is this rank's alone: others may have the sum.
    ///
    /// # Errors
    /// Why this rank has no sum.
    pub(crate) fn reduce(
        &mut self,
        (config, timeout, traffic): (&Config, Duration, &OnceLock<Arc<Traffic>>),
        (main, switch_instance, place): (&Link, u64, Option<Place>),
        plan: &Plan,
        call: &Call,
        entries: &Entries,
    ) -> Result<Entries, CommError> {
        if !self.job.as_ref().is_some_and(|job| job.plan.does_for(plan) && job.switch_instance == switch_instance) {
            self.job = None;
            self.opened += 1;
            let mut job = match place {
                Some(place) => FlareJob::open_in_fabric(config, (main, switch_instance), place, plan, self.opened)?,
                None => FlareJob::open(config, (main, switch_instance), plan, self.opened)?,
            };
            // A host of a fabric counts all that goes through its port as the communicator's own.
            if let End::Star(driver) = &mut job.end {
                let watch = driver.watch();
                if let Err(watch) = traffic.set(Arc::new(Traffic::of(watch.clone()))).map_err(|_| watch)
                    && let Some(traffic) = traffic.get()
                {
                    traffic.renew(watch);
                }
            }
            self.job = Some(job);
        }
        let job = self.job.as_mut().expect("it was opened");
        main.begin(call.describe(job.plan.blocks(call.elements)));
        let sum = job.reduce((config, patience(timeout)), main, call, entries);
        if sum.is_err() {
            // The switch tells those who wait for this rank that it has left.
            self.job = None;
        }
        sum
    }

    /// All ranks have the sum.
    pub(crate) fn succeeded(&mut self) {
        self.failed = 0;
    }

    /// Not all ranks have the sum: the job is of no use any more.
    pub(crate) fn failed(&mut self) {
        self.job = None;
        self.failed += 1;
    }

    /// The communicator ends.
    pub(crate) fn close(&mut self) {
        self.job = None;
    }
}

/// What this rank has of a job.
enum End {
    /// A socket of its own, to one switch.
    Star(Box<WorkerDriver<AnyNode<[u8]>>>),
    /// A node at its host of a fabric.
    Fabric(Place, JobId),
}

/// This rank's end of a job of Flare.
struct FlareJob {
    plan: Plan,
    /// In another life the switch knows nothing of it.
    switch_instance: u64,
    link: Arc<Link>,
    control: Option<JoinHandle<()>>,
    end: End,
    calls: u32,
}

impl FlareJob {
    /// `switch_instance`: the life of the switch in which all ranks have decided to open it. In another one nobody waits for a rank that has
    /// learnt of the restart otherwise.
    fn open(config: &Config, (main, switch_instance): (&Link, u64), plan: &Plan, number: u32) -> Result<Self, CommError> {
        let meeting = Meeting::Switch(main.switch().to_string());
        let config = Config { meeting, transport: Transport::Udp, ..of_job(config, plan, number) };
        let wanted = Wanted { system: System::Flare(plan.parameters), op: plan.op, switch_instance: Some(switch_instance) };
        let joined = meeting::join(&config, wanted, &main.runner())?;
        let node = star::node(&config, &joined.admitted, plan.op)?;
        let driver = Box::new(star::driver(&config, &joined.admitted, joined.socket, (node, plan.op))?);
        let opened = Opened { stream: joined.stream, session: joined.session, join: joined.join, admitted: joined.admitted };
        let (link, thread) = Link::start(&config, opened, Survival::None, main.runner())?;
        link.set_waker(driver.waker());
        tracing::info!(job = config.job, rank = config.rank, density = plan.parameters.density, range = plan.parameters.range, "joined");
        Ok(FlareJob { plan: *plan, switch_instance, link, control: Some(thread), end: End::Star(driver), calls: 0 })
    }

    /// The same at the manager of a fabric, whose life `switch_instance` is.
    fn open_in_fabric(
        config: &Config,
        (main, switch_instance): (&Link, u64),
        place: Place,
        plan: &Plan,
        number: u32,
    ) -> Result<Self, CommError> {
        let config = Config { interrupt: main.interrupts(&config.interrupt), ..of_job(config, plan, number) };
        let wanted = Wanted { system: System::Flare(plan.parameters), op: plan.op, switch_instance: Some(switch_instance) };
        let joined = fabric::join(&config, wanted, Some(&place), |place, admitted| enter(&config, place, admitted, (plan.op, None)))?;
        let id = JobId(joined.opened.admitted.job_id);
        let end = End::Fabric(place.clone(), id);
        let (link, thread) = Link::start(&config, joined.opened, Survival::Fabric, Runner::Manager)?;
        link.set_waker(place.port.waker());
        tracing::info!(job = config.job, rank = config.rank, density = plan.parameters.density, range = plan.parameters.range, "joined");
        Ok(FlareJob { plan: *plan, switch_instance, link, control: Some(thread), end, calls: 0 })
    }

    fn reduce(
        &mut self,
        (config, timeout): (&Config, Duration),
        main: &Link,
        call: &Call,
        entries: &Entries,
    ) -> Result<Entries, CommError> {
        let (op, blocks) = (self.plan.op, self.plan.blocks(call.elements));
        let what = CollectiveCall {
            kind: CollectiveKind::Allreduce,
            op,
            element_bytes: op.dtype.bytes() as u32,
            op_number: 0,
            fixed_point: None,
            elements: call.elements,
            fingerprint: 0,
        };
        let (input, mut output) = (entries.to_sparse(op), Vec::new());
        self.link.begin(Call { number: self.calls, ..*call }.describe(blocks));
        let mut patience = Patience::new(&self.link, &config.interrupt, config.stall_notice, timeout);
        let (link, mut known, mut error) = (&self.link, u32::MAX, None);
        let vectors = Vectors::Sparse { size: call.elements, input: &input, output: &mut output };
        let is_in_fabric = matches!(self.end, End::Fabric(..));
        let goes_on = |remaining| {
            // Where the fabric does not carry the job any more, all ranks are told to go on elsewhere.
            if main.has_failed() || link.has_failed() || is_in_fabric && main.was_restarted() {
                return false;
            }
            error = if remaining == known {
                patience.check(|| None).err()
            } else {
                known = remaining;
                main.progress(blocks.saturating_sub(u64::from(remaining)));
                link.progress(blocks.saturating_sub(u64::from(remaining)));
                patience.go_on().err()
            };
            error.is_none()
        };
        let result = self.end.collective(&what, vectors, goes_on);
        if let Err(reason) = result {
            return Err(error.or_else(|| main.failure()).or_else(|| self.link.failure()).unwrap_or_else(|| self.failed(&reason)));
        }
        self.calls += 1;
        self.link.end(self.calls);
        Ok(Entries::of_sparse(op, output))
    }

    fn failed(&self, reason: &RunError) -> CommError {
        self.link.failed_with(reason.to_string(), None, None)
    }
}

impl End {
    fn collective(&mut self, what: &CollectiveCall, vectors: Vectors<'_>, goes_on: impl FnMut(u32) -> bool) -> Result<(), RunError> {
        let run = |driver: &mut WorkerDriver<AnyNode<[u8]>>| {
            let result = driver.collective(what, vectors, (&mut BlockSet::default(), 0), goes_on);
            driver.publish();
            result
        };
        match self {
            End::Star(driver) => run(driver),
            End::Fabric(place, id) => place.port.with(|driver| if driver.select(*id) { run(driver) } else { Err(RunError::NoJob) }),
        }
    }
}

impl Drop for FlareJob {
    fn drop(&mut self) {
        if let End::Fabric(place, id) = &self.end {
            place.port.with(|driver| driver.remove_job(*id));
        }
        self.link.close(self.calls);
        if let Some(thread) = self.control.take() {
            let _ = thread.join();
        }
    }
}

/// The configuration of job `number` of Flare beside the communicator's own.
fn of_job(config: &Config, plan: &Plan, number: u32) -> Config {
    Config {
        job: format!("{}/sparse-{number}", config.job),
        // Who has no sum tells the others through the communicator's own job, and they must have given up by then.
        timeout: patience(config.timeout),
        payload_bytes: Some(plan.payload_bytes),
        window: Some(plan.window),
        fixed_point: false,
        reproducible: None,
        operators: Vec::new(),
        // What becomes of a sum that switches do not make is agreed upon by all ranks.
        fallback: Some(Fallback::Error),
        ..config.clone()
    }
}

/// How long ranks wait for one another here: less than in the communicator's own job, where those who have given up wait for the others.
fn patience(timeout: Duration) -> Duration {
    timeout / 2
}

impl Entries {
    /// As the runtime takes them.
    fn to_sparse(&self, op: ElementOp) -> Vec<SparseEntry> {
        let bits = |value: &[u8]| {
            let mut bytes = [0; 8];
            bytes[..value.len()].copy_from_slice(value);
            u64::from_le_bytes(bytes)
        };
        let values = self.values.chunks_exact(op.dtype.bytes());
        self.indices.iter().zip(values).map(|(&index, value)| SparseEntry { index, bits: bits(value) }).collect()
    }

    /// What the runtime has appended: pieces as they came, each in ascending order.
    fn of_sparse(op: ElementOp, mut result: Vec<SparseEntry>) -> Self {
        // Runs are in order already, which this sort makes use of.
        result.sort_by_key(|entry| entry.index);
        let width = op.dtype.bytes();
        let mut entries = Entries { indices: Vec::with_capacity(result.len()), values: Vec::with_capacity(result.len() * width) };
        for entry in result {
            entries.indices.push(entry.index);
            entries.values.extend_from_slice(&entry.bits.to_le_bytes()[..width]);
        }
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_the_same_there_and_back() {
        let op = ElementOp { dtype: fanin_core::DType::I16, ..ElementOp::I32_SUM };
        let entries =
            Entries { indices: vec![3, 9, 1 << 40], values: [-1i16, 7, 300].iter().flat_map(|value| value.to_le_bytes()).collect() };
        let mut sparse = entries.to_sparse(op);
        sparse.rotate_left(1);
        assert_eq!(Entries::of_sparse(op, sparse), entries);
    }
}
