//! Networks over time and blocks, for the page's scripts. Values are bytes in base 64: a share of the highest value of each kind.

use fanin_plan::Plan;
use fanin_plan::run::Finished;
use fanin_plan::run::view::{NetworkView, TreeView};
use serde_json::{Value, json};

use super::data::rounded;

/// Bytes of all networks of a page, about: 2 for each link and interval.
const BYTES_MAX: usize = 1_500_000;
/// Intervals of a network in any case.
const INTERVALS_MIN: usize = 12;

/// The networks of a plan's runs.
pub fn networks(plan: &Plan, finished: &[Finished]) -> Vec<Value> {
    let seen: Vec<(&Finished, &NetworkView)> = finished.iter().filter_map(|run| Some((run, run.view.network.as_ref()?))).collect();
    let left_out = plan.points.len() - seen.len();
    let most = |view: &NetworkView| (BYTES_MAX / (seen.len() * view.links.len().max(1) * 2)).max(INTERVALS_MIN);
    seen.iter().map(|(run, view)| network(&label(plan, run), &joined(view, most(view)), left_out)).collect()
}

/// The blocks of a plan's runs.
pub fn trees(plan: &Plan, finished: &[Finished]) -> Vec<Value> {
    finished.iter().filter_map(|run| Some(tree(&label(plan, run), run.view.tree.as_ref()?))).collect()
}

fn label(plan: &Plan, run: &Finished) -> String {
    let text = plan.describe(&plan.points[run.point]);
    if text.is_empty() { "the first run".into() } else { text }
}

/// The same with at most `most` intervals: neighbours become one, with the mean of their utilisation, weighted, and the longest queue.
fn joined(view: &NetworkView, most: usize) -> NetworkView {
    let intervals = view.times_us.len();
    let together = intervals.div_ceil(most.max(1)).max(1);
    if together == 1 {
        return view.clone();
    }
    let links = view.links.len();
    let mut joined =
        NetworkView { times_us: Vec::new(), utilization: Vec::new(), queue_bytes: Vec::new(), slot_bytes: Vec::new(), ..view.clone() };
    for first in (0..intervals).step_by(together) {
        let of = first..(first + together).min(intervals);
        let begin_us = |interval: usize| if interval == 0 { 0.0 } else { view.times_us[interval - 1] };
        let span_us = view.times_us[of.end - 1] - begin_us(first);
        for link in 0..links {
            let sent = of.clone().map(|at| view.utilization[at * links + link] * (view.times_us[at] - begin_us(at))).sum::<f64>();
            joined.utilization.push(if span_us > 0.0 { sent / span_us } else { 0.0 });
            joined.queue_bytes.push(of.clone().map(|at| view.queue_bytes[at * links + link]).max().unwrap_or(0));
        }
        joined.slot_bytes.extend(&view.slot_bytes[(of.end - 1) * view.switches..of.end * view.switches]);
        joined.times_us.push(view.times_us[of.end - 1]);
    }
    joined
}

fn network(label: &str, view: &NetworkView, left_out: usize) -> Value {
    let most = |values: &[u64]| values.iter().copied().max().unwrap_or(0).max(1);
    let (queue_most, slots_most) = (most(&view.queue_bytes), most(&view.slot_bytes));
    // What is above 0 is seen.
    let share = |share: f64| if share > 0.0 { (share * 255.0).round().max(1.0) as u8 } else { 0 };
    let shares = |values: &[u64], most: u64| base64(&values.iter().map(|value| share(*value as f64 / most as f64)).collect::<Vec<_>>());
    let mut notes = vec![format!("{} intervals; first repetition. Switches are filled by their memory in use.", view.times_us.len())];
    if view.without_hosts {
        notes.push("Links of hosts are left out: there are too many.".into());
    }
    if left_out > 0 {
        notes.push(format!("{left_out} points of the plan are left out."));
    }
    json!({
        "label": label, "nodes": view.nodes, "levels": view.levels, "switch_of": view.switch_of, "switches": view.switches,
        "links": view.links, "times": view.times_us.iter().map(|time| rounded(*time)).collect::<Vec<_>>(),
        "utilisation": base64(&view.utilization.iter().map(|value| share(*value)).collect::<Vec<_>>()),
        "queue": shares(&view.queue_bytes, queue_most), "queue_most": queue_most,
        "slots": shares(&view.slot_bytes, slots_most), "slots_most": slots_most, "note": notes.join(" "),
    })
}

fn tree(label: &str, view: &TreeView) -> Value {
    let events: Vec<Value> =
        view.packets.iter().map(|packet| json!([rounded(packet.at_us), packet.link.0, packet.link.1, u8::from(packet.is_sum)])).collect();
    let full = if view.is_full { " There are more packets than are kept." } else { "" };
    let note = format!(
        "Block {}: the packets that were added up on their way, and those that brought the sum, when they arrived.{full}",
        view.block
    );
    json!({ "label": label, "block": view.block, "nodes": view.nodes, "levels": view.levels, "events": events, "note": note })
}

/// RFC 4648.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let bits = three.iter().enumerate().fold(0u32, |bits, (place, byte)| bits | u32::from(*byte) << (16 - 8 * place));
        for letter in 0..4 {
            let is_there = letter <= three.len();
            text.push(if is_there { char::from(LETTERS[(bits >> (18 - 6 * letter) & 63) as usize]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_as_in_the_standards_examples() {
        assert_eq!(
            ["", "f", "fo", "foo", "foob", "fooba", "foobar"].map(|text| base64(text.as_bytes())),
            ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"]
        );
    }

    #[test]
    fn intervals_become_one_and_keep_what_was_sent_and_the_longest_queue() {
        let view = NetworkView {
            nodes: vec!["a".into(), "b".into()],
            levels: vec![0, 1],
            switch_of: vec![0, 0],
            switches: 1,
            links: vec![(0, 1)],
            without_hosts: false,
            times_us: vec![1.0, 2.0, 4.0],
            utilization: vec![1.0, 0.0, 0.5],
            queue_bytes: vec![5, 9, 1],
            slot_bytes: vec![1, 2, 3],
        };
        let half = joined(&view, 2);
        assert_eq!(
            (half.times_us, half.utilization, half.queue_bytes, half.slot_bytes),
            (vec![2.0, 4.0], vec![0.5, 0.5], vec![9, 1], vec![2, 3])
        );
        assert_eq!(joined(&view, 3), view);
        assert_eq!((joined(&view, 1).utilization, joined(&view, 1).times_us), (vec![0.5], vec![4.0]));
    }
}
