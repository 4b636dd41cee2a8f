//! The switch between network interfaces: reads their frames in batches until it is told to end.

use std::os::fd::AsFd;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant as Monotonic, SystemTime, UNIX_EPOCH};

use fanin_core::Instant;
use fanin_net::{FrameBatch, PortError};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::engine::{Statistics, Switch, SwitchConfig};
use crate::links::Links;
use crate::rdma::RdmaRing;
use crate::tap::Tap;
use crate::watch::{PortView, Report, Watch};

/// Between two looks at what is old or does not move.
const TICK: Duration = Duration::from_millis(250);

/// Which interfaces are joined, and how.
#[derive(Clone, Debug)]
pub struct ServiceConfig {
    /// Names of the interfaces, or cables as [`fanin_net::PacketPort::open`] takes them; at least two.
    pub interfaces: Vec<String>,
    /// What waits at a port in each direction, in bytes of the kernel's memory; beyond that frames are lost, as at any switch.
    pub port_bytes: usize,
    /// Bytes of each stream that are kept.
    pub stream_bytes: usize,
    /// Rings at once.
    pub rings_max: usize,
    /// A ring that waits and in which nothing moves for so long is reset.
    pub patience: Duration,
    /// The interface behind which the switch above is, with which this one sums together.
    pub uplink: Option<String>,
    /// Share of frames that are lost on their way in, for tests. What the kernel has not cut up yet counts as one frame.
    pub loss: f64,
    /// Seed of the losses.
    pub seed: u64,
    /// Rings of RDMA connections.
    pub rdma: Vec<RdmaRing>,
    /// Who wants to know what it does.
    pub watch: Option<Arc<Watch>>,
}

/// Why the switch has not begun or has ended.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// An interface could not be opened.
    #[error(transparent)]
    Port(#[from] PortError),
    /// A switch joins at least two interfaces.
    #[error("`transparent` names {0} interfaces where at least 2 different ones are needed")]
    TooFewInterfaces(usize),
    /// Frames that the kernel has not cut up yet have no place in a cable.
    #[error("`transparent` names interfaces and cables (udp:..) where all are of one kind")]
    MixedPorts,
    /// The uplink is none of the interfaces.
    #[error("`uplink` is {0:?} where one of the interfaces of `transparent` is expected")]
    NoUplink(String),
    /// Two rings of RDMA connections cannot be told apart.
    #[error("`rdma-ring` {0} and {1} have a connection between the same two workers: they need different numbers")]
    SharedNeighbours(u16, u16),
}

/// What came out of a switch's life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ended {
    /// What it has done.
    pub done: Statistics,
    /// Frames that found no room at the port that they were to leave by.
    pub lost: u64,
    /// Frames that the tap had no room for.
    pub missed: u64,
}

/// Joins interfaces until `stop` is set. Calls `ready` once frames are being taken. `tap` is given what comes and leaves.
///
/// # Errors
/// [`ServiceError`].
pub fn serve(config: &ServiceConfig, stop: &AtomicBool, tap: Option<Tap>, ready: impl FnOnce()) -> Result<Ended, ServiceError> {
    let mut names = config.interfaces.clone();
    names.sort_unstable();
    names.dedup();
    if names.len() < 2 || names.len() != config.interfaces.len() {
        return Err(ServiceError::TooFewInterfaces(names.len()));
    }
    let place =
        |uplink: &String| config.interfaces.iter().position(|name| name == uplink).ok_or_else(|| ServiceError::NoUplink(uplink.clone()));
    let uplink = config.uplink.as_ref().map(place).transpose()?;
    let mut links = Links::open(&config.interfaces, config.port_bytes, tap)?;
    if links.are_mixed() {
        return Err(ServiceError::MixedPorts);
    }
    let rules = SwitchConfig {
        ports: links.all.len(),
        stream_bytes: config.stream_bytes,
        rings_max: config.rings_max,
        patience: fanin_core::Duration::from_us(config.patience.as_micros() as u64),
        identity: identity(),
        uplink,
    };
    let mut switch = Switch::with_rdma(rules, config.rdma.clone()).map_err(|(one, other)| ServiceError::SharedNeighbours(one, other))?;
    switch.name_ports(config.interfaces.iter().map(String::as_str));
    let mut batch = FrameBatch::default();
    let mut loss = Loss { share: config.loss, random: Xoshiro256PlusPlus::seed_from_u64(config.seed) };
    let start = Monotonic::now();
    let mut next_tick = start;
    ready();
    while !stop.load(Ordering::Relaxed) {
        let readable = wait(&links, until_due(&switch, start));
        let elapsed = start.elapsed();
        let now = Instant::from_ps(elapsed.as_nanos() as u64 * 1_000);
        links.now_ns = elapsed.as_nanos() as u64;
        for number in readable {
            take(now, number, &mut links, &mut batch, &mut switch, &mut loss);
        }
        if switch.due().is_some_and(|due| now >= due) {
            switch.settle(now, &mut links);
            links.flush(|port| switch.on_port_out(now, port));
        }
        if Monotonic::now() >= next_tick {
            next_tick = Monotonic::now() + TICK;
            links.look(|port, is_there| if is_there { switch.on_port_back(port) } else { switch.on_port_out(now, port) });
            switch.on_tick(now, &mut links);
            switch.on_rdma_tick(now, &mut links);
            links.flush(|port| switch.on_port_out(now, port));
            if let Some(watch) = &config.watch {
                watch.publish(report(now, &switch, &links));
            }
        }
    }
    links.look(|_, _| {});
    Ok(Ended { done: switch.statistics(), lost: links.lost(), missed: links.missed() })
}

/// Tells this switch from others in the same network.
fn identity() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    fanin_core::hash::mix(since, process::id().into())
}

/// Frames that are lost on their way in.
struct Loss {
    share: f64,
    random: Xoshiro256PlusPlus,
}

impl Loss {
    fn hits(&mut self) -> bool {
        self.share > 0.0 && (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64 <= self.share
    }
}

/// How long the switch has nothing to do but for frames that come.
fn until_due(switch: &Switch, start: Monotonic) -> Duration {
    let Some(due) = switch.due() else { return TICK };
    let due = Duration::from_nanos(due.as_ps() / 1_000);
    // Not at once again where the clock is a little behind.
    due.saturating_sub(start.elapsed()).clamp(Duration::from_micros(100), TICK)
}

/// Waits for frames, or for so long; gives the ports that have something to say, if only that they are gone.
fn wait(links: &Links, most: Duration) -> Vec<usize> {
    let ports = || links.all.iter().enumerate().filter_map(|(number, link)| Some((number, link.port()?)));
    let mut fds: Vec<PollFd<'_>> = ports().map(|(_, port)| PollFd::from_borrowed_fd(port.as_fd(), PollFlags::IN)).collect();
    let timeout = Timespec { tv_sec: 0, tv_nsec: most.subsec_nanos().into() };
    match poll(&mut fds, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => {
            tracing::warn!(%error, "cannot wait for frames");
            thread::sleep(TICK);
            return Vec::new();
        }
    }
    ports().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty()).map(|((number, _), _)| number).collect()
}

/// Takes a batch of frames from one port.
fn take(now: Instant, number: usize, links: &mut Links, batch: &mut FrameBatch, switch: &mut Switch, loss: &mut Loss) {
    let Ok(count) = links.all[number].receive(batch) else { return switch.on_port_out(now, number) };
    for index in 0..count {
        let Some((offload, frame)) = batch.frame(index) else {
            switch.on_too_long(now, number);
            continue;
        };
        if loss.hits() {
            continue;
        }
        links.note(number, false, frame);
        switch.on_frame(now, number, offload, frame, links);
    }
    switch.settle(now, links);
    // Each batch at once: who waits for a sum should not wait for the frames of others, too.
    links.flush(|port| switch.on_port_out(now, port));
}

fn report(now: Instant, switch: &Switch, links: &Links) -> Report {
    Report {
        done: switch.statistics(),
        ports: links
            .all
            .iter()
            .map(|link| PortView { name: link.name().to_owned(), in_service: link.port().is_some(), counts: link.counts })
            .collect(),
        rings: switch.rings(now),
        connections: switch.connections(),
        held_bytes: switch.held_bytes(),
        trace_missed: links.missed(),
        at: Some(Monotonic::now()),
    }
}
