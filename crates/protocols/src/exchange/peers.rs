//! The other ranks with which this one has to do, and the channels to and from each.

use fanin_core::{Duration, Instant, JobId, Rank};

use crate::shared::receiver::ReceiveWindow;
use crate::shared::reliability::Reliability;
use crate::shared::rtt::rebased;
use crate::shared::sender::SendWindow;
use crate::shared::watch::Watch;
use crate::shared::window::rounded;

/// A packet that comes in order is acknowledged with the 8th of its kind at the latest, and with the last that a smaller window has room for.
const ACK_EVERY: u32 = 8;

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
    /// It was sent away with packets of this operation: it is to be told when that begins.
    pub turned_away: Option<u16>,
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
    window: u32,
    reliability: Reliability,
    job: JobId,
    own: Rank,
}

impl Peers {
    /// Nobody yet, among so many workers.
    pub(super) fn new(workers: usize, window: u32, reliability: Reliability, (job, own): (JobId, Rank)) -> Self {
        let window = if reliability.reliable { rounded(window) } else { 1 };
        Peers { all: Vec::new(), place: vec![0; workers].into(), window, reliability, job, own }
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
        for peer in &mut self.all {
            peer.sent.rebase(now);
            peer.watch.rebase(now);
            peer.owed_at = peer.owed_at.map(|at| rebased(at, now));
        }
    }
}
