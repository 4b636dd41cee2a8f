//! A reliable connection over a network that loses, repeats and reorders packets of both directions: everything comes once and in order, or
//! the sender names its peer.

use std::collections::BTreeMap;

use fanin_core::hash::mix;
use fanin_core::{Duration, Instant, Rank};
use fanin_protocols::shared::connection::{Arrival, Expiry, Psn, Requester, Responder, asks_for_ack};
use fanin_protocols::shared::reliability::Reliability;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

const RELIABILITY: Reliability = Reliability::lossy(Duration::from_us(50), Duration::from_us(10), Duration::from_ms(1_000));

#[derive(Clone, Copy, Debug)]
struct Wire {
    seed: u64,
    /// Of 1000 packets.
    loss: u64,
    duplication: u64,
    /// The way takes 1 to 1 + so many microseconds; packets overtake each other.
    jitter_us: u64,
    /// The responder hears nothing from this packet on.
    deaf_from: Option<u32>,
}

enum Packet {
    Data { psn: Psn, asks: bool },
    Ack(Psn),
    Nak(Psn),
}

struct Run {
    wire: Wire,
    draws: u64,
    now: Instant,
    queue: BTreeMap<(Instant, u64), Packet>,
    sent: u64,
    naks: u64,
}

impl Run {
    fn draw(&mut self) -> u64 {
        self.draws += 1;
        mix(self.wire.seed, self.draws)
    }

    fn send(&mut self, make: impl Fn() -> Packet) {
        self.sent += 1;
        if self.draw() % 1000 < self.wire.loss {
            return;
        }
        let copies = if self.draw() % 1000 < self.wire.duplication { 2 } else { 1 };
        for _ in 0..copies {
            let delay = Duration::from_ns(1_000 + self.draw() % (1_000 * self.wire.jitter_us + 1));
            self.draws += 1;
            self.queue.insert((self.now + delay, self.draws), make());
        }
    }
}

/// Sends messages of so many packets each; gives how it ended, what was taken, and the run.
fn transfer(wire: Wire, first: u32, messages: &[u32], retry_limit: Option<u32>) -> (Result<(), Rank>, Vec<u32>, Run) {
    let mut requester = Requester::new(Rank(1), Psn::new(first), &RELIABILITY, retry_limit);
    let mut responder = Responder::new(Psn::new(first));
    let mut run = Run { wire, draws: 0, now: Instant::ZERO, queue: BTreeMap::new(), sent: 0, naks: 0 };
    let ends: Vec<u32> = messages
        .iter()
        .scan(0, |end, packets| {
            *end += packets;
            Some(*end)
        })
        .collect();
    let ends_message = |psn: Psn| ends.contains(&(psn.since(Psn::new(first)) as u32 + 1));
    let mut taken = Vec::new();
    messages.iter().for_each(|packets| requester.post(*packets));
    for step in 0.. {
        assert!(step < 2_000_000, "does not end: {requester:?} {responder:?}");
        while requester.next_to_send().is_some() {
            let sending = requester.sent(run.now);
            let asks = sending.again || asks_for_ack(sending.psn, ends_message(sending.psn));
            run.send(|| Packet::Data { psn: sending.psn, asks });
        }
        if requester.is_idle() {
            break;
        }
        let timer = requester.timer_at().expect("something is under way");
        let next = run.queue.first_key_value().map(|(key, _)| *key).filter(|key| key.0 < timer);
        let Some(key) = next else {
            run.now = timer;
            match requester.on_timeout(timer) {
                Expiry::Broken { peer } => return (Err(peer), taken, run),
                expiry => assert_eq!(expiry, Expiry::Again),
            }
            continue;
        };
        run.now = key.0;
        match run.queue.remove(&key).expect("looked at above") {
            Packet::Data { psn, .. } if wire.deaf_from.is_some_and(|deaf| psn.since(Psn::new(deaf)) >= 0) => {}
            Packet::Data { psn, asks } => match responder.check(psn) {
                Arrival::Next => {
                    responder.accept(ends_message(psn));
                    taken.push(psn.number());
                    if asks {
                        run.send(|| Packet::Ack(psn));
                    }
                }
                Arrival::Again if asks => run.send(|| Packet::Ack(responder.expected().before())),
                Arrival::Ahead { report: true } => {
                    run.naks += 1;
                    run.send(|| Packet::Nak(responder.expected()));
                }
                Arrival::Again | Arrival::Ahead { .. } => {}
            },
            Packet::Ack(psn) => assert!(requester.on_ack(run.now, psn).is_some()),
            Packet::Nak(psn) => assert!(requester.on_nak(run.now, psn).is_some()),
        }
    }
    assert_eq!(responder.messages(), messages.len() as u32);
    (Ok(()), taken, run)
}

fn in_order(first: u32, packets: u32) -> Vec<u32> {
    (0..packets).map(|packet| Psn::new(first).plus(packet).number()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, rng_seed: RngSeed::Fixed(0x5eed), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn all_packets_come_once_and_in_order(
        (seed, loss, duplication) in (any::<u64>(), 0u64..300, 0u64..300),
        jitter_us in prop_oneof![Just(0u64), 0u64..20],
        first in prop_oneof![Just(0u32), 0xff_ff00u32..=0xff_ffff],
        messages in proptest::collection::vec(1u32..60, 1..8),
    ) {
        let wire = Wire { seed, loss, duplication, jitter_us, deaf_from: None };
        let (result, taken, _) = transfer(wire, first, &messages, None);
        prop_assert_eq!(result, Ok(()));
        prop_assert_eq!(taken, in_order(first, messages.iter().sum()));
    }
}

#[test]
fn without_faults_every_packet_is_sent_once() {
    let quiet = Wire { seed: 1, loss: 0, duplication: 0, jitter_us: 0, deaf_from: None };
    let (result, taken, run) = transfer(quiet, 0xff_fff0, &[100, 1, 60], None);
    assert_eq!((result, taken), (Ok(()), in_order(0xff_fff0, 161)));
    // One acknowledgement in sixteen packets, and one a message that does not end with such a packet.
    assert_eq!((run.sent, run.naks), (161 + 10 + 3, 0));
}

#[test]
fn a_loss_costs_one_report_and_what_was_under_way_behind_it() {
    for seed in 0..50 {
        let wire = Wire { seed, loss: 20, duplication: 0, jitter_us: 0, deaf_from: None };
        let (result, _, run) = transfer(wire, 0, &[300], None);
        assert_eq!(result, Ok(()));
        assert!(run.naks <= 20, "{} reports", run.naks);
    }
}

#[test]
fn a_peer_that_has_died_is_named() {
    for deaf in [0, 1, 37] {
        let wire = Wire { seed: 2, loss: 50, duplication: 50, jitter_us: 3, deaf_from: Some(deaf) };
        let (result, taken, run) = transfer(wire, 0, &[40], Some(7));
        assert_eq!((result, taken), (Err(Rank(1)), in_order(0, deaf)));
        assert!(run.now < Instant::ZERO + Duration::from_ms(200), "named after {:?}", run.now);
    }
}
