//! How much of the processors' time nobody used, from the kernel's counts.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

/// Time between two samples: several of the kernel's ticks.
const INTERVAL: Duration = Duration::from_millis(50);

/// What the processors have done up to now, in ticks of all of them together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessorTimes {
    idle: u64,
    total: u64,
}

impl ProcessorTimes {
    /// Up to now.
    ///
    /// # Errors
    /// Where the kernel does not say.
    pub fn now() -> io::Result<Self> {
        Self::parse(&fs::read_to_string("/proc/stat")?).ok_or_else(|| io::Error::other("/proc/stat has no line for all processors"))
    }

    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        // user, nice, system, idle, iowait, irq, softirq, steal; time of guests is in the first two.
        let ticks: Vec<u64> = line.split_whitespace().take(8).map(|word| word.parse().ok()).collect::<Option<_>>()?;
        (ticks.len() == 8).then(|| ProcessorTimes { idle: ticks[3] + ticks[4], total: ticks.iter().sum() })
    }

    /// Ticks without work and all ticks since `earlier`.
    fn since(self, earlier: Self) -> (u64, u64) {
        (self.idle.saturating_sub(earlier.idle), self.total.saturating_sub(earlier.total))
    }
}

/// What the processors did when, so that it can be said afterwards of any span how much of it they were idle.
#[derive(Debug, Default)]
pub struct Samples {
    taken: Vec<(Instant, ProcessorTimes)>,
}

impl Samples {
    /// Takes a sample if the last one is older than [`INTERVAL`]; where the kernel does not say, there is none.
    pub fn take(&mut self) {
        let now = Instant::now();
        if self.taken.last().is_none_or(|(last, _)| now - *last >= INTERVAL)
            && let Ok(times) = ProcessorTimes::now()
        {
            self.taken.push((now, times));
        }
    }

    /// Idle share between the samples that are closest to these times from within; `None` where there are not two.
    pub fn idle_share(&self, from: Instant, until: Instant) -> Option<f64> {
        let mut within = self.taken.iter().filter(|(time, _)| (from..=until).contains(time));
        let (_, first) = within.next()?;
        let (idle, total) = within.next_back()?.1.since(*first);
        (total > 0).then(|| idle as f64 / total as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_all_processors_is_read_and_others_are_not() {
        let text = "cpu  100 1 50 800 40 3 6 0 7 0\ncpu0 50 0 25 400 20 1 3 0 0 0\nintr 1 2\n";
        assert_eq!(ProcessorTimes::parse(text), Some(ProcessorTimes { idle: 840, total: 1_000 }));
        for wrong in ["", "cpu0 1 2 3 4 5 6 7 8\n", "cpu  1 2 3\n", "cpu  a b c d e f g h\n"] {
            assert_eq!(ProcessorTimes::parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_share_is_taken_from_the_samples_within_a_span() {
        let start = Instant::now();
        let sample = |ms: u64, idle: u64| (start + Duration::from_millis(ms), ProcessorTimes { idle, total: ms });
        let samples = Samples { taken: vec![sample(0, 0), sample(100, 90), sample(200, 140), sample(300, 240)] };
        let share = |from: u64, until: u64| samples.idle_share(start + Duration::from_millis(from), start + Duration::from_millis(until));
        assert_eq!(share(0, 300), Some(0.8));
        assert_eq!(share(50, 250), Some(0.5), "from 100 to 200 ms");
        assert_eq!(share(150, 250), None, "one sample is no span");
        assert_eq!(Samples::default().idle_share(start, start), None);
    }

    #[test]
    fn this_machine_says_it_and_it_only_grows() {
        let (first, second) = (ProcessorTimes::now().unwrap(), ProcessorTimes::now().unwrap());
        let (idle, total) = second.since(first);
        assert!(idle <= total && first.total > 0);
    }
}
