//! NetReduce: its parameters, and the nodes of a job.

use fanin_core::{Address, Duration, FlowLabel, JobNodes, NetworkMap, NodeId, Payload, Placed, PortId, Rank};
use fanin_protocols::netreduce::{
    Beyond, Deallocation, Lookup, MessageShape, NetReduceChild, NetReduceConnection, NetReduceParent, NetReducePeer, NetReduceSwitchConfig,
    NetReduceWorkerConfig, Recovery, Reemission, Variants, WORKERS_MAX,
};
use fanin_protocols::shared::connection::Dcqcn;
use fanin_protocols::shared::reliability::Reliability;

use fanin_wire::netreduce::InaHeader;
use serde::{Deserialize, Serialize};

use crate::any::{AnyNode, resend_gap};
use crate::build::reliability;
use crate::campaign::{Campaign, DrawnJob};
use crate::config::{BuildError, JobSpec, RingOrder};
use crate::congestion::{self, CongestionParameters, CongestionRule, drawn};
use crate::draw::Draw;
use crate::facts::{Facts, KeyUse, KeysOf, Nodes, Unit};
use crate::layout::{self, Members, TreePlace, leaf_of};
use crate::ring::ring_order;
use crate::system::System;

pub(crate) use fanin_protocols::netreduce::{NetReduceSwitch, NetReduceWorker};
pub(crate) use fanin_wire::netreduce::{LAYOUT, NetReduceHeader};

/// How an accelerator finds the message of a packet (NetReduce).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LookupRule {
    /// It knows the messages of a window.
    #[default]
    Window,
    /// As in the paper: it knows one, that of the first packet that came last. A loss can make the job wait for ever.
    Newest,
}

/// When a slot is free again (NetReduce).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeallocationRule {
    /// When the sum one window on is complete.
    #[default]
    Full,
    /// As in the paper: when a packet one window on comes. A lost sum can make the job wait for ever.
    Packet,
}

/// Who gets a sum again (NetReduce).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReemissionRule {
    /// The receiver of the connection on which a packet was sent again.
    #[default]
    Requester,
    /// All receivers.
    All,
}

/// Who sends again what is lost (NetReduce).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecoveryRule {
    /// The accelerator, on the link that has lost it. Not where another rule is the paper's: those are about cards.
    #[default]
    Switch,
    /// As in the paper: network cards, from end to end.
    Cards,
}

/// The parameters of NetReduce: accelerators in the connections of a ring of network cards (netreduce 1 to 10).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct NetReduceParameters {
    /// The number of messages that the job's `window` is divided into; the paper has 340 packets in two messages (`netreduce 7`).
    pub window_messages: u32,
    /// The ring visits hosts by number, or in the order of `"placement"`.
    pub order: RingOrder,
    /// An accelerator tracks all messages of a window; `"newest"`, the paper's rule: only one, and a loss can stop the job.
    pub lookup: LookupRule,
    /// A slot becomes free when the sum one window later is complete; `"packet"`, the paper's rule: when a packet one window later arrives, and a
    /// lost sum can stop the job.
    pub deallocation: DeallocationRule,
    /// Who gets a retransmitted sum: the receiver of the connection that retransmitted, or `"all"`.
    pub reemission: ReemissionRule,
    /// Who retransmits a lost packet: the accelerator, on the link that lost it (sums in the order of each connection, again from their slots; it
    /// sends the sender's card back at the first gap); or `"cards"`, the paper's rule: network cards, end to end, as the paper's rules above imply.
    pub recovery: RecoveryRule,
    /// The minimum time that an accelerator waits for a card's acknowledgement; more if round trips are longer. The default is three of the
    /// paper's round trips at 100 Gb/s or the time of 200 packets, and follows the slowest of the workers' links: `"200us"` at 10 Gb/s.
    ///
    /// Default: `"20us"` at 100 Gb/s.
    pub answer_min_ps: u64,
    /// A network card's connection breaks after more consecutive timeouts than this (cards have 7); 0: only `patience` ends it.
    pub retries: u32,
    /// Whether rates follow marks.
    #[serde(flatten)]
    pub congestion: CongestionParameters,
}

impl Default for NetReduceParameters {
    fn default() -> Self {
        NetReduceParameters {
            window_messages: 2,
            order: RingOrder::Host,
            lookup: LookupRule::Window,
            deallocation: DeallocationRule::Full,
            reemission: ReemissionRule::Requester,
            recovery: RecoveryRule::Switch,
            answer_min_ps: ANSWER_MIN_PS,
            retries: 0,
            congestion: CongestionParameters::default(),
        }
    }
}

impl System {
    /// NetReduce with a window of two messages, and what its text leaves open chosen to be safe.
    pub fn netreduce() -> Self {
        System::NetReduce(NetReduceParameters::default())
    }
}

/// The shortest wait for an acknowledgement, ...
const ANSWER_MIN_PS: u64 = 20_000_000;
/// ... which is stated for this rate in bits per second.
const ANSWER_MIN_RATE: u128 = 100_000_000_000;
/// However slow a link is, an accelerator does not wait for longer than this without having measured round trips.
const ANSWER_MIN_PS_MAX: u64 = 10_000_000_000_000;
/// Where accelerators and cards are processes, whose turn may come this much later.
const SOFTWARE_ANSWER_MIN_PS: u64 = 20_000_000_000;

/// F of DCQCN: so many steps lead half way back each, before the target grows.
const RECOVERY_STEPS: u8 = 5;

/// What all nodes of a job are made from.
struct Plan<'a, Op> {
    spec: &'a JobSpec<'a, Op>,
    map: &'a NetworkMap,
    parameters: &'a NetReduceParameters,
    shape: MessageShape,
    /// The ranks in the order of the ring, and each rank's place there.
    ring: Vec<u32>,
    place_of: Vec<usize>,
}

impl Facts for NetReduceParameters {
    fn key_of<'a>(&self, field: &'a str) -> &'a str {
        congestion::key_of(field)
    }

    // What an answer waits for are the sums before it in the queue of the receiver's port, a window at most: at a tenth of the rate for ten
    // times as long. An accelerator that waits for less sends sums again that are on their way, into the same queue.
    fn follow_rate(&mut self, bits_per_second: u64, is_given: &dyn Fn(&str) -> bool) {
        self.congestion.follow_rate(bits_per_second, is_given);
        if !is_given("answer_min") {
            let ps = u128::from(ANSWER_MIN_PS) * ANSWER_MIN_RATE / u128::from(bits_per_second.max(1));
            self.answer_min_ps = ps.clamp(u128::from(ANSWER_MIN_PS), u128::from(ANSWER_MIN_PS_MAX)) as u64;
        }
    }

    fn suit_software(&mut self) {
        self.answer_min_ps = SOFTWARE_ANSWER_MIN_PS;
    }

    fn unit_of(&self, field: &str, is_float: bool) -> Unit {
        congestion::unit_of(field, is_float)
    }

    // What each child has sent is kept by itself.
    fn slot_bytes(&self, job: &JobSpec<'_, ()>, map: &NetworkMap, switch: NodeId) -> u64 {
        u64::from(job.payload_bytes).saturating_mul(map.neighbours(switch).len() as u64)
    }

    fn idle_keys(&self, _job: &KeysOf) -> Vec<KeyUse> {
        self.congestion.idle_keys()
    }
}

impl Nodes for NetReduceParameters {
    const CAMPAIGNS: &[Campaign] = &[Campaign { order: 11, stream: 11, draw: campaign }];

    fn nodes<P: Payload + ?Sized>(&self, spec: &JobSpec<'_, P::Op>, map: &NetworkMap) -> Result<JobNodes<AnyNode<P>>, BuildError> {
        nodes(spec, map, self)
    }
}

/// Workers in a ring, and accelerators on one static tree.
fn nodes<P: Payload + ?Sized>(
    spec: &JobSpec<'_, P::Op>,
    map: &NetworkMap,
    parameters: &NetReduceParameters,
) -> Result<JobNodes<AnyNode<P>>, BuildError> {
    let shape = shape(spec, parameters.window_messages)?;
    let ring = ring_order(spec.hosts, parameters.order);
    let mut place_of = vec![0; ring.len()];
    ring.iter().enumerate().for_each(|(place, &rank)| place_of[rank as usize] = place);
    let plan = Plan { spec, map, parameters, shape, ring, place_of };
    let workers = (0..spec.hosts.len()).map(|rank| plan.worker(rank)).collect::<Result<_, _>>()?;
    if spec.hosts.len() == 1 {
        return Ok(JobNodes { workers, others: Vec::new() });
    }
    let root = layout::random_roots(map, spec.hosts, 1, spec.seed)?[0];
    let layout = layout::tree(map, spec.hosts, root, spec.seed)?;
    let members = Members::new(map, spec.hosts);
    let switch = |(node, place): &(NodeId, TreePlace)| plan.switch(*node, place, &members);
    let others = layout.places.iter().map(switch).collect::<Result<_, _>>()?;
    Ok(JobNodes { workers, others })
}

/// How the job's window, in packets, is divided into messages.
pub(crate) fn shape<Op>(spec: &JobSpec<'_, Op>, window: u32) -> Result<MessageShape, BuildError> {
    if !(1..=MessageShape::WINDOW_MAX.min(spec.window)).contains(&window) {
        let expected = format!("1 to {}, and at most the window of {} packets", MessageShape::WINDOW_MAX, spec.window);
        return Err(BuildError::new("window_messages", window, expected));
    }
    // Two windows of the longest one that a job may have fit the number space of packets four times.
    let shape = MessageShape { window, packets: u16::try_from(spec.window / window).unwrap_or(u16::MAX) };
    debug_assert!(shape.is_possible());
    if MessageShape::header_elements(spec.element_bytes, spec.payload_bytes / spec.element_bytes).is_none() {
        let expected = "more than 16 bytes, the header of a message, which is a whole number of elements";
        return Err(BuildError::new("payload", spec.payload_bytes, expected));
    }
    if spec.hosts.len() > WORKERS_MAX as usize {
        return Err(BuildError::new("workers", spec.hosts.len(), format!("at most {WORKERS_MAX} in a ring of netreduce")));
    }
    if !spec.reliable {
        return Err(BuildError::new("reliable", false, "true: netreduce has reliable connections, with timers"));
    }
    Ok(shape)
}

/// The rate control of network cards, where they have one.
pub(crate) fn dcqcn(parameters: &CongestionParameters) -> Result<Option<Dcqcn>, BuildError> {
    if parameters.congestion == CongestionRule::None {
        return Ok(None);
    }
    let least = [
        ("line_bps", parameters.line_bps, 1_000),
        ("rate_min_bps", parameters.rate_min_bps, 1_000),
        ("gain_inverse", u64::from(parameters.gain_inverse), 1),
        ("rate_timer_ps", parameters.rate_timer_ps, 1_000),
        ("estimate_timer_ps", parameters.estimate_timer_ps, 1_000),
        ("rate_bytes", parameters.rate_bytes, 1),
    ];
    if let Some((key, value, least)) = least.into_iter().find(|(_, value, least)| value < least) {
        return Err(BuildError::new(key, value, format!("at least {least}")));
    }
    Ok(Some(Dcqcn {
        line_bps: parameters.line_bps,
        rate_min_bps: parameters.rate_min_bps,
        gain_inverse: parameters.gain_inverse,
        notification_gap: Duration::from_ps(parameters.notification_gap_ps),
        estimate_timer: Duration::from_ps(parameters.estimate_timer_ps),
        rate_timer: Duration::from_ps(parameters.rate_timer_ps),
        rate_bytes: parameters.rate_bytes,
        recovery_steps: RECOVERY_STEPS,
        additive_bps: parameters.additive_bps,
        hyper_bps: parameters.hyper_bps,
    }))
}

impl From<&NetReduceParameters> for Variants {
    fn from(parameters: &NetReduceParameters) -> Self {
        Variants {
            recovery: recovery(parameters),
            lookup: match parameters.lookup {
                LookupRule::Window => Lookup::Window,
                LookupRule::Newest => Lookup::Newest,
            },
            deallocation: match parameters.deallocation {
                DeallocationRule::Full => Deallocation::Full,
                DeallocationRule::Packet => Deallocation::Packet,
            },
            reemission: match parameters.reemission {
                ReemissionRule::Requester => Reemission::Requester,
                ReemissionRule::All => Reemission::All,
            },
        }
    }
}

/// Who sends again what is lost. The paper's rules for that are about cards.
fn recovery(parameters: &NetReduceParameters) -> Recovery {
    let NetReduceParameters { lookup, deallocation, reemission, recovery, .. } = *parameters;
    let is_safe = (lookup, deallocation, reemission) == (LookupRule::Window, DeallocationRule::Full, ReemissionRule::Requester);
    if is_safe && recovery == RecoveryRule::Switch { Recovery::Switch } else { Recovery::Cards }
}

impl<Op: Clone> Plan<'_, Op> {
    /// The rank so many places behind another one.
    fn neighbour(&self, rank: usize, ahead: usize) -> u32 {
        self.ring[(self.place_of[rank] + ahead) % self.ring.len()]
    }

    fn address(&self, rank: u32) -> Address {
        Address::worker(self.spec.hosts[rank as usize])
    }

    /// One flow for the job: hashing tells workers apart by their addresses.
    fn flow(&self) -> FlowLabel {
        FlowLabel(u32::from(self.spec.id.0))
    }

    fn worker<P: Payload<Op = Op> + ?Sized>(&self, rank: usize) -> Result<Placed<AnyNode<P>>, BuildError> {
        let (spec, host) = (self.spec, self.spec.hosts[rank]);
        let peer = |rank| NetReducePeer { rank: Rank(rank), address: self.address(rank) };
        let config = NetReduceWorkerConfig {
            job: spec.id,
            rank: Rank(rank as u32),
            workers: spec.hosts.len() as u32,
            op: spec.op.clone(),
            element_bytes: spec.element_bytes,
            block_elements: spec.payload_bytes / spec.element_bytes,
            shape: self.shape,
            predecessor: peer(self.neighbour(rank, self.ring.len() - 1)),
            successor: peer(self.neighbour(rank, 1)),
            uplink: leaf_of(self.map, host)?.port,
            switch: leaf_of(self.map, host)?.node,
            flow: self.flow(),
            reliability: reliability(spec),
            retry_limit: (self.parameters.retries > 0).then_some(self.parameters.retries),
            congestion: dcqcn(&self.parameters.congestion)?,
            recovery: recovery(self.parameters),
        };
        Ok(Placed { at: Address::worker(host), node: AnyNode::NetReduceWorker(NetReduceWorker::new(config)) })
    }

    /// The connection that begins at a rank, as a switch sees it; `None` where it neither begins nor ends there.
    fn connection(&self, switch: NodeId, rank: u32) -> Result<Option<NetReduceConnection>, BuildError> {
        let receiver = self.neighbour(rank as usize, 1);
        let leaf = |rank: u32| leaf_of(self.map, self.spec.hosts[rank as usize]);
        let (from, to) = (leaf(rank)?, leaf(receiver)?);
        let (begins, ends) = (from.node == switch, to.node == switch);
        let beyond = Beyond { switch: Address::switch(to.node), worker: self.address(receiver) };
        Ok((begins || ends).then(|| NetReduceConnection {
            rank: Rank(rank),
            ends_at: ends.then_some(to.their_port),
            through: None,
            beyond: (begins && !ends).then_some(beyond),
            behind: (ends && !begins).then_some(Address::switch(from.node)),
        }))
    }

    fn switch<P: Payload<Op = Op> + ?Sized>(
        &self,
        switch: NodeId,
        place: &TreePlace,
        members: &Members<'_>,
    ) -> Result<Placed<AnyNode<P>>, BuildError> {
        let spec = self.spec;
        let parent = |port: PortId| NetReduceParent { port, node: self.map.neighbours(switch)[port.index()].node };
        let mut connections = Vec::new();
        for rank in 0..spec.hosts.len() as u32 {
            connections.extend(self.connection(switch, rank)?);
        }
        let config = NetReduceSwitchConfig {
            node: switch,
            job: spec.id,
            op: spec.op.clone(),
            workers: spec.hosts.len() as u32,
            block_bytes: spec.payload_bytes,
            shape: self.shape,
            parent: place.parent.map(parent),
            children: place.children.iter().map(|&(port, node)| NetReduceChild { port, who: members.who(node), through: None }).collect(),
            connections,
            flow: self.flow(),
            patience: spec.patience,
            resend_gap: resend_gap(spec.rto_min),
            answers: Reliability { rto_min: Duration::from_ps(self.parameters.answer_min_ps).min(spec.rto_min), ..reliability(spec) },
            variants: self.parameters.into(),
        };
        Ok(Placed { at: Address::switch(switch), node: AnyNode::NetReduceSwitch(NetReduceSwitch::new(config)) })
    }
}

/// Some jobs become jobs of NetReduce: all that were wanted, or one in eight of those without servers.
fn campaign(draw: &mut Draw, _map: &NetworkMap, jobs: &mut [DrawnJob], only: Option<&str>) {
    for job in jobs {
        let wanted = only.map_or_else(|| job.system.servers() == 0 && draw.percent(12), |name| name == "netreduce");
        if !wanted {
            continue;
        }
        let order = *draw.pick(&[RingOrder::Host, RingOrder::Placement]);
        let window_messages = draw.between(1, u64::from(job.window.min(4))) as u32;
        let congestion = drawn(draw);
        job.system = System::NetReduce(NetReduceParameters { window_messages, order, congestion, ..NetReduceParameters::default() });
        job.reliable = true;
        if job.payload_bytes <= InaHeader::LEN as u32 {
            job.payload_bytes += InaHeader::LEN as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::any::tests::comes_back;
    use crate::build;
    use fanin_core::{JobId, Length, Suspect};

    /// A network of four workers on two leaves: Figure 5 of the paper.
    fn figure_5() -> NetworkMap {
        let mut map = NetworkMap::new(4, &[1, 1, 2]);
        (0..4).for_each(|host| _ = map.join(NodeId(host), NodeId(4 + host / 2)));
        (4..6).for_each(|leaf| _ = map.join(NodeId(leaf), NodeId(6)));
        map
    }

    fn spec(hosts: &[NodeId]) -> JobSpec<'_, ()> {
        JobSpec {
            id: JobId(3),
            hosts,
            servers: &[],
            system: System::netreduce(),
            op: (),
            element_bytes: 4,
            payload_bytes: 1_024,
            window: 340,
            reliable: true,
            rto_initial: Duration::from_ms(1),
            rto_min: Duration::from_ms(1),
            patience: Duration::from_ms(100),
            seed: 0,
        }
    }

    /// `netreduce 3`, the paper's Table 3 (its workers are numbered from 1): what each connection is translated to at the leaves, where W1 to
    /// W2 and W4 to W1 are made from the spine's sums at L1, W2 to W3 and W3 to W4 at L2.
    #[test]
    fn connections_of_figure_5_are_translated_as_in_table_3() {
        let hosts: Vec<NodeId> = (0..4).map(NodeId).collect();
        let (spec, map) = (spec(&hosts), figure_5());
        let parameters = NetReduceParameters::default();
        let plan = Plan {
            spec: &spec,
            map: &map,
            parameters: &parameters,
            shape: shape(&spec, parameters.window_messages).unwrap(),
            ring: vec![0, 1, 2, 3],
            place_of: vec![0, 1, 2, 3],
        };
        assert_eq!(plan.shape, MessageShape { window: 2, packets: 170 });
        let at = |switch: u32| -> Vec<(u32, Option<u16>, Option<u32>)> {
            let connections = (0..4).filter_map(|rank| plan.connection(NodeId(switch), rank).unwrap());
            connections.map(|one| (one.rank.0, one.ends_at.map(|port| port.0), one.beyond.map(|beyond| beyond.switch.node.0))).collect()
        };
        assert_eq!(at(4), [(0, Some(1), None), (1, None, Some(5)), (3, Some(0), None)]);
        assert_eq!(at(5), [(1, Some(0), None), (2, Some(1), None), (3, None, Some(4))]);
        assert_eq!(at(6), [], "all connections of the spine are virtual");
        let nodes = build::<Length>(&spec, &map).unwrap();
        assert_eq!(nodes.others.iter().map(|placed| placed.at.node.0).collect::<Vec<_>>(), [4, 5, 6]);
        assert_eq!(Members::new(&map, &hosts).who(NodeId(5)), Suspect::Switch(NodeId(5)));
    }

    #[test]
    fn what_cannot_be_is_refused_by_its_name() {
        let hosts: Vec<NodeId> = (0..4).map(NodeId).collect();
        let error = |change: fn(&mut JobSpec<'_, ()>)| {
            let mut spec = spec(&hosts);
            change(&mut spec);
            build::<Length>(&spec, &figure_5()).unwrap_err().to_string()
        };
        let header = "expected more than 16 bytes, the header of a message, which is a whole number of elements";
        assert_eq!(error(|spec| spec.payload_bytes = 16), format!("payload = 16: {header}"));
        assert_eq!(error(|spec| spec.reliable = false), "reliable = false: expected true: netreduce has reliable connections, with timers");
        assert_eq!(error(|spec| spec.window = 1), "window_messages = 2: expected 1 to 64, and at most the window of 1 packets");
    }

    #[test]
    fn the_longest_windows_are_possible() {
        let hosts = [0, 1].map(NodeId);
        for window_messages in 1..=MessageShape::WINDOW_MAX {
            let shape = shape(&JobSpec { window: 1 << 20, ..spec(&hosts) }, window_messages).unwrap();
            assert!(shape.is_possible() && u32::from(shape.packets) * window_messages <= 1 << 20);
        }
    }

    #[test]
    fn packets_begin_with_the_systems_number() {
        comes_back(10, NetReduceHeader::Down { message: 83, offset: 1 });
    }
}
