//! Ranks that share hosts: those of a host sum in its shared memory first, and one of them goes over the network for all. So a vector crosses the
//! host's link once, however many ranks are behind it.
//!
//! | call | in the host | between hosts | in the host again |
//! |---|---|---|---|
//! | allreduce, reduce | reduce | allreduce, reduce | broadcast |
//! | reduce-scatter | reduce | reduce-scatter | broadcast |
//! | all-gather | all-gather | all-gather | broadcast |
//! | broadcast, barrier | broadcast, barrier | broadcast, barrier | broadcast, barrier |
//!
//! Reductions by an operator that the job has brought along go the same ways; `own` has those that do not.
//!
//! The first rank of a host is at work between hosts with one part of a long vector while the next part is summed in the host.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use fanin_control::FailureKind;
use fanin_core::{CollectiveKind, DType, ElementOp, Operator, Rank};
use fanin_runtime::Statistics;

mod own;

use own::OwnOperators;

use super::{PathReport, mean};
use crate::call::{Buffers, Call, CallOp, Of, RegisteredOperator, copies, is_copy};
use crate::config::{Config, TIMEOUT_MAX};
use crate::error::CommError;
use crate::lock::locked;
use crate::meeting::around::{Neighbours, place_of};

/// Bytes of a part of a long vector: long beside what meeting costs, and short beside a vector for which it matters.
const PART_BYTES: u64 = 4 << 20;
/// How much longer hosts wait for each other than the ranks of each do, and these for what comes from other hosts: who waits for others' ranks shall
/// hear from their host which of them has not come.
const GRACE: Duration = Duration::from_secs(3);
/// How texts that end a job at other hosts say whom they mean.
const MEANS: &str = " [rank ";
/// What comes before a text that has ended a job.
const ENDED: &str = " has ended the job: ";
/// How a text begins that says what has gone wrong, and where.
const AMONG: &str = "among ";

/// A communicator that a hierarchy consists of.
pub(crate) trait Level: Send + Sync {
    /// A part of a call, which waits so long.
    fn call_part(&self, timeout: Duration, call: (CollectiveKind, CallOp, u64), of: Of, buffers: &mut Buffers<'_>)
    -> Result<(), CommError>;

    /// Ends its job for all ranks.
    fn abort(&self, text: &str);

    /// What it has sent.
    fn statistics(&self) -> Statistics;

    /// How its vectors travel.
    fn path(&self) -> PathReport;
}

/// The communicators that a rank is in, and who is in them.
pub(crate) struct Levels {
    job: String,
    hosts: Vec<Neighbours>,
    /// This rank's host, by its number, and its place among the ranks there.
    host: usize,
    place: usize,
    /// The first ranks of all hosts, at one of them.
    between: Option<Box<dyn Level>>,
    /// The ranks of this host.
    local: Box<dyn Level>,
    /// Why the job has failed.
    failure: Mutex<Option<CommError>>,
}

/// One rank's end of the path.
pub(crate) struct HierarchyPath {
    levels: Arc<Levels>,
    /// Shares in the order of hosts.
    shares: Vec<u8>,
    /// Sums of all shares, where this rank's vector has no room for them.
    sums: Vec<u8>,
    own: OwnOperators,
}

/// A part of a vector on its way between hosts.
struct Travelling<'v> {
    vector: &'v mut [u8],
    result: Result<(), CommError>,
}

impl HierarchyPath {
    pub(crate) fn new(config: &Config, levels: Arc<Levels>) -> Self {
        HierarchyPath { levels, shares: Vec::new(), sums: Vec::new(), own: OwnOperators::new(config) }
    }

    /// The communicators that it goes by.
    pub(crate) fn levels(&self) -> Arc<Levels> {
        self.levels.clone()
    }

    /// What was sent over the network from here.
    pub(crate) fn statistics(&self) -> Statistics {
        self.levels.statistics()
    }

    /// Runs a call that waits so long.
    ///
    /// # Errors
    /// The job has failed.
    pub(crate) fn run(&mut self, call: &Call, buffers: &mut Buffers<'_>, timeout: Duration) -> Result<(), CommError> {
        let is_mean = call.op.operator == Operator::Avg;
        let summed = if is_mean { ElementOp { operator: Operator::Sum, ..call.op } } else { call.op };
        let inner = Call { op: summed, ..*call };
        if let Some(failure) = locked(&self.levels.failure).clone() {
            return Err(failure);
        }
        let gathered = call.custom.filter(|custom| !is_copy(call.kind) && !self.own.combines_in_steps(custom.index));
        let run = Run { path: self, call: &inner, timeout };
        match call.kind {
            _ if call.elements == 0 => run.barrier(),
            _ if let Some(custom) = gathered => run.gathered(custom, buffers),
            CollectiveKind::Barrier => run.barrier(),
            CollectiveKind::Allreduce => run.allreduce(buffers),
            CollectiveKind::Reduce { root } => run.reduce(buffers, root),
            CollectiveKind::Broadcast { root } => run.broadcast(buffers, root),
            CollectiveKind::AllGather => run.all_gather(buffers),
            CollectiveKind::ReduceScatter => run.reduce_scatter(buffers),
            CollectiveKind::AllToAll { .. } => Err(CommError::Arguments("all-to-all: communicators do not have it".into())),
        }?;
        if is_mean && call.kind.receives(Rank(call.rank), call.rank.min(call.shares().saturating_sub(1))) {
            let own = call.elements as usize * call.width();
            let output = match (call.kind, buffers) {
                (CollectiveKind::ReduceScatter, Buffers::InPlace(vector)) => &mut vector[call.rank as usize * own..][..own],
                (_, buffers) => output_of(buffers),
            };
            mean::divide(call.op.dtype, output, call.world);
        }
        Ok(())
    }
}

impl Levels {
    pub(crate) fn new(job: &str, hosts: Vec<Neighbours>, rank: u32, local: Box<dyn Level>, between: Option<Box<dyn Level>>) -> Self {
        let (host, place) = place_of(&hosts, rank);
        Levels { job: job.to_owned(), hosts, host, place, between, local, failure: Mutex::default() }
    }

    /// How vectors travel.
    pub(crate) fn report(&self) -> PathReport {
        let here = &self.hosts[self.host];
        PathReport::Hierarchy {
            host: here.name.clone(),
            ranks: here.ranks.len() as u32,
            first: here.ranks[0],
            hosts: self.hosts.len() as u32,
            between: self.between.as_ref().map(|between| Box::new(between.path())),
        }
    }

    /// What was sent over the network from here.
    pub(crate) fn statistics(&self) -> Statistics {
        self.between.as_ref().map(|between| between.statistics()).unwrap_or_default()
    }

    /// Ends the job for all ranks.
    pub(crate) fn abort(&self, text: &str) -> CommError {
        let rank = self.hosts[self.host].ranks[self.place];
        let text = format!("rank {rank}{ENDED}{text}");
        let marked = format!("{text}{MEANS}{rank}]");
        self.local.abort(&marked);
        if let Some(between) = &self.between {
            between.abort(&marked);
        }
        let job = self.job.clone();
        self.failed(CommError::Failed { job, text, suspect_rank: Some(rank), kind: Some(FailureKind::Aborted) })
    }

    /// The first reason is that of all later calls.
    fn failed(&self, error: CommError) -> CommError {
        locked(&self.failure).get_or_insert(error).clone()
    }

    /// What has gone wrong among the ranks of this host or among hosts, for all ranks: whom it means is said by its rank in the job, and those
    /// who wait for this rank elsewhere hear of it.
    fn explain(&self, error: CommError, is_local: bool) -> CommError {
        let CommError::Failed { text, suspect_rank, kind, .. } = error else { return error };
        let host = &self.hosts[self.host];
        let by_number = |number: u32| match is_local {
            true => host.ranks.get(number as usize).copied(),
            false => self.hosts.get(number as usize).and_then(|host| host.ranks.first().copied()),
        };
        let (text, suspect_rank) = match text.rsplit_once(MEANS).and_then(|(said, rest)| {
            let rank = rest.split_once(']').and_then(|(rank, _)| rank.parse().ok())?;
            Some((said.to_owned(), rank))
        }) {
            // Who has ended the job there has done it for another one's sake.
            Some((said, rank)) => (said.split_once(ENDED).map_or(said.clone(), |(_, why)| why.to_owned()), Some(rank)),
            None => {
                let meant = suspect_rank.and_then(by_number);
                let (among, named) = match is_local {
                    true => (format!("{AMONG}the ranks of {}", host.name), meant.zip(suspect_rank)),
                    false => (format!("{AMONG}the first ranks of hosts"), meant.zip(suspect_rank)),
                };
                let named = named.map_or(String::new(), |(rank, number)| format!(", of which rank {rank} is number {number}"));
                (format!("{among}{named}: {text}"), meant)
            }
        };
        let marked = format!("{text}{}", suspect_rank.map_or(String::new(), |rank| format!("{MEANS}{rank}]")));
        match (is_local, &self.between) {
            (true, Some(between)) => between.abort(&marked),
            (false, _) => self.local.abort(&marked),
            (true, None) => {}
        }
        // Whoever handed on what it has found elsewhere has ended the job there, and nobody has wanted that.
        let kind = kind.filter(|kind| *kind != FailureKind::Aborted || !text.starts_with(AMONG));
        self.failed(CommError::Failed { job: self.job.clone(), text, suspect_rank, kind })
    }
}

/// Whom the ranks of a host wait for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Awaited {
    /// Each other.
    Ranks,
    /// Other hosts, and their ranks.
    Hosts,
}

/// A call that runs.
struct Run<'a> {
    path: &'a mut HierarchyPath,
    call: &'a Call,
    timeout: Duration,
}

impl Run<'_> {
    /// A call among the ranks of this host, which wait for each other or, through the first one, for other hosts.
    fn locally(
        &self,
        awaited: Awaited,
        (kind, op, elements): (CollectiveKind, CallOp, u64),
        buffers: &mut Buffers<'_>,
    ) -> Result<(), CommError> {
        let timeout = match awaited {
            Awaited::Ranks => self.timeout,
            Awaited::Hosts => (2 * (self.timeout + GRACE)).min(TIMEOUT_MAX),
        };
        let result = self.path.levels.local.call_part(timeout, (kind, op, elements), self.asked(), buffers);
        result.map_err(|error| self.path.levels.explain(error, true))
    }

    /// A call among hosts, if this rank is one that goes there.
    fn between(&self, kind: CollectiveKind, op: CallOp, elements: u64, buffers: &mut Buffers<'_>) -> Result<(), CommError> {
        let Some(between) = &self.path.levels.between else { return Ok(()) };
        let result = between.call_part((self.timeout + GRACE).min(TIMEOUT_MAX), (kind, op, elements), self.asked(), buffers);
        result.map_err(|error| self.path.levels.explain(error, false))
    }

    /// What ranks compare: what was called, of which inner calls are parts.
    fn asked(&self) -> Of {
        let call = self.call;
        (Some(call.part.unwrap_or((None, call.asked()))), call.sparse)
    }

    /// What is reduced by.
    fn op(&self) -> CallOp {
        self.call.custom.map_or(CallOp::BuiltIn(self.call.op), |custom| CallOp::Custom(RegisteredOperator(custom)))
    }

    fn is_first(&self) -> bool {
        self.path.levels.place == 0
    }

    /// Bytes of a rank's vector or share.
    fn bytes(&self) -> usize {
        self.call.elements as usize * self.call.width()
    }

    fn barrier(self) -> Result<(), CommError> {
        let op = CallOp::BuiltIn(copies(DType::U8));
        self.locally(Awaited::Ranks, (CollectiveKind::Barrier, op, 0), &mut Buffers::InPlace(&mut []))?;
        self.between(CollectiveKind::Barrier, op, 0, &mut Buffers::InPlace(&mut []))?;
        self.locally(Awaited::Hosts, (CollectiveKind::Barrier, op, 0), &mut Buffers::InPlace(&mut []))
    }

    fn allreduce(self, buffers: &mut Buffers<'_>) -> Result<(), CommError> {
        let vector = in_output(buffers);
        self.reduce_parts(vector, CollectiveKind::Allreduce, true)
    }

    /// The sum of `vector` over all ranks, in place: at the first rank of each host that gets it and, where `is_told`, at all ranks of it.
    fn reduce_parts(&self, vector: &mut [u8], kind: CollectiveKind, is_told: bool) -> Result<(), CommError> {
        let (width, op) = (self.call.width(), self.op());
        let part = (PART_BYTES as usize / width).max(1) * width;
        if vector.len() <= part {
            let elements = (vector.len() / width) as u64;
            self.reduce_here(Awaited::Ranks, vector)?;
            self.between(kind, op, elements, &mut Buffers::InPlace(vector))?;
            return if is_told { self.tell_here(vector) } else { Ok(()) };
        }
        thread::scope(|scope| {
            let (go, gone): (Sender<&mut [u8]>, Receiver<&mut [u8]>) = channel();
            let (back, came) = channel();
            // Who does not go between hosts has nobody to wait for but the first rank.
            scope.spawn(move || {
                for vector in gone {
                    let elements = (vector.len() / width) as u64;
                    let result = self.between(kind, op, elements, &mut Buffers::InPlace(vector));
                    let is_over = result.is_err();
                    if back.send(Travelling { vector, result }).is_err() || is_over {
                        return;
                    }
                }
            });
            let finish = || match came.recv() {
                Ok(Travelling { vector, result }) => result.and_then(|()| if is_told { self.tell_here(vector) } else { Ok(()) }),
                Err(_) => Err(CommError::Closed { job: self.path.levels.job.clone() }),
            };
            for (number, part) in vector.chunks_mut(part).enumerate() {
                self.reduce_here(if number > 0 { Awaited::Hosts } else { Awaited::Ranks }, part)?;
                // The thread that is not there any more has left its reason.
                let _ = go.send(part);
                if number > 0 {
                    finish()?;
                }
            }
            drop(go);
            finish()
        })
    }

    /// The sum over the ranks of this host, at its first one, in place.
    fn reduce_here(&self, awaited: Awaited, vector: &mut [u8]) -> Result<(), CommError> {
        let elements = (vector.len() / self.call.width()) as u64;
        self.locally(awaited, (CollectiveKind::Reduce { root: Rank(0) }, self.op(), elements), &mut Buffers::InPlace(vector))
    }

    /// What the first rank of this host has, at all of them.
    fn tell_here(&self, vector: &mut [u8]) -> Result<(), CommError> {
        let whole = (CollectiveKind::Broadcast { root: Rank(0) }, CallOp::BuiltIn(copies(DType::U8)), vector.len() as u64);
        self.locally(Awaited::Hosts, whole, &mut Buffers::InPlace(vector))
    }

    fn reduce(self, buffers: &mut Buffers<'_>, root: Rank) -> Result<(), CommError> {
        let (host, place) = place_of(&self.path.levels.hosts, root.0);
        let (is_root, is_there) = (root.0 == self.call.rank, host == self.path.levels.host);
        let mut sums = std::mem::take(&mut self.path.sums);
        // Only the root's vector changes.
        let vector: &mut [u8] = if is_root {
            in_output(buffers)
        } else {
            let given: &[u8] = match buffers {
                Buffers::InPlace(vector) => vector,
                Buffers::Apart { input, .. } => input,
            };
            sums.clear();
            sums.extend_from_slice(given);
            &mut sums
        };
        let result = self
            .reduce_parts(vector, CollectiveKind::Reduce { root: Rank(host as u32) }, false)
            .and_then(|()| if is_there && place > 0 { self.tell_here(vector) } else { Ok(()) });
        self.path.sums = sums;
        result
    }

    fn broadcast(self, buffers: &mut Buffers<'_>, root: Rank) -> Result<(), CommError> {
        let (host, place) = place_of(&self.path.levels.hosts, root.0);
        let vector = in_output(buffers);
        let (bytes, op) = (vector.len() as u64, CallOp::BuiltIn(copies(DType::U8)));
        let here = CollectiveKind::Broadcast { root: Rank(if host == self.path.levels.host { place as u32 } else { 0 }) };
        if host == self.path.levels.host {
            self.locally(Awaited::Ranks, (here, op, bytes), &mut Buffers::InPlace(vector))?;
        }
        self.between(CollectiveKind::Broadcast { root: Rank(host as u32) }, op, bytes, &mut Buffers::InPlace(vector))?;
        if host == self.path.levels.host {
            return Ok(());
        }
        self.locally(Awaited::Hosts, (here, op, bytes), &mut Buffers::InPlace(vector))
    }

    fn all_gather(self, buffers: &mut Buffers<'_>) -> Result<(), CommError> {
        let (bytes, op) = (self.bytes(), CallOp::BuiltIn(copies(DType::U8)));
        let (most, hosts) = (self.most(), self.path.levels.hosts.len());
        let mut shares = std::mem::take(&mut self.path.shares);
        shares.resize(hosts * most * bytes, 0);
        let result = self.gather(buffers, &mut shares, (bytes, most, op));
        self.path.shares = shares;
        result
    }

    /// As many shares for each host as the one with most ranks has: those of all ranks, host by host, then in the order of ranks.
    fn gather(&self, buffers: &mut Buffers<'_>, shares: &mut [u8], (bytes, most, op): (usize, usize, CallOp)) -> Result<(), CommError> {
        let (path, own) = (&*self.path.levels, self.call.rank as usize * bytes);
        let here = path.hosts[path.host].ranks.len();
        let mine = path.host * most * bytes..;
        let given: &[u8] = match buffers {
            Buffers::InPlace(vector) => &vector[own..own + bytes],
            Buffers::Apart { input, .. } => input,
        };
        let output = &mut shares[mine][..here * bytes];
        let whole = (CollectiveKind::AllGather, op, bytes as u64);
        self.locally(Awaited::Ranks, whole, &mut Buffers::Apart { input: given, output })?;
        self.between(CollectiveKind::AllGather, op, (most * bytes) as u64, &mut Buffers::InPlace(shares))?;
        let output = output_of(buffers);
        if self.is_first() {
            for (host, there) in path.hosts.iter().enumerate() {
                for (place, rank) in there.ranks.iter().enumerate() {
                    let from = (host * most + place) * bytes;
                    output[*rank as usize * bytes..][..bytes].copy_from_slice(&shares[from..from + bytes]);
                }
            }
        }
        self.tell_here(output)
    }

    /// Ranks of the host that has most.
    fn most(&self) -> usize {
        self.path.levels.hosts.iter().map(|host| host.ranks.len()).max().unwrap_or(1)
    }

    fn reduce_scatter(self, buffers: &mut Buffers<'_>) -> Result<(), CommError> {
        let most = self.most();
        let (mut shares, mut sums) = (std::mem::take(&mut self.path.shares), std::mem::take(&mut self.path.sums));
        let result = self.scatter(buffers, (&mut shares, &mut sums), most);
        (self.path.shares, self.path.sums) = (shares, sums);
        result
    }

    fn scatter(&self, buffers: &mut Buffers<'_>, (shares, sums): (&mut Vec<u8>, &mut Vec<u8>), most: usize) -> Result<(), CommError> {
        let (path, bytes, own) = (&*self.path.levels, self.bytes(), self.call.rank as usize * self.bytes());
        let given: &[u8] = match buffers {
            Buffers::InPlace(vector) => vector,
            Buffers::Apart { input, .. } => input,
        };
        sums.clear();
        sums.extend_from_slice(given);
        self.reduce_here(Awaited::Ranks, sums)?;
        shares.clear();
        shares.resize(path.hosts.len() * most * bytes, 0);
        if self.is_first() {
            for (host, there) in path.hosts.iter().enumerate() {
                for (place, rank) in there.ranks.iter().enumerate() {
                    let to = (host * most + place) * bytes;
                    shares[to..to + bytes].copy_from_slice(&sums[*rank as usize * bytes..][..bytes]);
                }
            }
        }
        let elements = most as u64 * self.call.elements;
        let here = &mut sums[..most * bytes];
        self.between(CollectiveKind::ReduceScatter, self.op(), elements, &mut Buffers::Apart { input: shares, output: here })?;
        self.tell_here(here)?;
        let mine = &here[path.place * bytes..][..bytes];
        match buffers {
            Buffers::InPlace(vector) => vector[own..own + bytes].copy_from_slice(mine),
            Buffers::Apart { output, .. } => output.copy_from_slice(mine),
        }
        Ok(())
    }
}

/// All of where results go.
fn output_of<'a>(buffers: &'a mut Buffers<'_>) -> &'a mut [u8] {
    match buffers {
        Buffers::InPlace(bytes) => bytes,
        Buffers::Apart { output, .. } => output,
    }
}

/// A rank's vector where its result will be.
fn in_output<'a>(buffers: &'a mut Buffers<'_>) -> &'a mut [u8] {
    match buffers {
        Buffers::InPlace(vector) => vector,
        Buffers::Apart { input, output } => {
            // A rank that only gets something has nothing to give.
            if input.len() == output.len() {
                output.copy_from_slice(input);
            }
            output
        }
    }
}
