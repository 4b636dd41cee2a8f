//! A worker's end: plain TCP to the successor on the ring, plain TCP from the predecessor, nothing else.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use fanin_core::ElementOp;
use fanin_wire::stream::{MessageHeader, REASON_BYTES_MAX, SEAL_BYTES, checksum, parse_reason, seal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How long a switch's word may come after the end of a connection.
const WORD_WAIT: Duration = Duration::from_millis(100);
/// What the first bytes are by which workers agree on a ring's number.
const GREETING: [u8; 8] = *b"fanring1";
/// The whole: ring, rank and world follow, little-endian.
const GREETING_BYTES: usize = 16;
/// Between two attempts to reach a successor that does not listen yet.
const RETRY: Duration = Duration::from_millis(20);

/// Why a collective has failed.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The ring was not closed in time.
    #[error("rank {rank} has not met {what} within {waited:?}")]
    NotMet {
        /// Who waited.
        rank: u16,
        /// For whom.
        what: String,
        /// How long.
        waited: Duration,
    },
    /// A connection broke: a neighbour is gone, or the switch has reset the ring.
    #[error("the connection with {peer} is gone ({error}): {}", why(reason))]
    Broken {
        /// The neighbour; both, where the connection with the other one is gone as well.
        peer: String,
        /// What the kernel said.
        error: io::Error,
        /// What the switch has said before it reset the ring, if it was that.
        reason: Option<String>,
    },
    /// Nothing moved for too long.
    #[error("for {waited:?} nothing has come from {from}: a worker is late or dead, and the switch's log says which")]
    Stalled {
        /// The predecessor.
        from: String,
        /// How long.
        waited: Duration,
    },
    /// What came is not a result.
    #[error("{0}")]
    NoResult(String),
    /// A vector of the wrong length.
    #[error("field `{name}` has {got} bytes, and {expected} are expected")]
    Length {
        /// Which vector.
        name: &'static str,
        /// Its bytes.
        got: usize,
        /// The right number.
        expected: usize,
    },
}

fn why(reason: &Option<String>) -> String {
    match reason {
        Some(reason) => format!("the switch says: {reason}"),
        None => "a worker has died, or the switch has ended the ring and its log says why".to_owned(),
    }
}

/// Where a worker stands.
#[derive(Clone, Debug)]
pub struct RingPlace {
    /// Which workers belong together.
    pub ring: u32,
    /// This one.
    pub rank: u16,
    /// How many there are.
    pub world: u16,
    /// Where the successor listens.
    pub successor: SocketAddr,
    /// How long nothing may move.
    pub patience: Duration,
}

/// A worker's two connections.
#[derive(Debug)]
pub struct RingStream {
    place: RingPlace,
    to: TcpStream,
    from: TcpStream,
    from_name: String,
    message: u32,
}

impl RingStream {
    /// Meets the neighbours: the successor by its address, the predecessor at `listener`.
    ///
    /// # Errors
    /// [`StreamError::NotMet`] after the place's patience.
    pub fn connect(place: RingPlace, listener: &TcpListener) -> Result<Self, StreamError> {
        let start = Instant::now();
        let not_met = |what: String| StreamError::NotMet { rank: place.rank, what, waited: place.patience };
        let broken = |error| StreamError::Broken { peer: place.successor.to_string(), error, reason: None };
        listener.set_nonblocking(true).map_err(broken)?;
        let (mut to, mut from) = (None, None);
        loop {
            if to.is_none() {
                to = TcpStream::connect_timeout(&place.successor, RETRY.max(Duration::from_millis(200))).ok();
            }
            if from.is_none() {
                from = listener.accept().ok();
            }
            if let (Some(to), Some((from, peer))) = (&to, &from) {
                for stream in [to, from] {
                    stream.set_nonblocking(true).map_err(broken)?;
                    stream.set_nodelay(true).map_err(broken)?;
                }
                let clone = |stream: &TcpStream| stream.try_clone().map_err(broken);
                return Ok(RingStream { to: clone(to)?, from: clone(from)?, from_name: peer.to_string(), message: 0, place });
            }
            if start.elapsed() > place.patience {
                let missing = if to.is_none() { format!("its successor at {}", place.successor) } else { "its predecessor".to_owned() };
                return Err(not_met(missing));
            }
            std::thread::sleep(RETRY);
        }
    }

    /// Reduces a vector with those of all workers, inside the network. `input` and `output` are equally long; all ranks get the same bits.
    ///
    /// # Errors
    /// [`StreamError`]; the connections are of no use afterwards.
    pub fn allreduce(&mut self, op: ElementOp, input: &[u8], output: &mut [u8]) -> Result<(), StreamError> {
        if output.len() != input.len() {
            return Err(StreamError::Length { name: "output", got: output.len(), expected: input.len() });
        }
        if !input.len().is_multiple_of(op.dtype.bytes()) {
            return Err(StreamError::Length { name: "input", got: input.len(), expected: input.len().next_multiple_of(op.dtype.bytes()) });
        }
        let RingPlace { ring, rank, world, .. } = self.place;
        let header = MessageHeader { op, ring, message: self.message, bytes: input.len() as u64, rank, world, summed: 0 };
        let mut head = [0; MessageHeader::LEN];
        header.emit(&mut head);
        let pad = [0u8; 8];
        let padding = &pad[..(header.sealed_bytes() as usize) - MessageHeader::LEN - input.len()];
        let (mut head_back, mut pad_back) = ([0; MessageHeader::LEN], [0u8; 8]);
        let pad_back = &mut pad_back[..padding.len()];
        let mut seal_back = [0; SEAL_BYTES];
        self.exchange(&[&head, input, padding, &[0; SEAL_BYTES]], &mut [&mut head_back, &mut *output, &mut *pad_back, &mut seal_back])?;
        self.message = self.message.wrapping_add(1);
        let result = MessageHeader::parse(&head_back).map_err(|error| StreamError::NoResult(format!("no message came back: {error}")))?;
        if result.summed == 0 {
            return Err(StreamError::NoResult(format!(
                "the vector of rank {} came as it was sent: no switch between the workers sums (fanin switch --transparent)",
                result.rank
            )));
        }
        match (MessageHeader { summed: world, rank: 0, ..header }).disagreement(&result) {
            Some(field) => Err(StreamError::NoResult(format!("the result has another `{field}` than this rank's message"))),
            None if seal_back != seal([&head_back[..], output, pad_back].iter().fold(0, |crc, part| checksum(crc, part))) => {
                Err(StreamError::NoResult("a part of the result was not summed: the switch was restarted meanwhile".to_owned()))
            }
            None => Ok(()),
        }
    }

    /// The same by the workers themselves, over the same connections: ring allreduce, what NetReduce is compared with.
    ///
    /// # Errors
    /// As [`RingStream::allreduce`].
    pub fn ring_allreduce(&mut self, op: ElementOp, vector: &mut [u8]) -> Result<(), StreamError> {
        let (world, rank) = (usize::from(self.place.world), usize::from(self.place.rank));
        let width = op.dtype.bytes();
        let elements = vector.len() / width;
        let part = |index: usize| {
            let at = |index: usize| elements * index / world * width;
            at(index % world)..at(index % world + 1)
        };
        let mut received = vec![0; part(world - 1).len().max(elements.div_ceil(world) * width)];
        for step in 0..2 * (world - 1) {
            let (gives, takes) = (part(rank + 2 * world - step), part(rank + 2 * world - step - 1));
            let received = &mut received[..takes.len()];
            let gives = vector[gives].to_vec();
            self.exchange(&[&gives], &mut [&mut *received])?;
            if step < world - 1 {
                op.reduce(&mut vector[takes], received).map_err(|error| StreamError::NoResult(error.to_string()))?;
            } else {
                vector[takes].copy_from_slice(received);
            }
        }
        Ok(())
    }

    /// Sends all of `sends` and receives all of `receives`, both at once: whoever sends everything first waits for ever where buffers end.
    ///
    /// # Errors
    /// As [`RingStream::allreduce`].
    pub fn exchange(&mut self, sends: &[&[u8]], receives: &mut [&mut [u8]]) -> Result<(), StreamError> {
        let (mut sent, mut received) = (Place::default(), Place::default());
        let to_send: usize = sends.iter().map(|part| part.len()).sum();
        let to_receive: usize = receives.iter().map(|part| part.len()).sum();
        let mut moved = Instant::now();
        while sent.total < to_send || received.total < to_receive {
            let before = sent.total + received.total;
            while sent.total < to_send {
                let rest = &sends[sent.part][sent.at..];
                match if rest.is_empty() { Ok(0) } else { (&self.to).write(rest) } {
                    Ok(count) => sent.advance(count, sends[sent.part].len()),
                    Err(error) if is_later(&error) => break,
                    Err(error) => return Err(self.broken(&self.place.successor.to_string(), error)),
                }
            }
            while received.total < to_receive {
                let part = &mut receives[received.part][received.at..];
                match if part.is_empty() { Ok(0) } else { (&self.from).read(part) } {
                    Ok(0) if !part.is_empty() => {
                        return Err(self.broken(&self.from_name, io::ErrorKind::UnexpectedEof.into()));
                    }
                    Ok(count) => received.advance(count, receives[received.part].len()),
                    Err(error) if is_later(&error) => break,
                    Err(error) => return Err(self.broken(&self.from_name, error)),
                }
            }
            if sent.total + received.total > before {
                moved = Instant::now();
            } else if moved.elapsed() > self.place.patience {
                return Err(StreamError::Stalled { from: self.from_name.clone(), waited: self.place.patience });
            } else if let Some(error) = self.wait(sent.total < to_send, received.total < to_receive) {
                return Err(self.broken(&self.place.successor.to_string(), error));
            }
        }
        Ok(())
    }

    fn broken(&self, peer: &str, error: io::Error) -> StreamError {
        let reason = self.reason();
        let successor = self.place.successor.to_string();
        let (other, stream) = if peer == successor { (&self.from_name, &self.from) } else { (&successor, &self.to) };
        // A reset may be a neighbour's or the switch's: where both connections have one, either of them may be the cause.
        let peer = if reason.is_none() && is_gone(stream) { format!("{peer}, and the one with {other},") } else { peer.to_owned() };
        StreamError::Broken { peer, error, reason }
    }

    /// What the switch says about the end of the ring: it comes by the connection to the successor, against the direction of the stream.
    fn reason(&self) -> Option<String> {
        let mut fds = [PollFd::from_borrowed_fd(self.to.as_fd(), PollFlags::IN)];
        // What is wrong shows at the read.
        let _ = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: WORD_WAIT.subsec_nanos().into() }));
        let mut bytes = [0; REASON_BYTES_MAX + 6];
        let length = (&self.to).read(&mut bytes).ok()?;
        parse_reason(&bytes[..length])
    }

    /// Waits for something to do. An error if the successor has closed its end although it has not been sent everything: a switch that holds
    /// what was sent until all have contributed keeps it from the host that would refuse it, so that no write would ever fail. And if the
    /// connection to it was reset while nothing is there to be received: who has sent all that it has to send meets that nowhere else.
    fn wait(&self, sends: bool, receives: bool) -> Option<io::Error> {
        let events = |wanted, flag| if wanted { flag } else { PollFlags::empty() };
        let mut fds = [
            PollFd::from_borrowed_fd(self.to.as_fd(), events(sends, PollFlags::OUT | PollFlags::RDHUP)),
            PollFd::from_borrowed_fd(self.from.as_fd(), events(receives, PollFlags::IN)),
        ];
        // What else is wrong shows at the next read or write.
        let _ = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 100_000_000 }));
        if fds[0].revents().contains(PollFlags::RDHUP) {
            return Some(io::Error::new(io::ErrorKind::ConnectionAborted, "closed at the other end before all was sent"));
        }
        let is_reset = fds[0].revents().intersects(PollFlags::ERR | PollFlags::HUP) && fds[1].revents().is_empty();
        is_reset.then(|| self.to.take_error().ok().flatten().unwrap_or_else(|| io::ErrorKind::ConnectionReset.into()))
    }
}

/// Whether a connection is over at its other end.
fn is_gone(stream: &TcpStream) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::RDHUP)];
    let _ = poll(&mut fds, Some(&Timespec::default()));
    !fds[0].revents().is_empty()
}

fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Agrees with the other workers of a place's ring on a number for it that nobody else has: rank 0 draws one, and it goes round once, by
/// connections of its own. The place's own number does not matter.
///
/// # Errors
/// [`StreamError`]: somebody does not come, or is not who was expected.
pub fn agree(place: &RingPlace, listener: &TcpListener) -> Result<u32, StreamError> {
    let rings = RingStream::connect(place.clone(), listener)?;
    let RingPlace { rank, world, .. } = *place;
    let previous = (rank + world - 1) % world;
    let greet = |ring: u32, rank: u16| {
        let mut greeting = [0; GREETING_BYTES];
        greeting[..8].copy_from_slice(&GREETING);
        greeting[8..12].copy_from_slice(&ring.to_le_bytes());
        greeting[12..14].copy_from_slice(&rank.to_le_bytes());
        greeting[14..].copy_from_slice(&world.to_le_bytes());
        greeting
    };
    let mut rings = rings;
    let mut ring = RandomState::new().hash_one(std::process::id()) as u32;
    if rank == 0 {
        rings.exchange(&[&greet(ring, rank)], &mut [])?;
    }
    let mut came = [0; GREETING_BYTES];
    rings.exchange(&[], &mut [&mut came])?;
    let word = |at: usize| u16::from_le_bytes([came[at], came[at + 1]]);
    if came[..8] != GREETING {
        let from = &rings.from_name;
        return Err(StreamError::NoResult(format!(
            "{from} has not greeted as a worker that wants to agree on a ring: was a number given there?"
        )));
    }
    if (word(12), word(14)) != (previous, world) {
        let (from, is, of) = (&rings.from_name, word(12), word(14));
        return Err(StreamError::NoResult(format!(
            "the predecessor at {from} is rank {is} of {of}, and rank {previous} of {world} is expected"
        )));
    }
    let said = u32::from_le_bytes([came[8], came[9], came[10], came[11]]);
    if rank == 0 && said != ring {
        return Err(StreamError::NoResult("another ring number has come round than was sent".to_owned()));
    }
    ring = said;
    if rank != 0 {
        rings.exchange(&[&greet(ring, rank)], &mut [])?;
    }
    Ok(ring)
}

/// How far a list of parts has been moved.
#[derive(Default)]
struct Place {
    part: usize,
    at: usize,
    total: usize,
}

impl Place {
    fn advance(&mut self, count: usize, part_bytes: usize) {
        self.at += count;
        self.total += count;
        if self.at == part_bytes {
            (self.part, self.at) = (self.part + 1, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn ring(world: u16, patience: Duration, run: impl Fn(RingStream) + Send + Clone + 'static) {
        let listeners: Vec<TcpListener> = (0..world).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let addresses: Vec<SocketAddr> = listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
        let threads: Vec<_> = (0..world)
            .zip(listeners)
            .map(|(rank, listener)| {
                let successor = addresses[usize::from((rank + 1) % world)];
                let run = run.clone();
                thread::spawn(move || run(RingStream::connect(RingPlace { ring: 1, rank, world, successor, patience }, &listener).unwrap()))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }

    #[test]
    fn the_ring_that_it_is_compared_with_is_exact() {
        for world in [2, 3, 5] {
            ring(world, Duration::from_secs(20), move |mut stream| {
                let mut vector: Vec<u8> =
                    (0..10_007i32).flat_map(|index| (index * 3 + i32::from(stream.place.rank)).to_le_bytes()).collect();
                stream.ring_allreduce(ElementOp::I32_SUM, &mut vector).unwrap();
                let ranks: i32 = (0..i32::from(world)).sum();
                for (index, element) in (0..).zip(vector.chunks_exact(4)) {
                    assert_eq!(i32::from_le_bytes(element.try_into().unwrap()), index * 3 * i32::from(world) + ranks);
                }
            });
        }
    }

    #[test]
    fn workers_agree_on_a_number_of_their_own() {
        let agreed = |claimed: [u16; 3], patience: Duration| -> Vec<Result<u32, StreamError>> {
            let listeners: Vec<TcpListener> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
            let addresses: Vec<SocketAddr> = listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
            let start = |(at, (listener, rank)): (usize, (TcpListener, u16))| {
                let place = RingPlace { ring: 0, rank, world: 3, successor: addresses[(at + 1) % 3], patience };
                thread::spawn(move || {
                    let ring = agree(&place, &listener)?;
                    // The connections that are summed in come afterwards, to the same place.
                    RingStream::connect(RingPlace { ring, ..place }, &listener).map(|_| ring)
                })
            };
            let threads: Vec<_> = listeners.into_iter().zip(claimed).enumerate().map(start).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        };
        let drawn = [0, 1].map(|_| {
            let rings: Vec<u32> = agreed([0, 1, 2], Duration::from_secs(20)).into_iter().map(Result::unwrap).collect();
            assert!(rings.iter().all(|ring| *ring == rings[0]));
            rings[0]
        });
        assert_ne!(drawn[0], drawn[1]);
        // Two have changed places.
        let errors: Vec<String> = agreed([0, 2, 1], Duration::from_secs(2)).into_iter().map(|ring| ring.unwrap_err().to_string()).collect();
        assert!(errors[1].ends_with("is rank 0 of 3, and rank 1 of 3 is expected"), "{errors:?}");
    }

    #[test]
    fn a_reason_of_the_switch_is_part_of_the_error() {
        ring(2, Duration::from_secs(20), |mut stream| {
            if stream.place.rank == 1 {
                (&stream.from).write_all(&fanin_wire::stream::reason("ring 1: rank 1 has ended")).unwrap();
                return;
            }
            let error = stream.exchange(&[&[1; 8]], &mut [&mut [0; 64]]).unwrap_err().to_string();
            assert!(
                error.starts_with("the connection with 127.0.0.1:") && error.ends_with("the switch says: ring 1: rank 1 has ended"),
                "{error}"
            );
        });
    }

    #[test]
    fn without_a_switch_that_sums_the_worker_says_so() {
        ring(2, Duration::from_secs(20), |mut stream| {
            let error = stream.allreduce(ElementOp::F32_SUM, &[0; 100], &mut [0; 100]).unwrap_err();
            assert!(error.to_string().ends_with("no switch between the workers sums (fanin switch --transparent)"), "{error}");
            let error = stream.allreduce(ElementOp::F32_SUM, &[0; 99], &mut [0; 99]).unwrap_err();
            assert_eq!(error.to_string(), "field `input` has 99 bytes, and 100 are expected");
        });
    }

    /// A worker, and the other ends of its connections: the successor's and the predecessor's.
    fn alone() -> (RingStream, TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let successor = listener.local_addr().unwrap();
        let to = TcpStream::connect(successor).unwrap();
        let (of_successor, _) = listener.accept().unwrap();
        let of_predecessor = TcpStream::connect(successor).unwrap();
        let (from, _) = listener.accept().unwrap();
        for stream in [&to, &from] {
            stream.set_nonblocking(true).unwrap();
        }
        let place = RingPlace { ring: 1, rank: 0, world: 3, successor, patience: Duration::from_secs(60) };
        (RingStream { place, to, from, from_name: "rank 2".to_owned(), message: 0 }, of_successor, of_predecessor)
    }

    #[test]
    fn a_successor_that_is_gone_is_noticed_although_nothing_refuses_what_is_sent() {
        // In place of a switch that holds what was sent: a successor that reads nothing, so that writes wait, and then says that it ends.
        let (mut stream, held, predecessor) = alone();
        held.shutdown(std::net::Shutdown::Write).unwrap();
        let begin = Instant::now();
        let error = stream.exchange(&[&vec![0; 64 << 20]], &mut [&mut [0; 64]]).unwrap_err();
        assert!(error.to_string().contains("closed at the other end before all was sent"), "{error}");
        assert!(begin.elapsed() < stream.place.patience, "by itself, not by patience");
        drop((held, predecessor));
    }

    #[test]
    fn a_connection_that_is_reset_after_all_was_sent_is_noticed_by_who_still_receives() {
        let (mut stream, reset, predecessor) = alone();
        stream.exchange(&[&[1; 8]], &mut []).unwrap();
        // Closed with bytes that nobody has read: a reset, as the switch sends it.
        drop(reset);
        let begin = Instant::now();
        let error = stream.exchange(&[], &mut [&mut [0; 64]]).unwrap_err();
        assert!(matches!(&error, StreamError::Broken { peer, .. } if *peer == stream.place.successor.to_string()), "{error}");
        assert!(begin.elapsed() < stream.place.patience, "by itself, not by patience");
        drop(predecessor);
    }

    #[test]
    fn a_worker_that_is_gone_is_an_error_in_time() {
        ring(2, Duration::from_millis(300), |mut stream| {
            if stream.place.rank == 1 {
                return;
            }
            let error = stream.exchange(&[&[1; 8]], &mut [&mut [0; 64]]).unwrap_err();
            assert!(matches!(error, StreamError::Broken { .. } | StreamError::Stalled { .. }), "{error}");
        });
    }
}
