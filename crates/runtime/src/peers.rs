//! The peers of a node: who may send, by which port they are reached, and the state of each link.

use std::net::SocketAddr;

use fanin_core::{Address, DropReason, EpochRule, LinkSequence, NodeId, PortId, Restarted};
use fanin_net::{DestinationId, Sender};
use fanin_trust::LinkKeys;
use fanin_wire::hop::HopHeader;

use crate::config::{ConfigError, NODE_MAX, NodeConfig};
use crate::counters::PeerCounters;

/// One link of the overlay.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) address: Address,
    pub(crate) port: PortId,
    pub(crate) destination: DestinationId,
    /// The number of the next packet to the peer, of which packets carry the low half.
    pub(crate) next_sequence: u32,
    pub(crate) counters: PeerCounters,
    /// What is believed of its epoch and its numbers.
    pub(crate) heard: LinkSequence,
    /// With which its packets are made, and those for it, where they are.
    pub(crate) keys: Option<Box<LinkKeys>>,
}

impl Peer {
    /// A packet has gone to the peer.
    #[inline]
    pub(crate) fn count_sent(&mut self, hop: &HopHeader) {
        self.counters.packets_sent += 1;
        self.counters.payload_bytes_sent += u64::from(hop.payload_bytes);
        self.next_sequence = self.next_sequence.wrapping_add(1);
    }

    /// Whether a packet with this epoch and sequence number is new; says also whether it shows that the peer has restarted.
    #[inline]
    pub(crate) fn accept(&mut self, epoch: u32, sequence: u32) -> Result<Restarted, DropReason> {
        self.heard.accept(epoch, sequence)
    }
}

/// An index into the peers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PeerIndex(pub(crate) u16);

/// What is believed of peers at the beginning: they live in the epoch that was agreed with them, if one was.
pub(crate) fn heard_at_first(agreed: Option<u32>) -> LinkSequence {
    let Some(epoch) = agreed else { return LinkSequence::new(EpochRule::Shown) };
    let mut heard = LinkSequence::new(EpochRule::Agreed);
    heard.agree(epoch, 0);
    heard
}

/// All peers, found by socket address, by port and by node number.
#[derive(Debug)]
pub(crate) struct Peers {
    peers: Vec<Peer>,
    /// Sorted by address.
    by_socket: Vec<(SocketAddr, PeerIndex)>,
    by_port: Vec<Option<PeerIndex>>,
    /// Which peer leads to a node, by node number.
    by_node: Vec<Option<PeerIndex>>,
}

impl Peers {
    /// Checks the configuration and makes a destination of `sender` for every peer. Of all of them is believed what `heard` says.
    pub(crate) fn new(config: &NodeConfig, local: SocketAddr, sender: &mut Sender, heard: &LinkSequence) -> Result<Self, ConfigError> {
        let mut peers = Peers { peers: Vec::new(), by_socket: Vec::new(), by_port: Vec::new(), by_node: Vec::new() };
        if config.peers.len() > usize::from(u16::MAX) {
            return Err(ConfigError::TooManyPeers(config.peers.len()));
        }
        for peer in &config.peers {
            if peer.socket.is_ipv4() != local.is_ipv4() {
                return Err(ConfigError::Family { local, peer: peer.socket });
            }
            let index = PeerIndex(peers.peers.len() as u16);
            if let Some(port) = peer.port {
                enter(&mut peers.by_port, port.index(), index).map_err(|Taken| ConfigError::SamePort(port))?;
            }
            check_node(peer.address.node)?;
            enter(&mut peers.by_node, peer.address.node.index(), index).map_err(|Taken| ConfigError::SameNode(peer.address.node))?;
            peers.by_socket.push((peer.socket, index));
            peers.peers.push(Peer {
                address: peer.address,
                port: peer.port.unwrap_or_default(),
                destination: sender.add(peer.socket),
                next_sequence: 0,
                counters: PeerCounters::default(),
                heard: heard.clone(),
                keys: None,
            });
        }
        peers.by_socket.sort_unstable_by_key(|(socket, _)| *socket);
        if let Some(pair) = peers.by_socket.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(ConfigError::SameSocket(pair[0].0));
        }
        for &(to, by) in &config.routes {
            check_node(to)?;
            let index = peers.at_node(by).ok_or(ConfigError::RouteByStranger { to, by })?;
            if peers.get(index).address.node != by {
                return Err(ConfigError::RouteByStranger { to, by });
            }
            enter(&mut peers.by_node, to.index(), index).map_err(|Taken| ConfigError::SameNode(to))?;
        }
        Ok(peers)
    }

    /// What has passed between the node and each peer, in the order in which they were configured.
    pub(crate) fn counters(&self) -> impl Iterator<Item = PeerCounters> + '_ {
        self.peers.iter().map(|peer| peer.counters)
    }

    #[inline]
    pub(crate) fn get(&self, index: PeerIndex) -> &Peer {
        &self.peers[usize::from(index.0)]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: PeerIndex) -> &mut Peer {
        &mut self.peers[usize::from(index.0)]
    }

    /// Where numbers are, for [`Peers::go_on`].
    pub(crate) fn links(&self) -> Vec<(u32, u32)> {
        self.peers.iter().map(|peer| (peer.next_sequence, peer.heard.near())).collect()
    }

    /// Of each peer, a number that all are below that have come from it: [`LinkSequence::past`].
    pub(crate) fn past(&self) -> Option<Vec<u32>> {
        self.peers.iter().map(|peer| peer.heard.past()).collect()
    }

    /// Numbers go on from where they are, by peer: that of the next packet to it, and one that it has used in the epoch that was agreed.
    pub(crate) fn go_on(&mut self, links: &[(u32, u32)]) {
        for (peer, (next, heard)) in self.peers.iter_mut().zip(links) {
            peer.next_sequence = *next;
            if let Some(epoch) = peer.heard.epoch() {
                peer.heard = LinkSequence::new(EpochRule::Agreed);
                peer.heard.agree(epoch, *heard);
            }
        }
    }

    /// Packets between the node and its peers are made with these keys from now on, in the order in which peers were configured.
    pub(crate) fn protect(&mut self, keys: Vec<LinkKeys>) {
        for (peer, keys) in self.peers.iter_mut().zip(keys) {
            peer.keys = Some(Box::new(keys));
        }
    }

    /// The peer with this socket.
    pub(crate) fn at_socket(&self, socket: SocketAddr) -> Option<PeerIndex> {
        let at = self.by_socket.binary_search_by_key(&socket, |(socket, _)| *socket).ok()?;
        Some(self.by_socket[at].1)
    }

    /// The peer at this port.
    #[inline]
    pub(crate) fn at_port(&self, port: PortId) -> Option<PeerIndex> {
        self.by_port.get(port.index()).copied().flatten()
    }

    /// The peer that leads to this node.
    #[inline]
    pub(crate) fn at_node(&self, node: NodeId) -> Option<PeerIndex> {
        self.by_node.get(node.index()).copied().flatten()
    }
}

/// A place in a table is not free.
struct Taken;

fn enter(table: &mut Vec<Option<PeerIndex>>, at: usize, index: PeerIndex) -> Result<(), Taken> {
    if table.len() <= at {
        table.resize(at + 1, None);
    }
    if table[at].replace(index).is_some() { Err(Taken) } else { Ok(()) }
}

fn check_node(node: NodeId) -> Result<(), ConfigError> {
    if node > NODE_MAX { Err(ConfigError::NodeTooLarge(node)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::PeerConfig;
    use fanin_core::{ElementOp, JobId};
    use fanin_net::SenderConfig;

    fn peer(node: u32, udp_port: u16, port: Option<u16>) -> PeerConfig {
        PeerConfig { address: Address::worker(NodeId(node)), socket: SocketAddr::from(([127, 0, 0, 1], udp_port)), port: port.map(PortId) }
    }

    fn peers(peers: Vec<PeerConfig>, routes: Vec<(NodeId, NodeId)>) -> Result<Peers, ConfigError> {
        let config = NodeConfig { address: Address::switch(NodeId(9)), job: JobId(0), system: 1, op: ElementOp::F32_SUM, peers, routes };
        Peers::new(&config, SocketAddr::from(([127, 0, 0, 1], 1)), &mut Sender::new(SenderConfig::default()), &heard_at_first(None))
    }

    #[test]
    fn peers_are_found_by_socket_port_and_node() {
        let peers =
            peers(vec![peer(3, 1_003, Some(1)), peer(1, 1_001, None), peer(2, 1_002, Some(0))], vec![(NodeId(7), NodeId(1))]).unwrap();
        let node = |index: Option<PeerIndex>| index.map(|index| peers.get(index).address.node.0);
        assert_eq!(node(peers.at_socket(SocketAddr::from(([127, 0, 0, 1], 1_001)))), Some(1));
        assert_eq!(node(peers.at_socket(SocketAddr::from(([127, 0, 0, 2], 1_001)))), None);
        assert_eq!(node(peers.at_port(PortId(1))), Some(3));
        assert_eq!(node(peers.at_port(PortId(2))), None);
        assert_eq!(node(peers.at_node(NodeId(2))), Some(2));
        assert_eq!(node(peers.at_node(NodeId(7))), Some(1));
        assert_eq!(node(peers.at_node(NodeId(u32::MAX))), None);
    }

    #[test]
    fn numbers_go_on_from_where_they_were() {
        let config = NodeConfig {
            address: Address::switch(NodeId(9)),
            job: JobId(0),
            system: 1,
            op: ElementOp::F32_SUM,
            peers: vec![peer(3, 1_003, Some(1)), peer(1, 1_001, Some(0))],
            routes: vec![],
        };
        let mut sender = Sender::new(SenderConfig::default());
        let mut peers = Peers::new(&config, SocketAddr::from(([127, 0, 0, 1], 1)), &mut sender, &heard_at_first(Some(7))).unwrap();
        peers.go_on(&[(100, 1_000_000), (5, 3)]);
        assert_eq!((peers.get(PeerIndex(0)).next_sequence, peers.get(PeerIndex(1)).next_sequence), (100, 5));
        let peer = peers.get_mut(PeerIndex(0));
        assert_eq!(peer.accept(7, 1_000_001), Ok(Restarted(false)));
        assert_eq!(peer.accept(7, 1_000_001), Err(DropReason::Repeated));
        assert_eq!(peer.accept(7, 1), Err(DropReason::TooOld));
        assert_eq!(peer.accept(8, 1_000_002), Err(DropReason::Unproven));
        assert_eq!(peers.get_mut(PeerIndex(1)).accept(7, 4), Ok(Restarted(false)));
        // Who goes on with what these links say of themselves believes what comes next.
        (1_000_002..1_008_000).for_each(|number| assert_eq!(peers.get_mut(PeerIndex(0)).accept(7, number), Ok(Restarted(false))));
        let links = peers.links();
        assert_eq!(links.iter().map(|(next, _)| *next).collect::<Vec<_>>(), [100, 5]);
        peers.go_on(&links);
        let peer = peers.get_mut(PeerIndex(0));
        assert_eq!((peer.accept(7, 1_008_000), peer.accept(7, 1_000_001)), (Ok(Restarted(false)), Err(DropReason::TooOld)));
    }

    #[test]
    fn a_configuration_that_cannot_work_is_refused_by_name() {
        let error = |list, routes| peers(list, routes).unwrap_err();
        assert_eq!(error(vec![peer(1, 5, None), peer(1, 6, None)], vec![]), ConfigError::SameNode(NodeId(1)));
        assert_eq!(error(vec![peer(1, 5, Some(2)), peer(2, 6, Some(2))], vec![]), ConfigError::SamePort(PortId(2)));
        assert_eq!(error(vec![peer(1, 5, None), peer(2, 5, None)], vec![]), ConfigError::SameSocket(SocketAddr::from(([127, 0, 0, 1], 5))));
        assert_eq!(
            error(vec![peer(1, 5, None)], vec![(NodeId(3), NodeId(2))]),
            ConfigError::RouteByStranger { to: NodeId(3), by: NodeId(2) }
        );
        assert_eq!(error(vec![peer(u32::MAX, 5, None)], vec![]), ConfigError::NodeTooLarge(NodeId(u32::MAX)));
    }
}
