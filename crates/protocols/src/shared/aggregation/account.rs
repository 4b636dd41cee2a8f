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
}
