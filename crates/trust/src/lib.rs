//! Who may take part in what, and the keys that go with it.
//!
//! | module | what it holds |
//! |---|---|
//! | [`secret`] | [`Secret`]: 32 random bytes from which keys are derived |
//! | [`packet`] | [`LinkKeys`]: packets that only the two ends of a hop can make, and that nobody else need be able to read |
//! | [`cable`] | [`FabricKey`], [`CableKeys`]: the same between neighbours in a fabric, also after restarts |
//! | [`token`] | [`Rights`] in a token that a key of the switch has signed |
//! | [`keys`] | [`KeyFile`]: these keys, and what each tenant may have |
//!
//! Nothing here opens a socket or reads a file; random numbers come from the system where a function says so.
#![forbid(unsafe_code)]

pub mod cable;
pub mod keys;
pub mod packet;
pub mod secret;
pub mod token;

pub use cable::{CableKeys, FabricKey, TURNS_BYTES};
pub use keys::{KeyFile, KeyFileError, Quota};
pub use packet::{LinkKeys, PacketKeys, Protection, TAG_BYTES};
pub use secret::{NoRandomness, Secret};
pub use token::{Ranks, Rights, TokenError};
