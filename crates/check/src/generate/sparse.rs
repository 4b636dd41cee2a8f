//! Jobs of sparse vectors.

use fanin_core::Operator;
use fanin_systems::{DoublingParameters, FlareCoding, FlareParameters, FlareStorage, Picks, System};

use crate::draw::Draw;
use crate::recipe::JobRecipe;

/// Packets of a block of a sparse vector, at most.
pub(super) const PACKETS_MAX: u64 = 10;

/// The stream of how alike indices are.
const ALIKE: u64 = 0x0a1c;

/// The stream of how packets name indices; apart for the same reason as [`alike`].
const CODING: u64 = 0xc0d1;

/// Some jobs become jobs of Flare: all that were wanted, or one in sixteen of those without servers. Blocks have one packet or several; tables
/// are small, so that spill is the rule.
pub(super) fn flare(draw: &mut Draw, jobs: &mut [JobRecipe], only: Option<&str>) {
    const STORAGES: [FlareStorage; 4] = [FlareStorage::Fitting, FlareStorage::TwoLevel, FlareStorage::Array, FlareStorage::Table];
    for job in jobs {
        let wanted = only.map_or_else(|| job.system.servers() == 0 && draw.percent(6), |name| name == "flare");
        if !wanted {
            continue;
        }
        let pair_bytes = 2 + job.op.dtype.bytes() as u32;
        job.payload_bytes = job.payload_bytes.max(pair_bytes).next_multiple_of(job.op.dtype.bytes() as u32);
        let capacity = job.payload_bytes / pair_bytes;
        let range = if draw.percent(30) { 0 } else { draw.between(1, u64::from(capacity) * (PACKETS_MAX - 2)).min(65_536) as u32 };
        let (overlap, picks) = alike(draw);
        let coding = if Draw::new(draw.clone().bits(), CODING).percent(70) { FlareCoding::Shortest } else { FlareCoding::Pairs };
        job.system = System::Flare(FlareParameters {
            density: draw.scaled(1, 1_000) as f64 / 1_000.0,
            overlap,
            picks,
            range,
            staggered: draw.percent(50),
            coding,
            storage: *draw.pick(&STORAGES),
            slots: draw.scaled(1, 2 * u64::from(capacity)) as u32,
            probes: draw.percent(50),
        });
        if job.op.operator == Operator::Avg {
            job.op.operator = Operator::Sum;
        }
        job.kinds = Vec::new();
    }
}

/// How alike the workers' indices are. Drawn apart, so that everything else of a seed stays as it was before there was this.
fn alike(draw: &Draw) -> (f64, Picks) {
    let mut apart = Draw::new(draw.clone().bits(), ALIKE);
    let overlap = if apart.percent(50) { 0.0 } else { apart.between(0, 100) as f64 / 100.0 };
    (overlap, if apart.percent(30) { Picks::Buckets } else { Picks::Random })
}

/// Some jobs become jobs of recursive doubling: all that were wanted, or one in sixteen of those without servers.
pub(super) fn doubling(draw: &mut Draw, jobs: &mut [JobRecipe], only: Option<&str>) {
    for job in jobs {
        let wanted = only.map_or_else(|| job.system.servers() == 0 && draw.percent(6), |name| name == "doubling");
        if !wanted {
            continue;
        }
        let element_bytes = job.op.dtype.bytes() as u32;
        job.payload_bytes = job.payload_bytes.max(4 + element_bytes).next_multiple_of(element_bytes);
        let (overlap, picks) = alike(draw);
        job.system = System::Doubling(DoublingParameters { density: draw.scaled(1, 1_000) as f64 / 1_000.0, overlap, picks });
        if job.op.operator == Operator::Avg {
            job.op.operator = Operator::Sum;
        }
        job.kinds = Vec::new();
    }
}

/// How many steps an operation of recursive doubling has.
pub(super) fn doubling_steps(job: &JobRecipe) -> u64 {
    2 + u64::from(job.hosts.len().max(1).ilog2())
}

/// How many packets there are at most at one link for each of a dense vector: all workers may send their lists over it, step by step, and a
/// packet takes fewer pairs than elements.
pub(super) fn doubling_load(job: &JobRecipe) -> u64 {
    let element_bytes = job.op.dtype.bytes() as u32;
    let (elements, pairs) = (job.payload_bytes / element_bytes, job.payload_bytes / (4 + element_bytes));
    u64::from(elements.div_ceil(pairs.max(1))) * doubling_steps(job) * job.hosts.len() as u64
}
