//! Neighbours in a tree that no cable leads to, for switches that only forward lie between (partial deployment, `rina 6.5`): their packets
//! are routed, and come by whatever port. A switch gives each a number as if it were a port, behind those that it has, so that everything
//! else in these trees knows ports only.

use fanin_core::{Address, Body, Egress, FlowLabel, Ingress, JobId, Payload, PortId, PortSet, Route, Tx};

use super::format::TreeFormat;

/// The neighbours of a switch that no cable leads to.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Far {
    /// The number of the first.
    first: u16,
    /// By number.
    at: Box<[Address]>,
    /// With numbers, by address.
    numbers: Box<[(Address, PortId)]>,
    flow: FlowLabel,
}

impl Far {
    /// Neighbours at these addresses, numbered from `first` on.
    pub(super) fn new(job: JobId, first: PortId, at: Vec<Address>) -> Self {
        let mut numbers: Vec<(Address, PortId)> = at.iter().copied().zip((first.0..).map(PortId)).collect();
        numbers.sort_unstable();
        Far { first: first.0, at: at.into(), numbers: numbers.into(), flow: flow(job) }
    }

    /// Cables lead to all neighbours.
    pub(super) fn none(job: JobId) -> Self {
        Far::new(job, PortId(u16::MAX), Vec::new())
    }

    /// The port that a packet came by, or the number of the neighbour that it is from.
    #[inline]
    pub(super) fn port(&self, from: &Ingress) -> PortId {
        if self.numbers.is_empty() {
            return from.port;
        }
        let found = self.numbers.binary_search_by_key(&from.source, |(address, _)| *address);
        found.map_or(from.port, |place| self.numbers[place].1)
    }

    /// The way to a neighbour.
    #[inline]
    pub(super) fn way(&self, port: PortId) -> Egress<'static> {
        match port.0.checked_sub(self.first).and_then(|number| self.at.get(usize::from(number))) {
            Some(&address) => Egress::Route(Route::direct(address, self.flow)),
            None => Egress::Port(port),
        }
    }
}

/// One flow for all packets of a job between two nodes.
pub(super) fn flow(job: JobId) -> FlowLabel {
    FlowLabel(u32::from(job.0))
}

/// All children of a switch.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Children {
    /// Ports with cables.
    near: PortSet,
    /// Numbers of the others.
    far: Box<[PortId]>,
}

impl Children {
    /// The children at these ports.
    pub(super) fn new(ports: impl Iterator<Item = PortId>, far: &Far) -> Self {
        let (near, far): (Vec<PortId>, Vec<PortId>) = ports.partition(|port| matches!(far.way(*port), Egress::Port(_)));
        Children { near: near.into_iter().collect(), far: far.into() }
    }

    /// Whether a packet to all of them can go now.
    #[inline]
    pub(super) fn have_room<F: TreeFormat, P: Payload + ?Sized, T: Tx<F, P>>(&self, far: &Far, tx: &mut T) -> bool {
        (self.near.is_empty() || tx.room(Egress::Ports(&self.near))) && self.far.iter().all(|port| tx.room(far.way(*port)))
    }

    /// A packet to all of them.
    #[inline]
    pub(super) fn send<F: TreeFormat, P: Payload + ?Sized, T: Tx<F, P>>(&self, far: &Far, header: &F, body: Body<'_, P>, tx: &mut T) {
        if !self.near.is_empty() {
            tx.send(Egress::Ports(&self.near), header, body);
        }
        for port in &self.far {
            tx.send(far.way(*port), header, body);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanin_core::NodeId;

    #[test]
    fn far_neighbours_have_numbers_and_addresses() {
        let at: Vec<Address> = [9, 3].map(|node| Address::worker(NodeId(node))).to_vec();
        let far = Far::new(JobId(7), PortId(4), at.clone());
        let from = |port: u16, source: Address| Ingress { port: PortId(port), source, job: JobId(7), ecn: false };
        assert_eq!([from(0, at[0]), from(0, at[1]), from(2, Address::worker(NodeId(5)))].map(|from| far.port(&from).0), [4, 5, 2]);
        let routed = |address| Egress::Route(Route::direct(address, FlowLabel(7)));
        assert_eq!(
            [3, 4, 5, 6].map(|port| far.way(PortId(port))),
            [Egress::Port(PortId(3)), routed(at[0]), routed(at[1]), Egress::Port(PortId(6))]
        );
        let none = Far::none(JobId(7));
        assert_eq!((none.port(&from(2, at[0])), none.way(PortId(2))), (PortId(2), Egress::Port(PortId(2))));
    }
}
