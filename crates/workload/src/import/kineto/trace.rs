//! What is kept of a profile's events.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// What an event says; which of it is there depends on the version of PyTorch.
#[derive(Default, Deserialize)]
pub(super) struct Args {
    #[serde(default)]
    pub(super) stream: Value,
    #[serde(default)]
    pub(super) correlation: Value,
    #[serde(default, rename = "External id")]
    pub(super) external: Value,
    #[serde(default, rename = "Collective name")]
    pub(super) collective: Value,
    #[serde(default, rename = "In msg nelems")]
    pub(super) elements_in: Value,
    #[serde(default, rename = "Out msg nelems")]
    pub(super) elements_out: Value,
    #[serde(default, rename = "Group size")]
    pub(super) group_size: Value,
    #[serde(default)]
    pub(super) dtype: Value,
    #[serde(default, rename = "Process Group Name")]
    pub(super) group_name: Value,
    #[serde(default, rename = "Process Group Description")]
    pub(super) group_description: Value,
    #[serde(default, rename = "Process Group Ranks")]
    pub(super) group_ranks: Value,
    #[serde(default, rename = "Global rank start")]
    pub(super) rank_start: Value,
    #[serde(default, rename = "Global rank stride")]
    pub(super) rank_stride: Value,
    #[serde(default, rename = "In split size")]
    pub(super) split_in: Value,
    #[serde(default, rename = "Rank")]
    pub(super) rank: Value,
    #[serde(default, rename = "Src Rank")]
    pub(super) source: Value,
    #[serde(default, rename = "Dst Rank")]
    pub(super) destination: Value,
}

/// A time; tools that pass traces on write it as a text, too.
pub(super) fn microseconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    let value = Option::<Value>::deserialize(deserializer)?.unwrap_or_default();
    let wrong = || serde::de::Error::custom(format!("{value}: expected a number of microseconds"));
    match &value {
        Value::Null => Ok(None),
        Value::String(text) => text.trim().parse().map(Some).map_err(|_| wrong()),
        other => other.as_f64().map(Some).ok_or_else(wrong),
    }
}

#[derive(Default, Deserialize)]
pub(super) struct Event {
    #[serde(default)]
    pub(super) cat: Option<String>,
    #[serde(default)]
    pub(super) name: Option<String>,
    #[serde(default, deserialize_with = "microseconds")]
    pub(super) ts: Option<f64>,
    #[serde(default, deserialize_with = "microseconds")]
    pub(super) dur: Option<f64>,
    #[serde(default)]
    pub(super) tid: Value,
    #[serde(default)]
    pub(super) args: Option<Args>,
}

#[derive(Default, Deserialize)]
pub(super) struct GroupConfig {
    #[serde(default)]
    pub(super) pg_name: Value,
    #[serde(default)]
    pub(super) ranks: Value,
}

/// The head of a file. Versions and users write numbers as texts, too, and lists as a text or by name.
#[derive(Default, Deserialize)]
#[serde(from = "RawDistributed")]
pub(super) struct Distributed {
    pub(super) rank: Option<u32>,
    pub(super) world_size: Option<u32>,
    pub(super) pg_config: Vec<GroupConfig>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawDistributed {
    rank: Value,
    world_size: Value,
    pg_config: Value,
}

impl From<RawDistributed> for Distributed {
    fn from(raw: RawDistributed) -> Self {
        let of = |value: &Value| number(value).and_then(|value| u32::try_from(value).ok());
        let config = match raw.pg_config {
            Value::String(text) => serde_json::from_str(&text).unwrap_or(Value::Null),
            other => other,
        };
        let one = |mut value: Value, name: Option<String>| {
            if let (Some(name), Some(map)) = (name, value.as_object_mut()) {
                map.entry("pg_name").or_insert(Value::String(name));
            }
            serde_json::from_value(value).ok()
        };
        let pg_config = match config {
            Value::Array(items) => items.into_iter().filter_map(|item| one(item, None)).collect(),
            Value::Object(map) => map.into_iter().filter_map(|(name, item)| one(item, Some(name))).collect(),
            _ => Vec::new(),
        };
        Distributed { rank: of(&raw.rank), world_size: of(&raw.world_size), pg_config }
    }
}

/// What is kept of a file.
#[derive(Default)]
pub(super) struct Trace {
    pub(super) distributed: Distributed,
    pub(super) kernels: Vec<Event>,
    pub(super) launches: BTreeMap<i64, f64>,
    pub(super) waits: Vec<(f64, Option<i64>)>,
    pub(super) steps: BTreeSet<String>,
    /// By external id: what the host said of a collective, in traces whose kernels do not say it.
    pub(super) described: BTreeMap<i64, Args>,
    /// What the host said of sends and receives, of which one kernel may do several: by when, and the external id.
    pub(super) transfers: Vec<(f64, i64)>,
    /// Operations of gloo, which the host does.
    pub(super) gloo: u64,
    /// Collectives that the host does itself, as operators that describe them.
    pub(super) host_collectives: Vec<Event>,
    /// Spans of the host that may be theirs.
    pub(super) host_spans: Vec<Span>,
    pub(super) host_events: u64,
    /// Spans of the GPU that the program named: by name, picoseconds in all, and how many.
    pub(super) spans: BTreeMap<String, (u128, u64)>,
}

/// Whether an operator of the host describes a collective of its own; PyTorch's own events of that kind belong to kernels.
fn describes(name: &str, args: Option<&Args>) -> bool {
    name != "record_param_comms" && args.is_some_and(|args| args.collective.is_string())
}

/// A span that a collective of the host may have taken: its name, and its beginning and length in microseconds.
pub(super) type Span = (String, f64, f64);

/// Names of spans at most.
const SPANS_MAX: usize = 1 << 16;

/// A number, also where it is written as a text.
pub(super) fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str().and_then(|text| text.parse().ok()))
}

impl Args {
    /// Whether it is of a send or a receive.
    pub(super) fn is_transfer(&self) -> bool {
        matches!(self.collective.as_str(), Some("send" | "recv"))
    }
}

impl Trace {
    fn keep(&mut self, event: Event) {
        let (cat, name) = (event.cat.as_deref().unwrap_or(""), event.name.as_deref().unwrap_or(""));
        match cat {
            // In capitals before PyTorch 1.13.
            "kernel" | "gpu_memcpy" | "gpu_memset" | "Kernel" | "Memcpy" | "Memset" => self.kernels.push(event),
            "cuda_runtime" | "cuda_driver" | "Runtime" => {
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
                if let Some(external) = number(&args.external).and_then(|external| i64::try_from(external).ok()) {
                    if let (Some(ts), true) = (event.ts, args.is_transfer()) {
                        self.transfers.push((ts, external));
                    }
                    self.described.insert(external, args);
                }
            }
            "cpu_op" if describes(name, event.args.as_ref()) => self.host_collectives.push(event),
            "cpu_op" | "user_annotation" if name.starts_with("gloo:") => self.gloo += 1,
            "user_annotation" if name.starts_with("fanin:") => {
                if let (Some(ts), Some(dur)) = (event.ts, event.dur) {
                    self.host_spans.push((name.to_string(), ts, dur));
                }
            }
            "user_annotation" if name.starts_with("ProfilerStep#") => drop(self.steps.insert(name.to_string())),
            "gpu_user_annotation" => {
                self.host_events += 1;
                self.keep_span(&event);
            }
            _ => self.host_events += 1,
        }
    }

    /// What the profiler names itself is none of the program's.
    fn keep_span(&mut self, event: &Event) {
        let (name, dur) = (event.name.as_deref().unwrap_or(""), event.dur.unwrap_or(0.0));
        let is_own = !name.is_empty() && !name.starts_with("nccl:") && !name.starts_with("ProfilerStep#");
        if is_own && dur > 0.0 && dur < 1e12 && (self.spans.len() < SPANS_MAX || self.spans.contains_key(name)) {
            let (sum, count) = self.spans.entry(name.to_string()).or_default();
            (*sum, *count) = (*sum + (dur * 1e6).round() as u128, *count + 1);
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
            if self.0.kernels.len().max(self.0.host_collectives.len()) > crate::flat::NODES_MAX {
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
                f.write_str("an object with traceEvents, or a list of events")
            }

            // Chrome's form without a head.
            fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Trace, A::Error> {
                let mut trace = Trace::default();
                Events(&mut trace).visit_seq(items)?;
                Ok(trace)
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
        deserializer.deserialize_any(File)
    }
}
