//! Tables of TOML, read key by key: what is missing, wrong or unknown is an error that leads to its line.

use std::borrow::Cow;

use fanin_core::Duration;
use fanin_core::units::{BYTES_EXPECTED, TIME_EXPECTED, bytes_of, time_of};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::WorkloadError;

/// Line numbers of byte offsets.
pub struct Lines<'a> {
    file: &'a str,
    ends: Vec<usize>,
}

impl<'a> Lines<'a> {
    /// The lines of a text.
    pub fn new(file: &'a str, text: &str) -> Self {
        Lines { file, ends: text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect() }
    }

    /// The line at an offset in bytes, from 1.
    pub fn of(&self, offset: usize) -> u32 {
        self.ends.partition_point(|&end| end < offset) as u32 + 1
    }
}

/// A table of which keys are taken one by one; [`Keys::done`] refuses those that are left.
pub struct Keys<'t, 'd> {
    table: &'t DeTable<'d>,
    lines: &'t Lines<'t>,
    /// What the table is, for errors: `groups[2]`; empty for the whole file.
    place: String,
    /// Where the table begins.
    line: u32,
    known: Vec<&'static str>,
}

/// A value and where it stands.
pub struct Value<'t, 'd> {
    value: &'t Spanned<DeValue<'d>>,
    lines: &'t Lines<'t>,
    place: String,
}

impl<'t, 'd> Keys<'t, 'd> {
    /// The keys of a file.
    pub fn of_file(table: &'t DeTable<'d>, lines: &'t Lines<'t>) -> Self {
        Keys { table, lines, place: String::new(), line: 0, known: Vec::new() }
    }

    /// The line of the table.
    pub fn line(&self) -> u32 {
        self.line
    }

    /// An error of the whole table.
    pub fn refuse(&self, what: &str) -> WorkloadError {
        let place = if self.place.is_empty() { String::new() } else { format!("{}: ", self.place) };
        WorkloadError::new(self.lines.file, format!("{place}{what}")).at(u64::from(self.line))
    }

    /// The value of a key, where it is there.
    pub fn get(&mut self, key: &'static str) -> Option<Value<'t, 'd>> {
        if !self.known.contains(&key) {
            self.known.push(key);
        }
        let value = self.table.get(key)?;
        let place = if self.place.is_empty() { key.to_string() } else { format!("{}.{key}", self.place) };
        Some(Value { value, lines: self.lines, place })
    }

    /// The value of a key that must be there.
    ///
    /// # Errors
    /// It is missing.
    pub fn need(&mut self, key: &'static str, expected: &str) -> Result<Value<'t, 'd>, WorkloadError> {
        self.get(key).ok_or_else(|| self.refuse(&format!("{key} is missing: expected {expected}")))
    }

    /// Refuses keys that nobody asked for.
    ///
    /// # Errors
    /// The first of them.
    pub fn done(self) -> Result<(), WorkloadError> {
        let unknown = |key: &Spanned<Cow<'_, str>>| !self.known.contains(&key.get_ref().as_ref());
        match self.table.iter().map(|(key, _)| key).filter(|key| unknown(key)).min_by_key(|key| key.span().start) {
            None => Ok(()),
            Some(key) => {
                let place = if self.place.is_empty() { String::new() } else { format!("{}.", self.place) };
                let what = format!("{place}{}: no such key here: expected one of {}", key.get_ref(), self.known.join(", "));
                Err(WorkloadError::new(self.lines.file, what).at(u64::from(self.lines.of(key.span().start))))
            }
        }
    }
}

impl<'t, 'd> Value<'t, 'd> {
    /// The line of the value.
    pub fn line(&self) -> u32 {
        self.lines.of(self.value.span().start)
    }

    /// The value is not what is expected.
    pub fn refuse(&self, expected: impl std::fmt::Display) -> WorkloadError {
        let found = match self.value.get_ref() {
            DeValue::String(text) => format!("{text:?}"),
            DeValue::Integer(number) => number.to_string(),
            DeValue::Float(number) => number.to_string(),
            DeValue::Boolean(value) => value.to_string(),
            DeValue::Datetime(time) => time.to_string(),
            DeValue::Array(_) => "a list".into(),
            DeValue::Table(_) => "a table".into(),
        };
        WorkloadError::new(self.lines.file, format!("{} = {found}: expected {expected}", self.place)).at(u64::from(self.line()))
    }

    /// A text.
    ///
    /// # Errors
    /// It is none.
    pub fn text(&self, expected: &str) -> Result<&'t str, WorkloadError> {
        match self.value.get_ref() {
            DeValue::String(text) => Ok(text),
            _ => Err(self.refuse(expected)),
        }
    }

    /// True or false.
    ///
    /// # Errors
    /// It is neither.
    pub fn flag(&self) -> Result<bool, WorkloadError> {
        match self.value.get_ref() {
            DeValue::Boolean(value) => Ok(*value),
            _ => Err(self.refuse("true or false")),
        }
    }

    /// A whole number.
    ///
    /// # Errors
    /// It is none of 64 bits.
    pub fn integer(&self, expected: &str) -> Result<i64, WorkloadError> {
        match self.value.get_ref() {
            DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).map_err(|_| self.refuse(expected)),
            _ => Err(self.refuse(expected)),
        }
    }

    /// A whole number from `least` on that fits 32 bits.
    ///
    /// # Errors
    /// It is none.
    pub fn count(&self, least: u32) -> Result<u32, WorkloadError> {
        let expected = format!("a whole number of {least} or more that fits 32 bits");
        let number = self.integer(&expected)?;
        u32::try_from(number).ok().filter(|number| *number >= least).ok_or_else(|| self.refuse(expected))
    }

    /// Bytes: a number or a text with a unit.
    ///
    /// # Errors
    /// It is neither.
    pub fn bytes(&self) -> Result<u64, WorkloadError> {
        let bytes = match self.value.get_ref() {
            DeValue::String(text) => bytes_of(text),
            DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        };
        bytes.ok_or_else(|| self.refuse(BYTES_EXPECTED))
    }

    /// A time.
    ///
    /// # Errors
    /// It is none.
    pub fn time(&self) -> Result<Duration, WorkloadError> {
        self.text(TIME_EXPECTED).ok().and_then(time_of).ok_or_else(|| self.refuse(TIME_EXPECTED))
    }

    /// The values of a list.
    ///
    /// # Errors
    /// It is none.
    pub fn list(&self, expected: &str) -> Result<Vec<Value<'t, 'd>>, WorkloadError> {
        match self.value.get_ref() {
            DeValue::Array(items) => Ok(items
                .iter()
                .enumerate()
                .map(|(index, value)| Value { value, lines: self.lines, place: format!("{}[{index}]", self.place) })
                .collect()),
            _ => Err(self.refuse(expected)),
        }
    }

    /// The keys of a table.
    ///
    /// # Errors
    /// It is none.
    pub fn keys(&self, expected: &str) -> Result<Keys<'t, 'd>, WorkloadError> {
        match self.value.get_ref() {
            DeValue::Table(table) => {
                let line = self.line();
                Ok(Keys { table, lines: self.lines, place: self.place.clone(), line, known: Vec::new() })
            }
            _ => Err(self.refuse(expected)),
        }
    }
}
