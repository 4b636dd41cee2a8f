//! The other side of a control connection to a switch of a fabric. It waits for each answer: testbeds have nothing else to do.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use fanin_channel::{ClientTls, HandshakeError, Patience, Stream};
use fanin_control::{Decoder, FabricReply, FabricRequest, FrameError, Hello, JobAnnouncement, SwitchStatus, encode};
use fanin_trust::Protection;

/// Why a switch has not done what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum FabricClientError {
    /// The switch is not there, or does not answer in time.
    #[error("the switch at {address} does not answer: {source}")]
    Connection {
        /// Where it should be.
        address: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// What answers is no switch of a fabric.
    #[error("what answers at {address} is no switch of a fabric: {what}")]
    Protocol {
        /// Where it is.
        address: SocketAddr,
        /// What it said.
        what: String,
    },
    /// The switch makes packets in another way than its manager has ranks make them.
    #[error("the switch at {address} has {of_switch}, and the manager {of_manager}: expected the same --packets and --fabric-key at both")]
    Keys {
        /// Where it is.
        address: SocketAddr,
        /// What it does for packets.
        of_switch: String,
        /// What its manager does.
        of_manager: String,
    },
    /// The switch has refused.
    #[error("the switch at {address} refuses: {text}")]
    Refused {
        /// Where it is.
        address: SocketAddr,
        /// Why, in its words.
        text: String,
    },
}

/// A control connection to a switch of a fabric.
#[derive(Debug)]
pub struct FabricClient {
    address: SocketAddr,
    stream: Stream,
    decoder: Decoder,
    instance: u64,
    /// What it does for packets, and which key they are made with.
    packets: Packets,
}

/// What is done for packets, and which key they are made with.
pub(crate) type Packets = (Protection, Option<String>);

/// The same in words.
fn words((protection, key): &Packets) -> String {
    match key {
        None => format!("--packets {protection} and no key"),
        Some(key) => format!("--packets {protection} and the key {key}"),
    }
}

impl FabricClient {
    /// Connects; `timeout` is for this and for each answer.
    ///
    /// # Errors
    /// [`FabricClientError`] with the address.
    pub fn connect(address: SocketAddr, timeout: Duration) -> Result<Self, FabricClientError> {
        FabricClient::connect_by(None, address, timeout)
    }

    /// As [`FabricClient::connect`], by TLS where that is said.
    ///
    /// # Errors
    /// As [`FabricClient::connect`], also where the two do not trust each other.
    pub fn connect_by(tls: Option<&ClientTls>, address: SocketAddr, timeout: Duration) -> Result<Self, FabricClientError> {
        let until = Instant::now() + timeout;
        let open = || {
            let tcp = TcpStream::connect_timeout(&address, timeout)?;
            tcp.set_nodelay(true)?;
            let stream = match tls {
                None => Stream::plain(tcp),
                Some(tls) => {
                    tls.connect(tcp, &address.ip().to_string(), &Patience { until, gives_up: &|| false }).map_err(|error| match error {
                        HandshakeError::Io(error) => error,
                        HandshakeError::Refused(text) => io::Error::other(text),
                    })?
                }
            };
            stream.set_read_timeout(Some(timeout))?;
            stream.set_write_timeout(Some(timeout))?;
            Ok(stream)
        };
        let stream = open().map_err(|source| FabricClientError::Connection { address, source })?;
        let mut client = FabricClient { address, stream, decoder: Decoder::new(), instance: 0, packets: Packets::default() };
        let hello = Hello::new(concat!("fanin ", env!("CARGO_PKG_VERSION")));
        match client.ask(&FabricRequest::Hello(hello))? {
            FabricReply::Hello(hello) => {
                Ok(FabricClient { instance: hello.switch_instance, packets: (hello.packets, hello.fabric_key), ..client })
            }
            other => Err(client.unexpected(&other)),
        }
    }

    /// Whether the switch does the same for packets.
    ///
    /// # Errors
    /// [`FabricClientError::Keys`].
    pub(crate) fn agrees(&self, with: &Packets) -> Result<(), FabricClientError> {
        if self.packets == *with {
            return Ok(());
        }
        Err(FabricClientError::Keys { address: self.address, of_switch: words(&self.packets), of_manager: words(with) })
    }

    /// Which life of the switch this is.
    pub fn instance(&self) -> u64 {
        self.instance
    }

    /// Begins a job; says whether it has a node at this switch.
    ///
    /// # Errors
    /// [`FabricClientError`].
    pub fn announce(&mut self, job: &JobAnnouncement) -> Result<bool, FabricClientError> {
        match self.ask(&FabricRequest::Announce(Box::new(job.clone())))? {
            FabricReply::Announced { takes_part, .. } => Ok(takes_part),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Ends a job.
    ///
    /// # Errors
    /// [`FabricClientError`].
    pub fn end(&mut self, job: u16) -> Result<(), FabricClientError> {
        match self.ask(&FabricRequest::End { job })? {
            FabricReply::Ended { .. } => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    /// How the switch is.
    ///
    /// # Errors
    /// [`FabricClientError`].
    pub fn status(&mut self) -> Result<SwitchStatus, FabricClientError> {
        match self.ask(&FabricRequest::Status)? {
            FabricReply::Status(status) => Ok(*status),
            other => Err(self.unexpected(&other)),
        }
    }

    fn unexpected(&self, reply: &FabricReply) -> FabricClientError {
        let address = self.address;
        match reply {
            FabricReply::Refused { text } => FabricClientError::Refused { address, text: text.clone() },
            other => FabricClientError::Protocol { address, what: format!("{other:?}") },
        }
    }

    fn ask(&mut self, request: &FabricRequest) -> Result<FabricReply, FabricClientError> {
        let address = self.address;
        let lost = |source| FabricClientError::Connection { address, source };
        self.stream.write_all(&encode(request)).map_err(lost)?;
        let mut buffer = [0; 4_096];
        loop {
            let reply = self.decoder.next();
            let reply = reply.map_err(|error: FrameError| FabricClientError::Protocol { address, what: error.to_string() })?;
            if let Some(reply) = reply {
                return Ok(reply);
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(lost(io::ErrorKind::UnexpectedEof.into())),
                Ok(bytes) => self.decoder.push(&buffer[..bytes]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(lost(error)),
            }
        }
    }
}
