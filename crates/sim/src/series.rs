//! Jobs over time: goodput, packets, memory of switches and gauges of nodes, at an interval.
//!
//! What is added up is kept as totals, so an interval is the difference of two samples, and every second sample can be left out when
//! there are too many: memory is bounded however long a run is.

use fanin_core::{Duration, Gauge, Instant};

/// Samples times jobs that are kept at most.
const ROWS_MAX: usize = 1 << 16;
/// Samples that are kept in any case.
const SAMPLES_MIN: usize = 512;

/// One job in one interval.
#[derive(Clone, PartialEq, Debug)]
pub struct SeriesRow {
    /// The interval's end.
    pub at: Instant,
    /// Its length.
    pub span: Duration,
    /// The job's number.
    pub job: u32,
    /// Bytes of the vector that became final at a worker, mean over workers, as a rate.
    pub goodput_gbps: f64,
    /// Packets that reached the job's hosts.
    pub packets: u64,
    /// Those of them that had met a queue that marks.
    pub marked: u64,
    /// Packets that found their place in a switch's memory taken.
    pub collisions: u64,
    /// Slots in use at all switches together, mean over the interval.
    pub slots: f64,
    /// Their bytes.
    pub slot_bytes: f64,
    /// By [`Gauge::index`], at the interval's end: the mean over workers that know it, or else over other nodes.
    pub gauges: [Option<f64>; GAUGES],
}

/// Number of gauges.
pub const GAUGES: usize = Gauge::ALL.len();

/// The sum of a gauge over nodes, the same whatever the order in which they are asked: in units of 2^-60, of which all but tiny values have a whole
/// number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Sum {
    units: i128,
    count: u32,
}

impl Sum {
    const UNITS: f64 = (1u64 << 60) as f64;

    /// One more node's.
    pub fn add(&mut self, value: f64) {
        self.units = self.units.saturating_add((value * Self::UNITS) as i128);
        self.count += 1;
    }

    fn add_sum(&mut self, other: Sum) {
        self.units = self.units.saturating_add(other.units);
        self.count += other.count;
    }

    fn mean(self) -> Option<f64> {
        (self.count > 0).then(|| self.units as f64 / Self::UNITS / f64::from(self.count))
    }
}

/// What nodes of a job say of gauges.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Said {
    pub by_workers: [Sum; GAUGES],
    pub by_others: [Sum; GAUGES],
    /// Some worker is not through: what is left in the nodes of a job that is says nothing.
    pub runs: bool,
}

impl Said {
    fn add(&mut self, other: &Said) {
        self.by_workers.iter_mut().zip(&other.by_workers).for_each(|(to, from)| to.add_sum(*from));
        self.by_others.iter_mut().zip(&other.by_others).for_each(|(to, from)| to.add_sum(*from));
        self.runs |= other.runs;
    }

    fn means(&self) -> [Option<f64>; GAUGES] {
        let mean = |index: usize| self.by_workers[index].mean().or_else(|| self.by_others[index].mean());
        std::array::from_fn(|index| mean(index).filter(|_| self.runs))
    }
}

/// One job up to a time.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Totals {
    /// Bytes final at a worker, added up over workers.
    pub bytes: u64,
    pub packets: u64,
    pub marked: u64,
    pub collisions: u64,
    /// Slots in use, integrated over time.
    pub slot_ps: u128,
    pub byte_ps: u128,
    pub said: Said,
}

impl Totals {
    fn add(&mut self, other: &Totals) {
        self.bytes += other.bytes;
        self.packets += other.packets;
        self.marked += other.marked;
        self.collisions += other.collisions;
        self.slot_ps += other.slot_ps;
        self.byte_ps += other.byte_ps;
        self.said.add(&other.said);
    }
}

/// Memory of a switch that a job has in use.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct InUse {
    slots: u64,
    bytes: u64,
    until_ps: u64,
    slot_ps: u128,
    byte_ps: u128,
}

impl InUse {
    fn advance(&mut self, now_ps: u64) {
        let span = u128::from(now_ps - self.until_ps);
        self.slot_ps += u128::from(self.slots) * span;
        self.byte_ps += u128::from(self.bytes) * span;
        self.until_ps = now_ps;
    }
}

/// Takes samples.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    interval_ps: u64,
    /// When the next sample is due.
    pub next_ps: u64,
    jobs: usize,
    /// By switch and job.
    in_use: Vec<InUse>,
    /// By job: packets that reached its hosts.
    packets: Vec<u64>,
    marked: Vec<u64>,
    times: Vec<u64>,
    /// By sample and job.
    totals: Vec<Totals>,
    rows_max: usize,
}

impl Recorder {
    pub fn new(interval: Duration, jobs: usize, switches: usize) -> Self {
        let interval_ps = interval.as_ps().max(1);
        Recorder {
            interval_ps,
            next_ps: interval_ps,
            jobs,
            in_use: vec![InUse::default(); jobs * switches],
            packets: vec![0; jobs],
            marked: vec![0; jobs],
            times: Vec::new(),
            totals: Vec::new(),
            rows_max: ROWS_MAX.max(jobs * SAMPLES_MIN),
        }
    }

    /// A packet of the job has reached a host; it may be marked.
    pub fn count_packet(&mut self, job: u16, marked: bool) {
        self.packets[usize::from(job)] += 1;
        self.marked[usize::from(job)] += u64::from(marked);
    }

    /// The job has taken a slot of a switch.
    pub fn take(&mut self, switch: usize, job: u16, bytes: u32, now_ps: u64) {
        let used = &mut self.in_use[switch * self.jobs + usize::from(job)];
        used.advance(now_ps);
        used.slots += 1;
        used.bytes += u64::from(bytes);
    }

    /// The job has freed one; what a switch that failed has lost before is not freed again.
    pub fn free(&mut self, switch: usize, job: u16, bytes: u32, now_ps: u64) {
        let used = &mut self.in_use[switch * self.jobs + usize::from(job)];
        used.advance(now_ps);
        used.slots = used.slots.saturating_sub(1);
        used.bytes = used.bytes.saturating_sub(u64::from(bytes));
    }

    /// A switch has failed.
    pub fn lose_all(&mut self, switch: usize, now_ps: u64) {
        for used in &mut self.in_use[switch * self.jobs..(switch + 1) * self.jobs] {
            used.advance(now_ps);
            (used.slots, used.bytes) = (0, 0);
        }
    }

    /// Takes a sample of what was at `at_ps`; `finished` has the bytes and gauges of each job.
    pub fn sample(&mut self, at_ps: u64, mut finished: Vec<Totals>) {
        self.in_use.iter_mut().for_each(|used| used.advance(at_ps));
        for (job, totals) in finished.iter_mut().enumerate() {
            (totals.packets, totals.marked) = (self.packets[job], self.marked[job]);
            for used in self.in_use.iter().skip(job).step_by(self.jobs) {
                totals.slot_ps += used.slot_ps;
                totals.byte_ps += used.byte_ps;
            }
        }
        self.times.push(at_ps);
        self.totals.append(&mut finished);
        self.next_ps = at_ps.saturating_add(self.interval_ps);
        if self.totals.len() + self.jobs > self.rows_max {
            self.thin();
        }
    }

    /// Leaves out every second sample.
    fn thin(&mut self) {
        let jobs = self.jobs;
        let last = self.times.len() - 1;
        // The last one stays: the next interval begins with it.
        let keeps = |sample: usize| sample % 2 == last % 2;
        let mut sample = 0;
        self.times.retain(|_| {
            sample += 1;
            keeps(sample - 1)
        });
        let mut row = 0;
        self.totals.retain(|_| {
            row += 1;
            keeps((row - 1) / jobs)
        });
        self.interval_ps = self.interval_ps.saturating_mul(2);
        self.next_ps = self.times[self.times.len() - 1].saturating_add(self.interval_ps);
    }

    /// Adds what another part of the network has counted. False where it has not done so at the same times.
    #[must_use]
    pub fn add(&mut self, other: &Recorder) -> bool {
        self.totals.iter_mut().zip(&other.totals).for_each(|(to, from)| to.add(from));
        self.times == other.times
    }

    /// All intervals, in the order of time and job; `workers` has the number of workers of each job.
    pub fn rows(self, workers: &[usize]) -> Vec<SeriesRow> {
        let mut rows = Vec::with_capacity(self.totals.len());
        let mut before_ps = 0;
        let mut before = vec![Totals::default(); self.jobs];
        for (at_ps, totals) in self.times.iter().zip(self.totals.chunks(self.jobs.max(1))) {
            let span_ps = at_ps - before_ps;
            if span_ps == 0 {
                continue;
            }
            for (job, (now, then)) in totals.iter().zip(&before).enumerate() {
                let bits = (now.bytes - then.bytes) as f64 * 8.0 / workers[job].max(1) as f64;
                rows.push(SeriesRow {
                    at: Instant::from_ps(*at_ps),
                    span: Duration::from_ps(span_ps),
                    job: job as u32,
                    goodput_gbps: bits * 1e3 / span_ps as f64,
                    packets: now.packets - then.packets,
                    marked: now.marked - then.marked,
                    collisions: now.collisions - then.collisions,
                    slots: (now.slot_ps - then.slot_ps) as f64 / span_ps as f64,
                    slot_bytes: (now.byte_ps - then.byte_ps) as f64 / span_ps as f64,
                    gauges: now.said.means(),
                });
            }
            before_ps = *at_ps;
            before.copy_from_slice(totals);
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(bytes: u64) -> Vec<Totals> {
        vec![Totals { bytes, ..Totals::default() }, Totals::default()]
    }

    #[test]
    fn an_interval_is_the_difference_of_two_samples() {
        let mut recorder = Recorder::new(Duration::from_ps(1_000), 2, 2);
        recorder.take(1, 0, 256, 500);
        recorder.count_packet(1, true);
        recorder.sample(1_000, totals(1_000));
        recorder.take(0, 0, 256, 1_000);
        recorder.free(1, 0, 256, 1_500);
        recorder.lose_all(0, 1_750);
        recorder.free(0, 0, 256, 1_800);
        recorder.sample(2_000, totals(4_000));
        let rows = recorder.rows(&[2, 1]);
        let seen: Vec<_> = rows.iter().map(|row| (row.at.as_ps(), row.job, row.packets, row.slots, row.slot_bytes)).collect();
        assert_eq!(rows.iter().map(|row| row.marked).collect::<Vec<_>>(), [0, 1, 0, 0]);
        assert_eq!(seen, [(1_000, 0, 0, 0.5, 128.0), (1_000, 1, 1, 0.0, 0.0), (2_000, 0, 0, 1.25, 320.0), (2_000, 1, 0, 0.0, 0.0)]);
        // 500 bytes a worker in a nanosecond are 4000 Gb/s.
        assert_eq!((rows[0].goodput_gbps, rows[2].goodput_gbps), (4_000.0, 12_000.0));
    }

    #[test]
    fn memory_is_bounded_and_nothing_is_lost_of_what_is_added_up() {
        let mut recorder = Recorder::new(Duration::from_ps(10), 2, 1);
        recorder.rows_max = 40;
        let mut now = 0;
        while now < 100_000 {
            now = recorder.next_ps;
            recorder.count_packet(0, now % 3 == 0);
            recorder.sample(now, totals(now));
            assert!(recorder.totals.len() <= 40 && recorder.totals.len() == 2 * recorder.times.len());
        }
        let (first, taken) = (recorder.interval_ps, recorder.packets[0]);
        let rows = recorder.rows(&[1, 1]);
        assert!(rows.len() >= 18 && first > 10);
        assert_eq!(rows.iter().map(|row| row.packets).sum::<u64>(), taken);
        let bytes: f64 = rows.iter().map(|row| row.goodput_gbps * row.span.as_ps() as f64 / 8e3).sum();
        assert!((bytes - now as f64).abs() < 1e-6 * bytes, "{bytes} {now}");
        assert!(rows.windows(2).all(|pair| pair[0].at <= pair[1].at));
    }

    #[test]
    fn means_are_the_same_in_whatever_order_and_those_of_whole_numbers_exact() {
        let values = [0.1, 1e9 + 0.3, 7.0, 1e-3, 123_456.789];
        let sum = |order: &mut dyn Iterator<Item = &f64>| {
            let mut sum = Sum::default();
            order.for_each(|value| sum.add(*value));
            sum
        };
        let (there, back) = (sum(&mut values.iter()), sum(&mut values.iter().rev()));
        assert_eq!((there.mean(), there.count), (back.mean(), 5));
        let near = values.iter().sum::<f64>() / 5.0;
        assert!((there.mean().unwrap() / near - 1.0).abs() < 1e-15);
        assert_eq!(sum(&mut [3.0, 4.0].iter()).mean(), Some(3.5));
        assert_eq!(Sum::default().mean(), None);
    }

    /// Two parts of a run, each with a worker of job 0 and a switch.
    #[test]
    fn parts_count_together_what_one_counts() {
        let mut recorders = [2, 2, 2].map(|switches| Recorder::new(Duration::from_ps(1_000), 2, switches));
        for (number, at_ps) in [(0u64, 1_000), (1, 2_000), (2, 3_000)] {
            let said = |value: f64, runs: bool| {
                let mut said = Said { runs, ..Said::default() };
                said.by_workers[0].add(value);
                said
            };
            let of_parts = [said(0.1 + number as f64, number < 2), said(0.7, number < 1)];
            let mut both = of_parts[0];
            both.add(&of_parts[1]);
            for (place, recorder) in recorders.iter_mut().enumerate() {
                let holds = |part: usize| place == part || place == 2;
                for part in (0..2).filter(|part| holds(*part)) {
                    recorder.take(part, 0, 100 + part as u32, at_ps - 300);
                    recorder.count_packet(part as u16, part == 0);
                }
                let said = if place == 2 { both } else { of_parts[place] };
                let bytes = if place == 2 { 30 } else { 10 * (1 + place as u64) } * (number + 1);
                recorder.sample(at_ps, vec![Totals { bytes, said, ..Totals::default() }, Totals::default()]);
            }
        }
        let [mut first, second, whole] = recorders;
        assert!(first.add(&second));
        let (rows, expected) = (first.rows(&[2, 1]), whole.rows(&[2, 1]));
        assert_eq!(rows, expected);
        assert_eq!(rows.iter().map(|row| row.gauges[0].is_some()).collect::<Vec<_>>(), [true, false, true, false, false, false]);
    }
}
