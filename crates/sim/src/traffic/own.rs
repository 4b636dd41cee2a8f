//! Background traffic from elsewhere: a crate that is not of this workspace says which host sends how much to which other one, and when.

use std::fmt;

use fanin_core::{Instant, NetworkMap, NodeId};

use crate::own::{Described, Own, Parameters, Refusal, described};
use crate::random::Random;

/// Who sends to whom, and when, by its parameters.
pub trait OwnPattern: Parameters {
    /// Its name in plans, as `pattern` of `[[traffic]]`: none that another pattern has.
    const NAME: &'static str;

    /// All messages, in order of time. Where they end, the traffic does; where they do not, it does with the jobs.
    type Messages: Iterator<Item = Message> + fmt::Debug + Send + Sync + 'static;

    /// Whether its parameters make sense for these hosts.
    ///
    /// # Errors
    /// [`Refusal`] names the parameter.
    fn check(&self, _among: &Among<'_>) -> Result<(), Refusal> {
        Ok(())
    }

    /// Its messages. `random` is this traffic's own.
    fn messages(&self, among: &Among<'_>, random: Random) -> Self::Messages;
}

/// A message that is to be sent. Hosts send what they have in turn, packet by packet, as fast as their links; nobody sends again what is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    /// From when on: not before the one before it.
    pub at: Instant,
    /// The sending host, one of the traffic's.
    pub from: NodeId,
    /// The receiving host, another one of the traffic's.
    pub to: NodeId,
    /// Its length in bytes of payload, 1 at least.
    pub bytes: u64,
}

/// The hosts that take part, and what they send by.
#[derive(Clone, Debug)]
pub struct Among<'a> {
    /// These hosts, two at least.
    pub hosts: &'a [NodeId],
    /// When the traffic begins.
    pub start: Instant,
    /// Rates of their links, in bits a second.
    pub link_bits_per_second: Vec<u64>,
    /// The network.
    pub map: &'a NetworkMap,
    /// Payload of a full packet in bytes.
    pub payload_bytes: u32,
    /// Bytes that a packet occupies on the wire beside its payload.
    pub frame_overhead_bytes: u32,
    /// The shortest frame in bytes.
    pub frame_bytes_min: u32,
}

impl Among<'_> {
    /// What a message of `bytes` bytes occupies on the wire, in bytes.
    pub fn wire_bytes(&self, bytes: u64) -> u64 {
        let payload = u64::from(self.payload_bytes.max(1));
        let frame = |payload: u64| (payload + u64::from(self.frame_overhead_bytes)).max(u64::from(self.frame_bytes_min));
        let rest = bytes % payload;
        (bytes / payload).saturating_mul(frame(payload)).saturating_add(if rest > 0 { frame(rest) } else { 0 })
    }
}

/// An [`OwnPattern`], whichever it is.
pub trait AnyPattern: Described {
    /// As [`OwnPattern::check`].
    ///
    /// # Errors
    /// As there.
    fn check(&self, among: &Among<'_>) -> Result<(), Refusal>;
    /// As [`OwnPattern::messages`].
    fn messages(&self, among: &Among<'_>, random: Random) -> Box<dyn AnyMessages>;
}

/// [`OwnPattern::Messages`], whichever they are.
pub trait AnyMessages: Iterator<Item = Message> + fmt::Debug + Send + Sync {}

impl<T: Iterator<Item = Message> + fmt::Debug + Send + Sync> AnyMessages for T {}

impl<T: OwnPattern> AnyPattern for Parameterized<T> {
    fn check(&self, among: &Among<'_>) -> Result<(), Refusal> {
        self.0.check(among)
    }

    fn messages(&self, among: &Among<'_>, random: Random) -> Box<dyn AnyMessages> {
        Box::new(self.0.messages(among, random))
    }
}

/// A pattern from elsewhere, with its parameters.
pub type NamedPattern = Own<dyn AnyPattern>;

described!(OwnPattern as AnyPattern);
