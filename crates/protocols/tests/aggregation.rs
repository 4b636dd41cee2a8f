//! ATP and A2TP packet by packet: what a switch, a server and a worker do with each kind of packet, in each state; and packets that no node
//! of ours would send.

use std::borrow::Borrow;

use fanin_core::{
    Address, BlockExponent, Body, Census, Collective, DropReason, Duration, Egress, ElementOp, Event, FlowLabel, Ingress, Instant, JobId,
    Node, NodeId, OpError, OperationId, Payload, PayloadOp, Piece, PortId, Rank, Role, Route, Suspect, Tx, Via, Worker,
};
use fanin_protocols::a2tp::{A2tpRounds, A2tpServer, A2tpWindows, A2tpWorker};
use fanin_protocols::atp::{AtpRounds, AtpServer, AtpSwitch, AtpWindow, AtpWindowConfig, AtpWorker};
use fanin_protocols::shared::aggregation::{
    FixedScale, JobAtSwitch, Members, Nets, ServerAtSwitch, ServerConfig, SwitchConfig, WorkerConfig,
};
use fanin_protocols::shared::real::Real;
use fanin_protocols::shared::reliability::Reliability;
use fanin_protocols::shared::two_windows::{CollisionsOf, Synchrony, TwoWindowConfig};
use fanin_wire::atp::{AggregatorName, AtpFlags, AtpHeader, FragmentId, NextRound, RankSet, Waited};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

pub(super) const JOB: JobId = JobId(7);
const OTHER: JobId = JobId(2);
pub(super) const SWITCH: NodeId = NodeId(100);
pub(super) const SERVER_SWITCH: NodeId = NodeId(101);
pub(super) const SERVER: Address = Address { node: NodeId(50), role: Role::Server };
const LOSSY: Reliability = Reliability::lossy(Duration::from_us(100), Duration::from_us(20), Duration::from_ms(20));

/// What a handler sent, and what it said.
#[derive(Default)]
pub(super) struct Seen<P: Payload + ?Sized> {
    pub(super) sent: Vec<(Way, AtpHeader, P::Owned)>,
    notes: Vec<Event>,
    has_no_room: bool,
    delivered: Vec<(u32, P::Owned)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    Port(u16),
    Ports(usize),
    To(Address, Via),
}

/// A `Tx` that remembers.
pub(super) struct Lent<'a, P: Payload + ?Sized> {
    op: P::Op,
    seen: &'a mut Seen<P>,
    input: fn(Piece) -> P::Owned,
}

impl<P: Payload + ?Sized> Tx<AtpHeader, P> for Lent<'_, P> {
    fn send(&mut self, to: Egress<'_>, header: &AtpHeader, body: Body<'_, P>) {
        let way = match to {
            Egress::Port(port) => Way::Port(port.0),
            Egress::Ports(ports) => Way::Ports(ports.len()),
            Egress::Route(Route { to, via, .. }) => Way::To(to, via),
        };
        let payload = match body {
            Body::Empty => P::nothing(),
            Body::Borrowed(payload) => payload.own(),
            Body::Acc(acc) => P::own_acc(acc, &self.op),
            Body::Input(piece) | Body::Output(piece) => (self.input)(piece),
        };
        self.seen.sent.push((way, *header, payload));
    }

    fn room(&mut self, _to: Egress<'_>) -> bool {
        !self.seen.has_no_room
    }

    fn note(&mut self, event: Event) {
        assert!(!matches!(event, Event::Broken(_)), "{event:?}");
        self.seen.notes.push(event);
    }

    fn contribute(&mut self, piece: Piece, accumulator: &mut P::Acc, _first: bool) -> Result<(), OpError> {
        (self.input)(piece).borrow().assign(accumulator, &mut self.op)
    }

    fn fold(&mut self, _piece: Piece, _payload: &P) -> Result<(), OpError> {
        Err(OpError::NoVector)
    }

    fn deliver(&mut self, piece: Piece, body: Body<'_, P>) -> Result<(), OpError> {
        let payload = match body {
            Body::Borrowed(payload) => payload.own(),
            Body::Acc(acc) => P::own_acc(acc, &self.op),
            _ => return Err(OpError::NoVector),
        };
        self.seen.delivered.push((piece.index, payload));
        Ok(())
    }

    fn exponent(&mut self, piece: Piece) -> BlockExponent {
        // Every fifth fragment is too large for fixed point.
        BlockExponent::from_bits(if piece.index % 5 == 4 { 20 } else { 1 })
    }
}

fn census(piece: Piece) -> Census {
    Census::new(piece.elements * 4, 1 << piece.index)
}

/// Calls a handler; gives what was sent since.
pub(super) fn call<N>(node: &mut N, act: impl FnOnce(&mut N, &mut Lent<'_, Census>)) -> Seen<Census> {
    let mut seen = Seen { sent: Vec::new(), notes: Vec::new(), has_no_room: false, delivered: Vec::new() };
    act(node, &mut Lent { op: (), seen: &mut seen, input: census });
    seen
}

pub(super) fn drops(seen: &Seen<Census>) -> Vec<DropReason> {
    seen.notes.iter().filter_map(|note| if let Event::Dropped(reason) = note { Some(*reason) } else { None }).collect()
}

pub(super) fn at(us: u64) -> Instant {
    Instant::ZERO + Duration::from_us(us)
}

pub(super) fn fragment(seq: u32) -> FragmentId {
    FragmentId { tensor: 0, seq }
}

pub(super) const SLOT: AggregatorName = AggregatorName { index: 1, version: 0 };

fn gradient(seq: u32, ranks: u64, flags: AtpFlags) -> AtpHeader {
    AtpHeader::Gradient {
        at: fragment(seq),
        slot: SLOT,
        ranks: RankSet::from_bits(ranks),
        fan_in: [2, 4],
        attempt: 0,
        flags,
        waited: Waited::NOT,
    }
}

pub(super) fn flags_of(header: &AtpHeader) -> (u64, AtpFlags) {
    match header {
        AtpHeader::Gradient { ranks, flags, .. } => (ranks.bits(), *flags),
        _ => panic!("{header:?} is no gradient"),
    }
}

/// Ranks 0 and 1 at ports 0 and 1; where `is_servers`, ranks 2 and 3 below another switch, by port 9.
pub(super) fn way(is_servers: bool) -> ServerAtSwitch {
    ServerAtSwitch {
        number: u16::from(!is_servers),
        workers: vec![(PortId(0), Rank(0)), (PortId(1), Rank(1))],
        elsewhere: if is_servers { vec![(Address::switch(SWITCH), [Rank(2), Rank(3)].into_iter().collect())] } else { Vec::new() },
        server: SERVER,
        server_switch: SERVER_SWITCH,
        above: if is_servers { SERVER } else { Address::switch(SERVER_SWITCH) },
    }
}

/// With one server.
pub(super) fn job(job: JobId, is_servers: bool) -> JobAtSwitch<()> {
    JobAtSwitch { job, op: (), block_bytes: 16, size: 4, flow: FlowLabel(0), shares_collisions: false, servers: vec![way(is_servers)] }
}

fn switch(is_servers: bool) -> AtpSwitch<Census> {
    AtpSwitch::new(SwitchConfig {
        node: if is_servers { SERVER_SWITCH } else { SWITCH },
        aggregators: 4,
        reclaim_after: Duration::from_us(500),
        largest: (),
        block_bytes: 16,
        jobs: vec![job(JOB, is_servers), job(OTHER, is_servers)],
    })
}

pub(super) fn from(job: JobId, port: u16) -> Ingress {
    Ingress { port: PortId(port), source: Address::worker(NodeId(u32::from(port))), job, ecn: false }
}

pub(super) fn put(node: &mut AtpSwitch<Census>, us: u64, from: Ingress, header: AtpHeader, weight: u64) -> Seen<Census> {
    call(node, |node, tx| node.on_packet(at(us), from, &header, &Census::new(16, weight), tx))
}

fn ack(seq: u32, to: u16, flags: AtpFlags) -> AtpHeader {
    AtpHeader::Ack { at: fragment(seq), slot: SLOT, next_version: 0, to, flags, round: NextRound::default(), waited: Waited::NOT }
}

pub(super) fn from_server(job: JobId, is_servers: bool) -> Ingress {
    let source = if is_servers { SERVER } else { Address::switch(SERVER_SWITCH) };
    Ingress { port: PortId(8), source, job, ecn: false }
}

#[test]
fn contributions_are_added_and_the_sum_stays_until_its_acknowledgement() {
    let mut node = switch(false);
    let first = put(&mut node, 0, from(JOB, 0), gradient(5, 1, AtpFlags::NONE), 10);
    assert!(first.sent.is_empty());
    assert_eq!(first.notes, [Event::SlotTaken { bytes: 16 }]);
    assert_eq!(drops(&put(&mut node, 1, from(JOB, 0), gradient(5, 1, AtpFlags::NONE), 10)), [DropReason::Duplicate]);
    let marked = Ingress { ecn: true, ..from(JOB, 1) };
    let last = put(&mut node, 2, marked, gradient(5, 2, AtpFlags::NONE), 7);
    let (way, header, payload) = &last.sent[0];
    assert_eq!((*way, flags_of(header), payload.weight()), (Way::To(SERVER, Via::Aggregators), (3, AtpFlags::ECN), 17));
    // The sum may have been lost: whoever comes again has it sent again, so that no aggregator is taken for it.
    let again = put(&mut node, 3, from(JOB, 0), gradient(5, 1, AtpFlags::NONE), 10);
    assert_eq!((flags_of(&again.sent[0].1).1, again.sent[0].2.weight()), (AtpFlags::RESEND.with(AtpFlags::ECN), 17));
    assert_eq!((node.in_use(), node.in_use_by(JOB)), (1, 1));
    let done = call(&mut node, |node, tx| {
        node.on_packet(at(4), from_server(JOB, false), &ack(5, AtpHeader::TO_ALL, AtpFlags::NONE), &Census::new(16, 17), tx);
    });
    assert_eq!((done.sent[0].0, node.in_use()), (Way::Ports(2), 0));
    assert_eq!(done.notes, [Event::SlotFreed { bytes: 16 }]);
}

#[test]
fn a_collision_marks_both_and_the_loser_goes_on() {
    let mut node = switch(false);
    put(&mut node, 0, from(JOB, 0), gradient(5, 1, AtpFlags::NONE), 10);
    for loser in [gradient(6, 1, AtpFlags::NONE), gradient(5, 1, AtpFlags::NONE)] {
        let job = if loser.at().seq == 5 { OTHER } else { JOB };
        let lost = put(&mut node, 1, from(job, 0), loser, 1);
        assert_eq!((lost.sent[0].0, flags_of(&lost.sent[0].1)), (Way::To(SERVER, Via::Aggregators), (1, AtpFlags::COLLIDED)));
    }
    let won = put(&mut node, 2, from(JOB, 1), gradient(5, 2, AtpFlags::NONE), 7);
    assert_eq!((flags_of(&won.sent[0].1), won.sent[0].2.weight()), ((3, AtpFlags::COL), 17));
}

/// `a2tp 5.1`, step 2a: an aggregator waits for its acknowledgement longer than for contributions, and is most often wanted then.
#[test]
fn who_is_wanted_when_its_sum_has_gone_on_is_told_with_the_next_one() {
    let sum = |node: &mut AtpSwitch<Census>, job: JobId, seq: u32| {
        put(node, 0, from(job, 0), gradient(seq, 1, AtpFlags::NONE), 10);
        flags_of(&put(node, 0, from(job, 1), gradient(seq, 2, AtpFlags::NONE), 7).sent[0].1).1
    };
    let acknowledge = |node: &mut AtpSwitch<Census>, job: JobId, seq: u32| {
        let header = ack(seq, AtpHeader::TO_ALL, AtpFlags::NONE);
        call(node, |node, tx| node.on_packet(at(1), from_server(job, false), &header, &Census::new(16, 17), tx));
    };
    let wanted_late = |node: &mut AtpSwitch<Census>| {
        assert_eq!(sum(node, JOB, 5), AtpFlags::NONE);
        assert_eq!(sum(node, OTHER, 1), AtpFlags::COLLIDED);
        acknowledge(node, JOB, 5);
    };
    let mut node = switch(false);
    wanted_late(&mut node);
    assert_eq!(sum(&mut node, JOB, 6), AtpFlags::COL);
    acknowledge(&mut node, JOB, 6);
    assert_eq!(sum(&mut node, JOB, 7), AtpFlags::NONE, "once");
    // It does not concern who takes the aggregator over.
    let mut node = switch(false);
    wanted_late(&mut node);
    assert_eq!(sum(&mut node, OTHER, 2), AtpFlags::NONE);
    acknowledge(&mut node, OTHER, 2);
    assert_eq!(sum(&mut node, JOB, 6), AtpFlags::NONE);
}

/// What the owner met is told by whichever sum leaves, evenly, of jobs that share it out; the owner of an aggregator says nothing of its own.
#[test]
fn jobs_that_share_collisions_out_tell_of_each_others() {
    let shares = |job: JobAtSwitch<()>| JobAtSwitch { shares_collisions: true, ..job };
    let mut node = switch(false);
    [JOB, OTHER].into_iter().for_each(|number| node.admit(shares(job(number, false))));
    let sum = |node: &mut AtpSwitch<Census>, job: JobId, seq: u32| {
        put(node, 0, from(job, 0), gradient(seq, 1, AtpFlags::NONE), 10);
        let flags = flags_of(&put(node, 0, from(job, 1), gradient(seq, 2, AtpFlags::NONE), 7).sent[0].1).1;
        let header = ack(seq, AtpHeader::TO_ALL, AtpFlags::NONE);
        call(node, |node, tx| node.on_packet(at(1), from_server(job, false), &header, &Census::new(16, 17), tx));
        flags
    };
    // Hit twice while it is open: one collision, which the 16th sum tells of (four turns of four aggregators), though none is its job's.
    put(&mut node, 0, from(JOB, 0), gradient(5, 1, AtpFlags::NONE), 10);
    for seq in [8, 9] {
        let lost = put(&mut node, 0, from(OTHER, 0), gradient(seq, 1, AtpFlags::NONE), 1);
        assert_eq!(flags_of(&lost.sent[0].1).1, AtpFlags::COLLIDED);
    }
    let own = put(&mut node, 0, from(JOB, 1), gradient(5, 2, AtpFlags::NONE), 7);
    assert_eq!(flags_of(&own.sent[0].1).1, AtpFlags::NONE);
    let header = ack(5, AtpHeader::TO_ALL, AtpFlags::NONE);
    call(&mut node, |node, tx| node.on_packet(at(1), from_server(JOB, false), &header, &Census::new(16, 17), tx));
    let told: Vec<u32> = (10..60).filter(|seq| sum(&mut node, OTHER, *seq) == AtpFlags::COL).collect();
    assert_eq!(told, [10 + 14]);
}

/// Of collisions with a job whose aggregators are found waiting for its straggler nobody else is told: its sums tell of them, and its fragments
/// that find somebody else's aggregator taken tell it of that themselves.
#[test]
fn a_job_that_is_late_is_told_of_its_collisions_alone() {
    let shares = |job: JobAtSwitch<()>| JobAtSwitch { shares_collisions: true, ..job };
    let mut node = switch(false);
    [JOB, OTHER].into_iter().for_each(|number| node.admit(shares(job(number, false))));
    let free = |node: &mut AtpSwitch<Census>, job: JobId, seq: u32| {
        let header = ack(seq, AtpHeader::TO_ALL, AtpFlags::NONE);
        call(node, |node, tx| node.on_packet(at(1), from_server(job, false), &header, &Census::new(16, 17), tx));
    };
    let mut told = Vec::new();
    for seq in 0..900 {
        put(&mut node, 0, from(JOB, 0), gradient(seq, 1, AtpFlags::NONE), 10);
        let lost = put(&mut node, 0, from(OTHER, 0), gradient(seq, 1, AtpFlags::NONE), 1);
        assert_eq!(flags_of(&lost.sent[0].1).1, AtpFlags::COLLIDED, "it is not to blame");
        told.push(flags_of(&put(&mut node, 0, from(JOB, 1), gradient(seq, 2, AtpFlags::NONE), 7).sent[0].1).1);
        free(&mut node, JOB, seq);
    }
    // Its average is a share that comes near to all, and what that leaves out is shared out.
    assert!(told[800..].iter().filter(|flags| **flags == AtpFlags::COL).count() >= 98, "{told:?}");
    let (mut others, mut own) = (0, 0);
    for seq in 1_000..1_100 {
        put(&mut node, 0, from(OTHER, 0), gradient(seq, 1, AtpFlags::NONE), 10);
        let sum = put(&mut node, 0, from(OTHER, 1), gradient(seq, 2, AtpFlags::NONE), 7);
        others += u32::from(flags_of(&sum.sent[0].1).1 == AtpFlags::COL);
        let late = put(&mut node, 0, from(JOB, 0), gradient(seq, 1, AtpFlags::NONE), 1);
        own += u32::from(flags_of(&late.sent[0].1).1 == AtpFlags::COLLIDED.with(AtpFlags::COL));
        free(&mut node, OTHER, seq);
    }
    assert!(others <= 2 && own >= 98, "{others} {own}");
}

#[test]
fn a_fragment_sent_again_flushes_and_nothing_is_added_any_more() {
    let mut node = switch(false);
    put(&mut node, 0, from(JOB, 0), gradient(5, 1, AtpFlags::NONE), 10);
    put(&mut node, 1, from(OTHER, 0), gradient(1, 1, AtpFlags::NONE), 1);
    let flushed = put(&mut node, 2, from(JOB, 1), gradient(5, 2, AtpFlags::RESEND), 7);
    assert_eq!((flags_of(&flushed.sent[0].1), flushed.sent[0].2.weight()), ((3, AtpFlags::RESEND.with(AtpFlags::COL)), 17), "P7");
    let late = put(&mut node, 3, from(JOB, 0), gradient(5, 1, AtpFlags::NONE), 10);
    assert_eq!((flags_of(&late.sent[0].1), late.sent[0].2.weight(), node.in_use()), ((1, AtpFlags::RESEND), 10, 1), "P1");
    // Somebody else's is passed by.
    let passed = put(&mut node, 4, from(OTHER, 1), gradient(5, 2, AtpFlags::RESEND), 3);
    assert_eq!((flags_of(&passed.sent[0].1), passed.sent[0].2.weight()), ((2, AtpFlags::RESEND), 3));
    // What is complete goes on once more as it is, and after that nothing but the sender's own.
    let mut node = switch(false);
    put(&mut node, 0, from(JOB, 0), gradient(5, 1, AtpFlags::NONE), 10);
    put(&mut node, 1, from(JOB, 1), gradient(5, 2, AtpFlags::NONE), 7);
    let sums: Vec<u64> =
        (2..4).map(|us| put(&mut node, us, from(JOB, 1), gradient(5, 2, AtpFlags::RESEND), 7).sent[0].2.weight()).collect();
    assert_eq!(sums, [17, 7], "P3");
}

#[test]
fn the_server_has_a_switch_flush_what_is_stuck_at_both_levels() {
    let mut node = switch(true);
    put(&mut node, 0, from(JOB, 9), gradient(5, 4, AtpFlags::NONE), 10);
    let header = AtpHeader::Flush { at: fragment(5), slot: SLOT };
    let flushed = call(&mut node, |node, tx| node.on_packet(at(1), from_server(JOB, true), &header, &Census::default(), tx));
    let ways: Vec<Way> = flushed.sent.iter().map(|(way, ..)| *way).collect();
    assert_eq!(ways, [Way::To(SERVER, Via::Aggregators), Way::To(Address::switch(SWITCH), Via::Direct)]);
    assert_eq!((flags_of(&flushed.sent[0].1), flushed.sent[1].1), ((4, AtpFlags::RESEND), header));
    let again = call(&mut node, |node, tx| node.on_packet(at(2), from_server(JOB, true), &header, &Census::default(), tx));
    assert_eq!(again.sent.len(), 1, "nothing is left here");
}

/// Gap 8: a fragment that lost its aggregator at the first level does not take one at the second, and what is there goes on.
#[test]
fn the_second_level_adds_sums_and_takes_nothing_that_lost_at_the_first() {
    let mut node = switch(true);
    let lost = put(&mut node, 0, from(JOB, 9), gradient(5, 4, AtpFlags::COLLIDED), 1);
    assert_eq!((flags_of(&lost.sent[0].1).0, node.in_use()), (4, 0));
    put(&mut node, 1, from(JOB, 9), gradient(6, 0b1100, AtpFlags::NONE), 30);
    put(&mut node, 2, from(JOB, 0), gradient(6, 1, AtpFlags::NONE), 10);
    let sum = put(&mut node, 3, from(JOB, 1), gradient(6, 2, AtpFlags::NONE), 7);
    assert_eq!((flags_of(&sum.sent[0].1).0, sum.sent[0].2.weight()), (15, 47));
    let answer = ack(6, 2, AtpFlags::NONE);
    let down = call(&mut node, |node, tx| node.on_packet(at(4), from_server(JOB, true), &answer, &Census::new(16, 47), tx));
    assert_eq!(down.sent[0].0, Way::To(Address::switch(SWITCH), Via::Direct), "rank 2 is there");
    let to_all = ack(6, AtpHeader::TO_ALL, AtpFlags::NONE);
    let down = call(&mut node, |node, tx| node.on_packet(at(5), from_server(JOB, true), &to_all, &Census::new(16, 47), tx));
    assert_eq!(down.sent.iter().map(|(way, ..)| *way).collect::<Vec<_>>(), [Way::Ports(2), Way::To(Address::switch(SWITCH), Via::Direct)]);
    // One that lost meets what is open at this level: that goes on, too.
    put(&mut node, 6, from(JOB, 0), gradient(7, 1, AtpFlags::NONE), 10);
    let flushed = put(&mut node, 7, from(JOB, 9), gradient(7, 4, AtpFlags::COLLIDED), 1);
    let expected = AtpFlags::RESEND.with(AtpFlags::COLLIDED);
    assert_eq!((flags_of(&flushed.sent[0].1), flushed.sent[0].2.weight()), ((5, expected), 11));
}

#[test]
fn zombies_go_to_whoever_finds_them_and_those_of_a_job_that_ends_are_free_at_once() {
    let mut node = switch(false);
    put(&mut node, 0, from(JOB, 0), gradient(5, 1, AtpFlags::NONE), 10);
    let lost = put(&mut node, 499, from(OTHER, 0), gradient(1, 1, AtpFlags::NONE), 1);
    assert!(flags_of(&lost.sent[0].1).1.has(AtpFlags::COLLIDED));
    let taken = put(&mut node, 500, from(OTHER, 0), gradient(2, 1, AtpFlags::NONE), 1);
    assert_eq!(taken.notes, [Event::SlotReclaimed { job: JOB, bytes: 16 }, Event::SlotTaken { bytes: 16 }]);
    assert_eq!((node.in_use_by(JOB), node.in_use_by(OTHER)), (0, 1));
    // The rest of the zombie collides, and is the server's.
    assert!(flags_of(&put(&mut node, 501, from(JOB, 1), gradient(5, 2, AtpFlags::NONE), 7).sent[0].1).1.has(AtpFlags::COLLIDED));
    // P5: the same number of another tensor is another fragment.
    let other_tensor = AtpHeader::Gradient {
        at: FragmentId { tensor: 1, seq: 2 },
        slot: SLOT,
        ranks: RankSet::from_bits(2),
        fan_in: [2, 4],
        attempt: 0,
        flags: AtpFlags::NONE,
        waited: Waited::NOT,
    };
    assert!(flags_of(&put(&mut node, 502, from(OTHER, 1), other_tensor, 7).sent[0].1).1.has(AtpFlags::COLLIDED));
    let ended = call(&mut node, |node, tx| node.on_job_end(at(600), OTHER, tx));
    assert_eq!((ended.notes, node.in_use()), (vec![Event::SlotReclaimed { job: OTHER, bytes: 16 }], 0));
    assert_eq!(node.jobs().collect::<Vec<_>>(), [JOB]);
    assert_eq!(drops(&put(&mut node, 601, from(OTHER, 0), gradient(3, 1, AtpFlags::NONE), 1)), [DropReason::NotAMember]);
    node.admit(job(OTHER, false));
    assert_eq!(put(&mut node, 602, from(OTHER, 0), gradient(3, 1, AtpFlags::NONE), 1).notes, [Event::SlotTaken { bytes: 16 }]);
}

#[test]
fn what_is_no_fixed_point_and_what_comes_from_elsewhere_takes_no_aggregator() {
    let mut node = switch(false);
    let float = put(&mut node, 0, from(JOB, 0), gradient(5, 1, AtpFlags::FLOAT), 10);
    assert_eq!((float.sent.len(), node.in_use()), (1, 0));
    for (from, header) in [
        (from(JobId(3), 0), gradient(5, 1, AtpFlags::NONE)),
        (from(JOB, 0), gradient(5, 2, AtpFlags::NONE)),
        (from(JOB, 0), gradient(5, 3, AtpFlags::NONE)),
        (from(JOB, 9), gradient(5, 1, AtpFlags::NONE)),
        (from(JOB, 0), ack(5, AtpHeader::TO_ALL, AtpFlags::NONE)),
        (from(JOB, 0), AtpHeader::Flush { at: fragment(5), slot: SLOT }),
        (from(JOB, 0), AtpHeader::Waiting { at: fragment(5), rank: 1 }),
    ] {
        let seen = put(&mut node, 1, from, header, 10);
        assert_eq!((drops(&seen), seen.sent.len(), node.in_use()), (vec![DropReason::NotAMember], 0, 0), "{header:?}");
    }
    // What comes from another switch on its way to the server's goes on.
    let passed = put(&mut node, 1, from(JOB, 9), gradient(5, 4, AtpFlags::NONE), 10);
    assert_eq!((passed.sent.len(), passed.notes.len(), node.in_use()), (1, 0, 0));
}

fn server_config<Op: Clone>(op: Op, nets: Nets) -> ServerConfig<Op> {
    ServerConfig {
        job: JOB,
        workers: (0..3).map(|host| Address::worker(NodeId(host))).collect(),
        bits: (0..3).map(Rank).collect(),
        switches: Vec::new(),
        number: 0,
        at: SERVER,
        below: vec![(Address::switch(SERVER_SWITCH), Members::first(3))],
        op: op.clone(),
        fixed_op: op,
        block_bytes: 16,
        window: 4,
        aggregators: 16,
        nets,
        reliability: LOSSY,
        flow: FlowLabel(0),
    }
}

fn server(nets: Nets) -> AtpServer<Census> {
    AtpServer::new(server_config((), nets), AtpRounds::new(4))
}

pub(super) const BY_SWITCH: Ingress = Ingress { port: PortId(0), source: Address::switch(SERVER_SWITCH), job: JOB, ecn: false };

fn merge(node: &mut AtpServer<Census>, us: u64, header: AtpHeader, weight: u64) -> Seen<Census> {
    call(node, |node, tx| node.on_packet(at(us), BY_SWITCH, &header, &Census::new(16, weight), tx))
}

#[test]
fn a_server_merges_by_exact_masks() {
    let mut node = server(Nets::All);
    assert!(merge(&mut node, 0, gradient(0, 1, AtpFlags::COLLIDED), 1).sent.is_empty());
    // P3: what overlaps is dropped as a whole.
    assert_eq!(drops(&merge(&mut node, 1, gradient(0, 0b11, AtpFlags::NONE), 3)), [DropReason::Duplicate]);
    let done = merge(&mut node, 2, gradient(0, 0b110, AtpFlags::COL), 6);
    let (way, header, payload) = &done.sent[0];
    assert_eq!((*way, payload.weight()), (Way::To(Address::switch(SERVER_SWITCH), Via::Direct), 7));
    let AtpHeader::Ack { next_version, to, flags, .. } = *header else { panic!("{header:?}") };
    assert_eq!((to, flags), (AtpHeader::TO_ALL, AtpFlags::COLLIDED.with(AtpFlags::COL)));
    assert_ne!(next_version, 0, "its place gets another aggregator");
    // P6: what holds all contributions replaces what is there.
    merge(&mut node, 3, gradient(1, 1, AtpFlags::NONE), 1);
    assert_eq!(merge(&mut node, 4, gradient(1, 0b111, AtpFlags::NONE), 7).sent[0].2.weight(), 7);
    // P4: whatever comes later is answered, to who asks where that is one.
    let again = merge(&mut node, 5, gradient(1, 2, AtpFlags::RESEND), 2);
    assert!(matches!(again.sent[0].1, AtpHeader::Ack { to: 1, .. }), "{:?}", again.sent[0].1);
    let again = merge(&mut node, 6, gradient(1, 0b111, AtpFlags::RESEND), 7);
    assert!(matches!(again.sent[0].1, AtpHeader::Ack { to: AtpHeader::TO_ALL, .. }));
    for (header, reason) in [
        (gradient(0, 8, AtpFlags::NONE), DropReason::NotAMember),
        (gradient(6, 1, AtpFlags::NONE), DropReason::OutsideWindow),
        (gradient(u32::MAX - 9, 1, AtpFlags::NONE), DropReason::Stale),
    ] {
        assert_eq!(drops(&merge(&mut node, 7, header, 1)), [reason], "{header:?}");
    }
}

#[test]
fn a_server_has_flushed_what_three_later_fragments_have_overtaken_or_what_waits_for_long() {
    let mut node = server(Nets::All);
    merge(&mut node, 0, gradient(0, 1, AtpFlags::NONE), 1);
    for seq in 1..3 {
        assert_eq!(merge(&mut node, 1, gradient(seq, 0b111, AtpFlags::NONE), 7).sent.len(), 1);
    }
    let third = merge(&mut node, 2, gradient(3, 0b111, AtpFlags::NONE), 7);
    let flushes = |seen: &Seen<Census>| seen.sent.iter().filter(|(_, header, _)| matches!(header, AtpHeader::Flush { .. })).count();
    assert_eq!(flushes(&third), 1);
    // Without later ones the timer does it, a few times.
    let mut asked = 0;
    while let Some(due) = node.next_timeout() {
        asked += flushes(&call(&mut node, |node, tx| node.on_timeout(due, tx)));
        assert!(asked < 10);
    }
    assert_eq!(asked, 5);
    let mut literal = server(Nets::Paper);
    merge(&mut literal, 0, gradient(0, 1, AtpFlags::NONE), 1);
    assert_eq!(literal.next_timeout(), None);
}

#[test]
fn who_is_missing_is_told_to_those_who_ask_again_and_disagreement_to_all() {
    let mut node = server(Nets::All);
    merge(&mut node, 0, gradient(0, 0b101, AtpFlags::NONE), 5);
    let AtpHeader::Gradient { at: id, slot, fan_in, .. } = gradient(0, 1, AtpFlags::NONE) else { unreachable!() };
    let ranks = RankSet::from_bits(0b101);
    let again = AtpHeader::Gradient { at: id, slot, ranks, fan_in, attempt: 2, flags: AtpFlags::RESEND, waited: Waited::NOT };
    let told = merge(&mut node, 1, again, 5);
    let ways: Vec<Way> = told.sent.iter().map(|(way, ..)| *way).collect();
    assert_eq!(ways, [0, 2].map(|host| Way::To(Address::worker(NodeId(host)), Via::Direct)));
    assert!(told.sent.iter().all(|(_, header, _)| *header == AtpHeader::Waiting { at: id, rank: 1 }));
    let short = gradient(0, 2, AtpFlags::NONE);
    let refused = call(&mut node, |node, tx| node.on_packet(at(2), BY_SWITCH, &short, &Census::new(12, 1), tx));
    assert_eq!((refused.sent.len(), refused.sent[0].1), (3, AtpHeader::Rejected { at: id }));
}

fn waited(header: &AtpHeader) -> Option<Duration> {
    match header {
        AtpHeader::Gradient { waited, .. } | AtpHeader::Ack { waited, .. } => waited.duration(),
        _ => panic!("{header:?} has no such field"),
    }
}

/// `a2tp 8`, gap 3: each place that adds tells how long the first contribution has waited for the last one, wherever that was.
#[test]
fn sums_and_acknowledgements_tell_how_far_contributions_were_apart() {
    let us = |us: u64| Some(Duration::from_us(us));
    let mut leaf = switch(false);
    put(&mut leaf, 0, from(JOB, 0), gradient(5, 1, AtpFlags::NONE), 10);
    let sum = put(&mut leaf, 7, from(JOB, 1), gradient(5, 2, AtpFlags::NONE), 20).sent[0].1;
    assert_eq!(waited(&sum), us(7));
    // Asked for once more, or flushed: says nothing of the workers.
    assert_eq!(waited(&put(&mut leaf, 9, from(JOB, 0), gradient(5, 1, AtpFlags::NONE), 10).sent[0].1), None);
    // At the second level a sum counts from when its first contribution came to the first one.
    let mut top = switch(true);
    put(&mut top, 100, from(JOB, 0), gradient(5, 1, AtpFlags::NONE), 10);
    put(&mut top, 101, from(JOB, 1), gradient(5, 2, AtpFlags::NONE), 10);
    let AtpHeader::Gradient { at, slot, fan_in, attempt, flags, waited: leafs, .. } = sum else { unreachable!("a gradient") };
    let below = AtpHeader::Gradient { at, slot, ranks: RankSet::from_bits(0b1100), fan_in, attempt, flags, waited: leafs };
    let by_leaf = Ingress { port: PortId(9), source: Address::switch(SWITCH), job: JOB, ecn: false };
    assert_eq!(waited(&put(&mut top, 102, by_leaf, below, 30).sent[0].1), us(7));
    // A server adds what came alone, and takes no account of what was sent again.
    let mut node = server(Nets::All);
    merge(&mut node, 10, gradient(0, 1, AtpFlags::NONE), 1);
    merge(&mut node, 14, gradient(0, 2, AtpFlags::NONE), 1);
    assert_eq!(waited(&merge(&mut node, 15, gradient(0, 4, AtpFlags::NONE), 1).sent[0].1), us(5));
    let AtpHeader::Gradient { at, slot, fan_in, .. } = gradient(1, 1, AtpFlags::NONE) else { unreachable!("a gradient") };
    let again =
        AtpHeader::Gradient { at, slot, ranks: RankSet::of(Rank(0)), fan_in, attempt: 1, flags: AtpFlags::RESEND, waited: Waited::NOT };
    merge(&mut node, 20, again, 1);
    assert_eq!(waited(&merge(&mut node, 21, gradient(1, 6, AtpFlags::NONE), 1).sent[0].1), None);
}

/// `a2tp 5.8`: one worker's elements are too large; all send floats, and the integers that have come do not count.
#[test]
fn floats_replace_fixed_point_for_all() {
    let mut node = server(Nets::All);
    merge(&mut node, 0, gradient(0, 0b11, AtpFlags::NONE), 1_000);
    let asked = merge(&mut node, 1, gradient(0, 4, AtpFlags::FLOAT), 4);
    let AtpHeader::Ack { flags, .. } = asked.sent[0].1 else { panic!("{:?}", asked.sent[0].1) };
    assert!(flags.has(AtpFlags::FLOAT) && asked.sent[0].2.bytes() == 0);
    assert_eq!(drops(&merge(&mut node, 2, gradient(0, 2, AtpFlags::RESEND), 1_000)), [DropReason::Stale]);
    merge(&mut node, 3, gradient(0, 1, AtpFlags::FLOAT), 1);
    assert_eq!(merge(&mut node, 4, gradient(0, 2, AtpFlags::FLOAT), 2).sent[0].2.weight(), 7);
}

pub(super) fn worker_config<Op>(op: Op, nets: Nets, fixed_point: Option<FixedScale>) -> WorkerConfig<Op> {
    WorkerConfig {
        job: JOB,
        rank: Rank(0),
        bit: Rank(0),
        workers: 3,
        op,
        element_bytes: 4,
        block_elements: 4,
        window: 8,
        aggregators: 16,
        fan_in: [3, 3],
        number: 0,
        servers: 1,
        server: SERVER,
        suspect: Suspect::Switch(SWITCH),
        nets,
        reliability: LOSSY,
        flow: FlowLabel(0),
        fixed_point,
    }
}

const A2TP: TwoWindowConfig = TwoWindowConfig {
    window: 8,
    initial: 4,
    threshold: Real::new(0.15),
    collision_weight: Real::new(1.0),
    mark_weight: Real::new(1.0 / 16.0),
    priority: Real::new(1.0),
    quiet_rounds: 0,
    aggregators_min: 1,
    fair: false,
    links_min: 1,
    col_only: false,
    collisions: CollisionsOf::Round,
    synchrony: Synchrony::Spread,
};

#[test]
fn a_worker_sends_a_window_and_what_acknowledgements_release() {
    let window = AtpWindowConfig { window: 8, initial: 4, increase: Real::new(1.0) };
    let mut node = AtpWorker::<Census>::new(worker_config((), Nets::All, None), AtpWindow::new(window));
    let sent = call(&mut node, |node, tx| node.submit(at(0), Collective::allreduce(OperationId(0), 400), tx)).sent;
    assert_eq!(sent.iter().map(|(_, header, _)| header.at().seq).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert!(sent.iter().all(|(way, header, _)| *way == Way::To(SERVER, Via::Aggregators) && flags_of(header) == (1, AtpFlags::NONE)));
    let answer = |node: &mut AtpWorker<Census>, us: u64, seq: u32| {
        call(node, |node, tx| node.on_packet(at(us), BY_SWITCH, &ack(seq, AtpHeader::TO_ALL, AtpFlags::NONE), &Census::new(16, 9), tx))
    };
    let seen = answer(&mut node, 10, 0);
    assert_eq!((seen.delivered.len(), seen.sent[0].1.at().seq), (1, 4));
    assert_eq!(drops(&answer(&mut node, 11, 0)), [DropReason::Duplicate], "5.5, step 1");
    assert_eq!(drops(&answer(&mut node, 11, 99)), [DropReason::OutsideWindow]);
    // 5.5, step 6: three later ones have come first; a round trip later the first one goes again, once.
    (2..5).for_each(|seq| drop(answer(&mut node, 12, seq)));
    let due = node.next_timeout().unwrap();
    assert!(due > at(12) && due <= at(40), "{due:?}");
    let again = call(&mut node, |node, tx| node.on_timeout(due, tx));
    assert_eq!((again.sent[0].1.at().seq, flags_of(&again.sent[0].1).1), (1, AtpFlags::RESEND));
    // P3: only the acknowledgement stops the timer.
    assert!(node.next_timeout().is_some_and(|next| next > due));
}

/// `a2tp 5.4`, and Fig. 6 of the paper: the first ACW fragments of a round go to aggregators, the others to the server.
#[test]
fn what_is_beyond_the_aggregator_window_goes_to_the_server() {
    for nets in [Nets::All, Nets::Paper] {
        let mut node = A2tpWorker::<Census>::new(worker_config((), nets, None), A2tpWindows::agreed(A2TP));
        call(&mut node, |node, tx| node.submit(at(0), Collective::allreduce(OperationId(0), 400), tx));
        let mut ways = Vec::new();
        for seq in 0..4 {
            let round = NextRound { ahead: 4 - seq as u16, length: 4, aggregated: 1 };
            let header = AtpHeader::Ack {
                at: fragment(seq),
                slot: SLOT,
                next_version: 0,
                to: AtpHeader::TO_ALL,
                flags: AtpFlags::NONE,
                round,
                waited: Waited::NOT,
            };
            let seen = call(&mut node, |node, tx| node.on_packet(at(10), BY_SWITCH, &header, &Census::new(16, 9), tx));
            ways.extend(seen.sent.iter().map(|(way, header, _)| (*way, flags_of(header).1)));
        }
        let (direct, via) = match nets {
            Nets::All => (AtpFlags::DIRECT.with(AtpFlags::RESEND), Via::Aggregators),
            Nets::Paper => (AtpFlags::DIRECT, Via::Direct),
        };
        let beyond = (Way::To(SERVER, via), direct);
        assert_eq!(ways, [(Way::To(SERVER, Via::Aggregators), AtpFlags::NONE), beyond, beyond, beyond]);
    }
}

fn any_header() -> impl Strategy<Value = AtpHeader> {
    let tensor = || prop_oneof![3 => 0u32..3, 1 => 1u32 << 28..(1 << 28) + 2, 1 => any::<u32>()];
    let at = || (tensor(), prop_oneof![0u32..12, any::<u32>()]).prop_map(|(tensor, seq)| FragmentId { tensor, seq });
    let slot = || (prop_oneof![0u16..6, any::<u16>()], any::<u8>()).prop_map(|(index, version)| AggregatorName { index, version });
    let ranks = prop_oneof![
        6 => (1u64..16).prop_map(RankSet::from_bits),
        1 => (1u64..).prop_map(RankSet::from_bits),
        1 => (prop_oneof![Just(1u8), 0u8..255], prop_oneof![Just(64u64), 1u64..]).prop_map(|(group, bits)| RankSet::of_group(group, bits)),
        1 => prop_oneof![0u16..3, any::<u16>()].prop_map(RankSet::all_of_switch),
    ];
    prop_oneof![
        4 => (at(), slot(), ranks, any::<([u8; 2], u8, u32)>(), 0u8..64).prop_map(|(at, slot, ranks, (fan_in, attempt, waited), flags)| {
            let flags = AtpFlags::of_gradient(flags);
            AtpHeader::Gradient { at, slot, ranks, fan_in: fan_in.map(|count| count % 5), attempt, flags, waited: Waited::from_bits(waited) }
        }),
        3 => (at(), slot(), any::<(u8, u16, u8, u32)>(), (0u16..6, 0u16..9, 0u16..9)).prop_map(|(at, slot, (next_version, to, flags, waited), round)| {
            let round = NextRound { ahead: round.0, length: round.1, aggregated: round.2 };
            AtpHeader::Ack { at, slot, next_version, to: to % 5, flags: AtpFlags::of_ack(flags), round, waited: Waited::from_bits(waited) }
        }),
        1 => (at(), slot()).prop_map(|(at, slot)| AtpHeader::Flush { at, slot }),
        1 => (at(), any::<u16>()).prop_map(|(at, rank)| AtpHeader::Waiting { at, rank }),
        1 => at().prop_map(|at| AtpHeader::Rejected { at }),
    ]
}

type Arrival = (Ingress, AtpHeader, Vec<u8>);

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let source = prop_oneof![
        Just(SERVER),
        Just(Address::switch(SERVER_SWITCH)),
        Just(Address::switch(SWITCH)),
        (0u32..4).prop_map(|host| Address::worker(NodeId(host)))
    ];
    let ingress = (0u16..12, source, prop_oneof![Just(JOB), Just(OTHER), Just(JobId(900))], any::<bool>())
        .prop_map(|(port, source, job, ecn)| Ingress { port: PortId(port), source, job, ecn });
    let payload = prop_oneof![Just(0usize), Just(4), Just(16), 0usize..24].prop_map(|length| vec![1; length]);
    proptest::collection::vec((ingress, any_header(), payload), 1..60)
}

fn elements(piece: Piece) -> Box<[u8]> {
    vec![1; piece.elements as usize * 4].into()
}

/// Gives a node packets and timeouts; nothing panics.
fn survive<N: Node<[u8], Header = AtpHeader>>(node: &mut N, arrivals: &[Arrival]) {
    let mut seen = Seen::<[u8]> { sent: Vec::new(), notes: Vec::new(), has_no_room: false, delivered: Vec::new() };
    for (number, (from, header, payload)) in arrivals.iter().enumerate() {
        seen.has_no_room = number % 7 == 3;
        let tx = &mut Lent { op: ElementOp::F32_SUM.into(), seen: &mut seen, input: elements };
        node.on_packet(at(number as u64), *from, header, payload, tx);
        if let Some(due) = node.next_timeout()
            && number % 5 == 0
        {
            node.on_timeout(due, tx);
        }
        node.on_tx_ready(at(number as u64), tx);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, rng_seed: RngSeed::Fixed(0x5eed), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_switch_survives_anything(arrivals in arrivals(), is_servers in any::<bool>()) {
        let op = PayloadOp::from(ElementOp::F32_SUM);
        let with_op = |job: JobAtSwitch<()>| {
            let JobAtSwitch { job, block_bytes, flow, mut servers, .. } = job;
            let shares_collisions = job == OTHER;
            let size = if job == OTHER { 200 } else { 4 };
            if job == OTHER {
                servers[0].workers.push((PortId(5), Rank(70)));
                servers.push(way(!is_servers));
            }
            JobAtSwitch { job, op: op.clone(), size, block_bytes, flow, shares_collisions, servers }
        };
        let mut node = AtpSwitch::<[u8]>::new(SwitchConfig {
            node: if is_servers { SERVER_SWITCH } else { SWITCH },
            aggregators: 4,
            reclaim_after: Duration::from_us(9),
            largest: op.clone(),
            block_bytes: 16,
            jobs: vec![with_op(job(JOB, is_servers)), with_op(job(OTHER, is_servers))],
        });
        survive(&mut node, &arrivals);
    }

    #[test]
    fn a_server_survives_anything(arrivals in arrivals(), literal in any::<bool>(), agreed in any::<bool>()) {
        let config = server_config(ElementOp::F32_SUM.into(), if literal { Nets::Paper } else { Nets::All });
        let windows = TwoWindowConfig { window: 4, initial: 2, ..A2TP };
        let rounds = if agreed { A2tpRounds::agreed(windows) } else { A2tpRounds::Own { window: 4 } };
        survive(&mut A2tpServer::<[u8]>::new(config, rounds), &arrivals);
    }

    #[test]
    fn a_worker_survives_anything(arrivals in arrivals(), literal in any::<bool>(), agreed in any::<bool>(), fixed in any::<bool>()) {
        let scale = fixed.then_some(FixedScale { exponent: 8, too_large: 20_000 });
        let config = worker_config(ElementOp::F32_SUM.into(), if literal { Nets::Paper } else { Nets::All }, scale);
        let windows = if agreed { A2tpWindows::agreed(A2TP) } else { A2tpWindows::own(A2TP) };
        let mut node = A2tpWorker::<[u8]>::new(config, windows);
        let mut seen = Seen::<[u8]> { sent: Vec::new(), notes: Vec::new(), has_no_room: false, delivered: Vec::new() };
        let tx = &mut Lent { op: ElementOp::F32_SUM.into(), seen: &mut seen, input: elements };
        node.submit(at(0), Collective::allreduce(OperationId(0), 100), tx);
        survive(&mut node, &arrivals);
    }
}
