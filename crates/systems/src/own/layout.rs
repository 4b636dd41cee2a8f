//! What most systems from elsewhere need when they lay their nodes on a network.

use fanin_core::{Address, FlowLabel, JobNodes, NetworkMap, Node, NodeId, Payload, Placed, Worker};
use fanin_protocols::shared::blocks::BlockConfig;

use super::OwnNode;
use crate::config::{BuildError, JobSpec};

/// A switch with hosts of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rack {
    /// The switch.
    pub switch: NodeId,
    /// The job's workers there, by rank.
    pub workers: Vec<Address>,
}

impl Rack {
    /// The switch's address.
    pub fn address(&self) -> Address {
        Address::switch(self.switch)
    }
}

impl<Op: Clone> JobSpec<'_, Op> {
    /// What a worker is told that pushes blocks ([`BlockWorker`](fanin_protocols::shared::blocks::BlockWorker)).
    pub fn blocks(&self) -> BlockConfig<Op> {
        BlockConfig {
            job: self.id,
            workers: self.workers(),
            op: self.op.clone(),
            element_bytes: self.element_bytes,
            block_elements: self.payload_bytes / self.element_bytes.max(1),
            window: self.window,
            timers: self.reliable.then_some((self.rto_initial.max(self.rto_min), self.patience)),
            flow: self.flow(),
        }
    }
}

impl<Op> JobSpec<'_, Op> {
    /// A label for the job's packets.
    pub fn flow(&self) -> FlowLabel {
        FlowLabel(u32::from(self.id.0))
    }

    /// How many workers the job has.
    pub fn workers(&self) -> u32 {
        self.hosts.len() as u32
    }

    /// The switches that the job's hosts hang on, in the order of ranks: at most `most`, with at most as many workers each.
    ///
    /// # Errors
    /// [`BuildError`] where a host has no cable, or there are more.
    pub fn racks(&self, map: &NetworkMap, most: usize) -> Result<Vec<Rack>, BuildError> {
        let mut racks: Vec<Rack> = Vec::new();
        for &host in self.hosts {
            let switch = map.leaf_of(host).ok_or_else(|| BuildError::new("hosts", host, "hosts with a cable"))?.node;
            let place = racks.iter().position(|rack| rack.switch == switch).unwrap_or_else(|| {
                racks.push(Rack { switch, workers: Vec::new() });
                racks.len() - 1
            });
            racks[place].workers.push(Address::worker(host));
        }
        if racks.iter().map(|rack| rack.workers.len()).chain([racks.len()]).any(|count| count > most) {
            return Err(BuildError::new("workers", self.hosts.len(), format!("at most {most} racks, and workers of a rack")));
        }
        Ok(racks)
    }

    /// Checks that a worker's window is no more than a system can do with.
    ///
    /// # Errors
    /// [`BuildError`] names the window.
    pub fn check_window(&self, most: u32) -> Result<(), BuildError> {
        let fits = (1..=most).contains(&self.window);
        if fits { Ok(()) } else { Err(BuildError::new("window", self.window, format!("1 to {most} packets"))) }
    }

    /// The nodes of a job: a worker for each rank, and a node at the switch of each rack. Both are told the rack; a worker its place there, a switch
    /// its own among the racks. A job of one worker has no switches: its sum is its own vector.
    pub fn place<P, W, N>(&self, racks: &[Rack], worker: impl Fn(&Rack, u16) -> W, switch: impl Fn(&Rack, u16) -> N) -> JobNodes<OwnNode<P>>
    where
        P: Payload + ?Sized,
        W: Worker<P> + Clone + std::fmt::Debug + Send + Sync + 'static,
        N: Node<P> + Clone + std::fmt::Debug + Send + Sync + 'static,
    {
        let at = |host: &NodeId| {
            let place = |rack: &Rack| rack.workers.iter().zip(0..).find(|(worker, _)| worker.node == *host).map(|(_, place)| place);
            racks.iter().find_map(|rack| place(rack).map(|place| (rack, place)))
        };
        let of_host = |host: &NodeId| {
            let (rack, place) = at(host)?;
            Some(Placed { at: Address::worker(*host), node: OwnNode::worker(worker(rack, place)) })
        };
        let of_rack = |(rack, place): (&Rack, u16)| Placed { at: rack.address(), node: OwnNode::other(switch(rack, place)) };
        let with_switches = if self.hosts.len() > 1 { racks } else { &[] };
        JobNodes { workers: self.hosts.iter().filter_map(of_host).collect(), others: with_switches.iter().zip(0..).map(of_rack).collect() }
    }
}
