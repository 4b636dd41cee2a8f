//! All jobs of a switch, as a state machine: connections, messages and times go in, [`Action`]s come out.
//!
//! | module | what it holds |
//! |---|---|
//! | [`config`] | limits; what the driver is asked to do |
//! | [`admission`] | whether a rank may join |
//! | `adoption` | jobs that run in a fabric whose manager was restarted |
//! | `job` | one job and its ranks |
//! | `room` | what a switch has room for, and in whose hands it is |
//! | `life` | from the last rank's arrival to the end: opening, starting, failing, draining |
//! | `tenants` | who may have how much |
//! | `stall` | when to ask ranks what they are doing, and what to do with the answers |
//! | `diagnosis` | what is wrong, from the answers |
//!
//! # States of a job
//!
//! ```text
//!            all joined          socket open            all ready
//!   Waiting ------------> Opening -----------> Starting -----------> Running
//!      |                     |                    |                     |
//!      +---------- failed, or everybody has left: gone -----------------+
//! ```
//!
//! A failure is final, concerns one job and is told to all its ranks in the same words. Everything that waits has a limit, so a job
//! whose ranks go silent comes to an end by [`Jobs::on_tick`] alone.

pub mod admission;
mod adoption;
pub mod config;
mod diagnosis;
mod job;
mod life;
mod room;
mod stall;
mod tenants;
mod text;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};

use fanin_core::hash::derive;
use fanin_trust::Protection;

pub use admission::PAYLOAD_STEP_BYTES;
pub use config::{Action, ConnectionId, JobsConfig, Note, OpenJob, Packets, Pass, WINDOW_MAX, keys_at_switch, memory_bytes};
pub use job::Phase;

use crate::message::{
    ABORT_TEXT_CHARS_MAX, ByHosts, ClientMessage, Failed, FailureKind, Hello, Join, Refusal, Refused, SHARE_KEY_BYTES_MAX,
    SHARE_VALUE_BYTES_MAX, SHARES_MAX, SwitchHello, SwitchMessage,
};
use crate::{ALIVE_INTERVAL_MS, MAGIC, VERSION};
use job::{Job, Member, Presence};
use room::Asked;

/// How often time limits are looked at, in ms. All of them are far longer.
pub const TICK_MS: u64 = 50;

/// How many failed jobs are remembered, so that a rank that comes back late learns why.
const FAILURES_REMEMBERED: usize = 256;

/// How often ranks are told who is missing, in ms, where that does not change.
const WAITING_INTERVAL_MS: u64 = 1_000;

/// A connection and what has been said on it.
#[derive(Clone, Debug)]
struct Connection {
    peer: SocketAddr,
    local: IpAddr,
    opened_ms: u64,
    heard_ms: u64,
    stage: Stage,
    /// Whom it speaks for.
    pass: Option<Pass>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Nothing has been said.
    Fresh,
    /// Greeted.
    Greeted,
    /// A rank of a job.
    Member { job_id: u16, rank: u32 },
}

/// A job as seen from outside.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct JobStatus<'a> {
    /// Its number in packets.
    pub job_id: u16,
    /// Its name.
    pub name: &'a str,
    /// How far it is.
    pub phase: Phase,
    /// How many ranks it has when complete.
    pub world: u32,
    /// How many have joined and not left.
    pub present: u32,
    /// Whether its hosts sum by themselves.
    pub by_hosts: bool,
    /// Whose it is, where the switch knows tenants.
    pub pass: Option<&'a Pass>,
}

/// All jobs of a switch.
#[derive(Clone, Debug)]
pub struct Jobs {
    config: JobsConfig,
    switch_instance: u64,
    /// How many random numbers have been drawn.
    drawn: u64,
    next_job_id: u16,
    connections: BTreeMap<ConnectionId, Connection>,
    jobs: BTreeMap<u16, Job>,
    actions: VecDeque<Action>,
    failures: VecDeque<(u64, Failed)>,
    next_tick_ms: u64,
    next_alive_ms: u64,
    alive_sequence: u64,
    draining_until_ms: Option<u64>,
    /// Switches of the fabric that do not answer their manager, and since when.
    gone_switches: BTreeMap<String, u64>,
    /// Numbers of jobs that switches of the fabric have, by switch: also of those of an earlier manager.
    at_switches: BTreeMap<String, BTreeSet<u16>>,
    /// How often jobs have been sent back to the fabric, by name.
    returns: BTreeMap<String, u32>,
    /// How often tenants have joined of late.
    joins: BTreeMap<String, tenants::Joins>,
}

impl Jobs {
    /// A switch without jobs.
    pub fn new(config: JobsConfig) -> Self {
        let switch_instance = derive(config.seed, 0);
        // Switches of a fabric may still have jobs of an earlier manager, which go on without it.
        let next_job_id = if config.fabric.is_some() { (switch_instance as u16).max(1) } else { 1 };
        Jobs {
            config,
            switch_instance,
            drawn: 0,
            next_job_id,
            connections: BTreeMap::new(),
            jobs: BTreeMap::new(),
            actions: VecDeque::new(),
            failures: VecDeque::new(),
            next_tick_ms: 0,
            next_alive_ms: 0,
            alive_sequence: 0,
            draining_until_ms: None,
            gone_switches: BTreeMap::new(),
            at_switches: BTreeMap::new(),
            returns: BTreeMap::new(),
            joins: BTreeMap::new(),
        }
    }

    /// The next thing to do. Ask until there is none.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When [`Jobs::on_tick`] should be called next, in ms; `None` where there is nothing to wait for.
    pub fn next_tick_ms(&self) -> Option<u64> {
        (!self.connections.is_empty() || !self.jobs.is_empty()).then_some(self.next_tick_ms)
    }

    /// All jobs, by number.
    pub fn status(&self) -> impl Iterator<Item = JobStatus<'_>> + '_ {
        self.jobs.values().map(|job| JobStatus {
            job_id: job.id,
            name: &job.name,
            phase: job.phase,
            world: job.world,
            present: job.members.values().filter(|member| !member.has_left()).count() as u32,
            by_hosts: job.by_hosts.is_some(),
            pass: job.pass.as_ref(),
        })
    }

    /// How many connections there are.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// A connection from `peer` to the local address `local` has been opened.
    pub fn on_connect(&mut self, now_ms: u64, connection: ConnectionId, peer: SocketAddr, local: IpAddr) {
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        let local = local.to_canonical();
        if self.connections.is_empty() && self.jobs.is_empty() {
            self.next_tick_ms = now_ms + TICK_MS;
        }
        self.connections
            .insert(connection, Connection { peer, local, opened_ms: now_ms, heard_ms: now_ms, stage: Stage::Fresh, pass: None });
        if self.connections.len() > self.config.connections_max && !self.make_room(connection) {
            let text = self.connections_text(connection);
            self.refuse(connection, Refusal::Full, text);
        }
    }

    /// A message has come. After an [`Action::Close`] nothing that still comes has any effect.
    pub fn on_message(&mut self, now_ms: u64, connection: ConnectionId, message: ClientMessage) {
        let Some(known) = self.connections.get_mut(&connection) else { return };
        known.heard_ms = now_ms;
        match (known.stage, message) {
            (Stage::Fresh, ClientMessage::Hello(hello)) => self.on_hello(connection, hello),
            (Stage::Fresh, _) => self.refuse(connection, Refusal::Protocol, "the first message must be `hello`".into()),
            (Stage::Greeted, ClientMessage::Join(join)) => self.on_join(now_ms, connection, *join),
            // Who has waited long for the greeting has said meanwhile that it is there.
            (Stage::Greeted, ClientMessage::Alive { .. }) => {}
            (Stage::Greeted, _) => self.refuse(connection, Refusal::Protocol, "the second message must be `join`".into()),
            (Stage::Member { job_id, rank }, message) => self.on_member_message(now_ms, job_id, rank, message),
        }
    }

    /// What has come is not the protocol.
    pub fn on_garbage(&mut self, connection: ConnectionId, error: &crate::FrameError) {
        let Some(known) = self.connections.get(&connection) else { return };
        match known.stage {
            Stage::Member { job_id, rank } => self.misbehave(job_id, rank, &error.to_string()),
            _ => self.refuse(connection, Refusal::Protocol, error.to_string()),
        }
    }

    /// A connection has been closed by the other side, or has broken.
    pub fn on_closed(&mut self, now_ms: u64, connection: ConnectionId) {
        let Some(known) = self.connections.remove(&connection) else { return };
        let Stage::Member { job_id, rank } = known.stage else { return };
        let Some(job) = self.jobs.get_mut(&job_id) else { return };
        if job.phase == Phase::Waiting {
            // It has not been promised to anybody yet.
            self.unjoin(job_id, rank);
        } else if let Some(member) = job.members.get_mut(&rank) {
            member.presence = Presence::Detached { since_ms: now_ms };
            let peer = member.peer.ip();
            self.actions.push_back(Action::Note(Note::Detached { name: job.name.clone(), peer, rank }));
            self.conclude_if_answered(now_ms, job_id);
        }
    }

    /// Time has passed.
    pub fn on_tick(&mut self, now_ms: u64) {
        if now_ms < self.next_tick_ms {
            return;
        }
        self.next_tick_ms = now_ms + TICK_MS;
        self.tick_connections(now_ms);
        for job_id in self.jobs.keys().copied().collect::<Vec<_>>() {
            self.tick_job(now_ms, job_id);
        }
        if self.draining_until_ms.is_some_and(|until| until <= now_ms) {
            self.stop();
        }
    }

    fn tick_connections(&mut self, now_ms: u64) {
        let limit = self.config.handshake_ms;
        let slow = |(_, connection): &(&ConnectionId, &Connection)| {
            !matches!(connection.stage, Stage::Member { .. }) && connection.opened_ms + limit <= now_ms
        };
        for connection in self.connections.iter().filter(slow).map(|(id, _)| *id).collect::<Vec<_>>() {
            let text = format!("no job was joined within {}", text::span(limit));
            self.refuse(connection, Refusal::TooSlow, text);
        }
        if now_ms < self.next_alive_ms {
            return;
        }
        self.next_alive_ms = now_ms + ALIVE_INTERVAL_MS;
        let sequence = self.alive_sequence;
        self.alive_sequence += 1;
        for (id, connection) in &self.connections {
            if matches!(connection.stage, Stage::Member { .. }) {
                self.actions.push_back(Action::Send(*id, SwitchMessage::Alive { sequence }));
            }
        }
    }

    fn on_hello(&mut self, connection: ConnectionId, hello: Hello) {
        let software = self.config.software.clone();
        if hello.magic != MAGIC {
            return self.refuse(connection, Refusal::Protocol, format!("expected `{MAGIC}` and got {:?}", hello.magic));
        }
        let fabric = self.config.fabric.clone();
        let packets = self.config.packets.as_ref().map_or(Protection::None, |packets| packets.protection);
        let (magic, switch_instance, wants_token) = (MAGIC.into(), self.switch_instance, self.config.wants_pass);
        let greeting = SwitchHello { magic, version: VERSION, software, switch_instance, fabric, wants_token, packets, fabric_key: None };
        self.actions.push_back(Action::Send(connection, SwitchMessage::Hello(greeting)));
        if hello.version != VERSION {
            let text = format!(
                "this switch ({}) speaks version {VERSION} of the control protocol and you ({}) version {}: use the same release of Fanin on both sides",
                self.config.software, hello.software, hello.version
            );
            return self.refuse(connection, Refusal::Version, text);
        }
        if let Some(known) = self.connections.get_mut(&connection) {
            known.stage = Stage::Greeted;
        }
    }

    fn on_join(&mut self, now_ms: u64, connection: ConnectionId, join: Join) {
        let Some(Connection { peer, local, pass, .. }) = self.connections.get(&connection).cloned() else { return };
        let pass = pass.as_ref();
        if pass.is_none() && self.config.wants_pass {
            return self.on_no_pass(connection, "this switch asks for a token (FANIN_TOKEN)".into());
        }
        if let Some(Err(text)) = pass.map(|pass| self.count_join(now_ms, &join, pass)) {
            return self.refuse(connection, Refusal::Full, text);
        }
        if let Err(Refused { code, text }) = admission::check(&self.config, &join, peer) {
            return self.refuse(connection, code, text);
        }
        if let Some(attach) = join.attach {
            let admitted = |job: &&Job| {
                job.instance == attach.instance && matches!(job.phase, Phase::Starting | Phase::Running) && tenants::is_of(job, pass)
            };
            if let Some(job_id) = self.jobs.values().find(admitted).map(|job| job.id) {
                return self.attach(connection, job_id, &join, peer, local);
            }
            if let Some((_, failed)) = self.failures.iter().find(|(instance, _)| *instance == attach.instance) {
                let failed = failed.clone();
                self.actions.push_back(Action::Send(connection, SwitchMessage::Failed(failed)));
                return self.close(connection);
            }
            if let Some(adopt) = join.adopt.clone().filter(|_| self.config.fabric.is_some()) {
                return match self.adopt(now_ms, (&join, pass), &adopt, peer, local) {
                    Ok(job_id) => self.attach(connection, job_id, &join, peer, local),
                    Err(text) => self.refuse(connection, Refusal::UnknownInstance, text),
                };
            }
            if join.resume.is_none() {
                let text =
                    format!("there is no job instance {:016x} here: the switch was restarted, or the job has ended", attach.instance);
                return self.refuse(connection, Refusal::UnknownInstance, text);
            }
        }
        if self.draining_until_ms.is_some() {
            return self.refuse(connection, Refusal::Draining, "the switch is about to end and takes no new jobs".into());
        }
        match self.place(now_ms, &join, pass, peer) {
            Ok(job_id) => self.enter(now_ms, connection, job_id, join, peer, local),
            Err(Refused { code, text }) => self.refuse(connection, code, text),
        }
    }

    /// Which job a rank joins; a new one is made where none waits for it.
    fn place(&mut self, now_ms: u64, join: &Join, pass: Option<&Pass>, peer: SocketAddr) -> Result<u16, Refused> {
        let refused = |code, text| Err(Refused { code, text });
        let named = self.jobs.values().filter(|job| job.name == join.job && tenants::is_of(job, pass));
        let (waiting, running): (Vec<&Job>, Vec<&Job>) = named.partition(|job| job.phase == Phase::Waiting);
        if let Some(job) = waiting.first() {
            let job_id = job.id;
            self.room_for_bulk(join, peer.ip()).map_err(|text| Refused { code: Refusal::Full, text })?;
            if let Some(there) = job.members.get(&join.rank) {
                return refused(Refusal::DuplicateRank, duplicate(job, join, there, peer));
            }
            if let Some(text) = admission::disagreement(job, join, peer) {
                // Nobody knows who is right, and waiting longer helps nobody.
                self.fail(job_id, FailureKind::Disagreement, text.clone(), Some(join.rank));
                return refused(Refusal::Disagreement, text);
            }
            let data = Job::data_of(join, peer);
            if let Some((rank, _)) = job.members.iter().find(|(_, member)| Job::data_of(&member.join, member.peer) == data) {
                let text = match &join.node {
                    Some(node) => {
                        format!("ranks {rank} and {} are both host {node:?}: a host of a fabric has one rank of a job", join.rank)
                    }
                    None => format!("rank {} gives the UDP socket {data}, which is that of rank {rank}", join.rank),
                };
                return refused(Refusal::Invalid, text);
            }
            return Ok(job_id);
        }
        let mut replaced = None;
        for job in running {
            match job.members.get(&join.rank) {
                Some(there) if matches!(there.presence, Presence::Attached(_)) => {
                    return refused(Refusal::DuplicateRank, duplicate(job, join, there, peer));
                }
                // The process has been started anew: the old one will not come back, and its job need not wait for it.
                Some(Member { presence: Presence::Detached { .. }, .. }) => replaced = Some(job.id),
                None if !job.somebody_left() => {
                    let (name, world) = (&job.name, job.world);
                    let text = format!("job `{name}` runs with {world} ranks, and rank {} of {} wants to join it", join.rank, join.world);
                    return refused(Refusal::Disagreement, text);
                }
                // It is ending, and this is the next job of that name.
                _ => {}
            }
        }
        if let Some(job_id) = replaced {
            let text = format!("rank {} has been started anew, from {peer}", join.rank);
            self.fail(job_id, FailureKind::RankLost, text, Some(join.rank));
        }
        self.create(now_ms, join, pass, peer)
    }

    fn create(&mut self, now_ms: u64, join: &Join, pass: Option<&Pass>, peer: SocketAddr) -> Result<u16, Refused> {
        let full = |text| Refused { code: Refusal::Full, text };
        pass.map_or(Ok(()), |pass| self.room_of_tenant(join, pass)).map_err(full)?;
        self.room_to_wait(join, peer.ip()).map_err(full)?;
        let payload_bytes = join.wish.payload_bytes.unwrap_or(join.path_datagram_bytes.min(self.config.payload_bytes_max));
        let window = join.wish.window.unwrap_or_else(|| config::window_packets(self.config.window_bytes, payload_bytes));
        // Nothing is set aside yet: whoever brings one rank must not keep others out. But where there is no room now, no rank need wait.
        let asked = Asked { name: &join.job, wish: &join.wish, world: join.world, window, payload_bytes, pass };
        if join.by_hosts.is_never() || (self.config.fabric.is_some() && join.by_hosts == ByHosts::WhereFull) {
            self.room_for(&asked).map_err(full)?;
        }
        let Some(id) = self.free_job_id() else { return Err(full("all job numbers are taken".into())) };
        let job = Job {
            id,
            name: join.job.clone(),
            instance: self.draw(),
            world: join.world,
            patience_ms: join.wish.patience_ms,
            memory_bytes: 0,
            by_hosts: None,
            pass: pass.cloned(),
            packets_of: None,
            opener: peer.ip(),
            phase: Phase::Waiting,
            deadline_ms: now_ms.saturating_add(join.wish.patience_ms),
            members: BTreeMap::new(),
            gone: BTreeMap::new(),
            by_hosts_since_ms: 0,
            plans: None,
            admitted: None,
            packets: Vec::new(),
            describing: None,
            last_diagnosis_ms: None,
            stall: None,
            waiting_told_ms: now_ms,
            waiting_changed: false,
        };
        self.jobs.insert(id, job);
        Ok(id)
    }

    /// Memory of all jobs together, as estimated; jobs that wait for ranks have none yet.
    pub fn memory_bytes(&self) -> u64 {
        self.jobs.values().map(|job| job.memory_bytes).sum()
    }

    /// Job numbers go round, so that late packets of a job meet no other one for long.
    fn free_job_id(&mut self) -> Option<u16> {
        for _ in 0..=u16::MAX {
            let id = self.next_job_id;
            self.next_job_id = self.next_job_id.wrapping_add(1).max(1);
            let at_switches = self.at_switches.values().any(|jobs| jobs.contains(&id));
            if !self.jobs.contains_key(&id) && !at_switches {
                return Some(id);
            }
        }
        None
    }

    fn enter(&mut self, now_ms: u64, connection: ConnectionId, job_id: u16, join: Join, peer: SocketAddr, local: IpAddr) {
        let Some(job) = self.jobs.get_mut(&job_id) else { return };
        let rank = join.rank;
        let presence = Presence::Attached(connection);
        let member = Member { join, peer, local, presence, ready: false, call: None, answered: false, shares: Vec::new() };
        job.members.insert(rank, member);
        job.gone.remove(&rank);
        job.waiting_changed = true;
        let complete = job.is_complete();
        if let Some(known) = self.connections.get_mut(&connection) {
            known.stage = Stage::Member { job_id, rank };
        }
        if complete {
            self.open(now_ms, job_id);
        }
    }

    fn on_member_message(&mut self, now_ms: u64, job_id: u16, rank: u32, message: ClientMessage) {
        let Some(job) = self.jobs.get_mut(&job_id) else { return };
        let early = matches!(job.phase, Phase::Waiting | Phase::Opening);
        let Some(member) = job.members.get_mut(&rank) else { return };
        match message {
            ClientMessage::Alive { .. } => {}
            ClientMessage::Leave { operation } => self.leave(now_ms, job_id, rank, operation),
            ClientMessage::Abort { text } => self.abort(job_id, rank, &text),
            _ if early => self.misbehave(job_id, rank, "a message that makes no sense before the job is admitted"),
            ClientMessage::Ready => {
                member.ready = true;
                self.start_if_ready(job_id);
            }
            ClientMessage::Stalled { call, idle_ms, patience_ms } => {
                (member.call, member.answered) = (Some(call), true);
                self.on_stalled(now_ms, job_id, idle_ms, patience_ms);
            }
            ClientMessage::Call { call } => {
                (member.call, member.answered) = (Some(call), true);
                self.conclude_if_answered(now_ms, job_id);
            }
            ClientMessage::Share { key, value } => self.share(job_id, rank, key, value),
            ClientMessage::Hello(_) => self.misbehave(job_id, rank, "a second greeting"),
            ClientMessage::Join(_) => self.misbehave(job_id, rank, "a second request to join"),
        }
    }

    fn share(&mut self, job_id: u16, rank: u32, key: String, value: String) {
        let Some(job) = self.jobs.get_mut(&job_id) else { return };
        let Some(member) = job.members.get_mut(&rank) else { return };
        if key.len() > SHARE_KEY_BYTES_MAX || value.len() > SHARE_VALUE_BYTES_MAX {
            return self.misbehave(job_id, rank, "a shared value that is too long");
        }
        match member.shares.iter().position(|(known, _)| *known == key) {
            Some(at) => member.shares[at].1.clone_from(&value),
            None if member.shares.len() == SHARES_MAX => return self.misbehave(job_id, rank, "too many shared values"),
            None => member.shares.push((key.clone(), value.clone())),
        }
        for connection in job.connections() {
            let message = SwitchMessage::Shared { rank, key: key.clone(), value: value.clone() };
            self.actions.push_back(Action::Send(connection, message));
        }
    }

    /// A rank ends the job.
    fn abort(&mut self, job_id: u16, rank: u32, text: &str) {
        let text: String = text.chars().filter(|character| !character.is_control()).take(ABORT_TEXT_CHARS_MAX).collect();
        self.fail(job_id, FailureKind::Aborted, format!("rank {rank} has ended the job: {text}"), Some(rank));
    }

    /// A rank has said what makes no sense: its job cannot be relied on any more.
    fn misbehave(&mut self, job_id: u16, rank: u32, what: &str) {
        let text = format!("rank {rank} does not keep to the control protocol: {what}");
        self.fail(job_id, FailureKind::Protocol, text, Some(rank));
    }

    fn refuse(&mut self, connection: ConnectionId, code: Refusal, text: String) {
        if let Some(known) = self.connections.get(&connection) {
            self.actions.push_back(Action::Note(Note::Refused { peer: known.peer, code, text: text.clone() }));
        }
        self.actions.push_back(Action::Send(connection, SwitchMessage::Refused(Refused { code, text })));
        self.close(connection);
    }

    fn close(&mut self, connection: ConnectionId) {
        if self.connections.remove(&connection).is_some() {
            self.actions.push_back(Action::Close(connection));
        }
    }

    /// A random number that is not 0.
    fn draw(&mut self) -> u64 {
        self.drawn += 1;
        derive(self.config.seed, self.drawn).max(1)
    }
}

/// A rank that is there and wants to join once more, in words.
fn duplicate(job: &Job, join: &Join, there: &Member, peer: SocketAddr) -> String {
    format!("rank {} of job `{}` is there already: it has joined from {} and now joins from {peer}", join.rank, job.name, there.peer)
}
