//! One control connection: bytes to messages and back, with limits on what either side can make the switch keep.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fanin_control::{ClientMessage, ConnectionId, Decoder, FrameError};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::timeout;

use crate::entrance::{Arrived, Entered};

/// How many messages may wait for a rank that does not read, and how many bytes. One that is further behind has lost its connection.
const OUTBOX_MESSAGES: usize = 4_096;
const OUTBOX_BYTES_MAX: usize = 2 << 20;

/// What may wait for all ranks together, and what for each of them even then: more than the longest lists of a job of 1024 ranks.
const OUTBOXES_BYTES_MAX: usize = 128 << 20;
const OUTBOX_BYTES_SURE: usize = 256 << 10;

/// What all connections together may keep of messages that are not whole, and what each of them may even then.
const INBOXES_BYTES_MAX: usize = 64 << 20;
const INBOX_BYTES_SURE: usize = 64 << 10;

/// How long one message may take to leave.
const WRITE_LIMIT: Duration = Duration::from_secs(10);

/// How long the other side may take to close after the switch has. Closing at once, with bytes unread, would destroy what was sent last.
const LINGER: Duration = Duration::from_secs(2);

/// How much is read at once.
const READ_BYTES: usize = 16 << 10;

/// What happens on connections.
#[derive(Debug)]
pub(crate) enum ConnectionEvent {
    Message(ClientMessage),
    Garbage(FrameError),
    /// It has not come in by TLS, for this reason.
    Unwanted(String),
    Closed,
}

/// Where connections tell what happens.
pub(crate) type Events = mpsc::Sender<(ConnectionId, ConnectionEvent)>;

/// What all connections of a switch keep together, in bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shares {
    outgoing: Arc<AtomicUsize>,
    incoming: Arc<AtomicUsize>,
    /// Handshakes of those who are refused already, and are told so once they have agreed upon keys.
    refused: Arc<AtomicUsize>,
}

/// So many who are refused may still agree upon keys; more are cut off without a word.
const REFUSED_MAX: usize = 64;

/// The way to one rank. Dropping it closes the connection once all is sent.
pub(crate) struct Outbox {
    messages: mpsc::Sender<Queued>,
    own: Arc<AtomicUsize>,
    all: Arc<AtomicUsize>,
    cut: Arc<Notify>,
    /// Gone with the outbox: a handshake ends then.
    _is_wanted: oneshot::Sender<()>,
}

/// A message that waits, counted for as long as it does.
struct Queued {
    bytes: Vec<u8>,
    counts: [Arc<AtomicUsize>; 2],
}

impl Queued {
    fn new(bytes: Vec<u8>, counts: [Arc<AtomicUsize>; 2]) -> Self {
        for count in &counts {
            count.fetch_add(bytes.len(), Ordering::Relaxed);
        }
        Queued { bytes, counts }
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        for count in &self.counts {
            count.fetch_sub(self.bytes.len(), Ordering::Relaxed);
        }
    }
}

impl Outbox {
    /// Sends a message soon. To who has closed the connection nothing is sent, and that is no error: what it has said before that is still to be heard,
    /// and the end of the connection comes behind it.
    ///
    /// # Errors
    /// The rank does not read.
    pub(crate) fn send(&self, bytes: Vec<u8>) -> Result<(), ()> {
        let own = self.own.load(Ordering::Relaxed) + bytes.len();
        let all = self.all.load(Ordering::Relaxed) + bytes.len();
        let has_room = own <= OUTBOX_BYTES_MAX && (own <= OUTBOX_BYTES_SURE || all <= OUTBOXES_BYTES_MAX);
        if has_room {
            match self.messages.try_send(Queued::new(bytes, [self.own.clone(), self.all.clone()])) {
                Ok(()) | Err(TrySendError::Closed(_)) => return Ok(()),
                Err(TrySendError::Full(_)) => {}
            }
        }
        // At once: whoever does not read may go on to send, and what comes would be read for nothing.
        self.cut.notify_one();
        Err(())
    }
}

/// Serves a connection until both sides are done.
pub(crate) fn serve(id: ConnectionId, arrived: Arrived, events: Events, shares: &Shares) -> Outbox {
    let (outbox, messages) = mpsc::channel(OUTBOX_MESSAGES);
    let incoming = Incoming { all: shares.incoming.clone(), bytes: 0 };
    let cut = Arc::new(Notify::new());
    let is_cut = cut.clone();
    let (is_wanted, unwanted) = oneshot::channel();
    let refused = shares.refused.clone();
    tokio::spawn(async move {
        let entered = match arrived {
            // There is nothing to agree upon, so who is refused is told at once.
            Arrived::Plain(stream) => Entered::Plain(stream),
            arrived => match agree(arrived, unwanted, &refused).await {
                Some(entered) => entered,
                None => return,
            },
        };
        let talk = Talk { id, events, incoming, messages, is_cut };
        match entered {
            Entered::Plain(stream) => {
                let (from, to) = stream.into_split();
                talk.run(from, to).await;
            }
            Entered::Sealed(stream) => {
                let (from, to) = tokio::io::split(stream);
                talk.run(from, to).await;
            }
            Entered::Unsealed(stream, why) => {
                let (from, to) = stream.into_split();
                talk.turn_away(from, to, why).await;
            }
            // Nobody may be listening any more, and then it does not matter.
            Entered::Not(why) => {
                let _ = talk.events.send((id, ConnectionEvent::Unwanted(why))).await;
                let _ = talk.events.send((id, ConnectionEvent::Closed)).await;
            }
            Entered::Gone => drop(talk.events.send((id, ConnectionEvent::Closed)).await),
        }
    });
    Outbox { messages: outbox, own: Arc::default(), all: shares.outgoing.clone(), cut, _is_wanted: is_wanted }
}

/// Agrees upon keys. Who is refused meanwhile may still do so, to hear why, as long as they are few; `None` where they are not.
async fn agree(arrived: Arrived, unwanted: oneshot::Receiver<()>, refused: &AtomicUsize) -> Option<Entered> {
    let mut entering = std::pin::pin!(arrived.enter());
    tokio::select! {
        biased;
        entered = &mut entering => return Some(entered),
        _ = unwanted => {}
    }
    let before = refused.fetch_add(1, Ordering::Relaxed);
    let entered = if before < REFUSED_MAX { Some(entering.await) } else { None };
    refused.fetch_sub(1, Ordering::Relaxed);
    entered
}

/// A connection on which messages can be said.
struct Talk {
    id: ConnectionId,
    events: Events,
    incoming: Incoming,
    messages: mpsc::Receiver<Queued>,
    is_cut: Arc<Notify>,
}

impl Talk {
    async fn run(self, from: impl AsyncRead + Unpin, to: impl AsyncWrite + Unpin) {
        let Talk { id, events, incoming, messages, is_cut } = self;
        let reading = read(id, from, events.clone(), incoming);
        let writing = write(to, messages);
        tokio::pin!(reading, writing);
        tokio::select! {
            () = &mut reading => drop(timeout(LINGER, writing).await),
            written = &mut writing => match written {
                // The other side has gone: what it said last is read, and there is no more.
                Err(error) if error.kind() != io::ErrorKind::TimedOut => reading.await,
                written => {
                    let is_over = written.is_ok() && timeout(LINGER, reading).await.is_ok();
                    if !is_over {
                        let _ = events.send((id, ConnectionEvent::Closed)).await;
                    }
                }
            },
            () = is_cut.notified() => {}
        }
    }

    /// Tells the other side what it should have done. What it says is not heard.
    async fn turn_away(self, mut from: impl AsyncRead + Unpin, to: impl AsyncWrite + Unpin, why: String) {
        let Talk { id, events, messages, .. } = self;
        let mut buffer = vec![0; READ_BYTES];
        let discarding = async { while from.read(&mut buffer).await.is_ok_and(|bytes| bytes > 0) {} };
        if events.send((id, ConnectionEvent::Unwanted(why))).await.is_ok() {
            // The reason comes by the outbox, which is closed behind it. Closing at once, with bytes unread, would destroy it.
            let _ = timeout(WRITE_LIMIT, async { tokio::join!(write(to, messages), timeout(LINGER, discarding)) }).await;
        }
        let _ = events.send((id, ConnectionEvent::Closed)).await;
    }
}

/// What a connection keeps of a message that is not whole.
struct Incoming {
    all: Arc<AtomicUsize>,
    bytes: usize,
}

impl Incoming {
    /// Says whether there is room for so many.
    fn keep(&mut self, bytes: usize) -> bool {
        let all = self.all.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
        let all = all - self.bytes;
        self.bytes = bytes;
        bytes <= INBOX_BYTES_SURE || all <= INBOXES_BYTES_MAX
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Reads until the other side closes. What comes after an error is discarded.
async fn read(id: ConnectionId, mut from: impl AsyncRead + Unpin, events: Events, mut incoming: Incoming) {
    let (mut decoder, mut buffer, mut failed) = (Decoder::new(), vec![0; READ_BYTES], false);
    loop {
        let bytes = match from.read(&mut buffer).await {
            Ok(bytes) if bytes > 0 => bytes,
            _ => break,
        };
        if failed {
            continue;
        }
        decoder.push(&buffer[..bytes]);
        loop {
            let event = match decoder.next() {
                Ok(None) if incoming.keep(decoder.pending_bytes()) => break,
                Ok(None) => {
                    let bytes = decoder.pending_bytes();
                    decoder = Decoder::new();
                    incoming.keep(0);
                    failed = true;
                    ConnectionEvent::Garbage(FrameError::NoRoom { bytes })
                }
                Ok(Some(message)) => ConnectionEvent::Message(message),
                Err(error) => {
                    failed = true;
                    ConnectionEvent::Garbage(error)
                }
            };
            if events.send((id, event)).await.is_err() {
                return;
            }
            if failed {
                break;
            }
        }
    }
    // Nobody may be listening any more, and then it does not matter.
    let _ = events.send((id, ConnectionEvent::Closed)).await;
}

/// Writes until there is nothing more to come.
///
/// # Errors
/// That of the connection, which the reader sees as well; [`io::ErrorKind::TimedOut`] where the other side does not read.
async fn write(mut to: impl AsyncWrite + Unpin, mut messages: mpsc::Receiver<Queued>) -> io::Result<()> {
    while let Some(message) = messages.recv().await {
        let leaving = async {
            to.write_all(&message.bytes).await?;
            // TLS keeps what the socket has no room for.
            to.flush().await
        };
        timeout(WRITE_LIMIT, leaving).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    }
    to.shutdown().await
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use fanin_control::ClientMessage;
    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// A rank says that it leaves and is gone, with messages of the switch unread. The switch goes on to tell it things before it has come to
    /// what the rank has said.
    #[test]
    fn a_rank_that_leaves_and_closes_is_heard_though_it_cannot_be_told_anything() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            let mut rank = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            // No room for another event until the first is taken.
            let (events, mut heard) = mpsc::channel(1);
            let outbox = serve(ConnectionId(1), Arrived::Plain(stream), events, &Shares::default());
            let leave = ClientMessage::Leave { operation: 3 };
            rank.write_all(&[fanin_control::encode(&ClientMessage::Ready), fanin_control::encode(&leave)].concat()).await.unwrap();
            outbox.send(vec![0; 64]).unwrap();
            rank.readable().await.unwrap();
            drop(rank);
            while !outbox.messages.is_closed() {
                assert_eq!(outbox.send(vec![0; 64]), Ok(()));
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(outbox.send(vec![0; 64]), Ok(()), "it has gone, and what it said is on the way");
            let mut all = Vec::new();
            while let Some((_, event)) = heard.recv().await {
                all.push(event);
            }
            let [ConnectionEvent::Message(first), ConnectionEvent::Message(second), ConnectionEvent::Closed] = &all[..] else {
                panic!("{} events", all.len())
            };
            assert_eq!((first, second), (&ClientMessage::Ready, &leave));
        });
    }
}
