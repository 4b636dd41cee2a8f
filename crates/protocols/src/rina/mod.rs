//! Rina: ring allreduce among racks. A rack whose switch aggregates is one worker of the ring, an *abstracted* one with an agent; a worker
//! elsewhere is one by itself. With G groups the vector has G partitions, and an allreduce takes 2G-1 steps.
//!
//! | clause | item |
//! |---|---|
//! | `rina 1`, groups, agents, ring; `4.5`, `4.6`, groups without those that died | `view::View` |
//! | `rina 1`, the vector in G partitions | `cut::Cut` |
//! | `rina 2`, messages | [`fanin_wire::rina`] |
//! | `rina 3`, slots of the switch | [`RinaSwitch`] |
//! | `rina 4.1`, ScatterReduce: task, pull, gradient, sum | `worker`, `switch` |
//! | `rina 4.2`, AllGather: multicast at the switch, cut through | `results`, `switch::RinaSwitch::on_result` |
//! | `rina 4.3`, windows | `shared::congestion::CongestionWindow`, `channel` |
//! | `rina 4.4`, loss | `worker::RinaWorker::resend_scatter`, `switch::RinaSwitch::ask_again`, `repair` |
//! | `rina 4.7`, epochs and the end of an operation | `membership`, `results::RinaWorker::commit` |
//!
//! ## Steps
//! The paper says that "each phase demands 2G-1 steps". A partition that begins at group g visits all G groups; the last one's rack is summed
//! by its switch, so its sum leaves that group too and comes back to g: G transmissions, and G-1 more bring it to all others. That is 2G-1 in
//! total, which is how we read the sentence. A worker by itself that is last adds up and keeps the sum, so a ring without any switch that
//! aggregates takes 2(N-1) steps: it is ring allreduce.
//!
//! ## A piece on its way
//! The agent tells its switch which pieces to sum (`Task`), by number; slot n mod window is the piece's, and the agent has no more pieces
//! under way than there are slots (P9). The switch asks the rack (`Pull`), all send (`Gradient`), and the sum goes to the next group's head
//! (`Sum`), which acknowledges it by number. The head *assigns* `own + received` to a buffer (P1), so whatever is sent again is the same.
//! When the sum of all is there it goes round as `Result`: a switch hands it down and on at once.
//!
//! Results that a switch sends on are not held back by anything that its rack sends: they meet the rack's sums in the queue before the next head, and
//! take the place of sums there, for which all wait. [`Onward::Agent`] leaves it to the agent to send them on, behind its gradients; then what leaves a rack is
//! no more than the agent's link carries, as in a ring, and there is no such queue. That link carries tasks beside what a ring's does, so there a task waits for up to 32
//! pieces while more than that are under way.
//!
//! ## Exactly once
//! A sum is taken once by its number; a gradient by a bit of its slot. A packet names epoch and operation, and nothing of another one is
//! taken. The number of ranks in a sum goes with it and must be that of the epoch's workers at the end (P10).
//!
//! Results are held apart from the caller's vectors until all have all of them: the coordinator (the lowest rank that takes part) has heard
//! `Done` from all and says `Commit`. So the raw gradients are there to begin anew with.
//!
//! ## Loss
//! Who has no room for another packet asks for the acknowledgement of the last one, which then comes at once (`Item::asks`); others come with
//! every fourth packet, or late. So where nothing is lost no timer is waited for, and a run takes as long with any timeouts.
//!
//! Nor does a timer take for lost a piece whose gradient waits at its agent itself, behind results: it is on its way no farther than there.
//!
//! A head sends again what is not acknowledged: as a task, upon which the switch pulls from those that are missing, or sends the sum
//! again; or as a sum. What is pulled once more goes before what is pulled now, as whole windows wait for it. An acknowledgement tells of
//! what has come around the last packet, however far that is behind the first one that is missing. Results that a head has sent are acknowledged
//! by the next head; a repetition goes past the switches, which may have restarted. What a switch has passed on by itself nobody
//! acknowledges: who misses results asks its agent, and an agent the head before it (`Repair`): as soon as later results show that one has passed
//! by, several batches at a time, or when nothing comes any more. Answers come in order, and show which of them are lost. Whoever is asked
//! answers with what it has sent before; what waits for its turn comes to all.
//!
//! Where no queue of the network marks, a round trip of three of the shortest shrinks a window: sums and results share the links into agents, and both
//! windows see what both have there.
//!
//! A packet that a link has lost is no sign of congestion where round trips have no queue in them, and does not shrink a window. Marks and
//! full queues do. Results go down to a rack's workers and on to other racks at once, while their head's window follows the way to the next head
//! only: so whoever gets a marked result that it does not acknowledge says so to the head that sent it (a `Repair` for nothing), which then
//! sends more slowly.
//!
//! ## Who dies
//! The coordinator asks all workers 32 times in the job's patience whether they are there and excludes who is silent for the whole of it. A
//! worker that hears nothing of all lower ranks for so long takes over; the more there are, the longer it waits. Exclusion is for good, and a
//! set of excluded ranks only grows; its size is the epoch. Whoever learns of one stops, and says `Ready` with what it has committed; when
//! all that are left have the same set and have said so, the coordinator says `Go`, and the operation begins anew with the groups that
//! follow from the set (`rina` P5, P6: no sum is mended in place).
//!
//! *All come to the same end.* If one worker has committed an operation, all have all its results, as nobody says `Done` before; so `Go`
//! names the most operations that one of them has committed, and the others commit what they hold. Where all that are left hold the next
//! one's results, `Go` names that too: one that has died may have committed it. Whoever has committed an operation says so to those that
//! ask (`Done`): it has nothing to do any more, and would not miss a coordinator that died before it had told all. So do those ask that hold all
//! results and wait for `Go`, which a coordinator says again to who has not heard it: it may have nothing to do any more itself. Two parts of a job cannot both go on, as
//! an epoch needs more than half of the job's workers; those in the smaller part give up. A worker that is excluded although it lives is
//! told when it speaks, and gives up.
//!
//! Switches are not members. One that restarts has forgotten its rack and its slots. It says so with the first pieces that it pulls (`fresh`), or
//! with the first results that it cannot hand down (`Unknown`), and its agent sends it all that the next group has not acknowledged: once, not
//! one by one after a timeout each. What its workers have missed meanwhile they see from what comes behind it, and ask for. One that is gone for
//! good takes its hosts with it.
//!
//! ## Choices
//! Sums are made in the order in which gradients come, in the elements' own type, as in static trees: the paper's scaled integers are the
//! caller's choice of an element type. A mean is the sum over the number of ranks that are in it, divided by each worker at the end. The dead
//! agent's host is dead in our model: an agent is part of the lowest rank's worker.

mod channel;
mod config;
mod cut;
mod planted;
mod results;
mod switch;
mod view;
mod worker;

pub use config::{Onward, Partitions, Results, RinaLayout, RinaMember, RinaRack, RinaSwitchConfig, RinaWorkerConfig};
#[cfg(feature = "planted-bugs")]
pub use planted::Planted;
pub use switch::RinaSwitch;
pub use worker::RinaWorker;
