//! `daemon`: something of the operating system runs at fixed intervals, and its host sends nothing meanwhile.
//!
//! That noise of one period and one length, and whether hosts have it at the same time, decide what it costs collectives is what Petrini, Kerbyson
//! and Pakin found ("The Case of the Missing Supercomputer Performance", SC 2003). The default is one of the signatures of Ferreira, Bridges and
//! Brightwell, "Characterizing Application Sensitivity to OS Interference Using Kernel-Level Noise Injection" (SC 2008), all of which take 2.5 % of
//! the time: 25 us at 1000 Hz; the others are 250 us at 100 Hz and 2.5 ms at 10 Hz.

use fanin_core::{Duration, Instant, NodeId};
use fanin_sim::noise::own::{Late, OwnNoise};
use fanin_sim::own::Refusal;
use fanin_sim::random::Random;
use serde::{Deserialize, Serialize};

/// The parameters: keys of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Daemon {
    /// From one beginning to the next.
    pub period_ps: u64,
    /// How long it runs.
    pub length_ps: u64,
    /// All hosts have it at the same time, as where they are scheduled together; else each has a phase of its own.
    pub together: bool,
}

impl Default for Daemon {
    fn default() -> Self {
        Daemon { period_ps: 1_000_000_000, length_ps: 25_000_000, together: false }
    }
}

impl OwnNoise for Daemon {
    const NAME: &'static str = "daemon";
    type Host = DaemonHost;

    fn check(&self) -> Result<(), Refusal> {
        let period = Duration::from_ps(self.period_ps);
        if self.period_ps == 0 {
            return Err(Refusal::new("period", period, "a time above 0"));
        }
        let fits = self.length_ps < self.period_ps;
        if fits { Ok(()) } else { Err(Refusal::new("length", Duration::from_ps(self.length_ps), format!("less than period, {period}"))) }
    }

    fn host(&self, _host: NodeId, mut random: Random) -> DaemonHost {
        let drawn = ((u128::from(random.bits()) * u128::from(self.period_ps)) >> 64) as u64;
        DaemonHost { config: *self, phase_ps: if self.together { 0 } else { drawn } }
    }
}

/// A host with a daemon.
#[derive(Clone, Copy, Debug)]
pub struct DaemonHost {
    config: Daemon,
    phase_ps: u64,
}

impl Late for DaemonHost {
    fn late(&mut self, now: Instant) -> Duration {
        let into_period = (now.as_ps() + self.phase_ps) % self.config.period_ps;
        Duration::from_ps(self.config.length_ps.saturating_sub(into_period))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanin_sim::random::Purpose;

    fn host(together: bool, number: u64) -> DaemonHost {
        let config = Daemon { together, ..Daemon::default() };
        config.check().unwrap();
        config.host(NodeId(0), Random::new(1, Purpose::Noise, number))
    }

    #[test]
    fn what_comes_meanwhile_waits_for_its_end() {
        let mut host = host(true, 0);
        let late = |host: &mut DaemonHost, us: u64| host.late(Instant::ZERO + Duration::from_us(us));
        assert_eq!(late(&mut host, 0), Duration::from_us(25));
        assert_eq!(late(&mut host, 3_024), Duration::from_us(1));
        assert_eq!(late(&mut host, 3_025), Duration::ZERO);
        assert_eq!(late(&mut host, 3_999), Duration::ZERO);
    }

    #[test]
    fn it_takes_its_share_of_the_time_and_hosts_have_it_at_different_times() {
        let mut hosts: Vec<DaemonHost> = (0..100).map(|number| host(false, number)).collect();
        let runs =
            |host: &mut DaemonHost| (0..100_000).filter(|us| host.late(Instant::ZERO + Duration::from_us(*us)) > Duration::ZERO).count();
        assert!(hosts.iter_mut().take(3).all(|host| (2_490..=2_510).contains(&runs(host))));
        let at_once = hosts.iter_mut().filter_map(|host| (host.late(Instant::ZERO) > Duration::ZERO).then_some(())).count();
        assert!(at_once < 10, "{at_once} of 100");
    }

    #[test]
    fn what_never_ends_is_refused() {
        let said = Daemon { length_ps: 1_000_000_000, ..Daemon::default() }.check().unwrap_err().to_string();
        assert!(said.starts_with("length = ") && said.contains("less than period"), "{said}");
    }
}
