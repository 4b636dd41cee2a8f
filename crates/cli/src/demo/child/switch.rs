//! The switch that communicators meet at: the same service as `fanin switch`, with the faults that the demo injects.

use std::net::Ipv4Addr;

use anyhow::{Result, bail};
use fanin_daemon::{Daemon, DaemonConfig};
use fanin_runtime::clock::process_cpu_time;

use super::{DRAIN_MS, Inbox, child_statistics, faults, say};
use crate::demo::messages::{Order, Report, Setup};

/// Serves until the parent says that it is over.
///
/// # Errors
/// Where the parent says nonsense, or the switch cannot be started.
pub(super) fn run(setup: &Setup, inbox: &Inbox) -> Result<()> {
    inbox.end_with_parent();
    let mut config = DaemonConfig { faults: faults(setup), ..DaemonConfig::new((Ipv4Addr::LOCALHOST, 0).into()) };
    config.jobs.drain_ms = DRAIN_MS;
    let daemon = Daemon::start(config)?;
    say(&Report::Bound { address: Some(daemon.control_address()) })?;
    inbox.peers()?;
    let begin = process_cpu_time();
    say(&Report::Ready { path: None })?;
    match inbox.wait()? {
        Order::End => {}
        order => bail!("a switch does not know how to {order:?}"),
    }
    let spent = process_cpu_time().saturating_sub(begin);
    daemon.drain();
    say(&Report::Statistics(child_statistics(&daemon.wait()?, spent)))
}
