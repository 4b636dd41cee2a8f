//! Rina packet by packet: a driver that delivers in order, and loses, repeats or kills what a test says.

mod tasks;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use fanin_core::hash::mix;
use fanin_core::payload::weight;
use fanin_core::{
    Address, Body, Census, Collective, Duration, Egress, Event, FlowLabel, Ingress, Instant, JobId, Node, NodeId, OpError, OperationId,
    Payload, Piece, PortId, Rank, Tx, Via, Wire, Worker,
};
use fanin_protocols::rina::{
    Onward, Partitions, Results, RinaLayout, RinaMember, RinaRack, RinaSwitch, RinaSwitchConfig, RinaWorker, RinaWorkerConfig,
};
use fanin_protocols::shared::reliability::Reliability;
use fanin_wire::rina::{Item, RinaHeader, Way};

const JOB: JobId = JobId(7);
/// Elements of a packet, of 4 bytes.
const BLOCK: u32 = 4;
const PATIENCE: Duration = Duration::from_ms(10);

#[derive(Clone)]
struct Packet {
    from: Ingress,
    to: Address,
    header: RinaHeader,
    payload: Census,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Arrives,
    Lost,
    Twice,
}

/// What one worker has got.
#[derive(Clone, Default)]
struct Got {
    begun: u32,
    ended: u32,
    failed: bool,
    excluded: Vec<Rank>,
    elements: u64,
}

struct Net {
    layout: Arc<RinaLayout>,
    workers: Vec<RinaWorker<Census>>,
    switches: BTreeMap<NodeId, RinaSwitch<Census>>,
    fresh: BTreeMap<NodeId, RinaSwitch<Census>>,
    got: Vec<Got>,
    alive: Vec<bool>,
    queue: VecDeque<Packet>,
    lengths: Vec<u64>,
    now: Instant,
    /// Headers that arrived at workers, and those that arrived at all.
    arrived: Vec<(Address, RinaHeader)>,
    retransmitted: u64,
    /// Timers that ran out while nothing was under way.
    waits: u32,
}

fn census(rank: usize, piece: Piece) -> Census {
    Census::new(piece.elements * 4, weight(JOB, piece.operation, Rank(rank as u32), piece.start, piece.end()))
}

/// What a handler is lent.
struct Lent<'a> {
    layout: &'a RinaLayout,
    at: Address,
    rank: Option<usize>,
    got: Option<&'a mut Got>,
    queue: &'a mut VecDeque<Packet>,
    retransmitted: &'a mut u64,
}

impl Lent<'_> {
    fn rack_of(&self, node: NodeId) -> (&RinaRack, usize) {
        let rack = &self.layout.racks[self.layout.members[node.index()].rack as usize];
        (rack, rack.ranks.iter().position(|rank| rank.0 == node.0).expect("it is there"))
    }

    fn put(&mut self, to: Address, port: PortId, header: RinaHeader, payload: Census) {
        let from = Ingress { port, source: self.at, job: JOB, ecn: false };
        self.queue.push_back(Packet { from, to, header, payload });
    }

    fn put_by_port(&mut self, port: PortId, header: RinaHeader, payload: Census) {
        if self.rank.is_some() {
            let (rack, place) = self.rack_of(self.at.node);
            let switch = Address::switch(rack.switch);
            return self.put(switch, PortId(place as u16), header, payload);
        }
        let rack = self.layout.racks.iter().find(|rack| rack.switch == self.at.node).expect("it is there");
        let rank = rack.ranks[port.index()];
        self.put(Address::worker(NodeId(rank.0)), PortId(0), header, payload);
    }
}

impl Tx<RinaHeader, Census> for Lent<'_> {
    fn send(&mut self, to: Egress<'_>, header: &RinaHeader, body: Body<'_, Census>) {
        let payload = match body {
            Body::Empty => Census::default(),
            Body::Borrowed(payload) | Body::Acc(payload) => *payload,
            Body::Input(piece) => census(self.rank.expect("workers have vectors"), piece),
            Body::Output(_) => panic!("the output is the caller's before the end"),
        };
        match to {
            Egress::Port(port) => self.put_by_port(port, *header, payload),
            Egress::Ports(ports) => ports.iter().for_each(|port| self.put_by_port(port, *header, payload)),
            Egress::Route(route) => {
                let (rack, place) = self.rack_of(route.to.node);
                let absorbs = route.via == Via::Aggregators && rack.aggregates && rack.ranks.len() >= 2 && self.at.node != rack.switch;
                let to = if absorbs { Address::switch(rack.switch) } else { route.to };
                // By a port behind those of the workers.
                let port = if absorbs { PortId(40) } else { PortId(place as u16) };
                self.put(to, port, *header, payload);
            }
        }
    }

    fn room(&mut self, _to: Egress<'_>) -> bool {
        true
    }

    fn note(&mut self, event: Event) {
        match event {
            Event::Broken(what) => panic!("{what}"),
            Event::Retransmitted { .. } => *self.retransmitted += 1,
            Event::Excluded { rank, .. } => self.got.as_mut().expect("workers only").excluded.push(rank),
            _ => {}
        }
    }

    fn contribute(&mut self, piece: Piece, accumulator: &mut Census, first: bool) -> Result<(), OpError> {
        let input = census(self.rank.ok_or(OpError::NoVector)?, piece);
        if first { input.assign(accumulator, &mut ()) } else { input.reduce(accumulator, &mut ()) }
    }

    fn fold(&mut self, _piece: Piece, _payload: &Census) -> Result<(), OpError> {
        Err(OpError::NoVector)
    }

    fn deliver(&mut self, piece: Piece, body: Body<'_, Census>) -> Result<(), OpError> {
        let Body::Acc(payload) = body else { panic!("results are held until the end") };
        let got = self.got.as_mut().expect("workers only");
        let present = (0..self.layout.members.len()).filter(|rank| !got.excluded.contains(&Rank(*rank as u32)));
        let sum = present.map(|rank| census(rank, piece)).fold(Census::new(piece.elements * 4, 0), |sum, one| sum.plus(one));
        assert_eq!(*payload, sum, "piece {} at {:?}, without {:?}", piece.index, self.at, got.excluded);
        got.elements += u64::from(piece.elements);
        Ok(())
    }
}

/// As the paper is read, and the other ways.
const WAYS: [(Partitions, Results, Onward); 3] = [
    (Partitions::Equal, Results::Last, Onward::Switch),
    (Partitions::Balanced, Results::First, Onward::Switch),
    (Partitions::Balanced, Results::First, Onward::Agent),
];

impl Net {
    /// Racks of so many workers each, whose switches aggregate or not; operations of so many elements.
    fn new(racks: &[(u32, bool)], window: u32, lengths: &[u64]) -> Net {
        Net::with(racks, window, lengths, WAYS[0])
    }

    /// The same with partitions of these lengths, and results sent then and by these.
    fn with(racks: &[(u32, bool)], window: u32, lengths: &[u64], ways: (Partitions, Results, Onward)) -> Net {
        let (mut members, mut formed) = (Vec::new(), Vec::new());
        for (rack, &(size, aggregates)) in racks.iter().enumerate() {
            let first = members.len() as u32;
            members.extend((first..first + size).map(|rank| RinaMember { node: NodeId(rank), rack: rack as u32 }));
            let ranks = (first..first + size).map(Rank).collect();
            formed.push(RinaRack { switch: NodeId(1_000 + rack as u32), aggregates, ranks });
        }
        let order = (0..members.len() as u32).map(Rank).collect();
        let layout = Arc::new(RinaLayout::new(members, formed, order).with(ways.0, ways.1).sent_on_by(ways.2));
        let worker = |rank| {
            RinaWorker::new(RinaWorkerConfig {
                job: JOB,
                rank: Rank(rank),
                layout: layout.clone(),
                op: (),
                element_bytes: 4,
                block_elements: BLOCK,
                window,
                uplink: PortId(0),
                flow: FlowLabel(0),
                marks: true,
                full_speed: None,
                reliability: Reliability::lossy(Duration::from_us(100), Duration::from_us(10), PATIENCE),
            })
        };
        let switch = |rack: &RinaRack| {
            let members = rack.ranks.iter().zip(0..).map(|(rank, port)| (PortId(port), NodeId(rank.0))).collect();
            let config =
                RinaSwitchConfig { job: JOB, op: (), block_bytes: BLOCK * 4, window, layout: layout.clone(), members, flow: FlowLabel(0) };
            (rack.switch, RinaSwitch::new(config))
        };
        let switches: BTreeMap<_, _> = layout.racks.iter().filter(|rack| rack.aggregates && rack.ranks.len() >= 2).map(switch).collect();
        let count = layout.members.len();
        Net {
            workers: (0..count as u32).map(worker).collect(),
            fresh: switches.clone(),
            switches,
            got: vec![Got::default(); count],
            alive: vec![true; count],
            queue: VecDeque::new(),
            lengths: lengths.to_vec(),
            now: Instant::ZERO,
            arrived: Vec::new(),
            retransmitted: 0,
            waits: 0,
            layout,
        }
    }

    fn call(&mut self, to: Address, handler: impl FnOnce(&mut RinaWorker<Census>, Instant, &mut Lent<'_>)) {
        let rank = to.node.index();
        let mut lent = Lent {
            layout: &self.layout,
            at: to,
            rank: Some(rank),
            got: Some(&mut self.got[rank]),
            queue: &mut self.queue,
            retransmitted: &mut self.retransmitted,
        };
        handler(&mut self.workers[rank], self.now, &mut lent);
        while let Some(outcome) = self.workers[rank].poll() {
            let got = &mut self.got[rank];
            got.ended += 1;
            got.failed |= outcome.result.is_err();
            if !got.failed {
                assert_eq!(got.elements, self.lengths[outcome.operation.index()], "all of it");
                self.submit(rank);
            }
        }
    }

    fn submit(&mut self, rank: usize) {
        let got = &mut self.got[rank];
        let number = got.begun;
        let Some(&length) = self.lengths.get(number as usize) else { return };
        (got.begun, got.elements) = (number + 1, 0);
        got.excluded.clear();
        let collective = Collective::allreduce(OperationId(number), length);
        self.call(Address::worker(NodeId(rank as u32)), |worker, now, tx| worker.submit(now, collective, tx));
    }

    fn deliver(&mut self, packet: &Packet) {
        self.arrived.push((packet.to, packet.header));
        if self.layout.members.len() > packet.to.node.index() {
            if self.alive[packet.to.node.index()] {
                self.call(packet.to, |worker, now, tx| worker.on_packet(now, packet.from, &packet.header, &packet.payload, tx));
            }
            return;
        }
        let Some(switch) = self.switches.get_mut(&packet.to.node) else { return };
        let (queue, retransmitted) = (&mut self.queue, &mut self.retransmitted);
        let mut lent = Lent { layout: &self.layout, at: packet.to, rank: None, got: None, queue, retransmitted };
        switch.on_packet(self.now, packet.from, &packet.header, &packet.payload, &mut lent);
    }

    fn is_over(&self) -> bool {
        let done = |(got, alive): (&Got, &bool)| !alive || got.failed || got.ended as usize == self.lengths.len();
        self.got.iter().zip(&self.alive).all(done)
    }

    /// Runs until all workers that are alive have ended. `fate` is asked of every packet, with its number.
    fn run(&mut self, mut fate: impl FnMut(&mut Net, usize, &Packet) -> Fate) {
        (0..self.workers.len()).for_each(|rank| self.submit(rank));
        let mut number = 0;
        for _ in 0..2_000_000 {
            if self.is_over() {
                return;
            }
            let Some(packet) = self.queue.pop_front() else {
                self.pass_time();
                continue;
            };
            // A packet takes a while, so that losses are told from repetitions.
            self.now += Duration::from_ns(1);
            number += 1;
            let what = fate(self, number - 1, &packet);
            if what != Fate::Lost {
                self.deliver(&packet);
            }
            if what == Fate::Twice {
                self.deliver(&packet);
            }
        }
        panic!("no end");
    }

    /// The next timer runs out.
    fn pass_time(&mut self) {
        let alive = (0..self.workers.len()).filter(|rank| self.alive[*rank]);
        let next = alive.filter_map(|rank| Some((self.workers[rank].next_timeout()?, rank))).min();
        let (at, rank) = next.expect("somebody waits for something");
        self.now = self.now.max(at);
        self.waits += 1;
        self.call(Address::worker(NodeId(rank as u32)), |worker, now, tx| worker.on_timeout(now, tx));
    }

    fn assert_all_done(&self) {
        for (rank, (got, alive)) in self.got.iter().zip(&self.alive).enumerate() {
            assert!(!alive || !got.failed && got.ended as usize == self.lengths.len(), "rank {rank}");
        }
    }

    /// Transmissions from group to group, one behind the other, that the slowest partition took.
    fn steps(&self) -> usize {
        let mut of_piece: BTreeMap<(u16, u32), usize> = BTreeMap::new();
        let is_head = |address: &Address| {
            let rack = &self.layout.racks[self.layout.members[address.node.index()].rack as usize];
            !rack.aggregates || rack.ranks.len() < 2 || rack.ranks[0].0 == address.node.0
        };
        for (to, header) in self.arrived.iter().filter(|(to, _)| to.node.index() < self.layout.members.len()) {
            match header {
                RinaHeader::Sum { item, .. } => *of_piece.entry((item.partition, item.segment())).or_default() += 1,
                RinaHeader::Result { item, .. } if is_head(to) => *of_piece.entry((item.partition, item.segment())).or_default() += 1,
                _ => {}
            }
        }
        of_piece.into_values().max().unwrap_or(0)
    }
}

fn arrives(_: &mut Net, _: usize, _: &Packet) -> Fate {
    Fate::Arrives
}

/// `rina 6.1`: 2G-1 steps in all, and those of a ring, 2(N-1), where no switch aggregates. Fat tree of 16 hosts, of whose 8 racks r are
/// replaced: G = 16 - r; dragonfly of 72 hosts and 36 racks: G = 72 - r.
#[test]
fn steps_are_those_of_the_specification() {
    for (racks, replaced) in [(8, 0), (8, 1), (8, 2), (8, 3), (8, 4), (8, 5), (8, 6), (8, 7), (8, 8), (36, 0), (36, 18), (36, 36)] {
        let sizes: Vec<(u32, bool)> = (0..racks).map(|rack| (2, rack < replaced)).collect();
        let groups = 2 * racks - replaced;
        let mut net = Net::new(&sizes, 64, &[u64::from(2 * racks * BLOCK)]);
        net.run(arrives);
        net.assert_all_done();
        assert_eq!(net.workers[0].groups(), groups);
        let expected = if replaced == 0 { 2 * (2 * racks - 1) } else { 2 * groups - 1 };
        assert_eq!(net.steps() as u32, expected, "{replaced} of {racks} racks");
        assert_eq!(net.retransmitted, 0);
    }
}

const MIXES: [&[(u32, bool)]; 8] = [
    &[(1, false)],
    &[(2, true)],
    &[(4, true)],
    &[(2, true), (2, true)],
    &[(3, true), (1, true), (2, false)],
    &[(2, false), (3, true)],
    &[(2, false), (2, false)],
    &[(3, true), (2, true), (4, true)],
];

/// `rina` P4, P10, P12, `4.2`: one group, two, and any mix; workers check the number of contributors. Switches send others' results on, or none.
#[test]
fn every_mix_of_racks_gives_the_sum_of_all() {
    let mut sent_on = [0; 2];
    for racks in MIXES {
        let has_racks_only = racks.iter().all(|(size, aggregates)| *size > 1 && *aggregates);
        for (window, ways) in [1, 2, 16].into_iter().flat_map(|window| WAYS.map(|ways| (window, ways))) {
            let mut net = Net::with(racks, window, &[100, 0, 1, 57], ways);
            net.run(|net, _, packet| {
                let RinaHeader::Result { way: Way::Direct, group, .. } = packet.header else { return Fate::Arrives };
                let place = net.layout.racks.iter().position(|rack| rack.switch == packet.from.source.node);
                let is_other = has_racks_only && place.is_some_and(|place| place != usize::from(group));
                sent_on[usize::from(ways.2 == Onward::Agent)] += u32::from(is_other);
                Fate::Arrives
            });
            net.assert_all_done();
        }
    }
    assert!(sent_on[0] > 0 && sent_on[1] == 0);
}

/// `rina` P1, P2, P7, P8, P9: packets are lost and come twice, with one slot or several.
#[test]
fn sums_are_right_whatever_is_lost_or_comes_twice() {
    for racks in MIXES {
        for ((window, seed), ways) in
            [(1, 1), (1, 2), (2, 3), (16, 4), (16, 5), (4, 6)].into_iter().flat_map(|of| WAYS.map(|ways| (of, ways)))
        {
            let mut net = Net::with(racks, window, &[100, 0, 1, 57], ways);
            net.run(|_, number, _| match mix(seed, number as u64) % 20 {
                0 | 1 => Fate::Lost,
                2..=4 => Fate::Twice,
                _ => Fate::Arrives,
            });
            net.assert_all_done();
        }
    }
}

/// `rina 4.4`: the first packet of each kind is lost, and what mends that is what the specification says.
#[test]
fn each_kind_of_packet_may_be_lost() {
    type Is = fn(&RinaHeader) -> bool;
    let kinds: [(&str, Is); 8] = [
        ("task", |header| matches!(header, RinaHeader::Task { .. })),
        ("pull", |header| matches!(header, RinaHeader::Pull { .. })),
        ("gradient", |header| matches!(header, RinaHeader::Gradient { .. })),
        ("sum", |header| matches!(header, RinaHeader::Sum { .. })),
        ("result", |header| matches!(header, RinaHeader::Result { way: Way::Direct, .. })),
        ("relayed result", |header| matches!(header, RinaHeader::Result { way: Way::Relayed, .. })),
        ("done", |header| matches!(header, RinaHeader::Done { .. })),
        ("commit", |header| matches!(header, RinaHeader::Commit { .. })),
    ];
    for (name, is) in kinds {
        let (mut net, mut lost) = (Net::new(&[(3, true), (3, true)], 4, &[40]), false);
        net.run(|_, _, packet| {
            let loses = !lost && is(&packet.header);
            lost |= loses;
            if loses { Fate::Lost } else { Fate::Arrives }
        });
        assert!(lost, "{name}");
        net.assert_all_done();
    }
}

/// `rina 4.4`: of an incomplete sum only those are asked again whose gradient is missing.
#[test]
fn only_who_is_missing_is_pulled_again() {
    let (mut net, mut lost_at) = (Net::new(&[(3, true), (3, true)], 4, &[8]), None);
    net.run(|_, number, packet| {
        let is = matches!(packet.header, RinaHeader::Gradient { member: 2, .. }) && packet.to == Address::switch(NodeId(1_000));
        if lost_at.is_none() && is {
            lost_at = Some(number);
            return Fate::Lost;
        }
        Fate::Arrives
    });
    net.assert_all_done();
    let pulls = |rank: u32| {
        let to = Address::worker(NodeId(rank));
        net.arrived.iter().filter(|(at, header)| *at == to && matches!(header, RinaHeader::Pull { .. })).count()
    };
    assert_eq!((pulls(0), pulls(1)), (2, 2), "once for each of two partitions");
    assert!(pulls(2) >= 3, "{}", pulls(2));
}

/// `rina 4.4`, P7: of what is complete the sum goes out again, and no gradient.
#[test]
fn a_sum_that_was_lost_is_sent_again_by_the_switch() {
    let (mut net, mut lost) = (Net::new(&[(3, true), (3, true)], 4, &[8]), false);
    net.run(|_, _, packet| {
        let loses = !lost && matches!(packet.header, RinaHeader::Sum { .. });
        lost |= loses;
        if loses { Fate::Lost } else { Fate::Arrives }
    });
    net.assert_all_done();
    let gradients = net.arrived.iter().filter(|(_, header)| matches!(header, RinaHeader::Gradient { .. })).count();
    assert_eq!(gradients, 2 * 2 * 3, "two partitions, two racks of three");
}

/// `rina` P8: who missed a result asks its agent, which has it.
#[test]
fn a_worker_asks_its_agent_for_what_it_missed() {
    let mut net = Net::new(&[(3, true), (3, true)], 4, &[40]);
    net.run(|_, _, packet| {
        let hit = packet.to == Address::worker(NodeId(4)) && matches!(packet.header, RinaHeader::Result { way: Way::Relayed, .. });
        if hit { Fate::Lost } else { Fate::Arrives }
    });
    net.assert_all_done();
    let repairs = |from: u32| {
        net.arrived
            .iter()
            .filter(|(to, header)| *to == Address::worker(NodeId(from)) && matches!(header, RinaHeader::Repair { .. }))
            .count()
    };
    assert!(repairs(3) >= 1, "the agent of its rack");
    assert_eq!([0, 1, 2, 4, 5].map(repairs), [0; 5]);
}

/// `rina 4.3`: what all groups' results together do on the way to a rack's worker only that worker sees; the agent whose result was marked hears
/// of it, and has fewer results under way.
#[test]
fn an_agent_hears_of_marks_on_the_way_to_other_racks() {
    let under_way = |marks: bool| {
        let mut net = Net::new(&[(3, true), (3, true)], 16, &[u64::from(BLOCK) * 400]);
        let (mut most, mut came, mut told) = (0u32, 0, BTreeSet::new());
        net.run(|net, _, packet| {
            // About as long as the shortest timeout from a result to its acknowledgement.
            net.now += Duration::from_ns(200);
            if matches!(packet.header, RinaHeader::Repair { mask, .. } if mask.bits() == 0) {
                assert_eq!(packet.from.source, Address::worker(NodeId(2)));
                told.insert(packet.to);
            }
            let is_last = matches!(packet.header, RinaHeader::Result { way: Way::Relayed, .. }) && packet.to == Address::worker(NodeId(2));
            came += u32::from(is_last);
            if is_last && marks {
                let marked = Packet { from: Ingress { ecn: true, ..packet.from }, ..packet.clone() };
                net.deliver(&marked);
                return Fate::Lost;
            }
            let results = |packet: &&Packet| {
                matches!(packet.header, RinaHeader::Result { way: Way::Direct, .. }) && packet.from.source == Address::worker(NodeId(0))
            };
            if came > 200 {
                most = most.max(net.queue.iter().filter(results).count() as u32);
            }
            Fate::Arrives
        });
        net.assert_all_done();
        let agents = [0, 3].map(|node| Address::worker(NodeId(node)));
        assert_eq!(told, if marks { agents.into() } else { BTreeSet::new() });
        most
    };
    let (free, marked) = (under_way(false), under_way(true));
    assert!(marked < free, "{marked} and {free} under way");
}

/// `rina` P8: results that come late were not lost. Who has asked in vain for the first ones does not go on asking when they come: its agent would send again what is on its way.
#[test]
fn who_waited_long_for_the_first_result_asks_once() {
    const WINDOW: u32 = 16;
    for racks in MIXES {
        let mut net = Net::new(racks, WINDOW, &[u64::from(BLOCK) * 600, u64::from(BLOCK) * 300]);
        let mut stopped = BTreeMap::new();
        net.run(|net, _, packet| {
            // Before each operation's first result, longer than anybody waits.
            let RinaHeader::Result { item, .. } = packet.header else { return Fate::Arrives };
            if stopped.insert(item.operation, ()).is_none() {
                net.now += Duration::from_us(110);
                for rank in 0..net.workers.len() as u32 {
                    net.call(Address::worker(NodeId(rank)), |worker, now, tx| worker.on_timeout(now, tx));
                }
            }
            Fate::Arrives
        });
        net.assert_all_done();
        let asked = |to: &Address| {
            let is_question =
                |(at, header): &&(Address, RinaHeader)| at == to && matches!(header, RinaHeader::Repair { mask, .. } if mask.bits() != 0);
            net.arrived.iter().filter(is_question).count()
        };
        let questions: usize = (0..net.workers.len() as u32).map(|rank| asked(&Address::worker(NodeId(rank)))).sum();
        assert!(questions <= 2 * net.workers.len(), "{questions} questions, {racks:?}");
        let twice = net.arrived.iter().filter(|(_, header)| matches!(header, RinaHeader::Result { way: Way::Repair, .. })).count();
        // What was under way when they asked.
        assert!(twice <= 2 * WINDOW as usize * net.workers.len(), "{twice} sent twice, {racks:?}");
    }
}

/// `rina` P11, `4.3`: ten results go before anything is known of the way; sums go at full speed at once.
#[test]
fn results_begin_with_ten_packets() {
    let mut net = Net::new(&[(2, true), (2, true)], 16, &[u64::from(BLOCK) * 64]);
    let (mut before_ack, mut acked, mut first_task) = (0, false, 0);
    net.run(|_, _, packet| {
        let from_agent = packet.from.source == Address::worker(NodeId(0));
        match packet.header {
            RinaHeader::Result { way: Way::Direct, .. } if from_agent && !acked => before_ack += 1,
            RinaHeader::Ack { gather: true, .. } if packet.to == Address::worker(NodeId(0)) => acked = true,
            RinaHeader::Task { count, .. } if first_task == 0 => first_task = count,
            _ => {}
        }
        Fate::Arrives
    });
    net.assert_all_done();
    assert_eq!((before_ack, first_task), (10, 16));
}

/// A switch restarts without what it knew, at any moment: the sums are the same.
#[test]
fn a_switch_may_forget_everything() {
    for at in (0..300).step_by(7) {
        let mut net = Net::new(&[(3, true), (2, true)], 4, &[60]);
        net.run(|net, number, _| {
            if number == at {
                net.switches = net.fresh.clone();
            }
            Fate::Arrives
        });
        net.assert_all_done();
    }
}

/// `rina 4.4`: a switch that has restarted is told again all that it has lost at once, and what its workers have missed they ask for a batch
/// after the other: a few timers bring it to light, and not one for each piece.
#[test]
fn a_switch_that_has_restarted_costs_a_few_timeouts_and_not_one_for_each_piece() {
    for window in [4, 32] {
        for at in (0..6_000).step_by(97) {
            let mut net = Net::new(&[(4, true), (3, true), (3, true)], window, &[u64::from(BLOCK) * 300]);
            net.run(|net, number, packet| {
                // It is away for a while, and then knows nothing.
                let switch = NodeId(1_000);
                let away = (at..at + 200).contains(&number);
                if number == at + 200 {
                    let fresh = net.fresh[&switch].clone();
                    net.switches.insert(switch, fresh);
                }
                let is_at = |address: Address| address == Address::switch(switch) || address.node.0 < 4;
                if away && (is_at(packet.to) || is_at(packet.from.source)) { Fate::Lost } else { Fate::Arrives }
            });
            net.assert_all_done();
            assert!(net.waits <= 40, "{} timers, window {window}, at {at}", net.waits);
        }
    }
}

/// `rina 4.3`: who has no room for another packet asks for its acknowledgement, so nobody waits for the time after which the rest is acknowledged, however small the window is.
#[test]
fn no_timer_runs_out_where_nothing_is_lost() {
    for racks in MIXES {
        for window in [1, 2, 3, 4, 5, 16] {
            let mut net = Net::new(racks, window, &[100, 0, 1, 57, 400]);
            net.run(arrives);
            net.assert_all_done();
            assert_eq!((net.waits, net.retransmitted), (0, 0), "{racks:?}, window {window}");
        }
    }
}

/// `rina 4.5` to `4.7`, P5, P6: a worker dies after any number of packets. All others come to the same end: either they all had
/// everything, or all begin anew without it; nobody gets a sum of which one part has the dead worker's gradient and another has not.
#[test]
fn a_worker_may_die_at_any_moment() {
    for racks in [&[(3, true), (3, true)][..], &[(3, true), (2, false)], &[(5, true)], &[(3, false)]] {
        let workers = racks.iter().map(|(size, _)| size).sum::<u32>() as usize;
        for dead in 0..workers {
            let (mut with, mut without) = (0, 0);
            for at in (0..400).step_by(3) {
                let mut net = Net::new(racks, 2, &[30, 10]);
                net.run(|net, number, _| {
                    if number == at {
                        net.alive[dead] = false;
                    }
                    Fate::Arrives
                });
                net.assert_all_done();
                let survivors = || (0..workers).filter(|rank| *rank != dead);
                let first = survivors().next().unwrap();
                assert!(survivors().all(|rank| net.got[rank].excluded == net.got[first].excluded), "dead {dead} at {at}");
                if net.got[first].excluded.is_empty() { with += 1 } else { without += 1 }
            }
            assert!(without >= 5 && with + without == 134, "{racks:?}, dead {dead}: {with} with, {without} without");
        }
    }
}

/// `rina 4.7`: the coordinator dies when it has told only one of the others that the operation is over. That one has nothing to do any more
/// and does not miss it; but it knows the end, and says so. Found by model checking.
#[test]
fn who_was_not_told_of_the_end_hears_it_from_who_was() {
    for missed in [1, 2] {
        let mut net = Net::new(&[(3, true)], 1, &[1]);
        net.run(|net, _, packet| {
            let is_commit = matches!(packet.header, RinaHeader::Commit { .. }) && packet.from.source.node == NodeId(0);
            let loses = is_commit && packet.to == Address::worker(NodeId(missed));
            net.alive[0] &= !(loses || is_commit && missed == 1);
            if loses { Fate::Lost } else { Fate::Arrives }
        });
        net.assert_all_done();
        assert!(net.got.iter().all(|got| got.excluded.is_empty() && got.ended == 1), "rank {missed} was not told");
    }
}

/// `rina 4.7`: the coordinator ends the operation and dies before anybody has heard of it. All others hold the same results, so that is the
/// end for them too: nobody has a sum that another one has not.
#[test]
fn what_one_that_died_has_ended_is_ended_for_all() {
    for racks in [&[(3, true)][..], &[(2, true), (2, false)], &[(3, false)]] {
        let mut net = Net::new(racks, 1, &[9]);
        net.run(|net, _, packet| {
            let loses = matches!(packet.header, RinaHeader::Commit { .. }) && packet.from.source.node == NodeId(0);
            net.alive[0] &= !loses;
            if loses { Fate::Lost } else { Fate::Arrives }
        });
        net.assert_all_done();
        assert!(!net.alive[0] && net.got.iter().all(|got| got.excluded.is_empty() && got.ended == 1), "{racks:?}");
    }
}

/// `rina 4.6`: a rack whose agent died falls back to workers by themselves: G' = G - 1 + (rack size - 1).
#[test]
fn a_rack_without_its_agent_falls_back_to_a_ring() {
    for (dead, groups) in [(0, 3), (1, 2), (3, 3), (5, 2)] {
        let mut net = Net::new(&[(3, true), (3, true)], 4, &[100]);
        net.run(|net, number, _| {
            if number == 30 {
                net.alive[dead] = false;
            }
            Fate::Arrives
        });
        net.assert_all_done();
        for rank in (0..6).filter(|rank| *rank != dead) {
            assert_eq!((net.workers[rank].groups(), net.workers[rank].epoch()), (groups, 1), "rank {rank} without {dead}");
        }
    }
}

/// `rina 4.6`: the switch of a rack whose agent died hands on what goes to its workers by themselves, and they take it: nothing is asked for.
#[test]
fn what_passes_the_switch_of_a_rack_without_its_agent_arrives() {
    let mut net = Net::new(&[(3, true), (3, true)], 4, &[100, 400]);
    net.run(|net, number, _| {
        if number == 30 {
            net.alive[3] = false;
        }
        Fate::Arrives
    });
    net.assert_all_done();
    let asks = |header: &RinaHeader| matches!(header, RinaHeader::Repair { operation: 1, mask, .. } if mask.bits() != 0);
    assert_eq!(net.arrived.iter().filter(|(_, header)| asks(header)).count(), 0);
    assert_eq!(net.workers[4].groups(), 3);
}

/// Two die, also the coordinator and who would take over from it; a third one's job is over, since that leaves no majority.
#[test]
fn a_majority_goes_on_and_a_minority_gives_up() {
    for (dead, goes_on) in [(&[0, 1][..], true), (&[0, 3], true), (&[1, 4], true), (&[0, 1, 2], false), (&[3, 4, 5], false)] {
        for at in [5, 40, 90, 130] {
            let mut net = Net::new(&[(3, true), (3, true)], 4, &[60]);
            net.run(|net, number, _| {
                if number == at {
                    dead.iter().for_each(|rank| net.alive[*rank] = false);
                }
                Fate::Arrives
            });
            let rank = (0..6).find(|rank| !dead.contains(rank)).unwrap();
            assert_eq!(!net.got[rank].failed, goes_on, "without {dead:?} from {at}");
            if goes_on {
                net.assert_all_done();
            }
        }
    }
}

/// Deaths together with loss and repetition.
#[test]
fn a_worker_may_die_while_packets_are_lost() {
    for seed in 0..120u64 {
        let mut net = Net::new(&[(3, true), (2, true), (1, false), (1, false)], 4, &[40, 0, 25]);
        let (dead, at) = ((mix(seed, 1) % 7) as usize, (mix(seed, 2) % 400) as usize);
        net.run(|net, number, _| {
            if number == at {
                net.alive[dead] = false;
            }
            match mix(seed, number as u64 + 9) % 30 {
                0 => Fate::Lost,
                1 => Fate::Twice,
                _ => Fate::Arrives,
            }
        });
        net.assert_all_done();
    }
}

/// `rina` P3: an agent withholds what is not there yet, whatever the switch asks for.
#[test]
fn an_agent_sends_no_partial_sum_that_it_does_not_have() {
    let mut net = Net::new(&[(2, true), (2, true)], 4, &[8]);
    (0..4).for_each(|rank| net.submit(rank));
    net.queue.clear();
    let from = Ingress { port: PortId(0), source: Address::switch(NodeId(1_000)), job: JOB, ecn: false };
    // Partition 1 begins at the other rack; its sum comes to rank 0 later.
    for rank in [0, 1] {
        let header = RinaHeader::Pull { item: Item::new(0, 0, 1, 3, 0), count: 1, fresh: false };
        net.deliver(&Packet { from, to: Address::worker(NodeId(rank)), header, payload: Census::default() });
    }
    let senders: Vec<NodeId> = net.queue.iter().map(|packet| packet.from.source.node).collect();
    assert_eq!(senders, [NodeId(1)], "only the worker whose own gradient is all that it has");
}

/// Any header from anybody: nothing panics, and who is left alone afterwards still comes to an end.
#[test]
fn nothing_that_is_sent_makes_a_node_panic() {
    for seed in 0..300u64 {
        let mut net = Net::new(&[(3, true), (2, true), (1, false)], 4, &[40]);
        net.run(|net, number, _| {
            if number < 200 && number % 3 == 0 {
                let bits = |part: u64| mix(seed * 1_000 + number as u64, part);
                let mut bytes: Vec<u8> = (0..4).flat_map(|part| bits(part).to_le_bytes()).map(|byte| byte & 3).collect();
                (bytes[0], bytes[1]) = (bits(7) as u8 % 6 + 1, bits(8) as u8 % 4);
                if let Ok((header, _)) = RinaHeader::parse(&bytes) {
                    // From a stranger.
                    let source = Address::worker(NodeId(500 + (bits(9) % 3) as u32));
                    let from = Ingress { port: PortId((bits(10) % 4) as u16), source, job: JOB, ecn: false };
                    let to =
                        if bits(11) % 2 == 0 { Address::worker(NodeId((bits(12) % 6) as u32)) } else { Address::switch(NodeId(1_000)) };
                    net.deliver(&Packet { from, to, header, payload: Census::new((bits(13) % 20) as u32, bits(14)) });
                }
            }
            Fate::Arrives
        });
        net.assert_all_done();
    }
}
