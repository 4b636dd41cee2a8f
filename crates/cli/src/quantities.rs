//! Durations and sizes on the command line: written as everywhere ([`fanin_core::units`]), and refused in the same words.

use fanin_core::units;
use fanin_plan::units::Rate;
use serde::Deserialize;
use serde::de::value::{self, StrDeserializer};

/// The longest vector that is taken.
const BYTES_MAX: u64 = 16 << 30;

/// A time in seconds, `2s` or `300ms`; a bare number is seconds.
pub fn seconds(text: &str) -> Result<f64, String> {
    let time = units::time_or_seconds(text).ok_or_else(|| format!("expected {}; a bare number is seconds", units::TIME_EXPECTED))?;
    Ok(time.as_ps() as f64 / 1e12)
}

/// A time in microseconds, `20us` or `2ms`; a bare number is microseconds.
pub fn microseconds(text: &str) -> Result<f64, String> {
    let time = units::time_of(text).map(|time| time.as_ps() as f64 / 1e6);
    let bare = || text.trim().parse::<f64>().ok().filter(|value| (0.0..=1e9).contains(value));
    time.or_else(bare).ok_or_else(|| format!("expected {}; a bare number is microseconds", units::TIME_EXPECTED))
}

/// A rate in bits per second, `100Gb/s`, as in plans.
pub fn rate(text: &str) -> Result<u64, String> {
    let read: Result<Rate, value::Error> = Rate::deserialize(StrDeserializer::new(text));
    read.map(|Rate(rate)| rate).map_err(|error| error.to_string())
}

/// A number of bytes, `64MiB` or `4096`.
pub fn bytes(text: &str) -> Result<u64, String> {
    let bytes = units::bytes_of(text).ok_or_else(|| format!("expected {}", units::BYTES_EXPECTED))?;
    if bytes <= BYTES_MAX { Ok(bytes) } else { Err("larger than 16 GiB".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_are_read_with_their_units_and_refused_with_what_is_expected() {
        assert_eq!((seconds("2s"), seconds("0.5"), seconds("250ms")), (Ok(2.0), Ok(0.5), Ok(0.25)));
        assert_eq!((microseconds("20"), microseconds("20us"), microseconds("1.5ms")), (Ok(20.0), Ok(20.0), Ok(1_500.0)));
        assert_eq!((bytes("64MiB"), bytes("4096"), bytes("100kB")), (Ok(64 << 20), Ok(4_096), Ok(100_000)));
        assert!(seconds("2 parsecs").unwrap_err().starts_with("expected a time, such as"));
        assert!(microseconds("-1").unwrap_err().ends_with("a bare number is microseconds"));
        assert!(bytes("64mib").unwrap_err().starts_with("expected bytes, such as 1024"));
        assert!(bytes("99999999GiB").is_err());
        assert_eq!((rate("100Gb/s"), rate("1.5Mb/s")), (Ok(100_000_000_000), Ok(1_500_000)));
        assert!(rate("100").unwrap_err().contains("bits per second from 1kb/s to 100Tb/s"), "{:?}", rate("100"));
    }
}
