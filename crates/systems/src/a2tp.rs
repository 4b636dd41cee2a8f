//! A2TP: its parameters. Its nodes are laid on a network as ATP's, with whom they share switches.

use fanin_core::{JobNodes, NetworkMap, NodeId, Payload};
use serde::{Deserialize, Serialize};

use crate::any::AnyNode;
use crate::atp::{self, AtpParameters, SafetyNets};
use crate::campaign::{JobSize, Load};
use crate::config::{BuildError, JobSpec};
use crate::facts::{AggregatorUse, Facts, KeyUse, KeysOf, Nodes, Unit, unit_of};
use crate::system::System;

pub(crate) use fanin_protocols::a2tp::{A2tpServer, A2tpWorker};
pub(crate) use fanin_wire::atp::LAYOUT;

/// Who makes the windows of a job (A2TP).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WindowRule {
    /// The server, for all workers alike.
    #[default]
    Agreed,
    /// Each worker its own, as in the paper: workers may differ.
    Own,
}

/// What collisions are a share of (A2TP).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CollisionRule {
    /// All packets of a round: a collision weighs the same for all jobs.
    #[default]
    Round,
    /// Those that went to aggregators, as in the paper: it weighs more for jobs with few of them.
    Aggregated,
    /// Those that an aggregator has summed up; switches share collisions out among the sums of all jobs, and average them.
    Shared,
}

/// What the windows of a job take for stragglers (A2TP).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SynchronyRule {
    /// How far the contributions of packets are apart where they are added up.
    #[default]
    Spread,
    /// How many acknowledgements are back within the shortest round trip, as in the paper: whatever makes rounds long counts.
    RoundTrip,
}

/// The parameters of A2TP: ATP with a window for aggregators of its own (a2tp 1 to 9).
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct A2tpParameters {
    /// As of ATP.
    pub aggregating: u32,
    /// As of ATP.
    pub aggregators: u32,
    /// First windows in packets; 0 for half of the job's window.
    pub initial: u32,
    /// As of ATP.
    pub reclaim_ps: u64,
    /// As of ATP.
    pub nets: SafetyNets,
    /// As of ATP.
    pub fixed_point: bool,
    /// As of ATP.
    pub overflow: f64,
    /// Who makes the windows.
    pub windows: WindowRule,
    /// H: the share of packets that may meet a collision before a job takes fewer aggregators.
    pub threshold: f64,
    /// w: the weight of the latest round in the average of collisions.
    pub collision_weight: f64,
    /// g: the weight of the latest round in the average of marks.
    pub mark_weight: f64,
    /// By how many packets the window for aggregators grows in a round.
    pub priority: f64,
    /// After so many rounds without a collision, or without a mark, a window grows by one packet more in each further one; 0: always by the same,
    /// as in the paper.
    pub quiet_rounds: u32,
    /// The window for aggregators never falls below this.
    pub aggregators_min: u32,
    /// Stragglers make no difference.
    pub fair: bool,
    /// Only packets whose aggregator another one wanted count as collisions, not those that found it taken.
    pub col_only: bool,
    /// What collisions are a share of.
    pub collisions: CollisionRule,
    /// What is taken for stragglers.
    pub synchrony: SynchronyRule,
}

impl Default for A2tpParameters {
    fn default() -> Self {
        let AtpParameters { aggregating, aggregators, initial, reclaim_ps, nets, fixed_point, overflow, .. } = AtpParameters::default();
        A2tpParameters {
            aggregating,
            aggregators,
            initial,
            reclaim_ps,
            nets,
            fixed_point,
            overflow,
            windows: WindowRule::Agreed,
            threshold: 0.15,
            collision_weight: 1.0 / 16.0,
            mark_weight: 1.0 / 16.0,
            priority: 1.0,
            quiet_rounds: 0,
            aggregators_min: 1,
            fair: false,
            col_only: false,
            collisions: CollisionRule::Round,
            synchrony: SynchronyRule::Spread,
        }
    }
}

impl System {
    /// A2TP as its paper has it: H = 0.15, w = g = 1/16, 450 aggregators.
    pub fn a2tp() -> Self {
        System::A2tp(A2tpParameters::default())
    }
}

impl Facts for A2tpParameters {
    fn limit_aggregating(&mut self, count: u32) {
        self.aggregating = count;
    }

    fn unit_of(&self, field: &str, is_float: bool) -> Unit {
        // Packets, as many as one likes.
        if field == "priority" { Unit::Plain } else { unit_of(field, is_float) }
    }

    fn servers(&self) -> u32 {
        1
    }

    fn obeys_marks(&self) -> bool {
        true
    }

    fn fixed_point(&self) -> bool {
        self.fixed_point
    }

    fn expect_real_elements(&mut self) {
        self.overflow = 0.0;
    }

    fn overflow(&self) -> f64 {
        self.overflow
    }

    // When a job has ended its switches are told, and keep nothing of it.
    fn leaves_nothing(&self, _reliable: bool) -> bool {
        true
    }

    fn switch_slots(&self, _window: u32) -> u64 {
        u64::from(self.aggregators)
    }

    fn shares_slots(&self) -> bool {
        true
    }

    fn slots_key(&self) -> &'static str {
        "aggregators"
    }

    fn aggregators(&self) -> Option<AggregatorUse> {
        Some(AggregatorUse::Shares(&["aggregators"]))
    }

    fn set_aggregators(&mut self, count: u32) {
        self.aggregators = count;
    }

    fn idle_keys(&self, _job: &KeysOf) -> Vec<KeyUse> {
        atp::idle_keys(self.aggregating, self.fixed_point)
    }

    // As of ATP.
    fn load(&self, job: &JobSize) -> Load {
        Load::of(job, job.workers)
    }
}

impl Nodes for A2tpParameters {
    fn nodes<P: Payload + ?Sized>(&self, spec: &JobSpec<'_, P::Op>, map: &NetworkMap) -> Result<JobNodes<AnyNode<P>>, BuildError> {
        atp::nodes(spec, map)
    }

    fn admit<P: Payload + ?Sized>(
        node: &mut AnyNode<P>,
        switch: NodeId,
        spec: &JobSpec<'_, P::Op>,
        map: &NetworkMap,
    ) -> Result<bool, BuildError> {
        match node {
            AnyNode::AtpSwitch(node) => atp::admit(node, switch, spec, map),
            _ => Ok(false),
        }
    }
}
