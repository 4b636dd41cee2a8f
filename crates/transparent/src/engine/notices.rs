//! What is said about frames that are dropped or pass unsummed: the first of a kind at once, and then how many there were, at intervals.

use fanin_core::{Duration, Instant};

/// Between two lines about the same.
const INTERVAL: Duration = Duration::from_us(10_000_000);

/// How often something was counted and when it was told.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Notice {
    counted: u64,
    told: u64,
    next: Option<Instant>,
}

impl Notice {
    /// Once more. Whether it is the first since long, which is to be told.
    pub fn count(&mut self, now: Instant) -> bool {
        self.counted += 1;
        let first = self.next.is_none();
        if first {
            self.told = self.counted;
            self.next = Some(now + INTERVAL);
        }
        first
    }

    /// How many there were since the last line, where it is time for another. After an interval of silence the next one counts as a first.
    pub fn due(&mut self, now: Instant) -> Option<u64> {
        if self.next.is_none_or(|next| now < next) {
            return None;
        }
        let more = self.counted - self.told;
        self.told = self.counted;
        self.next = (more > 0).then_some(now + INTERVAL);
        (more > 0).then_some(more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_told_at_once_and_the_rest_by_their_number() {
        let at = |seconds: u64| Instant::from_ps(seconds * 1_000_000_000_000);
        let mut notice = Notice::default();
        assert_eq!(notice.due(at(1)), None);
        assert!(notice.count(at(1)));
        assert!(!notice.count(at(2)) && !notice.count(at(2)));
        assert_eq!(notice.due(at(5)), None);
        assert_eq!(notice.due(at(11)), Some(2));
        assert!(!notice.count(at(12)));
        assert_eq!((notice.due(at(21)), notice.due(at(31))), (Some(1), None));
        assert!(notice.count(at(32)), "after a silence it is news again");
    }
}
