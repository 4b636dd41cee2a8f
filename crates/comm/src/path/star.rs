//! A rank's node where every host is next to every other one, or to the switch; and behind a socket, towards the switch.

use fanin_control::{Admitted, header_bytes_max};
use fanin_core::{Address, Duration as SimDuration, ElementOp, JobId, NetworkMap, NodeId, PortId, Role};
use fanin_net::shm::Waiting;
use fanin_net::{SenderConfig, Socket};
use fanin_runtime::{DriverConfig, NodeConfig, PeerConfig, WorkerDriver};
use fanin_systems::{AnyNode, JobSpec, build};
use fanin_trust::LinkKeys;

use crate::config::Config;
use crate::error::CommError;

/// The first retransmission timeout. It holds until the first answer, so it may be generous.
const RTO_INITIAL: SimDuration = SimDuration::from_ms(100);
/// The shortest one: longer than a process waits for its turn when there are more of them than cores.
const RTO_MIN: SimDuration = SimDuration::from_ms(5);

/// What a rank is of a job.
pub(crate) struct Nodes {
    pub(crate) worker: AnyNode<[u8]>,
    /// Of rank 0, where the system has one.
    pub(crate) server: Option<AnyNode<[u8]>>,
}

/// This rank's node: a worker of a star around the switch.
pub(crate) fn node(config: &Config, admitted: &Admitted, op: ElementOp) -> Result<AnyNode<[u8]>, CommError> {
    // The communicator's own patience is what counts: it knows why, and how long this call waits.
    nodes_within(config, admitted, op, SimDuration::MAX).map(|nodes| nodes.worker)
}

/// This rank's nodes, which give up by themselves after so long without progress, and ask for what is lost several times until then.
pub(crate) fn nodes_within(config: &Config, admitted: &Admitted, op: ElementOp, patience: SimDuration) -> Result<Nodes, CommError> {
    let map = NetworkMap::star(config.world);
    let hosts: Vec<NodeId> = (0..config.world).map(NodeId).collect();
    let spec = JobSpec {
        id: JobId(admitted.job_id),
        hosts: &hosts,
        servers: &[],
        system: admitted.system,
        op: op.into(),
        element_bytes: op.dtype.bytes() as u32,
        payload_bytes: admitted.payload_bytes,
        window: admitted.window,
        reliable: true,
        rto_initial: RTO_INITIAL,
        rto_min: RTO_MIN,
        patience,
        seed: admitted.seed,
    };
    let nodes = build::<[u8]>(&spec, &map).map_err(|error| broken(error.to_string()))?;
    let mine = |role| Address { node: NodeId(config.rank), role };
    let worker = nodes.workers.into_iter().find(|placed| placed.at == mine(Role::Worker));
    let server = nodes.others.into_iter().find(|placed| placed.at == mine(Role::Server)).map(|placed| placed.node);
    match worker {
        Some(worker) => Ok(Nodes { worker: worker.node, server }),
        None => Err(broken(format!("no place for rank {}", config.rank))),
    }
}

/// This rank's worker behind its socket.
pub(crate) fn driver(
    config: &Config,
    admitted: &Admitted,
    socket: Socket,
    (node, op): (AnyNode<[u8]>, ElementOp),
) -> Result<WorkerDriver<AnyNode<[u8]>>, CommError> {
    let switch = NodeId(config.world);
    let peers = vec![PeerConfig { address: Address::switch(switch), socket: admitted.data, port: Some(PortId(0)) }];
    let of_node = NodeConfig {
        address: Address::worker(NodeId(config.rank)),
        job: JobId(admitted.job_id),
        system: admitted.system.number(),
        op,
        peers,
        // Other ranks are behind the switch.
        routes: (0..config.world).filter(|host| *host != config.rank).map(|host| (NodeId(host), switch)).collect(),
    };
    let how = DriverConfig {
        sender: SenderConfig { faults: config.faults, ..SenderConfig::default() },
        datagram_bytes_max: (admitted.payload_bytes + header_bytes_max(&admitted.system, config.fixed_point)) as usize
            + tag_bytes(admitted),
        epoch: Some(admitted.epoch),
        peers_epoch: Some(admitted.epoch),
        ..DriverConfig::default()
    };
    let mut driver = WorkerDriver::new(socket, node, of_node, &how)
        .map_err(|error| CommError::System { what: "the path to the switch".into(), reason: error.to_string() })?;
    driver.set_busy(config.waiting == Waiting::Busy);
    match &admitted.keys[..] {
        [] => {}
        [keys] => driver.protect(vec![LinkKeys::of_rank(keys)]),
        more => return Err(broken(format!("{} keys for packets to one switch", more.len()))),
    }
    Ok(driver)
}

/// What was admitted makes no sense.
pub(super) fn broken(reason: String) -> CommError {
    CommError::System { what: "what the switch has admitted this rank to".into(), reason }
}

/// By how much packets are longer, where they have keys.
pub(super) fn tag_bytes(admitted: &Admitted) -> usize {
    admitted.keys.first().map_or(0, |keys| keys.protection.tag_bytes())
}
