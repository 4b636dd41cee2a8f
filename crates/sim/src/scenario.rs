//! What to simulate: plain data, checked when a [`crate::Simulation`] is built from it.

use std::sync::Arc;

use fanin_core::payload::Sparsity;
use fanin_core::{CellKind, Cells, CollectiveKind, DType, Duration, Instant, JobId, NodeId, Role};

use crate::faults::FaultPlan;
use crate::flows::FlowConfig;
use crate::limits::HostLimit;
pub use crate::network::NetworkConfig;
use crate::noise::Delay;
pub use crate::setup::{LinkSpeed, SetupError};
use crate::traffic::TrafficConfig;

/// Where a node lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodePlacement {
    /// The host or switch.
    pub at: NodeId,
    /// Its job.
    pub job: JobId,
    /// Its role there.
    pub role: Role,
}

/// Phases in which a job's workers compute and send nothing.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Compute {
    /// So many operations make an iteration, which begins with computing; at least 1.
    pub operations: u32,
    /// How long a worker computes, on average.
    pub mean: Duration,
    /// Each worker draws each phase's time anew, evenly between the mean less this share of it and the mean plus this share: 0 to 1.
    pub spread: f64,
}

/// What the real elements of a job's workers are. Payloads without elements have nothing to do with it.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Contributions {
    /// Small whole numbers, whose sums are exact in any order. Sums are compared bit by bit.
    #[default]
    Whole,
    /// Floats of such different sizes that sums are rounded, differently for each order. Sums must be near the exact ones; their bits are in
    /// [`Verdict::results`](crate::metrics::Verdict::results).
    Rounded,
    /// The same floats, summed by element as integers. The job's elements are cells, and each operation of the schedule is a part of a sum.
    /// Sums are compared bit by bit with such sums that are computed apart.
    OrderFree {
        /// Type of the floats.
        dtype: DType,
        /// How they travel.
        cells: Cells,
        /// What each operation of the schedule is.
        parts: Arc<[CellPart]>,
    },
}

impl Contributions {
    /// Whether they fit the job's schedule.
    ///
    /// # Errors
    /// [`SetupError`] names the field.
    pub(crate) fn check(&self, index: usize, job: &JobSchedule) -> Result<(), SetupError> {
        let field = || format!("jobs[{index}].contributions");
        let is_sum = |kind: &CollectiveKind| *kind == CollectiveKind::Allreduce;
        let are_dense_sums = job.kinds.iter().all(is_sum) && job.sparsity.is_none();
        if !matches!(self, Contributions::Whole) && !are_dense_sums {
            return Err(SetupError::new(field(), "floats", "allreduces of dense vectors only where sums are rounded"));
        }
        let Contributions::OrderFree { dtype, cells, parts } = self else { return Ok(()) };
        let fits = |(elements, part): (&u64, &CellPart)| *elements == cells.count(part.kind, part.elements);
        if !dtype.is_float() || job.element_bytes as usize != cells.bytes() {
            return Err(SetupError::new(field(), format!("{} bytes", cells.bytes()), "floats in cells that are the job's elements"));
        }
        if parts.len() != job.elements.len() || !job.elements.iter().zip(&**parts).all(fits) {
            return Err(SetupError::new(field(), format!("{} parts", parts.len()), "as many cells as each operation has elements"));
        }
        Ok(())
    }
}

/// An operation of a job that sums by element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CellPart {
    /// Which of the job's vectors it is a part of.
    pub vector: u32,
    /// What its cells hold. Integers come after the exponents of the same elements.
    pub kind: CellKind,
    /// The first element.
    pub first: u64,
    /// How many.
    pub elements: u64,
}

impl CellPart {
    /// The operations that sum vectors of so many elements, one after the other, each in chunks of `chunk` elements: exponents of a chunk, then its
    /// integers, as the communicator does.
    pub fn all(vectors: &[u64], chunk: u64) -> Vec<CellPart> {
        let (chunk, mut parts) = (chunk.max(1), Vec::new());
        for (vector, elements) in (0..).zip(vectors) {
            // A vector of no elements is summed, too.
            for number in 0..elements.div_ceil(chunk).max(1) {
                let first = number * chunk;
                let elements = (elements - first).min(chunk);
                parts.extend([CellKind::Exponents, CellKind::Integers].map(|kind| CellPart { vector, kind, first, elements }));
            }
        }
        parts
    }
}

/// What a job does.
#[derive(Clone, PartialEq, Debug)]
pub struct JobSchedule {
    /// Length of each operation's vector in elements.
    pub elements: Vec<u64>,
    /// What each operation is, from the first one on; those that nothing is said of are allreduces. Not every system does every kind.
    pub kinds: Vec<CollectiveKind>,
    /// Bytes of an element on the wire.
    pub element_bytes: u32,
    /// What elements are, where packets carry some.
    pub contributions: Contributions,
    /// What values of sparse vectors are of, where the job brings its operator along.
    pub values: DType,
    /// Where vectors are sparse: at which indices workers have something. Packets of such jobs carry elements.
    pub sparsity: Option<Sparsity>,
    /// Sparse vectors whose indices are given: those of each rank, in order, none twice. Otherwise they are drawn.
    pub indices: Option<Arc<[Box<[u64]>]>>,
    /// When each rank begins; operations follow at once when the former has ended. One entry a rank.
    pub start: Vec<Instant>,
    /// Computing between operations; `None`: there is none.
    pub compute: Option<Compute>,
    /// When all workers and servers of the job stop at once, for good and without a word.
    pub crash: Option<Instant>,
    /// Probability that a packet of this job leaves its host late (host noise).
    pub noise_probability: f64,
    /// How much later.
    pub noise_delay: Delay,
}

/// Everything beside the nodes.
#[derive(Clone, PartialEq, Debug)]
pub struct Scenario {
    /// The network.
    pub network: NetworkConfig,
    /// The jobs, by [`JobId`].
    pub jobs: Vec<JobSchedule>,
    /// Background traffic.
    pub traffic: Vec<TrafficConfig>,
    /// Background flows.
    pub flows: Vec<FlowConfig>,
    /// Limits of hosts.
    pub limits: Vec<HostLimit>,
    /// Injected faults.
    pub faults: FaultPlan,
    /// Seed of every random decision.
    pub seed: u64,
    /// The run is given up at this time.
    pub time_limit: Duration,
    /// Go on until nothing moves after the last job has ended (background traffic stops then).
    pub drain: bool,
}
