//! What a run of a plan takes, as predicted: all links, of all jobs at once.
//!
//! A job asks for bytes on links ([`fanin_systems::demand`]). Each byte of payload brings its packet's frame with it. Jobs share links, and the
//! adders of switches, as a fluid ([`crate::fluid`]). Beside that, a job is no faster than its windows: a window of packets in a round trip, in
//! which a packet is sent, received and sent on at each hop. To the time that its bytes take comes what the first or last packet needs.

use fanin_plan::Prepared;
use fanin_sim::ways::Ways;
use fanin_systems::demand::{Demand, Leg, Round, WindowRule};
use fanin_systems::{SharpMode, System};

use crate::fluid::{self, Binding, Flow, Resource};

/// What a job is predicted to do.
#[derive(Clone, PartialEq, Debug)]
pub struct JobPrediction {
    /// Of its operation, in seconds.
    pub seconds: f64,
    /// Its vector over that time, in Gb/s.
    pub gbps: f64,
    /// What holds it up, by name.
    pub bound: String,
}

/// What all jobs are predicted to do.
#[derive(Clone, PartialEq, Debug)]
pub struct Prediction {
    /// By number of the run's jobs.
    pub jobs: Vec<JobPrediction>,
    /// Why this is no more than a guess, where something decides that the rules do not know; who wants to know simulates.
    pub unknown: Option<String>,
}

impl Prediction {
    /// What all jobs together reduce, in Gb/s.
    pub fn gbps(&self) -> f64 {
        self.jobs.iter().map(|job| job.gbps).sum()
    }
}

/// A packet without payload, as the simulator has it.
const CONTROL_BYTES: f64 = 84.0;

/// What is predicted of a run; `None` where a job's system has no rules, or cannot be in this network.
pub fn predict(prepared: &Prepared) -> Option<Prediction> {
    let network = &prepared.scenario.network;
    let model = Model {
        prepared,
        ways: Ways::new(&prepared.topology, network.collective_balancer, prepared.scenario.seed),
        adders: adders(prepared),
        frame: f64::from(network.frame_overhead_bytes),
    };
    let jobs: Vec<Asked> = (0..prepared.jobs.len()).map(|job| model.asked(job)).collect::<Option<_>>()?;
    Some(model.run(&jobs))
}

/// The window that keeps a job's links full, in packets: half as much again as is under way in an empty network in the round trip that needs
/// most. A longer one only waits in queues, and where several of them meet there they are longer than queues are.
pub fn window(prepared: &Prepared, number: usize) -> Option<u32> {
    let network = &prepared.scenario.network;
    let model = Model {
        prepared,
        ways: Ways::new(&prepared.topology, network.collective_balancer, prepared.scenario.seed),
        adders: adders(prepared),
        frame: f64::from(network.frame_overhead_bytes),
    };
    let asked = model.asked(number)?;
    let resources = model.resources();
    let fill = |(resource, load): &(usize, f64)| resources[*resource].capacity / load;
    let most = asked.loads.iter().map(fill).fold(f64::INFINITY, f64::min);
    let packets = asked.demand.rounds.iter().filter_map(|round| model.trip(round, number, asked.payload)).map(|trip| {
        let under_way = most * trip.share * trip.seconds / asked.payload;
        // A window may be one of several of a job's, each a part of it.
        let parts = (f64::from(prepared.jobs[number].settings.common.window.0) - asked.demand.answered_late) / trip.window;
        under_way * parts.max(1.0)
    });
    let needed = packets.fold(0.0, f64::max) * WINDOW_ROOM;
    Some((needed.ceil() as u32).clamp(WINDOW_LEAST, WINDOW_MOST) + asked.demand.answered_late as u32)
}

/// Half as much again as an empty network needs.
const WINDOW_ROOM: f64 = 1.5;
const WINDOW_LEAST: u32 = 16;
const WINDOW_MOST: u32 = 4_096;

/// By link: bits per second that the switch at its end adds, where that is bounded.
fn adders(prepared: &Prepared) -> Vec<Option<f64>> {
    let adding = prepared.adding();
    let at = |link: &fanin_sim::topology::Cable| adding.iter().find(|(switch, _)| *switch == link.to).map(|(_, rate)| *rate as f64);
    prepared.topology.links.iter().map(at).collect()
}

/// What of a full queue is a job's: of fixed windows, as much as is under way; of windows that marks make alike, the same for each.
fn weight(job: &Asked) -> f64 {
    let share = job.trip.share.max(1e-9);
    if job.demand.rule == WindowRule::Fixed { job.trip.window * job.payload / share } else { 1.0 / share }
}

/// What a job asks for, on the network's links.
struct Asked {
    demand: Demand,
    /// By resource.
    loads: Vec<(usize, f64)>,
    /// In packets and seconds, of the round trip that binds most.
    trip: Trip,
    payload: f64,
    bytes: f64,
    /// How many operations these are, one after the other.
    operations: f64,
    /// The time of all steps, of a packet in an empty network.
    chain: f64,
}

#[derive(Clone, Copy)]
struct Trip {
    seconds: f64,
    window: f64,
    share: f64,
}

impl Trip {
    /// Bytes of the vector a second.
    fn most(&self, payload: f64) -> f64 {
        if self.share > 0.0 { self.window * payload / (self.seconds * self.share) } else { f64::INFINITY }
    }
}

struct Model<'a> {
    prepared: &'a Prepared,
    ways: Ways<'a>,
    adders: Vec<Option<f64>>,
    frame: f64,
}

impl Model<'_> {
    /// The links of a leg with the share of the packets that each carries.
    fn links(&self, leg: &Leg, job: usize) -> Option<Vec<(u32, f64)>> {
        match *leg {
            Leg::Cable { from, port } => Some(self.ways.links(from, port)?.into_iter().map(|link| (link, 1.0)).collect()),
            Leg::Routed { from, to, by_first, without_last } => {
                let mut links = self.ways.of((from, to), (job as u32, job as u16), by_first)?;
                if without_last {
                    links.pop();
                }
                Some(links)
            }
        }
    }

    /// Seconds that a full packet takes on a leg where nothing else is.
    fn latency(&self, leg: &Leg, job: usize, payload: f64) -> Option<f64> {
        let bits = (payload + self.frame) * 8.0;
        let links = self.links(leg, job)?;
        let of = |(link, share): &(u32, f64)| {
            let speed = self.prepared.topology.links[*link as usize].speed;
            share * (bits / speed.bits_per_second as f64 + speed.latency.as_ps() as f64 * 1e-12)
        };
        let adds = links.last().and_then(|(link, _)| self.adders[*link as usize]).map_or(0.0, |rate| payload * 8.0 / rate);
        Some(links.iter().map(of).sum::<f64>() + adds)
    }

    fn asked(&self, number: usize) -> Option<Asked> {
        let spec = self.prepared.spec(number);
        let demand = spec.demand(&self.prepared.topology.map).ok().flatten()?;
        let payload = f64::from(spec.payload_bytes);
        let schedule = &self.prepared.scenario.jobs[number];
        let bytes = schedule.elements.iter().sum::<u64>() as f64 * f64::from(schedule.element_bytes);
        let links = self.prepared.topology.links.len();
        let mut loads = vec![0.0; 2 * links];
        for stream in &demand.streams {
            let found = self.links(&stream.leg, number)?;
            for (link, share) in &found {
                let frames = stream.share * (payload + self.frame) + stream.control * CONTROL_BYTES;
                loads[*link as usize] += share * frames * 8.0 / payload;
            }
            if let Some((link, _)) = found.last().filter(|(link, _)| stream.is_added && self.adders[*link as usize].is_some()) {
                loads[links + *link as usize] += stream.share * 8.0;
            }
        }
        let loads = loads.into_iter().enumerate().filter(|(_, load)| *load > 0.0).collect();
        let trips = demand.rounds.iter().map(|round| self.trip(round, number, payload)).collect::<Option<Vec<_>>>()?;
        let none = Trip { seconds: 0.0, window: 1.0, share: 0.0 };
        let trip = trips.into_iter().min_by(|a, b| a.most(payload).total_cmp(&b.most(payload))).unwrap_or(none);
        let lap = demand.step_legs.iter().map(|leg| self.latency(leg, number, payload)).sum::<Option<f64>>()?;
        let laps = f64::from(demand.steps) / (demand.rounds.len().max(1) as f64);
        let chain = if demand.steps > 0 { lap * laps + f64::from(demand.steps) * demand.step_ps as f64 * 1e-12 } else { trip.seconds };
        let operations = schedule.elements.len().max(1) as f64;
        Some(Asked { demand, loads, trip, payload, bytes, operations, chain })
    }

    fn trip(&self, round: &Round, job: usize, payload: f64) -> Option<Trip> {
        let legs = round.legs.iter().map(|leg| self.latency(leg, job, payload)).sum::<Option<f64>>()?;
        Some(Trip { seconds: legs + round.waits_ps as f64 * 1e-12, window: round.window, share: round.share })
    }

    fn resources(&self) -> Vec<Resource> {
        let links = &self.prepared.topology.links;
        let rates = links.iter().map(|link| Resource { capacity: link.speed.bits_per_second as f64 });
        let adders = self.adders.iter().map(|rate| Resource { capacity: rate.unwrap_or(f64::INFINITY) });
        rates.chain(adders).collect()
    }

    fn run(&self, jobs: &[Asked]) -> Prediction {
        let resources = self.resources();
        let start = |number: usize| {
            let starts = self.prepared.scenario.jobs[number].start.iter();
            starts.map(|at| at.as_ps() as f64 * 1e-12).fold(f64::INFINITY, f64::min)
        };
        let of = |(number, job): (usize, &Asked)| Flow {
            loads: job.loads.clone(),
            most: job.trip.most(job.payload),
            weight: weight(job),
            bytes: job.bytes.max(1.0),
            start: start(number),
        };
        let mut flows: Vec<Flow> = jobs.iter().enumerate().map(of).collect();
        let together = fluid::rates(&resources, &flows.iter().collect::<Vec<_>>());
        for ((flow, job), (rate, binding)) in flows.iter_mut().zip(jobs).zip(&together) {
            let slowed = self.slowed(job, *rate, *binding, &resources);
            // Windows that grow, or are halved, leave gaps: what others use of a link does not change by that.
            flow.most = flow.most.min(rate * slowed);
        }
        let ended = fluid::run(&resources, &flows);
        let found = jobs.iter().zip(&flows).zip(&ended).zip(&together).map(|(((job, flow), ended), (_, binding))| {
            let seconds = self.seconds(job, (ended.at - flow.start) / job.operations);
            let what = if ended.binding == Binding::Own { *binding } else { ended.binding };
            let gbps = job.bytes / job.operations * 8e-9 / seconds;
            JobPrediction { seconds, gbps, bound: self.bound(job, what, seconds) }
        });
        Prediction { jobs: found.collect(), unknown: self.unknown(jobs, &together, &resources) }
    }

    /// The time of an operation whose bytes take so long.
    fn seconds(&self, job: &Asked, data: f64) -> f64 {
        if job.demand.steps == 0 {
            return data + job.chain;
        }
        // A piece goes round the ring before the next one is let in; where pieces do not fill the ring, all wait for the last step of each.
        let turns = data / job.chain;
        if turns <= 1.0 { job.chain + data / f64::from(job.demand.steps) } else { data + job.chain * 0.5 }
    }

    /// The share of its rate that windows which begin small, and are made smaller by marks, let a job use.
    fn slowed(&self, job: &Asked, rate: f64, binding: Binding, resources: &[Resource]) -> f64 {
        let (first, increase, halves) = match job.demand.rule {
            WindowRule::Fixed => return 1.0,
            WindowRule::Halved { first, increase } => (first, increase, true),
            WindowRule::ByShare { first } => (first, 1.0, false),
        };
        let Trip { seconds, window, share } = job.trip;
        let marks = self.prepared.scenario.network.ecn_mark_bytes;
        let full = if let Binding::Full(resource) = binding { resources[resource].capacity } else { f64::INFINITY };
        let queue = if marks == u64::MAX { f64::INFINITY } else { marks as f64 * 8.0 / full };
        let (mut now, mut done, mut size, mut alpha) = (0.0, 0.0, first.max(1.0), 1.0);
        while done < job.bytes && share > 0.0 {
            let needs = size * job.payload / (share * rate);
            let round = seconds.max(needs);
            (now, done) = (now + round, done + size * job.payload / share);
            let is_marked = full.is_finite() && needs > seconds + queue;
            let over = if is_marked { ((needs - seconds - queue) / needs).clamp(0.0, 1.0) } else { 0.0 };
            alpha += (over - alpha) / 16.0;
            size = match (is_marked, halves) {
                (true, true) => size / 2.0,
                (true, false) => size * (1.0 - alpha / 2.0),
                (false, _) => size + increase,
            };
            size = size.clamp(1.0, window.max(1.0));
        }
        let least = job.bytes / rate;
        if now > 0.0 { (least / now).min(1.0) } else { 1.0 }
    }

    fn bound(&self, job: &Asked, binding: Binding, seconds: f64) -> String {
        let links = &self.prepared.topology.links;
        let name = |link: usize| {
            let cable = &links[link];
            (self.prepared.topology.name(cable.from), self.prepared.topology.name(cable.to))
        };
        match binding {
            _ if job.demand.steps > 0 && job.chain > seconds * 0.5 => format!("{} steps, one after the other", job.demand.steps),
            Binding::Full(one) if one < links.len() => {
                let (from, to) = name(one);
                format!("the link from {from} to {to}, {} Gb/s", links[one].speed.bits_per_second as f64 / 1e9)
            }
            Binding::Full(one) => {
                let (from, to) = name(one - links.len());
                format!("how fast {to} adds what comes from {from}, {} Gb/s", self.adders[one - links.len()].unwrap_or(0.0) / 1e9)
            }
            Binding::Own => format!("the window of {} packets in {:.1} us", job.trip.window as u64, job.trip.seconds * 1e6),
        }
    }

    /// What the rules do not know of these jobs.
    fn unknown(&self, jobs: &[Asked], together: &[(f64, Binding)], resources: &[Resource]) -> Option<String> {
        let queue = self.prepared.scenario.network.queue_bytes as f64;
        for (number, (job, (rate, binding))) in jobs.iter().zip(together).enumerate() {
            let Binding::Full(resource) = *binding else { continue };
            let is_marked = self.prepared.scenario.network.ecn_mark_bytes != u64::MAX;
            if job.trip.share > 0.0 && (job.demand.rule == WindowRule::Fixed || !is_marked) {
                let waits = job.trip.window * job.payload / (job.trip.share * rate) - job.trip.seconds;
                if waits * resources[resource].capacity / 8.0 > queue {
                    return Some(format!("job {number}: windows are longer than queues, so packets are lost"));
                }
            }
            let sums = matches!(self.prepared.jobs[number].system, System::Atp(_) | System::A2tp(_));
            if sums && !self.is_next_to_a_host(resource) {
                return Some("marks between switches halve the windows of some of the flows that meet there, and not of others".into());
            }
        }
        self.unknown_of_systems()
    }

    /// Whether a link, or the adder behind it, is next to a host.
    fn is_next_to_a_host(&self, resource: usize) -> bool {
        let (links, map) = (&self.prepared.topology.links, &self.prepared.topology.map);
        let cable = &links[resource % links.len()];
        map.is_host(cable.from) || map.is_host(cable.to)
    }

    fn unknown_of_systems(&self) -> Option<String> {
        let jobs = &self.prepared.jobs;
        let sharp = jobs.iter().filter(|job| matches!(&job.system, System::Sharp(of) if of.mode == SharpMode::Streaming)).count();
        let canary = jobs.iter().filter(|job| matches!(&job.system, System::Canary(_))).count();
        let rina = jobs.iter().any(|job| matches!(&job.system, System::Rina(_)));
        let why = match () {
            () if sharp > 1 => "one job at a time streams through a switch; who is refused is a matter of who comes first",
            () if canary > 1 => "queues of other jobs keep contributions apart for longer than canary's switches wait for them",
            () if rina => "windows of rina's results begin with ten packets, and grow as its sums leave them room",
            () => return None,
        };
        Some(why.to_string())
    }
}
