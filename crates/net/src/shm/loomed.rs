//! Ranks of a job in shared memory, in every order of their accesses that the memory model allows: sums are exact, no area is used by two at once, and
//! nobody sleeps for ever. Each of the orders that this rests on is made weaker once, and what goes wrong then is found.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::{Inputs, Layout, Pool, Segment, Waiting};
use crate::sync::{PLANTED, Place, thread};

fn sum(inputs: &Inputs<'_>, result: &mut [u8]) -> Result<(), u64> {
    let words = (0..inputs.world()).map(|rank| u64::from_le_bytes(inputs.of(rank)[..8].try_into().expect("8 bytes")));
    result.copy_from_slice(&words.sum::<u64>().to_le_bytes());
    Ok(())
}

/// A rank's part of so many blocks of 8 bytes, one at a time: what it reads is the sum of all.
fn run(mut pool: Pool, (rank, world): (u64, u64), blocks: u64) {
    for block in 0..blocks {
        let input = (100 * block + rank).to_le_bytes();
        pool.arrive(block, Some(&input), 8, sum).expect("nobody fails");
        while !pool.wait(Duration::from_secs(1)).expect("nobody fails") {}
        let read = pool.read(8, |result| u64::from_le_bytes(result.try_into().expect("8 bytes")));
        assert_eq!(read, (0..world).map(|rank| 100 * block + rank).sum::<u64>(), "rank {rank}, block {block}");
    }
}

/// Ranks on threads of loom, through the same slot again and again.
fn ranks(world: u32, blocks: u64) {
    let layout = Layout { world, slots: 1, block_bytes: 4_096 };
    let first = Segment::create(layout, 3).expect("memory");
    let others: Vec<Segment> = (1..world).map(|_| Segment::open(&first.path(), layout, 3).expect("made")).collect();
    let mut pools = (0..).zip(std::iter::once(first).chain(others)).map(|(rank, segment)| Pool::new(segment, rank, Waiting::Adaptive));
    let own = pools.next().expect("rank 0");
    let threads: Vec<_> = (1..).zip(pools).map(|(rank, pool)| thread::spawn(move || run(pool, (rank, u64::from(world)), blocks))).collect();
    run(own, (0, u64::from(world)), blocks);
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
}

/// Every order in which a thread loses its turn at most so often at a point where it could go on.
fn model(preemptions: usize, test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(test);
}

#[test]
fn two_ranks_get_exact_sums_and_none_sleeps_for_ever() {
    model(3, || ranks(2, 2));
}

#[test]
fn three_ranks_get_exact_sums_and_none_sleeps_for_ever() {
    model(2, || ranks(3, 1));
}

#[test]
fn every_order_is_needed() {
    for place in [Place::Arrive, Place::Look, Place::Done, Place::Ready, Place::DoneThenSleepers, Place::SleeperThenDone] {
        PLANTED.with(|planted| planted.set(Some(place)));
        let found = catch_unwind(AssertUnwindSafe(|| model(3, || ranks(2, 2))));
        PLANTED.with(|planted| planted.set(None));
        assert!(found.is_err(), "{place:?}: nothing goes wrong without it");
    }
}
