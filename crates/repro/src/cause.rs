//! The schema of causes.

use serde::Deserialize;

use super::verdict::Verdict;

/// `[[causes]]`: one cause. Exactly one of `set`, `reading` and `plan` says what is changed, one of `verdict` and `moves` what must come
/// out.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cause {
    /// Its name within the figure.
    pub id: String,
    /// What is said to be the cause.
    pub text: String,
    /// The claims that it is a cause for.
    pub claims: Vec<String>,
    /// Changes of the plan, each a `KEY=VALUE` as for `--set`.
    #[serde(default)]
    pub set: Vec<String>,
    /// Another reading of the text.
    pub reading: Option<String>,
    /// Another plan, a file beside `plan.toml`.
    pub plan: Option<String>,
    /// The verdict that the change must bring to each of the claims.
    pub verdict: Option<Verdict>,
    /// Which way the change must move what each of the claims measures.
    pub moves: Option<Direction>,
    /// By how much at least, as a share of what both are on average.
    pub margin: Option<f64>,
}

/// Which way a number moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// It grows; of an order, the difference does.
    Up,
    /// It falls.
    Down,
}

impl Cause {
    /// What is changed, in words.
    pub fn change(&self) -> String {
        match (&self.reading, &self.plan) {
            (Some(reading), _) => format!("{reading} reading"),
            (_, Some(plan)) => plan.clone(),
            _ => self.set.join(", "),
        }
    }

    /// What must come out, in words.
    pub fn wanted(&self) -> String {
        match (self.verdict, self.moves) {
            (Some(verdict), _) => verdict.text().into(),
            (_, Some(Direction::Up)) => "up".into(),
            (_, Some(Direction::Down)) => "down".into(),
            _ => String::new(),
        }
    }
}
