//! Collisions that jobs share out (`a2tp 8`, gap 2): who is told of one is whoever's sum leaves the switch, whichever job it is of.
//!
//! A collision concerns a fragment of each of two jobs. If its owner is told, of two jobs each hears of as many as the other, however many
//! aggregators it has: nothing then brings the larger one back. Told by sums in their order, a job hears of collisions in proportion to
//! how much it uses the aggregators, and all of them see the same share of marked sums: the one that the model of the paper has (4.4,
//! equations 7 to 9), where all windows are cut by the same share.
//!
//! Collisions come in bursts: a job sends the fragments of a round that go to aggregators one after the other, and others to its server
//! in between. So an account of what is untold is told slowly, over [`TURNS`] turns of the aggregators. That is the average (1) of the
//! paper, made where all jobs meet: averaged over rounds of its own, the job with the shortest rounds would always be the first to yield.
//!
//! What a straggler costs is its own job's matter, though: while its aggregators wait for its contributions they are in the way of others,
//! who would be cut for what they have not caused, and need a round trip for each fragment until they have it back. So collisions of two jobs
//! are told to the later one alone, as often as its aggregators are found waiting when the other's are not ([`Lateness`]).

/// So many turns of all aggregators it takes to tell of collisions: about as many round trips of the jobs there. In runs of two jobs with 450
/// aggregators a job in step had 33 Gb/s beside a straggler 2 ms after it came where it was one turn, and 40 with four; with 16, where what
/// is told is old, two equal jobs had 26 and 18 Gb/s, with one and with four 23 and 20.
pub(super) const TURNS: u32 = 4;

/// Collisions that no sum has told of yet.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Account {
    /// How many.
    untold: u32,
    /// What each sum that left has added, in parts of `span`: a whole one is a mark.
    due: u32,
    /// How many sums it takes to tell of what is untold. With so much untold every sum is marked, and no more is kept.
    span: u32,
}

impl Account {
    /// At a switch with so many aggregators.
    pub fn new(aggregators: u32) -> Self {
        Account { untold: 0, due: 0, span: (TURNS * aggregators).max(1) }
    }

    /// A fragment in an aggregator was hit, for the first time.
    #[inline]
    pub fn enter(&mut self) {
        self.untold = (self.untold + 1).min(self.span);
    }

    /// A sum leaves: says whether it tells of a collision. A share `untold / span` of sums does, evenly.
    #[inline]
    pub fn tell(&mut self) -> bool {
        self.due += self.untold;
        let tells = self.due >= self.span;
        if tells {
            self.due -= self.span;
            self.untold -= 1;
        }
        tells
    }
}

/// The weight of the latest collision is one over this.
const COLLISIONS: u32 = 64;

/// Two averages differ by less than this by chance alone: two standard deviations, for each has one of sqrt(p (1 - p) / (2 COLLISIONS)), 0.044 where p is
/// a half. In runs of two equal jobs of which every third packet was late by 2 us, by chance, one had 23 and the other 12 Gb/s without it.
const CHANCE: u32 = ALWAYS / 8;

/// All of them, of a share that is kept as a whole number: states can be compared.
const ALWAYS: u32 = 1 << 16;

/// How often an aggregator of a job that another fragment wants waits for a contribution: of a job in step hardly ever, for it has an
/// aggregator for a round trip; with a straggler for the share 1 - gamma of the time, or so. Who wants aggregators looks at them at moments that
/// do not depend on their state, so counting them is measuring time, and needs no clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(super) struct Lateness {
    /// An average over the latest collisions.
    share: u32,
    /// What of it has decided nothing yet.
    due: u32,
}

impl Lateness {
    /// One of the job's aggregators was wanted and did, or did not, wait for a contribution.
    #[inline]
    pub fn found(&mut self, waits: bool) {
        let latest = if waits { ALWAYS } else { 0 };
        self.share = self.share - self.share / COLLISIONS + latest / COLLISIONS;
    }

    /// Of collisions with a job that is less late the share by which it is that, evenly: whether this one is among them. Where both are late
    /// alike, as of workers whose packets come irregularly, nobody is to blame: if the later one were, one of two equal jobs would be.
    #[inline]
    pub fn is_blamed(&mut self, other: Lateness) -> bool {
        let by = self.share.saturating_sub(other.share);
        self.due += if by < CHANCE { 0 } else { by };
        let blamed = self.due >= ALWAYS;
        if blamed {
            self.due -= ALWAYS;
        }
        blamed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_collision_is_told_of_once_and_the_account_has_an_end() {
        let mut account = Account::new(10);
        assert!((0..100).all(|_| !account.tell()), "of nothing");
        (0..30).for_each(|_| account.enter());
        assert_eq!((0..10_000).filter(|_| account.tell()).count(), 30);
        (0..1_000).for_each(|_| account.enter());
        assert_eq!((0..10_000).filter(|_| account.tell()).count(), 40, "no more than four turns");
    }

    /// A collision for every tenth sum marks every tenth sum, of whichever job, though they come in bursts of 20 for one job's sums only.
    #[test]
    fn jobs_are_told_alike_though_collisions_come_in_bursts() {
        let mut account = Account::new(450);
        let (mut marked, mut sums) = ([0u32; 2], [0u32; 2]);
        for sum in 0..200_000u32 {
            // 20 sums of the second job after 180 of the first; all collisions are among the second job's.
            let job = usize::from(sum % 200 >= 180);
            if job == 1 {
                account.enter();
            }
            sums[job] += 1;
            marked[job] += u32::from(account.tell());
        }
        let share = [0, 1].map(|job| f64::from(marked[job]) / f64::from(sums[job]));
        assert!(share.iter().all(|share| (share - 0.1).abs() < 0.01), "{share:?}");
    }

    #[test]
    fn a_job_is_blamed_as_often_as_its_aggregators_were_found_waiting_and_the_others_were_not() {
        let (mut job, in_step) = (Lateness::default(), Lateness::default());
        let blamed = |job: &mut Lateness, other: Lateness| (0..1_000).filter(|_| job.is_blamed(other)).count();
        assert_eq!(blamed(&mut job, in_step), 0, "in step until it is found not to be");
        (0..800).for_each(|_| job.found(true));
        assert!(blamed(&mut job, in_step) > 980 && job > in_step);
        (0..800).for_each(|number| job.found(number % 2 == 0));
        let (half, mut same) = (blamed(&mut job, in_step), job);
        let as_late = blamed(&mut same, job);
        assert!((450..550).contains(&half) && as_late <= 1, "{half} {as_late} {job:?}");
        (0..800).for_each(|_| job.found(false));
        assert!(blamed(&mut job, in_step) <= 1, "it is in step again: {job:?}");
    }
}
