//! A switch whose array of descriptors all jobs have together (3.2 and 3.4 of the paper): first come, first served, a block at a time, and
//! nothing is kept for a job that sends nothing.
//!
//! What a block goes through is what it goes through at a switch of its job's own ([`super::switch`]); the jobs have nothing in common but
//! the array, which the switch lends to the one that it works for. So a job with other elements, packets and timeouts does not disturb the
//! others, and everything that is true of one job's sums stays true: a place that another job has is a collision like any other.

use fanin_core::{DropReason, Duration, Event, Gauge, Ingress, Instant, JobId, Node, Payload, Tx};
use fanin_wire::canary::CanaryHeader;

use super::clock::Clock;
use super::config::{CanarySwitchConfig, MarkRule, Placement};
use super::deadlines::Deadlines;
use super::fan_in::FanIn;
use super::planted::Planted;
use super::switch::CanarySwitch;
use super::table::Table;
use crate::shared::jobs::JobTable;
use crate::shared::state::node_state;

/// The aggregator of all jobs at one switch.
pub struct CanarySharedSwitch<P: Payload + ?Sized> {
    table: Table,
    /// What each job has here, with an array without places but while the switch works for it.
    jobs: JobTable<CanarySwitch<P>>,
    /// When they want to be called, by their place in `jobs`.
    deadlines: Deadlines,
    planted: Planted,
}

node_state!(CanarySharedSwitch { table, jobs, deadlines, planted });

impl<P: Payload + ?Sized> CanarySharedSwitch<P> {
    /// A switch without jobs.
    ///
    /// # Panics
    /// Where the array has no place, or places are given statically, which needs an array of its own for each job.
    pub fn new(descriptors: u32, placement: Placement) -> Self {
        assert!(descriptors > 0, "an array of descriptors has at least one place");
        assert!(placement != Placement::Static, "blocks of several jobs have no static places");
        CanarySharedSwitch {
            table: Table::shared(descriptors, placement),
            jobs: JobTable::default(),
            deadlines: Deadlines::default(),
            planted: Planted::NONE,
        }
    }

    /// A job comes, with a clock as for [`CanarySwitch::with_clock`] and a fan-in as for [`CanarySwitch::with_fan_in`] where it has them, and told
    /// of what its blocks meet as by [`CanarySwitch::with_marks`]; it goes by [`Node::on_job_end`].
    pub fn admit(&mut self, config: CanarySwitchConfig<P::Op>, clock: Option<(Duration, Clock)>, fan_in: Option<FanIn>, marks: MarkRule) {
        let job = config.job;
        let mut entry = CanarySwitch::with(config, Table::default()).with_marks(marks);
        if entry.tells() {
            self.table.remember_wants();
        }
        if let Some((timeout, clock)) = clock {
            entry = entry.with_clock(timeout, clock);
        }
        if let Some(fan_in) = fan_in {
            entry = entry.with_fan_in(fan_in);
        }
        #[cfg(feature = "planted-bugs")]
        entry.plant(self.planted);
        self.jobs.insert(job, entry);
        self.look_at_deadlines();
    }

    /// Length of the array.
    pub fn descriptors(&self) -> u32 {
        self.table.length()
    }

    /// How blocks find their places.
    pub fn placement(&self) -> Placement {
        self.table.placement()
    }

    /// Number of descriptors in use by a job.
    pub fn in_use_by(&self, job: JobId) -> u32 {
        self.jobs.get(job).map_or(0, CanarySwitch::descriptors_in_use)
    }

    /// Number of descriptors in use.
    pub fn descriptors_in_use(&self) -> u32 {
        self.jobs.iter().map(|(_, job)| job.descriptors_in_use()).sum()
    }

    /// Number of places that are taken: as many as descriptors are in use.
    pub fn places_taken(&self) -> u32 {
        self.table.taken()
    }

    /// Puts in a bug.
    #[cfg(feature = "planted-bugs")]
    pub fn plant(&mut self, bug: Planted) {
        self.planted = bug;
        self.jobs.iter_mut().for_each(|job| job.plant(bug));
    }

    /// Works for the job that stands at a place in `jobs`.
    #[inline(always)]
    fn with<R>(&mut self, at: usize, act: impl FnOnce(&mut CanarySwitch<P>) -> R) -> R {
        let job = self.jobs.at_mut(at);
        std::mem::swap(job.table(), &mut self.table);
        let result = act(job);
        std::mem::swap(job.table(), &mut self.table);
        self.deadlines.set(at, job.next_timeout());
        result
    }

    /// Jobs have come or gone, or the times of all have changed.
    fn look_at_deadlines(&mut self) {
        self.deadlines.reset(self.jobs.iter().map(|(_, job)| job.next_timeout()));
    }

    /// As [`CanarySwitch::rebase`].
    pub fn rebase(&mut self, now: Instant) {
        for at in 0..self.jobs.iter().count() {
            self.with(at, |job| job.rebase(now));
        }
        self.look_at_deadlines();
    }

    /// As [`CanarySwitch::forget_durations`].
    pub fn forget_durations(&mut self) {
        for at in 0..self.jobs.iter().count() {
            self.with(at, CanarySwitch::forget_durations);
        }
    }
}

impl<P: Payload + ?Sized> Node<P> for CanarySharedSwitch<P> {
    type Header = CanaryHeader;

    #[inline]
    fn on_packet<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, from: Ingress, header: &CanaryHeader, payload: &P, tx: &mut T) {
        match self.jobs.place(from.job) {
            Some(at) => self.with(at, |job| job.on_packet(now, from, header, payload, tx)),
            None => tx.note(Event::Dropped(DropReason::NotAMember)),
        }
    }

    fn on_timeout<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        let mut before = None;
        while let Some(at) = self.deadlines.due(now).filter(|at| before.replace(*at) != Some(*at)) {
            tx.speak_for(self.jobs.at(at).job());
            self.with(at, |job| job.on_timeout(now, tx));
        }
    }

    #[inline]
    fn next_timeout(&self) -> Option<Instant> {
        self.deadlines.first()
    }

    fn on_tx_ready<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        for at in 0..self.jobs.iter().count() {
            tx.speak_for(self.jobs.at(at).job());
            self.with(at, |job| job.on_tx_ready(now, tx));
        }
    }

    fn on_job_end<T: Tx<CanaryHeader, P>>(&mut self, _now: Instant, job: JobId, tx: &mut T) {
        let Some(at) = self.jobs.place(job) else { return };
        tx.speak_for(job);
        if !self.planted.keeps_places() {
            self.with(at, |job| job.free_all(tx));
        }
        self.jobs.remove(job);
        self.look_at_deadlines();
    }

    fn gauges(&self, report: &mut dyn FnMut(Gauge, f64)) {
        self.jobs.iter().for_each(|(_, job)| job.gauges(report));
    }
}
