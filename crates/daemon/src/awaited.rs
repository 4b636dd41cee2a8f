//! Whether one rank is the one that the others of a job wait for, most of the time: then its users are told, once.

use std::time::{Duration, Instant};

use fanin_runtime::Last;

/// How long ranks are watched before anything is said.
const WINDOW: Duration = Duration::from_secs(10);
/// Fewer sums say nothing.
const SUMS_MIN: u64 = 64;
/// Of the sums of a window, so many are more than by chance.
const SHARE_MIN: f64 = 0.5;
/// Of the window's time, so much is worth a word.
const TIME_MIN: f64 = 0.1;

/// Watches the ranks of a job.
#[derive(Debug)]
pub(crate) struct Awaited {
    begun: Instant,
    before: Vec<Last>,
    /// Who was named last.
    named: Option<usize>,
}

impl Awaited {
    pub(crate) fn new(now: Instant) -> Self {
        Awaited { begun: now, before: Vec::new(), named: None }
    }

    /// At the end of a window, what there is to say about who was last.
    pub(crate) fn look(&mut self, now: Instant, ranks: &[Last]) -> Option<String> {
        self.look_at(now, ranks, |rank| Some(format!("rank {rank}")))
    }

    /// The same of contributors that have names; nothing is said of one that has none.
    pub(crate) fn look_at(&mut self, now: Instant, ranks: &[Last], name: impl Fn(usize) -> Option<String>) -> Option<String> {
        let length = now.saturating_duration_since(self.begun);
        if self.before.len() != ranks.len() {
            (self.begun, self.before) = (now, ranks.to_vec());
        }
        if length < WINDOW {
            return None;
        }
        let window: Vec<Last> = ranks.iter().zip(&self.before).map(|(now, before)| now.since(before)).collect();
        (self.begun, self.before) = (now, ranks.to_vec());
        let sums: u64 = window.iter().map(|last| last.completed).sum();
        let (rank, most) = window.iter().enumerate().max_by_key(|(_, last)| last.awaited_ps)?;
        let waited = Duration::from_nanos(most.awaited_ps / 1_000);
        let share = most.completed as f64 / sums.max(1) as f64;
        if sums < SUMS_MIN || share < SHARE_MIN || waited.as_secs_f64() < TIME_MIN * length.as_secs_f64() || self.named == Some(rank) {
            return None;
        }
        self.named = Some(rank);
        let name = name(rank)?;
        Some(format!(
            "{name} is the one that others wait for: in the last {:.0} s it was the last to contribute to {:.0} % of {sums} sums, which had nothing \
             else to wait for during {:.1} s",
            length.as_secs_f64(),
            100.0 * share,
            waited.as_secs_f64()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(completed: u64, awaited_ms: u64) -> Last {
        Last { completed, awaited_ps: awaited_ms * 1_000_000_000, ..Last::default() }
    }

    #[test]
    fn who_is_last_most_of_the_time_is_named_once_and_chance_is_not() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut awaited = Awaited::new(start);
        assert_eq!(awaited.look(at(0), &[last(0, 0), last(0, 0)]), None);
        assert_eq!(awaited.look(at(5), &[last(5, 10), last(300, 2_000)]), None, "too early");
        let said = awaited.look(at(10), &[last(10, 20), last(990, 4_500)]).unwrap();
        assert_eq!(
            said,
            "rank 1 is the one that others wait for: in the last 10 s it was the last to contribute to 99 % of 1000 sums, which had nothing else to \
             wait for during 4.5 s"
        );
        assert_eq!(awaited.look(at(20), &[last(20, 40), last(1_980, 9_000)]), None, "it has been said");
        // Half of the sums, and hardly any time: as it is where nobody is late.
        assert_eq!(awaited.look(at(30), &[last(520, 90), last(2_480, 9_050)]), None);
        assert!(awaited.look(at(40), &[last(2_520, 5_000), last(2_490, 9_060)]).unwrap().starts_with("rank 0 is"));
        assert_eq!(awaited.look(at(50), &[last(2_525, 9_000), last(2_495, 9_070)]), None, "few sums");
    }
}
