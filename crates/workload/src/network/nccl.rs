//! NCCL's topology XML (`NCCL_TOPO_DUMP_FILE`): a machine's processors, PCIe switches, GPUs, network cards and NVLinks. GPUs are hosts; all else is
//! switches, network cards among them, to which a user joins the cables of his network.

use std::collections::BTreeMap;

use roxmltree::Document;

use super::builder::{Builder, Cable, Kind, RATE_MAX, is_rate};
use crate::error::WorkloadError;
use crate::import::Input;
use crate::import::input::LineIndex;
use crate::report::Report;

/// Bits per second of a PCIe link: transfers a second by lane, less its coding (8b/10b up to 5 GT/s, 128b/130b above).
fn pcie(speed: &str, width: &str) -> Option<u64> {
    let gigatransfers: f64 = speed.split_whitespace().next()?.parse().ok()?;
    let lanes: u32 = width.parse().ok()?;
    let coding = if gigatransfers <= 5.0 { 0.8 } else { 128.0 / 130.0 };
    let rate = gigatransfers * 1e9 * f64::from(lanes) * coding;
    (rate.is_finite() && rate >= 0.0).then_some(rate as u64).filter(|rate| is_rate(*rate))
}

/// Bits per second of an NVLink by the generation of a GPU, as NCCL counts with (`src/graph/topo.h`): 18, 20, 20.6 and 40.1 GB/s.
fn nvlink(generation: u32) -> u64 {
    match generation {
        0..70 => 144_000_000_000,
        70..90 => 160_000_000_000,
        90..100 => 164_800_000_000,
        _ => 320_800_000_000,
    }
}

/// Reads the file.
pub(super) fn read(input: &Input, builder: &mut Builder<'_>, report: &mut Report) -> Result<(), WorkloadError> {
    let text = input.text()?;
    let document = Document::parse(text).map_err(|error| builder.error(u64::from(error.pos().row), format!("not XML: {error}")))?;
    let lines = LineIndex::new(text);
    let line = |node: roxmltree::Node<'_, '_>| lines.line(node.range().start);
    let (mut numbers, mut devices) = (BTreeMap::new(), BTreeMap::new());
    let (mut processors, mut counts) = (Vec::new(), (0u32, 0u32));
    for node in document.descendants().filter(roxmltree::Node::is_element) {
        let parent = node.parent_element().and_then(|parent| numbers.get(&parent.id().get_usize()).copied());
        match node.tag_name().name() {
            "system" | "nic" => {}
            "cpu" => {
                let number = builder.node(&format!("cpu{}", node.attribute("numaid").unwrap_or("0")), Kind::Switch, line(node))?;
                numbers.insert(node.id().get_usize(), number);
                processors.push(number);
            }
            "pci" => {
                let class = node.attribute("class").unwrap_or("");
                let id = node.attribute("busid").unwrap_or("");
                // Accelerators of other makers have classes of their own; what has a GPU in it is one.
                let is_gpu = node.children().any(|one| one.tag_name().name() == "gpu");
                let (name, kind) = match class.get(..6).unwrap_or(class) {
                    "0x0604" => (format!("pcie {id}"), Kind::Switch),
                    class if is_gpu || ["0x0302", "0x0300"].contains(&class) => {
                        let number = gpu_number(node).unwrap_or(counts.0);
                        counts.0 += 1;
                        (format!("gpu{number}"), Kind::Host)
                    }
                    "0x0200" | "0x0207" => {
                        counts.1 += 1;
                        let of_card = node.descendants().find_map(|one| one.attribute("name").filter(|_| one.tag_name().name() == "net"));
                        (of_card.map_or_else(|| format!("nic{}", counts.1 - 1), String::from), Kind::Switch)
                    }
                    _ => {
                        report.leave(format!("PCIe devices of class {class:?}"), || format!("{}:{}", input.name, line(node)));
                        continue;
                    }
                };
                let number = builder.node(&name, kind, line(node))?;
                numbers.insert(node.id().get_usize(), number);
                devices.insert(id, number);
                let Some(parent) = parent else {
                    report.leave("PCIe devices of nothing that is known", || format!("{}:{}", input.name, line(node)));
                    continue;
                };
                let rate = pcie(node.attribute("link_speed").unwrap_or(""), node.attribute("link_width").unwrap_or(""));
                builder
                    .cable(Cable { from: parent, to: number, bits_per_second: rate, latency_ps: None, count: 1, cost: 1 }, line(node))?;
            }
            "gpu" => drop(parent.map(|parent| numbers.insert(node.id().get_usize(), parent))),
            "nvlink" => nvlinks((node, line(node)), parent, &devices, (builder, report))?,
            "net" => {
                report.leave("rates of network cards' ports, whose cables are not in the file", || format!("{}:{}", input.name, line(node)))
            }
            other => report.leave(format!("elements {other:?}"), || format!("{}:{}", input.name, line(node))),
        }
    }
    for (index, from) in processors.iter().enumerate() {
        for to in &processors[index + 1..] {
            report.assume("processors are joined to each other; how fast, and all latencies, are left to the plan");
            builder.cable(Cable { from: *from, to: *to, bits_per_second: None, latency_ps: None, count: 1, cost: 1 }, 0)?;
        }
    }
    Ok(())
}

fn gpu_number(node: roxmltree::Node<'_, '_>) -> Option<u32> {
    node.children().find(|one| one.tag_name().name() == "gpu")?.attribute("dev")?.parse().ok()
}

/// NVLinks of a GPU, to another one or to a switch.
fn nvlinks(
    (node, line): (roxmltree::Node<'_, '_>, u64),
    gpu: Option<u32>,
    devices: &BTreeMap<&str, u32>,
    (builder, report): (&mut Builder<'_>, &mut Report),
) -> Result<(), WorkloadError> {
    let target = node.attribute("target").unwrap_or("");
    let count: u32 = node
        .attribute("count")
        .unwrap_or("1")
        .parse()
        .ok()
        .filter(|count| (1..=1_024).contains(count))
        .ok_or_else(|| builder.error(line, format!("nvlink: count {:?}: expected 1 to 1024", node.attribute("count").unwrap_or(""))))?;
    let generation = node.parent_element().and_then(|gpu| gpu.attribute("sm")).and_then(|sm| sm.parse().ok()).unwrap_or(90);
    let Some(from) = gpu else { return Err(builder.error(line, "nvlink: expected it in a gpu")) };
    let is_gpu = node.attribute("tclass").is_none_or(|class| class.starts_with("0x03"));
    let to = if is_gpu {
        // Each pair has two elements: the one whose other end was read before counts.
        match devices.get(target) {
            Some(to) if *to != from => *to,
            _ => return Ok(()),
        }
    } else {
        builder.node(&format!("nvswitch {target}"), Kind::Switch, line)?
    };
    report.assume("NVLinks between the same two devices are one cable of their rates together: what goes by them is spread over all");
    let rate = nvlink(generation).saturating_mul(u64::from(count)).min(RATE_MAX);
    let cable = Cable { from, to, bits_per_second: Some(rate), latency_ps: None, count: 1, cost: 1 };
    builder.cable(cable, line)
}
