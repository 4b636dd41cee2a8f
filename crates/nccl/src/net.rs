//! Messages between two ranks over TCP. NCCL takes no plugin without them; collectives go another way ([`crate::group`]).
//!
//! A connection is one stream, one way. It moves when NCCL asks how a request stands, in NCCL's own thread.

use std::collections::HashMap;
use std::ffi::c_int;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fanin_foreign::Region;
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

use crate::abi::REQUESTS_MAX;
use crate::devices::Device;
use crate::handle::Handle;
use crate::log::{Failure, info};
use crate::stream::{Receiver, Sender};

/// What a connection begins with: this, and the secret of the handle.
const HELLO: [u8; 8] = *b"FANINhi1";
const HELLO_BYTES: usize = 16;
/// How long a stranger may keep a place of those who have connected and said nothing.
const HELLO_WAIT: Duration = Duration::from_secs(5);
/// Places for those.
const HELLOS_MAX: usize = 64;
/// How long a connection is tried, and how long a peer may leave bytes unacknowledged.
const PEER_WAIT: Duration = Duration::from_secs(60);
/// How often a silent peer is asked whether it is there.
const KEEPALIVE: Duration = Duration::from_secs(10);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_pause(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::NotConnected)
}

/// Does not wait, sends at once, and notices a host that has gone without a word.
fn prepare(socket: &Socket) -> std::io::Result<()> {
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_user_timeout(Some(PEER_WAIT))?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE))
}

/// A place that one peer connects to.
pub(crate) struct Listener {
    socket: TcpListener,
    secret: u64,
    /// Those who have connected, what they have said so far, and since when.
    hellos: Vec<(TcpStream, [u8; HELLO_BYTES], usize, Instant)>,
}

impl Listener {
    /// At a device's address; and its handle.
    pub(crate) fn new(device: &Device) -> Result<(Self, Handle), Failure> {
        let listen = || {
            let socket = TcpListener::bind((device.address, 0))?;
            socket.set_nonblocking(true)?;
            let address = socket.local_addr()?;
            Ok::<_, std::io::Error>((socket, address))
        };
        let (socket, address) = listen().map_err(|error| Failure::system(format!("nobody can listen at {}: {error}", device.address)))?;
        let handle = Handle::new(Some(address));
        Ok((Listener { socket, secret: handle.secret, hellos: Vec::new() }, handle))
    }

    /// The connection of the peer that has the handle, once it is there. Others are turned away.
    pub(crate) fn accept(&mut self) -> Result<Option<Box<Connection>>, Failure> {
        loop {
            match self.socket.accept() {
                Ok((stream, _)) if self.hellos.len() < HELLOS_MAX => {
                    let stream = Socket::from(stream);
                    prepare(&stream).map_err(|error| Failure::system(format!("a connection cannot be set up: {error}")))?;
                    self.hellos.push((stream.into(), [0; HELLO_BYTES], 0, Instant::now()));
                }
                Ok((stream, peer)) => {
                    drop(stream);
                    info(format!("{peer} was turned away: {HELLOS_MAX} others have connected and said nothing yet"));
                }
                Err(error) if is_pause(error.kind()) => break,
                // One that has gone again meanwhile.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) => return Err(Failure::system(format!("no connection can be accepted: {error}"))),
            }
        }
        let mut index = 0;
        while index < self.hellos.len() {
            let (stream, said, count, since) = &mut self.hellos[index];
            let is_gone = match stream.read(&mut said[*count..]) {
                Ok(0) => true,
                Ok(more) => {
                    *count += more;
                    false
                }
                Err(error) if is_pause(error.kind()) => since.elapsed() > HELLO_WAIT,
                Err(_) => true,
            };
            if *count == HELLO_BYTES || is_gone {
                let (stream, said, count, _) = self.hellos.swap_remove(index);
                let peer = stream.peer_addr().map_or_else(|_| "a peer".into(), |peer| peer.to_string());
                if count == HELLO_BYTES && said == hello(self.secret) {
                    return Ok(Some(Connection::around(stream, peer, Wire::Receiver(Receiver::default()))));
                }
                info(format!("{peer} was turned away: it does not have this handle"));
            } else {
                index += 1;
            }
        }
        Ok(None)
    }
}

fn hello(secret: u64) -> [u8; HELLO_BYTES] {
    let mut hello = [0; HELLO_BYTES];
    hello[..8].copy_from_slice(&HELLO);
    hello[8..].copy_from_slice(&secret.to_le_bytes());
    hello
}

/// A connection that is being made.
struct Attempt {
    socket: Socket,
    address: SocketAddr,
    /// Bytes of the hello that have gone.
    said: usize,
    since: Instant,
}

/// Attempts, by the memory that their handle lies in, which is the same whenever NCCL asks again, and its secret.
static ATTEMPTS: LazyLock<Mutex<HashMap<(usize, u64), Attempt>>> = LazyLock::new(Mutex::default);

/// Goes on with connecting to a handle, which lies at `place`; the connection, once it is there.
pub(crate) fn connect(handle: Handle, place: usize, device: &Device) -> Result<Option<Box<Connection>>, Failure> {
    let address = handle.address.ok_or_else(|| Failure::argument("the handle has no address: it is one of a group"))?;
    let key = (place, handle.secret);
    let mut attempts = locked(&ATTEMPTS);
    let mut attempt = match attempts.remove(&key) {
        Some(attempt) => attempt,
        None => begin(address, device)?,
    };
    if advance(&mut attempt, handle.secret)? {
        let stream = TcpStream::from(attempt.socket);
        return Ok(Some(Connection::around(stream, address.to_string(), Wire::Sender(Sender::new()))));
    }
    attempts.insert(key, attempt);
    Ok(None)
}

fn begin(address: SocketAddr, device: &Device) -> Result<Attempt, Failure> {
    let start = || {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        prepare(&socket)?;
        if device.address.is_ipv4() == address.is_ipv4() && !address.ip().is_loopback() {
            socket.bind(&SocketAddr::new(device.address, 0).into())?;
        }
        match socket.connect(&address.into()) {
            // EINPROGRESS is a kind of its own only in newer standard libraries.
            Err(error) if !is_pause(error.kind()) && error.raw_os_error() != Some(IN_PROGRESS) => Err(error),
            _ => Ok(socket),
        }
    };
    let socket = start().map_err(|error| Failure::remote(format!("{address} cannot be reached: {error}")))?;
    Ok(Attempt { socket, address, said: 0, since: Instant::now() })
}

/// `EINPROGRESS` of Linux.
const IN_PROGRESS: i32 = 115;

/// Whether the hello has gone.
fn advance(attempt: &mut Attempt, secret: u64) -> Result<bool, Failure> {
    let address = attempt.address;
    let failed = |error: std::io::Error| Failure::remote(format!("{address} cannot be reached: {error}"));
    if let Some(error) = attempt.socket.take_error().map_err(failed)? {
        return Err(failed(error));
    }
    let hello = hello(secret);
    while attempt.said < hello.len() {
        match (&attempt.socket).write(&hello[attempt.said..]) {
            Ok(count) => attempt.said += count,
            Err(error) if is_pause(error.kind()) => {
                if attempt.since.elapsed() > PEER_WAIT {
                    return Err(Failure::remote(format!("{address} has not answered within {} s", PEER_WAIT.as_secs())));
                }
                return Ok(false);
            }
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(true)
}

/// Which way a connection goes.
enum Wire {
    Sender(Sender),
    Receiver(Receiver),
}

/// How a request stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    Free,
    UnderWay,
    /// With so many bytes.
    Ended(usize),
}

struct State {
    stream: TcpStream,
    wire: Wire,
    requests: [Standing; REQUESTS_MAX],
    /// Why nothing moves any more.
    broken: Option<String>,
    messages: u64,
    bytes: u64,
}

/// A connection, one way.
pub(crate) struct Connection {
    peer: String,
    state: Mutex<State>,
    /// What NCCL holds as requests: addresses in here.
    places: Vec<Place>,
}

/// What a request points to.
pub(crate) struct Place {
    /// The connection, which does not move while it lives.
    connection: *const Connection,
    slot: usize,
}

impl Connection {
    fn around(stream: TcpStream, peer: String, wire: Wire) -> Box<Connection> {
        let state = State { stream, wire, requests: [Standing::Free; REQUESTS_MAX], broken: None, messages: 0, bytes: 0 };
        let mut connection = Box::new(Connection { peer, state: Mutex::new(state), places: Vec::with_capacity(REQUESTS_MAX) });
        let address: *const Connection = &raw const *connection;
        connection.places.extend((0..REQUESTS_MAX).map(|slot| Place { connection: address, slot }));
        connection
    }

    /// Starts to send or to receive; nothing where as many requests as there may be are under way.
    ///
    /// # Safety
    /// The memory stays where it is, and nobody else touches it, until the request has ended.
    pub(crate) unsafe fn start(&self, tag: c_int, memory: Region) -> Result<Option<&Place>, Failure> {
        memory.check("message").map_err(Failure::argument)?;
        let mut state = locked(&self.state);
        self.check(&state)?;
        let Some(slot) = state.requests.iter().position(|standing| *standing == Standing::Free) else { return Ok(None) };
        state.requests[slot] = Standing::UnderWay;
        match &mut state.wire {
            Wire::Sender(sender) => sender.push(slot, tag.cast_unsigned(), memory),
            Wire::Receiver(receiver) => receiver.push(slot, tag.cast_unsigned(), memory),
        }
        // SAFETY: as this function's, of all requests that are under way.
        unsafe { self.advance(&mut state)? };
        Ok(Some(&self.places[slot]))
    }

    fn check(&self, state: &State) -> Result<(), Failure> {
        match &state.broken {
            Some(words) => Err(Failure::remote(format!("{}: {words}", self.peer))),
            None => Ok(()),
        }
    }

    /// # Safety
    /// As [`Connection::start`], of all requests that are under way.
    unsafe fn advance(&self, state: &mut State) -> Result<(), Failure> {
        self.check(state)?;
        let State { stream, wire, requests, broken, messages, bytes } = state;
        let ended = |(slot, count): (usize, usize)| {
            requests[slot] = Standing::Ended(count);
            *messages += 1;
            *bytes += count as u64;
        };
        // SAFETY: as this function's.
        let moved = unsafe {
            match wire {
                Wire::Sender(sender) => sender.advance(stream, ended),
                Wire::Receiver(receiver) => receiver.advance(stream, ended),
            }
        };
        if let Err(words) = moved {
            *broken = Some(words);
        }
        self.check(state)
    }

    /// How many messages have gone, and bytes; for the log.
    pub(crate) fn told(&self) -> String {
        let state = locked(&self.state);
        let way = if matches!(state.wire, Wire::Sender(_)) { "to" } else { "from" };
        format!("{} messages {way} {}, {} bytes", state.messages, self.peer, state.bytes)
    }
}

impl Place {
    /// Whether the request has ended, and with how many bytes; its place is free then.
    ///
    /// # Safety
    /// The connection lives; of its memory as [`Connection::start`].
    pub(crate) unsafe fn test(&self) -> Result<Option<usize>, Failure> {
        // SAFETY: as this function's; the connection has been in this place since it was made.
        let connection = unsafe { &*self.connection };
        let mut state = locked(&connection.state);
        if state.requests[self.slot] == Standing::UnderWay {
            // SAFETY: as this function's.
            unsafe { connection.advance(&mut state)? };
        }
        match state.requests[self.slot] {
            Standing::Ended(bytes) => {
                state.requests[self.slot] = Standing::Free;
                Ok(Some(bytes))
            }
            Standing::UnderWay => Ok(None),
            Standing::Free => Err(Failure::argument("the request has ended before: test was told so")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::device;

    fn region(memory: &mut [u8]) -> Region {
        Region { address: memory.as_mut_ptr() as usize, bytes: memory.len() }
    }

    fn pair() -> (Box<Connection>, Box<Connection>) {
        let device = device(0).unwrap();
        let (mut listener, handle) = Listener::new(device).unwrap();
        assert!(listener.accept().unwrap().is_none(), "nobody has come yet");
        // A stranger, who does not have the handle.
        let mut stranger = TcpStream::connect(handle.address.unwrap()).unwrap();
        stranger.write_all(&hello(handle.secret ^ 1)).unwrap();
        let (mut sender, mut receiver) = (None, None);
        while sender.is_none() || receiver.is_none() {
            sender = sender.or_else(|| connect(handle, 4711, device).unwrap());
            receiver = receiver.or_else(|| listener.accept().unwrap());
        }
        (sender.unwrap(), receiver.unwrap())
    }

    #[test]
    fn messages_go_from_one_to_the_other_and_no_more_than_there_may_be_at_once() {
        let (sender, receiver) = pair();
        let mut sent: Vec<Vec<u8>> = (0..REQUESTS_MAX).map(|at| vec![at as u8; 100_000 * (at % 3)]).collect();
        let mut got = vec![vec![255; 200_000]; REQUESTS_MAX];
        // SAFETY: the vectors stay until all has ended.
        unsafe {
            let mut receives: Vec<_> = got.iter_mut().map(|memory| receiver.start(5, region(memory)).unwrap().unwrap()).collect();
            let mut sends: Vec<_> = sent.iter_mut().map(|memory| sender.start(5, region(memory)).unwrap().unwrap()).collect();
            assert!(receiver.start(5, Region::NONE).unwrap().is_none(), "all places are taken");
            while !(receives.is_empty() && sends.is_empty()) {
                receives.retain(|request| request.test().unwrap().is_none());
                sends.retain(|request| request.test().unwrap().is_none());
            }
        }
        for (sent, got) in sent.iter().zip(&got) {
            assert!(got[..sent.len()] == sent[..] && got[sent.len()..].iter().all(|byte| *byte == 255));
        }
        assert!(sender.told().starts_with("32 messages to"));
    }

    #[test]
    fn a_peer_that_is_gone_ends_all_requests() {
        let (sender, receiver) = pair();
        let mut memory = vec![0; 10];
        // SAFETY: the vector stays until the end.
        let request = unsafe { receiver.start(1, region(&mut memory)).unwrap().unwrap() };
        drop(sender);
        let start = Instant::now();
        // SAFETY: as above.
        while unsafe { request.test() }.is_ok() {
            assert!(start.elapsed() < HELLO_WAIT);
        }
        // SAFETY: as above.
        assert!(unsafe { receiver.start(1, region(&mut memory)) }.is_err());
    }

    #[test]
    fn where_nobody_listens_the_attempt_ends() {
        let device = device(0).unwrap();
        let (listener, handle) = Listener::new(device).unwrap();
        drop(listener);
        let start = Instant::now();
        while connect(handle, 42, device).is_ok() {
            assert!(start.elapsed() < HELLO_WAIT);
        }
        assert!(locked(&ATTEMPTS).keys().all(|(place, _)| *place != 42));
    }
}
