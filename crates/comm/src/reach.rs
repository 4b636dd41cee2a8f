//! How this rank goes to where its job meets: as it is, or by TLS.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use fanin_channel::{ClientTls, HandshakeError, Patience, ServerTls, Stream};

use crate::config::Config;

/// How long keys may take to be agreed upon, at most.
pub(crate) const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Reach {
    tls: Option<ClientTls>,
    /// What the other side is called.
    host: String,
}

impl Reach {
    /// As the configuration says.
    pub(crate) fn of(config: &Config) -> Self {
        Reach { tls: config.tls.clone(), host: config.host().to_owned() }
    }

    /// Whether nobody on the way can read what is said.
    pub(crate) fn is_sealed(&self) -> bool {
        self.tls.is_some()
    }

    /// Goes to `address`, within `limit`; `gives_up` is asked meanwhile.
    ///
    /// # Errors
    /// [`HandshakeError`].
    pub(crate) fn open(&self, address: SocketAddr, limit: Duration, gives_up: &dyn Fn() -> bool) -> Result<Stream, HandshakeError> {
        let begun = Instant::now();
        let tcp = TcpStream::connect_timeout(&address, limit).map_err(HandshakeError::Io)?;
        if is_to_itself(&tcp) {
            give_up(&tcp);
            return Err(HandshakeError::Io(io::ErrorKind::ConnectionRefused.into()));
        }
        tcp.set_nodelay(true).map_err(HandshakeError::Io)?;
        self.enter(tcp, &Patience { until: begun + limit.max(HANDSHAKE_LIMIT), gives_up })
    }

    /// The connection that has been made.
    ///
    /// # Errors
    /// As [`Reach::open`].
    fn enter(&self, tcp: TcpStream, patience: &Patience<'_>) -> Result<Stream, HandshakeError> {
        match &self.tls {
            None => Ok(Stream::plain(tcp)),
            Some(tls) => tls.connect(tcp, &self.host, patience),
        }
    }
}

/// What a switch in this process speaks TLS with: ranks know each other by what they know the switch by.
pub(crate) fn server_of(tls: &ClientTls) -> Option<ServerTls> {
    Some(ServerTls { identity: tls.identity.clone()?, clients: Some(tls.trusted.clone()) })
}

/// Who calls a port of this host at which nobody listens may, sooner or later, call from just that port: TCP then connects the socket to
/// itself, and the switch cannot have its port back.
fn is_to_itself(stream: &TcpStream) -> bool {
    matches!((stream.local_addr(), stream.peer_addr()), (Ok(here), Ok(there)) if here == there)
}

/// Closes a connection at once: its port is free, without the minute that TCP else keeps it.
fn give_up(stream: &TcpStream) {
    if let Err(error) = rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO)) {
        tracing::debug!(%error, "the port of a connection to itself stays taken for a while");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketType, bind, connect, getsockname, socket};

    #[test]
    fn a_connection_of_a_port_to_itself_is_known_and_gives_the_port_back() {
        let nowhere: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&socket, &nowhere).unwrap();
        let address = SocketAddr::try_from(getsockname(&socket).unwrap()).unwrap();
        connect(&socket, &address).unwrap();
        let stream = TcpStream::from(socket);
        assert!(is_to_itself(&stream));
        give_up(&stream);
        drop(stream);
        let listener = std::net::TcpListener::bind(address).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(!is_to_itself(&client));
    }
}
