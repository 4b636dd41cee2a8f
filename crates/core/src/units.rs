//! How durations and sizes are written, wherever text is taken: in plans and settings, on command lines, in environment variables, in Python.
//!
//! A duration is a number and its unit (`300ns`, `1.5us`, `10ms`, `2s`, `5min`, `2h`), a size a number and its unit (`100kB`, `4MiB`); without a
//! unit a size is bytes. Whether a bare number is a duration too, and in which unit, is said where it is read.

use crate::Duration;

/// A unit's name and how many of the smallest unit it has.
pub type Unit = (&'static str, u64);

/// Units of sizes, in bytes.
pub const BYTE_UNITS: &[Unit] = &[
    ("", 1),
    ("B", 1),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

/// Units of durations, in picoseconds.
pub const TIME_UNITS: &[Unit] = &[
    ("ps", 1),
    ("ns", 1_000),
    ("us", 1_000_000),
    ("ms", 1_000_000_000),
    ("s", 1_000_000_000_000),
    ("min", 60_000_000_000_000),
    ("h", 3_600_000_000_000_000),
];

const RATE_UNITS: &[Unit] = &[("b/s", 1), ("kb/s", 1_000), ("Mb/s", 1_000_000), ("Gb/s", 1_000_000_000), ("Tb/s", 1_000_000_000_000)];

/// What is expected where a size is read.
pub const BYTES_EXPECTED: &str = "bytes, such as 1024, \"100kB\" or \"4MiB\"";

/// What is expected where a duration is read.
pub const TIME_EXPECTED: &str = "a time, such as \"300ns\", \"1.5us\", \"10ms\" or \"2s\"";

/// The quantity in the smallest unit; `None` where number or unit cannot be read, or the result is no whole number of 64 bits.
pub fn scaled(text: &str, units: &[Unit]) -> Option<u64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
    let (number, unit) = (text[..end].replace('_', ""), text[end..].trim());
    let scale = u128::from(units.iter().find(|(name, _)| *name == unit)?.1);
    let (whole, part) = number.split_once('.').unwrap_or((&number, ""));
    let whole_scaled = whole.parse::<u64>().ok().map(u128::from)?.checked_mul(scale)?;
    let part_scaled = match part {
        "" => 0,
        digits => {
            let divisor = 10u128.checked_pow(digits.len() as u32)?;
            let scaled = digits.parse::<u64>().ok().map(u128::from)?.checked_mul(scale)?;
            if scaled % divisor != 0 {
                return None;
            }
            scaled / divisor
        }
    };
    u64::try_from(whole_scaled.checked_add(part_scaled)?).ok()
}

/// The bytes that a text such as `4MiB` or `1024` means.
pub fn bytes_of(text: &str) -> Option<u64> {
    scaled(text, BYTE_UNITS)
}

/// The bits a second that a text such as `10Gb/s` means.
pub fn bits_per_s_of(text: &str) -> Option<u64> {
    scaled(text, RATE_UNITS)
}

/// The time that a text such as `300ns` means.
pub fn time_of(text: &str) -> Option<Duration> {
    scaled(text, TIME_UNITS).map(Duration::from_ps)
}

/// As [`time_of`], where a bare number (`5`, `0.25`) is allowed and means seconds. More than fits is the longest time that does.
pub fn time_or_seconds(text: &str) -> Option<Duration> {
    if let Some(time) = time_of(text) {
        return Some(time);
    }
    let seconds = text.trim().parse::<f64>().ok().filter(|seconds| *seconds >= 0.0)?;
    // The cast goes to the largest number where it does not fit.
    (seconds.is_finite() || seconds.is_infinite()).then(|| Duration::from_ns((seconds * 1e9) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_exact_and_wrong_units_are_none() {
        assert_eq!((bytes_of("4MiB"), bytes_of("1.5 KiB"), bytes_of("1024")), (Some(4 << 20), Some(1_536), Some(1_024)));
        assert_eq!((time_of("0.3us"), time_of("1_000ns")), (Some(Duration::from_ns(300)), Some(Duration::from_us(1))));
        assert_eq!((time_of("2min"), time_of("1.5h")), (Some(Duration::from_ms(120_000)), Some(Duration::from_ms(5_400_000))));
        for text in ["4 MB/s", "4mib", "0.3B", "", ".5KiB", "-1", "99999999999999999999"] {
            assert_eq!(bytes_of(text), None, "{text}");
        }
        for text in ["300", "", "1.2.3us", "-1us", "5 parsecs", "99999999999s", "1e3s"] {
            assert_eq!(time_of(text), None, "{text}");
        }
    }

    #[test]
    fn a_bare_number_is_seconds_only_where_that_is_asked_for() {
        for (text, ms) in [("5", 5_000), ("0.25", 250), ("1e1", 10_000), (" 5s ", 5_000), ("300ms", 300), ("0", 0)] {
            assert_eq!(time_or_seconds(text), Some(Duration::from_ms(ms)), "{text}");
        }
        assert_eq!(time_or_seconds("inf"), Some(Duration::from_ns(u64::MAX)), "as long as can be told");
        for text in ["-1", "nan", "5 parsecs", "", "1e3 s"] {
            assert_eq!(time_or_seconds(text), None, "{text}");
        }
    }
}
