//! `web-search`: messages begin at random (a Poisson process) between random hosts, with the lengths of a cluster that answers web searches.
//!
//! The cluster is that of Alizadeh et al., "Data Center TCP (DCTCP)", SIGCOMM 2010; its lengths are as HPCC's generator of traffic has them (Li et
//! al., "HPCC: High Precision Congestion Control", SIGCOMM 2019, `traffic_gen/WebSearch_distribution.txt`), evenly drawn between two points.

use fanin_core::{Duration, Instant, NodeId};
use fanin_sim::own::Refusal;
use fanin_sim::random::Random;
use fanin_sim::traffic::own::{Among, Message, OwnPattern};
use serde::{Deserialize, Serialize};

/// Length in bytes, and the percentage of messages that are no longer.
const LENGTHS: [(u64, u64); 12] = [
    (0, 0),
    (10_000, 15),
    (20_000, 20),
    (30_000, 30),
    (50_000, 40),
    (80_000, 53),
    (200_000, 60),
    (1_000_000, 70),
    (2_000_000, 80),
    (5_000_000, 90),
    (10_000_000, 97),
    (30_000_000, 100),
];

/// The parameters: keys of a plan.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WebSearch {
    /// What all hosts together offer, as a share of the rate of their links.
    pub load: f64,
    /// No message is longer.
    pub longest_bytes: u64,
    /// How many messages there are; 0: as many as the jobs last.
    pub messages: u64,
}

impl Default for WebSearch {
    fn default() -> Self {
        WebSearch { load: 0.3, longest_bytes: 30_000_000, messages: 0 }
    }
}

/// A number in `0..bound`, evenly.
fn below(random: &mut Random, bound: u64) -> u64 {
    ((u128::from(random.bits()) * u128::from(bound)) >> 64) as u64
}

impl WebSearch {
    fn length(&self, random: &mut Random) -> u64 {
        let drawn = below(random, 1_000_000);
        let after = LENGTHS.iter().position(|(_, percent)| drawn < percent * 10_000).unwrap_or(LENGTHS.len() - 1).max(1);
        let ((from, begin), (to, end)) = (LENGTHS[after - 1], LENGTHS[after]);
        let length = from + (to - from) * (drawn - begin * 10_000) / ((end - begin) * 10_000);
        length.clamp(1, self.longest_bytes)
    }

    /// On average, in bytes on the wire, from the middles of 100,000 equal shares.
    fn mean_wire_bytes(&self, among: &Among<'_>) -> f64 {
        let sum: f64 = LENGTHS
            .windows(2)
            .map(|pair| {
                let ((from, begin), (to, end)) = (pair[0], pair[1]);
                let steps = (end - begin) * 1_000;
                let length = |step: u64| (from + (to - from) * (2 * step + 1) / (2 * steps)).clamp(1, self.longest_bytes);
                (0..steps).map(|step| among.wire_bytes(length(step)) as f64).sum::<f64>()
            })
            .sum();
        sum / 100_000.0
    }
}

impl OwnPattern for WebSearch {
    const NAME: &'static str = "web-search";
    type Messages = Messages;

    fn check(&self, _among: &Among<'_>) -> Result<(), Refusal> {
        if !(self.load > 0.0 && self.load <= 1.0) {
            return Err(Refusal::new("load", self.load, "a share above 0 and at most 1"));
        }
        if self.longest_bytes == 0 { Err(Refusal::new("longest", 0, "1 byte or more")) } else { Ok(()) }
    }

    fn messages(&self, among: &Among<'_>, random: Random) -> Messages {
        let rate: f64 = among.link_bits_per_second.iter().map(|rate| *rate as f64).sum();
        let gap_ps = self.mean_wire_bytes(among) * 8e12 / (rate * self.load);
        Messages { config: *self, hosts: among.hosts.to_vec(), now: among.start, gap_ps, random, made: 0 }
    }
}

/// All messages, in order of time.
#[derive(Debug)]
pub struct Messages {
    config: WebSearch,
    hosts: Vec<NodeId>,
    now: Instant,
    /// Time between two messages, on average.
    gap_ps: f64,
    random: Random,
    made: u64,
}

impl Iterator for Messages {
    type Item = Message;

    fn next(&mut self) -> Option<Message> {
        if self.config.messages != 0 && self.made == self.config.messages {
            return None;
        }
        self.made += 1;
        // More than 0 and at most 1, evenly.
        let share = ((self.random.bits() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        self.now += Duration::from_ps((-libm::log(share) * self.gap_ps).round() as u64);
        let count = self.hosts.len() as u32;
        let from = self.random.below(count);
        let to = (from + 1 + self.random.below(count - 1)) % count;
        let bytes = self.config.length(&mut self.random);
        Some(Message { at: self.now, from: self.hosts[from as usize], to: self.hosts[to as usize], bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanin_sim::random::Purpose;
    use fanin_sim::scenario::LinkSpeed;
    use fanin_sim::shape::Shape;
    use fanin_sim::topology::Topology;

    fn messages(config: WebSearch, count: usize) -> Vec<Message> {
        let link = LinkSpeed { bits_per_second: 100_000_000_000, latency: Duration::from_ns(300) };
        let topology = Topology::new(&Shape::Star { hosts: 8, link }).unwrap();
        let hosts: Vec<NodeId> = (0..8).map(NodeId).collect();
        let start = Instant::ZERO + Duration::from_us(5);
        let link_bits_per_second = vec![100_000_000_000; 8];
        let among = Among {
            hosts: &hosts,
            start,
            link_bits_per_second,
            map: &topology.map,
            payload_bytes: 1_024,
            frame_overhead_bytes: 57,
            frame_bytes_min: 84,
        };
        config.check(&among).unwrap();
        config.messages(&among, Random::new(3, Purpose::Traffic, 0)).take(count).collect()
    }

    #[test]
    fn lengths_are_distributed_as_published() {
        let all = messages(WebSearch::default(), 100_000);
        for (length, percent) in &LENGTHS[1..] {
            let shorter = all.iter().filter(|message| message.bytes <= *length).count() as f64 / 1e3;
            assert!((shorter - *percent as f64).abs() < 0.5, "{shorter} % up to {length}");
        }
        assert!(all.iter().all(|message| message.from != message.to && message.bytes > 0));
        let short = messages(WebSearch { longest_bytes: 50_000, ..WebSearch::default() }, 1_000);
        assert!(short.iter().all(|message| message.bytes <= 50_000));
    }

    #[test]
    fn they_offer_the_load_and_begin_at_random() {
        let all = messages(WebSearch { load: 0.4, ..WebSearch::default() }, 200_000);
        let bits: f64 = all.iter().map(|message| message.bytes as f64 * (1_081.0 / 1_024.0) * 8.0).sum();
        let seconds = all.last().unwrap().at.as_ps() as f64 / 1e12;
        let load = bits / seconds / 800e9;
        assert!((load - 0.4).abs() < 0.008, "{load}");
        // A Poisson process: the deviation of the gaps is their mean.
        let gaps: Vec<f64> = all.windows(2).map(|pair| (pair[1].at.as_ps() - pair[0].at.as_ps()) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let deviation = (gaps.iter().map(|gap| (gap - mean) * (gap - mean)).sum::<f64>() / gaps.len() as f64).sqrt();
        assert!((deviation / mean - 1.0).abs() < 0.02, "{}", deviation / mean);
        assert!(all[0].at.as_ps() >= 5_000_000);
    }

    #[test]
    fn they_end_where_they_are_counted() {
        assert_eq!(messages(WebSearch { messages: 17, ..WebSearch::default() }, 1_000).len(), 17);
    }
}
