//! Collectives of a group of ranks, by a communicator of Fanin: at the switch or fabric that the environment names, or at a switch in the first
//! rank's process.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_int;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{env, thread};

use fanin_comm::{CollectiveKind, CommError, Communicator, Config, DType, ElementOp, Host, Notices, Operator, Rank};
use fanin_foreign::{Region, Request};

use crate::abi::REQUESTS_MAX;
use crate::devices::{Device, devices};
use crate::handle::Handle;
use crate::log::{Failure, info};
use crate::windows::pieces;

/// Settings that say where ranks meet, where there is a switch.
const SWITCHES: [&str; 2] = ["FANIN_SWITCH", "FANIN_FABRIC"];
/// How long a switch in this process waits for ranks that leave.
const LINGER: Duration = Duration::from_secs(5);
/// How often it is looked whether an aborted group's calls have ended.
const LOOK: Duration = Duration::from_millis(1);

/// Element types by NCCL's numbers; sums and products of unsigned integers have the bits of signed ones.
const TYPES: [(&str, Option<DType>, bool); 12] = [
    ("int8", Some(DType::I8), false),
    ("uint8", Some(DType::U8), false),
    ("int32", Some(DType::I32), false),
    ("uint32", Some(DType::I32), true),
    ("int64", Some(DType::I64), false),
    ("uint64", Some(DType::I64), true),
    ("float16", Some(DType::F16), false),
    ("float32", Some(DType::F32), false),
    ("float64", Some(DType::F64), false),
    ("bfloat16", Some(DType::BF16), false),
    ("float8e4m3", None, false),
    ("float8e5m2", None, false),
];

/// Operators by NCCL's numbers; its max and min give a NaN where either is one, as those of the card do.
const OPERATORS: [(&str, Operator); 5] =
    [("sum", Operator::Sum), ("prod", Operator::Prod), ("max", Operator::Maximum), ("min", Operator::Minimum), ("avg", Operator::Avg)];

/// What reduces elements of one of NCCL's types by one of its operators.
///
/// # Errors
/// Why nothing does, in words.
pub(crate) fn element_op(of: c_int, by: c_int) -> Result<ElementOp, String> {
    let (name, dtype, is_unsigned) =
        usize::try_from(of).ok().and_then(|of| TYPES.get(of)).ok_or_else(|| format!("type number {of} is not known"))?;
    let (verb, operator) =
        usize::try_from(by).ok().and_then(|by| OPERATORS.get(by)).ok_or_else(|| format!("operator number {by} is not known"))?;
    let dtype = dtype.ok_or_else(|| format!("{verb} of {name}: switches have no 8-bit floats"))?;
    // Integers have no NaN, and their least is the same by either name.
    let operator = match operator {
        Operator::Maximum if !dtype.is_float() => Operator::Max,
        Operator::Minimum if !dtype.is_float() => Operator::Min,
        operator => *operator,
    };
    if *is_unsigned && !matches!(operator, Operator::Sum | Operator::Prod) {
        return Err(format!("{verb} of {name}: switches compare integers of 32 and 64 bits as signed ones"));
    }
    ElementOp::new(dtype, operator).map_err(|error| format!("{verb} of {name}: {error}"))
}

/// Whether elements of a type can be reduced by an operator; the log says why not, once.
pub(crate) fn supports(of: c_int, by: c_int) -> bool {
    static TOLD: Mutex<BTreeSet<(c_int, c_int)>> = Mutex::new(BTreeSet::new());
    let Err(words) = element_op(of, by) else { return true };
    if TOLD.lock().unwrap_or_else(PoisonError::into_inner).insert((of, by)) {
        info(format!("left to NCCL: {words}"));
    }
    false
}

/// A rank's place in a group to come.
pub(crate) struct Listener {
    /// A switch in this process, which the group takes if this is its first rank and no switch was named.
    host: Option<Host>,
    device: &'static Device,
}

impl Listener {
    pub(crate) fn new(device: &'static Device) -> Result<(Self, Handle), Failure> {
        let has_switch = SWITCHES.iter().any(|name| env::var_os(name).is_some());
        let start =
            || Host::start_by(&BTreeMap::new(), (device.address, 0).into(), LINGER).map_err(|error| Failure::system(error.to_string()));
        let host = if has_switch { None } else { Some(start()?) };
        let handle = Handle::new(host.as_ref().map(Host::address));
        Ok((Listener { host, device }, handle))
    }
}

/// How a request stands.
#[derive(Default)]
struct Slot {
    is_taken: AtomicBool,
    /// Calls of it that have not ended.
    under_way: AtomicUsize,
    bytes: AtomicUsize,
    failed: Mutex<Option<CommError>>,
}

/// A group of ranks.
pub(crate) struct Group {
    comm: Option<Communicator>,
    slots: Arc<[Slot; REQUESTS_MAX]>,
    /// What NCCL holds as requests: addresses in here.
    places: Vec<Place>,
    calls: AtomicUsize,
    moved: AtomicUsize,
    /// After the communicator: ranks leave before their switch does.
    _host: Option<Host>,
}

/// What a request points to.
pub(crate) struct Place {
    slots: Arc<[Slot; REQUESTS_MAX]>,
    slot: usize,
}

/// A call of a request.
struct Call {
    kind: CollectiveKind,
    op: ElementOp,
    /// Of a share.
    elements: usize,
    input: Region,
    output: Region,
}

impl Group {
    /// Joins the group of those handles, as this rank; waits until all have.
    pub(crate) fn join(listener: &mut Listener, handles: &[Handle], rank: usize) -> Result<Box<Self>, Failure> {
        let first = handles.first().ok_or_else(|| Failure::argument("nranks = 0: expected 1 or more"))?;
        let host = listener.host.take();
        if let Some(other) = handles.iter().position(|handle| handle.address.is_some() != first.address.is_some()) {
            let [with, without] = if first.address.is_none() { [0, other] } else { [other, 0] };
            return Err(Failure::usage(format!(
                "FANIN_SWITCH or FANIN_FABRIC is set at rank {with} and not at rank {without}: expected the same at all"
            )));
        }
        let prefix = env::var("FANIN_JOB").unwrap_or_else(|_| "nccl".into());
        let mut given = BTreeMap::from([
            ("FANIN_RANK", rank.to_string()),
            ("FANIN_WORLD", handles.len().to_string()),
            ("FANIN_JOB", format!("{prefix}-{:016x}", first.secret)),
        ]);
        if let Some(address) = first.address {
            given.insert("FANIN_RENDEZVOUS", address.to_string());
        }
        if devices()?.len() > 1 && env::var_os("FANIN_BIND").is_none() {
            // A group of this device's.
            given.insert("FANIN_BIND", listener.device.address.to_string());
        }
        let config = Config::from_settings(&given, true).map_err(|error| Failure::usage(error.to_string()))?;
        let config = Config { notices: Notices::to(|words| info(words)), ..config };
        let comm = Communicator::join(config).map_err(|error| Failure::remote(error.to_string()))?;
        info(format!("rank {rank} of {} in job {}: {}", comm.world(), comm.job(), comm.path()));
        Ok(Group::around(comm, host.filter(|_| rank == 0)))
    }

    fn around(comm: Communicator, host: Option<Host>) -> Box<Self> {
        let slots: Arc<[Slot; REQUESTS_MAX]> = Arc::default();
        let places = (0..REQUESTS_MAX).map(|slot| Place { slots: slots.clone(), slot }).collect();
        Box::new(Group { comm: Some(comm), slots, places, calls: AtomicUsize::new(0), moved: AtomicUsize::new(0), _host: host })
    }

    fn comm(&self) -> Result<&Communicator, Failure> {
        self.comm.as_ref().ok_or_else(|| Failure::argument("the group is closed"))
    }

    /// Reduces a vector, for all.
    ///
    /// # Safety
    /// As [`Group::start`].
    pub(crate) unsafe fn allreduce(
        &self,
        op: ElementOp,
        elements: usize,
        input: Region,
        output: Region,
    ) -> Result<Option<&Place>, Failure> {
        // SAFETY: as this function's.
        unsafe { self.start(&[Call { kind: CollectiveKind::Allreduce, op, elements, input, output }], output.bytes) }
    }

    /// Gathers a window of the vector that consists of the shares of all: `share` is that of this rank, from its first byte in the window on.
    ///
    /// # Safety
    /// As [`Group::start`].
    pub(crate) unsafe fn allgather(
        &self,
        share: usize,
        share_bytes: usize,
        window: Range<usize>,
        parts: &[Region],
    ) -> Result<Option<&Place>, Failure> {
        let (comm, op, bytes) = (self.comm()?, COPIES, window.len());
        let whole = share_bytes.checked_mul(comm.world() as usize);
        if let ([output], true) = (parts, window.start == 0 && whole == Some(window.end)) {
            let input = Region { address: share, bytes: share_bytes };
            let call = Call { kind: CollectiveKind::AllGather, op, elements: share_bytes, input, output: *output };
            // SAFETY: as this function's.
            return unsafe { self.start(&[call], bytes) };
        }
        let lengths: Vec<usize> = parts.iter().map(|part| part.bytes).collect();
        let calls: Vec<Call> = pieces(comm.world(), share_bytes, window, &lengths)
            .map_err(Failure::argument)?
            .into_iter()
            .map(|piece| {
                let output = Region { address: parts[piece.part].address + piece.within_part, bytes: piece.bytes };
                let own = Region { address: share + piece.within_own, bytes: piece.bytes };
                let input = if piece.rank == comm.rank() { own } else { Region::NONE };
                Call { kind: CollectiveKind::Broadcast { root: Rank(piece.rank) }, op, elements: piece.bytes, input, output }
            })
            .collect();
        // SAFETY: as this function's.
        unsafe { self.start(&calls, bytes) }
    }

    /// Reduces a window of a vector that consists of shares, each of which goes to its rank: `share` is where this rank's goes, from its first byte
    /// in the window on.
    ///
    /// # Safety
    /// As [`Group::start`].
    pub(crate) unsafe fn reduce_scatter(
        &self,
        op: ElementOp,
        share: usize,
        share_bytes: usize,
        window: Range<usize>,
        parts: &[Region],
    ) -> Result<Option<&Place>, Failure> {
        let (comm, bytes, size) = (self.comm()?, window.len(), op.dtype.bytes());
        let is_whole = |bytes: &usize| bytes.is_multiple_of(size);
        if ![share_bytes, window.start, window.end].iter().all(is_whole) || !parts.iter().all(|part| is_whole(&part.bytes)) {
            return Err(Failure::argument(format!(
                "shares of {share_bytes} bytes, the window {window:?} or a part of it end within an element of {size}"
            )));
        }
        let whole = share_bytes.checked_mul(comm.world() as usize);
        if let ([input], true) = (parts, window.start == 0 && whole == Some(window.end)) {
            let output = Region { address: share, bytes: share_bytes };
            let call = Call { kind: CollectiveKind::ReduceScatter, op, elements: share_bytes / size, input: *input, output };
            // SAFETY: as this function's.
            return unsafe { self.start(&[call], bytes) };
        }
        let lengths: Vec<usize> = parts.iter().map(|part| part.bytes).collect();
        let calls: Vec<Call> = pieces(comm.world(), share_bytes, window, &lengths)
            .map_err(Failure::argument)?
            .into_iter()
            .map(|piece| {
                let input = Region { address: parts[piece.part].address + piece.within_part, bytes: piece.bytes };
                let own = Region { address: share + piece.within_own, bytes: piece.bytes };
                let output = if piece.rank == comm.rank() { own } else { Region::NONE };
                Call { kind: CollectiveKind::Reduce { root: Rank(piece.rank) }, op, elements: piece.bytes / size, input, output }
            })
            .collect();
        // SAFETY: as this function's.
        unsafe { self.start(&calls, bytes) }
    }

    /// Starts the calls of a request; nothing where as many requests as there may be are under way.
    ///
    /// # Safety
    /// The memory stays where it is, and nobody else touches it, until the request has ended.
    unsafe fn start(&self, calls: &[Call], bytes: usize) -> Result<Option<&Place>, Failure> {
        let comm = self.comm()?;
        let Some(slot) = self.slots.iter().position(|slot| !slot.is_taken.swap(true, Ordering::AcqRel)) else { return Ok(None) };
        let standing = &self.slots[slot];
        standing.bytes.store(bytes, Ordering::Relaxed);
        standing.under_way.store(calls.len(), Ordering::Release);
        for (index, call) in calls.iter().enumerate() {
            let slots = self.slots.clone();
            let request = Request::new(call.kind, call.elements as u64, (call.input, call.output), (comm.rank(), comm.world()))
                .map_err(Failure::argument);
            // SAFETY: as this function's.
            let started = request.and_then(|request| unsafe {
                let done = move |result: Result<(), CommError>| slots[slot].end(result);
                request.start(comm, call.op.into(), done).map_err(|error| Failure::remote(error.to_string()))
            });
            if let Err(failure) = started {
                // Those before go on; the place stays taken for them.
                let before = standing.under_way.fetch_sub(calls.len() - index, Ordering::AcqRel);
                if before == calls.len() - index {
                    standing.is_taken.store(false, Ordering::Release);
                }
                return Err(failure);
            }
        }
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.moved.fetch_add(bytes, Ordering::Relaxed);
        Ok(Some(&self.places[slot]))
    }

    /// Leaves. Calls that have not ended are ended, for all ranks: NCCL closes a group with some under way only where it gives up.
    pub(crate) fn close(mut self: Box<Self>) {
        let Some(comm) = self.comm.take() else { return };
        let under_way = || self.slots.iter().map(|slot| slot.under_way.load(Ordering::Acquire)).sum::<usize>();
        if under_way() > 0 {
            comm.abort("NCCL has closed the group with calls under way");
            while under_way() > 0 {
                thread::sleep(LOOK);
            }
        }
        let (calls, moved) = (self.calls.load(Ordering::Relaxed), self.moved.load(Ordering::Relaxed));
        info(format!("rank {} leaves job {}: {calls} collectives, {moved} bytes", comm.rank(), comm.job()));
    }
}

/// What is only copied needs no operator.
const COPIES: ElementOp = ElementOp { dtype: DType::U8, operator: Operator::Max };

impl Slot {
    /// A call has ended.
    fn end(&self, result: Result<(), CommError>) {
        if let Err(error) = result {
            self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
        self.under_way.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Place {
    /// Whether the request has ended, and with how many bytes; its place is free then.
    pub(crate) fn test(&self) -> Result<Option<usize>, Failure> {
        let slot = &self.slots[self.slot];
        if !slot.is_taken.load(Ordering::Acquire) {
            return Err(Failure::argument("the request has ended before: test was told so"));
        }
        if slot.under_way.load(Ordering::Acquire) > 0 {
            return Ok(None);
        }
        let failed = slot.failed.lock().unwrap_or_else(PoisonError::into_inner).take();
        slot.is_taken.store(false, Ordering::Release);
        match failed {
            Some(error) => Err(Failure::remote(error.to_string())),
            None => Ok(Some(slot.bytes.load(Ordering::Relaxed))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_and_operators_are_those_of_nccl_and_what_is_missing_has_a_reason() {
        let of = |of, by| element_op(of, by).map(|op| (op.dtype, op.operator));
        assert_eq!(of(7, 0), Ok((DType::F32, Operator::Sum)));
        assert_eq!(of(9, 4), Ok((DType::BF16, Operator::Avg)));
        assert_eq!(of(6, 2), Ok((DType::F16, Operator::Maximum)));
        assert_eq!(of(2, 3), Ok((DType::I32, Operator::Min)));
        assert_eq!(of(3, 0), Ok((DType::I32, Operator::Sum)));
        assert_eq!(of(5, 1), Ok((DType::I64, Operator::Prod)));
        for (number, by, words) in [
            (3, 2, "as signed ones"),
            (5, 3, "as signed ones"),
            (10, 0, "8-bit floats"),
            (12, 0, "type number 12"),
            (-1, 0, "number -1"),
            (7, 5, "operator number 5"),
            (2, 4, "avg of int32"),
        ] {
            let told = element_op(number, by).unwrap_err();
            assert!(told.contains(words), "{told}");
            assert!(!supports(number, by));
        }
        assert!(supports(8, 0));
    }
}
