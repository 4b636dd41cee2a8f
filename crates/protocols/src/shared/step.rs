//! What a step costs its host before the first packet goes: the overhead O of Rina's model of a ring (III-A, equation 3: protocol, moves of
//! memory), and what computing and background load add at random, with deviation sigma.

use fanin_core::hash::{derive, mix};
use fanin_core::{Duration, Instant, JobId, OperationId, Rank};

use super::rtt::rebased;

/// The time of a host before each step.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct StepCost {
    /// O: its mean, as long as `deviation` is small beside it; it is never below zero.
    pub overhead: Duration,
    /// Sigma: the deviation of a normal distribution, from which each worker draws for each step.
    pub deviation: Duration,
    /// What the draws depend on beside job, rank, operation and step: another seed, other draws.
    pub seed: u64,
}

impl StepCost {
    /// Steps begin at once.
    pub const NONE: StepCost = StepCost { overhead: Duration::ZERO, deviation: Duration::ZERO, seed: 0 };
}

/// Holds back the packets of a step until its host is ready for it. One step opens at a time, and with it all before.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct StepGate {
    cost: StepCost,
    key: u64,
    operation: OperationId,
    /// Steps below this are open.
    open: u32,
    /// The step that opens next, and when.
    opening: Option<(u32, Instant)>,
}

impl StepGate {
    /// A gate of one worker; its draws are its own.
    pub fn new(cost: StepCost, job: JobId, rank: Rank) -> Self {
        let key = derive(mix(0x57e9, cost.seed), u64::from(job.0) << 32 | u64::from(rank.0));
        StepGate { cost, key, operation: OperationId(0), open: 0, opening: None }
    }

    /// A gate that is always open.
    pub fn none() -> Self {
        StepGate::new(StepCost::NONE, JobId(0), Rank(0))
    }

    /// Whether steps cost anything.
    #[inline]
    pub fn is_none(&self) -> bool {
        (self.cost.overhead, self.cost.deviation) == (Duration::ZERO, Duration::ZERO)
    }

    /// An operation begins, or begins anew: no step is open.
    pub fn begin(&mut self, operation: OperationId) {
        (self.operation, self.open, self.opening) = (operation, 0, None);
    }

    /// Whether packets of a step may go. The host begins to prepare the step when this is asked for the first time.
    #[inline]
    pub fn admits(&mut self, now: Instant, step: u32) -> bool {
        if self.is_none() || step < self.open {
            return true;
        }
        let (opening, at) = *self.opening.get_or_insert_with(|| (step, now + Self::time(self.cost, self.key, self.operation, step)));
        if at > now {
            return false;
        }
        (self.open, self.opening) = (self.open.max(opening + 1), None);
        step < self.open || self.admits(now, step)
    }

    /// When a step opens that is waited for.
    #[inline]
    pub fn opens_at(&self) -> Option<Instant> {
        self.opening.map(|(_, at)| at)
    }

    /// The time has come: opens what is due. Says whether that was anything.
    pub fn expire(&mut self, now: Instant) -> bool {
        let Some((step, _)) = self.opening.filter(|(_, at)| *at <= now) else { return false };
        (self.open, self.opening) = (self.open.max(step + 1), None);
        true
    }

    /// Nothing is waited for any more.
    pub fn clear(&mut self) {
        self.opening = None;
    }

    /// Makes times relative to `now`.
    pub fn rebase(&mut self, now: Instant) {
        self.opening = self.opening.map(|(step, at)| (step, rebased(at, now)));
    }

    /// What a step costs: normal, by the transform of Box and Muller; not below zero.
    fn time(cost: StepCost, key: u64, operation: OperationId, step: u32) -> Duration {
        if cost.deviation == Duration::ZERO {
            return cost.overhead;
        }
        let draw = mix(key, u64::from(operation.0) << 32 | u64::from(step));
        // Both in (0, 1): 32 bits each.
        let [first, second] = [draw >> 32, draw & 0xFFFF_FFFF].map(|bits| (bits as f64 + 0.5) / 4_294_967_296.0);
        let normal = libm::sqrt(-2.0 * libm::log(first)) * libm::cos(std::f64::consts::TAU * second);
        let ps = cost.overhead.as_ps() as f64 + normal * cost.deviation.as_ps() as f64;
        Duration::from_ps(ps.max(0.0) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Instant {
        Instant::ZERO + Duration::from_us(us)
    }

    #[test]
    fn steps_open_one_after_the_other_when_their_time_is_over() {
        let mut gate = StepGate::new(StepCost { overhead: Duration::from_us(20), deviation: Duration::ZERO, seed: 0 }, JobId(1), Rank(2));
        gate.begin(OperationId(0));
        assert!(!gate.admits(at(5), 0) && !gate.admits(at(24), 0));
        assert_eq!(gate.opens_at(), Some(at(25)));
        assert!(!gate.expire(at(24)) && gate.expire(at(25)) && !gate.expire(at(26)));
        assert!(gate.admits(at(25), 0) && !gate.admits(at(30), 1) && gate.admits(at(31), 0), "what is open stays so");
        assert!(gate.admits(at(50), 1));
        gate.begin(OperationId(1));
        assert!(!gate.admits(at(60), 0));
        gate.clear();
        assert_eq!(gate.opens_at(), None);
        assert!(StepGate::none().admits(at(0), 7));
    }

    #[test]
    fn times_are_normal() {
        let cost = StepCost { overhead: Duration::from_us(200), deviation: Duration::from_us(20), seed: 0 };
        let times: Vec<f64> = (0..20_000).map(|step| StepGate::time(cost, 77, OperationId(3), step).as_us_f64()).collect();
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        let deviation = (times.iter().map(|time| (time - mean) * (time - mean)).sum::<f64>() / times.len() as f64).sqrt();
        assert!((mean - 200.0).abs() < 0.5 && (deviation - 20.0).abs() < 0.5, "{mean} {deviation}");
        let beyond = times.iter().filter(|time| (*time - 200.0).abs() > 40.0).count() as f64 / times.len() as f64;
        assert!((beyond - 0.0455).abs() < 0.006, "{beyond} are more than two deviations off");
    }

    #[test]
    fn each_worker_and_each_seed_draws_its_own() {
        let opens = |seed, rank| {
            let cost = StepCost { overhead: Duration::from_us(200), deviation: Duration::from_us(20), seed };
            let mut gate = StepGate::new(cost, JobId(1), Rank(rank));
            gate.begin(OperationId(0));
            assert!(!gate.admits(at(0), 0));
            gate.opens_at()
        };
        assert_eq!(opens(1, 2), opens(1, 2));
        assert!(opens(1, 2) != opens(2, 2) && opens(1, 2) != opens(1, 3));
        assert!(StepGate::new(StepCost { seed: 5, ..StepCost::NONE }, JobId(1), Rank(2)).is_none());
    }
}
