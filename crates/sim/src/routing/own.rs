//! Load balancers from elsewhere: a crate that is not of this workspace says how a switch chooses among equal ways.
//!
//! Every switch has a state of its own, made by [`OwnBalancer::switch`], and sees what a real one could: how long the queues of its ports are, the
//! packet's ends, flow and length, the time, and the 64 bits that packets carry for balancers ([`Passing::tag`]). What a switch learns about others
//! comes by these bits alone.

use std::fmt;

use fanin_core::{Instant, NetworkMap, NodeId};

use crate::own::{Described, Own, Parameters, Refusal, described};
use crate::random::Random;

/// A load balancer that is not of this crate, by its parameters.
pub trait OwnBalancer: Parameters {
    /// Its name in plans, as `routing`: none that another balancer has.
    const NAME: &'static str;

    /// Whether [`Choose::arrive`] does anything. Links between switches are looked at for it alone.
    const LOOKS_AT_ARRIVALS: bool = false;

    /// What a switch keeps and does.
    type Switch: Choose;

    /// Whether its parameters make sense, and the network is one that it is meant for.
    ///
    /// # Errors
    /// [`Refusal`] names the parameter.
    fn check(&self, _map: &NetworkMap) -> Result<(), Refusal> {
        Ok(())
    }

    /// The state of a switch. `random` is its own: what one switch draws changes nothing for others.
    fn switch(&self, at: NodeId, map: &NetworkMap, random: Random) -> Self::Switch;
}

/// A switch that chooses.
pub trait Choose: fmt::Debug + Send + Sync + 'static {
    /// Which of several ways, counted from 0, a packet takes. Where it is down, or there is none of that number, the next one that is up is taken.
    fn choose(&mut self, packet: &mut Passing, ways: &Ways<'_>) -> u32;

    /// A packet has come by a link from another switch, whether it is for this one or goes on.
    fn arrive(&mut self, _packet: &mut Passing) {}
}

/// A packet at a switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Passing {
    /// The time.
    pub now: Instant,
    /// Who made it.
    pub source: NodeId,
    /// The host or switch that it is for.
    pub destination: NodeId,
    /// A hash of its flow (source, destination, label), another one at each switch.
    pub flow: u64,
    /// Its length on the wire, in bytes, preamble and gap included.
    pub bytes: u32,
    /// Whether it is marked: it has met a queue longer than the network's threshold (ECN).
    pub marked: bool,
    /// Whether it is of background traffic.
    pub background: bool,
    /// Whether this is its first switch: its source hangs here.
    pub first: bool,
    /// Whether this is its last switch: its destination hangs here.
    pub last: bool,
    /// What it carries for balancers: 0 at its first switch, and whatever a switch leaves here at the next. No room on the wire is counted for it.
    pub tag: u64,
}

/// The queue before a way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Queue {
    /// Whether its link is up.
    pub is_up: bool,
    /// How long the link takes for what is queued, in ps.
    pub ps: u64,
    /// The link's number, by which a switch knows it again. It is the same one for every destination.
    pub link: u32,
}

/// Ways of the least cost to a packet's destination, of which there are two at least.
pub struct Ways<'a> {
    count: u32,
    look: &'a dyn Fn(u32) -> Queue,
}

impl<'a> Ways<'a> {
    /// So many ways, whose queues `look` looks at.
    pub fn new(count: u32, look: &'a dyn Fn(u32) -> Queue) -> Self {
        Ways { count, look }
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The queue before a way, by its number from 0.
    pub fn queue(&self, number: u32) -> Queue {
        (self.look)(number)
    }
}

/// An [`OwnBalancer`], whichever it is.
pub trait AnyBalancer: Described {
    /// As [`OwnBalancer::LOOKS_AT_ARRIVALS`].
    fn looks_at_arrivals(&self) -> bool;
    /// As [`OwnBalancer::check`].
    ///
    /// # Errors
    /// As there.
    fn check(&self, map: &NetworkMap) -> Result<(), Refusal>;
    /// As [`OwnBalancer::switch`].
    fn switch(&self, at: NodeId, map: &NetworkMap, random: Random) -> Box<dyn Choose>;
}

impl<T: OwnBalancer> AnyBalancer for Parameterized<T> {
    fn looks_at_arrivals(&self) -> bool {
        T::LOOKS_AT_ARRIVALS
    }

    fn check(&self, map: &NetworkMap) -> Result<(), Refusal> {
        self.0.check(map)
    }

    fn switch(&self, at: NodeId, map: &NetworkMap, random: Random) -> Box<dyn Choose> {
        Box::new(self.0.switch(at, map, random))
    }
}

/// A load balancer from elsewhere, with its parameters.
pub type NamedBalancer = Own<dyn AnyBalancer>;

described!(OwnBalancer as AnyBalancer);

/// Switches with one balancer.
#[derive(Debug)]
struct Switches {
    balancer: NamedBalancer,
    /// By switch, counted from the first one.
    states: Vec<Box<dyn Choose>>,
}

/// What the switches of a network keep, and what packets carry.
#[derive(Debug)]
pub(crate) struct OwnState {
    /// Collectives and background traffic have one state where they have the same balancer.
    sets: Vec<Switches>,
    /// For collectives and for background traffic: which of these.
    of: [Option<usize>; 2],
    /// By packet's place.
    tags: Vec<u64>,
}

impl OwnState {
    /// `balancers` for collectives and for background traffic, as far as they are from elsewhere.
    pub fn new(balancers: [Option<NamedBalancer>; 2], map: &NetworkMap, random: impl Fn(u64) -> Random) -> Option<Self> {
        let mut sets: Vec<Switches> = Vec::new();
        let of = balancers.map(|balancer| {
            let balancer = balancer?;
            if let Some(same) = sets.iter().position(|set| set.balancer == balancer) {
                return Some(same);
            }
            let number = sets.len() as u64 + 1;
            let state = |at: NodeId| balancer.get().switch(at, map, random(number << 32 | u64::from(at.0)));
            sets.push(Switches { balancer, states: map.switches().map(state).collect() });
            Some(sets.len() - 1)
        });
        (!sets.is_empty()).then_some(OwnState { sets, of, tags: Vec::new() })
    }

    /// Whether links between switches have to be looked at.
    pub fn looks_at_arrivals(&self) -> bool {
        self.sets.iter().any(|set| set.balancer.get().looks_at_arrivals())
    }

    fn tag(&mut self, place: u32) -> &mut u64 {
        if self.tags.len() <= place as usize {
            self.tags.resize(place as usize + 1, 0);
        }
        &mut self.tags[place as usize]
    }

    /// A packet is at a switch, counted from the first one: chooses among `ways`, where there are several.
    pub fn choose(&mut self, class: usize, switch: u32, place: u32, mut packet: Passing, ways: &Ways<'_>) -> u32 {
        let Some(set) = self.of[class] else { return 0 };
        packet.tag = if packet.first { 0 } else { *self.tag(place) };
        let chosen = if ways.count() > 1 { self.sets[set].states[switch as usize].choose(&mut packet, ways) } else { 0 };
        *self.tag(place) = packet.tag;
        chosen % ways.count().max(1)
    }

    /// A packet has come to a switch by a link from another one.
    pub fn arrive(&mut self, class: usize, switch: u32, place: u32, mut packet: Passing) {
        let Some(set) = self.of[class] else { return };
        packet.tag = *self.tag(place);
        self.sets[set].states[switch as usize].arrive(&mut packet);
        *self.tag(place) = packet.tag;
    }

    /// A packet is copied on a link, with what it carries.
    pub fn copy(&mut self, from: u32, to: u32) {
        let tag = *self.tag(from);
        *self.tag(to) = tag;
    }
}
