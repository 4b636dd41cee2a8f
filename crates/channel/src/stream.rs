//! The blocking end of a control connection: one thread reads, and others write.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustls::ClientConnection;

use crate::show::{self, Shown};
use crate::words::words;

/// How much is read from the socket at once: a record of TLS and its head (RFC 8446, section 5.2).
const READ_BYTES: usize = (16 << 10) + 256 + 5;
/// How often it is asked during a handshake whether to give up.
const LOOK: Duration = Duration::from_millis(50);
/// How long it may take to say that nothing more comes.
const LAST_WORD_LIMIT: Duration = Duration::from_millis(100);

/// For how long to wait for the other end.
pub struct Patience<'a> {
    /// Until then.
    pub until: Instant,
    /// Asked about every 50 ms: whether to give up before that.
    pub gives_up: &'a dyn Fn() -> bool,
}

/// A control connection. Clones are the same connection, as those of a [`TcpStream`] are.
#[derive(Clone, Debug)]
pub struct Stream(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    socket: TcpStream,
    tls: Option<Box<Tls>>,
}

/// TLS on a socket. Nobody holds `session` while the socket makes it wait, so that who reads and who writes do not wait for each other. Locks are taken
/// in the order in which they are here.
#[derive(Debug)]
struct Tls {
    incoming: Mutex<Incoming>,
    /// What is about to go into the socket, in the order in which it was sealed.
    outgoing: Mutex<Vec<u8>>,
    session: Mutex<ClientConnection>,
}

/// What has come.
#[derive(Debug)]
struct Incoming {
    raw: Box<[u8]>,
    plain: Vec<u8>,
    /// So much of `plain` was given out.
    taken: usize,
    /// Nothing more will come.
    has_ended: bool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn broken(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

impl Stream {
    /// What is said goes as it is.
    pub fn plain(socket: TcpStream) -> Self {
        Stream(Arc::new(Inner { socket, tls: None }))
    }

    /// What is said goes by TLS, whose handshake is still to come.
    pub(crate) fn with_tls(socket: TcpStream, mut session: ClientConnection) -> Self {
        // What is written is sealed at once.
        session.set_buffer_limit(None);
        let incoming = Incoming { raw: vec![0; READ_BYTES].into(), plain: Vec::new(), taken: 0, has_ended: false };
        let tls = Tls { incoming: Mutex::new(incoming), outgoing: Mutex::default(), session: Mutex::new(session) };
        Stream(Arc::new(Inner { socket, tls: Some(Box::new(tls)) }))
    }

    /// Whether nobody between the two ends can read or change what is said.
    pub fn is_sealed(&self) -> bool {
        self.0.tls.is_some()
    }

    /// The certificate that the other end is known by, where it has one.
    pub fn peer_certificate(&self) -> Option<Shown> {
        let session = locked(&self.0.tls.as_ref()?.session);
        show::certificate(session.peer_certificates()?.first()?).ok()
    }

    /// The address of this end.
    ///
    /// # Errors
    /// The kernel's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.socket.local_addr()
    }

    /// The address of the other end.
    ///
    /// # Errors
    /// The kernel's.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.socket.peer_addr()
    }

    /// How long a read may take, as for a [`TcpStream`].
    ///
    /// # Errors
    /// The kernel's; a limit of zero is one.
    pub fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        self.0.socket.set_read_timeout(limit)
    }

    /// How long a write may take.
    ///
    /// # Errors
    /// As [`Stream::set_read_timeout`].
    pub fn set_write_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        self.0.socket.set_write_timeout(limit)
    }

    /// Ends both directions; who waits for something to read sees the end at once. What was written still arrives.
    ///
    /// # Errors
    /// The kernel's.
    pub fn shutdown(&self) -> io::Result<()> {
        // That nothing more comes is said where it can be at once: a thread that waits for room in the socket is not waited for.
        if let Some(tls) = &self.0.tls
            && let Ok(outgoing) = tls.outgoing.try_lock()
        {
            self.set_write_timeout(Some(LAST_WORD_LIMIT))?;
            locked(&tls.session).send_close_notify();
            // The other end sees the end of the connection in any case.
            let _ = self.write_sealed(tls, outgoing, &[]);
        }
        self.0.socket.shutdown(Shutdown::Both)
    }

    /// Agrees with the other end upon keys; gives the protocol that it says it speaks.
    ///
    /// # Errors
    /// The socket's, [`io::ErrorKind::TimedOut`] where patience is over, or a [`rustls::Error`] inside.
    pub(crate) fn shake_hands(&self, patience: &Patience<'_>) -> io::Result<Option<Vec<u8>>> {
        let Some(tls) = &self.0.tls else { return Ok(None) };
        let mut incoming = locked(&tls.incoming);
        loop {
            let left = patience.until.saturating_duration_since(Instant::now());
            if left.is_zero() || (patience.gives_up)() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.set_write_timeout(Some(left))?;
            self.flush_tls(tls)?;
            let session = locked(&tls.session);
            if !session.is_handshaking() {
                let protocol = session.alpn_protocol().map(<[u8]>::to_vec);
                drop(session);
                self.set_write_timeout(None)?;
                self.set_read_timeout(None)?;
                return Ok(protocol);
            }
            drop(session);
            self.set_read_timeout(Some(left.min(LOOK)))?;
            match (&self.0.socket).read(&mut incoming.raw) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.take_in(tls, &mut incoming, count)?,
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn read_tls(&self, tls: &Tls, into: &mut [u8]) -> io::Result<usize> {
        let mut incoming = locked(&tls.incoming);
        // A part of a record is nothing to read: whoever sends one byte by byte holds nobody for longer than a silent end does.
        let until = self.0.socket.read_timeout()?.map(|limit| Instant::now() + limit);
        let mut has_come = false;
        loop {
            let waiting = &incoming.plain[incoming.taken..];
            if !waiting.is_empty() {
                let count = waiting.len().min(into.len());
                into[..count].copy_from_slice(&waiting[..count]);
                incoming.taken += count;
                return Ok(count);
            }
            if incoming.has_ended || into.is_empty() {
                return Ok(0);
            }
            if has_come && until.is_some_and(|until| Instant::now() >= until) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            has_come = true;
            match (&self.0.socket).read(&mut incoming.raw)? {
                // Cut off: messages have lengths, so that a part of one is not taken for a whole.
                0 => incoming.has_ended = true,
                count => self.take_in(tls, &mut incoming, count).map_err(explained)?,
            }
        }
    }

    /// Opens what has come: `count` bytes of `raw`.
    fn take_in(&self, tls: &Tls, incoming: &mut Incoming, count: usize) -> io::Result<()> {
        incoming.plain.clear();
        incoming.taken = 0;
        let mut session = locked(&tls.session);
        let mut rest = &incoming.raw[..count];
        let mut opened = Ok(());
        while !rest.is_empty() && opened.is_ok() {
            session.read_tls(&mut rest)?;
            opened = session.process_new_packets().map_err(broken).and_then(|state| {
                let before = incoming.plain.len();
                incoming.plain.resize(before + state.plaintext_bytes_to_read(), 0);
                session.reader().read_exact(&mut incoming.plain[before..])?;
                incoming.has_ended |= state.peer_has_closed();
                Ok(())
            });
            if incoming.has_ended {
                break;
            }
        }
        let has_answer = session.wants_write();
        drop(session);
        if has_answer {
            // An alert, or a new key: where it cannot be sent, that shows at the next read.
            let _ = self.flush_tls(tls);
        }
        opened
    }

    /// Sends what the session has to say.
    fn flush_tls(&self, tls: &Tls) -> io::Result<()> {
        self.write_tls(tls, &[])
    }

    fn write_tls(&self, tls: &Tls, bytes: &[u8]) -> io::Result<()> {
        self.write_sealed(tls, locked(&tls.outgoing), bytes)
    }

    fn write_sealed(&self, tls: &Tls, mut outgoing: MutexGuard<'_, Vec<u8>>, bytes: &[u8]) -> io::Result<()> {
        let mut session = locked(&tls.session);
        session.writer().write_all(bytes)?;
        while session.wants_write() {
            session.write_tls(&mut *outgoing)?;
        }
        drop(session);
        let sent = (&self.0.socket).write_all(&outgoing);
        outgoing.clear();
        sent
    }
}

/// An error of TLS on a connection that was good.
fn explained(error: io::Error) -> io::Error {
    match error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>()) {
        Some(why) => io::Error::new(io::ErrorKind::InvalidData, words(why)),
        None => error,
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &self.0.tls {
            None => (&self.0.socket).read(into),
            Some(tls) => self.read_tls(tls, into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &self.0.tls {
            None => (&self.0.socket).write(bytes),
            Some(tls) => self.write_tls(tls, bytes).map(|()| bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
