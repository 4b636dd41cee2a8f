//! One control connection: bytes to messages and back, with limits on what either side can make the switch keep.

use std::io;
use std::time::Duration;

use fanin_control::{ClientMessage, ConnectionId, Decoder, FrameError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// How many messages may wait for a rank that does not read. One that is further behind has lost its connection.
const OUTBOX_MESSAGES: usize = 4_096;

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
    Closed,
}

/// Where connections tell what happens.
pub(crate) type Events = mpsc::Sender<(ConnectionId, ConnectionEvent)>;

/// The way to one rank. Dropping it closes the connection once all is sent.
pub(crate) type Outbox = mpsc::Sender<Vec<u8>>;

/// Serves a connection until both sides are done.
pub(crate) fn serve(id: ConnectionId, stream: TcpStream, events: Events) -> Outbox {
    let (outbox, messages) = mpsc::channel(OUTBOX_MESSAGES);
    // Control messages are short and each one matters now.
    let _ = stream.set_nodelay(true);
    let (from, to) = stream.into_split();
    tokio::spawn(async move {
        let reading = read(id, from, events);
        let writing = write(to, messages);
        tokio::pin!(reading, writing);
        tokio::select! {
            () = &mut reading => drop(timeout(LINGER, writing).await),
            () = &mut writing => drop(timeout(LINGER, reading).await),
        }
    });
    outbox
}

/// Reads until the other side closes. What comes after an error is discarded.
async fn read(id: ConnectionId, mut from: OwnedReadHalf, events: Events) {
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
                Ok(None) => break,
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
async fn write(mut to: OwnedWriteHalf, mut messages: mpsc::Receiver<Vec<u8>>) {
    let sent = async {
        while let Some(message) = messages.recv().await {
            timeout(WRITE_LIMIT, to.write_all(&message)).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        }
        to.shutdown().await
    };
    // A connection that cannot be written to is seen by the reader as well.
    let _: io::Result<()> = sent.await;
}
