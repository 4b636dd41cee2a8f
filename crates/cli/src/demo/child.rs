//! A child process of the demo: one worker or one switch, which does what it is told on its standard input.
//!
//! | module | what it is |
//! |---|---|
//! | [`rank`] | a worker with a communicator |
//! | [`switch`] | the switch that communicators meet at |
//! | [`managed`] | a switch of a fabric, and its manager |
//! | [`driven`] | a worker or switch that runs one node of a system, without communicators |

mod driven;
mod managed;
mod rank;
mod switch;

use std::fmt;
use std::io::{BufRead, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use fanin_core::{DropReason, RetransmitReason};
use fanin_net::{FaultKind, FaultPlan, Waker};
use fanin_runtime::Statistics;

use super::fabric::Part;
use super::messages::{ChildStatistics, Order, Report, Setup};
use super::system::DemoSystem;

/// What is left of a job may take so long to end, in ms; ranks have left by then, or are dead.
const DRAIN_MS: u64 = 2_000;

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
    /// The process ends as soon as the parent has gone, whatever it is doing.
    abrupt: Arc<AtomicBool>,
}

impl Inbox {
    /// Listens on standard input.
    fn open() -> Self {
        let (tell, orders) = channel();
        let inbox = Inbox { orders, waiting: Arc::default(), orphaned: Arc::default(), waker: Arc::default(), abrupt: Arc::default() };
        let (waiting, orphaned, waker, abrupt) = (inbox.waiting.clone(), inbox.orphaned.clone(), inbox.waker.clone(), inbox.abrupt.clone());
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
            if abrupt.load(Ordering::Relaxed) {
                fanin_terminal::output::leave(0);
            }
            orphaned.store(true, Ordering::Relaxed);
            drop(tell);
            notify();
            thread::sleep(ORPHAN_LIMIT);
            fanin_terminal::output::leave(1);
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

    /// There is nothing to do in order any more when the parent has gone.
    fn end_with_parent(&self) {
        self.abrupt.store(true, Ordering::Relaxed);
    }

    /// The sockets of the others, which is the second order.
    fn peers(&self) -> Result<Vec<SocketAddr>> {
        match self.wait()? {
            Order::Peers { sockets } => Ok(sockets),
            order => bail!("expected to hear of peers, not {order:?}"),
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
    match (&setup.system, setup.part()) {
        (DemoSystem::Fabric(_), Part::Switch(name)) => managed::run_switch(&setup, &inbox, &name),
        (DemoSystem::Fabric(_), Part::Manager) => managed::run_manager(&setup, &inbox),
        (DemoSystem::SwitchMl | DemoSystem::Fabric(_), Part::Host) => rank::run(&setup, &inbox),
        (DemoSystem::SwitchMl, _) => switch::run(&setup, &inbox),
        (DemoSystem::Tree | DemoSystem::Ring, _) => driven::run(&setup, &inbox),
    }
}

/// The faults that this process injects into what it sends.
fn faults(setup: &Setup) -> FaultPlan {
    FaultPlan {
        seed: fanin_core::hash::derive(setup.seed, u64::from(setup.number)),
        loss: setup.loss,
        duplicate: setup.duplicate,
        reorder: setup.reorder,
        corrupt: setup.corrupt,
    }
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
