//! What campaigns have found, as plain runs that show it.

use fanin_check::{Checks, Demand, Recipe, examine, generate_for, run, violations};
use fanin_core::{Census, CollectiveKind, Duration, Instant, NodeId, Rank};
use fanin_sim::faults::{KindSet, LinkFault, LinkSelector, TimedFault};
use fanin_sim::shape::{WiredCable, Wiring};
use fanin_sim::traffic::{Pattern, TrafficConfig};
use fanin_sim::{LinkSpeed, Shape};
use fanin_systems::{
    A2tpParameters, AtpParameters, CanaryParameters, FailureRule, MachinesParameters, NetReduceParameters, PanamaParameters, PsParameters,
    RefusalRule, RinaParameters, RingOrder, RingParameters, SharpMode, SharpParameters, StreamsBy, SwitchMlParameters, System,
};

const TREE: System = System::tree(2);
const RING: System = System::Ring(RingParameters { order: RingOrder::Host, barrier: false, steps: fanin_systems::StepParameters::NONE });
const SHARP: SharpParameters = SharpParameters {
    mode: SharpMode::LowLatency,
    streams_by: StreamsBy::Switch,
    quota: 4,
    outstanding: 16,
    refused: RefusalRule::Host,
    retry_ps: 1_000_000,
};
const BARRIER: System = System::Ring(RingParameters { order: RingOrder::Host, barrier: true, steps: fanin_systems::StepParameters::NONE });

/// Once: that nothing but the seed matters is what campaigns look at.
fn clean(recipe: &Recipe) -> fanin_sim::RunResult {
    let (result, violations) = examine(recipe, Checks { twice: false, ..Checks::default() });
    assert_eq!(violations, [""; 0], "{recipe}");
    result.expect("it was run")
}

/// A repetition that found no room went behind those that had been sent, so that the same ones had room the next time.
#[test]
fn a_window_longer_than_the_hosts_queue_starves_nobody() {
    for system in [TREE, RING, BARRIER] {
        for seed in 0..10 {
            let mut recipe = Recipe::star(system, 6, 30_000).with_link_fault(0.05, 0.0, 0.02, Duration::from_us(1));
            recipe.seed = seed;
            recipe.network.nic_queue_bytes = 2_000;
            (recipe.jobs[0].window, recipe.jobs[0].payload_bytes) = (64, 1_024);
            assert!(clean(&recipe).counters.retransmitted_total() > 10);
        }
    }
}

/// All of a window was sent again at once, always in the same order, and filled the same short queue before the same packet.
#[test]
fn a_window_longer_than_a_queue_on_the_way_starves_nobody() {
    let fast = LinkSpeed { bits_per_second: 400_000_000_000, latency: Duration::from_ns(60) };
    let slow = LinkSpeed { bits_per_second: 10_000_000_000, ..fast };
    for system in [TREE, RING, BARRIER] {
        for seed in 0..10 {
            let mut recipe = Recipe::fat_tree(system, 5, 1, 60_000).with_link_fault(0.02, 0.0, 0.0, Duration::ZERO);
            recipe.seed = seed;
            recipe.network.shape =
                Shape::FatTree2 { leaves: 5, hosts_per_leaf: 1, spines: 1, parallel_links: 1, host_link: fast, fabric_link: slow };
            recipe.network.queue_bytes = 4_600;
            (recipe.jobs[0].window, recipe.jobs[0].payload_bytes) = (64, 1_024);
            assert!(clean(&recipe).counters.dropped(fanin_core::DropReason::QueueFull) > 0);
        }
    }
}

/// With one element for many workers one packet moves a step, and most workers see nothing but barriers for most of the time.
#[test]
fn passing_a_barrier_is_progress() {
    for seed in 0..5 {
        let mut recipe = Recipe::star(BARRIER, 24, 1).with_link_fault(0.09, 0.0, 0.0, Duration::ZERO);
        recipe.seed = seed;
        recipe.jobs[0].patience = Duration::from_ms(2);
        clean(&recipe);
    }
}

/// Nobody expects a packet of the dead host, so nobody but the coordinator of the barrier can know who is missing.
#[test]
fn a_worker_that_dies_at_a_barrier_is_named() {
    for dead in [0, 7, 23] {
        let mut recipe = Recipe::star(BARRIER, 24, 1);
        recipe.faults.timed = vec![TimedFault::HostDies { host: NodeId(dead), at: Instant::from_ps(60_000_000) }];
        recipe.demand = Demand::MayFail;
        let result = clean(&recipe);
        let failed = result.jobs[0].workers.iter().filter(|worker| worker.operations[0].failure.is_some()).count();
        // Who has all sums is done, whoever dies.
        assert!(failed >= 3, "{failed} of 23 workers failed");
    }
}

/// A ring worker that only hands on what it received was taken for one that never sends from its output.
#[test]
fn one_element_goes_round_a_ring() {
    for system in [RING, BARRIER] {
        for workers in 2..8 {
            clean(&Recipe::star(system, workers, 1));
        }
    }
}

/// A stall brought a dead host back to life.
#[test]
fn a_dead_host_stays_dead() {
    let mut recipe = Recipe::star(TREE, 4, 10_000);
    let at = |us| Instant::ZERO + Duration::from_us(us);
    recipe.faults.timed =
        vec![TimedFault::HostDies { host: NodeId(2), at: at(2) }, TimedFault::HostStall { host: NodeId(2), from: at(3), until: at(4) }];
    recipe.demand = Demand::MayFail;
    assert!(clean(&recipe).jobs[0].first_failure().is_some());
}

/// A host that stalls after its last message was waited for twice.
#[test]
fn a_stall_after_the_last_message_ends_nothing_twice() {
    let mut recipe = Recipe::star(TREE, 4, 100_000);
    recipe.traffic = vec![TrafficConfig {
        hosts: vec![NodeId(0), NodeId(1)],
        pattern: Pattern::Permutation,
        message_bytes: 100,
        payload_bytes: 100,
        load: 1.0,
        congestion: None,
        messages: Some(1),
        start: Instant::ZERO,
    }];
    let at = |us| Instant::ZERO + Duration::from_us(us);
    let stall = |from, until| TimedFault::HostStall { host: NodeId(0), from: at(from), until: at(until) };
    recipe.faults.timed = vec![stall(5, 9), stall(7, 8), stall(12, 13)];
    assert_eq!(clean(&recipe).background_bytes, 200);
}

/// Each answer in a stall began the timeouts of all other packets anew, so that one packet went in a timeout.
#[test]
fn a_stall_ends_as_fast_as_answers_come() {
    for system in [TREE, RING, BARRIER] {
        for seed in 0..10 {
            let mut recipe = Recipe::star(system, 3, 20_000).with_link_fault(0.03, 0.0, 0.0, Duration::ZERO);
            recipe.seed = seed;
            let job = &mut recipe.jobs[0];
            (job.window, job.payload_bytes, job.rto_min) = (64, 396, Duration::from_us(4));
            job.start[1] = Instant::ZERO + Duration::from_ms(3);
            job.patience = Duration::from_ms(300);
            let result = clean(&recipe);
            let end = result.jobs[0].completion(0).expect("all complete");
            // The late worker begins after 3 ms.
            assert!(end < Duration::from_ms(4), "{system:?}, seed {seed}: {end}");
        }
    }
}

/// Who had been missing at first, and came, was still suspected when somebody else was missing.
#[test]
fn a_late_worker_is_not_taken_for_the_dead_one() {
    let mut recipe = Recipe::fat_tree(TREE, 3, 2, 1);
    let patience = Duration::from_ms(4);
    let job = &mut recipe.jobs[0];
    // The one that dies is alone under its leaf.
    job.hosts = [0, 1, 2, 3, 5].map(NodeId).to_vec();
    job.start = vec![Instant::ZERO; 5];
    job.start[0] = Instant::ZERO + patience.divided(8);
    job.patience = patience;
    recipe.faults.timed = vec![TimedFault::HostDies { host: NodeId(5), at: Instant::ZERO }];
    recipe.demand = Demand::MayFail;
    // The checker demands that every failure leads to the dead host.
    assert_eq!(clean(&recipe).jobs[0].workers.iter().filter(|worker| worker.operations.iter().any(|one| one.failure.is_some())).count(), 4);
}

/// The successor waited for a dead worker in the operation before, and was itself named as the one that does not answer.
#[test]
fn a_successor_that_is_behind_is_not_taken_for_dead() {
    for at_us in 5..30 {
        let mut recipe = Recipe::star(RING, 3, 60);
        recipe.jobs[0].elements = vec![17, 53, 5, 100];
        recipe.jobs[0].payload_bytes = 8;
        recipe.jobs[0].patience = Duration::from_ms(7);
        recipe.faults.timed = vec![TimedFault::HostDies { host: NodeId(0), at: Instant::ZERO + Duration::from_us(at_us) }];
        recipe.demand = Demand::MayFail;
        clean(&recipe);
    }
}

/// A block of Canary's that goes through all generations takes many timeouts, one after the other: backed off to an eighth of the patience
/// each, in one of seven such runs they took all of it.
#[test]
fn a_block_of_many_generations_ends_within_the_patience() {
    for seed in [3627, 3, 7, 8, 15, 30] {
        let mut recipe = generate_for(3627, Some("canary"));
        recipe.seed = seed;
        let (_, violations) = examine(&recipe, Checks { twice: false, elements: false, ..Checks::default() });
        assert_eq!(violations, [""; 0], "{recipe}");
    }
}

/// Three routers in a line with two hosts each: the middle one has workers of its own, and others' packets pass it.
fn line(system: System) -> Recipe {
    let mut recipe = Recipe::star(system, 6, 700);
    recipe.jobs[0].payload_bytes = 64;
    let speed = LinkSpeed { bits_per_second: 100_000_000_000, latency: Duration::from_ns(300) };
    let cable = |a, b| WiredCable { a, b, speed, cost: 1 };
    let mut cables: Vec<WiredCable> = (0..6).map(|host| cable(host, 6 + host / 2)).collect();
    cables.extend([cable(6, 7), cable(7, 8)]);
    let named = |name: &str, count| (0..count).map(|number| format!("{name}{number}")).collect();
    recipe.network.shape = Shape::Wired(Wiring { hosts: named("h", 6), switches: named("s", 3), cables, carriers: Vec::new() }.into());
    recipe
}

/// A switch of ATP dropped contributions that were on their way to the server's switch; in trees of two levels none ever passed it.
#[test]
fn a_router_with_workers_passes_on_what_others_contribute() {
    for system in [System::Atp(AtpParameters::default()), System::A2tp(A2tpParameters::default())] {
        let recipe = line(system).with_link_fault(0.01, 0.01, 0.01, Duration::from_us(2));
        clean(&recipe);
    }
}

/// A result that only one rank needs went without its elements to the switches below the one on which that rank hangs, which took it for
/// one that does not fit.
#[test]
fn a_result_for_a_rank_in_the_middle_ends_the_operation_everywhere() {
    for root in 0..6 {
        let mut recipe = line(System::SwitchMl(SwitchMlParameters { fixed_point: root % 2 == 1 }));
        recipe.jobs[0].set_kinds(vec![CollectiveKind::Reduce { root: Rank(root) }]);
        clean(&recipe);
        recipe.jobs[0].set_kinds(vec![CollectiveKind::ReduceScatter]);
        clean(&recipe.with_link_fault(0.01, 0.01, 0.01, Duration::from_us(2)));
    }
}

/// A result on its way to another rack went on from a router with workers of its own as the router's word to one worker: the rest of that rack
/// did not get it and had to ask, and a worker without such a router took none of it.
#[test]
fn a_router_with_workers_passes_on_results_to_other_racks() {
    for aggregating in [1, 2, fanin_systems::UNLIMITED] {
        for seed in 0..5 {
            let mut recipe = line(System::Rina(RinaParameters { aggregating, ..RinaParameters::default() }));
            recipe.seed = seed;
            // Ranks elsewhere, so that each router is on the way of others.
            recipe.jobs[0].hosts.rotate_left(seed as usize);
            let counters = clean(&recipe).counters;
            // A question that crosses its answer is stale.
            let dropped = counters.dropped_total() - counters.dropped(fanin_core::DropReason::Stale);
            assert_eq!((dropped, counters.retransmitted_total()), (0, 0), "{recipe}\n{counters:?}");
        }
    }
}

/// Four switches in a line with two hosts each.
fn long_line(system: System, hosts: &[u32]) -> Recipe {
    let mut recipe = Recipe::star(system, 8, 2_000);
    recipe.jobs[0].payload_bytes = 64;
    let speed = LinkSpeed { bits_per_second: 100_000_000_000, latency: Duration::from_ns(300) };
    let cable = |a, b| WiredCable { a, b, speed, cost: 1 };
    let mut cables: Vec<WiredCable> = (0..8).map(|host| cable(host, 8 + host / 2)).collect();
    cables.extend([cable(8, 9), cable(9, 10), cable(10, 11)]);
    let named = |name: &str, count| (0..count).map(|number| format!("{name}{number}")).collect();
    recipe.network.shape = Shape::Wired(Wiring { hosts: named("h", 8), switches: named("s", 4), cables, carriers: Vec::new() }.into());
    let job = &mut recipe.jobs[0];
    job.hosts = hosts.iter().copied().map(NodeId).collect();
    job.start = vec![Instant::ZERO; hosts.len()];
    job.patience = Duration::from_ms(20);
    recipe
}

/// Kills one host at several times, with several roots: whoever fails names it.
fn names_the_dead(mut recipe: Recipe, dead: u32) {
    let mut failed = 0;
    for seed in 0..6 {
        for at_ns in [0, 700, 2_000, 7_000] {
            recipe.jobs[0].seed = seed;
            recipe.faults.timed = vec![TimedFault::HostDies { host: NodeId(dead), at: Instant::ZERO + Duration::from_ns(at_ns) }];
            recipe.demand = Demand::MayFail;
            // The checker demands that every failure leads to the dead host.
            failed += usize::from(clean(&recipe).jobs[0].first_failure().is_some());
        }
    }
    assert!(failed >= 12, "{failed} of 24 runs failed: {recipe}");
}

/// What a switch knew of who is missing ended at the next one, where nobody had come to the block: behind that one only the next switch was
/// known to be silent, in which nothing was wrong. Where it did come further, a switch replaced it by its own, less precise word.
#[test]
fn who_is_missing_at_the_end_of_a_line_of_switches_is_known_at_the_other() {
    let sharp = System::Sharp(SHARP);
    for system in [System::SwitchMl(SwitchMlParameters { fixed_point: false }), System::tree(1), sharp] {
        names_the_dead(long_line(system, &[0, 1, 6]), 1);
        names_the_dead(long_line(system, &[0, 1, 6, 7]), 7);
        names_the_dead(long_line(system, &[0, 1, 4, 7]), 0);
    }
}

/// Of switches in a line above a dead worker that is alone there none has anything that it could tell of.
#[test]
fn a_dead_worker_alone_behind_several_switches_is_named() {
    let sharp = System::Sharp(SHARP);
    for system in [System::SwitchMl(SwitchMlParameters { fixed_point: false }), System::tree(1), sharp] {
        names_the_dead(long_line(system, &[0, 2, 6]), 6);
        names_the_dead(long_line(system, &[0, 3, 7]), 0);
    }
}

/// A server told workers that a rank lacks a block that this rank may not send yet, since it waits for the dead one as well.
#[test]
fn who_may_not_send_a_block_yet_is_not_taken_for_the_dead_one() {
    for (system, seed) in [("ps", 7_000_437), ("ps", 7_001_742), ("atp", 7_000_353), ("atp", 7_000_479)] {
        let recipe = generate_for(seed, Some(system));
        let (_, violations) = examine(&recipe, Checks { twice: false, elements: false, ..Checks::default() });
        assert_eq!(violations, [""; 0], "{recipe}");
    }
}

/// Timeouts backed off to an eighth of the patience, so that eight losses in a row, which heavy loss on many links makes common, ended a job.
/// And the shortest round trips that were seen held others' timeouts, so that timeouts fed on each other.
#[test]
fn a_tenth_lost_on_every_link_ends_no_job() {
    let (atp, a2tp) = (System::Atp(AtpParameters::default()), System::A2tp(A2tpParameters::default()));
    let canary = System::Canary(CanaryParameters::default());
    let (ps, rina) = (System::Ps(PsParameters::default()), System::Rina(RinaParameters::default()));
    let netreduce = System::NetReduce(NetReduceParameters::default());
    let sharp = System::Sharp(SHARP);
    let panama = System::Panama(PanamaParameters { trees: 1, window_initial: 4 });
    let switchml = System::SwitchMl(SwitchMlParameters { fixed_point: false });
    for system in [atp, a2tp, ps, switchml, TREE, canary, RING, BARRIER, netreduce, rina, sharp, panama] {
        let mut recipe = Recipe::star(system, 20, 1_024);
        let speed = LinkSpeed { bits_per_second: 10_000_000_000, latency: Duration::from_ns(150) };
        recipe.network.shape = Shape::FatTree3 { ports: 6, host_link: speed, fabric_link: speed };
        let job = &mut recipe.jobs[0];
        (job.window, job.rto_initial, job.rto_min) = (8, Duration::from_us(12), Duration::from_us(12));
        job.hosts = (0..20).map(|rank| NodeId(rank * 37 % 54)).collect();
        let mut recipe = recipe.with_link_fault(0.1, 0.0, 0.0, Duration::ZERO);
        let mut longest = Duration::ZERO;
        for seed in 0..6 {
            recipe.seed = seed;
            let result = run::<Census>(&recipe, |_| {}).expect("a run");
            assert_eq!(violations(&recipe, &result), [""; 0], "{recipe}");
            longest = longest.max(result.jobs[0].completion(0).expect("all complete"));
        }
        println!("{}: {longest} at most", recipe.jobs[0].system.name());
    }
    let recipe = generate_for(7_003_668, Some("atp"));
    let (_, violations) = examine(&recipe, Checks { twice: false, elements: false, ..Checks::default() });
    assert_eq!(violations, [""; 0], "{recipe}");
}

/// A host died when all had all results of the last operation. The coordinator ended it with the word that the next epoch begins, and asked nobody
/// any more; who had missed that word waited for it, and blamed the coordinator.
#[test]
fn who_has_missed_that_an_epoch_begins_hears_it_from_those_who_are_done() {
    for seed in [7_000_353, 7_101_673, 7_101_980] {
        clean(&generate_for(seed, Some("rina")));
    }
}

/// A server said that a rank is missing, which was only the last to begin, and died with that word: it was all that was known ever after, and
/// the rank was named for the server's host.
#[test]
fn what_a_server_said_before_it_died_names_nobody() {
    for (system, seed) in [("atp", 7_003_754), ("a2tp", 7_004_118), ("a2tp", 7_004_200)] {
        clean(&generate_for(seed, Some(system)));
    }
}

/// A worker lacked a sum that its leader had for all others before it died: an operation behind, it had contributed to nothing that the others
/// waited for, and was named for the dead one, even by itself.
#[test]
fn who_is_behind_for_a_sum_of_the_dead_is_not_named_for_it() {
    clean(&generate_for(7_005_774, Some("canary")));
}

/// One worker gets half of what comes to it and so is behind the others; then another one dies. With many short operations that is often when
/// the slow one alone lacks something of the dead one's.
fn slow_and_dead(system: System, slow: u32, dead: u32, kinds: &[CollectiveKind]) -> (usize, Vec<String>) {
    let (mut failed, mut wrong) = (0, Vec::new());
    for seed in 0..40 {
        let mut recipe = Recipe::star(system, 6, 36);
        recipe.seed = seed;
        let job = &mut recipe.jobs[0];
        (job.seed, job.payload_bytes, job.patience) = (seed, 32, Duration::from_ms(20));
        job.elements = (0..8).map(|number| [36, 4, 60, 1][number % 4]).collect();
        job.set_kinds((0..8).map(|number| kinds[number % kinds.len()]).collect());
        let (links, kinds) = (LinkSelector::Between { from: NodeId(6), to: NodeId(slow) }, KindSet::ALL);
        let (corruption, duplication, reordering, delay_max) = (0.0, 0.0, 0.0, Duration::ZERO);
        recipe.faults.links = vec![LinkFault { links, kinds, loss: 0.5, corruption, duplication, reordering, delay_max }];
        recipe.faults.timed = vec![TimedFault::HostDies { host: NodeId(dead), at: Instant::ZERO + Duration::from_us(5 + seed * 7) }];
        recipe.demand = Demand::MayFail;
        let (result, found) = examine(&recipe, Checks { twice: false, elements: false, ..Checks::default() });
        failed += usize::from(result.expect("a run").jobs[0].first_failure().is_some());
        wrong.extend(found.first().map(|found| format!("{} {slow} {dead} seed {seed}: {found}", system.name())));
    }
    (failed, wrong)
}

/// Of the systems in which workers have each other's sums.
#[test]
fn who_is_slow_is_not_named_for_the_dead() {
    let canary = |failure, generations| System::Canary(CanaryParameters { failure, generations, ..CanaryParameters::default() });
    let ps = |shards| System::Ps(PsParameters { shards, ..PsParameters::default() });
    let systems = [
        canary(FailureRule::AllAsked, 4),
        canary(FailureRule::FirstRequest, 1),
        canary(FailureRule::Hold, 2),
        ps(0),
        ps(2),
        System::Atp(AtpParameters::default()),
        System::a2tp(),
        RING,
        BARRIER,
        TREE,
        System::NetReduce(NetReduceParameters::default()),
        System::Machines(MachinesParameters::default()),
        System::Rina(RinaParameters::default()),
        System::SwitchMl(SwitchMlParameters { fixed_point: false }),
        System::Sharp(SHARP),
    ];
    let sparse = System::all().into_iter().filter(|system| system.sparsity().is_some()).map(|system| system.at_density(0.05));
    let mut all = Vec::new();
    for system in systems.into_iter().chain(sparse) {
        let kinds: &[CollectiveKind] = match system {
            System::Canary(_) => &[CollectiveKind::ReduceScatter, CollectiveKind::Allreduce, CollectiveKind::AllGather],
            _ => &[CollectiveKind::Allreduce],
        };
        let (mut failed, mut wrong) = (0, Vec::new());
        for (slow, dead) in [(1, 4), (4, 1), (0, 3), (3, 0)] {
            let (more, found) = slow_and_dead(system, slow, dead, kinds);
            failed += more;
            wrong.extend(found);
        }
        println!("{}: {failed} of 160 failed, {} wrong", system.name(), wrong.len());
        all.extend(wrong);
    }
    assert!(all.is_empty(), "{} wrong\n{}", all.len(), all.join("\n"));
}

/// A link without loss took longer for a message's packets than the longest timeout: its sender went back to the first ones before the last one
/// had gone, with which an acknowledgement is asked for, for ever.
#[test]
fn a_message_that_takes_longer_than_any_timeout_gets_through() {
    clean(&generate_for(7_011_866, Some("netreduce")));
    for systems in ["netreduce", "machines"] {
        let mut recipe = generate_for(7_011_866, Some("netreduce"));
        recipe.traffic.clear();
        if systems == "machines" {
            recipe.jobs[0].system = System::Machines(MachinesParameters::default());
        }
        clean(&recipe);
    }
}

/// Two workers of a rack share an uplink with room for two packets. All have lost something and send all again at the same time: as their timeouts
/// were equal, the same worker's packets found the queue full every time.
#[test]
fn senders_that_find_a_queue_full_together_do_not_stay_in_step() {
    clean(&generate_for(7_021_704, Some("machines")));
    for seed in 0..20 {
        let mut recipe = generate_for(7_021_704, Some("machines"));
        recipe.jobs.truncate(1);
        recipe.seed = seed;
        clean(&recipe);
    }
}

/// The initial timeout was shorter than the round trip of an idle network whose links carry a packet at a time. Copies filled the queues, no packet
/// was ever answered before it was sent again, and a window of copies went in every timeout: a storm of 1.4 million of them, and no progress.
#[test]
fn copies_that_fill_the_network_are_sent_less_and_less_often() {
    for system in ["a2tp", "atp", "ps"] {
        clean(&generate_for(7_011_866, Some(system)));
    }
    // Where copies are sent so seldom that word on who is missing fades, another one is named; or a lossy network gives up.
    clean(&generate_for(7_016_611, Some("a2tp")));
    clean(&generate_for(7_043_735, Some("a2tp")));
    clean(&generate_for(7_043_735, Some("atp")));
}

/// Workers under a switch that only forwards sent their copies at the same times through a queue of three packets, and one of them came last
/// each time.
#[test]
fn workers_whose_copies_meet_in_a_short_queue_do_not_stay_in_step() {
    clean(&generate_for(7_019_748, Some("panama")));
}

/// A worker whose window had become longer than others' waited for a block that those could not send before one that a dead worker lacked, and
/// named one of them.
#[test]
fn whoever_has_the_longer_window_does_not_name_those_who_wait_like_it() {
    clean(&generate_for(7_041_653, Some("panama")));
}

/// A queue had room for three packets, or for the short last ones of several blocks. A switch that lacked all others of those blocks said so for
/// each last packet that came, all were sent again, and again only the last ones got through: round and round without a timer, 60 million packets.
#[test]
fn a_switch_that_got_nothing_of_what_it_wanted_waits_for_the_timer() {
    clean(&generate_for(7_008_999, Some("flare")));
}

/// A tenth of all packets was lost on every link, and with it all twelve questions whether a worker was there, which waited itself for a dead one.
#[test]
fn a_worker_is_not_taken_for_dead_since_some_questions_are_lost() {
    for seed in 0..20 {
        let mut recipe = generate_for(7_038_461, Some("ring"));
        recipe.seed = recipe.seed.wrapping_add(seed);
        clean(&recipe);
    }
}
