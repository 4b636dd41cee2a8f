//! How a rank, a manager or a tool goes to a switch: by TLS, with what it knows the switch by.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{CertificateError, ClientConfig, ClientConnection, Error};

use crate::files::Identity;
use crate::stream::{Patience, Stream};
use crate::trusted::{OtherCertificate, Trusted};
use crate::words::words;
use crate::{PROTOCOL, provider};

/// What a client speaks TLS with. Files are read at each connection, so that a CA or a certificate that has changed holds from the next one on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientTls {
    /// By what the switch is known.
    pub trusted: Trusted,
    /// The name that the switch's certificate must have; by default the host that is gone to.
    pub name: Option<String>,
    /// Who this end is, for a switch that asks for it.
    pub identity: Option<Identity>,
}

/// Why there is no connection.
#[derive(Debug)]
pub enum HandshakeError {
    /// The network or the other end is not there; it may be later.
    Io(io::Error),
    /// The two ends do not trust each other, or do not speak the same; trying again changes nothing. In words.
    Refused(String),
}

impl std::fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            HandshakeError::Io(error) => error.fmt(f),
            HandshakeError::Refused(text) => f.write_str(text),
        }
    }
}

impl ClientTls {
    /// Reads all files.
    ///
    /// # Errors
    /// In words, with the file's name.
    pub fn config(&self) -> Result<Arc<ClientConfig>, String> {
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| error.to_string())?
            // The verifier is webpki's, or takes one certificate alone.
            .dangerous()
            .with_custom_certificate_verifier(self.trusted.server_verifier()?);
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let (chain, key) = identity.read()?;
                let Identity { certificate, key: of } = identity;
                let wrong = |error: Error| format!("{} with the key of {}: {error}", certificate.display(), of.display());
                builder.with_client_auth_cert(chain, key).map_err(wrong)?
            }
        };
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        config.resumption = Resumption::disabled();
        Ok(Arc::new(config))
    }

    /// The name that a switch must have which is gone to as `host`, a name or an address, also in brackets.
    ///
    /// # Errors
    /// In words, where no certificate can have such a name.
    pub fn server_name(&self, host: &str) -> Result<ServerName<'static>, String> {
        let name = self.name.as_deref().unwrap_or(host);
        let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        // With a fingerprint nobody looks at it.
        ServerName::try_from(bare.to_owned()).map_err(|_| format!("{name:?}: expected a name of a host, or an IP address"))
    }

    /// Speaks TLS on a connection to `host`. When this returns, the switch is the one that is trusted; whether it trusts this end is known once it
    /// has answered something.
    ///
    /// # Errors
    /// [`HandshakeError`].
    pub fn connect(&self, tcp: TcpStream, host: &str, patience: &Patience<'_>) -> Result<Stream, HandshakeError> {
        let config = self.config().map_err(HandshakeError::Refused)?;
        let name = self.server_name(host).map_err(HandshakeError::Refused)?;
        let called = name.to_str().into_owned();
        let session = ClientConnection::new(config, name).map_err(|error| HandshakeError::Refused(error.to_string()))?;
        let stream = Stream::with_tls(tcp, session);
        match stream.shake_hands(patience) {
            Ok(protocol) if protocol.as_deref() == Some(PROTOCOL) => Ok(stream),
            Ok(_) => Err(HandshakeError::Refused("whoever answers there speaks TLS, but is no Fanin switch".into())),
            Err(error) => Err(match tls_error(&error) {
                Some(why) => HandshakeError::Refused(self.explain(why, &called)),
                None => HandshakeError::Io(error),
            }),
        }
    }

    /// What is wrong with the switch's certificate, and what to do.
    fn explain(&self, error: &Error, called: &str) -> String {
        use CertificateError as Wrong;
        let Error::InvalidCertificate(wrong) = error else { return words(error) };
        match wrong {
            Wrong::UnknownIssuer | Wrong::BadSignature => {
                format!("its certificate is not one of the CA in {} (FANIN_TLS)", self.trusted)
            }
            Wrong::NotValidForName | Wrong::NotValidForNameContext { .. } => format!(
                "its certificate is not for {called:?}: go to it by a name that is in it, or set FANIN_TLS_NAME (`fanin tls show` says which)"
            ),
            Wrong::Expired | Wrong::ExpiredContext { .. } => {
                "its certificate is not good any more: give the switch a new one (`fanin tls issue`)".into()
            }
            Wrong::NotValidYet | Wrong::NotValidYetContext { .. } => {
                "its certificate is not good yet: is the clock of this host right?".into()
            }
            Wrong::Other(other) if other.0.is::<OtherCertificate>() => format!("{} (FANIN_TLS)", other.0),
            other => format!("its certificate is not good: {other:?}"),
        }
    }
}

/// What TLS has to say about an error of a connection, where it is one of TLS.
fn tls_error(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref::<Error>()
}
