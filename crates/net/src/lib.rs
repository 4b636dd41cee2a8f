//! How bytes travel between the processes of a job: as UDP datagrams, many per system call by segmentation offload on the way out (GSO)
//! and on the way in (GRO); or, on one host, through shared memory.
//!
//! | module | what it holds |
//! |---|---|
//! | [`socket`] | [`Socket`]: one UDP socket, its buffers, waiting and waking |
//! | [`send`] | [`Sender`]: one batch of equal-sized datagrams per destination, sent when full or when flushed |
//! | [`receive`] | [`Receiver`]: many datagrams per call, seen as runs of equal size from one source |
//! | [`port`] | [`PacketPort`]: a network interface as a port of a layer-2 switch |
//! | [`faults`] | [`FaultPlan`]: seeded loss, duplication, reordering and corruption of outgoing datagrams |
//! | [`shm`] | [`shm::Pool`]: a pool of slots in memory that all processes of a job on one host share |
//! | [`stream`] | [`stream::copy_past_caches`]: results of long vectors to where they belong |
//! | [`memory`] | [`memory::give_back`]: what is free goes back to the system |
//! | [`aligned`] | [`aligned::Aligned`]: memory that begins a cache line |
//!
//! Nothing here knows a protocol. In the steady state no datagram costs an allocation or a system call of its own: on the kind of
//! machine that this was written on, a 1 KiB datagram costs about 0.1 us of CPU each way in a batch and about 1.5 us alone.
//!
//! `unsafe` is needed for memory that is shared with other processes (see [`shm`]), for stores past the caches (see [`stream`]), for the
//! options of packet sockets and a call of the allocator, which no library has (see [`port`] and [`memory`]), and for nothing else. The system calls of other sockets are made by
//! quinn-udp, socket2 and rustix.
#![deny(unsafe_code)]

pub mod aligned;
mod batch;
pub mod faults;
pub mod memory;
mod nearby;
pub mod port;
pub mod receive;
pub mod send;
pub mod shm;
pub mod socket;
pub mod stream;
mod sync;
mod waker;

pub use faults::{FaultKind, FaultPlan};
pub use port::{Flushed, FrameBatch, FrameQueue, Offload, PacketPort, PortError};
pub use receive::{Receiver, Run};
pub use send::{DestinationId, SendStatistics, Sender, SenderConfig};
pub use socket::{NetError, Readiness, Socket, SocketConfig};
pub use waker::Waker;

/// The longest datagram and the longest batch, in bytes: 65,535 less the longest of the IP headers (40) and the UDP header (8).
pub const DATAGRAM_BYTES_MAX: usize = 65_487;
