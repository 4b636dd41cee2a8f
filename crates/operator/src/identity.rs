//! What tells operators apart, and where their failures are written down.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use sha2::{Digest as _, Sha256};

/// The SHA-256 of a module's bytes: two operators with the same one do the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// Of a module.
    pub fn of(module: &[u8]) -> Self {
        Digest(Sha256::digest(module).into())
    }

    /// Its first bytes as a number, for where 32 bytes are too many.
    pub fn short(&self) -> u64 {
        u64::from_be_bytes(*self.0.first_chunk().expect("32 bytes"))
    }
}

/// As 64 hexadecimal digits.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Where kernels of a job's operators write down what others want to know of them: the first failure, by whichever fails first, and how much fuel
/// they have used.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Told>);

#[derive(Debug, Default)]
struct Told {
    failure: OnceLock<String>,
    fuel: AtomicU64,
}

impl Faults {
    /// What has failed, and how; `None` while nothing has.
    pub fn first(&self) -> Option<&str> {
        self.0.failure.get().map(String::as_str)
    }

    /// Units of WebAssembly's fuel, about an instruction each, that all calls together have used.
    pub fn fuel(&self) -> u64 {
        self.0.fuel.load(Ordering::Relaxed)
    }

    /// A call has used so much.
    #[cfg(feature = "wasm")]
    pub(crate) fn burn(&self, fuel: u64) {
        self.0.fuel.fetch_add(fuel, Ordering::Relaxed);
    }

    /// Writes a failure down; the first one stays.
    #[cfg(feature = "wasm")]
    pub(crate) fn tell(&self, text: String) {
        let _ = self.0.failure.set(text);
    }
}
