//! A switch whose array of descriptors jobs share, packet by packet.

use crate::canary_bench::{BLOCK_BYTES, Seen, TIMEOUT, To};
use fanin_core::{Address, Census, DropReason, Duration, Event, Ingress, Instant, JobId, Node, NodeId, PortId, Tally};
use fanin_protocols::canary::{CanarySharedSwitch, CanarySwitchConfig, MarkRule, Placement, Timeout};
use fanin_wire::canary::{CanaryHeader, CanaryId, CanaryMarks, PartialSum};

const ONE: JobId = JobId(1);
/// Its number is the same as that of the first one in packets.
const TWIN: JobId = JobId(257);
const OTHER: JobId = JobId(2);
const HOSTS: u16 = 4;

struct Switch {
    node: CanarySharedSwitch<Census>,
    seen: Seen,
    now: Instant,
}

impl Switch {
    fn new(descriptors: u32, placement: Placement) -> Self {
        let mut node = CanarySharedSwitch::new(descriptors, placement);
        for (job, timeout) in [(ONE, TIMEOUT), (TWIN, TIMEOUT.times(3)), (OTHER, TIMEOUT.times(2))] {
            node.admit(
                CanarySwitchConfig {
                    job,
                    node: NodeId(77),
                    ports: 8,
                    op: (),
                    block_bytes: BLOCK_BYTES,
                    timeout: Timeout::Fixed(timeout),
                    descriptors,
                    placement,
                    descriptor_lifetime: Duration::MAX,
                },
                None,
                None,
                MarkRule::Nothing,
            );
        }
        Switch { node, seen: Seen::default(), now: Instant::ZERO }
    }

    fn gets(&mut self, job: JobId, port: u16, header: CanaryHeader) -> Vec<(To, CanaryHeader, Census)> {
        self.seen.job = job;
        let from = Ingress { port: PortId(port), source: Address::default(), job, ecn: false };
        self.node.on_packet(self.now, from, &header, &Census::new(BLOCK_BYTES, 1), &mut self.seen);
        std::mem::take(&mut self.seen.sent)
    }

    fn contribution(&mut self, job: JobId, port: u16, block: u32) -> Vec<(To, CanaryHeader, Census)> {
        self.gets(job, port, CanaryHeader::Reduce(sum(job, block, 1)))
    }

    fn waits(&mut self, time: Duration) -> Vec<(To, CanaryHeader, Census)> {
        self.now += time;
        self.node.on_timeout(self.now, &mut self.seen);
        std::mem::take(&mut self.seen.sent)
    }

    fn counted(&mut self) -> Vec<(u16, Tally)> {
        std::mem::take(&mut self.seen.counted).into_iter().map(|(job, tally)| (job.0, tally)).collect()
    }
}

fn id(job: JobId, block: u32) -> CanaryId {
    CanaryId::new(job.0 as u8, 0, block)
}

fn sum(job: JobId, block: u32, counter: u16) -> PartialSum {
    PartialSum { id: id(job, block), leader: NodeId(3), counter, hosts: HOSTS, marks: CanaryMarks::NONE }
}

/// What one job has is a collision for the other, until its sum has passed; equal names are no reason to add.
#[test]
fn a_place_is_whose_block_comes_first_until_its_sum_has_passed() {
    let mut switch = Switch::new(1, Placement::Hash);
    assert_eq!(switch.contribution(ONE, 0, 5), []);
    for job in [TWIN, OTHER] {
        let sent = switch.contribution(job, 1, 5);
        let collided = CanaryHeader::Collided { sum: sum(job, 5, 1), switch: 77, port: PortId(1) };
        assert_eq!(sent, [(To::Direct(Address::worker(NodeId(3))), collided, Census::new(BLOCK_BYTES, 1))]);
    }
    let (added, collided) = ((1, Tally::Summed), Tally::Collision);
    assert_eq!(switch.counted(), [added, (257, collided), (2, collided)]);
    // The twin's sum finds no descriptor of its job.
    assert_eq!(switch.gets(TWIN, 7, CanaryHeader::Broadcast { id: id(TWIN, 5), marks: CanaryMarks::NONE }), []);
    assert!(switch.seen.notes.contains(&Event::Dropped(DropReason::NoSlot)));
    assert_eq!(switch.waits(TIMEOUT).len(), 1);
    let sums = switch.gets(ONE, 7, CanaryHeader::Broadcast { id: id(ONE, 5), marks: CanaryMarks::NONE });
    assert_eq!(sums.iter().map(|(to, ..)| to.clone()).collect::<Vec<_>>(), [To::Ports(vec![0])]);
    assert_eq!((switch.node.places_taken(), switch.node.descriptors_in_use()), (0, 0));
    assert_eq!(switch.contribution(TWIN, 1, 6), []);
    assert_eq!((switch.node.in_use_by(TWIN), switch.node.in_use_by(ONE)), (1, 0));
}

/// Each job's descriptors wait as long as that job says, and what they send is of that job.
#[test]
fn timers_are_each_jobs_own() {
    let mut switch = Switch::new(1 << 16, Placement::TwoPlaces);
    for (port, job) in [(0, OTHER), (1, TWIN), (2, ONE)] {
        assert_eq!(switch.contribution(job, port, 9), []);
    }
    switch.counted();
    let mut due = Vec::new();
    while let Some(at) = switch.node.next_timeout() {
        switch.now = at;
        let sent = switch.waits(Duration::ZERO).len();
        due.push((at.as_ps() / TIMEOUT.as_ps(), sent, switch.seen.job));
    }
    assert_eq!(due, [(1, 1, ONE), (2, 1, OTHER), (3, 1, TWIN)]);
    let sent = |job| [(job, Tally::TimedOut), (job, Tally::Sum)];
    assert_eq!(switch.counted(), [1, 2, 257].map(sent).concat());
    // A straggler is counted for its job as well.
    assert_eq!(switch.contribution(TWIN, 3, 9).len(), 1);
    assert_eq!(switch.counted(), [(257, Tally::Straggler)]);
}

#[test]
fn a_job_that_ends_leaves_its_places_to_the_others() {
    let mut switch = Switch::new(64, Placement::Hash);
    for block in 0..200 {
        switch.contribution(ONE, 0, block);
        switch.contribution(OTHER, 0, block);
    }
    let (of_one, of_other) = (switch.node.in_use_by(ONE), switch.node.in_use_by(OTHER));
    assert_eq!((of_one + of_other, switch.node.places_taken()), (64, 64));
    switch.seen.notes.clear();
    switch.node.on_job_end(switch.now, ONE, &mut switch.seen);
    assert_eq!(switch.seen.notes, vec![Event::SlotFreed { bytes: BLOCK_BYTES }; of_one as usize]);
    assert_eq!((switch.node.in_use_by(ONE), switch.node.places_taken()), (0, of_other));
    assert_eq!(switch.contribution(ONE, 0, 3), []);
    assert_eq!(switch.seen.notes.last(), Some(&Event::Dropped(DropReason::NotAMember)));
    // The timers of the others run on.
    let sent = switch.waits(TIMEOUT.times(2));
    assert_eq!(sent.len(), of_other as usize);
}

/// The deadline of what is rebased is that of its first job.
#[test]
fn times_are_relative_to_the_present_for_all_jobs() {
    let mut switch = Switch::new(64, Placement::Hash);
    switch.contribution(OTHER, 0, 1);
    switch.now += TIMEOUT;
    switch.contribution(ONE, 0, 1);
    switch.node.rebase(Instant::ZERO + TIMEOUT.divided(2));
    assert_eq!(switch.node.next_timeout(), Some(Instant::ZERO + TIMEOUT.times(3).divided(2)));
}
