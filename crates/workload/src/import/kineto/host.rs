//! Traces without a GPU, whose collectives the host does itself and says so: those of programs that train on processors.
//!
//! A collective is described by an operator of the host, with the args that NCCL's kernels have otherwise, at the moment when it begins; how long it
//! takes is in a span of the same name. Computing is what other operators of the thread took that began the collectives.

use std::collections::BTreeSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::trace::{Event, Trace, microseconds};

/// An event of the host.
#[derive(Deserialize)]
struct HostEvent {
    #[serde(default)]
    cat: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    tid: Value,
    #[serde(default, deserialize_with = "microseconds")]
    ts: Option<f64>,
    #[serde(default, deserialize_with = "microseconds")]
    dur: Option<f64>,
}

/// Operators of the host: thread, beginning, end.
#[derive(Default)]
struct Operators {
    all: Vec<(String, f64, f64)>,
}

/// Turns what the host did into what a GPU would have done, in a trace that has nothing of a GPU.
///
/// # Errors
/// The file is no JSON of that form.
pub(super) fn instead_of_kernels(bytes: &[u8], trace: &mut Trace) -> Result<(), serde_json::Error> {
    let mut spans = std::mem::take(&mut trace.host_spans);
    spans.sort_by(|(_, one, _), (_, other, _)| one.total_cmp(other));
    let mut described = std::mem::take(&mut trace.host_collectives);
    described.sort_by(|one, other| one.ts.unwrap_or(0.0).total_cmp(&other.ts.unwrap_or(0.0)));
    let threads: BTreeSet<String> = described.iter().map(|event| event.tid.to_string()).collect();
    let mut taken = vec![false; spans.len()];
    for mut event in described {
        // The first span of its name from its beginning on that no other collective has.
        let (name, ts) = (event.name.clone().unwrap_or_default(), event.ts.unwrap_or(0.0));
        let first = spans.partition_point(|(_, begin, _)| *begin < ts);
        let found = (first..spans.len()).find(|index| !taken[*index] && spans[*index].0 == name);
        if let Some(index) = found {
            taken[index] = true;
            (event.ts, event.dur) = (Some(spans[index].1), Some(spans[index].2));
        }
        event.cat = Some("kernel".into());
        trace.kernels.push(event);
    }
    let operators: Operators = serde_json::from_slice(bytes)?;
    let mut outer: Vec<(f64, f64)> =
        operators.all.into_iter().filter(|(thread, ..)| threads.contains(thread)).map(|(_, begin, end)| (begin, end)).collect();
    outer.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    // Operators call others: what is within another one's time is that one's.
    let mut last = f64::NEG_INFINITY;
    for (begin, end) in outer {
        if end > last {
            let begin = begin.max(last);
            last = end;
            trace.kernels.push(Event { cat: Some("host".into()), ts: Some(begin), dur: Some(end - begin), ..Event::default() });
        }
    }
    Ok(())
}

impl Operators {
    fn keep(&mut self, event: HostEvent) {
        let (Some(ts), Some(dur), Some("cpu_op")) = (event.ts, event.dur, event.cat.as_deref()) else { return };
        if !event.name.as_deref().unwrap_or("").starts_with("fanin:") && dur > 0.0 && self.all.len() < crate::flat::NODES_MAX {
            self.all.push((event.tid.to_string(), ts, ts + dur));
        }
    }
}

impl<'de> Deserialize<'de> for Operators {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct File(Operators);
        impl<'de> Visitor<'de> for File {
            type Value = Operators;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with traceEvents, or a list of events")
            }

            fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<Operators, A::Error> {
                while let Some(event) = items.next_element::<HostEvent>()? {
                    self.0.keep(event);
                }
                Ok(self.0)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Operators, A::Error> {
                let mut found = self.0;
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "traceEvents" => found = map.next_value()?,
                        _ => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(found)
            }
        }
        deserializer.deserialize_any(File(Operators::default()))
    }
}
