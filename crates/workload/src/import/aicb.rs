//! Workloads of AICB and SimAI: a layer a line as text, or a call of a collective a line as CSV. All ranks do the same.

use std::collections::BTreeMap;

use fanin_core::Duration;

use super::input::{Imported, Input, Options};
use crate::error::WorkloadError;
use crate::kinds::{CollectiveKind, Element};
use crate::model::{Action, Collective, Group, Hosts, Members, Node, Program, Workload};
use crate::ranks::RANKS_MAX;
use crate::report::Report;

/// Layers and calls at most.
const LINES_MAX: usize = 1 << 20;

/// How ranks are divided; tensor parallelism is innermost, pipelines outermost.
#[derive(Clone, Copy, Debug)]
struct Division {
    ranks: u32,
    tensor: u32,
    expert: u32,
    pipeline: u32,
}

impl Division {
    /// Groups by name: tensor, data and expert parallelism, and data parallelism of experts.
    fn groups(self) -> Option<Vec<Group>> {
        let Division { ranks, tensor, expert, pipeline } = self;
        let rest = ranks.checked_div(tensor.checked_mul(pipeline)?)?;
        let data_of_experts = rest.checked_div(expert)?;
        let product = u64::from(data_of_experts) * u64::from(expert) * u64::from(tensor) * u64::from(pipeline);
        let group = |name: &str, size, stride| Group { name: name.into(), members: Members::Strided { size, stride }, line: 0 };
        let all = || {
            vec![
                group("tp", tensor, 1),
                group("dp", rest, tensor),
                group("ep", expert, tensor),
                group("dp_ep", data_of_experts, tensor * expert),
            ]
        };
        (product == u64::from(ranks) && ranks > 0).then(all)
    }
}

/// The layer that a line describes.
struct Layer<'a> {
    name: &'a str,
    line: u64,
    /// Forward, input gradient, weight gradient: nanoseconds, kind of communication, bytes.
    passes: [(u64, &'a str, u64); 3],
    update_ns: u64,
}

const POLICIES: [&str; 2] = ["HYBRID_TRANSFORMER_FWD_IN_BCKWD", "HYBRID_TRANSFORMER"];

/// Policies of the same format whose groups depend on the dimensions of a network.
const OTHER_POLICIES: [&str; 8] =
    ["DATA", "MODEL", "HYBRID_DATA_MODEL", "HYBRID_MODEL_DATA", "HYBRID_DLRM", "HYBRID_DLRM_ENHANCED", "HYBRID_CUSTOMIZED", "MICRO"];

/// Whether a text begins as such a workload does.
pub fn looks_like(text: &str) -> bool {
    let mut lines = text.lines();
    let first = lines.next().and_then(|line| line.split_whitespace().next()).unwrap_or("");
    let mut is_counted = || lines.next().is_some_and(|line| line.trim().parse::<u64>().is_ok());
    POLICIES.contains(&first) || OTHER_POLICIES.contains(&first) && is_counted()
}

/// A whole number, which generators write with a point as well.
fn whole(text: &str) -> Option<u64> {
    let zeros = |digits: &str| !digits.is_empty() && digits.bytes().all(|one| one == b'0');
    text.parse().ok().or_else(|| text.split_once('.').filter(|(_, digits)| zeros(digits))?.0.parse().ok())
}

/// `key: value` pairs of the first line.
fn head(line: &str) -> BTreeMap<&str, &str> {
    let words: Vec<&str> = line.split_whitespace().collect();
    words.windows(2).filter_map(|pair| Some((pair[0].strip_suffix(':')?, pair[1]))).collect()
}

fn layer<'a>(line: &'a str, number: u64, file: &str) -> Result<Layer<'a>, WorkloadError> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let error = |what: String| WorkloadError::new(file, what).at(number);
    let &[name, _, forward, forward_kind, forward_bytes, input, input_kind, input_bytes, weight, weight_kind, weight_bytes, update] =
        words.as_slice()
    else {
        return Err(error(format!("{} words: expected the 12 of a layer", words.len())));
    };
    let of = |text: &str, what: &str| whole(text).ok_or_else(|| error(format!("{text:?}: expected {what}, a whole number")));
    Ok(Layer {
        name,
        line: number,
        passes: [
            (of(forward, "the forward time in ns")?, forward_kind, of(forward_bytes, "bytes")?),
            (of(input, "the time of the input gradient in ns")?, input_kind, of(input_bytes, "bytes")?),
            (of(weight, "the time of the weight gradient in ns")?, weight_kind, of(weight_bytes, "bytes")?),
        ],
        update_ns: of(update, "the time of the update in ns")?,
    })
}

/// The kind and the group that a word of a layer stands for: `ALLREDUCE`, `ALLTOALL_EP`.
fn kind_of(word: &str, usual: &'static str) -> Option<(CollectiveKind, &'static str)> {
    let (name, group) = match word.split_once('_') {
        None => (word, usual),
        Some((name, "TP")) => (name, "tp"),
        Some((name, "DP")) => (name, "dp"),
        Some((name, "EP")) => (name, "ep"),
        Some((name, "DP_EP")) => (name, "dp_ep"),
        Some(_) => return None,
    };
    let kind = match name {
        "ALLREDUCE" => CollectiveKind::AllReduce,
        "ALLGATHER" => CollectiveKind::AllGather,
        "REDUCESCATTER" => CollectiveKind::ReduceScatter,
        "ALLTOALL" => CollectiveKind::AllToAll,
        _ => return None,
    };
    Some((kind, group))
}

/// Makes the one program.
struct Builder<'a> {
    nodes: Vec<Node>,
    names: BTreeMap<String, u32>,
    groups: Vec<Group>,
    element: Element,
    report: &'a mut Report,
    file: &'a str,
}

impl Builder<'_> {
    /// A name that no other node has.
    fn id(&mut self, name: &str) -> String {
        let count = self.names.entry(name.to_string()).or_default();
        *count += 1;
        if *count == 1 { name.to_string() } else { format!("{name} {count}") }
    }

    fn push(&mut self, name: &str, action: Action, stream: &str, after: Option<u32>) -> u32 {
        let id = self.id(name);
        self.nodes.push(Node::new(id, action).on(stream).after(after));
        self.nodes.len() as u32 - 1
    }

    /// A collective after a node, where it is one; the node that is to be waited for.
    fn collective(&mut self, name: &str, kind: CollectiveKind, group: &str, bytes: u64, stream: &str, after: Option<u32>) -> Option<u32> {
        let number = self.groups.iter().position(|one| &*one.name == group)? as u32;
        let whole = bytes.is_multiple_of(self.element.bytes());
        if !whole {
            self.report.assume("vectors that are no whole number of elements have elements of u8");
        }
        let element = if whole { self.element } else { Element::U8 };
        let collective = Collective { kind, group: number, bytes, element, root: 0 };
        Some(self.push(name, Action::Collective(collective), stream, after))
    }

    /// One pass of a layer: computing after `after`, then its communication. Gives both.
    fn pass(&mut self, name: &str, layer: &Layer<'_>, pass: usize, after: Option<u32>) -> Result<(u32, Option<u32>), WorkloadError> {
        let (ns, word, bytes) = layer.passes[pass];
        let place = || format!("{}:{}", self.file, layer.line);
        let time = ns.checked_mul(1_000).ok_or_else(|| WorkloadError::new(self.file, format!("{ns} ns: expected less")).at(layer.line))?;
        let (usual, stream) = if pass == 2 { ("dp", "data") } else { ("tp", "tensor") };
        let found = kind_of(word, usual);
        match found {
            _ if word == "NONE" => {}
            None => self.report.leave(format!("communication {word:?}"), place),
            Some(_) if bytes == 0 => self.report.leave("communication of 0 bytes", place),
            Some(_) => {}
        }
        let compute = self.push(name, Action::Compute(Duration::from_ps(time)), crate::model::COMPUTE_STREAM, after);
        let sent = match found.filter(|_| bytes > 0) {
            Some((kind, group)) => self.collective(&format!("{name} {}", word.to_lowercase()), kind, group, bytes, stream, Some(compute)),
            None => None,
        };
        Ok((compute, sent))
    }
}

/// Takes over a file of layers: all forward passes, then all backward passes in reverse. The next pass waits for the communication of the
/// forward pass and of the input gradient; that of the weight gradient goes on beside, and the update at the end waits for it.
///
/// # Errors
/// The line that is no layer, or ranks that cannot be divided as the first line says.
pub fn import_text(input: &Input, options: &Options) -> Result<Imported, WorkloadError> {
    let mut report = Report::new("AICB/SimAI text");
    let mut lines =
        input.text()?.lines().enumerate().map(|(index, line)| (index as u64 + 1, line)).filter(|(_, line)| !line.trim().is_empty());
    let (_, first) = lines.next().ok_or_else(|| WorkloadError::new(&input.name, "expected a first line"))?;
    let policy = first.split_whitespace().next().unwrap_or("");
    if !POLICIES.contains(&policy) {
        return Err(WorkloadError::new(&input.name, format!("{policy:?}: expected {}", POLICIES.join(" or "))).at(1));
    }
    let division = division(first, input, options, &mut report)?;
    let groups = division.groups().ok_or_else(|| {
        let what = format!(
            "{} ranks, tensor {}, expert {}, pipeline {}: expected groups that divide the ranks",
            division.ranks, division.tensor, division.expert, division.pipeline
        );
        WorkloadError::new(&input.name, what).at(1)
    })?;
    let (number, count) = lines.next().ok_or_else(|| WorkloadError::new(&input.name, "expected the number of layers").at(2))?;
    let expected: usize =
        count.trim().parse().ok().filter(|count| (1..=LINES_MAX).contains(count)).ok_or_else(|| {
            WorkloadError::new(&input.name, format!("{count:?}: expected the number of layers, 1 to {LINES_MAX}")).at(number)
        })?;
    let layers = lines.map(|(number, line)| layer(line, number, &input.name)).collect::<Result<Vec<_>, _>>()?;
    if layers.len() != expected {
        return Err(WorkloadError::new(&input.name, format!("{} layers: expected the {expected} that the second line says", layers.len())));
    }
    let element = options.element.unwrap_or(Element::Bf16);
    if options.element.is_none() {
        report.assume(format!("elements of {element}: the file does not say"));
    }
    let mut builder = Builder { nodes: Vec::new(), names: BTreeMap::new(), groups, element, report: &mut report, file: &input.name };
    let mut before = None;
    for layer in &layers {
        let (compute, sent) = builder.pass(&format!("forward {}", layer.name), layer, 0, before)?;
        before = Some(sent.unwrap_or(compute));
    }
    let mut updates = Vec::new();
    for layer in layers.iter().rev() {
        let (compute, sent) = builder.pass(&format!("backward {}", layer.name), layer, 1, before)?;
        before = Some(sent.unwrap_or(compute));
        let (compute, sent) = builder.pass(&format!("weights {}", layer.name), layer, 2, before)?;
        updates.push((layer, sent.unwrap_or(compute)));
    }
    for (layer, last) in updates.into_iter().rev().filter(|(layer, _)| layer.update_ns > 0) {
        let time =
            layer.update_ns.checked_mul(1_000).ok_or_else(|| WorkloadError::new(&input.name, "update: expected less").at(layer.line))?;
        builder.push(&format!("update {}", layer.name), Action::Compute(Duration::from_ps(time)), crate::model::COMPUTE_STREAM, Some(last));
    }
    let (nodes, groups) = (builder.nodes, builder.groups);
    Ok(Imported { workload: one_program(input, division.ranks, groups, nodes, 1), report })
}

fn division(first: &str, input: &Input, options: &Options, report: &mut Report) -> Result<Division, WorkloadError> {
    let head = head(first);
    let number = |key: &str| -> Result<Option<u32>, WorkloadError> {
        let Some(text) = head.get(key) else { return Ok(None) };
        let expected = || WorkloadError::new(&input.name, format!("{key}: {text:?}: expected a whole number from 1 to {RANKS_MAX}")).at(1);
        text.parse().ok().filter(|number| (1..=RANKS_MAX).contains(number)).map(Some).ok_or_else(expected)
    };
    let tensor = number("model_parallel_NPU_group")?
        .ok_or_else(|| WorkloadError::new(&input.name, "expected model_parallel_NPU_group: in the first line").at(1))?;
    let (expert, pipeline) = (number("ep")?.unwrap_or(1), number("pp")?.unwrap_or(1));
    let ranks = match (options.ranks, number("all_gpus")?) {
        (Some(ranks), _) | (None, Some(ranks)) => ranks,
        (None, None) => {
            report.assume(format!("{tensor} ranks, those of a model_parallel_NPU_group: the first line has no all_gpus (--ranks says it)"));
            tensor
        }
    };
    if ranks == 0 || ranks > RANKS_MAX {
        return Err(WorkloadError::new(&input.name, format!("{ranks} ranks: expected 1 to {RANKS_MAX}")));
    }
    if pipeline > 1 {
        report.leave("sends between stages of pipelines, of which layers say nothing", || format!("{}:1", input.name));
    }
    if head.get("checkpoints").is_some_and(|count| *count != "0") {
        report.leave("forward passes that checkpoints repeat", || format!("{}:1", input.name));
    }
    Ok(Division { ranks, tensor, expert, pipeline })
}

fn one_program(input: &Input, ranks: u32, groups: Vec<Group>, nodes: Vec<Node>, iterations: u32) -> Workload {
    let mut used = vec![false; groups.len()];
    for node in &nodes {
        if let Action::Collective(collective) = &node.action {
            used[collective.group as usize] = true;
        }
    }
    let mut numbers = vec![0; groups.len()];
    let mut kept = Vec::new();
    for (index, group) in groups.into_iter().enumerate().filter(|(index, _)| used[*index]) {
        numbers[index] = kept.len() as u32;
        kept.push(group);
    }
    let renumbered = nodes.into_iter().map(|mut node| {
        if let Action::Collective(collective) = &mut node.action {
            collective.group = numbers[collective.group as usize];
        }
        node
    });
    let program = Program { name: "all".into(), ranks: (0..ranks).collect(), nodes: renumbered.collect(), line: 0 };
    Workload {
        name: input.name.clone(),
        ranks,
        hosts: Hosts::Each(1),
        iterations,
        source: "AICB".into(),
        groups: kept,
        blocks: Vec::new(),
        programs: vec![program],
    }
}

/// Takes over a file of calls, which come one after the other.
///
/// # Errors
/// The line that is no call, or groups that do not divide the ranks.
pub fn import_csv(input: &Input, options: &Options) -> Result<Imported, WorkloadError> {
    let mut report = Report::new("AICB CSV");
    let text = input.text()?;
    let start = text.lines().take_while(|line| !line.starts_with("comm_type,")).count();
    let body: usize = text.split_inclusive('\n').take(start).map(str::len).sum();
    let from_head = text.lines().take(start).find_map(|line| {
        let last = line.trim().strip_prefix("[rank0 ~ rank")?.strip_suffix(']')?;
        last.parse::<u32>().ok()?.checked_add(1)
    });
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(&text.as_bytes()[body..]);
    let error = |line: u64, what: String| WorkloadError::new(&input.name, what).at(line + start as u64);
    let names = reader.headers().map_err(|one| error(1, one.to_string()))?.clone();
    let column = |name: &str| names.iter().position(|one| one == name);
    let needed = |name: &str| column(name).ok_or_else(|| error(1, format!("expected a column {name}")));
    let (kind, group, size, bytes) = (needed("comm_type")?, needed("comm_group")?, needed("comm_group_size")?, needed("msg_size")?);
    let stage = column("stage");
    let (mut calls, mut sizes, mut epochs, mut is_step) = (Vec::new(), BTreeMap::new(), 0u32, false);
    for record in reader.records() {
        let record = record.map_err(|one| error(one.position().map_or(1, csv::Position::line), one.to_string()))?;
        let line = record.position().map_or(1, csv::Position::line);
        let get = |at: usize| record.get(at).unwrap_or("").trim();
        let place = || format!("{}:{}", input.name, line + start as u64);
        let name = get(kind).strip_prefix("CommType.").unwrap_or_else(|| get(kind));
        if name == "epoch_end" {
            epochs += u32::from(std::mem::take(&mut is_step));
            continue;
        }
        is_step |= stage.is_some_and(|stage| !get(stage).starts_with("init"));
        let Some(kind) = super::kineto::kind_of(name) else {
            report.leave(format!("calls of {name:?}"), place);
            continue;
        };
        let number =
            |at: usize, what: &str| whole(get(at)).ok_or_else(|| error(line, format!("{:?}: expected {what}, a whole number", get(at))));
        let (members, bytes) = (number(size, "the size of the group")?, number(bytes, "bytes")?);
        let label = get(group).strip_prefix("CommGroup.").unwrap_or_else(|| get(group)).trim_end_matches("_group").to_string();
        let members = u32::try_from(members).ok().filter(|size| (1..=RANKS_MAX).contains(size));
        let members = members.ok_or_else(|| error(line, format!("{:?}: expected the size of a group", get(size))))?;
        if *sizes.entry(label.clone()).or_insert(members) != members {
            return Err(error(line, format!("group {label:?} of {members}: expected {} as before", sizes[&label])));
        }
        if bytes == 0 && kind != CollectiveKind::Barrier {
            report.leave("calls of 0 bytes", place);
            continue;
        }
        if calls.len() >= LINES_MAX {
            return Err(error(line, format!("expected at most {LINES_MAX} calls")));
        }
        calls.push((kind, label, bytes));
    }
    let tensor = sizes.get("tp").copied().unwrap_or(1);
    let ranks = options.ranks.or(from_head).unwrap_or_else(|| {
        let ranks = tensor.saturating_mul(sizes.get("dp").copied().unwrap_or(1));
        report.assume(format!("{ranks} ranks, the product of the groups' sizes: the file does not say"));
        ranks
    });
    let groups = csv_groups(&sizes, tensor, ranks).map_err(|what| error(1, what))?;
    let element = options.element.unwrap_or(Element::Bf16);
    report.assume("no time between calls: the file has none");
    if options.element.is_none() {
        report.assume(format!("elements of {element}: the file does not say"));
    }
    if calls.iter().any(|(kind, ..)| kind.has_root()) {
        report.assume("broadcasts and reduces are from or to the first member of their group");
    }
    let mut builder = Builder { nodes: Vec::new(), names: BTreeMap::new(), groups, element, report: &mut report, file: &input.name };
    let mut before = None;
    for (kind, label, bytes) in calls {
        before = builder.collective(&format!("{label} {kind}"), kind, &label, bytes, crate::model::COMMUNICATION_STREAM, before).or(before);
    }
    if builder.nodes.is_empty() {
        return Err(WorkloadError::new(&input.name, "expected calls of collectives"));
    }
    let (nodes, groups) = (builder.nodes, builder.groups);
    Ok(Imported { workload: one_program(input, ranks, groups, nodes, epochs.max(1)), report })
}

fn csv_groups(sizes: &BTreeMap<String, u32>, tensor: u32, ranks: u32) -> Result<Vec<Group>, String> {
    if ranks == 0 || ranks > RANKS_MAX {
        return Err(format!("{ranks} ranks: expected 1 to {RANKS_MAX}"));
    }
    let expert = sizes.get("ep").copied().unwrap_or(1);
    let group = |(name, size): (&String, &u32)| {
        // Tensor parallelism is innermost; all others have its size as their distance, or that of experts within data.
        let stride = match name.as_str() {
            "tp" => 1,
            "ep_dp" | "dp_ep" => tensor.saturating_mul(expert),
            "pp" => ranks / size,
            "all" | "world" => 1,
            _ => tensor,
        };
        let block = u64::from(*size) * u64::from(stride);
        if block == 0 || u64::from(ranks) % block != 0 {
            return Err(format!(
                "group {name:?} of {size} with a distance of {stride}: expected to divide {ranks} ranks (--ranks says another number)"
            ));
        }
        Ok(Group { name: name.as_str().into(), members: Members::Strided { size: *size, stride }, line: 0 })
    };
    sizes.iter().map(group).collect()
}
