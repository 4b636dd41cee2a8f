//! A driver's counts for other threads: written down a few times a second, never per packet, and without ever making the driver wait.

use std::sync::{Arc, Mutex, PoisonError};

use fanin_core::Duration;
use fanin_net::SendStatistics;

use crate::counters::{Counters, PeerCounters};

/// What a driver has done up to a moment that is not long ago.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Snapshot {
    /// By packet and reason.
    pub counters: Counters,
    /// By datagram and system call.
    pub sent: SendStatistics,
    /// By peer, in the order in which they were configured.
    pub peers: Vec<PeerCounters>,
}

/// Where a driver writes its counts down.
#[derive(Clone, Debug)]
pub struct Watch(Arc<Mutex<Snapshot>>);

impl Watch {
    /// How old the counts may be while the driver is busy. An idle one adds the time that it sleeps at most.
    pub const INTERVAL: Duration = Duration::from_ms(200);

    pub(crate) fn new(peers: usize) -> Self {
        Watch(Arc::new(Mutex::new(Snapshot { peers: vec![PeerCounters::default(); peers], ..Snapshot::default() })))
    }

    /// The last counts that were written down.
    pub fn read(&self) -> Snapshot {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Writes counts down; says whether it could: not while somebody reads.
    pub(crate) fn write(&self, counters: &Counters, sent: &SendStatistics, peers: impl Iterator<Item = PeerCounters>) -> bool {
        let Ok(mut snapshot) = self.0.try_lock() else { return false };
        snapshot.set(counters, sent, peers);
        true
    }

    /// Writes counts down, when nobody reads any more.
    pub(crate) fn write_last(&self, counters: &Counters, sent: &SendStatistics, peers: impl Iterator<Item = PeerCounters>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).set(counters, sent, peers);
    }
}

impl Snapshot {
    fn set(&mut self, counters: &Counters, sent: &SendStatistics, peers: impl Iterator<Item = PeerCounters>) {
        self.counters.clone_from(counters);
        self.sent = *sent;
        self.peers.iter_mut().zip(peers).for_each(|(to, from)| *to = from);
    }
}
