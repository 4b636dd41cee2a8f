//! Bandwidth-optimal ring allreduce: the vector is cut into one chunk per worker; chunks go round the ring once to be summed
//! (reduce-scatter) and once more to be known to all (all-gather).
//!
//! | clause | item |
//! |---|---|
//! | `baselines 1`, chunks and steps; 2(N-1) steps of S/N | [`shared::chunks`](crate::shared::chunks), `geometry::Steps` |
//! | `baselines 1`, receive(step): add or store, send next; the only dependency is on the predecessor | [`RingWorker`], `on_data` |
//! | `baselines 1`, chunks of more than a packet are pipelined by packet | "Pipeline" below |
//! | `baselines 1`, reliable channel to the successor | [`shared::sender`](crate::shared::sender), [`shared::receiver`](crate::shared::receiver), `recovery` |
//! | `baselines 1`, ring order by host or by placement | [`RingWorkerConfig::predecessor`], [`RingWorkerConfig::successor`]: the caller's choice |
//! | `baselines 1` and `12`, a barrier per step (Rina's model of the ring) | [`RingBarrier`], `barrier` |
//!
//! Two choices differ from the letter of the clause. Chunk c has one element more than the others where c < S mod N, instead of reaching
//! from cS/N to (c+1)S/N: the same lengths in another order, without a division per packet. And the channel is reliable but not
//! in order: segments are independent of each other, so one that is lost holds up no other (but its own sums).
//!
//! ## Pipeline
//! Each packet that is received is stored and at once sent on, if it has a step to go: segment j of step s+1 depends on nothing but
//! segment j of step s. Every piece of the vector is thus one packet that goes round the ring, 2(N-1) hops. What came from the
//! predecessor goes before what the worker puts into the ring itself (step 0), which keeps the ring short.
//!
//! ## Memory
//! There are no buffers but the caller's vectors. In reduce-scatter the output holds `payload + input`, which is sent on from there; in
//! all-gather it holds the sum, likewise. So a full window never blocks receiving, and the ring cannot deadlock. What waits to be sent
//! on is a queue of names, of at most one name per piece of the vector, as each piece is at one place at a time.
//!
//! *Sending again from the output is safe* although all-gather overwrites what reduce-scatter left there. The final value of a piece
//! contains the successor's contribution to the very packet that may have to be sent again; so when the output is overwritten the
//! successor has taken that packet, and a copy of it with the wrong contents is dropped as a duplicate, unread, by its sequence number.
//! The same holds for step 0, which is sent from the input, where input and output are one vector.
//!
//! ## The end of an operation
//! A worker is done when all pieces are here and all that it sent has been acknowledged, for then nothing will be sent again from the
//! vectors, and they are the caller's. A driver should keep a worker for some time after its last operation: its predecessor may still
//! have to hear that everything has arrived. If it does not, and all pieces are here, the predecessor's operation is done all the same
//! when its patience is over, but the job is.
//!
//! ## Loss
//! Packets to the successor carry a sequence number that runs through all operations. The successor acknowledges every 8th packet, at
//! once what is out of order, a duplicate or the end of a chunk, and after a short while the rest; an acknowledgement names the first
//! packet that is missing and which of the 48 behind it have come. A packet is sent again after its timeout, or when three later ones
//! have arrived. On a lossless network there are no acknowledgements and no timers.
//!
//! ## A successor that has not begun
//! has no vector to put packets into. With loss recovery it drops them, and says `Ready` when it begins: all of them come again at
//! once. Without, the predecessor sends nothing before it has heard `Ready`, which costs half a round trip per operation.
//!
//! ## Who is missing
//! * Nothing acknowledged for the job's patience: the successor is named; unless it says that it is still in an operation before
//!   (`Alive`), for then it will go on, or give up by itself.
//! * Nothing heard from the predecessor for a quarter of the patience while something is expected: it is asked (`Probe`), and named
//!   where it does not answer (`Alive`) until the patience is over.
//! * All neighbours alive, and no progress: where there is a barrier, its coordinator gives up after twice the patience and names the
//!   first rank that it waits for; who waits for the coordinator's word, after three times the patience, and names the coordinator.
//!   Otherwise nobody is named, after four times the patience. Passing a barrier is progress.
//!
//! Who gives up sends `Abort` with the suspect to both neighbours, which give up as well and pass it on, each once; so all name the one
//! whom the first named. An `Abort` that is lost is made up for: a worker that has given up answers whatever it gets with it.
//! [`Failure::block`](fanin_core::Failure::block) is the highest step of which anything had come.

mod barrier;
mod config;
mod geometry;
mod worker;

pub use config::{RingBarrier, RingPeer, RingWorkerConfig};
pub use worker::RingWorker;
