//! Lossless links: finite buffers with credits, so that congestion spreads backwards and blocks, as it does in such networks.
//!
//! A packet may leave for a switch only when the buffer at the far end has room for it. Room is given back as *credits*: so many bytes,
//! from such a time on. Both are kept without events:
//!
//! * The queue before a link is first come, first served. A packet that finds credits that will be there when its turn comes *commits*
//!   its departure when it is queued; nothing that happens later can change it.
//! * When a departure commits, it is known when the packet's last byte leaves the buffer that it occupies; the credit for that buffer
//!   goes back with this time on it.
//! * Only a *starved* link, whose first packet lacks credits, is woken by an event: when the next credit arrives.
//!
//! Two models of a switch, which differ in who is blocked by whom ([`SwitchModel`]), and in the one with a queue an input three ways from
//! where a switch makes packets to its outputs ([`MadePackets`]).

mod deadlock;
mod sending;

use serde::{Deserialize, Serialize};

use crate::link::Chain;
use crate::packet::NO_LINK;

/// How a lossless switch is built inside.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SwitchModel {
    /// Virtual output queues: a packet goes to its output's queue at once, first come first served, and is charged to the input that it
    /// came by until its last byte has left. Packets that the switch makes are charged to nobody and never blocked.
    OutputQueued,
    /// A queue per input, blocked by its first packet until that one's output buffer has room; outputs serve waiting inputs by their
    /// [`Arbitration`].
    /// Where packets that the switch makes itself enter is for [`MadePackets`] to say.
    InputQueued,
}

/// Where packets that a switch makes itself, sums and copies of results, stand until their outputs' buffers have room (input-queued
/// switches). They are charged to no input: sums lie in the aggregator's own memory, and what they were made of has given its buffer back.
///
/// The default is a queue for each output. What holds sums is memory of random access, and nothing in it stands behind anything else; a
/// FIFO is what an input's buffer is, and no sum is in one. An aggregator that adds as fast as all inputs bring has to hand out as fast as
/// all outputs take, which one FIFO cannot: its first packet would hold up those for all other outputs. So switches that aggregate are
/// built: a Tofino's traffic manager has a queue for each port behind its pipelines, and in Flare packets lie in a memory that all cores
/// share, from which commands send them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MadePackets {
    /// One FIFO a switch, for all jobs, blocked by its first packet: one more input, as of a processor at a port of the crossbar. The copies
    /// of one multicast that are first claim their outputs independently, and the next packet follows when all have moved on.
    OwnFifo,
    /// The input of the packet that they were made at, behind what waits there: a pipeline before each input's queue, in which the packet that
    /// completes a sum goes on as the sum. What a timer makes came by no input; it enters by one more, as a Tofino's clock packets do, which
    /// come from a packet generator with a port of its own. Here a packet for one output can hold up another input's traffic, so systems
    /// that send up again from a switch below can deadlock. Such a run says so.
    Input,
    /// A queue for each output, which takes turns with the inputs. Nothing that the switch makes holds up what is for another output.
    #[default]
    PerOutput,
}

/// Which of the inputs whose first packets wait for room in an output's buffer is next (input-queued switches). Each choice is fair: while
/// inputs wait, none of them is passed over for ever.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arbitration {
    /// The one whose first packet has waited longest for this output: who has been served goes to the end.
    #[default]
    FirstCome,
    /// The next one after the one that was served last, in a fixed order.
    RoundRobin,
    /// The one whose first packet came to the switch first: inputs with longer queues are served more often.
    OldestFirst,
}

/// A lossless network's buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LosslessConfig {
    /// The model.
    pub model: SwitchModel,
    /// Buffer of each input port in bytes; at least one frame.
    pub input_bytes: u64,
    /// Buffer of each output port in bytes (input-queued switches); at least one frame.
    pub output_bytes: u64,
    /// Whom an output serves next (input-queued switches).
    pub arbitration: Arbitration,
    /// Where packets that a switch makes enter (input-queued switches).
    pub made_packets: MadePackets,
    /// Virtual channels of a link between switches, each with buffers of these sizes; 1 for none. More in dragonflies only: a packet takes
    /// the channel of its number of links between groups so far. So 2 keep ways of least cost from deadlock, and 3 all ways by one more
    /// group.
    pub channels: u8,
}

/// Most virtual channels of a link. Packets need three.
pub const CHANNELS_MAX: u8 = 8;

/// An input of an input-queued switch.
#[derive(Clone, Copy, Debug)]
struct Input {
    /// Packets behind those that wait for their outputs, in order of arrival.
    behind: Chain,
    /// The first packet, or copies of the first packet's multicast, that wait for their outputs. Others stand behind these only.
    pending: u32,
}

impl Input {
    /// Whether nothing stands here.
    #[inline(always)]
    fn is_free(&self) -> bool {
        debug_assert!(self.pending > 0 || self.behind.is_empty(), "who stands behind nobody moves up");
        self.pending == 0
    }
}

/// Links to look at before the handler returns, the last one first. There is seldom more than one.
#[derive(Debug)]
struct Work {
    /// [`NO_LINK`] where there is nothing to look at.
    last: u32,
    others: Vec<u32>,
}

impl Work {
    #[inline(always)]
    fn push(&mut self, link: u32) {
        let before = std::mem::replace(&mut self.last, link);
        if before != NO_LINK {
            self.others.push(before);
        }
    }

    #[inline(always)]
    fn pop(&mut self) -> Option<u32> {
        let last = self.last;
        if last == NO_LINK {
            return None;
        }
        self.last = self.others.pop().unwrap_or(NO_LINK);
        Some(last)
    }
}

/// State of a lossless network beside that of its links.
#[derive(Debug)]
pub(crate) struct Lossless {
    /// Input-queued: by link, the input at its far end; behind them those for packets that switches make themselves, one a switch or, by
    /// link, the one at its near end.
    inputs: Vec<Input>,
    /// Where the latter begin: the first switch's less its number, or the first link's.
    own_input: u32,
    made_packets: MadePackets,
    /// The input of the packet that a switch's node is handling; [`NO_LINK`] where it is handling none.
    pub handled_by: u32,
    work: Work,
    arbitration: Arbitration,
}

impl Lossless {
    /// A network of `links` links and switches that are numbered from `first_switch` on; `None`: it is not lossless.
    pub fn new(config: Option<LosslessConfig>, links: usize, first_switch: u32, switches: u32) -> Self {
        let made_packets = config.map_or_else(MadePackets::default, |config| config.made_packets);
        let (own_inputs, first_owner) = match made_packets {
            MadePackets::PerOutput => (links, 0),
            MadePackets::OwnFifo | MadePackets::Input => (switches as usize, first_switch),
        };
        let is_input_queued = config.is_some_and(|config| config.model == SwitchModel::InputQueued);
        let inputs = if is_input_queued { links + own_inputs } else { 0 };
        let inputs = vec![Input { behind: Chain::EMPTY, pending: 0 }; inputs];
        Lossless {
            inputs,
            own_input: (links as u32).wrapping_sub(first_owner),
            made_packets,
            handled_by: NO_LINK,
            work: Work { last: NO_LINK, others: Vec::new() },
            arbitration: config.map_or_else(Arbitration::default, |config| config.arbitration),
        }
    }

    /// The input of a packet that a node at switch `from` sends by link `number`.
    #[inline]
    fn input_of_made(&self, from: u32, number: u32) -> u32 {
        match self.made_packets {
            MadePackets::PerOutput => self.own_input.wrapping_add(number),
            MadePackets::Input if self.handled_by != NO_LINK => self.handled_by,
            MadePackets::OwnFifo | MadePackets::Input => self.own_input.wrapping_add(from),
        }
    }
}
