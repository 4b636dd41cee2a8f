//! Canary: its parameters, and the nodes of a job.

use std::collections::BTreeMap;
use std::sync::Arc;

use fanin_core::{Address, CollectiveKind, Duration, JobId, JobNodes, NetworkMap, Node, NodeId, Payload, Placed, Rank, SharedNode};
use fanin_protocols::canary::{self, CanarySwitchConfig, CanaryWorkerConfig, Clock, Duties, Leaders, Recovery, Timeout};

use crate::any::AnyNode;
use crate::build::reliability;
use crate::campaign::{Campaign, First, JobSize, Load};
use crate::config::{BuildError, JobSpec, UNLIMITED};
use crate::facts::{AggregatorUse, Facts, KeyUse, KeysOf, LongestWay, Nodes, UNRELIABLE, key_of};
use crate::layout::leaf_of;
use crate::system::System;
use fan_in::FanIns;

mod campaign;
mod fan_in;
mod parameters;
mod windows;

/// Under which Canary hashes the names of blocks.
pub use fanin_protocols::canary::HASH_KEY as CANARY_HASH_KEY;
pub(crate) use fanin_protocols::canary::{CanarySharedSwitch, CanarySwitch, CanaryWorker};
pub(crate) use fanin_wire::canary::{CanaryHeader, LAYOUT};
pub use parameters::{CanaryCollisions, CanaryParameters, CanaryWindows, FailureRule, FanInRule, LeaderRule, Placement};

/// The rate in bits per second that timeouts are stated for.
const TIMEOUT_RATE: u128 = 100_000_000_000;

/// No timeout that follows the network is longer than a second.
const MAX_TIMEOUT_PS: u64 = 1_000_000_000_000;

/// A timeout where switches and hosts are processes that wait for their turns.
const SOFTWARE_TIMEOUT_PS: u64 = 10_000_000_000;
/// Places for blocks: sixteen for each packet of a window.
const SOFTWARE_DESCRIPTORS: u32 = 1_024;

impl System {
    /// Canary as its paper has it: 1 us, 32 Ki descriptors, hashed.
    pub fn canary() -> Self {
        System::Canary(CanaryParameters::default())
    }
}

impl Facts for CanaryParameters {
    fn suit_software(&mut self) {
        // Sums leave when they are complete; the timeout is for what is lost. A job has few blocks under way, and there may be many jobs.
        (self.fan_in, self.timeout_ps, self.descriptors) = (FanInRule::Known, SOFTWARE_TIMEOUT_PS, SOFTWARE_DESCRIPTORS);
    }

    fn goes_on_without_switches(&self) -> bool {
        true
    }

    fn key_of<'a>(&self, field: &'a str) -> &'a str {
        match field {
            // A plan's `placement` is where workers are.
            "placement" => "table",
            "timeout_adaptive" | "timeout_spine_ps" | "timeout_root_ps" => "timeout",
            other => key_of(other),
        }
    }

    fn trees(&self) -> Option<u32> {
        None
    }

    fn obeys_marks(&self) -> bool {
        self.windows == CanaryWindows::A2tp
    }

    // The paper's 1 us is stated for 100 Gb/s. What a switch waits for is that packets of several hosts are one behind the other on a link: at a
    // tenth of the rate for ten times as long. The bounds of an adaptive timeout were found at 100 Gb/s, too: the shorter one is half of that, and
    // the longer one about a round trip through queues, which are bytes that a link has to carry.
    fn follow_rate(&mut self, bits_per_second: u64, is_given: &dyn Fn(&str) -> bool) {
        let follow = |ps: u64| {
            let bits = u128::from(ps) * TIMEOUT_RATE;
            (bits / u128::from(bits_per_second.max(1))).clamp(1, u128::from(MAX_TIMEOUT_PS)) as u64
        };
        let usual = CanaryParameters::default();
        if !is_given("timeout") {
            self.timeout_ps = follow(usual.timeout_ps);
        }
        // A bound that follows keeps its side of the one that is given.
        match (is_given("timeout_min"), is_given("timeout_max")) {
            (true, true) => {}
            (false, false) => (self.timeout_min_ps, self.timeout_max_ps) = (follow(usual.timeout_min_ps), follow(usual.timeout_max_ps)),
            (true, false) => self.timeout_max_ps = follow(usual.timeout_max_ps).max(self.timeout_min_ps),
            (false, true) => self.timeout_min_ps = follow(usual.timeout_min_ps).min(self.timeout_max_ps),
        }
    }

    // A root's timer begins with the first contribution of its own hosts, or of whichever leaf is first; what others send has then their switches'
    // timeouts and links before it. So a root that waits no longer than they do sends the leader a part of the block and every other part by
    // itself, although "ideally, the root should send to the leader host only one fully aggregated packet" (Canary 3.1.4). It waits as
    // long as the paper's model of 3.2.2 has a contribution on its way to the leader, d (l + t). Nothing is late for that: a root
    // sends as soon as all is here.
    fn follow_ways(&mut self, longest: &dyn Fn() -> LongestWay, is_given: &dyn Fn(&str) -> bool) {
        if !is_given("timeout") && !self.timeout_adaptive {
            let LongestWay { links, delay_ps } = longest();
            let waits_ps = u64::from(links).saturating_mul(self.timeout_ps).saturating_add(delay_ps);
            self.timeout_root_ps = Some(waits_ps.clamp(self.timeout_ps, MAX_TIMEOUT_PS));
        }
    }

    fn multicasts_by_ports(&self) -> bool {
        true
    }

    fn has_scans(&self) -> bool {
        !self.timeout_adaptive
    }

    // Clock packets look at one entry after the other, so a scan takes as long as there are descriptors (Canary 4.3).
    fn follow_scan(&mut self, entries_per_second: u32, is_given: &dyn Fn(&str) -> bool) {
        if !is_given("scan") && self.has_scans() {
            let ps = u64::from(self.descriptors) * 1_000_000_000_000 / u64::from(entries_per_second.max(1));
            self.scan_ps = ps.min(MAX_TIMEOUT_PS);
        }
    }

    fn offers(&self, kind: CollectiveKind) -> bool {
        !matches!(kind, CollectiveKind::AllToAll { .. })
    }

    fn check_collective(&self, kind: CollectiveKind, name: &str) -> Result<(), BuildError> {
        if self.leader == LeaderRule::Rotating || matches!(kind, CollectiveKind::Allreduce | CollectiveKind::Barrier) {
            return Ok(());
        }
        let expected = format!("\"rotating\" where the collective is {name}: who leads its blocks follows from its root or its shares");
        Err(BuildError::new("leader", self.leader, expected))
    }

    fn takes_unlimited_windows(&self) -> bool {
        true
    }

    // Switches look at their blocks all the same.
    fn always_has_patience(&self) -> bool {
        true
    }

    // A sum that does not come does not tell whose contribution it lacks; only who can ask for it learns that.
    fn names_nobody(&self) -> bool {
        true
    }

    fn leaves_nothing(&self, reliable: bool) -> bool {
        reliable
    }

    fn switch_slots(&self, _window: u32) -> u64 {
        u64::from(self.descriptors)
    }

    fn begun_anew(&self) -> u32 {
        u32::from(self.generations)
    }

    fn shares_slots(&self) -> bool {
        self.shared
    }

    fn slots_key(&self) -> &'static str {
        "descriptors"
    }

    fn aggregators(&self) -> Option<AggregatorUse> {
        let keys = &["descriptors", "shared"];
        Some(if self.placement == Placement::Static { AggregatorUse::Array(keys) } else { AggregatorUse::Shares(keys) })
    }

    fn set_aggregators(&mut self, count: u32) {
        (self.descriptors, self.shared) = (count, self.placement != Placement::Static);
    }

    fn idle_keys(&self, job: &KeysOf) -> Vec<KeyUse> {
        let adaptive = self.timeout_adaptive;
        let mut keys: Vec<KeyUse> = ["timeout_min", "timeout_max"].map(|key| (key, adaptive, "without timeout = \"adaptive\"")).into();
        keys.push(("scan", !adaptive, "with timeout = \"adaptive\""));
        keys.extend(["failure", "generations", "lifetime", "hold"].map(|key| (key, job.reliable, UNRELIABLE)));
        let follows = self.windows == CanaryWindows::A2tp;
        keys.extend(windows::KEYS.map(|key| (key, follows, "without windows = \"a2tp\"")));
        keys.push(("hold", self.failure == FailureRule::Hold, "without failure = \"hold\""));
        keys
    }

    // On both ways, a switch may hold a packet at each level for its timeout. Windows that follow the network may be as short as they are let.
    fn load(&self, job: &JobSize) -> Load {
        let load = Load::of(job, 1);
        let follows = self.windows == CanaryWindows::A2tp;
        let window = if follows { load.window.min(u64::from(self.shortest_window(u32::MAX))) } else { load.window };
        Load { held_ps: 8 * (self.timeout_longest_ps() + self.leader_time_ps), window, ..load }
    }
}

impl Nodes for CanaryParameters {
    const FIRST: Option<First> = Some(First { place: 3, draw: campaign::first });
    const CAMPAIGNS: &[Campaign] = campaign::CAMPAIGNS;

    fn nodes<P: Payload + ?Sized>(&self, spec: &JobSpec<'_, P::Op>, map: &NetworkMap) -> Result<JobNodes<AnyNode<P>>, BuildError> {
        nodes(spec, map, self)
    }

    fn shared<P: Payload + ?Sized>(
        specs: &[JobSpec<'_, P::Op>],
        map: &NetworkMap,
    ) -> Result<Vec<SharedNode<AnyNode<P>>>, (usize, BuildError)> {
        shared(specs, map)
    }

    fn admit<P: Payload + ?Sized>(
        node: &mut AnyNode<P>,
        switch: NodeId,
        spec: &JobSpec<'_, P::Op>,
        map: &NetworkMap,
    ) -> Result<bool, BuildError> {
        match node {
            AnyNode::CanarySharedSwitch(node) => admit(node, switch, spec, map),
            _ => Ok(false),
        }
    }

    fn forget_durations<P: Payload + ?Sized>(node: &mut AnyNode<P>) {
        match node {
            AnyNode::CanarySwitch(switch) => switch.forget_durations(),
            AnyNode::CanarySharedSwitch(switch) => switch.forget_durations(),
            _ => {}
        }
    }

    fn contradiction<P: Payload + ?Sized>(node: &AnyNode<P>) -> Option<String> {
        let AnyNode::CanarySharedSwitch(switch) = node else { return None };
        let (taken, in_use) = (switch.places_taken(), switch.descriptors_in_use());
        (taken != in_use).then(|| format!("a switch has {taken} places taken and {in_use} descriptors in use"))
    }

    fn has_of<P: Payload + ?Sized>(node: &AnyNode<P>, job: JobId) -> bool {
        matches!(node, AnyNode::CanarySharedSwitch(switch) if switch.in_use_by(job) > 0)
    }

    // What a job has left that has crashed goes when switches that it shares are told of its end.
    fn is_overdue<P: Payload + ?Sized>(node: &AnyNode<P>, living: &[JobId]) -> bool {
        let holds = match node {
            AnyNode::CanarySwitch(switch) => switch.descriptors_in_use() > 0,
            AnyNode::CanarySharedSwitch(switch) => living.iter().any(|job| switch.in_use_by(*job) > 0),
            _ => false,
        };
        holds && node.next_timeout().is_none()
    }
}

fn nodes<P: Payload + ?Sized>(
    spec: &JobSpec<'_, P::Op>,
    map: &NetworkMap,
    parameters: &CanaryParameters,
) -> Result<JobNodes<AnyNode<P>>, BuildError> {
    if spec.patience == Duration::ZERO {
        return Err(BuildError::new("patience", spec.patience, "more than 0"));
    }
    let (workers, nodes) = (spec.hosts.len(), map.nodes());
    if workers > usize::from(u16::MAX) {
        return Err(BuildError::new("workers", workers, "at most 65535, which packets count with 16 bits"));
    }
    if nodes > 1 << 16 {
        return Err(BuildError::new("network", nodes, "at most 65536 hosts and switches, which packets name with 16 bits"));
    }
    if parameters.descriptors == 0 || parameters.descriptors > 1 << 24 {
        return Err(BuildError::new("descriptors", parameters.descriptors, "1 to 16777216"));
    }
    if parameters.shared && parameters.placement == Placement::Static {
        let expected = "hash or d-choice: blocks of several jobs have no static places in an array that they share";
        return Err(BuildError::new("table", "static", expected));
    }
    let timeout = timeout(parameters)?;
    let (lifetime, recovery) = recovery(spec, parameters)?;
    let duties = duties(spec, parameters)?;
    let windows = windows::of(spec, parameters)?;
    let members: Arc<[NodeId]> = spec.hosts.into();
    let worker = |(rank, &host): (usize, &NodeId)| {
        let leaf = leaf_of(map, host)?;
        let config = CanaryWorkerConfig {
            job: spec.id,
            rank: Rank(rank as u32),
            members: Arc::clone(&members),
            op: spec.op.clone(),
            element_bytes: spec.element_bytes,
            block_elements: spec.payload_bytes / spec.element_bytes,
            window: if spec.window == UNLIMITED { canary::WINDOW_UNLIMITED } else { spec.window },
            patience: spec.patience,
            recovery,
            uplink: leaf.port,
            leaf: leaf.node,
        };
        let mut node = CanaryWorker::new(config).with_duties(duties);
        if let Some(windows) = windows {
            node = node.with_windows(windows);
        }
        Ok(Placed { at: Address::worker(host), node: AnyNode::CanaryWorker(node) })
    };
    let workers: Vec<Placed<AnyNode<P>>> = spec.hosts.iter().enumerate().map(worker).collect::<Result<_, BuildError>>()?;
    // A lone worker needs no network; otherwise packets may pass any switch, since balancers choose the paths. Switches that jobs share are
    // made for all of them at once.
    let others = if workers.len() == 1 || parameters.shared {
        Vec::new()
    } else {
        let fan_ins = fan_ins(spec, map, parameters)?;
        let node = |switch| {
            let (config, clock) = at_switch(spec, map, switch, parameters, timeout, lifetime);
            let mut node = CanarySwitch::new(config).with_marks(windows::marks(parameters));
            if let Some((fixed, clock)) = clock {
                node = node.with_clock(fixed, clock);
            }
            if let Some(fan_ins) = &fan_ins {
                node = node.with_fan_in(fan_ins.at(map, switch));
            }
            AnyNode::CanarySwitch(node)
        };
        map.switches().map(|switch| Placed { at: Address::switch(switch), node: node(switch) }).collect()
    };
    Ok(JobNodes { workers, others })
}

/// The parameters of a job that shares its switches' arrays with others, unless it needs no switch.
fn shares<'a, Op>(spec: &'a JobSpec<'_, Op>) -> Option<&'a CanaryParameters> {
    match &spec.system {
        System::Canary(parameters) if parameters.shared && spec.hosts.len() > 1 => Some(parameters),
        _ => None,
    }
}

/// At each switch a node for all jobs that share its array.
///
/// # Errors
/// The job's place in `specs` and what is wrong with it: jobs that share an array must agree about its length and about how blocks find their
/// places.
fn shared<P: Payload + ?Sized>(specs: &[JobSpec<'_, P::Op>], map: &NetworkMap) -> Result<Vec<SharedNode<AnyNode<P>>>, (usize, BuildError)> {
    let mut nodes: BTreeMap<NodeId, (CanarySharedSwitch<P>, Vec<fanin_core::JobId>)> = BTreeMap::new();
    for (index, spec) in specs.iter().enumerate() {
        let Some(parameters) = shares(spec) else { continue };
        let refuse = |error| (index, error);
        let fan_ins = fan_ins(spec, map, parameters).map_err(refuse)?;
        for switch in map.switches() {
            let make = || (CanarySharedSwitch::new(parameters.descriptors, placement(parameters)), Vec::new());
            let (node, jobs) = nodes.entry(switch).or_insert_with(make);
            agrees(parameters, node, "in the jobs before it").map_err(refuse)?;
            let (config, clock) = shared_at(spec, map, switch, parameters).map_err(refuse)?;
            let fan_in = fan_ins.as_ref().map(|fan_ins| fan_ins.at(map, switch));
            node.admit(config, clock, fan_in, windows::marks(parameters));
            jobs.push(spec.id);
        }
    }
    let placed = |(switch, (node, jobs))| SharedNode {
        placed: Placed { at: Address::switch(switch), node: AnyNode::CanarySharedSwitch(node) },
        jobs,
    };
    Ok(nodes.into_iter().map(placed).collect())
}

fn agrees<P: Payload + ?Sized>(parameters: &CanaryParameters, node: &CanarySharedSwitch<P>, as_in: &str) -> Result<(), BuildError> {
    let known = node.descriptors();
    if parameters.descriptors != known {
        let expected = format!("{known}, as {as_in}: they share the descriptors of their switches");
        return Err(BuildError::new("descriptors", parameters.descriptors, expected));
    }
    if placement(parameters) != node.placement() {
        let expected = format!("as {as_in}: they share the arrays of their switches");
        let own = match placement(parameters) {
            canary::Placement::Hash => "hash",
            canary::Placement::TwoPlaces => "d-choice",
            canary::Placement::Static => "static",
        };
        return Err(BuildError::new("table", own, expected));
    }
    Ok(())
}

/// As [`AnyNode::admit`], at a switch whose array Canary's jobs share.
fn admit<P: Payload + ?Sized>(
    node: &mut CanarySharedSwitch<P>,
    switch: NodeId,
    spec: &JobSpec<'_, P::Op>,
    map: &NetworkMap,
) -> Result<bool, BuildError> {
    let Some(parameters) = shares(spec) else { return Ok(false) };
    agrees(parameters, node, "in the jobs that run")?;
    let (config, clock) = shared_at(spec, map, switch, parameters)?;
    let fan_in = fan_ins(spec, map, parameters)?.map(|fan_ins| fan_ins.at(map, switch));
    node.admit(config, clock, fan_in, windows::marks(parameters));
    Ok(true)
}

fn shared_at<Op: Clone>(
    spec: &JobSpec<'_, Op>,
    map: &NetworkMap,
    switch: NodeId,
    parameters: &CanaryParameters,
) -> Result<(CanarySwitchConfig<Op>, UnevenTimeout), BuildError> {
    let (lifetime, _) = recovery(spec, parameters)?;
    Ok(at_switch(spec, map, switch, parameters, timeout(parameters)?, lifetime))
}

/// What all switches have to be told of how many contributions can come to them, where they know it.
fn fan_ins<Op>(spec: &JobSpec<'_, Op>, map: &NetworkMap, parameters: &CanaryParameters) -> Result<Option<FanIns>, BuildError> {
    match parameters.fan_in {
        FanInRule::Unknown => Ok(None),
        FanInRule::Known => FanIns::of(map, spec.hosts).map(Some),
    }
}

/// Who leads, and how long that takes.
fn duties<Op>(spec: &JobSpec<'_, Op>, parameters: &CanaryParameters) -> Result<Duties, BuildError> {
    let leaders = match parameters.leader {
        LeaderRule::Rotating => Leaders::InTurn,
        LeaderRule::Fixed(rank) if rank as usize >= spec.hosts.len() => {
            let expected = format!("a rank from 0 to {}", spec.hosts.len() - 1);
            return Err(BuildError::new("leader", parameters.leader, expected));
        }
        LeaderRule::Fixed(rank) => Leaders::Fixed(Rank(rank)),
        LeaderRule::Random => Leaders::Drawn(spec.seed),
    };
    Ok(Duties { leaders, time: Duration::from_ps(parameters.leader_time_ps) })
}

/// How blocks find their places, where the job may not say.
fn placement(parameters: &CanaryParameters) -> canary::Placement {
    match parameters.placement {
        Placement::Auto if parameters.shared => canary::Placement::Hash,
        Placement::Auto => canary::Placement::Static,
        Placement::Hash => canary::Placement::Hash,
        Placement::TwoPlaces => canary::Placement::TwoPlaces,
        Placement::Static => canary::Placement::Static,
    }
}

/// How long descriptors live, and what workers do about losses.
fn recovery<Op>(spec: &JobSpec<'_, Op>, parameters: &CanaryParameters) -> Result<(Duration, Recovery), BuildError> {
    if !spec.reliable {
        return Ok((Duration::MAX, Recovery::NONE));
    }
    if spec.window > canary::RELIABLE_WINDOW_MAX {
        let expected = format!("1 to {} packets, each of which is remembered until its sum has come", canary::RELIABLE_WINDOW_MAX);
        return Err(BuildError::new("window", spec.window, expected));
    }
    if !(1..=canary::GENERATIONS_MAX).contains(&parameters.generations) {
        return Err(BuildError::new("generations", parameters.generations, format!("1 to {}", canary::GENERATIONS_MAX)));
    }
    let reliability = reliability(spec);
    let lifetime = match parameters.lifetime_ps {
        0 => spec.patience.divided(2),
        lifetime_ps => Duration::from_ps(lifetime_ps),
    };
    // `canary 5.10`: a descriptor that is given up too early costs its workers a request each.
    let shortest = spec.rto_min.times(4);
    if lifetime < shortest {
        return Err(BuildError::new("lifetime", lifetime, format!("{shortest} at least, four times rto_min")));
    }
    let rule = match parameters.failure {
        FailureRule::FirstRequest => canary::FailureRule::FirstRequest,
        FailureRule::Hold => canary::FailureRule::AfterHold(Duration::from_ps(parameters.hold_ps)),
        FailureRule::AllAsked => canary::FailureRule::AllAsked,
    };
    Ok((lifetime, Recovery { rule, generations: parameters.generations, ..Recovery::new(reliability, lifetime) }))
}

/// The timeout of a job's switches.
fn timeout(parameters: &CanaryParameters) -> Result<Timeout, BuildError> {
    let CanaryParameters { timeout_adaptive, timeout_ps, timeout_min_ps, timeout_max_ps, .. } = *parameters;
    let [fixed, min, max] = [timeout_ps, timeout_min_ps, timeout_max_ps].map(Duration::from_ps);
    match timeout_adaptive {
        false => Ok(Timeout::Fixed(fixed)),
        true if min == Duration::ZERO || min > max => {
            Err(BuildError::new("timeout_min", min, format!("more than 0, and not more than timeout_max, {max}")))
        }
        true => Ok(Timeout::Adaptive { min, max }),
    }
}

/// A fixed timeout that differs from block to block, and how.
type UnevenTimeout = Option<(Duration, Clock)>;

/// What a job's part of a switch is told.
fn at_switch<Op: Clone>(
    spec: &JobSpec<'_, Op>,
    map: &NetworkMap,
    switch: NodeId,
    parameters: &CanaryParameters,
    timeout: Timeout,
    descriptor_lifetime: Duration,
) -> (CanarySwitchConfig<Op>, UnevenTimeout) {
    let ends = map.neighbours(switch).iter().map(|neighbour| neighbour.node);
    let mut hosts: Vec<NodeId> = ends.filter(|end| map.is_host(*end)).collect();
    hosts.sort_unstable();
    let timeout = match (timeout, parameters.timeout_spine_ps) {
        (Timeout::Fixed(_), Some(spine_ps)) if hosts.is_empty() => Timeout::Fixed(Duration::from_ps(spine_ps)),
        _ => timeout,
    };
    let root = parameters.timeout_root_ps.map(Duration::from_ps);
    let clock = match timeout {
        Timeout::Fixed(fixed) if root.is_some() || parameters.scan_ps > 0 => {
            Some((fixed, Clock { scan: Duration::from_ps(parameters.scan_ps), root, hosts: hosts.into(), seed: spec.seed }))
        }
        _ => None,
    };
    let config = CanarySwitchConfig {
        job: spec.id,
        node: switch,
        ports: map.neighbours(switch).len() as u16,
        op: spec.op.clone(),
        block_bytes: spec.payload_bytes,
        timeout,
        descriptors: parameters.descriptors,
        placement: placement(parameters),
        descriptor_lifetime,
    };
    (config, clock)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::any::tests::comes_back;
    use fanin_core::{JobId, Length};
    use fanin_wire::canary::{CanaryId, CanaryMarks};

    fn built(hosts: &[u32], change: impl FnOnce(&mut JobSpec<'_, ()>)) -> Result<JobNodes<AnyNode<Length>>, String> {
        let hosts: Vec<NodeId> = hosts.iter().copied().map(NodeId).collect();
        let mut spec = JobSpec {
            id: JobId(1),
            hosts: &hosts,
            servers: &[],
            system: System::canary(),
            op: (),
            element_bytes: 4,
            payload_bytes: 1024,
            window: UNLIMITED,
            reliable: false,
            rto_initial: Duration::ZERO,
            rto_min: Duration::ZERO,
            patience: Duration::from_ms(100),
            seed: 0,
        };
        change(&mut spec);
        let mut map = NetworkMap::new(4, &[1, 1, 2]);
        for (a, b) in [(0, 4), (1, 4), (2, 5), (3, 5), (4, 6), (5, 6)] {
            map.join(NodeId(a), NodeId(b));
        }
        crate::build(&spec, &map).map_err(|error| error.to_string())
    }

    #[test]
    fn every_switch_takes_part() {
        let nodes = built(&[3, 0], |_| {}).unwrap();
        let at = |placed: &[Placed<AnyNode<Length>>]| placed.iter().map(|placed| placed.at.node.0).collect::<Vec<_>>();
        assert_eq!((at(&nodes.workers), at(&nodes.others)), (vec![3, 0], vec![4, 5, 6]));
        assert_eq!(built(&[3], |_| {}).unwrap().others, []);
    }

    #[test]
    fn jobs_share_the_arrays_of_all_switches_and_agree_about_them() {
        let hosts = [NodeId(0), NodeId(3)];
        let spec = |id, change: fn(&mut CanaryParameters)| {
            let mut parameters = CanaryParameters { shared: true, descriptors: 100, ..CanaryParameters::default() };
            change(&mut parameters);
            JobSpec {
                id: JobId(id),
                hosts: &hosts,
                servers: &[],
                system: System::Canary(parameters),
                op: (),
                element_bytes: 4,
                payload_bytes: 1024,
                window: 64,
                reliable: false,
                rto_initial: Duration::ZERO,
                rto_min: Duration::ZERO,
                patience: Duration::from_ms(100),
                seed: 0,
            }
        };
        let mut map = NetworkMap::new(4, &[1, 1]);
        for (a, b) in [(0, 4), (1, 4), (2, 5), (3, 5), (4, 5)] {
            map.join(NodeId(a), NodeId(b));
        }
        let made = |specs: &[JobSpec<'_, ()>]| {
            let nodes = crate::shared::<Length>(specs, &map).map_err(|(index, error)| format!("{index}: {error}"))?;
            Ok::<_, String>(nodes.iter().map(|node| (node.placed.at.node.0, node.jobs.len())).collect::<Vec<_>>())
        };
        let (own, other) = (spec(1, |parameters| parameters.shared = false), spec(2, |_| {}));
        assert_eq!(made(&[spec(0, |_| {}), own, other.clone()]), Ok(vec![(4, 2), (5, 2)]));
        assert_eq!(crate::build::<Length>(&other, &map).unwrap().others, []);
        let fewer = made(&[other.clone(), spec(3, |parameters| parameters.descriptors = 99)]);
        assert_eq!(
            fewer.unwrap_err(),
            "1: descriptors = 99: expected 100, as in the jobs before it: they share the descriptors of their switches"
        );
        let elsewhere = made(&[other.clone(), spec(3, |parameters| parameters.placement = Placement::TwoPlaces)]);
        assert_eq!(
            elsewhere.unwrap_err(),
            "1: table = d-choice: expected as in the jobs before it: they share the arrays of their switches"
        );
        let statically = spec(3, |parameters| parameters.placement = Placement::Static);
        let refused = crate::build::<Length>(&statically, &map).unwrap_err().to_string();
        assert!(refused.starts_with("table = static: expected hash or d-choice"), "{refused}");
        // At a switch that runs, jobs come one after the other.
        let mut node = crate::shared::<Length>(&[other], &map).unwrap().swap_remove(0).placed.node;
        assert!(node.admit(NodeId(4), &spec(5, |_| {}), &map).unwrap());
        assert!(!node.admit(NodeId(4), &spec(6, |parameters| parameters.shared = false), &map).unwrap());
        let late = node.admit(NodeId(4), &spec(6, |parameters| parameters.descriptors = 5), &map).unwrap_err().to_string();
        assert_eq!(late, "descriptors = 5: expected 100, as in the jobs that run: they share the descriptors of their switches");
    }

    #[test]
    fn what_it_cannot_do_is_named() {
        let error = |change: fn(&mut JobSpec<'_, ()>)| built(&[0, 1], change).unwrap_err();
        let unlimited = "window = 4294967295: expected 1 to 65536 packets, each of which is remembered until its sum has come";
        assert_eq!(error(|spec| spec.reliable = true), unlimited);
        let reliable = |change: fn(&mut CanaryParameters)| {
            let mut parameters = CanaryParameters::default();
            change(&mut parameters);
            built(&[0, 1], |spec| {
                (spec.reliable, spec.window, spec.rto_min) = (true, 64, Duration::from_us(10));
                spec.system = System::Canary(parameters);
            })
        };
        assert!(reliable(|_| {}).is_ok());
        assert_eq!(reliable(|parameters| parameters.generations = 16).unwrap_err(), "generations = 16: expected 1 to 15");
        let short = reliable(|parameters| parameters.lifetime_ps = 39_000_000).unwrap_err();
        assert_eq!(short, "lifetime = 39 us: expected 40 us at least, four times rto_min");
        assert_eq!(error(|spec| spec.patience = Duration::ZERO), "patience = 0 ps: expected more than 0");
        let follows = |change: fn(&mut JobSpec<'_, ()>, &mut CanaryParameters)| {
            built(&[0, 1], |spec| {
                let mut parameters = CanaryParameters { windows: CanaryWindows::A2tp, ..CanaryParameters::default() };
                spec.window = 64;
                change(spec, &mut parameters);
                spec.system = System::Canary(parameters);
            })
        };
        assert!(follows(|_, _| {}).is_ok());
        assert_eq!(
            follows(|spec, _| spec.window = UNLIMITED).unwrap_err(),
            "window = unlimited: expected 1 to 65536 packets, the longest that windows = \"a2tp\" may become"
        );
        assert_eq!(follows(|_, parameters| parameters.initial = 65).unwrap_err(), "initial = 65: expected 0 to 64, the window");
        assert_eq!(follows(|_, parameters| parameters.window_min = 65).unwrap_err(), "window_min = 65: expected 0 to 64, the window");
        assert_eq!(follows(|_, parameters| parameters.threshold = 1.5).unwrap_err(), "threshold = 1.5: expected a share from 0 to 1");
        assert_eq!(error(|spec| spec.window = 0), "window = 0: expected 1 to 1048576 packets, or unlimited");
        let without_places = |spec: &mut JobSpec<'_, ()>| {
            spec.system = System::Canary(CanaryParameters { descriptors: 0, ..CanaryParameters::default() });
        };
        assert_eq!(error(without_places), "descriptors = 0: expected 1 to 16777216");
        assert_eq!(error(|spec| spec.system = System::tree(1)), "window = 4294967295: expected 1 to 1048576 packets");
    }

    #[test]
    fn packets_begin_with_the_systems_number() {
        comes_back(3, CanaryHeader::Broadcast { id: CanaryId::new(1, 0, 80), marks: CanaryMarks::NONE });
    }
}
