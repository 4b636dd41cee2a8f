//! Jobs over time, from what the switches count: goodput and aggregators in use.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fanin_control::fabric::JobStatus;
use fanin_core::NodeId;
use fanin_daemon::FabricClient;
use fanin_fabric::Fabric;
use serde::Serialize;

use super::place::Place;
use fanin_pictures::plot;

/// How soon the end of a run is noticed.
const NAP: Duration = Duration::from_millis(10);

/// A job in an interval, over all switches.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct SeriesRow {
    /// The end of the interval, counted from the beginning of the run.
    pub at_s: f64,
    /// Its length.
    pub interval_s: f64,
    /// Place in the workload.
    pub job: usize,
    /// Bits of sums that switches sent to a worker, mean over the workers behind switches, in 10^6 a second; repeated ones count.
    pub goodput_mbit_s: f64,
    /// Aggregators in use at the end of the interval.
    pub slots: f64,
    /// Packets that reached the job's nodes at switches.
    pub packets: u64,
}

/// What is to be known of a job.
#[derive(Clone, Copy, Debug)]
pub struct Watched {
    /// Its number in packets.
    pub job: u16,
    /// Payload of a full packet: memory of an aggregator.
    pub payload_bytes: u32,
    /// Workers to which sums come through a switch.
    pub workers: usize,
}

/// Counts of a job, over all switches or at one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Counts {
    to_workers: u64,
    packets: u64,
    slot_bytes: u64,
}

impl Counts {
    fn of(status: &JobStatus) -> Self {
        Counts { to_workers: status.payload_bytes_to_workers, packets: status.packets_received, slot_bytes: status.slot_bytes }
    }

    /// Adds what has been counted at a switch since `earlier`. One that was started again counts from 0.
    fn add_since(&mut self, now: Counts, earlier: Counts) {
        let since = |now: u64, earlier: u64| now.checked_sub(earlier).unwrap_or(now);
        self.to_workers += since(now.to_workers, earlier.to_workers);
        self.packets += since(now.packets, earlier.packets);
        self.slot_bytes += now.slot_bytes;
    }
}

/// A switch, while it is asked.
struct Asked {
    switch: NodeId,
    client: Option<FabricClient>,
    /// By place in the workload.
    last: Vec<Counts>,
}

/// Asks all switches at intervals, on a thread of its own: one that stands still delays a sample, not the run.
pub struct Watch<'a> {
    /// Where they are.
    pub place: &'a Place,
    /// What they are part of.
    pub fabric: &'a Fabric,
    /// By place in the workload.
    pub jobs: Vec<Watched>,
    /// From one sample to the next.
    pub interval: Duration,
    /// When the run began.
    pub begun: Instant,
}

impl Watch<'_> {
    /// Samples until `done` is set. A switch that does not answer is left out of a sample.
    pub fn rows(&self, done: &AtomicBool) -> Vec<SeriesRow> {
        let asked = |switch| Asked { switch, client: None, last: vec![Counts::default(); self.jobs.len()] };
        let mut switches: Vec<Asked> = self.fabric.switches().map(asked).collect();
        // What was counted before the run began is no part of it.
        self.sample(&mut switches);
        let (mut rows, mut last, mut next) = (Vec::new(), self.begun, self.begun + self.interval);
        while !done.load(Ordering::Relaxed) {
            let now = Instant::now();
            if now < next {
                std::thread::sleep(NAP.min(next - now));
                continue;
            }
            let counts = self.sample(&mut switches);
            let at = Instant::now();
            rows.extend(self.jobs.iter().zip(&counts).enumerate().map(|(job, (watched, counts))| {
                let (at_s, interval_s) = ((at - self.begun).as_secs_f64(), (at - last).as_secs_f64());
                row(job, watched, counts, (at_s, interval_s))
            }));
            last = at;
            while next <= at {
                next += self.interval;
            }
        }
        rows
    }

    /// What all switches have counted since they were asked last, by place in the workload.
    fn sample(&self, switches: &mut [Asked]) -> Vec<Counts> {
        let mut counts = vec![Counts::default(); self.jobs.len()];
        for asked in switches {
            if asked.client.is_none() {
                asked.client = self.place.client(asked.switch, self.fabric).ok();
            }
            let Some(status) = asked.client.as_mut().and_then(|client| client.status().ok()) else {
                asked.client = None;
                continue;
            };
            for ((watched, last), count) in self.jobs.iter().zip(&mut asked.last).zip(&mut counts) {
                let now = status.jobs.iter().find(|job| job.job == watched.job).map(Counts::of).unwrap_or_default();
                count.add_since(now, std::mem::replace(last, now));
            }
        }
        counts
    }
}

fn row(job: usize, watched: &Watched, counts: &Counts, (at_s, interval_s): (f64, f64)) -> SeriesRow {
    let bits = counts.to_workers as f64 * 8.0 / watched.workers.max(1) as f64;
    SeriesRow {
        at_s,
        interval_s,
        job,
        goodput_mbit_s: if interval_s > 0.0 { bits / interval_s / 1e6 } else { 0.0 },
        slots: counts.slot_bytes as f64 / f64::from(watched.payload_bytes.max(1)),
        packets: counts.packets,
    }
}

/// A picture: the end of its file's name, its title, the name of the axis, and what is drawn.
type Picture = (&'static str, &'static str, &'static str, fn(&SeriesRow) -> f64);

const PICTURES: [Picture; 2] = [
    ("goodput.svg", "Goodput over time", "goodput (Mb/s)", |row| row.goodput_mbit_s),
    ("slots.svg", "Aggregators in use over time", "aggregators in use", |row| row.slots),
];

/// Writes the series beside the results in `out`: RESULTS.series.csv, and pictures of goodput and aggregators.
///
/// # Errors
/// Those of writing and drawing.
pub fn write(out: &Path, names: &[String], rows: &[SeriesRow]) -> Result<()> {
    let file = |ending: &str| out.with_extension(ending);
    let table = file("series.csv");
    let mut writer = csv::Writer::from_path(&table).with_context(|| format!("{} cannot be written", table.display()))?;
    rows.iter().try_for_each(|row| writer.serialize(row))?;
    writer.flush()?;
    for (ending, title, y_label, value) in PICTURES {
        let line = |(job, name): (usize, &String)| {
            let own = rows.iter().filter(|row| row.job == job);
            let corners = own.flat_map(|row| [(row.at_s - row.interval_s, value(row)), (row.at_s, value(row))]);
            (format!("job {job}, {name}"), corners.map(|(time, value)| (time * 1e6, value)).collect())
        };
        let note = "as the switches count it";
        let svg = plot::measured_over_time(title, note, y_label, names.iter().enumerate().map(line).collect())?;
        fs::write(file(ending), svg).with_context(|| format!("{} cannot be written", file(ending).display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_added_over_switches_and_a_restarted_switch_counts_from_nothing() {
        let counts = |to_workers, packets, slot_bytes| Counts { to_workers, packets, slot_bytes };
        let mut sum = Counts::default();
        sum.add_since(counts(3_000, 30, 700), counts(1_000, 10, 900));
        sum.add_since(counts(500, 5, 100), counts(9_000, 90, 0));
        assert_eq!(sum, counts(2_500, 25, 800));
        let watched = Watched { job: 1, payload_bytes: 200, workers: 2 };
        let expected = SeriesRow { at_s: 0.5, interval_s: 0.01, job: 3, goodput_mbit_s: 1.0, slots: 4.0, packets: 25 };
        assert_eq!(row(3, &watched, &sum, (0.5, 0.01)), expected);
    }

    #[test]
    fn a_series_is_written_beside_the_results() {
        let folder = std::env::temp_dir().join(format!("fanin-series-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let rows = [0.1, 0.2].map(|at_s| SeriesRow { at_s, interval_s: 0.1, job: 0, goodput_mbit_s: 7.5, slots: 12.0, packets: 9 });
        write(&folder.join("run.json"), &["atp".into()], &rows).unwrap();
        let table = fs::read_to_string(folder.join("run.series.csv")).unwrap();
        assert_eq!(table, "at_s,interval_s,job,goodput_mbit_s,slots,packets\n0.1,0.1,0,7.5,12.0,9\n0.2,0.1,0,7.5,12.0,9\n");
        let drawn = fs::read_to_string(folder.join("run.slots.svg")).unwrap();
        assert!(drawn.contains("job 0, atp") && folder.join("run.goodput.svg").exists(), "{drawn}");
        fs::remove_dir_all(folder).unwrap();
    }
}
