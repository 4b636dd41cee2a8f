//! How a switch lets others come: with its certificate and, where it asks for that, with theirs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ServerConfig;
use rustls::server::NoServerSessionStorage;

use crate::files::{Identity, Stamp};
use crate::trusted::Trusted;
use crate::{PROTOCOL, provider};

/// How often it is looked whether the files have changed, at most.
const LOOK: Duration = Duration::from_secs(1);

/// What a switch speaks TLS with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerTls {
    /// Who it is.
    pub identity: Identity,
    /// Who may come, where not everybody may: each must have a certificate of its own (mutual TLS).
    pub clients: Option<Trusted>,
}

impl ServerTls {
    /// Reads all files.
    ///
    /// # Errors
    /// In words, with the file's name.
    pub fn config(&self) -> Result<Arc<ServerConfig>, String> {
        let (chain, key) = self.identity.read()?;
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| error.to_string())?;
        let builder = match &self.clients {
            None => builder.with_no_client_auth(),
            Some(clients) => builder.with_client_cert_verifier(clients.client_verifier()?),
        };
        let Identity { certificate, key: of } = &self.identity;
        let wrong = |error: rustls::Error| format!("{} with the key of {}: {error}", certificate.display(), of.display());
        let mut config = builder.with_single_cert(chain, key).map_err(wrong)?;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }

    fn stamps(&self) -> Vec<Option<Stamp>> {
        let mut stamps = self.identity.stamps();
        stamps.extend(self.clients.as_ref().map(Trusted::stamp));
        stamps
    }
}

/// What new connections are taken with: read anew when the files change.
#[derive(Debug)]
pub struct Door {
    tls: ServerTls,
    config: Arc<ServerConfig>,
    stamps: Vec<Option<Stamp>>,
    looked: Instant,
}

/// What has become of files that have changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reread {
    /// They hold from now on.
    Done,
    /// They cannot be read, for this reason: what was before stays.
    Failed(String),
}

impl Door {
    /// Reads the files.
    ///
    /// # Errors
    /// In words, with the file's name.
    pub fn open(tls: ServerTls) -> Result<Self, String> {
        // Before the files themselves: what is written meanwhile is seen at the next look.
        let stamps = tls.stamps();
        let config = tls.config()?;
        Ok(Door { tls, config, stamps, looked: Instant::now() })
    }

    /// What a connection that comes now is taken with, and what has become of files that have changed. They are looked at once a second at most.
    pub fn config(&mut self) -> (Arc<ServerConfig>, Option<Reread>) {
        if self.looked.elapsed() < LOOK {
            return (self.config.clone(), None);
        }
        self.looked = Instant::now();
        let stamps = self.tls.stamps();
        if stamps == self.stamps {
            return (self.config.clone(), None);
        }
        self.stamps = stamps;
        let told = match self.tls.config() {
            Ok(config) => {
                self.config = config;
                Reread::Done
            }
            Err(error) => Reread::Failed(error),
        };
        (self.config.clone(), Some(told))
    }
}
