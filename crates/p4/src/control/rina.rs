//! A switch of Rina: who its workers are, and ways to those of other racks.

use std::sync::Arc;

use fanin_core::{ElementOp, FlowLabel, JobId, NodeId, PortId, Rank};
use fanin_protocols::rina::{RinaLayout, RinaMember, RinaRack, RinaSwitch, RinaSwitchConfig};
use serde::{Deserialize, Serialize};

use super::Commands;
use crate::formats::rina::ELEMENTS;
use crate::frames::Mac;

/// Workers of a switch at most: each set of them has two groups, whose numbers have 16 bits. Fanin's own switch has 48.
pub const MEMBERS_MAX: usize = 15;
/// Slots of a switch at most.
pub const WINDOW_MAX: u32 = 16_384;

/// A worker of the job, at this switch or elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Worker {
    /// Its host's number in packets.
    pub node: u32,
    /// The port that leads there.
    pub port: u16,
    /// Whether it is this switch's own.
    pub here: bool,
}

/// A switch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Switch {
    /// Its address.
    pub mac: Mac,
    /// Who is at each of its ports.
    pub neighbours: Vec<Mac>,
    /// Pieces under way at most, a slot each.
    pub window: u32,
    /// The job's workers, by rank.
    pub workers: Vec<Worker>,
}

/// Why a switch cannot be configured so.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// The number of its workers.
    #[error("{0} workers at the switch: there are 1 to {MEMBERS_MAX}, since each set of them has two multicast groups")]
    Members(usize),
    /// The window.
    #[error("a window of {0}: it is a power of two, at most {WINDOW_MAX}")]
    Window(u32),
    /// A port that there is not, or two of the switch's workers at one.
    #[error("port {0} does not exist or has two of the switch's workers")]
    Port(u16),
    /// Two workers of one host.
    #[error("two workers have the host {0}")]
    Node(u32),
}

impl Switch {
    /// Number of its ports.
    pub fn ports(&self) -> u16 {
        self.neighbours.len() as u16
    }

    /// Its own workers, by rank: bit i of a task's members is the i-th of them.
    pub fn members(&self) -> Vec<Worker> {
        self.workers.iter().copied().filter(|worker| worker.here).collect()
    }

    /// The port that leads to a host.
    pub fn way(&self, node: NodeId) -> Option<u16> {
        self.workers.iter().find(|worker| worker.node == node.0).map(|worker| worker.port)
    }

    /// Whether a switch can be so.
    ///
    /// # Errors
    /// What does not fit.
    pub fn check(&self) -> Result<(), Refused> {
        let members = self.members();
        if !(1..=MEMBERS_MAX).contains(&members.len()) {
            return Err(Refused::Members(members.len()));
        }
        if !self.window.is_power_of_two() || self.window > WINDOW_MAX {
            return Err(Refused::Window(self.window));
        }
        for (number, worker) in self.workers.iter().enumerate() {
            let is_shared = |other: &Worker| worker.here && other.here && other.port == worker.port;
            if worker.port >= self.ports() || self.workers[..number].iter().any(is_shared) {
                return Err(Refused::Port(worker.port));
            }
            if self.workers[..number].iter().any(|other| other.node == worker.node) {
                return Err(Refused::Node(worker.node));
            }
        }
        Ok(())
    }

    /// The state machine.
    pub fn oracle(&self) -> RinaSwitch<[u8]> {
        let members = self.workers.iter().map(|worker| RinaMember { node: NodeId(worker.node), rack: u32::from(!worker.here) }).collect();
        let ranks = |here: bool| (0..).zip(&self.workers).filter(|(_, worker)| worker.here == here).map(|(rank, _)| Rank(rank)).collect();
        let rack = |number: u32| RinaRack { switch: NodeId(10_000 + number), aggregates: number == 0, ranks: ranks(number == 0) };
        let order = (0..self.workers.len() as u32).map(Rank).collect();
        RinaSwitch::new(RinaSwitchConfig {
            job: JobId(0),
            op: ElementOp::I32_SUM.into(),
            block_bytes: 4 * ELEMENTS as u32,
            window: self.window,
            layout: Arc::new(RinaLayout::new(members, (0..2).map(rack).collect(), order)),
            members: self.members().iter().map(|worker| (PortId(worker.port), NodeId(worker.node))).collect(),
            flow: FlowLabel(0),
        })
    }

    /// Entries and groups: each set of workers has a group, and one that has the packet by again for the next group.
    ///
    /// # Errors
    /// What does not fit.
    pub fn commands(&self) -> Result<Commands, Refused> {
        self.check()?;
        let members = self.members();
        let mut commands = Commands::new();
        commands.default_action("own", "set_own", &[&((1u64 << members.len()) - 1), &members.len(), &(self.window - 1)]);
        for (number, member) in members.iter().enumerate() {
            commands.add("member", "set_member", &[&member.port], &[&(1u64 << number), &number, &member.node]);
        }
        for (rank, worker) in self.workers.iter().enumerate() {
            commands.add("rank", "set_next", &[&rank], &[&worker.node]);
            commands.add("way", "to_port", &[&worker.node], &[&worker.port]);
        }
        for (port, mac) in self.neighbours.iter().enumerate() {
            commands.add("neighbour", "set_neighbour", &[&port], &[&self.mac, mac]);
        }
        for number in 1..2u64 << members.len() {
            let is_in = |(bit, _): &(usize, &Worker)| number >> bit & 1 == 1;
            let ports: Vec<u16> = members.iter().enumerate().filter(is_in).map(|(_, member)| member.port).collect();
            commands.group(number, ports, number >> members.len() == 1);
        }
        Ok(commands)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switch() -> Switch {
        let worker = |node, port, here| Worker { node, port, here };
        let workers = vec![worker(10, 0, true), worker(20, 2, false), worker(11, 1, true)];
        Switch { mac: Mac(0xfe), neighbours: vec![Mac(1), Mac(2), Mac(3)], window: 4, workers }
    }

    #[test]
    fn every_set_of_workers_has_two_groups() {
        let text = switch().commands().unwrap().text();
        assert!(text.starts_with("table_set_default own set_own 3 2 3\ntable_add member set_member 0 => 1 0 10\n"), "{text}");
        assert!(
            text.contains("table_add member set_member 1 => 2 1 11\ntable_add rank set_next 0 => 10\ntable_add way to_port 10 => 0\n"),
            "{text}"
        );
        assert!(text.contains("table_add rank set_next 1 => 20\ntable_add way to_port 20 => 2\n"), "{text}");
        assert_eq!(text.matches("mc_mgrp_create").count(), 7);
        assert!(
            text.contains("mc_mgrp_create 2\nmc_node_create 0 1\n") && text.contains("mc_mgrp_create 7\nmc_node_create 0 0 1 510\n"),
            "{text}"
        );
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let refused = |change: fn(&mut Switch)| {
            let mut switch = switch();
            change(&mut switch);
            switch.commands().unwrap_err()
        };
        assert_eq!(refused(|switch| switch.workers.clear()), Refused::Members(0));
        assert_eq!(refused(|switch| switch.window = 6), Refused::Window(6));
        assert_eq!(refused(|switch| switch.workers[1].port = 3), Refused::Port(3));
        assert_eq!(refused(|switch| switch.workers[2].port = 0), Refused::Port(0));
        assert_eq!(refused(|switch| switch.workers[1].node = 10), Refused::Node(10));
    }
}
