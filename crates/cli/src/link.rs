//! `fanin bench link`: how many bytes of UDP payload a link carries with nothing above it, sent and received as Fanin does it (batches,
//! GSO and GRO). That is the yardstick for a collective over the same link.
//!
//! Datagrams sent within the sender's steady interval are marked. The rate is what the receiver has counted of these, over that interval.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{io, thread};

use anyhow::{Context, Result, ensure};
use clap::Args;
use fanin_net::{DATAGRAM_BYTES_MAX, Receiver, Sender, SenderConfig, Socket, SocketConfig};
use fanin_runtime::clock::process_cpu_time;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::bench::BenchFormat;
use crate::quantities;

/// Measure the UDP payload rate of a link: one process listens, another one connects to it, sends and prints.
#[derive(Args, Clone, Debug)]
pub struct LinkArgs {
    /// Receive: wait for senders at this address.
    #[arg(long, value_name = "IP:PORT", required_unless_present = "connect", conflicts_with = "connect")]
    pub listen: Option<String>,
    /// Send to the process that listens there, and print what it has received.
    #[arg(long, value_name = "HOST:PORT")]
    pub connect: Option<String>,
    /// End after one measurement.
    #[arg(long, requires = "listen")]
    pub once: bool,
    /// How long the steady interval is, as 2s.
    #[arg(long, value_name = "TIME", default_value = "2s", requires = "connect", value_parser = quantities::seconds)]
    pub seconds: f64,
    /// Bytes of payload in a datagram; by default the most that the path carries whole.
    #[arg(long, value_name = "BYTES", requires = "connect", value_parser = clap::value_parser!(u32).range(1..=DATAGRAM_BYTES_MAX as i64))]
    pub payload: Option<u32>,
    /// How to print the result.
    #[arg(long, value_enum, default_value_t = BenchFormat::Table, conflicts_with = "listen")]
    pub format: BenchFormat,
}

/// Sent before the steady interval begins: queues are full then.
const WARM_UP: Duration = Duration::from_millis(250);
/// How long nothing must come before the receiver believes that nothing will.
const QUIET: Duration = Duration::from_millis(200);
/// How long a sender tries to reach a receiver that does not listen yet.
const PATIENCE: Duration = Duration::from_secs(10);
/// First byte of the datagrams that count; others have 0 there.
const MARK: u8 = 1;

/// What the sender asks for.
#[derive(Serialize, Deserialize)]
struct Request {
    /// Where its datagrams come from.
    port: u16,
}

/// Where the sender is to send to.
#[derive(Serialize, Deserialize)]
struct Answer {
    port: u16,
}

/// The sender has sent all.
#[derive(Serialize, Deserialize)]
struct Finished {}

/// What the receiver has seen.
#[derive(Clone, Copy, Default, Debug, PartialEq, Serialize, Deserialize)]
struct Received {
    /// Marked datagrams.
    datagrams: u64,
    /// Their bytes.
    bytes: u64,
    /// Bytes of all datagrams, for which the processor time was spent.
    all_bytes: u64,
    cpu_s: f64,
}

/// A measurement.
#[derive(Clone, Debug, Serialize)]
pub struct LinkRow {
    payload_bytes: u32,
    seconds: f64,
    /// In the steady interval.
    datagrams_sent: u64,
    datagrams_received: u64,
    /// Received bytes of payload over the sender's steady interval, in 10^6 bytes a second.
    payload_mb_s: f64,
    payload_gbit_s: f64,
    sender_cpu_s_per_gib: f64,
    receiver_cpu_s_per_gib: f64,
    /// Datagrams that one system call sends; 1 without segmentation offload.
    send_segments_max: usize,
}

/// Runs the command.
///
/// # Errors
/// Where sockets cannot be opened, nobody answers, or nothing arrives.
pub fn run(args: &LinkArgs) -> Result<()> {
    match (&args.listen, &args.connect) {
        (Some(address), _) => {
            let listener = TcpListener::bind(address).with_context(|| format!("cannot listen at {address}"))?;
            listen(&listener, args.once)
        }
        (None, Some(address)) => {
            ensure!((0.01..=3_600.0).contains(&args.seconds), "--seconds {}: expected 0.01 to 3600", args.seconds);
            let row = send(&reach(address)?, Duration::from_secs_f64(args.seconds), args.payload)?;
            match args.format {
                BenchFormat::Json => println!("{}", serde_json::to_string(&row)?),
                BenchFormat::Table => println!("{}", describe(&row)),
            }
            Ok(())
        }
        (None, None) => Ok(()),
    }
}

fn describe(row: &LinkRow) -> String {
    format!(
        "{:.1} MB/s of UDP payload ({:.3} Gbit/s), {} bytes a datagram, {} of {} datagrams arrived in {:.2} s\n\
         CPU seconds per GiB: {:.3} to send, {:.3} to receive",
        row.payload_mb_s,
        row.payload_gbit_s,
        row.payload_bytes,
        row.datagrams_received,
        row.datagrams_sent,
        row.seconds,
        row.sender_cpu_s_per_gib,
        row.receiver_cpu_s_per_gib
    )
}

/// The receiver: one sender after the other.
fn listen(listener: &TcpListener, once: bool) -> Result<()> {
    loop {
        let (stream, from) = listener.accept().context("cannot accept a connection")?;
        match receive(&stream) {
            Err(error) if !once => tracing::warn!(%from, "a measurement was broken off: {error:#}"),
            done => done?,
        }
        if once {
            return Ok(());
        }
    }
}

/// One measurement, seen from the receiver.
fn receive(stream: &TcpStream) -> Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?);
    let request: Request = hear(&mut lines)?;
    let source = SocketAddr::new(stream.peer_addr()?.ip(), request.port);
    let socket = Socket::bind(&SocketConfig::new(SocketAddr::new(stream.local_addr()?.ip(), 0)))?;
    say(stream, &Answer { port: socket.local_address().port() })?;
    let (finished, waker) = (Arc::new(AtomicBool::new(false)), socket.waker());
    let teller = finished.clone();
    // A connection that breaks ends the measurement as well.
    let watch = thread::spawn(move || {
        let heard = hear::<Finished>(&mut lines).map(|_| ());
        teller.store(true, Ordering::Release);
        waker.wake();
        heard
    });
    let received = count(&socket, source, &finished)?;
    watch.join().map_err(|_| anyhow::anyhow!("the thread that listens to the sender has ended"))??;
    say(stream, &received)
}

/// Counts datagrams from `source` until the sender has finished and nothing comes any more.
fn count(socket: &Socket, source: SocketAddr, finished: &AtomicBool) -> Result<Received> {
    let mut receiver = Receiver::new(8);
    let mut received = Received::default();
    let start = process_cpu_time();
    loop {
        if receiver.receive(socket)? == 0 {
            let over = finished.load(Ordering::Acquire);
            let ready = socket.wait(Some(QUIET), false)?;
            if over && !ready.readable {
                break;
            }
            continue;
        }
        for run in receiver.runs().filter(|run| run.source == source) {
            for datagram in run.datagrams() {
                received.all_bytes += datagram.len() as u64;
                if datagram.first() == Some(&MARK) {
                    received.datagrams += 1;
                    received.bytes += datagram.len() as u64;
                }
            }
        }
    }
    received.cpu_s = (process_cpu_time() - start).as_secs_f64();
    Ok(received)
}

/// Connects; the other side may be about to start.
fn reach(address: &str) -> Result<TcpStream> {
    let start = Instant::now();
    loop {
        match TcpStream::connect(address) {
            Ok(stream) => return Ok(stream),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && start.elapsed() < PATIENCE => {
                thread::sleep(Duration::from_millis(50));
            }
            Err(error) => return Err(error).with_context(|| format!("cannot reach {address}")),
        }
    }
}

/// One measurement, seen from the sender.
fn send(stream: &TcpStream, steady: Duration, payload: Option<u32>) -> Result<LinkRow> {
    let local = stream.local_addr()?;
    let socket = Socket::bind(&SocketConfig::new(SocketAddr::new(local.ip(), 0)))?;
    let mut lines = BufReader::new(stream.try_clone()?);
    say(stream, &Request { port: socket.local_address().port() })?;
    let answer: Answer = hear(&mut lines)?;
    let target = SocketAddr::new(stream.peer_addr()?.ip(), answer.port);
    let payload = payload.map_or_else(|| datagram_bytes(local, target), Ok)?;
    let mut source = DatagramSource::new(socket, target, payload as usize);
    source.send(WARM_UP, 0)?;
    let (start, cpu) = (Instant::now(), process_cpu_time());
    let datagrams_sent = source.send(steady, MARK)?;
    let (seconds, cpu_s) = (start.elapsed().as_secs_f64(), (process_cpu_time() - cpu).as_secs_f64());
    source.drain()?;
    say(stream, &Finished {})?;
    let received: Received = hear(&mut lines)?;
    ensure!(received.datagrams > 0, "none of {datagrams_sent} datagrams of {payload} bytes has arrived at {target}: is UDP blocked?");
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    let rate = received.bytes as f64 / seconds;
    Ok(LinkRow {
        payload_bytes: payload,
        seconds,
        datagrams_sent,
        datagrams_received: received.datagrams,
        payload_mb_s: rate / 1e6,
        payload_gbit_s: rate * 8.0 / 1e9,
        sender_cpu_s_per_gib: cpu_s / gib(datagrams_sent * u64::from(payload)),
        receiver_cpu_s_per_gib: received.cpu_s / gib(received.all_bytes),
        send_segments_max: source.socket.send_segments_max(),
    })
}

/// The payload of the longest datagram that the path carries whole, as far as the kernel knows it.
fn datagram_bytes(local: SocketAddr, target: SocketAddr) -> Result<u32> {
    let probe = UdpSocket::bind(SocketAddr::new(local.ip(), 0))?;
    probe.connect(target)?;
    let (mtu, headers) = match target {
        SocketAddr::V4(_) => (rustix::net::sockopt::ip_mtu(&probe)?, 28),
        SocketAddr::V6(_) => (rustix::net::sockopt::ipv6_mtu(&probe)?, 48),
    };
    Ok(mtu.saturating_sub(headers).clamp(1, DATAGRAM_BYTES_MAX as u32))
}

/// Sends as fast as the kernel takes it.
struct DatagramSource {
    socket: Socket,
    sender: Sender,
    to: fanin_net::DestinationId,
    bytes: usize,
}

impl DatagramSource {
    fn new(socket: Socket, target: SocketAddr, bytes: usize) -> Self {
        let mut sender = Sender::new(SenderConfig::default());
        let to = sender.add(target);
        DatagramSource { socket, sender, to, bytes }
    }

    /// Sends for so long, with this first byte in every datagram; gives how many datagrams.
    fn send(&mut self, span: Duration, first: u8) -> Result<u64> {
        let (start, mut datagrams) = (Instant::now(), 0);
        while start.elapsed() < span {
            for _ in 0..64 {
                if !self.sender.has_room(self.to, self.bytes) {
                    break;
                }
                let Some(datagram) = self.sender.reserve(&self.socket, self.to, self.bytes) else { break };
                datagram[0] = first;
                self.sender.commit(&self.socket, self.to);
                datagrams += 1;
            }
            self.flush()?;
        }
        Ok(datagrams)
    }

    /// Sends what is left.
    fn drain(&mut self) -> Result<()> {
        while self.sender.pending_bytes(self.to) > 0 {
            self.flush()?;
        }
        let failed = self.sender.statistics().failed;
        ensure!(failed == 0, "the kernel has rejected {failed} datagrams of {} bytes: longer than the link takes?", self.bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sender.flush(&self.socket);
        if self.sender.is_blocked() {
            self.socket.wait(Some(Duration::from_millis(100)), true)?;
        }
        Ok(())
    }
}

fn say(mut stream: &TcpStream, what: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_string(what)?;
    line.push('\n');
    stream.write_all(line.as_bytes()).context("the connection to the other side")
}

fn hear<T: DeserializeOwned>(lines: &mut impl BufRead) -> Result<T> {
    let mut line = String::new();
    let bytes = lines.read_line(&mut line).context("the connection to the other side")?;
    ensure!(bytes > 0, "the other side has closed the connection");
    serde_json::from_str(&line).with_context(|| format!("the other side says {line:?}: is it `fanin bench link` of the same release?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_received_is_what_was_marked_and_every_byte_is_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let receiver = thread::spawn(move || listen(&listener, true));
        let row = send(&reach(&address).unwrap(), Duration::from_millis(50), Some(1_000)).unwrap();
        receiver.join().unwrap().unwrap();
        assert!(row.datagrams_received > 0 && row.datagrams_received <= row.datagrams_sent, "{row:?}");
        let bytes = row.payload_mb_s * 1e6 * row.seconds;
        assert!((bytes - row.datagrams_received as f64 * 1_000.0).abs() < 1.0, "{row:?}");
    }

    #[test]
    fn a_sender_that_vanishes_is_an_error_and_not_a_wait_without_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        say(&stream, &Request { port: 9 }).unwrap();
        drop(stream);
        let error = listen(&listener, true).unwrap_err().to_string();
        assert!(error.contains("closed"), "{error}");
    }

    #[test]
    fn the_longest_datagram_fits_the_path() {
        let loopback = "127.0.0.1:9".parse().unwrap();
        assert!((1_000..=DATAGRAM_BYTES_MAX as u32).contains(&datagram_bytes(loopback, loopback).unwrap()));
    }
}
