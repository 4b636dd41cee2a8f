//! What jobs are predicted to reduce, whichever switches aggregate.

use std::collections::BTreeMap;

use fanin_models::rina::{Chain, rina_steps};

use super::trees::JobTree;
use super::{Aggregation, Upgrade};

/// What jobs reduce.
pub(super) struct Prediction {
    pub gbps: f64,
    pub groups: u32,
    pub bottleneck: String,
}

impl Upgrade {
    pub(super) fn predict(&self, aggregation: Aggregation, replaced: &[bool]) -> Prediction {
        let works = |switch: usize| replaced[switch] && (!aggregation.only_tors() || self.is_tor(switch));
        if aggregation.is_rina() { self.predict_rina(works) } else { self.predict_server(works) }
    }

    /// Every link that several jobs send by is shared by all their flows.
    fn predict_server(&self, works: impl Fn(usize) -> bool) -> Prediction {
        let mut on_link: BTreeMap<u32, u32> = BTreeMap::new();
        for job in self.jobs.iter().map(|job| &job.to_server) {
            for (&link, count) in job.uplinks.iter().zip(job.tree.flows(&job.working(&works))) {
                *on_link.entry(link).or_default() += count;
            }
        }
        let mut all = Prediction { gbps: 0.0, groups: 0, bottleneck: String::new() };
        let mut slowest = f64::INFINITY;
        for job in self.jobs.iter().map(|job| &job.to_server) {
            let sharing: Vec<u32> = job.uplinks.iter().map(|link| on_link[link]).collect();
            let occupation = job.tree.occupation_with(&job.working(&works), &sharing);
            all.gbps += occupation.throughput / 1e9;
            if occupation.throughput < slowest {
                slowest = occupation.throughput;
                all.bottleneck = format!("{}, {} flows", self.name(job.switches[occupation.bottleneck]), occupation.flows);
            }
        }
        all
    }

    fn predict_rina(&self, works: impl Fn(usize) -> bool) -> Prediction {
        let mut all = Prediction { gbps: 0.0, groups: 0, bottleneck: String::new() };
        let mut slowest = f64::INFINITY;
        for job in &self.jobs {
            let JobTree { tree, tors, .. } = &job.to_top;
            let working = job.to_top.working(&works);
            let groups = tree.groups(&working, tors).max(1);
            // Nobody sends faster than the slowest switch adds, nor than the slowest host.
            let rate = job.slowest_host.min(tree.slowest_aggregation(&working, tors));
            let chain = Chain {
                length: f64::from(groups),
                whole_us: job.message_bytes * 8e6 / rate,
                overhead_us: self.assumptions.overhead_us,
                sigma_us: self.assumptions.sigma_us,
            };
            let steps = rina_steps(f64::from(job.workers), f64::from(groups)).max(1.0);
            let gbps = job.message_bytes * 8e-3 / (steps * chain.step_us());
            all.gbps += gbps;
            all.groups += groups;
            if gbps < slowest {
                slowest = gbps;
                all.bottleneck = format!("{steps} steps");
            }
        }
        all
    }
}
