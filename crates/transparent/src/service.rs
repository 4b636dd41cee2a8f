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

/// Between two looks at what is old or does not move.
const TICK: Duration = Duration::from_millis(250);

/// Which interfaces are joined, and how.
#[derive(Clone, Debug)]
pub struct ServiceConfig {
    /// Names of the interfaces; at least two.
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
}

impl Ports for Queues {
    fn send(&mut self, port: usize, offload: &Offload, frame: &[u8]) {
        self.queues[port].push(offload, frame);
    }
}

/// Joins interfaces until `stop` is set. Calls `ready` once frames are being taken. Gives what was done, and how many frames found no room
/// at the port that they were to leave by.
///
/// # Errors
/// [`ServiceError`].
pub fn serve(config: &ServiceConfig, stop: &AtomicBool, ready: impl FnOnce()) -> Result<(Statistics, u64), ServiceError> {
    let mut names = config.interfaces.clone();
    names.sort_unstable();
    names.dedup();
    if names.len() < 2 || names.len() != config.interfaces.len() {
        return Err(ServiceError::TooFewInterfaces(names.len()));
    }
    let ports = config.interfaces.iter().map(|name| PacketPort::open(name, config.port_bytes)).collect::<Result<Vec<_>, _>>()?;
    let mut switch = Switch::new(SwitchConfig { ports: ports.len(), stream_bytes: config.stream_bytes, rings_max: config.rings_max });
    let mut queues = Queues { queues: ports.iter().map(|_| FrameQueue::default()).collect() };
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
        for (number, port) in ports.iter().enumerate().filter(|(number, _)| readable[*number]) {
            let count = batch.receive(port).map_err(|source| ServiceError::Interface { interface: port.name().to_owned(), source })?;
            for index in 0..count {
                let Some((offload, frame)) = batch.frame(index) else { continue };
                if config.loss > 0.0 && (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64 <= config.loss {
                    continue;
                }
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
        }
    }
    Ok((switch.statistics(), lost))
}
