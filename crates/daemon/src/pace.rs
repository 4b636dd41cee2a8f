//! How fast the jobs of a tenant may go together: what its ranks send, and what its operators use, in a second.
//!
//! Who has used up what it may waits: the thread of the job that did so rests, ranks get their sums later, and send less, as their windows have it.
//! Nothing is dropped for it. Other tenants' jobs have threads of their own.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use fanin_control::Pass;
use fanin_operator::Faults;

/// What may be used at once, before anybody waits.
const BURST: Duration = Duration::from_millis(10);
const SECOND_NS: u128 = 1_000_000_000;

/// So many units a second: the generic cell rate algorithm (ITU-T I.371), whose only state is when all that was used will have been allowed.
#[derive(Debug)]
struct Bucket {
    per_s: AtomicU64,
    /// In ns since the allowance began.
    allowed_at: AtomicU64,
}

impl Bucket {
    fn new(per_s: u64) -> Self {
        Bucket { per_s: AtomicU64::new(per_s), allowed_at: AtomicU64::new(0) }
    }

    /// Uses so many units; gives how long to wait before more are used.
    fn charge(&self, units: u64, now_ns: u64) -> Duration {
        let per_s = self.per_s.load(Ordering::Relaxed);
        if units == 0 || per_s == u64::MAX {
            return Duration::ZERO;
        }
        let cost = u64::try_from(u128::from(units) * SECOND_NS / u128::from(per_s.max(1))).unwrap_or(u64::MAX);
        let after = |at: u64| at.max(now_ns).saturating_add(cost);
        // Jobs of a tenant use it at once; none of them looks at anything else for it.
        let before = self.allowed_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |at| Some(after(at))).unwrap_or_default();
        Duration::from_nanos(after(before) - now_ns).saturating_sub(BURST)
    }
}

/// What the jobs of one tenant may use in a second, all together.
#[derive(Debug)]
pub(crate) struct Allowance {
    begun: Instant,
    bytes: Bucket,
    fuel: Bucket,
}

impl Allowance {
    fn new(pass: &Pass) -> Self {
        let (bytes, fuel) = (Bucket::new(pass.quota.bytes_per_s), Bucket::new(pass.quota.fuel_per_s));
        Allowance { begun: Instant::now(), bytes, fuel }
    }

    /// Uses both; gives how long to wait.
    fn charge(&self, bytes: u64, fuel: u64) -> Duration {
        let now_ns = self.begun.elapsed().as_nanos() as u64;
        self.bytes.charge(bytes, now_ns).max(self.fuel.charge(fuel, now_ns))
    }
}

/// Allowances by tenant, for as long as any of its jobs lives.
#[derive(Debug, Default)]
pub(crate) struct Allowances(BTreeMap<String, Weak<Allowance>>);

impl Allowances {
    /// That of the tenant of a new job, with what its quota says now; `None` where it may go as fast as it can.
    pub(crate) fn of(&mut self, pass: Option<&Pass>) -> Option<Arc<Allowance>> {
        let pass = pass.filter(|pass| pass.quota.has_rates())?;
        self.0.retain(|_, allowance| allowance.strong_count() > 0);
        let known = self.0.get(&pass.tenant).and_then(Weak::upgrade);
        let allowance = known.unwrap_or_else(|| Arc::new(Allowance::new(pass)));
        allowance.bytes.per_s.store(pass.quota.bytes_per_s, Ordering::Relaxed);
        allowance.fuel.per_s.store(pass.quota.fuel_per_s, Ordering::Relaxed);
        self.0.insert(pass.tenant.clone(), Arc::downgrade(&allowance));
        Some(allowance)
    }
}

/// What one job has used of it.
pub(crate) struct Used {
    allowance: Arc<Allowance>,
    operators: Faults,
    bytes: u64,
    fuel: u64,
}

impl Used {
    /// Of a job whose operators say by `operators` what they use.
    pub(crate) fn new(allowance: Arc<Allowance>, operators: Faults) -> Self {
        Used { allowance, operators, bytes: 0, fuel: 0 }
    }

    /// All that ranks have sent up to now; gives how long to wait before more is read.
    pub(crate) fn look(&mut self, bytes: u64) -> Duration {
        let fuel = self.operators.fuel();
        let wait = self.allowance.charge(bytes - self.bytes, fuel - self.fuel);
        (self.bytes, self.fuel) = (bytes, fuel);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanin_trust::Quota;

    const MS: u64 = 1_000_000;

    #[test]
    fn what_is_used_beyond_a_rate_is_waited_for_and_what_is_not_used_is_not_kept() {
        let bucket = Bucket::new(1_000_000);
        assert_eq!(bucket.charge(10_000, 0), Duration::ZERO, "a burst");
        assert_eq!(bucket.charge(5_000, 0), Duration::from_millis(5));
        assert_eq!(bucket.charge(0, 0), Duration::ZERO);
        assert_eq!(bucket.charge(1_000, 20 * MS), Duration::ZERO);
        // A second in which nothing was used gives no more than a burst.
        assert_eq!(bucket.charge(1_000_000, 2_000 * MS), Duration::from_millis(990));
        assert_eq!(Bucket::new(u64::MAX).charge(u64::MAX, 5), Duration::ZERO);
        // What makes no sense waits, and for no longer than numbers go.
        assert!(Bucket::new(0).charge(u64::MAX, 5) > Duration::from_secs(1 << 30));
    }

    #[test]
    fn jobs_of_a_tenant_share_what_it_may_use_and_others_have_their_own() {
        let pass = |tenant: &str, bytes_per_s| Pass { tenant: tenant.into(), quota: Quota { bytes_per_s, ..Quota::default() } };
        let mut all = Allowances::default();
        assert!(all.of(None).is_none() && all.of(Some(&pass("free", u64::MAX))).is_none());
        let [one, other] = [1_000, 2_000].map(|rate| all.of(Some(&pass("red", rate))).unwrap());
        let blue = all.of(Some(&pass("blue", 1_000))).unwrap();
        assert!(Arc::ptr_eq(&one, &other) && !Arc::ptr_eq(&one, &blue));
        let mut jobs = [one, other, blue].map(|allowance| Used::new(allowance, Faults::default()));
        assert!(jobs[0].look(2_000) > Duration::from_millis(900), "what the tenant's quota says now");
        assert!(jobs[1].look(20) > Duration::from_millis(900));
        assert_eq!(jobs[2].look(10), Duration::ZERO);
        drop(jobs);
        assert!(all.of(Some(&pass("red", 1_000))).is_some() && all.0.len() == 1, "who has no jobs is forgotten");
    }
}
