//! The window of a worker at one server: additive increase, halved where congestion was experienced or nothing came (`a2tp 5.7`; without it
//! the pushes of all workers meet in the queue before a server, which is what is called incast).

use crate::shared::real::Real;
use crate::shared::serial::newer;

/// How a window begins and grows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PsWindowConfig {
    /// The longest window in blocks; 1 to [`WINDOW_MAX`](super::WINDOW_MAX).
    pub longest: u32,
    /// The first one.
    pub initial: u32,
    /// By how much it grows in a round trip, in blocks.
    pub increase: Real,
}

/// The window of one worker at one server.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PsWindow {
    config: PsWindowConfig,
    size: Real,
    /// One past the last block of the round: a window's worth.
    round_end: u32,
    /// The window was halved in this round.
    halved: bool,
}

impl PsWindow {
    /// The window that a worker begins with.
    pub fn new(config: PsWindowConfig) -> Self {
        let initial = config.initial.clamp(1, config.longest);
        PsWindow { config, size: Real::new(f64::from(initial)), round_end: initial, halved: false }
    }

    /// The window in blocks.
    #[inline]
    pub fn size(&self) -> u32 {
        self.size.whole(self.config.longest)
    }

    /// Congestion was experienced: halves, once a round.
    pub fn on_congestion(&mut self) {
        if !std::mem::replace(&mut self.halved, true) {
            self.size = Real::new((self.size.get() / 2.0).max(1.0));
        }
    }

    /// A sum has come; `edge` is the first block without one, `next` the first that was not sent. Grows once a round that met no congestion.
    #[inline]
    pub fn on_sum(&mut self, edge: u32, next: u32, marked: bool) {
        if marked {
            self.on_congestion();
        }
        if newer(self.round_end, edge) {
            return;
        }
        if !self.halved {
            self.size = Real::new((self.size.get() + self.config.increase.get()).min(f64::from(self.config.longest)));
        }
        // Where all that was sent is here, what comes next is a round.
        self.round_end = if next == edge { edge.wrapping_add(self.size()) } else { next };
        self.halved = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(window: &mut PsWindow, edge: &mut u32, marks: u32) -> u32 {
        let size = window.size();
        let next = *edge + size;
        for step in 0..size {
            *edge += 1;
            window.on_sum(*edge, next, step < marks);
        }
        window.size()
    }

    #[test]
    fn it_grows_by_a_step_a_round_and_is_halved_once_where_marks_come() {
        let (mut window, mut edge) = (PsWindow::new(PsWindowConfig { longest: 100, initial: 20, increase: Real::new(5.0) }), 0);
        assert_eq!(round(&mut window, &mut edge, 0), 25);
        assert_eq!(round(&mut window, &mut edge, 9), 12, "once, however many marks a round has");
        for _ in 0..40 {
            round(&mut window, &mut edge, 0);
        }
        assert_eq!(window.size(), 100, "never longer than it may be");
        for _ in 0..40 {
            round(&mut window, &mut edge, 1);
        }
        assert_eq!(window.size(), 1, "it never closes");
    }
}
