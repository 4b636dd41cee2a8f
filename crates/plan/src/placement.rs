//! Which hosts carry which workers.

use fanin_core::{ElementOp, NodeId, Operator};
use fanin_sim::random::{Purpose, Random};
use fanin_sim::topology::Topology;
use fanin_systems::System;

use super::errors::{PlanError, Refuse};
use super::schema::{Job, Placement, Setup};
use super::tree::{Tree, parse_path};
use super::units::Amount;

/// One job, placed.
#[derive(Clone, Debug)]
pub struct PreparedJob {
    /// Its place among the plan's `[[jobs]]`.
    pub entry: usize,
    /// Its system.
    pub system: System,
    /// The hosts of its workers, by rank.
    pub hosts: Vec<NodeId>,
    /// Element type and operator.
    pub op: ElementOp,
    /// What the plan says of it.
    pub settings: Job,
    /// Its table in the plan, for errors.
    pub table: Tree,
}

/// Hosts that nobody has taken yet.
pub struct Free {
    taken: Vec<bool>,
    /// All hosts in random order. Everybody takes a prefix of what is left, so a larger job has the hosts of a smaller one, and more.
    shuffled: Vec<u32>,
    /// Hosts leaf by leaf in turn.
    spread: Vec<u32>,
}

impl Free {
    /// All hosts of a network; random choices are the seed's.
    pub fn new(topology: &Topology, seed: u64) -> Self {
        let hosts = topology.map.hosts();
        let mut shuffled: Vec<u32> = (0..hosts).collect();
        Random::new(seed, Purpose::Placement, 0).shuffle(&mut shuffled);
        let mut seen = vec![0u32; topology.map.nodes() as usize];
        let mut spread: Vec<(u32, u32)> = (0..hosts)
            .map(|host| {
                let leaf = topology.map.leaf_of(NodeId(host)).map_or(0, |leaf| leaf.node.index());
                seen[leaf] += 1;
                (seen[leaf], host)
            })
            .collect();
        spread.sort_unstable();
        Free { taken: vec![false; hosts as usize], shuffled, spread: spread.into_iter().map(|(_, host)| host).collect() }
    }

    fn hosts(&self) -> u32 {
        self.taken.len() as u32
    }

    /// How many are left.
    pub fn left(&self) -> u32 {
        self.taken.iter().filter(|taken| !**taken).count() as u32
    }

    /// Takes `count` hosts, or as many as are left.
    pub fn take(&mut self, placement: &Placement, count: u32) -> Vec<NodeId> {
        let ascending: Vec<u32> = (0..self.hosts()).collect();
        let order: &[u32] = match placement {
            Placement::Random => &self.shuffled,
            Placement::Packed => &ascending,
            Placement::Spread => &self.spread,
            Placement::Hosts(hosts) => hosts,
        };
        let chosen: Vec<u32> = order.iter().copied().filter(|host| !self.taken[*host as usize]).take(count as usize).collect();
        for &host in &chosen {
            self.taken[host as usize] = true;
        }
        chosen.into_iter().map(NodeId).collect()
    }
}

/// Places all jobs: first those whose hosts are listed, then the others in order.
///
/// # Errors
/// [`PlanError`] where hosts do not suffice or are listed wrongly.
pub fn place_jobs(refuse: &Refuse<'_>, setup: &Setup, free: &mut Free) -> Result<Vec<PreparedJob>, PlanError> {
    let total: u64 = setup.jobs.iter().map(|job| u64::from(job.common.copies.0)).sum();
    if total > 60_000 {
        return Err(refuse.say("jobs", total, "at most 60000 jobs"));
    }
    let mut listed: Vec<Option<Vec<NodeId>>> = Vec::new();
    for (entry, job) in setup.jobs.iter().enumerate() {
        listed.push(match &job.common.placement {
            Placement::Hosts(hosts) => Some(listed_hosts(refuse, job, entry, hosts, free)?),
            _ => None,
        });
    }
    let mut placed = Vec::new();
    for (entry, job) in setup.jobs.iter().enumerate() {
        for _ in 0..job.common.copies.0 {
            let hosts = match &listed[entry] {
                Some(hosts) => hosts.clone(),
                None => {
                    let count = worker_count(refuse, job, entry, free)?;
                    free.take(&job.common.placement, count)
                }
            };
            placed.push(PreparedJob {
                entry,
                system: job.system,
                hosts,
                op: ElementOp { dtype: job.common.element.dtype(), operator: Operator::Sum },
                settings: job.clone(),
                table: refuse.tree.closest(&parse_path(&format!("jobs.{entry}"))).clone(),
            });
        }
    }
    Ok(placed)
}

fn listed_hosts(refuse: &Refuse<'_>, job: &Job, entry: usize, hosts: &[u32], free: &mut Free) -> Result<Vec<NodeId>, PlanError> {
    let path = format!("jobs[{entry}].placement");
    if hosts.is_empty() {
        return Err(refuse.at(&path, "at least 1 host"));
    }
    if job.common.copies.0 != 1 {
        return Err(refuse.at(&format!("jobs[{entry}].copies"), "1, since the hosts are listed"));
    }
    if let Some(Amount::Count(workers)) = job.common.workers
        && workers as usize != hosts.len()
    {
        return Err(refuse.at(&format!("jobs[{entry}].workers"), format!("{}, the number of hosts listed", hosts.len())));
    }
    for (index, &host) in hosts.iter().enumerate() {
        let path = format!("{path}[{index}]");
        if host >= free.hosts() {
            return Err(refuse.say(&path, host, format!("hosts from 0 to {}", free.hosts() - 1)));
        }
        if std::mem::replace(&mut free.taken[host as usize], true) {
            return Err(refuse.say(&path, host, "a host that no other worker has"));
        }
    }
    Ok(hosts.iter().copied().map(NodeId).collect())
}

fn worker_count(refuse: &Refuse<'_>, job: &Job, entry: usize, free: &Free) -> Result<u32, PlanError> {
    let path = format!("jobs[{entry}].workers");
    let (hosts, left) = (free.hosts(), free.left());
    let count = match job.common.workers {
        None => return Err(refuse.at(&path, "a number of workers or a percentage of all hosts")),
        Some(Amount::Count(count)) => count,
        Some(Amount::Share(share)) => (f64::from(hosts) * share).round() as u32,
    };
    if count > hosts {
        return Err(refuse.at(&path, format!("at most {hosts}, the number of hosts")));
    }
    if count > left {
        return Err(refuse.at(&path, format!("at most {left}: the other {} of {hosts} hosts have workers already", hosts - left)));
    }
    if count == 0 {
        return Err(refuse.at(&path, format!("at least 1 of {hosts} hosts")));
    }
    Ok(count)
}
