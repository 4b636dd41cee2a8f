//! How much of the processors' time nobody used, from the kernel's counts.

use std::fs;
use std::io;

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
    pub fn since(self, earlier: Self) -> (u64, u64) {
        (self.idle.saturating_sub(earlier.idle), self.total.saturating_sub(earlier.total))
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
    fn this_machine_says_it_and_it_only_grows() {
        let (first, second) = (ProcessorTimes::now().unwrap(), ProcessorTimes::now().unwrap());
        let (idle, total) = second.since(first);
        assert!(idle <= total && first.total > 0);
    }
}
