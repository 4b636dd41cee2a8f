//! Networks of which only some switches aggregate.

use fanin_core::{Census, JobId, NetworkMap, NodeId};
use fanin_systems::{System, build};

use crate::recipe::JobRecipe;
use fanin_systems::Draw;

/// In some runs with static trees not all switches aggregate; never so few that a job has none that it needs, and all of those between
/// which hosts carry.
pub(super) fn forwarding(draw: &mut Draw, map: &NetworkMap, jobs: &[JobRecipe]) -> Vec<NodeId> {
    let has_trees = jobs.iter().any(|job| matches!(job.system, System::Tree(_) | System::Panama(_)));
    if draw.percent(60) || !has_trees || map.has_carriers() {
        return Vec::new();
    }
    let share = draw.between(20, 80);
    let chosen: Vec<NodeId> = map.switches().filter(|_| draw.percent(share)).collect();
    let mut partial = map.clone();
    chosen.iter().for_each(|switch| partial.forward_only(*switch));
    let fits = |(id, job): (u16, &JobRecipe)| build::<Census>(&job.spec(JobId(id), ()), &partial).is_ok();
    if (0..).zip(jobs).all(fits) { chosen } else { Vec::new() }
}
