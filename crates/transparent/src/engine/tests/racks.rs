//! Hosts behind several switches that sum together: a tree of them, and cables that lose, double and delay frames.

mod faults;
mod spines;

use super::*;
use crate::rdma::RdmaRing;
use crate::trunk::is_trunk;

/// Where a cable leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Host(usize),
    Switch(usize, usize),
}

/// A cable that is cut.
const NOWHERE: End = End::Host(usize::MAX);

/// Switches, each with its hosts, and the one above it.
pub(crate) struct Racks {
    pub switches: Vec<Switch>,
    cables: Vec<Vec<End>>,
    /// Where each host is.
    homes: Vec<(usize, usize)>,
    under_way: Vec<(u64, u64, End, Vec<u8>)>,
    pub now_us: u64,
    next_tick: u64,
    seed: u64,
    draws: u64,
    /// In 1024ths, on every cable.
    pub loss: u64,
    pub doubles: bool,
    /// A switch that hears nothing of what others say.
    pub deaf: Option<usize>,
    /// Bytes between switches: (from, to).
    pub between: HashMap<(usize, usize), u64>,
    /// Those over RDMA, by switch.
    pub rings: Vec<Vec<RdmaRing>>,
}

struct Out<'a>(&'a mut Vec<(usize, Vec<u8>)>);

impl Ports for Out<'_> {
    fn send(&mut self, port: usize, offload: &Offload, frame: &[u8]) {
        let mut wire = Wire::default();
        wire.send(port, offload, frame);
        self.0.append(&mut wire.0);
    }
}

impl Racks {
    /// `homes`: the switch of each host; `above`: the switch above each.
    pub fn new(seed: u64, homes: &[usize], above: &[Option<usize>], stream_bytes: usize) -> Self {
        Self::with_rdma(seed, homes, above, stream_bytes, vec![Vec::new(); above.len()])
    }

    /// The same, whose switches were told of these rings.
    pub fn with_rdma(seed: u64, homes: &[usize], above: &[Option<usize>], stream_bytes: usize, rings: Vec<Vec<RdmaRing>>) -> Self {
        let mut cables: Vec<Vec<End>> = vec![Vec::new(); above.len()];
        let mut places = Vec::new();
        for (host, &home) in homes.iter().enumerate() {
            places.push((home, cables[home].len()));
            cables[home].push(End::Host(host));
        }
        let mut uplinks = vec![None; above.len()];
        for (below, above) in above.iter().enumerate().filter_map(|(below, above)| Some((below, (*above)?))) {
            let (down, up) = (cables[above].len(), cables[below].len());
            cables[above].push(End::Switch(below, up));
            cables[below].push(End::Switch(above, down));
            uplinks[below] = Some(up);
        }
        let switches =
            (0..above.len()).map(|number| Self::switch(&cables, number, uplinks[number], stream_bytes, seed, &rings[number])).collect();
        let mut racks = Racks {
            switches,
            cables,
            homes: places,
            under_way: Vec::new(),
            now_us: 1_000,
            next_tick: 0,
            seed,
            draws: 0,
            loss: 0,
            doubles: false,
            deaf: None,
            between: HashMap::new(),
            rings,
        };
        // Switches find each other before there are workers.
        racks.pass(700_000);
        racks
    }

    fn switch(cables: &[Vec<End>], number: usize, uplink: Option<usize>, stream_bytes: usize, seed: u64, rings: &[RdmaRing]) -> Switch {
        let ports = cables[number].len();
        let identity = mix(seed, 0xf1_0000 + number as u64);
        let config = SwitchConfig { ports, stream_bytes, identity, uplink, rings_max: 16, ..SwitchConfig::default() };
        let mut switch = Switch::with_rdma(config, rings.to_vec()).unwrap();
        let names: Vec<String> = (0..ports).map(|port| format!("s{number}p{port}")).collect();
        switch.name_ports(names.iter().map(String::as_str));
        switch
    }

    /// A switch begins anew.
    pub fn restart(&mut self, number: usize, stream_bytes: usize) {
        let uplink = self.switches[number].config.uplink;
        self.seed += 1;
        self.switches[number] = Self::switch(&self.cables, number, uplink, stream_bytes, self.seed, &self.rings[number]);
    }

    pub fn draw(&mut self) -> u64 {
        self.draws += 1;
        mix(self.seed, self.draws)
    }

    pub fn instant(&self) -> Instant {
        Instant::from_ps(self.now_us * 1_000_000)
    }

    fn carry(&mut self, to: End, frame: &[u8]) {
        if to == NOWHERE {
            return;
        }
        let draw = self.draw();
        for copy in 0..1 + u64::from(self.doubles && draw >> 58 == 0) {
            if (draw >> (20 * copy)) & 0x3ff < self.loss {
                continue;
            }
            // A receiver would take a segment that others have overtaken for an old one (PAWS), and drop it.
            let overtakes = self.doubles && !matches!(to, End::Host(_));
            let delay = 20 + if overtakes && (draw >> 50) & 0xf == 0 { (draw >> 40) & 0x7f } else { 0 };
            self.under_way.push((self.now_us + delay, self.draws, to, frame.to_vec()));
        }
    }

    /// A host sends a frame.
    pub fn send(&mut self, host: usize, frame: &[u8]) {
        let (home, port) = self.homes[host];
        self.carry(End::Switch(home, port), frame);
    }

    fn leave(&mut self, from: usize, left: Vec<(usize, Vec<u8>)>) {
        for (port, frame) in left {
            let to = self.cables[from][port];
            if let End::Switch(to, _) = to {
                *self.between.entry((from, to)).or_default() += frame.len() as u64;
            }
            self.carry(to, &frame);
        }
    }

    /// A moment later: what has come to hosts.
    pub fn step(&mut self) -> Vec<(usize, Vec<u8>)> {
        self.now_us += 10;
        let now_us = self.now_us;
        let (mut due, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.under_way).into_iter().partition(|(at, ..)| *at <= now_us);
        self.under_way = later;
        due.sort_unstable_by_key(|(at, number, ..)| (*at, *number));
        let mut reached = Vec::new();
        let now = self.instant();
        for (_, _, to, mut frame) in due {
            match to {
                End::Host(host) => reached.push((host, frame)),
                End::Switch(number, _) if self.deaf == Some(number) && is_trunk(&frame) => {}
                End::Switch(number, port) => {
                    let mut left = Vec::new();
                    let switch = &mut self.switches[number];
                    switch.on_frame(now, port, Offload::default(), &mut frame, &mut Out(&mut left));
                    switch.settle(now, &mut Out(&mut left));
                    self.leave(number, left);
                }
            }
        }
        let ticks = self.now_us >= self.next_tick;
        if ticks {
            self.next_tick = self.now_us + 250_000;
        }
        for number in 0..self.switches.len() {
            let mut left = Vec::new();
            let switch = &mut self.switches[number];
            if ticks {
                switch.on_tick(now, &mut Out(&mut left));
                switch.on_rdma_tick(now, &mut Out(&mut left));
                switch.settle(now, &mut Out(&mut left));
            } else if switch.due().is_some_and(|due| now >= due) {
                switch.settle(now, &mut Out(&mut left));
            }
            self.leave(number, left);
        }
        assert!(reached.iter().all(|(_, frame)| frame[..6] == [0xff; 6] || !is_trunk(frame)), "no host hears what switches say");
        reached
    }

    pub fn pass(&mut self, microseconds: u64) -> Vec<(usize, Vec<u8>)> {
        let end = self.now_us + microseconds;
        let mut reached = Vec::new();
        while self.now_us < end {
            // Where nothing is under way, the next thing is a tick.
            if self.under_way.is_empty() && self.switches.iter().all(|switch| switch.due().is_none()) {
                self.now_us = self.now_us.max(self.next_tick.min(end));
            }
            reached.extend(self.step());
        }
        reached
    }

    /// The segments that open a connection; nothing of them is lost.
    pub fn open(&mut self, flow: Flow) {
        let (loss, doubles) = (std::mem::take(&mut self.loss), std::mem::take(&mut self.doubles));
        let syn = |tcp: &mut TcpHeader| (tcp.syn, tcp.ack, tcp.sequence_number) = (true, false, BASE.wrapping_sub(1));
        self.send(host(&flow.from), &frame(flow, &[], 1, syn));
        self.pass(400);
        let answer = |tcp: &mut TcpHeader| (tcp.syn, tcp.acknowledgment_number, tcp.sequence_number) = (true, BASE, 99);
        self.send(host(&flow.to), &frame(flow.reverse(), &[], 1, answer));
        self.pass(400);
        (self.loss, self.doubles) = (loss, doubles);
    }

    pub fn data(&mut self, flow: Flow, offset: usize, payload: &[u8], fin: bool) {
        // Of four microseconds: an hour is less than half of what a time counts.
        let time = (self.now_us / 4) as u32;
        let set = |tcp: &mut TcpHeader| {
            (tcp.sequence_number, tcp.acknowledgment_number, tcp.fin) = (BASE.wrapping_add(offset as u32), 100, fin);
        };
        self.send(host(&flow.from), &frame(flow, payload, time, set));
    }

    pub fn acknowledge(&mut self, flow: Flow, to: u64) {
        let set = |tcp: &mut TcpHeader| (tcp.sequence_number, tcp.acknowledgment_number) = (100, BASE.wrapping_add(to as u32));
        self.send(host(&flow.to), &frame(flow.reverse(), &[], 1, set));
    }
}

/// One ring of workers, each with what it sends and what its successor has got of it.
pub(super) struct Job {
    pub ring: u32,
    pub flows: Vec<Flow>,
    pub streams: Vec<Vec<u8>>,
    pub expected: Vec<u8>,
    pub receivers: Vec<Receiver>,
    /// What the workers were told, by rank of the one who receives it.
    pub told: Vec<Option<String>>,
    pub is_reset: Vec<bool>,
    pub most: usize,
    /// Whether receivers drop what is older than what they have, as kernels do (PAWS): nothing that is summed is.
    pub drops_old: bool,
    /// Whether workers send again what may have come, as kernels do that have heard no acknowledgement.
    pub goes_back: bool,
    /// Whether workers send whole elements only.
    pub is_even: bool,
}

impl Job {
    pub fn new(ring: u32, hosts: &[usize], port: u16, elements: &[usize]) -> Self {
        let world = hosts.len();
        let next = |rank: usize| hosts[(rank + 1) % world];
        let flows = (0..world).map(|rank| Flow { from: at(hosts[rank], port + rank as u16), to: at(next(rank), port - 1_000) }).collect();
        let expected = result(ring, world, elements);
        Job {
            ring,
            flows,
            streams: (0..world).map(|rank| stream(ring, rank, world, elements)).collect(),
            receivers: (0..world).map(|_| Receiver::new(expected.len())).collect(),
            expected,
            told: vec![None; world],
            is_reset: vec![false; world],
            most: 400,
            drops_old: false,
            goes_back: false,
            is_even: false,
        }
    }

    pub fn open(&self, racks: &mut Racks) {
        self.flows.iter().for_each(|flow| racks.open(*flow));
    }

    /// A rank sends something from where its receiver stands.
    pub fn speak(&self, racks: &mut Racks, draw: u64) {
        let rank = (draw >> 8) as usize % self.flows.len();
        if self.is_reset[rank] {
            return;
        }
        let acknowledged = self.receivers[rank].there.reach(0) as usize;
        let start = acknowledged + if draw & 3 == 0 { 0 } else { (draw >> 16) as usize % 1_500 };
        let back = if self.goes_back && draw & 12 == 0 { (draw >> 44) as usize % 600 } else { 0 };
        let start = start.min(self.expected.len()).saturating_sub(back);
        // Less than a header begins with, sent again, would be taken for something else.
        let end = (start + 8 + (draw >> 32) as usize % self.most).min(self.expected.len());
        let (start, end) = if self.is_even { (start / 8 * 8, end.next_multiple_of(8).min(self.expected.len())) } else { (start, end) };
        racks.data(self.flows[rank], start, &self.streams[rank][start..end], end == self.expected.len());
    }

    /// What has come to hosts: each byte of a result has to be right.
    pub fn take(&mut self, racks: &mut Racks, reached: &[(usize, Vec<u8>)]) {
        for (to, frame) in reached {
            let Some(segment) = Segment::parse(frame) else { continue };
            let back = self.flows.iter().position(|flow| flow.reverse() == segment.flow);
            if let Some(rank) = back {
                if let Some(why) = parse_reason(&frame[segment.payload()]) {
                    self.told[rank].get_or_insert(why);
                }
                self.is_reset[rank] |= segment.flags.rst;
                continue;
            }
            let Some(rank) = self.flows.iter().position(|flow| *flow == segment.flow).filter(|_| host(&segment.flow.to) == *to) else {
                continue;
            };
            if segment.flags.rst {
                self.is_reset[rank] = true;
            }
            if self.is_reset[rank] || segment.flags.syn || segment.payload_bytes() == 0 && !segment.flags.fin {
                continue;
            }
            let is_old = segment.time(frame).is_some_and(|time| (time.wrapping_sub(self.receivers[rank].time) as i32) < 0);
            if self.drops_old && is_old {
                continue;
            }
            self.receivers[rank].take(frame);
            let to = self.receivers[rank].there.reach(0);
            if !racks.draw().is_multiple_of(5) {
                racks.acknowledge(self.flows[rank], to);
            }
        }
    }

    pub fn is_done(&self) -> bool {
        self.receivers.iter().all(|receiver| receiver.ended)
    }

    pub fn check(&self, seed: u64) {
        for (rank, receiver) in self.receivers.iter().enumerate() {
            let first = receiver.bytes.iter().zip(&self.expected).position(|(got, expected)| got != expected);
            assert!(
                receiver.bytes == self.expected,
                "seed {seed}, ring {}: rank {rank}'s successor has others from byte {first:?} on",
                self.ring
            );
        }
    }
}

/// Runs jobs until all have ended well, and looks whether nothing of them is left.
fn run(racks: &mut Racks, jobs: &mut [Job], seed: u64) {
    let mut step = 0;
    while !jobs.iter().all(Job::is_done) {
        step += 1;
        let at: Vec<Vec<u64>> = jobs.iter().map(|job| job.receivers.iter().map(|receiver| receiver.there.reach(0)).collect()).collect();
        assert!(step < 150_000, "seed {seed} is stuck at {at:?}");
        assert!(jobs.iter().all(|job| job.told.iter().all(Option::is_none)), "seed {seed}: {:?} at {at:?}", jobs[0].told);
        let draw = racks.draw();
        jobs[step % jobs.len()].speak(racks, draw);
        let reached = racks.step();
        jobs.iter_mut().for_each(|job| job.take(racks, &reached));
    }
    jobs.iter().for_each(|job| job.check(seed));
    // The last acknowledgements, as often as it takes.
    racks.loss = 0;
    for _ in 0..3 {
        for job in &*jobs {
            job.flows.iter().for_each(|flow| racks.acknowledge(*flow, job.expected.len() as u64 + 1));
        }
        racks.pass(30_000);
    }
    for (number, switch) in racks.switches.iter().enumerate() {
        let statistics = switch.statistics();
        let left = (switch.rings.len(), switch.runs.len(), switch.held_bytes, statistics.rings_failed, statistics.trunk_strange);
        assert_eq!(left, (0, 0, 0, 0, 0), "seed {seed}: what is left at switch {number}: {:?}", switch.rings);
    }
}

/// Shapes of networks: the switch of each host, and the switch above each.
const SHAPES: [(&[usize], &[Option<usize>]); 7] = [
    (&[0, 0, 1, 1], &[None, Some(0)]),
    (&[1, 1, 0, 0, 1], &[None, Some(0)]),
    (&[0, 1, 0, 1], &[None, Some(0)]),
    (&[0, 1], &[None, Some(0)]),
    // A spine without workers, and three racks.
    (&[1, 1, 2, 2, 3, 3], &[None, Some(0), Some(0), Some(0)]),
    // One above the other above the third.
    (&[2, 2, 1, 0, 0], &[None, Some(0), Some(1)]),
    // Of three racks only two have workers of the ring: the switch that joins them is not at the top.
    (&[2, 2, 3, 3], &[None, Some(0), Some(1), Some(1)]),
];

#[test]
fn racks_of_workers_get_exact_sums_whatever_is_lost() {
    for seed in 0..56u64 {
        let (homes, above) = SHAPES[seed as usize % SHAPES.len()];
        let mut racks = Racks::new(seed, homes, above, 4_096);
        (racks.loss, racks.doubles) = ((seed / 7) % 4 * 25, seed >= 28);
        let hosts: Vec<usize> = (0..homes.len()).collect();
        let job = Job::new(5, &hosts, 8_000, &[301, 0, 7, 1_200]);
        job.open(&mut racks);
        run(&mut racks, &mut [job], seed);
    }
}

/// Several rings over the same cards, in one rack and in both, and a job of others beside them.
#[test]
fn several_rings_and_jobs_share_hosts_and_uplinks() {
    for seed in 0..8u64 {
        let mut racks = Racks::new(seed, &[0, 0, 1, 1, 1], &[None, Some(0)], 4_096);
        (racks.loss, racks.doubles) = (seed % 2 * 20, seed % 2 == 1);
        let all = [0, 1, 2, 3];
        let mut jobs = vec![
            Job::new(10, &all, 8_000, &[300, 40]),
            Job::new(11, &all, 8_100, &[280, 90]),
            Job::new(12, &all, 8_200, &[100]),
            // In another order, in one rack only, and with a host more.
            Job::new(20, &[3, 1, 0, 2], 8_300, &[350]),
            Job::new(21, &[0, 1], 8_400, &[222]),
            Job::new(22, &[4, 2, 3, 1, 0], 8_500, &[150, 3, 50]),
        ];
        jobs.iter().for_each(|job| job.open(&mut racks));
        run(&mut racks, &mut jobs, seed);
    }
}

#[test]
fn one_flow_a_direction_is_on_the_uplink_in_place_of_many() {
    // Every connection of the ring crosses the uplink: four a direction.
    let mut racks = Racks::new(3, &[0, 1, 0, 1, 0, 1, 0, 1], &[None, Some(0)], 1 << 16);
    let mut job = Job::new(5, &[0, 1, 2, 3, 4, 5, 6, 7], 8_000, &[12_000]);
    job.most = 1_448;
    job.open(&mut racks);
    racks.between.clear();
    let length = job.expected.len() as u64;
    // All of a rank's segments once, in their order: what the cables carry is what there is to carry.
    let mut at = 0;
    while at < length as usize {
        let end = (at + 1_448).min(length as usize);
        for rank in 0..8 {
            racks.data(job.flows[rank], at, &job.streams[rank][at..end], end == length as usize);
        }
        at = end;
        let reached = racks.pass(100);
        job.take(&mut racks, &reached);
    }
    let reached = racks.pass(1_000);
    job.take(&mut racks, &reached);
    job.check(3);
    let below = racks.switches[1].statistics();
    let above = racks.switches[0].statistics();
    assert_eq!((below.trunk_part_bytes, above.trunk_whole_bytes), (length, length), "the sum of a rack, and that of all, once");
    let segments = 4 * length.div_ceil(1_448);
    assert_eq!((below.trunk_segments, above.trunk_segments), (segments, segments), "headers of four connections a direction");
    // With all of these, acknowledgements and greetings.
    for (from, to) in [(0, 1), (1, 0)] {
        let bytes = racks.between[&(from, to)];
        assert!(bytes < length * 2, "{bytes} bytes from {from} to {to} for a stream of {length}");
    }
}
