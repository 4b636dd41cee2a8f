//! Whole runs: the worked example of the paper, exactness, what designs and staggering are for, and bits.

use fanin_processor::{Arrivals, Config, Design, Map, Outcome, Scheduling, Sending, run};
use proptest::prelude::*;

/// Four cores, four hosts, a packet a cycle, four cycles a packet (Flare 5, figure 5).
fn example() -> Config {
    Config {
        cores: 4,
        cluster: 4,
        subset: 1,
        scheduling: Scheduling::Hierarchical,
        remote: 2.0,
        map: Map::Modulo,
        children: 4,
        blocks: 4,
        window: u32::MAX,
        round_trip: 0.0,
        sending: Sending::Aligned,
        arrivals: Arrivals::Regular,
        interarrival: 1.0,
        design: Design::Fixed,
        l1: 0,
        add: 4.0,
        emit: 0.0,
        seed: 1,
    }
}

/// Four clusters of eight cores, sixteen hosts, 400 Gb/s in packets of 1,064 bytes (flare 7).
fn switch() -> Config {
    Config {
        cores: 32,
        cluster: 8,
        subset: 8,
        children: 16,
        blocks: 64,
        arrivals: Arrivals::Exponential,
        interarrival: 21.28,
        design: Design::Single,
        add: 1024.0,
        ..example()
    }
}

fn done(config: &Config) -> Outcome {
    let outcome = run(config).expect("a configuration");
    assert!(outcome.exact, "{config:?}");
    outcome
}

#[test]
fn the_worked_example_queues_where_the_paper_says() {
    let of = |config: &Config| {
        let outcome = done(config);
        (outcome.queue, outcome.packets, outcome.latency)
    };
    // Flare 6: the simulation that the specification reports.
    assert_eq!(of(&Config { subset: 4, ..example() }), (0.0, 4, 7.0));
    assert_eq!(of(&example()), (3.0, 10, 16.0));
    assert_eq!(of(&Config { sending: Sending::Staggered, ..example() }), (1.0, 6, 19.0));
}

#[test]
fn staggering_must_not_meet_the_map_of_blocks() {
    // P8b: hosts begin four blocks apart, which is the number of subsets.
    let staggered = |map| done(&Config { blocks: 16, sending: Sending::Staggered, map, ..example() });
    let (modulo, skewed) = (staggered(Map::Modulo), staggered(Map::Skewed));
    assert_eq!((modulo.queue, modulo.packets), (3.0, 10));
    assert_eq!((skewed.queue, skewed.packets), (1.0, 7));
}

#[test]
fn staggering_over_more_blocks_than_slots_waits_for_ever() {
    let config = Config { blocks: 64, window: 8, sending: Sending::Staggered, ..switch() };
    assert!(done(&config).completed < 64, "P8");
    assert_eq!(done(&Config { sending: Sending::StaggeredInWindow, ..config.clone() }).completed, 64);
    assert_eq!(done(&Config { sending: Sending::Aligned, ..config }).completed, 64);
}

#[test]
fn designs_trade_memory_for_bandwidth_and_staggering_removes_the_gap() {
    let with = |design, sending| done(&Config { design, sending, blocks: 128, map: Map::Skewed, ..switch() });
    let [single, several, tree] = [Design::Single, Design::Multiple(4), Design::Tree].map(|design| with(design, Sending::Aligned));
    assert!(several.bandwidth > 1.3 * single.bandwidth && tree.bandwidth > several.bandwidth, "{single:?}\n{several:?}\n{tree:?}");
    assert!(single.contention > 0.3 && several.contention < single.contention && tree.contention == 0.0);
    assert!(single.buffers < tree.buffers && tree.buffers < several.buffers, "{single:?}\n{several:?}\n{tree:?}");
    let [staggered, staggered_tree] = [Design::Single, Design::Tree].map(|design| with(design, Sending::Staggered));
    assert!(staggered.bandwidth > 0.9 * staggered_tree.bandwidth, "{staggered:?}\n{staggered_tree:?}");
}

#[test]
fn one_buffer_of_several_is_a_single_one() {
    let (single, several) = (done(&switch()), done(&Config { design: Design::Multiple(1), ..switch() }));
    assert_eq!((single.cycles, single.contention, single.buffers), (several.cycles, several.contention, several.buffers));
}

#[test]
fn plain_scheduling_pays_for_remote_memory() {
    let with = |scheduling, remote| done(&Config { scheduling, remote, design: Design::Tree, interarrival: 100.0, ..switch() });
    let plain = with(Scheduling::Plain, 1.0);
    assert!(with(Scheduling::Plain, 2.0).busy > 1.2 * plain.busy);
    // Without the penalty a queue that all cores serve is never longer than those of subsets.
    assert!(plain.queue <= with(Scheduling::Hierarchical, 1.0).queue);
}

#[test]
fn a_tree_gives_the_same_bits_whatever_comes_first() {
    // The same contributions: what changes is when and in which order they come, and where they are added up.
    let ways = [
        Config { sending: Sending::Aligned, arrivals: Arrivals::Regular, ..switch() },
        Config { sending: Sending::Aligned, interarrival: 1.0, ..switch() },
        Config { sending: Sending::Staggered, map: Map::Skewed, ..switch() },
        Config { sending: Sending::StaggeredInWindow, window: 24, scheduling: Scheduling::Plain, ..switch() },
        Config { sending: Sending::Staggered, subset: 1, interarrival: 3_000.0, ..switch() },
    ];
    for seed in 0..20 {
        let of = |design: Design| ways.clone().map(|way| done(&Config { design, seed, ..way }).results);
        let trees = of(Design::Tree);
        assert!(trees.iter().all(|results| results == &trees[0]), "{seed}");
        let singles = of(Design::Single);
        assert!(singles.iter().any(|results| results != &singles[0]), "additions in other orders round differently");
    }
}

/// Two cores of one cluster, two hosts in step, a packet every two cycles from each, four cycles an addition: blocks begin at 0, 2, 4, ...
fn pairs(design: Design, l1: u32) -> Outcome {
    let config = Config { cores: 2, cluster: 2, subset: 2, children: 2, blocks: 3, interarrival: 1.0, design, l1, emit: 1.0, ..example() };
    done(&config)
}

#[test]
fn a_block_without_a_buffer_waits_until_another_has_ended() {
    // Packets by when they come: a0 0, b0 1, a1 2, b1 3, a2 4, b2 5; letters are hosts, numbers blocks.
    // One buffer a block, any number. Core 0 adds a0 until 4, core 1 spins with b0 from 1 and adds it until 8, and sends until 9. Core 0 has a1 from
    // 4 to 8; b1 from 8 to 12 and 13; core 1 has a2 from 9 to 13 and b2 begins at core 0 with that: 17, and 18 when it is sent.
    let free = pairs(Design::Single, 0);
    assert_eq!((free.cycles, free.buffers, free.reserved, free.waited), (18.0, 2, 2, 0));
    // One buffer in all. From 4 on core 0 has nothing: a1, b1, a2 and b2 wait until block 0 has been sent at 9. Then a1 9 to 13, b1 spins and is added
    // until 17, sent at 18; a2 18 to 22 (core 0 was free at 13 and had looked at a2), b2 until 26, sent at 27.
    let tight = pairs(Design::Single, 1);
    assert_eq!((tight.cycles, tight.buffers, tight.reserved, tight.waited), (27.0, 1, 1, 4));
    // Two are as many as there are blocks under way: nobody waits.
    assert_eq!(pairs(Design::Single, 2), free);
}

#[test]
fn several_buffers_a_block_are_reserved_together() {
    // Two buffers of one block, room for three: one block at a time, as with room for two. a0 0 to 4, b0 1 to 5 beside it, merged until 9, sent at 10;
    // a1 and b1 both begin at 10, end at 14; one of them is last, merges until 18 and sends at 19; block 2 from 19 on: 28.
    for l1 in [2, 3] {
        let tight = pairs(Design::Multiple(2), l1);
        assert_eq!((tight.cycles, tight.buffers, tight.reserved, tight.waited), (28.0, 2, 2, 4));
    }
    assert!(pairs(Design::Multiple(2), 4).cycles < 28.0);
}

#[test]
fn a_tree_reserves_what_its_children_may_need() {
    // Four children in step: two pairs at most at a time. Room for three buffers is room for one block, four for two.
    let tree = |l1| done(&Config { cores: 4, cluster: 4, subset: 4, blocks: 8, add: 40.0, design: Design::Tree, l1, ..example() });
    let (one, two, any) = (tree(3), tree(4), tree(0));
    assert_eq!((one.reserved, two.reserved), (2, 4));
    assert!(one.cycles > two.cycles && two.cycles > any.cycles, "{one:?}\n{two:?}\n{any:?}");
    assert!(one.buffers <= 2 && two.buffers <= 4 && any.buffers > 4);
    // The order of additions is the same whoever has waited.
    assert_eq!(one.results, any.results);
}

#[test]
fn a_window_of_what_there_is_room_for_never_waits() {
    // Two clusters of two cores, blocks dealt out in turn, room for one block each: two blocks under way never meet (Flare 4.3: no more blocks under
    // way than buffers), three do.
    let config = Config { cores: 4, cluster: 2, subset: 2, children: 2, blocks: 32, window: 2, design: Design::Single, l1: 1, ..example() };
    let (two, three) = (done(&config), done(&Config { window: 3, ..config.clone() }));
    assert_eq!((two.waited, two.reserved, two.completed), (0, 1, 32));
    assert!(three.waited > 0 && three.completed == 32, "{three:?}");
    assert_eq!(done(&Config { window: 3, l1: 2, ..config }).waited, 0);
}

#[test]
fn buffers_in_use_are_rate_times_time() {
    // Little's law, from what is measured apart: blocks a cycle, and how long each is under way.
    let outcome = done(&Config { blocks: 512, sending: Sending::Aligned, interarrival: 300.0, ..switch() });
    let expected = outcome.latency_mean * outcome.bandwidth / 16.0;
    assert!((outcome.buffers_mean / expected - 1.0).abs() < 0.05, "{} is not {expected}", outcome.buffers_mean);
}

#[test]
fn the_same_configuration_gives_the_same_outcome() {
    assert_eq!(done(&switch()), done(&switch()));
    assert_ne!(done(&switch()).cycles, done(&Config { seed: 2, ..switch() }).cycles);
}

fn any_config() -> impl Strategy<Value = Config> {
    let designs = prop_oneof![Just(Design::Fixed), Just(Design::Single), (1..6u32).prop_map(Design::Multiple), Just(Design::Tree),];
    let ways = (0..2, 0..2, 0..3usize, 0..2, 0..4u32);
    (1..4u32, 1..5u32, 1..3u32, 1..20u32, 1..40u32, 1..50u32, designs, ways, 0..1000u64, 0.01..300.0f64).prop_map(
        |(clusters, subsets, subset, children, blocks, window, design, (plain, skewed, sending, exponential, l1), seed, interarrival)| {
            Config {
                // Room for one to three blocks and a part of one more, or for all.
                l1: if l1 == 0 { 0 } else { l1 * design.reserved(children) + l1 / 2 },
                cores: clusters * subsets * subset,
                cluster: subsets * subset,
                subset,
                scheduling: if plain == 1 { Scheduling::Plain } else { Scheduling::Hierarchical },
                remote: 2.0,
                map: if skewed == 1 { Map::Skewed } else { Map::Modulo },
                children,
                blocks,
                window,
                round_trip: 10.0,
                sending: [Sending::Aligned, Sending::StaggeredInWindow, Sending::Staggered][sending],
                arrivals: if exponential == 1 { Arrivals::Exponential } else { Arrivals::Regular },
                interarrival,
                design,
                add: 100.0,
                emit: 5.0,
                seed,
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, rng_seed: proptest::test_runner::RngSeed::Fixed(7), ..ProptestConfig::default() })]

    #[test]
    fn every_block_has_every_contribution_once(config in any_config()) {
        let outcome = run(&config).expect("a configuration");
        prop_assert!(outcome.exact);
        if config.sending != Sending::Staggered || config.window >= config.blocks {
            prop_assert_eq!(outcome.completed, config.blocks);
            prop_assert!(outcome.results.iter().all(Option::is_some));
        }
        prop_assert!(outcome.contention <= 1.0 && outcome.busy <= 1.0 + 1e-9);
        prop_assert!(config.l1 == 0 || outcome.reserved <= config.l1);
        prop_assert!(config.l1 > 0 || outcome.waited == 0);
        let clusters = u64::from(config.cores / config.cluster);
        prop_assert!(config.design == Design::Fixed || outcome.buffers <= u64::from(outcome.reserved) * clusters);
        if config.design != Design::Tree {
            let of_block = if let Design::Multiple(buffers) = config.design { buffers } else { 1 };
            prop_assert!(outcome.buffers <= u64::from(config.window.min(config.blocks)) * u64::from(of_block));
        }
    }
}

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    let refused = |config: Config| run(&config).expect_err("refused").to_string();
    assert_eq!(refused(Config { children: 0, ..switch() }), "children = 0: expected a whole number from 1 to 1024");
    assert_eq!(refused(Config { subset: 3, ..switch() }), "subset = 3: expected a divisor of the cores of a cluster (8)");
    assert_eq!(refused(Config { add: f64::NAN, ..switch() }), "add = NaN: expected a number from 0.0009765625 to 1000000");
    assert_eq!(refused(Config { design: Design::Multiple(0), ..switch() }), "buffers = 0: expected a whole number from 1 to 1024");
    let message = "l1 = 7: expected at least the 8 buffers that a block may need, or 0 for any number";
    assert_eq!(refused(Config { design: Design::Tree, l1: 7, ..switch() }), message);
    assert_eq!(
        refused(Config { blocks: 1_000_000, children: 1000, ..switch() }),
        "blocks = 1000000: expected at most 50 million packets in all"
    );
}
