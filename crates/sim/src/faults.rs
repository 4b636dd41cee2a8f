//! Injected faults: what links do to packets, and what fails when.
//!
//! Faults strike below the hop sequence: a duplicated packet reaches a node only when the anti-replay window is switched off. Only
//! links with faults keep a window; on the others a repeat cannot happen. Every faulty link draws from a stream of its own, and strays from
//! another one: they change nothing of what else is drawn.

pub(crate) mod timeline;

use fanin_core::{DropReason, Duration, EpochRule, Instant, LinkSequence, NodeId, PacketKind, ReplayWindow};

use crate::random::{Purpose, Random};
use crate::setup::SetupError;
use crate::topology::Topology;

/// Which links a fault strikes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LinkSelector {
    /// All.
    All,
    /// From hosts to their switches.
    HostUp,
    /// From switches to their hosts.
    HostDown,
    /// Between switches.
    Fabric,
    /// From one node to another, parallel links included.
    Between {
        /// The sending node.
        from: NodeId,
        /// The receiving node.
        to: NodeId,
    },
}

impl LinkSelector {
    /// Whether the link from `from` to `to` is meant.
    pub fn selects(&self, topology: &Topology, from: NodeId, to: NodeId) -> bool {
        let map = &topology.map;
        match self {
            LinkSelector::All => true,
            LinkSelector::HostUp => map.is_host(from),
            LinkSelector::HostDown => map.is_host(to),
            LinkSelector::Fabric => !map.is_host(from) && !map.is_host(to),
            LinkSelector::Between { from: a, to: b } => from == *a && to == *b,
        }
    }
}

/// A set of [`PacketKind`]s.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KindSet(u8);

impl KindSet {
    /// Every kind.
    pub const ALL: KindSet = KindSet(0xff);

    /// These kinds.
    pub fn of(kinds: &[PacketKind]) -> Self {
        KindSet(kinds.iter().fold(0, |set, &kind| set | 1 << kind as u8))
    }

    /// Whether the kind is in the set.
    #[inline]
    pub fn contains(self, kind: PacketKind) -> bool {
        self.0 >> kind as u8 & 1 == 1
    }
}

/// What some links do to some packets. Probabilities are per packet and link.
#[derive(Clone, PartialEq, Debug)]
pub struct LinkFault {
    /// Which links.
    pub links: LinkSelector,
    /// Which packets.
    pub kinds: KindSet,
    /// Probability that the packet is lost.
    pub loss: f64,
    /// Probability that a checksum fails, which is a loss with another name.
    pub corruption: f64,
    /// Probability that a second copy arrives, up to `delay_max` later.
    pub duplication: f64,
    /// Probability that the packet arrives up to `delay_max` later than it should, overtaken by others.
    pub reordering: f64,
    /// Longest delay of a copy or a reordered packet.
    pub delay_max: Duration,
}

/// Packets that nobody at the other end of the link has sent: of another link, in a neighbour's name, or with a damaged header. They come
/// beside what is on the link and carry nothing.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Strays {
    /// Probability that one comes before a packet, by packet and link.
    pub probability: f64,
    /// What they say of epoch and number is believed at once. On only to show what happens then.
    pub believed: bool,
}

/// Something that fails at a time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TimedFault {
    /// Cables between two nodes carry nothing, in both directions; what is on them is lost.
    LinkDown {
        /// One end.
        a: NodeId,
        /// The other end.
        b: NodeId,
        /// From when.
        from: Instant,
        /// Until when; `FAR_FUTURE` for good.
        until: Instant,
    },
    /// A switch loses its cables and all its state.
    SwitchDown {
        /// The switch.
        switch: NodeId,
        /// From when.
        from: Instant,
        /// Until when; it comes back empty.
        until: Instant,
    },
    /// A host does nothing for a while; what arrives waits.
    HostStall {
        /// The host.
        host: NodeId,
        /// From when.
        from: Instant,
        /// Until when.
        until: Instant,
    },
    /// A host stops for good.
    HostDies {
        /// The host.
        host: NodeId,
        /// When.
        at: Instant,
    },
}

/// All faults of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct FaultPlan {
    /// What links do; for each packet the first entry that fits its link and kind applies.
    pub links: Vec<LinkFault>,
    /// What fails when.
    pub timed: Vec<TimedFault>,
    /// Drop repeats by the hop sequence. Off only to show what happens without it.
    pub anti_replay: bool,
    /// Packets that come out of nowhere, on all links.
    pub strays: Strays,
}

impl Default for FaultPlan {
    fn default() -> Self {
        FaultPlan { links: Vec::new(), timed: Vec::new(), anti_replay: true, strays: Strays::default() }
    }
}

impl FaultPlan {
    /// Checks probabilities.
    ///
    /// # Errors
    /// [`SetupError`] for a probability outside 0 to 1.
    pub fn check(&self) -> Result<(), SetupError> {
        if !(0.0..=1.0).contains(&self.strays.probability) {
            return Err(SetupError::new("faults.strays.probability", self.strays.probability, "a probability from 0 to 1"));
        }
        for (index, fault) in self.links.iter().enumerate() {
            let fields = [
                ("loss", fault.loss),
                ("corruption", fault.corruption),
                ("duplication", fault.duplication),
                ("reordering", fault.reordering),
            ];
            for (name, value) in fields {
                if !(0.0..=1.0).contains(&value) {
                    return Err(SetupError::new(format!("faults.links[{index}].{name}"), value, "a probability from 0 to 1"));
                }
            }
        }
        Ok(())
    }
}

/// What happens to one packet at the end of a faulty link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fate {
    /// The first copy: lost, or later by so many ps.
    pub first: Result<u64, DropReason>,
    /// A second copy, later by so many ps.
    pub second: Option<u64>,
}

/// The state of a faulty link.
#[derive(Clone, Debug)]
pub(crate) struct FaultyLink {
    rules: Vec<LinkFault>,
    random: Random,
    next_sequence: u64,
    heard: Option<LinkSequence>,
    strays: Strays,
    stray_random: Random,
}

/// The epoch of all links.
const EPOCH: u32 = 1;

impl FaultyLink {
    /// The state for link number `link`, a channel of this cable, or `None` where no fault strikes it.
    pub fn new(plan: &FaultPlan, topology: &Topology, cable: u32, link: u32, seed: u64) -> Option<Self> {
        let cable = &topology.links[cable as usize];
        let rules: Vec<LinkFault> =
            plan.links.iter().filter(|fault| fault.links.selects(topology, cable.from, cable.to)).cloned().collect();
        (!rules.is_empty() || plan.strays.probability > 0.0).then(|| FaultyLink {
            rules,
            random: Random::new(seed, Purpose::Faults, u64::from(link)),
            next_sequence: 0,
            heard: plan.anti_replay.then(|| heard_from(0)),
            strays: plan.strays,
            stray_random: Random::new(seed, Purpose::Strays, u64::from(link)),
        })
    }

    /// The number that the near end gives to the next packet.
    pub fn number(&mut self) -> u64 {
        self.next_sequence += 1;
        self.next_sequence - 1
    }

    /// Draws what happens to the next packet.
    pub fn fate(&mut self, kind: PacketKind) -> Fate {
        let Some(rule) = self.rules.iter().find(|rule| rule.kinds.contains(kind)) else {
            return Fate { first: Ok(0), second: None };
        };
        let delay_max = rule.delay_max.as_ps();
        let late = |random: &mut Random| if delay_max == 0 { 0 } else { 1 + random.bits() % delay_max };
        let second = (rule.duplication > 0.0 && self.random.chance(rule.duplication)).then(|| late(&mut self.random));
        let first = if rule.loss > 0.0 && self.random.chance(rule.loss) {
            Err(DropReason::InjectedLoss)
        } else if rule.corruption > 0.0 && self.random.chance(rule.corruption) {
            Err(DropReason::Corrupted)
        } else if rule.reordering > 0.0 && self.random.chance(rule.reordering) {
            Ok(late(&mut self.random))
        } else {
            Ok(0)
        };
        Fate { first, second }
    }

    /// Whether the far end takes a packet with this number.
    pub fn accept(&mut self, sequence: u64) -> Result<(), DropReason> {
        self.heard.as_mut().map_or(Ok(()), |heard| heard.accept(EPOCH, sequence as u32).map(|_| ()))
    }

    /// Draws whether a stray comes now; if so, why it goes no further.
    pub fn stray(&mut self) -> Option<DropReason> {
        let Strays { probability, believed } = self.strays;
        if probability <= 0.0 || !self.stray_random.chance(probability) {
            return None;
        }
        let Some(heard) = &mut self.heard else { return Some(DropReason::Malformed) };
        let (kind, draw) = (self.stray_random.below(3), self.stray_random.bits());
        let number = self.next_sequence as u32;
        let (epoch, number, is_damaged) = match kind {
            0 => (draw as u32, (draw >> 32) as u32, false),
            1 => (EPOCH, number.wrapping_add(ReplayWindow::LENGTH as u32).wrapping_add(draw as u32 & 0x3fff_ffff), false),
            // A bit of the header has flipped, in the epoch or in the number.
            _ if draw % 64 < 32 => (EPOCH ^ 1 << (draw % 32), number, true),
            _ => (EPOCH, number ^ 1 << (draw % 32), true),
        };
        if believed {
            if epoch == EPOCH {
                *heard = heard_from(number);
            } else {
                heard.agree(epoch, number);
            }
            return Some(DropReason::Malformed);
        }
        if is_damaged {
            return Some(DropReason::Corrupted);
        }
        // A number that is believed would belong to a packet: then this is one of another kind.
        Some(heard.accept(epoch, number).err().unwrap_or(DropReason::Malformed))
    }
}

/// What is believed of a link that has come to this number.
fn heard_from(number: u32) -> LinkSequence {
    let mut heard = LinkSequence::new(EpochRule::Agreed);
    heard.agree(EPOCH, number);
    heard
}
