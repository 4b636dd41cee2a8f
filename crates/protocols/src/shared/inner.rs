//! A worker inside of another one: its packets go inside of those of the outer one.

use std::fmt::Debug;
use std::hash::Hash;
use std::marker::PhantomData;

use fanin_core::{BlockExponent, Body, Egress, Event, Instant, JobId, OpError, OperationId, Pair, Payload, Piece, Tx, Wire, Worker};

/// A worker that another one lets do some of its operations.
pub trait InnerWorker<P: Payload + ?Sized>: Worker<P> + Clone + Eq + Hash + Debug {
    /// The operation that comes next is done elsewhere: the one behind it will be the next here. The same at all workers, while none runs.
    fn pass_over(&mut self, operation: OperationId);

    /// Makes all stored times relative to `now`, so that states that differ only in when they were reached are equal.
    fn rebase(&mut self, now: Instant);
}

/// Wraps headers of an inner node into those of the outer one, `O`. Without `ROOM` the way out counts as free: for nodes that nobody calls
/// back when there is room again.
pub struct Wrapped<'a, T, O, const ROOM: bool = true> {
    tx: &'a mut T,
    outer: PhantomData<O>,
}

impl<'a, T, O, const ROOM: bool> Wrapped<'a, T, O, ROOM> {
    /// Sends by `tx`.
    #[inline(always)]
    pub fn new(tx: &'a mut T) -> Self {
        Wrapped { tx, outer: PhantomData }
    }
}

impl<P: Payload + ?Sized, T: Tx<O, P>, O: Wire, H: Wire + Into<O>, const ROOM: bool> Tx<H, P> for Wrapped<'_, T, O, ROOM> {
    #[inline(always)]
    fn send(&mut self, to: Egress<'_>, header: &H, body: Body<'_, P>) {
        self.tx.send(to, &(*header).into(), body);
    }

    #[inline(always)]
    fn room(&mut self, to: Egress<'_>) -> bool {
        !ROOM || self.tx.room(to)
    }

    // As what it wraps: where a node tells something, it is known what.
    #[cfg_attr(debug_assertions, inline)]
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn note(&mut self, event: Event) {
        self.tx.note(event);
    }

    #[inline]
    fn speak_for(&mut self, job: JobId) {
        self.tx.speak_for(job);
    }

    #[inline]
    fn contribute(&mut self, piece: Piece, accumulator: &mut P::Acc, first: bool) -> Result<(), OpError> {
        self.tx.contribute(piece, accumulator, first)
    }

    #[inline]
    fn fold(&mut self, piece: Piece, payload: &P) -> Result<(), OpError> {
        self.tx.fold(piece, payload)
    }

    #[inline(always)]
    fn deliver(&mut self, piece: Piece, body: Body<'_, P>) -> Result<(), OpError> {
        self.tx.deliver(piece, body)
    }

    fn exponent(&mut self, piece: Piece) -> BlockExponent {
        self.tx.exponent(piece)
    }

    #[inline]
    fn send_fixed(&mut self, to: Egress<'_>, header: &H, piece: Piece, exponent: BlockExponent) {
        self.tx.send_fixed(to, &(*header).into(), piece, exponent);
    }

    #[inline]
    fn deliver_fixed(&mut self, piece: Piece, payload: &P, exponent: BlockExponent) -> Result<(), OpError> {
        self.tx.deliver_fixed(piece, payload, exponent)
    }

    fn read_pairs(&mut self, piece: Piece, pairs: &mut Vec<Pair>) -> Result<(), OpError> {
        self.tx.read_pairs(piece, pairs)
    }

    fn deliver_pairs(&mut self, piece: Piece, pairs: &[Pair]) -> Result<(), OpError> {
        self.tx.deliver_pairs(piece, pairs)
    }
}
