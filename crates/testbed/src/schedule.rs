//! What is due when: the workload's events, and the beginnings and ends of its streams.

use std::time::{Duration, Instant};

use super::workload::{Event, Traffic};

/// How far a job is: what has been complete of which operation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Progress {
    /// The operation that runs or comes next, from 0.
    pub operation: u32,
    /// The part of its result that the slowest worker has, from 0 to 1.
    pub done: f64,
}

impl Progress {
    /// Whether so much of this operation was reached.
    fn has_reached(self, operation: u32, done: f64) -> bool {
        self.operation > operation || (self.operation == operation && self.done >= done)
    }
}

/// An event that has not happened yet, or has.
#[derive(Clone, Debug)]
pub struct Pending {
    /// What the workload says.
    pub event: Event,
    /// When it is due, once that is known.
    due: Option<Instant>,
    happened: bool,
}

impl Pending {
    /// An event of the workload.
    pub fn new(event: Event) -> Self {
        Pending { event, due: None, happened: false }
    }

    /// Whether it is due now; says so once. `begun` is when the first operation began, `jobs` how far each job is.
    pub fn is_due(&mut self, now: Instant, begun: Instant, jobs: &[Progress]) -> bool {
        if self.happened {
            return false;
        }
        if self.due.is_none() {
            let condition = match (self.event.at, self.event.progress) {
                (Some(at), _) => Some(begun + plain(at.0)),
                (None, Some(done)) => {
                    let job = jobs.get(self.event.job.unwrap_or(0) as usize);
                    job.filter(|job| job.has_reached(self.event.operation.unwrap_or(0), done.0)).map(|_| now)
                }
                (None, None) => None,
            };
            self.due = condition.map(|condition| condition + plain(self.event.after.0));
        }
        self.happened = self.due.is_some_and(|due| due <= now);
        self.happened
    }
}

/// A stream that may be under way.
#[derive(Clone, Debug)]
pub struct Stream {
    /// What the workload says.
    pub traffic: Traffic,
    /// It has begun.
    begun: bool,
    /// It has ended.
    ended: bool,
}

/// What a stream is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// Begin.
    Begin,
    /// End.
    End,
}

impl Stream {
    /// A stream of the workload.
    pub fn new(traffic: Traffic) -> Self {
        let never = !traffic.enabled;
        Stream { traffic, begun: never, ended: never }
    }

    /// What it is to do now, said once. `warm` is when the warm-up began.
    pub fn turn(&mut self, now: Instant, warm: Instant) -> Option<Turn> {
        let since = now.saturating_duration_since(warm);
        if !self.begun && since >= plain(self.traffic.start.0) {
            self.begun = true;
            return Some(Turn::Begin);
        }
        if self.begun && !self.ended && self.traffic.stop.is_some_and(|stop| since >= plain(stop.0)) {
            self.ended = true;
            return Some(Turn::End);
        }
        None
    }

    /// Ends it, if it is under way.
    pub fn end(&mut self) -> Option<Turn> {
        let under_way = self.begun && !self.ended;
        self.ended = true;
        under_way.then_some(Turn::End)
    }
}

/// A span of time as the standard library has it.
pub fn plain(span: fanin_core::Duration) -> Duration {
    Duration::from_nanos(span.as_ps() / 1_000)
}

#[cfg(test)]
mod tests {
    use fanin_fabric::Fabric;

    use super::super::workload::Workload;
    use super::*;

    const FABRIC: &str = "[defaults]\nrate = \"1Mb/s\"\n[leaf_spine]\nleaves = 2\nspines = 1\nhosts_per_leaf = 2\n";

    fn workload(text: &str) -> Workload {
        let text = format!("[[job]]\nsystem = \"switchml\"\nmessage = 1000\noperations = 5\nhosts = [\"host0\"]\n{text}");
        Workload::parse("w.toml", &text, &[], &Fabric::parse("f.toml", FABRIC).unwrap()).unwrap()
    }

    fn pending(text: &str) -> Pending {
        Pending::new(workload(&format!("[[event]]\naction = \"kill\"\nnode = \"spine0\"\n{text}")).general.event[0].clone())
    }

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    fn at(operation: u32, done: f64) -> [Progress; 1] {
        [Progress { operation, done }]
    }

    #[test]
    fn an_event_at_a_time_happens_once() {
        let (begun, mut event) = (Instant::now(), pending("at = \"1s\"\nafter = \"500ms\""));
        assert!(!event.is_due(begun + ms(1_499), begun, &at(4, 1.0)));
        assert!(event.is_due(begun + ms(1_500), begun, &at(0, 0.0)));
        assert!(!event.is_due(begun + ms(9_000), begun, &at(0, 0.0)));
    }

    #[test]
    fn an_event_at_a_mark_waits_for_its_operation_and_for_so_much_of_it() {
        let (begun, mut event) = (Instant::now(), pending("progress = \"50%\"\noperation = 1\nafter = \"100ms\""));
        assert!(!event.is_due(begun + ms(100), begun, &at(0, 0.9)));
        assert!(!event.is_due(begun + ms(200), begun, &at(1, 0.4)));
        assert!(!event.is_due(begun + ms(300), begun, &at(1, 0.5)), "the mark is reached");
        assert!(!event.is_due(begun + ms(399), begun, &at(1, 0.7)));
        assert!(event.is_due(begun + ms(400), begun, &at(1, 0.9)), "100 ms later");
        let mut missed = pending("progress = \"50%\"\noperation = 1");
        assert!(missed.is_due(begun, begun, &at(2, 0.0)), "late, if the operation was over before anybody looked");
    }

    #[test]
    fn streams_begin_and_end_once() {
        let text = "[[traffic]]\nfrom = \"host1\"\nto = \"host2\"\nrate = \"50%\"\nstart = \"100ms\"\n";
        let traffic = |more: &str| workload(&format!("{text}{more}")).general.traffic[0].clone();
        let warm = Instant::now();
        let mut stream = Stream::new(traffic("stop = \"300ms\""));
        let turns: Vec<_> = [0, 100, 200, 300, 400].map(|time| stream.turn(warm + ms(time), warm)).to_vec();
        assert_eq!(turns, [None, Some(Turn::Begin), None, Some(Turn::End), None]);
        assert_eq!(stream.end(), None);
        let mut endless = Stream::new(traffic(""));
        assert_eq!((endless.turn(warm + ms(100), warm), endless.turn(warm + ms(99_999), warm)), (Some(Turn::Begin), None));
        assert_eq!((endless.end(), endless.end()), (Some(Turn::End), None));
        let mut disabled = Stream::new(traffic("enabled = false"));
        assert_eq!((disabled.turn(warm + ms(100), warm), disabled.end()), (None, None));
    }
}
