//! Parameter servers end to end: every sum is right and comes once, whatever the number of servers, the sizes and the faults; and who is
//! missing is named.

use crate::common::suite::{Job, LOSSES, LOSSY, PATIENCE, PATIENT, failures, faults, right_whatever_happens, sizes};
use crate::common::{Ended, Faults, HasVectors, JOB, Net, Script};
use fanin_core::{Address, Census, DropReason, Duration, FailureReason, FlowLabel, Instant, NodeId, Rank, RetransmitReason, Role, Suspect};
use fanin_protocols::ps::{PsPeer, PsServer, PsServerConfig, PsWindowConfig, PsWorker, PsWorkerConfig};
use fanin_protocols::shared::real::Real;
use fanin_protocols::shared::reliability::Reliability;
use fanin_wire::ps::PsHeader;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

#[derive(Clone, Debug)]
struct Plan {
    workers: u32,
    servers: u32,
    /// At each server.
    window: u32,
    initial: u32,
    /// Of 1000 packets, so many are marked.
    marks: u32,
    block_elements: u32,
    reliability: Reliability,
    faults: Faults,
}

impl Plan {
    fn of(workers: u32, servers: u32) -> Plan {
        Plan { workers, servers, window: 4, initial: 4, marks: 0, block_elements: 4, reliability: LOSSY, faults: Faults::NONE }
    }

    /// Servers live behind the workers; this network calls all but workers switches.
    fn server_at(&self, shard: u32) -> Address {
        Address { node: NodeId(self.workers + shard), role: Role::Switch }
    }

    fn worker<P: HasVectors + ?Sized>(&self, rank: u32) -> PsWorker<P> {
        let peer = |shard| PsPeer { address: self.server_at(shard), suspect: Suspect::Switch(NodeId(100 + shard)) };
        PsWorker::new(PsWorkerConfig {
            job: JOB,
            rank: Rank(rank),
            workers: self.workers,
            servers: (0..self.servers).map(peer).collect(),
            first_shard: rank + 1,
            op: P::OP,
            element_bytes: crate::common::ELEMENT_BYTES,
            block_elements: self.block_elements,
            window: PsWindowConfig { longest: self.window, initial: self.initial, increase: Real::new(1.0) },
            reliability: self.reliability,
            flow: FlowLabel(7),
        })
    }

    fn server<P: HasVectors + ?Sized>(&self, shard: u32) -> PsServer<P> {
        PsServer::new(PsServerConfig {
            job: JOB,
            shard: shard as u16,
            workers: (0..self.workers).map(|rank| Address::worker(NodeId(rank))).collect(),
            op: P::OP,
            block_bytes: self.block_elements * crate::common::ELEMENT_BYTES,
            window: self.window,
            patience: self.reliability.patience,
            flow: FlowLabel(7),
        })
    }

    fn net<P: HasVectors + ?Sized>(&self, scripts: Vec<Script>) -> Net<P, PsHeader, PsWorker<P>, PsServer<P>> {
        let workers = (0..self.workers).map(|rank| self.worker(rank)).collect();
        let servers = (0..self.servers).map(|shard| self.server(shard)).collect();
        let mut net = Net::new(P::OP, workers, servers, scripts, self.faults);
        net.mark(self.marks);
        net
    }
}

impl Job for Plan {
    fn workers(&self) -> u32 {
        self.workers
    }

    fn run_scripts<P: HasVectors + ?Sized>(&self, scripts: Vec<Script>) -> Ended {
        self.net::<P>(scripts).run(Duration::from_ms(20_000))
    }
}

fn plans() -> impl Strategy<Value = Plan> {
    // 65 and more workers need a second word of bits.
    let workers = prop_oneof![8 => 1u32..9, 1 => 63u32..68];
    let shape = (workers, 1u32..6, prop_oneof![Just(1u32), Just(2), Just(3), Just(8), Just(64)], 1u32..80, 1u32..6);
    let marks = prop_oneof![Just(0u32), Just(100)];
    (shape, marks, faults(LOSSES)).prop_map(|((workers, servers, window, initial, block_elements), marks, faults)| Plan {
        workers,
        servers,
        window,
        initial,
        marks,
        block_elements,
        reliability: PATIENT,
        faults,
    })
}

right_whatever_happens!(plans(), sizes(4, 40, 300), 150 cases from 0x95: fn sums_are_right_under_all_faults, fn elements_are_summed_under_all_faults,
    fn workers_may_come_late, fn the_same_seed_gives_the_same_run);

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, rng_seed: RngSeed::Fixed(0x95), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_lossless_network_needs_no_repetition(plan in plans(), elements in sizes(4, 40, 300)) {
        let faults = Faults { loss: 0, duplication: 0, ..plan.faults };
        let plan = Plan { reliability: Reliability::LOSSLESS, faults, ..plan };
        let ended = plan.run::<Census>(&elements);
        ended.all_done(elements.len());
        prop_assert!(ended.counts.retransmitted.is_empty() && ended.counts.dropped.is_empty(), "{:?}", ended.counts);
        if plan.workers == 1 {
            prop_assert_eq!(ended.counts.packets, 0);
        }
    }
}

/// `baselines 4`: a worker sends the vector once; servers together send it to each worker. Shards differ by a block at most.
#[test]
fn without_loss_every_block_goes_there_and_back_once() {
    for servers in [1, 3, 4, 7] {
        let ended = Plan::of(6, servers).run::<Census>(&[4 * 20]);
        ended.all_done(1);
        assert_eq!(ended.counts.packets, 2 * 6 * 20);
        assert!(ended.counts.retransmitted.is_empty());
        let (workers, shards) = ended.counts.data_bytes_sent.split_at(6);
        let block = u64::from(4 * crate::common::ELEMENT_BYTES);
        assert!(workers.iter().all(|bytes| *bytes == 20 * block), "{workers:?}");
        assert_eq!(shards.iter().sum::<u64>(), 6 * 20 * block);
        let (least, most) = (shards.iter().min().unwrap(), shards.iter().max().unwrap());
        assert!(most - least <= 6 * block, "{shards:?}");
    }
}

#[test]
fn a_lost_sum_is_answered_from_the_slot() {
    let plan = Plan { faults: Faults { loss: 200, seed: 3, ..Faults::NONE }, ..Plan::of(4, 2) };
    let ended = plan.run::<Census>(&[400]);
    ended.all_done(1);
    assert!(ended.counts.retransmitted[&RetransmitReason::Timeout] > 0);
    assert!(ended.counts.retransmitted[&RetransmitReason::Asked] > 0);
    assert!(ended.counts.dropped[&DropReason::Duplicate] > 0);
}

#[test]
fn a_dead_worker_is_named_by_all_others() {
    for (servers, loss, seed) in [(1, 0, 1), (1, 10, 2), (3, 0, 3), (5, 10, 4)] {
        let plan = Plan { faults: Faults { seed, loss, jitter_us: 3, ..Faults::NONE }, ..Plan::of(6, servers) };
        let ended = plan.run_with_a_death::<Census>(4, Instant::ZERO + Duration::from_us(50));
        let told = failures(&ended, Some(4), Instant::ZERO, PATIENCE + Duration::from_ms(2));
        assert_eq!(told.len(), 5);
        for failure in told {
            let said = (failure.suspect, failure.reason, failure.block.is_some());
            assert_eq!(said, (Suspect::Rank(Rank(4)), FailureReason::NoProgress, true), "{servers} servers, loss {loss}");
        }
    }
}

#[test]
fn a_dead_server_is_named() {
    let plan = Plan::of(4, 3);
    let mut net = plan.net::<Census>(vec![Script::of(&[400]); 4]);
    net.kill(5);
    let ended = net.run(Duration::from_ms(1_000));
    for failure in failures(&ended, None, Instant::ZERO, PATIENCE + Duration::from_ms(1)) {
        assert_eq!((failure.suspect, failure.reason), (Suspect::Switch(NodeId(101)), FailureReason::NoProgress));
        assert!((33..67).contains(&failure.block.unwrap()), "a block of its shard: {failure:?}");
    }
}

#[test]
fn workers_that_disagree_are_told() {
    // In the length of a block, and in the number of blocks: then the next operation of some meets this one of others.
    for (own, others) in [(&[3][..], &[4][..]), (&[4, 4], &[8, 8])] {
        let mut scripts = vec![Script::of(others); 4];
        scripts[3] = Script { start: Instant::ZERO + Duration::from_us(100), ..Script::of(own) };
        let ended = Plan::of(4, 1).net::<Census>(scripts).run(Duration::from_ms(1_000));
        let told = failures(&ended, None, Instant::ZERO, PATIENCE.times(2));
        assert!(told.iter().any(|failure| failure.reason == FailureReason::Mismatch), "{told:?}");
    }
}
