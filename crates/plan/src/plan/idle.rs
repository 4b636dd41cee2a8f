//! Keys that a plan has and that change nothing: those of another mode, system or network than the plan's. They are refused by name, since
//! whoever writes one expects something of it.
//!
//! A key is refused where no point of the plan uses it as it stands there. So a value may stand beside a sweep of which only some points
//! need it, and a series may not set what it does not use itself. What merely makes no difference to a run's numbers, such as a limit that
//! nobody reaches, is used.

use std::collections::BTreeMap;

use fanin_systems::{AggregatorUse, KeyUse, KeysOf, System, UNRELIABLE};

use super::{Plan, Point};
use crate::jobs::aggregators;
use crate::reading::tree::{Kind, Origin, parse_path};
use crate::reading::units::Count;
use crate::reading::{PlanError, Refuse};
use crate::schema::{Element, JOB_KEYS, Job, PayloadName, Routing, Servers, Setup, ShapeName};

/// A key, whether something uses it, and what is expected where nothing does.
struct Rule {
    path: String,
    used: bool,
    expected: String,
}

/// Refuses the first key that no point of the plan uses.
///
/// # Errors
/// [`PlanError`] names it, with its line and what it would need.
pub fn check(plan: &Plan) -> Result<(), PlanError> {
    // By path and origin: why it is of no use, or nothing where some point uses it.
    let mut found: BTreeMap<(String, Origin), Option<PlanError>> = BTreeMap::new();
    for point in &plan.points {
        let refuse = Refuse { file: &plan.file, tree: &point.tree };
        for ((path, origin), expected) in of_point(point) {
            let reason = expected.map(|expected| refuse.at(&path, format!("no such key {expected}")));
            let known = found.entry((path, origin)).or_insert_with(|| reason.clone());
            if reason.is_none() {
                *known = None;
            }
        }
    }
    found.into_values().flatten().next().map_or(Ok(()), Err)
}

/// The keys of a point of which something is known, and what the first of them lacks that it would need.
fn of_point(point: &Point) -> BTreeMap<(String, Origin), Option<String>> {
    let mut keys = BTreeMap::new();
    for Rule { path, used, expected } in rules(point) {
        let Some(value) = point.tree.find(&parse_path(&path)) else { continue };
        let lacks: &mut Option<String> = keys.entry((path, value.origin.clone())).or_default();
        if !used {
            lacks.get_or_insert(expected);
        }
    }
    keys
}

fn rules(point: &Point) -> Vec<Rule> {
    let mut rules = Vec::new();
    of_network(&point.setup, &mut rules);
    for (index, job) in point.setup.jobs.iter().enumerate() {
        of_job(index, job, &mut rules);
        of_system(index, job, point, &mut rules);
    }
    of_the_rest(&point.setup, &mut rules);
    rules
}

fn of_network(setup: &Setup, rules: &mut Vec<Rule>) {
    let (network, jobs) = (&setup.general.network, &setup.jobs);
    // Of jobs in pods, what sums between them.
    let between = || jobs.iter().filter_map(|job| job.across);
    let mut rule = |key: &str, used: bool, expected: &str| {
        rules.push(Rule { path: format!("network.{key}"), used, expected: expected.to_string() });
    };
    let single = match network.shape {
        ShapeName::Star | ShapeName::Machines => true,
        ShapeName::FatTree => {
            let one = |count: Option<Count>| count.is_none_or(|count| count.0 == 1);
            network.spines.is_some() && one(network.spines) && one(network.parallel_links) && one(network.planes)
        }
        _ => false,
    };
    let has_background = !setup.general.traffic.is_empty() || !setup.general.flows.is_empty();
    let has_routed = jobs.iter().map(Job::runs).chain(between()).any(|system| system.is_routed(network.aggregating.is_some()));
    let one_way = "in a network with one way from each host to each other one";
    rule("routing", !single, one_way);
    let neighbours = "without traffic, flows or jobs whose packets go further than to the next node: those of tree, panama, switchml, flare and sharp do not";
    rule("routing", has_routed || has_background, neighbours);
    rule("background_routing", !single, one_way);
    rule("background_routing", has_background, "without traffic or flows");
    let background = network.background_routing.filter(|_| has_background);
    let by = |names: &[Routing]| names.contains(&network.routing) || background.is_some_and(|routing| names.contains(&routing));
    rule("flowlet_gap", by(&[Routing::Flowlet, Routing::Conga]), "without routing = \"flowlet\" or \"conga\"");
    rule("adaptive_threshold", by(&[Routing::Adaptive]), "without routing = \"adaptive\"");
    for key in ["drill_samples", "drill_memory"] {
        rule(key, by(&[Routing::Drill]), "without routing = \"drill\"");
    }
    for key in ["conga_time", "conga_aging"] {
        rule(key, by(&[Routing::Conga]), "without routing = \"conga\"");
    }
    let sums_at_switches = |job: &Job| job.runs().sums_at_switches();
    let has_sums = jobs.iter().any(sums_at_switches) || between().any(|system| system.sums_at_switches());
    let no_sums = "without a job whose sums are made at switches";
    rule("aggregating", has_sums, no_sums);
    rule("lossless.made_packets", has_sums, no_sums);
    rule("processor", has_sums, no_sums);
    rule("hardware", has_sums, no_sums);
    let by_ports = jobs.iter().map(|job| job.system).chain(between()).any(|system| system.multicasts_by_ports());
    rule("hardware.groups_per_pass", by_ports, "without a job of canary, whose multicasts go to ports that nobody knows before");
    rule(
        "hardware.scan_rate",
        jobs.iter().map(|job| job.system).chain(between()).any(|system| system.has_scans()),
        "without a job of canary whose timeout is fixed",
    );
    let is_sparse = |job: &Job| job.system.sparsity().is_some() && sums_at_switches(job);
    for key in ["processor.pair_time", "processor.place_time"] {
        rule(key, jobs.iter().any(is_sparse), "without a job of flare, whose vectors are sparse");
    }
    rule(
        "processor.rate",
        jobs.iter().any(|job| sums_at_switches(job) && !is_sparse(job)) || between().any(|system| system.sums_at_switches()),
        "without a job whose dense sums are made at switches",
    );
    let expected =
        format!("without {}: flare has slots of each job, as a key of [[jobs]], and other systems have their window", aggregators::users());
    rule("aggregators", jobs.iter().map(Job::runs).chain(between()).any(|system| aggregators::uses(&system)), &expected);
    let divides = |system: System| matches!(system.aggregators(), Some(AggregatorUse::Pool(_)));
    rule("slot_versions", jobs.iter().map(Job::runs).chain(between()).any(divides), "without a job of switchml");
}

/// A system's own keys say nothing of what its hosts do in its place.
fn of_system(index: usize, job: &Job, point: &Point, rules: &mut Vec<Rule>) {
    let used = job.runs() == job.system;
    let path = format!("jobs.{index}");
    let Some(Kind::Table(keys)) = point.tree.find(&parse_path(&path)).map(|tree| &tree.kind) else { return };
    let own = keys.iter().map(|(key, _)| key.name.as_str()).filter(|key| *key != "system" && !JOB_KEYS.contains(key));
    rules.extend(own.map(|key| Rule {
        path: format!("jobs[{index}].{key}"),
        used,
        expected: format!("beside a collective that {} has not, and that the job's hosts do by messages", job.system.name()),
    }));
}

/// Keys that every system shares.
fn of_job(index: usize, job: &Job, rules: &mut Vec<Rule>) {
    let common = &job.common;
    let mut rule = |key: &str, used: bool, expected: &str| {
        rules.push(Rule { path: format!("jobs[{index}].{key}"), used, expected: expected.to_string() });
    };
    let says_all = common.message.is_some() && common.compute.is_some();
    rule("model", !says_all, "beside both message and compute, which say all that a model says");
    rule("scale", !says_all, "beside both message and compute: nothing of the model is left to be scaled");
    let computes = common.compute.map_or(common.model.is_some(), |time| time.0 > fanin_core::Duration::ZERO);
    rule("compute_spread", computes || job.workload.is_some(), "without a time to compute");
    let has_servers = job.system.servers() > 0 || job.groups.iter().any(|(_, system)| system.servers() > 0);
    let draws = has_servers && !matches!(common.servers, Some(Servers::Hosts(_) | Servers::Count(0)));
    rule("server_placement", draws, "where no hosts are chosen for servers");
    let shares_hosts = job.workload.as_ref().is_none_or(|source| source.shares_hosts());
    for key in ["local_rate", "local_latency"] {
        rule(key, shares_hosts, "where every rank has a host of its own");
    }
    let mode = Mode {
        system: job.runs(),
        element: common.element,
        reliable: common.reliable,
        servers: !matches!(common.servers, Some(Servers::Count(0))),
    };
    mode.rules().into_iter().for_each(|(key, used, expected)| rule(key, used, expected));
}

/// What makes keys of a job meaningless, in simulation as for real.
#[derive(Clone, Copy, Debug)]
pub struct Mode {
    /// The system, with its own keys.
    pub system: System,
    /// Type of the vector's elements.
    pub element: Element,
    /// Whether losses are recovered from.
    pub reliable: bool,
    /// Whether servers have hosts of their own.
    pub servers: bool,
}

impl Mode {
    /// Keys that are of no use, and what they lack.
    pub fn unused(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.rules().into_iter().filter(|(_, used, _)| !used).map(|(key, _, expected)| (key, expected))
    }

    fn rules(self) -> Vec<KeyUse> {
        let Mode { system, element, reliable, servers } = self;
        let is_float = element == Element::F32 || !system.fixed_point();
        let mut rules = vec![
            ("rto_initial", reliable, UNRELIABLE),
            ("rto_min", reliable, UNRELIABLE),
            ("patience", reliable || system.always_has_patience(), UNRELIABLE),
            ("fixed_point", is_float, "unless elements are \"f32\""),
        ];
        rules.extend(system.idle_keys(&KeysOf { reliable, servers }));
        rules
    }
}

/// Limits, faults, and how plans are run.
fn of_the_rest(setup: &Setup, rules: &mut Vec<Rule>) {
    let mut rule = |path: String, used: bool, expected: &str| rules.push(Rule { path, used, expected: expected.to_string() });
    let general = &setup.general;
    for (index, limit) in general.limits.iter().enumerate() {
        rule(format!("limits[{index}].receive_queue"), limit.receive.is_some(), "without receive");
        rule(format!("limits[{index}].receive_mark"), limit.receive.is_some(), "without receive");
    }
    for (index, link) in general.faults.links.iter().enumerate() {
        let delays = link.duplication.0 > 0.0 || link.reordering.0 > 0.0;
        rule(format!("faults.links[{index}].delay"), delays, "without duplication or reordering");
    }
    let repeats = general.faults.links.iter().any(|link| link.duplication.0 > 0.0);
    rule("faults.anti_replay".into(), general.faults.anti_replay || repeats, "with the value false where no link duplicates packets");
    let is_sparse = setup.jobs.iter().any(|job| job.system.density().is_some());
    let real = general.run.payload == PayloadName::Elements;
    let sparse = System::names_of("or", |system| system.sparsity().is_some());
    let expected = format!("but \"elements\" beside {sparse}, whose vectors are made of elements");
    rule("run.payload".into(), real || !is_sparse, &expected);
}
