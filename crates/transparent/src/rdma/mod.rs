//! Sums inside the RDMA connections of network cards: NetReduce as in its paper, over RoCEv2 as cards send it.
//!
//! Workers write messages into the memory of their successors (RDMA writes on reliable connections), an INA header at the beginning of each.
//! The accelerator of [`fanin_protocols::netreduce`] decides what is held, summed and sent again. Here frames become its packets and sums become
//! frames: each in the head that the contribution of the same connection and number came in, with the sum as its payload and the ICRC
//! computed anew. Numbers, lengths, addresses, keys, immediate data and requests for acknowledgements stay the sender's own, and
//! acknowledgements pass by (`netreduce 5.6`), but for those that only the switch has asked for (`line`).
//!
//! | what the paper leaves open | what is done |
//! |---|---|
//! | what is summed, and who the workers are | the switch is told: [`RdmaRing`] |
//! | when a job is over and the next one may use the ring | a worker that begins at message 0 by another connection ends the run before. Where queue pair and first packet number come again: `Ring::open` in `ring` |
//! | writes of connections whose beginning was not seen, as after a restart, or whose run is over | are dropped, between neighbours of the ring: unsummed they would be taken for sums. Both ends are told that the connection is over (`line`) |
//! | a worker that is dead | its card does not answer: `Ring::listen` in `ring` |
//! | other RDMA of the same hosts | passes: whatever is no write, and writes that begin without an INA header |
//! | frames that cannot be summed although they begin as a ring's do | are counted and said by reason: `odd` |
//! | how a worker sees that somebody has summed | the last two bytes of the INA header at the receiver are the number of workers |

mod config;
mod failure;
mod line;
mod odd;
mod ring;
#[cfg(test)]
mod tests;
pub(crate) mod told;

use std::collections::HashMap;
use std::net::Ipv4Addr;

use fanin_core::{Instant, Malformed};
use fanin_wire::netreduce::InaHeader;
use fanin_wire::roce::{self, Glance, ICRC, Over, RoceHeader, opcode};

pub use config::{RdmaRing, RingError, WORKERS_MAX};
use line::Learns;
pub use odd::{Odd, OddFrames};
use ring::{Packet, Ring};
use told::Told;

/// Connections of a pair of neighbours that are not summed in and known at once: the oldest is forgotten first.
const OTHERS_MAX: usize = 256;

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
    /// Rings that were ended because they could not go on.
    pub ended: u64,
    /// Whom the last one was ended because of: ring and rank.
    pub blamed: Option<(u16, u16)>,
    /// Bytes of sums of a part of a ring that went to the switch above.
    pub part_bytes: u64,
    /// Bytes of sums of all that went to switches below.
    pub whole_bytes: u64,
    /// Packets whose heads went to the switch where their receiver is.
    pub heads: u64,
    /// How often a sender was sent back because something of its connection was lost.
    pub sent_back: u64,
    /// Frames that could not be summed, by reason.
    pub odd: OddFrames,
}

/// Takes frames that leave.
pub(crate) trait Emit {
    /// A frame made of one that came by `port` leaves to where its addresses lead; `usize::MAX` is no port.
    fn emit(&mut self, port: usize, frame: &[u8]);

    /// Something is to be said to the switch behind a port.
    fn tell(&mut self, port: usize, body: Vec<u8>);
}

/// Two hosts of which one is the successor of the other.
#[derive(Debug, Default)]
struct Pair {
    /// In which rings, and by which rank.
    seats: Vec<(usize, u16)>,
    /// Queue pairs that began with something else than a message.
    others: Vec<u32>,
}

/// All rings of a switch.
#[derive(Debug, Default)]
pub(crate) struct Rdma {
    rings: Vec<Ring>,
    pairs: HashMap<(Ipv4Addr, Ipv4Addr), Pair>,
    odd: odd::Counted,
    damaged: u64,
}

impl Rdma {
    /// Rings that differ in number where they have neighbours in common; `Err` names two that do not. `uplink`: the port of the switch above.
    pub fn new(rings: Vec<RdmaRing>, uplink: Option<usize>) -> Result<Self, (u16, u16)> {
        let mut pairs: HashMap<(Ipv4Addr, Ipv4Addr), Pair> = HashMap::new();
        for (number, ring) in rings.iter().enumerate() {
            for (rank, from) in (0u16..).zip(&ring.workers) {
                let to = ring.workers[(usize::from(rank) + 1) % ring.workers.len()];
                let pair = pairs.entry((*from, to)).or_default();
                if let Some((other, _)) = pair.seats.iter().find(|(other, _)| rings[*other].ring == ring.ring) {
                    return Err((rings[*other].ring, ring.ring));
                }
                pair.seats.push((number, rank));
            }
        }
        Ok(Rdma { rings: rings.into_iter().map(|ring| Ring::new(ring, uplink)).collect(), pairs, ..Rdma::default() })
    }

    /// A frame has come. Says whether it has been dealt with; otherwise it goes on as it is.
    pub fn on_frame(&mut self, now: Instant, port: usize, frame: &[u8], out: &mut impl Emit) -> bool {
        if self.rings.is_empty() {
            return false;
        }
        let is_done = self.take_frame(now, port, frame, out);
        self.tell(out);
        is_done
    }

    /// What is to be said to other switches.
    fn tell(&mut self, out: &mut impl Emit) {
        for ring in &mut self.rings {
            ring.tree.outbox.drain(..).for_each(|(port, body)| out.tell(port, body));
        }
    }

    /// A switch answers behind a port.
    pub fn on_trunk(&mut self, port: usize, out: &mut impl Emit) {
        self.rings.iter_mut().for_each(|ring| ring.on_trunk(port));
        self.tell(out);
    }

    /// The switch behind a port is gone, or was restarted.
    pub fn on_trunk_gone(&mut self, port: usize, interface: &str, is_restart: bool, out: &mut impl Emit) {
        self.rings.iter_mut().for_each(|ring| ring.on_trunk_gone(port, interface, is_restart));
        self.tell(out);
    }

    /// What the switch behind a port says of a ring over RDMA.
    ///
    /// # Errors
    /// What does not fit.
    pub fn on_told(&mut self, now: Instant, port: (usize, &str), body: &[u8], out: &mut impl Emit) -> Result<(), String> {
        let (name, epoch, told) = Told::parse(body).map_err(|error| error.to_string())?;
        let result = match self.rings.iter_mut().find(|ring| ring.tree.name() == name) {
            Some(ring) => ring.on_told(now, port, epoch, told, out).map_err(str::to_owned),
            None => {
                let why = match self.rings.iter().find(|ring| ring.config.ring == name.ring) {
                    Some(_) => format!("ring {} has other workers in `rdma-ring` of the switch above", name.ring),
                    None => format!("the switch above was not told of ring {} (`rdma-ring`)", name.ring),
                };
                if let Told::Ranks { .. } = told {
                    out.tell(port.0, Told::Unfit { why: why.clone() }.emit(name, epoch));
                }
                Err(why)
            }
        };
        self.tell(out);
        result
    }

    /// Whether a worker of a ring has sent by a port.
    pub fn has_workers(&self, port: usize) -> bool {
        self.rings.iter().any(|ring| ring.has_workers(port))
    }

    fn take_frame(&mut self, now: Instant, port: usize, frame: &[u8], out: &mut impl Emit) -> bool {
        let Some(glance) = roce::glance(frame) else { return false };
        let [from, to] = glance.addresses.map(Ipv4Addr::from);
        if glance.opcode == opcode::ACKNOWLEDGE && glance.over == Over::V4 {
            let Some(pair) = self.pairs.get(&(to, from)) else { return false };
            return RoceHeader::parse(frame).is_ok_and(|(header, _)| on_answer(&mut self.rings, pair, now, &header, out));
        }
        // A question of another switch is shorter than it claims, and has nothing in it.
        if !glance.is_write() || self.is_from_other_switch(&glance, frame) {
            return false;
        }
        let is_message = InaHeader::parse(glance.first_payload(frame)).is_ok();
        match (self.pairs.get_mut(&(from, to)), glance.over) {
            (Some(pair), Over::V4) => on_write(&mut self.rings, pair, &mut self.odd, &mut self.damaged, (now, port, frame), &glance, out),
            (Some(_), Over::Fragment) => self.odd.count(Odd::Fragment, glance.addresses),
            (Some(_), Over::Options) => self.odd.count(Odd::Options, glance.addresses),
            (_, Over::V6) if is_message => self.odd.count(Odd::V6, glance.addresses),
            (_, Over::Ethernet) if is_message => self.odd.count(Odd::Ethernet, glance.addresses),
            (None, _) if is_message => self.odd.count(Odd::Stranger, glance.addresses),
            _ => false,
        }
    }

    /// When [`Rdma::on_due`] has something to do at the latest.
    pub fn due(&self) -> Option<Instant> {
        self.rings.iter().filter_map(Ring::due).min()
    }

    /// Helps connections in which something was lost.
    pub fn on_due(&mut self, now: Instant, out: &mut impl Emit) {
        if self.due().is_some_and(|due| now >= due) {
            self.rings.iter_mut().for_each(|ring| ring.on_due(now, out));
        }
    }

    /// Says whom rings wait for whose packets are sent again, ends rings of whom somebody is dead, and tells those who do not know yet that
    /// their connection is over. To be called a few times a second.
    pub fn on_tick(&mut self, now: Instant, out: &mut impl Emit) {
        self.rings.iter_mut().for_each(|ring| ring.on_tick(now, out));
        self.odd.on_tick(now);
        self.tell(out);
    }

    pub fn statistics(&self) -> RdmaStatistics {
        let add = |all: RdmaStatistics, ring: &Ring| RdmaStatistics {
            runs: all.runs + ring.statistics.runs,
            summed: all.summed + ring.statistics.summed,
            repeated: all.repeated + ring.statistics.repeated,
            dropped: all.dropped + ring.statistics.dropped,
            refused: all.refused + ring.statistics.refused,
            ended: all.ended + ring.statistics.ended,
            part_bytes: all.part_bytes + ring.statistics.part_bytes,
            whole_bytes: all.whole_bytes + ring.statistics.whole_bytes,
            heads: all.heads + ring.statistics.heads,
            sent_back: all.sent_back + ring.statistics.sent_back,
            blamed: ring.statistics.blamed.or(all.blamed),
            ..all
        };
        let own = RdmaStatistics { damaged: self.damaged, odd: self.odd.frames(), ..RdmaStatistics::default() };
        self.rings.iter().fold(own, add)
    }
}

impl Rdma {
    /// Whether another switch asks a card, or tells it something: what it makes for that has no payload, and the sender in whose name it goes is
    /// not here.
    fn is_from_other_switch(&self, glance: &Glance, frame: &[u8]) -> bool {
        let [from, to] = glance.addresses.map(Ipv4Addr::from);
        let is_empty = glance.opcode == opcode::WRITE_ONLY && glance.first_payload(frame).len() == ICRC;
        is_empty && self.pairs.get(&(from, to)).is_some_and(|pair| pair.seats.iter().all(|(ring, rank)| !self.rings[*ring].tree.has(*rank)))
    }
}

/// A card answers what its predecessor has sent: that may be in any of several rings between the same hosts. Says whether only the switch
/// wanted to hear it.
fn on_answer(rings: &mut [Ring], pair: &Pair, now: Instant, header: &RoceHeader, out: &mut impl Emit) -> bool {
    let owner = pair.seats.iter().find(|(ring, rank)| rings[*ring].is_answered(*rank, header)).copied();
    let candidates = pair.seats.iter().filter(|(ring, rank)| rings[*ring].may_be_answered(*rank, header)).count();
    let mut is_echo = false;
    for &(ring, rank) in &pair.seats {
        let learns = match owner {
            Some(owner) if owner != (ring, rank) => Learns::Nothing,
            None if candidates > 1 => Learns::Presence,
            _ => Learns::Origin,
        };
        is_echo |= rings[ring].on_answer(now, rank, header, learns, out);
    }
    // Which of them it answers is not known; it is one of their questions.
    is_echo || owner.is_none() && candidates > 1 && pair.seats.iter().any(|(ring, rank)| rings[*ring].takes_echo(*rank, header))
}

/// A write between two neighbours. Says whether it has been dealt with.
fn on_write(
    rings: &mut [Ring],
    pair: &mut Pair,
    odd: &mut odd::Counted,
    damaged: &mut u64,
    (now, port, frame): (Instant, usize, &[u8]),
    glance: &Glance,
    out: &mut impl Emit,
) -> bool {
    let (header, payload) = match RoceHeader::parse(frame) {
        Ok(parsed) => parsed,
        // What has been damaged on its way must not get into a sum; the sender's card sends it again.
        Err(Malformed::Field { name: "icrc" | "ip_checksum", .. }) => {
            *damaged += 1;
            return odd.count(Odd::Damaged, glance.addresses);
        }
        Err(_) => return odd.count(Odd::Malformed, glance.addresses),
    };
    let queue_pair = header.bth.queue_pair;
    let known = |rings: &[Ring]| {
        let seats = || pair.seats.iter().copied();
        seats()
            .find(|(ring, rank)| rings[*ring].owns(*rank, queue_pair))
            .or_else(|| seats().find(|(ring, rank)| rings[*ring].knows(*rank, queue_pair)))
    };
    let packet = |rank| Packet { port, rank, header: &header, payload, frame };
    let is_first = header.reth.is_some();
    if let Some(ina) = is_first.then(|| InaHeader::parse(payload).ok()).flatten() {
        pair.others.retain(|other| *other != queue_pair);
        let named = pair.seats.iter().copied().find(|(ring, _)| rings[*ring].config.ring == ina.ring);
        // None has this number: the one whose connection it is says so, or any.
        let (ring, rank) = named.or_else(|| known(rings)).unwrap_or(pair.seats[0]);
        rings[ring].on_first(now, &packet(rank), &ina, out);
        return true;
    }
    if is_first && pair.seats.iter().all(|(ring, rank)| rings[*ring].leaves(*rank, queue_pair)) && !pair.others.contains(&queue_pair) {
        if pair.others.len() >= OTHERS_MAX {
            pair.others.remove(0);
        }
        pair.others.push(queue_pair);
    }
    if pair.others.contains(&queue_pair) {
        return false;
    }
    let (ring, rank) = known(rings).unwrap_or(pair.seats[0]);
    rings[ring].on_next(now, &packet(rank), out);
    true
}
