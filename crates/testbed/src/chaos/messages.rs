//! What the process of a rank is told, and what it says: a line of JSON each.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::scenario::{Call, Noise};

/// What a rank is, in its first line.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Setup {
    /// Variables as of an environment: where to join, and as what.
    pub variables: BTreeMap<String, String>,
    /// Of the job's vectors.
    pub seed: u64,
    /// What it does to packets.
    pub noise: Noise,
    /// Of this.
    pub noise_seed: u64,
    /// What it calls, again and again.
    pub calls: Vec<Call>,
    /// What it does between two calls besides, in ms.
    pub pause_ms: u64,
}

/// What a rank is told later.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// It may do so many calls, counted from the first.
    Until(u64),
    /// There are no more than it may do.
    NoMore,
    /// Everybody has what there is to have: it may leave.
    Leave,
}

/// What a rank says.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// All ranks have joined.
    Joined {
        /// How vectors travel, in words.
        path: String,
    },
    /// So many calls are done and exact. Not every call is told of.
    Done {
        /// How many.
        calls: u64,
    },
    /// It has done all that it may ever do.
    Finished {
        /// How many.
        calls: u64,
    },
    /// A call has ended with a result that it must not have.
    Wrong {
        /// Which, from 0.
        call: u64,
        /// How many elements are wrong.
        elements: u64,
        /// The first of them, with what it is and what it must be.
        first: String,
    },
    /// Joining or a call has ended with an error.
    Failed {
        /// Which, from 0; `None` where it was joining.
        call: Option<u64>,
        /// The error's text.
        text: String,
        /// The error's kind, in a word.
        kind: String,
        /// Who is to blame, as far as is known.
        suspect: Option<u32>,
        /// How long the call took until then.
        after_ms: u64,
    },
    /// The library tells something.
    Notice {
        /// What.
        text: String,
    },
    /// It has left, and this is what is still there of what joining brought along.
    Left {
        /// Threads more than before it joined.
        threads: i64,
        /// Descriptors more than before it joined.
        descriptors: i64,
        /// The names of all its threads, where something is.
        names: Vec<String>,
    },
}
