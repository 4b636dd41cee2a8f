//! The loop that both kinds of driver share: sleep, receive, fire timers, send.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fanin_core::{
    DropReason, ElementOp, EpochRule, Ingress, Instant, JobId, LinkSequence, Node, PortId, Restarted, Role, Tally, Via, Wire,
};
use fanin_net::{Receiver, SendStatistics, Sender, SenderConfig, Socket, Waker};
use fanin_trust::{LinkKeys, PacketKeys};
use fanin_wire::hop::{HopHeader, HopPacket, RestCheck};
use fanin_wire::link::LINK_SYSTEM;

use crate::clock::{Clock, fresh_epoch};
use crate::config::{ConfigError, NodeConfig, PeerConfig};
use crate::counters::Counters;
use crate::fabric::links::Links;
use crate::fabric::{FabricConfig, Inbox};
use crate::last::Arrivals;
use crate::linger::Linger;
use crate::loopback::Loopback;
use crate::outlet::{Lent, Outlet};
use crate::peers::{PeerIndex, Peers, heard_at_first};
use crate::residents::Residents;
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
    /// The longest datagram that the ways to all peers carry, as far as that is known: packets of 1 KiB or more are filled up to whole cache
    /// lines, but not beyond this. Not in fabrics.
    pub datagram_bytes_max: usize,
    /// This node's epoch on its links; `None` takes a fresh one.
    pub epoch: Option<u32>,
    /// The epoch in which all peers live, where that was agreed with them over another connection: then no other is believed. `None` believes
    /// the first packet of each, and that it has restarted when [several packets in a row](fanin_core::LinkSequence) say so; in a fabric,
    /// hellos agree about epochs.
    pub peers_epoch: Option<u32>,
}

impl Default for DriverConfig {
    fn default() -> Self {
        DriverConfig {
            sender: SenderConfig::default(),
            receive_runs: 8,
            pending_bytes_max: 128 << 10,
            datagram_bytes_max: 0,
            epoch: None,
            peers_epoch: None,
        }
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

/// Nodes, their socket and everything between.
pub(crate) struct Driver<N> {
    pub(crate) residents: Residents<N>,
    pub(crate) socket: Socket,
    receiver: Receiver,
    /// Where payloads that were encrypted are read.
    scratch: Vec<u8>,
    pub(crate) outlet: Outlet,
    pub(crate) clock: Clock,
    /// The last receive call filled all buffers, so there may be more.
    more: bool,
    /// For how many turns that has been so.
    turns_behind: u32,
    linger: Linger,
    /// Bytes of datagrams that have come from peers.
    pub(crate) received_bytes: u64,
    /// Who looks at the counts from another thread, and when they are written down for it next.
    watch: Option<(Watch, Instant)>,
    /// The job whose vectors are lent, where several have a worker here.
    selected: Option<JobId>,
    /// What other threads ask of a node of a fabric.
    pub(crate) inbox: Option<Arc<Inbox<N>>>,
}

/// What a datagram turned out to be.
enum Admitted<'a, H> {
    /// A packet for a node that lives here.
    Here { resident: usize, from: Ingress, header: H, payload: &'a [u8] },
    /// A packet for another node.
    Beyond { by: PeerIndex, hop: HopHeader, rest: &'a [u8], check: RestCheck },
    /// One of the link's own packets, which has been dealt with.
    Link,
}

impl<N: Node<[u8]>> Driver<N> {
    /// One node, its job and its peers.
    pub(crate) fn new(socket: Socket, node: N, config: &NodeConfig, how: &DriverConfig) -> Result<Self, ConfigError> {
        let mut driver = Driver::without_nodes(socket, config, how, &heard_at_first(how.peers_epoch))?;
        driver.residents.add(config.job, config.address.role, config.system, node);
        Ok(driver)
    }

    /// A node of a fabric, which knows no job yet.
    pub(crate) fn in_fabric(socket: Socket, config: &FabricConfig, how: &DriverConfig) -> Result<Self, ConfigError> {
        let peer = |(port, config): (usize, &crate::fabric::FabricPortConfig)| PeerConfig {
            address: config.peer,
            socket: config.socket,
            port: Some(PortId(port as u16)),
        };
        let peers = config.ports.iter().enumerate().map(peer).collect();
        // Jobs come later, each with a number, a system and an element type of its own.
        let node =
            NodeConfig { address: config.address, job: JobId(0), system: LINK_SYSTEM, op: ElementOp::F32_SUM, peers, routes: Vec::new() };
        let mut driver = Driver::without_nodes(socket, &node, how, &LinkSequence::new(EpochRule::Agreed))?;
        driver.outlet.links = Some(Box::new(Links::new(config, driver.outlet.epoch)));
        driver.outlet.datagram_bytes_max = 0;
        driver.inbox = Some(Inbox::new());
        Ok(driver)
    }

    fn without_nodes(socket: Socket, config: &NodeConfig, how: &DriverConfig, heard: &LinkSequence) -> Result<Self, ConfigError> {
        let mut sender = Sender::new(how.sender);
        let peers = Peers::new(config, socket.local_address(), &mut sender, heard)?;
        let outlet = Outlet {
            address: config.address,
            epoch: how.epoch.unwrap_or_else(fresh_epoch),
            sender,
            peers,
            counters: Counters::default(),
            datagram_bytes_max: how.datagram_bytes_max,
            links: None,
            here: Loopback::default(),
            now: Instant::ZERO,
            pending_bytes_max: how.pending_bytes_max,
            refused: false,
            reclaimed: Vec::new(),
            sums: 0,
            ingress: None,
            arrivals: Arrivals::default(),
        };
        let receiver = Receiver::new(how.receive_runs);
        let (residents, clock) = (Residents::none(), Clock::start());
        Ok(Driver {
            residents,
            socket,
            receiver,
            scratch: Vec::new(),
            outlet,
            clock,
            more: false,
            turns_behind: 0,
            linger: Linger::default(),
            received_bytes: 0,
            watch: None,
            selected: None,
            inbox: None,
        })
    }

    /// The job that was selected, or else the first one, whose node has the role of this driver's own address: a worker, not the server of a
    /// job that lives beside it.
    fn first(&self) -> Option<usize> {
        let role = self.outlet.address.role;
        match self.selected {
            Some(job) => self.residents.find(job, role),
            None => self.residents.first(role),
        }
    }

    /// From now on vectors that are lent are this job's, and no other's; false where it has no node here.
    pub(crate) fn select(&mut self, job: JobId) -> bool {
        let is_here = self.residents.find(job, self.outlet.address.role).is_some();
        if is_here {
            self.selected = Some(job);
        }
        is_here
    }

    /// The node of a driver that has exactly one from the beginning, or of the only job.
    pub(crate) fn node(&self) -> Option<&N> {
        self.first().map(|at| self.residents.node(at))
    }

    /// The same, to be changed.
    pub(crate) fn node_mut(&mut self) -> Option<&mut N> {
        self.first().map(|at| self.residents.node_mut(at))
    }

    /// The job of that node.
    pub(crate) fn job(&self) -> Option<JobId> {
        self.first().map(|at| self.residents.member(at).job)
    }

    /// Begins a job; says whether it is new.
    pub(crate) fn admit_job(&mut self, job: JobId, role: Role, system: u8, node: N) -> bool {
        self.residents.add(job, role, system, node)
    }

    /// Ends a job, whatever nodes it has here; says whether it was there. Its counts remain, except for the memory that it held. A node
    /// that others share lives on, without anything of the job.
    pub(crate) fn end_job(&mut self, job: JobId) -> bool {
        let ended = [self.outlet.address.role, Role::Server].map(|role| self.end_role(job, role));
        ended.contains(&true)
    }

    /// The same for the node of one role.
    pub(crate) fn end_role(&mut self, job: JobId, role: Role) -> bool {
        let Some(at) = self.residents.find(job, role) else { return false };
        let now = self.clock.now();
        self.outlet.now = now;
        // A worker's vectors are not touched by the end of a job.
        let mut none = Tensors::none(ElementOp::F32_SUM);
        let (node, mut lent) = self.residents.lend(at, &self.socket, &mut self.outlet, &mut none);
        node.on_job_end(now, job, &mut lent);
        let member = self.residents.remove(at);
        self.outlet.counters.add(&Counters { slot_bytes: 0, ..member.counters });
        self.flush();
        true
    }

    /// See [`SwitchDriver::wait`](crate::SwitchDriver::wait).
    pub(crate) fn wait(&self, limit: Duration) -> io::Result<bool> {
        Ok(self.socket.wait(Some(limit), false)?.readable)
    }

    /// See [`SwitchDriver::turn_away`](crate::SwitchDriver::turn_away).
    pub(crate) fn turn_away(&mut self) -> io::Result<()> {
        self.outlet.counters.turns += 1;
        let now = self.clock.now();
        self.outlet.now = now;
        self.publish(now);
        let Driver { residents, socket, receiver, scratch, outlet, more, .. } = self;
        let runs = match receiver.receive(socket) {
            Ok(runs) => runs,
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => 0,
            Err(error) => return Err(error),
        };
        *more = runs == receiver.capacity();
        for run in receiver.runs() {
            let peer = outlet.peers.at_socket(run.source);
            for datagram in run.datagrams() {
                let reason = match peer.map(|peer| admit::<N>(residents, outlet, peer, run.ecn, (datagram, scratch))) {
                    Some(Ok(_)) => DropReason::InProgress,
                    Some(Err(reason)) => reason,
                    None => DropReason::NotAMember,
                };
                if let Some(peer) = peer {
                    outlet.peers.get_mut(peer).counters.packets_dropped += 1;
                }
                outlet.counters.drop(reason);
            }
        }
        Ok(())
    }

    /// See [`SwitchDriver::protect`](crate::SwitchDriver::protect).
    pub(crate) fn protect(&mut self, keys: Vec<LinkKeys>) {
        self.outlet.peers.protect(keys);
    }

    /// See [`WorkerDriver::protect_links`](crate::WorkerDriver::protect_links).
    pub(crate) fn protect_links(&mut self, keys: &[PacketKeys]) {
        if let Some(links) = &mut self.outlet.links {
            links.protect(keys, self.outlet.epoch);
        }
    }

    /// See [`SwitchDriver::links`](crate::SwitchDriver::links).
    pub(crate) fn links(&self) -> Vec<(u32, u32)> {
        self.outlet.peers.links()
    }

    /// See [`SwitchDriver::past`](crate::SwitchDriver::past).
    pub(crate) fn past(&self) -> Option<Vec<u32>> {
        self.outlet.peers.past()
    }

    /// See [`SwitchDriver::go_on`](crate::SwitchDriver::go_on).
    pub(crate) fn go_on(&mut self, links: &[(u32, u32)]) {
        self.outlet.peers.go_on(links);
    }

    pub(crate) fn local_address(&self) -> SocketAddr {
        self.socket.local_address()
    }

    pub(crate) fn waker(&self) -> Waker {
        self.socket.waker()
    }

    pub(crate) fn statistics(&self) -> Statistics {
        Statistics { counters: self.counters(), sent: *self.outlet.sender.statistics() }
    }

    /// Counts of all nodes together, and of packets of none.
    fn counters(&self) -> Counters {
        let mut counters = self.outlet.counters.clone();
        self.residents.members().iter().for_each(|member| counters.add(&member.counters));
        counters
    }

    /// Counts that another thread may look at.
    pub(crate) fn watch(&mut self) -> Watch {
        let (watch, _) = self.watch.get_or_insert_with(|| (Watch::new(self.outlet.peers.counters().count()), Instant::ZERO));
        watch.clone()
    }

    /// Writes the counts down for those who look at them, if that is due.
    fn publish(&mut self, now: Instant) {
        if self.watch.as_ref().is_none_or(|(_, due)| *due > now) {
            return;
        }
        let counters = self.counters();
        if let Some((watch, due)) = &mut self.watch
            && watch.write(&counters, self.outlet.sender.statistics(), self.outlet.peers.counters())
        {
            *due = now + Watch::INTERVAL;
        }
    }

    /// Writes the counts down one last time.
    pub(crate) fn publish_last(&mut self) {
        if let Some((watch, _)) = &self.watch {
            watch.write_last(&self.counters(), self.outlet.sender.statistics(), self.outlet.peers.counters());
        }
    }

    /// Calls the first node from outside of the loop, and sends what it says; `None` where there is no node.
    pub(crate) fn call<'t, R>(
        &mut self,
        tensors: &mut Tensors<'t>,
        act: impl FnOnce(&mut N, Instant, &mut Lent<'_, 't>) -> R,
    ) -> Option<R> {
        let now = self.clock.now();
        self.outlet.now = now;
        let at = self.first()?;
        let (node, mut lent) = self.residents.lend(at, &self.socket, &mut self.outlet, tensors);
        let result = act(node, now, &mut lent);
        self.flush();
        Some(result)
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
        self.outlet.now = now;
        self.publish(now);
        self.outlet.drive_links(&self.socket);
        if readable {
            self.receive(now, tensors)?;
        }
        self.turns_behind = if self.more { self.turns_behind + 1 } else { 0 };
        let may_fire = self.turns_behind.is_multiple_of(TURNS_BEHIND_MAX);
        if may_fire {
            self.fire(now, tensors);
        }
        self.flush();
        if self.outlet.refused && self.is_ready(now) {
            self.outlet.refused = false;
            for at in 0..self.residents.count() {
                if self.residents.is_first_of_node(at) {
                    let mut none = None;
                    let tensors = lent_to(self.selected, self.residents.member(at).job, tensors, &mut none);
                    let (node, mut lent) = self.residents.lend(at, &self.socket, &mut self.outlet, tensors);
                    node.on_tx_ready(now, &mut lent);
                }
            }
            self.flush();
        }
        self.serve_inbox(now);
        Ok(())
    }

    /// Lets timers fire, once what has arrived has been read.
    fn fire(&mut self, now: Instant, tensors: &mut Tensors<'_>) {
        if let Some(links) = &mut self.outlet.links {
            links.judge(now);
        }
        for at in 0..self.residents.count() {
            if self.residents.node(at).next_timeout().is_some_and(|due| due <= now) {
                let mut none = None;
                let tensors = lent_to(self.selected, self.residents.member(at).job, tensors, &mut none);
                let (node, mut lent) = self.residents.lend(at, &self.socket, &mut self.outlet, tensors);
                node.on_timeout(now, &mut lent);
            }
        }
        self.deliver_looped_back(now, tensors);
        self.outlet.drive_links(&self.socket);
    }

    /// Whether nodes that were told that there is no room may try again.
    fn is_ready(&mut self, now: Instant) -> bool {
        !self.outlet.sender.is_blocked() && self.outlet.links.as_mut().is_none_or(|links| links.is_ready(now))
    }

    /// Sleeps until there is something to do; says whether something can be read.
    fn rest(&mut self, limit: Duration) -> io::Result<bool> {
        let mut limit = if self.outlet.sender.holds() { limit.min(HELD_CHECK) } else { limit };
        let blocked = self.outlet.sender.is_blocked();
        if !self.outlet.here.is_empty() {
            // What a node of this host has for another one does not wait for a packet from elsewhere.
            limit = Duration::ZERO;
        }
        let links = self.outlet.links.as_ref().map(|links| links.next_timeout(self.outlet.refused, blocked));
        if let Some(at) = self.residents.next_timeout().into_iter().chain(links).min() {
            limit = limit.min(Duration::from_nanos(at.since(self.clock.now()).as_ps().div_ceil(1_000)));
        }
        // Who waits for room as well must ask the kernel.
        if !blocked && self.linger.before_sleep(limit) {
            return Ok(true);
        }
        self.outlet.counters.waits += 1;
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
        let Driver { residents, socket, receiver, scratch, outlet, more, linger, selected, received_bytes, .. } = self;
        let runs = match receiver.receive(socket) {
            Ok(runs) => runs,
            // An ICMP message about an earlier datagram: the peer is not there (yet). The protocol's timers deal with that.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => 0,
            Err(error) => return Err(error),
        };
        *more = runs == receiver.capacity();
        if runs > 0 {
            linger.on_found();
        }
        for run in receiver.runs() {
            let Some(peer) = outlet.peers.at_socket(run.source) else {
                run.datagrams().for_each(|_| outlet.counters.drop(DropReason::NotAMember));
                continue;
            };
            *received_bytes += run.bytes() as u64;
            for datagram in run.datagrams() {
                match admit::<N>(residents, outlet, peer, run.ecn, (datagram, scratch)) {
                    Ok(Admitted::Here { resident, from, header, payload }) => {
                        count(outlet, peer, payload.len());
                        let mut none = None;
                        let tensors = lent_to(*selected, from.job, tensors, &mut none);
                        let before = Before::of(residents, resident, outlet, (peer, from.source.role, !payload.is_empty()));
                        hand_over((residents, resident), now, (from, &header, payload), (socket, outlet, tensors));
                        before.count_last(residents, outlet, (peer, now));
                    }
                    Ok(Admitted::Link) => {}
                    Ok(Admitted::Beyond { by, hop, rest, check }) => {
                        count(outlet, peer, usize::from(hop.payload_bytes));
                        outlet.forward(socket, by, &hop, rest, check);
                        if let Some(links) = &mut outlet.links {
                            links.background_forwarded += u64::from(hop.system == LINK_SYSTEM);
                        }
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

impl<N: Node<[u8]>> Driver<N> {
    /// What nodes of this host have sent to nodes of this host.
    fn deliver_looped_back(&mut self, now: Instant, tensors: &mut Tensors<'_>) {
        while let Some(packet) = self.outlet.here.take() {
            let Driver { residents, socket, outlet, selected, .. } = self;
            match looped_back::<N>(residents, &packet) {
                Ok(Admitted::Here { resident, from, header, payload }) => {
                    let mut none = None;
                    let tensors = lent_to(*selected, from.job, tensors, &mut none);
                    hand_over((residents, resident), now, (from, &header, payload), (socket, outlet, tensors));
                }
                Ok(Admitted::Beyond { .. } | Admitted::Link) => {}
                Err(reason) => outlet.counters.drop(reason),
            }
            self.outlet.here.recycle(packet);
        }
    }
}

/// Counts a packet from a peer.
#[inline]
fn count(outlet: &mut Outlet, peer: PeerIndex, payload_bytes: usize) {
    let counters = &mut outlet.peers.get_mut(peer).counters;
    counters.packets_received += 1;
    counters.payload_bytes_received += payload_bytes as u64;
    if let Some(links) = &mut outlet.links {
        links.ports[usize::from(peer.0)].counts.packets_received += 1;
    }
}

/// What a node had done before it was given a packet.
struct Before {
    resident: usize,
    sums: u64,
    /// Sums that went on to their leader, and sums for those whom one had not reached (Canary).
    sent_on: [u64; 2],
    others: u64,
    repeated: u64,
    /// Of a server: what all have contributed.
    is_answer: bool,
    /// In a fabric: elements have come from below.
    is_contribution: bool,
}

impl Before {
    #[inline]
    fn of<N>(residents: &Residents<N>, resident: usize, outlet: &mut Outlet, (peer, by, has_elements): (PeerIndex, Role, bool)) -> Self {
        let counters = &residents.member(resident).counters;
        let port = outlet.links.as_mut().map(|links| links.port(peer).is_below);
        outlet.ingress = port.map(|_| peer);
        Before {
            resident,
            sums: outlet.sums,
            sent_on: sent_on(counters),
            others: port.map_or(0, |_| others(counters)),
            repeated: counters.dropped_for(DropReason::InProgress),
            is_answer: by == Role::Server,
            is_contribution: has_elements && port == Some(true),
        }
    }

    /// The packet was a contribution, unless the node had it already; where a sum has gone to all since, or on its way through a fabric, it was
    /// the last one. What comes from another switch has several ranks' in it: that switch knows which of them was last.
    #[inline]
    fn count_last<N>(self, residents: &mut Residents<N>, outlet: &mut Outlet, (peer, now): (PeerIndex, Instant)) {
        outlet.ingress = None;
        let member = residents.member_mut(self.resident);
        let is_repeated = member.counters.dropped_for(DropReason::InProgress) != self.repeated;
        if outlet.address.role != Role::Switch || is_repeated || self.is_answer {
            return;
        }
        let completes = outlet.sums != self.sums;
        if outlet.links.is_some() {
            if self.is_contribution {
                let completes = completes && others(&member.counters) == self.others;
                member.contributors.contributed(usize::from(peer.0), now, completes);
            }
            return;
        }
        let waited = outlet.arrivals.arrived(now);
        let ([sums, restored], [sums_before, restored_before]) = (sent_on(&member.counters), self.sent_on);
        if restored != restored_before {
            return;
        }
        // Of Canary a sum goes to the leader of its block, which answers when it has contributed itself: both are waited for, and it is one sum.
        if completes && sums > 0 {
            outlet.peers.get_mut(peer).counters.last.awaited(waited);
        } else if completes || sums != sums_before {
            outlet.peers.get_mut(peer).counters.last.completed(waited);
        }
    }
}

/// What a switch does with a contribution where it is not the last one of several to a sum that leaves: it finds no place in memory and goes on, it
/// is sent again, or it is the first, so that a sum which leaves at once has nobody else's in it (of Canary, where only the leader is beside it).
fn others(counters: &Counters) -> u64 {
    let unplaced = [Tally::Collision, Tally::Spill].map(|tally| counters.tallies[tally.index()]);
    unplaced.iter().sum::<u64>() + counters.retransmitted_total() + counters.slots_taken
}

/// What Canary's switch has sent to leaders, and restored.
fn sent_on(counters: &Counters) -> [u64; 2] {
    [Tally::Sum, Tally::Restoration].map(|tally| counters.tallies[tally.index()])
}

/// The vectors that a job's node is lent: those of the running operation, where that is the job's. Operations of jobs have the same numbers.
#[inline]
fn lent_to<'a, 't>(
    selected: Option<JobId>,
    job: JobId,
    tensors: &'a mut Tensors<'t>,
    none: &'a mut Option<Tensors<'t>>,
) -> &'a mut Tensors<'t> {
    if selected.is_none_or(|selected| selected == job) { tensors } else { none.insert(Tensors::none(ElementOp::F32_SUM)) }
}

/// Gives a packet to a node.
#[inline]
fn hand_over<N: Node<[u8]>>(
    (residents, at): (&mut Residents<N>, usize),
    now: Instant,
    (from, header, payload): (Ingress, &N::Header, &[u8]),
    (socket, outlet, tensors): (&Socket, &mut Outlet, &mut Tensors<'_>),
) {
    let (node, mut lent) = residents.lend(at, socket, outlet, tensors);
    lent.counters().packets_received += 1;
    lent.counters().payload_bytes_received += payload.len() as u64;
    node.on_packet(now, from, header, payload, &mut lent);
    if !outlet.reclaimed.is_empty() {
        settle_reclaimed(residents, outlet);
    }
}

/// Memory that one job's packet took from another job is not that job's any more.
#[cold]
fn settle_reclaimed<N>(residents: &mut Residents<N>, outlet: &mut Outlet) {
    let role = outlet.address.role;
    for (job, bytes) in outlet.reclaimed.drain(..) {
        if let Some(at) = residents.find(job, role) {
            let counters = &mut residents.member_mut(at).counters;
            counters.slot_bytes = counters.slot_bytes.saturating_sub(u64::from(bytes));
        }
    }
}

/// A packet's system header and its payload.
#[inline]
fn contents<'a, H: Wire>(hop: &HopHeader, rest: &'a [u8]) -> Result<(H, &'a [u8]), DropReason> {
    let (header, header_bytes) = H::parse(rest).map_err(|_| DropReason::Malformed)?;
    let payload = rest.get(header_bytes..).and_then(|rest| rest.get(..usize::from(hop.payload_bytes)));
    Ok((header, payload.ok_or(DropReason::Malformed)?))
}

/// Takes a packet of this host for this host apart.
fn looped_back<'a, N: Node<[u8]>>(residents: &Residents<N>, packet: &'a [u8]) -> Result<Admitted<'a, N::Header>, DropReason> {
    let packet = HopPacket::new(packet).map_err(|_| DropReason::Malformed)?;
    let hop = packet.header();
    let resident = residents.find(hop.job, hop.destination.role).ok_or(DropReason::NoNode)?;
    let (header, payload) = contents::<N::Header>(&hop, packet.rest())?;
    Ok(Admitted::Here { resident, from: Ingress { port: PortId(0), source: hop.source, job: hop.job, ecn: false }, header, payload })
}

/// Decides whether a datagram is a packet that belongs here, and takes it apart.
#[inline]
fn admit<'a, N: Node<[u8]>>(
    residents: &Residents<N>,
    outlet: &mut Outlet,
    peer: PeerIndex,
    ecn: bool,
    (datagram, scratch): (&'a [u8], &'a mut Vec<u8>),
) -> Result<Admitted<'a, N::Header>, DropReason> {
    let mut packet = HopPacket::new(datagram).map_err(|_| DropReason::Malformed)?;
    // Before any word of it is believed.
    let check = match outlet.open(peer, &packet, (datagram, scratch))? {
        None => Some(packet.verify().map_err(|_| DropReason::Corrupted)?),
        Some(opened) => {
            packet = HopPacket::new(opened).map_err(|_| DropReason::Malformed)?;
            None
        }
    };
    let mut hop = packet.header();
    // A host may have a worker and a server of a job; what only passes concerns the node here, whoever it is for.
    let is_for_here = !hop.neighbour && hop.destination.node == outlet.address.node;
    let role = if is_for_here { hop.destination.role } else { outlet.address.role };
    let resident = residents.find(hop.job, role);
    if outlet.links.is_none() {
        // A socket of one job: nobody else has a word here.
        let resident = resident.ok_or(DropReason::NoNode)?;
        if hop.system != residents.member(resident).system {
            return Err(DropReason::Mismatch);
        }
    }
    let from = outlet.peers.get(peer);
    // Only a switch passes on what others made.
    if hop.neighbour {
        hop.source.node = from.address.node;
    } else if hop.source.node != from.address.node && from.address.role != Role::Switch {
        return Err(DropReason::NotAMember);
    }
    let port = from.port;
    let greeted =
        if hop.system == LINK_SYSTEM && hop.neighbour { outlet.on_greeting(peer, &hop, packet.rest())? } else { Restarted(false) };
    let Restarted(shown) = outlet.peers.get_mut(peer).accept(hop.epoch, hop.sequence)?;
    let restarted = shown || greeted.0;
    outlet.counters.peers_restarted += u64::from(restarted);
    let ecn = ecn || hop.ecn;
    let now = outlet.now;
    if let Some(links) = &mut outlet.links {
        links.on_packet(peer, now, restarted);
        if hop.system == LINK_SYSTEM && (hop.neighbour || hop.destination.node == outlet.address.node) {
            return links.on_link_packet(peer, now, outlet.epoch, &hop, packet.rest()).map(|()| Admitted::Link);
        }
    }
    let mine = hop.neighbour || hop.destination == outlet.address || is_for_here && resident.is_some();
    // As in the simulator: an aggregator's packet passes a switch without an aggregator.
    let is_switch = outlet.address.role == Role::Switch;
    let absorbed = hop.via == Via::Aggregators && is_switch && resident.is_some();
    if !mine && !absorbed {
        if !is_switch {
            return Err(DropReason::NoNode);
        }
        let by = outlet.towards(&hop)?;
        if by == peer {
            return Err(DropReason::NoRoute);
        }
        let check = check.unwrap_or_else(|| RestCheck::of([packet.rest()]));
        return Ok(Admitted::Beyond { by, hop: HopHeader { ecn, ..hop }, rest: packet.rest(), check });
    }
    let resident = resident.ok_or(DropReason::NoNode)?;
    if hop.system != residents.member(resident).system {
        return Err(DropReason::Mismatch);
    }
    let (header, payload) = contents::<N::Header>(&hop, packet.rest())?;
    if ecn && let Some(links) = &mut outlet.links {
        links.marked_received += 1;
    }
    Ok(Admitted::Here { resident, from: Ingress { port, source: hop.source, job: hop.job, ecn }, header, payload })
}
