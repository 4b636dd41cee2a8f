//! Background traffic: hosts that send messages to each other beside the jobs.

use std::sync::Arc;

use fanin_core::hash::mix;
use fanin_core::{Duration, Instant, NodeId};

pub(crate) mod dctcp;
pub mod own;

use crate::network::NetworkConfig;
use crate::random::{Purpose, Random};
use crate::setup::SetupError;
use crate::topology::Topology;
use crate::traffic::own::{Among, NamedPattern};

/// Who sends to whom.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// Each message goes to an independently drawn host among the others; the next one is drawn when it has arrived.
    Uniform,
    /// As uniform, but everybody's n-th messages go to different hosts, so that each host receives one of them.
    Derangement,
    /// A random permutation in one cycle: every host sends to one host and receives from one, always the same.
    Permutation,
    /// Everybody sends to the first `receivers` hosts of the set, in turn.
    Incast {
        /// Number of receivers.
        receivers: u32,
    },
    /// As a pattern from elsewhere says, which also has the messages' lengths, times and number.
    Own(NamedPattern),
}

/// How senders of background traffic control their rates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Congestion {
    /// DCTCP (Alizadeh et al., SIGCOMM 2010; RFC 8257), with g = 1/16: each message is a connection that begins with a window of ten packets. What
    /// is lost is sent again. A message that gets no answer at all, by eight timeouts in a row that double each time, is given up.
    Dctcp {
        /// No timeout is shorter, and the first ones are as long.
        rto_min: Duration,
    },
}

/// One set of hosts with background traffic among them.
#[derive(Clone, PartialEq, Debug)]
pub struct TrafficConfig {
    /// The hosts that take part.
    pub hosts: Vec<NodeId>,
    /// Who sends to whom.
    pub pattern: Pattern,
    /// Length of a message in bytes of payload.
    pub message_bytes: u64,
    /// Payload of a full packet in bytes.
    pub payload_bytes: u32,
    /// Offered rate of each sender, as a share of its link's rate, above 0 and at most 1. Not looked at where there is congestion control.
    pub load: f64,
    /// Whether rates follow congestion; `None`: packets are sent at `load`, and nobody sends again what is lost.
    pub congestion: Option<Congestion>,
    /// Messages that each host sends; `None` for as many as the jobs last.
    pub messages: Option<u64>,
    /// When it begins.
    pub start: Instant,
}

impl TrafficConfig {
    /// Checks sizes and rates.
    ///
    /// # Errors
    /// [`SetupError`] names the field.
    pub fn check(&self, index: usize) -> Result<(), SetupError> {
        let field = |name: &str| format!("traffic[{index}].{name}");
        if !(self.load > 0.0 && self.load <= 1.0) {
            return Err(SetupError::new(field("load"), self.load, "a share of the link's rate, above 0 and at most 1"));
        }
        if self.message_bytes == 0 {
            return Err(SetupError::new(field("message"), 0, "at least 1 byte"));
        }
        if self.payload_bytes == 0 || self.payload_bytes > 65_000 {
            return Err(SetupError::new(field("payload"), self.payload_bytes, "1 to 65000 bytes"));
        }
        if let Some(Congestion::Dctcp { rto_min }) = self.congestion
            && rto_min == Duration::ZERO
        {
            return Err(SetupError::new(field("rto_min"), rto_min, "more than 0 s"));
        }
        if self.congestion.is_some() && matches!(self.pattern, Pattern::Own(_)) {
            return Err(SetupError::new(field("congestion"), "dctcp", "a pattern that is built in"));
        }
        if self.hosts.len() < 2 {
            return Err(SetupError::new(field("hosts"), self.hosts.len(), "at least 2 hosts"));
        }
        if let Pattern::Incast { receivers } = self.pattern
            && (receivers == 0 || receivers as usize >= self.hosts.len())
        {
            return Err(SetupError::new(field("receivers"), receivers, format!("1 to {} receivers", self.hosts.len() - 1)));
        }
        Ok(())
    }

    /// What a pattern from elsewhere is told of its hosts.
    pub fn among<'a>(&'a self, topology: &'a Topology, network: &NetworkConfig) -> Among<'a> {
        let rate = |host: &NodeId| topology.links[topology.links_out(*host)[0] as usize].speed.bits_per_second;
        Among {
            hosts: &self.hosts,
            start: self.start,
            link_bits_per_second: self.hosts.iter().map(rate).collect(),
            map: &topology.map,
            payload_bytes: self.payload_bytes,
            frame_overhead_bytes: network.frame_overhead_bytes,
            frame_bytes_min: network.frame_bytes_min,
        }
    }

    /// Checks the parameters of a pattern from elsewhere. `index` is the traffic's in the plan.
    ///
    /// # Errors
    /// [`SetupError`] names the parameter.
    pub fn check_pattern(&self, index: usize, topology: &Topology, network: &NetworkConfig) -> Result<(), SetupError> {
        let Pattern::Own(own) = self.pattern else { return Ok(()) };
        let checked = own.get().check(&self.among(topology, network));
        checked.map_err(|error| SetupError::refused(&format!("traffic[{index}].pattern"), error))
    }
}

/// A host that sends background traffic.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// Index of its [`TrafficConfig`].
    pub config: u32,
    pub host: NodeId,
    /// Its place among the hosts of the set.
    place: u32,
    pub destination: NodeId,
    /// Bytes of the message not yet sent.
    pub bytes_left: u64,
    /// Packets of the message under way.
    pub in_flight: u32,
    /// Messages not yet begun; `u64::MAX` for no end.
    pub messages_left: u64,
    /// Messages begun.
    begun: u64,
    /// Changes from message to message, so that flow hashing sees new flows.
    pub flow: u32,
    /// Payload bytes that have arrived.
    pub bytes_delivered: u64,
    /// Census: sum of the weights sent, less those that arrived or were counted as lost. Zero when nothing is under way.
    pub balance: u64,
    /// Number of the next packet, whose hash is its weight.
    pub packet_count: u64,
    /// For derangements.
    rounds: Option<Arc<Rounds>>,
    /// Its host has stalled when it was about to send.
    pub paused: bool,
    random: Random,
}

/// Rotations of one random order of the hosts, a random one for each round of messages: nobody sends to itself, and nobody receives
/// from two.
#[derive(Clone, Debug)]
struct Rounds {
    order: Vec<u32>,
    /// By host: its place in the order.
    place_in_order: Vec<u32>,
    seed: u64,
}

impl Rounds {
    fn new(count: u32, random: &mut Random) -> Self {
        let mut order: Vec<u32> = (0..count).collect();
        random.shuffle(&mut order);
        let mut place_in_order = vec![0; count as usize];
        for (place, &host) in order.iter().enumerate() {
            place_in_order[host as usize] = place as u32;
        }
        Rounds { order, place_in_order, seed: random.bits() }
    }

    fn receiver(&self, sender: u32, round: u64) -> u32 {
        let count = self.order.len() as u64;
        let shift = 1 + mix(self.seed, round) % (count - 1);
        self.order[((u64::from(self.place_in_order[sender as usize]) + shift) % count) as usize]
    }
}

impl Source {
    /// All sources of a traffic set that send at a rate; none where its pattern is from elsewhere, and where it has congestion control.
    pub fn all(config: &TrafficConfig, index: u32, seed: u64) -> Vec<Source> {
        if config.congestion.is_some() { Vec::new() } else { Source::made(config, index, seed) }
    }

    /// All senders of a traffic set, whether they have congestion control or not.
    pub fn made(config: &TrafficConfig, index: u32, seed: u64) -> Vec<Source> {
        if let Pattern::Own(_) = config.pattern {
            return Vec::new();
        }
        let mut shared = Random::new(seed, Purpose::Traffic, u64::from(index) << 32 | 0xffff_ffff);
        let partners = match config.pattern {
            Pattern::Permutation => shared.one_cycle(config.hosts.len() as u32),
            _ => Vec::new(),
        };
        let rounds = (config.pattern == Pattern::Derangement).then(|| Arc::new(Rounds::new(config.hosts.len() as u32, &mut shared)));
        let sends = |place: &u32| !matches!(config.pattern, Pattern::Incast { receivers } if *place < receivers);
        (0..config.hosts.len() as u32)
            .filter(sends)
            .map(|place| Source {
                config: index,
                host: config.hosts[place as usize],
                place,
                destination: config.hosts[partners.get(place as usize).copied().unwrap_or(0) as usize],
                bytes_left: 0,
                in_flight: 0,
                messages_left: config.messages.unwrap_or(u64::MAX),
                begun: 0,
                flow: 0,
                bytes_delivered: 0,
                balance: 0,
                packet_count: 0,
                rounds: rounds.clone(),
                paused: false,
                random: Random::new(seed, Purpose::Traffic, u64::from(index) << 32 | u64::from(place)),
            })
            .collect()
    }

    /// Begins the next message; false where there is none.
    pub fn next_message(&mut self, config: &TrafficConfig) -> bool {
        if self.messages_left == 0 {
            return false;
        }
        if self.messages_left != u64::MAX {
            self.messages_left -= 1;
        }
        let count = config.hosts.len() as u32;
        match config.pattern {
            Pattern::Uniform => {
                let other = self.random.below(count - 1);
                self.destination = config.hosts[(if other >= self.place { other + 1 } else { other }) as usize];
            }
            Pattern::Derangement => {
                let rounds = self.rounds.as_ref().expect("made with the source");
                self.destination = config.hosts[rounds.receiver(self.place, self.begun) as usize];
            }
            Pattern::Permutation | Pattern::Own(_) => {}
            Pattern::Incast { receivers } => {
                self.destination = config.hosts[((u64::from(self.place) + self.begun) % u64::from(receivers)) as usize];
            }
        }
        self.begun += 1;
        self.flow = self.random.bits() as u32;
        self.bytes_left = config.message_bytes;
        true
    }

    /// Whether the message has arrived and the next one may begin.
    pub fn is_idle(&self) -> bool {
        self.bytes_left == 0 && self.in_flight == 0
    }
}

/// Time between the starts of two packets of a source at this load.
pub(crate) fn pace(send_time_ps: u64, load: f64) -> Duration {
    Duration::from_ps((send_time_ps as f64 / load).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(pattern: Pattern) -> TrafficConfig {
        TrafficConfig {
            hosts: (0..50).map(NodeId).collect(),
            pattern,
            message_bytes: 4096,
            payload_bytes: 1024,
            load: 1.0,
            congestion: None,
            messages: Some(20),
            start: Instant::ZERO,
        }
    }

    #[test]
    fn nobody_sends_to_himself_and_a_permutation_reaches_everybody_once() {
        for pattern in [Pattern::Uniform, Pattern::Derangement, Pattern::Permutation, Pattern::Incast { receivers: 3 }] {
            let config = config(pattern.clone());
            let mut sources = Source::all(&config, 0, 5);
            for source in &mut sources {
                while source.next_message(&config) {
                    assert_ne!(source.host, source.destination, "{pattern:?}");
                    assert!(!matches!(pattern, Pattern::Incast { .. }) || source.destination.0 < 3);
                }
            }
            if pattern == Pattern::Permutation {
                let mut reached: Vec<u32> = sources.iter().map(|source| source.destination.0).collect();
                reached.sort_unstable();
                assert_eq!(reached, (0..50).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn in_each_round_of_a_derangement_everybody_receives_once_from_somebody_else_than_before() {
        let config = config(Pattern::Derangement);
        let mut sources = Source::all(&config, 0, 5);
        let mut changed = 0;
        for _ in 0..20 {
            let before: Vec<NodeId> = sources.iter().map(|source| source.destination).collect();
            assert!(sources.iter_mut().all(|source| source.next_message(&config)));
            let mut reached: Vec<u32> = sources.iter().map(|source| source.destination.0).collect();
            changed += sources.iter().zip(&before).filter(|(source, before)| source.destination != **before).count();
            reached.sort_unstable();
            assert_eq!(reached, (0..50).collect::<Vec<_>>());
        }
        assert!(changed > 900, "{changed} of 1000 peers have changed");
    }

    #[test]
    fn impossible_traffic_is_named() {
        let mut wrong = config(Pattern::Incast { receivers: 50 });
        assert_eq!(wrong.check(2).unwrap_err().to_string(), "traffic[2].receivers = 50: expected 1 to 49 receivers");
        wrong = config(Pattern::Uniform);
        wrong.load = 1.5;
        assert!(wrong.check(0).unwrap_err().to_string().starts_with("traffic[0].load = 1.5"));
        wrong = TrafficConfig { congestion: Some(Congestion::Dctcp { rto_min: Duration::ZERO }), ..config(Pattern::Uniform) };
        assert_eq!(wrong.check(1).unwrap_err().to_string(), "traffic[1].rto_min = 0 ps: expected more than 0 s");
    }
}
