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
}

impl Traffic {
    pub(crate) fn of(watch: Watch) -> Self {
        Traffic(Mutex::new(Lives { gone: Statistics::default(), watch }))
    }

    /// A driver has done its work, and another one takes its place.
    pub(crate) fn go_on(&self, done: &Statistics, watch: Watch) {
        let mut lives = locked(&self.0);
        lives.gone.add(&done.counters, &done.sent);
        lives.watch = watch;
    }

    /// Another driver takes the place of one that is gone, and has written its last counts down.
    pub(crate) fn renew(&self, watch: Watch) {
        let mut lives = locked(&self.0);
        let done = std::mem::replace(&mut lives.watch, watch).read();
        lives.gone.add(&done.counters, &done.sent);
    }

    /// Everything, where the present driver's counts are these.
    pub(crate) fn with(&self, present: &Statistics) -> Statistics {
        let mut all = locked(&self.0).gone.clone();
        all.add(&present.counters, &present.sent);
        all
    }

    /// Everything up to a moment that is at most [`Watch::INTERVAL`] ago.
    pub(crate) fn read(&self) -> Statistics {
        let lives = locked(&self.0);
        let (mut all, present) = (lives.gone.clone(), lives.watch.read());
        all.add(&present.counters, &present.sent);
        all
    }
}
