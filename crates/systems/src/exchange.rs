//! Messages between hosts: the nodes of a job, which are workers only. There are no parameters.

use std::sync::Arc;

use fanin_core::{Address, CollectiveKind, FlowLabel, JobNodes, NetworkMap, Operator, Payload, Placed, Rank};
use fanin_protocols::exchange::ExchangeWorkerConfig;
use serde::{Deserialize, Serialize};

use crate::any::AnyNode;
use crate::build::reliability;
use crate::campaign::{Campaign, DrawnJob, JobSize, Load};
use crate::config::{BuildError, JobSpec};
use crate::draw::Draw;
use crate::facts::{Facts, Nodes};
use crate::layout::leaf_of;
use crate::system::System;

pub(crate) use fanin_protocols::exchange::ExchangeWorker;
pub(crate) use fanin_wire::exchange::{ExchangeHeader, LAYOUT};

/// The parameters of messages between hosts: none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ExchangeParameters {}

impl System {
    /// Every collective by messages between hosts.
    pub const fn exchange() -> Self {
        System::Exchange(ExchangeParameters {})
    }
}

impl Facts for ExchangeParameters {
    fn goes_on_without_switches(&self) -> bool {
        true
    }

    fn divides(&self) -> bool {
        false
    }

    fn sums_at_switches(&self) -> bool {
        false
    }

    fn offers(&self, _kind: CollectiveKind) -> bool {
        true
    }

    fn switch_slots(&self, _window: u32) -> u64 {
        0
    }

    fn load(&self, job: &JobSize) -> Load {
        Load::of_ring(job)
    }
}

impl Nodes for ExchangeParameters {
    const CAMPAIGNS: &[Campaign] = &[Campaign { order: 51, stream: 51, draw: campaign }];

    fn nodes<P: Payload + ?Sized>(&self, spec: &JobSpec<'_, P::Op>, map: &NetworkMap) -> Result<JobNodes<AnyNode<P>>, BuildError> {
        let (count, most) = (spec.hosts.len(), ExchangeWorkerConfig::<P::Op>::WORKERS_MAX);
        if count > most as usize {
            return Err(BuildError::new("workers", count, format!("at most {most} that send each other messages")));
        }
        let addresses: Arc<[Address]> = spec.hosts.iter().map(|host| Address::worker(*host)).collect();
        let racks = spec.hosts.iter().map(|host| leaf_of(map, *host).map(|leaf| leaf.node)).collect::<Result<Arc<[_]>, _>>()?;
        let worker = |(rank, at): (u32, &Address)| {
            let config = ExchangeWorkerConfig {
                job: spec.id,
                rank: Rank(rank),
                addresses: addresses.clone(),
                racks: racks.clone(),
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
}

/// Some jobs become jobs of messages between hosts: all that were wanted, or a few of those without servers.
fn campaign(draw: &mut Draw, _map: &NetworkMap, jobs: &mut [DrawnJob], only: Option<&str>) {
    for job in jobs {
        if !only.map_or_else(|| job.system.servers() == 0 && draw.percent(4), |name| name == "exchange") {
            continue;
        }
        job.system = System::exchange();
        if job.op.operator == Operator::Avg {
            job.op.operator = Operator::Sum;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::any::tests::comes_back;
    use fanin_wire::exchange::{ExchangeHeader, Sender};

    #[test]
    fn packets_begin_with_the_systems_number() {
        comes_back(16, ExchangeHeader::Probe(Sender { operation: 87, rank: 5 }, 3));
    }
}
