//! Windows of time in which parts run at the same time, one behind the other.
//!
//! Each thread has one part. When all have come to the end of a window, each knows what all have said of themselves, and so all come to the
//! same conclusion about what is next without a word: another window, or events one after the other over all parts, which the first thread
//! sees to while the others wait.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use fanin_core::{Wire, Worker};

use super::cutting::Cutting;
use super::ending::{Ends, Witnesses};
use super::in_turn::InTurn;
use super::mailbox;
use super::meeting::{Attends, Broken, Meeting};
use super::memory::{Change, Peaks};
use super::merging::merge;
use super::seats::{Done, Seat};
use super::splitting::Split;
use super::{Again, Report};
use crate::engine::Simulation;
use crate::metrics::RunResult;
use crate::vectors::Simulated;

/// A job's end comes unforeseen.
const UNFORESEEN: Again = Again("a job has ended earlier than was foreseen");

/// What a part says of itself at the end of a window. Two of each, used in turn: who is quicker writes the next one while others read.
#[derive(Debug, Default)]
struct Said {
    /// When something happens next, packets that it has sent to others included; `u64::MAX` for never.
    next_ps: AtomicU64,
    run: AtomicU64,
    far: AtomicU64,
    /// Of this window.
    events: AtomicU64,
    /// The run is over.
    over: AtomicBool,
    /// The run has to begin anew.
    again: AtomicBool,
}

type Mail<N, P> = mailbox::Mail<<N as fanin_core::Node<P>>::Header, <P as fanin_core::Payload>::Owned>;

/// What all threads share.
struct Hall<N: Worker<P>, P: Simulated + ?Sized> {
    seats: Vec<Mutex<Seat<N, P>>>,
    /// By round modulo 2, receiver and sender.
    mail: [Vec<Mutex<Mail<N, P>>>; 2],
    /// By round modulo 2 and part.
    changes: [Vec<Mutex<Vec<Change>>>; 2],
    said: [Vec<Said>; 2],
    meeting: Meeting,
    lookahead_ps: u64,
    limit_ps: u64,
    drain: bool,
    /// Jobs with nodes that others share: bits as in [`Ends`].
    shared: u64,
    done: Mutex<Done>,
}

/// What is next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    /// All run up to this time at the same time.
    Window(u64),
    /// Events happen in turn.
    InTurn,
    /// The run is to begin anew.
    GiveUp(Again),
    /// The run is over.
    Over,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a simulation in the parts of a cutting.
pub(super) fn run<N, P>(simulation: Simulation<N, P>, cutting: Cutting) -> Result<(RunResult, Report), Again>
where
    N: Worker<P> + Clone + Send,
    N::Header: Wire + Default + Send,
    P: Simulated + ?Sized,
    P::Owned: Send,
    P::Vectors: Clone + Send,
{
    let mut split = Split::new(simulation, &cutting);
    let parts = std::mem::take(&mut split.parts);
    let hall = Hall::new(&split, parts, &cutting);
    thread::scope(|scope| {
        let hall = &hall;
        (1..cutting.parts).for_each(|number| drop(scope.spawn(move || hall.attend(number))));
        hall.attend(0);
    });
    let Done { peaks, mut report, ended, .. } = hall.done.into_inner().unwrap_or_else(PoisonError::into_inner);
    for seat in hall.seats {
        let seat = seat.into_inner().unwrap_or_else(PoisonError::into_inner);
        report.events.push(seat.events);
        split.parts.push(seat.part);
    }
    let ended = ended.unwrap_or(Err(Again("it did not end")))?;
    merge(split, &cutting, &peaks, ended).map(|result| (result, report))
}

impl<N, P> Hall<N, P>
where
    N: Worker<P> + Clone,
    N::Header: Wire + Default,
    P: Simulated + ?Sized,
{
    fn new(split: &Split<N, P>, parts: Vec<Simulation<N, P>>, cutting: &Cutting) -> Self {
        let (whole, count) = (&split.whole, parts.len());
        let to_hosts = whole.net.topology.links.iter().filter(|cable| whole.net.topology.map.is_host(cable.to));
        let rate = to_hosts.map(|cable| cable.speed.bits_per_second).max().unwrap_or(0);
        let bytes = (u128::from(rate) * u128::from(cutting.lookahead_ps) / 8_000_000_000_000) as u64;
        let shares = |(job, nodes): (usize, &Vec<u32>)| if nodes.is_empty() { 0 } else { 1 << (job % super::ending::JOBS_MAX) };
        let seats = parts.into_iter().map(|part| {
            let witnesses = Witnesses::new(&part, bytes);
            Mutex::new(Seat { part, witnesses, events: 0 })
        });
        let hall = Hall {
            seats: seats.collect(),
            mail: [0, 1].map(|_| (0..count * count).map(|_| Mutex::default()).collect()),
            changes: [0, 1].map(|_| (0..count).map(|_| Mutex::default()).collect()),
            said: [0, 1].map(|_| (0..count).map(|_| Said::default()).collect()),
            meeting: Meeting::new(count),
            lookahead_ps: cutting.lookahead_ps,
            limit_ps: whole.scenario.time_limit.as_ps(),
            drain: whole.scenario.drain,
            shared: whole.shared_by.iter().enumerate().map(shares).fold(0, |all, one| all | one),
            done: Mutex::new(Done { peaks: Peaks::new(whole.scenario.jobs.len()), report: Report::default(), ended: None }),
        };
        for (number, seat) in hall.seats.iter().enumerate() {
            hall.say(&mut lock(seat), number, 0);
        }
        hall
    }

    /// One thread's work.
    fn attend(&self, number: usize) {
        let _attends = Attends(&self.meeting);
        let (mut round, mut before) = (0, None);
        while let Ok(next) = self.next(round, &mut before) {
            if number == 0 {
                self.reckon(round);
            }
            match next {
                Next::Over => return,
                Next::Window(end_ps) => self.window(number, round, end_ps),
                Next::InTurn if number == 0 => self.in_turn(round),
                Next::InTurn => {}
                Next::GiveUp(why) => {
                    lock(&self.done).ended = Some(Err(why));
                    return;
                }
            }
            round += 1;
        }
    }

    /// Meets the others, and concludes what is next. `before`: how jobs stood before a window, if the last round was one.
    fn next(&self, round: usize, before: &mut Option<Ends>) -> Result<Next, Broken> {
        self.meeting.wait()?;
        let (mut next_ps, mut ends, mut over, mut again) = (u64::MAX, Ends::default(), false, false);
        for said in &self.said[round % 2] {
            next_ps = next_ps.min(said.next_ps.load(Ordering::Relaxed));
            ends.run |= said.run.load(Ordering::Relaxed);
            ends.far |= said.far.load(Ordering::Relaxed);
            over |= said.over.load(Ordering::Relaxed);
            again |= said.again.load(Ordering::Relaxed);
        }
        if over {
            return Ok(Next::Over);
        }
        if let Some(before) = before.take() {
            let ended = before.run & !ends.run;
            if ends.run == 0 && !self.drain || ended & self.shared != 0 {
                return Ok(Next::GiveUp(UNFORESEEN));
            }
        }
        let end_ps = next_ps.saturating_add(self.lookahead_ps).min(self.limit_ps.saturating_add(1));
        if again || next_ps >= end_ps || !self.may_part(ends) {
            return Ok(Next::InTurn);
        }
        *before = Some(ends);
        Ok(Next::Window(end_ps))
    }

    /// Whether no job can end within a window whose end concerns all parts.
    fn may_part(&self, ends: Ends) -> bool {
        ends.far != 0 && self.shared & ends.run & !ends.far == 0
    }

    /// Publishes what a part says for the next round.
    fn say(&self, seat: &mut Seat<N, P>, number: usize, round: usize) {
        let (said, part) = (&self.said[round % 2][number], &mut seat.part);
        let ends = seat.witnesses.look(part);
        let again = part.net.outbox.as_ref().and_then(|outbox| outbox.again);
        let queued_ps = part.net.queue.peek().map_or(u64::MAX, |(time_ps, _)| time_ps);
        let sent_ps = part.net.outbox.as_mut().map_or(u64::MAX, |outbox| std::mem::replace(&mut outbox.first_ps, u64::MAX));
        said.next_ps.store(queued_ps.min(sent_ps), Ordering::Relaxed);
        said.run.store(ends.run, Ordering::Relaxed);
        said.far.store(ends.far, Ordering::Relaxed);
        said.again.store(again.is_some(), Ordering::Relaxed);
    }

    /// One window of one part.
    fn window(&self, number: usize, round: usize, end_ps: u64) {
        let mut seat = lock(&self.seats[number]);
        let seat = &mut *seat;
        self.take_mail(&mut seat.part, number, round);
        let before = seat.part.events;
        seat.part.run_until(end_ps);
        let events = seat.part.events - before;
        seat.events += events;
        if let Some(outbox) = &mut seat.part.net.outbox {
            let slots = &self.mail[round % 2];
            let filled = outbox.mail.iter_mut().enumerate().filter(|(_, mail)| !mail.is_empty());
            filled.for_each(|(to, mail)| std::mem::swap(mail, &mut lock(&slots[to * self.seats.len() + number])));
            std::mem::swap(&mut outbox.changes, &mut lock(&self.changes[round % 2][number]));
        }
        self.say(seat, number, round + 1);
        self.said[(round + 1) % 2][number].events.store(events, Ordering::Relaxed);
    }

    /// What others have sent to a part in the round before.
    fn take_mail(&self, part: &mut Simulation<N, P>, number: usize, round: usize) {
        let count = self.seats.len();
        for slot in &self.mail[(round + 1) % 2][number * count..(number + 1) * count] {
            part.take_mail(&mut lock(slot));
        }
    }

    /// What is to be reckoned up of the round before.
    fn reckon(&self, round: usize) {
        let mut done = lock(&self.done);
        let mut lists: Vec<_> = self.changes[(round + 1) % 2].iter().map(lock).collect();
        done.peaks.window(&lists.iter().map(|list| list.as_slice()).collect::<Vec<_>>());
        lists.iter_mut().for_each(|list| list.clear());
        let longest = self.said[round % 2].iter().map(|said| said.events.swap(0, Ordering::Relaxed)).max().unwrap_or(0);
        done.report.longest += longest;
        done.report.windows += u64::from(longest > 0);
    }

    /// Events happen one after the other over all parts, until parts may run at the same time again, or to the end.
    fn in_turn(&self, round: usize) {
        let mut seats: Vec<_> = self.seats.iter().map(lock).collect();
        for (number, seat) in seats.iter_mut().enumerate() {
            self.take_mail(&mut seat.part, number, round);
        }
        let mut done = lock(&self.done);
        let mut turn = InTurn::new(seats.iter_mut().map(|seat| &mut **seat).collect(), &mut done);
        turn.done.ended = turn.again().map(|why| Err(Again(why)));
        while turn.done.ended.is_none() {
            if let Some(ended) = turn.step(self.limit_ps, self.drain) {
                turn.done.ended = Some(ended);
                break;
            }
            if std::mem::take(&mut turn.has_ended) && self.may_part(turn.ends()) {
                break;
            }
        }
        let over = turn.done.ended.is_some();
        for (number, seat) in seats.iter_mut().enumerate() {
            self.say(seat, number, round + 1);
            self.said[(round + 1) % 2][number].over.store(over, Ordering::Relaxed);
        }
    }
}
