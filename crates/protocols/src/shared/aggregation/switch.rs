//! The aggregators of a switch, shared by all of its jobs: first come, first served. What an aggregator goes through is drawn in the
//! [module's documentation](super).

use fanin_core::{
    Address, Body, DropReason, Duration, Egress, Event, FlowLabel, Ingress, Instant, JobId, Node, NodeId, Payload, PortId, PortSet, Rank,
    Role, Route, Tally, Tx,
};
use fanin_wire::atp::{AggregatorName, AtpFlags, AtpHeader, FragmentId, RankSet, Waited};

use super::account::{Account, Lateness};
use super::config::{AGGREGATORS_MAX, JobAtSwitch, ServerAtSwitch, SwitchConfig, WORKERS_MAX};
use super::members::{Members, Switches};
use super::planted::Planted;
use super::spread::Spread;
use crate::shared::jobs::JobTable;
use crate::shared::rtt::rebased;
use crate::shared::state::node_state;

/// Marks a port without a worker.
const NONE: u16 = u16::MAX;

/// Where an aggregator stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum State {
    /// Nobody's.
    Empty,
    /// Some contributions are there.
    Open,
    /// All are there and were sent on; kept until the acknowledgement passes.
    Complete,
    /// What was there was sent on before it was complete; whatever comes goes on to the server, until the acknowledgement passes.
    Flushed,
}

/// One aggregator (`a2tp 3`).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Aggregator<A> {
    state: State,
    job: JobId,
    at: FragmentId,
    ranks: Members,
    /// How many ranks complete it.
    fan_in: u16,
    /// What its contributions met: ECN and `Col`.
    flags: AtpFlags,
    /// How far its contributions are apart (`a2tp 3`, the timestamp).
    spread: Spread,
    /// Another fragment wanted it when its sum had gone on: the job's next sum from here says so.
    wanted_late: bool,
    /// Another fragment has wanted it since it was taken, and that is in the account.
    is_entered: bool,
    /// When something was last heard of its fragment.
    touched: Instant,
    acc: A,
}

/// A job as the switch knows it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Entry<O> {
    job: JobId,
    op: O,
    block_bytes: u32,
    /// The job has ranks of more than one group, so that sums of it can be ones that no packet can name.
    is_wide: bool,
    shares_collisions: bool,
    lateness: Lateness,
    /// By number.
    servers: Box<[Server]>,
}

/// A server of a job as the switch knows it, and the ways there.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Server {
    /// The rank at each port, by its bit, or [`NONE`].
    rank_at: Box<[u16]>,
    /// The workers here.
    ranks: Members,
    /// The ports of all workers here.
    ports: PortSet,
    elsewhere: Box<[(Address, Members)]>,
    /// How many ranks there are here and elsewhere.
    all: u16,
    /// This switch, as packets name it.
    whole: RankSet,
    /// The ranks of the switches that packets name, where there are more than 64.
    switches: Switches,
    server: Address,
    server_switch: NodeId,
    above: Address,
    flow: FlowLabel,
}

/// Where a job stands in the table, and which of its servers is meant.
#[derive(Clone, Copy)]
struct Of {
    job: usize,
    server: usize,
}

impl<O> Entry<O> {
    fn new(job: JobAtSwitch<O>) -> Self {
        let is_wide = job.size > RankSet::GROUP;
        Entry {
            job: job.job,
            op: job.op,
            block_bytes: job.block_bytes,
            is_wide,
            shares_collisions: job.shares_collisions,
            lateness: Lateness::default(),
            servers: job.servers.into_iter().map(|server| Server::new(server, is_wide, job.flow)).collect(),
        }
    }

    /// Groups of ranks.
    fn groups(&self) -> usize {
        let of_server = |server: &Server| server.elsewhere.iter().map(|(_, there)| there.groups()).fold(server.ranks.groups(), usize::max);
        self.servers.iter().map(of_server).max().unwrap_or(1)
    }
}

impl Server {
    fn new(server: ServerAtSwitch, is_wide: bool, flow: FlowLabel) -> Self {
        let highest = server.workers.iter().map(|(port, _)| port.index()).max().unwrap_or(0);
        let mut rank_at = vec![NONE; highest + 1];
        for &(port, rank) in &server.workers {
            assert!(rank.0 < RankSet::GROUPS * RankSet::GROUP, "there are 255 groups of 64 ranks");
            rank_at[port.index()] = rank.0 as u16;
        }
        let ranks: Members = server.workers.iter().map(|(_, rank)| *rank).collect();
        let all: Members = ranks.ranks().chain(server.elsewhere.iter().flat_map(|(_, there)| there.ranks())).collect();
        // Which switch a sum is of matters where more than one group is.
        let known = match (server.number, is_wide) {
            (_, false) => Vec::new(),
            (0, _) => std::iter::once(&all).chain(server.elsewhere.iter().map(|(_, there)| there)).cloned().collect(),
            (number, _) => (0..number).map(|_| Members::default()).chain([ranks.clone()]).collect(),
        };
        Server {
            all: all.count() as u16,
            whole: RankSet::all_of_switch(server.number),
            switches: Switches::new(known),
            rank_at: rank_at.into(),
            ranks,
            ports: server.workers.iter().map(|(port, _)| *port).collect(),
            elsewhere: server.elsewhere.into(),
            server: server.server,
            server_switch: server.server_switch,
            above: server.above,
            flow,
        }
    }

    #[inline]
    fn rank_at(&self, port: PortId) -> Option<Rank> {
        self.rank_at.get(port.index()).filter(|rank| **rank != NONE).map(|rank| Rank(u32::from(*rank)))
    }

    /// Whether these contributions may come by this port: a worker's own, or sums of those below another switch; or those of a worker whose
    /// switch only forwards.
    #[inline]
    fn admits(&self, port: PortId, ranks: RankSet) -> bool {
        match self.rank_at(port) {
            Some(rank) => ranks == RankSet::of(rank),
            None => self.elsewhere.iter().any(|(_, there)| there.holds(ranks, &self.switches)),
        }
    }

    /// Whether what comes by this port is on its way from another worker's switch to the server's, where the ways of the network lead
    /// through switches with hosts: it is summed at these two only.
    #[inline]
    fn only_passes(&self, node: NodeId, port: PortId, ranks: RankSet) -> bool {
        self.server_switch != node && self.rank_at(port).is_none() && !self.ranks.overlaps(ranks, &self.switches)
    }

    /// 0 at a worker's switch, 1 at the server's.
    #[inline]
    fn level(&self, node: NodeId) -> usize {
        usize::from(self.server_switch == node)
    }

    fn to_server(&self) -> Egress<'static> {
        Egress::Route(Route::by_aggregators(self.server, self.flow))
    }

    /// What a packet calls ranks of this job here, if anything: those of one group, or all.
    #[inline]
    fn name(&self, ranks: &Members) -> Option<RankSet> {
        ranks.name().or_else(|| (ranks.count() == u32::from(self.all)).then_some(self.whole))
    }
}

/// A gradient without its payload.
#[derive(Clone, Copy)]
struct Gradient {
    at: FragmentId,
    slot: AggregatorName,
    ranks: RankSet,
    fan_in: [u8; 2],
    attempt: u8,
    flags: AtpFlags,
    waited: Waited,
}

impl Gradient {
    fn header(self) -> AtpHeader {
        let Gradient { at, slot, ranks, fan_in, attempt, flags, waited } = self;
        AtpHeader::Gradient { at, slot, ranks, fan_in, attempt, flags, waited }
    }
}

/// The aggregators of one switch.
pub struct AggregationSwitch<P: Payload + ?Sized> {
    node: NodeId,
    reclaim_after: Duration,
    block_bytes: u32,
    jobs: JobTable<Entry<P::Op>>,
    /// Collisions, as far as jobs share them out.
    account: Account,
    aggregators: Box<[Aggregator<P::Acc>]>,
    planted: Planted,
}

node_state!(AggregationSwitch { node, reclaim_after, block_bytes, jobs, account, aggregators, planted });

impl<P: Payload + ?Sized> AggregationSwitch<P> {
    /// A switch with all its memory.
    ///
    /// # Panics
    /// Where there is no aggregator or more than [`AGGREGATORS_MAX`], or a job has more than [`WORKERS_MAX`] workers.
    pub fn new(config: SwitchConfig<P::Op>) -> Self {
        assert!((1..=AGGREGATORS_MAX).contains(&config.aggregators), "1 to 65536 aggregators");
        let empty = || Aggregator {
            state: State::Empty,
            job: JobId(0),
            at: FragmentId::default(),
            ranks: Members::default(),
            fan_in: 0,
            flags: AtpFlags::NONE,
            spread: Spread::NONE,
            wanted_late: false,
            is_entered: false,
            touched: Instant::ZERO,
            acc: P::accumulator(&config.largest, config.block_bytes as usize),
        };
        let mut switch = AggregationSwitch {
            node: config.node,
            reclaim_after: config.reclaim_after,
            block_bytes: config.block_bytes,
            jobs: JobTable::default(),
            account: Account::new(config.aggregators),
            aggregators: (0..config.aggregators).map(|_| empty()).collect(),
            planted: Planted::NONE,
        };
        config.jobs.into_iter().for_each(|job| switch.admit(job));
        switch
    }

    /// A job comes, at any time; it shares the aggregators with those that are there. One of the same number is replaced.
    ///
    /// # Panics
    /// Where it has more than [`WORKERS_MAX`] workers, or fragments longer than aggregators are.
    pub fn admit(&mut self, job: JobAtSwitch<P::Op>) {
        assert!(job.block_bytes <= self.block_bytes, "fragments fit aggregators");
        assert!(job.size <= WORKERS_MAX, "at most 4096 workers");
        let number = job.job;
        let entry = Entry::new(job);
        let groups = entry.groups();
        self.aggregators.iter_mut().for_each(|aggregator| aggregator.ranks.grow(groups));
        self.jobs.insert(number, entry);
    }

    /// Takes away a job with all that it has here.
    fn dismiss<T: Tx<AtpHeader, P>>(&mut self, job: JobId, tx: &mut T) {
        let Some(entry) = self.jobs.remove(job) else { return };
        if self.planted.keeps_dismissed() {
            return;
        }
        for aggregator in self.aggregators.iter_mut().filter(|one| one.state != State::Empty && one.job == job) {
            aggregator.state = State::Empty;
            tx.note(Event::SlotReclaimed { job, bytes: P::acc_bytes(&aggregator.acc, &entry.op) as u32 });
        }
    }

    /// The longest fragment that an aggregator holds, in bytes.
    pub fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// How many aggregators there are.
    pub fn aggregators(&self) -> usize {
        self.aggregators.len()
    }

    /// The jobs that share the switch.
    pub fn jobs(&self) -> impl Iterator<Item = JobId> + '_ {
        self.jobs.iter().map(|(job, _)| job)
    }

    /// How many aggregators a job has.
    pub fn in_use_by(&self, job: JobId) -> usize {
        self.aggregators.iter().filter(|one| one.state != State::Empty && one.job == job).count()
    }

    /// How many aggregators are taken.
    pub fn in_use(&self) -> usize {
        self.aggregators.iter().filter(|one| one.state != State::Empty).count()
    }

    /// Puts in a bug.
    #[cfg(feature = "planted-bugs")]
    pub fn plant(&mut self, bug: Planted) {
        self.planted = bug;
    }

    /// Makes all stored times relative to `now`, so that states that differ only in when they were reached are equal.
    pub fn rebase(&mut self, now: Instant) {
        for aggregator in &mut self.aggregators {
            aggregator.touched = rebased(aggregator.touched, now);
            aggregator.spread.rebase(now);
        }
    }

    /// What packets of this job about this fragment are of.
    #[inline]
    fn of(&self, job: JobId, at: FragmentId) -> Option<Of> {
        let (job, server) = (self.jobs.place(job)?, usize::from(at.server()));
        (server < self.jobs.at(job).servers.len()).then_some(Of { job, server })
    }

    #[inline]
    fn server(&self, of: Of) -> &Server {
        server_at(&self.jobs, of)
    }
}

#[inline]
fn server_at<O>(jobs: &JobTable<Entry<O>>, of: Of) -> &Server {
    &jobs.at(of.job).servers[of.server]
}

fn drop_packet<H, P: Payload + ?Sized, T: Tx<H, P>>(tx: &mut T, reason: DropReason)
where
    H: fanin_core::Wire,
{
    tx.note(Event::Dropped(reason));
}

/// Gradients.
impl<P: Payload + ?Sized> AggregationSwitch<P> {
    /// `a2tp 5.1`.
    fn on_gradient<T: Tx<AtpHeader, P>>(&mut self, now: Instant, from: Ingress, mut packet: Gradient, payload: &P, tx: &mut T) {
        let Some(of) = self.of(from.job, packet.at) else { return drop_packet(tx, DropReason::NotAMember) };
        let (entry, server) = (self.jobs.at(of.job), self.server(of));
        if server.only_passes(self.node, from.port, packet.ranks) {
            return self.pass(of, packet, payload, tx);
        }
        if !server.admits(from.port, packet.ranks) {
            return drop_packet(tx, DropReason::NotAMember);
        }
        if usize::from(packet.slot.index) >= self.aggregators.len() {
            return drop_packet(tx, DropReason::OutsideWindow);
        }
        packet.flags = packet.flags.with_if(AtpFlags::ECN, from.ecn);
        let bytes = payload.bytes();
        // 5.1, step 1: what is no fixed point is the server's to add, and so is what cannot be in an aggregator.
        if packet.flags.has(AtpFlags::FLOAT) || bytes == 0 || bytes > entry.block_bytes as usize {
            return self.pass(of, packet, payload, tx);
        }
        let aggregator = &self.aggregators[usize::from(packet.slot.index)];
        let of_job = aggregator.job == from.job || self.planted.ignores_job();
        let is_ours = aggregator.state != State::Empty && of_job && aggregator.at == packet.at;
        if packet.flags.has(AtpFlags::RESEND.with(AtpFlags::COLLIDED)) {
            return if is_ours { self.flush_with(now, of, packet, payload, tx) } else { self.pass(of, packet, payload, tx) };
        }
        let fan_in = match packet.fan_in[server.level(self.node)] {
            0 => server.all,
            told => u16::from(told),
        };
        if is_ours || self.planted.ignores_owner() && aggregator.state == State::Open {
            return self.join(now, of, packet, payload, tx);
        }
        // A lone worker of its switch has nothing to be added to here.
        if fan_in <= 1 {
            return self.pass(of, packet, payload, tx);
        }
        if aggregator.state != State::Empty && !self.reclaim(now, packet.slot, tx) {
            let is_its_fault = self.collide(usize::from(packet.slot.index), of.job);
            packet.flags = packet.flags.with(AtpFlags::COLLIDED).with_if(AtpFlags::COL, is_its_fault);
            tx.note(Event::Counted(Tally::Collision));
            return self.pass(of, packet, payload, tx);
        }
        self.take(now, of, fan_in, packet, payload, tx);
    }

    /// A fragment of job `by` wants an aggregator that is taken: its owner is told, or whoever's sum is next, where jobs share that out and
    /// neither of them is late. Says whether it is that fragment which is to tell of it.
    fn collide(&mut self, index: usize, by: usize) -> bool {
        let aggregator = &mut self.aggregators[index];
        let owner = self.jobs.place(aggregator.job).filter(|owner| self.jobs.at(*owner).shares_collisions);
        let (by_shares, is_first) = (self.jobs.at(by).shares_collisions, !aggregator.is_entered);
        aggregator.is_entered |= owner.is_some() || by_shares;
        let blamed = owner.filter(|_| is_first).and_then(|owner| self.blame(index, owner, by));
        let aggregator = &mut self.aggregators[index];
        if owner.is_none() || blamed.is_some() && blamed == owner {
            aggregator.flags = aggregator.flags.with(AtpFlags::COL);
            aggregator.wanted_late = aggregator.state != State::Open;
        }
        if blamed.is_none() && is_first && (owner.is_some() || by_shares) {
            self.account.enter();
        }
        blamed == Some(by) && blamed != owner
    }

    /// Of two jobs that share collisions out the one whose lateness is to blame, if it is that.
    fn blame(&mut self, index: usize, owner: usize, by: usize) -> Option<usize> {
        let waits = self.aggregators[index].state == State::Open;
        self.jobs.at_mut(owner).lateness.found(waits);
        let [of_owner, of_by] = [owner, by].map(|job| self.jobs.at(job).lateness);
        let (later, other) = if of_by > of_owner { (by, of_owner) } else { (owner, of_by) };
        let entry = self.jobs.at_mut(later);
        (entry.shares_collisions && entry.lateness.is_blamed(other)).then_some(later)
    }

    /// The packet goes on to the server as it is.
    fn pass<T: Tx<AtpHeader, P>>(&self, of: Of, packet: Gradient, payload: &P, tx: &mut T) {
        tx.send(self.server(of).to_server(), &packet.header(), Body::Borrowed(payload));
    }

    /// P4: an aggregator that nobody has spoken of for long is a zombie, and free. Says whether it is.
    fn reclaim<T: Tx<AtpHeader, P>>(&mut self, now: Instant, slot: AggregatorName, tx: &mut T) -> bool {
        let aggregator = &mut self.aggregators[usize::from(slot.index)];
        if now.since(aggregator.touched) < self.reclaim_after {
            return false;
        }
        aggregator.state = State::Empty;
        let job = aggregator.job;
        if let Some(number) = self.jobs.place(job) {
            let bytes = P::acc_bytes(&self.aggregators[usize::from(slot.index)].acc, &self.jobs.at(number).op) as u32;
            tx.note(Event::SlotReclaimed { job, bytes });
        }
        true
    }

    /// 5.1, step 2a: the first contribution takes an aggregator that nobody has.
    fn take<T: Tx<AtpHeader, P>>(&mut self, now: Instant, of: Of, fan_in: u16, packet: Gradient, payload: &P, tx: &mut T) {
        let aggregator = &mut self.aggregators[usize::from(packet.slot.index)];
        let entry = self.jobs.at_mut(of.job);
        let stored = match self.planted.keeps_accumulator() && aggregator.job != entry.job {
            true => payload.reduce(&mut aggregator.acc, &mut entry.op),
            false => payload.assign(&mut aggregator.acc, &mut entry.op),
        };
        if stored.is_err() {
            return self.pass(of, packet, payload, tx);
        }
        // A job goes round its aggregators: what one met too late to be told is told the next time.
        let was_wanted = aggregator.wanted_late && aggregator.job == entry.job;
        (aggregator.state, aggregator.job, aggregator.at) = (State::Open, entry.job, packet.at);
        aggregator.ranks.set(packet.ranks, &entry.servers[of.server].switches);
        (aggregator.fan_in, aggregator.touched) = (fan_in, now);
        aggregator.flags = packet.flags.only(AtpFlags::ECN.with(AtpFlags::COL)).with_if(AtpFlags::COL, was_wanted);
        (aggregator.wanted_late, aggregator.is_entered) = (false, false);
        aggregator.spread = Spread::begin(now, packet.waited, packet.attempt);
        tx.note(Event::SlotTaken { bytes: payload.bytes() as u32 });
        if aggregator.ranks.count() >= u32::from(fan_in) {
            self.complete(now, of, packet, tx);
        }
    }

    /// 5.1, steps 2b to 2d: the aggregator is this fragment's.
    fn join<T: Tx<AtpHeader, P>>(&mut self, now: Instant, of: Of, packet: Gradient, payload: &P, tx: &mut T) {
        let aggregator = &mut self.aggregators[usize::from(packet.slot.index)];
        aggregator.touched = now;
        if aggregator.state == State::Flushed {
            // P1: what has been flushed is the server's to complete.
            let packet = Gradient { flags: packet.flags.with(AtpFlags::RESEND), ..packet };
            return self.pass(of, packet, payload, tx);
        }
        aggregator.flags = aggregator.flags.with(packet.flags.only(AtpFlags::ECN.with(AtpFlags::COL)));
        let entry = self.jobs.at_mut(of.job);
        let switches = &entry.servers[of.server].switches;
        if aggregator.ranks.overlaps(packet.ranks, switches) && !self.planted.ignores_bitmap() {
            if !aggregator.ranks.holds(packet.ranks, switches) {
                return self.pass(of, packet, payload, tx);
            }
            return match aggregator.state {
                // P4: the sum may have been lost.
                State::Complete => self.repeat(of, packet, tx),
                _ => drop_packet(tx, DropReason::Duplicate),
            };
        }
        if aggregator.state == State::Complete || payload.reduce(&mut aggregator.acc, &mut entry.op).is_err() {
            return self.pass(of, packet, payload, tx);
        }
        aggregator.ranks.add(packet.ranks, switches);
        aggregator.spread.join(now, packet.waited, packet.attempt);
        if aggregator.ranks.count() >= u32::from(aggregator.fan_in) {
            self.complete(now, of, packet, tx);
        }
    }

    /// 5.1, step 2c: the sum goes on, and stays until the acknowledgement.
    fn complete<T: Tx<AtpHeader, P>>(&mut self, now: Instant, of: Of, packet: Gradient, tx: &mut T) {
        let aggregator = &mut self.aggregators[usize::from(packet.slot.index)];
        let Some(ranks) = server_at(&self.jobs, of).name(&aggregator.ranks) else { return self.take_apart(of, packet, true, tx) };
        aggregator.state = State::Complete;
        let tells = self.jobs.at(of.job).shares_collisions && self.account.tell();
        aggregator.flags = aggregator.flags.with_if(AtpFlags::COL, tells);
        let packet = Gradient { ranks, flags: aggregator.flags, waited: aggregator.spread.waited(now), ..packet };
        tx.send(server_at(&self.jobs, of).to_server(), &packet.header(), Body::Acc(&aggregator.acc));
    }

    /// 5.1, step 2d: the sum goes on once more; at the next level it takes no aggregator, for that may have been freed already.
    fn repeat<T: Tx<AtpHeader, P>>(&self, of: Of, packet: Gradient, tx: &mut T) {
        let aggregator = &self.aggregators[usize::from(packet.slot.index)];
        let Some(ranks) = self.server(of).name(&aggregator.ranks) else { return };
        let flags = aggregator.flags.with(AtpFlags::RESEND);
        let packet = Gradient { ranks, flags, waited: Waited::UNKNOWN, ..packet };
        tx.send(self.server(of).to_server(), &packet.header(), Body::Acc(&aggregator.acc));
    }

    /// 5.1, step 3, and gap 8: what is there of the fragment goes on to the server, with this contribution in it where that is new.
    fn flush_with<T: Tx<AtpHeader, P>>(&mut self, now: Instant, of: Of, packet: Gradient, payload: &P, tx: &mut T) {
        let aggregator = &mut self.aggregators[usize::from(packet.slot.index)];
        aggregator.touched = now;
        let entry = self.jobs.at_mut(of.job);
        let server = &entry.servers[of.server];
        match aggregator.state {
            State::Open => {
                let is_new = !aggregator.ranks.overlaps(packet.ranks, &server.switches)
                    && payload.reduce(&mut aggregator.acc, &mut entry.op).is_ok();
                if is_new {
                    aggregator.ranks.add(packet.ranks, &server.switches);
                    aggregator.spread.join(now, packet.waited, packet.attempt);
                    aggregator.flags = aggregator.flags.with(packet.flags.only(AtpFlags::ECN.with(AtpFlags::COL)));
                }
                let has_all = aggregator.ranks.holds(packet.ranks, &server.switches);
                let kept = packet.flags.only(AtpFlags::COLLIDED.with(AtpFlags::DIRECT));
                let waited = aggregator.spread.waited(now);
                let may_wait = packet.attempt <= 1 && kept == AtpFlags::NONE && server.name(&aggregator.ranks).is_none();
                if may_wait && (is_new || has_all) {
                    return;
                }
                self.flush(of, Gradient { waited, ..packet }, kept, tx);
                if !has_all {
                    self.pass(of, packet, payload, tx);
                }
            }
            State::Complete if aggregator.ranks.holds(packet.ranks, &server.switches) => {
                // Where the server has some of these contributions by another way it drops the sum (P3): the next attempt goes alone.
                aggregator.state = State::Flushed;
                self.repeat(of, packet, tx);
            }
            _ => self.pass(of, packet, payload, tx),
        }
    }

    /// Sends on what an open aggregator holds; it stays its fragment's.
    fn flush<T: Tx<AtpHeader, P>>(&mut self, of: Of, packet: Gradient, kept: AtpFlags, tx: &mut T) {
        let aggregator = &mut self.aggregators[usize::from(packet.slot.index)];
        let Some(ranks) = server_at(&self.jobs, of).name(&aggregator.ranks) else { return self.take_apart(of, packet, true, tx) };
        aggregator.state = State::Flushed;
        let flags = aggregator.flags.with(AtpFlags::RESEND).with(kept);
        let packet = Gradient { ranks, flags, ..packet };
        tx.send(server_at(&self.jobs, of).to_server(), &packet.header(), Body::Acc(&aggregator.acc));
    }

    /// What is here has no name, so it cannot go on: whoever has contributed sends again, and that passes. Other switches are asked, too,
    /// unless they are anyway.
    #[cold]
    fn take_apart<T: Tx<AtpHeader, P>>(&mut self, of: Of, packet: Gradient, asks_switches: bool, tx: &mut T) {
        let aggregator = &mut self.aggregators[usize::from(packet.slot.index)];
        aggregator.state = State::Flushed;
        let (server, header) = (&self.jobs.at(of.job).servers[of.server], AtpHeader::Flush { at: packet.at, slot: packet.slot });
        for (port, rank) in server.rank_at.iter().enumerate() {
            if *rank != NONE && aggregator.ranks.contains(Rank(u32::from(*rank))) {
                tx.send(Egress::Port(PortId(port as u16)), &header, Body::Empty);
            }
        }
        for (address, there) in &server.elsewhere {
            if (asks_switches || address.role != Role::Switch) && there.meets(&aggregator.ranks) {
                tx.send(Egress::Route(Route::direct(*address, server.flow)), &header, Body::Empty);
            }
        }
    }
}

/// What comes from the server.
impl<P: Payload + ?Sized> AggregationSwitch<P> {
    /// Whether a packet is one that the job's server has sent, here or at its switch. Gives what it is of.
    fn sent_by_server(&self, from: Ingress, at: FragmentId) -> Option<Of> {
        let of = self.of(from.job, at)?;
        (from.source == self.server(of).above).then_some(of)
    }

    fn is_of(&self, slot: AggregatorName, job: JobId, at: FragmentId) -> bool {
        self.aggregators.get(usize::from(slot.index)).is_some_and(|one| one.state != State::Empty && one.job == job && one.at == at)
    }

    /// `a2tp 5.2`: the acknowledgement frees the aggregator and goes on to all workers, or to the one that asked.
    fn on_ack<T: Tx<AtpHeader, P>>(&mut self, from: Ingress, header: &AtpHeader, payload: &P, tx: &mut T) {
        let AtpHeader::Ack { at, slot, next_version, to, flags, round, waited } = *header else { return };
        let Some(of) = self.sent_by_server(from, at) else { return drop_packet(tx, DropReason::NotAMember) };
        if !flags.has(AtpFlags::FLOAT) && self.is_of(slot, from.job, at) {
            let aggregator = &mut self.aggregators[usize::from(slot.index)];
            aggregator.state = State::Empty;
            tx.note(Event::SlotFreed { bytes: P::acc_bytes(&aggregator.acc, &self.jobs.at(of.job).op) as u32 });
        }
        let server = self.server(of);
        let header = AtpHeader::Ack { at, slot, next_version, to, flags: flags.with_if(AtpFlags::ECN, from.ecn), round, waited };
        let below = |address: Address| Egress::Route(Route::direct(address, server.flow));
        if to == AtpHeader::TO_ALL {
            if !server.ports.is_empty() {
                tx.send(Egress::Ports(&server.ports), &header, Body::Borrowed(payload));
            }
            server.elsewhere.iter().for_each(|(address, _)| tx.send(below(*address), &header, Body::Borrowed(payload)));
        } else if let Some(port) = server.rank_at.iter().position(|rank| *rank == to) {
            tx.send(Egress::Port(PortId(port as u16)), &header, Body::Borrowed(payload));
        } else if let Some((address, _)) = server.elsewhere.iter().find(|(_, ranks)| ranks.contains(Rank(u32::from(to)))) {
            tx.send(below(*address), &header, Body::Borrowed(payload));
        } else {
            drop_packet(tx, DropReason::NotAMember);
        }
    }

    /// P1: the server wants what there is of a fragment.
    fn on_flush<T: Tx<AtpHeader, P>>(&mut self, now: Instant, from: Ingress, at: FragmentId, slot: AggregatorName, tx: &mut T) {
        let Some(of) = self.sent_by_server(from, at) else { return drop_packet(tx, DropReason::NotAMember) };
        if self.is_of(slot, from.job, at) {
            let aggregator = &mut self.aggregators[usize::from(slot.index)];
            aggregator.touched = now;
            let flags = AtpFlags::NONE;
            let packet = Gradient { at, slot, ranks: RankSet::NONE, fan_in: [0; 2], attempt: 0, flags, waited: Waited::UNKNOWN };
            let has_name = server_at(&self.jobs, of).name(&aggregator.ranks).is_some();
            match aggregator.state {
                State::Open if has_name => self.flush(of, packet, AtpFlags::NONE, tx),
                State::Open => self.take_apart(of, packet, false, tx),
                State::Complete => {
                    aggregator.state = State::Flushed;
                    self.repeat(of, packet, tx);
                }
                // What it had may have been in a sum that another switch has taken apart.
                State::Flushed if self.jobs.at(of.job).is_wide => self.take_apart(of, packet, false, tx),
                State::Flushed | State::Empty => {}
            }
        }
        let server = self.server(of);
        for (address, _) in server.elsewhere.iter().filter(|(address, _)| address.role == Role::Switch) {
            tx.send(Egress::Route(Route::direct(*address, server.flow)), &AtpHeader::Flush { at, slot }, Body::Empty);
        }
    }
}

impl<P: Payload + ?Sized> Node<P> for AggregationSwitch<P> {
    type Header = AtpHeader;

    #[inline]
    fn on_packet<T: Tx<AtpHeader, P>>(&mut self, now: Instant, from: Ingress, header: &AtpHeader, payload: &P, tx: &mut T) {
        match *header {
            AtpHeader::Gradient { at, slot, ranks, fan_in, attempt, flags, waited } => {
                self.on_gradient(now, from, Gradient { at, slot, ranks, fan_in, attempt, flags, waited }, payload, tx);
            }
            AtpHeader::Ack { .. } => self.on_ack(from, header, payload, tx),
            AtpHeader::Flush { at, slot } => self.on_flush(now, from, at, slot, tx),
            AtpHeader::Waiting { .. } | AtpHeader::Rejected { .. } => drop_packet(tx, DropReason::NotAMember),
        }
    }

    /// A switch has no timers: a zombie is found by who wants its aggregator.
    fn on_timeout<T: Tx<AtpHeader, P>>(&mut self, _now: Instant, _tx: &mut T) {}

    fn next_timeout(&self) -> Option<Instant> {
        None
    }

    fn on_job_end<T: Tx<AtpHeader, P>>(&mut self, _now: Instant, job: JobId, tx: &mut T) {
        self.dismiss(job, tx);
    }
}
