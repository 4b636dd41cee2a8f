//! NetReduce: what the accelerator itself does about loss (`netreduce 8.5`), packet by packet.

use crate::common::suite::Job;
use crate::common::{ELEMENT_BYTES, Faults, JOB};
use crate::netreduce_plan::Plan;
use fanin_core::{
    Address, Body, Census, Duration, Egress, Event, Ingress, Instant, Node, NodeId, OpError, Payload, Piece, PortId, RetransmitReason, Tx,
};
use fanin_protocols::netreduce::{NetReduceSwitch, Recovery, Variants};
use fanin_wire::netreduce::{NetReduceHeader, PacketNumber};

/// What a switch sends.
#[derive(Default)]
struct Sent {
    /// Sums: the port and the number.
    sums: Vec<(u16, u32)>,
    /// Acknowledgements and reports: the port and the number.
    acks: Vec<(u16, u32)>,
    naks: Vec<(u16, u32)>,
}

impl Tx<NetReduceHeader, Census> for Sent {
    fn send(&mut self, to: Egress<'_>, header: &NetReduceHeader, _body: Body<'_, Census>) {
        let Egress::Port(port) = to else { return };
        match *header {
            NetReduceHeader::First { at, .. } | NetReduceHeader::Next { at, .. } => self.sums.push((port.0, at.psn())),
            NetReduceHeader::Ack { psn, .. } => self.acks.push((port.0, psn)),
            NetReduceHeader::Nak { psn, .. } => self.naks.push((port.0, psn)),
            _ => {}
        }
    }

    fn room(&mut self, _to: Egress<'_>) -> bool {
        true
    }

    fn note(&mut self, _event: Event) {}

    fn contribute(&mut self, _piece: Piece, _accumulator: &mut <Census as Payload>::Acc, _first: bool) -> Result<(), OpError> {
        Err(OpError::NoVector)
    }

    fn fold(&mut self, _piece: Piece, _payload: &Census) -> Result<(), OpError> {
        Err(OpError::NoVector)
    }

    fn deliver(&mut self, _piece: Piece, _body: Body<'_, Census>) -> Result<(), OpError> {
        Err(OpError::NoVector)
    }
}

/// A switch with two workers, whose messages have eight packets.
struct Bench {
    switch: NetReduceSwitch<Census>,
    now: Instant,
}

impl Bench {
    fn new() -> Self {
        let mut switches = Plan { packets: 8, ..Plan::star(2) }.switches::<Census>();
        Bench { switch: switches.swap_remove(0), now: Instant::ZERO }
    }

    fn give(&mut self, rank: u16, header: &NetReduceHeader, payload: &Census) -> Sent {
        self.now += Duration::from_us(1);
        let from = Ingress { port: PortId(rank), source: Address::worker(NodeId(u32::from(rank))), job: JOB, ecn: false };
        let mut sent = Sent::default();
        self.switch.on_packet(self.now, from, header, payload, &mut sent);
        sent
    }

    /// A packet of the first message.
    fn packet(&mut self, rank: u16, psn: u32) -> Sent {
        let at = PacketNumber::new(psn, psn == 7);
        let header = match psn {
            0 => NetReduceHeader::First { at, message: 0, length: 240, address: 0, connection: rank, ring: JOB.0, packets: 8 },
            _ => NetReduceHeader::Next { at, connection: rank, last: psn == 7 },
        };
        let elements = if psn == 0 { 4 } else { 8 };
        self.give(rank, &header, &Census::new(elements * ELEMENT_BYTES, u64::from(psn)))
    }

    fn answer(&mut self, rank: u16, psn: u32, is_nak: bool) -> Sent {
        let (messages, connection) = (0, 1 - rank);
        let header =
            if is_nak { NetReduceHeader::Nak { psn, messages, connection } } else { NetReduceHeader::Ack { psn, messages, connection } };
        self.give(rank, &header, &Census::new(0, 0))
    }

    fn wake(&mut self) -> Sent {
        self.now = self.switch.next_timeout().expect("something is waited for");
        let mut sent = Sent::default();
        self.switch.on_timeout(self.now, &mut sent);
        sent
    }
}

#[test]
fn sums_behind_a_gap_wait_in_their_slots() {
    let mut bench = Bench::new();
    (0..8).for_each(|psn| _ = bench.packet(0, psn));
    assert_eq!((bench.packet(1, 0).sums, bench.packet(1, 1).sums), (vec![(1, 0), (0, 0)], vec![(1, 1), (0, 1)]));
    let behind = bench.packet(1, 3);
    assert_eq!((behind.sums, behind.naks), (vec![], vec![(1, 0)]), "its card is sent back, and nobody else hears of it");
    assert!([4, 5].iter().all(|psn| bench.packet(1, *psn).naks.is_empty()), "once");
    let filled = bench.packet(1, 2).sums;
    assert_eq!(filled, [2, 3, 4, 5].iter().map(|psn| (1, *psn)).chain([2, 3, 4, 5].iter().map(|psn| (0, *psn))).collect::<Vec<_>>());
}

#[test]
fn a_card_is_sent_back_to_what_its_receiver_lacks_and_told_nothing_else() {
    let mut bench = Bench::new();
    for psn in 0..5 {
        bench.packet(0, psn);
        bench.packet(1, psn);
    }
    // The connection of worker 1 ends at worker 0, which acknowledges the first two.
    assert_eq!(bench.answer(0, 1, false).acks, [(1, 1)], "it passes");
    assert_eq!(bench.packet(1, 6).naks, [(1, 2)], "5 is missing; a card would take a report of 5 as an acknowledgement of 4");
    // What comes again and has been acknowledged is acknowledged again; what is under way is not sent twice.
    let again = bench.packet(1, 3);
    assert!(again.sums.is_empty() && again.acks.is_empty());
    // The report is lost, and nothing comes.
    assert!((0..3).any(|_| bench.wake().naks == [(1, 2)]));
}

#[test]
fn a_sum_that_is_lost_goes_again_from_its_slot() {
    let mut bench = Bench::new();
    for psn in 0..6 {
        bench.packet(0, psn);
        bench.packet(1, psn);
    }
    let reported = bench.answer(0, 3, true);
    assert_eq!((reported.sums, reported.naks), (vec![(0, 3), (0, 4), (0, 5)], vec![]), "its sender hears nothing of it");
    assert_eq!(reported.acks, [(1, 2)], "but what the report acknowledges");
    // All of that is lost, and nobody reports it.
    bench.answer(1, 5, false);
    assert_eq!(bench.wake().sums, [(0, 3), (0, 4), (0, 5)]);
}

/// P1, against `one_loss_makes_all_go_back` of the literal rules.
#[test]
fn who_has_lost_nothing_does_not_go_back() {
    let again = |recovery, leaves| {
        (0..40).map(move |seed| {
            let variants = Variants { recovery, ..Variants::default() };
            let faults = Faults { seed, loss: 2, ..Faults::NONE };
            let plan = Plan { window: 2, packets: 32, leaves, variants, faults, ..Plan::star(8) };
            let ended = plan.run::<Census>(&[4_000]);
            ended.all_done(1);
            ended.counts.retransmitted.get(&RetransmitReason::Gap).copied().unwrap_or(0)
        })
    };
    for leaves in [1, 2] {
        let [cards, switch] = [Recovery::Cards, Recovery::Switch].map(|recovery| again(recovery, leaves).sum::<u64>());
        println!("{leaves} leaves: {cards} packets go again by cards, {switch} where accelerators recover");
        assert!(switch > 0 && 4 * switch < cards, "{switch} against {cards}");
    }
}
