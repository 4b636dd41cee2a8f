//! PyTorch's profiler (Kineto): JSON in the form of Chrome's traces, a file a rank.
//!
//! Kernels named `nccl*` carry `Collective name`, `In msg nelems`, `Out msg nelems`, `dtype`, `Process Group Name` and `Process Group Ranks`
//! in their `args`, or the host's `record_param_comms` of the same external id does. All other work of the GPU is computing, in one stream. A collective waits for what was launched before it; what was
//! launched after a `cudaStreamWaitEvent` outside of any collective's launch waits for the oldest collective that nobody has waited for yet,
//! which is the order in which PyTorch waits. Where a trace has no such events, what follows the end of a collective after a pause waits for it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use fanin_core::Duration;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::assemble::{Lists, Raw, RawAction, RawNode};
use super::input::{Imported, Input, Options};
use crate::error::WorkloadError;
use crate::kinds::{CollectiveKind, Element};
use crate::model::{Action, COMPUTE_STREAM};
use crate::report::Report;

#[derive(Default, Deserialize)]
struct Args {
    #[serde(default)]
    stream: Value,
    #[serde(default)]
    correlation: Value,
    #[serde(default, rename = "External id")]
    external: Value,
    #[serde(default, rename = "Collective name")]
    collective: Value,
    #[serde(default, rename = "In msg nelems")]
    elements_in: Value,
    #[serde(default, rename = "Out msg nelems")]
    elements_out: Value,
    #[serde(default, rename = "Group size")]
    group_size: Value,
    #[serde(default)]
    dtype: Value,
    #[serde(default, rename = "Process Group Name")]
    group_name: Value,
    #[serde(default, rename = "Process Group Description")]
    group_description: Value,
    #[serde(default, rename = "Process Group Ranks")]
    group_ranks: Value,
    #[serde(default, rename = "Global rank start")]
    rank_start: Value,
    #[serde(default, rename = "Global rank stride")]
    rank_stride: Value,
}

#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    cat: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    ts: Option<f64>,
    #[serde(default)]
    dur: Option<f64>,
    #[serde(default)]
    args: Option<Args>,
}

#[derive(Default, Deserialize)]
struct GroupConfig {
    #[serde(default)]
    pg_name: Value,
    #[serde(default)]
    ranks: Value,
}

#[derive(Default, Deserialize)]
struct Distributed {
    #[serde(default)]
    rank: Option<u32>,
    #[serde(default)]
    world_size: Option<u32>,
    #[serde(default)]
    pg_config: Vec<GroupConfig>,
}

/// Something that the GPU did, in nanoseconds from the first event of the trace on.
#[derive(Clone, Copy, Debug)]
struct Work {
    start: i64,
    end: i64,
    /// When the host launched it.
    launch: i64,
}

struct Communication {
    work: Work,
    stream: String,
    kind: CollectiveKind,
    label: String,
    ranks: Arc<[u32]>,
    bytes: u64,
    element: Element,
    external: Option<i64>,
    place: String,
}

/// What is kept of a file.
#[derive(Default)]
struct Trace {
    distributed: Distributed,
    kernels: Vec<Event>,
    launches: BTreeMap<i64, f64>,
    waits: Vec<(f64, Option<i64>)>,
    steps: BTreeSet<String>,
    /// By external id: what the host said of a collective, in traces whose kernels do not say it.
    described: BTreeMap<i64, Args>,
    host_events: u64,
}

impl Trace {
    fn keep(&mut self, event: Event) {
        let (cat, name) = (event.cat.as_deref().unwrap_or(""), event.name.as_deref().unwrap_or(""));
        match cat {
            "kernel" | "gpu_memcpy" | "gpu_memset" => self.kernels.push(event),
            "cuda_runtime" | "cuda_driver" => {
                let Some(ts) = event.ts else { return };
                let args = event.args.as_ref();
                if name.contains("StreamWaitEvent") {
                    self.waits.push((ts, args.and_then(|args| args.external.as_i64())));
                } else if let Some(correlation) = args.and_then(|args| args.correlation.as_i64()) {
                    self.launches.insert(correlation, ts);
                }
                self.host_events += 1;
            }
            "cpu_op" if name == "record_param_comms" => {
                self.host_events += 1;
                let Some(args) = event.args.filter(|args| args.collective.is_string()) else { return };
                if let Some(external) = args.external.as_i64() {
                    self.described.insert(external, args);
                }
            }
            "user_annotation" if name.starts_with("ProfilerStep#") => drop(self.steps.insert(name.to_string())),
            _ => self.host_events += 1,
        }
    }
}

/// Events one by one, so that those of the host need no memory.
struct Events<'a>(&'a mut Trace);

impl<'de> serde::de::DeserializeSeed<'de> for Events<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Events<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(event) = items.next_element::<Event>()? {
            self.0.keep(event);
            if self.0.kernels.len() > crate::flat::NODES_MAX {
                return Err(serde::de::Error::custom(format!("expected at most {} GPU events", crate::flat::NODES_MAX)));
            }
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Trace {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct File;
        impl<'de> Visitor<'de> for File {
            type Value = Trace;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with traceEvents")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Trace, A::Error> {
                let mut trace = Trace::default();
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "distributedInfo" => trace.distributed = map.next_value()?,
                        "traceEvents" => map.next_value_seed(Events(&mut trace))?,
                        _ => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(trace)
            }
        }
        deserializer.deserialize_map(File)
    }
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
        let trace: Trace = serde_json::from_slice(&input.bytes)
            .map_err(|error| WorkloadError::new(&input.name, error.to_string()).at(error.line() as u64))?;
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
        let (work, communication) = split(input, &trace, &mut known, &mut report)?;
        if communication.is_empty() {
            let found = report.left_out.iter().find(|one| one.what.contains("Collective name")).map_or(0, |one| one.count);
            let what = format!(
                "{found} nccl kernels without \"Collective name\", and none with: expected a trace of PyTorch 2.4 or later, of several GPUs"
            );
            return Err(WorkloadError::new(&input.name, what));
        }
        if options.ranks.is_none() {
            let last = communication.iter().flat_map(|one| one.ranks.iter()).max().copied().unwrap_or(0);
            raw.ranks = raw.ranks.max(last.saturating_add(1));
        }
        let nodes = program(&trace, &work, &communication, &mut raw.lists);
        if raw.programs.insert(rank, nodes).is_some() {
            return Err(WorkloadError::new(&input.name, format!("rank {rank}: another file has it, too")));
        }
    }
    report.assume("broadcasts and reduces are from or to the first member of their group: the profiler does not say");
    let file = raw.name.clone();
    let workload = raw.assemble(&file, &mut report)?;
    if !workload
        .programs
        .iter()
        .flat_map(|program| &program.nodes)
        .any(|node| matches!(&node.action, Action::Collective(one) if one.kind.has_root()))
    {
        report.assumed.retain(|one| !one.starts_with("broadcasts"));
    }
    Ok(Imported { workload, report })
}

/// Nanoseconds since the first event; what no clock says is cut to what can be added up.
fn nanoseconds(us: f64, zero: f64) -> i64 {
    (((us - zero) * 1e3).round() as i64).clamp(-(1 << 50), 1 << 50)
}

fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str().and_then(|text| text.parse().ok()))
}

/// Computing and communication, each in the order of their beginnings.
fn split(input: &Input, trace: &Trace, known: &mut Known, report: &mut Report) -> Result<(Vec<Work>, Vec<Communication>), WorkloadError> {
    let zero = trace.kernels.iter().filter_map(|event| event.ts).fold(f64::INFINITY, f64::min);
    let ns = |us: f64| nanoseconds(us, zero);
    let (mut work, mut communication, mut streams) = (Vec::new(), Vec::new(), BTreeSet::new());
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
        if !name.starts_with("nccl") {
            streams.insert(args.stream.to_string());
            work.push(one);
            continue;
        }
        let place = format!("{}: {} at {ts} us", input.name, name.split('(').next().unwrap_or(name));
        let described = args.external.as_i64().and_then(|external| trace.described.get(&external));
        let said = if args.collective.is_string() { args } else { described.unwrap_or(args) };
        let stream = args.stream.as_u64().map_or_else(|| "nccl".to_string(), |stream| format!("nccl {stream}"));
        match collective(trace, known, said, one, stream, place.clone()) {
            Ok(one) => communication.push(one),
            Err(what) => report.leave(what, || place),
        }
    }
    if streams.len() > 1 {
        report.assume(format!("computing on {} streams of a GPU is taken together, in one", streams.len()));
    }
    work.sort_by_key(|one| (one.start, one.end));
    communication.sort_by_key(|one| (one.work.start, one.work.end));
    Ok((work, communication))
}

/// Ranks of process groups in all files together at most.
const GROUP_RANKS_MAX: usize = 1 << 26;

/// What events say of a group, and the ranks that it means: events say the same thing many times.
#[derive(Default)]
struct Known {
    groups: BTreeMap<String, Result<Arc<[u32]>, String>>,
    lists: BTreeSet<Arc<[u32]>>,
    total: usize,
}

impl Known {
    fn ranks(&mut self, trace: &Trace, args: &Args) -> Result<Arc<[u32]>, String> {
        let Args { group_ranks, rank_start, rank_stride, group_size, group_name, .. } = args;
        // The rank tells files apart, whose configurations may differ.
        let head = (trace.distributed.rank, trace.distributed.world_size);
        let key = format!("{head:?} {group_ranks} {rank_start} {rank_stride} {group_size} {group_name}");
        if let Some(found) = self.groups.get(&key) {
            return found.clone();
        }
        let found = group_ranks_of(trace, args).and_then(|ranks| self.keep(ranks));
        self.groups.insert(key, found.clone());
        found
    }

    /// The list, once.
    fn keep(&mut self, ranks: Vec<u32>) -> Result<Arc<[u32]>, String> {
        if let Some(list) = self.lists.get(ranks.as_slice()) {
            return Ok(list.clone());
        }
        if self.total.saturating_add(ranks.len()) > GROUP_RANKS_MAX {
            return Err(format!("collectives of further process groups: expected at most {GROUP_RANKS_MAX} ranks in all of them"));
        }
        self.total += ranks.len();
        let list: Arc<[u32]> = ranks.into();
        self.lists.insert(list.clone());
        Ok(list)
    }
}

/// The ranks of the group that an event is of.
fn group_ranks_of(trace: &Trace, args: &Args) -> Result<Vec<u32>, String> {
    let group = args.group_name.as_str().map_or_else(|| args.group_name.to_string(), String::from);
    // An empty list says nothing: PyTorch lists no ranks of a group that has all of them.
    let listed = |value: &Value| -> Option<Vec<u32>> {
        let ranks: Option<Vec<u32>> = match value {
            Value::String(text) => serde_json::from_str(text).ok(),
            Value::Array(_) => serde_json::from_value(value.clone()).ok(),
            _ => None,
        };
        ranks.filter(|ranks| !ranks.is_empty())
    };
    // The profiler shortens long lists: some versions have the first rank and the distance beside them, and the head of the file has them whole.
    let strided = || {
        let of = |value: &Value| number(value).and_then(|value| u32::try_from(value).ok());
        let (start, stride, size) = (of(&args.rank_start)?, of(&args.rank_stride)?, of(&args.group_size)?);
        let ranks =
            (0..size.min(crate::ranks::RANKS_MAX)).map(|place| place.checked_mul(stride)?.checked_add(start)).collect::<Option<Vec<u32>>>();
        ranks.filter(|_| stride > 0 || size == 1)
    };
    let configured = || trace.distributed.pg_config.iter().find(|one| one.pg_name == args.group_name).and_then(|one| listed(&one.ranks));
    let world = || {
        let size = trace.distributed.world_size.filter(|size| u64::from(*size) == number(&args.group_size).unwrap_or(0))?;
        (size <= crate::ranks::RANKS_MAX).then(|| (0..size).collect())
    };
    let Some(ranks) =
        listed(&args.group_ranks).or_else(strided).or_else(configured).or_else(world).filter(|ranks: &Vec<u32>| !ranks.is_empty())
    else {
        return Err(format!("collectives of process group {group:?}, whose ranks are not listed"));
    };
    let mut unique = BTreeSet::new();
    if !ranks.iter().all(|rank| *rank < crate::ranks::RANKS_MAX && unique.insert(*rank)) {
        return Err(format!("collectives of process group {group:?}, whose ranks are no list of different ones"));
    }
    Ok(ranks)
}

fn collective(trace: &Trace, known: &mut Known, args: &Args, work: Work, stream: String, place: String) -> Result<Communication, String> {
    let Some(name) = args.collective.as_str() else { return Err("nccl kernels without a \"Collective name\" in their args".into()) };
    let Some(kind) = kind_of(name) else { return Err(format!("collectives named {name:?}")) };
    let dtype = args.dtype.as_str().unwrap_or("");
    let Some(element) = element_of(dtype) else { return Err(format!("collectives of type {dtype:?}")) };
    let (Some(into), Some(out)) = (number(&args.elements_in), number(&args.elements_out)) else {
        return Err("collectives without \"In msg nelems\" and \"Out msg nelems\"".into());
    };
    let elements = match kind {
        CollectiveKind::AllGather => into.max(out),
        CollectiveKind::Barrier => 0,
        _ => into,
    };
    let Some(bytes) = elements.checked_mul(element.bytes()) else { return Err("collectives of more than 2^64 bytes".into()) };
    let ranks = known.ranks(trace, args)?;
    let group = match &args.group_name {
        Value::String(name) => name.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let label = match args.group_description.as_str() {
        Some(text) if !text.is_empty() && text != "undefined" => text.to_string(),
        _ if group.is_empty() => format!("{} ranks", ranks.len()),
        _ => group,
    };
    Ok(Communication { work, stream, kind, label, ranks, bytes, element, external: args.external.as_i64(), place })
}

/// The kind that a name of PyTorch's stands for.
pub(crate) fn kind_of(name: &str) -> Option<CollectiveKind> {
    let name: String = name.to_lowercase().chars().filter(|one| one.is_ascii_alphanumeric()).collect();
    let table = [
        ("allreduce", CollectiveKind::AllReduce),
        ("reducescatter", CollectiveKind::ReduceScatter),
        ("allgather", CollectiveKind::AllGather),
        ("alltoall", CollectiveKind::AllToAll),
        ("broadcast", CollectiveKind::Broadcast),
        ("reduce", CollectiveKind::Reduce),
        ("barrier", CollectiveKind::Barrier),
    ];
    table.into_iter().find(|(word, _)| name.starts_with(word)).map(|(_, kind)| kind)
}

/// The type that a name of PyTorch's or NCCL's stands for.
pub(crate) fn element_of(name: &str) -> Option<Element> {
    Some(match name.to_lowercase().as_str() {
        "float" | "float32" => Element::F32,
        "double" | "float64" => Element::F64,
        "half" | "float16" => Element::F16,
        "bfloat16" => Element::Bf16,
        "float8_e4m3fn" | "float8_e4m3fnuz" => Element::F8E4M3,
        "float8_e5m2" | "float8_e5m2fnuz" => Element::F8E5M2,
        "long" | "int64" => Element::I64,
        "int" | "int32" => Element::I32,
        "short" | "int16" => Element::I16,
        "char" | "int8" => Element::I8,
        "byte" | "uint8" | "bool" => Element::U8,
        "uint64" => Element::U64,
        "uint32" => Element::U32,
        _ => return None,
    })
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
    for (index, one) in communication.iter().enumerate() {
        let of = || lists.number(&one.label, one.ranks.to_vec());
        let list = *numbers.entry((one.label.as_str(), one.ranks.as_ptr())).or_insert_with(of);
        order.push((one.work.start, segments + index, Vec::new()));
        nodes.push(RawNode {
            id: format!("{} {index}", one.kind),
            action: RawAction::Collective { kind: one.kind, list, bytes: one.bytes, element: one.element, root: 0 },
            after: before[index].map(|item| segment_of(item) as u32).into_iter().collect(),
            stream: Some(one.stream.as_str().into()),
            measured: Some(Duration::from_ns((one.work.end - one.work.start) as u64)),
            place: one.place.clone(),
        });
    }
    for (_, segment, after) in order.iter().filter(|(_, node, _)| *node < segments) {
        nodes[*segment].after = after.iter().map(|index| (segments + index) as u32).collect();
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
