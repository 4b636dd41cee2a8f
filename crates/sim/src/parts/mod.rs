//! One simulation on several cores, with the same results to the byte as on one.
//!
//! The network is cut into parts (`cutting`): leaves with their hosts, and switches above them. Each part is a [`Simulation`] of its own
//! nodes. What a node does is known elsewhere only when a packet has been sent and has crossed a link, so for as long as the shortest way
//! from one part to another takes, the *lookahead*, no part can learn anything new of the others. All parts run for so long at the same time
//! (`windows`), then hand each other the packets that they have sent (`mailbox`), and go on.
//!
//! Events keep their times and the order of their numbers, which belong to links, nodes and hosts and not to parts. So what happens in a
//! part happens in the order in which it does where there is one core: events that a part lacks concern nodes that are not its own.
//!
//! What concerns all parts at once has no lookahead: a run ends with the event in which the last worker ends, and the nodes that a job shares
//! learn at once that it has ended. Where that may come (`ending`), events happen one after the other in the order of (time, id) over all
//! parts. Should a run end where that was not expected, or something happen that parts cannot know of each other, the run is given up with
//! [`Again`], and whoever runs it begins it anew on one core.
//!
//! What a run has that parts cannot share, [`Simulation::why_not`] says before.

mod crossing;
mod cutting;
mod ending;
mod in_turn;
pub(crate) mod mailbox;
#[expect(clippy::disallowed_types, reason = "parts run on threads; what these share is locked once a window, not for packets")]
mod meeting;
mod memory;
mod merging;
mod seats;
mod splitting;
#[expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "parts run on threads; what these share is locked once a window, not for packets"
)]
mod windows;

use fanin_core::{Wire, Worker};

use crate::engine::Simulation;
use crate::metrics::RunResult;
use crate::routing::Balancer;
use crate::vectors::Simulated;
use cutting::Cutting;

/// How a run went in parts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Events of each part in windows.
    pub events: Vec<u64>,
    /// Sum over all windows of the events of the part that had most: what the run takes at least, however many cores there are.
    pub longest: u64,
    /// Windows in which parts ran at the same time.
    pub windows: u64,
    /// Events that happened one after the other over all parts.
    pub in_turn: u64,
}

impl Report {
    /// How much faster the run could be than on one core if handing over took no time: all events over those that follow each other.
    pub fn speedup_max(&self) -> f64 {
        let all = self.events.iter().sum::<u64>() + self.in_turn;
        if all == 0 { 1.0 } else { all as f64 / (self.longest + self.in_turn) as f64 }
    }
}

/// A run that was given up: it has to be begun anew on one core. Says why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Again(pub &'static str);

impl<N, P> Simulation<N, P>
where
    N: Worker<P> + Clone,
    N::Header: Wire + Default,
    P: Simulated + ?Sized,
{
    /// Why this simulation cannot run in so many parts; `None` where it can.
    pub fn why_not(&self, parts: usize) -> Option<&'static str> {
        self.unknown_to_parts().or_else(|| self.cutting(parts).err())
    }

    /// What it has that parts cannot know of each other in time.
    fn unknown_to_parts(&self) -> Option<&'static str> {
        let (net, scenario) = (&self.net, &self.scenario);
        let draws_in_turn = |balancer: Balancer| !matches!(balancer, Balancer::Ecmp | Balancer::Destination | Balancer::Adaptive { .. });
        let has_background = !scenario.traffic.is_empty() || !scenario.flows.is_empty();
        let background = has_background.then_some(scenario.network.background_balancer);
        let late = scenario.faults.links.iter().any(|fault| fault.duplication > 0.0 || fault.reordering > 0.0);
        let jobs = || scenario.jobs.iter();
        [
            (scenario.jobs.is_empty(), "it has no jobs"),
            (self.has_programs(), "jobs run programs"),
            (self.has_special_traffic(), "background traffic follows congestion, or a pattern of its own"),
            (has_background && !scenario.faults.links.is_empty(), "links lose packets of background traffic"),
            (has_background && scenario.drain, "background traffic ends with the last job"),
            (scenario.network.lossless.is_some(), "lossless links learn at once of credits"),
            (draws_in_turn(scenario.network.collective_balancer), "all switches choose links by one sequence of random numbers"),
            (background.is_some_and(draws_in_turn), "all switches choose links of background traffic by one sequence of random numbers"),
            (net.uplinks.is_some() || net.topology.hosts_with_several().next().is_some(), "hosts have several cables"),
            (!net.channels.is_empty(), "links have virtual channels"),
            (!scenario.faults.timed.is_empty() || jobs().any(|job| job.crash.is_some()), "something fails at a given time"),
            (late || scenario.faults.strays.probability > 0.0, "links hold packets back, or bring strays"),
            (jobs().any(|job| job.compute.is_some()), "workers compute between operations"),
            (jobs().any(|job| job.noise_probability > 0.0), "packets leave hosts late"),
            (!scenario.limits.is_empty(), "hosts have limits"),
            (scenario.network.trimming.is_some(), "packets are cut where queues are full"),
            (self.switches_take_time(), "switches take time to add"),
            (net.trace.is_some(), "packets are kept in the order in which they arrive"),
            (jobs().len() > ending::JOBS_MAX && self.shared_by.iter().any(|nodes| !nodes.is_empty()), "more than 64 jobs share nodes"),
            (jobs().any(|job| job.sparsity.is_some()), "vectors are sparse: nobody knows ahead how much of one a packet brings"),
        ]
        .into_iter()
        .find_map(|(has, why)| has.then_some(why))
    }

    fn cutting(&self, parts: usize) -> Result<Cutting, &'static str> {
        let mut load = vec![0; self.net.topology.map.hosts() as usize];
        for worker in &self.workers {
            load[worker.result.host as usize] += 1;
        }
        for source in &self.sources {
            load[source.host.index()] += 1;
        }
        // Sources learn of arrivals at hosts.
        let hosts_count = !self.sources.is_empty();
        Cutting::new(&self.net.topology, &load, (self.net.frame_bytes(0), hosts_count), parts)
    }
}

impl<N, P> Simulation<N, P>
where
    N: Worker<P> + Clone + Send,
    N::Header: Wire + Default + Send,
    P: Simulated + ?Sized,
    P::Owned: Send,
    P::Vectors: Clone + Send,
{
    /// Runs to the end in so many parts, each on a thread of its own; where the network does not have so many, in fewer. One part, or a
    /// simulation that [`Simulation::why_not`] says something of, runs as [`Simulation::run`] does.
    ///
    /// # Errors
    /// [`Again`] where it must be built anew and run on one core.
    pub fn run_in_parts(self, parts: usize) -> Result<(RunResult, Report), Again> {
        if parts < 2 || self.unknown_to_parts().is_some() {
            return Ok((self.run(), Report::default()));
        }
        match self.cutting(parts) {
            Ok(cutting) => windows::run(self, cutting),
            Err(_) => Ok((self.run(), Report::default())),
        }
    }
}
