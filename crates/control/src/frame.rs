//! Frames: the length as a little-endian `u32`, then a message as JSON.
//!
//! The format is plain on purpose: control messages are few, and one can read them in a packet capture.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The longest message, in bytes. A resume state with a range for every other block of a full window is far shorter.
pub const FRAME_BYTES_MAX: usize = 1 << 20;

/// The longest first message of a connection, a greeting. What TLS begins with, read as a length, is more: whoever speaks TLS is told at once that here
/// is none, and not waited for.
const FIRST_BYTES_MAX: usize = 64 << 10;

/// Bytes of the length in front of a message.
const LENGTH_BYTES: usize = 4;

/// What is wrong with what was received. The connection is of no use after that.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// Longer than any message: not this protocol.
    #[error("a frame of {bytes} bytes is longer than the limit of {most}: this is not the control protocol")]
    TooLong {
        /// The length that was announced.
        bytes: u64,
        /// The longest that there may be.
        most: usize,
    },
    /// The reader has no room for it.
    #[error(
        "{bytes} bytes of a message that is not whole: messages of others that are not whole have all the room for such; try again later"
    )]
    NoRoom {
        /// What has come of it.
        bytes: usize,
    },
    /// Not a message.
    #[error("a frame that is not a message: {0}")]
    NotAMessage(String),
}

/// A message as a frame.
///
/// # Panics
/// Where the message is longer than [`FRAME_BYTES_MAX`]: what makes messages keeps its lists short.
pub fn encode<M: Serialize>(message: &M) -> Vec<u8> {
    let mut bytes = vec![0; LENGTH_BYTES];
    serde_json::to_writer(&mut bytes, message).expect("messages have string keys only, and a Vec takes all bytes");
    let length = bytes.len() - LENGTH_BYTES;
    assert!(length <= FRAME_BYTES_MAX, "a message of {length} bytes");
    bytes[..LENGTH_BYTES].copy_from_slice(&(length as u32).to_le_bytes());
    bytes
}

/// Takes bytes as they come and gives messages. Holds no more than one frame and what came with its end in one read.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    bytes: Vec<u8>,
    /// Where the first byte that is not yet decoded lies.
    start: usize,
    /// The first message has come.
    has_begun: bool,
    failed: Option<FrameError>,
}

impl Decoder {
    /// An empty one.
    pub fn new() -> Self {
        Decoder::default()
    }

    /// Adds what was received. Call [`Decoder::next`] until it gives nothing before adding more: then no more than one incomplete frame
    /// is ever held. After an error, bytes are discarded.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.failed.is_none() {
            self.bytes.drain(..self.start);
            self.start = 0;
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// The next complete message; `None` where more bytes are needed.
    ///
    /// # Errors
    /// [`FrameError`], the same one for ever: where one frame is wrong, nobody knows where the next one begins.
    #[allow(clippy::should_implement_trait, reason = "an iterator ends, this one goes on when there are more bytes")]
    pub fn next<M: DeserializeOwned>(&mut self) -> Result<Option<M>, FrameError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.decode().inspect_err(|error| {
            self.failed = Some(error.clone());
            self.bytes = Vec::new();
            self.start = 0;
        })
    }

    /// Bytes that are held.
    pub fn pending_bytes(&self) -> usize {
        self.bytes.len() - self.start
    }

    fn decode<M: DeserializeOwned>(&mut self) -> Result<Option<M>, FrameError> {
        let Some((length, rest)) = self.bytes[self.start..].split_first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length);
        let most = if self.has_begun { FRAME_BYTES_MAX } else { FIRST_BYTES_MAX };
        if length as usize > most {
            return Err(FrameError::TooLong { bytes: u64::from(length), most });
        }
        let Some(body) = rest.get(..length as usize) else { return Ok(None) };
        let message = serde_json::from_slice(body).map_err(|error| FrameError::NotAMessage(error.to_string()))?;
        self.has_begun = true;
        self.start += LENGTH_BYTES + length as usize;
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
            // A long message is rare; its memory is not kept for the life of the connection.
            self.bytes.shrink_to(4 << 10);
        }
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::ClientMessage;

    #[test]
    fn messages_come_back_however_the_bytes_are_cut() {
        let messages = [ClientMessage::Alive { sequence: 7 }, ClientMessage::Ready, ClientMessage::Leave { operation: 3 }];
        let bytes: Vec<u8> = messages.iter().flat_map(encode).collect();
        for cut in 1..bytes.len() {
            let (mut decoder, mut got) = (Decoder::new(), Vec::new());
            for piece in bytes.chunks(cut) {
                decoder.push(piece);
                while let Some(message) = decoder.next::<ClientMessage>().unwrap() {
                    got.push(message);
                }
            }
            assert_eq!(got, messages);
            assert_eq!(decoder.pending_bytes(), 0);
        }
    }

    #[test]
    fn a_frame_that_is_too_long_or_no_message_is_the_end() {
        let mut decoder = Decoder::new();
        decoder.push(b"GET / HTTP/1.1\r\n\r\n");
        let error = decoder.next::<ClientMessage>().unwrap_err();
        assert_eq!(error, FrameError::TooLong { bytes: u64::from(u32::from_le_bytes(*b"GET ")), most: FIRST_BYTES_MAX });
        decoder.push(&encode(&ClientMessage::Ready));
        assert_eq!(decoder.next::<ClientMessage>(), Err(error));
        assert_eq!(decoder.pending_bytes(), 0, "nothing is kept of what nobody will read");

        // What TLS begins with, however short its first message is; later messages may be as long as that.
        for length in [0u16, 200, 253, 1_500, u16::MAX] {
            let mut decoder = Decoder::new();
            decoder.push(&[[0x16, 3, 1], [(length >> 8) as u8, length as u8, 1]].concat());
            assert!(matches!(decoder.next::<ClientMessage>(), Err(FrameError::TooLong { .. })), "{length}");
        }
        let mut decoder = Decoder::new();
        decoder.push(&encode(&ClientMessage::Ready));
        assert!(decoder.next::<ClientMessage>().unwrap().is_some());
        decoder.push(&100_000u32.to_le_bytes());
        assert_eq!(decoder.next::<ClientMessage>(), Ok(None));

        let mut decoder = Decoder::new();
        decoder.push(&encode(&"nonsense"));
        assert!(matches!(decoder.next::<ClientMessage>(), Err(FrameError::NotAMessage(_))));
    }
}
