//! Flare's three designs of a switch's working memory (`flare 4.1` to `4.3`) as they are with real threads: two of them, blocks of 1 KiB of
//! binary32 floats from 4, 8 and 16 children, both threads on the same block or each on its own. Beside them what Fanin's daemon does: one
//! thread and one node a job, without a lock, and where there are several threads, blocks dealt out to them.
//!
//! `cargo bench --locked -p fanin-core --bench designs`. Time is the wall's, by packet; neighbours disturb it, so the fastest of many short
//! repetitions counts. Every block's sum is checked.
#![expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "threads and locks are what is measured; no node has them")]

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use fanin_core::ElementOp;

const BYTES: usize = 1024;
/// Blocks under way at once.
const SLOTS: u64 = 8;
/// Blocks in a repetition, and repetitions.
const BLOCKS: u64 = 1_000;
const REPETITIONS: u32 = 150;
const THREADS: u64 = 2;
const OP: ElementOp = ElementOp::F32_SUM;

type Block = Box<[u8]>;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn add(sum: &mut [u8], packet: &[u8]) {
    OP.reduce(sum, packet).expect("blocks are alike");
}

/// What a thread has to itself.
struct Own {
    /// Where it writes a sum that it sends.
    sent: Block,
    /// Buffers of a tree.
    free: Vec<Block>,
    /// For the buffer to wait for where all are taken.
    thread: usize,
}

impl Own {
    fn new(thread: usize) -> Self {
        Own { sent: vec![0; BYTES].into(), free: (0..32).map(|_| vec![0; BYTES].into()).collect(), thread }
    }
}

/// A block's working memory, which several threads may work on.
trait Design: Sync {
    fn new(children: usize) -> Self;
    /// Takes the packet of a child in; true: the block is complete, its sum is in `own.sent`, and it is as new.
    fn take(&self, child: usize, packets: &[Block], own: &mut Own) -> bool;
}

/// `flare 4.1`: one buffer and its lock.
struct Single {
    children: usize,
    state: Mutex<(Block, usize)>,
}

impl Design for Single {
    fn new(children: usize) -> Self {
        Single { children, state: Mutex::new((vec![0; BYTES].into(), 0)) }
    }

    fn take(&self, child: usize, packets: &[Block], own: &mut Own) -> bool {
        let mut state = locked(&self.state);
        let (sum, count) = &mut *state;
        if *count == 0 {
            sum.copy_from_slice(&packets[child])
        } else {
            add(sum, &packets[child])
        }
        *count += 1;
        if *count < self.children {
            return false;
        }
        own.sent.copy_from_slice(sum);
        *count = 0;
        true
    }
}

/// `flare 4.2`: M buffers, the first free one.
struct Multiple<const M: usize> {
    children: u32,
    /// With whether there is anything in it.
    buffers: [Mutex<(Block, bool)>; M],
    count: AtomicU32,
}

impl<const M: usize> Design for Multiple<M> {
    fn new(children: usize) -> Self {
        let buffers = std::array::from_fn(|_| Mutex::new((vec![0; BYTES].into(), false)));
        Multiple { children: children as u32, buffers, count: AtomicU32::new(0) }
    }

    fn take(&self, child: usize, packets: &[Block], own: &mut Own) -> bool {
        {
            let mut free = self.buffers.iter().find_map(|buffer| buffer.try_lock().ok());
            let buffer = free.get_or_insert_with(|| locked(&self.buffers[own.thread % M]));
            let (sum, is_used) = &mut **buffer;
            if *is_used {
                add(sum, &packets[child])
            } else {
                sum.copy_from_slice(&packets[child])
            }
            *is_used = true;
        }
        // Counted when it is in a buffer, so that who counts to P finds all of them.
        if self.count.fetch_add(1, Ordering::AcqRel) + 1 < self.children {
            return false;
        }
        let mut is_first = true;
        for buffer in &self.buffers {
            let mut buffer = locked(buffer);
            if std::mem::replace(&mut buffer.1, false) {
                if is_first {
                    own.sent.copy_from_slice(&buffer.0)
                } else {
                    add(&mut own.sent, &buffer.0)
                }
                is_first = false;
            }
        }
        self.count.store(0, Ordering::Release);
        true
    }
}

/// What waits in a tree for its neighbour: a packet, where it came in, or a sum.
enum Waiting {
    Packet(usize),
    Sum(Block),
}

/// `flare 4.3`: a flag for each pair of neighbours; who finds it set adds the two. The locks are never waited for: who has set the flag is done.
struct Tree {
    children: usize,
    pairs: Box<[Pair]>,
}

struct Pair {
    is_waiting: AtomicBool,
    sides: [Mutex<Option<Waiting>>; 2],
}

impl Tree {
    /// Left + right, in a buffer.
    fn add(left: Waiting, right: Waiting, packets: &[Block], own: &mut Own) -> Block {
        match (left, right) {
            (Waiting::Sum(mut left), Waiting::Sum(right)) => {
                add(&mut left, &right);
                own.free.push(right);
                left
            }
            (Waiting::Sum(mut left), Waiting::Packet(right)) => {
                add(&mut left, &packets[right]);
                left
            }
            (Waiting::Packet(left), right) => {
                let mut sum = own.free.pop().unwrap_or_else(|| vec![0; BYTES].into());
                let other = match &right {
                    Waiting::Packet(right) => &packets[*right],
                    Waiting::Sum(right) => right,
                };
                OP.combine(&mut sum, &packets[left], other).expect("blocks are alike");
                if let Waiting::Sum(right) = right {
                    own.free.push(right);
                }
                sum
            }
        }
    }
}

impl Design for Tree {
    fn new(children: usize) -> Self {
        let pair = |_| Pair { is_waiting: AtomicBool::new(false), sides: [Mutex::new(None), Mutex::new(None)] };
        Tree { children, pairs: (1..children).map(pair).collect() }
    }

    fn take(&self, child: usize, packets: &[Block], own: &mut Own) -> bool {
        let (mut index, mut width, mut first) = (child, self.children, 0);
        let mut mine = Waiting::Packet(child);
        while width > 1 {
            if index ^ 1 < width {
                let pair = &self.pairs[first + index / 2];
                let (side, other) = (index % 2, 1 - index % 2);
                *locked(&pair.sides[side]) = Some(mine);
                if !pair.is_waiting.swap(true, Ordering::AcqRel) {
                    return false;
                }
                let both = [side, other].map(|side| locked(&pair.sides[side]).take());
                pair.is_waiting.store(false, Ordering::Release);
                let [Some(own_side), Some(other_side)] = both else { unreachable!("both sides have come") };
                let (left, right) = if side == 0 { (own_side, other_side) } else { (other_side, own_side) };
                mine = Waiting::Sum(Tree::add(left, right, packets, own));
            }
            first += width / 2;
            (index, width) = (index / 2, width.div_ceil(2));
        }
        if let Waiting::Sum(sum) = mine {
            own.sent.copy_from_slice(&sum);
            own.free.push(sum);
        }
        true
    }
}

/// What the daemon does: a node has its buffers to itself.
struct NoLock {
    children: usize,
    sum: Block,
    count: usize,
}

impl NoLock {
    fn take(&mut self, child: usize, packets: &[Block], own: &mut Own) -> bool {
        if self.count == 0 {
            self.sum.copy_from_slice(&packets[child])
        } else {
            add(&mut self.sum, &packets[child])
        }
        self.count += 1;
        if self.count < self.children {
            return false;
        }
        own.sent.copy_from_slice(&self.sum);
        self.count = 0;
        true
    }
}

/// The packets of a block, which are the same for all blocks, and their sum.
fn packets(children: usize) -> (Vec<Block>, Block) {
    let packet = |child: usize| (0..BYTES / 4).flat_map(|index| ((child * 7 + index) as f32).to_le_bytes()).collect::<Block>();
    let packets: Vec<Block> = (0..children).map(packet).collect();
    let mut sum = packets[0].clone();
    packets[1..].iter().for_each(|packet| add(&mut sum, packet));
    (packets, sum)
}

/// Both threads work on every block, each with half of its packets: ns a packet.
fn on_one_block<D: Design>(children: usize) -> f64 {
    let (packets, sum) = packets(children);
    let slots: Vec<(D, AtomicU64)> = (0..SLOTS).map(|_| (D::new(children), AtomicU64::new(0))).collect();
    let work = |thread: usize, own: &mut Own| {
        for block in 0..BLOCKS {
            let (design, uses) = &slots[(block % SLOTS) as usize];
            let mut looks = 0u32;
            // The slot's last block must have ended.
            while uses.load(Ordering::Acquire) < block / SLOTS {
                looks += 1;
                if looks.is_multiple_of(256) { thread::yield_now() } else { spin_loop() }
            }
            for child in (thread..children).step_by(THREADS as usize) {
                if design.take(child, &packets, own) {
                    assert_eq!(own.sent, sum);
                    uses.fetch_add(1, Ordering::Release);
                }
            }
        }
    };
    fastest(children, || slots.iter().for_each(|(_, uses)| uses.store(0, Ordering::Relaxed)), work)
}

/// Each thread has every other block to itself.
fn on_own_blocks<D: Design>(children: usize) -> f64 {
    let (packets, sum) = packets(children);
    let slots: Vec<D> = (0..SLOTS).map(|_| D::new(children)).collect();
    let work = |thread: usize, own: &mut Own| {
        for block in (thread as u64..BLOCKS).step_by(THREADS as usize) {
            for child in 0..children {
                if slots[(block % SLOTS) as usize].take(child, &packets, own) {
                    assert_eq!(own.sent, sum);
                }
            }
        }
    };
    fastest(children, || (), work)
}

/// The daemon: without locks, by so many threads, each with its own blocks.
fn without_locks(children: usize, threads: usize) -> f64 {
    let (packets, sum) = packets(children);
    let work = |thread: usize, own: &mut Own| {
        let node = || NoLock { children, sum: vec![0; BYTES].into(), count: 0 };
        let mut slots: Vec<NoLock> = (0..SLOTS).map(|_| node()).collect();
        if thread >= threads {
            return;
        }
        for block in (thread as u64..BLOCKS).step_by(threads) {
            for child in 0..children {
                if slots[(block % SLOTS) as usize].take(child, &packets, own) {
                    assert_eq!(own.sent, sum);
                }
            }
        }
    };
    fastest(children, || (), work)
}

/// ns a packet, of the fastest repetition: from the moment at which both threads are there until both are done.
fn fastest(children: usize, before: impl Fn(), work: impl Fn(usize, &mut Own) + Sync) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..REPETITIONS {
        before();
        let there = AtomicU64::new(0);
        let run = |thread: usize| {
            let mut own = Own::new(thread);
            there.fetch_add(1, Ordering::AcqRel);
            while there.load(Ordering::Acquire) < THREADS {
                spin_loop();
            }
            let start = Instant::now();
            work(thread, &mut own);
            (start, Instant::now())
        };
        let run = &run;
        let spans: Vec<(Instant, Instant)> = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS as usize).map(|thread| scope.spawn(move || run(thread))).collect();
            threads.into_iter().map(|thread| thread.join().expect("sums are right")).collect()
        });
        let (Some(start), Some(end)) = (spans.iter().map(|span| span.0).min(), spans.iter().map(|span| span.1).max()) else { continue };
        best = best.min((end - start).as_nanos() as f64 / (BLOCKS * children as u64) as f64);
    }
    best
}

fn main() {
    println!(
        "ns a packet of 1 KiB (wall), fastest of {REPETITIONS} repetitions of {BLOCKS} blocks; {THREADS} threads but for `no lock, 1 thread`"
    );
    println!("{:>8} {:>28} {:>16} {:>16}", "children", "design", "on one block", "on own blocks");
    for children in [4, 8, 16] {
        let rows = [
            ("one buffer, one lock", on_one_block::<Single>(children), on_own_blocks::<Single>(children)),
            ("2 buffers, try-lock", on_one_block::<Multiple<2>>(children), on_own_blocks::<Multiple<2>>(children)),
            ("4 buffers, try-lock", on_one_block::<Multiple<4>>(children), on_own_blocks::<Multiple<4>>(children)),
            ("tree, flags", on_one_block::<Tree>(children), on_own_blocks::<Tree>(children)),
        ];
        for (name, one, own) in rows {
            println!("{children:>8} {name:>28} {one:>16.1} {own:>16.1}");
        }
        println!("{children:>8} {:>28} {:>16} {:>16.1}", "no lock, 1 thread", "-", without_locks(children, 1));
        println!("{children:>8} {:>28} {:>16} {:>16.1}", "no lock, a node a thread", "-", without_locks(children, 2));
    }
}
