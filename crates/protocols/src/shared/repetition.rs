//! When a worker sends what is under way again, who it believes is missing, and when it gives up: for workers that have a window of blocks
//! at a switch, each in a place of its own, and of which every answer lets another block go. What a place holds is theirs to know.

use fanin_core::{Duration, Instant, JobId, Rank, Suspect};

use super::order::SendOrder;
use super::overtaking::Overtaking;
use super::reliability::Reliability;
use super::rtt::{RttEstimator, rebased};

/// After so many windows of copies in a row what is due in a stall is spread over twice the time. While answers come to packets that were sent
/// once, copies repair losses; where none does, copies may be what fills the network.
const WINDOWS_OF_COPIES: u32 = 4;

/// What is under way is sent again so often in the patience, however little copies help.
const ASKED_IN_PATIENCE: u64 = 16;

/// Timers of a window. Without loss recovery there are none.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Repetition {
    reliability: Reliability,
    places: u32,
    order: SendOrder,
    rtt: RttEstimator,
    /// Where answers to later packets show what is lost; without it only timeouts do.
    overtaking: Option<Overtaking>,
    /// When the last answer came, or the operation began.
    progress_at: Instant,
    /// A repetition is due and found no room; it goes on when there is some.
    held_up: bool,
    /// Nothing is sent again before this; in a stall, what is due goes out one by one.
    pace_at: Instant,
    /// So many copies were sent since a packet was answered that was sent once; counted up to where more make no difference.
    copies: u32,
    /// When a stall ended: timeouts of what was sent before count from here, as its answers are on their way now.
    resumed_at: Instant,
    /// The latest word on who is missing, and for what.
    suspect: Option<(u32, Suspect, Instant)>,
}

impl Repetition {
    /// Nothing sent yet; places are numbered from 0.
    pub fn new(reliability: &Reliability, places: u32) -> Self {
        Repetition {
            reliability: *reliability,
            places,
            order: SendOrder::new(if reliability.reliable { places } else { 0 }),
            rtt: RttEstimator::new(reliability),
            overtaking: None,
            progress_at: Instant::ZERO,
            held_up: false,
            pace_at: Instant::ZERO,
            copies: 0,
            resumed_at: Instant::ZERO,
            suspect: None,
        }
    }

    /// Copies do not stay in step with those of other workers.
    pub fn of(mut self, job: JobId, rank: Rank) -> Self {
        self.rtt = self.rtt.of(job, rank);
        self
    }

    /// What is overtaken is sent again before its timeout.
    pub fn noticing_overtaking(mut self) -> Self {
        self.overtaking = Some(Overtaking::default());
        self
    }

    /// Back-off makes no timeout longer than this.
    pub fn backing_off_to(mut self, longest: Duration) -> Self {
        self.rtt.bound_back_off(longest);
        self
    }

    /// Makes all stored times relative to `now`.
    pub fn rebase(&mut self, now: Instant) {
        self.rtt.rebase(now);
        self.overtaking.iter_mut().for_each(|overtaking| overtaking.rebase(now));
        self.progress_at = rebased(self.progress_at, now);
        self.resumed_at = rebased(self.resumed_at, now);
        self.pace_at = rebased(self.pace_at, now);
        self.suspect = self.suspect.map(|(what, suspect, at)| (what, suspect, rebased(at, now)));
    }

    /// An operation begins, with nothing under way.
    pub fn begin(&mut self, now: Instant) {
        (self.progress_at, self.resumed_at, self.suspect, self.held_up) = (now, now, None, false);
    }

    /// The operation was given up: nothing is under way any more.
    pub fn clear(&mut self) {
        self.order.clear();
        self.held_up = false;
    }

    /// A place's block was sent for the first time.
    #[inline]
    pub fn on_sent(&mut self, place: u32) {
        if self.reliability.reliable {
            self.order.append(place);
        }
    }

    /// A place's block, which was sent first at `first_at` and last at `sent_at`, was answered.
    #[inline]
    pub fn on_answer(&mut self, now: Instant, place: u32, first_at: Instant, sent_at: Instant) {
        if !self.reliability.reliable {
            return;
        }
        self.order.remove(place);
        if first_at == sent_at {
            self.copies = 0;
        }
        if let Some(overtaking) = &mut self.overtaking
            && first_at == sent_at
        {
            overtaking.on_answer(now, sent_at);
        }
        if self.rtt.on_answer(now, first_at, sent_at) {
            // In a stall every answer lets one block go at once; when it is over, answers to what was sent are on their way.
            self.pace_at = now;
            if !self.rtt.is_stalled() {
                self.resumed_at = now;
            }
        }
        self.progress_at = now;
        self.suspect = None;
    }

    /// A place's block, which is under way, was sent anew for another reason than that nothing came.
    pub fn on_sent_anew(&mut self, place: u32) {
        self.order.renew(place);
    }

    /// Something else than an answer shows that the operation goes on.
    #[inline]
    pub fn on_progress(&mut self, now: Instant) {
        self.progress_at = now;
    }

    /// Somebody of whom this one's answers depend got on at a time that may be past.
    pub fn on_progress_elsewhere(&mut self, at: Instant) {
        self.progress_at = self.progress_at.max(at);
    }

    /// How long ago the last progress is.
    pub fn idle(&self, now: Instant) -> Duration {
        now.since(self.progress_at)
    }

    /// The smoothed round trip in microseconds; `None` while nothing has been measured.
    pub fn round_trip_us(&self) -> Option<f64> {
        self.rtt.smoothed().map(Duration::as_us_f64)
    }

    /// How long an answer is waited for now.
    pub fn timeout(&self) -> Duration {
        self.rtt.timeout()
    }

    /// The smoothed round trip; the timeout before one was measured.
    pub fn round_trip(&self) -> Duration {
        self.rtt.round_trip()
    }

    /// From when on a block is late that was last sent at `sent_at` and is not answered; `None` where none that was sent later has been.
    #[inline]
    pub fn late_at(&self, sent_at: Instant) -> Option<Instant> {
        self.overtaking.as_ref().and_then(|overtaking| overtaking.late_at(sent_at, &self.rtt))
    }

    /// A block that was late was lost.
    pub fn on_loss_found(&mut self) {
        self.overtaking.iter_mut().for_each(Overtaking::on_found);
    }

    /// A block that was late was not lost.
    pub fn on_mistake(&mut self, now: Instant) {
        self.overtaking.iter_mut().for_each(|overtaking| overtaking.on_mistake(now));
    }

    /// When a place's block that was last sent at `sent_at` is sent again.
    #[inline]
    fn resend_at(&self, sent_at: Instant) -> Instant {
        let timeout_at = sent_at.max(self.resumed_at) + self.rtt.timeout();
        self.late_at(sent_at).map_or(timeout_at, |late_at| late_at.min(timeout_at)).max(self.pace_at)
    }

    /// What was held up tries again.
    pub fn retry(&mut self) {
        self.held_up = false;
    }

    /// What [`Repetition::next_due`] gave found no room after all: it keeps its turn.
    pub fn hold_up(&mut self) {
        self.held_up = true;
    }

    /// Whether something is due and found no room.
    #[inline]
    pub fn is_held_up(&self) -> bool {
        self.held_up
    }

    /// The place whose block is to be sent again now, if there is one and there is room; `sent_at` says when a place's block was sent last.
    /// What finds no room keeps its turn: were it put behind what was sent, a window that is longer than the queue would repeat the same
    /// blocks for ever and never come to the others.
    pub fn next_due(&mut self, now: Instant, sent_at: impl FnOnce(u32) -> Instant, has_room: impl FnOnce() -> bool) -> Option<u32> {
        let place = self.order.first()?;
        if self.resend_at(sent_at(place)) > now {
            return None;
        }
        self.held_up = !has_room();
        (!self.held_up).then_some(place)
    }

    /// A place's block goes out once more: counts that, and sets when it was sent.
    pub fn on_repeated(&mut self, now: Instant, place: u32, attempts: &mut u8, sent_at: &mut Instant) {
        self.order.renew(place);
        *attempts = attempts.saturating_add(1);
        self.rtt.on_timeout(now, *sent_at, self.progress_at <= *sent_at);
        *sent_at = now;
        if self.rtt.is_stalled() {
            // A whole window at once, always in the same order, would fill the same queue again before the same block comes to its turn.
            // So it is spread over the timeout.
            self.pace_at = now + self.pace();
        }
    }

    /// How far apart copies go in a stall: a window of them in a timeout, and ever fewer, down to one, where they do not help. Every place is asked
    /// for often enough all the same for word on who is missing not to fade.
    fn pace(&mut self) -> Duration {
        let octaves = self.places.ilog2();
        self.copies = (self.copies + 1).min(WINDOWS_OF_COPIES * self.places * octaves);
        let spread = self.copies / (WINDOWS_OF_COPIES * self.places);
        let (timeout, places) = (self.rtt.timeout(), u64::from(self.places));
        let longest = timeout.max(self.reliability.patience.divided(ASKED_IN_PATIENCE)).divided(places);
        timeout.divided(places >> spread).min(longest)
    }

    /// Word on who is missing. A rank is more precise than a switch, so a switch does not replace it; unless the word on the rank was not
    /// repeated for so long that it must have turned up, for those who wait ask again every eighth of the patience.
    pub fn on_waiting(&mut self, now: Instant, what: u32, suspect: Suspect) {
        let faded = self.reliability.patience.divided(4);
        let keeps = matches!(self.suspect, Some((_, Suspect::Rank(_), at)) if now.since(at) < faded);
        if matches!(suspect, Suspect::Rank(_)) || !keeps {
            self.suspect = Some((what, suspect, now));
        }
    }

    /// What was sent at `sent_at`, and at no time before by itself, was replied to without an answer.
    pub fn on_reply(&mut self, now: Instant, sent_at: Instant) {
        self.rtt.on_reply(now.since(sent_at));
    }

    /// Who is named when patience has ended, and for what: the latest word on who is missing, unless it was given in the first half of the
    /// patience only. Whoever gave it was asked all the time and is silent itself since: a server that has died must not leave behind that
    /// somebody is missing who was only the last to begin.
    pub fn culprit(&self, now: Instant) -> Option<(u32, Suspect)> {
        self.suspect_within(now, self.reliability.patience.divided(2))
    }

    /// The latest word on who is missing, if it is not so old that whoever gave it must have given it again since.
    pub fn fresh_suspect(&self, now: Instant) -> Option<(u32, Suspect)> {
        self.suspect_within(now, self.reliability.patience.divided(4))
    }

    fn suspect_within(&self, now: Instant, faded: Duration) -> Option<(u32, Suspect)> {
        self.suspect.filter(|(_, _, at)| now.since(*at) < faded).map(|(what, suspect, _)| (what, suspect))
    }

    /// Whether there are timers at all.
    #[inline]
    pub fn is_reliable(&self) -> bool {
        self.reliability.reliable
    }

    /// Whether nothing has come for the job's patience.
    pub fn has_lost_patience(&self, now: Instant) -> bool {
        now >= self.progress_at + self.reliability.patience
    }

    /// When there is something to do while an operation runs: to send again or to give up.
    #[inline]
    pub fn next_timeout(&self, sent_at: impl FnOnce(u32) -> Instant) -> Option<Instant> {
        if !self.reliability.reliable {
            return None;
        }
        let give_up_at = self.progress_at + self.reliability.patience;
        let first = if self.held_up { None } else { self.order.first() };
        Some(first.map_or(give_up_at, |place| self.resend_at(sent_at(place)).min(give_up_at)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanin_core::NodeId;

    fn at(us: u64) -> Instant {
        Instant::ZERO + Duration::from_us(us)
    }

    fn window() -> Repetition {
        let mut window = Repetition::new(&Reliability::lossy(Duration::from_us(100), Duration::from_us(10), Duration::from_ms(8)), 4);
        window.begin(at(0));
        window
    }

    #[test]
    fn what_was_sent_longest_ago_is_due_first_and_keeps_its_turn_until_there_is_room() {
        let (mut window, sent) = (window(), [at(0), at(5)]);
        window.on_sent(1);
        window.on_sent(0);
        let sent_at = |place: u32| sent[1 - place as usize];
        assert_eq!(window.next_timeout(sent_at), Some(at(100)));
        assert_eq!(window.next_due(at(99), sent_at, || true), None);
        assert_eq!((window.next_due(at(100), sent_at, || false), window.is_held_up()), (None, true));
        assert_eq!(window.next_timeout(sent_at), Some(at(8_000)), "room is waited for, not time");
        window.retry();
        assert_eq!(window.next_due(at(101), sent_at, || true), Some(1));
        let (mut attempts, mut last) = (255, sent_at(1));
        window.on_repeated(at(101), 1, &mut attempts, &mut last);
        assert_eq!((attempts, last), (255, at(101)));
        // Nothing at all was answered: the timeout has doubled, and what is due goes out one by one.
        assert_eq!(window.next_due(at(105), |_| at(5), || true), None);
        assert_eq!(window.next_due(at(205), |_| at(5), || true), Some(0));
    }

    #[test]
    fn copies_that_do_not_help_are_sent_ever_less_often() {
        let mut window = window();
        (0..4).for_each(|place| window.on_sent(place));
        let (mut now, mut attempts, mut sent) = (at(0), 0, [at(0); 4]);
        let mut gaps = Vec::new();
        for _ in 0..60 {
            let before = now;
            now = window.next_timeout(|place| sent[place as usize]).unwrap();
            let place = window.next_due(now, |place| sent[place as usize], || true).unwrap();
            window.on_repeated(now, place, &mut attempts, &mut sent[place as usize]);
            // An answer to a copy is progress, but shows nothing about timeouts.
            window.on_progress(now);
            gaps.push(now.since(before).as_ps() as f64 / window.timeout().as_ps() as f64);
        }
        assert_eq!(gaps[gaps.len() - 1], 1.0, "{gaps:?}");
        assert!(gaps[8] < 0.5, "{gaps:?}");
        window.on_answer(now, 0, now, now);
        assert_eq!(window.copies, 0);
    }

    #[test]
    fn an_answer_is_progress() {
        let mut window = window();
        window.on_sent(2);
        assert!(window.has_lost_patience(at(8_000)) && !window.has_lost_patience(at(7_999)));
        window.on_answer(at(4_000), 2, at(3_980), at(3_980));
        assert!(!window.has_lost_patience(at(11_999)));
        assert_eq!(window.next_timeout(|_| unreachable!("nothing is under way")), Some(at(12_000)));
    }

    #[test]
    fn a_rank_is_a_better_suspect_than_a_switch_for_as_long_as_it_is_named() {
        let mut window = window();
        window.on_waiting(at(0), 7, Suspect::Switch(NodeId(9)));
        window.on_waiting(at(1), 8, Suspect::Rank(Rank(2)));
        window.on_waiting(at(2), 7, Suspect::Switch(NodeId(9)));
        assert_eq!(window.culprit(at(4_000)), Some((8, Suspect::Rank(Rank(2)))));
        assert_eq!(window.culprit(at(4_001)), None, "who said so is silent since");
        assert_eq!(window.fresh_suspect(at(2_000)), Some((8, Suspect::Rank(Rank(2)))));
        assert_eq!(window.fresh_suspect(at(2_001)), None, "it was not given again for a quarter of the patience");
        window.on_waiting(at(2_001), 7, Suspect::Switch(NodeId(9)));
        assert_eq!(window.culprit(at(2_001)), Some((7, Suspect::Switch(NodeId(9)))));
        window.on_sent(0);
        window.on_answer(at(2_002), 0, at(2_000), at(2_000));
        assert_eq!(window.culprit(at(2_002)), None);
    }

    #[test]
    fn a_network_that_loses_nothing_needs_no_timers() {
        let mut window = Repetition::new(&Reliability::LOSSLESS, 4);
        window.begin(at(1));
        window.on_sent(3);
        window.on_answer(at(2), 3, at(1), at(1));
        assert_eq!(window.next_timeout(|_| unreachable!("there is no order")), None);
    }
}
