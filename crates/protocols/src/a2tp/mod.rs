//! A2TP: ATP with two windows. The aggregator window (ACW) follows collisions, and how far a job's workers keep step; the link window (LCW)
//! follows marks of congested links. What is beyond the former goes to the server directly.
//!
//! | clause | item |
//! |---|---|
//! | `a2tp 1`, roles | [`A2tpWorker`], [`A2tpServer`], [`A2tpSwitch`] |
//! | `a2tp 2`, the packet: `Col`, and the next round in acknowledgements | [`AtpHeader`](fanin_wire::atp::AtpHeader) |
//! | `a2tp 3` to `5.6`, `5.8`, what is ATP's | [`shared::aggregation`](crate::shared::aggregation) |
//! | `a2tp 5.1`, step 2a, `Col` on the occupant | [`A2tpSwitch`] |
//! | `a2tp 5.4`, the first ACW fragments of a round to aggregators | [`A2tpWindows`] |
//! | `a2tp 5.7`, alpha, beta, gamma, both windows | [`Control`], [`Tally`] |
//! | `a2tp 9`, P1, all workers send a fragment the same way | [`A2tpRounds`], "Agreement", below |
//! | `a2tp 8`, gap 3, stragglers told from bottlenecks | [`Synchrony`], "Stragglers", below |
//! | `a2tp 8`, gaps | "Equal jobs" and "What the paper leaves open", below |
//! | paper, section 8: fairness | [`CollisionsOf`], [`TwoWindowConfig::fair`], [`TwoWindowConfig::priority`], [`TwoWindowConfig::aggregators_min`] |
//!
//! ## Agreement
//! In the paper every worker computes its windows from what it sees. If one then sends a fragment to the aggregator and another one to the
//! server, the aggregator never fills, and both wait for a timeout (P1). Here the server, which sees what all of them see, computes the
//! windows, and acknowledgements carry them as rounds of fragment numbers. Workers cannot differ; the nets of
//! [`Nets::All`](crate::shared::aggregation::Nets::All) hold even if they do. [`A2tpWindows::own`] and [`A2tpRounds::Own`], with
//! [`Nets::Paper`](crate::shared::aggregation::Nets::Paper), are the paper's text.
//!
//! ## Stragglers
//! The paper takes gamma from how many acknowledgements are back within a round trip. That falls for whatever makes rounds long: of a job
//! whose server or link is the bottleneck nobody straggles, and yet it would give up its aggregators, which sends more to the server still.
//! [`Synchrony::Spread`], the default, takes it from how far the contributions of a fragment are apart where they are added up (gap 3):
//! an aggregator tells with its sum how long the first has waited for the last, the server sees the rest, and gamma is the share of a
//! round in which nobody is waited for. A worker with a fifth of the others' rate gives 0.2, a server that cannot keep up gives 1.
//! [`Synchrony::RoundTrip`] is the paper's text: acknowledgements within the shortest round trip and an eighth of it.
//!
//! ## Equal jobs
//! The paper counts collisions as a share of what went to aggregators (ACW). A collision concerns a fragment of each of two jobs, and as
//! such a share it weighs the more the fewer aggregators a job has: with 1 fragment at aggregators and the others' 432 there, every
//! collision is all of h for the one, and next to nothing for the other, so that of two equal jobs one ends with everything. Section 8
//! of the paper has jobs converge to fairness, for which all must take the same event alike. [`CollisionsOf::Round`], the default, counts
//! collisions as a share of all fragments of a round, as marks are counted; the two are the same where all fragments go to aggregators,
//! as in the paper's Fig. 3. [`CollisionsOf::Aggregated`] is the paper's text.
//!
//! That is not enough for two jobs. A collision tells one fragment of each, so both hear of as many whatever their windows are, and nothing
//! brings the larger one back; the job whose rounds are shorter, for it has more aggregators, hears of fewer a round, and stays below H.
//! Two equal jobs part, or stay as they met. With more jobs a larger one collides with all others and hears of more than any of them.
//! [`CollisionsOf::Shared`] lets two share, too: a switch tells of collisions by the sums that leave it, of whichever job, evenly over four
//! turns of its aggregators. Then a job hears of them in proportion to how much it uses aggregators, all have the same h, and windows are
//! as priorities. The switch's is the only average: with (1) beside it the job with the shortest rounds would yield first. It costs the job
//! that is there first: a second one's collisions cut both, and the window grows back by one fragment a round trip.
//!
//! The owner of an aggregator is to hear of whoever found it taken (paper, 4.3.1). Most do when its sum has gone on already: an aggregator is
//! open only until the last contribution is there, and then waits for the acknowledgement. So what comes too late for that sum is told
//! with the job's next one from the same aggregator. Otherwise only losers would count collisions, and a job that has taken all
//! aggregators would never give one back, whatever its priority.
//!
//! ## Fairness
//! With [`TwoWindowConfig::fair`] gamma is 1 for all, as in section 8 of the paper, but that alone changes little: a straggler's fragments
//! wait in their aggregators, so they are hit in 1/gamma as many round trips, and by (1) it still counts more collisions than
//! others. So its h is what it would be if they did not wait. The measure is rough where few fragments are left unmarked.
//!
//! ## What the paper leaves open
//! h counts a fragment whose aggregator another one wanted before the sum went on, and one that found its own taken (gap 2). A round in
//! which another tensor begins does not count for gamma, nor does a fragment that was lost or had to be flushed. Both windows grow by one
//! fragment a round (gaps 4, 5), the aggregator window of a job with another priority by that much. The first windows are half of the
//! longest (gap 7). A mark on the way of an acknowledgement is told to the server by the next fragment.

mod flags;
mod rounds;
mod windows;

use crate::shared::aggregation::{AggregationServer, AggregationSwitch, Streams};
#[cfg(doc)]
use crate::shared::two_windows::{CollisionsOf, Control, Synchrony, Tally, TwoWindowConfig};

pub use rounds::{A2tpRounds, AgreedRounds};
pub use windows::{A2tpWindows, AgreedWindows, OwnWindows};

/// A worker of an A2TP job.
pub type A2tpWorker<P> = Streams<P, A2tpWindows>;
/// The server of an A2TP job.
pub type A2tpServer<P> = AggregationServer<P, A2tpRounds>;
/// The aggregators of a switch.
pub type A2tpSwitch<P> = AggregationSwitch<P>;
