//! What a slot holds at a job's only switch, for a program elsewhere that goes on with the job.

/// A slot that holds something: contributions, or the result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeptSlot<'a, A> {
    /// Which one; 0 where the number says so.
    pub slot: u16,
    /// What it is used for: a round (SwitchML) or a block (trees).
    pub number: u32,
    /// Whether all have contributed.
    pub is_done: bool,
    /// Bit c: child c, of the first 64, has contributed.
    pub arrived: u64,
    /// The call's operator, where packets name one.
    pub op: u8,
    /// The only rank that needs the result; `u16::MAX` where all do.
    pub receiver: u16,
    /// What else tells the call from others, where packets have that.
    pub fingerprint: u32,
    /// The largest exponent, in its bits, where the call is in fixed point, or else 0.
    pub exponent: i16,
    /// What has been accumulated.
    pub acc: &'a A,
}
