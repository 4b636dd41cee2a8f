//! What NCCL's kernels say of themselves, or the host's events of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::trace::{Args, Trace, number};
use crate::kinds::{CollectiveKind, Element};

/// Ranks of process groups in all files together at most.
const GROUP_RANKS_MAX: usize = 1 << 26;

/// What events say of a group, and the ranks that it means: events say the same thing many times.
#[derive(Default)]
pub(super) struct Known {
    groups: BTreeMap<String, Result<Arc<[u32]>, String>>,
    lists: BTreeSet<Arc<[u32]>>,
    total: usize,
    /// Tags of transfers by the label of their group: those of one group are apart from those of another one.
    tags: BTreeMap<String, u32>,
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

/// A list of numbers, as it is or as a text.
fn list(value: &Value) -> Option<Vec<u32>> {
    match value {
        Value::String(text) => serde_json::from_str(text).ok(),
        Value::Array(_) => serde_json::from_value(value.clone()).ok(),
        _ => None,
    }
}

/// The ranks of the group that an event is of.
fn group_ranks_of(trace: &Trace, args: &Args) -> Result<Vec<u32>, String> {
    let group = args.group_name.as_str().map_or_else(|| args.group_name.to_string(), String::from);
    // An empty list says nothing: PyTorch lists no ranks of a group that has all of them.
    let listed = |value: &Value| list(value).filter(|ranks| !ranks.is_empty());
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

/// A collective.
#[derive(Clone, Copy, Debug)]
pub(super) struct Said {
    pub(super) kind: CollectiveKind,
    pub(super) bytes: u64,
    pub(super) element: Element,
    /// The root's position in the group, where one is said.
    pub(super) root: Option<u32>,
    /// Whether it brings members shares of different lengths.
    pub(super) is_uneven: bool,
}

/// A send or a receive.
#[derive(Clone, Copy, Debug)]
pub(super) struct SaidTransfer {
    pub(super) is_send: bool,
    pub(super) peer: u32,
    pub(super) bytes: u64,
    pub(super) tag: u32,
}

/// The collective that an event is of, with the label of its group and the group's ranks.
pub(super) fn collective(trace: &Trace, known: &mut Known, args: &Args) -> Result<(Said, String, Arc<[u32]>), String> {
    let Some(name) = args.collective.as_str() else { return Err("nccl kernels without a \"Collective name\" in their args".into()) };
    let Some(kind) = kind_of(name) else { return Err(format!("collectives named {name:?}")) };
    let element = element(args)?;
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
    let root =
        number(&args.rank).and_then(|root| u32::try_from(root).ok()).filter(|root| kind.has_root() && (*root as usize) < ranks.len());
    let shares = list(&args.split_in).unwrap_or_default();
    let is_uneven = kind == CollectiveKind::AllToAll && shares.windows(2).any(|pair| pair[0] != pair[1]);
    let label = label(args, ranks.len());
    Ok((Said { kind, bytes, element, root, is_uneven }, label, ranks))
}

/// The send or the receive that an event is of.
pub(super) fn transfer(trace: &Trace, known: &mut Known, args: &Args) -> Result<SaidTransfer, String> {
    let is_send = args.collective.as_str() == Some("send");
    let element = element(args)?;
    let elements = number(&args.elements_in).ok_or("sends and receives without \"In msg nelems\"")?;
    let bytes = elements.checked_mul(element.bytes()).ok_or("sends and receives of more than 2^64 bytes")?;
    // The other end as a rank of the job, or as one of the group.
    let of_job = number(if is_send { &args.destination } else { &args.source }).and_then(|rank| u32::try_from(rank).ok());
    let peer = match of_job {
        Some(peer) => peer,
        None => {
            let of_group = number(&args.rank).ok_or("sends and receives without \"Dst Rank\", \"Src Rank\" or \"Rank\"")?;
            let ranks = known.ranks(trace, args)?;
            let peer = usize::try_from(of_group).ok().and_then(|place| ranks.get(place));
            *peer.ok_or("sends and receives with a rank that is not in their group")?
        }
    };
    if peer >= crate::ranks::RANKS_MAX || trace.distributed.rank == Some(peer) {
        return Err("sends and receives with a rank that cannot be the other end".into());
    }
    let next = known.tags.len() as u32;
    let tag = *known.tags.entry(label(args, 0)).or_insert(next);
    Ok(SaidTransfer { is_send, peer, bytes, tag })
}

fn element(args: &Args) -> Result<Element, String> {
    let dtype = args.dtype.as_str().unwrap_or("");
    element_of(dtype).ok_or_else(|| format!("communication of type {dtype:?}, which is none of the known ones"))
}

/// What a group is called: its description, its name, or how many it has.
fn label(args: &Args, ranks: usize) -> String {
    let group = match &args.group_name {
        Value::String(name) => name.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    match args.group_description.as_str() {
        Some(text) if !text.is_empty() && text != "undefined" => text.to_string(),
        _ if group.is_empty() => format!("{ranks} ranks"),
        _ => group,
    }
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
    let name = name.to_lowercase();
    Some(match name.trim_start_matches("c10::").trim_start_matches("torch.") {
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
