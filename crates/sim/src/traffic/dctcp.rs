//! DCTCP (Alizadeh et al., "Data Center TCP (DCTCP)", SIGCOMM 2010; RFC 8257): a sender's window over one message, without packets and clocks.
//!
//! Each packet that arrives is acknowledged by itself, with its mark (the paper's state machine of delayed acknowledgements, 3.1, with m = 1). As in
//! RACK and QUIC, a transmission has a number of its own, which its acknowledgement names: a packet that is sent again has another one. A
//! transmission is lost when one that was begun [`REORDERING`] later is acknowledged, or by timeout (RFC 6298). What is lost halves the window as
//! in TCP (RFC 8257, 3.5). Numbers have 16 binary places, so that a run is the same everywhere.

use std::collections::{BTreeMap, BTreeSet};

/// 1 in 16 binary places.
const ONE: u64 = 1 << 16;
/// g = 1/16: what the share of marked packets of the last round counts in its average (3.3 of the paper).
const GAIN_SHIFT: u32 = 4;
/// Packets of a window at first (RFC 6928).
const WINDOW_FIRST: u64 = 10;
/// A window is at least so long (RFC 5681, equation 4), but for one packet after a timeout.
const WINDOW_MIN: u64 = 2 * ONE;
/// And at most so long: what a receiver keeps.
const WINDOW_MAX: u64 = (1 << 14) * ONE;
/// So many later ones are acknowledged before a transmission counts as lost (RFC 5681's three duplicates, RFC 9002).
const REORDERING: u64 = 3;
/// A message is given up after so many timeouts in a row.
const TIMEOUTS_MAX: u32 = 8;

/// A packet that is under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Transmission {
    packet: u64,
    sent_ps: u64,
}

/// What a timeout means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Timeout {
    /// It is not time yet.
    NotYet,
    /// Everything under way is to be sent again.
    SendAgain,
    /// The message is given up.
    GiveUp,
}

/// The sender of a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Sender {
    packets: u64,
    /// The first packet that was never sent.
    next: u64,
    /// Packets that were lost and are not sent again yet.
    again: BTreeSet<u64>,
    /// By the number of the transmission.
    under_way: BTreeMap<u64, Transmission>,
    /// Transmissions begun: the number of the next one.
    begun: u64,
    acknowledged: u64,
    window: u64,
    /// It was the window that has kept a packet from being sent: only then it grows (RFC 7661).
    is_full: bool,
    /// Below it the window grows by one with each acknowledgement (slow start).
    threshold: u64,
    /// alpha: the average share of marked packets.
    share: u64,
    /// The round ends with the acknowledgement of this transmission, or of a later one.
    round_end: u64,
    round_acknowledged: u64,
    round_marked: u64,
    /// The window has been made shorter for what was sent before this transmission.
    reduced_until: u64,
    /// Smoothed round trip, and its deviation.
    round_trip_ps: Option<(u64, u64)>,
    timeout_min_ps: u64,
    timeouts: u32,
    /// From when the timeout counts.
    heard_ps: u64,
}

impl Sender {
    /// Of a message of `packets` packets. No timeout is shorter than `timeout_min_ps`, and the first ones are as long.
    pub fn new(packets: u64, timeout_min_ps: u64) -> Self {
        Sender {
            packets,
            next: 0,
            again: BTreeSet::new(),
            under_way: BTreeMap::new(),
            begun: 0,
            acknowledged: 0,
            window: WINDOW_FIRST * ONE,
            is_full: false,
            threshold: WINDOW_MAX,
            share: ONE,
            round_end: 0,
            round_acknowledged: 0,
            round_marked: 0,
            reduced_until: 0,
            round_trip_ps: None,
            timeout_min_ps,
            timeouts: 0,
            heard_ps: 0,
        }
    }

    /// Sends a packet, where one may be sent: the numbers of the transmission and of the packet.
    pub fn send(&mut self, now_ps: u64) -> Option<(u64, u64)> {
        let is_left = !self.again.is_empty() || self.next < self.packets;
        self.is_full = is_left && self.under_way.len() as u64 >= self.window / ONE;
        if self.is_full || !is_left {
            return None;
        }
        let packet = self.again.pop_first().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        if self.under_way.is_empty() {
            self.heard_ps = now_ps;
        }
        let number = self.begun;
        self.begun += 1;
        self.under_way.insert(number, Transmission { packet, sent_ps: now_ps });
        Some((number, packet))
    }

    /// A transmission was acknowledged, as marked or not. Gives its packet, unless that is known or was given up for lost before.
    pub fn acknowledge(&mut self, number: u64, marked: bool, now_ps: u64) -> Option<u64> {
        let transmission = self.under_way.remove(&number)?;
        self.acknowledged += 1;
        (self.timeouts, self.heard_ps) = (0, now_ps);
        self.measure(now_ps.saturating_sub(transmission.sent_ps));
        self.end_round(number, marked);
        if number >= self.reduced_until {
            if marked {
                self.reduce(self.window * self.share / (2 * ONE));
            } else if self.is_full {
                let growth = if self.window < self.threshold { ONE } else { ONE * ONE / self.window };
                self.window = (self.window + growth).min(WINDOW_MAX);
            }
        }
        self.find_lost(number);
        Some(transmission.packet)
    }

    /// The average share of marked packets follows that of each round: alpha = (1 - g) alpha + g F.
    fn end_round(&mut self, number: u64, marked: bool) {
        self.round_acknowledged += 1;
        self.round_marked += u64::from(marked);
        if number < self.round_end {
            return;
        }
        let share = self.round_marked * ONE / self.round_acknowledged;
        self.share = self.share - (self.share >> GAIN_SHIFT) + (share >> GAIN_SHIFT);
        (self.round_end, self.round_acknowledged, self.round_marked) = (self.begun, 0, 0);
    }

    /// The window loses so much, once for what is under way.
    fn reduce(&mut self, by: u64) {
        self.window = (self.window - by).max(WINDOW_MIN);
        self.threshold = self.window;
        self.reduced_until = self.begun;
    }

    /// Transmissions begun well before one that is acknowledged are lost.
    fn find_lost(&mut self, acknowledged: u64) {
        let mut reduces = false;
        while let Some(first) = self.under_way.first_entry().filter(|first| first.key() + REORDERING <= acknowledged) {
            reduces |= *first.key() >= self.reduced_until;
            self.again.insert(first.remove().packet);
        }
        if reduces {
            self.reduce(self.window / 2);
        }
    }

    /// A round trip was measured (RFC 6298, 2).
    fn measure(&mut self, sample_ps: u64) {
        self.round_trip_ps = Some(match self.round_trip_ps {
            None => (sample_ps, sample_ps / 2),
            Some((smooth, deviation)) => (smooth - smooth / 8 + sample_ps / 8, deviation - deviation / 4 + smooth.abs_diff(sample_ps) / 4),
        });
    }

    /// When nothing has been heard for too long, while something is under way.
    pub fn deadline_ps(&self) -> Option<u64> {
        let measured = self.round_trip_ps.map_or(0, |(smooth, deviation)| smooth.saturating_add(deviation.saturating_mul(4)));
        let timeout = measured.max(self.timeout_min_ps).saturating_mul(1 << self.timeouts.min(TIMEOUTS_MAX));
        (!self.under_way.is_empty()).then(|| self.heard_ps.saturating_add(timeout))
    }

    /// What is to be done at this time.
    pub fn on_time(&mut self, now_ps: u64) -> Timeout {
        if self.deadline_ps().is_none_or(|deadline| now_ps < deadline) {
            return Timeout::NotYet;
        }
        self.timeouts += 1;
        if self.timeouts > TIMEOUTS_MAX {
            return Timeout::GiveUp;
        }
        self.again.extend(self.under_way.values().map(|transmission| transmission.packet));
        self.under_way.clear();
        self.reduce(self.window / 2);
        self.window = ONE;
        self.heard_ps = now_ps;
        Timeout::SendAgain
    }

    /// Transmissions begun.
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// Whether all packets have been acknowledged.
    pub fn is_done(&self) -> bool {
        self.acknowledged == self.packets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000_000;

    /// Sends what may be sent: the numbers of the transmissions.
    fn send_all(sender: &mut Sender, now_ps: u64) -> Vec<u64> {
        std::iter::from_fn(|| sender.send(now_ps)).map(|(number, _)| number).collect()
    }

    /// A round trip: everything under way is acknowledged, those with these places as marked; then the next window is sent.
    fn round(sender: &mut Sender, sent: &[u64], marked: impl Fn(usize) -> bool, now_ps: u64) -> Vec<u64> {
        for (place, number) in sent.iter().enumerate() {
            assert!(sender.acknowledge(*number, marked(place), now_ps).is_some());
        }
        send_all(sender, now_ps)
    }

    #[test]
    fn it_doubles_until_the_first_mark_which_halves_it_and_then_grows_by_one_a_round() {
        let mut sender = Sender::new(u64::MAX, 1_000 * US);
        let sent = send_all(&mut sender, 0);
        assert_eq!(sent.len(), 10);
        let sent = round(&mut sender, &sent, |_| false, US);
        assert_eq!(sent.len(), 20);
        // alpha is 1 at first, 15/16 after the first acknowledgement, and 15/16 of that and 1/16 of 1/10 with the mark, the tenth of its round: 0.885.
        let sent = round(&mut sender, &sent, |place| place == 0, 2 * US);
        assert_eq!(sent.len(), 11, "20 (1 - 0.885 / 2) = 11.1");
        // What was sent before the mark is no reason to grow; then each round adds one.
        let sizes: Vec<usize> = (3..6)
            .scan(sent, |sent, time| {
                *sent = round(&mut sender, sent, |_| false, time * US);
                Some(sent.len())
            })
            .collect();
        assert_eq!(sizes, [12, 13, 14]);
    }

    /// With a share F of marked packets in all rounds alpha comes to F, and a window of w loses w F / 2 a round.
    #[test]
    fn its_average_comes_to_the_share_of_marks() {
        let mut sender = Sender::new(u64::MAX, 1_000 * US);
        let mut sent = send_all(&mut sender, 0);
        for time in 1..200 {
            sent = round(&mut sender, &sent, |place| place % 2 == 1, time * US);
        }
        // A round of two packets, of which one is marked: half of 2 rounds to 1, and the least window is 2.
        assert_eq!(sent.len(), 2);
        assert!(sender.share.abs_diff(ONE / 2) < ONE / 16, "{}", sender.share as f64 / ONE as f64);
    }

    #[test]
    fn what_three_later_ones_have_overtaken_is_sent_again_and_halves_the_window_once() {
        let mut sender = Sender::new(30, 1_000 * US);
        assert_eq!(send_all(&mut sender, 0).len(), 10);
        // 0 and 1 are lost: 3 later ones are acknowledged with 3 and 4.
        assert_eq!(sender.acknowledge(2, false, US), Some(2));
        assert!(sender.again.is_empty());
        assert_eq!(sender.acknowledge(3, false, US), Some(3));
        assert_eq!((sender.again.first(), sender.window / ONE), (Some(&0), 6), "half of 12");
        assert_eq!(sender.acknowledge(4, false, US), Some(4));
        assert_eq!((sender.again.len(), sender.window / ONE), (2, 6), "of one window");
        assert_eq!(sender.acknowledge(0, false, US), None, "it came after all: it is sent again all the same");
        // 5 to 9 are under way: one more fits.
        assert_eq!(sender.send(US), Some((10, 0)));
        assert_eq!(sender.send(US), None);
    }

    #[test]
    fn silence_sends_everything_again_from_a_window_of_one_and_gives_up_in_the_end() {
        let mut sender = Sender::new(4, 100 * US);
        assert_eq!(send_all(&mut sender, 5 * US).len(), 4);
        assert_eq!((sender.deadline_ps(), sender.on_time(105 * US - 1)), (Some(105 * US), Timeout::NotYet));
        assert_eq!(sender.on_time(105 * US), Timeout::SendAgain);
        assert_eq!(send_all(&mut sender, 105 * US), [4], "a window of one");
        assert_eq!(sender.deadline_ps(), Some(305 * US), "twice as long");
        assert_eq!(sender.acknowledge(4, false, 106 * US), Some(0));
        assert_eq!(send_all(&mut sender, 106 * US), [5, 6], "it doubles again");
        for _ in 0..TIMEOUTS_MAX {
            assert_eq!(sender.on_time(sender.deadline_ps().unwrap()), Timeout::SendAgain);
            assert_eq!(sender.send(sender.heard_ps).map(|(_, packet)| packet), Some(1));
        }
        assert_eq!(sender.on_time(u64::MAX), Timeout::GiveUp);
    }

    #[test]
    fn a_message_ends_when_each_packet_has_been_acknowledged() {
        let mut sender = Sender::new(12, 100 * US);
        let mut packets = Vec::new();
        let mut now_ps = 0;
        while !sender.is_done() {
            now_ps += US;
            let sent: Vec<(u64, u64)> = std::iter::from_fn(|| sender.send(now_ps)).collect();
            packets.extend(sent.iter().filter_map(|(number, _)| sender.acknowledge(*number, false, now_ps)));
        }
        assert_eq!(packets, (0..12).collect::<Vec<_>>());
        assert!(sender.send(now_ps).is_none() && sender.deadline_ps().is_none());
    }
}
