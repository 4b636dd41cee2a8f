//! A network and how its links behave, as plain data.

use crate::lossless::{CHANNELS_MAX, LosslessConfig, SwitchModel};
use crate::routing::Balancer;
use crate::setup::SetupError;
use crate::shape::Shape;
use crate::topology::Topology;
use crate::trimming::Trimming;

/// A network and how its links behave.
#[derive(Clone, PartialEq, Debug)]
pub struct NetworkConfig {
    /// Hosts, switches, cables.
    pub shape: Shape,
    /// Capacity of a switch's queue per port, in bytes, where links drop what they cannot queue.
    pub queue_bytes: u64,
    /// Whose packets are cut where a queue is full; `None`: all are dropped.
    pub trimming: Option<Trimming>,
    /// Buffers of a network that loses nothing; `None` for drop-tail queues.
    pub lossless: Option<LosslessConfig>,
    /// A packet that finds more than this queued at a switch is marked, in bytes; `u64::MAX` marks none.
    pub ecn_mark_bytes: u64,
    /// How much a host's own queue takes before its jobs are told to wait, in bytes. Nothing is dropped there.
    pub nic_queue_bytes: u64,
    /// Bytes that a packet occupies on the wire beside its payload: all headers, preamble, gap, checksum.
    pub frame_overhead_bytes: u32,
    /// The shortest frame with its preamble and gap, in bytes (84 for Ethernet).
    pub frame_bytes_min: u32,
    /// Load balancer for packets of collectives.
    pub collective_balancer: Balancer,
    /// Load balancer for background traffic.
    pub background_balancer: Balancer,
}

impl NetworkConfig {
    /// Capacity of the buffer before each output of a switch, in bytes: what adaptive routing measures its threshold by.
    pub fn queue_capacity(&self) -> u64 {
        match self.lossless {
            None => self.queue_bytes,
            Some(LosslessConfig { model: SwitchModel::OutputQueued, input_bytes, .. }) => input_bytes,
            Some(LosslessConfig { model: SwitchModel::InputQueued, output_bytes, .. }) => output_bytes,
        }
    }

    fn check_uplinks(&self, topology: &Topology) -> Result<(), SetupError> {
        let Some(host) = topology.hosts_with_several().next() else { return Ok(()) };
        let both = [("network.routing", self.collective_balancer), ("network.background_routing", self.background_balancer)];
        let Some((field, balancer)) = both.into_iter().find(|(_, balancer)| balancer.is_apart()) else { return Ok(()) };
        let name = if matches!(balancer, Balancer::Drill { .. }) { "drill" } else { "conga" };
        let (host, count) = (topology.name(host), topology.links_out(host).len());
        let expected = format!("ecmp, destination, random, flowlet or adaptive where a host has several links: {host} has {count}");
        Err(SetupError::new(field, name, expected))
    }

    /// Checks that balancers and virtual channels are of use in this network.
    ///
    /// # Errors
    /// [`SetupError`] names the field.
    pub fn check_ways(&self, topology: &Topology) -> Result<(), SetupError> {
        self.collective_balancer.check("network.routing", &self.shape, topology)?;
        self.background_balancer.check("network.background_routing", &self.shape, topology)?;
        self.check_uplinks(topology)?;
        let Some(lossless) = self.lossless else { return Ok(()) };
        if let Some(whose) = self.trimming {
            let name = if whose == Trimming::All { "all" } else { "hosts" };
            return Err(SetupError::new("network.trimming", name, "nothing with network.lossless: no queue is ever too full there"));
        }
        let most = if matches!(self.shape, Shape::Dragonfly { .. }) { CHANNELS_MAX } else { 1 };
        if (1..=most).contains(&lossless.channels) {
            return Ok(());
        }
        let expected = if most == 1 { "1: only dragonflies have virtual channels".into() } else { format!("1 to {most}") };
        Err(SetupError::new("network.lossless.channels", lossless.channels, expected))
    }
}
