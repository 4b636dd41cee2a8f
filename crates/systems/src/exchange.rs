//! The nodes of a job whose hosts send each other messages: workers only.

use std::sync::Arc;

use fanin_core::{Address, FlowLabel, JobNodes, Payload, Placed, Rank};
use fanin_protocols::exchange::{ExchangeWorker, ExchangeWorkerConfig};

use crate::any::AnyNode;
use crate::build::reliability;
use crate::config::{BuildError, JobSpec};

/// A worker on each host.
pub(crate) fn nodes<P: Payload + ?Sized>(spec: &JobSpec<'_, P::Op>) -> Result<JobNodes<AnyNode<P>>, BuildError> {
    let (count, most) = (spec.hosts.len(), ExchangeWorkerConfig::<P::Op>::WORKERS_MAX);
    if count > most as usize {
        return Err(BuildError::new("workers", count, format!("at most {most} that send each other messages")));
    }
    let addresses: Arc<[Address]> = spec.hosts.iter().map(|host| Address::worker(*host)).collect();
    let worker = |(rank, at): (u32, &Address)| {
        let config = ExchangeWorkerConfig {
            job: spec.id,
            rank: Rank(rank),
            addresses: addresses.clone(),
            op: spec.op.clone(),
            element_bytes: spec.element_bytes,
            block_elements: spec.payload_bytes / spec.element_bytes,
            window: spec.window,
            flow: FlowLabel(u32::from(spec.id.0)),
            reliability: reliability(spec),
        };
        Placed { at: *at, node: AnyNode::ExchangeWorker(ExchangeWorker::new(config)) }
    };
    Ok(JobNodes { workers: (0..).zip(addresses.iter()).map(worker).collect(), others: Vec::new() })
}
