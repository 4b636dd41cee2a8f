//! The fabric that `--fabric` asks for: two levels of switches that are made for the demo, or what a file describes, on free ports of this
//! machine.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use fanin_core::NodeId;
use fanin_fabric::Fabric;
use fanin_testbed::place::{Place, PlaceName};
use serde::{Deserialize, Serialize};

/// Links that are made for the demo are as fast as a software switch on one core, and as short as a rack.
const MADE: &str = "[defaults]\nrate = \"1Gb/s\"\nbuffer = \"1MiB\"\ndelay = \"20us\"\nhello_interval = \"50ms\"\nhello_timeout = \"1s\"\n";

/// What a child process is in a fabric.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Part {
    /// A worker, at the host of its rank.
    Host,
    /// The switch of this name.
    Switch(String),
    /// Where the ranks meet; with one switch that switch.
    Manager,
}

/// A fabric whose nodes are processes of the demo.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct DemoFabric {
    /// Its file, with the ports that its nodes have here.
    pub(super) text: String,
    /// Its hosts by name. Where there are more workers, neighbouring ones share a host.
    pub(super) hosts: Vec<String>,
    /// Its switches by name, as they are started after the workers, before the manager.
    pub(super) switches: Vec<String>,
}

impl DemoFabric {
    /// What `--fabric` asks for, on free ports.
    ///
    /// # Errors
    /// What is wrong with the shape or the file.
    pub(super) fn make(what: &str, workers: u32) -> Result<Self> {
        let fabric = match shape(what) {
            Some((leaves, spines)) => {
                ensure!(leaves > 0 && spines > 0, "--fabric {what}: expected at least one leaf and one spine");
                let hosts = workers.div_ceil(leaves);
                let text = format!("{MADE}\n[leaf_spine]\nleaves = {leaves}\nspines = {spines}\nhosts_per_leaf = {hosts}\n");
                Fabric::parse(&format!("--fabric {what}"), &text)?
            }
            None => Fabric::load(Path::new(what)).with_context(|| format!("--fabric {what}: expected LEAVESxSPINES, as 2x2, or a file"))?,
        };
        let hosts = fabric.hosts().map(|host: NodeId| fabric.name(host).to_string()).collect();
        let (_, fabric) = Place::make(PlaceName::Loopback, fabric)?;
        let switches = fabric.switches().map(|switch: NodeId| fabric.name(switch).to_string()).collect();
        Ok(DemoFabric { text: fabric.to_toml(), hosts, switches })
    }

    /// The host that a worker is on.
    pub(super) fn host(&self, rank: u32, workers: u32) -> Option<&str> {
        let hosts = self.hosts.len();
        let here = if workers as usize > hosts { rank as usize * hosts / workers as usize } else { rank as usize };
        self.hosts.get(here).map(String::as_str)
    }

    /// What the process of this number is.
    pub(super) fn part(&self, number: u32, workers: u32) -> Part {
        match number.checked_sub(workers) {
            None => Part::Host,
            Some(other) => self.switches.get(other as usize).map_or(Part::Manager, |name| Part::Switch(name.clone())),
        }
    }
}

/// Leaves and spines, as `2x2`.
fn shape(text: &str) -> Option<(u32, u32)> {
    let (leaves, spines) = text.split_once('x')?;
    Some((leaves.parse().ok()?, spines.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_come_first_then_switches_then_the_manager() {
        let fabric =
            DemoFabric { text: String::new(), hosts: vec!["a".into(), "b".into()], switches: vec!["leaf0".into(), "spine0".into()] };
        let parts: Vec<Part> = (0..5).map(|number| fabric.part(number, 2)).collect();
        let switch = |name: &str| Part::Switch(name.into());
        assert_eq!(parts, [Part::Host, Part::Host, switch("leaf0"), switch("spine0"), Part::Manager]);
        let hosts: Vec<_> = (0..5).map(|rank| fabric.host(rank, 5).unwrap()).collect();
        assert_eq!(hosts, ["a", "a", "a", "b", "b"]);
        assert_eq!((fabric.host(0, 2), fabric.host(1, 2)), (Some("a"), Some("b")));
    }

    #[test]
    fn shapes_are_two_numbers() {
        assert_eq!((shape("2x3"), shape("x"), shape("a.toml"), shape("2x2x2")), (Some((2, 3)), None, None, None));
    }
}
