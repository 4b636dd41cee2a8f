//! Networks in files: a list of cables, as TOML or as GraphML.
//!
//! ```toml
//! hosts = ["gpu[0-3]"]            # gpu0, gpu1, gpu2, gpu3
//!
//! [defaults]                      # of links
//! rate = "100Gb/s"
//! latency = "300ns"
//!
//! [[switches]]
//! name = "tor[0-1]"
//! aggregates = true               # false where it is not given
//! aggregation_rate = "20Gb/s"     # at the rate of its links where it is not given
//! memory = "10MiB"                # for aggregation; without a limit where it is not given
//!
//! [[switches]]
//! name = "core"
//!
//! [[links]]
//! from = "tor0"
//! to = ["gpu0", "gpu1"]           # one to each
//!
//! [[links]]
//! from = "tor1"
//! to = "gpu[2-3]"
//!
//! [[links]]
//! from = "core"
//! to = "tor[0-1]"
//! rate = "40Gb/s"
//! count = 2                       # parallel cables
//! cost = 1                        # packets take ways of the least cost
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::{fs, io};

use fanin_sim::scenario::LinkSpeed;
use fanin_sim::shape::{WiredCable, Wiring};
use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};

use super::graphml;
use crate::reading::read::read;
use crate::reading::tree::Tree;
use crate::reading::units::{Bytes, Count, Rate, Time};
use crate::reading::{PlanError, Refuse, files};
use crate::schema::one;

/// A network of the user's own.
#[derive(Clone, PartialEq, Debug)]
pub struct NetworkFile {
    /// Its hosts, switches and cables.
    pub wiring: Wiring,
    /// What each switch can do, in the order of the wiring.
    pub switches: Vec<Capability>,
}

/// What a switch can do for aggregation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Capability {
    /// Whether it can aggregate.
    pub aggregates: bool,
    /// How fast, in bits per second; `None`: as fast as its links.
    pub bits_per_second: Option<u64>,
    /// Memory for it in bytes; `None`: without a limit.
    pub memory_bytes: Option<u64>,
}

impl Capability {
    /// Whether it cannot do all that its links bring.
    pub fn is_limited(&self) -> bool {
        self.bits_per_second.is_some() || self.memory_bytes.is_some()
    }
}

/// Hosts and switches have so many characters in their names at most, and a bracket stands for so many names.
const NAME_MAX: usize = 64;
const NAMES_MAX: u32 = 200_000;
/// Cables of a network at most.
const CABLES_MAX: u64 = 1 << 22;

/// The file, key by key.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    hosts: Names,
    #[serde(default)]
    switches: Vec<SwitchKeys>,
    #[serde(default)]
    links: Vec<LinkKeys>,
    #[serde(default)]
    defaults: LinkDefaults,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SwitchKeys {
    name: Names,
    #[serde(default)]
    aggregates: bool,
    aggregation_rate: Option<Rate>,
    memory: Option<Bytes>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkKeys {
    from: Names,
    to: Names,
    rate: Option<Rate>,
    latency: Option<Time>,
    #[serde(default = "one")]
    cost: Count,
    #[serde(default = "one")]
    count: Count,
}

/// What a plan's network file has at most.
const BYTES_MAX: u64 = 1 << 30;

/// What links have that say nothing else.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkDefaults {
    /// Rate of a link each way.
    pub rate: Option<Rate>,
    /// Propagation delay, with the delay of the switch or host at its end.
    pub latency: Option<Time>,
}

impl NetworkFile {
    /// Reads a file: GraphML where it ends in `.graphml`, else TOML. `or` stands in for defaults that the file does not have.
    ///
    /// # Errors
    /// [`PlanError`] with file, line, key, value and what was expected.
    pub fn load(path: &Path, or: LinkDefaults) -> Result<Self, PlanError> {
        Self::parse(path, fs::read_to_string(path), or)
    }

    /// The same for a file by the name that a plan has for it.
    ///
    /// # Errors
    /// As [`NetworkFile::load`].
    pub fn of_plan(plan: &str, name: &str, or: LinkDefaults) -> Result<Self, PlanError> {
        Self::parse(&files::path(plan, name), files::read_text(plan, name, BYTES_MAX), or)
    }

    fn parse(path: &Path, text: io::Result<String>, or: LinkDefaults) -> Result<Self, PlanError> {
        let file = path.display().to_string();
        let text = text.map_err(|error| PlanError::new(&file, format!("cannot be read: {error}")))?;
        let is_graphml = path.extension().is_some_and(|extension| extension == "graphml");
        let tree = if is_graphml { graphml::tree(&file, &text)? } else { Tree::parse(&file, &text)? };
        Self::from_tree(&file, &tree, or)
    }

    /// The same for what has been read already.
    ///
    /// # Errors
    /// As [`NetworkFile::load`].
    pub fn from_tree(file: &str, tree: &Tree, or: LinkDefaults) -> Result<Self, PlanError> {
        let keys: Keys = read(file, tree, &[])?;
        let refuse = Refuse { file, tree };
        let defaults = LinkDefaults { rate: keys.defaults.rate.or(or.rate), latency: keys.defaults.latency.or(or.latency) };
        let mut switches = Vec::new();
        let mut wiring = Wiring { hosts: keys.hosts.0, switches: Vec::new(), cables: Vec::new(), carriers: Vec::new() };
        for (index, keys) in keys.switches.iter().enumerate() {
            let unused = [("aggregation_rate", keys.aggregation_rate.is_some()), ("memory", keys.memory.is_some())];
            if let Some((key, _)) = unused.iter().find(|(_, given)| *given && !keys.aggregates) {
                return Err(refuse.at(&format!("switches[{index}].{key}"), "no such key without aggregates = true"));
            }
            if wiring.switches.len() + keys.name.0.len() > NAMES_MAX as usize {
                return Err(refuse.say("switches", wiring.switches.len() + keys.name.0.len(), format!("at most {NAMES_MAX} switches")));
            }
            for name in &keys.name.0 {
                wiring.switches.push(name.clone());
                switches.push(Capability {
                    aggregates: keys.aggregates,
                    bits_per_second: keys.aggregation_rate.map(|rate| rate.0),
                    memory_bytes: keys.memory.map(|bytes| bytes.0),
                });
            }
        }
        let numbers = numbers(&refuse, &wiring)?;
        let mut cables = Vec::new();
        for (index, keys) in keys.links.iter().enumerate() {
            let field = |key: &str| format!("links[{index}].{key}");
            let rate = keys.rate.or(defaults.rate).ok_or_else(|| refuse.at(&field("rate"), "a rate, here or as defaults.rate"))?;
            let latency =
                keys.latency.or(defaults.latency).ok_or_else(|| refuse.at(&field("latency"), "a time, here or as defaults.latency"))?;
            let speed = LinkSpeed { bits_per_second: rate.0, latency: latency.0 };
            let number = |key: &str, name: &String| {
                numbers
                    .get(name.as_str())
                    .copied()
                    .ok_or_else(|| refuse.say(&field(key), name, "the name of a host or switch of this file"))
            };
            let more = (keys.from.0.len() as u64).saturating_mul(keys.to.0.len() as u64).saturating_mul(u64::from(keys.count.0));
            if cables.len() as u64 + more > CABLES_MAX {
                let key = if keys.count.0 > 1 { "count" } else { "to" };
                return Err(refuse.at(&field(key), format!("at most {CABLES_MAX} cables in all: these are {more}")));
            }
            for from in &keys.from.0 {
                for to in &keys.to.0 {
                    let cable = WiredCable { a: number("from", from)?, b: number("to", to)?, speed, cost: keys.cost.0 };
                    if cable.a == cable.b {
                        return Err(refuse.say(&field("to"), to, "another node than from"));
                    }
                    cables.extend(std::iter::repeat_n(cable, keys.count.0 as usize));
                }
            }
        }
        wiring.cables = cables;
        cables_of_hosts(&refuse, &wiring)?;
        Ok(NetworkFile { wiring, switches })
    }
}

/// The number of each name.
fn numbers<'a>(refuse: &Refuse<'_>, wiring: &'a Wiring) -> Result<BTreeMap<&'a str, u32>, PlanError> {
    let mut numbers = BTreeMap::new();
    for (number, name) in wiring.hosts.iter().chain(&wiring.switches).enumerate() {
        if numbers.insert(name.as_str(), number as u32).is_some() {
            let key = if number < wiring.hosts.len() { "hosts" } else { "switches" };
            return Err(refuse.say(key, name, "each name once"));
        }
    }
    if wiring.switches.is_empty() {
        return Err(refuse.at("switches", "at least one, as [[switches]]"));
    }
    Ok(numbers)
}

fn cables_of_hosts(refuse: &Refuse<'_>, wiring: &Wiring) -> Result<(), PlanError> {
    let mut cables = vec![0u32; wiring.hosts.len() + wiring.switches.len()];
    for cable in &wiring.cables {
        cables[cable.a as usize] += 1;
        cables[cable.b as usize] += 1;
    }
    match wiring.hosts.iter().zip(&cables).find(|(_, count)| **count == 0) {
        Some((name, _)) => Err(refuse.say("hosts", format!("{name} with 0 links"), "one link to a switch for each, or several")),
        None => Ok(()),
    }
}

/// Names, as `"gpu0"`, `["gpu0", "gpu1"]` or `"gpu[0-1]"`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Names(pub Vec<String>);

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMore;
        impl<'de> Visitor<'de> for OneOrMore {
            type Value = Names;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name or a list of names, such as \"gpu0\", [\"gpu0\", \"gpu1\"] or \"gpu[0-1]\"")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Names, E> {
                expand(text).map(Names).ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &self))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Names, A::Error> {
                let mut names = Vec::new();
                while let Some(Names(more)) = items.next_element()? {
                    if names.len() + more.len() > NAMES_MAX as usize {
                        return Err(A::Error::custom(format!("expected at most {NAMES_MAX} names")));
                    }
                    names.extend(more);
                }
                Ok(Names(names))
            }
        }
        deserializer.deserialize_any(OneOrMore)
    }
}

/// What a name with a range in brackets stands for; `None` where it is no name.
fn expand(text: &str) -> Option<Vec<String>> {
    let plain = |name: &str| !name.is_empty() && name.len() <= NAME_MAX && !name.contains(['[', ']', ',']) && name.trim() == name;
    let Some((before, rest)) = text.split_once('[') else {
        return plain(text).then(|| vec![text.to_string()]);
    };
    let (range, after) = rest.split_once(']')?;
    let (first, last) = range.split_once('-')?;
    let (low, high): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
    // As host lists elsewhere have it: [00-15] counts with leading zeros.
    let width = if first.starts_with('0') { first.len() } else { 1 };
    if low > high || high - low >= NAMES_MAX {
        return None;
    }
    let names: Vec<String> = (low..=high).map(|number| format!("{before}{number:0width$}{after}")).collect();
    names.iter().all(|name| plain(name)).then_some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = include_str!("../../../../examples/networks/racks.toml");

    fn parse(text: &str) -> Result<NetworkFile, PlanError> {
        NetworkFile::from_tree("n.toml", &Tree::parse("n.toml", text)?, LinkDefaults::default())
    }

    fn refused(from: &str, to: &str) -> String {
        assert!(EXAMPLE.contains(from), "{from}");
        parse(&EXAMPLE.replacen(from, to, 1)).unwrap_err().to_string()
    }

    #[test]
    fn brackets_and_lists_stand_for_names() {
        assert_eq!(expand("gpu[8-10]").unwrap(), ["gpu8", "gpu9", "gpu10"]);
        assert_eq!(expand("r[08-10]-nic").unwrap(), ["r08-nic", "r09-nic", "r10-nic"]);
        for wrong in ["", " a", "a[", "a[1]", "a[2-1]", "a[0-4000000000]", "a]b", "a,b", "a[0-1][0-1]"] {
            assert_eq!(expand(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_example_has_two_racks_and_two_cores() {
        let network = parse(EXAMPLE).unwrap();
        assert_eq!((network.wiring.hosts.len(), network.wiring.switches.len(), network.wiring.cables.len()), (16, 6, 16 + 8));
        assert_eq!(
            network.switches[0],
            Capability { aggregates: true, bits_per_second: Some(20_000_000_000), memory_bytes: Some(10 << 20) }
        );
        assert_eq!(network.switches[5], Capability::default());
        assert_eq!(network.wiring.cables[20].speed.bits_per_second, 100_000_000_000);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        assert_eq!(
            refused("from = \"core0\"", "from = \"core7\""),
            "n.toml:37: links[4].from = core7: expected the name of a host or switch of this file"
        );
        assert_eq!(refused("to = \"tor[0-3]\"", "to = \"core0\""), "n.toml:38: links[4].to = core0: expected another node than from");
        assert_eq!(
            refused("hosts = [\"gpu[0-15]\"]", "hosts = [\"gpu[0-16]\"]"),
            "n.toml:2: hosts = gpu16 with 0 links: expected one link to a switch for each, or several"
        );
        assert_eq!(refused("name = \"core[0-1]\"", "name = \"tor0\""), "n.toml:8: switches = tor0: expected each name once");
        assert_eq!(refused("rate = \"25Gb/s\"\n", ""), "n.toml:19: links[0].rate is missing: expected a rate, here or as defaults.rate");
        assert!(refused("aggregates = true", "aggregate = true").contains("did you mean aggregates?"));
    }

    #[test]
    fn networks_fuzzed() {
        bolero::check!().with_iterations(0).for_each(|bytes: &[u8]| {
            if let Some(Err(error)) = std::str::from_utf8(bytes).ok().map(parse) {
                assert!(!error.to_string().is_empty());
            }
        });
    }
}
