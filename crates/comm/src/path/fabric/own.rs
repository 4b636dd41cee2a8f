//! Reductions by an operator that the job has brought along, at the switches of a fabric: as a job of Flare, whose pairs name every index
//! (`flare 2`, "F1": custom operators). The module travels from rank 0 to the manager, and from there to the switches.

use fanin_control::FailureKind;
use fanin_core::{CollectiveKind, DType, ElementOp, JobId, Operator};
use fanin_operator::CustomOperator;
use fanin_runtime::{CollectiveCall, RunError, SparseEntry, Vectors};
use fanin_systems::System;

use super::{FabricJobs, enter, may_begin};
use crate::config::{Config, Fallback};
use crate::error::CommError;
use crate::link::{Link, Survival};
use crate::meeting::Wanted;
use crate::meeting::fabric::{Joined, join};
use crate::path::VERDICT_WAIT;
use crate::path::job::{Key, PortJob, why_not};
use crate::path::stop::Stop;
use crate::runner::Runner;
use crate::sparse::plan::{Plan, payload_of_pairs};

/// How many elements are reduced at once: an entry is 16 bytes, at a rank's input and at its output.
const STEP: usize = 1 << 20;

impl FabricJobs {
    /// Whether switches reduce by this operator of the job's own; where they do not, ranks do, and are told once why. All ranks say the same.
    pub(in crate::path) fn runs_own(&mut self, index: u8, operator: &CustomOperator) -> bool {
        if !self.config.is_flare() || self.by_ranks.contains(&index) {
            return false;
        }
        let element_bytes = operator.layout().element_bytes;
        let why = match type_of(element_bytes) {
            None => Some(format!("its elements have {element_bytes} bytes, and pairs carry 1, 2, 4 or 8")),
            Some(_) => operator.clone().for_levels(element_bytes).err().map(|error| error.to_string()),
        };
        let Some(why) = why else { return true };
        self.ranks_run(index, operator.name(), &why);
        false
    }

    fn ranks_run(&mut self, index: u8, name: &str, why: &str) {
        self.by_ranks.insert(index);
        self.config.notices.tell(&by_ranks(&self.config.job, name, why));
    }

    /// Reduces all ranks' vectors at the switches, where they do: see [`FabricJobs::runs_own`]. False where these do not take the job, and
    /// ranks must; all ranks hear so.
    ///
    /// # Errors
    /// [`Stop`].
    pub(in crate::path) fn reduce_by_own(
        &mut self,
        (index, operator): (u8, &CustomOperator),
        (input, output): (&[u8], &mut [u8]),
        (fingerprint, link): (u32, &Link),
        goes_on: &mut dyn FnMut(u32) -> bool,
    ) -> Result<bool, Stop> {
        let width = operator.layout().element_bytes;
        let Some(dtype) = type_of(width) else { return Ok(false) };
        let op = ElementOp { dtype, operator: Operator::Sum };
        let key = Key { kind: CollectiveKind::Allreduce.name(), dtype: dtype.name(), operator: "own", own: Some(index) };
        if !self.jobs.contains_key(&key) {
            may_begin(link, key)?;
            match self.open_own(key, op, operator, link) {
                Ok(job) => drop(self.jobs.insert(key, job)),
                Err(CommError::Failed { text, kind: Some(FailureKind::Switch), .. }) if self.config.fallback != Some(Fallback::Error) => {
                    self.ranks_run(index, operator.name(), &text);
                    return Ok(false);
                }
                Err(error) => return Err(why_not(error, link)),
            }
        }
        let job = &self.jobs[&key];
        let mut sums = Vec::new();
        for (input, output) in input.chunks(STEP * width).zip(output.chunks_mut(STEP * width)) {
            let size = (input.len() / width) as u64;
            let entries: Vec<SparseEntry> = (0..).zip(input.chunks_exact(width)).map(|(index, element)| entry(index, element)).collect();
            let kind = CollectiveKind::Allreduce;
            let what =
                CollectiveCall { kind, op, element_bytes: width as u32, op_number: 0, fixed_point: None, elements: size, fingerprint };
            sums.clear();
            let vectors = Vectors::Sparse { size, input: &entries, output: &mut sums };
            job.collective(&what, vectors, link, goes_on).map_err(|stop| explain(job, stop))?;
            // In the order in which blocks come.
            if sums.len() as u64 != size || sums.iter().any(|sum| sum.index >= size) {
                let text = format!("the switches have combined {} of {size} elements by operator `{}`", sums.len(), operator.name());
                return Err(Stop::Failed(link.failed_with(text, None, Some(FailureKind::Protocol))));
            }
            for sum in &sums {
                let start = sum.index as usize * width;
                output[start..start + width].copy_from_slice(&sum.bits.to_le_bytes()[..width]);
            }
        }
        Ok(true)
    }

    /// Joins the job of an operator.
    fn open_own(&self, key: Key, op: ElementOp, operator: &CustomOperator, link: &Link) -> Result<PortJob, CommError> {
        let payload_bytes = payload_of_pairs(self.payload_bytes, &self.system);
        // Every index is there, and so blocks are cut in the same way for vectors of any length.
        let plan = Plan::new(op, self.config.world, payload_bytes, STEP as u64, STEP as u64).ok_or_else(|| CommError::System {
            what: format!("operator `{}` at the switches", operator.name()),
            reason: format!("payload = {payload_bytes}: expected room for a pair of {} bytes", 2 + op.dtype.bytes()),
        })?;
        let config = Config {
            payload_bytes: Some(plan.payload_bytes),
            window: Some(plan.window),
            operators: vec![operator.clone()],
            // Ranks reduce where switches do not.
            fallback: Some(Fallback::Error),
            ..self.config_of(key, link)
        };
        let wanted = Wanted { system: System::Flare(plan.parameters), op, switch_instance: None };
        let made = |place: &_, admitted: &_| enter(&config, place, admitted, (op, Some(operator)));
        let Joined { opened, .. } = join(&config, wanted, Some(&self.place), made)?;
        let admitted = opened.admitted.clone();
        let (control, thread) = Link::start(&config, opened, Survival::Fabric, Runner::Manager)?;
        control.set_waker(self.place.port.waker());
        tracing::info!(job = config.job, rank = config.rank, operator = operator.name(), "joined");
        Ok(PortJob::new(self.place.port.clone(), JobId(admitted.job_id), op, Some((control, thread))))
    }
}

/// Where an operator has failed at a switch, the manager knows how.
fn explain(job: &PortJob, stop: Stop) -> Stop {
    let told = match &stop {
        Stop::Run(RunError::Failed(_)) | Stop::Path(_) => job.await_failure(VERDICT_WAIT),
        _ => None,
    };
    match told {
        Some(error @ CommError::Failed { kind: Some(FailureKind::Operator), .. }) => Stop::Failed(error),
        _ => stop,
    }
}

/// What is told where an operator of the job's own is not run by switches.
pub(in crate::path) fn by_ranks(job: &str, name: &str, why: &str) -> String {
    format!("job {job:?}: operator `{name}` is run by ranks, over vectors that are gathered, since {why}")
}

/// A type whose elements are as long, where pairs carry such.
fn type_of(element_bytes: usize) -> Option<DType> {
    DType::ALL.iter().copied().find(|dtype| dtype.bytes() == element_bytes && !dtype.is_float())
}

fn entry(index: u64, element: &[u8]) -> SparseEntry {
    let mut bits = [0; 8];
    bits[..element.len()].copy_from_slice(element);
    SparseEntry { index, bits: u64::from_le_bytes(bits) }
}
