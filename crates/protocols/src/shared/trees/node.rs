//! The aggregator of one job at one switch as a node of its system: [`Reduction`] with one packet format.

use std::marker::PhantomData;

use fanin_core::{Address, Ingress, Instant, JobId, Node, Payload, PortId, Tx};

use super::config::TreeSwitchConfig;
use super::format::TreeFormat;
#[cfg(feature = "planted-bugs")]
use super::planted::Planted;
use super::switch::Reduction;
use crate::shared::kept::KeptSlot;
use crate::shared::state::node_state;

/// The aggregator of one job at one switch, with its role in each of the job's trees.
pub struct TreeAggregator<P: Payload + ?Sized, F: TreeFormat> {
    reduction: Reduction<P>,
    format: PhantomData<F>,
}

node_state!(TreeAggregator<F: TreeFormat> { reduction, format });

impl<P: Payload + ?Sized, F: TreeFormat> TreeAggregator<P, F> {
    /// A switch with all its memory: two slots for every block of the window.
    ///
    /// # Panics
    /// As [`Reduction::new`].
    pub fn new(config: TreeSwitchConfig<P::Op>) -> Self {
        TreeAggregator { reduction: Reduction::new(config), format: PhantomData }
    }

    /// Ports from `first` on are numbers that no cable has: of children and parents at these addresses, behind switches that only forward.
    #[must_use]
    pub fn with_far(self, first: PortId, at: Vec<Address>) -> Self {
        TreeAggregator { reduction: self.reduction.with_far(first, at), ..self }
    }

    /// The job that the switch aggregates for.
    pub fn job(&self) -> JobId {
        self.reduction.job()
    }

    /// What slots hold: see [`Reduction::kept`].
    pub fn kept(&self) -> Option<impl Iterator<Item = KeptSlot<'_, P::Acc>>> {
        self.reduction.kept()
    }

    /// Puts in a bug.
    #[cfg(feature = "planted-bugs")]
    pub fn plant(&mut self, bug: Planted) {
        self.reduction.plant(bug);
    }

    /// Makes all stored times relative to `now`, so that states that differ only in when they were reached are equal.
    pub fn rebase(&mut self, now: Instant) {
        self.reduction.rebase(now);
    }
}

impl<P: Payload + ?Sized, F: TreeFormat> Node<P> for TreeAggregator<P, F> {
    type Header = F;

    #[inline]
    fn on_packet<T: Tx<F, P>>(&mut self, now: Instant, from: Ingress, header: &F, payload: &P, tx: &mut T) {
        self.reduction.on_packet(now, from, header, payload, tx);
    }

    /// `baselines 5`: a switch has no timeout.
    fn on_timeout<T: Tx<F, P>>(&mut self, _now: Instant, _tx: &mut T) {}

    fn next_timeout(&self) -> Option<Instant> {
        None
    }

    fn on_tx_ready<T: Tx<F, P>>(&mut self, now: Instant, tx: &mut T) {
        self.reduction.on_tx_ready(now, tx);
    }
}
