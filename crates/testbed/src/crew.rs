//! All processes of a fabric, seen from the testbed.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fanin_core::NodeId;
use fanin_fabric::Fabric;

use super::host::messages::{Event, Order};
use super::place::Place;
use super::process::{Process, Said};
use super::workload::{Action, Faults};

/// How long all processes together may take to end.
const END_LIMIT: Duration = Duration::from_secs(3);

/// What a process has done.
#[derive(Debug)]
pub enum Heard {
    /// A host says something.
    Event(NodeId, Box<Event>),
    /// A switch takes packets and calls.
    SwitchUp(NodeId),
    /// A process has ended that nobody has killed.
    Lost(NodeId),
}

/// A node's process, where it has one.
#[derive(Default)]
struct Member {
    process: Option<Process>,
    starts: u32,
}

/// All processes of a fabric. They end with this value.
pub struct Crew<'a> {
    place: &'a Place,
    fabric: &'a Fabric,
    /// The program, of which they are processes.
    program: &'a Path,
    /// Where the fabric's file and the logs are.
    folder: &'a Path,
    faults: Faults,
    seed: u64,
    members: Vec<Member>,
    tell: Sender<Said>,
    heard: Receiver<Said>,
}

/// The fabric's file, in the run's folder.
pub const FABRIC_FILE: &str = "fabric.toml";

impl<'a> Crew<'a> {
    /// No process runs yet. `folder` holds [`FABRIC_FILE`]; `program` is the `fanin` program.
    pub fn new(place: &'a Place, fabric: &'a Fabric, program: &'a Path, folder: &'a Path, faults: Faults, seed: u64) -> Self {
        let (tell, heard) = channel();
        let members = fabric.nodes().iter().map(|_| Member::default()).collect();
        Crew { place, fabric, program, folder, faults, seed, members, tell, heard }
    }

    /// Starts a node's process.
    ///
    /// # Errors
    /// Where it cannot be started.
    pub fn start(&mut self, node: NodeId) -> Result<()> {
        let name = self.fabric.name(node);
        let member = &mut self.members[node.index()];
        member.starts += 1;
        let mut command = self.place.command(node, self.program);
        command.args(if self.fabric.map.is_host(node) { ["fabric-worker"].as_slice() } else { &["switch", "--until-stdin-ends"] });
        command.arg("--fabric").arg(self.folder.join(FABRIC_FILE)).args(["--name", name]);
        let faults = self.faults;
        // Each start draws other faults.
        let seed = fanin_core::hash::derive(self.seed, u64::from(node.0) << 32 | u64::from(member.starts));
        for (flag, value) in [
            ("--loss", faults.loss.0),
            ("--duplicate", faults.duplication.0),
            ("--reorder", faults.reordering.0),
            ("--corrupt", faults.corruption.0),
        ] {
            if value > 0.0 {
                command.arg(flag).arg(value.to_string());
            }
        }
        command.arg("--fault-seed").arg(seed.to_string());
        let log = self.folder.join(format!("{name}.log"));
        let process = Process::start(command, node, member.starts, &log, &self.tell).with_context(|| name.to_string())?;
        member.process = Some(process);
        Ok(())
    }

    /// Whether a node has a process.
    pub fn is_alive(&self, node: NodeId) -> bool {
        self.members[node.index()].process.is_some()
    }

    /// Gives a host an order, if it is alive.
    ///
    /// # Errors
    /// Where the order cannot be written down.
    pub fn order(&mut self, node: NodeId, order: &Order) -> Result<()> {
        if let Some(process) = &mut self.members[node.index()].process {
            process.say(&serde_json::to_string(order)?);
        }
        Ok(())
    }

    /// Does to a process what an event says; nothing, where it has none. Restarting comes with [`Crew::start`].
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn strike(&mut self, node: NodeId, action: Action) -> Result<()> {
        let member = &mut self.members[node.index()];
        let Some(process) = &mut member.process else { return Ok(()) };
        match action {
            Action::Kill | Action::Restart => {
                process.kill()?;
                member.process = None;
                Ok(())
            }
            Action::Pause => process.pause(),
            Action::Resume => process.resume(),
        }
    }

    /// Waits so long for whatever comes next.
    ///
    /// # Errors
    /// Where a process says what nobody understands.
    pub fn hear(&mut self, limit: Duration) -> Result<Option<Heard>> {
        match self.heard.recv_timeout(limit) {
            Ok(said) => self.understand(said),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => bail!("nobody can be heard any more"),
        }
    }

    fn understand(&mut self, Said { node, start, line }: Said) -> Result<Option<Heard>> {
        let member = &self.members[node.index()];
        // The last words of somebody who was killed.
        if member.starts != start || member.process.is_none() {
            return Ok(None);
        }
        let name = self.fabric.name(node);
        Ok(match line {
            None => Some(Heard::Lost(node)),
            Some(_) if !self.fabric.map.is_host(node) => Some(Heard::SwitchUp(node)),
            Some(line) => {
                let event = serde_json::from_str(&line).with_context(|| format!("{name} says what nobody understands: {line}"))?;
                Some(Heard::Event(node, Box::new(event)))
            }
        })
    }

    /// How a process has ended that nobody has killed; it is gone then.
    pub fn bury(&mut self, node: NodeId) -> String {
        let name = self.fabric.name(node);
        match self.members[node.index()].process.take() {
            Some(mut process) => format!("{name} {}", process.last_words()),
            None => format!("{name} was killed"),
        }
    }

    /// A host has said all that it had to say, and ends.
    pub fn release(&mut self, node: NodeId) {
        if let Some(mut process) = self.members[node.index()].process.take() {
            process.dismiss();
            process.finish(Instant::now() + END_LIMIT);
        }
    }

    /// Ends all processes: politely, and by force if that does not help.
    pub fn dismiss(&mut self) {
        let mut all: Vec<Process> = self.members.iter_mut().filter_map(|member| member.process.take()).collect();
        all.iter_mut().for_each(Process::dismiss);
        let deadline = Instant::now() + END_LIMIT;
        for process in &mut all {
            if process.finish(deadline).is_none() {
                tracing::warn!(process = process.id(), "did not end by itself");
            }
        }
    }
}

impl Drop for Crew<'_> {
    fn drop(&mut self) {
        self.dismiss();
    }
}
