//! A plain run to start from: one job on a star, nothing goes wrong. Tests change what they are about.

use fanin_core::{Duration, ElementOp, Instant, NodeId};
use fanin_sim::faults::{FaultPlan, KindSet, LinkFault, LinkSelector};
use fanin_sim::routing::Balancer;
use fanin_sim::{LinkSpeed, NetworkConfig, Shape};
use fanin_systems::System;

use crate::recipe::{Demand, JobRecipe, Numbers, Recipe};

/// 100 Gb/s, 300 ns.
pub const LINK: LinkSpeed = LinkSpeed { bits_per_second: 100_000_000_000, latency: Duration::from_ns(300) };

impl Recipe {
    /// One job of `workers` workers on a star of as many hosts that reduces a vector of `elements` floats once; with loss recovery and
    /// deep queues.
    pub fn star(system: System, workers: u32, elements: u64) -> Recipe {
        let job = JobRecipe {
            hosts: (0..workers).map(NodeId).collect(),
            servers: Vec::new(),
            system,
            op: ElementOp::F32_SUM,
            numbers: Numbers::Whole,
            payload_bytes: 256,
            window: 16,
            reliable: true,
            rto_initial: Duration::from_us(50),
            rto_min: Duration::from_us(10),
            patience: Duration::from_ms(100),
            elements: vec![elements],
            kinds: Vec::new(),
            start: vec![Instant::ZERO; workers as usize],
            noise_probability: 0.0,
            noise_delay: Duration::ZERO.into(),
            seed: 1,
        };
        Recipe {
            seed: 1,
            network: NetworkConfig {
                shape: Shape::Star { hosts: workers, link: LINK },
                queue_bytes: 1 << 20,
                lossless: None,
                ecn_mark_bytes: u64::MAX,
                nic_queue_bytes: 16 << 10,
                frame_overhead_bytes: 57,
                frame_bytes_min: 84,
                collective_balancer: Balancer::Ecmp,
                background_balancer: Balancer::Ecmp,
                trimming: None,
            },
            forwarding: Vec::new(),
            pipeline: None,
            jobs: vec![job],
            pods: Vec::new(),
            traffic: Vec::new(),
            limits: Vec::new(),
            faults: FaultPlan::default(),
            time_limit: Duration::from_ms(10_000),
            drain: true,
            demand: Demand::MustComplete,
        }
    }

    /// The same on a fat tree of `leaves` leaves with `hosts_per_leaf` hosts, all of them workers, and two spines.
    pub fn fat_tree(system: System, leaves: u32, hosts_per_leaf: u32, elements: u64) -> Recipe {
        let mut recipe = Recipe::star(system, leaves * hosts_per_leaf, elements);
        recipe.network.shape = Shape::FatTree2 { leaves, hosts_per_leaf, spines: 2, parallel_links: 1, host_link: LINK, fabric_link: LINK };
        recipe
    }

    /// The same with this fault on all links, for all packets.
    pub fn with_link_fault(mut self, loss: f64, duplication: f64, reordering: f64, delay_max: Duration) -> Recipe {
        let (links, kinds) = (LinkSelector::All, KindSet::ALL);
        self.faults.links = vec![LinkFault { links, kinds, loss, corruption: 0.0, duplication, reordering, delay_max }];
        self
    }
}
