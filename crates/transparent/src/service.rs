//! The switch between network interfaces: reads their frames in batches until it is told to end.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant as Monotonic};

use fanin_core::Instant;
use fanin_net::{FrameBatch, FrameQueue, Offload, PacketPort, PortError};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::engine::{Ports, Statistics, Switch, SwitchConfig};
use crate::rdma::RdmaRing;
use crate::tap::Tap;

/// Between two looks at what is old or does not move.
const TICK: Duration = Duration::from_millis(250);

/// Which interfaces are joined, and how.
#[derive(Clone, Debug)]
pub struct ServiceConfig {
    /// Names of the interfaces, or cables as [`PacketPort::open`] takes them; at least two.
    pub interfaces: Vec<String>,
    /// What waits at a port in each direction, in bytes of the kernel's memory; beyond that frames are lost, as at any switch.
    pub port_bytes: usize,
    /// Bytes of each stream that are kept.
    pub stream_bytes: usize,
    /// Rings at once.
    pub rings_max: usize,
    /// Share of frames that are lost on their way in, for tests. What the kernel has not cut up yet counts as one frame.
    pub loss: f64,
    /// Seed of the losses.
    pub seed: u64,
    /// Rings of RDMA connections.
    pub rdma: Vec<RdmaRing>,
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
    /// Two rings of RDMA connections cannot be told apart.
    #[error("`rdma-ring` {0} and {1} have a connection between the same two workers: they need different numbers")]
    SharedNeighbours(u16, u16),
    /// An interface is gone.
    #[error("interface {interface}: {source}")]
    Interface {
        /// Its name.
        interface: String,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Frames that leave, by port.
struct Queues {
    queues: Vec<FrameQueue>,
    tap: Option<Tap>,
    now: Instant,
}

impl Queues {
    /// Somebody may want to know of a frame at a port.
    fn note(&mut self, port: usize, left: bool, frame: &[u8]) {
        if let Some(tap) = &mut self.tap {
            tap.note(self.now.as_ps() / 1_000, port, left, frame);
        }
    }
}

impl Ports for Queues {
    fn send(&mut self, port: usize, offload: &Offload, frame: &[u8]) {
        self.note(port, true, frame);
        self.queues[port].push(offload, frame);
    }
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
    let ports = config.interfaces.iter().map(|name| PacketPort::open(name, config.port_bytes)).collect::<Result<Vec<_>, _>>()?;
    if ports.iter().any(|port| port.is_cable() != ports[0].is_cable()) {
        return Err(ServiceError::MixedPorts);
    }
    let rules = SwitchConfig { ports: ports.len(), stream_bytes: config.stream_bytes, rings_max: config.rings_max };
    let mut switch = Switch::with_rdma(rules, config.rdma.clone()).map_err(|(one, other)| ServiceError::SharedNeighbours(one, other))?;
    let mut queues = Queues { queues: ports.iter().map(|_| FrameQueue::default()).collect(), tap, now: Instant::ZERO };
    let mut batch = FrameBatch::default();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(config.seed);
    let start = Monotonic::now();
    let (mut next_tick, mut lost) = (start + TICK, 0);
    ready();
    while !stop.load(Ordering::Relaxed) {
        let mut fds: Vec<PollFd<'_>> = ports.iter().map(|port| PollFd::from_borrowed_fd(port.as_fd(), PollFlags::IN)).collect();
        let timeout = Timespec { tv_sec: 0, tv_nsec: TICK.subsec_nanos().into() };
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(ServiceError::Interface { interface: config.interfaces.join(", "), source: error.into() }),
        }
        let readable: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let elapsed = start.elapsed();
        let now = Instant::from_ps(elapsed.as_nanos() as u64 * 1_000);
        queues.now = now;
        for (number, port) in ports.iter().enumerate().filter(|(number, _)| readable[*number]) {
            let count = batch.receive(port).map_err(|source| ServiceError::Interface { interface: port.name().to_owned(), source })?;
            for index in 0..count {
                let Some((offload, frame)) = batch.frame(index) else { continue };
                if config.loss > 0.0 && (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64 <= config.loss {
                    continue;
                }
                queues.note(number, false, frame);
                switch.on_frame(now, number, offload, frame, &mut queues);
            }
            // Each batch at once: who waits for a sum should not wait for the frames of others, too.
            for (queue, port) in queues.queues.iter_mut().zip(&ports).filter(|(queue, _)| !queue.is_empty()) {
                lost += queue.flush(port);
            }
        }
        if Monotonic::now() >= next_tick {
            next_tick = Monotonic::now() + TICK;
            switch.on_tick(now);
            switch.on_rdma_tick(now, &mut queues);
            for (queue, port) in queues.queues.iter_mut().zip(&ports).filter(|(queue, _)| !queue.is_empty()) {
                lost += queue.flush(port);
            }
            queues.tap.iter_mut().for_each(Tap::flush);
        }
    }
    queues.tap.iter_mut().for_each(Tap::flush);
    let missed = queues.tap.as_ref().map_or(0, Tap::missed);
    Ok(Ended { done: switch.statistics(), lost, missed })
}
