//! Secrets, and keys from them by HKDF (RFC 5869) with SHA-256.

use std::fmt;

use ring::rand::{SecureRandom, SystemRandom};
use ring::{aead, hkdf};
use serde::{Deserialize, Serialize};

/// Bytes of a secret.
pub const SECRET_BYTES: usize = 32;

/// The system gives no random numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the operating system gives no random numbers")]
pub struct NoRandomness;

/// A text that is no secret.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected 64 hexadecimal digits")]
pub struct NoSecret;

/// 32 bytes that nobody else knows. Where it is printed for people, only that it is there is said.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Secret([u8; SECRET_BYTES]);

/// The length of what is derived.
struct Length;

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        SECRET_BYTES
    }
}

impl Secret {
    /// These bytes.
    pub const fn new(bytes: [u8; SECRET_BYTES]) -> Self {
        Secret(bytes)
    }

    /// A new one, from the system's random numbers.
    ///
    /// # Errors
    /// [`NoRandomness`].
    pub fn random() -> Result<Self, NoRandomness> {
        let mut bytes = [0; SECRET_BYTES];
        SystemRandom::new().fill(&mut bytes).map_err(|_| NoRandomness)?;
        Ok(Secret(bytes))
    }

    /// The bytes themselves.
    pub fn bytes(&self) -> &[u8; SECRET_BYTES] {
        &self.0
    }

    /// A secret of its own for this purpose and these numbers: who knows it knows nothing of this one, or of others.
    pub fn derive(&self, purpose: &str, numbers: &[u64]) -> Secret {
        let mut bytes = [0; SECRET_BYTES];
        self.expand(purpose, numbers, Length, |okm| {
            // Of the length that it was asked for.
            let _ = okm.fill(&mut bytes);
        });
        Secret(bytes)
    }

    /// A key of `algorithm` for this purpose and these numbers.
    pub(crate) fn key(&self, purpose: &str, numbers: &[u64], algorithm: &'static aead::Algorithm) -> aead::LessSafeKey {
        aead::LessSafeKey::new(self.expand(purpose, numbers, algorithm, |okm| okm.into()))
    }

    fn expand<L: hkdf::KeyType, R>(&self, purpose: &str, numbers: &[u64], length: L, take: impl FnOnce(hkdf::Okm<'_, L>) -> R) -> R {
        // One byte a length, so that no two purposes with their numbers are the same bytes.
        let mut info = [0u8; 64];
        let (name, rest) = (purpose.as_bytes(), purpose.len() + 1);
        assert!(rest + 8 * numbers.len() <= info.len(), "purposes are short, and named in this crate's callers only");
        info[..name.len()].copy_from_slice(name);
        for (place, number) in info[rest..].chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        let all = [&info[..rest + 8 * numbers.len()]];
        let secret = hkdf::Salt::new(hkdf::HKDF_SHA256, b"fanin").extract(&self.0);
        take(secret.expand(&all, length).expect("32 bytes and less are no more than 255 times the hash's length"))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl From<Secret> for String {
    fn from(secret: Secret) -> String {
        secret.0.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|digit| char::from_digit(u32::from(digit), 16).unwrap_or('0')).collect()
    }
}

impl TryFrom<String> for Secret {
    type Error = NoSecret;

    fn try_from(text: String) -> Result<Self, NoSecret> {
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let mut bytes = [0; SECRET_BYTES];
        if pairs.len() != SECRET_BYTES || !rest.is_empty() {
            return Err(NoSecret);
        }
        for (byte, pair) in bytes.iter_mut().zip(pairs) {
            *byte = (digit(pair[0]).ok_or(NoSecret)? << 4 | digit(pair[1]).ok_or(NoSecret)?) as u8;
        }
        Ok(Secret(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_derived_depends_on_the_secret_the_purpose_and_every_number() {
        let (one, other) = (Secret::new([1; 32]), Secret::new([2; 32]));
        let all = [
            one.derive("job", &[1]),
            one.derive("job", &[2]),
            one.derive("job", &[1, 0]),
            one.derive("job", &[]),
            one.derive("rank", &[1]),
            other.derive("job", &[1]),
            one.clone(),
        ];
        for (at, secret) in all.iter().enumerate() {
            assert_eq!(all.iter().position(|other| other == secret), Some(at));
        }
        assert_eq!(one.derive("job", &[7]), one.derive("job", &[7]));
        assert_ne!(Secret::random().unwrap(), Secret::random().unwrap());
    }

    #[test]
    fn a_secret_travels_as_digits_and_is_not_shown() {
        let secret = Secret::new(std::array::from_fn(|at| at as u8 * 7));
        let text = String::from(secret.clone());
        assert_eq!((text.len(), Secret::try_from(text.clone())), (64, Ok(secret.clone())));
        assert_eq!(format!("{secret:?}"), "Secret(..)");
        for nonsense in ["", "00", &text[1..], &text.replace('0', "g"), &format!("{text}0")] {
            assert_eq!(Secret::try_from(nonsense.to_owned()), Err(NoSecret), "{nonsense}");
        }
    }
}
