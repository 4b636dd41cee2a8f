//! Errors that lead to a key of a plan, with its line and its value.

use std::fmt::Display;

use fanin_sim::scenario::SetupError;

use super::errors::PlanError;
use super::origin::Origin;
use super::tree::{Tree, parse_path};

/// Makes errors that lead to a key.
pub struct Refuse<'a> {
    /// The plan's file.
    pub file: &'a str,
    /// The plan, with the values of the point.
    pub tree: &'a Tree,
}

impl Refuse<'_> {
    /// The key has a value that does not do.
    pub fn say(&self, path: &str, value: impl Display, expected: impl Display) -> PlanError {
        let origin = self.tree.closest(&parse_path(path)).origin.clone();
        PlanError::new(self.file, format!("{path} = {value}: expected {expected}")).at(origin)
    }

    /// Where a key stands, or what it would stand in.
    pub fn origin(&self, path: &str) -> Origin {
        self.tree.closest(&parse_path(path)).origin.clone()
    }

    /// Whether the plan has the key.
    pub fn has(&self, path: &str) -> bool {
        self.tree.find(&parse_path(path)).is_some()
    }

    /// The same, with the value as it stands in the plan.
    pub fn at(&self, path: &str, expected: impl Display) -> PlanError {
        match self.tree.find(&parse_path(path)) {
            Some(value) => self.say(path, value, expected),
            None => {
                let origin = self.tree.closest(&parse_path(path)).origin.clone();
                PlanError::new(self.file, format!("{path} is missing: expected {expected}")).at(origin)
            }
        }
    }

    /// What the simulator refuses.
    pub fn setup(&self, error: &SetupError) -> PlanError {
        self.say(&error.field, &error.value, &error.expected)
    }
}
