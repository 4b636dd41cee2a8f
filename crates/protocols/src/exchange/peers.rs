//! The other ranks with which this one has to do, and the channels to and from each.

use std::sync::Arc;

use fanin_core::{Duration, Instant, JobId, NodeId, Rank};

use super::config::ExchangeWorkerConfig;
use crate::shared::congestion::{CongestionWindow, is_queued};
use crate::shared::receiver::ReceiveWindow;
use crate::shared::reliability::Reliability;
use crate::shared::rtt::rebased;
use crate::shared::sender::SendWindow;
use crate::shared::watch::Watch;
use crate::shared::window::rounded;

/// A packet that comes in order is acknowledged with the 8th of its kind at the latest, and with the last that a smaller window has room for.
const ACK_EVERY: u32 = 8;

/// What may be under way to all ranks together before anything is known of the network: what 100 Gb/s bring in the 5 us of a round trip, so
/// that a transfer through an empty network begins as fast as its link.
const FIRST_BYTES: u32 = 64 << 10;
/// So many packets always may be: two acknowledgements' worth.
const WINDOW_MIN: u32 = 2 * ACK_EVERY;

/// The name of a packet's contents.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Hop {
    pub message: u16,
    pub packet: u32,
}

/// Another rank.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Peer {
    pub rank: Rank,
    pub sent: SendWindow<Hop>,
    pub received: ReceiveWindow,
    /// The number of the last packet, where nothing is acknowledged.
    pub unacknowledged: u32,
    /// Packets that came in order and are not acknowledged, and when they must be.
    pub owed_count: u32,
    pub owed_at: Option<Instant>,
    /// Packets that it is still to send in the running operation.
    pub awaited: u32,
    /// The newest operation that it has begun, as far as it said so.
    pub ready: Option<u16>,
    /// It was sent away with packets of this operation, the last one before this sequence: it is to be told when that begins.
    pub turned_away: Option<(u16, u32)>,
    /// It has said that it is there, but has not begun the running operation.
    pub is_behind: bool,
    pub watch: Watch,
}

/// All ranks that this one has had to do with.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Peers {
    pub all: Vec<Peer>,
    /// By rank: one more than its place in `all`; 0 for those without one.
    place: Box<[u16]>,
    /// How many packets may be under way to all of them together, and how many are.
    congestion: CongestionWindow,
    under_way: u32,
    /// The switch next to each worker; the shortest round trip to those at the same one, and to the others.
    racks: Arc<[NodeId]>,
    shortest: [Duration; 2],
    /// A round trip to somebody, as last measured: what is expected where nothing has been.
    usual: Option<Duration>,
    window: u32,
    reliability: Reliability,
    job: JobId,
    own: Rank,
}

impl Peers {
    /// Nobody yet, among the workers of a job.
    pub(super) fn new<O>(config: &ExchangeWorkerConfig<O>) -> Self {
        let window = if config.reliability.reliable { rounded(config.window) } else { 1 };
        let first = FIRST_BYTES / config.block_elements.saturating_mul(config.element_bytes).max(1);
        Peers {
            all: Vec::new(),
            place: vec![0; config.addresses.len()].into(),
            congestion: CongestionWindow::new(first.clamp(WINDOW_MIN, window.max(WINDOW_MIN)), true),
            under_way: 0,
            racks: config.racks.clone(),
            shortest: [Duration::MAX; 2],
            usual: None,
            window,
            reliability: config.reliability,
            job: config.job,
            own: config.rank,
        }
    }

    /// The shortest round trip of the longer ways. Messages to one peer are few, and the first packets to it may find a queue already, so it is
    /// not the peer's own; and a window for all of them must fill the way to those who are far.
    #[inline]
    fn shortest(&mut self, place: usize) -> Duration {
        let Peer { rank, sent, .. } = &self.all[place];
        let is_far = self.racks.get(rank.index()) != self.racks.get(self.own.index());
        let own = &mut self.shortest[usize::from(is_far)];
        *own = sent.shortest_round_trip().min(*own);
        let [near, far] = self.shortest;
        if far == Duration::MAX || near != Duration::MAX && near > far { near } else { far }
    }

    /// Whether one more packet may be sent to this peer.
    #[inline]
    pub(super) fn has_room(&self, place: usize) -> bool {
        self.under_way < self.window_packets() && self.all[place].sent.has_room()
    }

    /// How many packets may be under way to all peers together. Two acknowledgements' worth always may: with less, a sender would wait for
    /// the time after which a receiver acknowledges fewer packets.
    #[inline]
    pub(super) fn window_packets(&self) -> u32 {
        self.congestion.packets().max(WINDOW_MIN).min(self.window)
    }

    /// Sends a packet to this peer, which must have room; gives its number.
    #[inline]
    pub(super) fn push(&mut self, now: Instant, place: usize, hop: Hop) -> u32 {
        let sent = &mut self.all[place].sent;
        if let Some(usual) = self.usual.filter(|_| sent.round_trip().is_none()) {
            sent.expect(usual);
        }
        let before = sent.under_way();
        let sequence = sent.push(now, hop);
        self.under_way += sent.under_way() - before;
        sequence
    }

    /// A peer acknowledges: all packets before `next`, and those of `mask` behind it. `is_last` says whether a packet ends a message. False where
    /// the acknowledgement cannot be right.
    ///
    /// The window grows while round trips are short and it is used; where they are longer than two of the shortest, it shrinks once a round
    /// trip to what fills the way twice. So it needs no marks, and what other traffic has queued counts as well.
    #[inline]
    pub(super) fn on_ack(&mut self, now: Instant, place: usize, (next, mask): (u32, u64), is_last: impl FnOnce(Hop) -> bool) -> bool {
        let (every, window, under_way) = (self.ack_every(), self.window_packets(), self.under_way);
        let sent = &mut self.all[place].sent;
        let (first, before) = (sent.first(), sent.under_way());
        let fresh = next.wrapping_sub(first);
        // So few, in order and in the midst of a message: the receiver has waited for more of them.
        let is_late = mask == 0 && fresh > 0 && fresh < every && !is_last(sent.item(next.wrapping_sub(1)));
        let sent_at = if is_late || fresh == 0 || fresh > before { None } else { sent.sent_once_at(next.wrapping_sub(1)) };
        let is_possible = if is_late { sent.on_late_ack(now, next, mask) } else { sent.on_ack(now, next, mask) };
        if !is_possible {
            return false;
        }
        let acknowledged = before - sent.under_way();
        self.under_way -= acknowledged;
        self.usual = sent.round_trip().or(self.usual);
        let shortest = self.shortest(place);
        match sent_at.map(|at| now.since(at)) {
            Some(round_trip) if is_queued(round_trip, shortest) => self.congestion.shrink_by_loss(now, round_trip, shortest),
            _ if under_way >= window / 2 => self.congestion.climb(acknowledged, self.window),
            _ => {}
        }
        true
    }

    /// A packet to this peer was lost, and later ones have come.
    pub(super) fn on_loss(&mut self, now: Instant, place: usize) {
        if let Some(round_trip) = self.all[place].sent.round_trip() {
            let shortest = self.shortest(place);
            self.congestion.shrink_by_loss(now, round_trip, shortest);
        }
    }

    /// Nothing came back from this peer in time.
    pub(super) fn on_timeout(&mut self, now: Instant, place: usize) {
        let round_trip = self.all[place].sent.round_trip().unwrap_or(self.reliability.rto_initial);
        self.congestion.shrink(now, round_trip);
    }

    /// The place of a rank in `all`, which is made where there is none. The rank is that of a worker.
    #[inline]
    pub(super) fn place(&mut self, rank: u32) -> usize {
        match self.place[rank as usize] {
            0 => self.add(rank),
            place => usize::from(place) - 1,
        }
    }

    #[cold]
    fn add(&mut self, rank: u32) -> usize {
        self.all.push(Peer {
            rank: Rank(rank),
            sent: SendWindow::new(self.window, &self.reliability).of(self.job, self.own),
            received: ReceiveWindow::new(self.window),
            unacknowledged: 0,
            owed_count: 0,
            owed_at: None,
            awaited: 0,
            ready: None,
            turned_away: None,
            is_behind: false,
            watch: Watch::default(),
        });
        self.place[rank as usize] = self.all.len() as u16;
        self.all.len() - 1
    }

    /// The peer of this rank, where there is one.
    pub(super) fn known(&self, rank: u32) -> Option<usize> {
        self.place.get(rank as usize).filter(|place| **place > 0).map(|place| usize::from(*place) - 1)
    }

    /// After how many packets in order one is acknowledged.
    #[inline]
    pub(super) fn ack_every(&self) -> u32 {
        ACK_EVERY.min(self.window)
    }

    /// After how long.
    #[inline]
    pub(super) fn ack_delay(&self) -> Duration {
        self.reliability.rto_min.divided(4)
    }

    /// An operation begins: channels begin anew.
    pub(super) fn begin(&mut self) {
        self.under_way = 0;
        for peer in &mut self.all {
            peer.sent.restart();
            peer.received.restart();
            (peer.owed_count, peer.owed_at, peer.awaited, peer.is_behind) = (0, None, 0, false);
        }
    }

    /// Whether all that was sent is acknowledged.
    #[inline]
    pub(super) fn nothing_under_way(&self) -> bool {
        self.all.iter().all(|peer| peer.sent.is_empty())
    }

    /// Makes times relative to `now`.
    pub(super) fn rebase(&mut self, now: Instant) {
        self.congestion.rebase(now);
        for peer in &mut self.all {
            peer.sent.rebase(now);
            peer.watch.rebase(now);
            peer.owed_at = peer.owed_at.map(|at| rebased(at, now));
        }
    }
}
