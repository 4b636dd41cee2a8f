//! Parameter servers end to end: every sum is right and comes once, whatever the number of servers, the sizes and the faults; and who is
//! missing is named.

use crate::common::suite::{
    Job, LOSSES, LOSSY, PATIENCE, PATIENT, assert_answered_from_slots, assert_dead_worker_is_named, failures, faults,
    right_whatever_happens, sizes,
};
use crate::common::{ELEMENT_BYTES, Faults, HasVectors, JOB, Net, Script};
use fanin_core::{Address, Census, DropReason, Duration, FailureReason, FlowLabel, Instant, NodeId, Rank, Role, Suspect};
use fanin_protocols::ps::{PsPeer, PsServer, PsServerConfig, PsWindowConfig, PsWorker, PsWorkerConfig};
use fanin_protocols::shared::real::Real;
use fanin_protocols::shared::reliability::Reliability;
use fanin_wire::ps::PsHeader;
use proptest::prelude::*;

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
            element_bytes: ELEMENT_BYTES,
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
            block_bytes: self.block_elements * ELEMENT_BYTES,
            window: self.window,
            patience: self.reliability.patience,
            flow: FlowLabel(7),
        })
    }
}

impl Job for Plan {
    type Header = PsHeader;
    type Worker<P: HasVectors + ?Sized> = PsWorker<P>;
    type Switch<P: HasVectors + ?Sized> = PsServer<P>;

    fn workers(&self) -> u32 {
        self.workers
    }

    fn conditions(&mut self) -> (&mut Faults, &mut Reliability) {
        (&mut self.faults, &mut self.reliability)
    }

    fn net<P: HasVectors + ?Sized>(&self, scripts: Vec<Script>) -> Net<P, Self::Header, Self::Worker<P>, Self::Switch<P>> {
        let workers = (0..self.workers).map(|rank| self.worker(rank)).collect();
        let servers = (0..self.servers).map(|shard| self.server(shard)).collect();
        let mut net = Net::new(P::OP, workers, servers, scripts, self.faults);
        net.mark(self.marks);
        net
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
    fn workers_may_come_late, fn the_same_seed_gives_the_same_run, fn a_lossless_network_needs_no_repetition);

/// `baselines 4`: a worker sends the vector once; servers together send it to each worker. Shards differ by a block at most.
#[test]
fn without_loss_every_block_goes_there_and_back_once() {
    for servers in [1, 3, 4, 7] {
        let ended = Plan::of(6, servers).run::<Census>(&[4 * 20]);
        ended.all_done(1);
        assert_eq!(ended.counts.packets, 2 * 6 * 20);
        assert!(ended.counts.retransmitted.is_empty());
        let (workers, shards) = ended.counts.data_bytes_sent.split_at(6);
        let block = u64::from(4 * ELEMENT_BYTES);
        assert!(workers.iter().all(|bytes| *bytes == 20 * block), "{workers:?}");
        assert_eq!(shards.iter().sum::<u64>(), 6 * 20 * block);
        let (least, most) = (shards.iter().min().unwrap(), shards.iter().max().unwrap());
        assert!(most - least <= 6 * block, "{shards:?}");
    }
}

#[test]
fn a_lost_sum_is_answered_from_the_slot() {
    assert_answered_from_slots(Plan::of(4, 2), DropReason::Duplicate);
}

#[test]
fn a_dead_worker_is_named_by_all_others() {
    for (servers, loss, seed) in [(1, 0, 1), (1, 10, 2), (3, 0, 3), (5, 10, 4)] {
        let plan = Plan::of(6, servers).under(Faults { seed, loss, jitter_us: 3, ..Faults::NONE });
        assert_dead_worker_is_named(&plan, PATIENCE + Duration::from_ms(2));
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
