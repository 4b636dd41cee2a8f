//! DCQCN (Zhu et al., *Congestion Control for Large-Scale RDMA Deployments*, SIGCOMM 2015; `baselines 8`): the receiver of a marked packet says
//! so, at most once in a while, and the sender of the connection slows down, and grows again by time and by bytes.

use fanin_core::{Duration, Instant};

/// The parameters of DCQCN.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Dcqcn {
    /// Rate of the card's link: where a connection begins, and the most it has.
    pub line_bps: u64,
    /// The least that a connection keeps.
    pub rate_min_bps: u64,
    /// 1/g: how slowly the estimate of congestion moves.
    pub gain_inverse: u32,
    /// A receiver says once in this time that packets of a connection are marked.
    pub notification_gap: Duration,
    /// Without a notification for so long the estimate of congestion falls.
    pub estimate_timer: Duration,
    /// The rate grows once in this time,
    pub rate_timer: Duration,
    /// and once for so many bytes.
    pub rate_bytes: u64,
    /// So many times it goes half way back to where it was before; further on that target grows.
    pub recovery_steps: u8,
    /// By how much the target grows,
    pub additive_bps: u64,
    /// and when both time and bytes have said so many times that it may.
    pub hyper_bps: u64,
}

/// What the estimate of congestion is a share of.
const WHOLE: u64 = 1 << 32;
/// After so many times that it falls nothing is left of it that would make a difference.
const FALLS_MAX: u64 = 8_192;

/// A sender's rate (the reaction point).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RateControl {
    config: Dcqcn,
    rate_bps: u64,
    target_bps: u64,
    /// alpha, in [`WHOLE`]s.
    estimate: u64,
    /// The next packet does not go before,
    next_at: Instant,
    /// and there is one that waits for that.
    holds: bool,
    estimate_falls_at: Instant,
    rate_grows_at: Instant,
    bytes: u64,
    /// How often time and bytes have let the rate grow since the last notification.
    by_time: u8,
    by_bytes: u8,
}

impl RateControl {
    /// A connection that sends at the rate of its link.
    pub fn new(config: Dcqcn) -> Self {
        RateControl {
            rate_bps: config.line_bps,
            target_bps: config.line_bps,
            estimate: WHOLE,
            next_at: Instant::ZERO,
            holds: false,
            // Nothing is known before the first notification, and congestion may be as bad as it can be.
            estimate_falls_at: Instant::FAR_FUTURE,
            rate_grows_at: Instant::ZERO,
            bytes: 0,
            by_time: 0,
            by_bytes: 0,
            config,
        }
    }

    /// The rate in bits per second, of packets from the transport's header on.
    pub fn rate_bps(&self) -> u64 {
        self.rate_bps
    }

    /// When the packet may go that was held up; `None` where none was.
    #[inline]
    pub fn opens_at(&self) -> Option<Instant> {
        self.holds.then_some(self.next_at)
    }

    /// Whether a packet may go now. Where it may not, [`RateControl::opens_at`] says when.
    #[inline]
    pub fn is_open(&mut self, now: Instant) -> bool {
        self.grow(now);
        self.holds = self.rate_bps < self.config.line_bps && self.next_at > now;
        !self.holds
    }

    /// A packet goes now.
    #[inline]
    pub fn sent(&mut self, now: Instant, bytes: u32) {
        if self.rate_bps >= self.config.line_bps {
            return;
        }
        let length_ps = (u128::from(bytes) * 8_000_000_000_000 / u128::from(self.rate_bps)) as u64;
        self.next_at = self.next_at.max(now) + Duration::from_ps(length_ps);
        self.bytes += u64::from(bytes);
        if self.bytes >= self.config.rate_bytes {
            self.bytes = 0;
            self.by_bytes = self.by_bytes.saturating_add(1);
            self.step();
        }
    }

    /// The receiver says that packets are marked.
    pub fn on_notification(&mut self, now: Instant) {
        self.grow(now);
        self.let_fall(now);
        self.target_bps = self.rate_bps;
        let less = (u128::from(self.rate_bps) * u128::from(self.estimate) / (2 * u128::from(WHOLE))) as u64;
        self.rate_bps = (self.rate_bps - less).max(self.config.rate_min_bps.min(self.config.line_bps));
        let gain = u64::from(self.config.gain_inverse.max(1));
        self.estimate = (self.estimate - self.estimate / gain + WHOLE / gain).min(WHOLE);
        self.estimate_falls_at = now + self.config.estimate_timer;
        self.rate_grows_at = now + self.config.rate_timer;
        (self.bytes, self.by_time, self.by_bytes) = (0, 0, 0);
        // What was allowed before was at a higher rate.
        self.next_at = self.next_at.max(now);
    }

    /// Time has passed: the estimate of congestion falls for each interval without a notification.
    fn let_fall(&mut self, now: Instant) {
        let timer = self.config.estimate_timer.as_ps().max(1);
        if now < self.estimate_falls_at {
            return;
        }
        let falls = 1 + now.since(self.estimate_falls_at).as_ps() / timer;
        let gain = u64::from(self.config.gain_inverse.max(1));
        (0..falls.min(FALLS_MAX)).for_each(|_| self.estimate -= self.estimate / gain);
        self.estimate_falls_at = now + self.config.estimate_timer;
    }

    /// Time has passed: the rate grows once for each interval, until it is that of the link.
    #[inline]
    fn grow(&mut self, now: Instant) {
        while self.rate_bps < self.config.line_bps && self.rate_grows_at <= now {
            self.rate_grows_at += Duration::from_ps(self.config.rate_timer.as_ps().max(1));
            self.by_time = self.by_time.saturating_add(1);
            self.step();
        }
    }

    fn step(&mut self) {
        let (most, least) = (self.by_time.max(self.by_bytes), self.by_time.min(self.by_bytes));
        if least > self.config.recovery_steps {
            self.target_bps += self.config.hyper_bps;
        } else if most > self.config.recovery_steps {
            self.target_bps += self.config.additive_bps;
        }
        self.target_bps = self.target_bps.min(self.config.line_bps);
        // Half way, rounded up, so that it gets there.
        self.rate_bps = (self.rate_bps + self.target_bps).div_ceil(2);
    }

    /// Makes times relative to `now`.
    pub fn rebase(&mut self, now: Instant) {
        for at in [&mut self.next_at, &mut self.estimate_falls_at, &mut self.rate_grows_at] {
            *at = crate::shared::rtt::rebased(*at, now);
        }
    }
}

/// A receiver's side (the notification point): when to say that packets are marked.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Notifier {
    said_at: Option<Instant>,
}

impl Notifier {
    /// A packet has come that is marked. Says whether the sender is to be told.
    #[inline]
    pub fn on_marked(&mut self, now: Instant, gap: Duration) -> bool {
        if self.said_at.is_some_and(|at| now.since(at) < gap) {
            return false;
        }
        self.said_at = Some(now);
        true
    }

    /// Makes times relative to `now`.
    pub fn rebase(&mut self, now: Instant) {
        self.said_at = self.said_at.map(|at| crate::shared::rtt::rebased(at, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: Dcqcn = Dcqcn {
        line_bps: 100_000_000_000,
        rate_min_bps: 100_000_000,
        gain_inverse: 256,
        notification_gap: Duration::from_us(50),
        estimate_timer: Duration::from_us(55),
        rate_timer: Duration::from_us(55),
        rate_bytes: 10_000_000,
        recovery_steps: 5,
        additive_bps: 40_000_000,
        hyper_bps: 400_000_000,
    };

    fn at(us: u64) -> Instant {
        Instant::ZERO + Duration::from_us(us)
    }

    #[test]
    fn a_connection_without_marks_is_never_held_up() {
        let mut rate = RateControl::new(CONFIG);
        for us in 0..1_000 {
            assert!(rate.is_open(at(us)) && rate.opens_at().is_none());
            rate.sent(at(us), 1_082);
        }
        assert_eq!(rate.rate_bps(), CONFIG.line_bps);
    }

    /// The first notification halves the rate, as alpha is 1; five steps of 55 us lead half of the way back each.
    #[test]
    fn a_notification_halves_and_recovery_leads_back() {
        let mut rate = RateControl::new(CONFIG);
        rate.on_notification(at(0));
        assert_eq!(rate.rate_bps(), 50_000_000_000);
        let mut rates = Vec::new();
        for step in 1..=5 {
            assert!(rate.is_open(at(55 * step)));
            rates.push(rate.rate_bps() / 10_000_000);
        }
        assert_eq!(rates, [7_500, 8_750, 9_375, 9_687, 9_843]);
        assert!((0..40).any(|step| rate.is_open(at(330 + 55 * step)) && rate.rate_bps() == CONFIG.line_bps));
    }

    #[test]
    fn packets_go_at_the_rate() {
        let mut rate = RateControl::new(Dcqcn { rate_timer: Duration::from_ms(10), ..CONFIG });
        rate.on_notification(at(0));
        let mut now = at(0);
        for _ in 0..1_000 {
            assert!(rate.is_open(now));
            rate.sent(now, 1_000);
            assert!(!rate.is_open(now));
            now = rate.opens_at().expect("a packet is held up");
        }
        assert_eq!(now.since(at(0)), Duration::from_us(160), "a megabyte at 50 Gb/s");
    }

    #[test]
    fn marks_without_end_leave_the_least_rate_and_the_estimate_falls_in_peace() {
        let mut rate = RateControl::new(CONFIG);
        (0..100).for_each(|count| rate.on_notification(at(count)));
        assert_eq!((rate.rate_bps(), rate.estimate), (CONFIG.rate_min_bps, WHOLE));
        // A second later hardly anything is left of the estimate, so that one notification takes little.
        assert!(rate.is_open(at(2_000_000)));
        let before = rate.rate_bps();
        rate.on_notification(at(2_000_000));
        assert!(before > 90_000_000_000 && rate.rate_bps() > before / 100 * 99, "{before}, {}", rate.rate_bps());
    }

    /// Beyond recovery the target grows by time alone by the lesser amount, and by the greater one where bytes say so too.
    #[test]
    fn growth_is_additive_and_then_hyper() {
        let config = Dcqcn { rate_bytes: 1_000, ..CONFIG };
        let mut rate = RateControl::new(config);
        (0..10).for_each(|count| rate.on_notification(at(count)));
        (1..=6).for_each(|step| _ = rate.is_open(at(9 + 55 * step)));
        let target = rate.target_bps;
        rate.grow(at(9 + 55 * 7));
        assert_eq!(rate.target_bps, target + config.additive_bps);
        (0..7).for_each(|_| rate.sent(at(400), 1_000));
        let target = rate.target_bps;
        rate.sent(at(400), 1_000);
        assert_eq!(rate.target_bps, target + config.hyper_bps);
    }

    #[test]
    fn a_receiver_says_it_once_in_a_while() {
        let mut notifier = Notifier::default();
        let said: Vec<u64> = (0..200).filter(|us| notifier.on_marked(at(*us), CONFIG.notification_gap)).collect();
        assert_eq!(said, [0, 50, 100, 150]);
    }
}
