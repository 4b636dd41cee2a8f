//! A scenario from a seed: the same one on every machine.

use fanin_core::hash::derive;

use super::scenario::{AT_SWITCH, Call, Fault, FaultKind, Job, Meets, Noise, Place, Scenario};

/// Systems that jobs over a fabric draw.
const IN_FABRIC: &[&str] =
    &["auto", "canary", "tree", "switchml", "rina", "ring", "flare", "atp", "a2tp", "netreduce", "panama", "sharp", "exchange", "ps"];

/// Faults strike while jobs run, for most of which this is the time.
const FAULTS_FROM_MS: u64 = 300;
const FAULTS_UNTIL_MS: u64 = 4_500;

/// Numbers that follow from a seed.
struct Dice {
    seed: u64,
    thrown: u64,
}

impl Dice {
    fn next(&mut self) -> u64 {
        self.thrown += 1;
        derive(self.seed, self.thrown)
    }

    /// A number from `from` up to `to`, both included.
    fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.next() % (to - from + 1)
    }

    /// Whether something with so many chances of a hundred happens.
    fn percent(&mut self, chances: u64) -> bool {
        self.next() % 100 < chances
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[(self.next() % from.len() as u64) as usize].clone()
    }
}

/// The scenario of a seed.
pub fn draw(seed: u64) -> Scenario {
    let mut dice = Dice { seed: derive(seed, 0xc4a0_5000), thrown: 0 };
    let place = draw_place(&mut dice);
    let noise = draw_noise(&mut dice);
    let job = draw_jobs(&mut dice, &place);
    let mut scenario = Scenario { seed, logs_full: dice.percent(8), place, noise, job, fault: Vec::new() };
    let faults = dice.between(0, 4);
    for _ in 0..faults {
        let fault = draw_fault(&mut dice, &scenario);
        scenario.fault.push(fault);
    }
    scenario.fault.sort_by_key(|fault| fault.at_ms);
    scenario
}

fn draw_place(dice: &mut Dice) -> Place {
    if dice.percent(40) {
        return Place::Switch;
    }
    let leaves = dice.between(1, 3) as u32;
    Place::Fabric { leaves, spines: dice.between(1, 2) as u32, hosts_per_leaf: dice.between(2, 3) as u32 }
}

fn draw_noise(dice: &mut Dice) -> Noise {
    // Thousandths: a part of the runs is without, so that faults of processes are seen alone.
    let mut share = |most: u64| if dice.percent(40) { dice.between(1, most) as f64 / 1_000.0 } else { 0.0 };
    Noise { loss: share(40), duplication: share(50), reordering: share(50), corruption: share(20) }
}

fn draw_jobs(dice: &mut Dice, place: &Place) -> Vec<Job> {
    let mut free: Vec<u32> = (0..place.hosts()).collect();
    let mut jobs = Vec::new();
    for _ in 0..dice.between(1, 3) {
        let in_fabric = *place != Place::Switch && free.len() >= 2 && dice.percent(85);
        let ranks = if in_fabric { dice.between(2, (free.len() as u64).min(4)) } else { dice.between(1, 4) };
        let hosts: Vec<u32> = if in_fabric {
            (0..ranks).map(|_| free.remove((dice.next() % free.len() as u64) as usize)).collect()
        } else {
            (0..ranks as u32).collect()
        };
        let at_switch = *place == Place::Switch && dice.percent(80);
        jobs.push(draw_job(dice, hosts, in_fabric, at_switch));
    }
    jobs
}

fn draw_job(dice: &mut Dice, hosts: Vec<u32>, in_fabric: bool, at_switch: bool) -> Job {
    let system = dice.pick(if in_fabric { IN_FABRIC } else { AT_SWITCH }).to_owned();
    // A switch that reduces gets packets; ranks with shared memory need none.
    let transport = match system.as_str() {
        _ if in_fabric => "auto",
        "auto" => dice.pick(&["udp", "udp", "auto", "shm"]),
        _ => "udp",
    };
    let ranks = hosts.len() as u32;
    Job {
        system,
        meets: if in_fabric || at_switch { Meets::Place } else { Meets::Rank0 },
        transport: transport.to_owned(),
        fallback: if dice.percent(80) { "ring" } else { "error" }.to_owned(),
        timeout_ms: dice.pick(&[10_000, 15_000, 20_000]),
        hosts,
        start_ms: dice.pick(&[0, 0, 0, 500, 2_000]),
        run_ms: dice.between(1_500, 5_000),
        pause_ms: dice.pick(&[0, 0, 0, 5, 50]),
        call: (0..dice.between(1, 4)).map(|_| draw_call(dice, ranks)).collect(),
    }
}

fn draw_call(dice: &mut Dice, ranks: u32) -> Call {
    let collective =
        dice.pick(&["allreduce", "allreduce", "allreduce", "allreduce", "reduce", "broadcast", "barrier", "reduce-scatter", "all-gather"]);
    let element = dice.pick(&["f32", "f32", "f32", "f64", "f16", "bf16", "i8", "i16", "i32", "i32", "i64", "u8"]);
    let is_float = element.contains('f');
    let operator = match dice.between(0, 9) {
        0..=5 => "sum",
        6 => "min",
        7 => "max",
        8 => "prod",
        _ if is_float => "avg",
        _ => dice.pick(&["and", "or", "xor"]),
    };
    Call {
        collective: collective.to_owned(),
        element: element.to_owned(),
        operator: operator.to_owned(),
        // From a part of a packet to several windows.
        elements: dice.pick(&[1, 7, 352, 1_000, 5_003, 30_000, 100_003]),
        root: (dice.next() % u64::from(ranks)) as u32,
    }
}

fn draw_fault(dice: &mut Dice, scenario: &Scenario) -> Fault {
    let at_ms = dice.between(FAULTS_FROM_MS, FAULTS_UNTIL_MS);
    let span = |dice: &mut Dice| Some(dice.pick(&[1, 50, 300, 1_000, 2_500, 4_000]));
    let switch = dice.pick(&scenario.place.switches());
    let job = dice.next() % scenario.job.len() as u64;
    let rank = format!("job{job}.rank{}", dice.next() % scenario.job[job as usize].hosts.len() as u64);
    let has_manager = scenario.place.hosts() > 0;
    // Packets between ranks and one switch have no link that could be cut, and a job of ranks alone has no control connection to it.
    let has_link = has_manager || scenario.job[job as usize].meets == Meets::Place;
    let (kind, target, for_ms) = match dice.between(0, 19) {
        0..=4 => (FaultKind::Kill, switch, dice.percent(80).then(|| dice.pick(&[1, 200, 1_000, 3_000]))),
        5..=6 if has_manager => (FaultKind::Kill, "manager".to_owned(), dice.percent(80).then(|| dice.pick(&[1, 500, 3_000]))),
        7..=8 => (FaultKind::Kill, rank, None),
        9..=10 => (FaultKind::Pause, rank, span(dice)),
        11..=12 => (FaultKind::Pause, switch, span(dice)),
        13 if has_manager => (FaultKind::Pause, "manager".to_owned(), span(dice)),
        14 => (FaultKind::NoDescriptors, dice.pick(&[switch, rank]), span(dice)),
        _ if !has_link => (FaultKind::Pause, rank, span(dice)),
        _ => (FaultKind::Cut, draw_link(dice, scenario, job as usize, &rank, switch), span(dice)),
    };
    Fault { kind, target, at_ms, for_ms }
}

/// A link of the fabric, or the control connection of a rank.
fn draw_link(dice: &mut Dice, scenario: &Scenario, job: usize, rank: &str, switch: String) -> String {
    let control = scenario.job[job].meets == Meets::Place && (scenario.place == Place::Switch || dice.percent(20));
    let (mut from, mut to) = match scenario.place {
        Place::Switch => ("switch".to_owned(), rank.to_owned()),
        Place::Fabric { .. } if control => ("manager".to_owned(), rank.to_owned()),
        Place::Fabric { leaves, hosts_per_leaf, .. } if dice.percent(40) => {
            let leaf = dice.next() % u64::from(leaves);
            let host = leaf * u64::from(hosts_per_leaf) + dice.next() % u64::from(hosts_per_leaf);
            (format!("leaf{leaf}"), format!("host{host}"))
        }
        Place::Fabric { leaves, spines, .. } => {
            let other = if switch.starts_with("leaf") { ("spine", spines) } else { ("leaf", leaves) };
            (switch, format!("{}{}", other.0, dice.next() % u64::from(other.1)))
        }
    };
    if !control && dice.percent(50) {
        std::mem::swap(&mut from, &mut to);
    }
    format!("{from}{}{to}", dice.pick(&["-", ">"]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_seed_gives_a_scenario_that_can_be_run_and_is_read_back_from_its_file() {
        let (mut systems, mut labels) = (BTreeSet::new(), BTreeSet::new());
        for seed in 0..2_000 {
            let scenario = draw(seed);
            scenario.check().unwrap_or_else(|error| panic!("seed {seed}: {error:#}"));
            assert_eq!(scenario, draw(seed));
            let text = scenario.to_toml().unwrap();
            assert_eq!(toml::from_str::<Scenario>(&text).unwrap(), scenario, "{text}");
            systems.extend(scenario.job.iter().map(|job| job.system.clone()));
            labels.extend(scenario.fault.iter().map(Fault::label));
        }
        assert_eq!(systems.len(), IN_FABRIC.len(), "{systems:?}");
        for label in
            ["kill of a rank", "restart of a switch", "restart of a manager", "cut of a link, one way", "cut of a control connection"]
        {
            assert!(labels.contains(label), "{label} is none of {labels:?}");
        }
    }
}
