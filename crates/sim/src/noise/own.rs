//! Noise from elsewhere: a crate that is not of this workspace says how late packets leave a host.

use std::fmt;

use fanin_core::{Duration, Instant, NodeId};

use crate::own::{Described, Own, Parameters, Refusal, described};
use crate::random::Random;

/// What keeps hosts from sending, by its parameters.
pub trait OwnNoise: Parameters {
    /// Its name in plans, as `distribution` of a job's `noise.delay`: none that another one has.
    const NAME: &'static str;

    /// What a host suffers.
    type Host: Late;

    /// Whether its parameters make sense.
    ///
    /// # Errors
    /// [`Refusal`] names the parameter.
    fn check(&self) -> Result<(), Refusal> {
        Ok(())
    }

    /// The state of a host. `random` is the host's: jobs there that have the same noise draw the same.
    fn host(&self, host: NodeId, random: Random) -> Self::Host;
}

/// A host that suffers.
pub trait Late: fmt::Debug + Send + Sync + 'static {
    /// How much later a packet leaves that would leave now; at most a second counts. It is asked for packets that `probability` picks.
    fn late(&mut self, now: Instant) -> Duration;
}

/// An [`OwnNoise`], whichever it is.
pub trait AnyNoise: Described {
    /// As [`OwnNoise::check`].
    ///
    /// # Errors
    /// As there.
    fn check(&self) -> Result<(), Refusal>;
    /// As [`OwnNoise::host`].
    fn host(&self, host: NodeId, random: Random) -> Box<dyn Late>;
}

impl<T: OwnNoise> AnyNoise for Parameterized<T> {
    fn check(&self) -> Result<(), Refusal> {
        self.0.check()
    }

    fn host(&self, host: NodeId, random: Random) -> Box<dyn Late> {
        Box::new(self.0.host(host, random))
    }
}

/// Noise from elsewhere, with its parameters.
pub type NamedNoise = Own<dyn AnyNoise>;

described!(OwnNoise as AnyNoise);

/// The hosts of a job.
#[derive(Debug)]
pub(crate) struct Hosts {
    noise: NamedNoise,
    seed: u64,
    /// By host.
    states: Vec<Option<Box<dyn Late>>>,
}

impl Hosts {
    pub fn new(noise: NamedNoise, seed: u64) -> Self {
        Hosts { noise, seed, states: Vec::new() }
    }

    /// How much later a packet leaves a host; `random` makes a stream of a seed and a number.
    pub fn late(&mut self, host: u32, now_ps: u64, random: impl Fn(u64, u64) -> Random) -> Duration {
        let index = host as usize;
        if self.states.len() <= index {
            self.states.resize_with(index + 1, || None);
        }
        let (noise, seed) = (self.noise, self.seed);
        let state = self.states[index].get_or_insert_with(|| noise.get().host(NodeId(host), random(seed, 1 << 32 | u64::from(host))));
        state.late(Instant::from_ps(now_ps))
    }
}
