//! A few fixed runs and what comes out of them. A change of behaviour is a change of the table; `INSTA_UPDATE=always cargo test
//! -p fanin-check --test all results` writes a new one.

use std::fmt::Write;

use fanin_check::{Recipe, run, violations};
use fanin_core::{Census, Duration, Instant, NodeId};
use fanin_sim::faults::TimedFault;
use fanin_sim::lossless::{Arbitration, LosslessConfig, MadePackets, SwitchModel};
use fanin_sim::traffic::{Pattern, TrafficConfig};
use fanin_systems::{PanamaParameters, RingOrder, RingParameters, SwitchMlParameters, System};

const TREE: System = System::tree(1);
const TREES: System = System::tree(4);
const SWITCHML: System = System::SwitchMl(SwitchMlParameters { fixed_point: false });
const FIXED_POINT: System = System::SwitchMl(SwitchMlParameters { fixed_point: true });
const PANAMA: System = System::Panama(PanamaParameters { trees: 1, window_initial: 16 });
const PANAMAS: System = System::Panama(PanamaParameters { trees: 4, window_initial: 3 });
const RING: System = System::Ring(RingParameters { order: RingOrder::Host, barrier: false, steps: fanin_systems::StepParameters::NONE });
const BARRIER: System =
    System::Ring(RingParameters { order: RingOrder::Placement, barrier: true, steps: fanin_systems::StepParameters::NONE });

/// 16 workers under 4 leaves reduce 256 KiB in packets of 1 KiB.
fn alone(system: System) -> Recipe {
    let mut recipe = Recipe::fat_tree(system, 4, 4, 65_536);
    (recipe.jobs[0].payload_bytes, recipe.jobs[0].window) = (1_024, 64);
    recipe
}

fn lossless(system: System, model: SwitchModel) -> Recipe {
    let mut recipe = alone(system);
    recipe.jobs[0].reliable = false;
    recipe.network.lossless = Some(LosslessConfig {
        model,
        input_bytes: 16_000,
        output_bytes: 8_000,
        arbitration: Arbitration::default(),
        made_packets: MadePackets::OwnFifo,
        channels: 1,
    });
    recipe
}

/// One percent lost, a tenth repeated or overtaken, background traffic, short queues, a link that is down for a while.
fn hostile(system: System) -> Recipe {
    let mut recipe = alone(system).with_link_fault(0.01, 0.1, 0.1, Duration::from_us(2));
    recipe.network.queue_bytes = 20_000;
    recipe.network.ecn_mark_bytes = 10_000;
    recipe.traffic = vec![TrafficConfig {
        hosts: (0..16).map(NodeId).collect(),
        pattern: Pattern::Uniform,
        message_bytes: 20_000,
        payload_bytes: 1_000,
        load: 0.5,
        congestion: None,
        messages: Some(5),
        start: Instant::ZERO,
    }];
    let at = |us| Instant::ZERO + Duration::from_us(us);
    recipe.faults.timed = vec![TimedFault::LinkDown { a: NodeId(3), b: NodeId(16), from: at(20), until: at(60) }];
    recipe
}

#[test]
fn results_stay_as_they_are() {
    let mut table =
        format!("{:<24} {:>14} {:>8} {:>7} {:>7} {:>11}  dropped\n", "", "completed_ps", "hops", "again", "marked", "slots_peak");
    let runs = [
        ("tree", alone(TREE)),
        ("4 trees", alone(TREES)),
        ("ring", alone(RING)),
        ("ring, barrier", alone(BARRIER)),
        ("tree, output-queued", lossless(TREE, SwitchModel::OutputQueued)),
        ("4 trees, input-queued", lossless(TREES, SwitchModel::InputQueued)),
        ("switchml", alone(SWITCHML)),
        ("switchml, fixed point", alone(FIXED_POINT)),
        ("switchml, output-queued", lossless(SWITCHML, SwitchModel::OutputQueued)),
        ("switchml, hostile", hostile(SWITCHML)),
        ("fixed point, hostile", hostile(FIXED_POINT)),
        ("ring, output-queued", lossless(RING, SwitchModel::OutputQueued)),
        ("ring, input-queued", lossless(RING, SwitchModel::InputQueued)),
        ("tree, hostile", hostile(TREE)),
        ("4 trees, hostile", hostile(TREES)),
        ("ring, hostile", hostile(RING)),
        ("ring, barrier, hostile", hostile(BARRIER)),
        ("panama", alone(PANAMA)),
        ("panama, output-queued", lossless(PANAMA, SwitchModel::OutputQueued)),
        ("panama, hostile", hostile(PANAMA)),
        ("panama, 4 trees, hostile", hostile(PANAMAS)),
    ];
    for (name, recipe) in runs {
        let result = run::<Census>(&recipe, |_| {}).expect("the recipe is run");
        assert_eq!(violations(&recipe, &result), [""; 0], "{name}");
        let dropped: Vec<String> = result.counters.drops().map(|(reason, count)| format!("{reason} {count}")).collect();
        writeln!(
            table,
            "{name:<24} {:>14} {:>8} {:>7} {:>7} {:>11}  {}",
            result.jobs[0].completion(0).expect("it is complete").as_ps(),
            result.packet_hops,
            result.counters.retransmitted_total(),
            result.packets_marked,
            result.slots.iter().map(|slot| slot.slots_peak).max().unwrap_or(0),
            dropped.join(", ")
        )
        .expect("a string takes all");
    }
    insta::assert_snapshot!(table);
}
