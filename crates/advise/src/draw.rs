//! Networks and mixes of jobs, drawn at random: what predictions are held against.

use std::fmt::Write;

use fanin_systems::Draw;

/// A drawn case, as files that commands read.
#[derive(Clone, PartialEq, Debug)]
pub struct Case {
    /// What it is, in a few words.
    pub name: String,
    /// The network's file.
    pub network: String,
    /// The jobs' file.
    pub jobs: String,
}

/// Draws for this purpose only.
const PURPOSE: u64 = 0xad71;

/// The case of this number; `seed` names the collection.
pub fn case(seed: u64, number: u64) -> Case {
    let mut draw = Draw::new(seed.wrapping_mul(1_000_003).wrapping_add(number), PURPOSE);
    let (network, racks, kind) = match draw.between(0, 9) {
        0..=3 => leaf_spine(&mut draw, false),
        4..=5 => leaf_spine(&mut draw, false),
        6..=7 => shape(&mut draw),
        _ => three_levels(&mut draw),
    };
    let hosts = racks.iter().sum();
    let jobs = jobs(&mut draw, hosts, number);
    Case { name: format!("{kind} of {hosts} hosts"), network, jobs }
}

const RATES: &[u64] = &[10, 25, 40, 100, 200, 400];

fn latency(draw: &mut Draw) -> u64 {
    draw.between(2, 15) * 100
}

/// What a switch that aggregates has beside, in a quarter of the cases.
fn limits(draw: &mut Draw, rate: u64) -> String {
    let mut text = String::new();
    if draw.percent(15) {
        let _ = writeln!(text, "aggregation_rate = \"{}Gb/s\"", (rate * draw.between(20, 120) / 100).max(1));
    }
    if draw.percent(15) {
        let _ = writeln!(text, "memory = \"{}KiB\"", 1u64 << draw.between(7, 12));
    }
    text
}

/// Racks of different sizes under spines; uplinks that are one to eight times oversubscribed; or hosts with two cables.
fn leaf_spine(draw: &mut Draw, is_dual: bool) -> (String, Vec<u64>, &'static str) {
    let racks = draw.between(2, 6);
    let is_even = draw.percent(50);
    let size = draw.between(2, 8);
    let sizes: Vec<u64> = (0..racks).map(|_| if is_even { size } else { draw.between(1, 12) }).collect();
    let spines = draw.between(1, 4);
    let (rate, delay) = (*draw.pick(RATES), latency(draw));
    let largest = sizes.iter().copied().max().unwrap_or(1);
    let over = draw.between(1, 8);
    let uplink = (rate * largest / (spines * over)).clamp(5, 800);
    let mut text =
        format!("hosts = [\"h[0-{}]\"]\n\n[defaults]\nrate = \"{rate}Gb/s\"\nlatency = \"{delay}ns\"\n", sizes.iter().sum::<u64>() - 1);
    let able = [0, 40, 100, 100][draw.between(0, 3) as usize];
    let limited = limits(draw, rate);
    for rack in 0..racks {
        let aggregates = draw.percent(able);
        let _ = write!(text, "\n[[switches]]\nname = \"tor{rack}\"\n");
        if aggregates {
            let _ = write!(text, "aggregates = true\n{limited}");
        }
    }
    for spine in 0..spines {
        let _ = write!(text, "\n[[switches]]\nname = \"spine{spine}\"\n");
        if draw.percent(able) {
            let _ = write!(text, "aggregates = true\n{limited}");
        }
    }
    let mut host = 0;
    for (rack, size) in sizes.iter().enumerate() {
        let _ = write!(text, "\n[[links]]\nfrom = \"tor{rack}\"\nto = \"h[{host}-{}]\"\n", host + size - 1);
        if is_dual {
            let _ = write!(text, "\n[[links]]\nfrom = \"tor{}\"\nto = \"h[{host}-{}]\"\n", (rack as u64 + 1) % racks, host + size - 1);
        }
        host += size;
    }
    for spine in 0..spines {
        let _ = write!(text, "\n[[links]]\nfrom = \"spine{spine}\"\nto = \"tor[0-{}]\"\nrate = \"{uplink}Gb/s\"\n", racks - 1);
    }
    (text, sizes, if is_dual { "racks whose hosts have two cables" } else { "racks" })
}

/// A shape of the simulator's.
fn shape(draw: &mut Draw) -> (String, Vec<u64>, &'static str) {
    let (rate, delay) = (*draw.pick(RATES), latency(draw));
    if draw.percent(30) {
        let hosts = draw.between(3, 16);
        return (
            format!("[network]\nshape = \"star\"\nhosts = {hosts}\nrate = \"{rate}Gb/s\"\nlatency = \"{delay}ns\"\n"),
            vec![hosts],
            "a star",
        );
    }
    let (leaves, per_leaf, spines) = (draw.between(2, 6), draw.between(2, 8), draw.between(1, 4));
    let text = format!(
        "[network]\nshape = \"fat-tree\"\nleaves = {leaves}\nhosts_per_leaf = {per_leaf}\nspines = {spines}\nrate = \"{rate}Gb/s\"\nlatency = \"{delay}ns\"\n"
    );
    (text, vec![per_leaf; leaves as usize], "leaves and spines")
}

/// A k-ary fat tree, k = 4.
fn three_levels(draw: &mut Draw) -> (String, Vec<u64>, &'static str) {
    let (rate, delay) = (*draw.pick(RATES), latency(draw));
    let text = format!("[network]\nshape = \"fat-tree-3\"\nports = 4\nrate = \"{rate}Gb/s\"\nlatency = \"{delay}ns\"\n");
    (text, vec![2; 8], "a fat tree of three levels")
}

/// One to four jobs, on hosts of their own or on the same ones.
fn jobs(draw: &mut Draw, hosts: u64, number: u64) -> String {
    let count = [1, 1, 2, 3, 4][draw.between(0, 4) as usize].min(hosts / 2).max(1);
    let is_shared = draw.percent(50);
    let mut text = format!("[run]\nseed = {number}\n");
    for _ in 0..count {
        let most = if is_shared { hosts } else { (hosts / count).max(2) };
        let workers = draw.between(2, most.min(32));
        let placement = draw.pick(&["random", "packed", "spread"]);
        let bytes = draw.between(8, 32) << 17;
        let _ = write!(text, "\n[[jobs]]\nworkers = {workers}\nplacement = \"{placement}\"\nmessage = \"{bytes}B\"\n");
        if is_shared {
            let _ = writeln!(text, "jobs_per_host = {count}");
        }
    }
    text
}
