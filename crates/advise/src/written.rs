//! A network as a file, cable by cable.

use std::collections::BTreeSet;
use std::fmt::Write;

use fanin_core::NodeId;
use fanin_sim::topology::Topology;

use crate::setting::{New, Setting};

/// The network's file, in which these switches aggregate; new ones as `new` has them.
pub fn network(setting: &Setting, topology: &Topology, able: &[bool], new: New) -> String {
    let map = &topology.map;
    let names: Vec<String> = (0..map.hosts()).map(|host| format!("\"{}\"", topology.name(NodeId(host)))).collect();
    let mut text = format!("hosts = [{}]\n", names.join(", "));
    for (switch, able) in setting.switches.iter().zip(able) {
        let _ = write!(text, "\n[[switches]]\nname = \"{}\"\n", switch.name);
        if !able {
            continue;
        }
        text += "aggregates = true\n";
        let can = switch.can;
        let (rate, memory) = if can.aggregates { (can.bits_per_second, can.memory_bytes) } else { (new.bits_per_second, new.memory_bytes) };
        if let Some(rate) = rate {
            let _ = writeln!(text, "aggregation_rate = \"{rate}b/s\"");
        }
        if let Some(memory) = memory {
            let _ = writeln!(text, "memory = \"{memory}B\"");
        }
    }
    // Each cable once, in the order of its ports at hosts and switches, as the file's reader gives them out.
    let mut seen = BTreeSet::new();
    for link in &topology.links {
        let ends = [(link.from, link.from_port), (link.to, link.to_port)];
        let [a, b] = if ends[0] <= ends[1] { ends } else { [ends[1], ends[0]] };
        if !seen.insert((a, b)) {
            continue;
        }
        let _ = write!(
            text,
            "\n[[links]]\nfrom = \"{}\"\nto = \"{}\"\nrate = \"{}b/s\"\nlatency = \"{}ps\"\n",
            topology.name(link.from),
            topology.name(link.to),
            link.speed.bits_per_second,
            link.speed.latency.as_ps()
        );
        if link.cost != 1 {
            let _ = writeln!(text, "cost = {}", link.cost);
        }
    }
    text
}
