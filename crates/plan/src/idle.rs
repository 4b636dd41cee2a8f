//! Keys that a plan has and that change nothing: those of another mode, system or network than the plan's. They are refused by name, since
//! whoever writes one expects something of it.
//!
//! A key is refused where no point of the plan uses it as it stands there. So a value may stand beside a sweep of which only some points
//! need it, and a series may not set what it does not use itself. What merely makes no difference to a run's numbers, such as a limit that
//! nobody reaches, is used.

use std::collections::BTreeMap;

use fanin_systems::{AlgorithmRule, CongestionRule, FailureRule, FlareStorage, RefusalRule, SharpMode, System};

use super::aggregators;
use super::errors::{PlanError, Refuse};
use super::schema::{Element, Job, Network, PayloadName, Routing, Servers, Setup, ShapeName};
use super::tree::{Origin, parse_path};
use super::{Plan, Point};

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
    }
    of_the_rest(&point.setup, &mut rules);
    rules
}

/// Whether packets of a system choose among ways, as those do that go to an address beyond the next node.
fn is_routed(job: &Job, network: &Network) -> bool {
    match job.system {
        System::SwitchMl { .. } | System::Flare(_) => false,
        System::Tree { .. } | System::Panama { .. } => network.aggregating.is_some(),
        System::Sharp(parameters) => parameters.refused == RefusalRule::Host,
        _ => true,
    }
}

/// Whether sums of a system are made at switches.
fn sums_at_switches(job: &Job) -> bool {
    match job.system {
        System::Ring { .. } | System::Ps(_) | System::Doubling(_) | System::Exchange => false,
        System::Machines(parameters) => parameters.algorithm == AlgorithmRule::ParallelNetReduce,
        _ => true,
    }
}

fn of_network(setup: &Setup, rules: &mut Vec<Rule>) {
    let (network, jobs) = (&setup.general.network, &setup.jobs);
    let mut rule = |key: &str, used: bool, expected: &str| {
        rules.push(Rule { path: format!("network.{key}"), used, expected: expected.to_string() });
    };
    let single = match network.shape {
        ShapeName::Star | ShapeName::Machines => true,
        ShapeName::FatTree => network.spines.is_some_and(|count| count.0 == 1) && network.parallel_links.is_none_or(|count| count.0 == 1),
        _ => false,
    };
    let has_background = !setup.general.traffic.is_empty() || !setup.general.flows.is_empty();
    let has_routed = jobs.iter().any(|job| is_routed(job, network));
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
    let no_sums = "without a job whose sums are made at switches";
    rule("aggregating", jobs.iter().any(sums_at_switches), no_sums);
    rule("lossless.made_packets", jobs.iter().any(sums_at_switches), no_sums);
    rule("processor", jobs.iter().any(sums_at_switches), no_sums);
    let is_sparse = |job: &Job| matches!(job.system, System::Flare(_));
    for key in ["processor.pair_time", "processor.place_time"] {
        rule(key, jobs.iter().any(is_sparse), "without a job of flare, whose vectors are sparse");
    }
    rule(
        "processor.rate",
        jobs.iter().any(|job| sums_at_switches(job) && !is_sparse(job)),
        "without a job whose dense sums are made at switches",
    );
    let expected =
        format!("without {}: flare has slots of each job, as a key of [[jobs]], and other systems have their window", aggregators::USERS);
    rule("aggregators", jobs.iter().any(|job| aggregators::uses(&job.system)), &expected);
    let divides = |job: &Job| matches!(job.system, System::SwitchMl { .. });
    rule("slot_versions", jobs.iter().any(divides), "without a job of switchml");
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
    rule("compute_spread", computes, "without a time to compute");
    let mode = Mode {
        system: job.system,
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

/// A key, whether something uses it, and what it lacks otherwise.
type Use = (&'static str, bool, &'static str);

const UNRELIABLE: &str = "with reliable = false";
const NO_DCQCN: &str = "without congestion = \"dcqcn\"";

/// Keys of a congestion control that only DCQCN has.
const DCQCN: [&str; 9] =
    ["line_rate", "rate_min", "gain_inverse", "notification_gap", "estimate_timer", "rate_timer", "rate_bytes", "additive", "hyper"];

impl Mode {
    /// Keys that are of no use, and what they lack.
    pub fn unused(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.rules().into_iter().filter(|(_, used, _)| !used).map(|(key, _, expected)| (key, expected))
    }

    fn rules(self) -> Vec<Use> {
        let Mode { system, element, reliable, servers } = self;
        let is_float = element == Element::F32 || !system.fixed_point();
        let mut rules = vec![
            ("rto_initial", reliable, UNRELIABLE),
            ("rto_min", reliable, UNRELIABLE),
            // Canary's agents look at their blocks all the same.
            ("patience", reliable || matches!(system, System::Canary(_)), UNRELIABLE),
            ("fixed_point", is_float, "unless elements are \"f32\""),
        ];
        let dcqcn = |rule: CongestionRule| DCQCN.map(|key| (key, rule == CongestionRule::Dcqcn, NO_DCQCN));
        match system {
            System::Canary(parameters) => {
                let adaptive = parameters.timeout_adaptive;
                rules.extend(["timeout_min", "timeout_max"].map(|key| (key, adaptive, "without timeout = \"adaptive\"")));
                rules.push(("scan", !adaptive, "with timeout = \"adaptive\""));
                rules.extend(["failure", "generations", "lifetime", "hold"].map(|key| (key, reliable, UNRELIABLE)));
                rules.push(("hold", parameters.failure == FailureRule::Hold, "without failure = \"hold\""));
            }
            System::Sharp(parameters) => {
                let quota = parameters.mode == SharpMode::LowLatency;
                // `outstanding` is the switches', which jobs of both modes share.
                rules.push(("quota", quota, "with mode = \"streaming\""));
                let waits = "with mode = \"low-latency\" and refused = \"wait\": quota takes its place";
                rules.push(("window", !quota || parameters.refused == RefusalRule::Host, waits));
            }
            System::NetReduce(parameters) => rules.extend(dcqcn(parameters.congestion.congestion)),
            System::Machines(parameters) => rules.extend(dcqcn(parameters.congestion.congestion)),
            System::Atp(parameters) => rules.extend(of_aggregators(parameters.aggregating, parameters.fixed_point)),
            System::A2tp(parameters) => rules.extend(of_aggregators(parameters.aggregating, parameters.fixed_point)),
            System::Ps(_) => {
                rules.push(("shards", !servers, "without servers = 0: shards are beside workers where there are no servers"));
            }
            System::Flare(parameters) => {
                let tables = parameters.storage != FlareStorage::Array;
                rules.extend(["slots", "probes"].map(|key| (key, tables, "with storage = \"array\", which has no tables")));
            }
            System::Ring { .. } | System::Tree { .. } | System::SwitchMl { .. } | System::Panama { .. } => {}
            System::Rina(_) | System::Doubling(_) | System::Exchange => {}
        }
        rules
    }
}

/// Keys of ATP and A2TP.
fn of_aggregators(aggregating: u32, fixed_point: bool) -> [Use; 3] {
    let none = "with aggregating = 0";
    [("overflow", fixed_point, "without fixed_point = true"), ("aggregators", aggregating > 0, none), ("reclaim", aggregating > 0, none)]
}

/// Limits, faults, and how plans are run.
fn of_the_rest(setup: &Setup, rules: &mut Vec<Rule>) {
    let mut rule = |path: String, used: bool, expected: &str| rules.push(Rule { path, used, expected: expected.to_string() });
    let general = &setup.general;
    for (index, limit) in general.limits.iter().enumerate() {
        rule(format!("limits[{index}].receive_queue"), limit.receive.is_some(), "without receive");
    }
    for (index, link) in general.faults.links.iter().enumerate() {
        let delays = link.duplication.0 > 0.0 || link.reordering.0 > 0.0;
        rule(format!("faults.links[{index}].delay"), delays, "without duplication or reordering");
    }
    let repeats = general.faults.links.iter().any(|link| link.duplication.0 > 0.0);
    rule("faults.anti_replay".into(), general.faults.anti_replay || repeats, "with the value false where no link duplicates packets");
    let is_sparse = setup.jobs.iter().any(|job| job.system.density().is_some());
    let real = general.run.payload == PayloadName::Elements;
    rule("run.payload".into(), real || !is_sparse, "but \"elements\" beside flare or doubling, whose vectors are made of elements");
}
