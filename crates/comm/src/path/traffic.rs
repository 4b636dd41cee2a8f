//! What a rank has sent and received by UDP, over all lives of the switch.

use std::sync::Mutex;

use fanin_runtime::{Statistics, Watch};

use crate::lock::locked;

/// Counts that any thread may look at while a call runs.
pub(crate) struct Traffic(Mutex<Lives>);

struct Lives {
    /// Of drivers that are gone: each restart of the switch needs a new one.
    gone: Statistics,
    /// Of the present one.
    watch: Watch,
    /// Of a host's port in a fabric, which stays while vectors travel elsewhere.
    stays: Option<Watch>,
    /// Of jobs beside the communicator's own at one switch.
    beside: Vec<Watch>,
}

impl Lives {
    /// Everything but what the present driver has counted.
    fn others(&self) -> Statistics {
        let mut all = self.gone.clone();
        for more in self.stays.iter().chain(&self.beside).map(Watch::read) {
            all.add(&more.counters, &more.sent);
        }
        all
    }
}

impl Traffic {
    pub(crate) fn of(watch: Watch) -> Self {
        Traffic(Mutex::new(Lives { gone: Statistics::default(), watch, stays: None, beside: Vec::new() }))
    }

    /// A driver has done its work, and another one takes its place.
    pub(crate) fn go_on(&self, done: &Statistics, watch: Watch) {
        let mut lives = locked(&self.0);
        lives.gone.add(&done.counters, &done.sent);
        lives.watch = watch;
    }

    /// Vectors leave the fabric, whose port goes on counting, for this driver.
    pub(crate) fn go_away(&self, watch: Watch) {
        let mut lives = locked(&self.0);
        lives.stays = Some(std::mem::replace(&mut lives.watch, watch));
    }

    /// Vectors travel over the fabric again, by the port that they had left, which has counted all the time.
    pub(crate) fn come_back(&self, done: &Statistics, watch: Watch) {
        let mut lives = locked(&self.0);
        lives.gone.add(&done.counters, &done.sent);
        (lives.watch, lives.stays) = (watch, None);
    }

    /// Another driver takes the place of one that is gone, and has written its last counts down.
    pub(crate) fn renew(&self, watch: Watch) {
        let mut lives = locked(&self.0);
        let done = std::mem::replace(&mut lives.watch, watch).read();
        lives.gone.add(&done.counters, &done.sent);
    }

    /// One more driver counts, of a job beside the communicator's own.
    pub(crate) fn add_beside(&self, watch: Watch) {
        locked(&self.0).beside.push(watch);
    }

    /// All of these are gone, and have written their last counts down.
    pub(crate) fn end_beside(&self) {
        let mut lives = locked(&self.0);
        for done in std::mem::take(&mut lives.beside).iter().map(Watch::read) {
            lives.gone.add(&done.counters, &done.sent);
        }
    }

    /// Everything, where the present driver's counts are these.
    pub(crate) fn with(&self, present: &Statistics) -> Statistics {
        let mut all = locked(&self.0).others();
        all.add(&present.counters, &present.sent);
        all
    }

    /// Everything up to a moment that is at most [`Watch::INTERVAL`] ago.
    pub(crate) fn read(&self) -> Statistics {
        let lives = locked(&self.0);
        let (mut all, present) = (lives.others(), lives.watch.read());
        all.add(&present.counters, &present.sent);
        all
    }
}
