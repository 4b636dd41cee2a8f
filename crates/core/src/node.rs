//! The traits that join protocols to drivers.
//!
//! A node is a state machine: the driver calls a handler, the handler changes the node's state and sends through the [`Tx`] that it
//! was lent. No node keeps a queue of packets, reads a clock, or allocates in the steady state.
//!
//! ## Who owns the vectors
//! The driver. A worker names a [`Piece`] of the running operation's vector: it sends a piece of the input without copying it
//! ([`Body::Input`]), folds a packet and its own input into the output ([`Tx::fold`]), delivers a finished piece ([`Tx::deliver`]) and
//! sends what the output holds ([`Body::Output`]). In simulation the driver keeps a census weight per piece instead of elements, and
//! checks each delivered piece against the sum that it must be.

use crate::address::{Address, Egress, Ingress};
use crate::collective::{Collective, Outcome, Piece};
use crate::event::Event;
use crate::gauge::Gauge;
use crate::names::{JobId, OperationId};
use crate::payload::{BlockExponent, OpError, Pair, Payload};
use crate::time::Instant;
use crate::wire::Wire;

/// What a packet carries behind its header.
#[derive(Debug)]
pub enum Body<'a, P: Payload + ?Sized> {
    /// Nothing.
    Empty,
    /// A payload as it came in.
    Borrowed(&'a P),
    /// What an accumulator holds.
    Acc(&'a P::Acc),
    /// This worker's own contribution to a piece.
    Input(Piece),
    /// What the output holds for a piece.
    Output(Piece),
}

impl<P: Payload + ?Sized> Clone for Body<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Payload + ?Sized> Copy for Body<'_, P> {}

/// What a driver lends to a handler: the way out, and for workers their vectors.
pub trait Tx<H: Wire, P: Payload + ?Sized> {
    /// Sends a packet. Never blocks and never fails: what does not fit is queued or dropped by the driver, which counts it.
    fn send(&mut self, to: Egress<'_>, header: &H, body: Body<'_, P>);

    /// Whether the way out has room now. A node that finds none stops and is called back by [`Node::on_tx_ready`].
    fn room(&mut self, to: Egress<'_>) -> bool;

    /// Tells the driver what happened.
    fn note(&mut self, event: Event);

    /// Shared nodes only ([`SharedNode`]): what is sent and told from here on, until the handler returns, belongs to this job. A handler
    /// begins with the job of its packet; one that has no packet begins with any of the node's jobs. Drivers of nodes that no jobs share
    /// need not know.
    fn speak_for(&mut self, _job: JobId) {}

    /// Worker only: `accumulator := accumulator + input[piece]`, or `:= input[piece]` where `first`.
    ///
    /// # Errors
    /// The operator's own.
    fn contribute(&mut self, piece: Piece, accumulator: &mut P::Acc, first: bool) -> Result<(), OpError>;

    /// Worker only: `output[piece] := payload + input[piece]`, a partial sum.
    ///
    /// # Errors
    /// [`OpError::Length`] where the payload's length is not that of the piece; the operator's own.
    fn fold(&mut self, piece: Piece, payload: &P) -> Result<(), OpError>;

    /// Worker only: `output[piece] := body`, which is final; with [`Body::Output`] what the output already holds becomes final.
    ///
    /// # Errors
    /// [`OpError::Length`] where the body's length is not that of the piece.
    fn deliver(&mut self, piece: Piece, body: Body<'_, P>) -> Result<(), OpError>;

    /// Worker only, for block fixed point: the exponent of a piece of the input. Drivers that have no real elements have none either.
    fn exponent(&mut self, _piece: Piece) -> BlockExponent {
        BlockExponent::ZERO
    }

    /// Worker only: sends a piece of the input in block fixed point, with the largest exponent of all workers. The same as
    /// [`Body::Input`] in drivers that have no real elements.
    fn send_fixed(&mut self, to: Egress<'_>, header: &H, piece: Piece, _exponent: BlockExponent) {
        self.send(to, header, Body::Input(piece));
    }

    /// Worker only: `output[piece] := payload`, which is a sum in block fixed point and final.
    ///
    /// # Errors
    /// As [`Tx::deliver`].
    fn deliver_fixed(&mut self, piece: Piece, payload: &P, _exponent: BlockExponent) -> Result<(), OpError> {
        self.deliver(piece, Body::Borrowed(payload))
    }

    /// Worker only, for sparse vectors: puts the pairs of the input at a piece's indices into `pairs`, by index, which counts from the
    /// piece's start.
    ///
    /// # Errors
    /// [`OpError::NoVector`] where the operation's vector is not sparse.
    fn read_pairs(&mut self, _piece: Piece, _pairs: &mut Vec<Pair>) -> Result<(), OpError> {
        Err(OpError::NoVector)
    }

    /// Worker only, for sparse vectors: `output[piece] := pairs`, by index, which is final.
    ///
    /// # Errors
    /// As [`Tx::read_pairs`].
    fn deliver_pairs(&mut self, _piece: Piece, _pairs: &[Pair]) -> Result<(), OpError> {
        Err(OpError::NoVector)
    }
}

/// A protocol's state machine: worker, switch, leader, server or agent.
pub trait Node<P: Payload + ?Sized> {
    /// The system's header.
    type Header: Wire;

    /// A packet arrived.
    fn on_packet<T: Tx<Self::Header, P>>(&mut self, now: Instant, from: Ingress, header: &Self::Header, payload: &P, tx: &mut T);

    /// [`Node::next_timeout`] has passed. Calling too early does nothing; a node that waits for packets only has nothing to do.
    fn on_timeout<T: Tx<Self::Header, P>>(&mut self, _now: Instant, _tx: &mut T) {}

    /// When the node wants [`Node::on_timeout`]; `None` while it waits for packets only.
    fn next_timeout(&self) -> Option<Instant> {
        None
    }

    /// [`Node::on_packet`], and what [`Node::next_timeout`] says then. A node that is of one of several kinds finds out only once which.
    #[inline(always)]
    fn receive<T: Tx<Self::Header, P>>(
        &mut self,
        now: Instant,
        from: Ingress,
        header: &Self::Header,
        payload: &P,
        tx: &mut T,
    ) -> Option<Instant> {
        self.on_packet(now, from, header, payload, tx);
        self.next_timeout()
    }

    /// [`Node::on_timeout`], where [`Node::next_timeout`] has passed, and what that says then. As with [`Node::receive`], it is found out
    /// only once of which kind the node is.
    #[inline(always)]
    fn expire<T: Tx<Self::Header, P>>(&mut self, now: Instant, tx: &mut T) -> Option<Instant> {
        if self.next_timeout().is_some_and(|deadline| deadline <= now) {
            self.on_timeout(now, tx);
        }
        self.next_timeout()
    }

    /// There is room again after [`Tx::room`] said no.
    fn on_tx_ready<T: Tx<Self::Header, P>>(&mut self, _now: Instant, _tx: &mut T) {}

    /// A job has ended, well or not, or is taken away: a node that several jobs share keeps nothing of it ([`SharedNode`]).
    fn on_job_end<T: Tx<Self::Header, P>>(&mut self, _now: Instant, _job: JobId, _tx: &mut T) {}

    /// Tells what the node holds now. Drivers ask at intervals and never per packet. One value a gauge; none of those that the system
    /// has not, or that are not known yet.
    fn gauges(&self, _report: &mut dyn FnMut(Gauge, f64)) {}
}

/// A node that owns a vector.
pub trait Worker<P: Payload + ?Sized>: Node<P> {
    /// Begins an operation. Its end, also that of one that is refused, is told by [`Worker::poll`].
    fn submit<T: Tx<Self::Header, P>>(&mut self, now: Instant, collective: Collective, tx: &mut T);

    /// The next operation that has ended, if any.
    fn poll(&mut self) -> Option<Outcome>;

    /// How many blocks of the running operation are not complete here; `None` where none runs or the system does not count them.
    fn remaining(&self) -> Option<u32> {
        None
    }

    /// Gives up a running operation; peers are told where the system can tell them. The job cannot go on after that.
    fn cancel<T: Tx<Self::Header, P>>(&mut self, now: Instant, operation: OperationId, tx: &mut T);
}

/// A node and where it lives.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Placed<N> {
    /// Its address.
    pub at: Address,
    /// The node.
    pub node: N,
}

/// All nodes of a job.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct JobNodes<N> {
    /// The workers, by rank.
    pub workers: Vec<Placed<N>>,
    /// Switches, leaders, servers, agents.
    pub others: Vec<Placed<N>>,
}

/// A node that several jobs share: the aggregator of a switch whose memory is not divided among them. Its driver hands it the packets of
/// all these jobs ([`Ingress::job`]) and tells it when one ends ([`Node::on_job_end`]). Whatever it sends from a handler belongs to the job
/// of the packet that the handler was called for, or to the one that it names by [`Tx::speak_for`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SharedNode<N> {
    /// The node and where it lives.
    pub placed: Placed<N>,
    /// The jobs that share it.
    pub jobs: Vec<JobId>,
}
