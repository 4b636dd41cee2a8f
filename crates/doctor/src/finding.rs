//! One line of the result.

use std::fmt::Write as _;

use serde::Serialize;

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// As it should be.
    Ok,
    /// Works, but slower or less safely than it could.
    Warning,
    /// Does not work.
    Problem,
}

impl Level {
    const fn name(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Problem => "problem",
        }
    }
}

/// What was found about one thing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub check: &'static str,
    /// How bad it is.
    pub level: Level,
    /// What was found, in words.
    pub text: String,
    /// The command that mends it; missing where all is well.
    pub mend: Option<String>,
}

impl Finding {
    /// All is well.
    pub fn ok(check: &'static str, text: impl Into<String>) -> Self {
        Finding { check, level: Level::Ok, text: text.into(), mend: None }
    }

    /// Could be better.
    pub fn warning(check: &'static str, text: impl Into<String>, mend: impl Into<String>) -> Self {
        Finding { check, level: Level::Warning, text: text.into(), mend: Some(mend.into()) }
    }

    /// Does not work.
    pub fn problem(check: &'static str, text: impl Into<String>, mend: impl Into<String>) -> Self {
        Finding { check, level: Level::Problem, text: text.into(), mend: Some(mend.into()) }
    }
}

/// The result for people.
pub fn text(findings: &[Finding]) -> String {
    let width = findings.iter().map(|finding| finding.check.len()).max().unwrap_or(0);
    let mut out = String::new();
    for finding in findings {
        let _ = writeln!(out, "{:<7}  {:<width$}  {}", finding.level.name(), finding.check, finding.text);
        if let Some(mend) = &finding.mend {
            let _ = writeln!(out, "{:<7}  {:<width$}  mend it: {mend}", "", "");
        }
    }
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    let plural = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let _ = writeln!(out, "\n{}, {}", plural(count(Level::Problem), "problem"), plural(count(Level::Warning), "warning"));
    out
}

/// The result for programs.
pub fn json(findings: &[Finding]) -> String {
    let ok = findings.iter().all(|finding| finding.level != Level::Problem);
    serde_json::json!({ "ok": ok, "findings": findings }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_followed_by_what_mends_it_and_the_end_counts() {
        let findings =
            [Finding::ok("a", "fine"), Finding::problem("long name", "broken", "do this"), Finding::warning("b", "slow", "do that")];
        let expected = "\
ok       a          fine
problem  long name  broken
                    mend it: do this
warning  b          slow
                    mend it: do that

1 problem, 1 warning
";
        assert_eq!(text(&findings), expected);
    }

    #[test]
    fn only_problems_make_the_result_bad() {
        let parse = |findings: &[Finding]| serde_json::from_str::<serde_json::Value>(&json(findings)).unwrap();
        let warned = parse(&[Finding::warning("b", "slow", "do that")]);
        assert_eq!((&warned["ok"], &warned["findings"][0]["level"]), (&true.into(), &"warning".into()));
        assert_eq!(parse(&[Finding::problem("a", "broken", "x")])["ok"], false);
    }
}
