//! Quantities with units, as plans write them: `"4MiB"`, `"100Gb/s"`, `"300ns"`, `"50%"`.

use std::fmt;

use fanin_core::Duration;
pub use fanin_core::units::bytes_of;
use fanin_core::units::{BYTE_UNITS, BYTES_EXPECTED, TIME_EXPECTED, scaled, time_of};
use fanin_systems::UNLIMITED;
use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};

/// A number of bytes: `1024` or `"4MiB"`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bytes(pub u64);

/// A rate in bits per second: `"100Gb/s"`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate(pub u64);

/// A rate in bits per second that may be 0: `"20Gb/s"`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RateOrNone(pub u64);

/// Packets per second: `"26.7Mp/s"`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketRate(pub u64);

/// A span of time: `"300ns"`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Time(pub Duration);

/// A number or a share of a whole: `512` or `"50%"`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Amount {
    /// So many.
    Count(u32),
    /// So much of the whole, from 0 to 1.
    Share(f64),
}

/// A probability or share from 0 to 1: `0.01` or `"1%"`.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Fraction(pub f64);

/// A whole number of 1 or more that fits 32 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Count(pub u32);

/// Packets under way at most: `512` or `"unlimited"`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window(pub u32);

const RATE_UNITS: &[(&str, u64)] =
    &[("b/s", 1), ("kb/s", 1_000), ("Mb/s", 1_000_000), ("Gb/s", 1_000_000_000), ("Tb/s", 1_000_000_000_000)];

const PACKET_RATE_UNITS: &[(&str, u64)] = &[("p/s", 1), ("kp/s", 1_000), ("Mp/s", 1_000_000), ("Gp/s", 1_000_000_000)];

/// Reads a quantity from a text and, where `number` allows it, from a bare number.
struct Quantity<T> {
    expected: &'static str,
    text: fn(&str) -> Option<T>,
    integer: fn(u64) -> Option<T>,
    float: fn(f64) -> Option<T>,
}

impl<T> Visitor<'_> for Quantity<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.text)(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<T, E> {
        (self.integer)(value).ok_or_else(|| E::invalid_value(Unexpected::Unsigned(value), &self))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<T, E> {
        (self.float)(value).ok_or_else(|| E::invalid_value(Unexpected::Float(value), &self))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Quantity {
            expected: BYTES_EXPECTED,
            text: |text| scaled(text, BYTE_UNITS).map(Bytes),
            integer: |value| Some(Bytes(value)),
            float: |_| None,
        })
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Quantity {
            expected: "bits per second from 1kb/s to 100Tb/s, such as \"100Gb/s\"",
            text: |text| scaled(text, RATE_UNITS).filter(|rate| (1_000..=100_000_000_000_000).contains(rate)).map(Rate),
            integer: |_| None,
            float: |_| None,
        })
    }
}

impl<'de> Deserialize<'de> for RateOrNone {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Quantity {
            expected: "bits per second up to 100Tb/s, such as \"20Gb/s\" or \"0Gb/s\"",
            text: |text| scaled(text, RATE_UNITS).filter(|rate| *rate == 0 || (1_000..=100_000_000_000_000).contains(rate)).map(RateOrNone),
            integer: |_| None,
            float: |_| None,
        })
    }
}

impl<'de> Deserialize<'de> for PacketRate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Quantity {
            expected: "packets per second from 1kp/s to 100Gp/s, such as \"26.7Mp/s\"",
            text: |text| scaled(text, PACKET_RATE_UNITS).filter(|rate| (1_000..=100_000_000_000).contains(rate)).map(PacketRate),
            integer: |_| None,
            float: |_| None,
        })
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Quantity {
            expected: TIME_EXPECTED,
            text: |text| time_of(text).map(Time),
            integer: |_| None,
            float: |_| None,
        })
    }
}

/// A number or percentage from 0 to 1.
fn fraction(text: &str) -> Option<f64> {
    let value = match text.trim().strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().ok()? / 100.0,
        None => return None,
    };
    (0.0..=1.0).contains(&value).then_some(value)
}

impl<'de> Deserialize<'de> for Fraction {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Quantity {
            expected: "a number from 0 to 1 or a percentage, such as 0.01 or \"1%\"",
            text: |text| fraction(text).map(Fraction),
            integer: |value| (value <= 1).then_some(Fraction(value as f64)),
            float: |value| (0.0..=1.0).contains(&value).then_some(Fraction(value)),
        })
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Quantity {
            expected: "a whole number of 1 or more or a percentage, such as 512 or \"50%\"",
            text: |text| fraction(text).map(Amount::Share),
            integer: |value| u32::try_from(value).ok().filter(|count| *count > 0).map(Amount::Count),
            float: |_| None,
        })
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Quantity {
            expected: "a whole number of 1 or more",
            text: |_| None,
            integer: |value| u32::try_from(value).ok().filter(|count| *count > 0).map(Count),
            float: |_| None,
        })
    }
}

impl<'de> Deserialize<'de> for Window {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Quantity {
            expected: "a whole number of 1 or more, or \"unlimited\"",
            text: |text| (text == "unlimited").then_some(Window(UNLIMITED)),
            integer: |value| u32::try_from(value).ok().filter(|count| *count > 0 && *count < UNLIMITED).map(Window),
            float: |_| None,
        })
    }
}

/// A number of bytes for people: whole KiB, MiB and GiB where that is exact.
pub fn bytes_text(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        _ if bytes.is_multiple_of(1 << 30) => format!("{} GiB", bytes >> 30),
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

/// About how many bytes, for estimates: `1.5 GiB`.
pub fn bytes_about(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let place = (bytes.max(1).ilog2() / 10) as usize;
    let scaled = bytes as f64 / (1u64 << (10 * place)) as f64;
    let text = if scaled < 10.0 { format!("{scaled:.1}") } else { format!("{scaled:.0}") };
    format!("{} {}", text.strip_suffix(".0").unwrap_or(&text), UNITS[place])
}

/// The share that a text such as `50%` means, for axes of plots.
pub fn fraction_of(text: &str) -> Option<f64> {
    fraction(text)
}

/// The microseconds that a text such as `300ns` means, for axes of plots.
pub fn microseconds_of(text: &str) -> Option<f64> {
    time_of(text).map(|time| time.as_ps() as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanin_core::units::TIME_UNITS;

    #[test]
    fn quantities_are_exact_and_wrong_units_are_none() {
        assert_eq!(scaled("4MiB", BYTE_UNITS), Some(4 << 20));
        assert_eq!(scaled("1.5 KiB", BYTE_UNITS), Some(1536));
        assert_eq!(scaled("100 Gb/s", RATE_UNITS), Some(100_000_000_000));
        assert_eq!(scaled("0.3us", TIME_UNITS), Some(300_000));
        assert_eq!(scaled("1_000ns", TIME_UNITS), Some(1_000_000));
        assert_eq!(scaled("26.7Mp/s", PACKET_RATE_UNITS), Some(26_700_000));
        for (text, units) in [
            ("4 MB/s", BYTE_UNITS),
            ("4mib", BYTE_UNITS),
            ("0.3B", BYTE_UNITS),
            ("100GB/s", RATE_UNITS),
            ("300", TIME_UNITS),
            ("", BYTE_UNITS),
            (".5KiB", BYTE_UNITS),
            ("1.2.3us", TIME_UNITS),
            ("-1us", TIME_UNITS),
            ("99999999999999999999", BYTE_UNITS),
            ("99999999999s", TIME_UNITS),
        ] {
            assert_eq!(scaled(text, units), None, "{text}");
        }
        assert_eq!(fraction("50%"), Some(0.5));
        assert_eq!(fraction("150%"), None);
        assert_eq!(bytes_text(4 << 20), "4 MiB");
        assert_eq!(bytes_text(1500), "1500 B");
        let about = [0, 1500, 4 << 30, (19 << 30) / 10, u64::MAX].map(bytes_about);
        assert_eq!(about, ["0 B", "1.5 KiB", "4 GiB", "1.9 GiB", "16 EiB"]);
    }
}
