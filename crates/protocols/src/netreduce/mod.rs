//! NetReduce: workers form a ring and send their vectors over reliable connections of network cards, each to its successor. Accelerators at
//! the switches hold the packets, add them up, and let each go on in its own connection with the sum as its payload.
//!
//! | clause | item |
//! |---|---|
//! | `netreduce 1`, a ring of workers, one rack or several | [`NetReduceWorker`], [`NetReduceSwitch`] |
//! | `netreduce 2`, RoCEv2, and the INA header in the first packet of a message | [`NetReduceHeader`](fanin_wire::netreduce::NetReduceHeader), [`RoceHeader`](fanin_wire::roce::RoceHeader) |
//! | `netreduce 3`, bitmap, packet buffers and result of each slot | `shared::slots`, [`NetReduceSwitch`] |
//! | `netreduce 3`, connection lookup table, connection translation table | `connections` |
//! | `netreduce 4`, 5.3, 5.4, the network card | [`connection`](crate::shared::connection) |
//! | `netreduce 5.1`, 5.5, the window of messages | [`NetReduceWorker`] |
//! | `netreduce 5.2`, a packet at the accelerator | [`NetReduceSwitch`] |
//! | `netreduce 5.6`, acknowledgements go by | an accelerator that recovers what is lost sees them, and lets them go on; with cards alone they are sent to the worker |
//! | `netreduce 8.5`, what is lost goes again on its link | "What is lost", below |
//! | `netreduce 5.7`, several racks | "Several racks", below |
//! | `netreduce 5.8`, a worker dies | "Who is missing", below |
//! | `netreduce 5.9`, several rings | [`NetReduceRings`]; their workers are those of `machines` |
//! | `netreduce 8`, what the text leaves open | "Choices", below; [`Variants`] |
//!
//! ## Messages, packets, slots
//! A vector is cut into messages of `MsgLen` packets; the first 16 bytes of a message are the INA header, so its first packet has less of the
//! vector. Messages and packets are numbered through all operations of a job. A worker has at most N messages under way whose sum it does not
//! have. Packet o of message m is in slot (m mod 2N) `MsgLen` + o of every switch (2N rounded up to a power of two). The last message of an
//! operation is as long as it must be; the paper pads it.
//!
//! ```text
//!            first contribution          last child              sum from the parent
//!   Empty ---------------------> Aggregating -----> Sent (not the root) -----------> Done
//!     ^                           ^      |                                            | |
//!     |                           |      +--- last child, at the root ----------------|-+
//!     |                           +-- first contribution to a message 2N on ----------+
//!     +------------------------------ the sum of the message N on --------------------+
//! ```
//!
//! ## Exactly once
//! A slot holds the packet of each child, and adds them up when all are there, in the order of children. A contribution that comes again
//! takes its own place, so it changes nothing (P6), and sums of floats have the same bits whatever came first.
//!
//! Who sends message m has all sums up to m-N. So when there is a sum of m, all have m-N, and its slot is free; and whoever sends message m+2N
//! shows that nobody needs that of m. Each slot knows its message: one that comes late, for an older message, is dropped (P4). The sender of
//! such a packet is satisfied all the same, as it sends again all that comes behind, of which the newest N messages have slots (P16).
//!
//! ## What is lost
//! Cards alone go back from end to end ([`Recovery::Cards`], which is all that the paper has): sums go as they are complete, so a packet that
//! is lost before the accelerator is a gap in all connections, and all cards go back. A contribution that comes again when there is a sum is
//! answered with that, in its own connection only: had all their packets again, n workers would make n squared (P1).
//!
//! The accelerator is in the middle of each connection, and has the sums of two windows. So by default ([`Recovery::Switch`]) it mends each
//! link by itself (`netreduce 8.5`), with cards as they are:
//!
//! * *To the receiver* sums go in the order of the connection: those behind a gap wait in their slots, and nobody but the sender whose packet
//!   is lost goes back. The accelerator sees the receiver's answers. It goes back itself to what is reported missing, keeps the report from the
//!   sender, and has a timer, as a card has ([`Requester`](crate::shared::connection::Requester)). That is short: nothing is held between
//!   accelerator and card.
//! * *From the sender* packets behind a gap are kept. The first one behind it makes the accelerator report the gap to the sender's card, in
//!   place of the receiver, which will not see it. A card takes a report as an acknowledgement of all before it; so the report is of the
//!   first packet that the receiver has not acknowledged, though the accelerator has what is between. That end-to-end acknowledgements
//!   stay true is worth the packets that go once more in vain: who has had one may forget its contribution, whatever becomes of the switch.
//! * *Between switches* a leaf sends up again what it waits for first when the answer to something that went up later has come.
//! * A sender that goes back for its own timer is told by the accelerator what its receiver has acknowledged. Where the connection ends at another
//!   switch, that is reminded by a notice, and asks for the sum that it lacks.
//!
//! It takes no buffers: what may have to go again is at most what a receiver has not acknowledged, so of the newest N messages that have sums,
//! whose slots are not freed before there are sums of the N behind them, which nobody sends before it has these. A connection has two
//! positions, a round-trip estimate and a timer more, of constant size.
//!
//! ## Several racks
//! A leaf adds up what its workers send, and sends that to its parent over a virtual connection (message and offset are in the packet). The
//! root's sum comes down to the leaves, where it goes on in the connections that *end* there. A leaf knows their numbers from their first
//! packets: those of connections that begin elsewhere are told it by a notice from the leaf where they begin. If the sum is there before the
//! notice, the notice sets it free; if the notice is lost, the receiver misses the packet, and it is sent again (P14). A leaf keeps sums as it
//! does in one rack, so a contribution that comes again is answered where it passes first, and the answer goes straight to the receiver. What
//! did not come down is asked for by sending up again.
//!
//! ## Who is missing
//! A network card names its peer, which in this ring says little: when one worker dies, nobody is acknowledged. So a switch that is sent what
//! it holds already tells the sender's flow control whom it waits for; and a worker that gives up tells all others. Cards see none of that.
//! Flow control asks its neighbours and its switch when they have been silent for a quarter of the job's patience, and names who is not heard
//! for all of it. Who answers is there. A switch that leaves the questions of another unanswered is named after the patience and a quarter, also
//! in place of a neighbour behind it. Where all are there and nothing moves for four patiences, the last word heard is the name, or the switch;
//! nobody names itself.
//!
//! *A switch that has restarted* has forgotten connections and contributions, which nobody sends again whose sums have arrived: no job survives
//! that of a leaf. (A root has no connections, and leaves send up again what they hold.) It shows in questions. A worker says of which message
//! it asks, and how many packets of that have been acknowledged: if these are not known, they are lost. And a switch asks who is missing in a
//! slot: who has had the sum of that says so. Then the switch ends the job by its own name. A switch that lacks the sum of another asks that in
//! the same way.
//!
//! Without a retry limit ([`NetReduceWorkerConfig::retry_limit`]) a connection waits as long as the job's patience lasts, for a packet may be
//! held for a straggler that long (P5).
//!
//! ## Congestion
//! DCQCN ([`NetReduceWorkerConfig::congestion`]) is the cards': a receiver of marked packets tells their sender. A contribution that was marked on
//! its way to the accelerator leaves its mark on the packet that takes its place, in its own connection only. A mark that a sum got goes to the
//! sender of that connection as well. In several racks a mark from below another leaf is not seen: the packet is made anew there.
//!
//! ## Choices
//! [`Variants`] are the paper's text where this is not: a lookup table with one message only lets a job wait for ever when a loss is followed by
//! the first packet of the next message (P2); slots that are freed by a contribution instead of a sum lose what a slow worker needs (P3).
//! Headers are not kept beside payloads: number and address of a packet follow from its message's first one.

mod config;
mod connections;
mod cut;
mod halves;
mod planted;
mod rings;
mod switch;
mod worker;

pub use config::{
    Beyond, Deallocation, Lookup, MessageShape, NetReduceChild, NetReduceConnection, NetReduceParent, NetReducePeer, NetReduceSwitchConfig,
    NetReduceWorkerConfig, Recovery, Reemission, Variants, WORKERS_MAX,
};
#[cfg(feature = "planted-bugs")]
pub use planted::Planted;
pub use rings::NetReduceRings;
pub use switch::NetReduceSwitch;
pub use worker::NetReduceWorker;
