//! Sparse allreduce: vectors of which most elements are not there, as lists of indices and values.
//!
//! Ranks first tell each other how many entries each has (which is also where it shows that they call different things). From these counts
//! all of them conclude the same: the switch sums their pairs of index and value; or their lists are gathered and merged in the order of
//! ranks; or, where that would be more bytes, the vector is reduced as a dense one, together with a bit for each element that says whether
//! anybody has given it.
//!
//! | module | what it holds |
//! |---|---|
//! | `switch` | the job of Flare in which the switch, or the switches of a fabric, sum |
//! | `plan` | how blocks of pairs are cut, and what switches keep sums in |
//! | `lists` | lists, and how they travel |
//! | `dense` | vectors in which what nobody has given changes nothing |

mod dense;
mod lists;
pub(crate) mod plan;
mod report;
mod switch;

use bytemuck::{Pod, Zeroable};
use fanin_control::FailureKind;
use fanin_core::{CollectiveKind, DType, ElementOp, Operator};

use crate::call::{Buffers, Call, SparseStep};
use crate::config::{Config, INTERRUPTED, SparsePath};
use crate::core::Core;
use crate::element::Element;
use crate::error::CommError;
use crate::lock::locked;
pub(crate) use lists::Entries;
use lists::{Collection, Packed};
use plan::Plan;
use report::Choices;
pub use report::{NoSwitch, SparseReport, SparseWay};
pub(crate) use switch::SwitchWay;

/// What a sparse allreduce gives: the same at all ranks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sparse<T> {
    /// Every index that any rank has given, once, in ascending order.
    pub indices: Vec<u64>,
    /// The reduction of what ranks have given for it; also where that is zero.
    pub values: Vec<T>,
    /// How it was computed.
    pub report: SparseReport,
}

/// A rank's part in a sparse allreduce, checked and sorted.
#[derive(Debug)]
pub(crate) struct Given {
    pub(crate) op: ElementOp,
    pub(crate) size: u64,
    pub(crate) entries: Entries,
}

impl Given {
    /// # Errors
    /// [`CommError::Arguments`]: names the operator, the lengths, or the first index that is out of range.
    pub(crate) fn new(op: ElementOp, indices: &[u64], values: &[u8], size: u64) -> Result<Self, CommError> {
        let wrong = |text: String| Err(CommError::Arguments(format!("sparse allreduce: {text}")));
        if !matches!(op.operator, Operator::Sum | Operator::Min | Operator::Max) {
            let hint = if op.operator == Operator::Avg { "; divide a sum by the number of ranks" } else { "" };
            return wrong(format!("operator = {}: expected sum, min or max{hint}", op.operator));
        }
        let count = values.len() / op.dtype.bytes();
        if indices.len() != count || !values.len().is_multiple_of(op.dtype.bytes()) {
            return wrong(format!("{} indices and {count} values ({}): expected as many", indices.len(), op.dtype));
        }
        if size.checked_mul(op.dtype.bytes() as u64).is_none_or(|bytes| bytes > i64::MAX as u64) {
            return wrong(format!("size = {size}: expected a vector of {} that has fewer than 2^63 bytes", op.dtype));
        }
        if let Some(at) = indices.iter().position(|index| *index >= size) {
            return wrong(format!("indices[{at}] = {}: expected below the size of the vector, {size}", indices[at]));
        }
        // A single list: no operator here depends on the number of ranks.
        Ok(Given { op, size, entries: Collection::of(indices, values).merge(op, 1) })
    }
}

/// What ranks tell each other before anything else, in words of 64 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Pod, Zeroable)]
#[repr(C)]
struct Told {
    /// How many entries the rank has.
    entries: u64,
    /// Its [`SparsePath`].
    wanted: u64,
    /// Which life of the switch its job is at. Where that is not the same at all, the switch is being restarted.
    switch_instance: u64,
}

/// Where [`Told::wanted`] says that switches of a fabric are wanted, beside how.
const FLARE_SHIFT: u32 = 8;

impl Told {
    const WORDS: u64 = (size_of::<Told>() / size_of::<u64>()) as u64;
}

impl Core {
    /// Runs a sparse allreduce whose turn it is.
    pub(crate) fn run_sparse(&self, given: Given) -> Result<(Entries, SparseReport), CommError> {
        let Given { op, size, entries } = given;
        let told = self.gather_counts(op, size, entries.indices.len() as u64)?;
        let counts: Vec<u64> = told.iter().map(|told| told.entries).collect();
        let plan = self.switch_plan(op, size, &told);
        let mut report = SparseReport::choose(&counts, size, op, &self.choices(op, plan));
        if let (SparseWay::Switch, Ok(plan)) = (report.way, plan) {
            match self.reduce_at_switch(op, size, &entries, &plan, told[0].switch_instance)? {
                Some(sum) => return Ok((sum, report)),
                None => report = SparseReport { way: SparseWay::Lists, no_switch: Some(NoSwitch::Failed), ..report },
            }
        }
        let result = match report.way {
            SparseWay::Alone => entries,
            SparseWay::Dense => self.reduce_dense(op, size, &entries)?,
            SparseWay::Lists | SparseWay::Switch => self.gather_lists(op, size, &entries, &counts, report.longest)?,
        };
        Ok((result, report))
    }

    /// How many entries each rank has. Ranks that differ in size, type or operator do not get beyond it, nor do those that want other ways.
    fn gather_counts(&self, op: ElementOp, size: u64, entries: u64) -> Result<Vec<Told>, CommError> {
        let by_hosts = |link: &&std::sync::Arc<crate::link::Link>| self.is_in_fabric() && link.by_hosts().is_some();
        // There is no life of a fabric that has number 0.
        let switch_instance = self.link.as_ref().filter(|link| !by_hosts(link)).map_or(0, |link| link.switch_instance());
        let wanted = self.config.sparse as u64 | u64::from(self.config.is_flare()) << FLARE_SHIFT;
        let mine = Told { entries, wanted, switch_instance };
        let (step, mut told) = (SparseStep { op, size, number: 0 }, vec![Told::default(); self.world() as usize]);
        let mut buffers = Buffers::Apart { input: bytemuck::bytes_of(&mine), output: bytemuck::cast_slice_mut(&mut told) };
        self.run_step(CollectiveKind::AllGather, copied(DType::I64), Told::WORDS, &mut buffers, Some(step))?;
        for (rank, theirs) in (0..).zip(&told) {
            if theirs.entries > size {
                return Err(self.broken(format!("rank {rank} has {} entries in a vector of {size}", theirs.entries), rank));
            }
            if theirs.wanted != mine.wanted {
                let text = format!(
                    "rank {rank} and rank {} differ in how sparse vectors are reduced (FANIN_SPARSE, FANIN_SYSTEM)",
                    self.config.rank
                );
                return Err(self.broken(text, rank));
            }
        }
        Ok(told)
    }

    /// How lists of so many entries would go through the switch, or why they do not.
    fn switch_plan(&self, op: ElementOp, size: u64, told: &[Told]) -> Result<Plan, NoSwitch> {
        let is_in_fabric = self.is_in_fabric();
        if is_in_fabric && !self.config.is_flare() {
            return Err(NoSwitch::Fabric);
        } else if is_in_fabric && self.levels.is_some() {
            return Err(NoSwitch::SharedHosts);
        }
        let payload_bytes = self.payload_bytes.ok_or(NoSwitch::SharedMemory)?;
        let in_order = self.config.sums_by_tree();
        let is_float = matches!(op.dtype, DType::F64 | DType::F32 | DType::F16 | DType::BF16);
        if self.config.sparse == SparsePath::Lists {
            Err(NoSwitch::NotWanted)
        } else if self.rounds(op) {
            Err(NoSwitch::FixedPoint)
        } else if self.config.reproducible.is_some() && is_float && !in_order {
            Err(NoSwitch::Reproducible)
        } else if !locked(&self.switch_way).is_open() {
            Err(NoSwitch::Failed)
        } else if told.iter().any(|theirs| theirs.switch_instance != told[0].switch_instance) {
            Err(NoSwitch::Restarted)
        } else if is_in_fabric && told.iter().any(|theirs| theirs.switch_instance == 0) {
            Err(NoSwitch::ByHosts)
        } else {
            let longest = told.iter().map(|told| told.entries).max().unwrap_or_default();
            let payload_bytes = plan::payload_of_pairs(payload_bytes, &self.dense_system());
            let plan = Plan::new(op, self.world(), payload_bytes, size, longest);
            plan.and_then(|plan| if in_order { plan.in_order(self.world()) } else { Some(plan) }).ok_or(NoSwitch::TooLong)
        }
    }

    fn choices(&self, op: ElementOp, plan: Result<Plan, NoSwitch>) -> Choices {
        Choices { may_be_dense: !self.rounds(op), plan, wanted: self.config.sparse }
    }

    /// The sum by the switch; `None` at all ranks where one did not get it.
    fn reduce_at_switch(
        &self,
        op: ElementOp,
        size: u64,
        entries: &Entries,
        plan: &Plan,
        switch_instance: u64,
    ) -> Result<Option<Entries>, CommError> {
        let Some(link) = &self.link else { return Ok(None) };
        let mut way = locked(&self.switch_way);
        let step = SparseStep { op, size, number: 4 };
        let Config { world, rank, .. } = self.config;
        let (number, kind) = (self.next_call(), CollectiveKind::Allreduce);
        let call = Call { number, kind, op, custom: None, elements: size, world, rank, part: None, sparse: Some(step) };
        let at = (&**link, switch_instance, self.place());
        let sum = way.reduce((&self.config, self.timeouts.running(), &self.switch_traffic), at, plan, &call, entries);
        if let Some(failure) = link.failure() {
            return Err(failure);
        }
        if sum.as_ref().is_err_and(|error| is_of_user(error, rank)) {
            return Err(self.fail(INTERRUPTED));
        }
        // Ranks that have no sum are here at once, or have waited less than others wait for them.
        let mut all_have = [u8::from(sum.is_ok())];
        let least = ElementOp { dtype: DType::U8, operator: Operator::Min };
        self.run_step(kind, least, 1, &mut Buffers::InPlace(&mut all_have), Some(step))?;
        let why = match sum {
            Ok(sum) if all_have == [1] => {
                way.succeeded();
                return Ok(Some(sum));
            }
            Ok(_) => "another rank did not get the switch's sum".to_owned(),
            Err(error) => error.to_string(),
        };
        way.failed();
        self.config.notices.tell(&format!("job {:?}: sparse vectors are gathered as lists this time: {why}", self.config.job));
        Ok(None)
    }

    fn gather_lists(&self, op: ElementOp, size: u64, entries: &Entries, counts: &[u64], longest: u64) -> Result<Entries, CommError> {
        if longest == 0 {
            return Ok(Entries::default());
        }
        let packed = Packed::new(size, longest, op);
        let (input, share) = (packed.pack(entries), packed.bytes() as usize);
        let mut all = vec![0; share * counts.len()];
        let step = SparseStep { op, size, number: 1 };
        let mut buffers = Buffers::Apart { input: &input, output: &mut all };
        self.run_step(CollectiveKind::AllGather, copied(DType::U8), share as u64, &mut buffers, Some(step))?;
        let mut collection = Collection::default();
        all.chunks_exact(share).zip(counts).for_each(|(list, count)| packed.unpack(list, *count, &mut collection));
        Ok(collection.merge(op, self.world()))
    }

    fn reduce_dense(&self, op: ElementOp, size: u64, entries: &Entries) -> Result<Entries, CommError> {
        let (mut vector, mut presence) = (dense::spread(op, size, entries), dense::presence(size, entries));
        let step = SparseStep { op, size, number: 2 };
        self.run_step(CollectiveKind::Allreduce, op, size, &mut Buffers::InPlace(&mut vector), Some(step))?;
        let or = ElementOp { dtype: DType::U8, operator: Operator::Or };
        let (step, bytes) = (SparseStep { number: 3, ..step }, presence.len() as u64);
        self.run_step(CollectiveKind::Allreduce, or, bytes, &mut Buffers::InPlace(&mut presence), Some(step))?;
        Ok(dense::collect(op, &vector, &presence))
    }
}

impl<T: Element> Sparse<T> {
    pub(crate) fn of((entries, report): (Entries, SparseReport)) -> Self {
        let mut values = vec![T::zeroed(); entries.values.len() / size_of::<T>()];
        // Whole elements, or bytes where the caller knows what they are.
        bytemuck::cast_slice_mut(&mut values).copy_from_slice(&entries.values);
        Sparse { indices: entries.indices, values, report }
    }
}

/// Whether the user of this rank has had enough of waiting.
fn is_of_user(error: &CommError, rank: u32) -> bool {
    matches!(error, CommError::Failed { kind: Some(FailureKind::Aborted), suspect_rank: Some(suspect), .. } if *suspect == rank)
}

/// What is only gathered.
fn copied(dtype: DType) -> ElementOp {
    ElementOp { dtype, operator: Operator::Max }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_that_do_not_fit_are_named() {
        let given = |operator, indices: &[u64], values: &[f32], size| {
            let op = ElementOp { dtype: DType::F32, operator };
            Given::new(op, indices, bytemuck::cast_slice(values), size).unwrap_err().to_string()
        };
        assert_eq!(
            given(Operator::Sum, &[0, 10, 3], &[1.0; 3], 10),
            "sparse allreduce: indices[1] = 10: expected below the size of the vector, 10"
        );
        assert_eq!(given(Operator::Sum, &[0], &[1.0; 3], 10), "sparse allreduce: 1 indices and 3 values (f32): expected as many");
        assert!(given(Operator::Avg, &[], &[], 10).contains("operator = avg: expected sum, min or max; divide a sum"));
        assert!(given(Operator::Sum, &[], &[], u64::MAX).contains("size = 18446744073709551615: expected a vector of f32"));
    }
}
