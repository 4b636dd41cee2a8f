//! Jobs of several tenants: who may have how much of the switch.

use std::fmt;

use super::config::{ConnectionId, Pass};
use super::job::Job;
use super::{Jobs, Stage};
use crate::message::{Join, Refusal};

/// How long joins are counted together, in ms.
const MINUTE_MS: u64 = 60_000;
/// Tenants whose joins are counted; those of a tenant that is not remembered any more begin anew.
const TENANTS_REMEMBERED: usize = 4_096;

/// Joins of a tenant in the present minute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Joins {
    since_ms: u64,
    count: u32,
}

/// How much a tenant has of something.
struct Share<'a, T> {
    pass: &'a Pass,
    what: &'a str,
    used: T,
    most: T,
}

impl<T: fmt::Display> Share<'_, T> {
    fn text(&self, join: &Join) -> String {
        let Share { pass, what, used, most } = self;
        format!(
            "no room for rank {} of job `{}`: tenant {} has {used} of {most} {what} already; wait until one of its jobs has ended, or ask for a \
             larger quota",
            join.rank, join.job, pass.tenant
        )
    }
}

impl Jobs {
    /// The token of a connection was verified: it speaks for this tenant. To be said before its request to join.
    pub fn on_pass(&mut self, connection: ConnectionId, pass: Pass) {
        if let Some(known) = self.connections.get_mut(&connection) {
            known.pass = Some(pass);
        }
    }

    /// The request to join of a connection has no token that is good for it, for this reason.
    pub fn on_no_pass(&mut self, connection: ConnectionId, text: String) {
        self.refuse(connection, Refusal::Unauthorized, text);
    }

    /// Whether a connection waits to say what it wants to join.
    pub fn awaits_join(&self, connection: ConnectionId) -> bool {
        self.connections.get(&connection).is_some_and(|known| known.stage == Stage::Greeted)
    }

    /// Jobs of a tenant.
    fn of_tenant<'a>(&'a self, pass: &'a Pass) -> impl Iterator<Item = &'a Job> {
        self.jobs.values().filter(|job| job.pass.as_ref().is_some_and(|of| of.tenant == pass.tenant))
    }

    /// Whether a tenant may join one more rank now; counts the request.
    ///
    /// # Errors
    /// In words, why not.
    pub(super) fn count_join(&mut self, now_ms: u64, join: &Join, pass: &Pass) -> Result<(), String> {
        let connections = self.of_tenant(pass).flat_map(|job| job.members.values()).filter(|member| member.connection().is_some()).count();
        let share = Share { pass, what: "control connections", used: connections, most: pass.quota.connections_max };
        if join.attach.is_none() && share.used >= share.most {
            return Err(share.text(join));
        }
        if self.joins.len() >= TENANTS_REMEMBERED {
            self.joins.retain(|_, joins| joins.since_ms + MINUTE_MS > now_ms);
        }
        let joins = self.joins.entry(pass.tenant.clone()).or_insert(Joins { since_ms: now_ms, count: 0 });
        if joins.since_ms + MINUTE_MS <= now_ms {
            *joins = Joins { since_ms: now_ms, count: 0 };
        }
        joins.count = joins.count.saturating_add(1);
        if joins.count <= pass.quota.joins_per_minute {
            return Ok(());
        }
        let left_s = (joins.since_ms + MINUTE_MS).saturating_sub(now_ms).div_ceil(1_000);
        Err(format!(
            "tenant {} has joined {} times in this minute, as often as it may: try again in {left_s} s",
            pass.tenant,
            joins.count - 1
        ))
    }

    /// Whether a tenant may begin one more job.
    ///
    /// # Errors
    /// In words, why not.
    pub(super) fn room_of_tenant(&self, join: &Join, pass: &Pass) -> Result<(), String> {
        let jobs = Share { pass, what: "jobs", used: self.of_tenant(pass).count(), most: pass.quota.jobs_max };
        if jobs.used >= jobs.most {
            return Err(jobs.text(join));
        }
        let used: usize =
            self.of_tenant(pass).filter_map(|job| job.members.values().next()).map(|member| member.join.operators.len()).sum();
        let operators = Share { pass, what: "operators", used, most: pass.quota.operators_max };
        if used + join.operators.len() > operators.most { Err(operators.text(join)) } else { Ok(()) }
    }

    /// Whether a tenant's jobs may take so many bytes more.
    ///
    /// # Errors
    /// In words, why not.
    pub(super) fn memory_of_tenant(&self, name: &str, needed: u64, pass: &Pass) -> Result<(), String> {
        let (used, most) = (self.of_tenant(pass).map(|job| job.memory_bytes).sum::<u64>(), pass.quota.memory_bytes_max);
        if needed <= most.saturating_sub(used) {
            return Ok(());
        }
        Err(format!(
            "no room for job `{name}`: it needs {} MiB of memory, and tenant {} has {} of {} MiB already: wait until one of its jobs has ended, take a \
             smaller window (FANIN_WINDOW), or ask for a larger quota",
            needed.div_ceil(1 << 20),
            pass.tenant,
            used.div_ceil(1 << 20),
            most >> 20
        ))
    }
}

/// Whether a job is this tenant's: names of tenants' jobs have nothing to do with each other.
pub(super) fn is_of(job: &Job, pass: Option<&Pass>) -> bool {
    job.pass.as_ref().map(|pass| &pass.tenant) == pass.map(|pass| &pass.tenant)
}
