//! A scenario that shows a finding, made smaller for as long as it still does.

use super::scenario::{Fault, Noise, Party, Scenario, Target};

/// Everything that is one step smaller, what takes most away first.
pub fn smaller(scenario: &Scenario) -> Vec<Scenario> {
    let mut all = Vec::new();
    if scenario.job.len() > 1 {
        all.extend((0..scenario.job.len()).map(|job| without_job(scenario, job)));
    }
    all.extend((0..scenario.fault.len()).map(|fault| {
        let mut less = scenario.clone();
        less.fault.remove(fault);
        less
    }));
    if scenario.noise != Noise::default() {
        all.push(Scenario { noise: Noise::default(), ..scenario.clone() });
        all.extend((0..4).filter_map(|kind| without_noise(scenario, kind)));
    }
    if scenario.logs_full {
        all.push(Scenario { logs_full: false, ..scenario.clone() });
    }
    for (number, job) in scenario.job.iter().enumerate() {
        if job.hosts.len() > 1 {
            all.push(without_last_rank(scenario, number));
        }
        if job.call.len() > 1 {
            all.extend((0..job.call.len()).map(|call| {
                let mut less = scenario.clone();
                less.job[number].call.remove(call);
                less
            }));
        }
    }
    all.retain(|less| less.check().is_ok());
    all
}

fn without_noise(scenario: &Scenario, kind: usize) -> Option<Scenario> {
    let mut less = scenario.clone();
    let noise = &mut less.noise;
    let share = [&mut noise.loss, &mut noise.duplication, &mut noise.reordering, &mut noise.corruption].into_iter().nth(kind)?;
    *share = 0.0;
    (less != *scenario).then_some(less)
}

/// Without a job, and what was done to its ranks; later jobs have other numbers.
fn without_job(scenario: &Scenario, number: usize) -> Scenario {
    let mut less = scenario.clone();
    less.job.remove(number);
    less.fault = scenario.fault.iter().filter_map(|fault| renumbered(fault, number)).collect();
    less
}

/// A fault as it is without a job; none, where it was done to that.
fn renumbered(fault: &Fault, without: usize) -> Option<Fault> {
    let one = |party: Party| match party {
        Party::Rank { job, .. } if job == without => None,
        Party::Rank { job, rank } if job > without => Some(Party::Rank { job: job - 1, rank }),
        other => Some(other),
    };
    let target = match fault.target().ok()? {
        Target::One(party) => Target::One(one(party)?),
        Target::Link(from, to, both) => Target::Link(one(from)?, one(to)?, both),
    };
    Some(Fault { target: target.to_string(), ..fault.clone() })
}

fn without_last_rank(scenario: &Scenario, number: usize) -> Scenario {
    let mut less = scenario.clone();
    let job = &mut less.job[number];
    job.hosts.pop();
    let left = job.hosts.len() as u32;
    job.call.iter_mut().for_each(|call| call.root %= left);
    let is_there = |party: &Party| !matches!(party, Party::Rank { job, rank } if *job == number && *rank >= left);
    less.fault.retain(|fault| match fault.target() {
        Ok(Target::One(party)) => is_there(&party),
        Ok(Target::Link(from, to, _)) => is_there(&from) && is_there(&to),
        Err(_) => false,
    });
    less
}

/// Shrinks for as long as something smaller still `shows` what the scenario shows, and `shows` wants to be asked.
pub fn shrink(scenario: &Scenario, mut shows: impl FnMut(&Scenario) -> Option<bool>) -> Scenario {
    let mut smallest = scenario.clone();
    'again: loop {
        for less in smaller(&smallest) {
            match shows(&less) {
                None => return smallest,
                Some(true) => {
                    smallest = less;
                    continue 'again;
                }
                Some(false) => {}
            }
        }
        return smallest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::draw::draw;
    use crate::chaos::scenario::FaultKind;

    #[test]
    fn every_step_can_be_run_and_is_smaller() {
        let size = |scenario: &Scenario| scenario.to_toml().unwrap().len();
        for seed in 0..300 {
            let scenario = draw(seed);
            for less in smaller(&scenario) {
                less.check().unwrap();
                assert!(less != scenario && (size(&less) <= size(&scenario) + 4), "seed {seed}");
            }
        }
    }

    #[test]
    fn what_is_left_is_what_it_takes() {
        // What shows it: a switch is killed while there is a job with a broadcast.
        let shows = |scenario: &Scenario| {
            scenario.fault.iter().any(|fault| fault.kind == FaultKind::Kill && !fault.target.contains("rank"))
                && scenario.job.iter().any(|job| job.call.iter().any(|call| call.collective == "broadcast"))
        };
        let found: Vec<Scenario> = (0..3_000).map(draw).filter(shows).take(20).collect();
        assert_eq!(found.len(), 20);
        for scenario in found {
            let least = shrink(&scenario, |less| Some(shows(less)));
            assert_eq!((least.fault.len(), least.job.len(), least.job[0].call.len(), least.job[0].hosts.len()), (1, 1, 1, 1));
            assert_eq!((least.noise, least.logs_full), (Noise::default(), false));
        }
    }

    #[test]
    fn it_ends_when_nobody_wants_to_be_asked_any_more() {
        let scenario = (0..).map(draw).find(|scenario| smaller(scenario).len() > 5).unwrap();
        let mut left = 3;
        let least = shrink(&scenario, |_| {
            left -= 1;
            (left > 0).then_some(false)
        });
        assert_eq!((least, left), (scenario, 0));
    }
}
