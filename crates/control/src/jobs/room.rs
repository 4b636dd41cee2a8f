//! What a switch has room for. Whatever is refused for want of room says what is full, how much was asked for and is free, who has it, and
//! what to do.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::config::{ConnectionId, Pass, WAITING_BYTES_MAX, memory_bytes};
use super::job::{Job, Phase};
use super::tenants::is_of;
use super::{Connection, Jobs, Stage};
use crate::message::{JobWish, Join, Refusal};

/// How many of those that have something are named.
const HOLDERS_NAMED: usize = 3;

/// What a job asks for.
pub(super) struct Asked<'a> {
    pub(super) name: &'a str,
    pub(super) wish: &'a JobWish,
    pub(super) world: u32,
    pub(super) window: u32,
    pub(super) payload_bytes: u32,
    /// For whom, where the switch knows tenants.
    pub(super) pass: Option<&'a Pass>,
}

impl Asked<'_> {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes_with(self.window)
    }

    fn bytes_with(&self, window: u32) -> u64 {
        memory_bytes(self.wish, self.world, window, self.payload_bytes)
    }

    /// The largest window with which it would fit into so many bytes, if one does.
    fn fitting_window(&self, free_bytes: u64) -> Option<u32> {
        let powers = (0..self.window.max(2).ilog2()).rev().map(|exponent| 1 << exponent);
        std::iter::once(self.window.next_power_of_two() / 2)
            .chain(powers)
            .find(|&window| window > 0 && self.bytes_with(window) <= free_bytes)
    }
}

impl Jobs {
    /// Whether one more job can be opened now.
    ///
    /// # Errors
    /// In words, why not.
    pub(super) fn room_for(&self, asked: &Asked<'_>) -> Result<(), String> {
        let name = asked.name;
        let opened = self.jobs.values().filter(|job| job.phase != Phase::Waiting && job.by_hosts.is_none());
        let count = opened.clone().count();
        // A tenant is not told what others have.
        let named = opened.clone().filter(|job| is_of(job, asked.pass));
        if count >= self.config.jobs_max {
            return Err(format!(
                "no room for job `{name}`: there are {count} jobs already, as many as this switch allows: {}; wait until a job has ended, or \
                 start a switch with a larger `fanin switch --jobs-max`",
                holders(named)
            ));
        }
        if let Some(pass) = asked.pass {
            self.memory_of_tenant(name, asked.bytes(), pass)?;
        }
        let (needed, used, most) = (asked.bytes(), self.memory_bytes(), self.config.memory_bytes_max);
        let free = most.saturating_sub(used);
        if needed <= free {
            return Ok(());
        }
        let Asked { world, window, payload_bytes, .. } = asked;
        let mut text = format!(
            "no room for job `{name}`: it needs {} of memory, for a window of {window} packets of {payload_bytes} bytes and {world} ranks, and {} \
             of the {} that this switch allows are free",
            mib(needed),
            mib_free(free),
            mib(most)
        );
        if used > 0 {
            text += &format!(": {}", holders(named));
        }
        let mut advice = vec!["start a switch with a larger `fanin switch --memory-max`".to_owned()];
        if let Some(window) = asked.fitting_window(free) {
            advice.push(format!("take a window of at most {window} packets (FANIN_WINDOW)"));
        }
        if needed <= most {
            advice.push("wait until a job has ended".into());
        }
        Err(format!("{text}; {}", advice.join(", or ")))
    }

    /// Whether one more job may wait for ranks, begun from `peer`.
    ///
    /// # Errors
    /// In words, why not.
    pub(super) fn room_to_wait(&self, join: &Join, peer: IpAddr) -> Result<(), String> {
        let most = self.config.waiting_max();
        let waiting = self.jobs.values().filter(|job| job.phase == Phase::Waiting);
        let (all, own) = (waiting.clone().count(), waiting.clone().filter(|job| job.opener == peer).count());
        let advice = "start all ranks of a job before the next job, or start a switch with a larger `fanin switch --jobs-max`";
        if own >= most / 2 {
            return Err(format!(
                "no room for job `{}`: {own} jobs that were begun from {peer} wait for ranks already, as many as this switch allows an address: \
                 {advice}",
                join.job
            ));
        }
        if all >= most {
            let mut by_peer = BTreeMap::new();
            waiting.for_each(|job| *by_peer.entry(job.opener).or_insert(0usize) += 1);
            return Err(format!(
                "no room for job `{}`: {all} jobs wait for ranks already, as many as this switch allows ({}): {advice}",
                join.job,
                most_of(by_peer)
            ));
        }
        self.room_for_bulk(join, peer)
    }

    /// Whether a request may be kept until all ranks are there.
    ///
    /// # Errors
    /// In words, why not.
    pub(super) fn room_for_bulk(&self, join: &Join, peer: IpAddr) -> Result<(), String> {
        let (mut all, mut own) = (0, 0);
        for member in self.jobs.values().filter(|job| job.phase == Phase::Waiting).flat_map(|job| job.members.values()) {
            let bytes = member.join.bulk_bytes();
            all += bytes;
            own += if member.peer.ip() == peer { bytes } else { 0 };
        }
        let needed = join.bulk_bytes();
        if own + needed <= WAITING_BYTES_MAX / 2 && all + needed <= WAITING_BYTES_MAX {
            return Ok(());
        }
        Err(format!(
            "no room for rank {} of job `{}`: requests of ranks whose jobs are not complete have {} of {}, {} of them from {peer}: wait until these jobs \
             have begun",
            join.rank,
            join.job,
            mib(all),
            mib(WAITING_BYTES_MAX),
            mib(own)
        ))
    }

    /// Closes a connection that is of no job, to make room for another one: the oldest of the address that has most of these. Says whether
    /// there was one besides `but`.
    pub(super) fn make_room(&mut self, but: ConnectionId) -> bool {
        let idle = |(id, connection): &(&ConnectionId, &Connection)| **id != but && !matches!(connection.stage, Stage::Member { .. });
        let mut by_peer: BTreeMap<IpAddr, (usize, ConnectionId)> = BTreeMap::new();
        for (id, connection) in self.connections.iter().filter(idle) {
            // Numbers ascend, so the first is the oldest.
            by_peer.entry(connection.peer.ip()).or_insert((0, *id)).0 += 1;
        }
        let Some((count, oldest)) = by_peer.into_values().max_by_key(|(count, _)| *count) else { return false };
        let text = format!("closed to make room for others: it has joined no job yet, as {count} connections from the same address");
        self.refuse(oldest, Refusal::TooSlow, text);
        true
    }

    /// The kernel has no descriptor for another connection: closes one that is of no job, if there is one.
    pub fn on_exhausted(&mut self) -> bool {
        self.make_room(ConnectionId(u64::MAX))
    }

    /// Why there is no room for connection `another`.
    pub(super) fn connections_text(&self, another: ConnectionId) -> String {
        let mut by_peer = BTreeMap::new();
        for (_, connection) in self.connections.iter().filter(|(id, _)| **id != another) {
            *by_peer.entry(connection.peer.ip()).or_insert(0usize) += 1;
        }
        format!(
            "there are {} control connections already, as many as this switch allows ({}): wait until a job has ended, or start a switch with a \
             larger `fanin switch --connections-max`",
            self.config.connections_max,
            most_of(by_peer)
        )
    }
}

/// `12 from 10.0.0.7, 3 from 10.0.0.9 and 2 from elsewhere`.
fn most_of(by_peer: BTreeMap<IpAddr, usize>) -> String {
    let mut counts: Vec<(IpAddr, usize)> = by_peer.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let rest: usize = counts.iter().skip(HOLDERS_NAMED).map(|(_, count)| count).sum();
    let named: Vec<String> = counts.iter().take(HOLDERS_NAMED).map(|(peer, count)| format!("{count} from {peer}")).collect();
    let rest = if rest > 0 { format!(" and {rest} from elsewhere") } else { String::new() };
    format!("{}{rest}", named.join(", "))
}

/// Which jobs have most.
fn holders<'a>(jobs: impl Iterator<Item = &'a Job>) -> String {
    let mut jobs: Vec<&Job> = jobs.collect();
    jobs.sort_by_key(|job| std::cmp::Reverse(job.memory_bytes));
    let one = |job: &&Job| format!("job `{}` ({} ranks, from {}) has {}", job.name, job.world, job.peer(), mib(job.memory_bytes));
    let named: Vec<String> = jobs.iter().take(HOLDERS_NAMED).map(one).collect();
    if named.is_empty() {
        return "jobs of other tenants have it".into();
    }
    let rest = jobs.get(HOLDERS_NAMED..).unwrap_or_default();
    let bytes = rest.iter().map(|job| job.memory_bytes).sum();
    let rest = if rest.is_empty() { String::new() } else { format!(" and {} more have {}", rest.len(), mib(bytes)) };
    format!("{}{rest}", named.join(", "))
}

/// What is needed is rounded up, and what is free down: then the numbers tell the same story as the comparison.
fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}

fn mib_free(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}
