//! What the checker has looked at: a line of JSON for each model, at the end of the file that `FANIN_MODELS` names. `scripts/models_table.py` makes
//! docs/models.md from it.

use std::fs::OpenOptions;
use std::io::Write;
use std::time::Duration;

use fanin_check::model::Summary;
use serde::Serialize;

/// What came of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// In all states.
    Holds,
    /// There is a counterexample, as it has to be.
    Breaks,
}

/// A rule as a paper's text has it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Literal {
    /// Where it stands: a clause of the paper or of the specification.
    pub clause: &'static str,
    /// What it says.
    pub says: &'static str,
    /// What is done in its place.
    pub instead: &'static str,
}

/// A model that was looked at.
#[derive(Debug, Serialize)]
pub struct Record<'a> {
    /// The test: its module and name.
    pub test: String,
    /// Of the model, in its test.
    pub name: &'a str,
    #[serde(flatten)]
    pub summary: Summary,
    pub verdict: Verdict,
    pub properties: &'a [&'static str],
    /// Different states, and the longest of the shortest paths to them.
    pub states: usize,
    pub depth: usize,
    pub seconds: f64,
    /// The counterexample, step by step.
    pub steps: Vec<String>,
    /// What breaks is a paper's rule, and no bug put in.
    pub literal: Option<Literal>,
}

impl<'a> Record<'a> {
    pub fn new(
        name: &'a str,
        summary: Summary,
        properties: &'a [&'static str],
        (states, depth, took): (usize, usize, Duration),
    ) -> Record<'a> {
        let test = std::thread::current().name().unwrap_or("?").to_string();
        let seconds = (took.as_secs_f64() * 100.0).round() / 100.0;
        Record { test, name, summary, verdict: Verdict::Holds, properties, states, depth, seconds, steps: Vec::new(), literal: None }
    }

    pub fn broken_by(self, steps: Vec<String>, literal: Option<Literal>) -> Record<'a> {
        Record { verdict: Verdict::Breaks, steps, literal, ..self }
    }

    /// Writes it, if somebody asked for it.
    pub fn write(&self) {
        println!("{}: {} states", self.name, self.states);
        let Some(path) = std::env::var_os("FANIN_MODELS") else { return };
        let line = serde_json::to_string(self).expect("a record is JSON") + "\n";
        let file = OpenOptions::new().create(true).append(true).open(path);
        // One write, so that lines of tests that run beside each other do not mix.
        file.and_then(|mut file| file.write_all(line.as_bytes())).expect("FANIN_MODELS: a file that can be written");
    }
}
