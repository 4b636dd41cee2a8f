//! CONGA: leaves tell each other how congested the ways between them are (Alizadeh et al., SIGCOMM 2014, 3).
//!
//! | the paper | here |
//! |---|---|
//! | 3.2 DRE: a register a link, that grows by the bytes sent and shrinks by the share α in each period | [`Rate`] |
//! | 3.3 congestion-to-leaf and congestion-from-leaf tables, feedback on packets that go the other way | [`CongaState`] |
//! | 3.4 flowlets: a new one takes the way whose worst link is best, and moves for a strictly better one only | [`CongaState::choose`] |
//! | 3.1 the fields of a packet (LBTag, CE, FB_LBTag, FB_Metric) | [`Tag`], kept beside the packets |
//!
//! A link's bytes are counted where it ends, which is one propagation delay after they were sent and, as on the wire, not before they have
//! left the queue. Choices that are not between leaves, as between cables from a spine to one leaf, are by hash (3.1).

use fanin_core::NodeId;

use crate::random::Random;
use crate::routing::{Conga, Routes};
use crate::topology::Topology;

/// 1 / α, which is also how many periods make τ: T_dre = α τ.
pub(crate) const PERIODS: u64 = 8;
/// Q: bits of a metric.
const BITS: u32 = 3;
const METRIC_MAX: u8 = (1 << BITS) - 1;
/// Entries of the flowlet table.
const FLOWLETS: usize = 1 << 16;
/// No uplink.
const NONE: u16 = u16::MAX;

/// Leaves, and spines that every way between two leaves leads over: nothing else. Gives which switches are leaves, counted from the first
/// switch.
pub(crate) fn leaves_and_spines(topology: &Topology) -> Result<Vec<bool>, String> {
    let map = &topology.map;
    let is_leaf = |node: NodeId| map.neighbours(node).iter().any(|next| map.is_host(next.node));
    for cable in topology.links.iter().filter(|cable| !map.is_host(cable.from) && !map.is_host(cable.to)) {
        if is_leaf(cable.from) == is_leaf(cable.to) {
            let (from, to) = (topology.name(cable.from), topology.name(cable.to));
            return Err(format!("leaves, which have hosts, and spines, each joined only to the others; {from} and {to} are joined"));
        }
    }
    Ok(map.switches().map(is_leaf).collect())
}

/// An estimate of a link's rate: the discounting rate estimator.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    /// X, in bytes.
    bytes: u64,
    /// Number of the period in which it was looked at last.
    period: u64,
    /// C τ: what the link sends in τ, in bytes.
    capacity: u64,
}

impl Rate {
    /// Takes α of it away for each period that has passed.
    fn at(&self, period: u64) -> u64 {
        let passed = period - self.period;
        if passed > 64 * PERIODS {
            return 0;
        }
        (0..passed).fold(self.bytes, |bytes, _| bytes - bytes.div_ceil(PERIODS))
    }

    fn add(&mut self, bytes: u32, period: u64) {
        (self.bytes, self.period) = (self.at(period) + u64::from(bytes), period);
    }

    /// Its share of the link's rate in steps of 1/8, at most 7.
    fn metric(&self, period: u64) -> u8 {
        ((self.at(period) << BITS) / self.capacity.max(1)).min(u64::from(METRIC_MAX)) as u8
    }
}

/// What a packet carries from leaf to leaf.
#[derive(Clone, Copy, Debug)]
struct Tag {
    /// LBTag: the uplink that its leaf chose.
    uplink: u16,
    /// FB_LBTag: the uplink of the leaf that it goes to which the feedback is about, or [`NONE`].
    told_uplink: u16,
    /// FB_Metric.
    told: u8,
    /// CE: the metric of the most congested link so far.
    congestion: u8,
}

/// What a leaf knows from another leaf's feedback of one of its uplinks.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    metric: u8,
    at_ps: u64,
}

/// What a leaf has seen on packets from another leaf.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    metric: u8,
    /// Known at all.
    known: bool,
    /// Not told since it changed.
    changed: bool,
}

/// The tables of all leaves, and the tags of all packets.
#[derive(Clone, Debug)]
pub(crate) struct CongaState {
    times: Conga,
    random: Random,
    /// By switch, counted from the first one.
    is_leaf: Vec<bool>,
    /// How many uplinks a leaf has at most.
    uplinks: usize,
    /// By link: its number among the uplinks of its leaf.
    uplink_of: Vec<u16>,
    /// By link.
    rates: Vec<Rate>,
    /// By leaf, other leaf and uplink: congestion-to-leaf.
    to: Vec<Told>,
    /// By leaf, other leaf and the other's uplink: congestion-from-leaf.
    from: Vec<Seen>,
    /// By leaf and other leaf: whose turn it is to be told.
    turn: Vec<u16>,
    /// By packet's place.
    tags: Vec<Tag>,
    /// Per hashed flow: when last seen, and the link.
    flowlets: Vec<(u64, u32)>,
}

/// A choice between two leaves, counted from the first switch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub at: u32,
    pub to: u32,
}

impl CongaState {
    /// `None` where the network is not one of leaves and spines.
    pub fn new(times: Conga, topology: &Topology, random: Random) -> Option<Self> {
        let is_leaf = leaves_and_spines(topology).ok()?;
        let first_switch = topology.map.hosts();
        let switches = is_leaf.len();
        let mut next = vec![0u16; switches];
        let number = |cable: &crate::topology::Cable| {
            if topology.map.is_host(cable.from) || topology.map.is_host(cable.to) || !is_leaf[(cable.from.0 - first_switch) as usize] {
                return NONE;
            }
            let next = &mut next[(cable.from.0 - first_switch) as usize];
            *next += 1;
            *next - 1
        };
        let uplink_of = topology.links.iter().map(number).collect();
        let uplinks = usize::from(next.into_iter().max().unwrap_or(0));
        let in_tau = |bits_per_second: u64| (u128::from(bits_per_second) * u128::from(times.rate_ps) / 8_000_000_000_000) as u64;
        let rates = topology.links.iter().map(|cable| Rate { capacity: in_tau(cable.speed.bits_per_second), ..Rate::default() });
        Some(CongaState {
            times,
            random,
            uplinks,
            uplink_of,
            rates: rates.collect(),
            to: vec![Told::default(); switches * switches * uplinks],
            from: vec![Seen::default(); switches * switches * uplinks],
            turn: vec![0; switches * switches],
            tags: Vec::new(),
            flowlets: vec![(0, 0); FLOWLETS],
            is_leaf,
        })
    }

    fn period(&self, now_ps: u64) -> u64 {
        now_ps / (self.times.rate_ps / PERIODS)
    }

    fn index(&self, pair: Pair, uplink: u16) -> usize {
        (pair.at as usize * self.is_leaf.len() + pair.to as usize) * self.uplinks + usize::from(uplink)
    }

    /// Whether both are leaves, and not the same one.
    pub fn is_between_leaves(&self, pair: Pair) -> bool {
        pair.at != pair.to && self.is_leaf[pair.at as usize] && self.is_leaf[pair.to as usize]
    }

    /// How congested the way by a link is: the worst of what the leaf sees itself and what the other leaf has told.
    fn metric(&self, pair: Pair, link: u32, now_ps: u64) -> u8 {
        let told = self.to[self.index(pair, self.uplink_of[link as usize])];
        let steps = (now_ps - told.at_ps) / self.times.aging_ps;
        let remote = u64::from(told.metric).saturating_sub(steps) as u8;
        remote.max(self.rates[link as usize].metric(self.period(now_ps)))
    }

    /// The link of `links` that a packet of the flow with this hash takes. Links that are not `up` are not taken where others are.
    pub fn choose(&mut self, pair: Pair, hash: u64, links: &[u32], up: impl Fn(u32) -> bool, now_ps: u64) -> u32 {
        let place = hash as usize % FLOWLETS;
        let (last, before) = self.flowlets[place];
        let has_before = last != 0 && links.contains(&before) && up(before);
        let chosen = if has_before && now_ps - last < self.times.gap_ps { before } else { self.best(pair, links, up, now_ps, before) };
        self.flowlets[place] = (now_ps.max(1), chosen);
        chosen
    }

    /// The least congested way; of equal ones the one `before`, or any.
    fn best(&mut self, pair: Pair, links: &[u32], up: impl Fn(u32) -> bool, now_ps: u64, before: u32) -> u32 {
        let (mut least, mut chosen, mut equal) = (u8::MAX, links[0], 0);
        for &link in links.iter().filter(|link| up(**link)) {
            let metric = self.metric(pair, link, now_ps);
            if metric < least {
                (least, chosen, equal) = (metric, link, 1);
            } else if metric == least {
                equal += 1;
                if link == before || chosen != before && self.random.below(equal) == 0 {
                    chosen = link;
                }
            }
        }
        chosen
    }

    /// A packet leaves its leaf by `link`: it is told by which, and what the other leaf should know.
    pub fn tag(&mut self, place: u32, pair: Pair, link: u32) {
        let (told_uplink, told) = self.next_to_tell(pair);
        let tag = Tag { uplink: self.uplink_of[link as usize], told_uplink, told, congestion: 0 };
        if self.tags.len() <= place as usize {
            self.tags.resize(place as usize + 1, Tag { uplink: NONE, told_uplink: NONE, told: 0, congestion: 0 });
        }
        self.tags[place as usize] = tag;
    }

    /// What the other leaf is told: in turn, but what has changed first.
    fn next_to_tell(&mut self, pair: Pair) -> (u16, u8) {
        let (first, count) = (self.index(pair, 0), self.uplinks as u16);
        let turn = &mut self.turn[pair.at as usize * self.is_leaf.len() + pair.to as usize];
        let in_turn = |step: u16| (*turn + step) % count;
        let seen = &mut self.from[first..first + usize::from(count)];
        let known = (0..count).map(in_turn).find(|uplink| seen[usize::from(*uplink)].known);
        let changed = (0..count).map(in_turn).find(|uplink| seen[usize::from(*uplink)].changed);
        let Some(uplink) = changed.or(known) else { return (NONE, 0) };
        *turn = (uplink + 1) % count;
        seen[usize::from(uplink)].changed = false;
        (uplink, seen[usize::from(uplink)].metric)
    }

    /// A packet of `bytes` bytes has come over `link`. `way` is from where to where it goes, if a leaf has tagged it; at its end, `arrived`,
    /// the leaf learns from it.
    pub fn arrive(&mut self, link: u32, place: u32, bytes: u32, way: Option<Pair>, arrived: bool, now_ps: u64) {
        let period = self.period(now_ps);
        let rate = &mut self.rates[link as usize];
        rate.add(bytes, period);
        let metric = rate.metric(period);
        let Some(way) = way.filter(|way| self.is_between_leaves(*way)) else { return };
        let Some(tag) = self.tags.get_mut(place as usize) else { return };
        tag.congestion = tag.congestion.max(metric);
        let tag = *tag;
        if !arrived || tag.uplink == NONE {
            return;
        }
        let here = Pair { at: way.to, to: way.at };
        let index = self.index(here, tag.uplink);
        let seen = &mut self.from[index];
        *seen = Seen { metric: tag.congestion, known: true, changed: seen.changed || !seen.known || seen.metric != tag.congestion };
        if tag.told_uplink != NONE {
            let index = self.index(here, tag.told_uplink);
            self.to[index] = Told { metric: tag.told, at_ps: now_ps };
        }
    }

    /// A packet is copied on a link, with its tag.
    pub fn copy(&mut self, from: u32, to: u32) {
        let Some(&tag) = self.tags.get(from as usize) else { return };
        if self.tags.len() <= to as usize {
            self.tags.resize(to as usize + 1, tag);
        }
        self.tags[to as usize] = tag;
    }
}

/// From where to where a packet goes, by the switches that its source and its destination hang on.
pub(crate) fn pair(routes: &Routes, source: u32, destination: u32) -> Pair {
    Pair { at: routes.attached(source), to: routes.attached(destination) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Purpose;
    use crate::setup::LinkSpeed;
    use crate::shape::Shape;
    use fanin_core::Duration;

    const US: u64 = 1_000_000;
    const TIMES: Conga = Conga { gap_ps: 50 * US, rate_ps: 160 * US, aging_ps: 10_000 * US };
    const THERE: Pair = Pair { at: 0, to: 1 };
    const BACK: Pair = Pair { at: 1, to: 0 };

    fn speed() -> LinkSpeed {
        LinkSpeed { bits_per_second: 100_000_000_000, latency: Duration::from_ns(300) }
    }

    /// Two leaves and four spines, and the uplinks of leaf 0.
    fn state() -> (CongaState, Vec<u32>) {
        let shape =
            Shape::FatTree2 { leaves: 2, hosts_per_leaf: 2, spines: 4, parallel_links: 1, host_link: speed(), fabric_link: speed() };
        let topology = Topology::new(&shape).unwrap();
        let routes = Routes::new(&topology);
        let (first, count) = routes.ways(4, 3);
        let links = (first..first + count).map(|place| routes.link(place)).collect();
        (CongaState::new(TIMES, &topology, Random::new(1, Purpose::Routing, 1)).unwrap(), links)
    }

    #[test]
    fn a_steady_rate_is_its_share_of_the_links_rate_and_fades_when_it_ends() {
        // 100 Gb/s are 2 MB in 160 us; 1250 bytes in each 0.1 us are full rate, in each 0.2 us half of it.
        let rate_after = |gap_ps: u64, silence_ps: u64| {
            let mut rate = Rate { capacity: 2_000_000, ..Rate::default() };
            let period = |now: u64| now / (TIMES.rate_ps / PERIODS);
            let end = 2_000 * US;
            (0..end / gap_ps).for_each(|packet| rate.add(1_250, period(packet * gap_ps)));
            (rate.at(period(end + silence_ps)) as f64 / 2e6, rate.metric(period(end + silence_ps)))
        };
        let (full, metric) = rate_after(US / 10, 0);
        assert!((0.85..1.01).contains(&full) && metric >= 6, "{full} {metric}");
        let (half, metric) = rate_after(US / 5, 0);
        assert!((0.42..0.51).contains(&half) && (3..=4).contains(&metric), "{half} {metric}");
        // After τ, (1 - 1/8)^8 = 0.34 of it is left.
        let (faded, _) = rate_after(US / 10, TIMES.rate_ps);
        assert!((faded / full - 0.344).abs() < 0.01, "{faded} of {full}");
        assert_eq!(rate_after(US / 10, 100 * TIMES.rate_ps).1, 0);
    }

    #[test]
    fn feedback_moves_the_next_flowlet_and_ages() {
        let (mut state, links) = state();
        // Leaf 1 tells leaf 0 that all ways but the third are at their limit.
        for uplink in [0, 1, 3] {
            state.tags = vec![Tag { uplink: 0, told_uplink: uplink, told: 7, congestion: 0 }];
            state.arrive(0, 0, 0, Some(BACK), true, US);
        }
        assert!((0..50).all(|flow| state.choose(THERE, flow, &links, |_| true, 2 * US) == links[2]));
        // Seven steps of aging later nothing is known any more, and old flows stay where they are.
        let later = 70_002 * US;
        assert!((0..50).all(|flow| state.choose(THERE, flow, &links, |_| true, later) == links[2]));
        let new: std::collections::BTreeSet<u32> = (50..100).map(|flow| state.choose(THERE, flow, &links, |_| true, later)).collect();
        assert_eq!(new.len(), 4);
    }

    #[test]
    fn a_flowlet_stays_until_it_pauses_and_moves_for_a_strictly_better_way_only() {
        let (mut state, links) = state();
        let first = state.choose(THERE, 7, &links, |_| true, US);
        let period = state.period(US);
        state.rates[first as usize].add(1_000_000, period);
        assert_eq!(state.choose(THERE, 7, &links, |_| true, 2 * US), first, "it has not paused");
        let second = state.choose(THERE, 7, &links, |_| true, 60 * US);
        assert_ne!(second, first, "its way is at half of its rate, others are free");
        assert_eq!(state.choose(THERE, 7, &links, |_| true, 1_000 * US), second, "others are as free as its own");
        assert_ne!(state.choose(THERE, 7, &links, |link| link != second, 1_001 * US), second, "a link that is down is left at once");
    }

    #[test]
    fn a_leaf_tells_in_turn_what_it_saw_and_changes_first() {
        let (mut state, links) = state();
        let see = |state: &mut CongaState, uplink: usize, congestion: u8| {
            state.tag(5, THERE, links[uplink]);
            state.tags[5].congestion = congestion;
            state.arrive(links[uplink], 5, 0, Some(THERE), true, US);
        };
        assert_eq!(state.next_to_tell(BACK), (NONE, 0), "nothing is known");
        (0..4).for_each(|uplink| see(&mut state, uplink, uplink as u8));
        let told: Vec<(u16, u8)> = (0..6).map(|_| state.next_to_tell(BACK)).collect();
        assert_eq!(told, [(0, 0), (1, 1), (2, 2), (3, 3), (0, 0), (1, 1)]);
        see(&mut state, 0, 6);
        assert_eq!([state.next_to_tell(BACK), state.next_to_tell(BACK)], [(0, 6), (1, 1)], "what has changed is told first");
    }

    #[test]
    fn other_networks_are_refused() {
        let tree = Topology::new(&Shape::FatTree3 { ports: 4, host_link: speed(), fabric_link: speed() }).unwrap();
        let said = leaves_and_spines(&tree).unwrap_err();
        assert!(said.ends_with("aggregation0 and core0 are joined"), "{said}");
    }
}
