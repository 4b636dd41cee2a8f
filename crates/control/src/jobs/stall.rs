//! When ranks are asked what they are doing, and what is done with the answers.

use std::collections::BTreeMap;

use super::config::{Action, Note};
use super::diagnosis::{Evidence, Verdict, judge};
use super::job::{Describing, Job, Phase, Presence, Stall};
use super::text::span;
use super::{Jobs, TICK_MS};
use crate::message::SwitchMessage;

/// The shortest and the longest time between two diagnoses of one job, in ms. The time grows with how long nothing has moved.
const DIAGNOSIS_INTERVAL_MS: (u64, u64) = (1_000, 30_000);

impl Jobs {
    /// The data plane has seen packets that do not fit the operation: ranks may be in different calls.
    pub fn on_mismatch(&mut self, now_ms: u64, job_id: u16) {
        let Some(job) = self.jobs.get(&job_id) else { return };
        if job.last_diagnosis_ms.is_none_or(|last| last + DIAGNOSIS_INTERVAL_MS.0 <= now_ms) {
            self.describe(now_ms, job_id, false);
        }
    }

    /// A switch of the fabric answers its manager, or does not any more; part of what ranks are told when nothing moves.
    pub fn on_fabric_switch(&mut self, name: &str, answers: bool) {
        if answers {
            self.gone_switches.remove(name);
        } else {
            self.gone_switches.insert(name.to_owned());
        }
    }

    /// Which switches do not answer, to be added to what ranks are told.
    fn gone_switches(&self) -> String {
        let names: Vec<&str> = self.gone_switches.iter().map(String::as_str).collect();
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
            None => job.stall = Some(Stall { since_ms, until_ms, patience_ms, calls: BTreeMap::new(), next_diagnosis_ms: now_ms }),
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
        let Some(job) = self.jobs.get(&job_id) else { return };
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
        let gone = self.gone_switches();
        let Some(job) = self.jobs.get_mut(&job_id) else { return };
        let Some(Describing { stalled, .. }) = job.describing.take() else { return };
        let calls = answers(job);
        let moved = job.stall.as_ref().is_some_and(|stall| !stall.calls.is_empty() && stall.calls != calls);
        let (since_ms, until_ms, patience_ms) = match &job.stall {
            Some(stall) => (stall.since_ms, stall.until_ms, stall.patience_ms),
            None => (now_ms, now_ms.saturating_add(job.patience_ms), job.patience_ms),
        };
        let idle_ms = now_ms.saturating_sub(since_ms);
        match verdict(job, &calls, idle_ms) {
            Verdict::Hopeless { kind, text, suspect } => self.fail(job_id, kind, text, suspect),
            // Ranks were asked for a mismatch and there is none; the rest is not known to be wrong.
            _ if !stalled => {}
            Verdict::Fine => job.stall = None,
            // Not stuck but slow, or the cause has gone. A rank that still waits will say so.
            Verdict::Waiting { .. } if moved => job.stall = None,
            Verdict::Waiting { kind, text, suspect } if until_ms <= now_ms => {
                let text = format!("{text}; that is longer than the {} that ranks wait for one another{gone}", span(patience_ms));
                self.fail(job_id, kind, text, suspect);
            }
            Verdict::Waiting { text, .. } => {
                let text = text + &gone;
                let (least, most) = DIAGNOSIS_INTERVAL_MS;
                let next = (now_ms + idle_ms.clamp(least, most)).min(until_ms).max(now_ms + TICK_MS);
                job.stall = Some(Stall { since_ms, until_ms, patience_ms, calls, next_diagnosis_ms: next });
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
