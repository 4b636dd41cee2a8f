//! A child process of the demo: one worker or one switch, which does what it is told on its standard input.

use std::fmt;
use std::io::{BufRead, Write};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use fanin_core::{DropReason, RetransmitReason, Suspect};
use fanin_net::{FaultKind, FaultPlan, SenderConfig, Socket, SocketConfig, Waker};
use fanin_runtime::clock::process_cpu_time;
use fanin_runtime::{DriverConfig, RunError, Statistics, SwitchDriver, WorkerDriver};

use super::messages::{ChildStatistics, Ended, Order, Report, Setup};
use super::nodes::{self, DemoNode};
use super::vectors::Vectors;

/// How long a child whose parent has gone may take to leave its loop.
const ORPHAN_LIMIT: Duration = Duration::from_secs(2);

/// A node process of `fanin demo`; takes its orders on standard input.
#[derive(Args, Clone, Debug)]
pub struct NodeArgs {
    /// The name that shows in a list of processes.
    #[arg(long)]
    pub name: String,
}

/// What the parent says. When it says nothing more, because it has ended, everything here ends too.
struct Inbox {
    orders: Receiver<Order>,
    /// There are orders, or there will be none any more.
    waiting: Arc<AtomicBool>,
    /// The parent has gone.
    orphaned: Arc<AtomicBool>,
    /// Interrupts the driver, once there is one.
    waker: Arc<OnceLock<Waker>>,
}

impl Inbox {
    /// Listens on standard input.
    fn open() -> Self {
        let (tell, orders) = channel();
        let inbox = Inbox { orders, waiting: Arc::default(), orphaned: Arc::default(), waker: Arc::default() };
        let (waiting, orphaned, waker) = (inbox.waiting.clone(), inbox.orphaned.clone(), inbox.waker.clone());
        thread::spawn(move || {
            let notify = || {
                waiting.store(true, Ordering::Relaxed);
                if let Some(waker) = waker.get() {
                    waker.wake();
                }
            };
            for line in std::io::stdin().lock().lines().map_while(Result::ok) {
                match serde_json::from_str(&line) {
                    Ok(order) => {
                        if tell.send(order).is_err() {
                            break;
                        }
                        notify();
                    }
                    Err(error) => tracing::error!(line, %error, "an order that cannot be read"),
                }
            }
            orphaned.store(true, Ordering::Relaxed);
            drop(tell);
            notify();
            thread::sleep(ORPHAN_LIMIT);
            std::process::exit(1);
        });
        inbox
    }

    /// The next order, if there is one; clears the flag when there is none.
    fn take(&self) -> Result<Option<Order>> {
        self.waiting.store(false, Ordering::Relaxed);
        match self.orders.try_recv() {
            Ok(order) => {
                // There may be more behind it.
                self.waiting.store(true, Ordering::Relaxed);
                Ok(Some(order))
            }
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(Orphaned.into()),
        }
    }

    /// The next order, however long it takes.
    fn wait(&self) -> Result<Order> {
        self.orders.recv().map_err(|_| Orphaned.into())
    }
}

/// The parent process has gone.
#[derive(Debug)]
struct Orphaned;

impl fmt::Display for Orphaned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the parent process has gone")
    }
}

impl std::error::Error for Orphaned {}

/// Tells the parent.
fn say(report: &Report) -> Result<()> {
    let mut line = serde_json::to_string(report)?;
    line.push('\n');
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes()).and_then(|()| out.flush()).map_err(|_| Orphaned.into())
}

/// Runs a node process.
///
/// # Errors
/// Where the parent says nonsense, or the socket cannot be opened. That the parent has gone is no error: it is how a demo is
/// interrupted.
pub fn run(args: &NodeArgs) -> Result<()> {
    match serve() {
        Err(error) if error.is::<Orphaned>() => Ok(()),
        result => result.with_context(|| args.name.clone()),
    }
}

fn serve() -> Result<()> {
    let inbox = Inbox::open();
    let Order::Setup(setup) = inbox.wait()? else { bail!("the first order is not a setup") };
    let socket = Socket::bind(&SocketConfig::new((Ipv4Addr::LOCALHOST, 0).into()))?;
    say(&Report::Bound { address: socket.local_address(), receive_buffer_bytes: socket.receive_buffer_bytes() as u64 })?;
    let Order::Peers { sockets } = inbox.wait()? else { bail!("the second order does not name peers") };
    let config = nodes::node_config(&setup, &sockets);
    let how = driver_config(&setup);
    let node = nodes::node(&setup)?;
    if setup.number < setup.workers {
        run_worker(WorkerDriver::new(socket, node, config, &how)?, &setup, &inbox)
    } else {
        run_switch(SwitchDriver::new(socket, node, config, &how)?, &inbox)
    }
}

fn driver_config(setup: &Setup) -> DriverConfig {
    let faults = FaultPlan {
        seed: fanin_core::hash::derive(setup.seed, u64::from(setup.number)),
        loss: setup.loss,
        duplicate: setup.duplicate,
        reorder: setup.reorder,
        corrupt: setup.corrupt,
    };
    DriverConfig { sender: SenderConfig { faults, ..SenderConfig::default() }, ..DriverConfig::default() }
}

fn run_switch(mut driver: SwitchDriver<DemoNode>, inbox: &Inbox) -> Result<()> {
    // Nobody else sets it: this is the only thread that makes a driver.
    let _ = inbox.waker.set(driver.waker());
    say(&Report::Ready)?;
    let begin = process_cpu_time();
    loop {
        match inbox.take()? {
            Some(Order::End) => {
                let spent = process_cpu_time().saturating_sub(begin);
                return say(&Report::Statistics(child_statistics(&driver.statistics(), spent)));
            }
            Some(order) => bail!("a switch does not know how to {order:?}"),
            None => driver.run(&inbox.waiting)?,
        }
    }
}

fn run_worker(mut driver: WorkerDriver<DemoNode>, setup: &Setup, inbox: &Inbox) -> Result<()> {
    let _ = inbox.waker.set(driver.waker());
    driver.set_stop_flag(inbox.orphaned.clone());
    let mut vectors = Vectors::new(setup.seed, 0, setup.workers);
    // Written once, so that no page is touched for the first time while an operation is timed.
    let (mut input, mut output) = (vec![1u8; setup.elements as usize * 4], vec![1u8; setup.elements as usize * 4]);
    say(&Report::Ready)?;
    loop {
        match inbox.take()? {
            Some(Order::Prepare { iteration }) => {
                vectors = Vectors::new(setup.seed, iteration, setup.workers);
                vectors.fill(setup.number, &mut input);
                // All ones is not a number, which no element may be left at.
                output.fill(0xff);
                say(&Report::Prepared)?;
            }
            Some(Order::Run) => say(&timed(&mut driver, &input, &mut output))?,
            Some(Order::Verify) => {
                let (wrong, first_wrong) = vectors.compare(&output);
                say(&Report::Verified { wrong, first_wrong })?;
            }
            Some(Order::End) => return say(&Report::Statistics(child_statistics(&driver.statistics(), Duration::ZERO))),
            Some(order) => bail!("a worker does not know how to {order:?} now"),
            None => driver.serve_until(&inbox.waiting)?,
        }
    }
}

/// Runs one operation and measures it.
fn timed(driver: &mut WorkerDriver<DemoNode>, input: &[u8], output: &mut [u8]) -> Report {
    // An operation on a single element, not timed, is a barrier: afterwards all workers begin within a round trip.
    let (input_of_barrier, mut output_of_barrier) = ([0; 4], [0; 4]);
    let mut result = driver.allreduce(&input_of_barrier, &mut output_of_barrier);
    let (start, spent) = (Instant::now(), process_cpu_time());
    if result.is_ok() {
        result = driver.allreduce(input, output);
    }
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), process_cpu_time().saturating_sub(spent));
    let ended = match result {
        Ok(()) => Ended::Done,
        Err(error) => {
            let suspect_rank = match &error {
                RunError::Failed(failure) => match failure.suspect {
                    Suspect::Rank(rank) => Some(rank.0),
                    Suspect::Unknown | Suspect::Switch(_) => None,
                },
                _ => None,
            };
            Ended::Failed { text: error.to_string(), suspect_rank }
        }
    };
    Report::Finished { seconds, cpu_seconds: cpu.as_secs_f64(), ended }
}

/// Names and counts of what is not zero.
fn named<'a>(names: impl Iterator<Item = &'a str>, counts: &[u64]) -> Vec<(String, u64)> {
    names.zip(counts).filter(|(_, count)| **count > 0).map(|(name, count)| (name.to_string(), *count)).collect()
}

fn child_statistics(statistics: &Statistics, cpu: Duration) -> ChildStatistics {
    let (counters, sent) = (&statistics.counters, &statistics.sent);
    ChildStatistics {
        cpu_seconds: cpu.as_secs_f64(),
        packets_sent: counters.packets_sent,
        packets_received: counters.packets_received,
        datagrams: sent.datagrams,
        send_calls: sent.calls,
        turns: counters.turns,
        waits: counters.waits,
        slot_bytes_peak: counters.slot_bytes_peak,
        broken: counters.broken,
        refused_by_kernel: sent.failed,
        retransmitted: named(RetransmitReason::ALL.iter().map(|reason| reason.name()), &counters.retransmitted),
        dropped: named(DropReason::ALL.iter().map(|reason| reason.name()), &counters.dropped),
        injected: named(FaultKind::ALL.iter().map(|kind| kind.name()), &sent.injected),
    }
}
