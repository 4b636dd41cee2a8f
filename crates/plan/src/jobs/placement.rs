//! Which hosts carry which workers.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use fanin_core::{ElementOp, NodeId, Operator};
use fanin_operator::Faults;
use fanin_sim::random::{Purpose, Random};
use fanin_sim::topology::Topology;
use fanin_systems::System;

use super::operators;
use super::prepared::PreparedJob;
use crate::reading::size::WORKERS_MAX;
use crate::reading::tree::parse_path;
use crate::reading::units::Amount;
use crate::reading::{PlanError, Refuse};
use crate::schema::{Job, Placement, ServerPlacement, Servers, Setup, Workers};

/// Gives a job the operator that it names.
///
/// # Errors
/// [`PlanError`] with the key: there is no such operator, the job's packets carry no elements, or it cannot be combined by switches.
pub fn apply_operator(refuse: &Refuse<'_>, job: &mut PreparedJob) -> Result<(), PlanError> {
    let path = format!("jobs[{}].operator", job.entry);
    let Some(name) = &job.settings.common.operator else { return Ok(()) };
    if job.system.sparsity().is_none() {
        let sparse = System::names_of("or", |system| system.sparsity().is_some());
        return Err(refuse.at(&path, format!("no such key without {sparse}: packets of other systems carry no elements here")));
    }
    let dtype = job.op.dtype;
    if !name.ends_with(operators::MODULE) {
        let expected = |error: &dyn std::fmt::Display| format!("an operator ({error}), or a module's file, *{}", operators::MODULE);
        let operator: Operator = name.parse().map_err(|error| refuse.at(&path, expected(&error)))?;
        job.op = ElementOp::new(dtype, operator).map_err(|error| refuse.at(&path, format!("an operator of {dtype}: {error}")))?;
        return Ok(());
    }
    if !job.system.takes_operators() {
        let takers = System::names_of("or", System::takes_operators);
        return Err(refuse.at(&path, format!("a built-in operator, or {takers}, whose switches combine by others")));
    }
    job.operator = Some(operators::load_of_plan(refuse.file, name, dtype).map_err(|why| refuse.at(&path, why))?);
    Ok(())
}

/// Which jobs hosts have, and who may still come.
pub struct Free {
    hosts: Vec<Load>,
    /// All hosts in random order. Everybody takes a prefix of what is left, so a larger job has the hosts of a smaller one, and more.
    shuffled: Vec<u32>,
    /// Hosts leaf by leaf in turn.
    spread: Vec<u32>,
    /// The switch next to each host.
    leaves: Vec<u32>,
    seed: u64,
    /// Random orders drawn for jobs that share hosts.
    draws: u64,
}

/// The jobs of a host.
#[derive(Clone, Copy)]
struct Load {
    jobs: u32,
    /// The fewest that any of them shares the host with, itself included.
    most: u32,
}

impl Load {
    /// Whether a job may come that shares a host with at most `most` jobs, itself included.
    fn has_room(self, most: u32) -> bool {
        self.jobs < self.most.min(most)
    }
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
        Free {
            hosts: vec![Load { jobs: 0, most: u32::MAX }; hosts as usize],
            shuffled,
            spread: spread.into_iter().map(|(_, host)| host).collect(),
            leaves: (0..hosts).map(|host| topology.map.leaf_of(NodeId(host)).map_or(u32::MAX, |leaf| leaf.node.0)).collect(),
            seed,
            draws: 0,
        }
    }

    fn count(&self) -> u32 {
        self.hosts.len() as u32
    }

    /// How many have no job.
    pub fn left(&self) -> u32 {
        self.left_for(1)
    }

    /// How many have room for a job that shares its hosts with at most `most` jobs, itself included.
    fn left_for(&self, most: u32) -> u32 {
        self.hosts.iter().filter(|load| load.has_room(most)).count() as u32
    }

    /// Takes `count` hosts that have no job, or as many as there are.
    pub fn take(&mut self, placement: &Placement, count: u32) -> Vec<NodeId> {
        self.take_shared(placement, count, 1, &[])
    }

    /// Takes `count` hosts for a job that shares them with at most `most` jobs, itself included, or as many as there are; none of `but`.
    fn take_shared(&mut self, placement: &Placement, count: u32, most: u32, but: &[NodeId]) -> Vec<NodeId> {
        let order = self.order(placement, most);
        let fits = |host: &u32| self.hosts[*host as usize].has_room(most) && !but.contains(&NodeId(*host));
        let chosen: Vec<u32> = order.into_iter().filter(fits).take(count as usize).collect();
        chosen.iter().for_each(|&host| self.settle(host, most));
        chosen.into_iter().map(NodeId).collect()
    }

    /// All hosts, first those next to the switches with most of these hosts.
    fn near(&self, hosts: &[NodeId]) -> Vec<u32> {
        let mut below: BTreeMap<u32, usize> = BTreeMap::new();
        hosts.iter().for_each(|host| *below.entry(self.leaves[host.index()]).or_default() += 1);
        let neighbours = |host: &u32| Reverse(below.get(&self.leaves[*host as usize]).copied().unwrap_or(0));
        let mut order: Vec<u32> = (0..self.count()).collect();
        order.sort_by_cached_key(neighbours);
        order
    }

    fn settle(&mut self, host: u32, most: u32) {
        let load = &mut self.hosts[host as usize];
        load.jobs += 1;
        load.most = load.most.min(most);
    }

    /// In which order hosts are asked. Jobs that share hosts each have a random order of their own: by a common one they would all go to
    /// the same hosts. Where they are spread, those with the fewest jobs come first.
    fn order(&mut self, placement: &Placement, most: u32) -> Vec<u32> {
        match placement {
            Placement::Random if most > 1 => {
                let mut order: Vec<u32> = (0..self.count()).collect();
                Random::new(self.seed, Purpose::Placement, 2 << 32 | self.draws).shuffle(&mut order);
                self.draws += 1;
                order
            }
            Placement::Random => self.shuffled.clone(),
            Placement::Packed => (0..self.count()).collect(),
            Placement::Spread => {
                let mut order = self.spread.clone();
                order.sort_by_key(|host| self.hosts[*host as usize].jobs);
                order
            }
            Placement::Hosts(hosts) => hosts.clone(),
        }
    }
}

/// Hosts that a plan lists for a job.
struct Listed {
    workers: Option<Vec<NodeId>>,
    servers: Option<Vec<NodeId>>,
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
    let mut listed: Vec<Listed> = Vec::new();
    for (entry, job) in setup.jobs.iter().enumerate() {
        let workers = match &job.common.placement {
            Placement::Hosts(hosts) => Some(listed_workers(refuse, job, entry, hosts, free)?),
            _ => None,
        };
        let servers = match &job.common.servers {
            Some(Servers::Hosts(hosts)) => Some(listed_servers(refuse, job, entry, hosts, free)?),
            _ => None,
        };
        listed.push(Listed { workers, servers });
    }
    let mut placed: Vec<PreparedJob> = Vec::new();
    let mut workers_in_all = 0;
    for (entry, job) in setup.jobs.iter().enumerate() {
        let most = job.common.jobs_per_host.0;
        for _ in 0..job.common.copies.0 {
            let hosts = match &listed[entry].workers {
                Some(hosts) => hosts.clone(),
                None => {
                    let count = worker_count(refuse, job, entry, free, placed.len() as u64)?;
                    free.take_shared(&job.common.placement, count, most, listed[entry].servers.as_deref().unwrap_or(&[]))
                }
            };
            workers_in_all += hosts.len() as u64;
            if workers_in_all > WORKERS_MAX {
                let (path, copies) = (format!("jobs[{entry}].copies"), job.common.copies.0);
                return Err(refuse.say(&path, copies, format!("at most {WORKERS_MAX} workers of all jobs together")));
            }
            let servers = match &listed[entry].servers {
                Some(servers) => servers.clone(),
                None => drawn_servers(refuse, job, entry, free, &hosts)?,
            };
            placed.push(PreparedJob {
                entry,
                listed: setup.entries[entry],
                system: job.system,
                hosts,
                servers,
                op: ElementOp { dtype: job.common.element.dtype(), operator: Operator::Sum },
                operator: None,
                faults: Faults::default(),
                cells: None,
                indices: None,
                settings: job.clone(),
                table: refuse.tree.closest(&parse_path(&format!("jobs.{entry}"))).clone(),
            });
        }
    }
    Ok(placed)
}

fn listed_workers(refuse: &Refuse<'_>, job: &Job, entry: usize, hosts: &[u32], free: &mut Free) -> Result<Vec<NodeId>, PlanError> {
    check_list(refuse, job, entry, "placement", hosts)?;
    let wanted = job.workload.as_ref().map(|source| source.workload.hosts.count(source.workload.ranks));
    if let Some(wanted) = wanted.filter(|wanted| *wanted as usize != hosts.len()) {
        return Err(refuse.at(&format!("jobs[{entry}].placement"), format!("{wanted} hosts, as the workload has them")));
    }
    if let Some(Workers::Amount(Amount::Count(workers))) = job.common.workers
        && workers as usize != hosts.len()
    {
        return Err(refuse.at(&format!("jobs[{entry}].workers"), format!("{}, the number of hosts listed", hosts.len())));
    }
    listed_hosts(refuse, job, entry, "placement", hosts, free)
}

fn listed_servers(refuse: &Refuse<'_>, job: &Job, entry: usize, hosts: &[u32], free: &mut Free) -> Result<Vec<NodeId>, PlanError> {
    check_list(refuse, job, entry, "servers", hosts)?;
    if let Placement::Hosts(workers) = &job.common.placement
        && let Some((index, host)) = hosts.iter().enumerate().find(|(_, host)| workers.contains(host))
    {
        return Err(refuse.say(&format!("jobs[{entry}].servers[{index}]"), host, "a host without a worker of the job"));
    }
    listed_hosts(refuse, job, entry, "servers", hosts, free)
}

fn check_list(refuse: &Refuse<'_>, job: &Job, entry: usize, key: &str, hosts: &[u32]) -> Result<(), PlanError> {
    if hosts.is_empty() {
        return Err(refuse.at(&format!("jobs[{entry}].{key}"), "at least 1 host"));
    }
    if job.common.copies.0 != 1 {
        return Err(refuse.at(&format!("jobs[{entry}].copies"), "1, since the hosts are listed"));
    }
    Ok(())
}

fn listed_hosts(refuse: &Refuse<'_>, job: &Job, entry: usize, key: &str, hosts: &[u32], free: &mut Free) -> Result<Vec<NodeId>, PlanError> {
    let most = job.common.jobs_per_host.0;
    for (index, &host) in hosts.iter().enumerate() {
        let path = format!("jobs[{entry}].{key}[{index}]");
        if host >= free.count() {
            return Err(refuse.say(&path, host, format!("hosts from 0 to {}", free.count() - 1)));
        }
        if hosts[..index].contains(&host) || !free.hosts[host as usize].has_room(most) {
            let expected = match most {
                1 => "a host that no other worker has".to_string(),
                _ => format!("each host once, and with at most {most} jobs (jobs_per_host)"),
            };
            return Err(refuse.say(&path, host, expected));
        }
        free.settle(host, most);
    }
    Ok(hosts.iter().copied().map(NodeId).collect())
}

/// How many workers job number `number` has.
fn worker_count(refuse: &Refuse<'_>, job: &Job, entry: usize, free: &Free, number: u64) -> Result<u32, PlanError> {
    let path = format!("jobs[{entry}].workers");
    let wanted = job.workload.as_ref().map(|source| source.workload.hosts.count(source.workload.ranks));
    let (hosts, left) = (free.count(), free.left_for(job.common.jobs_per_host.0));
    let count = match job.common.workers {
        Some(Workers::Amount(Amount::Count(count))) if wanted.is_none_or(|wanted| wanted == count) => count,
        Some(_) if wanted.is_some() => return Err(refuse.at(&path, format!("{}, the hosts of the workload", wanted.unwrap_or(0)))),
        None if wanted.is_some() => wanted.unwrap_or(0),
        None => return Err(refuse.at(&path, "a number of workers or a percentage of all hosts")),
        Some(Workers::Amount(Amount::Count(count))) => count,
        Some(Workers::Amount(Amount::Share(share))) => (f64::from(hosts) * share).round() as u32,
        Some(Workers::Between(low, high)) => {
            if high > left {
                return Err(refuse.at(&path, format!("at most {left}, the number of hosts that have room")));
            }
            low + Random::new(free.seed, Purpose::Placement, 3 << 32 | number).below(high - low + 1)
        }
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

/// Hosts for the servers of a job whose workers are at `hosts`.
fn drawn_servers(refuse: &Refuse<'_>, job: &Job, entry: usize, free: &mut Free, hosts: &[NodeId]) -> Result<Vec<NodeId>, PlanError> {
    let of_groups = job.groups.iter().map(|(_, system)| system.servers()).max().unwrap_or(0);
    let count = match job.common.servers {
        Some(Servers::Count(count)) => count,
        _ => job.system.servers().max(of_groups),
    };
    let placement = match (job.common.server_placement, &job.common.placement) {
        (Some(ServerPlacement::Packed), _) => Placement::Packed,
        (Some(ServerPlacement::Spread), _) => Placement::Spread,
        (Some(ServerPlacement::Near), _) => Placement::Hosts(free.near(hosts).into_iter().collect()),
        (Some(ServerPlacement::Random), _) | (None, Placement::Hosts(_)) => Placement::Random,
        (None, other) => other.clone(),
    };
    let servers = free.take_shared(&placement, count, job.common.jobs_per_host.0, hosts);
    if (servers.len() as u32) < count {
        let expected = format!("at most {}, the number of hosts that have room beside the workers", servers.len());
        return Err(refuse.say(&format!("jobs[{entry}].servers"), count, expected));
    }
    Ok(servers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Plan, Prepared};

    fn prepared(jobs: &str, seed: u64) -> Prepared {
        let network =
            "[network]\nshape = \"fat-tree\"\nleaves = 12\nspines = 12\nhosts_per_leaf = 48\nrate = \"100Gb/s\"\nlatency = \"2us\"\n";
        let plan = Plan::parse("plan", &format!("{network}{jobs}"), &[], Some(seed)).unwrap();
        plan.prepare(&plan.points[0], 0).unwrap()
    }

    /// How many jobs each host has.
    fn loads(prepared: &Prepared) -> Vec<u32> {
        let mut loads = vec![0; prepared.topology.map.hosts() as usize];
        for job in &prepared.jobs {
            let everybody: Vec<NodeId> = job.hosts.iter().chain(&job.servers).copied().collect();
            for (index, host) in everybody.iter().enumerate() {
                assert!(!everybody[..index].contains(host), "a job is at a host once");
                loads[host.index()] += 1;
            }
        }
        loads
    }

    /// The large simulation of A2TP (`a2tp 7`): 280 jobs of 2 to 8 workers and a server, anywhere, at most 8 a host.
    #[test]
    fn hundreds_of_jobs_share_hosts_at_random() {
        let jobs =
            "[[jobs]]\nsystem = \"switchml\"\nworkers = \"2..8\"\nservers = 1\njobs_per_host = 8\ncopies = 280\nmessage = \"1MiB\"\n";
        let large = prepared(jobs, 1);
        let loads = loads(&large);
        assert!(loads.iter().all(|jobs| *jobs <= 8));
        assert!(loads.iter().filter(|jobs| **jobs == 0).count() < 60 && loads.iter().any(|jobs| *jobs >= 5), "spread by chance");
        for workers in 2..=8 {
            let count = large.jobs.iter().filter(|job| job.hosts.len() == workers).count();
            // 40 each, give or take 4 standard deviations.
            assert!((16..=64).contains(&count), "{count} jobs of {workers} workers");
        }
        assert!(large.jobs.iter().all(|job| job.servers.len() == 1));
        let hosts = |prepared: &Prepared| prepared.jobs.iter().map(|job| job.hosts.clone()).collect::<Vec<_>>();
        assert_eq!(hosts(&large), hosts(&prepared(jobs, 1)));
        assert_ne!(hosts(&large), hosts(&prepared(jobs, 2)));
    }

    #[test]
    fn jobs_that_are_spread_go_to_the_hosts_with_the_fewest() {
        let jobs =
            "[[jobs]]\nsystem = \"tree\"\nworkers = 144\nplacement = \"spread\"\njobs_per_host = 4\ncopies = 8\nmessage = \"1KiB\"\n";
        assert!(loads(&prepared(jobs, 1)).iter().all(|jobs| *jobs == 2), "8 x 144 workers over 576 hosts");
    }

    #[test]
    fn a_job_that_shares_with_nobody_has_its_hosts_to_itself() {
        let jobs = "[[jobs]]\nsystem = \"tree\"\nworkers = 100\nmessage = \"1KiB\"\n\
                    [[jobs]]\nsystem = \"ring\"\nworkers = 8\njobs_per_host = 3\ncopies = 100\nmessage = \"1KiB\"\n";
        let both = prepared(jobs, 5);
        let loads = loads(&both);
        assert!(both.jobs[0].hosts.iter().all(|host| loads[host.index()] == 1));
        assert!(loads.contains(&3) && loads.iter().all(|jobs| *jobs <= 3));
    }

    #[test]
    fn servers_are_where_their_placement_says() {
        let at = |rule: &str| {
            let job = format!(
                "[[jobs]]\nsystem = \"atp\"\nplacement = [0, 50, 51, 52, 53, 100]\nservers = 3\nmessage = \"1MiB\"\nserver_placement = {rule:?}\n"
            );
            prepared(&job, 1).jobs[0].servers.iter().map(|host| host.0).collect::<Vec<_>>()
        };
        assert_eq!((at("near"), at("packed"), at("spread")), (vec![48, 49, 54], vec![1, 2, 3], vec![48, 96, 144]));
        assert_ne!(at("random"), at("packed"));
    }
}
