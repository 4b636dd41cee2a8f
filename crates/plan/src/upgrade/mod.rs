//! Which switches of a network to replace next by ones that aggregate: orders of replacement, and what each step is predicted to give.
//!
//! In-network aggregation to a server is predicted by the bandwidth-occupation model (Rina III-B): each job's workers send along one tree
//! to the switch of its server, and the links of all jobs' trees share their rates evenly. Rina is predicted by its dependency chain (Rina
//! III-A, equation 3), each job by itself: rings load no link much more than another.

//!
//! | module | what it holds |
//! |---|---|
//! | `trees` | the trees that the workers of jobs make |
//! | `prediction` | what jobs are predicted to reduce |

mod prediction;
mod trees;

use std::path::Path;
use std::sync::Arc;

use fanin_core::{Census, NodeId};
use fanin_models::upgrade::{self, Best};
use fanin_sim::topology::Topology;
use fanin_systems::{AtpParameters, RinaParameters, StepParameters, System};

use crate::build::Prepared;
use crate::jobs::PreparedJob;
use crate::network::file::{Capability, LinkDefaults, NetworkFile};
use crate::plan::Plan;
use crate::reading::PlanError;
use crate::reading::tree::{Key, Kind, Origin, Tree};
use crate::results::record;
use crate::run::simulate;
use crate::schema::PayloadName;
use prediction::Prediction;
use trees::{JobTree, PlannedJob};

/// What the switches are for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Aggregation {
    /// Sums on the way to a server, at any switch of the tree.
    Server,
    /// The same, but only next to workers and to the server, as ATP has it.
    ServerAtTors,
    /// Groups in a ring, at any switch: all workers below it are one group.
    Rina,
    /// The same, but only next to workers.
    RinaAtTors,
}

impl Aggregation {
    /// All of them, with their names.
    pub const ALL: [(&'static str, Aggregation); 4] = [
        ("server", Aggregation::Server),
        ("atp", Aggregation::ServerAtTors),
        ("rina", Aggregation::Rina),
        ("rina-tor", Aggregation::RinaAtTors),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, one)| *one == self).map_or("", |(name, _)| name)
    }

    fn is_rina(self) -> bool {
        matches!(self, Aggregation::Rina | Aggregation::RinaAtTors)
    }

    fn only_tors(self) -> bool {
        matches!(self, Aggregation::ServerAtTors | Aggregation::RinaAtTors)
    }
}

/// What is assumed of hosts and of new switches.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Assumptions {
    /// Overhead of a step of a ring, in us.
    pub overhead_us: f64,
    /// Deviation of a step's time, in us.
    pub sigma_us: f64,
    /// How fast a new switch aggregates, in bits per second; `None`: as fast as its links.
    pub new_bits_per_second: Option<u64>,
}

/// One step of a replacement.
#[derive(Clone, PartialEq, Debug)]
pub struct Step {
    /// The switch's name; `None` for the network as it is.
    pub switch: Option<String>,
    /// Gb/s of their vectors that jobs reduce, in sum, as predicted.
    pub gbps: f64,
    /// Groups of Rina, in sum over jobs; 0 for aggregation to a server.
    pub groups: u32,
    /// What holds the slowest job up, in words.
    pub bottleneck: String,
    /// The best of all sets of as many switches, and what it gives; `None` where they are too many to be tried.
    pub best: Option<(Vec<String>, f64)>,
    /// The same as `gbps`, simulated packet by packet; see [`Upgrade::simulate`].
    pub simulated: Option<f64>,
}

/// A network, its jobs, and what its switches can do.
#[derive(Clone, Debug)]
pub struct Upgrade {
    plan: Plan,
    topology: Arc<Topology>,
    capabilities: Vec<Capability>,
    jobs: Vec<PlannedJob>,
    assumptions: Assumptions,
}

/// What a switch has where ATP is simulated: more than windows ask for, as the model has no limit.
const AGGREGATORS: u32 = 16_384;

/// What is queued where switches begin to mark, in simulated steps: ATP's windows shrink by marks only. A Tofino's 1000 cells of 80 bytes, as
/// A2TP's code sets it.
const MARKED_ABOVE: &str = "80kB";

/// Keys of jobs that change what a collective is made of, of which no formula and no rule knows: only simulations of a plan do.
pub const SIMULATED_ONLY: &[&str] = &["reproducible", "across"];

/// Sets of switches that are tried at most.
const SETS_MAX: u64 = 20_000;

impl Upgrade {
    /// Reads a network and the jobs that run on it: a plan that has no network, and jobs that name no system.
    ///
    /// # Errors
    /// [`PlanError`] with file, line, key, value and what was expected.
    pub fn load(network: &Path, jobs: &Path, assumptions: Assumptions) -> Result<Self, PlanError> {
        let file = NetworkFile::load(network, LinkDefaults::default())?;
        let name = jobs.display().to_string();
        let text = std::fs::read_to_string(jobs).map_err(|error| PlanError::new(&name, format!("cannot be read: {error}")))?;
        let tree = with_network(&name, Tree::parse(&name, &text)?, network)?;
        let plan = Plan::from_tree(&name, tree, &[], None)?;
        if plan.plots.is_some() {
            return Err(PlanError::new(&name, "plot: expected none: the picture is that of --out"));
        }
        if plan.points.len() > 1 {
            return Err(PlanError::new(&name, "sweep or series: expected jobs as they are, nothing that varies"));
        }
        let prepared = plan.prepare(&plan.points[0], 0)?;
        let one = |(number, job): (usize, &PreparedJob)| {
            let elements: u64 = prepared.scenario.jobs[number].elements.iter().sum();
            let bytes = elements as f64 * f64::from(prepared.scenario.jobs[number].element_bytes);
            PlannedJob::new(&prepared.topology, &file.switches, assumptions, job, bytes)
                .map_err(|error| PlanError::new(&name, format!("jobs[{}]: {error}", job.entry)))
        };
        let jobs = prepared.jobs.iter().enumerate().map(one).collect::<Result<_, _>>()?;
        Ok(Upgrade { topology: Arc::clone(&prepared.topology), plan, capabilities: file.switches, jobs, assumptions })
    }

    /// The order in which up to `budget` switches are replaced, and what each step gives. The first step is the network as it is.
    ///
    /// Rina's order is that of its paper: switches next to workers, those with the most workers first, then the others (IV-D). For sums
    /// on the way to a server it is the switch that gives most; of those that give the same, the one with the most workers below.
    pub fn order(&self, aggregation: Aggregation, budget: usize) -> Vec<Step> {
        let mut replaced: Vec<bool> = self.capabilities.iter().map(|switch| switch.aggregates).collect();
        let candidates = self.candidates(aggregation);
        let below = self.workers_below(aggregation);
        let value = |replaced: &[bool]| self.predict(aggregation, replaced).gbps;
        let mut steps = vec![self.step(aggregation, &replaced, None, None)];
        let best = upgrade::exhaustive(&mut replaced.clone(), &candidates, budget, SETS_MAX, value);
        let order = if aggregation.is_rina() {
            let rank = |switch: usize| (self.is_tor(switch), below[switch]);
            upgrade::by_rank(&mut replaced.clone(), &candidates, budget, rank, value)
        } else {
            upgrade::greedy(&mut replaced.clone(), &candidates, budget, |switch| below[switch], value)
        };
        for (place, step) in order.iter().enumerate() {
            replaced[step.switch] = true;
            steps.push(self.step(aggregation, &replaced, Some(step.switch), best.get(place).cloned().flatten()));
        }
        steps
    }

    /// Simulates each step: one allreduce of each job, packet by packet, where the switches of the step aggregate and all others only forward.
    /// For kinds of aggregation that a system here does: next to workers and servers. The others stay without.
    ///
    /// # Errors
    /// [`PlanError`] where the jobs cannot be run so, such as more workers than ATP's packets name.
    pub fn simulate(&self, aggregation: Aggregation, steps: &mut [Step]) -> Result<(), PlanError> {
        let mut replaced: Vec<bool> = self.capabilities.iter().map(|switch| switch.aggregates).collect();
        for step in steps.iter_mut().filter(|_| aggregation.only_tors()) {
            if let Some(switch) = step.switch.as_ref().and_then(|name| (0..replaced.len()).find(|&switch| self.name(switch) == *name)) {
                replaced[switch] = true;
            }
            step.simulated = self.simulated(aggregation, &replaced)?;
        }
        Ok(())
    }

    /// Gb/s of all jobs together; `None` where one of them does not complete.
    fn simulated(&self, aggregation: Aggregation, replaced: &[bool]) -> Result<Option<f64>, PlanError> {
        let mut prepared = self.plan.prepare(&self.plan.points[0], 0)?;
        let hosts = prepared.topology.map.hosts();
        for (switch, _) in (0..).zip(replaced).filter(|(_, replaced)| !**replaced) {
            Arc::make_mut(&mut prepared.topology).map.forward_only(NodeId(hosts + switch));
        }
        let Assumptions { overhead_us, sigma_us, new_bits_per_second } = self.assumptions;
        let ps = |us: f64| (us * 1e6) as u64;
        let steps = StepParameters { step_overhead_ps: ps(overhead_us), step_deviation_ps: ps(sigma_us) };
        let system = match aggregation.is_rina() {
            true => System::Rina(RinaParameters { full_speed_bps: new_bits_per_second.unwrap_or(0), steps, ..RinaParameters::default() }),
            false => System::Atp(AtpParameters { aggregators: self.aggregators(&prepared), ..AtpParameters::default() }),
        };
        if let Some(rate) = new_bits_per_second {
            let new =
                self.capabilities.iter().zip(replaced).zip(hosts..).filter(|((switch, replaced), _)| **replaced && !switch.aggregates);
            let capability = Capability { aggregates: true, bits_per_second: Some(rate), memory_bytes: None };
            prepared.capabilities.extend(new.map(|(_, switch)| (NodeId(switch), capability)));
        }
        prepared.jobs.iter_mut().for_each(|job| job.system = system);
        let result = simulate::<Census>(&prepared, |_| ())?;
        let record = record(&prepared, &prepared.topology, &result, PayloadName::Census);
        Ok(record.jobs.iter().map(|job| job.goodput_gbps).sum())
    }

    /// A part of the jobs' file that predictions know nothing of, if there is one.
    pub fn only_simulated(&self) -> Option<&'static str> {
        let general = &self.plan.points[0].setup.general;
        let parts = [
            ("traffic", !general.traffic.is_empty()),
            ("flows", !general.flows.is_empty()),
            ("limits", !general.limits.is_empty()),
            ("faults", !general.faults.links.is_empty() || !general.faults.timed.is_empty()),
        ];
        parts.into_iter().find(|(_, given)| *given).map(|(name, _)| name)
    }

    /// Aggregators of each switch: as many as the least memory of any holds for packets of every job.
    fn aggregators(&self, prepared: &Prepared) -> u32 {
        let memory = prepared.capabilities.iter().filter_map(|(_, can)| can.memory_bytes).min().unwrap_or(u64::MAX);
        let payload = prepared.jobs.iter().map(|job| job.settings.common.payload.0).max().unwrap_or(1).max(1);
        (memory / payload).clamp(1, u64::from(AGGREGATORS)) as u32
    }

    /// What all jobs reduce in rings without switches, as predicted: Gb/s in sum.
    pub fn ring_gbps(&self) -> f64 {
        self.predict(Aggregation::Rina, &vec![false; self.capabilities.len()]).gbps
    }

    fn step(&self, aggregation: Aggregation, replaced: &[bool], switch: Option<usize>, best: Option<Best>) -> Step {
        let Prediction { gbps, groups, bottleneck } = self.predict(aggregation, replaced);
        let named = |best: Best| (best.switches.iter().map(|&switch| self.name(switch)).collect(), best.value);
        Step { switch: switch.map(|switch| self.name(switch)), gbps, groups, bottleneck, best: best.map(named), simulated: None }
    }

    fn name(&self, switch: usize) -> String {
        self.topology.name(NodeId(self.topology.map.hosts() + switch as u32))
    }

    fn is_tor(&self, switch: usize) -> bool {
        self.topology.map.level(NodeId(self.topology.map.hosts() + switch as u32)) == 1
    }

    /// By switch of the network: workers whose sums it could make, over all jobs, and of the job that has most of them.
    fn workers_below(&self, aggregation: Aggregation) -> Vec<(u32, u32)> {
        let mut below = vec![(0, 0); self.capabilities.len()];
        for job in &self.jobs {
            let JobTree { switches, tors, tree, .. } = job.tree(aggregation);
            let own = tree.workers_on();
            for (place, workers) in tree.workers_below().into_iter().enumerate() {
                let workers = if aggregation.is_rina() && tors[place] { own[place] } else { workers };
                let (all, most) = &mut below[switches[place]];
                (*all, *most) = (*all + workers, workers.max(*most));
            }
        }
        below
    }

    /// Switches of some job's tree that can be replaced; with two of its workers below or more, for there is nothing to sum of one.
    fn candidates(&self, aggregation: Aggregation) -> Vec<usize> {
        let below = self.workers_below(aggregation);
        (0..below.len()).filter(|&switch| below[switch].1 >= 2 && (!aggregation.only_tors() || self.is_tor(switch))).collect()
    }
}

/// A plan of these jobs on this network.
fn with_network(name: &str, mut tree: Tree, network: &Path) -> Result<Tree, PlanError> {
    let refuse = |what: &str, at: &Tree| PlanError::new(name, what.to_string()).at(at.origin.clone());
    let given = |kind: Kind| Tree { kind, origin: Origin::Given };
    let key = |name: &str| Key { name: name.to_string(), origin: Origin::Given };
    let path = std::path::absolute(network).map_err(|error| PlanError::new(name, format!("{}: {error}", network.display())))?;
    if let Some((_, found)) = tree.take("network") {
        return Err(refuse("network: expected none, for the network has a file of its own", &found));
    }
    let Kind::Table(entries) = &mut tree.kind else { return Ok(tree) };
    for (_, jobs) in entries.iter_mut().filter(|(key, _)| key.name == "jobs") {
        let Kind::List(jobs) = &mut jobs.kind else { continue };
        for job in jobs {
            let Kind::Table(keys) = &mut job.kind else { continue };
            if let Some((_, system)) = keys.iter().find(|(key, _)| key.name == "system") {
                return Err(refuse("jobs.system: expected none, for jobs are planned for several systems", system));
            }
            if let Some((_, collective)) = keys.iter().find(|(key, _)| key.name == "collective") {
                return Err(refuse("jobs.collective: expected none, for what is predicted is that of allreduces", collective));
            }
            if let Some((own, value)) = keys.iter().find(|(key, _)| SIMULATED_ONLY.contains(&key.name.as_str())) {
                return Err(refuse(&format!("jobs.{}: expected none, for what is predicted knows nothing of it", own.name), value));
            }
            keys.push((key("system"), given(Kind::Text("ring".into()))));
        }
    }
    let file = given(Kind::Text(path.display().to_string()));
    let network =
        vec![(key("shape"), given(Kind::Text("file".into()))), (key("file"), file), (key("ecn"), given(Kind::Text(MARKED_ABOVE.into())))];
    entries.push((key("network"), given(Kind::Table(network))));
    Ok(tree)
}
