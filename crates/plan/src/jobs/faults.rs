//! From `[faults]` to the simulator's fault plan: names become nodes.

use fanin_core::{Instant, NodeId};
use fanin_sim::faults::{FaultPlan, KindSet, LinkFault, LinkSelector, TimedFault};
use fanin_sim::topology::Topology;

use super::prepared::PreparedJob;
use crate::reading::{PlanError, Refuse};
use crate::schema::{LinkFaults, Links, Setup, Timed, TimedKind};

/// The fault plan.
///
/// # Errors
/// [`PlanError`] where a fault names something that does not exist.
pub fn faults(refuse: &Refuse<'_>, setup: &Setup, topology: &Topology, jobs: &[PreparedJob]) -> Result<FaultPlan, PlanError> {
    let config = &setup.general.faults;
    let links = config.links.iter().enumerate().map(|(index, faults)| link_faults(refuse, faults, index, topology));
    let timed = config.timed.iter().enumerate().map(|(index, timed)| timed_fault(refuse, timed, index, topology, jobs));
    let plan = FaultPlan {
        links: links.collect::<Result<_, _>>()?,
        timed: timed.collect::<Result<_, _>>()?,
        anti_replay: config.anti_replay,
        ..FaultPlan::default()
    };
    plan.check().map_err(|error| refuse.setup(&error))?;
    Ok(plan)
}

fn link_faults(refuse: &Refuse<'_>, faults: &LinkFaults, index: usize, topology: &Topology) -> Result<LinkFault, PlanError> {
    let path = |key: &str| format!("faults.links[{index}].{key}");
    let links = match &faults.links {
        Links::All => LinkSelector::All,
        Links::HostUp => LinkSelector::HostUp,
        Links::HostDown => LinkSelector::HostDown,
        Links::Fabric => LinkSelector::Fabric,
        Links::Between { from, to } => {
            let (from, to) = (node(refuse, topology, &path("links.from"), from)?, node(refuse, topology, &path("links.to"), to)?);
            if !topology.map.neighbours(from).iter().any(|next| next.node == to) {
                return Err(refuse.at(&path("links"), "two neighbours: no cable joins these"));
            }
            LinkSelector::Between { from, to }
        }
    };
    let kinds = faults.kinds.as_ref().map_or(KindSet::ALL, |kinds| KindSet::of(&kinds.iter().map(|kind| kind.kind()).collect::<Vec<_>>()));
    Ok(LinkFault {
        links,
        kinds,
        loss: faults.loss.0,
        corruption: faults.corruption.0,
        duplication: faults.duplication.0,
        reordering: faults.reordering.0,
        delay_max: faults.delay.0,
    })
}

fn node(refuse: &Refuse<'_>, topology: &Topology, path: &str, name: &str) -> Result<NodeId, PlanError> {
    topology.node_named(name).ok_or_else(|| {
        let switches = match topology.map.switches().count() {
            1 => "switch0".to_string(),
            _ => "leaf0, leaf1, ..., spine0, ...".to_string(),
        };
        refuse.say(path, format!("{name:?}"), format!("a node of the network: host0 to host{}, {switches}", topology.map.hosts() - 1))
    })
}

fn timed_fault(
    refuse: &Refuse<'_>,
    timed: &Timed,
    index: usize,
    topology: &Topology,
    jobs: &[PreparedJob],
) -> Result<TimedFault, PlanError> {
    let path = |key: &str| format!("faults.timed[{index}].{key}");
    let from = Instant::ZERO + timed.from.0;
    let until = timed.until.map_or(Instant::FAR_FUTURE, |until| Instant::ZERO + until.0);
    if until <= from {
        return Err(refuse.at(&path("until"), "a time after from"));
    }
    let given = [
        ("between", timed.between.is_some()),
        ("switch", timed.switch.is_some()),
        ("host", timed.host.is_some()),
        ("rank", timed.rank.is_some()),
        ("job", timed.job.is_some()),
        ("until", timed.until.is_some()),
    ];
    let only = |kind: &str, allowed: &[&str]| match given.iter().find(|(key, given)| *given && !allowed.contains(key)) {
        Some((key, _)) => Err(refuse.at(&path(key), format!("no such key with kind = {kind:?}"))),
        None => Ok(()),
    };
    match timed.kind {
        TimedKind::LinkDown => {
            only("link-down", &["between", "until"])?;
            let Some((a, b)) = &timed.between else { return Err(refuse.at(&path("between"), "the names of two neighbours")) };
            let (a, b) = (node(refuse, topology, &path("between[0]"), a)?, node(refuse, topology, &path("between[1]"), b)?);
            if !topology.map.neighbours(a).iter().any(|next| next.node == b) {
                return Err(refuse.at(&path("between"), "two neighbours: no cable joins these"));
            }
            Ok(TimedFault::LinkDown { a, b, from, until })
        }
        TimedKind::SwitchDown => {
            only("switch-down", &["switch", "until"])?;
            let Some(name) = &timed.switch else { return Err(refuse.at(&path("switch"), "the name of a switch")) };
            let switch = node(refuse, topology, &path("switch"), name)?;
            if topology.map.is_host(switch) {
                return Err(refuse.at(&path("switch"), "the name of a switch"));
            }
            Ok(TimedFault::SwitchDown { switch, from, until })
        }
        TimedKind::HostStall => {
            only("host-stall", &["host", "rank", "job", "until"])?;
            if timed.until.is_none() {
                return Err(refuse.at(&path("until"), "a time after from"));
            }
            Ok(TimedFault::HostStall { host: host(refuse, timed, index, topology, jobs)?, from, until })
        }
        TimedKind::HostDies => {
            only("host-dies", &["host", "rank", "job"])?;
            Ok(TimedFault::HostDies { host: host(refuse, timed, index, topology, jobs)?, at: from })
        }
    }
}

/// The host that a fault strikes, by its own name or by the worker on it.
fn host(refuse: &Refuse<'_>, timed: &Timed, index: usize, topology: &Topology, jobs: &[PreparedJob]) -> Result<NodeId, PlanError> {
    let path = |key: &str| format!("faults.timed[{index}].{key}");
    match (&timed.host, timed.rank) {
        (Some(name), None) => {
            let host = node(refuse, topology, &path("host"), name)?;
            if topology.map.is_host(host) { Ok(host) } else { Err(refuse.at(&path("host"), "the name of a host, such as \"host3\"")) }
        }
        (None, Some(rank)) => {
            let number = timed.job.unwrap_or(0);
            let Some(job) = jobs.get(number as usize) else {
                return Err(refuse.say(&path("job"), number, format!("a job below {}", jobs.len())));
            };
            let workers = job.hosts.len();
            job.hosts
                .get(rank as usize)
                .copied()
                .ok_or_else(|| refuse.at(&path("rank"), format!("a rank below {workers}, the number of workers")))
        }
        (Some(_), Some(_)) => Err(refuse.at(&path("rank"), "either host or rank")),
        (None, None) => Err(refuse.at(&path("host"), "the name of a host, such as \"host3\", or a rank")),
    }
}
