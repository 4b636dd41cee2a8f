//! Load balancers, traffic and noise from elsewhere: a plan reads their keys, and where they decide what a built-in one would, runs are the same.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use fanin_core::{Duration, Instant, NetworkMap, NodeId};
use fanin_plan::own::{BALANCERS, NOISES, PATTERNS, register_balancer, register_noise, register_traffic};
use fanin_plan::run::{check, run};
use fanin_plan::{Plan, PlanError};
use fanin_sim::noise::own::{Late, OwnNoise};
use fanin_sim::own::Refusal;
use fanin_sim::random::Random;
use fanin_sim::routing::own::{Choose, OwnBalancer, Passing, Ways};
use fanin_sim::traffic::own::{Among, Message, OwnPattern};
use serde::{Deserialize, Serialize};

/// The destination's default way; where `spread` is above 0, the one that the packet's first switch draws.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Modulo {
    spread: u32,
    pause_ps: u64,
}

#[derive(Debug)]
struct ModuloSwitch {
    spread: u32,
    random: Random,
}

impl OwnBalancer for Modulo {
    const NAME: &'static str = "modulo";
    const LOOKS_AT_ARRIVALS: bool = true;
    type Switch = ModuloSwitch;

    fn check(&self, _map: &NetworkMap) -> Result<(), Refusal> {
        if self.spread > 100 { Err(Refusal::new("spread", self.spread, "at most 100")) } else { Ok(()) }
    }

    fn switch(&self, _at: NodeId, _map: &NetworkMap, random: Random) -> ModuloSwitch {
        ModuloSwitch { spread: self.spread, random }
    }
}

/// Packets that came to their last switch with what their first one wrote on them.
static CARRIED: AtomicU64 = AtomicU64::new(0);

impl Choose for ModuloSwitch {
    fn choose(&mut self, packet: &mut Passing, ways: &Ways<'_>) -> u32 {
        assert!((0..ways.count()).all(|way| ways.queue(way).is_up));
        assert_eq!(packet.tag, 0, "several ways lead on from a packet's first switch only");
        packet.tag = u64::from(packet.source.0) << 32 | u64::from(packet.destination.0);
        let drawn = if self.spread > 0 { self.random.below(self.spread) } else { 0 };
        (packet.destination.0 + drawn) % ways.count()
    }

    fn arrive(&mut self, packet: &mut Passing) {
        assert!(!packet.first, "{packet:?}");
        if packet.tag != 0 {
            assert_eq!(packet.tag, u64::from(packet.source.0) << 32 | u64::from(packet.destination.0));
            CARRIED.fetch_add(u64::from(packet.last), Ordering::Relaxed);
        }
    }
}

/// Every host sends to the next one, so many times, one after the other.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Rounds {
    rounds: u64,
    every_ps: u64,
    size_bytes: u64,
    /// Makes a message that cannot be.
    broken: bool,
}

impl Default for Rounds {
    fn default() -> Self {
        Rounds { rounds: 3, every_ps: 1_000_000, size_bytes: 5_000, broken: false }
    }
}

#[derive(Debug)]
struct RoundsMessages {
    config: Rounds,
    hosts: Vec<NodeId>,
    start: Instant,
    next: u64,
}

impl Iterator for RoundsMessages {
    type Item = Message;

    fn next(&mut self) -> Option<Message> {
        let (count, number) = (self.hosts.len() as u64, self.next);
        self.next += 1;
        let host = |number: u64| self.hosts[(number % count) as usize];
        let at = self.start + Duration::from_ps(number / count * self.config.every_ps);
        let to = host(number + u64::from(!self.config.broken));
        (number < count * self.config.rounds).then(|| Message { at, from: host(number), to, bytes: self.config.size_bytes })
    }
}

impl OwnPattern for Rounds {
    const NAME: &'static str = "rounds";
    type Messages = RoundsMessages;

    fn check(&self, among: &Among<'_>) -> Result<(), Refusal> {
        assert!(among.link_bits_per_second == vec![100_000_000_000; among.hosts.len()] && among.wire_bytes(2_050) == 2 * 1_081 + 84);
        if self.rounds == 0 { Err(Refusal::new("rounds", 0, "1 or more")) } else { Ok(()) }
    }

    fn messages(&self, among: &Among<'_>, _random: Random) -> RoundsMessages {
        RoundsMessages { config: *self, hosts: among.hosts.to_vec(), start: among.start, next: 0 }
    }
}

/// Always so late.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Still {
    by_ps: u64,
}

impl OwnNoise for Still {
    const NAME: &'static str = "still";
    type Host = Still;

    fn check(&self) -> Result<(), Refusal> {
        if self.by_ps == 0 { Err(Refusal::new("by", 0, "more than 0")) } else { Ok(()) }
    }

    fn host(&self, _host: NodeId, _random: Random) -> Still {
        *self
    }
}

impl Late for Still {
    fn late(&mut self, _now: Instant) -> Duration {
        Duration::from_ps(self.by_ps)
    }
}

/// Once for all tests of this process.
fn known() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        register_balancer::<Modulo>();
        register_traffic::<Rounds>();
        register_noise::<Still>();
    });
}

const PLAN: &str = r#"
[network]
shape = "fat-tree"
leaves = 3
hosts_per_leaf = 4
spines = 3
rate = "100Gb/s"
latency = "300ns"
queue = "64KiB"

[[faults.links]]
links = "all"
duplication = 0.01
loss = 0.005

[[jobs]]
system = "ring"
workers = 8
message = "48KiB"
operations = 2
"#;

fn plan(text: &str, sets: &[&str]) -> Result<Plan, PlanError> {
    known();
    let sets: Vec<String> = sets.iter().map(|set| set.to_string()).collect();
    Plan::parse("plan", text, &sets, None).and_then(|plan| check(&plan).map(|()| plan))
}

/// All that runs give, whatever what decides is called.
fn outcome(sets: &[&str], threads: usize) -> String {
    let finished = run(&plan(PLAN, sets).unwrap(), threads, || true).unwrap();
    let one = |finished: fanin_plan::run::Finished| {
        let mut record = finished.record;
        assert!(record.is_good(), "{:?}", record.failure);
        (record.wall_s, record.params) = (0.0, Vec::new());
        format!("{} {:?}", serde_json::to_string(&record).unwrap(), finished.links)
    };
    finished.into_iter().map(one).collect()
}

const TRAFFIC: &str = "traffic=[{ pattern = \"uniform\", load = 0.5 }]";

#[test]
fn a_balancer_from_elsewhere_decides_as_a_built_in_one() {
    let built_in = outcome(&["network.routing=destination", TRAFFIC], 1);
    assert_eq!(outcome(&["network.routing=modulo", TRAFFIC], 1), built_in);
    assert_eq!(outcome(&["network.routing={ name = \"modulo\" }", "network.background_routing=destination", TRAFFIC], 1), built_in);
    assert!(CARRIED.load(Ordering::Relaxed) > 1_000);
    let spread = "network.routing={ spread = 3, name = \"modulo\" }";
    let other = outcome(&[spread, TRAFFIC], 1);
    assert_ne!(other, built_in);
    assert_eq!(outcome(&[spread, TRAFFIC], 1), other, "the seed says what is drawn");
    assert_ne!(outcome(&["network.routing={ spread = 3, name = \"modulo\" }", "run.seed=2", TRAFFIC], 1), other);
}

#[test]
fn a_balancer_that_sees_all_ways_leaves_those_of_the_other_class_as_they_are() {
    let dragonfly = "network={ shape = \"dragonfly\", rate = \"100Gb/s\", latency = \"300ns\", groups = 3, routers = 3, global_links = 2, hosts_per_router = 4 }";
    for routing in ["ugal", "valiant", "modulo"] {
        for background in ["ecmp", "destination", "minimal"] {
            let sets = [dragonfly, &format!("network.routing={routing}"), &format!("network.background_routing={background}"), TRAFFIC];
            outcome(&sets, 1);
        }
    }
}

#[test]
fn traffic_from_elsewhere_arrives_and_ends() {
    let alone = PLAN.split("[[faults").next().unwrap().to_string();
    let sets = ["traffic=[{ pattern = { name = \"rounds\", rounds = 40, size = \"3KiB\", every = \"300ns\" }, hosts = \"all\" }]"];
    let finished = run(&plan(&alone, &sets).unwrap(), 1, || true).unwrap().remove(0);
    let record = finished.record;
    assert!(record.is_good() && record.ended == "traffic_done", "{record:?}");
    // All of 40 messages of 12 hosts: three full packets each, up a link and down another one, with spines between leaves.
    let from_hosts: u64 = finished.links.iter().filter(|link| link.from.starts_with("host")).map(|link| link.packets).sum();
    let to_hosts: u64 = finished.links.iter().filter(|link| link.to.starts_with("host")).map(|link| link.packets).sum();
    assert_eq!((from_hosts, to_hosts), (40 * 12 * 3, 40 * 12 * 3));
}

#[test]
fn a_message_that_cannot_be_is_no_silence() {
    let sets = ["traffic=[{ pattern = { name = \"rounds\", broken = true }, hosts = \"all\" }]"];
    let record = run(&plan(PLAN, &sets).unwrap(), 1, || true).unwrap().remove(0).record;
    assert!(!record.is_good());
    assert!(format!("{record:?}").contains("a pattern of traffic made a message"), "{record:?}");
}

#[test]
fn noise_from_elsewhere_is_as_late_as_a_built_in_one() {
    let noise = |delay: &str| format!("jobs.0.noise={{ probability = 0.2, delay = {delay} }}");
    let built_in = outcome(&[&noise("\"3us\"")], 1);
    assert_eq!(outcome(&[&noise("{ distribution = \"still\", by = \"3us\" }")], 1), built_in);
    assert_ne!(outcome(&[&noise("{ by = \"4us\", distribution = \"still\" }")], 1), built_in);
}

#[test]
fn threads_change_nothing() {
    let sets = [
        "network.routing={ name = \"modulo\", spread = 2 }",
        "traffic=[{ pattern = \"rounds\", hosts = \"all\" }]",
        "jobs.0.noise={ probability = 1.0, delay = { distribution = \"still\", by = \"1us\" } }",
        "run.repetitions=4",
    ];
    assert_eq!(outcome(&sets, 1), outcome(&sets, 4));
}

#[test]
fn wrong_keys_and_values_are_refused() {
    let says = |set: &str, words: &str| {
        let error = plan(PLAN, &[set]).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    says("network.routing=modolu", "network.routing = \"modolu\": expected \"ecmp\" or");
    says("network.routing=modolu", "\"ugal\" or \"modulo\"");
    says("network.routing={ spread = 3 }", "network.routing.name is missing");
    says("network.routing={ name = \"modulo\", spraed = 3 }", "spraed = 3: unknown key of modulo; expected one of pause, spread");
    says("network.routing={ name = \"modulo\", pause = 3 }", "network.routing.pause = 3: expected a time");
    says("network.routing={ name = \"modulo\", spread = \"wide\" }", "modulo: invalid type: string \"wide\", expected u32");
    says("network.routing={ name = \"modulo\", spread = 101 }", "network.routing.spread = 101: expected at most 100");
    says("network.routing={ name = \"ecmp\", spread = 1 }", "\"ecmp\" is built in");
    says(
        "traffic=[{ pattern = \"round\" }]",
        "traffic[0].pattern = \"round\": expected \"uniform\" or \"derangement\" or \"permutation\" or \"incast\" or \"rounds\"",
    );
    says("traffic=[{ pattern = { name = \"rounds\", size = 3.5 } }]", "traffic[0].pattern.size = 3.5: expected");
    says("traffic=[{ pattern = { name = \"rounds\", rounds = 0 } }]", "traffic[0].pattern.rounds = 0: expected 1 or more");
    says(
        "traffic=[{ pattern = \"uniform\", enabled = false }, { pattern = { name = \"rounds\", rounds = 0 } }]",
        "traffic[1].pattern.rounds = 0: expected 1 or more",
    );
    says("traffic=[{ pattern = \"rounds\", load = 0.5 }]", "traffic[0].load = 0.5: expected no such key with pattern = \"rounds\"");
    says("traffic=[{ pattern = \"rounds\", receivers = 2 }]", "traffic[0].receivers = 2: expected no such key");
    says(
        "jobs.0.noise={ probability = 1.0, delay = { distribution = \"stil\" } }",
        "jobs[0].noise.delay.distribution = \"stil\": expected \"constant\" or",
    );
    says("jobs.0.noise={ probability = 1.0, delay = { distribution = \"still\" } }", "expected by of more than 0");
    says(
        "jobs.0.noise={ probability = 1.0, delay = { distribution = \"still\", mean = \"1us\" } }",
        "unknown key of still; expected one of by",
    );
    says("jobs.0.noise={ probability = 1.0, delay = { distribution = \"still\", by = 1 } }", "jobs[0].noise.delay.by = 1: expected a time");
}

#[test]
fn a_name_is_of_one_thing() {
    known();
    // All that plans have built in is known as built in.
    for name in BALANCERS.built_in() {
        let shape = "network={ shape = \"dragonfly\", rate = \"100Gb/s\", latency = \"300ns\", groups = 3, routers = 3, global_links = 2, hosts_per_router = 4 }";
        let tree = ["conga"].contains(name);
        let sets = [if tree { "run.seed=1" } else { shape }, &format!("network.routing={name}")];
        plan(PLAN, &sets).unwrap();
    }
    assert_eq!((PATTERNS.built_in().len(), NOISES.built_in().len()), (4, 5));
    for again in [register_balancer::<Modulo>, register_traffic::<Rounds>, register_noise::<Still>] {
        let panic = std::panic::catch_unwind(again).unwrap_err();
        assert!(panic.downcast_ref::<String>().unwrap().contains("of the name"), "{panic:?}");
    }
}
