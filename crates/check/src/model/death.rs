//! A worker that dies, or that another one takes for dead: what may happen then, and how the others must end.

use fanin_core::{Failure, Rank, Suspect};

use super::layout::Layout;
use super::payload::Contents;
use super::state::{Packet, State};

impl<P: Contents + ?Sized> State<P> {
    /// Whether a node is a worker that has died.
    pub(super) fn is_dead(&self, node: usize) -> bool {
        self.gone.is_some_and(|gone| gone.is_dead && gone.worker == node)
    }

    /// Whether a packet was sent by a worker that has died since.
    pub(super) fn is_of_the_dead(&self, packet: &Packet<P>) -> bool {
        self.gone.is_some_and(|gone| gone.is_dead && gone.address == packet.source)
    }

    /// Whether a node is a worker that has died or is taken for dead.
    pub(super) fn is_gone(&self, node: usize) -> bool {
        self.gone.is_some_and(|gone| gone.worker == node)
    }

    /// Nothing comes to a node that has died any more.
    pub(super) fn bury(&mut self) {
        let Some(dead) = self.gone.filter(|gone| gone.is_dead) else { return };
        self.packets.retain(|packet| packet.ways.iter().any(|(to, _)| *to != dead.worker));
    }

    /// Who can notice that a worker is gone: the lowest rank of its job that is left, while it runs an operation. Higher ones hear from that
    /// one.
    pub(super) fn witness(&self, layout: &Layout<P>, gone: usize) -> Option<usize> {
        let job = layout.job_of(gone)?;
        let witness = layout.workers_of(job).find(|worker| *worker != gone)?;
        (self.results[witness].is_running() && !self.is_dead(witness)).then_some(witness)
    }

    /// Whether an operation of this worker may fail so: it is taken for dead itself, or no majority is left; who is missing is named.
    pub(super) fn may_give_up(&self, layout: &Layout<P>, worker: usize, failure: &Failure) -> bool {
        let (Some(gone), Some(job)) = (self.gone, layout.job_of(worker)) else { return false };
        let workers = layout.workers_of(job);
        let minority = 2 * (workers.len() - 1) <= workers.len();
        let is_named = failure.suspect == Suspect::Rank(Rank((gone.worker - workers.start) as u32));
        // Two that take each other for dead name each other.
        gone.worker == worker && !gone.is_dead || minority && (is_named || !gone.is_dead)
    }

    /// A worker has ended an operation: nobody is left out who lives, and all that have ended it have left out the same, also before they
    /// died.
    pub(super) fn compare_members(&mut self, layout: &Layout<P>, worker: usize) {
        let Some(job) = layout.job_of(worker) else { return };
        let workers = layout.workers_of(job);
        let own = &self.results[worker].ended_without;
        let (number, without) = (own.len() - 1, &own[own.len() - 1]);
        let lives = without.iter().find(|rank| !self.is_gone(workers.start + **rank)).copied();
        let mut others = workers.map(|other| self.results[other].ended_without.get(number));
        let differs = others.any(|other| other.is_some_and(|other| other != without));
        if let Some(rank) = lives {
            self.blame(|| format!("worker {worker} goes on without rank {rank}, which lives"));
        }
        if differs {
            self.blame(|| format!("worker {worker} has other members in operation {number} than another one"));
        }
    }
}
