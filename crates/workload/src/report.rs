//! What an importer says beside its result: what was taken, what was left out and where, and what it had to assume.

use crate::error::printable;

/// What an importer did with its files.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// The format, for people.
    pub format: String,
    /// What was left out, by reason.
    pub left_out: Vec<LeftOut>,
    /// What the files do not say and was assumed.
    pub assumed: Vec<String>,
}

/// Things that were left out for the same reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeftOut {
    /// What, and why.
    pub what: String,
    /// How many.
    pub count: u64,
    /// The first of them: the file with the line or the node.
    pub first: String,
}

/// Bytes of a reason or a place at most: names in files may be as long as the files.
const WORDS_MAX: usize = 300;

/// Reasons at most; what is left out beyond them is counted together.
const REASONS_MAX: usize = 64;

impl Report {
    /// An empty report.
    pub fn new(format: &str) -> Self {
        Report { format: format.to_string(), ..Report::default() }
    }

    /// Counts something that is left out.
    pub fn leave(&mut self, what: impl Into<String>, first: impl FnOnce() -> String) {
        self.leave_many(what, 1, first);
    }

    /// Counts several things that are left out.
    pub fn leave_many(&mut self, what: impl Into<String>, count: u64, first: impl FnOnce() -> String) {
        if count == 0 {
            return;
        }
        let mut what = printable(&what.into(), WORDS_MAX);
        if self.left_out.len() >= REASONS_MAX && !self.left_out.iter().any(|one| one.what == what) {
            what = "others, for more reasons than are told apart".into();
        }
        match self.left_out.iter_mut().find(|one| one.what == what) {
            Some(one) => one.count += count,
            None => self.left_out.push(LeftOut { what, count, first: printable(&first(), WORDS_MAX) }),
        }
    }

    /// Notes what is assumed, once.
    pub fn assume(&mut self, what: impl Into<String>) {
        let what = printable(&what.into(), WORDS_MAX);
        if !self.assumed.contains(&what) {
            self.assumed.push(what);
        }
    }

    /// How much was left out, in all.
    pub fn left_out_count(&self) -> u64 {
        self.left_out.iter().map(|one| one.count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_counted_by_reason_with_the_first_place() {
        let mut report = Report::new("x");
        report.leave("gather", || "a:1".into());
        report.leave("gather", || "a:2".into());
        report.leave_many("scatter", 0, || "a:3".into());
        assert_eq!(report.left_out, [LeftOut { what: "gather".into(), count: 2, first: "a:1".into() }]);
        let mut other = Report::new("x");
        other.leave("a\u{1b}[2J", || "b\n".repeat(1_000));
        other.assume("c\u{7}");
        assert_eq!((other.left_out[0].what.as_str(), other.assumed[0].as_str()), ("a\\u{1b}[2J", "c\\u{7}"));
        assert!(other.left_out[0].first.starts_with("b\\nb") && other.left_out[0].first.len() < 600);
        (0..100).for_each(|number| report.leave(number.to_string(), String::new));
        assert_eq!((report.left_out.len(), report.left_out_count()), (REASONS_MAX + 1, 102));
    }
}
