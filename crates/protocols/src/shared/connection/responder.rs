//! The receiving end of a reliable connection.

use super::Psn;

/// What a packet is that has come.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Arrival {
    /// The next one: to be taken.
    Next,
    /// One that was taken before: its acknowledgement was lost. To be acknowledged again and dropped.
    Again,
    /// One behind a gap: to be dropped. The gap is to be reported, where it has not been.
    Ahead {
        /// Send a negative acknowledgement.
        report: bool,
    },
}

/// The receiving end of a reliable connection (`netreduce 5.3`).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Responder {
    /// The packet that must come next.
    expected: Psn,
    /// That it is missing has been reported.
    reported: bool,
    /// Messages that are complete.
    messages: u32,
}

impl Responder {
    /// Packets begin with this number.
    pub fn new(first: Psn) -> Self {
        Responder { expected: first, reported: false, messages: 0 }
    }

    /// What a packet is.
    #[inline]
    pub fn check(&mut self, psn: Psn) -> Arrival {
        match psn.since(self.expected) {
            0 => Arrival::Next,
            distance if distance < 0 => Arrival::Again,
            _ => Arrival::Ahead { report: !std::mem::replace(&mut self.reported, true) },
        }
    }

    /// Takes the next packet.
    #[inline]
    pub fn accept(&mut self, ends_message: bool) {
        self.expected = self.expected.plus(1);
        self.reported = false;
        self.messages = self.messages.wrapping_add(u32::from(ends_message));
    }

    /// The packet that must come next: a negative acknowledgement's number. The one before it is a positive one's.
    #[inline]
    pub fn expected(&self) -> Psn {
        self.expected
    }

    /// How many messages are complete.
    #[inline]
    pub fn messages(&self) -> u32 {
        self.messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_reported_once_and_another_one_again() {
        let mut end = Responder::new(Psn::new(0xff_fffe));
        let mut take = |number: u32| {
            let arrival = end.check(Psn::new(number));
            if arrival == Arrival::Next {
                end.accept(number == 0);
            }
            (arrival, end.expected().number(), end.messages())
        };
        assert_eq!(take(0xff_fffe), (Arrival::Next, 0xff_ffff, 0));
        assert_eq!(take(0), (Arrival::Ahead { report: true }, 0xff_ffff, 0));
        assert_eq!(take(1), (Arrival::Ahead { report: false }, 0xff_ffff, 0));
        assert_eq!(take(0xff_fffd), (Arrival::Again, 0xff_ffff, 0));
        assert_eq!(take(0xff_ffff), (Arrival::Next, 0, 0));
        assert_eq!(take(1), (Arrival::Ahead { report: true }, 0, 0));
        assert_eq!(take(0), (Arrival::Next, 1, 1));
    }
}
