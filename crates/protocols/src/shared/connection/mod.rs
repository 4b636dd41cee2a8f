//! A reliable connection as network cards have it (RoCEv2 RC; `netreduce 4`, 5.3, 5.4; `baselines 8`): packets in order, go-back-N. The two
//! ends are state machines without packets of their own: [`Requester`] says which packet goes next, [`Responder`] what one is that came.
//!
//! | | |
//! |---|---|
//! | numbers of 24 bits that wrap, compared as signed ones (`netreduce` P10) | [`Psn`] |
//! | an acknowledgement is for all packets up to its number | [`Requester::on_ack`] |
//! | a gap is reported once, and what comes behind it is dropped; the sender goes back to it | [`Responder::check`], [`Requester::on_nak`] |
//! | a packet that came before is acknowledged again, and dropped | [`Arrival::Again`] |
//! | a timer for the oldest packet; when it runs out the sender goes back to that one | [`Requester::on_timeout`] |
//! | a limit of timeouts in a row, then an error that names the peer | [`Expiry::Broken`] |
//!
//! Packets that overtake each other are gaps here, as in the cards: a reliable connection wants a path that keeps their order.
//!
//! ## Where this differs from a card
//! The timeout is not a constant (the card's is 4.096 us times a power of two) but follows the round trip, with back-off, within the bounds of
//! the job's [`Reliability`](super::reliability::Reliability): `rto_min` = `rto_initial` of 1 ms is the recommended constant of `netreduce 8.4`, doubled in a stall. A constant
//! one that is shorter than a hold of the accelerator floods the network with the same packets (`netreduce` P5).
//!
//! ## Congestion control
//! DCQCN (`baselines 8`) is a rate limiter between [`Requester::next_to_send`] and [`Requester::sent`]: it says when, and nothing else changes
//! ([`RateControl`]). The receiver's part is [`Notifier`].

mod psn;
mod rate;
mod requester;
mod responder;

pub use psn::Psn;
pub use rate::{Dcqcn, Notifier, RateControl};
pub use requester::{Expiry, Requester, Sending};
pub use responder::{Arrival, Responder};

/// A card asks for an acknowledgement with the last packet of a message, and with one in so many.
pub const ACK_EVERY: u32 = 16;

/// Whether the sender of a packet asks for an acknowledgement when it sends it for the first time. It follows from the number, so that who
/// makes the packet anew on its way need not have kept that (`netreduce 5.7`).
#[inline]
pub const fn asks_for_ack(psn: Psn, ends_message: bool) -> bool {
    ends_message || psn.number() % ACK_EVERY == ACK_EVERY - 1
}
