//! Whether a neighbour is alive: both sides say hello, and each hello says whether the other side is heard, and in which epoch.
//!
//! ```text
//!            any packet                 a hello: "I hear you"
//!   Down ----------------> OneWay -----------------------------> Up
//!    ^                      |  ^                                  |
//!    |   silent for timeout |  |  a hello: "I do not hear you"    |
//!    +----------------------+  +----------------------------------+
//!    |                               silent for timeout           |
//!    +------------------------------------------------------------+
//! ```
//!
//! A link is used while it is up. Packets of an epoch that is not believed are not heard. A hello of another epoch is answered at once:
//! the answer repeats that epoch, the neighbour's next hello repeats this side's, and each side knows that the other is no stranger. So
//! a process that was restarted is known after one round trip, and one packet with another epoch does nothing.

use fanin_core::{Duration, Instant};

use super::config::HelloConfig;

/// What is known of a neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LinkState {
    /// Nothing was heard of it for the timeout.
    #[default]
    Down,
    /// It is heard, and does not hear this side, as far as it has said.
    OneWay,
    /// Each hears the other.
    Up,
}

impl LinkState {
    /// The state's name in messages and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            LinkState::Down => "down",
            LinkState::OneWay => "one-way",
            LinkState::Up => "up",
        }
    }
}

/// One side of the conversation with one neighbour.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Neighbour {
    config: HelloConfig,
    state: LinkState,
    heard: Option<Instant>,
    hears_us: bool,
    /// An epoch, not the one that is believed, in which a hello has come.
    told: Option<u32>,
    /// When a hello of another epoch is answered at once again.
    next_answer: Instant,
    next_hello: Instant,
}

impl Neighbour {
    /// Nothing is known; the first hello is due at once.
    pub(crate) fn new(config: HelloConfig) -> Self {
        Neighbour {
            config,
            state: LinkState::Down,
            heard: None,
            hears_us: false,
            told: None,
            next_answer: Instant::ZERO,
            next_hello: Instant::ZERO,
        }
    }

    pub(crate) fn state(&self) -> LinkState {
        self.state
    }

    /// Any packet shows that the neighbour is alive.
    #[inline]
    pub(crate) fn on_packet(&mut self, now: Instant) {
        self.heard = Some(now);
    }

    /// A hello says more.
    pub(crate) fn on_hello(&mut self, now: Instant, hears_us: bool) {
        self.heard = Some(now);
        self.hears_us = hears_us;
    }

    /// A hello of an epoch that is not believed: the next one repeats it. It comes at once, but strangers do not cause more than eight in an
    /// interval.
    pub(crate) fn on_told(&mut self, now: Instant, epoch: u32) {
        self.told = Some(epoch);
        if now >= self.next_answer {
            self.next_answer = now + self.config.interval.divided(8);
            self.next_hello = now;
        }
    }

    /// The epoch that a hello is to repeat, which is said once.
    pub(crate) fn take_told(&mut self) -> Option<u32> {
        self.told.take()
    }

    /// The process at the other end is another one: it has yet to say that it hears this side.
    pub(crate) fn on_restart(&mut self) {
        self.hears_us = false;
    }

    /// Draws conclusions, once everything that has arrived by `now` has been taken note of. Gives the states before and after a change.
    pub(crate) fn judge(&mut self, now: Instant) -> Option<(LinkState, LinkState)> {
        let is_heard = self.heard.is_some_and(|heard| now.since(heard) < self.config.timeout);
        if !is_heard {
            self.hears_us = false;
        }
        let state = match (is_heard, self.hears_us) {
            (false, _) => LinkState::Down,
            (true, false) => LinkState::OneWay,
            (true, true) => LinkState::Up,
        };
        let before = std::mem::replace(&mut self.state, state);
        if before == state {
            return None;
        }
        // The other side need not wait for the next hello to know.
        self.next_hello = now;
        Some((before, state))
    }

    /// Whether a hello is due; if so, what it says: whether the neighbour is heard.
    pub(crate) fn hello(&mut self, now: Instant) -> Option<bool> {
        if now < self.next_hello {
            return None;
        }
        self.next_hello = now + self.config.interval;
        Some(self.state != LinkState::Down)
    }

    /// When [`Neighbour::hello`] or [`Neighbour::judge`] will have something to say, if nothing arrives.
    pub(crate) fn next_timeout(&self) -> Instant {
        match self.heard {
            Some(heard) if self.state != LinkState::Down => self.next_hello.min(heard + self.config.timeout),
            _ => self.next_hello,
        }
    }

    /// For how long nothing was heard.
    pub(crate) fn silent_for(&self, now: Instant) -> Option<Duration> {
        self.heard.map(|heard| now.since(heard))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanin_core::hash::mix;

    const CONFIG: HelloConfig = HelloConfig { interval: Duration::from_ms(50), timeout: Duration::from_ms(250) };

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_ms(ms)
    }

    #[test]
    fn a_link_comes_up_when_each_hears_the_other_and_goes_down_in_silence() {
        let mut neighbour = Neighbour::new(CONFIG);
        assert_eq!((neighbour.hello(at(0)), neighbour.hello(at(49)), neighbour.hello(at(50))), (Some(false), None, Some(false)));
        neighbour.on_hello(at(60), false);
        assert_eq!(neighbour.judge(at(60)), Some((LinkState::Down, LinkState::OneWay)));
        assert_eq!(neighbour.hello(at(60)), Some(true), "at once");
        neighbour.on_hello(at(61), true);
        assert_eq!(neighbour.judge(at(61)), Some((LinkState::OneWay, LinkState::Up)));
        neighbour.on_packet(at(200));
        assert_eq!(neighbour.judge(at(449)), None, "a packet of any kind is a sign of life");
        assert_eq!(neighbour.judge(at(450)), Some((LinkState::Up, LinkState::Down)));
        assert_eq!(neighbour.hello(at(450)), Some(false));
        neighbour.on_packet(at(500));
        assert_eq!(neighbour.judge(at(500)), Some((LinkState::Down, LinkState::OneWay)), "what it said before it was silent is forgotten");
    }

    #[test]
    fn a_restart_and_a_deaf_neighbour_take_the_link_out_of_use() {
        let mut neighbour = Neighbour::new(CONFIG);
        neighbour.on_hello(at(1), true);
        neighbour.judge(at(1));
        neighbour.on_restart();
        assert_eq!(neighbour.judge(at(2)), Some((LinkState::Up, LinkState::OneWay)));
        neighbour.on_hello(at(3), true);
        assert_eq!(neighbour.judge(at(3)), Some((LinkState::OneWay, LinkState::Up)));
        neighbour.on_hello(at(4), false);
        assert_eq!(neighbour.judge(at(4)), Some((LinkState::Up, LinkState::OneWay)));
    }

    /// Two sides and a link that loses hellos at random, with a fake clock.
    #[test]
    fn both_sides_agree_within_a_timeout_whatever_is_lost() {
        for seed in 0..200 {
            let mut sides = [Neighbour::new(CONFIG), Neighbour::new(CONFIG)];
            let (mut draws, mut last_up) = (0, [0u64; 2]);
            for ms in 0..4_000u64 {
                // Lossy for two seconds, broken in one direction for one, then sound.
                let arrives = |from: usize, draw: u64| match ms {
                    0..2_000 => draw % 100 < 70,
                    2_000..3_000 => from == 0,
                    _ => true,
                };
                for from in 0..2 {
                    if let Some(hears) = sides[from].hello(at(ms)) {
                        draws += 1;
                        if arrives(from, mix(seed, draws)) {
                            sides[1 - from].on_hello(at(ms), hears);
                        }
                    }
                    let _ = sides[from].judge(at(ms));
                }
                for side in 0..2 {
                    if sides[side].state() == LinkState::Up {
                        last_up[side] = ms;
                    }
                }
                if ms == 2_999 {
                    let states = [sides[0].state(), sides[1].state()];
                    assert_eq!(states, [LinkState::Down, LinkState::OneWay], "seed {seed}: one direction is broken");
                    assert!(last_up.iter().all(|up| *up < 2_000 + 250 + 51), "seed {seed}: neither side uses it, last up {last_up:?}");
                }
            }
            assert_eq!([sides[0].state(), sides[1].state()], [LinkState::Up; 2], "seed {seed}");
        }
    }
}
