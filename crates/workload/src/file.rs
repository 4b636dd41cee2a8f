//! Workloads as TOML: what is written reads as the same workload. `docs/workloads.md` describes the format.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use fanin_core::Duration;
use toml::de::DeTable;

use crate::error::WorkloadError;
use crate::kinds::{CollectiveKind, Element};
use crate::model::{Action, Block, Collective, Group, Hosts, Members, Node, Peer, Program, Transfer, Workload};
use crate::ranks::{RANKS_EXPECTED, RANKS_MAX, ranks_of, ranks_text};
use crate::read::{Keys, Lines, Value};

/// The version of the format.
pub const VERSION: i64 = 1;

impl Workload {
    /// Reads a file's text. What it means is looked at by [`crate::validate()`].
    ///
    /// # Errors
    /// [`WorkloadError`] with line, key, value and what was expected.
    pub fn from_toml(file: &str, text: &str) -> Result<Workload, WorkloadError> {
        let lines = Lines::new(file, text);
        let table = DeTable::parse(text).map_err(|error| {
            let line = error.span().map_or(1, |span| lines.of(span.start));
            WorkloadError::new(file, format!("not TOML: {}", error.message().replace('\n', ", "))).at(u64::from(line))
        })?;
        let mut keys = Keys::of_file(table.get_ref(), &lines);
        let version = keys.need("workload", "workload = 1, the version of the format")?;
        if version.integer("1, the version of the format")? != VERSION {
            return Err(version.refuse("1, the version of the format"));
        }
        let text = |value: Option<Value<'_, '_>>| value.map_or(Ok(String::new()), |value| value.text("a text").map(String::from));
        let (name, source) = (text(keys.get("name"))?, text(keys.get("source"))?);
        let ranks = keys.need("ranks", "how many ranks there are")?;
        let count = ranks.count(1)?;
        if count > RANKS_MAX {
            return Err(ranks.refuse(format!("at most {RANKS_MAX}")));
        }
        let hosts = read_hosts(&mut keys)?;
        let iterations = keys.get("iterations").map_or(Ok(1), |value| value.count(1))?;
        let groups = tables(&mut keys, "groups", |keys| read_group(keys, count))?;
        let names = Names {
            groups: groups.iter().enumerate().map(|(index, group)| (group.name.clone(), index as u32)).collect(),
            blocks: block_names(&mut keys)?,
        };
        let blocks = tables(&mut keys, "blocks", |keys| {
            let (line, name) = (keys.line(), name_of(keys)?);
            Ok(Block { name, nodes: read_nodes(keys, &names)?, line })
        })?;
        let programs = tables(&mut keys, "programs", |keys| {
            let (line, name) = (keys.line(), name_of(keys)?);
            let ranks = read_ranks(&keys.need("ranks", RANKS_EXPECTED)?, count)?;
            Ok(Program { name, ranks, nodes: read_nodes(keys, &names)?, line })
        })?;
        keys.done()?;
        Ok(Workload { name, ranks: count, hosts, iterations, source, groups, blocks, programs })
    }

    /// The file, which reads as this workload.
    pub fn to_toml(&self) -> String {
        let mut text = format!("workload = {VERSION}\n");
        for (key, value) in [("name", &self.name), ("source", &self.source)].into_iter().filter(|(_, value)| !value.is_empty()) {
            let _ = writeln!(text, "{key} = {}", quoted(value));
        }
        let _ = writeln!(text, "ranks = {}", self.ranks);
        match &self.hosts {
            Hosts::Each(1) => {}
            Hosts::Each(count) => {
                let _ = writeln!(text, "ranks_per_host = {count}");
            }
            Hosts::Listed(hosts) => {
                let _ = writeln!(text, "hosts = {}", quoted(&ranks_text(hosts)));
            }
        }
        if self.iterations != 1 {
            let _ = writeln!(text, "iterations = {}", self.iterations);
        }
        for group in &self.groups {
            let _ = writeln!(text, "\n[[groups]]\nname = {}", quoted(&group.name));
            let _ = match &group.members {
                Members::Strided { size, stride: 1 } => writeln!(text, "size = {size}"),
                Members::Strided { size, stride } => writeln!(text, "size = {size}\nstride = {stride}"),
                Members::Listed(all) => {
                    let lists: Vec<String> = all.iter().map(|members| quoted(&ranks_text(members))).collect();
                    writeln!(text, "members = [{}]", lists.join(", "))
                }
            };
        }
        for block in &self.blocks {
            let _ = writeln!(text, "\n[[blocks]]\nname = {}\n{}", quoted(&block.name), self.nodes_text(&block.nodes));
        }
        for program in &self.programs {
            let (name, ranks) = (quoted(&program.name), quoted(&ranks_text(&program.ranks)));
            let _ = writeln!(text, "\n[[programs]]\nname = {name}\nranks = {ranks}\n{}", self.nodes_text(&program.nodes));
        }
        text
    }

    fn nodes_text(&self, nodes: &[Node]) -> String {
        let mut text = "nodes = [\n".to_string();
        for node in nodes {
            let _ = write!(text, "  {{ id = {}", quoted(&node.id));
            let _ = match &node.action {
                Action::Compute(time) => write!(text, ", compute = \"{}\"", time_text(*time)),
                Action::Collective(collective) => self.write_collective(&mut text, collective),
                Action::Send(transfer) => write_transfer(&mut text, "send", transfer),
                Action::Receive(transfer) => write_transfer(&mut text, "receive", transfer),
                Action::Call { block, times, overlap } => {
                    let name = self.blocks.get(*block as usize).map_or("", |block| &*block.name);
                    let times = if *times == 1 { String::new() } else { format!(", times = {times}") };
                    let overlap = if *overlap { ", overlap = true" } else { "" };
                    write!(text, ", call = {}{times}{overlap}", quoted(name))
                }
            };
            if node.stream.as_deref() != node.action.usual_stream() {
                let _ = write!(text, ", stream = {}", quoted(node.stream.as_deref().unwrap_or("")));
            }
            if !node.after.is_empty() {
                let ids: Vec<String> =
                    node.after.iter().map(|before| nodes.get(*before as usize).map_or_else(String::new, |node| quoted(&node.id))).collect();
                let _ = write!(text, ", after = [{}]", ids.join(", "));
            }
            if let Some(time) = node.measured {
                let _ = write!(text, ", measured = \"{}\"", time_text(time));
            }
            text.push_str(" },\n");
        }
        text.push(']');
        text
    }

    fn write_collective(&self, text: &mut String, collective: &Collective) -> std::fmt::Result {
        let group = self.groups.get(collective.group as usize).map_or("", |group| &*group.name);
        write!(text, ", collective = \"{}\", group = {}", collective.kind, quoted(group))?;
        if collective.kind == CollectiveKind::Barrier {
            return Ok(());
        }
        write!(text, ", bytes = {}, element = \"{}\"", bytes_text(collective.bytes), collective.element)?;
        if collective.root > 0 { write!(text, ", root = {}", collective.root) } else { Ok(()) }
    }
}

fn write_transfer(text: &mut String, key: &str, transfer: &Transfer) -> std::fmt::Result {
    match transfer.peer {
        Peer::Rank(rank) => write!(text, ", {key} = {rank}")?,
        Peer::Offset(offset) => write!(text, ", {key} = \"{offset:+}\"")?,
    }
    write!(text, ", bytes = {}", bytes_text(transfer.bytes))?;
    if transfer.tag > 0 { write!(text, ", tag = {}", transfer.tag) } else { Ok(()) }
}

/// A text as TOML writes it.
pub(crate) fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// Bytes for files: with a unit where that is exact and short.
fn bytes_text(bytes: u64) -> String {
    match bytes {
        0..1024 => bytes.to_string(),
        _ if bytes.is_multiple_of(1 << 30) => format!("\"{}GiB\"", bytes >> 30),
        _ if bytes.is_multiple_of(1 << 20) => format!("\"{}MiB\"", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) && bytes < 1 << 20 => format!("\"{}KiB\"", bytes >> 10),
        _ => bytes.to_string(),
    }
}

/// A time for files, exactly: `1.234567us`.
pub fn time_text(time: Duration) -> String {
    const UNITS: [(u64, usize, &str); 5] =
        [(1_000_000_000_000, 12, "s"), (1_000_000_000, 9, "ms"), (1_000_000, 6, "us"), (1_000, 3, "ns"), (1, 0, "ps")];
    let ps = time.as_ps();
    let (scale, digits, unit) = UNITS.into_iter().find(|(scale, ..)| ps >= *scale).unwrap_or((1, 0, "ps"));
    let part = format!("{:0digits$}", ps % scale);
    let part = part.trim_end_matches('0');
    if part.is_empty() || digits == 0 { format!("{}{unit}", ps / scale) } else { format!("{}.{part}{unit}", ps / scale) }
}

struct Names {
    groups: BTreeMap<Arc<str>, u32>,
    blocks: BTreeMap<String, u32>,
}

fn name_of(keys: &mut Keys<'_, '_>) -> Result<Arc<str>, WorkloadError> {
    Ok(keys.need("name", "a name")?.text("a name")?.into())
}

/// The tables under a key, each read by `one`, which takes all of its keys.
fn tables<T>(
    keys: &mut Keys<'_, '_>,
    key: &'static str,
    mut one: impl FnMut(&mut Keys<'_, '_>) -> Result<T, WorkloadError>,
) -> Result<Vec<T>, WorkloadError> {
    let Some(value) = keys.get(key) else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    for value in value.list("tables")? {
        let mut inner = value.keys("a table")?;
        all.push(one(&mut inner)?);
        inner.done()?;
    }
    Ok(all)
}

/// Names of blocks, which may be called before they are written.
fn block_names(keys: &mut Keys<'_, '_>) -> Result<BTreeMap<String, u32>, WorkloadError> {
    let Some(value) = keys.get("blocks") else { return Ok(BTreeMap::new()) };
    let mut names = BTreeMap::new();
    for (index, value) in value.list("tables")?.iter().enumerate() {
        names.insert(name_of(&mut value.keys("a table")?)?.to_string(), index as u32);
    }
    Ok(names)
}

fn read_ranks(value: &Value<'_, '_>, ranks: u32) -> Result<Vec<u32>, WorkloadError> {
    value.text(RANKS_EXPECTED).ok().and_then(|text| ranks_of(text, ranks)).ok_or_else(|| value.refuse(RANKS_EXPECTED))
}

fn read_hosts(keys: &mut Keys<'_, '_>) -> Result<Hosts, WorkloadError> {
    match (keys.get("ranks_per_host"), keys.get("hosts")) {
        (Some(value), Some(_)) => Err(value.refuse("nothing beside hosts")),
        (Some(value), None) => Ok(Hosts::Each(value.count(1)?)),
        (None, Some(value)) => Ok(Hosts::Listed(read_ranks(&value, RANKS_MAX)?)),
        (None, None) => Ok(Hosts::Each(1)),
    }
}

fn read_group(keys: &mut Keys<'_, '_>, ranks: u32) -> Result<Group, WorkloadError> {
    let (line, name) = (keys.line(), name_of(keys)?);
    let members = match (keys.get("members"), keys.get("size"), keys.get("stride")) {
        (Some(value), None, None) => {
            let lists = value.list(RANKS_EXPECTED)?;
            Members::Listed(lists.iter().map(|value| read_ranks(value, ranks)).collect::<Result<_, _>>()?)
        }
        (Some(_), ..) => return Err(keys.refuse("expected either members, or size and stride")),
        (None, Some(size), stride) => Members::Strided { size: size.count(1)?, stride: stride.map_or(Ok(1), |stride| stride.count(1))? },
        (None, None, _) => return Err(keys.refuse("size is missing: expected members, or size and stride")),
    };
    Ok(Group { name, members, line })
}

fn read_nodes(keys: &mut Keys<'_, '_>, names: &Names) -> Result<Vec<Node>, WorkloadError> {
    let list = keys.need("nodes", "a list of nodes")?.list("a list of nodes")?;
    let mut ids: BTreeMap<&str, u32> = BTreeMap::new();
    for (index, value) in list.iter().enumerate() {
        let id = value.keys("a node")?.need("id", "a name")?.text("a name")?;
        ids.entry(id).or_insert(index as u32);
    }
    list.iter().map(|value| read_node(value, names, &ids)).collect()
}

fn read_node(value: &Value<'_, '_>, names: &Names, ids: &BTreeMap<&str, u32>) -> Result<Node, WorkloadError> {
    let mut keys = value.keys("a node")?;
    let line = keys.line();
    let id: Arc<str> = keys.need("id", "a name")?.text("a name")?.into();
    let action = read_action(&mut keys, names)?;
    let stream = match keys.get("stream") {
        None => action.usual_stream().map(Arc::from),
        Some(value) if matches!(action, Action::Call { .. }) => return Err(value.refuse("none: the nodes of a block have streams")),
        Some(value) => Some(value.text("a name, or \"\" for none")?).filter(|name| !name.is_empty()).map(Arc::from),
    };
    let mut after = Vec::new();
    if let Some(value) = keys.get("after") {
        for value in value.list("a list of ids")? {
            let before = ids.get(value.text("an id")?).ok_or_else(|| value.refuse("the id of a node of the same list"))?;
            after.push(*before);
        }
    }
    let measured = keys.get("measured").map(|value| value.time()).transpose()?;
    keys.done()?;
    Ok(Node { id, action, after, stream, measured, line })
}

fn read_action(keys: &mut Keys<'_, '_>, names: &Names) -> Result<Action, WorkloadError> {
    let kinds = [keys.get("compute"), keys.get("collective"), keys.get("send"), keys.get("receive"), keys.get("call")];
    if kinds.iter().flatten().count() != 1 {
        return Err(keys.refuse("expected one of compute, collective, send, receive, call"));
    }
    match kinds {
        [Some(time), ..] => Ok(Action::Compute(time.time()?)),
        [_, Some(kind), ..] => read_collective(keys, &kind, names),
        [_, _, Some(peer), ..] => Ok(Action::Send(read_transfer(keys, &peer)?)),
        [_, _, _, Some(peer), _] => Ok(Action::Receive(read_transfer(keys, &peer)?)),
        [_, _, _, _, Some(name)] => {
            let block = *names.blocks.get(name.text("the name of a block")?).ok_or_else(|| name.refuse("the name of a block"))?;
            let times = keys.get("times").map_or(Ok(1), |value| value.count(1))?;
            Ok(Action::Call { block, times, overlap: keys.get("overlap").map_or(Ok(false), |value| value.flag())? })
        }
        _ => Err(keys.refuse("expected one of compute, collective, send, receive, call")),
    }
}

fn read_collective(keys: &mut Keys<'_, '_>, kind: &Value<'_, '_>, names: &Names) -> Result<Action, WorkloadError> {
    let all = || format!("one of {}", CollectiveKind::ALL.map(CollectiveKind::name).join(", "));
    let kind = CollectiveKind::of_name(kind.text(&all())?).ok_or_else(|| kind.refuse(all()))?;
    let group = keys.need("group", "the name of a group")?;
    let number = *names.groups.get(group.text("the name of a group")?).ok_or_else(|| group.refuse("the name of a group"))?;
    if kind == CollectiveKind::Barrier {
        return Ok(Action::Collective(Collective { kind, group: number, bytes: 0, element: Element::U8, root: 0 }));
    }
    let bytes = keys.need("bytes", "how many bytes")?.bytes()?;
    let element = keys.need("element", "the type of its elements")?;
    let all = || format!("one of {}", Element::names());
    let element = Element::of_name(element.text(&all())?).ok_or_else(|| element.refuse(all()))?;
    let root = if kind.has_root() { keys.get("root").map_or(Ok(0), |value| value.count(0))? } else { 0 };
    Ok(Action::Collective(Collective { kind, group: number, bytes, element, root }))
}

fn read_transfer(keys: &mut Keys<'_, '_>, peer: &Value<'_, '_>) -> Result<Transfer, WorkloadError> {
    const EXPECTED: &str = "a rank, or as a text how far it is, such as \"+8\" or \"-8\"";
    let offset = |text: &str| text.starts_with(['+', '-']).then(|| text.parse().ok()).flatten();
    let peer = match (peer.text(EXPECTED), peer.count(0)) {
        (Ok(text), _) => Peer::Offset(offset(text).ok_or_else(|| peer.refuse(EXPECTED))?),
        (_, Ok(rank)) => Peer::Rank(rank),
        _ => return Err(peer.refuse(EXPECTED)),
    };
    let bytes = keys.need("bytes", "how many bytes")?.bytes()?;
    let tag = keys.get("tag").map_or(Ok(0), |value| value.count(0))?;
    Ok(Transfer { peer, bytes, tag })
}
