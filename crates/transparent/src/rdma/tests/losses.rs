//! What the switch does for connections in which something was lost, so that cards need not wait for half a second: Linux's RoCE goes back once
//! between two acknowledgements, says once that it lacks a packet, and sends again by itself only then.

use super::*;

/// Time passes at a switch of two workers.
struct Bench {
    switch: Switch,
    run: Run,
    now_us: u64,
}

impl Bench {
    fn new() -> Self {
        let mut switch = switch(2);
        learn(&mut switch, 2);
        Bench { switch, run: Run::new(2, 5, 3_000), now_us: 1_000 }
    }

    fn now(&self) -> Instant {
        Instant::from_ps(self.now_us * 1_000_000)
    }

    fn put(&mut self, from: usize, mut frame: Vec<u8>) -> Vec<(usize, RoceHeader)> {
        let mut wire = Wire::default();
        self.switch.on_frame(self.now(), from, Offload::default(), &mut frame, &mut wire);
        headers(&wire)
    }

    fn packets(&mut self, rank: usize, packets: &[usize]) {
        packets.iter().for_each(|packet| drop(self.put(rank, self.run.frame(rank, *packet))));
    }

    /// The card of rank 1 answers rank 0: with the number of a packet from its first one on.
    fn answer(&mut self, syndrome: u8, packet: usize) -> Vec<(usize, RoceHeader)> {
        let bth = Bth::new(opcode::ACKNOWLEDGE, 77, (self.run.psn(0) + packet as u32) & 0xff_ffff);
        let header = RoceHeader { envelope: envelope(1, 0), bth, reth: None, aeth: Some(Aeth { syndrome, messages: 0 }), immediate: None };
        let mut out = vec![0; header.frame_len(0)];
        header.emit(&[], &mut out);
        self.put(1, out)
    }

    /// What the switch says by itself after so many microseconds.
    fn after(&mut self, microseconds: u64) -> Vec<(usize, RoceHeader)> {
        self.now_us += microseconds;
        let mut wire = Wire::default();
        self.switch.settle(self.now(), &mut wire);
        headers(&wire)
    }

    /// To which packet an answer is, and which one.
    fn said(&self, frames: &[(usize, RoceHeader)]) -> Vec<(u8, u32)> {
        let answers = frames.iter().filter(|(port, header)| *port == 0 && header.bth.queue_pair == 77);
        answers.map(|(_, header)| (header.aeth.unwrap().syndrome, header.bth.psn.wrapping_sub(self.run.psn(0)) & 0xff_ffff)).collect()
    }
}

fn headers(wire: &Wire) -> Vec<(usize, RoceHeader)> {
    wire.0.iter().map(|(port, frame)| (*port, RoceHeader::parse(frame).expect("whatever leaves has right checks").0)).collect()
}

#[test]
fn what_a_receiver_lacks_is_said_behind_an_acknowledgement_of_what_it_has() {
    let mut bench = Bench::new();
    (0..2).for_each(|rank| bench.packets(rank, &[0, 1, 2, 3, 4, 5, 6]));
    let heard = bench.answer(Aeth::ACK, 1);
    assert_eq!(bench.said(&heard), [(Aeth::ACK, 1)]);
    let heard = bench.answer(Aeth::NAK_SEQUENCE, 4);
    assert_eq!(bench.said(&heard), [(Aeth::ACK, 3), (Aeth::NAK_SEQUENCE, 4)]);
    // Once more nothing is new.
    let heard = bench.answer(Aeth::NAK_SEQUENCE, 4);
    assert_eq!(bench.said(&heard), [(Aeth::NAK_SEQUENCE, 4)]);
}

#[test]
fn whose_acknowledgement_or_packet_is_lost_is_helped_a_few_times_within_milliseconds() {
    // Of four packets the sums have left, and one is acknowledged; or of three the one in the middle is lost.
    for (sent, others) in [(vec![0, 1, 2, 3], vec![0, 1, 2, 3]), (vec![0, 2], vec![0])] {
        let mut bench = Bench::new();
        bench.packets(0, &sent);
        bench.packets(1, &others);
        bench.answer(Aeth::ACK, 0);
        assert_eq!(bench.after(3_900), [], "nothing is late yet");
        for wait in [200, 4_000, 8_000] {
            let asked = bench.after(wait);
            assert!(bench.said(&asked).is_empty(), "its receiver is asked");
            assert!(asked.iter().any(|(port, header)| *port == 1 && header.bth.opcode == opcode::WRITE_ONLY && header.reth.is_some()));
            // A card that is slow says nothing, and one that has no more says so, behind all that it was sent.
            let heard = bench.answer(Aeth::ACK, 0);
            assert_eq!(bench.said(&heard), [(Aeth::ACK, 0), (Aeth::NAK_SEQUENCE, 1)]);
        }
        assert_eq!(bench.after(400_000), [], "a card has few retries, which are its own");
        assert_eq!(bench.switch.statistics().rdma.sent_back, 3);
        // Something moves: it may be helped once more.
        bench.answer(Aeth::ACK, 1);
        assert!(sent.len() < 4 || bench.switch.due().is_some());
    }
}

#[test]
fn whoever_waits_for_others_is_not_disturbed() {
    let mut bench = Bench::new();
    bench.packets(0, &[0]);
    bench.packets(1, &[0]);
    bench.answer(Aeth::ACK, 0);
    bench.packets(0, &[1, 2, 3, 4]);
    // Rank 0's card sends them again since rank 1 is late.
    bench.packets(0, &[1, 2, 3, 4]);
    // Rank 1's own sum was not acknowledged, of which nobody can tell it.
    for _ in 0..100 {
        let heard = bench.after(10_000);
        assert_eq!(bench.said(&heard), []);
    }
}
