//! PyTorch's profiler (Kineto): JSON in the form of Chrome's traces, a file a rank.
//!
//! Kernels named `nccl*` carry `Collective name`, `In msg nelems`, `Out msg nelems`, `dtype`, `Process Group Name` and `Process Group Ranks`
//! in their `args`, or the host's `record_param_comms` of the same external id does; for kernels of several sends and receives those of the host's
//! that came before the launch do. All other work of the GPU is computing, in one stream. A collective waits for what was launched before it; what
//! was launched after a `cudaStreamWaitEvent` outside of any collective's launch waits for the oldest collective that nobody has waited for yet,
//! which is the order in which PyTorch waits. Where a trace has no such events, what follows the end of a collective after a pause waits for it.
//! Where nothing is of a GPU, collectives are those that the host describes (`host`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use fanin_core::Duration;

use super::assemble::{Lists, Raw, RawAction, RawNode, transfer};
use super::input::{Imported, Input, Options};
use crate::error::WorkloadError;
use crate::model::COMPUTE_STREAM;
use crate::report::{LeftOut, Report};

mod host;
mod said;
mod trace;

pub(crate) use said::kind_of;
use said::{Known, Said, SaidTransfer};
use trace::{Args, Trace, number};

/// Something that the GPU did, in nanoseconds from the first event of the trace on.
#[derive(Clone, Copy, Debug)]
struct Work {
    start: i64,
    end: i64,
    /// When the host launched it.
    launch: i64,
}

/// What one kernel of NCCL's did.
enum Operation {
    Collective {
        said: Said,
        label: String,
        ranks: Arc<[u32]>,
    },
    /// Sends and receives that began together.
    Transfers(Vec<SaidTransfer>),
}

struct Communication {
    work: Work,
    stream: String,
    operation: Operation,
    external: Option<i64>,
    place: String,
}

/// Takes over traces, a file a rank.
///
/// # Errors
/// A file is no JSON of that form, has no collective, or two are of the same rank.
pub fn import(inputs: &[Input], options: &Options) -> Result<Imported, WorkloadError> {
    let mut report = Report::new("PyTorch profiler (Kineto) JSON");
    let mut raw = Raw {
        name: inputs.first().map_or_else(String::new, |input| input.name.clone()),
        source: "PyTorch profiler".into(),
        ranks: options.ranks.unwrap_or(0),
        iterations: 1,
        programs: BTreeMap::new(),
        lists: Lists::default(),
    };
    let mut known = Known::default();
    for (index, input) in inputs.iter().enumerate() {
        let trace = read(input, &mut report)?;
        let rank = trace.distributed.rank.unwrap_or_else(|| {
            report.assume("files without distributedInfo are of ranks in the order in which they are given");
            index as u32
        });
        if options.ranks.is_none() {
            raw.ranks = raw.ranks.max(trace.distributed.world_size.unwrap_or(0)).max(rank.saturating_add(1));
        }
        raw.iterations = raw.iterations.max(trace.steps.len() as u32);
        report.leave_many("events that are no work of the GPU, of which only launches and waits count", trace.host_events, || {
            input.name.clone()
        });
        let before = report.left_out.len();
        let (work, communication) = split(input, &trace, &mut known, &mut report)?;
        if communication.is_empty() {
            return Err(WorkloadError::new(&input.name, nothing(&trace, &report.left_out[before..])));
        }
        if options.ranks.is_none() {
            raw.ranks = raw.ranks.max(communication.iter().map(Communication::ranks).max().unwrap_or(0));
        }
        let nodes = program(&trace, &work, &communication, &mut raw.lists);
        if raw.programs.insert(rank, nodes).is_some() {
            return Err(WorkloadError::new(&input.name, format!("rank {rank}: another file has it, too")));
        }
    }
    raw.leave_unmatched(&mut report);
    raw.even_out(&mut report);
    let file = raw.name.clone();
    let workload = raw.assemble(&file, &mut report)?;
    Ok(Imported { workload, report })
}

/// A file's trace, with what the host did in the place of a GPU's work where there is none of that.
fn read(input: &Input, report: &mut Report) -> Result<Trace, WorkloadError> {
    let wrong = |error: serde_json::Error| WorkloadError::new(&input.name, error.to_string()).at(error.line() as u64);
    let mut trace: Trace = serde_json::from_slice(&input.bytes).map_err(wrong)?;
    if trace.kernels.is_empty() && !trace.host_collectives.is_empty() {
        report.assume("traces without a GPU: computing is what operators took of the thread that begins the collectives, and what passed until one began");
        host::instead_of_kernels(&input.bytes, &mut trace).map_err(wrong)?;
    }
    Ok(trace)
}

/// Adds the spans of the GPU that the training program named itself (`torch.profiler.record_function`): by name, their time in picoseconds in all,
/// and how many there are.
///
/// # Errors
/// The file is no JSON of that form.
pub fn named_spans(input: &Input, named: &mut BTreeMap<String, (u128, u64)>) -> Result<(), WorkloadError> {
    let trace: Trace =
        serde_json::from_slice(&input.bytes).map_err(|error| WorkloadError::new(&input.name, error.to_string()).at(error.line() as u64))?;
    for (name, (time, count)) in trace.spans {
        let (sum, all) = named.entry(name).or_default();
        (*sum, *all) = (*sum + time, *all + count);
    }
    Ok(())
}

impl Communication {
    /// How many ranks there must be.
    fn ranks(&self) -> u32 {
        let last = match &self.operation {
            Operation::Collective { ranks, .. } => ranks.iter().max().copied(),
            Operation::Transfers(all) => all.iter().map(|one| one.peer).max(),
        };
        last.unwrap_or(0).saturating_add(1)
    }
}

/// Why a file has nothing to take.
fn nothing(trace: &Trace, left_out: &[LeftOut]) -> String {
    let mut found = vec![format!("{} GPU events", trace.kernels.len())];
    found.extend(left_out.iter().take(4).map(|one| format!("{} {}, first {}", one.count, one.what, one.first)));
    format!(
        "expected collectives of NCCL, with \"Collective name\" in the args of their kernels, in a trace of PyTorch 2.4 or later, of several GPUs; \
         found {}",
        found.join("; ")
    )
}

/// Nanoseconds since the first event; what no clock says is cut to what can be added up.
fn nanoseconds(us: f64, zero: f64) -> i64 {
    (((us - zero) * 1e3).round() as i64).clamp(-(1 << 50), 1 << 50)
}

/// Computing and communication, each in the order of their beginnings.
fn split(input: &Input, trace: &Trace, known: &mut Known, report: &mut Report) -> Result<(Vec<Work>, Vec<Communication>), WorkloadError> {
    let zero = trace.kernels.iter().filter_map(|event| event.ts).fold(f64::INFINITY, f64::min);
    let ns = |us: f64| nanoseconds(us, zero);
    let (mut work, mut communication, mut streams) = (Vec::new(), Vec::new(), BTreeSet::new());
    let (mut groups, mut claimed) = (Vec::new(), BTreeSet::new());
    for event in &trace.kernels {
        let name = event.name.as_deref().unwrap_or("");
        let (Some(ts), Some(dur)) = (event.ts, event.dur) else {
            report.leave("GPU events without ts or dur", || format!("{}: {name:?}", input.name));
            continue;
        };
        let nothing = Args::default();
        let args = event.args.as_ref().unwrap_or(&nothing);
        let launch = args.correlation.as_i64().and_then(|correlation| trace.launches.get(&correlation)).copied().unwrap_or(ts);
        let one = Work { start: ns(ts), end: ns(ts + dur.max(0.0)), launch: ns(launch).min(ns(ts)) };
        let is_kernel = event.cat.as_deref().is_some_and(|cat| cat.eq_ignore_ascii_case("kernel"));
        if !(name.starts_with("nccl") || is_kernel && args.collective.is_string()) {
            streams.insert(args.stream.to_string());
            work.push(one);
            continue;
        }
        let place = format!("{}: {} at {ts} us", input.name, name.split('(').next().unwrap_or(name));
        let external = number(&args.external).and_then(|external| i64::try_from(external).ok());
        let described = external.and_then(|external| trace.described.get(&external));
        let said = if args.collective.is_string() { args } else { described.unwrap_or(args) };
        let by = if name.starts_with("fanin:") { "fanin" } else { "nccl" };
        let stream = number(&args.stream).map_or_else(|| by.to_string(), |stream| format!("{by} {stream}"));
        let is_unnamed = said.collective.as_str().is_none_or(|name| name.contains("coalesced") && kind_of(name).is_none());
        if is_unnamed && name.contains("SendRecv") {
            groups.push((launch, one, stream, external, place));
            continue;
        }
        match operation(trace, known, said) {
            Ok(operation) => communication.push(Communication { work: one, stream, operation, external, place }),
            Err(what) => report.leave(what, || place),
        }
        claimed.extend(external.filter(|_| said.is_transfer()));
    }
    communication.extend(grouped(trace, known, groups, &claimed, report));
    report.leave_many("operations of gloo, which processors do", trace.gloo, || input.name.clone());
    for one in &communication {
        if let Operation::Collective { said, .. } = &one.operation {
            if said.kind.has_root() && said.root.is_none() {
                report.assume("broadcasts and reduces are from or to the first member of their group: the profiler does not say");
            }
            if said.is_uneven {
                report.assume("all-to-alls whose shares differ have equal ones of the same sum");
            }
        }
    }
    if streams.len() > 1 {
        report.assume(format!("computing on {} streams of a GPU is taken together, in one", streams.len()));
    }
    work.sort_by_key(|one| (one.start, one.end));
    communication.sort_by_key(|one| (one.work.start, one.work.end));
    Ok((work, communication))
}
/// What an event says that NCCL did.
fn operation(trace: &Trace, known: &mut Known, args: &Args) -> Result<Operation, String> {
    if args.is_transfer() {
        return Ok(Operation::Transfers(vec![said::transfer(trace, known, args)?]));
    }
    let (said, label, ranks) = said::collective(trace, known, args)?;
    Ok(Operation::Collective { said, label, ranks })
}

/// A kernel of sends and receives that does not say which: its launch, its time, its stream, its external id and its place.
type Group = (f64, Work, String, Option<i64>, String);

/// Kernels of several sends and receives (`batch_isend_irecv`): each does those of which the host spoke before it launched the kernel, and that
/// no kernel before it did.
fn grouped(trace: &Trace, known: &mut Known, mut groups: Vec<Group>, claimed: &BTreeSet<i64>, report: &mut Report) -> Vec<Communication> {
    groups.sort_by(|(one, ..), (other, ..)| one.total_cmp(other));
    let mut said: Vec<(f64, i64)> = trace.transfers.iter().filter(|(_, external)| !claimed.contains(external)).copied().collect();
    said.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    let (mut said, mut found) = (said.into_iter().peekable(), Vec::new());
    for (launch, work, stream, external, place) in groups {
        let mut all = Vec::new();
        while let Some((_, external)) = said.next_if(|(ts, _)| *ts <= launch) {
            match said::transfer(trace, known, &trace.described[&external]) {
                Ok(one) => all.push(one),
                Err(what) => report.leave(what, || place.clone()),
            }
        }
        if all.is_empty() {
            report.leave("nccl kernels of sends and receives of which the host's events do not say which", || place);
        } else {
            found.push(Communication { work, stream, operation: Operation::Transfers(all), external, place });
        }
    }
    report.leave_many("sends and receives of the host's events that no kernel did", said.count() as u64, || "the host".into());
    found
}

/// By collective: the first computation that waits for it.
fn waiters(trace: &Trace, work: &[Work], communication: &[Communication]) -> Vec<Option<usize>> {
    let zero = trace.kernels.iter().filter_map(|event| event.ts).fold(f64::INFINITY, f64::min);
    let launching: BTreeSet<i64> = communication.iter().filter_map(|one| one.external).collect();
    let mut waits: Vec<i64> = trace
        .waits
        .iter()
        .filter(|(_, external)| external.is_some_and(|external| !launching.contains(&external)))
        .map(|(ts, _)| nanoseconds(*ts, zero))
        .collect();
    waits.sort_unstable();
    let mut found = vec![None; communication.len()];
    // A graph's kernels have one launch, and the host sees no waits within it.
    let launches: BTreeSet<i64> = work.iter().map(|work| work.launch).collect();
    let is_unseen = |one: &Communication| waits.is_empty() || launches.contains(&one.work.launch);
    let ends = maxima(work.iter().map(|work| work.end));
    for (one, found) in communication.iter().zip(&mut found).filter(|(one, _)| is_unseen(one)) {
        // What begins after a pause in which a collective has ended has waited for it.
        let next = work.partition_point(|work| work.start < one.work.end);
        let before = next.checked_sub(1).map_or(i64::MIN, |place| ends[place]);
        *found = (next < work.len() && before <= one.work.end).then_some(next);
    }
    let mut launched: Vec<usize> = (0..communication.len()).filter(|index| !is_unseen(&communication[*index])).collect();
    launched.sort_by_key(|index| communication[*index].work.launch);
    let (mut next, mut open) = (0, VecDeque::new());
    let mut by_launch: Vec<usize> = (0..work.len()).collect();
    by_launch.sort_by_key(|index| work[*index].launch);
    for wait in &waits {
        let wait = *wait;
        while let Some(index) = launched.get(next).filter(|index| communication[**index].work.launch < wait) {
            open.push_back(*index);
            next += 1;
        }
        let place = by_launch.partition_point(|index| work[*index].launch <= wait);
        let (Some(waiter), Some(one)) = (by_launch.get(place), open.front()) else { continue };
        // It cannot have waited for what ended later.
        if communication[*one].work.end <= work[*waiter].start {
            found[*one] = Some(*waiter);
            open.pop_front();
        }
    }
    found
}

/// By place: the largest until there.
fn maxima<T: Copy + Ord>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut all: Vec<T> = Vec::new();
    for item in items {
        all.push(all.last().map_or(item, |before| item.max(*before)));
    }
    all
}

/// By collective: the last computation, in the order of beginnings, that it waits for.
fn before(work: &[Work], communication: &[Communication]) -> Vec<Option<usize>> {
    let mut launches: Vec<(i64, i64, usize)> = work.iter().enumerate().map(|(index, work)| (work.launch, work.end, index)).collect();
    launches.sort_unstable();
    let last = maxima(launches.iter().map(|(_, _, index)| *index));
    // Kernels of one replay of a graph have one launch: of them those count that had ended. Launches go up, so these maxima are of one launch.
    let within = maxima(launches.iter().map(|(launch, _, index)| (*launch, *index)));
    let of = |one: &Communication| {
        let Work { start, launch, .. } = one.work;
        let earlier = launches.partition_point(|(other, ..)| *other < launch).checked_sub(1).map(|place| last[place]);
        let ended = launches.partition_point(|(other, end, _)| (*other, *end) <= (launch, start)).checked_sub(1).map(|place| within[place]);
        let ended = ended.filter(|(other, _)| *other == launch).map(|(_, index)| index);
        // Nothing that began after it can have been before it.
        earlier.filter(|place| work[*place].start <= start).max(ended)
    };
    communication.iter().map(of).collect()
}

/// What the rank does: computing is cut where a collective waits for it, and where it waits for one.
fn program(trace: &Trace, work: &[Work], communication: &[Communication], lists: &mut Lists) -> Vec<RawNode> {
    let waiters = waiters(trace, work, communication);
    let before = before(work, communication);
    let mut cuts: BTreeSet<usize> = waiters.iter().flatten().copied().collect();
    cuts.extend(before.iter().flatten().map(|place| place + 1));
    cuts.insert(0);
    let (mut waited_for, mut followed_by): (BTreeMap<usize, Vec<usize>>, BTreeMap<usize, Vec<usize>>) = Default::default();
    for index in 0..communication.len() {
        waiters[index].into_iter().for_each(|waiter| waited_for.entry(waiter).or_default().push(index));
        before[index].into_iter().for_each(|item| followed_by.entry(item + 1).or_default().push(index));
    }
    let starts: Vec<usize> = cuts.into_iter().filter(|cut| *cut < work.len()).collect();
    let segment_of = |item: usize| starts.partition_point(|start| *start <= item) - 1;
    let (mut nodes, mut order) = (Vec::new(), Vec::new());
    let mut done = work.first().map_or(0, |first| first.start);
    for (segment, start) in starts.iter().enumerate() {
        let end = starts.get(segment + 1).copied().unwrap_or(work.len());
        let after = waited_for.get(start).cloned().unwrap_or_default();
        let begin = after.iter().map(|index| communication[*index].work.end).fold(done, i64::max);
        let mut finish = work[*start..end].iter().map(|work| work.end).fold(begin, i64::max);
        // A collective that the host launched only after this was done: the time until then is the host's, and before it.
        let next = work.get(end).map_or(i64::MAX, |work| work.start);
        for index in followed_by.get(&end).into_iter().flatten() {
            finish = finish.max(communication[*index].work.launch.min(next));
        }
        order.push((work[*start].start, segment, after));
        nodes.push(RawNode {
            id: format!("compute {segment}"),
            action: RawAction::Compute(Duration::from_ns((finish - begin) as u64)),
            after: Vec::new(),
            stream: Some(COMPUTE_STREAM.into()),
            measured: None,
            place: String::new(),
        });
        done = finish;
    }
    let segments = nodes.len();
    let mut numbers: BTreeMap<(&str, *const u32), usize> = BTreeMap::new();
    let mut places = Vec::new();
    for (index, one) in communication.iter().enumerate() {
        let first = nodes.len();
        let after: Vec<u32> = before[index].map(|item| segment_of(item) as u32).into_iter().collect();
        let mut push = |name: &str, action, stream: Option<&str>| {
            order.push((one.work.start, nodes.len(), Vec::new()));
            nodes.push(RawNode {
                id: format!("{name} {index}"),
                action,
                after: after.clone(),
                stream: stream.map(Into::into),
                measured: Some(Duration::from_ns((one.work.end - one.work.start) as u64)),
                place: one.place.clone(),
            });
        };
        match &one.operation {
            Operation::Collective { said: Said { kind, bytes, element, root, .. }, label, ranks } => {
                let list = *numbers.entry((label.as_str(), ranks.as_ptr())).or_insert_with(|| lists.number(label, ranks.to_vec()));
                let (kind, bytes, element, root) = (*kind, *bytes, *element, root.unwrap_or(0));
                push(&kind.to_string(), RawAction::Collective { kind, list, bytes, element, root }, Some(&one.stream));
            }
            // Those of one kernel do not wait for each other.
            Operation::Transfers(all) => {
                let stream = Some(one.stream.as_str()).filter(|_| all.len() == 1);
                for SaidTransfer { is_send, peer, bytes, tag } in all {
                    let what = transfer(*peer, *bytes, *tag);
                    let (name, action) = if *is_send { ("send", RawAction::Send(what)) } else { ("receive", RawAction::Receive(what)) };
                    push(name, action, stream);
                }
            }
        }
        places.push(first as u32..nodes.len() as u32);
    }
    for (_, segment, after) in order.iter().filter(|(_, node, _)| *node < segments) {
        nodes[*segment].after = after.iter().flat_map(|index| places[*index].clone()).collect();
    }
    in_order(nodes, order.into_iter().map(|(start, node, _)| (start, node)).collect())
}

/// The nodes in the order of their beginnings.
fn in_order(nodes: Vec<RawNode>, mut order: Vec<(i64, usize)>) -> Vec<RawNode> {
    order.sort_unstable();
    let mut places = vec![0; nodes.len()];
    order.iter().enumerate().for_each(|(place, (_, node))| places[*node] = place as u32);
    let mut sorted: Vec<(u32, RawNode)> = nodes
        .into_iter()
        .enumerate()
        .map(|(index, mut node)| {
            node.after.iter_mut().for_each(|before| *before = places[*before as usize]);
            (places[index], node)
        })
        .collect();
    sorted.sort_by_key(|(place, _)| *place);
    sorted.into_iter().map(|(_, node)| node).collect()
}
