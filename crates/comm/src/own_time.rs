//! A process that is stopped (`SIGSTOP`, a debugger), or whose machine sleeps, hears nothing meanwhile, and nobody else is to blame for that.
//! Its own clock tells: what was to take a moment has taken seconds.

use std::time::{Duration, Instant};

use fanin_control::{FailureKind, SILENCE_MS_MIN};

use crate::error::CommError;

/// Longer than this beyond what was to be waited is stopped and not busy.
const STOPPED: Duration = Duration::from_secs(1);

/// For how long after a stop what goes wrong may come of it.
const AFTERMATH: Duration = Duration::from_secs(15);

/// For how long `since` has taken longer than `expected`, where that is no matter of a busy machine.
pub(crate) fn stop(since: Instant, expected: Duration) -> Option<Duration> {
    let late = since.elapsed().saturating_sub(expected);
    (late > STOPPED).then_some(late)
}

/// The last time that this process did not run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stop {
    ended: Instant,
    length: Duration,
}

impl Stop {
    /// One that has just ended.
    pub(crate) fn of(length: Duration) -> Self {
        Stop { ended: Instant::now(), length }
    }

    /// The failure of a job as this rank is to tell it: where it has not run for longer than others wait, that is why.
    pub(crate) fn explain(self, error: CommError, rank: u32, patience: Duration) -> CommError {
        let limit = patience.max(Duration::from_millis(SILENCE_MS_MIN));
        match error {
            CommError::Failed { job, text, kind, .. }
                if kind != Some(FailureKind::Aborted) && self.ended.elapsed() < AFTERMATH && self.length + STOPPED >= limit =>
            {
                let text = format!(
                    "rank {rank} did not run for {:.1} s: it was stopped, or its machine slept, and ranks wait for one another for {} s; then: {text}",
                    self.length.as_secs_f64(),
                    patience.as_secs_f64()
                );
                CommError::Failed { job, text, suspect_rank: Some(rank), kind: Some(FailureKind::RankSilent) }
            }
            error => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_stopped_for_longer_than_others_wait_says_so_and_others_do_not() {
        let patience = Duration::from_secs(5);
        let told = |kind| CommError::Failed { job: "a".into(), text: "the end".into(), suspect_rank: Some(1), kind };
        let explained = Stop::of(Duration::from_secs(11)).explain(told(Some(FailureKind::RankSilent)), 2, patience);
        assert_eq!(explained.suspect_rank(), Some(2));
        let text = explained.to_string();
        assert!(text.contains("rank 2 did not run for 11.0 s") && text.ends_with("for 5 s; then: the end"), "{text}");
        let short = Stop::of(Duration::from_secs(2)).explain(told(None), 2, patience);
        assert_eq!(short.suspect_rank(), Some(1), "the others have waited for that");
        let aborted = Stop::of(Duration::from_secs(11)).explain(told(Some(FailureKind::Aborted)), 2, patience);
        assert_eq!(aborted.to_string(), told(None).to_string());
    }
}
