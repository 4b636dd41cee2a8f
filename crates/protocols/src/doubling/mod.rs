//! Recursive doubling of lists: the sum of sparse vectors by the hosts alone. It is what Flare is measured against (`flare 7`).
//!
//! | clause | item |
//! |---|---|
//! | `flare 7`, host-based sparse allreduce (SparCML): the baseline | [`DoublingWorker`] |
//! | packets: pairs of an index and a value, in numbered packets | [`DoublingHeader`](fanin_wire::doubling::DoublingHeader) |
//! | log2(n) exchanges, in step k with rank xor 2^k | [`schedule`] |
//! | ranks beyond the largest power of two hand their list to another one first, and get the result from it | [`schedule`] |
//! | lists are merged: pairs of the same index are reduced | [`fanin_core::ElementOp::merge`] |
//!
//! A list is the whole vector's: it is read at once, and grows from exchange to exchange by what the other worker has at other indices
//! (`flare 5`, fill-in). SparCML goes over to dense vectors where that is shorter; this does not, so a list has at most 4 + v bytes for an
//! element of v. Of two elements at an index, that of the lower rank is on the left in every exchange, so all workers get the same bits.
//!
//! ## Steps
//!
//! ```text
//!   ranks 4 and 5 of 6         step 0       1           2           3
//!        4, 5 --- list --->    0, 1                                 0, 1 --- result ---> 4, 5
//!                                        0 <-> 1     0 <-> 2
//!                                        2 <-> 3     1 <-> 3
//! ```
//!
//! A worker sends its list of a step as soon as it has the lists of all steps before. It goes on when the other worker's list is here, not
//! when its own has come at the other end: the lists that it has sent are kept until the operation is over.
//!
//! ## Others are ahead
//! by a step or more, or by an operation, but not by two: for that they would need this worker's list of the next one. What comes early is
//! kept, and acknowledged, in a place for each step and for operations with even and odd numbers. So nobody waits for room at a worker that
//! is behind; a worker that is far behind keeps two lists for each step at most.
//!
//! ## Exactly once
//! Packets of a list are numbered, and a bit for each says whether it is here; the last one says how many there are. A list is merged once,
//! when all of them are here. A packet is named by operation, step and number: one of an operation that is over, or of a list that was merged,
//! is acknowledged and changes nothing.
//!
//! ## Nothing waits for ever
//! Each packet is acknowledged by itself, and sent again after a timeout; so many as the window says may be without an acknowledgement. An
//! operation ends when the result is here, and all that was sent is acknowledged. So nobody needs anything of an operation that is over here
//! but acknowledgements, and those are given for as long as there is a worker; a driver should keep it for some time after its last
//! operation. Where only acknowledgements are missing when the patience is over, the operation is done all the same, but the job is.
//!
//! A worker that waits for a list of which nothing comes asks for it (`Probe`), a number of times in the patience. The other one answers with
//! the rank that it waits for itself, as far as it knows, and says when it got on (`Waiting`). So nobody loses patience while those for whom it
//! waits get on; and word on who is missing gets to all, a step at a time, and whoever loses patience names that rank. It tells all with whom it exchanges lists (`Abort`), which give up as well and pass that on; one that is lost is
//! made up for, as a worker that has given up answers pairs and probes with it.
//!
//! Ranks that disagree about an operation see that by the digest in the packets, and fail with `Mismatch`.
//!
//! Without loss recovery there are no acknowledgements, no window, no probes and no timers.

mod config;
mod lists;
mod planted;
mod worker;

pub use config::{DoublingWorkerConfig, Turn, WINDOW_MAX, schedule};
#[cfg(feature = "planted-bugs")]
pub use planted::Planted;
pub use worker::DoublingWorker;
