//! The two windows of a job and what they follow (`a2tp 5.7`): one for the memory of switches, which follows collisions there, and one for
//! links, which follows marks. The formulas, wherever they are used: A2TP sends to aggregators what is within the former, and the rest
//! past them; Canary's hosts send what is within the smaller of the two ([`CanaryWorker::with_windows`](crate::canary::CanaryWorker::with_windows)).

use fanin_core::{Duration, Gauge, Instant};

use super::real::Real;
use super::rtt::rebased;
use super::serial::newer;

/// What gamma is taken from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Synchrony {
    /// How far the contributions of fragments are apart: the share of a round in which nobody waits for a straggler.
    Spread,
    /// As the paper has it: the share of a round's acknowledgements that are back within the shortest round trip.
    RoundTrip,
}

/// What h is a share of, and whose collisions it counts (gap 2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CollisionsOf {
    /// All fragments of a round (LCW), as with marks.
    Round,
    /// As the paper has it: those that went to aggregators (ACW).
    Aggregated,
    /// Those that an aggregator has summed up. Their marks are of collisions of any job, shared out and averaged by the switch
    /// ([`JobAtSwitch::shares_collisions`](crate::shared::aggregation::JobAtSwitch::shares_collisions)), so that h is alpha. What was lost at
    /// aggregators by fault of the job's own straggler is marked, too, and counts as a share of the round: a job that has few aggregators left
    /// keeps some.
    Shared,
}

/// Parameters of two windows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TwoWindowConfig {
    /// The longest window in fragments (LCW); also the number of places.
    pub window: u32,
    /// The first one, of both kinds.
    pub initial: u32,
    /// H: so many collisions are borne, as a share of fragments.
    pub threshold: Real,
    /// w: the weight of the latest round in the average of collisions.
    pub collision_weight: Real,
    /// g: the weight of the latest round in the average of marks.
    pub mark_weight: Real,
    /// By how much the aggregator window grows in a round: 1, and more for jobs that are to have more aggregators than others.
    pub priority: Real,
    /// After so many rounds without a collision the aggregator window grows by one fragment more in each further one, until there is one; the
    /// link window as well, without a mark, when there was none for twice the time in which windows come and go where links are full. 0: always
    /// by the same, as in the paper.
    pub quiet_rounds: u32,
    /// The aggregator window of a job never falls below this, however late its stragglers are.
    pub aggregators_min: u32,
    /// The link window of a job never falls below this: 1, as in the paper, or more where other traffic does not yield to marks.
    pub links_min: u32,
    /// Fair rather than efficient (`paper 8`): all jobs count as if they had no stragglers. That takes more than the same gamma for all:
    /// see the module's documentation.
    pub fair: bool,
    /// Only what was [`Seen::wanted`] counts as a collision; otherwise what was [`Seen::refused`], too (gap 2).
    pub col_only: bool,
    /// What h is a share of.
    pub collisions: CollisionsOf,
    /// What gamma is taken from (gap 3).
    pub synchrony: Synchrony,
}

impl TwoWindowConfig {
    /// By how many fragments a window grows after so many rounds in which it met nothing.
    fn step(&self, rounds: u32, rounds_min: u32) -> f64 {
        let more = if self.quiet_rounds == 0 { 0 } else { rounds.saturating_sub(self.quiet_rounds.max(rounds_min)) };
        1.0 + f64::from(more)
    }
}

/// The windows of a job.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Control {
    config: TwoWindowConfig,
    acw: Real,
    lcw: Real,
    alpha: Real,
    beta: Real,
    gamma: Real,
    /// Rounds since the last one with a collision, and with a mark.
    quiet: [u32; 2],
}

impl Control {
    /// The windows that a job begins with.
    pub fn new(config: TwoWindowConfig) -> Self {
        let initial = Real::new(f64::from(config.initial.clamp(1, config.window)));
        Control { config, acw: initial, lcw: initial, alpha: Real::new(0.0), beta: Real::new(0.0), gamma: Real::new(1.0), quiet: [0; 2] }
    }

    /// Its parameters.
    pub fn config(&self) -> &TwoWindowConfig {
        &self.config
    }

    /// How many fragments of a round go to aggregators.
    pub fn aggregated(&self) -> u32 {
        self.acw.whole(self.length())
    }

    /// How many fragments a round has, and may be under way.
    pub fn length(&self) -> u32 {
        self.lcw.whole(self.config.window)
    }

    /// (4) to (6), with p from (1) and d from (5): what a round has met makes the next windows. A share of collisions is unknown where
    /// nothing went to aggregators, and synchrony where the round was interrupted.
    pub fn update(&mut self, met: &Met) {
        let Control { config, alpha, beta, .. } = *self;
        let average = |old: Real, weight: Real, sample: f64| (1.0 - weight.get()) * old.get() + weight.get() * sample;
        if let Some(synchrony) = met.synchrony {
            self.gamma = Real::new(synchrony.clamp(0.0, 1.0));
        }
        let shared = config.collisions == CollisionsOf::Shared;
        let (gamma, collisions) = match met.collisions {
            Some(collisions) if config.fair && !shared => (1.0, Some(in_step(collisions, met.aggregated, met.fragments, self.gamma.get()))),
            collisions => (if config.fair { 1.0 } else { self.gamma.get() }, collisions),
        };
        if let Some(collisions) = collisions {
            let weight = if shared { Real::new(1.0) } else { config.collision_weight };
            self.alpha = Real::new(average(alpha, weight, collisions));
        }
        self.beta = Real::new(average(beta, config.mark_weight, met.marks));
        let d = decrease(self.alpha.get(), config.threshold.get(), gamma);
        let [collision_free, mark_free] = self.quiet;
        self.quiet = [
            met.collisions.map_or(collision_free, |collisions| if collisions > 0.0 { 0 } else { collision_free.saturating_add(1) }),
            if met.marks > 0.0 { 0 } else { mark_free.saturating_add(1) },
        ];
        // Where a link is full marks are apart as far as a window needs to grow back: sqrt(2 W) / 2 rounds (DCTCP, equation 8).
        let saw = libm::sqrt(2.0 * self.lcw.get()) as u32;
        let (more_aggregators, more_links) = (config.step(self.quiet[0], 0), config.step(self.quiet[1], saw));
        let acw = if d > 0.0 { self.acw.get() * (1.0 - d / 2.0) } else { self.acw.get() + config.priority.get() * more_aggregators };
        let lcw = if met.marks > 0.0 { self.lcw.get() * (1.0 - self.beta.get() / 2.0) } else { self.lcw.get() + more_links };
        let lcw = lcw.clamp(f64::from(config.links_min), f64::from(config.window));
        self.lcw = Real::new(lcw);
        self.acw = Real::new(acw.max(f64::from(config.aggregators_min)).max(1.0).min(lcw));
    }

    /// Reports both windows and what they follow.
    pub fn gauges(&self, report: &mut dyn FnMut(Gauge, f64)) {
        report(Gauge::AggregatorWindow, self.acw.get());
        report(Gauge::LinkWindow, self.lcw.get());
        report(Gauge::CollisionShare, self.alpha.get());
        report(Gauge::MarkShare, self.beta.get());
        report(Gauge::Synchrony, self.gamma.get());
    }
}

/// d = p^gamma, and 0 where collisions are within what is borne: with gamma = 0 the power would be 1 (P9).
pub fn decrease(alpha: f64, threshold: f64, gamma: f64) -> f64 {
    if alpha <= threshold || threshold >= 1.0 {
        return 0.0;
    }
    libm::pow((alpha - threshold) / (1.0 - threshold), gamma.clamp(0.0, 1.0))
}

/// The share of collisions that a job with stragglers would have met in a round in which nobody waits. Its aggregators are taken 1/gamma
/// times as long as those of a job in step, and a fragment has one mark however often it was hit in that time: what is left unmarked of
/// `aggregated`, the share that went to aggregators, is as small as after that many rounds. Of so many `fragments` none may be left by
/// chance: that is taken for half a one.
fn in_step(collisions: f64, aggregated: f64, fragments: u32, gamma: f64) -> f64 {
    if gamma >= 1.0 || aggregated <= 0.0 {
        return collisions;
    }
    let unmarked = (1.0 - collisions / aggregated).max(0.5 / f64::from(fragments.max(1)));
    aggregated * (1.0 - libm::pow(unmarked, gamma.clamp(GAMMA_MIN, 1.0)))
}

/// A job that waits all the time is no longer told from one that waits nearly always: 0 would make every number of collisions none.
const GAMMA_MIN: f64 = 1.0 / 256.0;

/// What a round has met.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Met {
    /// h: share of the fragments that met a collision at an aggregator.
    pub collisions: Option<f64>,
    /// The share of the same fragments that went to aggregators.
    pub aggregated: f64,
    /// How many these are.
    pub fragments: u32,
    /// e: share of all fragments that met a congested link.
    pub marks: f64,
    /// gamma: n / LCW, or the share of the round in which nobody waited for a straggler.
    pub synchrony: Option<f64>,
}

/// What an answer tells of its packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// It was sent to aggregators.
    pub aggregated: bool,
    /// Another packet wanted the memory that it had (A2TP's `Col`).
    pub wanted: bool,
    /// It found its memory taken.
    pub refused: bool,
    /// It met a congested link.
    pub marked: bool,
    /// How long its contributions have waited for each other, if that is known.
    pub waited: Option<Duration>,
}

/// Counts what a round meets.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Tally {
    col_only: bool,
    collisions: CollisionsOf,
    rule: Synchrony,
    began: Instant,
    /// How long the first counted acknowledgements may take: the shortest round trip, and an eighth.
    base: Duration,
    length: u32,
    aggregated: u32,
    collided: u32,
    /// Lost at aggregators by fault of the job itself, where switches tell that.
    blamed: u32,
    acknowledged: u32,
    marked: u32,
    in_time: u32,
    /// How far the contributions of fragments were apart, added up over those of which that is known.
    waited: Duration,
    known: u32,
    /// Something else than stragglers made the round long: a pause between two tensors.
    interrupted: bool,
    tensor: u32,
}

impl Tally {
    /// Nothing was counted yet.
    pub fn new(config: &TwoWindowConfig) -> Self {
        Tally {
            col_only: config.col_only,
            collisions: config.collisions,
            rule: config.synchrony,
            began: Instant::ZERO,
            base: Duration::MAX,
            length: config.initial.clamp(1, config.window),
            aggregated: 0,
            collided: 0,
            blamed: 0,
            acknowledged: 0,
            marked: 0,
            in_time: 0,
            waited: Duration::ZERO,
            known: 0,
            interrupted: true,
            tensor: 0,
        }
    }

    /// What the last round has met; another one of so many fragments begins with an acknowledgement that comes now.
    pub fn begin(&mut self, now: Instant, tensor: u32, length: u32) -> Option<Met> {
        let share = |part: u32, whole: u32| f64::from(part) / f64::from(whole.max(1));
        let whole = !self.interrupted && tensor == self.tensor;
        let round_trip = now.since(self.began);
        let wanted = match self.collisions {
            CollisionsOf::Round => self.acknowledged,
            CollisionsOf::Aggregated | CollisionsOf::Shared => self.aggregated,
        };
        let met = (self.acknowledged > 0).then(|| Met {
            collisions: (self.aggregated + self.blamed > 0).then(|| share(self.collided, wanted) + share(self.blamed, self.acknowledged)),
            aggregated: share(self.aggregated, wanted),
            fragments: self.aggregated,
            marks: share(self.marked, self.acknowledged),
            synchrony: if whole { self.synchrony(round_trip) } else { None },
        });
        if whole {
            self.base = self.base.min(Duration::from_ps(round_trip.as_ps() + round_trip.as_ps() / 8));
        }
        *self = Tally {
            began: now,
            length,
            aggregated: 0,
            collided: 0,
            blamed: 0,
            acknowledged: 0,
            marked: 0,
            in_time: 0,
            waited: Duration::ZERO,
            known: 0,
            interrupted: false,
            tensor,
            ..self.clone()
        };
        met
    }

    /// (3). Acknowledgements come back evenly over a round, which lasts as long as a round trip of whoever is first does: of LCW of them,
    /// those of the part in which the last one is not waited for are n. Time in which everybody waits, for the server or a link, is no
    /// part of that; measured by the shortest round trip it would be.
    fn synchrony(&self, round_trip: Duration) -> Option<f64> {
        match self.rule {
            Synchrony::RoundTrip => Some(f64::from(self.in_time) / f64::from(self.length.max(1))),
            Synchrony::Spread if self.known == 0 || round_trip == Duration::ZERO => None,
            Synchrony::Spread => {
                let waited = self.waited.as_ps() as f64 / f64::from(self.known);
                Some((1.0 - waited / round_trip.as_ps() as f64).max(0.0))
            }
        }
    }

    /// An acknowledgement of the round, and what it tells of its fragment.
    pub fn count(&mut self, now: Instant, tensor: u32, seen: Seen) {
        let shared = self.collisions == CollisionsOf::Shared;
        let lost = shared && seen.refused;
        self.blamed += u32::from(seen.aggregated && lost && seen.wanted);
        let aggregated = seen.aggregated && !lost;
        let collided = seen.wanted || seen.refused && !self.col_only && !shared;
        self.acknowledged += 1;
        self.aggregated += u32::from(aggregated);
        self.collided += u32::from(aggregated && collided);
        self.marked += u32::from(seen.marked);
        self.in_time += u32::from(now.since(self.began) <= self.base);
        if let Some(waited) = seen.waited {
            self.waited = self.waited + waited;
            self.known += 1;
        }
        self.interrupted |= tensor != self.tensor;
    }

    /// Makes times relative to `now`.
    pub fn rebase(&mut self, now: Instant) {
        self.began = rebased(self.began, now);
    }
}

/// Windows that one host makes for itself, once for a window's worth of packets (`a2tp 5.5`, step 7).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct OwnRounds {
    control: Control,
    tally: Tally,
    /// The packet whose answer ends what is tallied, once there was one.
    end: Option<u32>,
}

impl OwnRounds {
    /// The windows that a host begins with.
    pub fn new(config: TwoWindowConfig) -> Self {
        OwnRounds { control: Control::new(config), tally: Tally::new(&config), end: None }
    }

    /// The windows as they are.
    #[inline]
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// An answer has come, after which `edge` is the first packet without one and `next` the first that has not been sent; both are numbers
    /// that wrap; `window` is how many may be under way. True where it has begun a round, and so changed the windows.
    #[inline]
    pub fn on_answer(&mut self, now: Instant, tensor: u32, (edge, next): (u32, u32), window: u32, seen: Seen) -> bool {
        let over = self.end.is_none_or(|end| !newer(end, edge));
        if over {
            if let Some(met) = self.tally.begin(now, tensor, self.control.length()) {
                self.control.update(&met);
            }
            let all_here = next == edge;
            self.end = Some(if all_here { edge.wrapping_add(window) } else { next });
        }
        self.tally.count(now, tensor, seen);
        over
    }

    /// Makes times relative to `now`.
    pub fn rebase(&mut self, now: Instant) {
        self.tally.rebase(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAPER: TwoWindowConfig = TwoWindowConfig {
        window: 450,
        initial: 3,
        threshold: Real::new(0.15),
        collision_weight: Real::new(1.0 / 16.0),
        mark_weight: Real::new(1.0 / 16.0),
        priority: Real::new(1.0),
        quiet_rounds: 0,
        aggregators_min: 1,
        links_min: 1,
        fair: false,
        col_only: false,
        collisions: CollisionsOf::Aggregated,
        synchrony: Synchrony::RoundTrip,
    };

    const NOTHING: Seen = Seen { aggregated: true, wanted: false, refused: false, marked: false, waited: Some(Duration::ZERO) };
    const WANTED: Seen = Seen { wanted: true, ..NOTHING };
    const REFUSED: Seen = Seen { refused: true, ..NOTHING };
    const PAST: Seen = Seen { aggregated: false, ..NOTHING };

    fn met(collisions: f64, marks: f64, synchrony: f64) -> Met {
        Met { collisions: Some(collisions), aggregated: 1.0, fragments: 100, marks, synchrony: Some(synchrony) }
    }

    /// Figure 4 of the paper.
    #[test]
    fn the_decrease_is_a_power_of_the_congestion() {
        for (gamma, expected) in [(0.0, 1.0), (0.2, 0.631), (0.4, 0.398), (0.6, 0.251), (0.8, 0.158), (1.0, 0.1)] {
            assert!((decrease(0.1, 0.0, gamma) - expected).abs() < 5e-4, "gamma {gamma}");
        }
        // P9: no congestion is no decrease, whatever the stragglers; and gamma is a share.
        assert_eq!([decrease(0.0, 0.0, 0.0), decrease(0.15, 0.15, 0.0), decrease(1.0, 1.0, 0.0)], [0.0; 3]);
        assert_eq!(decrease(0.5, 0.0, 7.0), 0.5);
        assert_eq!(decrease(1.0, 0.15, 0.3), 1.0);
    }

    /// Figure 3: both windows of both jobs are 3 at a switch with 3 aggregators; B has a straggler.
    #[test]
    fn figure_3_leaves_two_aggregators_to_a_and_one_to_b() {
        let config = TwoWindowConfig { collision_weight: Real::new(1.0), ..PAPER };
        let next = |synchrony: f64| {
            let mut job = Control::new(config);
            job.update(&met(0.7, 0.0, synchrony));
            (job.aggregated(), job.length())
        };
        assert_eq!(next(1.0), (2, 4));
        assert_eq!(next(0.0), (1, 4));
    }

    #[test]
    fn windows_grow_by_one_and_shrink_by_what_they_meet() {
        let mut job = Control::new(TwoWindowConfig { initial: 100, ..PAPER });
        job.update(&met(0.0, 0.0, 1.0));
        assert_eq!((job.aggregated(), job.length()), (101, 101));
        // One round of collisions everywhere is not yet more than is borne: alpha = 1/16.
        job.update(&met(1.0, 0.0, 1.0));
        assert_eq!((job.aggregated(), job.length()), (102, 102));
        // (6): beta = 1/16 takes 1/32, and the aggregator window stays within.
        job.update(&met(0.0, 1.0, 1.0));
        assert_eq!((job.aggregated(), job.length()), (98, 98));
        for _ in 0..2_000 {
            job.update(&met(1.0, 1.0, 0.0));
        }
        assert_eq!((job.aggregated(), job.length()), (1, 1), "windows never close");
        for _ in 0..2_000 {
            job.update(&met(0.0, 0.0, 1.0));
        }
        assert_eq!((job.aggregated(), job.length()), (450, 450));
    }

    /// Where nobody else wants aggregators or links, what is free is taken soon; one collision, and windows grow by one again.
    #[test]
    fn windows_that_meet_nothing_for_long_grow_faster_from_round_to_round() {
        let grown = |rounds: u32, quiet_rounds: u32| {
            let mut job = Control::new(TwoWindowConfig { initial: 10, quiet_rounds, ..PAPER });
            (0..rounds).for_each(|_| job.update(&met(0.0, 0.0, 1.0)));
            job
        };
        assert_eq!((grown(40, 0).aggregated(), grown(16, 16).aggregated()), (50, 26));
        let mut job = grown(20, 16);
        let soon = 26 + 2 + 3 + 4 + 5;
        assert_eq!((job.aggregated(), job.length()), (soon, soon));
        job.update(&met(0.01, 0.0, 1.0));
        assert_eq!((job.aggregated(), job.length()), (soon + 1, soon + 6), "each by what it has met itself");
        // Of a link window of 200 marks are up to 10 rounds apart where the link is full: it takes twice as many to be sure.
        let mut job = Control::new(TwoWindowConfig { initial: 200, quiet_rounds: 16, ..PAPER });
        (0..20).for_each(|_| job.update(&met(0.0, 0.0, 1.0)));
        assert_eq!(job.length(), 220);
    }

    #[test]
    fn a_straggler_gives_up_aggregators_and_keeps_its_share_of_links() {
        let run = |config: TwoWindowConfig, synchrony: f64| {
            let mut job = Control::new(config);
            (0..30).for_each(|_| job.update(&met(0.3, 0.0, synchrony)));
            (job.aggregated(), job.length())
        };
        let config = TwoWindowConfig { initial: 200, ..PAPER };
        let (leader, straggler) = (run(config, 1.0), run(config, 0.1));
        assert!(leader.0 > 3 * straggler.0 && leader.1 == straggler.1, "{leader:?} {straggler:?}");
        let fair = TwoWindowConfig { fair: true, ..config };
        assert!(run(fair, 0.1).0 > run(fair, 1.0).0, "of as many marks a straggler's mean fewer collisions");
        assert!(run(TwoWindowConfig { aggregators_min: 20, ..config }, 0.0).0 >= 20);
        let favoured = TwoWindowConfig { priority: Real::new(3.0), ..config };
        let mut job = Control::new(favoured);
        job.update(&met(0.0, 0.0, 1.0));
        assert_eq!(job.aggregated(), 201, "within the link window");
        (0..5).for_each(|_| job.update(&met(1.0, 0.0, 0.0)));
        let before = job.acw.get();
        (0..200).for_each(|_| job.update(&met(0.0, 0.0, 1.0)));
        assert!(job.acw.get() > before);
    }

    /// Of 100 fragments with two jobs, each hit with the same probability in a round trip, those of a straggler are hit for five of them.
    #[test]
    fn what_fairness_makes_of_a_stragglers_collisions_is_what_a_job_in_step_meets() {
        for (hit, aggregated) in [(0.1, 1.0), (0.3, 0.5), (0.02, 0.2)] {
            let marked = aggregated * (1.0 - libm::pow(1.0 - hit, 5.0));
            assert!((in_step(marked, aggregated, 1_000, 0.2) - aggregated * hit).abs() < 1e-12);
            assert!((in_step(marked, aggregated, 1_000, 1.0) - marked).abs() < 1e-12);
        }
        assert_eq!([in_step(1.0, 1.0, 9, 1.0), in_step(0.0, 0.5, 9, 0.3), in_step(0.0, 0.0, 0, 0.3)], [1.0, 0.0, 0.0]);
        assert!((in_step(1.0, 1.0, 50, 0.2) - (1.0 - libm::pow(0.01, 0.2))).abs() < 1e-12, "half a fragment of 50");
        assert!(in_step(0.5, 1.0, 9, 0.0) > 0.0, "collisions are never none");
        let update = |synchrony: f64, collisions: f64| {
            let mut job = Control::new(TwoWindowConfig { fair: true, initial: 200, ..PAPER });
            (0..40).for_each(|_| job.update(&met(collisions, 0.0, synchrony)));
            job.aggregated()
        };
        assert_eq!(update(0.2, 1.0 - libm::pow(0.7, 5.0)), update(1.0, 0.3));
    }

    #[test]
    fn a_round_is_measured_by_the_shortest_round_trip() {
        let at = |us: u64| Instant::ZERO + Duration::from_us(us);
        let mut tally = Tally::new(&TwoWindowConfig { initial: 10, ..PAPER });
        assert_eq!(tally.begin(at(0), 0, 10), None);
        (0..10).for_each(|step| tally.count(at(step), 0, Seen { aggregated: step < 4, ..NOTHING }));
        assert_eq!(tally.begin(at(16), 0, 10), Some(Met { fragments: 4, ..met(0.0, 0.0, 1.0) }));
        // The next round takes 40 us, of which 18 count; two of four fragments met a collision, one as the loser.
        for step in 0..10 {
            let seen = [WANTED, REFUSED, Seen { marked: true, ..NOTHING }].get(step as usize).copied().unwrap_or(NOTHING);
            tally.count(at(16 + 4 * step), 0, Seen { aggregated: step < 4, ..seen });
        }
        assert_eq!(tally.begin(at(56), 0, 10), Some(Met { fragments: 4, ..met(0.5, 0.1, 0.5) }));
        // A round in which another tensor begins says nothing of stragglers.
        tally.count(at(60), 0, NOTHING);
        tally.count(at(900), 1, NOTHING);
        assert_eq!(tally.begin(at(901), 1, 10).map(|met| met.synchrony), Some(None));
    }

    /// Of four fragments at aggregators one was summed up and marked, one summed up, two found their aggregators taken: half of the sums. One of
    /// the two tells that the job itself was to blame: a fifth of the round.
    #[test]
    fn what_switches_share_out_is_a_share_of_sums_and_is_averaged_by_them() {
        let config = TwoWindowConfig { collisions: CollisionsOf::Shared, initial: 100, ..PAPER };
        let mut tally = Tally::new(&config);
        assert_eq!(tally.begin(Instant::ZERO, 0, 100), None);
        for seen in [WANTED, NOTHING, REFUSED, Seen { wanted: true, ..REFUSED }, PAST] {
            tally.count(Instant::ZERO, 0, seen);
        }
        let met = tally.begin(Instant::ZERO, 0, 100).unwrap();
        assert_eq!((met.collisions, met.fragments), (Some(0.5 + 0.2), 2));
        let mut job = Control::new(config);
        job.update(&met);
        assert_eq!(job.alpha.get(), 0.5 + 0.2, "no average of an average");
        // What a straggler is told is what all are told: fairness has nothing to correct.
        let update = |fair: bool, synchrony: f64| {
            let mut job = Control::new(TwoWindowConfig { fair, ..config });
            job.update(&Met { synchrony: Some(synchrony), ..met });
            job.aggregated()
        };
        assert_eq!(update(true, 0.2), update(false, 1.0));
        assert!(update(false, 0.2) < update(false, 1.0));
    }

    /// A server or a link that is everybody's bottleneck makes rounds as long as a straggler does; contributions are not apart.
    #[test]
    fn what_makes_all_workers_wait_is_no_straggler() {
        let at = |us: u64| Instant::ZERO + Duration::from_us(us);
        let round = |rule: Synchrony, waited: Option<Duration>| {
            let mut tally = Tally::new(&TwoWindowConfig { initial: 10, synchrony: rule, ..PAPER });
            // Two rounds of 10 us, then one of 40 us.
            assert_eq!(tally.begin(at(0), 0, 10), None);
            (0..10).for_each(|step| tally.count(at(step), 0, NOTHING));
            assert_eq!(tally.begin(at(10), 0, 10).and_then(|met| met.synchrony), Some(1.0));
            (0..10).for_each(|step| tally.count(at(10 + 4 * step), 0, Seen { waited, ..NOTHING }));
            tally.begin(at(50), 0, 10).unwrap().synchrony
        };
        let waited = |us: u64| Some(Duration::from_us(us));
        assert_eq!(round(Synchrony::RoundTrip, waited(0)), Some(0.3), "within 11.25 us");
        assert_eq!(round(Synchrony::Spread, waited(0)), Some(1.0));
        // A straggler at a quarter of the others' rate holds up 30 of 40 us: the share is its rate.
        assert_eq!(round(Synchrony::Spread, waited(30)), Some(0.25));
        assert_eq!(round(Synchrony::Spread, waited(90)), Some(0.0));
        assert_eq!(round(Synchrony::Spread, None), None);
    }

    /// A collision concerns a fragment of each of two jobs. As a share of ACW it weighs the more the fewer aggregators a job has.
    #[test]
    fn a_collision_weighs_the_same_for_jobs_with_many_aggregators_and_few() {
        let share = |collisions: CollisionsOf, aggregated: u32| {
            let mut tally = Tally::new(&TwoWindowConfig { initial: 100, collisions, ..PAPER });
            assert_eq!(tally.begin(Instant::ZERO, 0, 100), None);
            for place in 0..100 {
                tally.count(Instant::ZERO, 0, Seen { aggregated: place < aggregated, refused: place < 4, ..NOTHING });
            }
            tally.begin(Instant::ZERO, 0, 100).unwrap().collisions
        };
        assert_eq!([80, 5].map(|aggregated| share(CollisionsOf::Aggregated, aggregated)), [Some(0.05), Some(0.8)]);
        assert_eq!([80, 5].map(|aggregated| share(CollisionsOf::Round, aggregated)), [Some(0.04); 2]);
        assert_eq!(share(CollisionsOf::Round, 0), None);
    }
}
