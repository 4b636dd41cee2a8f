//! How control connections come in, as switches and managers are told on the command line and in files.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use fanin_channel::{Identity, ServerTls, Trusted};

/// Whether control connections may be plain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Control {
    /// They are TLS, and nobody on the way can read or alter them.
    Tls,
    /// They go as they are.
    Plain,
}

impl FromStr for Control {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "tls" => Ok(Control::Tls),
            "plain" => Ok(Control::Plain),
            _ => Err("expected tls or plain".into()),
        }
    }
}

impl Control {
    pub fn name(self) -> &'static str {
        if self == Control::Tls { "tls" } else { "plain" }
    }
}

/// What was said.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Doors {
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
    /// Who may come, where each must have a certificate.
    pub clients: Option<Trusted>,
    pub control: Option<Control>,
}

impl Doors {
    /// Who this end is, if it has a certificate.
    pub fn identity(&self) -> Option<Identity> {
        Some(Identity { certificate: self.certificate.clone()?, key: self.key.clone()? })
    }

    /// What control connections are taken with.
    pub fn tls(&self) -> Option<ServerTls> {
        Some(ServerTls { identity: self.identity()?, clients: self.clients.clone() })
    }

    /// Whether what was said fits together.
    ///
    /// # Errors
    /// The option that is missing or too much, and what is expected.
    pub fn check(&self) -> Result<(), String> {
        let wrong = |text: &str| Err(text.to_owned());
        match (&self.certificate, &self.key) {
            (Some(_), None) => return wrong("--tls-cert without --tls-key: expected both, or neither"),
            (None, Some(_)) => return wrong("--tls-key without --tls-cert: expected both, or neither"),
            (None, None) if self.clients.is_some() => {
                return wrong("--tls-clients without --tls-cert: expected a certificate and its key too (`fanin tls new` makes them)");
            }
            _ => {}
        }
        match (self.control, self.certificate.is_some()) {
            (Some(Control::Tls), false) => {
                wrong("--control tls without --tls-cert: expected a certificate and its key (`fanin tls new` makes them)")
            }
            (Some(Control::Plain), true) => {
                wrong("--control plain with --tls-cert: expected one of them; with a certificate, control connections are TLS")
            }
            _ => Ok(()),
        }
    }

    /// Whether it was said that tokens may go over a network as they are, where they would.
    ///
    /// # Errors
    /// What is expected.
    pub fn check_tokens(&self, listen: SocketAddr, has_keys: bool) -> Result<(), String> {
        if !has_keys || listen.ip().to_canonical().is_loopback() || self.certificate.is_some() || self.control == Some(Control::Plain) {
            return Ok(());
        }
        Err(format!(
            "--listen {listen} with --keys: tokens and the keys of packets would go over the network as they are. Give a certificate, by --tls-cert \
             FILE and --tls-key FILE (`fanin tls new` makes them); or say --control plain where nobody else can read the network, as in a tunnel"
        ))
    }
}
