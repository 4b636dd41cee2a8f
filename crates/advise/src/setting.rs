//! A network and its jobs, and the runs that follow from a system and a set of switches.

use std::path::Path;
use std::sync::Arc;

use fanin_core::{Census, Length, NodeId};
use fanin_plan::network::file::{Capability, LinkDefaults, NetworkFile};
use fanin_plan::results::{RunRecord, record};
use fanin_plan::run::simulate;
use fanin_plan::schema::PayloadName;
use fanin_plan::tree::{Key, Kind, Origin, Tree};
use fanin_plan::units::Window;
use fanin_plan::upgrade::SIMULATED_ONLY;
use fanin_plan::{Plan, PlanError, Prepared};
use fanin_systems::{AtpParameters, CanaryParameters, NetReduceParameters, RefusalRule, SharpMode, SharpParameters, System};

use crate::predict::{self, Prediction};

/// What is queued where switches begin to mark: a Tofino's 1000 cells of 80 bytes, as A2TP's code sets it.
const MARKED_ABOVE: &str = "80kB";

/// Aggregators of a switch of ATP and A2TP where its memory does not say: more than windows ask for.
const AGGREGATORS: u32 = 16_384;

/// The shortest window that is worth a try, in packets.
const WINDOW_MIN: u32 = 4;

/// Systems that are compared where nobody says which, by name.
pub const SYSTEMS: &[&str] = &["ring", "ps", "tree", "switchml", "sharp", "canary", "netreduce", "panama", "atp", "a2tp", "rina"];

/// Systems by their names.
///
/// # Errors
/// [`PlanError`] for one that has no rules.
pub fn known_systems(names: &[String]) -> Result<Vec<&'static str>, PlanError> {
    let known = |name: &String| {
        let found = SYSTEMS.iter().copied().find(|system| system == name);
        found.ok_or_else(|| PlanError::new("systems", format!("{name}: expected {}", SYSTEMS.join(", "))))
    };
    names.iter().map(known).collect()
}

/// Those that sum at hosts only: switches change nothing for them.
pub const BY_HOSTS: &[&str] = &["ring", "ps"];

/// Those that do with some switches where others only forward.
pub const PARTIAL: &[&str] = &["tree", "panama", "atp", "a2tp", "rina"];

/// A network, what its switches can do, and the jobs that run on it.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The jobs' file, for errors.
    pub name: String,
    tree: Tree,
    network: Tree,
    /// By switch of the network.
    pub switches: Vec<Switch>,
    seed: u64,
}

/// A switch.
#[derive(Clone, PartialEq, Debug)]
pub struct Switch {
    /// Its name.
    pub name: String,
    /// What it can do today.
    pub can: Capability,
}

/// What a run has in place of what the network has.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct New {
    /// How fast a new switch adds; as fast as its links where it is not given.
    pub bits_per_second: Option<u64>,
    /// The memory of a new switch.
    pub memory_bytes: Option<u64>,
    /// What a step costs hosts, in ps, and how much that varies.
    pub step_ps: (u64, u64),
}

fn given(kind: Kind) -> Tree {
    Tree { kind, origin: Origin::Given }
}

fn key(name: &str) -> Key {
    Key { name: name.to_string(), origin: Origin::Given }
}

impl Setting {
    /// Reads a network, cable by cable or as a `[network]` with a shape, and the jobs of a plan without a network.
    ///
    /// # Errors
    /// [`PlanError`] with file, line, key, value and what was expected.
    pub fn load(network: &Path, jobs: &Path) -> Result<Setting, PlanError> {
        let name = jobs.display().to_string();
        let text = std::fs::read_to_string(jobs).map_err(|error| PlanError::new(&name, format!("cannot be read: {error}")))?;
        Setting::of(network, &name, &text)
    }

    /// The same, with the text of the jobs.
    ///
    /// # Errors
    /// As [`Setting::load`].
    pub fn of(network: &Path, name: &str, jobs: &str) -> Result<Setting, PlanError> {
        let mut tree = Tree::parse(name, jobs)?;
        if let Some((_, found)) = tree.take("network") {
            let what = "network: expected none, for the network has a file of its own";
            return Err(PlanError::new(name, what.to_string()).at(found.origin));
        }
        refuse_systems(name, &tree)?;
        let network = read_network(network)?;
        let mut setting = Setting { name: name.to_string(), tree, network, switches: Vec::new(), seed: 0 };
        let plan = setting.plan("ring")?;
        setting.seed = plan.points[0].setup.general.run.seed;
        let prepared = plan.prepare(&plan.points[0], 0)?;
        let known: Vec<Capability> = match setting.network.get("file") {
            Some(Tree { kind: Kind::Text(file), .. }) => NetworkFile::load(Path::new(file), LinkDefaults::default())?.switches,
            _ => prepared.topology.map.switches().map(|_| Capability::default()).collect(),
        };
        let switch = |(node, can): (NodeId, Capability)| Switch { name: prepared.topology.name(node), can };
        setting.switches = prepared.topology.map.switches().zip(known).map(switch).collect();
        Ok(setting)
    }

    /// Which switches aggregate today.
    pub fn today(&self) -> Vec<bool> {
        self.switches.iter().map(|switch| switch.can.aggregates).collect()
    }

    /// Whether some job has a workload, of which only a simulation knows the time.
    pub fn has_workloads(&self) -> bool {
        let Some(Tree { kind: Kind::List(jobs), .. }) = self.tree.get("jobs") else { return false };
        jobs.iter().any(|job| job.get("workload").is_some())
    }

    /// The same with jobs placed otherwise; nothing where all of them list their hosts.
    pub fn placed(&self, placement: &str) -> Option<Setting> {
        let mut other = self.clone();
        let Kind::Table(entries) = &mut other.tree.kind else { return None };
        let mut is_changed = false;
        for (_, jobs) in entries.iter_mut().filter(|(key, _)| key.name == "jobs") {
            let Kind::List(jobs) = &mut jobs.kind else { continue };
            for job in jobs {
                let Kind::Table(keys) = &mut job.kind else { continue };
                let is_listed = keys.iter().any(|(key, value)| key.name == "placement" && matches!(value.kind, Kind::List(_)));
                if !is_listed {
                    keys.retain(|(key, _)| key.name != "placement");
                    keys.push((key("placement"), given(Kind::Text(placement.into()))));
                    is_changed = true;
                }
            }
        }
        is_changed.then_some(other)
    }

    /// A plan that `fanin sim` runs: these jobs by this system, with these windows, on the network of this file.
    ///
    /// # Errors
    /// [`PlanError`] where the system cannot do these jobs on this network.
    pub fn plan_file(&self, prepared: &Prepared, system: &str, network: &str) -> Result<String, PlanError> {
        let mut tree = self.tree_of(system);
        let Kind::Table(entries) = &mut tree.kind else { return Ok(String::new()) };
        let windows: Vec<u32> = prepared.jobs.iter().map(|job| job.settings.common.window.0).collect();
        for (_, jobs) in entries.iter_mut().filter(|(key, _)| key.name == "jobs") {
            let Kind::List(jobs) = &mut jobs.kind else { continue };
            for (entry, job) in jobs.iter_mut().enumerate() {
                let first = prepared.jobs.iter().position(|prepared| prepared.entry == entry);
                if let (Kind::Table(keys), Some(first)) = (&mut job.kind, first)
                    && !keys.iter().any(|(key, _)| key.name == "window")
                {
                    keys.push((key("window"), given(Kind::Integer(i64::from(windows[first])))));
                }
            }
        }
        entries.retain(|(key, _)| key.name != "network");
        let of = [("shape", "file"), ("file", network), ("aggregating", "file"), ("ecn", MARKED_ABOVE)];
        let keys = of.into_iter().map(|(name, value)| (key(name), given(Kind::Text(value.into())))).collect();
        entries.push((key("network"), given(Kind::Table(keys))));
        Ok(tree.to_toml())
    }

    fn plan(&self, system: &str) -> Result<Plan, PlanError> {
        let plan = Plan::from_tree(&self.name, self.tree_of(system), &[], None)?;
        if plan.plots.is_some() {
            return Err(PlanError::new(&self.name, "plot: expected none: the page is that of --out".to_string()));
        }
        if plan.points.len() > 1 {
            return Err(PlanError::new(&self.name, "sweep or series: expected jobs as they are, nothing that varies".to_string()));
        }
        Ok(plan)
    }

    fn tree_of(&self, system: &str) -> Tree {
        let mut tree = self.tree.clone();
        let Kind::Table(entries) = &mut tree.kind else { return tree };
        for (_, jobs) in entries.iter_mut().filter(|(key, _)| key.name == "jobs") {
            let Kind::List(jobs) = &mut jobs.kind else { continue };
            for job in jobs {
                let Kind::Table(keys) = &mut job.kind else { continue };
                keys.push((key("system"), given(Kind::Text(system.into()))));
                let has_servers = System::named(system).is_some_and(|system| system.servers() > 0);
                if has_servers && !keys.iter().any(|(key, _)| key.name == "servers") {
                    keys.push((key("servers"), given(Kind::Integer(0))));
                }
                if !has_servers {
                    keys.retain(|(key, _)| key.name != "servers" && key.name != "server_placement");
                }
            }
        }
        entries.push((key("network"), self.network.clone()));
        tree
    }

    /// A run in which all jobs are of this system, and these switches aggregate. Windows are as long as they need to be, and fit the
    /// memory of the switches.
    ///
    /// # Errors
    /// [`PlanError`] where the system cannot do these jobs on this network.
    pub fn prepare(&self, system: &str, able: &[bool], new: New, repetition: u32) -> Result<Prepared, PlanError> {
        let plan = self.plan(system)?;
        let mut prepared = plan.prepare(&plan.points[0], repetition)?;
        let hosts = prepared.topology.map.hosts();
        prepared.capabilities.clear();
        for ((switch, known), able) in (hosts..).map(NodeId).zip(&self.switches).zip(able) {
            let can = match known.can.aggregates {
                true => known.can,
                false => Capability { aggregates: true, bits_per_second: new.bits_per_second, memory_bytes: new.memory_bytes },
            };
            match able {
                false => Arc::make_mut(&mut prepared.topology).map.forward_only(switch),
                true if can.is_limited() => prepared.capabilities.push((switch, can)),
                true => {}
            }
        }
        let memory = prepared.capabilities.iter().filter_map(|(_, can)| can.memory_bytes).min();
        let count = prepared.jobs.len() as u64;
        for job in &mut prepared.jobs {
            job.system = suited(job.system, new, memory, job.settings.common.payload.0.max(1), count);
        }
        windows(&mut prepared)?;
        Ok(prepared)
    }

    /// What is predicted of such a run; `None` where there are no rules.
    pub fn predict(&self, prepared: &Prepared) -> Option<Prediction> {
        if prepared.programs.is_empty() { predict::predict(prepared) } else { None }
    }
}

/// Jobs that are compared for several systems name none, and do what all of these do.
fn refuse_systems(name: &str, tree: &Tree) -> Result<(), PlanError> {
    let Some(Tree { kind: Kind::List(jobs), .. }) = tree.get("jobs") else { return Ok(()) };
    for job in jobs {
        if let Some(found) = job.get("system") {
            let what = "jobs.system: expected none, for jobs are planned for several systems";
            return Err(PlanError::new(name, what.to_string()).at(found.origin.clone()));
        }
        for own in SIMULATED_ONLY {
            if let Some(found) = job.get(own) {
                let what = format!("jobs.{own}: expected none, for what is predicted knows nothing of it");
                return Err(PlanError::new(name, what).at(found.origin.clone()));
            }
        }
        if let Some(found) = job.get("collective") {
            let what = "jobs.collective: expected none, for what is predicted is that of allreduces";
            return Err(PlanError::new(name, what.to_string()).at(found.origin.clone()));
        }
    }
    Ok(())
}

/// `[network]` of a plan: what is in the file, or the file.
fn read_network(path: &Path) -> Result<Tree, PlanError> {
    let name = path.display().to_string();
    let absolute = std::path::absolute(path).map_err(|error| PlanError::new(&name, error.to_string()))?;
    let is_toml = path.extension().is_none_or(|extension| extension != "graphml");
    let text = std::fs::read_to_string(path).map_err(|error| PlanError::new(&name, format!("cannot be read: {error}")))?;
    let mut entries = Vec::new();
    if is_toml && let Some((_, shape)) = Tree::parse(&name, &text)?.take("network") {
        let Kind::Table(keys) = shape.kind else {
            return Err(PlanError::new(&name, "network: expected a table".to_string()).at(shape.origin));
        };
        entries = keys;
    } else {
        entries.push((key("shape"), given(Kind::Text("file".into()))));
        entries.push((key("file"), given(Kind::Text(absolute.display().to_string()))));
    }
    if !entries.iter().any(|(key, _)| key.name == "ecn") {
        entries.push((key("ecn"), given(Kind::Text(MARKED_ABOVE.into()))));
    }
    Ok(given(Kind::Table(entries)))
}

/// A system's parameters as the network asks for them.
fn suited(system: System, new: New, memory: Option<u64>, payload: u64, jobs: u64) -> System {
    let slots = |most: u64| memory.map_or(most, |memory| (memory / payload).clamp(1, most));
    match system {
        System::Atp(of) => System::Atp(AtpParameters { aggregators: slots(u64::from(AGGREGATORS)) as u32, ..of }),
        System::A2tp(of) => System::A2tp(fanin_systems::A2tpParameters { aggregators: slots(u64::from(AGGREGATORS)) as u32, ..of }),
        System::Canary(of) => {
            let descriptors = slots(u64::from(of.descriptors) * jobs) / jobs;
            System::Canary(CanaryParameters { descriptors: descriptors.max(1) as u32, ..of })
        }
        // One job may stream; several have quotas of what a switch does at once.
        System::Sharp(of) if jobs == 1 => System::Sharp(SharpParameters { mode: SharpMode::Streaming, ..of }),
        System::Sharp(of) => {
            let quota = (u64::from(of.outstanding) / jobs.next_power_of_two()).max(1) as u32;
            System::Sharp(SharpParameters { quota, refused: RefusalRule::Host, ..of })
        }
        System::Ring(mut of) => {
            (of.steps.step_overhead_ps, of.steps.step_deviation_ps) = new.step_ps;
            System::Ring(of)
        }
        System::Rina(mut of) => {
            (of.steps.step_overhead_ps, of.steps.step_deviation_ps) = new.step_ps;
            System::Rina(of)
        }
        System::NetReduce(of) => System::NetReduce(NetReduceParameters { ..of }),
        other => other,
    }
}

/// Gives jobs that say nothing of windows such ones as fill their links, where memory has room for them.
fn windows(prepared: &mut Prepared) -> Result<(), PlanError> {
    for number in 0..prepared.jobs.len() {
        if prepared.jobs[number].table.get("window").is_some() {
            continue;
        }
        let needed = predict::window(prepared, number).unwrap_or(512);
        prepared.jobs[number].settings.common.window = Window(needed);
    }
    loop {
        let checked = memory_of(prepared);
        let longest = prepared.jobs.iter().map(|job| job.settings.common.window.0).max().unwrap_or(0);
        match checked {
            Ok(()) => return Ok(()),
            Err(error) if longest <= WINDOW_MIN => return Err(error),
            Err(_) => {}
        }
        for job in &mut prepared.jobs {
            let window = &mut job.settings.common.window;
            *window = Window((window.0.next_power_of_two() / 2).max(WINDOW_MIN));
            if let System::Sharp(of) = &mut job.system {
                of.quota = (of.quota / 2).max(1);
            }
        }
    }
}

fn memory_of(prepared: &Prepared) -> Result<(), PlanError> {
    let nodes = prepared.nodes::<Length>(|_| ())?;
    let shared = prepared.shared::<Length>(|_| ())?;
    prepared.check_memory(&nodes, &shared)
}

/// Simulates a run.
///
/// # Errors
/// [`PlanError`] where the simulator refuses it.
pub fn simulated(prepared: &Prepared) -> Result<RunRecord, PlanError> {
    let result = simulate::<Census>(prepared, |_| ())?;
    Ok(record(prepared, &prepared.topology, &result, PayloadName::Census))
}

/// What all jobs of a run together have reduced, in Gb/s; `None` where one did not complete.
pub fn gbps_of(record: &RunRecord) -> Option<f64> {
    record.jobs.iter().map(|job| job.goodput_gbps).sum()
}
