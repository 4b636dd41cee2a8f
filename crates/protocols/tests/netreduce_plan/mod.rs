//! Jobs of NetReduce on one or two levels of switches.

use fanin_core::{Address, Duration, FlowLabel, NodeId, PortId, Rank, Suspect};
use fanin_protocols::netreduce::{
    Beyond, MessageShape, NetReduceChild, NetReduceConnection, NetReduceParent, NetReducePeer, NetReduceSwitch, NetReduceSwitchConfig,
    NetReduceWorker, NetReduceWorkerConfig, Variants,
};
use fanin_protocols::shared::reliability::Reliability;
use fanin_wire::netreduce::NetReduceHeader;

use crate::common::suite::{Job, LOSSY};
use crate::common::{self, Faults, HasVectors, JOB, Net, Script};

/// A job on one or two levels of switches.
#[derive(Clone, Debug)]
pub struct Plan {
    pub workers: u32,
    /// Leaf switches. With one leaf there is no spine.
    pub leaves: u32,
    /// Neighbours in the ring are on different leaves, instead of on the same one as far as possible.
    pub scattered: bool,
    /// N.
    pub window: u32,
    /// `MsgLen`.
    pub packets: u16,
    pub block_elements: u32,
    /// Numbers of the job's first message and packet.
    pub first: (u32, u32),
    pub reliability: Reliability,
    pub retry_limit: Option<u32>,
    pub variants: Variants,
    pub faults: Faults,
}

impl Plan {
    pub fn star(workers: u32) -> Plan {
        Plan {
            workers,
            leaves: 1,
            scattered: false,
            window: 2,
            packets: 4,
            block_elements: 8,
            first: (0, 0),
            reliability: LOSSY,
            retry_limit: None,
            variants: Variants::default(),
            faults: Faults::NONE,
        }
    }

    /// The number of a worker's leaf.
    fn leaf(&self, rank: u32) -> u32 {
        if self.scattered { rank % self.leaves } else { rank * self.leaves / self.workers }
    }

    fn leaf_node(&self, rank: u32) -> NodeId {
        NodeId(self.workers + self.leaf(rank))
    }

    fn shape(&self) -> MessageShape {
        MessageShape { window: self.window, packets: self.packets }
    }

    fn peer(&self, rank: u32) -> NetReducePeer {
        let rank = rank % self.workers;
        NetReducePeer { rank: Rank(rank), address: Address::worker(NodeId(rank)) }
    }

    pub fn worker<P: HasVectors + ?Sized>(&self, rank: u32) -> NetReduceWorker<P> {
        let mut worker = NetReduceWorker::new(NetReduceWorkerConfig {
            job: JOB,
            rank: Rank(rank),
            workers: self.workers,
            op: P::OP,
            element_bytes: common::ELEMENT_BYTES,
            block_elements: self.block_elements,
            shape: self.shape(),
            predecessor: self.peer(rank + self.workers - 1),
            successor: self.peer(rank + 1),
            uplink: PortId(0),
            switch: self.leaf_node(rank),
            flow: FlowLabel(1),
            reliability: self.reliability,
            retry_limit: self.retry_limit,
            congestion: None,
            recovery: self.variants.recovery,
        });
        worker.first_numbers(self.first.0, self.first.1);
        worker
    }

    /// A connection as a leaf sees it; `None` where it neither begins nor ends there.
    fn connection(&self, leaf: u32, rank: u32) -> Option<NetReduceConnection> {
        let receiver = (rank + 1) % self.workers;
        let (begins, ends) = (self.leaf(rank) == leaf, self.leaf(receiver) == leaf);
        let beyond = Beyond { switch: Address::switch(self.leaf_node(receiver)), worker: Address::worker(NodeId(receiver)) };
        (begins || ends).then(|| NetReduceConnection {
            rank: Rank(rank),
            ends_at: ends.then_some(PortId(receiver as u16)),
            through: None,
            beyond: (begins && !ends).then_some(beyond),
            behind: (ends && !begins).then(|| Address::switch(self.leaf_node(rank))),
        })
    }

    pub fn switch<P: HasVectors + ?Sized>(
        &self,
        node: NodeId,
        parent: Option<NetReduceParent>,
        children: Vec<NetReduceChild>,
        connections: Vec<NetReduceConnection>,
    ) -> NetReduceSwitch<P> {
        let mut switch = NetReduceSwitch::new(NetReduceSwitchConfig {
            node,
            job: JOB,
            op: P::OP,
            workers: self.workers,
            block_bytes: self.block_elements * common::ELEMENT_BYTES,
            shape: self.shape(),
            parent,
            children,
            connections,
            flow: FlowLabel(1),
            patience: self.reliability.patience,
            resend_gap: Duration::from_us(15),
            answers: self.reliability,
            variants: self.variants,
        });
        switch.first_message(self.first.0);
        switch
    }

    /// Leaf l: worker r at port r, the spine at port 100. Spine: leaf l at port l.
    pub fn switches<P: HasVectors + ?Sized>(&self) -> Vec<NetReduceSwitch<P>> {
        let leaf = |leaf: u32| {
            let ranks = (0..self.workers).filter(|rank| self.leaf(*rank) == leaf);
            let children =
                ranks.map(|rank| NetReduceChild { port: PortId(rank as u16), who: Suspect::Rank(Rank(rank)), through: None }).collect();
            let spine = NetReduceParent { port: PortId(100), node: NodeId(self.workers + self.leaves) };
            let connections = (0..self.workers).filter_map(|rank| self.connection(leaf, rank)).collect();
            self.switch(NodeId(self.workers + leaf), (self.leaves > 1).then_some(spine), children, connections)
        };
        let spine = || {
            let child =
                |leaf: u32| NetReduceChild { port: PortId(leaf as u16), who: Suspect::Switch(NodeId(self.workers + leaf)), through: None };
            self.switch(NodeId(self.workers + self.leaves), None, (0..self.leaves).map(child).collect(), Vec::new())
        };
        (0..self.leaves).map(leaf).chain((self.leaves > 1).then(spine)).collect()
    }
}

impl Job for Plan {
    type Header = NetReduceHeader;
    type Worker<P: HasVectors + ?Sized> = NetReduceWorker<P>;
    type Switch<P: HasVectors + ?Sized> = NetReduceSwitch<P>;

    fn workers(&self) -> u32 {
        self.workers
    }

    fn conditions(&mut self) -> (&mut Faults, &mut Reliability) {
        (&mut self.faults, &mut self.reliability)
    }

    fn net<P: HasVectors + ?Sized>(&self, scripts: Vec<Script>) -> Net<P, Self::Header, Self::Worker<P>, Self::Switch<P>> {
        let workers = (0..self.workers).map(|rank| self.worker(rank)).collect();
        let mut net = Net::new(P::OP, workers, self.switches(), scripts, self.faults);
        for rank in 0..self.workers {
            net.join(rank as usize, PortId(0), self.leaf_node(rank).index(), PortId(rank as u16));
        }
        if self.leaves > 1 {
            let spine = (self.workers + self.leaves) as usize;
            (0..self.leaves).for_each(|leaf| net.join((self.workers + leaf) as usize, PortId(100), spine, PortId(leaf as u16)));
        }
        net
    }
}
