//! Choices that need more than the queues before equal ways: tables of their own, or another way than the shortest. What they need exists
//! only in networks that have them.

mod choosing;

use crate::random::{Purpose, Random};
use crate::routing::conga::CongaState;
use crate::routing::dragonfly::Groups;
use crate::routing::drill::Drill;
use crate::routing::own::OwnState;
use crate::routing::{Balancer, Routes};
use crate::scenario::Scenario;
use crate::shape::Shape;
use crate::topology::Topology;

/// What such choices need.
#[derive(Debug)]
pub(crate) struct Apart {
    /// For collectives, and for background traffic.
    balancers: [Balancer; 2],
    drill: [Option<Drill>; 2],
    conga: Option<CongaState>,
    groups: Option<Groups>,
    own: Option<OwnState>,
}

impl Balancer {
    /// Whether switches need more for it than the queues before equal ways.
    pub(crate) fn is_apart(self) -> bool {
        matches!(self, Balancer::Drill { .. } | Balancer::Conga(_) | Balancer::Valiant | Balancer::Ugal | Balancer::Own(_))
    }

    /// Whether it has to see a packet at its first switch also where one way leads on from there.
    pub(crate) fn sees_all(self) -> bool {
        self.goes_round() || matches!(self, Balancer::Own(own) if own.get().looks_at_arrivals())
    }

    /// Whether packets may take another way than one of least cost.
    pub fn goes_round(self) -> bool {
        matches!(self, Balancer::Valiant | Balancer::Ugal)
    }
}

impl Apart {
    /// What the balancers of a scenario need.
    pub fn new(topology: &Topology, scenario: &Scenario, routes: &Routes) -> Self {
        let balancers = [scenario.network.collective_balancer, scenario.network.background_balancer];
        // Streams of their own, so that other balancers draw what they always drew.
        let random = |number: u64| Random::new(scenario.seed, Purpose::Routing, number);
        let drill = |class: usize| match balancers[class] {
            Balancer::Drill { samples, memory } => Some(Drill::new(routes, samples, memory, random(1 + class as u64))),
            _ => None,
        };
        let conga = balancers.iter().find_map(|balancer| match balancer {
            Balancer::Conga(times) => CongaState::new(*times, topology, random(3)),
            _ => None,
        });
        let groups = match scenario.network.shape {
            Shape::Dragonfly { routers, .. } if balancers.iter().any(|balancer| balancer.goes_round()) => {
                Some(Groups::new(topology, routes, routers, random(4)))
            }
            _ => None,
        };
        let from_elsewhere = |balancer: Balancer| if let Balancer::Own(own) = balancer { Some(own) } else { None };
        let own = OwnState::new(balancers.map(from_elsewhere), &topology.map, random);
        Apart { balancers, drill: [drill(0), drill(1)], conga, groups, own }
    }

    /// Whether what links deliver between switches has to be looked at.
    pub fn looks_at_links(&self) -> bool {
        self.conga.is_some() || self.own.as_ref().is_some_and(OwnState::looks_at_arrivals)
    }

    /// A packet is copied on a link.
    pub fn copy(&mut self, from: u32, to: u32) {
        if let Some(conga) = &mut self.conga {
            conga.copy(from, to);
        }
        if let Some(groups) = &mut self.groups {
            groups.copy(from, to);
        }
        if let Some(own) = &mut self.own {
            own.copy(from, to);
        }
    }
}
