//! Algorithms of MSCCL as XML: steps of thread blocks, of which each sends or receives chunks. All chunks together are `--bytes`.

use std::collections::BTreeMap;

use fanin_core::Duration;
use roxmltree::{Document, Node};

use super::assemble::{Lists, Raw, RawAction, RawNode, transfer};
use super::input::{Imported, Input, LineIndex, Options};
use crate::error::WorkloadError;
use crate::model::COMPUTE_STREAM;
use crate::ranks::RANKS_MAX;
use crate::report::Report;

/// The vector's length where nothing is said.
const BYTES: u64 = 1 << 20;

struct Reader<'a> {
    file: &'a str,
    lines: LineIndex,
    ranks: u32,
    chunk_bytes: u64,
}

impl Reader<'_> {
    fn error(&self, node: Node<'_, '_>, what: String) -> WorkloadError {
        WorkloadError::new(self.file, what).at(self.line(node))
    }

    fn line(&self, node: Node<'_, '_>) -> u64 {
        self.lines.line(node.range().start)
    }

    fn number(&self, node: Node<'_, '_>, key: &str, least: i64) -> Result<i64, WorkloadError> {
        let text = node.attribute(key).unwrap_or("");
        let expected =
            || self.error(node, format!("{}: {key} = {text:?}: expected a whole number from {least} on", node.tag_name().name()));
        text.parse::<i64>().ok().filter(|number| (least..=i64::from(u32::MAX)).contains(number)).ok_or_else(expected)
    }

    /// What a GPU does.
    fn program(&self, gpu: Node<'_, '_>, report: &mut Report) -> Result<Vec<RawNode>, WorkloadError> {
        let mut nodes: Vec<RawNode> = Vec::new();
        // By thread block and step: its last node; and what waits for which.
        let mut ends: BTreeMap<(i64, i64), u32> = BTreeMap::new();
        let mut waits = Vec::new();
        for block in gpu.children().filter(|node| node.tag_name().name() == "tb") {
            let id = self.number(block, "id", 0)?;
            let (to, from) = (self.number(block, "send", -1)?, self.number(block, "recv", -1)?);
            let channel = self.number(block, "chan", 0)? as u32;
            let stream = format!("thread block {id}");
            for step in block.children().filter(|node| node.tag_name().name() == "step") {
                let number = self.number(step, "s", 0)?;
                let count = self.number(step, "cnt", 0)? as u64;
                let kind = step.attribute("type").unwrap_or("");
                let (receives, sends) = match kind {
                    "s" => (false, true),
                    "r" | "rrc" => (true, false),
                    "rcs" | "rrs" | "rrcs" => (true, true),
                    "cpy" | "re" | "nop" => (false, false),
                    other => {
                        return Err(self.error(step, format!("step: type = {other:?}: expected s, r, rcs, rrs, rrc, rrcs, cpy, re or nop")));
                    }
                };
                let bytes =
                    count.max(1).checked_mul(self.chunk_bytes).ok_or_else(|| self.error(step, "cnt: expected fewer chunks".into()))?;
                let peer = |peer: i64, key: &str| {
                    u32::try_from(peer).ok().filter(|peer| *peer < self.ranks).ok_or_else(|| {
                        self.error(
                            step,
                            format!("a step of type {kind:?} in a tb with {key} = {peer}: expected a GPU below {}", self.ranks),
                        )
                    })
                };
                let mut actions = Vec::new();
                if receives {
                    actions.push(RawAction::Receive(transfer(peer(from, "recv")?, bytes, channel)));
                }
                if sends {
                    actions.push(RawAction::Send(transfer(peer(to, "send")?, bytes, channel)));
                }
                if actions.is_empty() {
                    if kind != "nop" {
                        report.leave("time of copies and sums within a GPU (cpy, re)", || format!("{}:{}", self.file, self.line(step)));
                    }
                    actions.push(RawAction::Compute(Duration::from_ps(0)));
                }
                let first = nodes.len() as u32;
                for (part, action) in actions.into_iter().enumerate() {
                    nodes.push(RawNode {
                        id: format!("{id}.{number}{}", if part == 0 { "" } else { " on" }),
                        action,
                        after: Vec::new(),
                        stream: Some(stream.as_str().into()),
                        measured: None,
                        place: format!("{}:{}", self.file, self.line(step)),
                    });
                }
                if ends.insert((id, number), nodes.len() as u32 - 1).is_some() {
                    return Err(self.error(step, format!("step {number} of tb {id}: expected each once")));
                }
                let (block, other) = (self.number(step, "depid", -1)?, self.number(step, "deps", -1)?);
                if block >= 0 {
                    waits.push((first, (block, other), self.line(step)));
                }
            }
        }
        for (node, other, line) in waits {
            let error =
                || WorkloadError::new(self.file, format!("step {} of tb {}: expected one that is there", other.1, other.0)).at(line);
            nodes[node as usize].after.push(*ends.get(&other).ok_or_else(error)?);
        }
        if nodes.is_empty() {
            let (action, stream) = (RawAction::Compute(Duration::from_ps(0)), Some(COMPUTE_STREAM.into()));
            nodes.push(RawNode { id: "nothing".into(), action, after: Vec::new(), stream, measured: None, place: String::new() });
        }
        Ok(nodes)
    }
}

/// Takes over an algorithm.
///
/// # Errors
/// The line that is wrong.
pub fn import(input: &Input, options: &Options) -> Result<Imported, WorkloadError> {
    let mut report = Report::new("MSCCL algorithm");
    let text = input.text()?;
    let document = Document::parse(text)
        .map_err(|error| WorkloadError::new(&input.name, format!("not XML: {error}")).at(u64::from(error.pos().row)))?;
    let root = document.root_element();
    let mut reader = Reader { file: &input.name, lines: LineIndex::new(text), ranks: 0, chunk_bytes: 0 };
    if root.tag_name().name() != "algo" {
        return Err(reader.error(root, format!("{:?}: expected algo", root.tag_name().name())));
    }
    let ranks = reader.number(root, "ngpus", 1)?;
    let chunks = reader.number(root, "nchunksperloop", 1)? as u64;
    if ranks > i64::from(RANKS_MAX) {
        return Err(reader.error(root, format!("ngpus = {ranks}: expected at most {RANKS_MAX}")));
    }
    let bytes = options.bytes.unwrap_or_else(|| {
        report.assume(format!("a vector of {BYTES} bytes: --bytes says it"));
        BYTES
    });
    if bytes == 0 || !bytes.is_multiple_of(chunks) {
        return Err(reader.error(root, format!("--bytes {bytes}: expected a multiple of {chunks} chunks")));
    }
    (reader.ranks, reader.chunk_bytes) = (ranks as u32, bytes / chunks);
    let mut programs = BTreeMap::new();
    for gpu in root.children().filter(|node| node.tag_name().name() == "gpu") {
        let id = reader.number(gpu, "id", 0)? as u32;
        if id >= reader.ranks || programs.insert(id, reader.program(gpu, &mut report)?).is_some() {
            return Err(reader.error(gpu, format!("gpu {id}: expected each below {} once", reader.ranks)));
        }
    }
    if programs.len() != reader.ranks as usize {
        return Err(reader.error(root, format!("{} gpus: expected {}", programs.len(), reader.ranks)));
    }
    let raw = Raw {
        name: root.attribute("name").unwrap_or("").to_string(),
        source: "MSCCL".into(),
        ranks: reader.ranks,
        iterations: 1,
        programs,
        lists: Lists::default(),
    };
    Ok(Imported { workload: raw.assemble(&input.name, &mut report)?, report })
}
