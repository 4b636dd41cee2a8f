//! One UDP socket: opened with large buffers, never blocking except in [`Socket::wait`].

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use quinn_udp::{EcnCodepoint, RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg_addr, sockopt};

use crate::nearby::Inbox;
use crate::waker::Waker;

/// Where to bind and how large the kernel's buffers should be.
#[derive(Clone, Debug)]
pub struct SocketConfig {
    /// The local address; port 0 lets the kernel choose.
    pub bind: SocketAddr,
    /// Wanted `SO_RCVBUF` in bytes. On loopback and virtual links this is where a burst waits, so it must hold the windows of all
    /// peers together.
    pub receive_buffer_bytes: usize,
    /// Wanted `SO_SNDBUF` in bytes.
    pub send_buffer_bytes: usize,
    /// Mark datagrams as ECN-capable (ECT(0)). Right only for systems that slow down when they see marks.
    pub ecn_capable: bool,
    /// Datagrams between this socket and others of the process that have said the same go through memory, without the kernel. The address
    /// must be one that others send to: not an unspecified one.
    pub nearby: bool,
}

impl SocketConfig {
    /// Large buffers, no ECN, nothing nearby, bound to `bind`.
    pub fn new(bind: SocketAddr) -> Self {
        SocketConfig { bind, receive_buffer_bytes: 16 << 20, send_buffer_bytes: 1 << 20, ecn_capable: false, nearby: false }
    }
}

/// Why a socket could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    /// The address is taken, not local, or sockets are not permitted.
    #[error("cannot bind a UDP socket to {address}: {source}")]
    Bind {
        /// The address asked for.
        address: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel refused to set up the socket.
    #[error("cannot set up the UDP socket at {address}: {what}: {source}")]
    SetUp {
        /// The socket's address.
        address: SocketAddr,
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

/// What [`Socket::wait`] came back for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Readiness {
    /// Datagrams can be read.
    pub readable: bool,
    /// The send buffer has room again.
    pub writable: bool,
    /// A [`Waker`] was used.
    pub woken: bool,
}

/// A UDP socket that sends and receives in batches.
pub struct Socket {
    udp: UdpSocket,
    state: UdpSocketState,
    address: SocketAddr,
    ecn: Option<EcnCodepoint>,
    wake: Waker,
    inbox: Option<Arc<Inbox>>,
    receive_buffer_bytes: usize,
    send_buffer_bytes: usize,
}

impl Socket {
    /// Opens and binds a socket. Smaller buffers than wanted are not an error; [`Socket::receive_buffer_bytes`] tells.
    ///
    /// # Errors
    /// [`NetError`] with the address and the kernel's reason.
    pub fn bind(config: &SocketConfig) -> Result<Self, NetError> {
        let udp = UdpSocket::bind(config.bind).map_err(|source| NetError::Bind { address: config.bind, source })?;
        let set_up = |what| move |source| NetError::SetUp { address: config.bind, what, source };
        let address = udp.local_addr().map_err(set_up("reading the local address"))?;
        let state = UdpSocketState::new(UdpSockRef::from(&udp)).map_err(set_up("setting socket options"))?;
        let wake =
            eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).map_err(io::Error::from).map_err(set_up("making an eventfd"))?;
        let (receive_buffer_bytes, send_buffer_bytes) = enlarge_buffers(&udp, config).map_err(set_up("reading the buffer sizes"))?;
        if receive_buffer_bytes < config.receive_buffer_bytes {
            tracing::info!(
                wanted_bytes = config.receive_buffer_bytes,
                got_bytes = receive_buffer_bytes,
                "the receive buffer is smaller than wanted: raise the sysctl net.core.rmem_max, or run with CAP_NET_ADMIN"
            );
        }
        if state.max_gso_segments() == 1 {
            tracing::warn!("no UDP segmentation offload (GSO) here: every datagram costs a system call");
        }
        if state.gro_segments() == 1 {
            tracing::warn!("no UDP receive offload (GRO) here: every datagram is delivered on its own");
        }
        let ecn = config.ecn_capable.then_some(EcnCodepoint::Ect0);
        let wake = Waker::new(wake);
        let is_nearby = config.nearby && !address.ip().is_unspecified();
        let inbox = is_nearby.then(|| Inbox::open(address, config.receive_buffer_bytes, wake.clone()));
        Ok(Socket { udp, state, address, ecn, wake, inbox, receive_buffer_bytes, send_buffer_bytes })
    }

    /// The address that the socket is bound to, with the port that the kernel chose.
    pub fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// How much the kernel buffers on the way in, in bytes (what it accounts, headers and slack included).
    pub fn receive_buffer_bytes(&self) -> usize {
        self.receive_buffer_bytes
    }

    /// How much the kernel buffers on the way out, in bytes.
    pub fn send_buffer_bytes(&self) -> usize {
        self.send_buffer_bytes
    }

    /// How many datagrams one system call sends at most; 1 without segmentation offload. May drop to 1 when a send shows that the
    /// network device cannot do it.
    pub fn send_segments_max(&self) -> usize {
        self.state.max_gso_segments()
    }

    /// How many datagrams the kernel hands over as one at most; 1 without receive offload.
    pub fn receive_segments_max(&self) -> usize {
        self.state.gro_segments()
    }

    /// A handle that ends [`Socket::wait`] from another thread.
    pub fn waker(&self) -> Waker {
        self.wake.clone()
    }

    /// Sleeps until there is something to read, or room to write if `writable`, or a wake-up, or the time is over. A signal ends the
    /// wait as well.
    ///
    /// # Errors
    /// What `poll` reports, other than an interruption.
    pub fn wait(&self, timeout: Option<Duration>, writable: bool) -> io::Result<Readiness> {
        let wanted = if writable { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let mut descriptors = [PollFd::new(&self.udp, wanted), PollFd::new(&*self.wake.0, PollFlags::IN)];
        let may_sleep = self.inbox.as_ref().is_none_or(|inbox| inbox.fall_asleep());
        let timeout = if may_sleep { timeout } else { Some(Duration::ZERO) };
        let timeout = timeout.map(|span| Timespec { tv_sec: span.as_secs() as _, tv_nsec: span.subsec_nanos() as _ });
        let polled = poll(&mut descriptors, timeout.as_ref());
        let has_parcels = self.inbox.as_ref().is_some_and(|inbox| inbox.wake_up());
        match polled {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(Readiness { woken: true, readable: has_parcels, writable: false }),
            Err(error) => return Err(error.into()),
        }
        let events = descriptors[0].revents();
        let woken = descriptors[1].revents().contains(PollFlags::IN);
        if woken {
            // Resets the counter; that somebody else did it first is no failure.
            let _ = rustix::io::read(&*self.wake.0, &mut [0u8; 8]);
        }
        let readable = has_parcels || events.intersects(PollFlags::IN | PollFlags::ERR);
        Ok(Readiness { readable, writable: events.contains(PollFlags::OUT), woken })
    }

    /// Sends `contents`, cut into datagrams of `segment` bytes by the kernel.
    pub(crate) fn send(&self, contents: &[u8], segment: usize, destination: SocketAddr) -> io::Result<()> {
        let transmit = Transmit { destination, ecn: self.ecn, contents, segment_size: Some(segment), src_ip: None };
        self.state.try_send(UdpSockRef::from(&self.udp), &transmit)
    }

    /// Sends one datagram whose bytes lie in several places.
    pub(crate) fn send_parts(&self, parts: [&[u8]; 3], destination: SocketAddr) -> io::Result<()> {
        let parts = parts.map(io::IoSlice::new);
        sendmsg_addr(&self.udp, &destination, &parts, &mut SendAncillaryBuffer::default(), SendFlags::DONTWAIT)?;
        Ok(())
    }

    /// Whether datagrams are sent as they are, without marks.
    pub(crate) fn is_plain(&self) -> bool {
        self.ecn.is_none()
    }

    /// Where parcels for this socket wait, if anywhere.
    pub(crate) fn inbox(&self) -> Option<&Inbox> {
        self.inbox.as_deref()
    }

    /// Reads into as many of `buffers` as there is something for; gives how many.
    pub(crate) fn receive(&self, buffers: &mut [io::IoSliceMut<'_>], meta: &mut [RecvMeta]) -> io::Result<usize> {
        self.state.recv(UdpSockRef::from(&self.udp), buffers, meta)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Some(inbox) = &self.inbox {
            inbox.close();
        }
    }
}

/// Asks for large buffers, by force where that is permitted; gives what the kernel grants.
fn enlarge_buffers(udp: &UdpSocket, config: &SocketConfig) -> io::Result<(usize, usize)> {
    // The kernel doubles what is asked for, to account for its own structures, and reports the doubled value.
    let (receive, send) = (config.receive_buffer_bytes / 2, config.send_buffer_bytes / 2);
    if sockopt::set_socket_recv_buffer_size_force(udp, receive).is_err() {
        sockopt::set_socket_recv_buffer_size(udp, receive)?;
    }
    if sockopt::set_socket_send_buffer_size_force(udp, send).is_err() {
        sockopt::set_socket_send_buffer_size(udp, send)?;
    }
    Ok((sockopt::socket_recv_buffer_size(udp)?, sockopt::socket_send_buffer_size(udp)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn a_waker_ends_a_wait_without_end_and_only_once() {
        let socket = Socket::bind(&SocketConfig::new((Ipv4Addr::LOCALHOST, 0).into())).unwrap();
        socket.waker().wake();
        assert_eq!(socket.wait(None, false).unwrap(), Readiness { woken: true, ..Readiness::default() });
        assert_eq!(socket.wait(Some(Duration::ZERO), false).unwrap(), Readiness::default());
    }

    #[test]
    fn an_address_that_is_taken_is_named_in_the_error() {
        let taken = Socket::bind(&SocketConfig::new((Ipv4Addr::LOCALHOST, 0).into())).unwrap();
        let Err(error) = Socket::bind(&SocketConfig::new(taken.local_address())) else { panic!("bound twice") };
        assert!(error.to_string().contains(&taken.local_address().to_string()), "{error}");
    }
}
