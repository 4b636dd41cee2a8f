//! Advice as files: for people, for programs, and for the simulator.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use fanin_core::NodeId;
use fanin_sim::topology::Topology;

use crate::choose::{Advice, Question};
use crate::page;
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

/// Writes `advice.json`, `index.html`, and for each step of the plan a network, `step-N.toml`, and a plan that `fanin sim` runs, `plan-N.toml`.
///
/// # Errors
/// What goes wrong in writing; or a step that cannot be simulated, which would be a fault of this program.
pub fn all(folder: &Path, setting: &Setting, question: &Question, advice: &Advice, title: &str) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let write = |name: &str, text: String| std::fs::write(folder.join(name), text);
    let failed = |error: fanin_plan::PlanError| std::io::Error::other(error.to_string());
    write("advice.json", serde_json::to_string_pretty(advice)? + "\n")?;
    let today = setting.today();
    let after = with(setting, &today, &advice.switches);
    let prepared = setting.prepare(advice.system, &after, question.new, 0).map_err(failed)?;
    write("index.html", page::page(title, &prepared.topology, advice, &today))?;
    let kept = advice.offers.iter().find(|offer| offer.system == advice.system).unwrap_or(&advice.today);
    let mut able = today;
    for (place, step) in kept.steps.iter().enumerate() {
        able = with(setting, &able, &step.switches);
        let prepared = setting.prepare(advice.system, &able, question.new, 0).map_err(failed)?;
        let name = format!("step-{place}.toml");
        write(&name, network(setting, &prepared.topology, &able, question.new))?;
        write(&format!("plan-{place}.toml"), setting.plan_file(&prepared, advice.system, &name).map_err(failed)?)?;
    }
    Ok(())
}

fn with(setting: &Setting, able: &[bool], names: &[String]) -> Vec<bool> {
    setting.switches.iter().zip(able).map(|(switch, able)| *able || names.contains(&switch.name)).collect()
}
