//! What jobs take of a switch's memory: nobody who reaches its port takes all that there is.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use fanin_control::fabric::SwitchMemory;

/// What one job has.
#[derive(Clone, Copy, Debug)]
struct Share {
    bytes: u64,
    /// The system whose jobs have one memory together: that of the first of them does for all.
    shared: Option<u8>,
}

/// The memory of all jobs of a switch together.
#[derive(Debug)]
pub(super) struct Memory {
    limit: u64,
    jobs: Mutex<BTreeMap<u16, Share>>,
}

impl Memory {
    /// So many bytes at most.
    pub(super) fn new(limit: u64) -> Self {
        Memory { limit, jobs: Mutex::default() }
    }

    /// Whether a job could run here if there were no other; says what is too much where it could not.
    pub(super) fn could_hold(&self, job: u16, wants: &SwitchMemory) -> Result<(), String> {
        if wants.bytes() <= self.limit {
            return Ok(());
        }
        Err(format!("job {job} wants {}, and this switch has {} for all jobs: {}", said(wants), mebibytes(self.limit), advice(wants)))
    }

    /// Takes what a job wants; false where a job of this number has some already.
    pub(super) fn take(&self, job: u16, wants: &SwitchMemory) -> Result<bool, String> {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        if jobs.contains_key(&job) {
            return Ok(false);
        }
        let is_there = wants.shared.is_some() && jobs.values().any(|share| share.shared == wants.shared);
        let bytes = if is_there { 0 } else { wants.bytes() };
        let taken = jobs.values().map(|share| share.bytes).fold(0u64, u64::saturating_add);
        if taken.saturating_add(bytes) > self.limit {
            let (limit, count) = (mebibytes(self.limit), jobs.len());
            return Err(format!(
                "job {job} wants {}, and of this switch's {limit} for all jobs {count} running jobs have {}: end one, or {}",
                said(wants),
                mebibytes(taken),
                advice(wants)
            ));
        }
        jobs.insert(job, Share { bytes, shared: wants.shared });
        Ok(true)
    }

    /// A job has ended. What it shared is the next one's.
    pub(super) fn give_back(&self, job: u16) {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Share { bytes, shared: Some(system) }) = jobs.remove(&job) else { return };
        if let Some(heir) = jobs.values_mut().find(|share| share.shared == Some(system)) {
            heir.bytes += bytes;
        }
    }
}

fn said(wants: &SwitchMemory) -> String {
    format!("{} ({} slots of {} bytes)", mebibytes(wants.bytes()), wants.slots, wants.slot_bytes)
}

fn advice(wants: &SwitchMemory) -> String {
    format!("fewer {}", wants.key)
}

/// Rounded up, so that nothing is called none.
fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wants(slots: u64, shared: Option<u8>) -> SwitchMemory {
        SwitchMemory { slots, slot_bytes: 1 << 10, shared, key: "aggregators" }
    }

    #[test]
    fn jobs_have_what_there_is_and_those_that_share_have_it_once() {
        let memory = Memory::new(4 << 20);
        assert_eq!(memory.take(1, &wants(2_048, Some(5))), Ok(true));
        assert_eq!(memory.take(2, &wants(2_048, Some(5))), Ok(true), "it shares what job 1 has");
        assert_eq!(memory.take(2, &wants(1, None)), Ok(false), "there is a job 2");
        assert_eq!(memory.take(3, &wants(2_048, None)), Ok(true));
        assert_eq!(
            memory.take(4, &wants(1, None)).unwrap_err(),
            "job 4 wants 1 MiB (1 slots of 1024 bytes), and of this switch's 4 MiB for all jobs 3 running jobs have 4 MiB: end one, or fewer \
             aggregators"
        );
        memory.give_back(1);
        assert!(memory.take(4, &wants(1, None)).is_err(), "job 2 has it still");
        memory.give_back(2);
        assert_eq!(memory.take(4, &wants(2_048, None)), Ok(true));
        memory.give_back(9);
        assert_eq!(
            memory.could_hold(7, &wants(u64::MAX, None)).unwrap_err(),
            "job 7 wants 17592186044416 MiB (18446744073709551615 slots of 1024 bytes), and this switch has 4 MiB for all jobs: fewer aggregators"
        );
        assert_eq!(memory.could_hold(7, &wants(4_096, None)), Ok(()));
    }
}
