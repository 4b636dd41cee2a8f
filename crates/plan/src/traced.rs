//! What a plan's first run is looked at for, and what was seen, as a file for Perfetto: ranks and groups of jobs with a workload, blocks of
//! one collective, queues before some links.

use std::collections::BTreeMap;
use std::io::{self, Write};

use fanin_core::{Instant, NodeId};
use fanin_sim::programs::{Call, ProgramResult, Step};
use fanin_sim::watch::{BlockSpan, BlocksOf, WatchConfig, Watched};
use fanin_workload::CollectiveKind;
use fanin_workload::flat::Step as Node;
use fanin_workload::ranks::ranks_text;
use serde_json::json;

use crate::build::{Listed, Prepared};
use crate::jobs::collective::kind_of;
use crate::perfetto::Events;
use crate::workload::{PreparedProgram, trace};
use crate::{Plan, PlanError};

/// Links whose queues are looked at, at most.
pub const LINKS_MAX: usize = 256;

/// What the first run is looked at for, beside its jobs with a workload.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Wanted {
    blocks: Option<WantedBlocks>,
    /// Names and numbers of links.
    links: Vec<(String, u32)>,
}

/// Blocks of a collective.
#[derive(Clone, PartialEq, Debug)]
struct WantedBlocks {
    of: BlocksOf,
    /// What it is called.
    name: String,
    /// By rank of the job of the network: who that is.
    ranks: Vec<String>,
    /// An all-to-all: each block goes from the one rank that has it to the one that gets it.
    has_transfers: bool,
}

/// Why something cannot be looked at.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WantedError {
    /// The plan cannot be run.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// There is no such thing.
    #[error("{0}")]
    Unknown(String),
}

impl Wanted {
    /// Looks things up in the first run of a plan: a collective as `JOB:GROUP:NUMBER` or `JOB:NUMBER`, and links as `FROM-TO`.
    ///
    /// # Errors
    /// [`WantedError`] names what is not there, and what was expected.
    pub fn new(plan: &Plan, blocks: Option<&str>, links: &[String]) -> Result<Wanted, WantedError> {
        let Some(point) = plan.points.first() else { return Ok(Wanted::default()) };
        let prepared = plan.prepare(point, 0)?;
        if prepared.programs.is_empty() && blocks.is_none() && links.is_empty() {
            let what = "--trace: expected a plan with a job that has a workload, or --trace-blocks or --trace-links";
            return Err(WantedError::Unknown(what.into()));
        }
        let wrong = |expected: String| WantedError::Unknown(format!("--trace-blocks {}: expected {expected}", blocks.unwrap_or_default()));
        let blocks = blocks.map(|text| wanted_blocks(&prepared, text).map_err(wrong)).transpose()?;
        Ok(Wanted { blocks, links: wanted_links(&prepared, links).map_err(WantedError::Unknown)? })
    }

    /// What the simulator is told.
    pub(crate) fn config(&self) -> WatchConfig {
        let links = self.links.iter().map(|(_, link)| *link).collect();
        WatchConfig { blocks: self.blocks.as_ref().map(|blocks| blocks.of), links, intervals_max: None }
    }
}

const FORM: &str = "JOB:GROUP:NUMBER for a job with a workload, JOB:NUMBER for another one";

/// The collective that a text names; what was expected where there is none.
fn wanted_blocks(prepared: &Prepared, text: &str) -> Result<WantedBlocks, String> {
    let (job, rest) = text.split_once(':').ok_or(FORM)?;
    let last = prepared.listed.len().saturating_sub(1);
    let listed = job.parse().ok().and_then(|job: usize| prepared.listed.get(job));
    match listed.ok_or_else(|| format!("a job from 0 to {last} first, as {FORM}"))? {
        Listed::Job(number) => {
            let operations = prepared.scenario.jobs[*number].elements.len();
            let expected =
                || format!("an operation from 0 to {} of job {job}, as JOB:NUMBER: it has no workload", operations.saturating_sub(1));
            let operation = rest.parse().ok().filter(|operation: &u32| (*operation as usize) < operations).ok_or_else(expected)?;
            let host = |(rank, host): (usize, &NodeId)| format!("rank {rank} on {}", prepared.topology.name(*host));
            let ranks = prepared.jobs[*number].hosts.iter().enumerate().map(host).collect();
            let of = BlocksOf { job: *number as u16, operation };
            let has_transfers = matches!(kind_of(&prepared.jobs[*number]), fanin_core::CollectiveKind::AllToAll { .. });
            Ok(WantedBlocks { of, name: format!("blocks of job {job}, operation {operation}"), ranks, has_transfers })
        }
        Listed::Program(number) => {
            let (group, operation) = rest.rsplit_once(':').ok_or_else(|| format!("JOB:GROUP:NUMBER, since job {job} has a workload"))?;
            let program = &prepared.programs[*number];
            let (kind, instance) = wanted_group(program, group)?;
            let (Call { lane, operation: number, .. }, collective) = wanted_call(program, (kind, instance), operation)?;
            let members = program.source.workload.groups[kind as usize].members.of(instance);
            let network_job = program.job.lanes[lane as usize].job.ok_or_else(|| {
                format!("a collective between hosts: the ranks {} of group {group} are at one host", ranks_text(&members))
            })?;
            let name = format!("blocks of job {job}, {group}, collective {operation}");
            let has_transfers = collective == CollectiveKind::AllToAll;
            let who = |host: &NodeId| {
                let here = |rank: &u32| NodeId(program.job.ranks[*rank as usize].host) == *host;
                let ranks: Vec<u32> = members.iter().copied().filter(here).collect();
                let s = if ranks.len() == 1 { "" } else { "s" };
                format!("rank{s} {} on {}", ranks_text(&ranks), prepared.topology.name(*host))
            };
            let ranks = prepared.jobs[usize::from(network_job)].hosts.iter().map(who).collect();
            Ok(WantedBlocks { of: BlocksOf { job: network_job, operation: number }, name, ranks, has_transfers })
        }
    }
}

/// A kind of groups and which of them: `data` is the first one, `data/3` the one with the number 3.
fn wanted_group(program: &PreparedProgram, text: &str) -> Result<(u32, u32), String> {
    let workload = &program.source.workload;
    if let Some(kind) = workload.group(text) {
        return Ok((kind, 0));
    }
    let (name, number) = text.rsplit_once('/').unwrap_or((text, "0"));
    let names = || workload.groups.iter().map(|group| group.name.to_string()).collect::<Vec<_>>().join(", ");
    let kind = workload.group(name).ok_or_else(|| format!("one of the job's groups: {}", names()))?;
    let count = workload.groups[kind as usize].members.instances(workload.ranks);
    let number = number.parse().ok().filter(|number| *number < count);
    number.map(|number| (kind, number)).ok_or_else(|| format!("a group from {name}/0 to {name}/{}", count.saturating_sub(1)))
}

/// The part of a group's first rank in its collective of this number, and what that does.
fn wanted_call(program: &PreparedProgram, (kind, instance): (u32, u32), text: &str) -> Result<(Call, CollectiveKind), String> {
    let members = program.source.workload.groups[kind as usize].members.of(instance);
    let rank = members.first().copied().unwrap_or(0);
    let about = &program.job.ranks[rank as usize];
    let flat = &program.source.checked.flats[program.program_of[rank as usize] as usize];
    let own = |node: &Node| {
        if let Node::Collective(collective, number) = node {
            (collective.group == kind).then_some((*number, collective.kind))
        } else {
            None
        }
    };
    let count = flat.nodes.iter().filter(|node| own(&node.step).is_some()).count();
    let number: Option<u32> = text.parse().ok();
    let found = flat
        .nodes
        .iter()
        .map(|node| own(&node.step))
        .zip(0..)
        .find_map(|(own, step)| own.filter(|(own, _)| Some(*own) == number).map(|(_, what)| (step, what)));
    let call = found.and_then(|(step, what): (usize, _)| match program.job.programs[about.program as usize].steps[step] {
        Step::Call(call) => Some((about.calls[call as usize], what)),
        Step::Compute(_) => None,
    });
    call.ok_or_else(|| match count {
        0 => "a group that communicates: this one has no collectives".into(),
        _ => format!("a collective of the group from 0 to {}", count - 1),
    })
}

/// Numbers of links by their ends; parallel ones have one name, and are told apart by `#0`, `#1` behind it in the file.
fn wanted_links(prepared: &Prepared, names: &[String]) -> Result<Vec<(String, u32)>, String> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let mut numbers: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for (number, cable) in (0..).zip(&prepared.topology.links) {
        let name = format!("{}-{}", prepared.topology.name(cable.from), prepared.topology.name(cable.to));
        numbers.entry(name).or_default().push(number);
    }
    let mut links: Vec<(String, u32)> = Vec::new();
    for name in names {
        let Some(found) = numbers.get(name) else {
            let some: Vec<&str> = numbers.keys().take(4).map(String::as_str).collect();
            return Err(format!("--trace-links {name}: expected the two ends of a link, as {}", some.join(", ")));
        };
        for (number, link) in
            found.iter().enumerate().filter(|(_, link)| !links.iter().any(|(_, other)| other == *link)).collect::<Vec<_>>()
        {
            let shown = if found.len() == 1 { name.clone() } else { format!("{name} #{number}") };
            links.push((shown, *link));
        }
        if links.len() > LINKS_MAX {
            return Err(format!("--trace-links {name}: expected at most {LINKS_MAX} links"));
        }
    }
    Ok(links)
}

/// What was seen of a plan's first run.
#[derive(Clone, Debug)]
pub struct Traced {
    programs: Vec<(PreparedProgram, ProgramResult)>,
    wanted: Wanted,
    watched: Watched,
}

impl Traced {
    pub(crate) fn new(programs: Vec<PreparedProgram>, results: Vec<ProgramResult>, wanted: &Wanted, watched: Option<Watched>) -> Self {
        let programs = programs.into_iter().zip(results).collect();
        Traced { programs, wanted: wanted.clone(), watched: watched.unwrap_or_default() }
    }

    /// Blocks at ranks for which there was no room, and how many there are: each rank's are counted by themselves.
    pub fn blocks_left_out(&self) -> (u64, usize) {
        (self.watched.blocks_left_out, self.watched.blocks.len())
    }

    /// Writes all of it.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut events = Events::begin(out)?;
        let jobs: Vec<_> = self.programs.iter().map(|(program, result)| (program, result)).collect();
        let mut process = trace::write(&jobs, &mut events)?;
        if let Some(blocks) = &self.wanted.blocks {
            process = write_blocks(blocks, &self.watched.blocks, &mut events, process)?;
        }
        if !self.wanted.links.is_empty() {
            write_queues(&self.wanted.links, &self.watched, &mut events, process + 1)?;
        }
        events.end()
    }
}

/// When each block left the rank that sends it and gets nothing of it, and which rank that is.
fn sent_by(blocks: &[BlockSpan]) -> BTreeMap<u32, (u32, Instant)> {
    let sent = |block: &BlockSpan| block.begun.filter(|_| block.ended.is_none()).map(|begun| (block.index, (block.rank, begun)));
    blocks.iter().filter_map(sent).collect()
}

/// A process for each rank; blocks that overlap are on threads of their own. A block of an all-to-all is at the rank that gets it, from when it
/// was sent on. Gives the last process.
fn write_blocks(wanted: &WantedBlocks, blocks: &[BlockSpan], events: &mut Events<'_>, before: usize) -> io::Result<usize> {
    for (rank, who) in wanted.ranks.iter().enumerate() {
        events.name("process_name", before + 1 + rank, 0, &format!("{}: {who}", wanted.name))?;
    }
    let senders = if wanted.has_transfers { sent_by(blocks) } else { BTreeMap::new() };
    let with_sender = |block: &BlockSpan| match senders.get(&block.index) {
        Some(&(from, begun)) if block.begun.is_none() => (BlockSpan { begun: Some(begun), ..*block }, Some(from)),
        _ => (*block, None),
    };
    let mut own: Vec<(BlockSpan, Option<u32>)> = blocks.iter().map(with_sender).collect();
    own.sort_by_key(|(block, _)| (block.rank, block.begun.or(block.ended), block.index));
    let mut busy_ps: Vec<u64> = Vec::new();
    let mut last = None;
    for (block, from) in own {
        if last != Some(block.rank) {
            (busy_ps, last) = (Vec::new(), Some(block.rank));
        }
        let (process, name) = (before + 1 + block.rank as usize, format!("block {}", block.index));
        let (Some(begun), Some(ended)) = (block.begun, block.ended) else {
            let (at, what) = block.ended.map_or((block.begun, "sent"), |ended| (Some(ended), "result"));
            if let Some(at) = at {
                events.instant((process, 0), &format!("{name} {what}"), at.as_ps())?;
            }
            continue;
        };
        let thread = busy_ps.iter().position(|until| *until <= begun.as_ps()).unwrap_or_else(|| {
            busy_ps.push(0);
            busy_ps.len() - 1
        });
        busy_ps[thread] = ended.as_ps().max(begun.as_ps());
        let sender = from.and_then(|from| wanted.ranks.get(from as usize));
        let about = sender.map_or_else(|| json!({ "block": block.index }), |from| json!({ "block": block.index, "from": from }));
        events.span((process, thread + 1), &name, (begun.as_ps(), busy_ps[thread]), about)?;
    }
    Ok(before + wanted.ranks.len())
}

/// One process with a counter for each link; what does not change is not written again.
fn write_queues(links: &[(String, u32)], watched: &Watched, events: &mut Events<'_>, process: usize) -> io::Result<()> {
    events.name("process_name", process, 0, "queues before links (bytes)")?;
    for (index, (name, _)) in links.iter().enumerate() {
        let (mut begun_ps, mut before) = (0, None);
        for sample in &watched.queues {
            let bytes = sample.bytes[index];
            if before != Some(bytes) {
                events.counter(process, name, begun_ps, bytes)?;
            }
            (begun_ps, before) = (sample.until.as_ps(), Some(bytes));
        }
    }
    Ok(())
}
