//! Which rings of RDMA connections a switch sums in.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use fanin_core::{DType, Duration, ElementOp, Operator};
use fanin_protocols::netreduce::MessageShape;

/// The most workers of a ring.
pub const WORKERS_MAX: usize = 1_024;
/// N and `MsgLen` of the paper, and its payload of a packet (`netreduce 7`).
const WINDOW: u32 = 2;
const PACKETS: u16 = 170;
const PAYLOAD_BYTES: u32 = 1_024;
const SILENCE: Duration = Duration::from_ms(3_000);
/// Between a few questions and an hour, in milliseconds.
const SILENCE_MS: std::ops::RangeInclusive<u64> = 1_000..=3_600_000;
/// What a queue pair's path can have as largest payload (InfiniBand Architecture 9.4.3).
const PAYLOADS: [u32; 5] = [256, 512, 1_024, 2_048, 4_096];

/// A ring of workers with RDMA connections. Network cards and headers do not say what is summed, so the switch is told (`netreduce 1`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RdmaRing {
    /// The number in the INA headers.
    pub ring: u16,
    /// Element type and operator.
    pub op: ElementOp,
    /// The addresses of the workers by rank: each has a connection to the next, the last one to the first.
    pub workers: Vec<Ipv4Addr>,
    /// N and `MsgLen`.
    pub shape: MessageShape,
    /// Payload of a full packet in bytes: the path MTU of the queue pairs.
    pub payload_bytes: u32,
    /// The ranks of those workers that are behind this switch itself, in their order; `None`: all that no switch below it has.
    pub here: Option<Vec<u16>>,
    /// How long a worker may leave questions of the switch to its network card unanswered while others wait for it.
    pub silence: Duration,
}

/// Why a text describes no ring.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RingError {
    field: &'static str,
    value: String,
    expected: String,
}

impl fmt::Display for RingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is {:?} where {} is expected", self.field, self.value, self.expected)
    }
}

impl std::error::Error for RingError {}

fn wrong(field: &'static str, value: &str, expected: impl fmt::Display) -> RingError {
    RingError { field, value: value.to_owned(), expected: expected.to_string() }
}

impl RdmaRing {
    /// Of how many packets of a worker the heads are kept: a power of two.
    pub(super) fn heads(&self) -> u32 {
        ((2 * self.shape.window).next_power_of_two() * u32::from(self.shape.packets)).next_power_of_two()
    }
}

impl FromStr for RdmaRing {
    type Err = RingError;

    /// `RING:TYPE:OPERATOR:ADDRESS,ADDRESS,..`, and `:window=N`, `:packets=N`, `:payload=BYTES`, `:silence=TIME` and
    /// `:here=ADDRESS,ADDRESS,..` or `:here=none` behind it.
    fn from_str(text: &str) -> Result<Self, RingError> {
        let mut parts = text.split(':');
        let mut next = |field, expected| parts.next().filter(|part| !part.is_empty()).ok_or_else(|| wrong(field, "", expected));
        let number = next("ring", "a number below 65536")?;
        let ring = number.parse().map_err(|_| wrong("ring", number, "a number below 65536"))?;
        let name = next("type", "an element type")?;
        let dtype: DType = name.parse().map_err(|error| wrong("type", name, error))?;
        let name = next("operator", "an operator")?;
        let operator: Operator = name.parse().map_err(|error| wrong("operator", name, error))?;
        let op = ElementOp::new(dtype, operator).map_err(|error| wrong("operator", name, error))?;
        let list = next("workers", "IPv4 addresses by rank, as 10.0.0.1,10.0.0.2")?;
        let workers: Result<Vec<Ipv4Addr>, _> = list.split(',').map(str::parse).collect();
        let workers = workers.map_err(|_| wrong("workers", list, "IPv4 addresses by rank, as 10.0.0.1,10.0.0.2"))?;
        let mut sorted = workers.clone();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.len() != workers.len() || !(2..=WORKERS_MAX).contains(&workers.len()) {
            return Err(wrong("workers", list, format_args!("2 to {WORKERS_MAX} different addresses")));
        }
        let (mut shape, mut payload_bytes) = (MessageShape { window: WINDOW, packets: PACKETS }, PAYLOAD_BYTES);
        let (mut silence, mut here) = (SILENCE, None);
        for part in parts {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            match name {
                "window" => shape.window = value.parse().map_err(|_| wrong("window", value, "a number of messages"))?,
                "packets" => shape.packets = value.parse().map_err(|_| wrong("packets", value, "a number of packets"))?,
                "payload" => {
                    let bytes = value.parse().ok().filter(|bytes| PAYLOADS.contains(bytes));
                    payload_bytes = bytes.ok_or_else(|| wrong("payload", value, "256, 512, 1024, 2048 or 4096"))?;
                }
                "silence" => silence = time(value).ok_or_else(|| wrong("silence", value, "1s to 3600s, or 1000ms to 3600000ms"))?,
                "here" => here = Some(ranks(value, &workers)?),
                _ => return Err(wrong("option", part, "window=N, packets=N, payload=BYTES, silence=TIME or here=ADDRESS,..")),
            }
        }
        if !shape.is_possible() {
            let value = format!("{} messages of {} packets", shape.window, shape.packets);
            return Err(wrong("window", &value, format_args!("1 to {} messages, and at most 4194304 packets", MessageShape::WINDOW_MAX)));
        }
        Ok(RdmaRing { ring, op, workers, shape, payload_bytes, here, silence })
    }
}

/// The ranks of some of the workers, or of none of them.
fn ranks(list: &str, workers: &[Ipv4Addr]) -> Result<Vec<u16>, RingError> {
    if list == "none" {
        return Ok(Vec::new());
    }
    let rank = |name: &str| workers.iter().position(|worker| name.parse() == Ok(*worker)).map(|rank| rank as u16);
    let ranks: Option<Vec<u16>> = list.split(',').map(rank).collect();
    let mut ranks = ranks.ok_or_else(|| wrong("here", list, "addresses of some of the ring's workers, or none"))?;
    ranks.sort_unstable();
    ranks.dedup();
    if ranks.len() == workers.len() {
        return Err(wrong("here", list, "a part of the ring's workers (without it, all are here)"));
    }
    Ok(ranks)
}

/// `3s` or `2500ms`.
fn time(text: &str) -> Option<Duration> {
    let (number, unit) = text.strip_suffix("ms").map(|number| (number, 1)).or_else(|| Some((text.strip_suffix('s')?, 1_000)))?;
    let number: u64 = number.parse().ok()?;
    number.checked_mul(unit).filter(|ms| SILENCE_MS.contains(ms)).map(Duration::from_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_is_read_and_what_is_wrong_is_named() {
        let ring: RdmaRing = "7:f32:sum:10.0.0.1,10.0.0.2,10.0.0.3:window=4:payload=4096".parse().unwrap();
        assert_eq!((ring.ring, ring.workers.len(), ring.payload_bytes), (7, 3, 4_096));
        assert_eq!(ring.shape, MessageShape { window: 4, packets: 170 });
        let error = |text: &str| text.parse::<RdmaRing>().unwrap_err().to_string();
        assert_eq!(error("70000:f32:sum:10.0.0.1,10.0.0.2"), "`ring` is \"70000\" where a number below 65536 is expected");
        assert!(error("7:f33:sum:10.0.0.1,10.0.0.2").starts_with("`type` is \"f33\" where "));
        assert!(error("7:f32:xor:10.0.0.1,10.0.0.2").starts_with("`operator` is \"xor\" where "));
        assert_eq!(
            error("7:i32:sum:10.0.0.1,10.0.0.1"),
            "`workers` is \"10.0.0.1,10.0.0.1\" where 2 to 1024 different addresses is expected"
        );
        assert_eq!(
            error("7:i32:sum:10.0.0.1,::1"),
            "`workers` is \"10.0.0.1,\" where IPv4 addresses by rank, as 10.0.0.1,10.0.0.2 is expected"
        );
        assert_eq!(error("7:i32"), "`operator` is \"\" where an operator is expected");
        assert_eq!(
            error("7:i32:sum:10.0.0.1,10.0.0.2:payload=1000"),
            "`payload` is \"1000\" where 256, 512, 1024, 2048 or 4096 is expected"
        );
        assert_eq!(
            error("7:i32:sum:10.0.0.1,10.0.0.2:mtu=9"),
            "`option` is \"mtu=9\" where window=N, packets=N, payload=BYTES, silence=TIME or here=ADDRESS,.. is expected"
        );
        let here = |text: &str| format!("7:i32:sum:10.0.0.1,10.0.0.2,10.0.0.3:here={text}").parse::<RdmaRing>().map(|ring| ring.here);
        assert_eq!((here("10.0.0.3,10.0.0.1"), here("none")), (Ok(Some(vec![0, 2])), Ok(Some(vec![]))));
        for wrong in ["10.0.0.4", "", "10.0.0.1;10.0.0.2", "rank 1"] {
            let said = error(&format!("7:i32:sum:10.0.0.1,10.0.0.2,10.0.0.3:here={wrong}"));
            assert_eq!(said, format!("`here` is {wrong:?} where addresses of some of the ring's workers, or none is expected"));
        }
        assert!(error("7:i32:sum:10.0.0.1,10.0.0.2:here=10.0.0.1,10.0.0.2").contains("where a part of the ring's workers"));
        assert!(error("7:i32:sum:10.0.0.1,10.0.0.2:window=65").contains("1 to 64 messages"));
        let silence = |text: &str| format!("7:i32:sum:10.0.0.1,10.0.0.2{text}").parse::<RdmaRing>().map(|ring| ring.silence);
        assert_eq!(silence(""), Ok(Duration::from_ms(3_000)));
        assert_eq!((silence(":silence=5s"), silence(":silence=1500ms")), (Ok(Duration::from_ms(5_000)), Ok(Duration::from_ms(1_500))));
        for wrong in ["5", "0s", "900ms", "3601s", "-1s", "s", "18446744073709551615s"] {
            let said = error(&format!("7:i32:sum:10.0.0.1,10.0.0.2:silence={wrong}"));
            assert_eq!(said, format!("`silence` is {wrong:?} where 1s to 3600s, or 1000ms to 3600000ms is expected"));
        }
    }
}
