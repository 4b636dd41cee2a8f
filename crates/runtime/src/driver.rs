//! The loop that both kinds of driver share: sleep, receive, fire timers, send.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use fanin_core::{DropReason, Ingress, Instant, Node, Role, Via, Wire};
use fanin_net::{Receiver, SendStatistics, Sender, SenderConfig, Socket, Waker};
use fanin_wire::hop::{HopHeader, HopPacket};

use crate::clock::{Clock, fresh_epoch};
use crate::config::{ConfigError, NodeConfig};
use crate::counters::Counters;
use crate::outlet::{Lent, Outlet};
use crate::peers::{PeerIndex, Peers, Restarted};
use crate::tensors::Tensors;
use crate::watch::Watch;

/// While injected faults hold datagrams back, the loop turns at least this often, so that none is kept for ever.
const HELD_CHECK: Duration = Duration::from_millis(1);

/// While more packets lie in the socket than one turn reads, timers wait for so many turns at most: the answer that a timer misses may
/// be among them, and a process that was kept from its core for a while would otherwise send again what has long arrived.
const TURNS_BEHIND_MAX: u32 = 16;

/// How a driver uses its socket. The defaults were measured with four workers and a switch on two cores of one machine.
#[derive(Clone, Copy, Debug)]
pub struct DriverConfig {
    /// Batches, and injected faults.
    pub sender: SenderConfig,
    /// Runs of datagrams received per system call and turn of the loop, up to 64 KiB each. More than fit into a cache slow the sums.
    pub receive_runs: usize,
    /// A peer with more than this many bytes waiting for the kernel has no room.
    pub pending_bytes_max: usize,
    /// The epoch of the links; `None` takes a fresh one from the clock.
    pub epoch: Option<u32>,
}

impl Default for DriverConfig {
    fn default() -> Self {
        DriverConfig { sender: SenderConfig::default(), receive_runs: 8, pending_bytes_max: 128 << 10, epoch: None }
    }
}

/// What a driver has done so far.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    /// By packet and reason.
    pub counters: Counters,
    /// By datagram and system call, with the injected faults.
    pub sent: SendStatistics,
}

impl Statistics {
    /// Adds what another driver has done.
    pub fn add(&mut self, counters: &Counters, sent: &SendStatistics) {
        self.counters.add(counters);
        self.sent.add(sent);
    }
}

/// A node, its socket and everything between.
pub(crate) struct Driver<N> {
    pub(crate) node: N,
    socket: Socket,
    receiver: Receiver,
    outlet: Outlet,
    clock: Clock,
    /// The last receive call filled all buffers, so there may be more.
    more: bool,
    /// For how many turns that has been so.
    turns_behind: u32,
    /// Who looks at the counts from another thread, and when they are written down for it next.
    watch: Option<(Watch, Instant)>,
}

/// What a datagram turned out to be.
enum Admitted<'a, H> {
    /// A packet for this node.
    Here { from: Ingress, header: H, payload: &'a [u8] },
    /// A packet for another node.
    Beyond { by: PeerIndex, hop: HopHeader, rest: &'a [u8] },
}

impl<N: Node<[u8]>> Driver<N> {
    pub(crate) fn new(socket: Socket, node: N, config: &NodeConfig, how: &DriverConfig) -> Result<Self, ConfigError> {
        let mut sender = Sender::new(how.sender);
        let peers = Peers::new(config, socket.local_address(), &mut sender)?;
        let outlet = Outlet {
            address: config.address,
            job: config.job,
            system: config.system,
            epoch: how.epoch.unwrap_or_else(fresh_epoch),
            sender,
            peers,
            counters: Counters::default(),
            pending_bytes_max: how.pending_bytes_max,
            refused: false,
        };
        let receiver = Receiver::new(how.receive_runs);
        Ok(Driver { node, socket, receiver, outlet, clock: Clock::start(), more: false, turns_behind: 0, watch: None })
    }

    pub(crate) fn local_address(&self) -> SocketAddr {
        self.socket.local_address()
    }

    pub(crate) fn waker(&self) -> Waker {
        self.socket.waker()
    }

    pub(crate) fn statistics(&self) -> Statistics {
        Statistics { counters: self.outlet.counters.clone(), sent: *self.outlet.sender.statistics() }
    }

    /// Counts that another thread may look at.
    pub(crate) fn watch(&mut self) -> Watch {
        let (watch, _) = self.watch.get_or_insert_with(|| (Watch::new(self.outlet.peers.counters().count()), Instant::ZERO));
        watch.clone()
    }

    /// Writes the counts down for those who look at them, if that is due.
    fn publish(&mut self, now: Instant) {
        if let Some((watch, due)) = &mut self.watch
            && *due <= now
            && watch.write(&self.outlet.counters, self.outlet.sender.statistics(), self.outlet.peers.counters())
        {
            *due = now + Watch::INTERVAL;
        }
    }

    /// Writes the counts down one last time.
    pub(crate) fn publish_last(&mut self) {
        if let Some((watch, _)) = &self.watch {
            watch.write_last(&self.outlet.counters, self.outlet.sender.statistics(), self.outlet.peers.counters());
        }
    }

    /// Calls the node from outside of the loop, and sends what it says.
    pub(crate) fn call<'t, R>(&mut self, tensors: &mut Tensors<'t>, act: impl FnOnce(&mut N, Instant, &mut Lent<'_, 't>) -> R) -> R {
        let now = self.clock.now();
        let result = act(&mut self.node, now, &mut Lent { socket: &self.socket, outlet: &mut self.outlet, tensors });
        self.flush();
        result
    }

    /// One turn of the loop: sleeps until there is something to do, but not longer than `limit`, and does it.
    ///
    /// # Errors
    /// What the kernel reports while waiting or receiving.
    pub(crate) fn turn(&mut self, tensors: &mut Tensors<'_>, limit: Duration) -> io::Result<()> {
        self.outlet.counters.turns += 1;
        let readable = if self.more {
            // Nothing sleeps here, so nothing waits for room either: try.
            self.outlet.sender.flush(&self.socket);
            true
        } else {
            self.rest(limit)?
        };
        // Read before the socket is: what arrives later than this is not missing yet.
        let now = self.clock.now();
        self.publish(now);
        if readable {
            self.receive(now, tensors)?;
        }
        self.turns_behind = if self.more { self.turns_behind + 1 } else { 0 };
        let may_fire = self.turns_behind.is_multiple_of(TURNS_BEHIND_MAX);
        if may_fire && self.node.next_timeout().is_some_and(|at| at <= now) {
            self.node.on_timeout(now, &mut Lent { socket: &self.socket, outlet: &mut self.outlet, tensors });
        }
        self.flush();
        if self.outlet.refused && !self.outlet.sender.is_blocked() {
            self.outlet.refused = false;
            let mut lent = Lent { socket: &self.socket, outlet: &mut self.outlet, tensors };
            self.node.on_tx_ready(now, &mut lent);
            self.flush();
        }
        Ok(())
    }

    /// Sleeps until there is something to do; says whether something can be read.
    fn rest(&mut self, limit: Duration) -> io::Result<bool> {
        let mut limit = if self.outlet.sender.holds() { limit.min(HELD_CHECK) } else { limit };
        if let Some(at) = self.node.next_timeout() {
            limit = limit.min(Duration::from_nanos(at.since(self.clock.now()).as_ps().div_ceil(1_000)));
        }
        self.outlet.counters.waits += 1;
        let blocked = self.outlet.sender.is_blocked();
        let ready = self.socket.wait(Some(limit), blocked)?;
        if ready.writable {
            self.outlet.sender.flush(&self.socket);
        }
        Ok(ready.readable)
    }

    /// Sends what waits, unless the kernel has said that it has no room: then [`Driver::rest`] waits for room.
    fn flush(&mut self) {
        if !self.outlet.sender.is_blocked() {
            self.outlet.sender.flush(&self.socket);
        }
    }

    /// Reads what is there and hands it to the node.
    fn receive(&mut self, now: Instant, tensors: &mut Tensors<'_>) -> io::Result<()> {
        let Driver { node, socket, receiver, outlet, more, .. } = self;
        let runs = match receiver.receive(socket) {
            Ok(runs) => runs,
            // An ICMP message about an earlier datagram: the peer is not there (yet). The protocol's timers deal with that.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => 0,
            Err(error) => return Err(error),
        };
        *more = runs == receiver.capacity();
        for run in receiver.runs() {
            let Some(peer) = outlet.peers.at_socket(run.source) else {
                run.datagrams().for_each(|_| outlet.counters.drop(DropReason::NotAMember));
                continue;
            };
            for datagram in run.datagrams() {
                match admit::<N::Header>(outlet, peer, run.ecn, datagram) {
                    Ok(Admitted::Here { from, header, payload }) => {
                        count(outlet, peer, payload.len());
                        outlet.counters.packets_received += 1;
                        outlet.counters.payload_bytes_received += payload.len() as u64;
                        node.on_packet(now, from, &header, payload, &mut Lent { socket, outlet, tensors });
                    }
                    Ok(Admitted::Beyond { by, hop, rest }) => {
                        count(outlet, peer, usize::from(hop.payload_bytes));
                        outlet.forward(socket, by, &hop, rest);
                    }
                    Err(reason) => {
                        outlet.peers.get_mut(peer).counters.packets_dropped += 1;
                        outlet.counters.drop(reason);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Counts a packet from a peer.
#[inline]
fn count(outlet: &mut Outlet, peer: PeerIndex, payload_bytes: usize) {
    let counters = &mut outlet.peers.get_mut(peer).counters;
    counters.packets_received += 1;
    counters.payload_bytes_received += payload_bytes as u64;
}

/// Decides whether a datagram is a packet that belongs here, and takes it apart.
#[inline]
fn admit<'a, H: Wire>(outlet: &mut Outlet, peer: PeerIndex, ecn: bool, datagram: &'a [u8]) -> Result<Admitted<'a, H>, DropReason> {
    let packet = HopPacket::new(datagram).map_err(|_| DropReason::Malformed)?;
    let hop = packet.header();
    if hop.job != outlet.job {
        return Err(DropReason::NoNode);
    }
    if hop.system != outlet.system {
        return Err(DropReason::Mismatch);
    }
    let from = outlet.peers.get(peer);
    // Only a switch passes on what others made.
    if hop.source.node != from.address.node && (hop.neighbour || from.address.role != Role::Switch) {
        return Err(DropReason::NotAMember);
    }
    let port = from.port;
    if let Restarted(true) = outlet.peers.get_mut(peer).accept(hop.epoch, hop.sequence)? {
        outlet.counters.peers_restarted += 1;
    }
    let ecn = ecn || hop.ecn;
    let mine = hop.neighbour || hop.destination == outlet.address;
    let absorbed = hop.via == Via::Aggregators && outlet.address.role == Role::Switch;
    if !mine && !absorbed {
        if outlet.address.role != Role::Switch {
            return Err(DropReason::NoNode);
        }
        let by = outlet.peers.at_node(hop.destination.node).filter(|by| *by != peer).ok_or(DropReason::NoRoute)?;
        return Ok(Admitted::Beyond { by, hop: HopHeader { ecn, ..hop }, rest: packet.rest() });
    }
    let (header, header_bytes) = H::parse(packet.rest()).map_err(|_| DropReason::Malformed)?;
    let payload = packet.rest().get(header_bytes..).and_then(|rest| rest.get(..usize::from(hop.payload_bytes)));
    let payload = payload.ok_or(DropReason::Malformed)?;
    Ok(Admitted::Here { from: Ingress { port, source: hop.source, ecn }, header, payload })
}
