//! Pages of metrics: fetched from switches, and read.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// How long a switch may take to answer.
const LIMIT: Duration = Duration::from_secs(2);
/// Longer pages are cut off, at which they are an error.
const PAGE_BYTES_MAX: u64 = 16 << 20;

/// A value with its labels.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Sample {
    pub(super) labels: BTreeMap<String, String>,
    pub(super) value: f64,
}

/// What a switch has said at a moment.
#[derive(Clone, Debug)]
pub(super) struct Scrape {
    pub(super) at: Instant,
    samples: BTreeMap<String, Vec<Sample>>,
}

impl Scrape {
    /// Asks a switch, or a manager.
    ///
    /// # Errors
    /// In words, with the address.
    pub(super) fn fetch(address: &str) -> Result<Scrape, String> {
        let text = get(address).map_err(|error| format!("{address}: {error}"))?;
        let samples = parse(&text).map_err(|error| format!("{address}: /metrics {error}"))?;
        Ok(Scrape { at: Instant::now(), samples })
    }

    /// All values of a name.
    pub(super) fn all(&self, name: &str) -> &[Sample] {
        self.samples.get(name).map_or(&[], Vec::as_slice)
    }

    /// The sum of the values of a name that have these labels; `None` where there is none.
    pub(super) fn get(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let has = |sample: &&Sample| labels.iter().all(|(key, value)| sample.labels.get(*key).is_some_and(|is| is == value));
        let mut found = self.all(name).iter().filter(has).map(|sample| sample.value).peekable();
        found.peek()?;
        Some(found.sum())
    }

    /// How much a count has grown a second since an earlier scrape; a count that was begun anew has grown from 0.
    pub(super) fn rate(&self, before: &Scrape, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let (now, was) = (self.get(name, labels)?, before.get(name, labels).unwrap_or(0.0));
        let seconds = self.at.saturating_duration_since(before.at).as_secs_f64().max(1e-3);
        Some(if now < was { now } else { now - was } / seconds)
    }

    #[cfg(test)]
    pub(super) fn of(text: &str, at: Instant) -> Scrape {
        Scrape { at, samples: parse(text).unwrap() }
    }
}

/// The page of an address.
fn get(address: &str) -> Result<String, String> {
    let resolved = address.to_socket_addrs().map_err(|error| error.to_string())?.next().ok_or("it has no address")?;
    let mut stream = TcpStream::connect_timeout(&resolved, LIMIT).map_err(|error| error.to_string())?;
    stream.set_read_timeout(Some(LIMIT)).map_err(|error| error.to_string())?;
    let request = format!("GET /metrics HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(|error| error.to_string())?;
    let mut text = String::new();
    stream.take(PAGE_BYTES_MAX).read_to_string(&mut text).map_err(|error| error.to_string())?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or("expected an answer in HTTP")?;
    let status = head.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        return Err(format!("answers {status:?}: expected the address of `fanin switch --http`"));
    }
    Ok(body.to_owned())
}

/// Reads OpenMetrics, as far as switches write it.
fn parse(text: &str) -> Result<BTreeMap<String, Vec<Sample>>, String> {
    let mut samples: BTreeMap<String, Vec<Sample>> = BTreeMap::new();
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.starts_with('#') && !line.trim().is_empty()) {
        let (name, sample) = parse_line(line).ok_or_else(|| format!("line {number}: {line:?}: expected NAME{{LABELS}} VALUE"))?;
        samples.entry(name.to_owned()).or_default().push(sample);
    }
    Ok(samples)
}

fn parse_line(line: &str) -> Option<(&str, Sample)> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while let Some((key, after)) = rest.split_once("=\"").filter(|_| !rest.starts_with('}')) {
            let (value, after) = quoted(after)?;
            labels.insert(key.to_owned(), value);
            rest = after.strip_prefix(',').unwrap_or(after);
        }
        rest = rest.strip_prefix('}')?;
    }
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some((name, Sample { labels, value }))
}

/// Text up to its closing quotation mark, and what comes after it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let (mut value, mut escaped) = (String::new(), false);
    for (at, character) in text.char_indices() {
        match (character, escaped) {
            ('\\', false) => escaped = true,
            ('"', false) => return Some((value, &text[at + 1..])),
            (character, was) => {
                value.push(if was && character == 'n' { '\n' } else { character });
                escaped = false;
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_name_and_label() {
        let text = "# HELP a text\na_total{job=\"one \\\"two\\\\\",rank=\"0\"} 3\na_total{job=\"x\",rank=\"1\"} 4.5\nb 7\n# EOF\n";
        let start = Instant::now();
        let now = Scrape::of(text, start + Duration::from_secs(2));
        assert_eq!(now.get("a_total", &[("job", "one \"two\\")]), Some(3.0));
        assert_eq!(now.get("a_total", &[]), Some(7.5));
        assert_eq!(now.get("b", &[]), Some(7.0));
        assert_eq!((now.get("c", &[]), now.get("a_total", &[("rank", "7")])), (None, None));
        let before = Scrape::of("b 1\na_total{rank=\"1\"} 9\n", start);
        assert_eq!(now.rate(&before, "b", &[]), Some(3.0));
        assert_eq!(now.rate(&before, "a_total", &[("rank", "1")]), Some(2.25), "begun anew");
    }

    #[test]
    fn what_is_no_page_of_metrics_is_told_with_its_line() {
        for text in ["a{x=\"1\" 3", "a{x=\"1} 3", "a", "a b", "a{x=\"1\"}"] {
            let error = parse(&format!("ok 1\n{text}\n")).unwrap_err();
            assert!(error.starts_with("line 2: "), "{error}");
        }
    }

    /// What a switch, or somebody in its place, answers. An ordinary test runs what a fuzzer has found (`make fuzz`).
    #[test]
    fn pages_fuzzed() {
        bolero::check!().with_iterations(0).for_each(|bytes: &[u8]| {
            if let Some(Err(error)) = std::str::from_utf8(bytes).ok().map(parse) {
                assert!(error.contains("line"), "{error}");
            }
        });
    }
}
