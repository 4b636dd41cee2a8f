//! The log, on standard error. It holds nobody up and ends nobody ([`Lines`]). And nobody can fill a disk with it: what is said of the same
//! kind again and again, of one address and for one reason, is counted, and the counts are said at intervals.

use std::collections::HashMap;
use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::lines::Lines;
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata};
use tracing_subscriber::layer::{Context, Filter, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt};

/// How often counts are said.
const INTERVAL: Duration = Duration::from_secs(30);

/// How many lines of one kind are said before they are counted: of what somebody has sent for nothing, and of all else.
const OF_REFUSALS: u32 = 1;
const OF_OTHERS: u32 = 100;

/// How many kinds are told apart; beyond that, addresses are not.
const KINDS_MAX: usize = 256;

/// The longest text that is kept of a line that was not said, in characters.
const LAST_CHARS_MAX: usize = 300;

/// Where counts come from; they are not counted themselves.
const COUNTS: &str = "fanin::counts";

/// How logs are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One object a line.
    Json,
}

/// Begins to log what is at least as important as `level`, where RUST_LOG says nothing else. `targets`: with the parts of the program that say it.
pub fn begin(level: &str, format: LogFormat, targets: bool) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let limit = Limit::default();
    let counts = limit.clone();
    let lines = fmt::layer::<Registry>().with_writer(|| ToLines).with_target(targets).log_internal_errors(false);
    let lines = match format {
        LogFormat::Text => lines.with_ansi(io::stderr().is_terminal()).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry().with(lines.with_filter(limit).and_then(filter)).init();
    // Without this thread, nothing is lost but the counts.
    let say = move || {
        loop {
            thread::sleep(INTERVAL);
            counts.say();
        }
    };
    let _ = thread::Builder::new().name("fanin-counts".into()).spawn(say);
}

/// A line comes in one piece.
struct ToLines;

impl Write for ToLines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        Lines::stderr().say(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// One kind of line: where it is said, of which address, for which reason.
type Kind = (Identifier, String, String);

/// What was said of a kind.
#[derive(Clone, Default)]
struct Count {
    said: u32,
    /// Lines since the last interval that were not.
    more: u64,
    message: String,
    last: String,
}

/// Lets the first lines of a kind pass, and counts the others.
#[derive(Clone, Default)]
struct Limit(Arc<Mutex<HashMap<Kind, Count>>>);

impl Limit {
    fn counts(&self) -> MutexGuard<'_, HashMap<Kind, Count>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a line is to be said.
    fn admits(&self, site: Identifier, words: Words) -> bool {
        let mut counts = self.counts();
        let mut kind = (site, words.peer, words.reason);
        if counts.len() >= KINDS_MAX && !counts.contains_key(&kind) {
            kind.1 = "elsewhere".into();
        }
        let most = if words.is_refusal { OF_REFUSALS } else { OF_OTHERS };
        let count = counts.entry(kind).or_default();
        if count.said < most {
            count.said += 1;
            return true;
        }
        count.more += 1;
        (count.message, count.last) = (words.message, words.text);
        false
    }

    /// What has not been said since the last time; kinds of which nothing has come are forgotten.
    fn take(&self) -> Vec<(Kind, Count)> {
        let mut told = Vec::new();
        self.counts().retain(|kind, count| {
            let is_going_on = count.more > 0;
            if is_going_on {
                told.push((kind.clone(), count.clone()));
                count.more = 0;
            }
            is_going_on
        });
        told
    }

    fn say(&self) {
        for ((_, peer, reason), Count { more, message, last, .. }) in self.take() {
            let seconds = INTERVAL.as_secs();
            tracing::warn!(target: COUNTS, times = more, seconds, peer, reason, last, "again: {message}");
        }
    }
}

impl<S> Filter<S> for Limit {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let metadata = event.metadata();
        // Who asks for more than that wants all of it.
        if *metadata.level() > Level::INFO || metadata.target() == COUNTS {
            return true;
        }
        let mut words = Words::default();
        event.record(&mut words);
        // Of a job there are lines that somebody needs; what was refused has none.
        words.is_refusal = !words.peer.is_empty() && !words.of_job;
        self.admits(metadata.callsite(), words)
    }
}

/// What a line says, as far as lines are told apart by it.
#[derive(Default)]
struct Words {
    message: String,
    peer: String,
    reason: String,
    text: String,
    of_job: bool,
    is_refusal: bool,
}

impl Words {
    fn take(&mut self, field: &Field, value: String) {
        match field.name() {
            "message" => self.message = cut(value),
            // The port is another one each time.
            "peer" | "from" => self.peer = value.parse::<SocketAddr>().map_or(value, |address| address.ip().to_string()),
            "reason" => self.reason = cut(value),
            "text" | "error" => self.text = cut(value),
            "job" | "ring" => self.of_job = true,
            _ => {}
        }
    }
}

fn cut(text: String) -> String {
    if text.len() <= LAST_CHARS_MAX { text } else { text.chars().take(LAST_CHARS_MAX).collect() }
}

impl Visit for Words {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.take(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.take(field, format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_said_then_counts_by_address_and_reason_in_bounded_memory() {
        let limit = Limit::default();
        let said = Arc::new(Mutex::new(0));
        let lines = fmt::layer::<Registry>()
            .with_writer({
                let said = said.clone();
                move || {
                    *said.lock().unwrap() += 1;
                    io::sink()
                }
            })
            .with_filter(limit.clone());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), || {
            let refuse = |peer: &str, reason: &str| tracing::warn!(peer = %peer, reason, text = "no", "refused");
            for port in 1..=1_000 {
                refuse(&format!("10.0.0.1:{port}"), "invalid");
                refuse(&format!("[fe80::1]:{port}"), "full");
            }
            assert_eq!(*said.lock().unwrap(), 2);
            let mut told: Vec<_> = limit.take().into_iter().map(|((_, peer, reason), count)| (peer, reason, count.more)).collect();
            told.sort();
            let expected = [("10.0.0.1", "invalid", 999), ("fe80::1", "full", 999)];
            assert_eq!(told, expected.map(|(peer, reason, more)| (peer.to_owned(), reason.to_owned(), more)));
            // Still going on, so not said, and only counted.
            refuse("10.0.0.1:7", "invalid");
            assert_eq!((*said.lock().unwrap(), limit.take().len()), (2, 1));
            assert!(limit.take().is_empty(), "what has stopped is forgotten");
            for host in 0..10_000u32 {
                refuse(&format!("{}:9", std::net::Ipv4Addr::from(host)), "protocol");
            }
            assert!(limit.counts().len() <= KINDS_MAX + 1 && *said.lock().unwrap() <= 2 + KINDS_MAX + 1);
            // Jobs are told of one by one, up to a point, and what nobody counts is as before.
            let before = *said.lock().unwrap();
            for _ in 0..1_000 {
                tracing::info!(job = "train", peer = "10.0.0.2", "admitted");
                tracing::debug!(peer = "10.0.0.2", "more");
            }
            assert_eq!(*said.lock().unwrap() - before, OF_OTHERS as usize + 1_000);
        });
    }
}
