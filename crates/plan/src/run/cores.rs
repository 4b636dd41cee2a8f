//! How cores are divided: first among runs, which have nothing to do with each other, and where there are fewer of these than cores, each run
//! has several and is simulated in parts.

use fanin_sim::RunResult;
use fanin_sim::parts::Report;
use fanin_simulation::Runs;

use super::{Prepared, simulation};
use crate::jobs::PreparedJob;
use crate::reading::PlanError;

/// A part has at least so many hosts; with fewer, handing over takes longer than a second core saves.
const HOSTS_MIN: usize = 64;

/// The system whose workers deliver nothing before they have all of an operation: how far they are from its end cannot be told from that, and
/// runs in parts would be begun anew.
const DELIVERS_AT_END: &str = "rina";

/// What a plan's runs have of the cores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cores {
    /// Runs at the same time.
    pub runs: usize,
    /// Most parts of each.
    pub parts: usize,
    /// Fewest hosts of a part.
    pub hosts_min: usize,
}

/// On how many cores a run was.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OnCores {
    /// How it went in parts, if it had several.
    pub parts: Option<Report>,
    /// Why it had but one core, or one in the end, where more were free for it and it was large enough.
    pub one_core: Option<&'static str>,
}

impl Cores {
    /// So many threads among so many runs.
    pub fn divide(threads: usize, runs: usize) -> Self {
        let at_once = threads.min(runs).max(1);
        Cores { runs: at_once, parts: (threads / at_once).max(1), hosts_min: HOSTS_MIN }
    }

    /// How many parts a run on so many hosts has.
    pub(super) fn parts_of(self, prepared: &Prepared) -> usize {
        (prepared.topology.map.hosts() as usize / self.hosts_min.max(1)).clamp(1, self.parts)
    }
}

/// One simulation with payload `P`, in so many parts at most.
///
/// # Errors
/// [`PlanError`] where a system refuses its configuration.
pub fn simulate_in_parts<P: Runs + ?Sized>(
    prepared: &Prepared,
    op: impl Fn(&PreparedJob) -> P::Op,
    parts: usize,
) -> Result<(RunResult, OnCores), PlanError> {
    let built = simulation::<P>(prepared, &op)?;
    if parts < 2 {
        return Ok((P::run(built), OnCores::default()));
    }
    if let Some(why) = built.why_not(parts) {
        return Ok((P::run(built), OnCores { parts: None, one_core: Some(why) }));
    }
    if prepared.jobs.iter().any(|job| job.system.name() == DELIVERS_AT_END) {
        let why = "a rina worker delivers all at the end of an operation, so that nobody knows how near it is";
        return Ok((P::run(built), OnCores { parts: None, one_core: Some(why) }));
    }
    match P::run_in_parts(built, parts) {
        Ok((result, report)) => {
            let (most, windows) = (report.speedup_max(), report.windows);
            tracing::debug!(parts = report.events.len(), windows, in_turn = report.in_turn, speedup_max = most, "run in parts");
            Ok((result, OnCores { parts: Some(report), one_core: None }))
        }
        Err(again) => {
            tracing::debug!(why = again.0, "run begun anew on one core");
            Ok((P::run(simulation::<P>(prepared, &op)?), OnCores { parts: None, one_core: Some(again.0) }))
        }
    }
}
