//! The interfaces that are joined. Each may go and come back by its name; none takes the others with it.

use std::io;

use fanin_net::{FrameBatch, FrameQueue, Offload, PacketPort, PortError};

use crate::engine::Ports;
use crate::tap::Tap;

/// One interface, in service or not.
#[derive(Debug)]
pub(crate) struct Link {
    name: String,
    port: Option<PacketPort>,
    queue: FrameQueue,
    /// What is told of it.
    pub counts: LinkCounts,
}

/// What an interface has seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkCounts {
    /// Frames that came.
    pub received: u64,
    /// Frames that were to leave.
    pub sent: u64,
    /// Those among them that found no room, or no interface.
    pub lost: u64,
    /// How often it went out of service.
    pub outages: u64,
}

/// All interfaces of a switch.
#[derive(Debug)]
pub(crate) struct Links {
    pub all: Vec<Link>,
    port_bytes: usize,
    tap: Option<Tap>,
    /// The time of the frames that are being dealt with.
    pub now_ns: u64,
}

impl Link {
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn port(&self) -> Option<&PacketPort> {
        self.port.as_ref()
    }

    /// Takes frames that have come. An error takes it out of service.
    pub fn receive(&mut self, batch: &mut FrameBatch) -> Result<usize, Out> {
        let Some(port) = &self.port else { return Ok(0) };
        match batch.receive(port) {
            Ok(count) => {
                self.counts.received += count as u64;
                Ok(count)
            }
            Err(error) => Err(self.take_out(&error)),
        }
    }

    /// Lets go what waits.
    fn flush(&mut self) -> Result<(), Out> {
        if self.queue.is_empty() {
            return Ok(());
        }
        let Some(port) = &self.port else {
            self.counts.lost += self.queue.discard();
            return Ok(());
        };
        let flushed = self.queue.flush(port);
        self.counts.lost += flushed.lost;
        flushed.gone.map_or(Ok(()), |error| Err(self.take_out(&error)))
    }

    /// Looks whether it is still, or again, there. `Some(true)`: again.
    fn look(&mut self, port_bytes: usize) -> Option<bool> {
        if let Some(port) = &self.port {
            if port.is_there() {
                return None;
            }
            self.take_out(&io::Error::from_raw_os_error(rustix::io::Errno::NETDOWN.raw_os_error()));
            return Some(false);
        }
        self.port = PacketPort::open(&self.name, port_bytes).ok().filter(PacketPort::is_there);
        self.port.as_ref()?;
        tracing::info!(interface = self.name, "the interface is in service again");
        Some(true)
    }

    fn take_out(&mut self, error: &io::Error) -> Out {
        tracing::warn!(interface = self.name, %error, "the interface is out of service until there is one of that name again and it is up");
        self.port = None;
        self.counts.outages += 1;
        self.counts.lost += self.queue.discard();
        Out
    }
}

/// An interface has gone out of service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Out;

impl Links {
    /// Opens all. One that is down is out of service from the beginning.
    pub fn open(names: &[String], port_bytes: usize, tap: Option<Tap>) -> Result<Self, PortError> {
        let open = |name: &String| {
            let port = PacketPort::open(name, port_bytes)?;
            Ok(Link { name: name.clone(), port: Some(port), queue: FrameQueue::default(), counts: LinkCounts::default() })
        };
        Ok(Links { all: names.iter().map(open).collect::<Result<_, _>>()?, port_bytes, tap, now_ns: 0 })
    }

    /// Whether there are interfaces and cables.
    pub fn are_mixed(&self) -> bool {
        let mut kinds = self.all.iter().filter_map(|link| link.port().map(PacketPort::is_cable));
        let first = kinds.next();
        kinds.any(|kind| Some(kind) != first)
    }

    /// Somebody may want to know of a frame at a port.
    pub fn note(&mut self, port: usize, left: bool, frame: &[u8]) {
        if let Some(tap) = &mut self.tap {
            tap.note(self.now_ns, port, left, frame);
        }
    }

    /// Lets go what waits at all ports; calls `out` for each that has gone out of service.
    pub fn flush(&mut self, mut out: impl FnMut(usize)) {
        for (number, link) in self.all.iter_mut().enumerate() {
            if link.flush().is_err() {
                out(number);
            }
        }
    }

    /// Looks which are there; calls `changed` with the number of each that has come back (true) or gone.
    pub fn look(&mut self, mut changed: impl FnMut(usize, bool)) {
        self.tap.iter_mut().for_each(Tap::flush);
        for (number, link) in self.all.iter_mut().enumerate() {
            if let Some(is_there) = link.look(self.port_bytes) {
                changed(number, is_there);
            }
        }
    }

    /// Frames that the tap had no room for.
    pub fn missed(&self) -> u64 {
        self.tap.as_ref().map_or(0, Tap::missed)
    }

    /// Frames that did not leave.
    pub fn lost(&self) -> u64 {
        self.all.iter().map(|link| link.counts.lost).sum()
    }
}

impl Ports for Links {
    fn send(&mut self, port: usize, offload: &Offload, frame: &[u8]) {
        self.note(port, true, frame);
        let link = &mut self.all[port];
        link.counts.sent += 1;
        if link.port.is_some() {
            link.queue.push(offload, frame);
        } else {
            link.counts.lost += 1;
        }
    }
}
