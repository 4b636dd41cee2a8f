//! Systems from elsewhere: a plan reads their keys as it reads all others', and their nodes do what they would do as variants of the registry.

use fanin_core::{JobNodes, NetworkMap, Payload, Placed};
use fanin_plan::run::{check, run};
use fanin_plan::{Plan, PlanError};
use fanin_systems::{AnyNode, BuildError, Facts, JobSpec, OwnNode, OwnSystem, System, build, register};
use serde::{Deserialize, Serialize};

/// Static trees, node for node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
struct BoxedTrees {
    count: u32,
    wait_ps: u64,
    some_bytes: u32,
    rate_bps: u64,
}

impl Default for BoxedTrees {
    fn default() -> Self {
        BoxedTrees { count: 1, wait_ps: 1_000_000, some_bytes: 0, rate_bps: 1_000 }
    }
}

impl Facts for BoxedTrees {
    fn divides(&self) -> bool {
        false
    }
}

impl OwnSystem for BoxedTrees {
    const NAME: &'static str = "boxed-trees";

    fn nodes<P: Payload + ?Sized>(&self, spec: &JobSpec<'_, P::Op>, map: &NetworkMap) -> Result<JobNodes<OwnNode<P>>, BuildError> {
        let nodes = build::<P>(&JobSpec { system: System::tree(self.count), ..spec.clone() }, map)?;
        let boxed = |placed: Placed<AnyNode<P>>| {
            let node = match placed.node {
                AnyNode::TreeWorker(worker) => OwnNode::worker(worker),
                AnyNode::TreeSwitch(switch) => OwnNode::other(switch),
                _ => return Err(BuildError::new("system", "tree", "workers and switches")),
            };
            Ok(Placed { at: placed.at, node })
        };
        let all = |nodes: Vec<Placed<AnyNode<P>>>| nodes.into_iter().map(boxed).collect::<Result<Vec<_>, BuildError>>();
        Ok(JobNodes { workers: all(nodes.workers)?, others: all(nodes.others)? })
    }
}

const PLAN: &str = r#"
[network]
shape = "fat-tree"
leaves = 3
hosts_per_leaf = 4
spines = 2
rate = "100Gb/s"
latency = "300ns"

[[faults.links]]
links = "all"
loss = 0.01

[[jobs]]
system = "SYSTEM"
workers = 9
message = "48KiB"
operations = 2
"#;

/// Once for all tests of this process.
fn known() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(register::<BoxedTrees>);
}

fn plan(system: &str, sets: &[&str]) -> Result<Plan, PlanError> {
    let sets: Vec<String> = sets.iter().map(|set| set.to_string()).collect();
    Plan::parse("plan", &PLAN.replace("SYSTEM", system), &sets, None)
}

#[test]
fn its_nodes_do_what_they_would_do_in_the_registry() {
    known();
    for (own, listed) in [(&[][..], &[][..]), (&["jobs.0.count=2"][..], &["jobs.0.trees=2"][..])] {
        for payload in ["run.payload=census", "run.payload=length"] {
            let outcome = |system: &str, sets: &[&str]| {
                let plan = plan(system, &[sets, &[payload]].concat()).unwrap();
                check(&plan).unwrap();
                let finished = run(&plan, 1, || true).unwrap().remove(0);
                let mut record = finished.record;
                assert!(record.is_good(), "{:?}", record.failure);
                (record.wall_s, record.params) = (0.0, Vec::new());
                let text = serde_json::to_string(&record).unwrap();
                (text.replace("boxed-trees", "tree"), format!("{:?}", finished.links))
            };
            let (boxed, tree) = (outcome("boxed-trees", own), outcome("tree", listed));
            // Headers of systems from elsewhere take room for their length, which the simulator's fixed overhead covers.
            assert_eq!(boxed, tree, "{payload}");
        }
    }
}

#[test]
fn its_keys_have_units_and_wrong_ones_are_refused() {
    known();
    let system = |sets: &[&str]| plan("boxed-trees", sets).map(|plan| plan.points[0].setup.jobs[0].system);
    let read = system(&["jobs.0.wait=5us", "jobs.0.some=4KiB", "jobs.0.rate=10Gb/s"]).unwrap();
    let own = BoxedTrees { count: 1, wait_ps: 5_000_000, some_bytes: 4_096, rate_bps: 10_000_000_000 };
    assert_eq!((read.name(), read.to_json()), ("boxed-trees", serde_json::to_value(own).unwrap()));
    let says = |set: &str, words: &str| {
        let error = system(&[set]).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    says("jobs.0.wait=5", "jobs[0].wait = 5: expected");
    says("jobs.0.wiat=5us", "jobs[0].wiat = \"5us\": unknown key; did you mean wait?");
    says("jobs.0.trees=2", "jobs[0].trees = 2: unknown key");
    says("jobs.0.count=many", "boxed-trees: ");
    let error = plan("boxed-tree", &[]).unwrap_err().to_string();
    assert!(error.ends_with("or \"boxed-trees\""), "{error}");
}

#[test]
fn processes_tell_each_other_of_it() {
    known();
    let system = plan("boxed-trees", &["jobs.0.count=3"]).unwrap().points[0].setup.jobs[0].system;
    let text = serde_json::to_string(&system).unwrap();
    assert_eq!(serde_json::from_str::<System>(&text).unwrap(), system);
    let other = text.replace("boxed-trees", "no-trees");
    assert!(serde_json::from_str::<System>(&other).unwrap_err().to_string().contains("no system of the name \"no-trees\""));
    assert!(System::names().contains(&"boxed-trees") && System::named("boxed-trees").is_some() && System::named("no-trees").is_none());
}

#[test]
#[should_panic(expected = "there is a system of the name \"boxed-trees\"")]
fn a_name_is_of_one_system() {
    known();
    register::<BoxedTrees>();
}
