//! A worker with a communicator.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fanin_comm::{CollectiveKind, Communicator, Config, ElementOp, Meeting, Notices, PathReport};
use fanin_runtime::clock::process_cpu_time;

use super::{Inbox, child_statistics, faults, say};
use crate::demo::messages::{Ended, Live, Order, PathFacts, Report, Setup};
use crate::demo::system::DemoSystem;
use fanin_testbed::sums::Vectors;

/// How often the parent hears how far an operation is.
const LIVE_INTERVAL: Duration = Duration::from_millis(100);

/// Does what the parent says, until it says no more.
///
/// # Errors
/// Where the parent says nonsense, or the ranks do not meet.
pub(super) fn run(setup: &Setup, inbox: &Inbox) -> Result<()> {
    inbox.end_with_parent();
    say(&Report::Bound { address: None })?;
    let place = *inbox.peers()?.last().context("there is no switch")?;
    let rank = Rank { comm: Communicator::join(config(setup, place))?, running: Mutex::default(), over: AtomicBool::new(false) };
    say(&Report::Ready { path: Some(path(setup, &rank.comm.path())) })?;
    let result = thread::scope(|scope| {
        let reporter = scope.spawn(|| rank.tell_how_far());
        let result = rank.serve(setup, inbox);
        rank.over.store(true, Ordering::Relaxed);
        reporter.thread().unpark();
        result
    });
    let statistics = child_statistics(&rank.comm.statistics(), Duration::ZERO);
    rank.comm.leave();
    result.and_then(|()| say(&Report::Statistics(statistics)))
}

/// Ranks meet at the switch, or at the manager of the fabric.
fn config(setup: &Setup, place: SocketAddr) -> Config {
    let (meeting, system) = match &setup.system {
        DemoSystem::Fabric(name) => (Meeting::Fabric(place.to_string()), name.as_deref().and_then(Config::system_named)),
        _ => (Meeting::Switch(place.to_string()), None),
    };
    let fabric_host = setup.fabric.as_ref().and_then(|fabric| fabric.host(setup.number, setup.workers)).map(str::to_owned);
    Config {
        system,
        fabric_host,
        job: "demo".into(),
        timeout: Duration::from_millis(setup.patience_ms),
        transport: setup.way.into(),
        payload_bytes: setup.payload_bytes,
        window: setup.window,
        faults: faults(setup),
        // Whoever shows them knows what else is on the screen, and that several ranks say the same.
        notices: Notices::to(|text| drop(say(&Report::Notice { text: text.into() }))),
        ..Config::new(setup.number, setup.workers, meeting)
    }
}

fn path(setup: &Setup, report: &PathReport) -> PathFacts {
    match report {
        PathReport::Hierarchy { hosts, between, .. } => {
            let facts = between.as_ref().map(|between| path(setup, between)).unwrap_or_default();
            PathFacts { text: format!("memory in each of {hosts} hosts, and between hosts {}", facts.text), ..facts }
        }
        PathReport::Alone => PathFacts { text: "nothing, as there is only one".into(), ..PathFacts::default() },
        PathReport::Memory { .. } => PathFacts { text: "shared memory".into(), ..PathFacts::default() },
        PathReport::Fabric { payload_bytes, window, system, .. } => {
            let chosen = if setup.system.name() == *system { String::new() } else { format!("{system}, ") };
            let switches = setup.fabric.as_ref().map_or(0, |fabric| fabric.switches.len());
            PathFacts {
                text: format!(
                    "{chosen}UDP on loopback through {switches} switches, {payload_bytes} bytes a packet, {window} packets under way"
                ),
                payload_bytes: Some(*payload_bytes),
                window: Some(*window),
                ..PathFacts::default()
            }
        }
        PathReport::Datagrams { payload_bytes, window, receive_buffer_bytes, .. } => PathFacts {
            text: format!("UDP on loopback, {payload_bytes} bytes a packet, {window} packets under way"),
            payload_bytes: Some(*payload_bytes),
            window: Some(*window),
            receive_buffer_bytes: Some(*receive_buffer_bytes),
        },
    }
}

struct Rank {
    comm: Communicator,
    /// When the operation that is measured began, while it runs.
    running: Mutex<Option<Instant>>,
    over: AtomicBool,
}

impl Rank {
    fn serve(&self, setup: &Setup, inbox: &Inbox) -> Result<()> {
        let mut vectors = Vectors::new(setup.seed, 0, setup.workers);
        // Written once, so that no page is touched for the first time while an operation is timed.
        let (mut input, mut output) = (vec![1u8; setup.elements as usize * 4], vec![1u8; setup.elements as usize * 4]);
        loop {
            match inbox.wait()? {
                Order::Prepare { iteration } => {
                    vectors = Vectors::new(setup.seed, iteration, setup.workers);
                    vectors.fill(setup.number, &mut input);
                    // All ones is not a number, which no element may be left at.
                    output.fill(0xff);
                    say(&Report::Prepared)?;
                }
                Order::Run => say(&self.timed(&input, &mut output))?,
                Order::Verify => {
                    let (wrong, first_wrong) = vectors.compare(&output);
                    say(&Report::Verified { wrong, first_wrong })?;
                }
                Order::End => return Ok(()),
                order => bail!("a worker does not know how to {order:?} now"),
            }
        }
    }

    /// Runs one operation and measures it.
    fn timed(&self, input: &[u8], output: &mut [u8]) -> Report {
        // Afterwards all ranks begin within a round trip.
        let mut result = self.comm.barrier();
        let (start, spent) = (Instant::now(), process_cpu_time());
        if result.is_ok() {
            self.set_running(Some(start));
            result = self.comm.call_bytes(CollectiveKind::Allreduce, ElementOp::F32_SUM, input.len() as u64 / 4, input, output);
            self.set_running(None);
        }
        let (seconds, cpu) = (start.elapsed().as_secs_f64(), process_cpu_time().saturating_sub(spent));
        let ended = match result {
            Ok(()) => Ended::Done,
            Err(error) => Ended::Failed { text: error.to_string(), suspect_rank: error.suspect_rank() },
        };
        Report::Finished { seconds, cpu_seconds: cpu.as_secs_f64(), ended }
    }

    fn set_running(&self, since: Option<Instant>) {
        *self.running.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = since;
    }

    /// Tells the parent now and then how far the operation is.
    fn tell_how_far(&self) {
        while !self.over.load(Ordering::Relaxed) {
            thread::park_timeout(LIVE_INTERVAL);
            let running = *self.running.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let (Some(start), Some(progress)) = (running, self.comm.progress()) else { continue };
            let live = Live {
                done: progress.finished_blocks as f64 / progress.blocks.max(1) as f64,
                seconds: start.elapsed().as_secs_f64(),
                sent_again: self.comm.statistics().counters.retransmitted_total(),
            };
            // Without a parent everything ends anyway.
            let _ = say(&Report::Live(live));
        }
    }
}
