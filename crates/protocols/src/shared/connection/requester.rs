//! The sending end of a reliable connection.

use fanin_core::hash::mix;
use fanin_core::{Duration, Instant, Rank};

use super::Psn;
use crate::shared::reliability::Reliability;
use crate::shared::rtt::{RttEstimator, rebased};

/// A packet that is to be sent now.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Sending {
    /// Its number.
    pub psn: Psn,
    /// It was sent before: it asks for an acknowledgement, whatever its place. What is behind it may never come, and the acknowledgement of
    /// what came before may be the only news that there is.
    pub again: bool,
}

/// What the end of a timer means.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Expiry {
    /// It has not run out.
    Early,
    /// The sender has gone back to the oldest packet.
    Again,
    /// So many in a row that the connection is broken; the peer is who should have acknowledged.
    Broken {
        /// The worker at the other end.
        peer: Rank,
    },
}

/// The packet by which the round trip is measured.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Timed {
    psn: Psn,
    first_at: Instant,
    last_at: Instant,
}

/// The sending end of a reliable connection (`netreduce 5.4`). Numbers go `first <= next <= highest <= end`: acknowledged up to `first`, to be
/// sent next, ever sent, posted.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Requester {
    peer: Rank,
    first: Psn,
    next: Psn,
    highest: Psn,
    end: Psn,
    rtt: RttEstimator,
    timed: Option<Timed>,
    /// The last round trip that was measured since it went back.
    latest: Option<Duration>,
    /// When the timer was started: with the oldest packet, or the last one that was sent again; `None` while nothing is under way.
    armed_at: Option<Instant>,
    /// When something was acknowledged, or sent while nothing was under way.
    progress_at: Instant,
    /// Timeouts since then.
    timeouts: u32,
    /// The connection breaks with one timeout more than this.
    retry_limit: Option<u32>,
    /// What goes again waits for acknowledgements, not only for the link.
    paced: bool,
}

impl Requester {
    /// A connection to `peer` on which nothing was sent; packets begin with this number. Without a retry limit it never breaks by itself.
    pub fn new(peer: Rank, first: Psn, reliability: &Reliability, retry_limit: Option<u32>) -> Self {
        Requester {
            peer,
            first,
            next: first,
            highest: first,
            end: first,
            rtt: RttEstimator::new(reliability),
            timed: None,
            latest: None,
            armed_at: None,
            progress_at: Instant::ZERO,
            timeouts: 0,
            retry_limit,
            paced: false,
        }
    }

    /// Whoever has this end does not send all that may go again at once, but waits for acknowledgements in between; so the timer runs
    /// meanwhile.
    pub fn paced(self) -> Self {
        Requester { paced: true, ..self }
    }

    /// The application hands over a message of so many packets.
    pub fn post(&mut self, packets: u32) {
        self.end = self.end.plus(packets);
    }

    /// One past the last packet that was posted.
    #[inline]
    pub fn end(&self) -> Psn {
        self.end
    }

    /// The first packet that is not acknowledged.
    #[inline]
    pub fn first(&self) -> Psn {
        self.first
    }

    /// Packets that were sent, or sent again, and are not acknowledged.
    #[inline]
    pub fn outstanding(&self) -> u32 {
        self.next.since(self.first) as u32
    }

    /// Packets that may be sent now, for the first time or again.
    #[inline]
    pub fn unsent(&self) -> u32 {
        self.end.since(self.next) as u32
    }

    /// Whether all that was posted is acknowledged.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.first == self.end
    }

    /// When something was last acknowledged, or sent while nothing was under way.
    #[inline]
    pub fn progress_at(&self) -> Instant {
        self.progress_at
    }

    /// The smoothed round trip in microseconds, once one has been measured.
    pub fn round_trip_us(&self) -> Option<f64> {
        self.rtt.smoothed().map(|round_trip| round_trip.as_ps() as f64 / 1e6)
    }

    /// How long it waits for an answer now.
    #[inline]
    pub fn timeout(&self) -> Duration {
        self.rtt.timeout()
    }

    /// Whether packets are known to meet no queue on their way: the last round trip that was measured since it went back was a short one.
    #[inline]
    pub fn meets_no_queue(&self) -> bool {
        self.latest.is_some_and(|round_trip| self.rtt.is_short(round_trip))
    }

    /// The packet that may be sent next.
    #[inline]
    pub fn next_to_send(&self) -> Option<Psn> {
        (self.next != self.end).then_some(self.next)
    }

    /// The packet that [`Requester::next_to_send`] names is sent now.
    #[inline]
    pub fn sent(&mut self, now: Instant) -> Sending {
        let (psn, again) = (self.next, self.next.since(self.highest) < 0);
        self.next = psn.plus(1);
        if !again {
            self.highest = self.next;
            if psn == self.first {
                self.progress_at = now;
            }
        }
        match &mut self.timed {
            None if !again => self.timed = Some(Timed { psn, first_at: now, last_at: now }),
            Some(timed) if timed.psn == psn => timed.last_at = now,
            _ => {}
        }
        if again {
            self.armed_at = Some(now);
        } else {
            self.armed_at.get_or_insert(now);
        }
        Sending { psn, again }
    }

    /// All packets up to `psn` have arrived. Gives how many of them were not known to; `None` where it says what cannot be.
    #[inline]
    pub fn on_ack(&mut self, now: Instant, psn: Psn) -> Option<u32> {
        self.acknowledge(now, psn.plus(1))
    }

    /// The packet `psn` is missing and all before it have arrived: goes back to it. As [`Requester::on_ack`].
    pub fn on_nak(&mut self, now: Instant, psn: Psn) -> Option<u32> {
        // What was acknowledged since cannot be missing: the report is an old one.
        if psn.since(self.first) < 0 {
            return Some(0);
        }
        let count = self.acknowledge(now, psn)?;
        self.go_back();
        Some(count)
    }

    /// The peer is there, and will take what is under way later: that it has not says nothing of the connection.
    pub fn on_alive(&mut self) {
        self.timeouts = 0;
    }

    fn acknowledge(&mut self, now: Instant, upto: Psn) -> Option<u32> {
        if upto.since(self.highest) > 0 {
            return None;
        }
        let count = upto.since(self.first);
        if count <= 0 {
            return Some(0);
        }
        self.first = upto;
        if self.next.since(upto) < 0 {
            self.next = upto;
        }
        if let Some(timed) = self.timed.filter(|timed| timed.psn.since(upto) < 0) {
            self.rtt.on_answer(now, timed.first_at, timed.last_at);
            self.latest = (timed.first_at == timed.last_at).then(|| now.since(timed.first_at));
            self.timed = None;
        }
        (self.progress_at, self.timeouts) = (now, 0);
        self.armed_at = (self.first != self.next).then_some(now);
        Some(count as u32)
    }

    fn go_back(&mut self) {
        (self.next, self.armed_at, self.latest) = (self.first, None, None);
    }

    /// When the timer runs out: that of the oldest packet, or after going back that of the last one that was sent again. It does not run before
    /// all of these have gone: where a link takes longer for them than the timeout, going back once more would only begin with the first ones
    /// again, and the last ones, which a message's acknowledgement waits for, would never go.
    #[inline]
    pub fn timer_at(&self) -> Option<Instant> {
        if !self.paced && self.next.since(self.highest) < 0 {
            return None;
        }
        Some(self.armed_at? + self.patience())
    }

    /// How long an answer is waited for. Timeouts that follow each other are up to a quarter longer, each connection's by amounts of its own:
    /// InfiniBand lets a card take one to four times the time that it is given, and no two cards' clocks agree. Connections that share a short
    /// queue would otherwise send again in step for ever, and the same ones find it full each time.
    fn patience(&self) -> Duration {
        let timeout = self.rtt.timeout();
        if self.timeouts == 0 {
            return timeout;
        }
        let drawn = mix(mix(u64::from(self.peer.0), u64::from(self.first.number())), u64::from(self.timeouts)) >> 32;
        timeout + Duration::from_ps(((u128::from(timeout.as_ps() / 4) * u128::from(drawn)) >> 32) as u64)
    }

    /// Looks whether the timer has run out; goes back where it has.
    pub fn on_timeout(&mut self, now: Instant) -> Expiry {
        let Some((armed_at, _)) = self.armed_at.zip(self.timer_at()).filter(|(_, at)| *at <= now) else { return Expiry::Early };
        if self.retry_limit.is_some_and(|limit| self.timeouts >= limit) {
            self.abandon();
            return Expiry::Broken { peer: self.peer };
        }
        self.timeouts = self.timeouts.saturating_add(1);
        self.rtt.on_timeout(now, armed_at, self.progress_at <= armed_at);
        self.go_back();
        Expiry::Again
    }

    /// Forgets what is under way: nobody waits for it any more.
    pub fn abandon(&mut self) {
        (self.first, self.next, self.highest) = (self.end, self.end, self.end);
        (self.armed_at, self.timed) = (None, None);
    }

    /// Makes times relative to `now`.
    pub fn rebase(&mut self, now: Instant) {
        self.armed_at = self.armed_at.map(|at| rebased(at, now));
        self.progress_at = rebased(self.progress_at, now);
        if let Some(timed) = &mut self.timed {
            (timed.first_at, timed.last_at) = (rebased(timed.first_at, now), rebased(timed.last_at, now));
        }
        self.rtt.rebase(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RELIABILITY: Reliability = Reliability::lossy(Duration::from_us(100), Duration::from_us(20), Duration::from_ms(100));

    fn at(us: u64) -> Instant {
        Instant::ZERO + Duration::from_us(us)
    }

    fn requester(first: u32, retry_limit: Option<u32>) -> Requester {
        Requester::new(Rank(3), Psn::new(first), &RELIABILITY, retry_limit)
    }

    fn send_all(end: &mut Requester, now: Instant) -> Vec<u32> {
        std::iter::from_fn(|| end.next_to_send().map(|_| end.sent(now).psn.number())).collect()
    }

    #[test]
    fn an_acknowledgement_is_for_all_before_it_and_a_gap_is_gone_back_to() {
        let mut end = requester(0xff_fffe, None);
        end.post(5);
        assert_eq!(send_all(&mut end, at(0)), [0xff_fffe, 0xff_ffff, 0, 1, 2]);
        assert_eq!(end.on_ack(at(5), Psn::new(0xff_ffff)), Some(2));
        assert!(end.meets_no_queue(), "5 us, as short as ever");
        assert_eq!(end.on_ack(at(5), Psn::new(0xff_fffe)), Some(0), "an old one");
        assert_eq!(end.on_ack(at(5), Psn::new(3)), None, "never sent");
        assert_eq!(end.on_nak(at(6), Psn::new(1)), Some(1), "0 has arrived");
        assert!(!end.meets_no_queue(), "nobody knows, since it went back");
        assert_eq!(end.sent(at(6)), Sending { psn: Psn::new(1), again: true });
        assert_eq!(end.on_nak(at(6), Psn::new(0)), Some(0), "an old report changes nothing");
        assert_eq!(end.sent(at(6)), Sending { psn: Psn::new(2), again: true });
        end.post(1);
        assert_eq!(end.sent(at(7)), Sending { psn: Psn::new(3), again: false });
        assert!(!end.is_idle() && end.on_ack(at(9), Psn::new(3)) == Some(3) && end.is_idle());
        assert_eq!((end.timer_at(), end.next_to_send()), (None, None));
    }

    #[test]
    fn an_acknowledgement_while_going_back_skips_what_has_arrived() {
        let mut end = requester(0, None);
        end.post(4);
        send_all(&mut end, at(0));
        assert_eq!(end.on_timeout(at(100)), Expiry::Again);
        assert_eq!(end.on_ack(at(101), Psn::new(2)), Some(3));
        assert_eq!(send_all(&mut end, at(101)), [3]);
    }

    #[test]
    fn the_timer_is_of_the_oldest_packet_and_backs_off() {
        let mut end = requester(0, None);
        assert_eq!(end.timer_at(), None);
        end.post(3);
        end.sent(at(10));
        end.sent(at(60));
        assert_eq!((end.timer_at(), end.on_timeout(at(109))), (Some(at(110)), Expiry::Early));
        assert_eq!(end.on_timeout(at(110)), Expiry::Again);
        assert_eq!(end.timer_at(), None, "nothing is under way before it is sent again");
        assert_eq!(send_all(&mut end, at(115)), [0, 1, 2]);
        assert!(end.timer_at().is_some_and(|timer| (at(315)..at(365)).contains(&timer)));
        end.on_ack(at(116), Psn::new(0));
        assert!(end.timer_at().is_some_and(|timer| timer > at(116) && timer <= at(316)));
    }

    #[test]
    fn all_that_is_sent_again_goes_before_the_timer_runs_out_once_more() {
        let mut end = requester(0, None);
        end.post(4);
        send_all(&mut end, at(0));
        assert_eq!(end.on_timeout(at(100)), Expiry::Again);
        // A packet in 150 us, where the timeout is 200.
        for number in 0..4 {
            assert_eq!((end.timer_at(), end.on_timeout(at(100_000))), (None, Expiry::Early));
            assert_eq!(end.sent(at(200 + 150 * number)), Sending { psn: Psn::new(number as u32), again: true });
        }
        assert!(end.timer_at().is_some_and(|timer| (at(650 + 200)..at(650 + 250)).contains(&timer)));
        assert_eq!(end.on_timeout(at(900)), Expiry::Again);
    }

    #[test]
    fn where_acknowledgements_are_waited_for_in_between_the_timer_runs() {
        let mut end = requester(0, None).paced();
        end.post(4);
        send_all(&mut end, at(0));
        assert_eq!((end.on_nak(at(50), Psn::new(0)), end.unsent()), (Some(0), 4));
        assert_eq!(end.timer_at(), None, "nothing has gone again");
        end.sent(at(60));
        assert_eq!((end.unsent(), end.timer_at()), (3, Some(at(160))));
        assert_eq!(end.on_timeout(at(160)), Expiry::Again);
    }

    #[test]
    fn a_peer_that_never_answers_is_named_after_so_many_timeouts() {
        let mut end = requester(0, Some(7));
        end.post(1);
        let mut timeouts = 0;
        while let Some(now) = end.next_to_send().map(|_| end.sent(at(0))).and(None).or_else(|| end.timer_at()) {
            match end.on_timeout(now) {
                Expiry::Again => {
                    timeouts += 1;
                    end.sent(now);
                }
                expiry => assert_eq!(expiry, Expiry::Broken { peer: Rank(3) }),
            }
        }
        assert_eq!(timeouts, 7);
        assert!(end.is_idle());
    }

    /// The first timeout is exact; those that follow it differ from connection to connection, and are never shorter, nor longer than allowed.
    #[test]
    fn connections_that_time_out_together_do_not_stay_in_step() {
        let mut ends: Vec<Requester> = (0..8).map(|peer| Requester::new(Rank(peer), Psn::new(0), &RELIABILITY, None)).collect();
        for end in &mut ends {
            end.post(1);
            end.sent(at(0));
            assert_eq!(end.timer_at(), Some(at(100)));
            assert_eq!(end.on_timeout(at(100)), Expiry::Again);
            end.sent(at(100));
        }
        let mut seconds: Vec<Instant> = ends.iter().map(|end| end.timer_at().expect("it waits")).collect();
        let timeout = ends[0].rtt.timeout();
        assert!(seconds.iter().all(|second| (at(100) + timeout..at(100) + timeout + timeout.divided(4)).contains(second)), "{seconds:?}");
        seconds.sort_unstable();
        seconds.dedup();
        assert_eq!(seconds.len(), 8, "{seconds:?}");
    }
}
