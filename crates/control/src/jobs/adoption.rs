//! Jobs that run in a fabric whose manager was restarted: their ranks tell the new one of them, and it looks after them as the one before did.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use super::config::{Action, Note, OpenJob, Pass};
use super::job::{Job, Member, Phase, Presence};
use super::{Jobs, admission};
use crate::message::{Admitted, Join, PeerInfo};

/// How long ranks of a job that one rank has told of may take to come themselves, in ms: they look for their manager every few seconds.
const COMING_MS: u64 = 15_000;

impl Jobs {
    /// A switch of the fabric has these jobs: no other job gets their numbers.
    pub fn on_fabric_jobs(&mut self, switch: &str, jobs: BTreeSet<u16>) {
        self.at_switches.insert(switch.to_owned(), jobs);
    }

    /// Takes over a job of which a rank tells that it runs; gives its number.
    ///
    /// # Errors
    /// In words, where it cannot be that.
    pub(super) fn adopt(
        &mut self,
        now_ms: u64,
        (join, pass): (&Join, Option<&Pass>),
        told: &Admitted,
        peer: SocketAddr,
        local: IpAddr,
    ) -> Result<u16, String> {
        let job_id = told.job_id;
        check(join, told)?;
        if let Some(other) = self.jobs.get(&job_id) {
            return Err(format!("number {job_id} of job `{}` is that of job `{}` now", join.job, other.name));
        }
        if let Some(other) = self.jobs.values().find(|job| job.name == join.job) {
            return Err(format!("there is another job `{}` now, with number {}", join.job, other.id));
        }
        if self.jobs.len() >= self.config.jobs_max {
            return Err(format!("there are {} jobs already, as many as this manager allows", self.jobs.len()));
        }
        let member = |info: &PeerInfo| {
            let its = Join { rank: info.rank, data: info.address, host: info.host.clone(), node: info.node.clone(), ..plain(join) };
            let presence = Presence::Detached { since_ms: now_ms.saturating_add(COMING_MS) };
            let peer = SocketAddr::new(info.address.ip(), 0);
            Member { join: its, peer, local, presence, ready: true, call: None, answered: false, shares: Vec::new() }
        };
        let members: BTreeMap<u32, Member> = told.peers.iter().map(|info| (info.rank, member(info))).collect();
        let packets_of = self.packets_of(u64::from(told.epoch), told.instance);
        let job = Job {
            id: job_id,
            name: join.job.clone(),
            instance: told.instance,
            world: join.world,
            patience_ms: told.patience_ms,
            memory_bytes: 0,
            by_hosts: None,
            pass: pass.cloned(),
            packets_of,
            opener: peer.ip(),
            phase: Phase::Running,
            deadline_ms: u64::MAX,
            members,
            gone: BTreeMap::new(),
            by_hosts_since_ms: 0,
            plans: None,
            admitted: Some((Box::new(told.clone()), 0)),
            packets: Vec::new(),
            describing: None,
            last_diagnosis_ms: None,
            stall: None,
            waiting_told_ms: now_ms,
            waiting_changed: false,
        };
        let open = OpenJob {
            job_id,
            name: join.job.clone(),
            instance: told.instance,
            system: told.system,
            op: join.wish.op,
            fixed_point: join.wish.fixed_point,
            operators: join.operators.clone(),
            payload_bytes: told.payload_bytes,
            window: told.window,
            patience_ms: told.patience_ms,
            seed: told.seed,
            epoch: told.epoch,
            bind: job.bind(),
            ranks: told.peers.iter().map(|info| info.address).collect(),
            nodes: told.peers.iter().filter_map(|info| info.node.clone()).collect(),
            packets: None,
            pass: job.pass.clone(),
        };
        self.jobs.insert(job_id, job);
        let (name, world) = (join.job.clone(), join.world);
        self.actions.push_back(Action::Note(Note::Admitted { job_id, name, peer: peer.ip(), world, resumed: true, by_hosts: None }));
        self.actions.push_back(Action::AdoptJob(Box::new(open)));
        Ok(job_id)
    }
}

/// A request without what belongs to one rank's past.
fn plain(join: &Join) -> Join {
    Join { attach: None, resume: None, adopt: None, ..join.clone() }
}

/// Whether what a rank tells can be a job of this fabric.
fn check(join: &Join, told: &Admitted) -> Result<(), String> {
    let broken = |what: String| Err(format!("rank {} of job `{}` tells of a job that cannot be: {what}", join.rank, join.job));
    if join.attach.is_none_or(|attach| attach.instance != told.instance) {
        return broken(format!("instance {:016x}: expected that of `attach`", told.instance));
    }
    if told.job_id == 0 {
        return broken("job_id = 0: expected 1 to 65535".into());
    }
    if told.by_hosts.is_some() {
        return broken("its hosts sum by themselves: expected a job of the switches".into());
    }
    if !told.peers.iter().map(|info| info.rank).eq(0..join.world) || told.peers.iter().any(|info| info.node.is_none()) {
        return broken(format!("its ranks are not 0 to {}, each with a host of the fabric", join.world - 1));
    }
    if told.payload_bytes == 0 || !told.payload_bytes.is_multiple_of(admission::PAYLOAD_STEP_BYTES) || told.window == 0 {
        return broken(format!("payload_bytes = {}, window = {}", told.payload_bytes, told.window));
    }
    if told.patience_ms == 0 || told.patience_ms != join.wish.patience_ms {
        return broken(format!("patience_ms = {}: expected {}", told.patience_ms, join.wish.patience_ms));
    }
    Ok(())
}
