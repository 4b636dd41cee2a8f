//! Sending: datagrams are written straight into the batch of their destination, which leaves when it is full or flushed.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::DATAGRAM_BYTES_MAX;
use crate::batch::{Batch, Lane};
use crate::faults::{FaultPlan, Injector, Verdict};
use crate::nearby::Inbox;
use crate::socket::Socket;

/// Datagrams up to this length travel in batches of their own, before data: acknowledgements among data would end a batch each, because all
/// datagrams of a batch have the same length. Short data does not overtake longer data: it is [reserved in order](Sender::reserve_in_order).
const SMALL_BYTES: usize = 256;

/// From this length on a datagram is sent by a call of its own, from where it is.
pub const APART_BYTES_MIN: usize = 32 << 10;

/// Datagrams in a batch: what every kernel with segmentation offload takes (`UDP_MAX_SEGMENTS` was 64 at first).
const SEGMENTS_MAX: usize = 64;

/// How much memory is kept for each destination, and what goes wrong on the way there.
#[derive(Clone, Copy, Debug)]
pub struct SenderConfig {
    /// Batches of up to 64 KiB per destination that may wait while the kernel has no room; at least 2.
    pub batches_per_destination: usize,
    /// The longest batch in bytes. A smaller one is sooner on its way and stays in a closer cache.
    pub batch_bytes_max: usize,
    /// Injected faults.
    pub faults: FaultPlan,
}

impl Default for SenderConfig {
    fn default() -> Self {
        SenderConfig { batches_per_destination: 4, batch_bytes_max: DATAGRAM_BYTES_MAX, faults: FaultPlan::default() }
    }
}

/// A destination of a [`Sender`], numbered from 0 in the order in which they were added.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DestinationId(pub u16);

/// What a [`Sender`] has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SendStatistics {
    /// Datagrams given to the kernel, or to a socket of this process.
    pub datagrams: u64,
    /// Their bytes, without UDP and IP headers.
    pub bytes: u64,
    /// System calls that sent them.
    pub calls: u64,
    /// Times that the kernel had no room.
    pub blocked: u64,
    /// Datagrams that found all batches of their destination full, or are longer than any batch, or found no room at a socket of this
    /// process.
    pub refused: u64,
    /// Those among the datagrams sent that went to a socket of this process through memory.
    pub nearby: u64,
    /// Datagrams that the kernel rejected for good (no route, too long for the link, ...).
    pub failed: u64,
    /// Injected faults by kind.
    pub injected: [u64; 4],
}

impl SendStatistics {
    /// Adds what another sender has done.
    pub fn add(&mut self, other: &SendStatistics) {
        self.datagrams += other.datagrams;
        self.bytes += other.bytes;
        self.calls += other.calls;
        self.blocked += other.blocked;
        self.refused += other.refused;
        self.nearby += other.nearby;
        self.failed += other.failed;
        self.injected.iter_mut().zip(other.injected).for_each(|(to, from)| *to += from);
    }
}

/// Whether a destination is a socket of this process that takes parcels.
#[derive(Clone, Debug)]
enum Nearby {
    /// Nothing was sent there yet.
    Unknown,
    No,
    Yes(Arc<Inbox>),
}

/// The batches that a datagram joins.
#[derive(Clone, Copy, Debug)]
enum LaneOf {
    Small,
    Data,
}

impl LaneOf {
    /// Of a datagram of this length that may leave before longer ones.
    fn length(bytes: usize) -> LaneOf {
        if bytes <= SMALL_BYTES { LaneOf::Small } else { LaneOf::Data }
    }
}

struct Destination {
    address: SocketAddr,
    data: Lane,
    small: Lane,
    injector: Option<Injector>,
    nearby: Nearby,
    /// The length of the datagram that is being written, and its lane; 0 while none is.
    writing: (usize, LaneOf),
    /// Whether the destination is in the list of those to flush.
    listed: bool,
}

impl Destination {
    fn lane(&mut self, of: LaneOf) -> &mut Lane {
        match of {
            LaneOf::Small => &mut self.small,
            LaneOf::Data => &mut self.data,
        }
    }

    /// Where parcels for the destination go, if it takes them from `socket`.
    fn inbox(&mut self, socket: &Socket) -> Option<&Inbox> {
        if let Nearby::Unknown = self.nearby {
            let found = socket.inbox().and_then(|_| Inbox::find(self.address));
            self.nearby = found.map_or(Nearby::No, Nearby::Yes);
        }
        if let Nearby::Yes(inbox) = &self.nearby
            && inbox.is_closed()
        {
            self.nearby = Nearby::No;
        }
        if let Nearby::Yes(inbox) = &self.nearby { Some(inbox) } else { None }
    }

    fn pending_bytes(&self) -> usize {
        self.data.bytes() + self.small.bytes()
    }
}

/// Outgoing datagrams, gathered by destination.
pub struct Sender {
    config: SenderConfig,
    destinations: Vec<Destination>,
    /// Destinations with something to flush.
    listed: Vec<DestinationId>,
    blocked: bool,
    last_error: Option<io::ErrorKind>,
    statistics: SendStatistics,
}

impl Sender {
    /// No destinations yet.
    pub fn new(config: SenderConfig) -> Self {
        Sender {
            config,
            destinations: Vec::new(),
            listed: Vec::new(),
            blocked: false,
            last_error: None,
            statistics: SendStatistics::default(),
        }
    }

    /// Adds a destination and sets its memory aside.
    pub fn add(&mut self, address: SocketAddr) -> DestinationId {
        let number = self.destinations.len();
        let batches = self.config.batches_per_destination.max(2);
        self.destinations.push(Destination {
            address,
            data: Lane::new(batches, self.config.batch_bytes_max),
            small: Lane::new(batches, SMALL_BYTES * SEGMENTS_MAX),
            injector: Injector::new(&self.config.faults, number),
            nearby: Nearby::Unknown,
            writing: (0, LaneOf::Data),
            listed: false,
        });
        self.listed.reserve(1);
        DestinationId(number as u16)
    }

    /// Memory for a datagram of exactly `bytes` bytes (at least 1), to be filled and then [committed](Sender::commit). `None` means
    /// that the datagram is dropped: nothing more fits, or it is too long; it is counted.
    #[inline]
    pub fn reserve(&mut self, socket: &Socket, to: DestinationId, bytes: usize) -> Option<&mut [u8]> {
        self.reserve_in(socket, to, bytes, LaneOf::length(bytes))
    }

    /// The same for a datagram that leaves behind all others that were reserved in order before it, however short it is: the last, shorter part of
    /// a vector does not overtake what is before it.
    #[inline]
    pub fn reserve_in_order(&mut self, socket: &Socket, to: DestinationId, bytes: usize) -> Option<&mut [u8]> {
        self.reserve_in(socket, to, bytes, LaneOf::Data)
    }

    #[inline]
    fn reserve_in(&mut self, socket: &Socket, to: DestinationId, bytes: usize, of: LaneOf) -> Option<&mut [u8]> {
        if bytes == 0 || bytes > self.config.batch_bytes_max.min(DATAGRAM_BYTES_MAX) {
            self.statistics.refused += 1;
            return None;
        }
        let destination = &mut self.destinations[to.0 as usize];
        if !self.blocked && !destination.lane(of).joins(bytes) && !destination.lane(of).is_empty() {
            // The batch that is being filled cannot take it: that one leaves now.
            self.send_lane(socket, to, of);
        }
        let destination = &mut self.destinations[to.0 as usize];
        if !destination.lane(of).has_room(bytes) {
            self.statistics.refused += 1;
            return None;
        }
        destination.writing = (bytes, of);
        destination.lane(of).slot(bytes)
    }

    /// The datagram that was reserved last for `to` is complete.
    #[inline]
    pub fn commit(&mut self, socket: &Socket, to: DestinationId) {
        let destination = &mut self.destinations[to.0 as usize];
        let (bytes, of) = destination.writing;
        if bytes == 0 {
            return;
        }
        destination.writing.0 = 0;
        if let Some(mut injector) = destination.injector.take() {
            self.commit_with_faults(socket, to, (bytes, of), &mut injector);
            self.destinations[to.0 as usize].injector = Some(injector);
        } else {
            self.enqueue(socket, to, (bytes, of));
        }
    }

    fn commit_with_faults(&mut self, socket: &Socket, to: DestinationId, (bytes, of): (usize, LaneOf), injector: &mut Injector) {
        let lane = self.destinations[to.0 as usize].lane(of);
        let verdict = match lane.slot(bytes) {
            Some(datagram) => injector.judge(datagram, &mut self.statistics.injected),
            None => return,
        };
        match verdict {
            Verdict::Send => self.enqueue(socket, to, (bytes, of)),
            Verdict::Withhold => {
                lane.retract();
                // A datagram may be held back, so the destination must see the next flushes.
                self.list(to);
            }
        }
        injector.on_passed();
        injector.release(|datagram| self.send_again(socket, to, datagram));
    }

    /// Sends a datagram that was held back.
    fn send_again(&mut self, socket: &Socket, to: DestinationId, datagram: &[u8]) {
        let bytes = datagram.len();
        if let Some(slot) = self.reserve(socket, to, bytes) {
            slot.copy_from_slice(datagram);
            self.destinations[to.0 as usize].writing.0 = 0;
            self.enqueue(socket, to, (bytes, LaneOf::length(bytes)));
        }
    }

    /// Adds the datagram in the lane's slot to its batch.
    fn enqueue(&mut self, socket: &Socket, to: DestinationId, (bytes, of): (usize, LaneOf)) {
        let finished = self.destinations[to.0 as usize].lane(of).commit(bytes, SEGMENTS_MAX);
        if finished && !self.blocked {
            self.send_lane(socket, to, of);
        } else {
            self.list(to);
        }
    }

    fn list(&mut self, to: DestinationId) {
        let destination = &mut self.destinations[to.0 as usize];
        if !destination.listed {
            destination.listed = true;
            self.listed.push(to);
        }
    }

    /// Sends everything that waits, as far as the kernel has room; also called once it has room again.
    pub fn flush(&mut self, socket: &Socket) {
        self.blocked = false;
        let mut index = 0;
        while index < self.listed.len() {
            let to = self.listed[index];
            if let Some(mut injector) = self.destinations[to.0 as usize].injector.take() {
                injector.on_flush();
                injector.release(|datagram| self.send_again(socket, to, datagram));
                self.destinations[to.0 as usize].injector = Some(injector);
            }
            self.send_lane(socket, to, LaneOf::Small);
            self.send_lane(socket, to, LaneOf::Data);
            let destination = &mut self.destinations[to.0 as usize];
            if destination.pending_bytes() == 0 && !destination.injector.as_ref().is_some_and(Injector::holds) {
                destination.listed = false;
                self.listed.swap_remove(index);
            } else {
                index += 1;
            }
        }
    }

    /// Sends the batches of a lane.
    fn send_lane(&mut self, socket: &Socket, to: DestinationId, of: LaneOf) {
        if self.blocked {
            return;
        }
        let destination = &mut self.destinations[to.0 as usize];
        let address = destination.address;
        if destination.inbox(socket).is_some() {
            return self.send_lane_nearby(socket, to, of);
        }
        let lane = destination.lane(of);
        while let Some(batch) = lane.first_mut() {
            match send_batch(socket, batch, address, &mut self.statistics) {
                Ok(()) => lane.pop(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.statistics.blocked += 1;
                    self.blocked = true;
                    break;
                }
                Err(error) => {
                    self.statistics.failed += batch.unsent().len().div_ceil(batch.segment().max(1)) as u64;
                    if self.last_error.replace(error.kind()) != Some(error.kind()) {
                        tracing::warn!(%address, segment_bytes = batch.segment(), %error, "the kernel does not send datagrams");
                    }
                    lane.pop();
                }
            }
        }
        if !self.destinations[to.0 as usize].lane(of).is_empty() {
            self.list(to);
        }
    }

    /// The same to a socket of this process.
    fn send_lane_nearby(&mut self, socket: &Socket, to: DestinationId, of: LaneOf) {
        let destination = &mut self.destinations[to.0 as usize];
        let Nearby::Yes(inbox) = destination.nearby.clone() else { return };
        let lane = destination.lane(of);
        while let Some(batch) = lane.first_mut() {
            count_nearby(&mut self.statistics, &inbox, socket, batch.segment().max(1), &[batch.unsent()]);
            lane.pop();
        }
    }

    /// Sends a datagram of at least [`APART_BYTES_MIN`] bytes at once from where its parts are: it would not share a batch with many, so
    /// that copying it there would save nothing. False where something waits before it, or it has to wait itself: then it is to be
    /// [reserved](Sender::reserve) as any other.
    pub fn send_apart(&mut self, socket: &Socket, to: DestinationId, parts: [&[u8]; 3]) -> bool {
        let destination = &mut self.destinations[to.0 as usize];
        let length = parts.iter().map(|part| part.len()).sum();
        if self.blocked || destination.injector.is_some() || destination.pending_bytes() > 0 || length > DATAGRAM_BYTES_MAX {
            return false;
        }
        if let Some(inbox) = destination.inbox(socket) {
            count_nearby(&mut self.statistics, inbox, socket, length, &parts);
            return true;
        }
        if !socket.is_plain() || socket.send_parts(parts, destination.address).is_err() {
            // Whatever the reason is, it is found and told when the datagram is sent from a batch.
            return false;
        }
        self.statistics.calls += 1;
        self.statistics.datagrams += 1;
        self.statistics.bytes += length as u64;
        true
    }

    /// Whether the kernel had no room at the last attempt: wait for writability, then flush.
    pub fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Whether injected faults hold datagrams back that only another flush lets go.
    pub fn holds(&self) -> bool {
        self.listed.iter().any(|to| self.destinations[to.0 as usize].injector.as_ref().is_some_and(Injector::holds))
    }

    /// Bytes that wait for this destination.
    #[inline]
    pub fn pending_bytes(&self, to: DestinationId) -> usize {
        self.destinations[to.0 as usize].pending_bytes()
    }

    /// Whether a datagram of `bytes` bytes would be taken now.
    #[inline]
    pub fn has_room(&self, to: DestinationId, bytes: usize) -> bool {
        let destination = &self.destinations[to.0 as usize];
        !self.blocked || if bytes <= SMALL_BYTES { destination.small.has_room(bytes) } else { destination.data.has_room(bytes) }
    }

    /// The same for one that is reserved in order.
    #[inline]
    pub fn has_room_in_order(&self, to: DestinationId, bytes: usize) -> bool {
        !self.blocked || self.destinations[to.0 as usize].data.has_room(bytes)
    }

    /// What has been done so far.
    pub fn statistics(&self) -> &SendStatistics {
        &self.statistics
    }
}

/// Puts a run of datagrams of `segment` bytes into an inbox.
fn count_nearby(statistics: &mut SendStatistics, inbox: &Inbox, socket: &Socket, segment: usize, parts: &[&[u8]]) {
    let bytes: usize = parts.iter().map(|part| part.len()).sum();
    let datagrams = bytes.div_ceil(segment) as u64;
    if inbox.push(socket.local_address(), segment, parts) {
        statistics.datagrams += datagrams;
        statistics.nearby += datagrams;
        statistics.bytes += bytes as u64;
    } else {
        statistics.refused += datagrams;
    }
}

/// Sends one batch, in one call where the kernel cuts it. After an error the batch knows what has been sent.
fn send_batch(socket: &Socket, batch: &mut Batch, address: SocketAddr, statistics: &mut SendStatistics) -> io::Result<()> {
    let segment = batch.segment().max(1);
    while !batch.unsent().is_empty() {
        let before = socket.send_segments_max();
        let unsent = batch.unsent();
        let contents = if before > 1 { unsent } else { &unsent[..segment.min(unsent.len())] };
        let bytes = contents.len();
        match socket.send(contents, segment, address) {
            Ok(()) => {
                statistics.calls += 1;
                statistics.datagrams += bytes.div_ceil(segment) as u64;
                statistics.bytes += bytes as u64;
                batch.sent += bytes;
            }
            Err(_) if before > 1 && socket.send_segments_max() == 1 => {
                tracing::warn!("the network device refuses segmentation offload (GSO): every datagram costs a system call from now on");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
