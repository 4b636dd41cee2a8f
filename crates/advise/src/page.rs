//! A page for people: the network drawn, the steps of the plan, what they gain and what they do not.

use std::fmt::Write;

use fanin_core::NodeId;
use fanin_sim::topology::Topology;

use crate::choose::{Advice, Offer};
use crate::value::Value;

/// The page, without scripts.
pub fn page(title: &str, topology: &Topology, advice: &Advice, today: &[bool]) -> String {
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>{0}</title>\n<style>{STYLE}</style>\n<h1>{0}</h1>\n",
        escaped(title)
    );
    let _ = writeln!(text, "<p class=\"advice\">{}</p>", escaped(&summary(advice)));
    let _ = writeln!(text, "<h2>The network</h2>\n{}", drawn(topology, advice, today));
    text += "<p>Squares are hosts, circles switches. Grey ones forward; green ones sum today; orange ones are to be bought, in the order of their numbers.</p>\n";
    let kept = advice.offers.iter().find(|offer| offer.system == advice.system).unwrap_or(&advice.today);
    let _ = writeln!(text, "<h2>Steps: {}</h2>\n{}", advice.system, steps(kept, &advice.today.steps[0].value));
    let _ = writeln!(text, "<h2>All systems</h2>\n{}", systems(advice));
    if !advice.failures.is_empty() {
        let _ = writeln!(text, "<h2>When a new switch fails</h2>\n{}", failures(advice));
    }
    text + "</html>\n"
}

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#222}\
table{border-collapse:collapse}td,th{padding:.25rem .75rem;border-bottom:1px solid #ddd;text-align:left}\
.advice{font-size:1.15rem;padding:1rem;background:#f3f6f9;border-left:4px solid #2563a8}svg{width:100%;height:auto}";

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The advice in a sentence or two.
pub fn summary(advice: &Advice) -> String {
    let today = &advice.today;
    let base = reduced(&today.steps[0].value);
    let windows: Vec<String> = advice.windows.iter().map(u32::to_string).collect();
    let mut text = match advice.buys_nothing {
        true => format!("Buy nothing: {} does {base} today.", today.system),
        false => format!(
            "Buy {} (price {}) and run {}: {} more than {}, which does {base} today.",
            advice.switches.join(", then "),
            advice.price,
            advice.system,
            gain(advice.gain),
            today.system
        ),
    };
    let _ = write!(text, " Not gained: {}. Window: {} packets.", advice.not_gained, windows.join(", "));
    if let Some(us) = advice.timeout_us {
        let _ = write!(text, " Timeout: {us} us.");
    }
    if let Some((placement, more)) = &advice.placement {
        let _ = write!(text, " Placement: \"{placement}\" gains {:.0} % more.", more * 100.0);
    }
    text
}

/// A gain with its interval.
pub fn gain((mean, least, most): (f64, f64, f64)) -> String {
    if (most - least).abs() < 0.005 {
        format!("{:+.0} %", mean * 100.0)
    } else {
        format!("{:+.0} % ({:+.0} to {:+.0})", mean * 100.0, least * 100.0, most * 100.0)
    }
}

/// What jobs do, in words.
pub fn reduced(value: &Value) -> String {
    if let Some(us) = value.iteration_us {
        return format!("an iteration in {us:.1} us");
    }
    let gbps = value.simulated.unwrap_or(value.gbps);
    let (least, most) = value.range;
    let interval = (most - least > gbps * 0.005).then(|| format!("{least:.2} to {most:.2}"));
    let how = value.simulated.is_some().then(|| "simulated".to_string());
    let notes: Vec<String> = how.into_iter().chain(interval).collect();
    if notes.is_empty() { format!("{gbps:.2} Gb/s") } else { format!("{gbps:.2} Gb/s ({})", notes.join(", ")) }
}

fn steps(offer: &Offer, base: &Value) -> String {
    let mut text = String::from("<table><tr><th>step<th>replaced<th>price<th>all jobs<th>gain<th>held up by</tr>\n");
    for (place, step) in offer.steps.iter().enumerate() {
        let names = if step.switches.is_empty() { "as it is".to_string() } else { step.switches.join(", ") };
        let _ = writeln!(
            text,
            "<tr><td>{place}<td>{}<td>{}<td>{}<td>{}<td>{}</tr>",
            escaped(&names),
            step.price,
            reduced(&step.value),
            gain(step.value.gain_over(base)),
            escaped(&step.value.bound)
        );
    }
    text + "</table>"
}

fn systems(advice: &Advice) -> String {
    let mut text = String::from("<table><tr><th>system<th>switches<th>price<th>all jobs<th>held up by<th>rules do not know</tr>\n");
    for offer in &advice.offers {
        let step = &offer.steps[offer.best];
        let count: usize = offer.steps[..=offer.best].iter().map(|step| step.switches.len()).sum();
        let _ = writeln!(
            text,
            "<tr><td>{}<td>{count}<td>{}<td>{}<td>{}<td>{}</tr>",
            offer.system,
            step.price,
            reduced(&step.value),
            escaped(&step.value.bound),
            escaped(step.value.unknown.as_deref().unwrap_or(""))
        );
    }
    text + "</table>"
}

fn failures(advice: &Advice) -> String {
    let mut text = String::from("<table><tr><th>without the sums of<th>system<th>all jobs<th>held up by</tr>\n");
    for failure in &advice.failures {
        let _ = writeln!(
            text,
            "<tr><td>{}<td>{}<td>{}<td>{}</tr>",
            escaped(&failure.switch),
            failure.system,
            reduced(&failure.value),
            escaped(&failure.value.bound)
        );
    }
    text + "</table>"
}

/// Nodes level by level, hosts at the bottom; at most so many hosts have a square of their own.
const HOSTS_DRAWN: u32 = 128;

fn drawn(topology: &Topology, advice: &Advice, today: &[bool]) -> String {
    let map = &topology.map;
    let (top, width, row) = (u32::from(map.top_level()), 960.0, 110.0);
    let level = |node: NodeId| if map.is_host(node) { 0 } else { u32::from(map.level(node)).max(1) };
    let with_hosts = map.hosts() <= HOSTS_DRAWN;
    let nodes: Vec<NodeId> = (0..map.nodes()).map(NodeId).filter(|node| with_hosts || !map.is_host(*node)).collect();
    let mut at = vec![(0.0, 0.0); map.nodes() as usize];
    for wanted in 0..=top {
        let of: Vec<NodeId> = nodes.iter().copied().filter(|node| level(*node) == wanted).collect();
        for (place, node) in of.iter().enumerate() {
            at[node.index()] = (width * (place as f64 + 0.5) / of.len() as f64, 40.0 + f64::from(top - wanted) * row);
        }
    }
    let mut text = format!("<svg viewBox=\"0 0 {width} {}\" role=\"img\">\n", 80.0 + f64::from(top) * row);
    for link in topology.links.iter().filter(|link| link.from < link.to && (with_hosts || !map.is_host(link.from))) {
        let ((x, y), (to_x, to_y)) = (at[link.from.index()], at[link.to.index()]);
        let thick = (link.speed.bits_per_second as f64 / 1e11).sqrt().clamp(0.3, 3.0);
        let _ = writeln!(
            text,
            "<line x1=\"{x:.1}\" y1=\"{y:.1}\" x2=\"{to_x:.1}\" y2=\"{to_y:.1}\" stroke=\"#9aa5b1\" stroke-width=\"{thick:.1}\"><title>{} to {}, {} Gb/s</title></line>",
            escaped(&topology.name(link.from)),
            escaped(&topology.name(link.to)),
            link.speed.bits_per_second as f64 / 1e9
        );
    }
    for node in nodes {
        let ((x, y), name) = (at[node.index()], topology.name(node));
        if map.is_host(node) {
            let _ = writeln!(
                text,
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"6\" height=\"6\" fill=\"#52606d\"><title>{}</title></rect>",
                x - 3.0,
                y - 3.0,
                escaped(&name)
            );
            continue;
        }
        let bought = advice.switches.iter().position(|one| *one == name);
        let sums = today.get((node.0 - map.hosts()) as usize).copied().unwrap_or(false);
        let color = if bought.is_some() {
            "#e0702b"
        } else if sums {
            "#2f9e62"
        } else {
            "#cbd2d9"
        };
        let label = bought.map_or_else(String::new, |place| (place + 1).to_string());
        let _ = writeln!(
            text,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"13\" fill=\"{color}\"/><text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"12\" fill=\"#fff\">{label}</text><text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"11\" fill=\"#323f4b\">{}</text>",
            y + 4.0,
            y - 18.0,
            escaped(&name)
        );
    }
    text + "</svg>"
}
