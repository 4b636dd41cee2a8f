//! The trait of headers on the wire.

use std::fmt;

/// What kind of packet a header announces, as far as drivers and fault plans distinguish them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum PacketKind {
    /// Towards the sum: a contribution or a partial aggregate.
    Contribution = 0,
    /// Away from the sum: an aggregate on its way to the workers.
    Aggregate = 1,
    /// Acknowledgements, requests, barriers, aborts.
    Control = 2,
    /// Background traffic.
    Background = 3,
}

/// A header: one enum (or struct) per system, passed by value. Its messages may differ in length.
pub trait Wire: Copy + fmt::Debug {
    /// The longest header in bytes.
    const MAX_LEN: usize;

    /// Length of this header on the wire in bytes.
    fn wire_len(&self) -> usize;

    /// Reads a header from the front of `bytes`; gives the header and its length.
    ///
    /// # Errors
    /// [`Malformed`] names the field that is wrong. Bytes from the network never panic.
    fn parse(bytes: &[u8]) -> Result<(Self, usize), Malformed>;

    /// Writes the header to the front of `out`, which holds at least [`Wire::wire_len`] bytes; gives the length.
    fn emit(&self, out: &mut [u8]) -> usize;

    /// The kind of packet.
    fn kind(&self) -> PacketKind;

    /// How many pairs of an index and a value follow, where the header says that some do.
    fn pairs(&self) -> Option<u16> {
        None
    }
}

/// Why bytes are not a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Malformed {
    /// Fewer bytes than the format needs.
    Truncated {
        /// Bytes needed.
        needed: usize,
        /// Bytes there.
        got: usize,
    },
    /// A field has a value outside its range.
    Field {
        /// The field's name in the format's documentation.
        name: &'static str,
        /// Its value.
        value: u64,
    },
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Malformed::Truncated { needed, got } => write!(f, "{got} bytes where at least {needed} are needed"),
            Malformed::Field { name, value } => write!(f, "field `{name}` has the value {value}, which is not allowed"),
        }
    }
}

impl std::error::Error for Malformed {}
