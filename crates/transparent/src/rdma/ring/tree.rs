//! What a switch has to do with the others that sum a ring together with it: who has which ranks, what is to be said to whom, and what is kept for
//! them. What follows from what they say is in `racks`.

use std::collections::HashMap;

use fanin_core::Instant;

use super::{Failure, Psn};
use crate::rdma::config::RdmaRing;
use crate::rdma::told::{Name, Sum, Told};

/// The number of a switch below in names: above all ranks.
pub(super) const SWITCHES: u32 = 1 << 16;

/// A switch below that has some of the ranks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::rdma) struct Child {
    pub port: usize,
    /// In their order; at least one.
    pub ranks: Vec<u16>,
    pub is_up: bool,
}

/// See the module's documentation.
#[derive(Debug)]
pub(in crate::rdma) struct Tree {
    name: Name,
    /// The ranks whose workers are here, in their order.
    pub own: Vec<u16>,
    /// As configured; otherwise all that no switch below has.
    pub is_told: bool,
    pub world: u16,
    /// In the order of their lowest ranks, which is the one of the sums.
    pub children: Vec<Child>,
    pub uplink: Option<usize>,
    pub epoch: u64,
    /// All ranks are known, here or above.
    pub is_ready: bool,
    /// The switch above does not sum the ring together with this one.
    pub unfit: Option<String>,
    /// Since when packets are dropped because it is not ready.
    pub held_off: Option<Instant>,
    /// Sums that went up and have not come down.
    pub outstanding: u32,
    /// The newest message of which there was a sum of all.
    pub newest: Option<u32>,
    /// Something was summed since this was last asked.
    pub has_summed: bool,
    /// Sums of which the receiver is here and the sender is not, by the sender and the place of the packet's number, with that number.
    sums: HashMap<(u16, u32), (Psn, Vec<u8>)>,
    /// How many of a sender are kept: a power of two.
    kept: u32,
    /// Of each message that is kept: its number, its length, and who has said so first.
    lengths: Vec<Option<(u32, u32, u16)>>,
    /// What is to be said, and by which port.
    pub outbox: Vec<(usize, Vec<u8>)>,
}

impl Tree {
    pub fn new(config: &RdmaRing, uplink: Option<usize>) -> Self {
        let world = config.workers.len() as u16;
        let own = config.here.clone().unwrap_or_else(|| (0..world).collect());
        let kept = (2 * config.shape.window).next_power_of_two() as usize;
        Tree {
            name: Name::of(config),
            is_ready: own.len() == usize::from(world),
            own,
            is_told: config.here.is_some(),
            world,
            children: Vec::new(),
            uplink,
            epoch: 0,
            unfit: None,
            held_off: None,
            outstanding: 0,
            newest: None,
            has_summed: false,
            sums: HashMap::new(),
            kept: config.heads(),
            lengths: vec![None; kept],
            outbox: Vec::new(),
        }
    }

    pub fn name(&self) -> Name {
        self.name
    }

    /// Whether other switches have to do with the ring.
    pub fn spans(&self) -> bool {
        self.own.len() < usize::from(self.world)
    }

    /// How many ranks are here or behind switches below.
    pub fn known(&self) -> usize {
        self.own.len() + self.children.iter().map(|child| child.ranks.len()).sum::<usize>()
    }

    /// The port of the switch above, where it is needed.
    pub fn parent(&self) -> Option<usize> {
        self.uplink.filter(|_| self.known() < usize::from(self.world))
    }

    pub fn has(&self, rank: u16) -> bool {
        self.own.binary_search(&rank).is_ok()
    }

    /// Says something to the switch behind a port.
    pub fn say(&mut self, port: usize, told: &Told) {
        self.outbox.push((port, told.emit(self.name, self.epoch)));
    }

    /// The same to all that sum the ring, too, but for the one that says so itself.
    pub fn spread(&mut self, except: Option<usize>, told: &Told) {
        let below = self.children.iter().filter(|child| child.is_up).map(|child| child.port);
        let ports: Vec<usize> = below.chain(self.parent()).filter(|port| Some(*port) != except).collect();
        ports.into_iter().for_each(|port| self.say(port, told));
    }

    pub fn say_down(&mut self, sum: &Sum) {
        let ports: Vec<usize> = self.children.iter().map(|child| child.port).collect();
        ports.into_iter().for_each(|port| self.say(port, &Told::Down(sum.clone())));
    }

    /// The sum of those below goes up.
    pub fn say_up(&mut self, sum: Sum) {
        let Some(port) = self.parent() else { return };
        let known = self.lengths[sum.message as usize & (self.lengths.len() - 1)];
        let length = known.filter(|(message, ..)| *message == sum.message).map_or(0, |(_, length, _)| length);
        self.outstanding += 1;
        self.say(port, &Told::Up { sum, length });
    }

    /// Where a rank's switch is, seen from here.
    pub fn way_to(&self, rank: u16) -> Option<usize> {
        self.children.iter().find(|child| child.ranks.contains(&rank)).map(|child| child.port).or_else(|| self.parent())
    }

    /// There is a sum of all of a message.
    pub fn note_sum(&mut self, message: u32) {
        self.has_summed = true;
        if self.newest.is_none_or(|newest| message.wrapping_sub(newest) as i32 > 0) {
            self.newest = Some(message);
        }
    }

    /// A sum leaves in a rank's connection: a head that comes again may ask for it once more.
    pub fn keep_sum(&mut self, rank: u16, psn: Psn, bytes: &[u8]) {
        if self.has(rank) {
            return;
        }
        let kept = self.sums.entry((rank, psn.number() & (self.kept - 1))).or_insert_with(|| (psn, Vec::new()));
        kept.0 = psn;
        kept.1.clear();
        kept.1.extend_from_slice(bytes);
    }

    pub fn sum(&self, rank: u16, psn: Psn) -> Option<&[u8]> {
        self.sums.get(&(rank, psn.number() & (self.kept - 1))).filter(|(of, _)| *of == psn).map(|(_, bytes)| bytes.as_slice())
    }

    /// Somebody says how long a message is.
    pub fn note_length(&mut self, rank: u16, message: u32, length: u32) -> Result<(), Failure> {
        let place = message as usize & (self.lengths.len() - 1);
        match self.lengths[place] {
            Some((of, expected, other)) if of == message && expected != length => {
                return Err(Failure::Lengths { rank, message, length, other, expected });
            }
            Some((of, ..)) if message.wrapping_sub(of) as i32 <= 0 => {}
            _ => self.lengths[place] = Some((message, length, rank)),
        }
        Ok(())
    }

    /// Nothing is held any more.
    pub fn forget(&mut self) {
        (self.outstanding, self.newest, self.has_summed) = (0, None, false);
        self.sums.clear();
        self.lengths.fill(None);
    }
}
