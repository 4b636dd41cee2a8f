//! When the time of descriptors is over. Those that wait equally long stand in one lane, where the first one set is the first one due; so
//! timers need no order but that of lanes, of which there are few.

use std::collections::VecDeque;

use fanin_core::{Duration, Instant};

use super::config::Timeout;
use crate::shared::rtt::rebased;

/// When a descriptor's time is over.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Timer {
    pub deadline: Instant,
    /// The descriptor's number; it is another block's by now unless it still has the stamp that it had when the timer was set.
    pub number: u32,
    pub stamp: u32,
    pub lane: u8,
}

/// Descriptors that wait equally long.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Lane {
    duration: Duration,
    timers: VecDeque<Timer>,
}

/// All timers of a switch. The first one of each lane is live: its descriptor waits for it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Timers {
    /// Of an adaptive timeout by duration; each lane's is at most a quarter longer than that of the one before.
    lanes: Box<[Lane]>,
    /// Bit l: something is in lane l.
    busy: u64,
    /// The first deadline of all.
    first: Option<Instant>,
}

impl Timers {
    /// No timers yet.
    pub(super) fn new(timeout: Timeout) -> Self {
        let durations: Vec<Duration> = match timeout {
            Timeout::Fixed(duration) => vec![duration],
            Timeout::Adaptive { min, max } => {
                // Quarters of each octave; octaves at the end of what lanes there can be.
                let steps =
                    (0..).map(|step: u32| u64::from(4 + step % 4) << (step / 4)).map(|quarters| min.as_ps().saturating_mul(quarters) / 4);
                let shorter = steps.take_while(|ps| *ps < max.as_ps()).take(63).map(Duration::from_ps);
                shorter.chain([max]).collect()
            }
        };
        Timers::of(durations)
    }

    /// The same with these lanes, at most 64.
    pub(super) fn of(durations: Vec<Duration>) -> Self {
        let lanes = durations.into_iter().map(|duration| Lane { duration, timers: VecDeque::new() }).collect();
        Timers { lanes, busy: 0, first: None }
    }

    /// With an adaptive timeout: the lane of those that wait for so long, or a little longer.
    #[inline]
    pub(super) fn lane(&self, timeout: Duration) -> u8 {
        let lane = self.lanes.partition_point(|lane| lane.duration < timeout);
        lane.min(self.lanes.len() - 1) as u8
    }

    /// Sets the timer of a descriptor that begins now, and gives the deadline.
    #[inline]
    pub(super) fn set(&mut self, now: Instant, lane: u8, number: u32, stamp: u32) -> Instant {
        let Lane { duration, timers } = &mut self.lanes[usize::from(lane)];
        let deadline = now + *duration;
        timers.push_back(Timer { deadline, number, stamp, lane });
        self.busy |= 1 << lane;
        self.first = Some(self.first.map_or(deadline, |first| first.min(deadline)));
        deadline
    }

    /// The first deadline.
    #[inline]
    pub(super) fn first(&self) -> Option<Instant> {
        self.first
    }

    /// Takes out the first timer if its time is over.
    #[inline]
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Timer> {
        let first = self.first.filter(|first| *first <= now)?;
        let lane = self.busy_lanes().find(|lane| self.front(*lane).is_some_and(|timer| timer.deadline == first))?;
        self.lanes[usize::from(lane)].timers.pop_front()
    }

    /// Takes out what is dead at the front of a lane from which a timer was taken, or whose descriptors need one no more: the node must not
    /// be woken for it.
    #[inline]
    pub(super) fn tidy(&mut self, lane: u8, is_live: impl Fn(&Timer) -> bool) {
        let timers = &mut self.lanes[usize::from(lane)].timers;
        while timers.front().is_some_and(|timer| !is_live(timer)) {
            timers.pop_front();
        }
        if timers.is_empty() {
            self.busy &= !(1 << lane);
        }
        self.first = self.busy_lanes().filter_map(|lane| self.front(lane)).map(|timer| timer.deadline).min();
    }

    #[inline]
    fn front(&self, lane: u8) -> Option<&Timer> {
        self.lanes[usize::from(lane)].timers.front()
    }

    #[inline]
    fn busy_lanes(&self) -> impl Iterator<Item = u8> + use<> {
        let mut busy = self.busy;
        std::iter::from_fn(move || {
            let lane = (busy != 0).then(|| busy.trailing_zeros() as u8);
            busy &= busy.wrapping_sub(1);
            lane
        })
    }

    /// Takes out all that are dead.
    pub(super) fn drop_dead(&mut self, is_live: impl Fn(&Timer) -> bool) {
        self.lanes.iter_mut().for_each(|lane| lane.timers.retain(&is_live));
        self.look();
    }

    /// All timers, lane by lane.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Timer> {
        self.lanes.iter_mut().flat_map(|lane| &mut lane.timers)
    }

    /// All timers were made relative to `now`.
    pub(super) fn rebase(&mut self, now: Instant) {
        self.first = self.first.map(|first| rebased(first, now));
    }

    /// Keeps only the order of all timers, which are one picosecond apart then, and before all that are set later.
    pub(super) fn keep_order(&mut self) {
        let mut timers: Vec<Timer> = self.lanes.iter_mut().flat_map(|lane| lane.timers.drain(..)).collect();
        timers.sort_by_key(|timer| timer.deadline);
        for (order, timer) in timers.iter_mut().enumerate() {
            (timer.deadline, timer.lane) = (Instant::from_ps(order as u64 + 1), 0);
        }
        self.lanes[0].timers.extend(timers);
        self.look();
    }

    /// Looks into all lanes for what is first.
    fn look(&mut self) {
        let busy = self.lanes.iter().enumerate().filter(|(_, lane)| !lane.timers.is_empty());
        self.busy = busy.fold(0, |bits, (lane, _)| bits | 1 << lane);
        self.first = self.lanes.iter().filter_map(|lane| lane.timers.front()).map(|timer| timer.deadline).min();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADAPTIVE: Timeout = Timeout::Adaptive { min: Duration::from_ns(500), max: Duration::from_us(3) };

    fn at(ns: u64) -> Instant {
        Instant::ZERO + Duration::from_ns(ns)
    }

    #[test]
    fn lanes_lie_between_the_bounds_and_no_more_than_a_quarter_apart() {
        let durations = |timeout| Timers::new(timeout).lanes.iter().map(|lane| lane.duration).collect::<Vec<_>>();
        let ns = [500, 625, 750, 875, 1_000, 1_250, 1_500, 1_750, 2_000, 2_500, 3_000];
        assert_eq!(durations(ADAPTIVE), ns.map(Duration::from_ns));
        assert_eq!(durations(Timeout::Fixed(Duration::from_us(1))), [Duration::from_us(1)]);
        let one = Duration::from_us(1);
        assert_eq!(durations(Timeout::Adaptive { min: one, max: one }), [one]);
        assert_eq!(durations(Timeout::Adaptive { min: Duration::from_ps(1), max: Duration::MAX }).len(), 64);
    }

    #[test]
    fn a_timer_is_set_for_as_long_or_a_little_longer() {
        let mut timers = Timers::new(ADAPTIVE);
        for (ns, expected) in [(1, 500), (500, 500), (501, 625), (1_999, 2_000), (2_600, 3_000), (9_000, 3_000)] {
            let lane = timers.lane(Duration::from_ns(ns));
            assert_eq!(timers.set(Instant::ZERO, lane, 0, 0), at(expected), "{ns}");
        }
    }

    #[test]
    fn timers_are_due_in_the_order_of_their_deadlines_whatever_the_lanes() {
        let mut timers = Timers::new(ADAPTIVE);
        let mut deadlines = Vec::new();
        for number in 0..200u32 {
            let lane = (fanin_core::hash::mix(3, u64::from(number)) % 11) as u8;
            deadlines.push((timers.set(at(u64::from(number) * 40), lane, number, 0), number));
        }
        let first = deadlines.iter().map(|(deadline, _)| *deadline).min();
        assert_eq!(timers.first(), first);
        assert_eq!(timers.take_due(at(499)), None);
        let mut due = Vec::new();
        while let Some(timer) = timers.take_due(Instant::FAR_FUTURE) {
            due.push(timer.deadline);
            timers.tidy(timer.lane, |_| true);
        }
        deadlines.sort_unstable();
        assert_eq!(due, deadlines.iter().map(|(deadline, _)| *deadline).collect::<Vec<_>>());
        assert_eq!((timers.first(), timers.busy), (None, 0));
    }

    #[test]
    fn the_node_is_not_woken_for_the_dead() {
        let mut timers = Timers::new(ADAPTIVE);
        let set = |timers: &mut Timers, ns, lane, number| timers.set(at(ns), lane, number, 0);
        for (ns, lane, number) in [(0, 0, 1), (10, 0, 2), (0, 4, 3)] {
            set(&mut timers, ns, lane, number);
        }
        timers.tidy(0, |timer| timer.number > 1);
        assert_eq!(timers.first(), Some(at(510)));
        timers.tidy(0, |timer| timer.number > 2);
        assert_eq!((timers.first(), timers.busy), (Some(at(1_000)), 1 << 4));
    }
}
