//! A job of a plan, on its hosts.

use std::sync::Arc;

use fanin_core::{Cells, ElementOp, JobId, NodeId, PayloadOp};
use fanin_operator::{CustomOperator, Faults};
use fanin_systems::{JobSpec, LongestWay, System};

use crate::reading::tree::Tree;
use crate::schema::Job;

/// The indices of each rank.
pub type Indices = Arc<[Box<[u64]>]>;

/// One job, placed.
#[derive(Clone, Debug)]
pub struct PreparedJob {
    /// Its place among the plan's `[[jobs]]`, with those of files.
    pub entry: usize,
    /// The same without them: jobs of a file share it.
    pub listed: usize,
    /// Its system.
    pub system: System,
    /// The hosts of its workers, by rank.
    pub hosts: Vec<NodeId>,
    /// The hosts of its servers; empty for systems that have none.
    pub servers: Vec<NodeId>,
    /// Element type and operator; sums, where the job brings its own operator along.
    pub op: ElementOp,
    /// The operator that it brings along.
    pub operator: Option<CustomOperator>,
    /// Where that says why it failed.
    pub faults: Faults,
    /// Where floats are summed as integers: how these travel.
    pub cells: Option<Cells>,
    /// Indices at which each rank has something, where they are given.
    pub indices: Option<Indices>,
    /// What the plan says of it.
    pub settings: Job,
    /// Its table in the plan, for errors.
    pub table: Tree,
}

/// Changes a system, but for the keys that are given.
type Change<'a> = dyn Fn(System, &dyn Fn(&str) -> bool) -> System + 'a;

impl PreparedJob {
    /// The slowest link of its hosts has this rate in bits per second: its systems follow it, but for what its table gives.
    pub fn follow_rate(&mut self, bits_per_second: u64) {
        self.follow(&|system, is_given| system.at_rate(bits_per_second, is_given));
    }

    /// Hosts of its network are so far apart: its systems follow that, after the rate, but for what its table gives.
    pub fn follow_ways(&mut self, longest: &dyn Fn() -> LongestWay) {
        self.follow(&|system, is_given| system.on_ways(longest, is_given));
    }

    /// Switches look at so many entries of their arrays in a second for timers that have expired, but for what its table gives.
    pub fn follow_scan(&mut self, entries_per_second: u32) {
        self.follow(&|system, is_given| system.scanned(entries_per_second, is_given));
    }

    fn follow(&mut self, change: &Change<'_>) {
        let given = |table: Option<&Tree>, key: &str| table.is_some_and(|table| table.get(key).is_some());
        let own = Some(&self.table);
        self.system = change(self.system, &|key| given(own, key));
        let groups = self.table.get("groups");
        for (name, system) in &mut self.settings.groups {
            let table = groups.and_then(|groups| groups.get(name)).or_else(|| self.table.get("across"));
            *system = change(*system, &|key| given(table, key));
        }
    }

    /// What its values are reduced by, where the plan says it.
    pub fn operator_name(&self) -> Option<String> {
        let named = self.settings.common.operator.as_ref()?;
        Some(self.operator.as_ref().map_or_else(|| named.clone(), |own| format!("{} (sha256 {})", own.name(), own.digest())))
    }

    /// What real elements are reduced by.
    pub fn payload_op(&self) -> PayloadOp {
        if let Some(cells) = self.cells {
            return cells.payload_op();
        }
        self.operator.as_ref().map_or_else(|| self.op.into(), |operator| operator.payload_op(&self.faults))
    }

    /// Bytes of an element on the wire.
    pub fn wire_bytes(&self) -> u32 {
        self.cells.map_or(self.op.dtype.bytes(), |cells| cells.bytes()) as u32
    }

    /// As its system has it, but for its number and its seed.
    pub fn spec<Op>(&self, op: Op) -> JobSpec<'_, Op> {
        let common = &self.settings.common;
        JobSpec {
            id: JobId(0),
            hosts: &self.hosts,
            servers: &self.servers,
            system: self.system,
            op,
            element_bytes: self.wire_bytes(),
            payload_bytes: common.payload.0 as u32,
            window: common.window.0,
            reliable: common.reliable,
            rto_initial: common.rto_initial.0,
            rto_min: common.rto_min.0,
            patience: common.patience.0,
            seed: 0,
        }
    }
}
