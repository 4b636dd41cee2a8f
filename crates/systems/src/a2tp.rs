//! A2TP: its parameters. Its nodes are laid on a network as ATP's, with whom they share switches.

use fanin_core::{ElementOp, JobNodes, NetworkMap, NodeId, Payload};
use fanin_protocols::a2tp::{A2tpRounds, A2tpWindows};
use fanin_protocols::shared::aggregation::WorkerConfig;
use fanin_protocols::shared::real::Real;
use fanin_protocols::shared::two_windows::{CollisionsOf, Synchrony, TwoWindowConfig};
use serde::{Deserialize, Serialize};

use crate::aggregation::{Aggregation, SafetyNets};
use crate::any::AnyNode;
use crate::atp::{AtpParameters, admit, idle_keys, initial, nodes, places, share, window_of_server};
use crate::campaign::{Campaign, DrawnJob, JobSize, Load};
use crate::config::{BuildError, JobSpec};
use crate::draw::Draw;
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
    /// Those that an aggregator has summed up; switches share collisions out among the sums of all jobs, and average them. A job with a straggler is
    /// told of its own alone.
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
    /// How many of the switches next to workers, or to the server, aggregate: those with the most workers of the job first, then those with the
    /// lowest numbers; all others only forward. 0 makes Rina a ring, and leaves all sums of ATP to the server.
    ///
    /// Default: all.
    pub aggregating: u32,
    /// Aggregators of each switch next to hosts, for all jobs of both systems together; or `network.aggregators` (`a2tp 3`).
    pub aggregators: u32,
    /// The initial window in packets; 0 for the default.
    ///
    /// Default: half of `window`.
    pub initial: u32,
    /// Another job may take an aggregator after this time of silence.
    pub reclaim_ps: u64,
    /// How stuck fragments in a switch are released: the server has them flushed; `"paper"`: workers retransmit them.
    pub nets: SafetyNets,
    /// 32-bit floats travel as integers with one scale; packets with larger values go as floats through the server (`a2tp 5.8`).
    pub fixed_point: bool,
    /// With `fixed_point`: the share of packets whose values are too large at one worker.
    pub overflow: f64,
    /// The server computes the windows of all workers; `"own"`: each worker its own, as in the paper.
    pub windows: WindowRule,
    /// The share of packets, H, that may collide before a job uses fewer aggregators.
    pub threshold: f64,
    /// The weight, w, of the latest round in the average of collisions.
    ///
    /// Default: 1/16.
    pub collision_weight: f64,
    /// The weight, g, of the latest round in the average of marks.
    ///
    /// Default: 1/16.
    pub mark_weight: f64,
    /// How many packets the aggregator window grows per round. With `collisions = "shared"`, of two jobs that contend for 450 aggregators, one with
    /// priority 2 had 2.7 times the window of the other, with 4 it had 3.4 times, where 450 is the maximum (`experiments/a2tp/fairness_jobs`).
    /// Under the other rules, two jobs that run for more than some hundred round trips drift apart at any priority. With enough aggregators the key
    /// makes no difference.
    pub priority: f64,
    /// After so many rounds without a collision the aggregator window grows by one packet more in each further round, until it meets one, and the
    /// link window without marks likewise; 0: always by one, or by `priority`, as in the paper.
    pub quiet_rounds: u32,
    /// The aggregator window never falls below this, however late the job's stragglers are; without it, such a job continues through its server.
    pub aggregators_min: u32,
    /// Jobs with stragglers do not give up aggregators for that: they keep up to twice as many as otherwise, though not all that they would have in
    /// step. All jobs of a switch should have the same value.
    pub fair: bool,
    /// Only packets whose aggregator another packet wanted count as collisions, not those that found it taken.
    pub col_only: bool,
    /// Collisions count as a share of all packets of a round, so that they weigh the same for all jobs; `"aggregated"`: of the packets that went to
    /// aggregators, as in the paper; `"shared"`: switches report collisions on the sums of any job that leave them, and average them,
    /// but report those with a job with a straggler to that job only (`collision_weight` and `col_only` then have no effect). Under the other rules
    /// two equal jobs are bistable: one of them ends up with three times the other's goodput. Only with `"shared"` do they share equally whenever
    /// they start. All jobs of a switch should have the same value.
    pub collisions: CollisionRule,
    /// Straggling is measured by how long contributions wait for each other where they are added; `"round-trip"`: by how much longer
    /// acknowledgements take than the shortest round trip, as in the paper, even if the server causes it.
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
        idle_keys(self.aggregating, self.fixed_point)
    }

    fn aggregation(&self) -> Option<Aggregation> {
        let A2tpParameters { aggregating, aggregators, initial, reclaim_ps, nets, fixed_point, overflow, collisions, .. } = *self;
        let shares_collisions = collisions == CollisionRule::Shared;
        Some(Aggregation { aggregating, aggregators, initial, reclaim_ps, nets, fixed_point, overflow, shares_collisions })
    }

    // As of ATP.
    fn load(&self, job: &JobSize) -> Load {
        Load::of(job, job.workers)
    }
}

impl Nodes for A2tpParameters {
    const CAMPAIGNS: &[Campaign] = &[Campaign { order: 9, stream: 9, draw: campaign }];

    fn nodes<P: Payload + ?Sized>(&self, spec: &JobSpec<'_, P::Op>, map: &NetworkMap) -> Result<JobNodes<AnyNode<P>>, BuildError> {
        let placed = places(spec, map)?;
        let (windows, window, rule) = (windows(spec, self)?, window_of_server(spec), self.windows);
        let worker = |configs: Vec<WorkerConfig<P::Op>>| {
            let configs = configs.into_iter();
            AnyNode::A2tpWorker(match rule {
                WindowRule::Agreed => A2tpWorker::to_servers(configs.map(|config| (config, A2tpWindows::agreed(windows)))),
                WindowRule::Own => A2tpWorker::to_servers(configs.map(|config| (config, A2tpWindows::own(windows)))),
            })
        };
        let server = |config| {
            AnyNode::A2tpServer(match rule {
                WindowRule::Agreed => A2tpServer::new(config, A2tpRounds::agreed(windows)),
                WindowRule::Own => A2tpServer::new(config, A2tpRounds::Own { window }),
            })
        };
        nodes::<P>(spec, map, &placed, worker, server)
    }

    fn admit<P: Payload + ?Sized>(
        node: &mut AnyNode<P>,
        switch: NodeId,
        spec: &JobSpec<'_, P::Op>,
        map: &NetworkMap,
    ) -> Result<bool, BuildError> {
        match node {
            AnyNode::AtpSwitch(node) => admit(node, switch, spec, map),
            _ => Ok(false),
        }
    }

    fn adds_integers(node: &mut AnyNode<[u8]>) {
        if let AnyNode::A2tpServer(server) = node {
            server.set_fixed_op(ElementOp::I32_SUM.into());
        }
    }
}

fn windows<Op>(spec: &JobSpec<'_, Op>, parameters: &A2tpParameters) -> Result<TwoWindowConfig, BuildError> {
    let A2tpParameters { threshold, collision_weight, mark_weight, priority, quiet_rounds, aggregators_min, fair, col_only, .. } =
        *parameters;
    for (field, value) in [("threshold", threshold), ("collision_weight", collision_weight), ("mark_weight", mark_weight)] {
        share(field, value)?;
    }
    if !(priority > 0.0 && priority <= 1_000.0) {
        return Err(BuildError::new("priority", priority, "more than 0, and at most 1000"));
    }
    let servers = spec.servers.len().max(1) as u32;
    let window = window_of_server(spec);
    if aggregators_min == 0 || aggregators_min > spec.window {
        return Err(BuildError::new("aggregators_min", aggregators_min, format!("1 to {}, the window", spec.window)));
    }
    Ok(TwoWindowConfig {
        window,
        initial: initial(parameters.initial.div_ceil(servers), window),
        threshold: Real::new(threshold),
        collision_weight: Real::new(collision_weight),
        mark_weight: Real::new(mark_weight),
        priority: Real::new(priority / f64::from(servers)),
        quiet_rounds,
        aggregators_min: aggregators_min.div_ceil(servers),
        links_min: 1,
        fair,
        col_only,
        collisions: match parameters.collisions {
            CollisionRule::Shared => CollisionsOf::Shared,
            CollisionRule::Round => CollisionsOf::Round,
            CollisionRule::Aggregated => CollisionsOf::Aggregated,
        },
        synchrony: match parameters.synchrony {
            SynchronyRule::Spread => Synchrony::Spread,
            SynchronyRule::RoundTrip => Synchrony::RoundTrip,
        },
    })
}

/// Some jobs become jobs of ATP or A2TP: all that were wanted, or one in six of all. Their switches have few aggregators, so that collisions
/// are the rule.
fn campaign(draw: &mut Draw, map: &NetworkMap, jobs: &mut [DrawnJob], only: Option<&str>) {
    let aggregators = draw.scaled(1, 200) as u32;
    for job in jobs {
        let wanted = match only {
            Some("atp") => Some(false),
            Some("a2tp") => Some(true),
            Some(_) => None,
            None => draw.percent(17).then(|| draw.percent(60)),
        };
        let Some(is_a2tp) = wanted else { continue };
        job.system = system_with_server(draw, aggregators, is_a2tp, job.op);
        job.reliable = true;
        let others: Vec<NodeId> = (0..map.hosts()).map(NodeId).filter(|host| !job.hosts.contains(host)).collect();
        if !others.is_empty() && draw.percent(75) {
            job.servers = vec![*draw.pick(&others)];
            // Drawn apart, so that everything else of a seed stays as it was before there was this.
            let more = &mut Draw::new(draw.clone().bits(), 0x5e4);
            if more.percent(25) {
                let count = more.between(1, others.len().min(4) as u64);
                job.servers = more.sample(others.len() as u32, count as usize).into_iter().map(|place| others[place as usize]).collect();
            }
        }
    }
}

fn system_with_server(draw: &mut Draw, aggregators: u32, is_a2tp: bool, op: ElementOp) -> System {
    let nets = *draw.pick(&[SafetyNets::All, SafetyNets::All, SafetyNets::Paper]);
    let initial = draw.between(0, 40) as u32;
    let reclaim_ps = draw.scaled(100_000_000, 20_000_000_000);
    let fixed_point = op == ElementOp::F32_SUM && draw.percent(50);
    let overflow = if fixed_point && draw.percent(50) { draw.between(0, 100) as f64 / 1_000.0 } else { 0.0 };
    let increase_bytes = draw.scaled(1, 10_000) as u32;
    if !is_a2tp {
        return System::Atp(AtpParameters {
            aggregators,
            initial,
            increase_bytes,
            reclaim_ps,
            nets,
            fixed_point,
            overflow,
            ..AtpParameters::default()
        });
    }
    System::A2tp(A2tpParameters {
        aggregators,
        initial,
        reclaim_ps,
        nets,
        fixed_point,
        overflow,
        windows: *draw.pick(&[WindowRule::Agreed, WindowRule::Agreed, WindowRule::Own]),
        threshold: draw.between(0, 50) as f64 / 100.0,
        priority: draw.between(1, 4) as f64,
        // Drawn apart, as more servers are.
        quiet_rounds: Draw::new(draw.clone().bits(), 0x9e7).between(0, 20) as u32,
        fair: draw.percent(20),
        col_only: draw.percent(20),
        collisions: *draw.pick(&[CollisionRule::Round, CollisionRule::Shared, CollisionRule::Aggregated]),
        synchrony: *draw.pick(&[SynchronyRule::Spread, SynchronyRule::Spread, SynchronyRule::RoundTrip]),
        ..A2tpParameters::default()
    })
}
