//! Aggregators, members and servers of ATP's and A2TP's jobs at one switch.

use fanin_core::{Address, Duration, ElementOp, FlowLabel, JobId, NodeId, PortId, Rank};
use fanin_protocols::atp::AtpSwitch;
use fanin_protocols::shared::aggregation::{JobAtSwitch, ServerAtSwitch, SwitchConfig};
use serde::{Deserialize, Serialize};

use super::Commands;
use crate::formats::atp::{ELEMENTS, WORKERS_MAX};
use crate::frames::Mac;

/// A job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Its number in packets, not zero.
    pub app: u16,
    /// The ports of its workers, by rank.
    pub members: Vec<u16>,
    /// The port of its server.
    pub server: u16,
}

/// Where a host is that packets of other kinds may be for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Its address.
    pub mac: Mac,
    /// Its port.
    pub port: u16,
}

/// A switch and its jobs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Switch {
    /// Number of its ports.
    pub ports: u16,
    /// Aggregators, which all jobs share.
    pub aggregators: u16,
    /// An aggregator that nothing was heard of for so long is anybody's (`a2tp 9`, P4), in microseconds.
    pub reclaim_us: u32,
    /// Its jobs.
    pub jobs: Vec<Job>,
    /// Its hosts.
    pub hosts: Vec<Host>,
}

/// Why a switch cannot be configured so.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// A job's number.
    #[error("a job has the number {0}: numbers are not zero and differ")]
    App(u16),
    /// The number of workers.
    #[error("job {app} has {workers} workers: there are 1 to {WORKERS_MAX}, a bit each in a word but for one")]
    Workers {
        /// The job.
        app: u16,
        /// Workers.
        workers: usize,
    },
    /// A port that there is not, or that has two of the job's nodes.
    #[error("job {app}: port {port} does not exist or has two of its nodes")]
    Port {
        /// The job.
        app: u16,
        /// The port.
        port: u16,
    },
    /// The number of aggregators.
    #[error("{0} aggregators: there are 1 to 32768, so that the indices of the second half have room")]
    Aggregators(u16),
}

/// The switch itself.
const NODE: NodeId = NodeId(1_000);

impl Job {
    /// Its server, as the state machine names it.
    pub fn server(&self) -> Address {
        Address::worker(NodeId(2_000 + u32::from(self.server)))
    }

    fn check(&self, ports: u16) -> Result<(), Refused> {
        let app = self.app;
        if !(1..=WORKERS_MAX).contains(&self.members.len()) {
            return Err(Refused::Workers { app, workers: self.members.len() });
        }
        let all: Vec<u16> = self.members.iter().copied().chain([self.server]).collect();
        for (number, port) in all.iter().enumerate() {
            if *port >= ports || all[..number].contains(port) {
                return Err(Refused::Port { app, port: *port });
            }
        }
        Ok(())
    }
}

impl Switch {
    /// Whether the switch can have these jobs.
    ///
    /// # Errors
    /// What does not fit.
    pub fn check(&self) -> Result<(), Refused> {
        if !(1..=1 << 15).contains(&self.aggregators) {
            return Err(Refused::Aggregators(self.aggregators));
        }
        for (number, job) in self.jobs.iter().enumerate() {
            job.check(self.ports)?;
            if job.app == 0 || self.jobs[..number].iter().any(|other| other.app == job.app) {
                return Err(Refused::App(job.app));
            }
        }
        Ok(())
    }

    /// The state machine.
    pub fn oracle(&self) -> AtpSwitch<[u8]> {
        let block_bytes = 4 * ELEMENTS as u32;
        let server = |job: &Job| ServerAtSwitch {
            number: 0,
            workers: job.members.iter().enumerate().map(|(rank, port)| (PortId(*port), Rank(rank as u32))).collect(),
            elsewhere: Vec::new(),
            server: job.server(),
            server_switch: NODE,
            above: job.server(),
        };
        let job = |job: &Job| JobAtSwitch {
            job: JobId(job.app),
            op: ElementOp::I32_SUM.into(),
            block_bytes,
            size: job.members.len() as u32,
            flow: FlowLabel(0),
            shares_collisions: false,
            servers: vec![server(job)],
        };
        AtpSwitch::new(SwitchConfig {
            node: NODE,
            aggregators: self.aggregators.into(),
            reclaim_after: Duration::from_us(self.reclaim_us.into()),
            largest: ElementOp::I32_SUM.into(),
            block_bytes,
            jobs: self.jobs.iter().map(job).collect(),
        })
    }

    /// Entries and groups.
    ///
    /// # Errors
    /// What does not fit.
    pub fn commands(&self) -> Result<Commands, Refused> {
        self.check()?;
        let mut commands = Commands::new();
        for host in &self.hosts {
            commands.add("forward", "to_port", &[&host.mac], &[&host.port]);
        }
        for (number, job) in self.jobs.iter().enumerate() {
            let group = 1 + number as u64;
            commands.group(group, job.members.iter().copied(), false);
            commands.add("server", "from_server", &[&job.server, &job.app], &[&group]);
            let (workers, all) = (job.members.len(), u32::MAX >> (u32::BITS - job.members.len() as u32));
            for (rank, port) in job.members.iter().enumerate() {
                commands.add("member", "contribute", &[port, &job.app, &workers, &(1u32 << rank)], &[&all, &job.server, &self.reclaim_us]);
            }
        }
        Ok(commands)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switch() -> Switch {
        let job = |app, members: &[u16], server| Job { app, members: members.to_vec(), server };
        let hosts = vec![Host { mac: Mac(0x0200_0000_0007), port: 3 }];
        Switch { ports: 4, aggregators: 16, reclaim_us: 10_000, jobs: vec![job(1, &[0, 2], 3), job(9, &[2, 1, 0], 3)], hosts }
    }

    #[test]
    fn jobs_have_entries_and_groups_of_their_own() {
        let expected = "table_add forward to_port 02:00:00:00:00:07 => 3\n\
                        mc_mgrp_create 1\nmc_node_create 0 0 2\nmc_node_associate 1 0\n\
                        table_add server from_server 3 1 => 1\n\
                        table_add member contribute 0 1 2 1 => 3 3 10000\n\
                        table_add member contribute 2 1 2 2 => 3 3 10000\n\
                        mc_mgrp_create 2\nmc_node_create 0 2 1 0\nmc_node_associate 2 1\n\
                        table_add server from_server 3 9 => 2\n\
                        table_add member contribute 2 9 3 1 => 7 3 10000\n\
                        table_add member contribute 1 9 3 2 => 7 3 10000\n\
                        table_add member contribute 0 9 3 4 => 7 3 10000\n";
        assert_eq!(switch().commands().unwrap().text(), expected);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let refused = |change: fn(&mut Switch)| {
            let mut switch = switch();
            change(&mut switch);
            switch.commands().unwrap_err()
        };
        assert_eq!(refused(|switch| switch.jobs[1].app = 1), Refused::App(1));
        assert_eq!(refused(|switch| switch.jobs[0].app = 0), Refused::App(0));
        assert_eq!(refused(|switch| switch.jobs[0].members.clear()), Refused::Workers { app: 1, workers: 0 });
        assert_eq!(refused(|switch| switch.jobs[0].members = (0..32).collect()), Refused::Workers { app: 1, workers: 32 });
        assert_eq!(refused(|switch| switch.jobs[0].server = 2), Refused::Port { app: 1, port: 2 });
        assert_eq!(refused(|switch| switch.jobs[1].members[1] = 4), Refused::Port { app: 9, port: 4 });
        assert_eq!(refused(|switch| switch.aggregators = 40_000), Refused::Aggregators(40_000));
    }
}
