//! ATP and A2TP with more than 64 workers, of whose contributions a packet names those of one group: exact under loss, repetition,
//! overtaking, collisions and restarts, in one rack, in racks of fewer and of more than 64, and where a sum has more than one group.

use fanin_check::{Checks, Recipe, examine};
use fanin_core::{Duration, Instant, NodeId};
use fanin_sim::RunResult;
use fanin_sim::faults::TimedFault;
use fanin_systems::{A2tpParameters, AtpParameters, SafetyNets, System, WindowRule};

/// Both systems, with so many aggregators.
fn systems(aggregators: u32, nets: SafetyNets) -> [System; 3] {
    let a2tp = A2tpParameters { aggregators, nets, ..A2tpParameters::default() };
    [
        System::Atp(AtpParameters { aggregators, nets, ..AtpParameters::default() }),
        System::A2tp(a2tp),
        System::A2tp(A2tpParameters { windows: WindowRule::Own, ..a2tp }),
    ]
}

/// Racks of so many hosts; the last one's last host is the server's.
fn recipe(system: System, leaves: u32, hosts: u32, elements: u64) -> Recipe {
    let mut recipe = if leaves == 1 { Recipe::star(system, hosts, elements) } else { Recipe::fat_tree(system, leaves, hosts, elements) };
    let job = &mut recipe.jobs[0];
    job.servers = vec![job.hosts.pop().expect("there are hosts")];
    job.start.pop();
    recipe
}

fn exact(recipe: &Recipe) -> RunResult {
    let (result, found) = examine(recipe, Checks { twice: false, ..Checks::default() });
    assert_eq!(found, [""; 0], "{recipe}");
    result.expect("it was run")
}

/// 65, 100, 127, 128 and 200 workers: at one switch, at some of at most 64 each, at two of 100.
const SIZES: [(u32, u32); 6] = [(1, 66), (1, 101), (2, 64), (3, 43), (5, 41), (2, 101)];

#[test]
fn without_trouble_a_server_gets_one_packet_for_a_fragment() {
    for (leaves, hosts) in SIZES {
        for system in systems(450, SafetyNets::All) {
            let recipe = recipe(system, leaves, hosts, 3_000);
            let packets = 3_000_u64.div_ceil(u64::from(recipe.jobs[0].payload_bytes) / 4);
            let result = exact(&recipe);
            assert_eq!(result.counters.retransmitted_total(), 0, "{recipe}");
            let server = recipe.jobs[0].servers[0];
            let received = result.links.iter().filter(|link| link.to == server.0).map(|link| link.packets).sum::<u64>();
            assert_eq!(received, packets, "{recipe}");
        }
    }
}

#[test]
fn sums_are_exact_with_few_aggregators_under_loss_repetition_and_overtaking() {
    for (number, (leaves, hosts)) in SIZES.into_iter().enumerate() {
        for nets in [SafetyNets::All, SafetyNets::Paper] {
            for system in systems(5, nets) {
                let rate = [0.0, 0.002, 0.01][number % 3];
                let mut recipe = recipe(system, leaves, hosts, 1_200).with_link_fault(rate, rate, rate, Duration::from_us(5));
                recipe.seed = number as u64;
                // A second job wants the same aggregators.
                let mut second = recipe.jobs[0].clone();
                recipe.jobs[0].hosts.truncate(66);
                recipe.jobs[0].start.truncate(66);
                second.hosts.reverse();
                recipe.jobs.push(second);
                exact(&recipe);
            }
        }
    }
}

/// Whatever a switch had of a fragment it has no more; part of it may be at the server, or at the other switch.
#[test]
fn sums_are_exact_when_a_switch_restarts() {
    for (leaves, hosts) in SIZES {
        for system in systems(20, SafetyNets::All) {
            let mut recipe = recipe(system, leaves, hosts, 6_000).with_link_fault(0.001, 0.001, 0.001, Duration::from_us(2));
            recipe.jobs[0].patience = Duration::from_ms(200);
            let first = leaves * hosts;
            for (number, switch) in (first..first + leaves).enumerate() {
                let at = Instant::from_ps(20_000_000 + 15_000_000 * number as u64);
                recipe.faults.timed.push(TimedFault::SwitchDown { switch: NodeId(switch), from: at, until: at + Duration::from_us(30) });
            }
            exact(&recipe);
        }
    }
}

/// Several servers, in one rack and in others; each has its part of every vector, and its link what goes there.
#[test]
fn several_servers_share_a_job_exactly() {
    for (number, servers) in [2, 3, 5].into_iter().enumerate() {
        for system in systems(7, SafetyNets::All) {
            let rate = number as f64 / 200.0;
            let mut recipe = Recipe::fat_tree(system, 3, 5, 7_000).with_link_fault(rate, rate, rate, Duration::from_us(5));
            recipe.seed = number as u64;
            let job = &mut recipe.jobs[0];
            job.elements = vec![7_000, 1, 0, 65, 640];
            job.servers = (0..servers).map(|_| job.hosts.remove(2)).collect();
            job.start.truncate(job.hosts.len());
            let mut second = job.clone();
            second.servers.reverse();
            second.hosts.truncate(4);
            second.start.truncate(4);
            recipe.jobs.push(second);
            exact(&recipe);
        }
    }
}

/// Where the server is what limits a job, as without aggregators, two of them take half as long.
#[test]
fn two_servers_take_twice_as_much() {
    let took = |servers: usize| {
        let system = System::Atp(AtpParameters { aggregating: 0, ..AtpParameters::default() });
        let mut recipe = Recipe::star(system, 10, 40_000);
        let job = &mut recipe.jobs[0];
        job.window = 128;
        job.servers = (0..servers).map(|_| job.hosts.pop().expect("there are ten")).collect();
        job.hosts.truncate(8);
        job.start.truncate(8);
        let result = exact(&recipe);
        result.jobs[0].goodput_gbps(0).expect("it has ended")
    };
    let (one, two) = (took(1), took(2));
    println!("one server: {one:.2} Gb/s, two: {two:.2}");
    assert!(two > 1.8 * one && two < 2.2 * one, "{one}, {two}");
}
