//! When ranks are asked what they are doing, and what is done with the answers.

use std::collections::BTreeMap;

use super::config::{Action, Note};
use super::diagnosis::{Evidence, Verdict, judge};
use super::job::{Describing, Job, Phase, Presence, Stall};
use super::text::span;
use super::{Jobs, TICK_MS};
use crate::message::{FailureKind, SwitchMessage};

/// The shortest and the longest time between two diagnoses of one job, in ms. The time grows with how long nothing has moved.
const DIAGNOSIS_INTERVAL_MS: (u64, u64) = (1_000, 30_000);
/// For how long nothing moves, in ms, before hosts of a fabric go on by themselves: longer than a restart of a switch takes.
const HOSTS_AFTER_MS: u64 = 3_000;
/// The same where a switch has not answered for [`GONE_MS`].
const HOSTS_AFTER_GONE_MS: u64 = 2_000;
/// How long a switch of the fabric does not answer before its manager asks by itself whether jobs move.
const GONE_MS: u64 = 2_000;

impl Jobs {
    /// The data plane has seen packets that do not fit the operation: ranks may be in different calls.
    pub fn on_mismatch(&mut self, now_ms: u64, job_id: u16) {
        let Some(job) = self.jobs.get(&job_id) else { return };
        if job.last_diagnosis_ms.is_none_or(|last| last + DIAGNOSIS_INTERVAL_MS.0 <= now_ms) {
            self.describe(now_ms, job_id, false);
        }
    }

    /// A switch of the fabric answers its manager, or does not any more; part of what ranks are told when nothing moves.
    pub fn on_fabric_switch(&mut self, now_ms: u64, name: &str, answers: bool) {
        if answers {
            self.gone_switches.remove(name);
        } else {
            self.gone_switches.entry(name.to_owned()).or_insert(now_ms);
        }
    }

    /// A switch of the fabric does not take a running job any more, for this reason.
    pub fn on_fabric_refusal(&mut self, job_id: u16, text: String) {
        self.fail(job_id, FailureKind::Switch, text, None);
    }

    /// Whether a switch of the fabric has not answered for so long that jobs may not move.
    fn has_lost_switches(&self, now_ms: u64) -> bool {
        self.gone_switches.values().any(|since_ms| since_ms + GONE_MS <= now_ms)
    }

    /// Which switches do not answer, to be added to what ranks are told.
    fn gone_switches(&self) -> String {
        let names: Vec<&str> = self.gone_switches.keys().map(String::as_str).collect();
        if names.is_empty() { String::new() } else { format!("; switches that do not answer: {}", names.join(", ")) }
    }

    /// How many packets have come from each rank so far, by rank; part of what ranks are told when nothing moves.
    pub fn on_traffic(&mut self, job_id: u16, packets: &[u64]) {
        if let Some(job) = self.jobs.get_mut(&job_id) {
            job.packets.clear();
            job.packets.extend_from_slice(packets);
        }
    }

    /// The driver has seen who keeps the others waiting, in words: its users are told.
    pub fn on_awaited(&mut self, job_id: u16, text: String) {
        let Some(job) = self.jobs.get(&job_id).filter(|job| job.phase == Phase::Running) else { return };
        for connection in job.connections() {
            self.actions.push_back(Action::Send(connection, SwitchMessage::Notice { text: text.clone() }));
        }
        self.actions.push_back(Action::Note(Note::Awaited { name: job.name.clone(), peer: job.peer(), text }));
    }

    /// A rank says that nothing has moved for `idle_ms`, and how long it waits in this call where that is not as long as in others.
    pub(super) fn on_stalled(&mut self, now_ms: u64, job_id: u16, idle_ms: u64, patience_ms: Option<u64>) {
        let most_ms = self.config.patience_ms_max;
        let Some(job) = self.jobs.get_mut(&job_id).filter(|job| job.phase == Phase::Running) else { return };
        let patience_ms = patience_ms.map_or(job.patience_ms, |wanted| wanted.clamp(1, most_ms));
        // What a rank says about the past is believed up to a point: it cannot use up the others' patience.
        let since_ms = now_ms.saturating_sub(idle_ms.min(patience_ms / 2));
        let until_ms = since_ms.saturating_add(patience_ms);
        match &mut job.stall {
            // Of ranks that do not wait equally long, the first one to give up ends the waiting.
            Some(stall) if until_ms < stall.until_ms => {
                stall.next_diagnosis_ms = stall.next_diagnosis_ms.min(until_ms);
                (stall.until_ms, stall.patience_ms) = (until_ms, patience_ms);
            }
            Some(_) => {}
            None => job.stall = Some(Stall::new(since_ms, until_ms, patience_ms, now_ms)),
        }
        if let Some(stall) = &mut job.stall {
            stall.is_reported = true;
        }
        let due = job.stall.as_ref().is_none_or(|stall| stall.next_diagnosis_ms <= now_ms);
        match &mut job.describing {
            Some(describing) => {
                describing.stalled = true;
                self.conclude_if_answered(now_ms, job_id);
            }
            None if due => self.describe(now_ms, job_id, true),
            None => {}
        }
    }

    /// Asks all ranks.
    pub(super) fn describe(&mut self, now_ms: u64, job_id: u16, stalled: bool) {
        let until_ms = now_ms + self.config.describe_ms;
        let Some(job) = self.jobs.get_mut(&job_id).filter(|job| job.phase == Phase::Running) else { return };
        if let Some(describing) = &mut job.describing {
            describing.stalled |= stalled;
            return self.conclude_if_answered(now_ms, job_id);
        }
        job.describing = Some(Describing { until_ms, stalled });
        job.last_diagnosis_ms = Some(now_ms);
        for member in job.members.values_mut() {
            member.answered = false;
            if let Presence::Attached(connection) = member.presence {
                self.actions.push_back(Action::Send(connection, SwitchMessage::Describe));
            }
        }
        self.conclude_if_answered(now_ms, job_id);
    }

    pub(super) fn tick_stall(&mut self, now_ms: u64, job_id: u16) {
        let has_lost_switches = self.has_lost_switches(now_ms);
        let Some(job) = self.jobs.get_mut(&job_id) else { return };
        let is_idle = job.describing.is_none() && job.stall.is_none();
        let looked = job.last_diagnosis_ms.is_some_and(|last| last + DIAGNOSIS_INTERVAL_MS.0 > now_ms);
        // Ranks would say so later that nothing moves.
        if has_lost_switches && is_idle && !looked && job.may_go_by_hosts() {
            job.stall = Some(Stall::new(now_ms, now_ms.saturating_add(job.patience_ms), job.patience_ms, now_ms));
        }
        match (&job.describing, &job.stall) {
            (Some(describing), _) if describing.until_ms <= now_ms => self.conclude(now_ms, job_id),
            (None, Some(stall)) if stall.next_diagnosis_ms <= now_ms => self.describe(now_ms, job_id, true),
            _ => {}
        }
    }

    /// Judges as soon as all who can answer have done so.
    pub(super) fn conclude_if_answered(&mut self, now_ms: u64, job_id: u16) {
        let Some(job) = self.jobs.get(&job_id) else { return };
        let pending = job.members.values().any(|member| member.connection().is_some() && !member.answered);
        if job.describing.is_some() && !pending {
            self.conclude(now_ms, job_id);
        }
    }

    fn conclude(&mut self, now_ms: u64, job_id: u16) {
        let (gone, has_lost_switches) = (self.gone_switches(), self.has_lost_switches(now_ms));
        let Some(job) = self.jobs.get_mut(&job_id) else { return };
        let Some(Describing { stalled, .. }) = job.describing.take() else { return };
        let calls = answers(job);
        let moved = job.stall.as_ref().is_some_and(|stall| !stall.calls.is_empty() && stall.calls != calls);
        let is_second = job.stall.as_ref().is_some_and(|stall| !stall.calls.is_empty());
        let is_reported = job.stall.as_ref().is_none_or(|stall| stall.is_reported);
        let may_go_by_hosts = job.may_go_by_hosts();
        let (since_ms, until_ms, patience_ms) = match &job.stall {
            Some(stall) => (stall.since_ms, stall.until_ms, stall.patience_ms),
            None => (now_ms, now_ms.saturating_add(job.patience_ms), job.patience_ms),
        };
        let idle_ms = now_ms.saturating_sub(since_ms);
        let verdict = verdict(job, &calls, idle_ms);
        let is_of_the_path = may_go_by_hosts && all_wait(job, &calls);
        let hosts_after_ms = if has_lost_switches { HOSTS_AFTER_GONE_MS } else { HOSTS_AFTER_MS }.min(patience_ms / 2);
        match verdict {
            Verdict::Hopeless { kind, text, suspect } => self.fail(job_id, kind, text, suspect),
            // Ranks were asked for a mismatch and there is none; the rest is not known to be wrong.
            _ if !stalled => {}
            Verdict::Fine => job.stall = None,
            // Not stuck but slow, or the cause has gone. A rank that still waits will say so.
            Verdict::Waiting { .. } if moved => job.stall = None,
            // Every rank has called what the others wait for: what does not move are packets.
            Verdict::Waiting { text, .. } if is_of_the_path && is_second && idle_ms >= hosts_after_ms => {
                self.fail(job_id, FailureKind::Switch, format!("{text}{gone}"), None);
            }
            Verdict::Waiting { kind, text, suspect } if until_ms <= now_ms => {
                let text = format!("{text}; that is longer than the {} that ranks wait for one another{gone}", span(patience_ms));
                self.fail(job_id, kind, text, suspect);
            }
            Verdict::Waiting { text, .. } => {
                let text = text + &gone;
                let (least, most) = DIAGNOSIS_INTERVAL_MS;
                let pause_ms = if is_of_the_path { least } else { idle_ms.clamp(least, most) };
                let next = (now_ms + pause_ms).min(until_ms).max(now_ms + TICK_MS);
                job.stall = Some(Stall { since_ms, until_ms, patience_ms, calls, next_diagnosis_ms: next, is_reported });
                if !is_reported {
                    return;
                }
                for connection in job.connections() {
                    self.actions.push_back(Action::Send(connection, SwitchMessage::Notice { text: text.clone() }));
                }
                self.actions.push_back(Action::Note(Note::Notice { name: job.name.clone(), peer: job.peer(), text }));
            }
        }
    }
}

/// What ranks have said in this diagnosis.
fn answers(job: &Job) -> BTreeMap<u32, crate::CallDescription> {
    job.members.iter().filter(|(_, member)| member.answered && !member.has_left()).filter_map(|(rank, m)| Some((*rank, m.call?))).collect()
}

/// Whether all ranks are there, and have called the earliest operation that is not over: nobody waits for a user.
fn all_wait(job: &Job, calls: &BTreeMap<u32, crate::CallDescription>) -> bool {
    let earliest = calls.values().map(|call| (call.operation, !call.is_idle())).min();
    calls.len() as u32 == job.world && earliest.is_some_and(|(_, in_call)| in_call)
}

fn verdict(job: &Job, calls: &BTreeMap<u32, crate::CallDescription>, idle_ms: u64) -> Verdict {
    let mut unanswering = Vec::new();
    let mut detached = Vec::new();
    let mut left = BTreeMap::new();
    for (&rank, member) in &job.members {
        match member.presence {
            Presence::Attached(_) if !calls.contains_key(&rank) => unanswering.push(rank),
            Presence::Attached(_) => {}
            Presence::Detached { .. } => detached.push(rank),
            Presence::Left { operation } => drop(left.insert(rank, operation)),
        }
    }
    judge(&Evidence { calls, unanswering: &unanswering, detached: &detached, left: &left, packets: &job.packets, idle_ms })
}
