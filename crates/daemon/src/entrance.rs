//! How connections come in: as they are or, where the switch has a certificate, by TLS and in no other way.

use std::sync::Arc;
use std::time::Duration;

use fanin_channel::server::Reread;
use fanin_channel::{Door, TLS_FIRST_BYTE};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;

/// How long a connection may take until keys are agreed upon. How many may be about to is bounded by what bounds connections that have not joined.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);

/// What is told to whoever comes without TLS.
const WITHOUT_TLS: &str =
    "control connections to this switch go by TLS: set FANIN_TLS to the file of its CA, or to sha256:FINGERPRINT of its certificate";

/// A connection that has just come.
pub(crate) enum Arrived {
    Plain(TcpStream),
    Tls(TcpStream, Arc<ServerConfig>),
}

/// What has become of it.
pub(crate) enum Entered {
    /// It is in, and everybody on the way can read it.
    Plain(TcpStream),
    /// It is in, and nobody else can read it.
    Sealed(Box<TlsStream<TcpStream>>),
    /// It does not speak TLS, and must: it is told why.
    Unsealed(TcpStream, String),
    /// It is over, for this reason.
    Not(String),
    /// It is over, and has said nothing.
    Gone,
}

impl Arrived {
    /// As the door says that connections come in now.
    pub(crate) fn at(door: Option<&mut Door>, stream: TcpStream) -> Arrived {
        // Control messages are short and each one matters now.
        let _ = stream.set_nodelay(true);
        let Some(door) = door else { return Arrived::Plain(stream) };
        let (config, told) = door.config();
        match told {
            None => {}
            Some(Reread::Done) => tracing::info!("the certificates have been read again"),
            Some(Reread::Failed(error)) => tracing::error!(error, "the certificates have changed and cannot be read: those before stay"),
        }
        Arrived::Tls(stream, config)
    }

    /// Comes in, within [`HANDSHAKE_LIMIT`].
    pub(crate) async fn enter(self) -> Entered {
        let (stream, config) = match self {
            Arrived::Plain(stream) => return Entered::Plain(stream),
            Arrived::Tls(stream, config) => (stream, config),
        };
        let handshake = async {
            let mut first = [0];
            match stream.peek(&mut first).await {
                Ok(1..) if first[0] == TLS_FIRST_BYTE => {}
                Ok(1..) => return Entered::Unsealed(stream, WITHOUT_TLS.into()),
                Ok(0) | Err(_) => return Entered::Gone,
            }
            match TlsAcceptor::from(config).accept(stream).await {
                Ok(stream) => Entered::Sealed(Box::new(stream)),
                Err(error) => Entered::Not(format!("TLS: {error}")),
            }
        };
        let limit = HANDSHAKE_LIMIT.as_secs();
        timeout(HANDSHAKE_LIMIT, handshake).await.unwrap_or_else(|_| Entered::Not(format!("no TLS handshake within {limit} s")))
    }
}
