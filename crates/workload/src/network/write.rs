//! A network as a file of Fanin's own, short: names in a row as `host[0-63]`, cables that are alike in one entry.

use std::collections::BTreeMap;
use std::fmt::Write;

use fanin_core::Duration;

use super::builder::{Cable, Network};
use crate::file::{quoted, time_text};

/// A rate for files, exactly.
fn rate_text(bits_per_second: u64) -> String {
    const UNITS: [(u64, usize, &str); 5] =
        [(1_000_000_000_000, 12, "Tb/s"), (1_000_000_000, 9, "Gb/s"), (1_000_000, 6, "Mb/s"), (1_000, 3, "kb/s"), (1, 0, "b/s")];
    // Gb/s up to 10 Tb/s: 800 of them are better known than 0.8 of the next.
    let fits = |scale: u64| bits_per_second >= if scale == UNITS[0].0 { 10 * scale } else { scale };
    let (scale, digits, unit) = UNITS.into_iter().find(|(scale, ..)| fits(*scale)).unwrap_or(UNITS[4]);
    let part = format!("{:0digits$}", bits_per_second % scale);
    let part = part.trim_end_matches('0');
    if part.is_empty() || digits == 0 {
        format!("{}{unit}", bits_per_second / scale)
    } else {
        format!("{}.{part}{unit}", bits_per_second / scale)
    }
}

/// The part of a name before its number, and the number, where it has one that is written without leading zeros.
fn split(name: &str) -> Option<(&str, u32)> {
    let at = name.rfind(|one: char| !one.is_ascii_digit()).map_or(0, |at| at + name[at..].chars().next().map_or(1, char::len_utf8));
    let (before, digits) = name.split_at(at);
    let number: u32 = digits.parse().ok()?;
    (number.to_string() == digits).then_some((before, number))
}

/// Names in their order: a text, or a list of texts.
fn names_text(names: &[&str]) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut index = 0;
    while let Some(name) = names.get(index) {
        let mut count = 1;
        if let Some((before, first)) = split(name) {
            let follows =
                |(more, name): (usize, &&str)| first.checked_add(more as u32).is_some_and(|number| split(name) == Some((before, number)));
            count = names[index..].iter().enumerate().take_while(|one| follows((one.0, one.1))).count().max(1);
            if count > 1 {
                parts.push(format!("{before}[{first}-{}]", u64::from(first) + count as u64 - 1));
            }
        }
        if count == 1 {
            parts.push((*name).to_string());
        }
        index += count;
    }
    match parts.as_slice() {
        [one] => quoted(one),
        all => format!("[{}]", all.iter().map(|part| quoted(part)).collect::<Vec<_>>().join(", ")),
    }
}

type Alike = (Option<u64>, Option<u64>, u32, u32);

fn alike(cable: &Cable) -> Alike {
    (cable.bits_per_second, cable.latency_ps, cable.count, cable.cost)
}

/// Cables by what is alike: from several nodes to the same ones.
fn entries(network: &Network) -> Vec<(Vec<u32>, Vec<u32>, Alike)> {
    let mut by_from: BTreeMap<(u32, Alike), Vec<u32>> = BTreeMap::new();
    let mut order = Vec::new();
    for cable in &network.cables {
        let key = (cable.from, alike(cable));
        let list = by_from.entry(key).or_insert_with(|| {
            order.push(key);
            Vec::new()
        });
        list.push(cable.to);
    }
    let mut entries: Vec<(Vec<u32>, Vec<u32>, Alike)> = Vec::new();
    let mut known: BTreeMap<(Vec<u32>, Alike), usize> = BTreeMap::new();
    for (from, alike) in order {
        let to = by_from.remove(&(from, alike)).unwrap_or_default();
        match known.get(&(to.clone(), alike)) {
            Some(index) => entries[*index].0.push(from),
            None => {
                known.insert((to.clone(), alike), entries.len());
                entries.push((vec![from], to, alike));
            }
        }
    }
    entries
}

impl Network {
    /// Hosts.
    pub fn hosts(&self) -> usize {
        self.nodes.iter().filter(|node| node.is_host).count()
    }

    /// Switches.
    pub fn switches(&self) -> usize {
        self.nodes.len() - self.hosts()
    }

    /// Cables, parallel ones each counted.
    pub fn cable_count(&self) -> u64 {
        self.cables.iter().map(|cable| u64::from(cable.count)).sum()
    }

    /// The file, which plans take by `network.shape = "file"`.
    pub fn to_toml(&self, source: &str) -> String {
        let names = |is_host: bool| -> Vec<&str> {
            self.nodes.iter().filter(|node| node.is_host == is_host).map(|node| node.name.as_str()).collect()
        };
        let source: String = source.chars().map(|one| if one.is_control() { ' ' } else { one }).collect();
        let hosts = names_text(&names(true));
        let mut text = format!("# {source}\nhosts = {}\n", if hosts.starts_with('[') { hosts } else { format!("[{hosts}]") });
        let _ = writeln!(text, "\n[[switches]]\nname = {}", names_text(&names(false)));
        for (from, to, (rate, latency, count, cost)) in entries(self) {
            let of = |numbers: &[u32]| -> Vec<&str> { numbers.iter().map(|number| self.nodes[*number as usize].name.as_str()).collect() };
            let _ = writeln!(text, "\n[[links]]\nfrom = {}\nto = {}", names_text(&of(&from)), names_text(&of(&to)));
            if let Some(rate) = rate {
                let _ = writeln!(text, "rate = \"{}\"", rate_text(rate));
            }
            if let Some(latency) = latency {
                let _ = writeln!(text, "latency = \"{}\"", time_text(Duration::from_ps(latency)));
            }
            for (key, value) in [("count", count), ("cost", cost)].into_iter().filter(|(_, value)| *value != 1) {
                let _ = writeln!(text, "{key} = {value}");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_a_row_are_one_text() {
        assert_eq!(names_text(&["a0", "a1", "a2"]), "\"a[0-2]\"");
        assert_eq!(names_text(&["a7", "b", "a8", "a9", "c01", "c02"]), "[\"a7\", \"b\", \"a[8-9]\", \"c01\", \"c02\"]");
        assert_eq!(names_text(&["0", "1"]), "\"[0-1]\"");
        assert_eq!(names_text(&["h4294967294", "h4294967295", "core"]), "[\"h[4294967294-4294967295]\", \"core\"]");
        assert_eq!(names_text(&["a4294967295", "a0"]), "[\"a4294967295\", \"a0\"]");
    }

    #[test]
    fn rates_are_written_exactly() {
        for (rate, text) in
            [(800_000_000_000, "800Gb/s"), (12_800_000_000_000, "12.8Tb/s"), (504_123_000_000, "504.123Gb/s"), (1_000, "1kb/s")]
        {
            assert_eq!(rate_text(rate), text);
        }
    }
}
