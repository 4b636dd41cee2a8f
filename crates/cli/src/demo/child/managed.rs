//! A switch of a fabric, and the manager that ranks meet at: the same services as `fanin switch --fabric` and `fanin manager`.

use std::net::Ipv4Addr;

use anyhow::{Context, Result, anyhow, bail};
use fanin_control::FabricFile;
use fanin_daemon::{Daemon, DaemonConfig, FabricDaemon, FabricDaemonConfig};
use fanin_fabric::Fabric;
use fanin_runtime::Statistics;
use fanin_runtime::clock::process_cpu_time;

use super::{DRAIN_MS, Inbox, child_statistics, faults, say};
use crate::demo::messages::{Order, Report, Setup};

/// What its messages call the file.
const FILE: &str = "the demo's fabric";

fn fabric(setup: &Setup) -> Result<&str> {
    setup.fabric.as_ref().map(|fabric| fabric.text.as_str()).context("there is no fabric")
}

/// Runs a switch until the parent says that it is over.
///
/// # Errors
/// Where the parent says nonsense, or the switch cannot be started.
pub(super) fn run_switch(setup: &Setup, inbox: &Inbox, name: &str) -> Result<()> {
    inbox.end_with_parent();
    let fabric = Fabric::parse(FILE, fabric(setup)?)?;
    let node = fabric.node_named(name).with_context(|| format!("the fabric has no {name}"))?;
    let switch = FabricDaemon::start(FabricDaemonConfig { faults: faults(setup), ..FabricDaemonConfig::new(fabric, node) })?;
    let spent = serve(inbox, || say(&Report::Bound { address: None }))?;
    let status = switch.stop()?;
    say(&Report::Statistics(child_statistics(&Statistics { counters: status.counters, sent: status.sent }, spent)))
}

/// Runs the manager until the parent says that it is over.
///
/// # Errors
/// Where the parent says nonsense, or the manager cannot be started.
pub(super) fn run_manager(setup: &Setup, inbox: &Inbox) -> Result<()> {
    inbox.end_with_parent();
    let text = fabric(setup)?;
    let file = FabricFile { name: FILE.into(), text: text.into() };
    let listen = (Ipv4Addr::LOCALHOST, 0).into();
    let mut config = DaemonConfig::manager(listen, Fabric::parse(FILE, text)?, file).map_err(|error| anyhow!(error))?;
    config.jobs.drain_ms = DRAIN_MS;
    let daemon = Daemon::start(config)?;
    let address = daemon.control_address();
    let spent = serve(inbox, || say(&Report::Bound { address: Some(address) }))?;
    daemon.drain();
    say(&Report::Statistics(child_statistics(&daemon.wait()?, spent)))
}

/// Says that it is there, and waits for the end; returns the CPU time in between.
fn serve(inbox: &Inbox, bound: impl FnOnce() -> Result<()>) -> Result<std::time::Duration> {
    bound()?;
    inbox.peers()?;
    let begin = process_cpu_time();
    say(&Report::Ready { path: None })?;
    match inbox.wait()? {
        Order::End => Ok(process_cpu_time().saturating_sub(begin)),
        order => bail!("a switch does not know how to {order:?}"),
    }
}
