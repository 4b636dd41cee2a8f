//! Messages in a stream of bytes, one way, without sockets: a header of 16 bytes, and as many bytes as it says.
//!
//! A message is for the first receive that was asked for with its tag. Messages of other tags wait behind it, as all do in one stream.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, Read, Write};

use fanin_foreign::Region;

use crate::abi::REQUESTS_MAX;

/// Bytes of a header: what it is, tag, length.
const HEADER_BYTES: usize = 16;
/// What a header begins with.
const MAGIC: [u8; 4] = *b"FNms";

/// A message that was asked for, and how much of it has moved.
#[derive(Clone, Copy, Debug)]
struct Message {
    /// Which of the connection's requests it is.
    slot: usize,
    tag: u32,
    memory: Region,
    /// Of its bytes.
    moved: usize,
}

/// A request that has ended, and with how many bytes.
pub type Ended = (usize, usize);

fn header(tag: u32, bytes: usize) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&MAGIC);
    header[4..8].copy_from_slice(&tag.to_le_bytes());
    header[8..].copy_from_slice(&(bytes as u64).to_le_bytes());
    header
}

/// Tag and length.
fn read_header(header: [u8; HEADER_BYTES]) -> Result<(u32, u64), String> {
    let [m0, m1, m2, m3, t0, t1, t2, t3, length @ ..] = header;
    if [m0, m1, m2, m3] != MAGIC {
        return Err("the peer sends something that is no message".into());
    }
    Ok((u32::from_le_bytes([t0, t1, t2, t3]), u64::from_le_bytes(length)))
}

/// Whether nothing moves for now.
fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::NotConnected)
}

/// The sender's side.
#[derive(Debug, Default)]
pub struct Sender {
    waiting: VecDeque<Message>,
    /// Bytes of the first one's header that have gone.
    of_header: usize,
}

impl Sender {
    /// Room for as many messages as there are requests.
    pub fn new() -> Self {
        Sender { waiting: VecDeque::with_capacity(REQUESTS_MAX), of_header: 0 }
    }

    /// A message to send.
    pub fn push(&mut self, slot: usize, tag: u32, memory: Region) {
        self.waiting.push_back(Message { slot, tag, memory, moved: 0 });
    }

    /// Writes what can be written; tells what has gone.
    ///
    /// # Errors
    /// Those of the stream, in words.
    ///
    /// # Safety
    /// Nobody writes to the memory of the messages that wait.
    pub unsafe fn advance(&mut self, to: &mut impl Write, mut ended: impl FnMut(Ended)) -> Result<(), String> {
        while let Some(message) = self.waiting.front_mut() {
            let head = header(message.tag, message.memory.bytes);
            // SAFETY: as this function's.
            let body = unsafe { message.memory.as_slice() };
            let left = [IoSlice::new(&head[self.of_header..]), IoSlice::new(&body[message.moved..])];
            if self.of_header + message.moved < HEADER_BYTES + body.len() {
                match to.write_vectored(&left) {
                    Ok(0) => return Err("the connection takes no more bytes".into()),
                    Ok(count) => {
                        let of_head = count.min(HEADER_BYTES - self.of_header);
                        self.of_header += of_head;
                        message.moved += count - of_head;
                    }
                    Err(error) if is_pause(&error) => return Ok(()),
                    Err(error) => return Err(error.to_string()),
                }
            }
            if self.of_header + message.moved == HEADER_BYTES + body.len() {
                ended((message.slot, body.len()));
                self.of_header = 0;
                self.waiting.pop_front();
            }
        }
        Ok(())
    }
}

/// What a receiver reads at present.
#[derive(Clone, Copy, Debug)]
enum Reading {
    /// A header, of which so many bytes are there.
    Header(usize),
    /// The message of a header that nobody has asked for yet.
    Unasked { tag: u32, bytes: u64 },
    /// A message, of so many bytes, for one of those who wait.
    Body { waiter: usize, bytes: usize },
}

/// The receiver's side.
#[derive(Debug)]
pub struct Receiver {
    waiting: VecDeque<Message>,
    header: [u8; HEADER_BYTES],
    reading: Reading,
}

impl Default for Receiver {
    fn default() -> Self {
        Receiver { waiting: VecDeque::with_capacity(REQUESTS_MAX), header: [0; HEADER_BYTES], reading: Reading::Header(0) }
    }
}

impl Receiver {
    /// A message to receive.
    pub fn push(&mut self, slot: usize, tag: u32, memory: Region) {
        self.waiting.push_back(Message { slot, tag, memory, moved: 0 });
    }

    /// Reads what can be read; tells what has come.
    ///
    /// # Errors
    /// Those of the stream, its end, and what breaks the rules, in words.
    ///
    /// # Safety
    /// Nobody else reads or writes the memory of the messages that wait.
    pub unsafe fn advance(&mut self, from: &mut impl Read, mut ended: impl FnMut(Ended)) -> Result<(), String> {
        while !self.waiting.is_empty() {
            match self.reading {
                Reading::Header(there) if there < HEADER_BYTES => match from.read(&mut self.header[there..]) {
                    Ok(0) => return Err("the peer has closed the connection".into()),
                    Ok(count) => self.reading = Reading::Header(there + count),
                    Err(error) if is_pause(&error) => return Ok(()),
                    Err(error) => return Err(error.to_string()),
                },
                Reading::Header(_) => {
                    let (tag, bytes) = read_header(self.header)?;
                    self.reading = Reading::Unasked { tag, bytes };
                }
                Reading::Unasked { tag, bytes } => {
                    // Whoever asks for it later looks again.
                    let Some(waiter) = self.waiting.iter().position(|message| message.tag == tag) else { return Ok(()) };
                    let room = self.waiting[waiter].memory.bytes;
                    let fits = usize::try_from(bytes).ok().filter(|bytes| *bytes <= room);
                    let bytes =
                        fits.ok_or_else(|| format!("the peer sends a message of {bytes} bytes, tag {tag}: there is room for {room}"))?;
                    self.reading = Reading::Body { waiter, bytes };
                }
                Reading::Body { waiter, bytes } => {
                    let message = &mut self.waiting[waiter];
                    if message.moved < bytes {
                        // SAFETY: as this function's.
                        let body = unsafe { message.memory.as_slice_mut() };
                        match from.read(&mut body[message.moved..bytes]) {
                            Ok(0) => return Err("the peer has closed the connection within a message".into()),
                            Ok(count) => message.moved += count,
                            Err(error) if is_pause(&error) => return Ok(()),
                            Err(error) => return Err(error.to_string()),
                        }
                    }
                    if message.moved == bytes {
                        ended((message.slot, bytes));
                        self.waiting.remove(waiter);
                        self.reading = Reading::Header(0);
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream that takes and gives a few bytes at a time, and pauses between.
    #[derive(Default)]
    struct Trickle {
        bytes: VecDeque<u8>,
        step: usize,
        turn: usize,
    }

    impl Trickle {
        fn pauses(&mut self) -> bool {
            self.turn += 1;
            self.turn.is_multiple_of(3)
        }
    }

    impl Write for Trickle {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.pauses() {
                return Err(ErrorKind::WouldBlock.into());
            }
            let count = bytes.len().min(self.step);
            self.bytes.extend(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Read for Trickle {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            if self.pauses() || self.bytes.is_empty() {
                return Err(ErrorKind::WouldBlock.into());
            }
            let count = bytes.len().min(self.step).min(self.bytes.len());
            bytes[..count].iter_mut().zip(self.bytes.drain(..count)).for_each(|(to, from)| *to = from);
            Ok(count)
        }
    }

    fn region(memory: &mut [u8]) -> Region {
        Region { address: memory.as_mut_ptr() as usize, bytes: memory.len() }
    }

    #[test]
    fn messages_come_as_they_went_whatever_the_stream_takes_at_a_time() {
        for step in [1, 2, 7, 15, 16, 17, 1_000] {
            let mut sent: Vec<Vec<u8>> =
                [0, 1, 15, 40, 300].iter().map(|bytes| (0..*bytes).map(|at| (at * 7 + bytes) as u8).collect()).collect();
            let mut got = vec![vec![0; 300]; sent.len()];
            let (mut sender, mut receiver, mut stream) = (Sender::new(), Receiver::default(), Trickle { step, ..Trickle::default() });
            for slot in 0..sent.len() {
                sender.push(slot, 9, region(&mut sent[slot]));
                receiver.push(slot, 9, region(&mut got[slot]));
            }
            let (mut gone, mut come) = (Vec::new(), Vec::new());
            while come.len() < sent.len() {
                // SAFETY: the vectors stay where they are, and nobody else touches them.
                unsafe {
                    sender.advance(&mut stream, |ended| gone.push(ended)).unwrap();
                    receiver.advance(&mut stream, |ended| come.push(ended)).unwrap();
                }
            }
            let expected: Vec<Ended> = sent.iter().map(Vec::len).enumerate().collect();
            assert_eq!((&gone, &come), (&expected, &expected));
            for (sent, got) in sent.iter().zip(&got) {
                assert_eq!(sent[..], got[..sent.len()]);
            }
        }
    }

    #[test]
    fn a_message_is_for_the_first_that_asked_for_its_tag() {
        let (mut a, mut b, mut got_a, mut got_b) = (vec![1; 5], vec![2; 3], vec![0; 5], vec![0; 3]);
        let (mut sender, mut receiver, mut stream) = (Sender::new(), Receiver::default(), Trickle { step: 64, ..Trickle::default() });
        sender.push(0, 7, region(&mut a));
        sender.push(1, 8, region(&mut b));
        receiver.push(0, 8, region(&mut got_b));
        let mut come = Vec::new();
        for _ in 0..20 {
            // SAFETY: the vectors stay where they are, and nobody else touches them.
            unsafe {
                sender.advance(&mut stream, |_| ()).unwrap();
                receiver.advance(&mut stream, |ended| come.push(ended)).unwrap();
            }
        }
        assert!(come.is_empty(), "the first message is of another tag, and the second stands behind it");
        receiver.push(1, 7, region(&mut got_a));
        for _ in 0..20 {
            // SAFETY: as above.
            unsafe { receiver.advance(&mut stream, |ended| come.push(ended)).unwrap() };
        }
        assert_eq!(come, [(1, 5), (0, 3)]);
        assert_eq!((got_a, got_b), (a, b));
    }

    #[test]
    fn what_breaks_the_rules_and_the_end_are_told() {
        let read = |bytes: &[u8]| {
            let mut memory = vec![0; 4];
            let mut receiver = Receiver::default();
            receiver.push(0, 1, region(&mut memory));
            // SAFETY: the vector stays where it is, and nobody else touches it.
            unsafe { receiver.advance(&mut io::Cursor::new(bytes.to_vec()), |_| ()) }
        };
        assert!(read(&[]).unwrap_err().contains("closed the connection"));
        assert!(read(&[0; 16]).unwrap_err().contains("no message"));
        assert!(read(&header(1, 5)).unwrap_err().contains("room for 4"));
        assert!(read(&header(1, usize::MAX)).unwrap_err().contains("room for 4"));
        assert!(read(&[&header(1, 4)[..], &[1, 2]].concat()).unwrap_err().contains("within a message"));
        assert_eq!(read(&[&header(1, 4)[..], &[1, 2, 3, 4]].concat()), Ok(()));
        assert_eq!(read(&header(2, 4)), Ok(()), "nobody has asked for it");
    }

    #[test]
    fn no_bytes_make_the_receiver_panic_or_write_outside() {
        // Streams of random pieces: headers that are right, wrong by a bit, or anything, and bodies of any length.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..20_000 {
            let mut bytes = Vec::new();
            for _ in 0..random(4) {
                let mut head = header(random(3) as u32, random(12) as usize);
                match random(4) {
                    0 => head[random(16) as usize] ^= 1 << random(8),
                    1 => head[8..].copy_from_slice(&u64::MAX.wrapping_shl(random(64) as u32).to_le_bytes()),
                    _ => {}
                }
                bytes.extend(head);
                bytes.extend((0..random(12)).map(|_| random(256) as u8));
            }
            let mut memory = [[0xa5; 16]; 3];
            let mut receiver = Receiver::default();
            for (slot, memory) in memory.iter_mut().enumerate() {
                receiver.push(slot, slot as u32, region(&mut memory[4..12]));
            }
            let mut stream = Trickle { bytes: bytes.into(), step: 1 + random(20) as usize, turn: 0 };
            for _ in 0..200 {
                // SAFETY: the memory stays where it is, and nobody else touches it.
                if unsafe { receiver.advance(&mut stream, |(_, bytes)| assert!(bytes <= 8)) }.is_err() {
                    break;
                }
            }
            assert!(memory.iter().all(|memory| memory[..4] == [0xa5; 4] && memory[12..] == [0xa5; 4]));
        }
    }

    /// The same for a fuzzer (`make fuzz`); an ordinary test runs what it has found.
    #[test]
    fn streams_fuzzed() {
        bolero::check!().with_iterations(0).for_each(|bytes: &[u8]| {
            let Some((step, bytes)) = bytes.split_first() else { return };
            let mut memory = [[0xa5; 16]; 3];
            let mut receiver = Receiver::default();
            for (slot, memory) in memory.iter_mut().enumerate() {
                receiver.push(slot, slot as u32, region(&mut memory[4..12]));
            }
            let mut stream = Trickle { bytes: bytes.to_vec().into(), step: 1 + usize::from(*step), turn: 0 };
            for _ in 0..200 {
                // SAFETY: the memory stays where it is, and nobody else touches it.
                if unsafe { receiver.advance(&mut stream, |(_, bytes)| assert!(bytes <= 8)) }.is_err() {
                    break;
                }
            }
            assert!(memory.iter().all(|memory| memory[..4] == [0xa5; 4] && memory[12..] == [0xa5; 4]));
        });
    }
}
