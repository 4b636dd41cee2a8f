//! What each rank did when, as a trace that Perfetto and Chrome open: a process for each rank with a thread for each stream, and one for each
//! kind of groups with a thread for each group, on which collectives are from when the first member came to when the last one ended.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use fanin_sim::programs::{ProgramResult, Span, Step};
use fanin_workload::flat::{FlatNode, Step as Node, written};
use serde_json::json;

use super::critical;
use super::record::{way_name, way_of};
use crate::jobs::workload::lanes::PreparedProgram;
use crate::perfetto::Events;

/// Writes what the jobs of a run did: (job, what came out). Gives the number of the last process.
///
/// # Errors
/// Those of the file.
pub fn write(jobs: &[(&PreparedProgram, &ProgramResult)], events: &mut Events<'_>) -> io::Result<usize> {
    let mut process = 0;
    for (number, (program, result)) in jobs.iter().enumerate() {
        let prefix = if jobs.len() == 1 { String::new() } else { format!("job {number} ") };
        let parts = critical::path(program, result).into_iter().filter(|part| part.to_ps > part.from_ps);
        let critical: BTreeSet<(u32, u32)> = parts.map(|part| (part.rank, part.step)).collect();
        for rank in 0..program.job.ranks.len() as u32 {
            process += 1;
            self::rank(events, (program, result), (process, rank), (&prefix, &critical))?;
        }
        process = groups(events, (program, result), process, &prefix)?;
    }
    Ok(process)
}

/// One rank.
fn rank(
    events: &mut Events<'_>,
    (program, result): (&PreparedProgram, &ProgramResult),
    (process, rank): (usize, u32),
    (prefix, critical): (&str, &BTreeSet<(u32, u32)>),
) -> io::Result<()> {
    let (workload, about) = (&program.source.workload, &program.job.ranks[rank as usize]);
    let of = program.program_of[rank as usize] as usize;
    let flat = &program.source.checked.flats[of];
    events.name("process_name", process, 0, &format!("{prefix}rank {rank} on host{}", about.host))?;
    for (thread, stream) in flat.streams.iter().enumerate() {
        events.name("thread_name", process, thread + 1, stream)?;
    }
    if flat.nodes.iter().any(|node| node.stream.is_none()) {
        events.name("thread_name", process, flat.streams.len() + 1, "unordered")?;
    }
    for (step, (node, span)) in (0..).zip(flat.nodes.iter().zip(&result.ranks[rank as usize])) {
        if span.ended_ps == Span::NEVER {
            continue;
        }
        let FlatNode { stream, written: at, .. } = node;
        let name = &written(workload, &workload.programs[of], *at).id;
        let thread = stream.map_or(flat.streams.len(), |stream| stream as usize) + 1;
        let mut args = json!({ "step": step, "critical": critical.contains(&(rank, step)) });
        if let Some((way, bytes)) = way_of(program, rank, step) {
            args["what"] = way_name(program, way).into();
            args["ran"] = way.2.into();
            args["bytes"] = bytes.into();
        }
        if let Node::Send(transfer) | Node::Receive(transfer) = &node.step {
            args["other rank"] = transfer.peer.of(rank, workload.ranks).into();
        }
        events.span((process, thread), name, (span.begun_ps, span.ended_ps), args)?;
    }
    Ok(())
}

/// All groups of a job; gives the last process.
fn groups(
    events: &mut Events<'_>,
    (program, result): (&PreparedProgram, &ProgramResult),
    before: usize,
    prefix: &str,
) -> io::Result<usize> {
    let workload = &program.source.workload;
    for (kind, group) in workload.groups.iter().enumerate() {
        events.name("process_name", before + 1 + kind, 0, &format!("{prefix}groups {}", group.name))?;
    }
    // By lane and operation: what it is, and from when to when.
    let mut all: BTreeMap<(u32, u32), (String, u64, u64)> = BTreeMap::new();
    for (rank, (about, spans)) in (0..).zip(program.job.ranks.iter().zip(&result.ranks)) {
        for (step, (kind, span)) in (0..).zip(program.job.programs[about.program as usize].steps.iter().zip(spans)) {
            let (Step::Call(call), Some((way, _))) = (kind, way_of(program, rank, step)) else { continue };
            if way.0.is_none() || span.ended_ps == Span::NEVER {
                continue;
            }
            let call = about.calls[*call as usize];
            let known = all.entry((call.lane, call.operation)).or_insert_with(|| (way_name(program, way), u64::MAX, 0));
            (known.1, known.2) = (known.1.min(span.begun_ps), known.2.max(span.ended_ps));
        }
    }
    for ((lane, operation), (name, begun, ended)) in all {
        let Some((kind, instance)) = program.lanes[lane as usize].group else { continue };
        let args = json!({ "operation": operation, "ran": program.lanes[lane as usize].ran });
        events.span((before + 1 + kind as usize, instance as usize + 1), &name, (begun, ended), args)?;
    }
    Ok(before + workload.groups.len())
}
