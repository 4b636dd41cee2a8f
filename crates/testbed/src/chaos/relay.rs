//! Links that can be cut in the middle of a run: datagrams and control connections pass this process on their way, each direction by itself.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};

/// How often it is looked whether everything has ended.
const LOOK: Duration = Duration::from_millis(50);

/// How often it is looked whether a cut connection has healed.
const HEAL_LOOK: Duration = Duration::from_millis(5);

/// More than any datagram has.
const DATAGRAM_BYTES: usize = 65_536;

/// One direction of a link.
#[derive(Clone, Default, Debug)]
pub struct Wire(Arc<AtomicBool>);

impl Wire {
    /// Whether nothing passes.
    pub fn is_cut(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Cuts it, or heals it.
    pub fn set_cut(&self, is_cut: bool) {
        self.0.store(is_cut, Ordering::Relaxed);
    }
}

/// Where datagrams from one address go.
#[derive(Debug)]
pub struct Route {
    /// From whom.
    pub from: SocketAddr,
    /// The socket that they leave by, which stands for the sender at the receiver.
    pub by: Arc<UdpSocket>,
    /// To whom.
    pub to: SocketAddr,
    /// The direction that they travel in.
    pub wire: Wire,
}

/// Threads that pass on what comes. They end with this value.
#[derive(Default, Debug)]
pub struct Relay {
    ended: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Relay {
    /// Passes on the datagrams that reach `socket`, of known senders alone.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn pass_datagrams(&mut self, socket: Arc<UdpSocket>, routes: Vec<Route>) -> Result<()> {
        socket.set_read_timeout(Some(LOOK)).context("a socket of a link")?;
        let ended = self.ended.clone();
        self.threads.push(thread::spawn(move || {
            let mut datagram = vec![0; DATAGRAM_BYTES];
            while !ended.load(Ordering::Relaxed) {
                let Ok((bytes, from)) = socket.recv_from(&mut datagram) else { continue };
                let route = routes.iter().find(|route| route.from == from);
                if let Some(route) = route.filter(|route| !route.wire.is_cut()) {
                    // What finds no receiver is lost, as on any link.
                    let _ = route.by.send_to(&datagram[..bytes], route.to);
                }
            }
        }));
        Ok(())
    }

    /// Passes on connections to `listener`; `there` and `back` are the directions that their bytes travel in. What is cut waits, as what TCP sends again.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn pass_connections(&mut self, listener: TcpListener, to: SocketAddr, (there, back): (Wire, Wire)) -> Result<()> {
        listener.set_nonblocking(true).context("a listener of a link")?;
        let ended = self.ended.clone();
        self.threads.push(thread::spawn(move || {
            let mut passing: Vec<JoinHandle<()>> = Vec::new();
            while !ended.load(Ordering::Relaxed) {
                let Ok((client, _)) = listener.accept() else {
                    thread::sleep(HEAL_LOOK);
                    continue;
                };
                // Where nobody listens the connection ends at once, as by a reset.
                let Ok(server) = TcpStream::connect(to) else { continue };
                let Ok((client_too, server_too)) = client.try_clone().and_then(|client| Ok((client, server.try_clone()?))) else {
                    continue;
                };
                for (from, to, wire) in [(client, server_too, there.clone()), (server, client_too, back.clone())] {
                    let ended = ended.clone();
                    passing.push(thread::spawn(move || drop(pass(from, to, &wire, &ended))));
                }
                passing.retain(|thread| !thread.is_finished());
            }
            passing.into_iter().for_each(|thread| drop(thread.join()));
        }));
        Ok(())
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

/// Passes bytes on until one side ends; an end is passed on too.
fn pass(mut from: TcpStream, mut to: TcpStream, wire: &Wire, ended: &AtomicBool) -> io::Result<()> {
    // A listener's connections may be as it is.
    from.set_nonblocking(false)?;
    to.set_nonblocking(false)?;
    from.set_read_timeout(Some(LOOK))?;
    to.set_nodelay(true)?;
    let mut bytes = [0; 16 << 10];
    let wait = || {
        while wire.is_cut() && !ended.load(Ordering::Relaxed) {
            thread::sleep(HEAL_LOOK);
        }
    };
    while !ended.load(Ordering::Relaxed) {
        wait();
        let read = match from.read(&mut bytes) {
            Ok(read) => read,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => continue,
            // Both ways at once, as a reset does.
            Err(_) => break,
        };
        wait();
        if read == 0 {
            return to.shutdown(Shutdown::Write);
        }
        if to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    from.shutdown(Shutdown::Both)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket() -> Arc<UdpSocket> {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        Arc::new(socket)
    }

    #[test]
    fn a_link_carries_datagrams_both_ways_and_one_way_when_it_is_cut_so() {
        let (a, b, seen_by_a, seen_by_b) = (socket(), socket(), socket(), socket());
        let (there, back) = (Wire::default(), Wire::default());
        let address = |socket: &UdpSocket| socket.local_addr().unwrap();
        let mut relay = Relay::default();
        let route = |from: &UdpSocket, by: &Arc<UdpSocket>, to: &UdpSocket, wire: &Wire| Route {
            from: address(from),
            by: by.clone(),
            to: address(to),
            wire: wire.clone(),
        };
        relay.pass_datagrams(seen_by_a.clone(), vec![route(&a, &seen_by_b, &b, &there)]).unwrap();
        relay.pass_datagrams(seen_by_b.clone(), vec![route(&b, &seen_by_a, &a, &back)]).unwrap();
        let mut heard = [0; 8];
        let mut passes = |from: &UdpSocket, to: SocketAddr, at: &UdpSocket| {
            from.send_to(b"x", to).unwrap();
            at.recv_from(&mut heard).ok().map(|(_, from)| from)
        };
        assert_eq!(passes(&a, address(&seen_by_a), &b), Some(address(&seen_by_b)));
        assert_eq!(passes(&b, address(&seen_by_b), &a), Some(address(&seen_by_a)));
        there.set_cut(true);
        assert_eq!(passes(&a, address(&seen_by_a), &b), None);
        assert_eq!(passes(&b, address(&seen_by_b), &a), Some(address(&seen_by_a)));
        there.set_cut(false);
        assert_eq!(passes(&a, address(&seen_by_a), &b), Some(address(&seen_by_b)));
        let stranger = socket();
        assert_eq!(passes(&stranger, address(&seen_by_a), &b), None);
    }

    #[test]
    fn bytes_of_a_cut_connection_wait_and_its_end_is_passed_on() {
        let (listener, server) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let (there, back) = (Wire::default(), Wire::default());
        let mut relay = Relay::default();
        let at = listener.local_addr().unwrap();
        relay.pass_connections(listener, server.local_addr().unwrap(), (there.clone(), back)).unwrap();
        let mut client = TcpStream::connect(at).unwrap();
        let (mut served, _) = server.accept().unwrap();
        served.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let mut heard = [0; 8];
        there.set_cut(true);
        client.write_all(b"late").unwrap();
        assert!(served.read(&mut heard).is_err());
        there.set_cut(false);
        served.set_read_timeout(None).unwrap();
        assert_eq!(served.read(&mut heard).unwrap(), 4);
        drop(client);
        assert_eq!(served.read(&mut heard).unwrap(), 0);
    }
}
