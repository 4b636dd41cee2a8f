//! A state of the model: nodes, packets under way, and what workers have got.

use std::borrow::Borrow;

use derive_where::derive_where;
use fanin_core::{Address, JobId, Malformed, PacketKind, PortId, Wire};
use fanin_systems::{AnyHeader, AnyNode};

use super::Limits;
use super::layout::Layout;
use super::payload::Contents;

/// A packet under way. Headers are kept as bytes: they have an order then, so that equal sets of packets are equal states.
#[derive_where(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Packet<P: Contents + ?Sized> {
    /// Where it may arrive, and by which port: several where paths are equally short.
    pub(super) ways: Vec<(usize, PortId)>,
    pub(super) source: Address,
    /// The job that it is of.
    pub(super) job: usize,
    header: [u8; AnyHeader::MAX_LEN],
    payload: P::Owned,
    /// Copies of which the hop sequence lets the first through.
    copies: u8,
}

impl<P: Contents + ?Sized> Packet<P> {
    pub(super) fn new(ways: Vec<(usize, PortId)>, (job, source): (usize, Address), header: &AnyHeader, payload: P::Owned) -> Self {
        let mut bytes = [0; AnyHeader::MAX_LEN];
        header.emit(&mut bytes);
        Packet { ways, source, job, header: bytes, payload, copies: 1 }
    }

    pub(super) fn header(&self) -> Result<AnyHeader, Malformed> {
        AnyHeader::parse(&self.header).map(|(header, _)| header)
    }

    pub(super) fn payload(&self) -> &P {
        self.payload.borrow()
    }

    pub(super) fn kind(&self) -> PacketKind {
        self.header().map_or(PacketKind::Control, |header| header.kind())
    }
}

/// What a worker has got.
#[derive_where(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Results<P: Contents + ?Sized> {
    /// Operations begun and ended.
    pub begun: usize,
    /// Operations ended.
    pub ended: usize,
    /// What the output holds, by piece of the running operation.
    pub(super) held: Vec<Option<P::Owned>>,
    /// Which of its pieces are final.
    pub(super) delivered: Vec<bool>,
    pub(super) delivered_elements: u64,
    /// Ranks that the running operation goes on without, as far as it has said.
    pub(super) without: Vec<usize>,
    /// The same, of operations that have ended.
    pub(super) ended_without: Vec<Vec<usize>>,
    /// The job is over here, as it may be.
    pub(super) has_given_up: bool,
}

impl<P: Contents + ?Sized> Results<P> {
    pub(super) fn has_begun(&self) -> bool {
        self.begun > 0
    }

    pub(super) fn is_running(&self) -> bool {
        self.begun > self.ended
    }
}

/// How it goes with a job.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fate {
    /// It runs, or has done what it had to.
    Runs,
    /// Its workers and servers are gone, in the middle of it.
    Crashed,
    /// It was done, and switches that it shares have been told.
    Over,
    /// It had crashed, and switches that it shares have been told.
    Buried,
}

impl Fate {
    /// Whether its workers and servers are gone.
    pub fn is_gone(self) -> bool {
        matches!(self, Fate::Crashed | Fate::Buried)
    }
}

/// A worker that the others must do without.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Gone {
    /// Its place among the nodes.
    pub(super) worker: usize,
    /// Where it lives.
    pub(super) address: Address,
    /// It does nothing any more; else somebody only takes it for dead.
    pub(super) is_dead: bool,
    /// Somebody has noticed.
    pub(super) is_noticed: bool,
}

/// A state.
#[derive_where(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State<P: Contents + ?Sized> {
    /// Workers by rank, then the others.
    pub nodes: Vec<AnyNode<P>>,
    /// What is under way, in a fixed order.
    pub packets: Vec<Packet<P>>,
    /// By rank.
    pub results: Vec<Results<P>>,
    /// By job.
    pub fates: Vec<Fate>,
    /// The worker that has died or that another one takes for dead.
    pub gone: Option<Gone>,
    /// The first thing that is wrong.
    pub wrong: Option<String>,
    /// What may still go wrong.
    pub losses: u8,
    /// As `losses`.
    pub duplicates: u8,
    /// As `losses`.
    pub early_timeouts: u8,
    /// How often all timers ran out.
    pub rounds: u8,
}

impl<P: Contents + ?Sized> State<P> {
    pub(super) fn new(nodes: Vec<AnyNode<P>>, (jobs, workers): (usize, usize), limits: &Limits) -> Self {
        State {
            nodes,
            packets: Vec::new(),
            results: vec![Results::default(); workers],
            fates: vec![Fate::Runs; jobs],
            gone: None,
            wrong: None,
            losses: limits.losses,
            duplicates: limits.duplicates,
            early_timeouts: limits.early_timeouts,
            rounds: 0,
        }
    }

    /// Whether all these workers have begun an operation.
    pub(super) fn have_begun(&self, mut workers: std::ops::Range<usize>, operation: usize) -> bool {
        workers.all(|worker| self.results[worker].begun > operation)
    }

    /// Whether a switch still has something of a job that is over.
    pub(super) fn remembers(&self, job: JobId) -> bool {
        self.nodes.iter().any(|node| node.has_of(job))
    }

    /// Whether a switch still holds something of a job that lives and will not give it up when its time is over, as it would by itself. What
    /// a job has left that has crashed goes when switches are told of its end.
    pub(super) fn holds_something(&self, layout: &Layout<P>) -> bool {
        let living: Vec<JobId> = (0..layout.jobs()).filter(|job| !self.fates[*job].is_gone()).map(|job| layout.id(job)).collect();
        self.nodes.iter().any(|node| node.is_overdue(&living))
    }

    /// Whether a switch is reserved for a job.
    pub(super) fn has_reserved(&self, job: JobId) -> bool {
        self.nodes.iter().any(|node| node.is_reserved_for(job))
    }

    pub(super) fn lose(&mut self, place: usize) {
        self.packets[place].copies -= 1;
        if self.packets[place].copies == 0 {
            self.packets.remove(place);
        }
        self.packets.sort_unstable();
    }

    pub(super) fn repeat(&mut self, place: usize, anti_replay: bool) {
        if anti_replay {
            self.packets[place].copies += 1;
        } else {
            self.packets.push(self.packets[place].clone());
        }
        self.packets.sort_unstable();
    }

    pub(super) fn blame(&mut self, what: impl FnOnce() -> String) {
        if self.wrong.is_none() {
            self.wrong = Some(what());
        }
    }
}
