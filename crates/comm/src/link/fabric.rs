//! A job over a fabric whose manager is lost, or that the fabric does not carry any more.

use std::io::{Read, Write};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use fanin_channel::Stream;
use fanin_control::{Attach, ByHosts, ClientMessage, ClientSession, Join, SwitchMessage, encode};

use super::{KNOCK_LIMIT, Link, RETRY, STANDBY_KNOCK_LIMIT, Survival, TICK};
use crate::lock::locked;
use crate::meeting::{self, Knock, Place};
use crate::runner::Loss;

/// How often a lost manager of a fabric that carries the job without it is looked for at last.
const MANAGER_LOOK_MAX: Duration = Duration::from_secs(2);

impl Link {
    /// Whether the job's vectors go over a fabric, which hosts can do without.
    pub(super) fn is_over_fabric(&self) -> bool {
        self.survival == Survival::FabricOrHosts && self.is_home() && self.place().by_hosts == self.home_by_hosts
    }

    /// Whether hosts may go on by themselves where the fabric does not carry the job.
    pub(crate) fn may_go_by_hosts(&self) -> bool {
        self.survival == Survival::FabricOrHosts
    }

    /// Hosts meet at the manager, which is there, and sum by themselves.
    pub(super) fn go_by_hosts_at_home(&self, why: String) {
        *locked(&self.place) = Place { address: self.home, runner: self.home_runner.clone(), by_hosts: ByHosts::Only(why) };
    }

    /// The manager is lost, and the fabric carries the job without it. Where that ends, hosts go on without both.
    pub(super) fn go_without_manager(&self, why: &Loss) -> Option<(Stream, ClientSession)> {
        if self.is_over() {
            return None;
        }
        let lost = self.home_runner.lost(self.home, why);
        *locked(&self.lost) = Some(lost.clone());
        self.notices.tell(&format!("job {:?}: {lost}; it goes on in the fabric without its manager", self.job));
        let (begun, mut looked, mut pause, mut refused_by) = (Instant::now(), None::<Instant>, RETRY, None);
        while !self.is_over() {
            if looked.is_none_or(|looked| looked.elapsed() >= pause) {
                (looked, pause) = (Some(Instant::now()), (pause * 2).min(MANAGER_LOOK_MAX));
                let known = locked(&self.ticket).switch_instance;
                let found = match meeting::knock(&self.reach, self.home, STANDBY_KNOCK_LIMIT, &|| self.is_over()) {
                    Ok(knock) if knock.switch_instance == known => self.attach(knock),
                    // It is told of the job; one that does not take it is not asked again.
                    Ok(knock) if refused_by != Some(knock.switch_instance) => {
                        let instance = knock.switch_instance;
                        self.attach_anew(knock).inspect_err(|_| refused_by = Some(instance)).unwrap_or_default()
                    }
                    _ => None,
                };
                if let Some(found) = found {
                    *locked(&self.lost) = None;
                    return Some(found);
                }
            }
            // Rank 0 decides it, once it waits in vain itself.
            let waits = self.rank != 0 || Duration::from_millis(self.stalled_ms.load(Ordering::Relaxed)) >= self.hosts_after();
            if waits && self.may_go_by_hosts() && self.goes_by_hosts(begun, &format!("nothing moves in the fabric, and {lost}")) {
                return self.await_resumption();
            }
            thread::sleep(TICK);
        }
        None
    }

    /// Another life of a fabric's manager, which is told of the job: it runs at the switches as before. `None` where nothing has come of it.
    ///
    /// # Errors
    /// The manager does not want it.
    fn attach_anew(&self, knock: Knock) -> Result<Option<(Stream, ClientSession)>, ()> {
        let Knock { mut stream, mut session, switch_instance } = knock;
        let join = {
            let ticket = locked(&self.ticket);
            let attach = Some(Attach { instance: ticket.admitted.instance });
            Join { attach, adopt: Some(Box::new(ticket.admitted.clone())), ..ticket.join.clone() }
        };
        if stream.write_all(&encode(&ClientMessage::Join(Box::new(join)))).is_err() {
            return Ok(None);
        }
        let (deadline, mut bytes) = (Instant::now() + KNOCK_LIMIT, [0; 4 << 10]);
        loop {
            match session.next() {
                Ok(Some(SwitchMessage::Admitted(_))) => break,
                Ok(Some(_)) => {}
                Ok(None) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() || stream.set_read_timeout(Some(left)).is_err() {
                        return Ok(None);
                    }
                    match stream.read(&mut bytes) {
                        Ok(count) if count > 0 => session.push(&bytes[..count]),
                        _ => return Ok(None),
                    }
                }
                Err(error) => {
                    self.notices.tell(&format!("job {:?}: the manager at {} does not take it over: {error}", self.job, self.home));
                    return Err(());
                }
            }
        }
        *locked(&self.writer) = stream.clone();
        locked(&self.ticket).switch_instance = switch_instance;
        self.notices.tell(&format!("job {:?}: the manager at {} was restarted, and has found the job again", self.job, self.home));
        if self.keeps_standby() {
            self.keep_standby(&stream);
        }
        Ok(Some((stream, session)))
    }
}
