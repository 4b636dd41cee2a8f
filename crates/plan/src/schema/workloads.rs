//! `workload`: what ranks compute and communicate, in place of one vector.

use std::collections::{BTreeMap, BTreeSet};

use fanin_workload::{Checked, Workload};
use serde::Deserialize;

/// `workload`: the name of a file, from the plan's folder on; a table with a model; or a table that is a workload itself, as files have it.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(untagged, expecting = "the name of a file, a table with a model, or a workload")]
pub enum WorkloadFrom {
    /// A file.
    File(String),
    /// A table: what is in it is read when it is loaded.
    Table(BTreeMap<String, serde_json::Value>),
}

/// A workload in which all holds.
#[derive(Debug)]
pub struct Source {
    /// The workload.
    pub workload: Workload,
    /// What is known of it.
    pub checked: Checked,
}

impl Source {
    /// Whether some host has several ranks.
    pub fn shares_hosts(&self) -> bool {
        let mut seen = BTreeSet::new();
        !(0..self.workload.ranks).all(|rank| seen.insert(self.workload.hosts.of(rank)))
    }
}
