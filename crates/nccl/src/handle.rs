//! Handles, which NCCL carries from whoever listens to all who connect: 128 bytes that say where, and a secret that strangers do not have.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;

use crate::abi::HANDLE_BYTES;

/// What a handle begins with: of this plugin, and this version of it.
const MAGIC: [u8; 8] = *b"FANINnc1";
/// Of a handle without an address: a group that meets at a switch of the settings.
const NOWHERE: &str = "-";

/// A place to connect to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handle {
    /// Chosen at random by whoever listens.
    pub secret: u64,
    /// Where that is, where it is an address at all.
    pub address: Option<SocketAddr>,
}

impl Handle {
    /// With a new secret.
    pub(crate) fn new(address: Option<SocketAddr>) -> Self {
        // The hasher's keys come from the system's random numbers.
        Handle { secret: RandomState::new().build_hasher().finish(), address }
    }

    /// As NCCL carries it: what it is of, the secret, the length of the address, the address as text, and zeros.
    pub fn encode(&self) -> [u8; HANDLE_BYTES] {
        let mut bytes = [0; HANDLE_BYTES];
        let text = self.address.map_or(NOWHERE.into(), |address| address.to_string());
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&self.secret.to_le_bytes());
        bytes[16] = text.len() as u8;
        bytes[17..17 + text.len()].copy_from_slice(text.as_bytes());
        bytes
    }

    /// From what was carried.
    ///
    /// # Errors
    /// In words, where it is no handle of this version of the plugin.
    pub fn decode(bytes: &[u8; HANDLE_BYTES]) -> Result<Self, String> {
        if bytes[..8] != MAGIC {
            return Err("the handle is not one of this version of the plugin: the peer has another plugin, or another version".into());
        }
        let secret = u64::from_le_bytes(bytes[8..16].try_into().unwrap_or_default());
        let text = bytes.get(17..17 + usize::from(bytes[16])).and_then(|text| std::str::from_utf8(text).ok());
        let text = text.ok_or("the handle's address is no text")?;
        let address = match text {
            NOWHERE => None,
            text => Some(text.parse().map_err(|_| format!("the handle's address is {text:?}: expected HOST:PORT"))?),
        };
        Ok(Handle { secret, address })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_come_back_as_they_went_and_damage_is_told() {
        for address in [
            None,
            Some("127.0.0.1:7000".parse().unwrap()),
            Some("[fe80:1234:5678:9abc:def0:1234:5678:9abc%4294967295]:65535".parse().unwrap()),
        ] {
            let handle = Handle::new(address);
            assert_eq!(Handle::decode(&handle.encode()), Ok(handle));
        }
        assert_ne!(Handle::new(None).secret, Handle::new(None).secret);
        assert!(Handle::decode(&[0; HANDLE_BYTES]).unwrap_err().contains("another plugin"));
        let good = Handle::new(Some("10.0.0.1:1".parse().unwrap())).encode();
        for at in 0..HANDLE_BYTES {
            for value in [0, 1, 0x3a, 0x7f, 0xff] {
                let mut bytes = good;
                bytes[at] = value;
                // No byte makes it panic; what is read can be written.
                if let Ok(handle) = Handle::decode(&bytes) {
                    assert_eq!(Handle::decode(&handle.encode()), Ok(handle));
                }
            }
        }
    }

    /// An ordinary test runs what a fuzzer has found (`make fuzz`).
    #[test]
    fn handles_fuzzed() {
        bolero::check!().with_iterations(0).for_each(|bytes: &[u8]| {
            let mut handle = Handle::new(None).encode();
            handle[8..].iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            if let Ok(handle) = Handle::decode(&handle) {
                assert_eq!(Handle::decode(&handle.encode()), Ok(handle));
            }
        });
    }
}
