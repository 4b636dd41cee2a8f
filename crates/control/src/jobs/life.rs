//! A job from the arrival of its last rank to its end.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use fanin_systems::System;

use super::config::{Action, ConnectionId, Note, OpenJob, Packets, window_packets};
use super::job::{Job, Member, Phase, Presence};
use super::room::Asked;
use super::text::{ranks, span, verb};
use super::{FAILURES_REMEMBERED, Jobs, Stage, WAITING_INTERVAL_MS, admission};
use crate::message::{Admitted, ByHosts, Failed, FailureKind, Join, Refusal, ResumeState, SwitchMessage};
use crate::{ALIVE_INTERVAL_MS, SILENCE_MS_MIN, resume};

/// How long hosts of a fabric sum by themselves at least before they are sent back, in ms; twice as long after each time.
const RETURN_AFTER_MS: u64 = 1_000;
/// After so many times it does not get longer.
const RETURNS_SLOWER: u32 = 6;
/// How many jobs are remembered that have been sent back, before those that have ended are forgotten.
const RETURNS_REMEMBERED: usize = 1_024;

impl Jobs {
    /// All ranks have joined: works out what the job is and asks the driver to open it.
    pub(super) fn open(&mut self, now_ms: u64, job_id: u16) {
        let (seed, epoch) = (self.draw(), (self.draw() >> 32) as u32);
        let drawn = self.drawn;
        let Some(job) = self.jobs.get_mut(&job_id) else { return };
        let joins: Vec<&Join> = job.members.values().map(|member| &member.join).collect();
        let payload_bytes = match admission::payload_bytes(&self.config, &joins) {
            Ok(bytes) => bytes,
            Err(text) => return self.fail(job_id, FailureKind::Disagreement, text, None),
        };
        let states: Vec<ResumeState> = joins.iter().filter_map(|join| join.resume.clone()).collect();
        let wish = joins[0].wish;
        if !states.is_empty() {
            match resume::merge(&states) {
                Ok(plans) => job.plans = Some(plans),
                Err(error) => {
                    let kind = match error {
                        resume::ResumeError::Mismatch { .. } | resume::ResumeError::Blocks { .. } => FailureKind::Mismatch,
                        _ => FailureKind::ResultLost,
                    };
                    let text = format!("the job cannot go on after the restart of the switch: {error}");
                    return self.fail(job_id, kind, text, Some(error.rank()));
                }
            }
        }
        let window = wish.window.unwrap_or_else(|| window_packets(self.config.window_bytes, payload_bytes));
        // Others may have come to be complete first.
        let (memory_bytes, by_hosts) = match self.memory_or_hosts(job_id, window, payload_bytes) {
            Ok(either) => either,
            Err(text) => return self.fail(job_id, FailureKind::Full, text, None),
        };
        let packets_of = self.jobs.get(&job_id).and_then(|job| self.packets_of(drawn, job.instance));
        let Some(job) = self.jobs.get_mut(&job_id) else { return };
        (job.memory_bytes, job.by_hosts, job.by_hosts_since_ms) = (memory_bytes, by_hosts.clone(), now_ms);
        job.packets_of = packets_of;
        job.phase = Phase::Opening;
        job.deadline_ms = now_ms.saturating_add(job.patience_ms);
        // The lists of every rank were needed for that only.
        job.members.values_mut().for_each(|member| member.join.resume = None);
        // Modules are sent by rank 0 alone; nobody needs them here once the job is open.
        let operators = job.members.get_mut(&0).map(|member| {
            let operators = member.join.operators.clone();
            member.join.operators.iter_mut().for_each(|operator| operator.module = None);
            operators
        });
        let peers = job.peers();
        let data = SocketAddr::new(job.bind(), 0);
        let ranks = peers.iter().map(|peer| peer.address).collect();
        let nodes = peers.iter().filter_map(|peer| peer.node.clone()).collect();
        let (instance, patience_ms, system) = (job.instance, job.patience_ms, wish.system);
        // Each rank has keys of its own.
        let keys = Vec::new();
        let admitted = Admitted { instance, job_id, data, system, payload_bytes, window, patience_ms, seed, epoch, peers, by_hosts, keys };
        let sums = admitted.by_hosts.is_none();
        job.admitted = Some((Box::new(admitted), 0));
        let open = OpenJob {
            job_id,
            name: job.name.clone(),
            instance,
            system,
            op: wish.op,
            fixed_point: wish.fixed_point,
            operators: operators.unwrap_or_default(),
            payload_bytes,
            window,
            patience_ms,
            seed,
            epoch,
            bind: job.bind(),
            ranks,
            nodes,
            packets: job.packets_of.clone(),
            pass: job.pass.clone(),
        };
        if sums {
            self.actions.push_back(Action::OpenJob(Box::new(open)));
        } else {
            self.on_opened(now_ms, job_id, Ok(0));
        }
    }

    /// What keys of a job are derived from, where packets have keys.
    pub(super) fn packets_of(&self, drawn: u64, instance: u64) -> Option<Packets> {
        self.config.packets.as_ref().map(|packets| Packets { secret: packets.of_job(drawn, instance), ..packets.clone() })
    }

    /// What a job takes of the switch's memory or, where it takes nothing, why its hosts sum by themselves.
    fn memory_or_hosts(&self, job_id: u16, window: u32, payload_bytes: u32) -> Result<(u64, Option<String>), String> {
        let Some(job) = self.jobs.get(&job_id) else { return Ok((0, None)) };
        let Some(Member { join, .. }) = job.members.values().next() else { return Ok((0, None)) };
        let asked = Asked { name: &job.name, wish: &join.wish, world: job.world, window, payload_bytes, pass: job.pass.as_ref() };
        let why = match &join.by_hosts {
            ByHosts::Only(why) => why.clone(),
            by_hosts => match self.room_for(&asked) {
                Ok(()) => return Ok((asked.bytes(), None)),
                Err(text) if by_hosts.is_never() || self.config.fabric.is_some() => return Err(text),
                Err(text) => text,
            },
        };
        admission::reach_each_other(job).map_err(|text| format!("{why}; {text}"))?;
        Ok((0, Some(why)))
    }

    /// Whether the switch has room by now for a job whose hosts sum by themselves for want of it.
    fn has_room_now(&self, job: &Job) -> bool {
        let Some((Member { join, .. }, (admitted, _))) = job.members.values().next().zip(job.admitted.as_ref()) else { return false };
        let Admitted { window, payload_bytes, .. } = **admitted;
        let asked = Asked { name: &job.name, wish: &join.wish, world: job.world, window, payload_bytes, pass: job.pass.as_ref() };
        job.by_hosts.is_some() && join.by_hosts == ByHosts::WhereFull && !self.is_draining() && self.room_for(&asked).is_ok()
    }

    /// Jobs whose hosts sum by themselves go on where they were before, from which they have been told to stay away until now.
    pub fn send_back(&mut self) {
        let by_hosts = |job: &&Job| {
            let only = |member: &Member| matches!(member.join.by_hosts, ByHosts::Only(_));
            job.by_hosts.is_some() || (job.phase == Phase::Waiting && job.members.values().all(only))
        };
        for job_id in self.jobs.values().filter(by_hosts).map(|job| job.id).collect::<Vec<_>>() {
            self.send_job_back(job_id);
        }
    }

    /// Jobs of a fabric whose hosts sum by themselves and that may be sent back now if the fabric can take them: their number, their system and
    /// the hosts of their ranks. A job waits twice as long after each time that it was sent back.
    pub fn away(&self, now_ms: u64) -> Vec<(u16, System, Vec<String>)> {
        let waits = |job: &&Job| {
            let pause_ms = RETURN_AFTER_MS << self.returns.get(&job.name).copied().unwrap_or(0).min(RETURNS_SLOWER);
            job.by_hosts.is_some() && job.phase == Phase::Running && job.by_hosts_since_ms + pause_ms <= now_ms
        };
        let told = |job: &Job| {
            let join = &job.members.values().next()?.join;
            let hosts = job.members.values().filter_map(|member| member.join.node.clone()).collect();
            Some((job.id, join.wish.system, hosts))
        };
        self.jobs.values().filter(waits).filter_map(told).collect()
    }

    /// Whether hosts of any job sum by themselves.
    pub fn any_away(&self) -> bool {
        self.jobs.values().any(|job| job.by_hosts.is_some())
    }

    /// The fabric can take this job again.
    pub fn on_fit(&mut self, job_id: u16) {
        let Some(job) = self.jobs.get(&job_id).filter(|job| job.by_hosts.is_some()) else { return };
        let name = job.name.clone();
        if self.returns.len() >= RETURNS_REMEMBERED {
            let known: BTreeSet<String> = self.jobs.values().map(|job| job.name.clone()).collect();
            self.returns.retain(|name, _| known.contains(name));
        }
        *self.returns.entry(name).or_default() += 1;
        self.send_job_back(job_id);
    }

    fn send_job_back(&mut self, job_id: u16) {
        let Some(job) = self.jobs.remove(&job_id) else { return };
        for connection in job.connections() {
            self.actions.push_back(Action::Send(connection, SwitchMessage::Return));
            self.close(connection);
        }
        self.actions.push_back(Action::Note(Note::SentBack { job_id, peer: job.peer(), name: job.name }));
    }

    /// The driver has opened a job's socket at this port, or could not, and says why.
    pub fn on_opened(&mut self, now_ms: u64, job_id: u16, result: Result<u16, String>) {
        let Some(job) = self.jobs.get_mut(&job_id).filter(|job| job.phase == Phase::Opening) else { return };
        let opened = match result {
            Ok(port) => port,
            Err(error) => return self.fail(job_id, FailureKind::Switch, format!("the switch cannot open the job: {error}"), None),
        };
        job.phase = Phase::Starting;
        job.deadline_ms = now_ms.saturating_add(job.patience_ms);
        if let Some((_, port)) = &mut job.admitted {
            *port = opened;
        }
        let (name, peer, world, resumed) = (job.name.clone(), job.peer(), job.world, job.plans.is_some());
        let by_hosts = job.by_hosts.clone();
        let connections: Vec<(u32, ConnectionId)> =
            job.members.iter().filter_map(|(rank, member)| Some((*rank, member.connection()?))).collect();
        self.actions.push_back(Action::Note(Note::Admitted { job_id, name, peer, world, resumed, by_hosts }));
        for (rank, connection) in connections {
            self.admit(job_id, rank, connection);
        }
    }

    /// The driver cannot go on with a job, for this reason.
    pub fn on_broken(&mut self, job_id: u16, reason: &str) {
        self.fail(job_id, FailureKind::Switch, format!("the switch cannot go on with the job: {reason}"), None);
    }

    /// The driver has no room for a job, for this reason.
    pub fn on_full(&mut self, job_id: u16, reason: String) {
        self.fail(job_id, FailureKind::Full, reason, None);
    }

    /// Whether this very job waits to be opened.
    pub fn is_opening(&self, job_id: u16, instance: u64) -> bool {
        self.jobs.get(&job_id).is_some_and(|job| job.instance == instance && job.phase == Phase::Opening)
    }

    /// An operator that the job has brought along was refused, or has failed: in words, and on whose contribution where that is known.
    pub fn on_operator_failed(&mut self, job_id: u16, text: &str, rank: Option<u32>) {
        self.fail(job_id, FailureKind::Operator, text.into(), rank);
    }

    /// Tells a rank what it has been admitted to.
    fn admit(&mut self, job_id: u16, rank: u32, connection: ConnectionId) {
        let Some(job) = self.jobs.get(&job_id) else { return };
        let Some(admitted) = job.members.get(&rank).and_then(|member| job.admitted_at(member)) else { return };
        let mut say = |message| self.actions.push_back(Action::Send(connection, message));
        say(SwitchMessage::Admitted(admitted));
        if let Some(plans) = &job.plans {
            say(SwitchMessage::Resume { plans: plans.clone() });
        }
        for (&rank, member) in &job.members {
            for (key, value) in &member.shares {
                say(SwitchMessage::Shared { rank, key: key.clone(), value: value.clone() });
            }
        }
        if job.phase == Phase::Running {
            say(SwitchMessage::Start);
        }
    }

    /// A rank comes back on a new connection.
    pub(super) fn attach(&mut self, connection: ConnectionId, job_id: u16, join: &Join, peer: SocketAddr, local: IpAddr) {
        let Some(job) = self.jobs.get_mut(&job_id) else { return };
        let (name, instance) = (job.name.clone(), job.instance);
        let Some(member) = job.members.get_mut(&join.rank).filter(|member| !member.has_left() && join.job == name) else {
            let text = format!("rank {} of job `{}` is not part of job instance {instance:016x}", join.rank, join.job);
            return self.refuse(connection, Refusal::UnknownInstance, text);
        };
        let (before, data) = (Job::data_of(&member.join, member.peer), Job::data_of(join, peer));
        if before != data {
            let text = format!("rank {} comes back with the UDP socket {data} and had {before}", join.rank);
            return self.refuse(connection, Refusal::Invalid, text);
        }
        let old = member.connection();
        (member.presence, member.peer, member.local) = (Presence::Attached(connection), peer, local);
        if let Some(known) = self.connections.get_mut(&connection) {
            known.stage = Stage::Member { job_id, rank: join.rank };
        }
        if let Some(old) = old {
            // The rank knows that it is dead, even if nobody has told the switch.
            self.close(old);
        }
        self.actions.push_back(Action::Note(Note::Attached { name, peer: peer.ip(), rank: join.rank }));
        self.admit(job_id, join.rank, connection);
    }

    pub(super) fn start_if_ready(&mut self, job_id: u16) {
        let Some(job) = self.jobs.get_mut(&job_id) else { return };
        if job.phase != Phase::Starting || !job.members.values().all(|member| member.ready) {
            return;
        }
        job.phase = Phase::Running;
        for connection in job.connections() {
            self.actions.push_back(Action::Send(connection, SwitchMessage::Start));
        }
        self.actions.push_back(Action::Note(Note::Started { job_id, name: job.name.clone(), peer: job.peer() }));
    }

    /// A rank needs the job no more.
    pub(super) fn leave(&mut self, now_ms: u64, job_id: u16, rank: u32, operation: u32) {
        let Some(job) = self.jobs.get_mut(&job_id) else { return };
        if job.phase == Phase::Waiting {
            return self.unjoin(job_id, rank);
        }
        let Some(member) = job.members.get_mut(&rank) else { return };
        let connection = member.connection();
        member.presence = Presence::Left { operation };
        let (phase, all_left, stalled) = (job.phase, job.all_left(), job.stall.is_some() || job.describing.is_some());
        if let Some(connection) = connection {
            self.close(connection);
        }
        if all_left {
            self.end(job_id);
        } else if phase != Phase::Running {
            let text = format!("rank {rank} has left the job before it began");
            self.fail(job_id, FailureKind::RankLeft, text, Some(rank));
        } else if stalled {
            self.describe(now_ms, job_id, true);
        }
    }

    /// A rank leaves a job that is not complete; the last one takes the job with it.
    pub(super) fn unjoin(&mut self, job_id: u16, rank: u32) {
        let Some(job) = self.jobs.get_mut(&job_id) else { return };
        let Some(member) = job.members.remove(&rank) else { return };
        job.waiting_changed = true;
        job.gone.insert(rank, member.peer);
        if job.members.is_empty() {
            self.jobs.remove(&job_id);
        }
        if let Some(connection) = member.connection() {
            self.close(connection);
        }
    }

    /// All ranks have left.
    fn end(&mut self, job_id: u16) {
        let Some(job) = self.jobs.remove(&job_id) else { return };
        self.returns.remove(&job.name);
        self.close_node(&job);
        self.actions.push_back(Action::Note(Note::Ended { job_id, peer: job.peer(), name: job.name }));
    }

    /// The driver need not keep what it has opened for a job that is complete; where hosts sum by themselves that is nothing.
    fn close_node(&mut self, job: &Job) {
        if job.by_hosts.is_none() {
            self.actions.push_back(Action::CloseJob { job_id: job.id });
        }
    }

    /// Ends a job for all its ranks, in the same words.
    pub(super) fn fail(&mut self, job_id: u16, kind: FailureKind, text: String, suspect_rank: Option<u32>) {
        let Some(job) = self.jobs.remove(&job_id) else { return };
        let failed = Failed { kind, text: text.clone(), suspect_rank };
        for connection in job.connections() {
            self.actions.push_back(Action::Send(connection, SwitchMessage::Failed(failed.clone())));
            self.close(connection);
        }
        if job.phase != Phase::Waiting {
            self.close_node(&job);
            if self.failures.len() == FAILURES_REMEMBERED {
                self.failures.pop_front();
            }
            self.failures.push_back((job.instance, failed));
        }
        self.actions.push_back(Action::Note(Note::Failed { job_id, peer: job.peer(), name: job.name, kind, text }));
    }

    pub(super) fn tick_job(&mut self, now_ms: u64, job_id: u16) {
        let Some(job) = self.jobs.get(&job_id) else { return };
        if let Some((kind, text, suspect)) = self.overdue(now_ms, job) {
            return self.fail(job_id, kind, text, suspect);
        }
        match job.phase {
            Phase::Waiting => self.tell_who_is_missing(now_ms, job_id),
            Phase::Running if self.has_room_now(job) => self.send_job_back(job_id),
            Phase::Running => self.tick_stall(now_ms, job_id),
            Phase::Opening | Phase::Starting => {}
        }
    }

    /// Whether a job has waited too long, for what, and for whom.
    fn overdue(&self, now_ms: u64, job: &Job) -> Option<(FailureKind, String, Option<u32>)> {
        let patience = span(job.patience_ms);
        let late = job.deadline_ms <= now_ms;
        match job.phase {
            Phase::Waiting if late => {
                let (missing, count) = job.missing();
                let have = if count == 1 { "has" } else { "have" };
                let mut text =
                    format!("{} of job `{}` (world {}) {have} not joined within {patience}", ranks(&missing), job.name, job.world);
                // One that never came is another matter than one that came and died.
                if let Some((rank, from)) = missing.iter().find_map(|rank| job.gone.get_key_value(rank)) {
                    text += &format!(": rank {rank} had joined from {from}, and has gone again");
                    return Some((FailureKind::Incomplete, text, Some(*rank)));
                }
                return Some((FailureKind::Incomplete, text, missing.first().copied()));
            }
            Phase::Opening | Phase::Starting if late => {
                let slow: Vec<u32> = job.members.iter().filter(|(_, member)| !member.ready).map(|(rank, _)| *rank).collect();
                let text = format!("{} {} not ready within {patience}", ranks(&slow), verb(&slow, "was", "were"));
                return Some((FailureKind::Incomplete, text, slow.first().copied()));
            }
            _ => {}
        }
        job.members.iter().find_map(|(&rank, member)| self.missed(now_ms, job, rank, member))
    }

    /// Whether a rank is gone for good.
    fn missed(&self, now_ms: u64, job: &Job, rank: u32, member: &Member) -> Option<(FailureKind, String, Option<u32>)> {
        let (from, silence_ms) = (member.peer, job.patience_ms.max(SILENCE_MS_MIN));
        match member.presence {
            Presence::Detached { since_ms } if since_ms + self.config.grace_ms <= now_ms => {
                let text = format!("rank {rank} ({from}) is gone: its connection was closed without a word");
                Some((FailureKind::RankLost, text, Some(rank)))
            }
            Presence::Attached(connection) if self.connections.get(&connection)?.heard_ms.saturating_add(silence_ms) <= now_ms => {
                let text = format!("nothing has been heard of rank {rank} ({from}) for {}", span(silence_ms));
                Some((FailureKind::RankSilent, text, Some(rank)))
            }
            _ => None,
        }
    }

    fn tell_who_is_missing(&mut self, now_ms: u64, job_id: u16) {
        let Some(job) = self.jobs.get_mut(&job_id) else { return };
        let interval = if job.waiting_changed { ALIVE_INTERVAL_MS } else { WAITING_INTERVAL_MS };
        if job.waiting_told_ms + interval > now_ms {
            return;
        }
        (job.waiting_told_ms, job.waiting_changed) = (now_ms, false);
        let (missing, missing_count) = job.missing();
        for connection in job.connections() {
            let message = SwitchMessage::Waiting { missing: missing.clone(), missing_count };
            self.actions.push_back(Action::Send(connection, message));
        }
    }

    /// Takes no new jobs any more, and ends the running ones when [`JobsConfig::drain_ms`](super::JobsConfig::drain_ms) is over. Jobs
    /// that are not complete fail at once.
    pub fn drain(&mut self, now_ms: u64) {
        if self.draining_until_ms.is_some() {
            return;
        }
        let after_ms = self.config.drain_ms;
        self.draining_until_ms = Some(now_ms + after_ms);
        let (waiting, running): (Vec<_>, Vec<_>) = self.jobs.values().partition(|job| job.phase == Phase::Waiting);
        let waiting: Vec<u16> = waiting.iter().map(|job| job.id).collect();
        for connection in running.iter().flat_map(|job| job.connections()).collect::<Vec<_>>() {
            self.actions.push_back(Action::Send(connection, SwitchMessage::Draining { after_ms }));
        }
        for job_id in waiting {
            self.fail(job_id, FailureKind::Shutdown, "the switch shuts down".into(), None);
        }
    }

    /// Whether [`Jobs::drain`] has been called.
    pub fn is_draining(&self) -> bool {
        self.draining_until_ms.is_some()
    }

    /// Whether the switch drains and nothing is left to wait for.
    pub fn is_drained(&self) -> bool {
        self.is_draining() && self.jobs.is_empty()
    }

    /// Ends all jobs and connections at once.
    pub fn stop(&mut self) {
        self.draining_until_ms.get_or_insert(0);
        for job_id in self.jobs.keys().copied().collect::<Vec<_>>() {
            self.fail(job_id, FailureKind::Shutdown, "the switch shuts down".into(), None);
        }
        for connection in self.connections.keys().copied().collect::<Vec<_>>() {
            self.refuse(connection, Refusal::Draining, "the switch shuts down".into());
        }
    }
}
