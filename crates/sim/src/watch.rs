//! Blocks of one collective, and queues of some links over time, for whoever wants to see them.
//!
//! What is kept is bounded: of blocks the first [`BLOCKS_MAX`], each at each rank counted by itself; of queues the longest in each of at most
//! [`ROWS_MAX`] intervals of all links together, or [`SAMPLES_MIN`] of each: whenever there would be more, two intervals become one. A run is
//! the same as without.

use std::collections::BTreeMap;

use fanin_core::{Instant, Piece};

/// Blocks that are kept at most, each at each rank counted by itself.
pub const BLOCKS_MAX: usize = 1 << 17;
/// Intervals times links that are kept at most.
pub const ROWS_MAX: usize = 1 << 16;
/// Intervals that are kept in any case.
pub const SAMPLES_MIN: usize = 512;
/// The first interval of queues.
const INTERVAL_PS: u64 = 100_000;

/// What is looked at.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WatchConfig {
    /// Blocks of this collective.
    pub blocks: Option<BlocksOf>,
    /// Queues before these links, by their numbers as in [`Topology::links`](crate::Topology::links).
    pub links: Vec<u32>,
    /// Intervals that are kept at most; `None` for [`ROWS_MAX`] of all links together, or [`SAMPLES_MIN`] of each. At least 2.
    pub intervals_max: Option<usize>,
}

/// A collective.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlocksOf {
    /// The job of the network.
    pub job: u16,
    /// Its operation, from 0.
    pub operation: u32,
}

/// A block of a collective at a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockSpan {
    /// The rank in the job of the network.
    pub rank: u32,
    /// The block's number: that of its piece of the vector.
    pub index: u32,
    /// When the rank sent its first packet of it; `None` where it sends none.
    pub begun: Option<Instant>,
    /// When the rank had its result; `None` where it gets none, or the run ended before.
    pub ended: Option<Instant>,
}

/// Queues in an interval, which begins where the one before it ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueSample {
    /// The interval's end.
    pub until: Instant,
    /// In the order of [`WatchConfig::links`]: the most bytes that were queued, what was being sent included.
    pub bytes: Vec<u64>,
    /// In the same order: bytes that were sent from the run's beginning to the interval's end.
    pub sent: Vec<u64>,
    /// By switch, in the order of their numbers: bytes of its memory in use at the interval's end.
    pub slots: Vec<u64>,
}

/// What was seen.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Watched {
    /// By rank and block.
    pub blocks: Vec<BlockSpan>,
    /// Blocks at ranks for which there was no room.
    pub blocks_left_out: u64,
    /// Over time.
    pub queues: Vec<QueueSample>,
}

/// The longest queue before a cable since somebody asked last: in bytes, and as the time that it takes to send it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peak {
    pub bytes: u64,
    pub ps: u64,
    /// Bytes that have been sent since the run's beginning.
    pub sent: u64,
}

/// Looks during a run.
#[derive(Debug)]
pub(crate) struct Watcher {
    config: WatchConfig,
    /// By rank and block: when it began and ended.
    blocks: BTreeMap<(u32, u32), (Option<u64>, Option<u64>)>,
    blocks_left_out: u64,
    blocks_max: usize,
    /// In a part of a network, in the order in which blocks came: when and with which event, rank and block.
    came: Option<Vec<Came>>,
    interval_ps: u64,
    /// Queues are looked at, if not in this part of the network.
    has_queues: bool,
    /// The switches of this part of the network; `None` for all.
    switches: Option<Vec<u32>>,
    /// When the next interval ends; `u64::MAX` without links.
    pub next_ps: u64,
    /// By interval: its end.
    times: Vec<u64>,
    /// By interval and link.
    bytes: Vec<u64>,
    sent: Vec<u64>,
    /// By interval: of each switch.
    slots: Vec<Vec<u64>>,
    intervals_max: usize,
    /// By link: the longest queue of the intervals before.
    longest_ps: Vec<u64>,
}

/// A block that has come to be looked at: the time, the event's number in the whole network; rank and block.
type Came = ((u64, u32), (u32, u32));

impl Watcher {
    pub fn new(config: WatchConfig) -> Self {
        let links = config.links.len();
        Watcher {
            blocks: BTreeMap::new(),
            blocks_left_out: 0,
            blocks_max: BLOCKS_MAX,
            came: None,
            has_queues: links > 0,
            switches: None,
            interval_ps: INTERVAL_PS,
            next_ps: if links == 0 { u64::MAX } else { INTERVAL_PS },
            times: Vec::new(),
            bytes: Vec::new(),
            sent: Vec::new(),
            slots: Vec::new(),
            intervals_max: config.intervals_max.map_or((ROWS_MAX / links.max(1)).max(SAMPLES_MIN), |most| most.max(2)),
            longest_ps: vec![0; links],
            config,
        }
    }

    /// Whether blocks of this operation are looked at.
    pub fn looks_at(&self, job: u16, operation: u32) -> bool {
        self.config.blocks == Some(BlocksOf { job, operation })
    }

    /// The same for a part of the network, whose links and switches these are.
    pub fn of_part(&self, is_link_here: impl Fn(u32) -> bool, switches: Vec<u32>) -> Self {
        let links = self.config.links.iter().copied().filter(|link| is_link_here(*link)).collect();
        let (has_queues, next_ps, intervals_max) = (self.has_queues, self.next_ps, self.intervals_max);
        let own = Watcher::new(WatchConfig { links, ..self.config.clone() });
        Watcher { came: Some(Vec::new()), switches: Some(switches), has_queues, next_ps, intervals_max, ..own }
    }

    /// A rank sends a packet of a piece, or has its result, now and with this event.
    pub fn note(&mut self, (now_ps, event): (u64, u32), rank: u32, piece: Piece, is_result: bool) {
        if self.config.blocks.is_none_or(|blocks| blocks.operation != piece.operation.0) {
            return;
        }
        let key = (rank, piece.index);
        if self.blocks.len() >= self.blocks_max && !self.blocks.contains_key(&key) {
            // A block's result comes once, its packets perhaps several times.
            self.blocks_left_out += u64::from(is_result);
            return;
        }
        if let Some(came) = self.came.as_mut().filter(|_| !self.blocks.contains_key(&key)) {
            came.push(((now_ps, event), key));
        }
        let (begun, ended) = self.blocks.entry(key).or_default();
        let time = if is_result { ended } else { begun };
        time.get_or_insert(now_ps);
    }

    /// Which links are looked at.
    pub fn links(&self) -> &[u32] {
        &self.config.links
    }

    /// An interval ends at `at_ps`, in which these were the longest queues; switches have these bytes in use.
    pub fn sample(&mut self, at_ps: u64, peaks: &[Peak], slots: Vec<u64>) {
        let slots = match &self.switches {
            None => slots,
            Some(switches) => switches.iter().map(|switch| slots[*switch as usize]).collect(),
        };
        for (peak, longest_ps) in peaks.iter().zip(&mut self.longest_ps) {
            *longest_ps = (*longest_ps).max(peak.ps);
            self.bytes.push(peak.bytes);
            self.sent.push(peak.sent);
        }
        self.times.push(at_ps);
        self.slots.push(slots);
        if self.times.len() + 1 > self.intervals_max {
            self.join();
        }
        self.next_ps = at_ps.saturating_add(self.interval_ps);
    }

    /// Whether an interval has begun that ends with the run.
    pub fn is_open(&self, end_ps: u64) -> bool {
        self.times.last().is_none_or(|last| *last < end_ps) && self.has_queues
    }

    /// By link: the longest queue of all intervals, as the time that it takes to send it.
    pub fn longest_ps(&self) -> &[u64] {
        &self.longest_ps
    }

    /// Two intervals become one.
    fn join(&mut self) {
        // Without links there are no rows to join.
        let links = self.longest_ps.len().max(1);
        let pairs = self.bytes.chunks(2 * links).flat_map(|pair| {
            let (first, second) = pair.split_at(links);
            first.iter().enumerate().map(|(link, bytes)| second.get(link).map_or(*bytes, |other| (*bytes).max(*other))).collect::<Vec<_>>()
        });
        self.bytes = pairs.collect();
        self.sent = self.sent.chunks(2 * links).flat_map(|pair| pair[pair.len() - links..].to_vec()).collect();
        self.slots = std::mem::take(&mut self.slots).chunks_mut(2).filter_map(|pair| pair.last_mut().map(std::mem::take)).collect();
        self.times = self.times.chunks(2).filter_map(|pair| pair.last().copied()).collect();
        self.interval_ps = self.interval_ps.saturating_mul(2);
    }

    /// What was seen.
    pub fn finish(self) -> Watched {
        let at = |ps: Option<u64>| ps.map(Instant::from_ps);
        let span = |((rank, index), (begun, ended))| BlockSpan { rank, index, begun: at(begun), ended: at(ended) };
        let links = self.longest_ps.len().max(1);
        let mut of_links = self.bytes.chunks(links).zip(self.sent.chunks(links));
        let mut queues = Vec::with_capacity(self.times.len());
        for (until, slots) in self.times.into_iter().zip(self.slots) {
            let (bytes, sent) = of_links.next().unwrap_or_default();
            queues.push(QueueSample { until: Instant::from_ps(until), bytes: bytes.to_vec(), sent: sent.to_vec(), slots });
        }
        Watched { queues, blocks: self.blocks.into_iter().map(span).collect(), blocks_left_out: self.blocks_left_out }
    }
}

/// What the parts of a network have seen, as if one had looked at all of it: [`Watcher::of_part`] of each in their order. `None` where they have
/// not looked at the same times.
pub(crate) fn gather(whole: &Watcher, mut parts: Vec<Watcher>, switches: usize) -> Option<Watched> {
    let (mut blocks, mut blocks_left_out) = (BTreeMap::new(), 0);
    let came = parts.iter_mut().flat_map(|part| in_order(part.came.take().unwrap_or_default()));
    let mut came: Vec<Came> = came.collect();
    for part in &mut parts {
        blocks.append(&mut part.blocks);
        blocks_left_out += part.blocks_left_out;
    }
    // Workers that begin at one time do so with one event, one rank after the other.
    came.sort_by_key(|((time_ps, event), (rank, _))| (*time_ps, *event, *rank));
    for (_, key) in came.into_iter().skip(whole.blocks_max) {
        let result = blocks.remove(&key).and_then(|(_, ended)| ended);
        blocks_left_out += u64::from(result.is_some());
    }
    let mut gathered = Watcher { blocks, blocks_left_out, ..Watcher::new(whole.config.clone()) };
    gathered.times = std::mem::take(&mut parts.first_mut()?.times);
    if parts[1..].iter().any(|part| part.times != gathered.times) {
        return None;
    }
    // By link and by switch: which part has it, and where.
    let places = |all: &[u32], of: &dyn Fn(&Watcher) -> &[u32]| -> Option<Vec<(usize, usize)>> {
        let mut next = vec![0; parts.len()];
        let place = |number: &u32| {
            let part = (0..parts.len()).find(|part| of(&parts[*part]).get(next[*part]) == Some(number))?;
            next[part] += 1;
            Some((part, next[part] - 1))
        };
        all.iter().map(place).collect()
    };
    let all_switches: Vec<u32> = (0..switches as u32).collect();
    let of_links = places(&whole.config.links, &|part| &part.config.links)?;
    let of_switches = places(&all_switches, &|part| part.switches.as_deref().unwrap_or_default())?;
    for interval in 0..gathered.times.len() {
        let row = |values: &dyn Fn(&Watcher) -> &[u64]| -> Vec<u64> {
            let value = |(part, place): &(usize, usize)| {
                let part: &Watcher = &parts[*part];
                values(part)[interval * part.longest_ps.len() + place]
            };
            of_links.iter().map(value).collect()
        };
        gathered.bytes.extend(row(&|part| &part.bytes));
        gathered.sent.extend(row(&|part| &part.sent));
        gathered.slots.push(of_switches.iter().map(|(part, place)| parts[*part].slots[interval][*place]).collect());
    }
    Some(gathered.finish())
}

/// What one part has noted. An event that another one of the same time has brought about comes after it, whatever its number.
fn in_order(mut came: Vec<Came>) -> Vec<Came> {
    let mut last = (0, 0);
    for (at, _) in &mut came {
        *at = (*at).max(last);
        last = *at;
    }
    came
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanin_core::OperationId;

    #[test]
    fn blocks_are_bounded_and_those_left_out_are_counted() {
        let mut watcher =
            Watcher::new(WatchConfig { blocks: Some(BlocksOf { job: 3, operation: 1 }), links: Vec::new(), intervals_max: None });
        watcher.blocks_max = 2;
        assert!(watcher.looks_at(3, 1) && !watcher.looks_at(3, 0) && !watcher.looks_at(2, 1));
        let piece = |operation, index| Piece { operation: OperationId(operation), index, start: 0, elements: 1 };
        watcher.note((5, 0), 0, piece(0, 0), false);
        for index in 0..3 {
            watcher.note((10 + u64::from(index), 0), 0, piece(1, index), false);
            // It is sent again, and answered twice.
            watcher.note((20, 0), 0, piece(1, index), false);
            watcher.note((30, 0), 0, piece(1, index), true);
        }
        watcher.note((40, 0), 0, piece(1, 1), true);
        let watched = watcher.finish();
        let at = |ps| Some(Instant::from_ps(ps));
        let span = |index, begun, ended| BlockSpan { rank: 0, index, begun: at(begun), ended: at(ended) };
        assert_eq!((watched.blocks, watched.blocks_left_out), (vec![span(0, 10, 30), span(1, 11, 30)], 1));
        assert_eq!(watched.queues, []);
    }

    #[test]
    fn intervals_become_longer_where_there_are_many_and_keep_the_longest_queue() {
        let mut watcher = Watcher::new(WatchConfig { blocks: None, links: vec![0, 1], intervals_max: None });
        watcher.intervals_max = 3;
        // Three intervals of two links fit.
        for (number, bytes) in [[1, 9], [4, 2], [3, 3], [7, 1], [2, 8]].into_iter().enumerate() {
            watcher.bytes.extend(bytes);
            watcher.sent.extend([10 * number as u64, number as u64]);
            watcher.slots.push(vec![number as u64]);
            watcher.times.push(10 * (number as u64 + 1));
            if watcher.times.len() + 1 > watcher.intervals_max {
                watcher.join();
            }
        }
        // The first two with the third by itself; those two with the fourth by itself; those two with the fifth by itself.
        assert_eq!((&watcher.times[..], &watcher.bytes[..]), (&[40, 50][..], &[7, 9, 2, 8][..]));
        assert_eq!(watcher.interval_ps, 8 * INTERVAL_PS);
        // What was sent until then, and what is in use then, is that of the last one.
        assert_eq!((&watcher.sent[..], &watcher.slots[..]), (&[30, 3, 40, 4][..], &[vec![3], vec![4]][..]));
    }

    /// Three parts see what one sees: four ranks, six links and four switches, more blocks than are kept, more intervals than are kept.
    #[test]
    fn parts_see_together_what_one_sees() {
        let config = WatchConfig { blocks: Some(BlocksOf { job: 0, operation: 0 }), links: vec![5, 0, 3, 1, 4, 2], intervals_max: Some(4) };
        for blocks_max in [7, 100] {
            let part_of = |number: u32| number as usize % 3;
            let mut whole = Watcher { blocks_max, ..Watcher::new(config.clone()) };
            let of_part = |part: usize| {
                let switches = (0..4).filter(|switch| part_of(*switch) == part).collect();
                Watcher { blocks_max, ..whole.of_part(|link| part_of(link) == part, switches) }
            };
            let mut parts: Vec<Watcher> = (0..3).map(of_part).collect();
            for time in 0..13u64 {
                // All ranks begin with one event; later each has events of its own, by numbers that go the other way.
                let order: Vec<u32> = if time == 0 { (0..4).collect() } else { (0..4).rev().collect() };
                for rank in order {
                    let event = if time == 0 { 9 } else { 3 - rank };
                    let piece = Piece { operation: OperationId(0), index: (time / 2) as u32, start: 0, elements: 1 };
                    for watcher in [&mut parts[part_of(rank)], &mut whole] {
                        watcher.note((time, event), rank, piece, time % 2 == 1);
                    }
                }
                let peak = |link: &u32| Peak {
                    bytes: time * 7 % 11 + u64::from(*link),
                    ps: u64::from(*link) + time,
                    sent: time * u64::from(*link),
                };
                let slots: Vec<u64> = (0..4).map(|switch| 10 * time + switch).collect();
                for watcher in parts.iter_mut().chain([&mut whole]) {
                    let peaks: Vec<Peak> = watcher.links().iter().map(peak).collect();
                    watcher.sample(time + 1, &peaks, slots.clone());
                }
            }
            let longest: Vec<u64> = parts.iter().flat_map(|part| part.longest_ps().to_vec()).collect();
            let gathered = gather(&whole, parts, 4).unwrap();
            let (mut all, mut of_parts) = (whole.longest_ps().to_vec(), longest);
            all.sort_unstable();
            of_parts.sort_unstable();
            assert_eq!(of_parts, all);
            let expected = whole.finish();
            assert_eq!(gathered, expected);
            assert_eq!((expected.blocks.len() == 7, expected.blocks_left_out > 0), (blocks_max == 7, blocks_max == 7));
            assert!((2..=4).contains(&expected.queues.len()), "{}", expected.queues.len());
        }
    }
}
