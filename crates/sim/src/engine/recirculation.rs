//! Switches whose pipeline adds so many bytes of a vector while a packet passes it, and multicasts to so many groups: a packet that needs more
//! is led back to the pipeline's beginning, by ports that do nothing else (Canary 4.2, 5.1; SwitchML's 256 elements a packet).
//!
//! What is led back takes the time of its frame on these ports, once for each further pass, and what the switch sends because of it leaves when its
//! last pass is over. The sum itself is made when the packet comes: the order is the same. What a timer sends takes no further pass. A switch
//! without such limits costs nothing.

use std::borrow::Borrow;

use fanin_core::{DropReason, Duration, NodeId, PortId, Wire, Worker};

use super::Simulation;
use crate::adder::Adder;
use crate::link::link_flags;
use crate::metrics::PipelineResult;
use crate::net::HeldBack;
use crate::packet::flags;
use crate::setup::SetupError;
use crate::tasks::Handling;
use crate::vectors::Simulated;

/// What a lossless network expects of its switches.
pub const NO_PASSES: &str =
    "switches that need one pass for a packet with network.lossless: what waits to pass again would have to hold credits back";

/// The pipeline of every switch that adds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pipeline {
    /// Bytes of a vector that are added in a pass.
    pub pass_bytes: u64,
    /// Bits per second of the ports that lead back.
    pub bits_per_second: u64,
    /// How long a further pass takes besides.
    pub pass: Duration,
    /// Bytes of frames that wait for these ports: a contribution that finds no room is dropped.
    pub queue_bytes: u64,
    /// From how many on what comes is marked.
    pub mark_bytes: u64,
    /// Neighbouring ports whose every subset has a multicast group; `None`: any ports are a group.
    pub shard_ports: Option<u16>,
    /// Groups to which a packet is sent in one pass.
    pub groups_per_pass: u16,
    /// By job: whether a switch knows the ports of a multicast only when packets have come by them, so that shards are all that it has.
    pub by_ports: Vec<bool>,
}

/// The ports of a switch that lead back.
#[derive(Debug, Default)]
struct Back {
    ports: Adder,
    result: PipelineResult,
}

/// Those of all switches.
#[derive(Debug)]
pub(super) struct Pipelines {
    config: Pipeline,
    /// By link: the switch at its far end; [`NO_PIPELINE`] where it does not add.
    at: Vec<u32>,
    /// By link: the shard of its port at the near end.
    shards: Vec<u16>,
    switches: Vec<Back>,
    /// Memory that is used again.
    spare: Vec<Vec<(u32, u32)>>,
    used: Vec<u16>,
}

const NO_PIPELINE: u32 = u32::MAX;

impl Pipelines {
    /// What each has done.
    pub fn results(&self) -> Vec<PipelineResult> {
        self.switches.iter().map(|switch| switch.result.clone()).collect()
    }

    /// Passes for what leaves by these links: one for as many shards as fit one.
    fn passes_of(&mut self, outputs: &[(u32, u32)]) -> u64 {
        self.used.clear();
        self.used.extend(outputs.iter().map(|(link, _)| self.shards[*link as usize]));
        self.used.sort_unstable();
        self.used.dedup();
        (self.used.len() as u64).div_ceil(u64::from(self.config.groups_per_pass)).max(1)
    }
}

impl<N, P> Simulation<N, P>
where
    N: Worker<P> + Clone,
    N::Header: Wire + Default,
    P: Simulated + ?Sized,
{
    /// These switches have such a pipeline; those that only forward need one pass for everything.
    ///
    /// # Errors
    /// [`SetupError`] in a lossless network, or where a pass adds nothing, multicasts to nobody, or nothing leads back.
    pub fn recirculate(&mut self, config: Pipeline) -> Result<(), SetupError> {
        if self.net.is_lossless {
            return Err(SetupError::new("network.hardware", "further passes", NO_PASSES));
        }
        let needed = [
            ("elements", config.pass_bytes),
            ("recirculation", config.bits_per_second),
            ("groups_per_pass", config.groups_per_pass.into()),
            ("groups", config.shard_ports.unwrap_or(1).into()),
        ];
        if let Some((key, _)) = needed.iter().find(|(_, value)| *value == 0) {
            return Err(SetupError::new(format!("network.hardware.{key}"), 0, "1 or more"));
        }
        let map = &self.net.topology.map;
        let able: Vec<NodeId> = map.switches().filter(|switch| map.can_aggregate(*switch)).collect();
        let number = |node: u32| able.binary_search(&NodeId(node)).map_or(NO_PIPELINE, |number| number as u32);
        let mut shards = vec![0; self.net.links.len()];
        for (switch, ports) in able.iter().filter_map(|switch| Some((*switch, config.shard_ports?))) {
            for port in map.neighbours(switch).iter().map(|next| next.port) {
                if let Some(link) = self.net.topology.link_out(switch, port) {
                    shards[link as usize] = port.0 / ports;
                }
            }
        }
        let at: Vec<u32> = self.net.links.iter().map(|link| number(link.to)).collect();
        for (link, at) in self.net.links.iter_mut().zip(&at) {
            if *at != NO_PIPELINE || number(link.from.0) != NO_PIPELINE {
                link.flags |= link_flags::HANDLED;
            }
        }
        let back = |switch: &NodeId| Back {
            ports: Adder::new(config.bits_per_second, config.queue_bytes, config.mark_bytes),
            result: PipelineResult { switch: *switch, ..PipelineResult::default() },
        };
        let switches = able.iter().map(back).collect();
        self.pipelines = Some(Box::new(Pipelines { config, at, shards, switches, spare: Vec::new(), used: Vec::new() }));
        Ok(())
    }

    /// Whether a packet that has arrived by a link may need further passes at the switch there; it has been handed to the switch's node, or dropped
    /// since too much waits to pass again.
    #[cold]
    pub(super) fn passes_again(&mut self, number: u32, place: u32) -> bool {
        let Some(known) = &mut self.pipelines else { return false };
        let switch = known.at[number as usize];
        if switch == NO_PIPELINE {
            return false;
        }
        let (head, rest) = (self.net.packets.get(place), self.net.packets.rest(place));
        let (job, frame, bytes) = (usize::from(head.job), head.frame_bytes, rest.payload.borrow().bytes() as u64);
        let by_ports = known.config.shard_ports.is_some() && known.config.by_ports.get(job).is_some_and(|by_ports| *by_ports);
        let (pass_bytes, now) = (known.config.pass_bytes, self.net.now);
        let further = if self.is_to_be_added(number, place) { bytes.div_ceil(pass_bytes).max(1) - 1 } else { 0 };
        if further == 0 && !(by_ports && self.is_for_node(number, place)) {
            return false;
        }
        let Some(known) = &mut self.pipelines else { return false };
        if further > 0 {
            let back = &mut known.switches[switch as usize];
            // However often it is led back, it is in the queue once at a time.
            let (room_ps, waits_ps) = (back.ports.work_ps(u64::from(frame)), back.ports.until_ps.saturating_sub(now));
            if waits_ps + room_ps > back.ports.limit_ps {
                back.result.packets_dropped += 1;
                self.net.links[number as usize].packets_dropped += 1;
                self.net.drop_packet(place, DropReason::QueueFull);
                return true;
            }
            if waits_ps > back.ports.mark_ps {
                self.net.packets.at(place).flags |= flags::ECN;
                self.net.packets_marked += 1;
            }
        }
        let link = &self.net.links[number as usize];
        let (to, port, link_flags) = (link.to, PortId(link.to_port), link.flags);
        let outputs = known.spare.pop().unwrap_or_default();
        self.net.handling = Some(Handling { outputs, ..Handling::default() });
        self.arrive_apart(to, port, link_flags, place);
        let outputs = self.net.handling.take().unwrap_or_default().outputs;
        self.pass_again(switch, (further, frame, by_ports), outputs);
        true
    }

    /// Leads a frame back as often as it takes, and sends what leaves for it when that is over.
    fn pass_again(&mut self, switch: u32, (further, frame, by_ports): (u64, u32, bool), outputs: Vec<(u32, u32)>) {
        let Some(known) = &mut self.pipelines else { return };
        let copies = if by_ports { known.passes_of(&outputs) - 1 } else { 0 };
        let again = further + copies;
        if again == 0 {
            return self.leave_pipeline(outputs);
        }
        let (now, pass_ps) = (self.net.now, known.config.pass.as_ps());
        let back = &mut known.switches[switch as usize];
        let work_ps = back.ports.work_ps(again * u64::from(frame));
        back.ports.until_ps = back.ports.until_ps.max(now) + work_ps;
        back.result.packets += 1;
        back.result.passes += again;
        back.result.busy_ps += u128::from(work_ps);
        let over_ps = back.ports.until_ps + again * pass_ps;
        self.net.hold_back(over_ps, HeldBack::Passed(outputs));
    }

    /// The last pass is over.
    pub(super) fn leave_pipeline(&mut self, mut outputs: Vec<(u32, u32)>) {
        for (link, place) in outputs.drain(..) {
            let bytes = self.net.packets.get(place).frame_bytes;
            self.net.transmit(link, place, bytes);
        }
        if let Some(known) = &mut self.pipelines {
            known.spare.push(outputs);
        }
    }
}
