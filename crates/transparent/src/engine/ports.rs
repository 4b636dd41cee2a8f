//! Interfaces that come and go.

use fanin_core::{Duration, Instant};

use super::key::RingKey;
use super::ring::Failure;
use super::{Ports, Switch};

/// For how long a ring outlives an interface that it needs: cables are plugged in again.
pub(super) const GRACE: Duration = Duration::from_us(2_000_000);

/// What the switch knows of a port.
#[derive(Debug)]
pub(super) struct PortState {
    name: String,
    /// Since when it is out of service.
    out_since: Option<Instant>,
}

impl PortState {
    pub fn new(name: String) -> Self {
        PortState { name, out_since: None }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn is_in_service(&self) -> bool {
        self.out_since.is_none()
    }
}

impl Switch {
    /// How logs call the ports.
    pub fn name_ports<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) {
        self.ports.iter_mut().zip(names).for_each(|(port, name)| name.clone_into(&mut port.name));
    }

    /// A port is out of service: who is behind it may come back elsewhere, and rings that need it end soon.
    pub fn on_port_out(&mut self, now: Instant, port: usize) {
        self.bridge.forget(port);
        if let Some(port) = self.ports.get_mut(port) {
            port.out_since.get_or_insert(now);
        }
    }

    /// A port is in service again.
    pub fn on_port_back(&mut self, port: usize) {
        if let Some(port) = self.ports.get_mut(port) {
            port.out_since = None;
        }
    }

    /// Ends the rings that need a port which is out of service for too long.
    pub(super) fn end_without_ports(&mut self, now: Instant, out: &mut impl Ports) {
        let is_out = |port: Option<usize>| {
            let port = self.ports.get(port?)?;
            port.out_since.filter(|since| now.since(*since) >= GRACE).map(|_| port)
        };
        if self.ports.iter().all(PortState::is_in_service) {
            return;
        }
        let mut failures: Vec<(RingKey, Failure)> = Vec::new();
        for (key, ring) in &self.rings {
            let lost = ring.ranks().find_map(|(rank, flow)| {
                let stream = self.streams.get(&flow)?;
                let (sender, receiver) = (is_out(stream.ports[0]), is_out(stream.ports[1]));
                let next = ring.next(rank);
                let receiver = receiver.map(|port| (next, ring.place(next).unwrap_or(flow.to), port));
                sender.map(|port| (rank, flow.from, port)).or(receiver)
            });
            if let Some((rank, at, port)) = lost {
                failures.push((*key, Failure::Interface { rank, at, name: port.name.clone() }));
            }
        }
        for (key, failure) in failures {
            self.fail(now, key, &failure, out);
        }
    }
}
