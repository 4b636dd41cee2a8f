//! What it costs that a system is from elsewhere: `boxed-tree` has the nodes of `tree` with one tree, packet for packet, behind a table of
//! functions. The difference of two runs is that cost:
//!
//! valgrind --tool=callgrind cost sim cost.toml --set jobs.0.system=tree
//! valgrind --tool=callgrind cost sim cost.toml --set jobs.0.system=boxed-tree
#![forbid(unsafe_code)]

use fanin_core::{JobNodes, NetworkMap, Payload, Placed};
use fanin_systems::{AnyNode, BuildError, Facts, JobSpec, OwnNode, OwnSystem, System, build};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct BoxedTree {}

impl Facts for BoxedTree {}

impl OwnSystem for BoxedTree {
    const NAME: &'static str = "boxed-tree";

    fn nodes<P: Payload + ?Sized>(&self, spec: &JobSpec<'_, P::Op>, map: &NetworkMap) -> Result<JobNodes<OwnNode<P>>, BuildError> {
        let nodes = build::<P>(&JobSpec { system: System::tree(1), ..spec.clone() }, map)?;
        let boxed = |placed: Placed<AnyNode<P>>| {
            let node = match placed.node {
                AnyNode::TreeWorker(worker) => OwnNode::worker(worker),
                AnyNode::TreeSwitch(switch) => OwnNode::other(switch),
                // A tree has no others.
                _ => return Err(BuildError::new("system", "tree", "workers and switches")),
            };
            Ok(Placed { at: placed.at, node })
        };
        let all = |nodes: Vec<Placed<AnyNode<P>>>| nodes.into_iter().map(boxed).collect::<Result<Vec<_>, BuildError>>();
        Ok(JobNodes { workers: all(nodes.workers)?, others: all(nodes.others)? })
    }
}

fn main() -> std::process::ExitCode {
    fanin_systems::register::<BoxedTree>();
    fanin_cli::run()
}
