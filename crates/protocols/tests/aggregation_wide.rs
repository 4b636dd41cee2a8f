//! Jobs of more than 64 workers at a switch of ATP and A2TP: which sums have a name, and what becomes of those that have none.

use fanin_core::{Address, Census, Collective, DropReason, Duration, Ingress, Node, NodeId, OperationId, PortId, Rank, Via, Worker};
use fanin_protocols::atp::{AtpSwitch, AtpWindow, AtpWindowConfig, AtpWorker};
use fanin_protocols::shared::aggregation::{Nets, SwitchConfig};
use fanin_protocols::shared::real::Real;
use fanin_wire::atp::{AtpFlags, AtpHeader, FragmentId, RankSet, Waited};

use crate::aggregation::{
    BY_SWITCH, JOB, SERVER, SERVER_SWITCH, SLOT, SWITCH, Way, at, call, drops, flags_of, fragment, from, from_server, job, put,
    worker_config,
};

/// Ranks 0 to 2 at ports 0 to 2, 70 at port 5; 130 and 131 below another switch, by port 9.
fn wide() -> AtpSwitch<Census> {
    let mut wide = job(JOB, true);
    wide.size = 200;
    wide.servers[0].workers.extend([(PortId(2), Rank(2)), (PortId(5), Rank(70))]);
    wide.servers[0].elsewhere = vec![(Address::switch(SWITCH), [Rank(130), Rank(131)].into_iter().collect())];
    let largest = ();
    let reclaim_after = Duration::from_us(500);
    AtpSwitch::new(SwitchConfig { node: SERVER_SWITCH, aggregators: 4, reclaim_after, largest, block_bytes: 16, jobs: vec![wide] })
}

fn of(ranks: RankSet, flags: AtpFlags, attempt: u8) -> AtpHeader {
    AtpHeader::Gradient { at: fragment(5), slot: SLOT, ranks, fan_in: [0; 2], attempt, flags, waited: Waited::NOT }
}

fn own(rank: u32) -> AtpHeader {
    of(RankSet::of(Rank(rank)), AtpFlags::NONE, 0)
}

const OTHERS: AtpHeader = AtpHeader::Gradient {
    at: FragmentId { tensor: 0, seq: 5 },
    slot: SLOT,
    ranks: RankSet::of_group(2, 0b1100),
    fan_in: [0; 2],
    attempt: 0,
    flags: AtpFlags::NONE,
    waited: Waited::NOT,
};

/// A complete sum of more than 64 ranks is called by its switch; one of some ranks of two groups has no name, and is taken apart.
#[test]
fn of_a_large_job_sums_go_on_that_have_a_name_and_others_are_taken_apart() {
    let mut node = wide();
    put(&mut node, 0, from(JOB, 9), OTHERS, 60);
    for port in 0..3 {
        assert!(put(&mut node, 1, from(JOB, port), own(u32::from(port)), 1).sent.is_empty());
    }
    let sum = put(&mut node, 2, from(JOB, 5), own(70), 4);
    let AtpHeader::Gradient { ranks, .. } = sum.sent[0].1 else { panic!("a sum") };
    assert_eq!((ranks, sum.sent[0].2.weight()), (RankSet::all_of_switch(0), 67));
    // Sent again for the first time: that may be what was lost, and completes the sum.
    let mut node = wide();
    put(&mut node, 0, from(JOB, 0), own(0), 1);
    put(&mut node, 0, from(JOB, 9), OTHERS, 60);
    let again = of(RankSet::of(Rank(70)), AtpFlags::RESEND, 1);
    assert!(put(&mut node, 1, from(JOB, 5), again, 4).sent.is_empty());
    assert_eq!(drops(&put(&mut node, 2, from(JOB, 5), own(70), 4)), [DropReason::Duplicate]);
    // The second time it is taken apart: all who are in it are asked, and what they send passes.
    let again = of(RankSet::of(Rank(70)), AtpFlags::RESEND, 2);
    let asked = put(&mut node, 3, from(JOB, 5), again, 4);
    let header = AtpHeader::Flush { at: fragment(5), slot: SLOT };
    let expected = [Way::Port(0), Way::Port(5), Way::To(Address::switch(SWITCH), Via::Direct)];
    assert_eq!(asked.sent.iter().map(|(way, ..)| *way).collect::<Vec<_>>(), expected);
    assert!(asked.sent.iter().all(|sent| sent.1 == header));
    for (port, packet, weight) in [(0, own(0), 1), (9, OTHERS, 60), (2, own(2), 1)] {
        let passed = put(&mut node, 4, from(JOB, port), packet, weight);
        assert_eq!((passed.sent.len(), passed.sent[0].2.weight()), (1, weight));
    }
    // So it is when the server wants it; what has a name goes on as it is.
    let mut node = wide();
    let flush = |node: &mut AtpSwitch<Census>| {
        let seen = call(node, |node, tx| node.on_packet(at(9), from_server(JOB, true), &header, &Census::default(), tx));
        seen.sent.iter().map(|(way, ..)| *way).collect::<Vec<_>>()
    };
    (0..3).for_each(|port| drop(put(&mut node, 0, from(JOB, port), own(u32::from(port)), 1)));
    assert_eq!(flush(&mut node), [Way::To(SERVER, Via::Aggregators), Way::To(Address::switch(SWITCH), Via::Direct)]);
    let mut node = wide();
    put(&mut node, 0, from(JOB, 0), own(0), 1);
    put(&mut node, 0, from(JOB, 5), own(70), 4);
    assert_eq!(flush(&mut node), [Way::Port(0), Way::Port(5), Way::To(Address::switch(SWITCH), Via::Direct)]);
}

/// A contribution that was taken out of a sum is sent again when a switch asks for it, and by nobody else's word.
#[test]
fn a_worker_sends_again_what_a_switch_has_taken_apart() {
    let mut node = AtpWorker::<Census>::new(
        worker_config((), Nets::All, None),
        AtpWindow::new(AtpWindowConfig { window: 4, initial: 4, increase: Real::new(1.0) }),
    );
    call(&mut node, |node, tx| node.submit(at(0), Collective::allreduce(OperationId(0), 400), tx));
    let header = AtpHeader::Flush { at: fragment(1), slot: SLOT };
    let seen = call(&mut node, |node, tx| node.on_packet(at(5), BY_SWITCH, &header, &Census::default(), tx));
    assert_eq!(seen.sent.iter().map(|sent| (sent.1.at().seq, flags_of(&sent.1).1)).collect::<Vec<_>>(), [(1, AtpFlags::RESEND)]);
    let by_worker = Ingress { source: Address::worker(NodeId(1)), ..BY_SWITCH };
    for (from, seq) in [(by_worker, 1), (BY_SWITCH, 900)] {
        let header = AtpHeader::Flush { at: fragment(seq), slot: SLOT };
        let seen = call(&mut node, |node, tx| node.on_packet(at(6), from, &header, &Census::default(), tx));
        assert_eq!((seen.sent.len(), drops(&seen)), (0, vec![DropReason::Stale]));
    }
}
