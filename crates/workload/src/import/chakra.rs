//! Chakra execution traces: a file a rank, each a stream of messages of protocol buffers with their lengths; and process groups as JSON.
//!
//! Messages and numbers are those of `schema/protobuf/et_def.proto` in mlcommons/chakra, version 0.0.4.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use fanin_core::Duration;
use prost::Message;

use super::assemble::{Lists, Raw, RawAction, RawNode, transfer};
use super::input::{Imported, Input, Options};
use crate::error::WorkloadError;
use crate::flat::NODES_MAX;
use crate::kinds::{CollectiveKind, Element};
use crate::model::{COMMUNICATION_STREAM, COMPUTE_STREAM};
use crate::ranks::RANKS_MAX;
use crate::report::Report;

#[derive(Clone, PartialEq, Message)]
struct GlobalMetadata {
    #[prost(string, tag = "1")]
    version: String,
}

/// A value that has a name; one of these has it.
#[derive(Clone, PartialEq, Message)]
struct Attribute {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(int32, optional, tag = "7")]
    int32: Option<i32>,
    #[prost(int64, optional, tag = "9")]
    int64: Option<i64>,
    #[prost(uint32, optional, tag = "11")]
    uint32: Option<u32>,
    #[prost(uint64, optional, tag = "13")]
    uint64: Option<u64>,
    #[prost(sint32, optional, tag = "15")]
    sint32: Option<i32>,
    #[prost(sint64, optional, tag = "17")]
    sint64: Option<i64>,
    #[prost(fixed32, optional, tag = "19")]
    fixed32: Option<u32>,
    #[prost(fixed64, optional, tag = "21")]
    fixed64: Option<u64>,
    #[prost(bool, optional, tag = "27")]
    bool: Option<bool>,
    #[prost(message, optional, tag = "28")]
    bools: Option<BoolList>,
    #[prost(string, optional, tag = "29")]
    string: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct BoolList {
    #[prost(bool, repeated, tag = "1")]
    values: Vec<bool>,
}

#[derive(Clone, PartialEq, Message)]
struct InputOutput {
    #[prost(string, tag = "1")]
    values: String,
}

#[derive(Clone, PartialEq, Message)]
struct EtNode {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(int32, tag = "3")]
    kind: i32,
    #[prost(uint64, repeated, tag = "4")]
    ctrl_deps: Vec<u64>,
    #[prost(uint64, repeated, tag = "5")]
    data_deps: Vec<u64>,
    #[prost(uint64, tag = "7")]
    duration_micros: u64,
    #[prost(message, optional, tag = "8")]
    inputs: Option<InputOutput>,
    #[prost(message, repeated, tag = "10")]
    attributes: Vec<Attribute>,
}

const METADATA_NODE: i32 = 1;
const COMP_NODE: i32 = 4;
const COMM_SEND_NODE: i32 = 5;
const COMM_RECV_NODE: i32 = 6;
const COMM_COLL_NODE: i32 = 7;

/// Names of the types of nodes, for reports.
const KINDS: &[&str] =
    &["INVALID", "METADATA", "MEM_LOAD", "MEM_STORE", "COMP", "COMM_SEND", "COMM_RECV", "COMM_COLL", "STORAGE", "BATCH", "CHECKPOINT"];

impl EtNode {
    fn attribute(&self, name: &str) -> Option<&Attribute> {
        self.attributes.iter().find(|attribute| attribute.name == name)
    }

    fn number(&self, name: &str) -> Option<u64> {
        let one = self.attribute(name)?;
        let signed = || one.int64.or(one.sint64).or(one.int32.or(one.sint32).map(i64::from)).and_then(|value| u64::try_from(value).ok());
        one.uint64.or(one.fixed64).or(one.uint32.or(one.fixed32).map(u64::from)).or_else(signed)
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.attribute(name)?.string.as_deref()
    }
}

/// The next message with its length before it, and where it begins; `None` at the end.
fn message<'a>(bytes: &'a [u8], at: &mut usize) -> Result<Option<&'a [u8]>, String> {
    if *at == bytes.len() {
        return Ok(None);
    }
    let (mut length, mut shift) = (0u64, 0);
    loop {
        let Some(byte) = bytes.get(*at) else { return Err("the file ends within a length".into()) };
        *at += 1;
        length |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
        shift += 7;
        if shift > 56 {
            return Err("expected the length of a message".into());
        }
    }
    let left = (bytes.len() - *at) as u64;
    if length > left {
        return Err(format!("a message of {length} bytes, of which there are {left}"));
    }
    let start = *at;
    *at += length as usize;
    Ok(Some(&bytes[start..*at]))
}

/// Whether the bytes begin with the head of a trace.
pub fn looks_like(bytes: &[u8]) -> bool {
    let head = message(bytes, &mut 0).ok().flatten().filter(|head| head.len() < 4_096);
    head.and_then(|head| GlobalMetadata::decode(head).ok()).is_some_and(|head| head.version.starts_with("0.0."))
}

/// What all nodes wait for, and their attributes, at most.
const PARTS_MAX: usize = 1 << 26;
/// Bytes of a node at most: what is read takes more memory than the file does.
const NODE_BYTES_MAX: usize = 64 << 20;
/// Attributes that count.
const ATTRIBUTES: &[&str] =
    &["num_ops", "is_cpu_op", "comm_dst", "comm_src", "comm_size", "comm_tag", "comm_type", "pg_name", "involved_dim"];

/// How much all files hold so far.
#[derive(Default)]
struct Held {
    nodes: usize,
    parts: usize,
}

impl Held {
    /// One more node, without what is not needed of it.
    fn add(&mut self, node: &mut EtNode) -> Result<(), String> {
        node.attributes.retain(|one| ATTRIBUTES.contains(&one.name.as_str()));
        node.attributes.shrink_to_fit();
        if node.kind != METADATA_NODE {
            node.inputs = None;
        }
        self.nodes += 1;
        self.parts = self.parts.saturating_add(node.attributes.len() + node.ctrl_deps.len() + node.data_deps.len());
        if self.nodes > NODES_MAX {
            return Err(format!("expected at most {NODES_MAX} nodes in all files"));
        }
        if self.parts > PARTS_MAX { Err(format!("expected at most {PARTS_MAX} dependencies and attributes in all files")) } else { Ok(()) }
    }
}

fn nodes_of(input: &Input, held: &mut Held, report: &mut Report) -> Result<Vec<EtNode>, WorkloadError> {
    let mut at = 0;
    let (mut nodes, mut is_head) = (Vec::new(), true);
    loop {
        let start = at;
        let error = |what: String| WorkloadError::new(&input.name, format!("at byte {start}: {what}"));
        let Some(bytes) = message(&input.bytes, &mut at).map_err(error)? else { break };
        if std::mem::take(&mut is_head) {
            let head = GlobalMetadata::decode(bytes).map_err(|one| error(format!("no head of a trace: {one}")))?;
            if head.version != "0.0.4" {
                report.assume(format!("version {:?} of the format is read as 0.0.4", head.version));
            }
            continue;
        }
        if bytes.is_empty() || bytes.len() > NODE_BYTES_MAX {
            return Err(error(format!("a node of {} bytes: expected 1 to {NODE_BYTES_MAX}", bytes.len())));
        }
        let mut node = EtNode::decode(bytes).map_err(|one| error(format!("no node: {one}")))?;
        held.add(&mut node).map_err(error)?;
        nodes.push(node);
    }
    if is_head { Err(WorkloadError::new(&input.name, "expected the head of a trace")) } else { Ok(nodes) }
}

/// `NAME.RANK.et`
fn rank_of(name: &str) -> Option<u32> {
    let name = name.strip_suffix(".gz").unwrap_or(name);
    name.strip_suffix(".et").unwrap_or(name).rsplit('.').next()?.parse().ok()
}

type Groups = BTreeMap<String, Vec<u32>>;

fn checked(ranks: Vec<u32>) -> Option<Vec<u32>> {
    let mut sorted = ranks.clone();
    sorted.sort_unstable();
    sorted.dedup();
    (!ranks.is_empty() && sorted.len() == ranks.len() && ranks.iter().all(|rank| *rank < RANKS_MAX)).then_some(ranks)
}

/// Ranks of process groups that are only said by their number, of all groups together at most.
const IMPLIED_MAX: usize = 1 << 24;

/// The first text of a Python list as `str` writes it: in quotes of either kind, with escapes. Converters of PyTorch's traces write inputs so.
fn python_text(list: &str) -> Option<String> {
    let inner = list.trim().strip_prefix('[')?.trim_start();
    let quote = inner.chars().next().filter(|one| ['\'', '"'].contains(one))?;
    let (mut text, mut rest) = (String::new(), inner[1..].chars());
    loop {
        match rest.next()? {
            one if one == quote => break,
            '\\' => {
                let of_hex = |rest: &mut std::str::Chars<'_>, digits: usize| {
                    let code = (0..digits).try_fold(0u32, |code, _| Some(code << 4 | rest.next()?.to_digit(16)?))?;
                    char::from_u32(code)
                };
                text.push(match rest.next()? {
                    'n' => '\n',
                    't' => '\t',
                    'r' => '\r',
                    'x' => of_hex(&mut rest, 2)?,
                    'u' => of_hex(&mut rest, 4)?,
                    'U' => of_hex(&mut rest, 8)?,
                    one @ ('\'' | '"' | '\\') => one,
                    _ => return None,
                });
            }
            one => text.push(one),
        }
    }
    rest.as_str().trim_start().starts_with([']', ',']).then_some(text)
}

/// Process groups of a node: JSON within its inputs, in a list or two, which are JSON or Python's. How many of them have no ranks that can
/// be taken; `None` where the text is none of that.
fn groups_of_node(text: &str, groups: &mut Groups, implied: &mut usize) -> Option<u64> {
    let parsed = serde_json::from_str(text).ok();
    let mut value: serde_json::Value = parsed.or_else(|| serde_json::from_str(&python_text(text)?).ok())?;
    for _ in 0..4 {
        value = match value {
            serde_json::Value::String(text) => {
                serde_json::from_str(&text).ok().or_else(|| serde_json::from_str(&python_text(&text)?).ok())?
            }
            serde_json::Value::Array(mut items) if items.len() == 1 && !items[0].is_object() => items.remove(0),
            other => other,
        };
    }
    let mut wrong = 0;
    for one in value.as_array()? {
        let name = &one["pg_name"];
        let name = name.as_str().map_or_else(|| name.to_string(), String::from);
        let listed: Option<Vec<u32>> = serde_json::from_value(one["ranks"].clone()).ok();
        // PyTorch lists no ranks of a group that has all of them.
        let ranks = match listed {
            Some(ranks) if ranks.is_empty() => {
                let size = one["group_size"].as_u64().and_then(|size| u32::try_from(size).ok()).filter(|size| *size <= RANKS_MAX);
                // Each rank's file has the groups of all.
                let is_new = |size: u32| groups.get(&name).is_none_or(|known| known.len() != size as usize);
                *implied += size.filter(|size| is_new(*size)).unwrap_or(0) as usize;
                size.filter(|_| *implied <= IMPLIED_MAX).map(|size| (0..size).collect())
            }
            other => other,
        };
        match ranks.and_then(checked) {
            Some(ranks) => drop(groups.insert(name, ranks)),
            None => wrong += 1,
        }
    }
    Some(wrong)
}

/// Takes over traces of ranks, and files of process groups beside them.
///
/// # Errors
/// A file is damaged, nodes wait for each other, or files are of the same rank.
pub fn import(inputs: &[Input], options: &Options) -> Result<Imported, WorkloadError> {
    let mut report = Report::new("Chakra execution trace");
    let (groups_files, traces): (Vec<&Input>, Vec<&Input>) = inputs.iter().partition(|input| input.bytes.first() == Some(&b'{'));
    let (mut groups, mut implied) = (Groups::new(), 0);
    for input in groups_files {
        let all: BTreeMap<String, Vec<u32>> = serde_json::from_slice(&input.bytes)
            .map_err(|error| WorkloadError::new(&input.name, format!("no process groups: {error}")).at(error.line() as u64))?;
        for (name, ranks) in all {
            let ranks =
                checked(ranks).ok_or_else(|| WorkloadError::new(&input.name, format!("group {name:?}: expected different ranks")))?;
            groups.insert(name, ranks);
        }
    }
    let (mut ranks, mut files, mut held) = (options.ranks.unwrap_or(0), BTreeMap::new(), Held::default());
    for (index, input) in traces.iter().enumerate() {
        let rank = rank_of(&input.name).unwrap_or_else(|| {
            report.assume("files without a rank in their name (NAME.RANK.et) are of ranks in the order in which they are given");
            index as u32
        });
        if rank >= RANKS_MAX || files.contains_key(&rank) {
            return Err(WorkloadError::new(&input.name, format!("rank {rank}: expected one below {RANKS_MAX} that no other file has")));
        }
        if options.ranks.is_none() {
            ranks = ranks.max(rank + 1);
        }
        let nodes = nodes_of(input, &mut held, &mut report)?;
        for node in nodes.iter().filter(|node| node.kind == METADATA_NODE && node.name.contains("process_group:init")) {
            let text = node.inputs.as_ref().map_or("", |inputs| &inputs.values);
            let place = || format!("{}: node {}", input.name, node.id);
            match groups_of_node(text, &mut groups, &mut implied) {
                None => report.leave("process groups that are no JSON", place),
                Some(wrong) => report.leave_many("process groups without a list of ranks or a size", wrong, place),
            }
        }
        files.insert(rank, (*input, nodes));
    }
    let last = groups.values().flatten().max().map_or(0, |rank| rank + 1);
    ranks = if options.ranks.is_none() { ranks.max(last) } else { ranks };
    let name = inputs.first().map_or_else(String::new, |input| input.name.clone());
    let mut known = Known::default();
    let mut programs = BTreeMap::new();
    for (rank, (input, nodes)) in files {
        let trace = Trace { input, groups: &groups, ranks, element: options.element };
        programs.insert(rank, trace.program(nodes, &mut known, &mut report)?);
    }
    let mut raw = Raw { name: name.clone(), source: "Chakra".into(), ranks, iterations: 1, programs, lists: known.lists };
    raw.even_out(&mut report);
    Ok(Imported { workload: raw.assemble(&name, &mut report)?, report })
}

/// Lists of ranks; and by group the number of its list, and how many ranks it has.
#[derive(Default)]
struct Known {
    lists: Lists,
    of: BTreeMap<String, (usize, u64)>,
}

struct Trace<'a> {
    input: &'a Input,
    groups: &'a Groups,
    ranks: u32,
    element: Option<Element>,
}

impl Trace<'_> {
    /// What a rank does: its nodes in an order in which each comes after what it waits for, the first of the file first.
    fn program(&self, mut nodes: Vec<EtNode>, known: &mut Known, report: &mut Report) -> Result<Vec<RawNode>, WorkloadError> {
        let mut order = self.order(&nodes)?;
        if order.is_err() {
            // In traces of PyTorch these lead from calls to what called them and back, and feeders take data_deps alone.
            report.assume("ctrl_deps, with which nodes would wait for each other, do not count: data_deps do");
            nodes.iter_mut().for_each(|node| node.ctrl_deps.clear());
            order = self.order(&nodes)?;
        }
        let order = order.map_err(|node| self.error(&nodes[node], "waits for itself, by way of others"))?;
        let mut places = vec![0u32; nodes.len()];
        order.iter().enumerate().for_each(|(place, node)| places[*node] = place as u32);
        let numbers: BTreeMap<u64, usize> = nodes.iter().enumerate().map(|(index, node)| (node.id, index)).collect();
        let (mut raw, mut keep) = (Vec::with_capacity(nodes.len()), Vec::with_capacity(nodes.len()));
        for index in order {
            let node = &nodes[index];
            let place = format!("{}: node {} {:?}", self.input.name, node.id, node.name);
            let (action, stream) = match self.action(node, known, report) {
                Ok(found) => found,
                Err(what) => {
                    if node.kind != METADATA_NODE {
                        report.leave(what, || place.clone());
                    }
                    (RawAction::Compute(Duration::from_ps(0)), None)
                }
            };
            keep.push(stream.is_some());
            for before in node.ctrl_deps.iter().chain(&node.data_deps).filter(|before| !numbers.contains_key(before)) {
                report.leave("dependencies on nodes that are not in the file", || format!("{place} waits for node {before}"));
            }
            let mut after: Vec<u32> =
                node.ctrl_deps.iter().chain(&node.data_deps).filter_map(|id| numbers.get(id)).map(|other| places[*other]).collect();
            after.sort_unstable();
            after.dedup();
            let stream = stream.flatten().map(Into::into);
            raw.push(RawNode { id: node.name.clone(), action, after, stream, measured: None, place });
        }
        super::assemble::retain(&mut raw, &keep);
        Ok(raw)
    }

    fn error(&self, node: &EtNode, what: &str) -> WorkloadError {
        WorkloadError::new(&self.input.name, format!("node {} {:?}: {what}", node.id, node.name))
    }

    /// Indices of nodes; or, where they wait for each other, the first that does.
    fn order(&self, nodes: &[EtNode]) -> Result<Result<Vec<usize>, usize>, WorkloadError> {
        let mut numbers = BTreeMap::new();
        for (index, node) in nodes.iter().enumerate() {
            if numbers.insert(node.id, index).is_some() {
                return Err(self.error(node, "another node has the same id"));
            }
        }
        let mut successors = vec![Vec::new(); nodes.len()];
        let mut pending = vec![0usize; nodes.len()];
        for (index, node) in nodes.iter().enumerate() {
            for before in node.ctrl_deps.iter().chain(&node.data_deps) {
                let Some(before) = numbers.get(before).copied() else { continue };
                successors[before].push(index);
                pending[index] += 1;
            }
        }
        let mut ready: BinaryHeap<Reverse<usize>> = (0..nodes.len()).filter(|node| pending[*node] == 0).map(Reverse).collect();
        let mut order = Vec::with_capacity(nodes.len());
        while let Some(Reverse(node)) = ready.pop() {
            order.push(node);
            for successor in &successors[node] {
                pending[*successor] -= 1;
                if pending[*successor] == 0 {
                    ready.push(Reverse(*successor));
                }
            }
        }
        Ok(pending.iter().position(|count| *count > 0).map_or(Ok(order), Err))
    }

    /// What a node does, and the stream where there is one; an error for nodes that are left out.
    fn action(&self, node: &EtNode, known: &mut Known, report: &mut Report) -> Result<(RawAction, Option<Option<&'static str>>), String> {
        match node.kind {
            COMP_NODE => {
                if node.duration_micros == 0 && node.number("num_ops").is_some_and(|count| count > 0) {
                    return Err("computations with num_ops and without duration_micros".into());
                }
                let is_cpu =
                    node.attribute("is_cpu_op").and_then(|one| one.bool).or_else(|| Some(node.number("is_cpu_op")? > 0)).unwrap_or(false);
                let time = node.duration_micros.checked_mul(1_000_000).ok_or("computations of more than 2^64 ps")?;
                Ok((RawAction::Compute(Duration::from_ps(time)), Some(Some(if is_cpu { "cpu" } else { COMPUTE_STREAM }))))
            }
            COMM_SEND_NODE | COMM_RECV_NODE => {
                let key = if node.kind == COMM_SEND_NODE { "comm_dst" } else { "comm_src" };
                let peer = node.number(key).and_then(|peer| u32::try_from(peer).ok()).ok_or(format!("sends and receives without {key}"))?;
                let bytes = node.number("comm_size").ok_or("sends and receives without comm_size")?;
                let tag = node.number("comm_tag").unwrap_or(0);
                let transfer = transfer(peer, bytes, u32::try_from(tag).map_err(|_| "sends and receives with a tag of more than 32 bits")?);
                let action = if node.kind == COMM_SEND_NODE { RawAction::Send(transfer) } else { RawAction::Receive(transfer) };
                Ok((action, Some(None)))
            }
            COMM_COLL_NODE => Ok((self.collective(node, known, report)?, Some(Some(COMMUNICATION_STREAM)))),
            other => Err(format!("nodes of type {}", usize::try_from(other).ok().and_then(|at| KINDS.get(at)).unwrap_or(&"unknown"))),
        }
    }

    /// The number of a group's list of ranks, and how many they are.
    fn list(&self, group: &str, known: &mut Known) -> Result<(usize, u64), String> {
        if let Some(found) = known.of.get(group) {
            return Ok(*found);
        }
        let ranks = match self.groups.get(group) {
            Some(ranks) => ranks.clone(),
            None if group.is_empty() => (0..self.ranks.min(RANKS_MAX)).collect(),
            None => return Err(format!("collectives of process group {group:?}, whose ranks are nowhere")),
        };
        let size = ranks.len() as u64;
        let found = (known.lists.number(if group.is_empty() { "all" } else { group }, ranks), size);
        known.of.insert(group.to_string(), found);
        Ok(found)
    }

    fn collective(&self, node: &EtNode, known: &mut Known, report: &mut Report) -> Result<RawAction, String> {
        let kind = match node.number("comm_type").ok_or("collectives without comm_type")? {
            0 => CollectiveKind::AllReduce,
            1 => CollectiveKind::Reduce,
            2 => CollectiveKind::AllGather,
            3 => return Err("collectives of type GATHER".into()),
            4 => return Err("collectives of type SCATTER".into()),
            5 => CollectiveKind::Broadcast,
            6 => CollectiveKind::AllToAll,
            7 | 8 => CollectiveKind::ReduceScatter,
            9 => CollectiveKind::Barrier,
            other => return Err(format!("collectives of type {other}")),
        };
        let named = node.number("pg_name").map(|number| number.to_string());
        let group = node.text("pg_name").or(named.as_deref()).unwrap_or("");
        if node.attribute("involved_dim").and_then(|one| one.bools.as_ref()).is_some_and(|dims| dims.values.contains(&false)) {
            report.assume("involved_dim does not count, since files do not have the network's dimensions: collectives are of all ranks of their group");
        }
        let (list, size) = self.list(group, known)?;
        let mut bytes =
            if kind == CollectiveKind::Barrier { 0 } else { node.number("comm_size").ok_or("collectives without comm_size")? };
        if kind == CollectiveKind::AllGather {
            bytes = bytes.checked_mul(size).ok_or("collectives of more than 2^64 bytes")?;
            report.assume("comm_size of an all-gather is what each rank brings, as ASTRA-sim takes it");
        }
        if kind.has_root() {
            report.assume("broadcasts and reduces are from or to the first member of their group");
        }
        let element = self.element.unwrap_or(Element::F32);
        if self.element.is_none() {
            report.assume(format!("elements of {element}: the files do not say"));
        }
        Ok(RawAction::Collective { kind, list, bytes, element, root: 0 })
    }
}
