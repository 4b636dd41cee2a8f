//! What control connections go through: TCP as it is, or TLS 1.3 in it; and the certificates of both ends.
//!
//! | module | what it holds |
//! |---|---|
//! | [`files`] | certificates and private keys in PEM files: [`Identity`] |
//! | [`trusted`] | by what the other end is known: [`Trusted`], a CA or a fingerprint |
//! | [`client`] | [`ClientTls`]: how a rank, a manager or a tool goes to a switch |
//! | [`server`] | [`ServerTls`], [`Door`]: how a switch lets others come; its files are read again when they change |
//! | [`stream`] | [`Stream`]: the blocking end of a connection, whose halves may be on two threads |
//! | [`issue`] | makes a CA and certificates for a cluster |
//! | `words` | what has gone wrong, and what to do |
//! | [`show`] | what is in a certificate |
//!
//! There is one version of TLS here, 1.3 (RFC 8446), with the algorithms of ring. Sessions are not resumed, and there is no early data: control
//! connections are few and long, and what was sent early could be sent again by somebody else.
#![forbid(unsafe_code)]

pub mod client;
pub mod files;
pub mod issue;
pub mod server;
pub mod show;
pub mod stream;
pub mod trusted;
mod words;

use std::sync::{Arc, LazyLock};

use rustls::crypto::CryptoProvider;

pub use client::{ClientTls, HandshakeError};
pub use files::Identity;
pub use server::{Door, ServerTls};
pub use stream::{Patience, Stream};
pub use trusted::{Fingerprint, Trusted};

/// What both ends say that they speak inside TLS (ALPN, RFC 7301): whoever answers with a certificate of the same CA and speaks something
/// else is not taken for a switch.
const PROTOCOL: &[u8] = b"fanin-control";

/// The first byte of a connection that begins with TLS: a handshake record (RFC 8446, section 5.1).
pub const TLS_FIRST_BYTE: u8 = 22;

/// The algorithms.
fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| Arc::new(rustls::crypto::ring::default_provider()));
    PROVIDER.clone()
}
