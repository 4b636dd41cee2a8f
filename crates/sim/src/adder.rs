//! What adds at a port of a switch that is slower than its links; see [`crate::engine`].

use crate::link::Link;

/// The adder behind a link.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Adder {
    /// Time of a byte in 2^-16 ps; 0 where the switch is as fast as the link.
    pub byte_time: u64,
    /// When it has added all that came.
    pub until_ps: u64,
    /// What may wait, as the time that it takes.
    pub limit_ps: u64,
    /// From when on what comes is marked.
    pub mark_ps: u64,
}

impl Adder {
    /// An idle one, before which so much may wait, and so much before what comes is marked.
    pub fn new(bits_per_second: u64, queue_bytes: u64, mark_bytes: u64) -> Self {
        let byte_time = Link::byte_time_of(bits_per_second);
        let time = |bytes: u64| u64::try_from((u128::from(bytes) * u128::from(byte_time)) >> 16).unwrap_or(u64::MAX);
        Adder { byte_time, until_ps: 0, limit_ps: time(queue_bytes), mark_ps: time(mark_bytes) }
    }

    /// How long it works at so many bytes, in ps.
    pub fn work_ps(&self, bytes: u64) -> u64 {
        (bytes * self.byte_time) >> 16
    }
}
