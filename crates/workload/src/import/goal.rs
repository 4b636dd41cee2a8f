//! GOAL (Group Operation Assembly Language), as text: what LogGOPSim and ATLAHS take.
//!
//! A rank's operations wait for what they `requires` only, apart from computations, of which one at a time runs on a `cpu`.

use std::collections::{BTreeMap, BTreeSet};

use fanin_core::Duration;

use super::assemble::{Lists, Raw, RawAction, RawNode, transfer};
use super::input::{Imported, Input, Options};
use crate::error::WorkloadError;
use crate::flat::NODES_MAX;
use crate::ranks::RANKS_MAX;
use crate::report::Report;

/// Whether a text begins as GOAL does.
pub fn looks_like(text: &str) -> bool {
    let mut rest = text.trim_start();
    loop {
        rest = match rest {
            _ if rest.starts_with("//") || rest.starts_with('#') => rest.split_once('\n').map_or("", |(_, rest)| rest).trim_start(),
            _ if rest.starts_with("/*") => rest.split_once("*/").map_or("", |(_, rest)| rest).trim_start(),
            _ => return rest.starts_with("num_ranks"),
        }
    }
}

struct Words<'a> {
    file: &'a str,
    rest: &'a str,
    line: u64,
}

impl<'a> Words<'a> {
    fn error(&self, what: String) -> WorkloadError {
        WorkloadError::new(self.file, what).at(self.line)
    }

    fn skip(&mut self, bytes: usize) -> &'a str {
        let (word, rest) = self.rest.split_at(bytes);
        self.line += word.bytes().filter(|byte| *byte == b'\n').count() as u64;
        self.rest = rest;
        word
    }

    /// Without blanks and comments.
    fn trim(&mut self) -> Result<(), WorkloadError> {
        loop {
            let blanks = self.rest.len() - self.rest.trim_start().len();
            self.skip(blanks);
            if self.rest.starts_with("//") || self.rest.starts_with('#') {
                self.skip(self.rest.find('\n').unwrap_or(self.rest.len()));
            } else if self.rest.starts_with("/*") {
                let end = self.rest.find("*/").ok_or_else(|| self.error("a comment that does not end: expected */".into()))?;
                self.skip(end + 2);
            } else {
                return Ok(());
            }
        }
    }

    /// The next word: a name, a number or a sign; empty at the end.
    fn next(&mut self) -> Result<&'a str, WorkloadError> {
        self.trim()?;
        let mut end = self.rest.len().min(self.rest.chars().next().map_or(0, char::len_utf8));
        let is_name = |one: char| one.is_ascii_alphanumeric() || one == '_';
        let first = self.rest.chars().next().unwrap_or(' ');
        if first.is_ascii_digit() || first == '-' {
            end += self.rest[end..].bytes().take_while(u8::is_ascii_digit).count();
        } else if is_name(first) {
            end = self.rest.find(|one| !is_name(one)).unwrap_or(self.rest.len());
        }
        Ok(self.skip(end))
    }

    fn peek(&mut self) -> Result<&'a str, WorkloadError> {
        let (rest, line) = (self.rest, self.line);
        let word = self.next()?;
        (self.rest, self.line) = (rest, line);
        Ok(word)
    }

    fn expect(&mut self, word: &str) -> Result<(), WorkloadError> {
        let found = self.next()?;
        if found == word { Ok(()) } else { Err(self.error(format!("{found:?}: expected {word:?}"))) }
    }

    fn number<T: std::str::FromStr>(&mut self, expected: &str) -> Result<T, WorkloadError> {
        let found = self.next()?;
        found.parse().map_err(|_| self.error(format!("{found:?}: expected {expected}")))
    }
}

/// What a rank's section says.
#[derive(Default)]
struct Section<'a> {
    nodes: Vec<RawNode>,
    labels: BTreeMap<&'a str, u32>,
    requires: Vec<(u32, &'a str, u64)>,
    starts: Vec<(u32, &'a str, u64)>,
}

/// Takes over a file.
///
/// # Errors
/// The line that is no GOAL, or that receives from anybody.
pub fn import(input: &Input, _: &Options) -> Result<Imported, WorkloadError> {
    let mut report = Report::new("GOAL text");
    let mut words = Words { file: &input.name, rest: input.text()?, line: 1 };
    words.expect("num_ranks")?;
    let ranks: u32 = words.number("how many ranks there are")?;
    if ranks == 0 || ranks > RANKS_MAX {
        return Err(words.error(format!("num_ranks {ranks}: expected 1 to {RANKS_MAX}")));
    }
    let (mut programs, mut count, mut edges) = (BTreeMap::new(), 0usize, 0usize);
    loop {
        match words.next()? {
            "" => break,
            "rank" => {}
            other => return Err(words.error(format!("{other:?}: expected \"rank\""))),
        }
        let rank: u32 = words.number("a rank")?;
        if rank >= ranks || programs.contains_key(&rank) {
            return Err(words.error(format!("rank {rank}: expected each rank below {ranks} once")));
        }
        words.expect("{")?;
        let section = section(&mut words, ranks, NODES_MAX - count, &mut report)?;
        count += section.nodes.len();
        programs.insert(rank, resolve(section, &input.name, &mut edges, &mut report)?);
    }
    for rank in 0..ranks {
        let nodes: &mut Vec<RawNode> = programs.entry(rank).or_default();
        if nodes.is_empty() {
            nodes.push(node("nothing".into(), RawAction::Compute(Duration::from_ps(0)), None, String::new()));
        }
    }
    let raw = Raw { name: input.name.clone(), source: "GOAL".into(), ranks, iterations: 1, programs, lists: Lists::default() };
    Ok(Imported { workload: raw.assemble(&input.name, &mut report)?, report })
}

fn node(id: String, action: RawAction, stream: Option<&str>, place: String) -> RawNode {
    RawNode { id, action, after: Vec::new(), stream: stream.map(Into::into), measured: None, place }
}

/// The section of a rank, of at most `room` operations.
fn section<'a>(words: &mut Words<'a>, ranks: u32, room: usize, report: &mut Report) -> Result<Section<'a>, WorkloadError> {
    let mut section = Section::default();
    loop {
        if section.nodes.len() > room {
            return Err(words.error(format!("expected at most {NODES_MAX} operations of all ranks")));
        }
        if section.requires.len() + section.starts.len() > EDGES_MAX {
            return Err(words.error(format!("expected at most {EDGES_MAX} requirements in all")));
        }
        let word = words.next()?;
        let line = words.line;
        match word {
            "}" => return Ok(section),
            "" => return Err(words.error("the file ends within a rank: expected }".into())),
            "send" | "recv" | "calc" => operation(words, word, None, ranks, &mut section, report)?,
            _ if !word.starts_with(|one: char| one.is_ascii_alphabetic() || one == '_') => {
                return Err(words.error(format!("{word:?}: expected a label, send, recv, calc or }}")));
            }
            label => match words.next()? {
                ":" => {
                    let operator = words.next()?;
                    operation(words, operator, Some(label), ranks, &mut section, report)?;
                }
                kind @ ("requires" | "irequires") => {
                    let of = *section.labels.get(label).ok_or_else(|| words.error(format!("{label:?}: expected a label that is there")))?;
                    let other = words.next()?;
                    let list = if kind == "requires" { &mut section.requires } else { &mut section.starts };
                    list.push((of, other, line));
                }
                other => return Err(words.error(format!("{other:?}: expected :, requires or irequires after label {label:?}"))),
            },
        }
    }
}

fn operation<'a>(
    words: &mut Words<'a>,
    operator: &str,
    label: Option<&'a str>,
    ranks: u32,
    section: &mut Section<'a>,
    report: &mut Report,
) -> Result<(), WorkloadError> {
    let line = words.line;
    let number = section.nodes.len() as u32;
    if let Some(label) = label
        && section.labels.insert(label, number).is_some()
    {
        return Err(words.error(format!("label {label:?}: expected each label of a rank once")));
    }
    let id = label.map_or_else(|| format!("{operator} in line {line}"), String::from);
    let place = format!("{}:{line}", words.file);
    if operator == "calc" {
        let ns: u64 = words.number("nanoseconds")?;
        let ps = ns.checked_mul(1_000).ok_or_else(|| words.error(format!("calc {ns}: expected less than {} ns", u64::MAX / 1_000)))?;
        let options = options(words, &["cpu"])?;
        let stream = format!("cpu {}", options[0].unwrap_or(0));
        section.nodes.push(node(id, RawAction::Compute(Duration::from_ps(ps)), Some(&stream), place));
        return Ok(());
    }
    let is_send = match operator {
        "send" => true,
        "recv" => false,
        _ => return Err(words.error(format!("{operator:?}: expected send, recv or calc"))),
    };
    let mut bytes: u64 = words.number("a number of bytes")?;
    words.expect("b")?;
    words.expect(if is_send { "to" } else { "from" })?;
    let peer: i64 = words.number("a rank")?;
    let peer = u32::try_from(peer).ok().filter(|peer| *peer < ranks).ok_or_else(|| {
        words.error(format!(
            "{operator} {} {peer}: expected a rank below {ranks}; receiving from any is not supported",
            if is_send { "to" } else { "from" }
        ))
    })?;
    let options = options(words, &["tag", "cpu", "nic"])?;
    if bytes == 0 {
        bytes = 1;
        report.assume("messages of 0 bytes have 1 byte, so that they are waited for");
    }
    if options[2].is_some_and(|nic| nic > 0) {
        report.leave("numbers of network cards (nic)", || place.clone());
    }
    if options[1].is_some_and(|cpu| cpu > 0) {
        report.leave("the cpu of a send or receive", || place.clone());
    }
    let transfer = transfer(peer, bytes, options[0].unwrap_or(0));
    let action = if is_send { RawAction::Send(transfer) } else { RawAction::Receive(transfer) };
    section.nodes.push(node(id, action, None, place));
    Ok(())
}

/// The values of these words, where they follow.
fn options(words: &mut Words<'_>, known: &[&str]) -> Result<Vec<Option<u32>>, WorkloadError> {
    let mut values = vec![None; known.len()];
    while let Some(place) = known.iter().position(|word| words.peek().is_ok_and(|next| next == *word)) {
        words.next()?;
        values[place] = Some(words.number(&format!("the number of the {}; any is not supported", known[place]))?);
    }
    Ok(values)
}

/// What nodes of a file wait for at most, in all.
const EDGES_MAX: usize = 1 << 24;

/// Puts in what nodes wait for, once all lines of the rank are read.
fn resolve(section: Section<'_>, file: &str, edges: &mut usize, report: &mut Report) -> Result<Vec<RawNode>, WorkloadError> {
    let Section { mut nodes, labels, requires, starts } = section;
    let find = |label: &str, line: u64| {
        let error = || WorkloadError::new(file, format!("{label:?}: expected a label of the same rank")).at(line);
        labels.get(label).copied().ok_or_else(error)
    };
    let mut after: Vec<BTreeSet<u32>> = vec![BTreeSet::new(); nodes.len()];
    for (node, label, line) in &requires {
        after[*node as usize].insert(find(label, *line)?);
    }
    // What begins with another operation waits for what that one waits for, which is known once that one's own are.
    let mut followers: BTreeMap<u32, Vec<(u32, u64)>> = BTreeMap::new();
    let mut pending: BTreeMap<u32, (usize, u64)> = BTreeMap::new();
    for (node, label, line) in &starts {
        report.assume("what irequires an operation waits for all that this one requires");
        followers.entry(find(label, *line)?).or_default().push((*node, *line));
        pending.entry(*node).or_insert((0, *line)).0 += 1;
    }
    let too_many = |line: u64| WorkloadError::new(file, format!("expected at most {EDGES_MAX} requirements in all")).at(line);
    let count = after.iter().map(BTreeSet::len).sum::<usize>();
    *edges = edges.saturating_add(count);
    if *edges > EDGES_MAX {
        return Err(too_many(requires.last().map_or(0, |(.., line)| *line)));
    }
    let mut ready: Vec<u32> = followers.keys().filter(|node| !pending.contains_key(node)).copied().collect();
    while let Some(with) = ready.pop() {
        let theirs = after[with as usize].clone();
        for (node, line) in followers.remove(&with).unwrap_or_default() {
            let own = &mut after[node as usize];
            let before = own.len();
            own.extend(&theirs);
            *edges = edges.saturating_add(own.len() - before);
            if *edges > EDGES_MAX {
                return Err(too_many(line));
            }
            if let Some(open) = pending.get_mut(&node) {
                open.0 -= 1;
                if open.0 == 0 {
                    pending.remove(&node);
                    ready.push(node);
                }
            }
        }
    }
    if let Some((node, (_, line))) = pending.first_key_value() {
        let what = format!("{:?} irequires what begins with itself, by way of others", nodes[*node as usize].id);
        return Err(WorkloadError::new(file, what).at(*line));
    }
    for (node, after) in nodes.iter_mut().zip(after) {
        node.after = after.into_iter().collect();
    }
    Ok(nodes)
}
