//! Pools, members and groups of SwitchML's jobs at one switch.

use fanin_core::{Duration, ElementOp, JobId, PortId, Rank, Suspect};
use fanin_protocols::switchml::{SwitchMlChild, SwitchMlSwitch, SwitchMlSwitchConfig};
use serde::{Deserialize, Serialize};

use super::Commands;
use crate::formats::switchml::{CELLS, SLOTS_MAX, WORKERS_MAX, passes, size_of};
use crate::frames::{Endpoint, Mac};

/// A worker of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// The port of the switch that it is at.
    pub port: u16,
    /// Where it is.
    pub at: Endpoint,
}

/// A job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Its number in packets.
    pub job: u8,
    /// Elements of a packet: 32, 64, 128 or 256.
    pub elements: usize,
    /// Slots of its pool, each in two versions.
    pub slots: u16,
    /// Its workers, by rank.
    pub members: Vec<Member>,
}

/// A switch and its jobs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Switch {
    /// Its own address; the port is that of no job.
    pub at: Endpoint,
    /// Number of its ports.
    pub ports: u16,
    /// Its jobs.
    pub jobs: Vec<Job>,
}

/// Why a switch cannot be configured so.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// The length of packets.
    #[error("job {job} has {elements} elements in a packet: there are 32, 64, 128 or 256")]
    Elements {
        /// The job.
        job: u8,
        /// Elements.
        elements: usize,
    },
    /// The number of workers.
    #[error("job {job} has {workers} workers: there are 1 to {WORKERS_MAX}, a bit each in a word")]
    Workers {
        /// The job.
        job: u8,
        /// Workers.
        workers: usize,
    },
    /// A port that there is not, or two workers of a job at one.
    #[error("job {job}: port {port} does not exist or has two of its workers")]
    Port {
        /// The job.
        job: u8,
        /// The port.
        port: u16,
    },
    /// The number of slots.
    #[error("job {job} has {slots} slots: there are 1 to {SLOTS_MAX}")]
    Slots {
        /// The job.
        job: u8,
        /// Slots.
        slots: u16,
    },
    /// Memory of the switch.
    #[error("the jobs' slots take {cells} cells in two versions each: the switch has {CELLS}")]
    Cells {
        /// Needed.
        cells: u32,
    },
    /// Two jobs of one number.
    #[error("two jobs have the number {0}")]
    Twice(u8),
}

impl Job {
    fn check(&self, ports: u16) -> Result<(), Refused> {
        let job = self.job;
        size_of(self.elements).ok_or(Refused::Elements { job, elements: self.elements })?;
        if !(1..=WORKERS_MAX).contains(&self.members.len()) {
            return Err(Refused::Workers { job, workers: self.members.len() });
        }
        for (rank, member) in self.members.iter().enumerate() {
            let port = member.port;
            if port >= ports || self.members[..rank].iter().any(|other| other.port == port) {
                return Err(Refused::Port { job, port });
            }
        }
        if !(1..=SLOTS_MAX).contains(&self.slots) {
            return Err(Refused::Slots { job, slots: self.slots });
        }
        Ok(())
    }

    /// How much later than a version's last round its next one may be, as at the state machine: an operation in block floating point uses
    /// a number of every slot for its exponents, whatever its length.
    pub fn ahead(&self) -> u32 {
        2 * u32::from(self.slots) + 4
    }

    /// The state machine.
    pub fn oracle(&self) -> SwitchMlSwitch<[u8]> {
        let child = |(rank, member): (usize, &Member)| SwitchMlChild {
            port: PortId(member.port),
            who: Suspect::Rank(Rank(rank as u32)),
            carrier: None,
        };
        SwitchMlSwitch::new(SwitchMlSwitchConfig {
            job: JobId(self.job.into()),
            op: ElementOp::I32_SUM.into(),
            workers: self.members.len() as u32,
            block_bytes: 4 * self.elements as u32,
            pool: self.slots.into(),
            parent: None,
            children: self.members.iter().enumerate().map(child).collect(),
            fixed_point: true,
            resend_gap: Duration::ZERO,
        })
    }
}

impl Switch {
    /// Whether the switch can have these jobs.
    ///
    /// # Errors
    /// What does not fit.
    pub fn check(&self) -> Result<(), Refused> {
        for (number, job) in self.jobs.iter().enumerate() {
            job.check(self.ports)?;
            if self.jobs[..number].iter().any(|other| other.job == job.job) {
                return Err(Refused::Twice(job.job));
            }
        }
        let cells = self.jobs.iter().map(|job| 2 * u32::from(job.slots)).sum();
        if cells > CELLS { Err(Refused::Cells { cells }) } else { Ok(()) }
    }

    /// Entries and groups: each job has its own range of cells and its own group (`switchml 9`).
    ///
    /// # Errors
    /// What does not fit.
    pub fn commands(&self) -> Result<Commands, Refused> {
        self.check()?;
        let mut commands = Commands::new();
        let own: Mac = self.at.mac;
        commands.default_action("own_address", "set_own_address", &[&own, &self.at.ip]);
        let mut first = 0u32;
        for (number, job) in self.jobs.iter().enumerate() {
            let group = 1 + number as u64;
            commands.group(group, job.members.iter().map(|member| member.port), false);
            let size = size_of(job.elements).ok_or(Refused::Elements { job: job.job, elements: job.elements })?;
            let all = u32::MAX >> (WORKERS_MAX - job.members.len());
            for (rank, member) in job.members.iter().enumerate() {
                commands.add(
                    "member",
                    "contribute",
                    &[&member.port, &member.at.ip, &self.at.ip, &job.job, &size],
                    &[&(1u32 << rank), &all, &first, &job.slots, &job.ahead(), &(passes(job.elements) - 1), &group],
                );
                commands.add("worker", "to_worker", &[&job.job, &member.port], &[&member.at.mac, &member.at.ip, &member.at.udp]);
            }
            first += 2 * u32::from(job.slots);
        }
        Ok(commands)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn at(number: u8) -> Endpoint {
        Endpoint { mac: Mac(0x0200_0000_0000 | u64::from(number)), ip: Ipv4Addr::new(10, 0, 0, number), udp: 4_000 + u16::from(number) }
    }

    fn switch() -> Switch {
        let job = |job, elements, slots, ports: &[u16]| Job {
            job,
            elements,
            slots,
            members: ports.iter().map(|port| Member { port: *port, at: at(*port as u8 + 1) }).collect(),
        };
        Switch { at: at(254), ports: 4, jobs: vec![job(7, 32, 4, &[0, 1, 3]), job(9, 256, 2, &[1, 2])] }
    }

    #[test]
    fn jobs_have_cells_and_groups_of_their_own() {
        let text = switch().commands().unwrap().text();
        let expected = "table_set_default own_address set_own_address 02:00:00:00:00:fe 10.0.0.254\n\
                        mc_mgrp_create 1\nmc_node_create 0 0 1 3\nmc_node_associate 1 0\n\
                        table_add member contribute 0 10.0.0.1 10.0.0.254 7 0 => 1 7 0 4 12 0 1\n\
                        table_add worker to_worker 7 0 => 02:00:00:00:00:01 10.0.0.1 4001\n\
                        table_add member contribute 1 10.0.0.2 10.0.0.254 7 0 => 2 7 0 4 12 0 1\n\
                        table_add worker to_worker 7 1 => 02:00:00:00:00:02 10.0.0.2 4002\n\
                        table_add member contribute 3 10.0.0.4 10.0.0.254 7 0 => 4 7 0 4 12 0 1\n\
                        table_add worker to_worker 7 3 => 02:00:00:00:00:04 10.0.0.4 4004\n\
                        mc_mgrp_create 2\nmc_node_create 0 1 2\nmc_node_associate 2 1\n\
                        table_add member contribute 1 10.0.0.2 10.0.0.254 9 3 => 1 3 8 2 8 7 2\n\
                        table_add worker to_worker 9 1 => 02:00:00:00:00:02 10.0.0.2 4002\n\
                        table_add member contribute 2 10.0.0.3 10.0.0.254 9 3 => 2 3 8 2 8 7 2\n\
                        table_add worker to_worker 9 2 => 02:00:00:00:00:03 10.0.0.3 4003\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let refused = |change: fn(&mut Switch)| {
            let mut switch = switch();
            change(&mut switch);
            switch.commands().unwrap_err()
        };
        assert_eq!(refused(|switch| switch.jobs[0].elements = 48), Refused::Elements { job: 7, elements: 48 });
        assert_eq!(refused(|switch| switch.jobs[1].members.clear()), Refused::Workers { job: 9, workers: 0 });
        assert_eq!(refused(|switch| switch.jobs[1].members[0].port = 2), Refused::Port { job: 9, port: 2 });
        assert_eq!(refused(|switch| switch.jobs[1].members[0].port = 4), Refused::Port { job: 9, port: 4 });
        assert_eq!(refused(|switch| switch.jobs[1].slots = 0), Refused::Slots { job: 9, slots: 0 });
        assert_eq!(refused(|switch| switch.jobs[1].slots = 8_189), Refused::Cells { cells: 16_386 });
        assert_eq!(refused(|switch| switch.jobs[1].job = 7), Refused::Twice(7));
    }
}
