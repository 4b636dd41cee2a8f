//! Sums inside the RDMA connections of network cards: NetReduce as in its paper, over RoCEv2 as cards send it.
//!
//! Workers write messages into the memory of their successors (RDMA writes on reliable connections), an INA header at the beginning of each.
//! The accelerator of [`fanin_protocols::netreduce`] decides what is held, summed and sent again. Here frames become its packets and sums become
//! frames: each in the head that the contribution of the same connection and number came in, with the sum as its payload and the ICRC
//! computed anew. Numbers, lengths, addresses, keys, immediate data and requests for acknowledgements stay the sender's own, and
//! acknowledgements pass by (`netreduce 5.6`).
//!
//! | what the paper leaves open | what is done |
//! |---|---|
//! | what is summed, and who the workers are | the switch is told: [`RdmaRing`] |
//! | when a job is over and the next one may use the ring | a worker that begins at message 0 by another connection ends the run before. Connections are told apart by queue pair and first packet number, and one that a later run has ended never counts again |
//! | writes of connections whose beginning was not seen, as after a restart | are dropped, between neighbours of the ring: unsummed they would be taken for sums. The senders' cards give up, so that workers have an error |
//! | other RDMA of the same hosts | passes: whatever is no write, and writes that begin without an INA header |
//! | how a worker sees that somebody has summed | the last two bytes of the INA header at the receiver are the number of workers |

mod config;
mod ring;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::net::Ipv4Addr;

use fanin_core::Instant;
use fanin_wire::roce::{self, opcode};

pub use config::{RdmaRing, RingError, WORKERS_MAX};
use ring::{Fate, Ring};

/// What has been done in all rings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RdmaStatistics {
    /// Runs that began.
    pub runs: u64,
    /// Packets that left with sums in them.
    pub summed: u64,
    /// Packets that came again.
    pub repeated: u64,
    /// Packets that the accelerator dropped: their place was not known yet, or not any more. Their senders send them again.
    pub dropped: u64,
    /// Packets that do not fit their ring.
    pub refused: u64,
    /// Packets whose checks were wrong.
    pub damaged: u64,
}

/// Takes frames that leave.
pub(crate) trait Emit {
    /// A frame made of one that came by `port` leaves to where its addresses lead.
    fn emit(&mut self, port: usize, frame: &[u8]);
}

/// All rings of a switch.
#[derive(Debug, Default)]
pub(crate) struct Rdma {
    rings: Vec<Ring>,
    /// Between which hosts the connections of rings run, and whose they are: ring, rank.
    neighbours: HashMap<(Ipv4Addr, Ipv4Addr), (usize, u16)>,
}

impl Rdma {
    /// Rings between disjoint pairs of neighbours; `Err` names two that share one.
    pub fn new(rings: Vec<RdmaRing>) -> Result<Self, (u16, u16)> {
        let mut neighbours = HashMap::new();
        for (number, ring) in rings.iter().enumerate() {
            for (rank, from) in (0u16..).zip(&ring.workers) {
                let to = ring.workers[(usize::from(rank) + 1) % ring.workers.len()];
                if let Some((other, _)) = neighbours.insert((*from, to), (number, rank)) {
                    let other: usize = other;
                    return Err((rings[other].ring, ring.ring));
                }
            }
        }
        Ok(Rdma { rings: rings.into_iter().map(Ring::new).collect(), neighbours })
    }

    /// A frame has come. Says whether it has been dealt with; otherwise it goes on as it is.
    pub fn on_frame(&mut self, now: Instant, port: usize, frame: &[u8], out: &mut impl Emit) -> bool {
        if self.rings.is_empty() {
            return false;
        }
        let Some(([from, to], bth)) = roce::glance(frame) else { return false };
        if !matches!(bth.opcode, opcode::WRITE_FIRST..=opcode::WRITE_ONLY_IMMEDIATE) {
            return false;
        }
        let Some(&(ring, rank)) = self.neighbours.get(&(from.into(), to.into())) else { return false };
        self.rings[ring].on_write(now, port, rank, frame, out) == Fate::Taken
    }

    /// Says whom rings wait for whose packets are sent again.
    pub fn on_tick(&mut self) {
        self.rings.iter_mut().for_each(Ring::on_tick);
    }

    pub fn statistics(&self) -> RdmaStatistics {
        let add = |all: RdmaStatistics, ring: &Ring| RdmaStatistics {
            runs: all.runs + ring.statistics.runs,
            summed: all.summed + ring.statistics.summed,
            repeated: all.repeated + ring.statistics.repeated,
            dropped: all.dropped + ring.statistics.dropped,
            refused: all.refused + ring.statistics.refused,
            damaged: all.damaged + ring.statistics.damaged,
        };
        self.rings.iter().fold(RdmaStatistics::default(), add)
    }
}
