//! A job's descriptors at a switch: the array of fixed length says which block is at which place, and the descriptors themselves lie close
//! together however long the array is.

use fanin_core::{Instant, JobId, NodeId, Payload, PortId, PortSet};
use fanin_wire::canary::{CanaryId, CanaryMarks, PartialSum};

use super::pool::Pool;
use super::table::{Found, Table};
use super::timeout::Arrivals;
use super::timers::Timer;
use crate::shared::rtt::rebased;

/// Where a descriptor stands; the transitions are drawn in the module's documentation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum State {
    /// Packets are added until the timeout.
    Collecting,
    /// Its time is over, and there was no room on the way out yet: packets are still added.
    Ready,
    /// Its sum was sent on; it remembers the children.
    Sent,
    /// Holds the sum over all workers; there was no room on the way to the children yet.
    Descending,
}

/// One descriptor (`canary 3`).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Descriptor<A> {
    pub id: CanaryId,
    pub leader: NodeId,
    /// Where it is in the array.
    place: u32,
    /// When it is sent on; once it was, when it is given up.
    pub deadline: Instant,
    /// Contributions in `sum`.
    pub counter: u16,
    /// Workers of the job.
    pub hosts: u16,
    /// Contributions that can come here at most.
    pub fan_in: u16,
    pub state: State,
    /// What its contributions have met; on its way down, what the block has.
    pub marks: CanaryMarks,
    /// Length in bytes of each of its contributions; 0 where they are empty.
    pub bytes: u32,
    /// Whether the sum that it holds on its way down is empty.
    pub empty_sum: bool,
    /// The lane of its timer.
    pub lane: u8,
    /// Tells its timer from those of blocks that had its number before, at the same instant perhaps.
    pub stamp: u32,
    /// What an adaptive timeout learns from.
    pub arrivals: Arrivals,
    /// Bit p: packets have come by port p, of the first 64.
    children: u64,
    pub sum: A,
}

impl<A> Descriptor<A> {
    /// Whether packets are added.
    #[inline(always)]
    pub(super) fn collects(&self) -> bool {
        matches!(self.state, State::Collecting | State::Ready)
    }

    /// Whether everything that can come has come: the leader sends no contribution (`canary 5.2`, 3a), and where the switch knows its
    /// [`FanIn`](super::FanIn), those do not come whose way is another one.
    #[inline]
    pub(super) fn is_complete(&self) -> bool {
        self.counter >= self.fan_in
    }
}

/// All descriptors of one job at one switch.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Descriptors<A> {
    job: JobId,
    /// Where jobs share it, it is here only while the switch works for this one.
    pub table: Table,
    pool: Pool<Descriptor<A>>,
    /// The children from port 64 on: `words` words a descriptor.
    more_children: Vec<u64>,
    words: usize,
}

impl<A> Descriptors<A> {
    /// No descriptors yet, for a switch with `ports` ports.
    pub(super) fn new(job: JobId, table: Table, ports: u16) -> Self {
        let words = usize::from(ports).div_ceil(64).saturating_sub(1);
        Descriptors { job, table, pool: Pool::new(), more_children: Vec::new(), words }
    }

    /// What is at a block's places.
    #[inline]
    pub(super) fn find(&self, id: CanaryId) -> Found {
        self.table.find(self.job, self.table.choice(self.job, id), |number| self.pool[number].id == id)
    }

    /// The same with a planted bug.
    pub(super) fn find_hastily(&self, id: CanaryId) -> Found {
        self.table.find_hastily(self.job, self.table.choice(self.job, id), |number| self.pool[number].id == id)
    }

    /// The descriptor of a block.
    #[inline]
    pub(super) fn of(&self, id: CanaryId) -> Option<u32> {
        match self.find(id) {
            Found::Here(number) => Some(number),
            _ => None,
        }
    }

    /// A descriptor that is in use, by number.
    #[inline]
    pub(super) fn get(&mut self, number: u32) -> &mut Descriptor<A> {
        &mut self.pool[number]
    }

    /// What a descriptor holds, as a packet says it, with what its block has met.
    #[inline]
    pub(super) fn partial_sum(&self, number: u32, marks: CanaryMarks) -> PartialSum {
        let Descriptor { id, leader, counter, hosts, .. } = self.pool[number];
        PartialSum { id, leader, counter, hosts, marks }
    }

    /// What the block of a descriptor has met, as far as it is known here.
    #[inline]
    pub(super) fn marks(&self, number: u32) -> CanaryMarks {
        let descriptor = &self.pool[number];
        descriptor.marks.with(CanaryMarks::COLLISION.only_if(self.table.is_wanted(descriptor.place)))
    }

    /// Whether the descriptor that a timer was set for is still the one that waits for it.
    #[inline]
    pub(super) fn waits_for(&self, timer: &Timer) -> bool {
        let descriptor = &self.pool[timer.number];
        descriptor.state == State::Collecting && (descriptor.deadline, descriptor.stamp) == (timer.deadline, timer.stamp)
    }

    /// Whether the descriptor that is to be given up at `deadline` is still the one that waits for its sum.
    #[inline]
    pub(super) fn ages_until(&self, number: u32, deadline: Instant) -> bool {
        let descriptor = &self.pool[number];
        descriptor.state == State::Sent && descriptor.deadline == deadline
    }

    /// All descriptors in use.
    pub(super) fn numbers(&mut self) -> Vec<u32> {
        self.table.of_job(self.job).map(|(_, number)| *number).collect()
    }

    /// Number of descriptors in use.
    pub(super) fn in_use(&self) -> u32 {
        self.pool.in_use()
    }

    /// Takes an empty place for a block whose first packet came by `port`; `None`, and nothing is taken, where its payload does not fit.
    #[inline]
    pub(super) fn take<P: Payload<Acc = A> + ?Sized>(
        &mut self,
        place: u32,
        sum: &PartialSum,
        payload: &P,
        op: &mut P::Op,
        block_bytes: u32,
    ) -> Option<u32> {
        let make = || Descriptor {
            id: sum.id,
            leader: sum.leader,
            place,
            deadline: Instant::ZERO,
            counter: 0,
            hosts: 0,
            fan_in: 0,
            state: State::Sent,
            marks: CanaryMarks::NONE,
            bytes: 0,
            empty_sum: false,
            lane: 0,
            stamp: 0,
            arrivals: Arrivals::default(),
            children: 0,
            sum: P::accumulator(op, block_bytes as usize),
        };
        let number = self.pool.take(make);
        let descriptor = &mut self.pool[number];
        descriptor.bytes = payload.bytes() as u32;
        if descriptor.bytes > 0 && payload.assign(&mut descriptor.sum, op).is_err() {
            self.pool.give_back(number);
            return None;
        }
        (descriptor.id, descriptor.leader, descriptor.place) = (sum.id, sum.leader, place);
        (descriptor.counter, descriptor.hosts, descriptor.fan_in) = (sum.counter, sum.hosts, sum.hosts.saturating_sub(1));
        (descriptor.state, descriptor.children, descriptor.marks) = (State::Collecting, 0, sum.marks);
        descriptor.stamp = descriptor.stamp.wrapping_add(1);
        self.forget_more_children(number);
        self.table.take(self.job, place, number);
        Some(number)
    }

    /// Frees the descriptor of a block.
    #[inline]
    pub(super) fn give_back(&mut self, number: u32) {
        // What a timer that is still set for it will find.
        (self.pool[number].state, self.pool[number].deadline) = (State::Sent, Instant::ZERO);
        self.table.free(self.pool[number].place);
        self.pool.give_back(number);
    }

    /// Remembers that a packet came by `port`.
    #[inline(always)]
    pub(super) fn add_child(&mut self, number: u32, port: PortId) {
        if port.0 < 64 {
            self.pool[number].children |= 1 << port.0;
        } else {
            self.add_far_child(number, port);
        }
    }

    #[inline(never)]
    fn add_far_child(&mut self, number: u32, port: PortId) {
        let word = number as usize * self.words + port.index() / 64 - 1;
        self.more_children[word] |= 1 << (port.0 % 64);
    }

    /// Forgets that packets came by `port`.
    pub(super) fn remove_child(&mut self, number: u32, port: PortId) {
        let bit = 1 << (port.0 % 64);
        if port.0 < 64 {
            self.pool[number].children &= !bit;
        } else if port.index() / 64 <= self.words {
            let word = number as usize * self.words + port.index() / 64 - 1;
            self.more_children[word] &= !bit;
        }
    }

    /// Gives the children's ports.
    #[inline]
    pub(super) fn children(&self, number: u32, ports: &mut PortSet) {
        let from = number as usize * self.words;
        let more = if self.words == 0 { &[] } else { &self.more_children[from..from + self.words] };
        ports.assign(std::iter::once(self.pool[number].children).chain(more.iter().copied()));
    }

    /// The children of ports 64 `word` and following, by bits.
    #[inline]
    pub(super) fn children_word(&self, number: u32, word: usize) -> u64 {
        match word.checked_sub(1) {
            None => self.pool[number].children,
            Some(more) => self.more_children[number as usize * self.words + more],
        }
    }

    #[inline]
    fn forget_more_children(&mut self, number: u32) {
        if self.words == 0 {
            return;
        }
        let from = number as usize * self.words;
        let to = from + self.words;
        if self.more_children.len() < to {
            self.more_children.resize(to, 0);
        }
        self.more_children[from..to].fill(0);
    }

    /// Forgets how long blocks have taken so far.
    pub(super) fn forget_durations(&mut self) {
        for (_, number) in self.table.of_job(self.job) {
            self.pool[*number].arrivals.forget_durations();
        }
    }

    /// Makes times relative to `now` and numbers the descriptors in the order of their places; gives the old number of each.
    pub(super) fn rebase(&mut self, now: Instant) -> Vec<u32>
    where
        A: Clone,
    {
        let kept: Vec<u32> = self.table.of_job(self.job).map(|(_, number)| *number).collect();
        self.more_children =
            kept.iter().flat_map(|number| self.more_children[*number as usize * self.words..][..self.words].iter().copied()).collect();
        self.pool.renumber(&kept);
        for (new, (_, number)) in self.table.of_job(self.job).enumerate() {
            *number = new as u32;
            let descriptor = &mut self.pool[new as u32];
            let is_set = descriptor.state == State::Collecting || descriptor.state == State::Sent && descriptor.deadline != Instant::ZERO;
            descriptor.deadline = if is_set { rebased(descriptor.deadline, now) } else { Instant::ZERO };
            descriptor.arrivals.rebase(now);
            // No timers are left but those of descriptors that wait for them.
            descriptor.stamp = 0;
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canary::config::Placement;
    use fanin_core::Length;

    fn sum(block: u32) -> PartialSum {
        PartialSum { id: CanaryId::new(1, 0, block), leader: NodeId(0), counter: 1, hosts: 9, marks: CanaryMarks::NONE }
    }

    fn empty(ports: u16) -> Descriptors<Length> {
        Descriptors::new(JobId(1), Table::own(8, Placement::Static), ports)
    }

    #[test]
    fn children_of_any_port_are_remembered_until_the_descriptor_is_free() {
        let mut descriptors = empty(200);
        let numbers: Vec<u32> = (0..3).map(|place| descriptors.take(place, &sum(place), &Length(4), &mut (), 4).unwrap()).collect();
        let ports = [0u16, 63, 64, 199];
        for &number in &numbers {
            descriptors.add_child(number, PortId(number as u16 + 5));
            ports.iter().for_each(|port| descriptors.add_child(number, PortId(*port)));
        }
        let mut set = PortSet::new();
        for &number in &numbers {
            descriptors.children(number, &mut set);
            let expected: PortSet = ports.into_iter().chain([number as u16 + 5]).map(PortId).collect();
            assert_eq!(set, expected);
        }
        descriptors.give_back(numbers[1]);
        assert_eq!((descriptors.in_use(), descriptors.find(CanaryId::new(1, 0, 1))), (2, Found::Free(1)));
        let again = descriptors.take(1, &sum(1), &Length(4), &mut (), 4).unwrap();
        descriptors.children(again, &mut set);
        assert!(set.is_empty());
    }

    #[test]
    fn histories_are_forgotten() {
        let fill = |order: &[u32]| {
            let mut descriptors = empty(70);
            for &place in order {
                let number = descriptors.take(place, &sum(place), &Length(4), &mut (), 4).unwrap();
                descriptors.add_child(number, PortId(64 + place as u16));
            }
            descriptors
        };
        let (mut one, mut other) = (fill(&[1, 5, 3]), fill(&[3, 2, 1, 5]));
        let unwanted = other.of(CanaryId::new(1, 0, 2)).unwrap();
        other.give_back(unwanted);
        assert_ne!(one, other);
        assert_eq!(one.rebase(Instant::ZERO), [0, 2, 1]);
        assert_eq!(other.rebase(Instant::ZERO), [2, 0, 3]);
        assert_eq!(one, other);
    }
}
