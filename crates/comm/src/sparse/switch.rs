//! Sparse vectors through the job's switch: Flare, as a job of its own beside the communicator's (`flare 1`).
//!
//! Ranks conclude from the same counts how blocks are cut and what the switch keeps its sums in ([`Plan`]), and open the job when it is first
//! of use. Whether all have got the sum is agreed upon through the communicator's own job, which survives a restart of the switch: where one
//! has not, all gather their lists instead. So a sum is the switch's at all ranks or at none.

use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use fanin_control::{HEADER_BYTES_MAX, PAYLOAD_STEP_BYTES, header_bytes_max};
use fanin_core::{CollectiveKind, ElementOp};
use fanin_runtime::{BlockSet, CollectiveCall, RunError, SparseEntry, Vectors, WorkerDriver};
use fanin_systems::{AnyNode, FlarePackets, FlareParameters, FlareStorage, System};

use super::lists::Entries;
use crate::call::Call;
use crate::config::{Config, Meeting, Transport};
use crate::error::CommError;
use crate::link::{Link, Opened, Survival};
use crate::meeting::{self, Wanted};
use crate::path::datagrams;
use crate::path::patience::Patience;
use crate::path::star;
use crate::path::traffic::Traffic;

/// Indices are named by 16 bits within a block (`flare 2`).
const RANGE_MAX: u64 = 1 << 16;
/// Bytes of an index in a packet.
const INDEX_BYTES: u32 = 2;
/// A worker's part of a block is expected to be so many bytes, or one packet where that is more: several packets of a block, all but the last
/// of which are full, go by one system call and through the kernel as one. With one packet a block, of 1.4 kB, an allreduce took twice as long.
const BLOCK_BYTES: u32 = 12 << 10;
/// So much of the last packet is expected to stay empty, as the authors leave 16 of 164 pairs free: most blocks need no packet more.
const LEFT_FREE: f64 = 0.1;
/// The densities that are told apart end at 2^-16: blocks cannot have more indices.
const HALVINGS_MAX: u32 = 16;
/// What the switch may keep for a job's blocks, in bytes.
const SWITCH_BYTES: u64 = 64 << 20;
/// Blocks under way: at least so many that a round trip is shared, at most as many packets as queues take at once.
const WINDOWS: std::ops::RangeInclusive<u64> = 4..=128;
/// A job whose sums could not be had so often in a row is not opened again.
const FAILURES_MAX: u32 = 3;

/// How sparse vectors go through a switch.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Plan {
    op: ElementOp,
    /// Blocks are cut for vectors with a share of 2^-halvings of their indices.
    halvings: u32,
    parameters: FlareParameters,
    payload_bytes: u32,
    window: u32,
}

/// Bytes of pairs in a packet that is no longer than those of the communicator's own job, which carry `payload_bytes` bytes of elements:
/// Flare's headers are longer, and admission refuses a wish that the shortest path does not carry.
pub(super) fn payload_of_pairs(payload_bytes: u32) -> u32 {
    let longer = HEADER_BYTES_MAX.saturating_sub(header_bytes_max(&Wanted::DENSE.system, false));
    (payload_bytes.saturating_sub(longer) / PAYLOAD_STEP_BYTES * PAYLOAD_STEP_BYTES).max(PAYLOAD_STEP_BYTES)
}

impl Plan {
    /// For vectors of `size` elements of which a rank gives at most `longest`; `None` where packets have no room for a pair, or there would be
    /// more blocks than can be numbered.
    pub(crate) fn new(op: ElementOp, world: u32, payload_bytes: u32, size: u64, longest: u64) -> Option<Self> {
        let element_bytes = op.dtype.bytes() as u32;
        let capacity = payload_bytes / (INDEX_BYTES + element_bytes);
        let halvings = (size / longest.max(1)).max(1).ilog2().min(HALVINGS_MAX);
        // Packets of a block are numbered by 16 bits at the switch, which has at most one of its own for each that comes.
        let numbered = u64::from(u16::MAX) / u64::from(world) * u64::from(capacity);
        let filled = f64::from(capacity) * (f64::from((BLOCK_BYTES / payload_bytes).max(1)) - LEFT_FREE) * f64::from(1u32 << halvings);
        let range = (filled as u64).clamp(1, RANGE_MAX.min(numbered.max(1)));
        if capacity == 0 || size.div_ceil(range) > u64::from(u32::MAX) {
            return None;
        }
        let density = 1.0 / f64::from(1u32 << halvings);
        let parameters = FlareParameters {
            density,
            range: range as u32,
            // One switch, with one thread: there is no other core that could take another block meanwhile.
            staggered: false,
            storage: FlareStorage::Fitting,
            slots: table_slots(density, world, range),
            probes: true,
            ..FlareParameters::default()
        };
        let packets = FlarePackets { workers: world, window: *WINDOWS.start() as u32, payload_bytes, element_bytes };
        let block = packets.block_bytes(&parameters).ok()?;
        let window = (SWITCH_BYTES / (2 * block)).clamp(*WINDOWS.start(), *WINDOWS.end());
        Some(Plan { op, halvings, parameters, payload_bytes, window: 1 << window.ilog2() })
    }

    /// What a rank receives, in bytes: at most the pairs of all ranks, and the header of a packet for every block.
    pub(crate) fn bytes(&self, size: u64, entries: u64) -> u64 {
        let pair = u64::from(INDEX_BYTES) + self.op.dtype.bytes() as u64;
        entries.min(size).saturating_mul(pair).saturating_add(self.blocks(size) * u64::from(HEADER_BYTES_MAX))
    }

    /// How many blocks a vector of `size` elements has.
    fn blocks(&self, size: u64) -> u64 {
        size.div_ceil(u64::from(self.parameters.range))
    }

    /// Whether a job that was opened by this plan does for another one: blocks may be somewhat larger or smaller than would be best.
    fn does_for(&self, other: &Plan) -> bool {
        let same = |plan: &Plan| (plan.op, plan.payload_bytes);
        same(self) == same(other) && self.halvings.abs_diff(other.halvings) <= 1
    }
}

/// Slots of a table that is half full with what is expected in the sum; the switch takes an array where that is smaller.
fn table_slots(density: f64, world: u32, range: u64) -> u32 {
    let expected = (1.0 - (1.0 - density).powi(world as i32)) * range as f64;
    ((2.0 * expected) as u32).clamp(64, RANGE_MAX as u32).next_power_of_two()
}

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
        (main, switch_instance): (&Link, u64),
        plan: &Plan,
        call: &Call,
        entries: &Entries,
    ) -> Result<Entries, CommError> {
        if !self.job.as_ref().is_some_and(|job| job.plan.does_for(plan) && job.switch_instance == switch_instance) {
            self.job = None;
            self.opened += 1;
            let mut job = FlareJob::open(config, (main, switch_instance), plan, self.opened)?;
            let watch = job.driver.watch();
            if let Err(watch) = traffic.set(Arc::new(Traffic::of(watch.clone()))).map_err(|_| watch)
                && let Some(traffic) = traffic.get()
            {
                traffic.renew(watch);
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

/// This rank's end of a job of Flare.
struct FlareJob {
    plan: Plan,
    /// In another life the switch knows nothing of it.
    switch_instance: u64,
    link: Arc<Link>,
    control: Option<JoinHandle<()>>,
    driver: WorkerDriver<AnyNode<[u8]>>,
    calls: u32,
}

impl FlareJob {
    /// `switch_instance`: the life of the switch in which all ranks have decided to open it. In another one nobody waits for a rank that has
    /// learnt of the restart otherwise.
    fn open(config: &Config, (main, switch_instance): (&Link, u64), plan: &Plan, number: u32) -> Result<Self, CommError> {
        let config = Config {
            job: format!("{}/sparse-{number}", config.job),
            meeting: Meeting::Switch(main.switch().to_string()),
            // Who has no sum tells the others through the communicator's own job, and they must have given up by then.
            timeout: patience(config.timeout),
            transport: Transport::Udp,
            payload_bytes: Some(plan.payload_bytes),
            window: Some(plan.window),
            fixed_point: false,
            reproducible: None,
            operators: Vec::new(),
            ..config.clone()
        };
        let wanted = Wanted { system: System::Flare(plan.parameters), op: plan.op, switch_instance: Some(switch_instance) };
        let joined = meeting::join(&config, wanted, &main.runner())?;
        let node = star::node(&config, &joined.admitted, plan.op)?;
        let driver = datagrams::driver(&config, &joined.admitted, joined.socket, (node, plan.op))?;
        let opened = Opened { stream: joined.stream, session: joined.session, join: joined.join, admitted: joined.admitted };
        let (link, thread) = Link::start(&config, opened, Survival::None, main.runner())?;
        link.set_waker(driver.waker());
        tracing::info!(job = config.job, rank = config.rank, density = plan.parameters.density, range = plan.parameters.range, "joined");
        Ok(FlareJob { plan: *plan, switch_instance, link, control: Some(thread), driver, calls: 0 })
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
        let result = self.driver.collective(&what, vectors, (&mut BlockSet::default(), 0), |remaining| {
            if main.has_failed() || link.has_failed() {
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
        });
        self.driver.publish();
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

impl Drop for FlareJob {
    fn drop(&mut self) {
        self.link.close(self.calls);
        if let Some(thread) = self.control.take() {
            let _ = thread.join();
        }
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

    fn plan(world: u32, payload: u32, size: u64, longest: u64) -> Plan {
        Plan::new(ElementOp::F32_SUM, world, payload, size, longest).unwrap()
    }

    #[test]
    fn blocks_are_cut_by_the_density_and_switches_keep_what_fits() {
        // 240 pairs of 6 bytes in a packet, and eight packets; one element in 16 is there or more.
        let sparse = plan(4, 1_440, 1_000_000, 50_000);
        assert_eq!((sparse.halvings, sparse.parameters.range, sparse.parameters.slots), (4, 30_336, 16_384));
        let dense = plan(4, 1_440, 1_000, 900);
        assert_eq!((dense.halvings, dense.parameters.range), (0, 1_896));
        // Packets that take all of it.
        let long = plan(4, 60_000, 1_000_000, 50_000);
        assert_eq!((long.halvings, long.parameters.range), (4, 65_536));
        let emptiest = plan(4, 1_440, 1 << 40, 3);
        assert_eq!((emptiest.halvings, emptiest.parameters.range), (16, 65_536));
        for plan in [sparse, dense, emptiest, plan(1_024, 1_440, 1 << 30, 1 << 20)] {
            let packets = FlarePackets { workers: 4, window: plan.window, payload_bytes: 1_440, element_bytes: 4 };
            let bytes = 2 * u64::from(plan.window) * packets.block_bytes(&plan.parameters).unwrap();
            assert!(WINDOWS.contains(&u64::from(plan.window)) && bytes <= SWITCH_BYTES, "{plan:?}");
        }
        assert_eq!(Plan::new(ElementOp::F32_SUM, 4, 4, 1_000, 900), None, "no room for a pair");
        assert_eq!(Plan::new(ElementOp::F32_SUM, 4, 1_440, 1 << 62, 900), None, "more blocks than numbers");
    }

    #[test]
    fn packets_of_pairs_are_no_longer_than_those_of_elements() {
        for payload in (8..4_096).step_by(8).chain([65_416]) {
            let pairs = payload_of_pairs(payload);
            assert!(pairs > 0 && pairs.is_multiple_of(PAYLOAD_STEP_BYTES), "{payload}");
            let longest = payload + header_bytes_max(&Wanted::DENSE.system, false);
            let headers = header_bytes_max(&System::Flare(plan(4, 1_440, 1_000, 900).parameters), false);
            assert!(payload < 64 || (longest - PAYLOAD_STEP_BYTES < pairs + headers && pairs + headers <= longest), "{payload} {pairs}");
        }
    }

    #[test]
    fn a_job_goes_on_while_densities_stay_about_the_same() {
        let of = |longest| plan(4, 1_440, 1 << 20, longest);
        let opened = of(1 << 10);
        assert!(opened.does_for(&of(1 << 10)) && opened.does_for(&of(700)) && opened.does_for(&of(2_000)));
        assert!(!opened.does_for(&of(100)) && !opened.does_for(&of(10_000)));
        let other = Plan::new(ElementOp::I32_SUM, 4, 1_440, 1 << 20, 1 << 10).unwrap();
        assert!(!opened.does_for(&other));
    }

    #[test]
    fn bytes_are_those_of_pairs_and_headers() {
        let headers = 16 * u64::from(HEADER_BYTES_MAX);
        assert_eq!(plan(4, 1_440, 1_000_000, 5_000).bytes(1_000_000, 18_000), 18_000 * 6 + headers);
    }

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
