//! Every collective by the hosts alone, as messages from one to another: what a job does where its system has no way of its own.
//!
//! | collective | who sends what | in |
//! |---|---|---|
//! | allreduce | ring: reduce-scatter, then all-gather, 2(N-1) messages of S/N (`baselines 1`) | [`Schedule`] |
//! | reduce-scatter, all-gather | the halves of it, N-1 messages of S/N each | [`Schedule`] |
//! | broadcast, reduce | a chain from the root, or to it: one message of S, pipelined by packet | [`Schedule`] |
//! | all-to-all | pairwise exchange: in turn to the next rank, the one behind it, ...: N-1 messages of S/N | [`Schedule`] |
//! | barrier | dissemination: in round r an empty message to rank + 2^r (Hensgen, Finkel and Manber 1988) | [`Schedule`] |
//!
//! Broadcasts of two are transfers: a send and its receive.
//!
//! ## Messages
//! Each rank knows from kind, number of ranks and its own which messages it sends and which come, so that packets name message and packet only;
//! and what all must agree on, in 8 bits.
//! A packet of a message that another one must come before (a ring's next step) is sent when the packet of the same number is here, not
//! when all of the message is: every piece travels by itself. In a barrier it waits for the messages of all rounds before, too: it tells of them.
//!
//! Sending again from the output is safe, for the reason that is told at [`ring`](crate::ring): where a piece of the output is overwritten, the
//! packet that left it before has been taken.
//!
//! ## Channels
//! Packets to a rank have numbers, which begin with 0 in each operation; the receiver says which have come, with every 8th packet, at once what
//! is out of order or ends a message, and after a short while the rest. A packet is sent again after its timeout or when three later
//! ones have come. An operation is over when all is here and all that was sent is acknowledged. A packet of an operation that is over is
//! answered with `Done`, which acknowledges all of it.
//!
//! Beside the window to each rank there is one for all together, which follows the network: it grows while round trips are short, and where they
//! are longer than two of the shortest it shrinks to what fills the way twice ([`congestion`](crate::shared)). Several groups on one card, and
//! messages that meet at one host, share what is there without marks from switches.
//!
//! Ranks that have not begun drop packets, and say `Ready` when they begin; without loss recovery nothing is sent to a rank before it has said
//! so, and there are no acknowledgements.
//!
//! ## Who is missing
//! A rank of which something is expected and nothing is heard for a quarter of the patience is asked, and named when the patience is over. One
//! that answers that it has not begun is named after three times the patience, by those whom it keeps waiting; others wait for four times the
//! patience, and name nobody. Who gives up tells all with whom it has to do in the operation (`Abort`), and answers whatever comes with it.

mod config;
mod geometry;
mod peers;
mod planted;
mod recovery;
mod worker;

pub use config::ExchangeWorkerConfig;
pub use geometry::Schedule;
#[cfg(feature = "planted-bugs")]
pub use planted::Planted;
pub use worker::ExchangeWorker;
