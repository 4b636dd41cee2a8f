//! Fanin's simulator: packet by packet, deterministic, at data-centre scale.
//!
//! It drives any [`fanin_core::Node`] and knows no protocol. Time is a `u64` of picoseconds; the same scenario and seed give the same
//! result to the byte on any machine.
//!
//! | module | what it holds |
//! |---|---|
//! | `setup` | what is wrong with a setup; how fast a link is |
//! | `network` | a network and how its links behave |
//! | [`scenario`] | what to simulate: network, jobs, traffic, faults |
//! | [`shape`] | shapes of networks, and networks listed cable by cable |
//! | [`topology`] | hosts, switches, cables; who is next to whom |
//! | [`queue`] | the event queue: calendar buckets with a total order |
//! | `packet` | the packet record |
//! | [`parts`] | one simulation on several cores |
//! | `link` | drop-tail links with ECN, by busy-until arithmetic |
//! | `channels` | virtual channels, that share a cable's transmitter |
//! | `credits` | credits of a lossless link, by time |
//! | [`trimming`] | packets that are cut where a queue is full, in place of being dropped |
//! | [`lossless`] | lossless links: credits, two models of a switch, deadlocks |
//! | [`routing`] | ways of the least cost and load balancers |
//! | [`faults`] | loss, duplication, reordering, corruption; links, switches and hosts that fail |
//! | [`traffic`] | background traffic |
//! | [`flows`] | background flows at given rates |
//! | [`limits`] | hosts that send or take in less than their links could |
//! | [`noise`] | packets that leave their hosts late |
//! | [`own`] | load balancers, traffic and noise from elsewhere |
//! | [`series`] | jobs over time |
//! | [`trace`] | what arrives by links, packet by packet |
//! | [`ways`] | which links a flow takes, for predictions |
//! | [`watch`] | blocks of one collective, and queues over time |
//! | [`vectors`] | what workers reduce: lengths, census weights with their oracle, elements |
//! | `net` | the network's state and the [`fanin_core::Tx`] that nodes send through |
//! | `adder`, `tasks` | what switches add at a rate of their own, and what their cores have to do |
//! | `clusters` | the working memory of these cores |
//! | `hosts` | the queues of hosts, and who waits for room in them |
//! | `uplinks`, `leaving` | hosts with several cables |
//! | [`engine`] | the event loop |
//! | [`metrics`] | what comes out |
//! | [`programs`] | jobs whose ranks run programs, in several groups |
//! | [`workloads`] | workloads for measuring the simulator itself |
#![forbid(unsafe_code)]

mod adder;
mod channels;
mod clusters;
mod credits;
pub mod engine;
pub mod faults;
pub mod flows;
mod hosts;
mod leaving;
mod lent;
pub mod limits;
mod link;
pub mod lossless;
pub mod metrics;
mod net;
mod network;
pub mod noise;
pub mod own;
mod packet;
pub mod parts;
pub mod programs;
pub mod queue;
pub mod random;
pub mod routing;
pub mod scenario;
pub mod series;
mod setup;
pub mod shape;
mod tasks;
pub mod topology;
pub mod trace;
pub mod traffic;
pub mod trimming;
mod uplinks;
pub mod vectors;
pub mod watch;
pub mod ways;
pub mod workloads;

pub use engine::Simulation;
pub use metrics::{JobResult, RunResult, WorkerResult};
pub use scenario::{Compute, JobSchedule, LinkSpeed, NetworkConfig, NodePlacement, SetupError};
pub use shape::Shape;
pub use topology::Topology;
