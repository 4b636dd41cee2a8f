//! An accelerator of NetReduce with one ring: its workers, each of which has a connection to the next one.

use std::net::Ipv4Addr;

use fanin_core::{Duration, ElementOp, FlowLabel, JobId, NodeId, PortId, Rank, Suspect};
use fanin_protocols::netreduce::{MessageShape, NetReduceChild, NetReduceConnection, NetReduceSwitch, NetReduceSwitchConfig, Variants};
use fanin_protocols::shared::reliability::Reliability;
use fanin_wire::roce::Envelope;
use serde::{Deserialize, Serialize};

use super::Commands;
use crate::formats::netreduce::{ELEMENTS, MESSAGE_PACKETS, WINDOW};
use crate::frames::Mac;

/// Workers of a ring at most: a bit each in a word.
pub const WORKERS_MAX: usize = 32;

/// A worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Worker {
    /// Its port.
    pub port: u16,
    /// Its address of Ethernet.
    pub mac: Mac,
    /// Its address of IPv4.
    pub ip: Ipv4Addr,
    /// The UDP port that its connection's packets come from.
    pub udp: u16,
}

/// A switch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Switch {
    /// Number of its ports.
    pub ports: u16,
    /// The ring's number.
    pub ring: u16,
    /// Packets of a message at most.
    pub packets: u16,
    /// Its workers, in the order of the ring.
    pub workers: Vec<Worker>,
}

/// Why a switch cannot be configured so.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// The number of workers.
    #[error("{0} workers: there are 2 to {WORKERS_MAX}, a bit each in a word")]
    Workers(usize),
    /// A port that there is not, or two workers at one.
    #[error("port {0} does not exist or has two workers")]
    Port(u16),
    /// The length of messages.
    #[error("{0} packets in a message: there are 1 to {MESSAGE_PACKETS}")]
    Packets(u16),
}

impl Switch {
    /// Whether a switch can be so.
    ///
    /// # Errors
    /// What does not fit.
    pub fn check(&self) -> Result<(), Refused> {
        if !(2..=WORKERS_MAX).contains(&self.workers.len()) {
            return Err(Refused::Workers(self.workers.len()));
        }
        if !(1..=MESSAGE_PACKETS).contains(&self.packets) {
            return Err(Refused::Packets(self.packets));
        }
        for (rank, worker) in self.workers.iter().enumerate() {
            if worker.port >= self.ports || self.workers[..rank].iter().any(|other| other.port == worker.port) {
                return Err(Refused::Port(worker.port));
            }
        }
        Ok(())
    }

    /// Who a worker's connection leads to.
    pub fn successor(&self, rank: usize) -> &Worker {
        &self.workers[(rank + 1) % self.workers.len()]
    }

    /// What is around the packets of a connection.
    pub fn envelope(&self, rank: usize) -> Envelope {
        let (from, to) = (&self.workers[rank], self.successor(rank));
        let mac = |mac: Mac| {
            let [_, _, rest @ ..] = mac.0.to_be_bytes();
            rest
        };
        Envelope {
            macs: [mac(to.mac), mac(from.mac)],
            addresses: [from.ip.octets(), to.ip.octets()],
            service: 0,
            identification: 0,
            hops: 64,
            source_port: from.udp,
            dont_fragment: true,
            tags: [None; 2],
        }
    }

    /// The state machine, which knows of a first message so that its slots are as a program's are: of message 0, and empty.
    pub fn oracle(&self) -> NetReduceSwitch<[u8]> {
        let who = |rank: usize| Suspect::Rank(Rank(rank as u32));
        let child = |(rank, worker): (usize, &Worker)| NetReduceChild { port: PortId(worker.port), who: who(rank), through: None };
        let connection = |rank: usize| NetReduceConnection {
            rank: Rank(rank as u32),
            ends_at: Some(PortId(self.successor(rank).port)),
            through: None,
            beyond: None,
            behind: None,
        };
        let mut switch = NetReduceSwitch::new(NetReduceSwitchConfig {
            node: NodeId(1_000),
            job: JobId(self.ring),
            op: ElementOp::I32_SUM.into(),
            workers: self.workers.len() as u32,
            block_bytes: 4 * ELEMENTS as u32,
            shape: MessageShape { window: WINDOW, packets: self.packets },
            parent: None,
            children: self.workers.iter().enumerate().map(child).collect(),
            connections: (0..self.workers.len()).map(connection).collect(),
            flow: FlowLabel(0),
            patience: Duration::from_us(1 << 40),
            resend_gap: Duration::ZERO,
            answers: Reliability {
                reliable: true,
                rto_initial: Duration::from_us(1 << 30),
                rto_min: Duration::from_us(1 << 30),
                patience: Duration::from_us(1 << 40),
            },
            variants: Variants::CARDS,
        });
        switch.first_message(Switch::FIRST_MESSAGE);
        switch
    }

    /// Messages begin with this number.
    pub const FIRST_MESSAGE: u32 = 1 << 30;

    /// Entries and the group of all workers.
    ///
    /// # Errors
    /// What does not fit.
    pub fn commands(&self) -> Result<Commands, Refused> {
        self.check()?;
        let mut commands = Commands::new();
        let all = u32::MAX >> (u32::BITS - self.workers.len() as u32);
        commands.default_action("own", "set_own", &[&self.ring, &all, &self.packets, &1]);
        commands.group(1, self.workers.iter().map(|worker| worker.port), false);
        for (rank, worker) in self.workers.iter().enumerate() {
            let to = self.successor(rank);
            commands.add("connection", "contribute", &[&worker.port, &worker.ip, &to.ip, &(rank + 2)], &[&rank, &(1u32 << rank), &to.port]);
            commands.add(
                "ending",
                "set_ending",
                &[&to.port],
                &[&rank, &(1u32 << rank), &worker.mac, &to.mac, &worker.ip, &to.ip, &worker.udp],
            );
            commands.add("forward", "to_port", &[&worker.ip], &[&worker.port]);
        }
        Ok(commands)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switch() -> Switch {
        let worker = |number: u8| Worker {
            port: number.into(),
            mac: Mac(number.into()),
            ip: Ipv4Addr::new(10, 0, 0, number),
            udp: 50_000 + u16::from(number),
        };
        Switch { ports: 4, ring: 7, packets: 3, workers: [2, 0, 3].map(worker).to_vec() }
    }

    #[test]
    fn a_ring_ends_where_it_begins() {
        let text = switch().commands().unwrap().text();
        let expected = "table_set_default own set_own 7 7 3 1\nmc_mgrp_create 1\nmc_node_create 0 2 0 3\nmc_node_associate 1 0\n\
                        table_add connection contribute 2 10.0.0.2 10.0.0.0 2 => 0 1 0\n\
                        table_add ending set_ending 0 => 0 1 00:00:00:00:00:02 00:00:00:00:00:00 10.0.0.2 10.0.0.0 50002\n\
                        table_add forward to_port 10.0.0.2 => 2\n";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.contains("table_add connection contribute 3 10.0.0.3 10.0.0.2 4 => 2 4 2\n"), "{text}");
        let envelope = switch().envelope(2);
        assert_eq!((envelope.addresses, envelope.source_port), ([[10, 0, 0, 3], [10, 0, 0, 2]], 50_003));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let refused = |change: fn(&mut Switch)| {
            let mut switch = switch();
            change(&mut switch);
            switch.commands().unwrap_err()
        };
        assert_eq!(refused(|switch| switch.workers.truncate(1)), Refused::Workers(1));
        assert_eq!(refused(|switch| switch.workers[1].port = 2), Refused::Port(2));
        assert_eq!(refused(|switch| switch.workers[1].port = 4), Refused::Port(4));
        assert_eq!(refused(|switch| switch.packets = 0), Refused::Packets(0));
    }
}
