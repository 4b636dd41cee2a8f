//! Events of all parts, one after the other in the order of (time, id), as one core has them.

use fanin_core::{Wire, Worker};

use super::Again;
use super::ending::Ends;
use super::seats::{Done, HasEnded, Seat};
use crate::metrics::Ended;
use crate::vectors::Simulated;

/// All parts, while they go on in turn.
pub(super) struct InTurn<'a, N: Worker<P>, P: Simulated + ?Sized> {
    seats: Vec<&'a mut Seat<N, P>>,
    /// By part: its first event, with the number that it has in the whole network.
    heads: Vec<Option<(u64, u32)>>,
    /// By job: workers that have not ended.
    running: Vec<u32>,
    /// When the last event was; `None` before the first one.
    last_ps: Option<u64>,
    /// A job has ended that others go on without.
    pub has_ended: bool,
    pub done: &'a mut Done,
}

impl<'a, N, P> InTurn<'a, N, P>
where
    N: Worker<P> + Clone,
    N::Header: Wire + Default,
    P: Simulated + ?Sized,
{
    pub fn new(seats: Vec<&'a mut Seat<N, P>>, done: &'a mut Done) -> Self {
        let heads = vec![None; seats.len()];
        let mut turn = InTurn { seats, heads, running: Vec::new(), last_ps: None, has_ended: false, done };
        turn.running = turn.count_running();
        (0..turn.heads.len()).for_each(|number| turn.look(number));
        turn
    }

    /// How jobs stand.
    pub fn ends(&mut self) -> Ends {
        let mut all = Ends::default();
        for seat in &mut self.seats {
            let ends = seat.witnesses.look(&seat.part);
            (all.run, all.far) = (all.run | ends.run, all.far | ends.far);
        }
        all
    }

    fn count_running(&self) -> Vec<u32> {
        let jobs = 0..self.seats[0].part.running_in.len();
        jobs.map(|job| self.seats.iter().map(|seat| seat.part.running_in[job]).sum()).collect()
    }

    /// Looks for a part's first event.
    fn look(&mut self, number: usize) {
        let net = &self.seats[number].part.net;
        let in_whole = |(time_ps, id)| (time_ps, net.outbox.as_ref().map_or(id, |outbox| outbox.in_whole(id)));
        self.heads[number] = net.queue.peek().map(in_whole);
    }

    /// The next event; how the run has ended, if it has.
    pub fn step(&mut self, limit_ps: u64, drain: bool) -> Option<HasEnded> {
        let first = self.heads.iter().enumerate().filter_map(|(number, head)| head.map(|head| (head, number))).min();
        let is_done = self.running.iter().all(|running| *running == 0);
        let Some(((time_ps, _), number)) = first else {
            // With the last window everything has ended, and when the last event was is not known.
            let ended = if is_done { Ended::JobsDone } else { Ended::Stuck };
            return Some(self.last_ps.map(|last_ps| (ended, last_ps)).ok_or(Again("nothing is left to happen")));
        };
        if time_ps > limit_ps {
            return Some(Ok((Ended::TimeLimit, limit_ps)));
        }
        let before = self.seats[number].part.workers_running;
        self.seats[number].part.step();
        self.last_ps = Some(time_ps);
        self.done.report.in_turn += 1;
        self.look(number);
        let mut again = self.hand_over(number).or_else(|| self.again());
        if self.seats[number].part.workers_running != before {
            again = again.or(self.end_jobs(time_ps));
            if !drain && self.running.iter().all(|running| *running == 0) {
                return Some(again.map_or(Ok((Ended::JobsDone, time_ps)), |why| Err(Again(why))));
            }
        }
        again.map(|why| Err(Again(why)))
    }

    /// Why some part says that the run has to begin anew.
    pub fn again(&self) -> Option<&'static str> {
        self.seats.iter().find_map(|seat| seat.part.net.outbox.as_ref().and_then(|outbox| outbox.again))
    }

    /// What a part has for others comes to them at once. Gives why the run has to begin anew, if it has.
    fn hand_over(&mut self, from: usize) -> Option<&'static str> {
        let outbox = self.seats[from].part.net.outbox.as_mut()?;
        for change in outbox.changes.drain(..) {
            self.done.peaks.change(&change);
        }
        outbox.first_ps = u64::MAX;
        for to in 0..self.seats.len() {
            let Some(outbox) = &mut self.seats[from].part.net.outbox else { continue };
            if outbox.mail[to].is_empty() {
                continue;
            }
            let mut mail = std::mem::take(&mut outbox.mail[to]);
            self.seats[to].part.take_mail(&mut mail);
            self.look(to);
            if let Some(outbox) = &mut self.seats[from].part.net.outbox {
                outbox.mail[to] = mail;
            }
        }
        self.seats[from].part.net.outbox.as_ref().and_then(|outbox| outbox.again)
    }

    /// Workers have ended, and jobs with them: the nodes that these share are told, wherever they are.
    fn end_jobs(&mut self, now_ps: u64) -> Option<&'static str> {
        let before = std::mem::take(&mut self.running);
        self.running = self.count_running();
        let mut again = None;
        for job in (0..before.len()).filter(|job| before[*job] > 0) {
            if self.running[job] > 0 {
                continue;
            }
            self.has_ended = true;
            for number in 0..self.seats.len() {
                let part = &mut self.seats[number].part;
                if part.shared_by[job].is_empty() {
                    continue;
                }
                // What is to be looked at before is as it was then.
                part.sample_until(now_ps);
                part.net.now = now_ps;
                part.tell_end(job as u16);
                self.look(number);
                again = again.or(self.hand_over(number));
            }
        }
        again
    }
}
