//! Receiving: one system call fills several buffers, each with a run of datagrams of one size from one source.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;

use quinn_udp::{BATCH_SIZE, EcnCodepoint, RecvMeta};

use crate::aligned::Aligned;
use crate::nearby::Parcel;
use crate::socket::Socket;

/// A whole run of coalesced datagrams fits: the kernel makes none longer than an IP packet may be.
const BUFFER_BYTES: usize = 1 << 16;

/// Receive buffers.
pub struct Receiver {
    memory: Aligned,
    meta: Vec<RecvMeta>,
    /// How many buffers the last call filled.
    filled: usize,
    /// What came from sockets of this process.
    parcels: Vec<Parcel>,
}

/// Datagrams of one size (the last may be shorter) from one source.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// Who sent them.
    pub source: SocketAddr,
    /// Congestion was experienced on the way.
    pub ecn: bool,
    bytes: &'a [u8],
    stride: usize,
}

impl<'a> Run<'a> {
    /// Bytes of all datagrams together.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The datagrams in order of arrival. A datagram of length zero is one too.
    pub fn datagrams(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let empty = self.bytes.is_empty().then_some(&self.bytes[..0]);
        self.bytes.chunks(self.stride.max(1)).chain(empty)
    }
}

impl Receiver {
    /// Room for `runs` runs of datagrams, at least one. A few fit into a second-level cache and save most of the system calls.
    pub fn new(runs: usize) -> Self {
        let runs = runs.clamp(1, BATCH_SIZE);
        Receiver {
            memory: Aligned::new(runs * BUFFER_BYTES, 0),
            meta: vec![RecvMeta::default(); runs],
            filled: 0,
            parcels: Vec::with_capacity(runs),
        }
    }

    /// Reads what is there, without waiting; gives the number of runs, at most [`Receiver::capacity`], or one more where that is 1. What the last call gave is
    /// overwritten.
    ///
    /// # Errors
    /// What the kernel reports, other than that nothing is there.
    pub fn receive(&mut self, socket: &Socket) -> io::Result<usize> {
        self.filled = 0;
        let runs = self.meta.len();
        if let Some(inbox) = socket.inbox() {
            // Half of the runs are left for what the kernel has.
            inbox.exchange(&mut self.parcels, (runs / 2).max(1));
        }
        let left = (runs - self.parcels.len()).max(1);
        // An array on the stack instead of a vector: no allocation per call.
        let mut buffers: [IoSliceMut<'_>; BATCH_SIZE] = std::array::from_fn(|_| IoSliceMut::new(&mut []));
        for (buffer, memory) in buffers.iter_mut().zip(self.memory.bytes_mut().chunks_exact_mut(BUFFER_BYTES)) {
            *buffer = IoSliceMut::new(memory);
        }
        self.filled = match socket.receive(&mut buffers[..left], &mut self.meta[..left]) {
            Ok(filled) => filled,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error),
        };
        Ok(self.parcels.len() + self.filled)
    }

    /// How many runs one call gives at most.
    pub fn capacity(&self) -> usize {
        self.meta.len()
    }

    /// What the last call of [`Receiver::receive`] read.
    pub fn runs(&self) -> impl Iterator<Item = Run<'_>> {
        let of_parcel = |parcel| -> Run<'_> {
            let Parcel { source, stride, bytes }: &Parcel = parcel;
            Run { source: *source, ecn: false, bytes, stride: *stride }
        };
        let by_kernel = self.memory.bytes().chunks_exact(BUFFER_BYTES).zip(&self.meta).take(self.filled).map(|(memory, meta)| Run {
            source: meta.addr,
            ecn: meta.ecn == Some(EcnCodepoint::Ce),
            bytes: &memory[..meta.len],
            stride: meta.stride,
        });
        self.parcels.iter().map(of_parcel).chain(by_kernel)
    }
}
