//! What workers reduce, and the oracle that checks what they get.
//!
//! Nodes name pieces of vectors; here is what stands behind the names: nothing but lengths, census weights, or real elements. Census
//! and elements compare each delivered piece with the value that it must have, computed apart from any protocol.

mod elements;
mod order_free;
mod sparse;

use fanin_core::hash::mix;
use fanin_core::payload::{census_key, weight};
use fanin_core::{Census, Collective, CollectiveKind, JobId, Length, OpError, OperationId, Pair, Payload, Piece, Rank};

pub use elements::{ElementVectors, expected_elements, test_elements};
pub use order_free::rounded_elements;
pub use sparse::test_pairs;

use crate::metrics::Verdict;
use crate::scenario::JobSchedule;

/// A payload that can be simulated.
pub trait Simulated: Payload {
    /// The vectors of all workers.
    type Vectors: Vectors<Self>;

    /// The payload of a background packet: `bytes` long, of this census weight where the payload has one.
    fn background(bytes: u32, weight: u64) -> Self::Owned;

    /// The census weight of a background packet's payload.
    fn background_weight(payload: &Self::Owned) -> u64;
}

/// The vectors of all workers of a run. Workers are numbered through all jobs, by job and rank.
pub trait Vectors<P: Payload + ?Sized>: Sized {
    /// Vectors for these jobs; `operators` has one entry a job.
    fn new(jobs: &[JobSchedule], operators: &[P::Op]) -> Self;
    /// Element type and operator of a job.
    fn operator(&self, job: JobId) -> &P::Op;
    /// A worker begins an operation.
    fn begin(&mut self, worker: u32, collective: &Collective);
    /// The worker's contribution.
    ///
    /// # Errors
    /// [`OpError::NoVector`] where no such operation runs or the piece lies outside of it.
    fn input(&mut self, worker: u32, piece: Piece) -> Result<P::Owned, OpError>;
    /// What the worker's output holds.
    ///
    /// # Errors
    /// As [`Vectors::input`].
    fn output(&self, worker: u32, piece: Piece) -> Result<P::Owned, OpError>;
    /// `output := payload + input`.
    ///
    /// # Errors
    /// As [`Vectors::input`]; [`OpError::Length`] where the payload does not fit the piece.
    fn fold(&mut self, worker: u32, piece: Piece, payload: &P) -> Result<(), OpError>;
    /// `output := payload`, which is final; `None`: what the output holds is final.
    ///
    /// # Errors
    /// As [`Vectors::fold`].
    fn deliver(&mut self, worker: u32, piece: Piece, payload: Option<&P>) -> Result<(), OpError>;
    /// The pairs of a worker's contribution, where it is sparse.
    ///
    /// # Errors
    /// As [`Vectors::input`]; [`OpError::NoVector`] where it is not sparse.
    fn read_pairs(&mut self, _worker: u32, _piece: Piece, _pairs: &mut Vec<Pair>) -> Result<(), OpError> {
        Err(OpError::NoVector)
    }
    /// `output := pairs`, which is final.
    ///
    /// # Errors
    /// As [`Vectors::read_pairs`].
    fn deliver_pairs(&mut self, _worker: u32, _piece: Piece, _pairs: &[Pair]) -> Result<(), OpError> {
        Err(OpError::NoVector)
    }
    /// The worker says that the operation is complete.
    fn finish(&mut self, worker: u32);
    /// The worker says that what it delivers of an operation lacks this rank's contribution.
    fn exclude(&mut self, worker: u32, operation: OperationId, rank: Rank);
    /// Whom a worker's running operation, or the last one, lacks: in ascending order.
    fn excluded(&self, worker: u32) -> &[Rank];
    /// Elements that are final in a worker's running operation, or in the last one.
    fn delivered_elements(&self, worker: u32) -> u64;
    /// What the oracle found so far.
    fn verdict(&self) -> &Verdict;
}

/// What is known of a worker whatever the payload: the running operation and which pieces have been delivered.
#[derive(Clone, Debug)]
struct Progress {
    job: JobId,
    rank: Rank,
    workers: u32,
    element_bytes: u32,
    /// The running operation and its length in elements.
    running: Option<(OperationId, u64)>,
    kind: CollectiveKind,
    /// Ranks that have been excluded from the running operation, in ascending order.
    excluded: Vec<Rank>,
    delivered: Vec<u64>,
    delivered_elements: u64,
}

impl Progress {
    fn all(jobs: &[JobSchedule]) -> Vec<Progress> {
        let of_job = |(index, job): (usize, &JobSchedule)| {
            let (element_bytes, workers) = (job.element_bytes, job.start.len() as u32);
            (0..job.start.len() as u32).map(move |rank| Progress {
                job: JobId(index as u16),
                rank: Rank(rank),
                workers,
                element_bytes,
                running: None,
                kind: CollectiveKind::Allreduce,
                excluded: Vec::new(),
                delivered: Vec::new(),
                delivered_elements: 0,
            })
        };
        jobs.iter().enumerate().flat_map(of_job).collect()
    }

    fn begin(&mut self, collective: &Collective) {
        self.running = Some((collective.operation, collective.elements));
        self.kind = collective.kind;
        self.excluded.clear();
        self.delivered.clear();
        self.delivered_elements = 0;
    }

    #[inline]
    fn bytes(&self, piece: Piece) -> usize {
        piece.elements as usize * self.element_bytes as usize
    }

    /// Whether the piece belongs to the running operation.
    #[inline]
    fn check(&self, piece: Piece) -> Result<(), OpError> {
        match self.running {
            Some((operation, elements)) if operation == piece.operation && piece.end() <= elements => Ok(()),
            _ => Err(OpError::NoVector),
        }
    }

    #[inline]
    fn check_length(&self, piece: Piece, got: usize) -> Result<(), OpError> {
        self.check(piece)?;
        let expected = self.bytes(piece);
        if got == expected { Ok(()) } else { Err(OpError::Length { expected, got }) }
    }

    /// Whether a piece has been delivered.
    fn has(&self, piece: Piece) -> bool {
        self.delivered.get(piece.index as usize / 64).is_some_and(|word| word >> (piece.index % 64) & 1 == 1)
    }

    /// Marks a piece as delivered; false if it was before.
    #[inline(always)]
    fn mark(&mut self, piece: Piece) -> bool {
        let (word, bit) = (piece.index as usize / 64, 1u64 << (piece.index % 64));
        self.delivered_elements += u64::from(piece.elements);
        let Some(slot) = self.delivered.get_mut(word) else { return self.mark_first(word, bit) };
        let fresh = *slot & bit == 0;
        *slot |= bit;
        fresh
    }

    #[inline(never)]
    fn mark_first(&mut self, word: usize, bit: u64) -> bool {
        self.delivered.resize(word + 1, 0);
        self.delivered[word] = bit;
        true
    }

    /// The share of the running operation's vector that a piece begins in.
    fn share_of(&self, piece: Piece) -> u32 {
        let (_, elements) = self.running.unwrap_or_default();
        let share_elements = elements / u64::from(self.kind.shares(self.workers));
        piece.start.checked_div(share_elements).unwrap_or(0) as u32
    }

    /// Blames the node for sending what is not part of the result.
    #[inline(always)]
    fn mark_sent(&self, piece: Piece, verdict: &mut Verdict) {
        if self.kind != CollectiveKind::Allreduce {
            self.check_sent(piece, verdict);
        }
    }

    #[inline(never)]
    fn check_sent(&self, piece: Piece, verdict: &mut Verdict) {
        if !self.kind.contributes(self.rank, self.share_of(piece)) {
            verdict.blame(|| format!("{}: contributes piece {}, which is not asked of it", self.describe(), piece.index));
        }
    }

    /// Marks the piece and blames the node for a second delivery, or for one of what the rank is not to get.
    #[inline(always)]
    fn mark_once(&mut self, piece: Piece, verdict: &mut Verdict) {
        if !self.mark(piece) {
            self.blame_twice(piece.index, verdict);
        }
        if self.kind != CollectiveKind::Allreduce {
            self.check_received(piece, verdict);
        }
    }

    #[cold]
    fn blame_twice(&self, index: u32, verdict: &mut Verdict) {
        verdict.blame(|| format!("{}: piece {index} was delivered twice", self.describe()));
    }

    #[inline(never)]
    fn check_received(&self, piece: Piece, verdict: &mut Verdict) {
        if !self.kind.receives(self.rank, self.share_of(piece)) {
            verdict.blame(|| format!("{}: is given piece {}, which is not for it", self.describe(), piece.index));
        }
    }

    /// The elements of the running operation that this rank is to get: one stretch, whatever the kind.
    fn received(&self) -> std::ops::Range<u64> {
        let (_, elements) = self.running.unwrap_or_default();
        let (kind, rank) = (self.kind, self.rank);
        let shares = kind.shares(self.workers);
        let share_elements = elements / u64::from(shares);
        let mut mine = (0..shares).filter(|share| kind.receives(rank, *share)).map(u64::from);
        let Some(first) = mine.next() else { return 0..0 };
        first * share_elements..(mine.next_back().unwrap_or(first) + 1) * share_elements
    }

    fn exclude(&mut self, operation: OperationId, rank: Rank) {
        if let Err(place) = self.excluded.binary_search(&rank)
            && self.running.is_some_and(|(running, _)| running == operation)
        {
            self.excluded.insert(place, rank);
        }
    }

    /// Blames the node unless every element of the operation was delivered, and lacks those whom it lacks elsewhere.
    fn finish(&mut self, agreed: &mut Agreed, verdict: &mut Verdict) {
        if let Some((operation, _)) = self.running
            && !agreed.is_same(self.job, operation, &self.excluded)
        {
            let (job, rank, excluded) = (self.job, self.rank, &self.excluded);
            verdict.blame(|| format!("job {job}, operation {operation}, rank {rank}: another worker has not excluded {excluded:?}"));
        }
        let received = self.received();
        let elements = received.end - received.start;
        match self.running.take() {
            Some((operation, _)) if elements != self.delivered_elements => {
                let got = self.delivered_elements;
                verdict.blame(|| {
                    let (job, rank) = (self.job, self.rank);
                    format!("job {job}, operation {operation}, rank {rank}: complete with {got} of {elements} elements")
                });
            }
            _ => {}
        }
    }

    fn describe(&self) -> String {
        let operation = self.running.map_or_else(|| "none".into(), |(operation, _)| operation.to_string());
        format!("job {}, operation {operation}, rank {}", self.job, self.rank)
    }
}

/// Whom the operation that ended last has lacked, by job: the same ranks at every worker.
#[derive(Clone, Debug)]
struct Agreed(Vec<Option<(OperationId, Vec<Rank>)>>);

impl Agreed {
    fn new(jobs: usize) -> Self {
        Agreed(vec![None; jobs])
    }

    fn is_same(&mut self, job: JobId, operation: OperationId, excluded: &[Rank]) -> bool {
        match &mut self.0[job.index()] {
            Some((known, ranks)) if *known == operation => ranks == excluded,
            Some((known, ranks)) => {
                *known = operation;
                ranks.clear();
                ranks.extend_from_slice(excluded);
                true
            }
            unknown => {
                *unknown = Some((operation, excluded.to_vec()));
                true
            }
        }
    }
}

/// Vectors of which only the length is known.
#[derive(Clone, Debug)]
pub struct LengthVectors {
    workers: Vec<Progress>,
    agreed: Agreed,
    verdict: Verdict,
}

impl Simulated for Length {
    type Vectors = LengthVectors;

    #[inline]
    fn background(bytes: u32, _weight: u64) -> Length {
        Length(bytes)
    }

    #[inline]
    fn background_weight(_payload: &Length) -> u64 {
        0
    }
}

impl Vectors<Length> for LengthVectors {
    fn new(jobs: &[JobSchedule], _operators: &[()]) -> Self {
        LengthVectors { workers: Progress::all(jobs), agreed: Agreed::new(jobs.len()), verdict: Verdict::default() }
    }

    fn operator(&self, _job: JobId) -> &() {
        &()
    }

    fn begin(&mut self, worker: u32, collective: &Collective) {
        self.workers[worker as usize].begin(collective);
    }

    fn input(&mut self, worker: u32, piece: Piece) -> Result<Length, OpError> {
        self.output(worker, piece)
    }

    fn output(&self, worker: u32, piece: Piece) -> Result<Length, OpError> {
        let worker = &self.workers[worker as usize];
        worker.check(piece)?;
        Ok(Length(worker.bytes(piece) as u32))
    }

    fn fold(&mut self, worker: u32, piece: Piece, payload: &Length) -> Result<(), OpError> {
        self.workers[worker as usize].check_length(piece, payload.bytes())
    }

    fn deliver(&mut self, worker: u32, piece: Piece, payload: Option<&Length>) -> Result<(), OpError> {
        let worker = &mut self.workers[worker as usize];
        worker.check_length(piece, payload.map_or(worker.bytes(piece), Payload::bytes))?;
        worker.mark_once(piece, &mut self.verdict);
        Ok(())
    }

    fn finish(&mut self, worker: u32) {
        self.workers[worker as usize].finish(&mut self.agreed, &mut self.verdict);
    }

    fn exclude(&mut self, worker: u32, operation: OperationId, rank: Rank) {
        self.workers[worker as usize].exclude(operation, rank);
    }

    fn excluded(&self, worker: u32) -> &[Rank] {
        &self.workers[worker as usize].excluded
    }

    fn delivered_elements(&self, worker: u32) -> u64 {
        self.workers[worker as usize].delivered_elements
    }

    fn verdict(&self) -> &Verdict {
        &self.verdict
    }
}

/// The value that a piece must have, computed once for all workers of a job.
#[derive(Clone, Copy, Debug, Default)]
struct Expected {
    /// Start and end in elements; both 0 where not yet known.
    start: u64,
    end: u64,
    /// Sums over all ranks of F(start) and F(end).
    at_start: u64,
    at_end: u64,
}

/// One operation of a job as the census oracle knows it.
#[derive(Clone, Debug)]
struct ExpectedOperation {
    operation: OperationId,
    kind: CollectiveKind,
    /// Keys of F by rank.
    keys: Vec<u64>,
    /// By piece.
    pieces: Vec<Expected>,
}

impl ExpectedOperation {
    fn new(progress: &Progress, operation: OperationId) -> Self {
        let keys = (0..progress.workers).map(|rank| census_key(progress.job, operation, Rank(rank))).collect();
        ExpectedOperation { operation, kind: progress.kind, keys, pieces: Vec::new() }
    }

    /// The sum of F at a position over the ranks that contribute to this share.
    fn sum_at(&self, position: u64, share: u32) -> u64 {
        if self.kind == CollectiveKind::Allreduce {
            return self.keys.iter().fold(0, |sum, &key| sum.wrapping_add(mix(key, position)));
        }
        let contributes = |rank: u32| self.kind.contributes(Rank(rank), share);
        let keys = (0..).zip(&self.keys).filter(|(rank, _)| contributes(*rank));
        keys.fold(0u64, |sum, (_, &key)| sum.wrapping_add(mix(key, position)))
    }

    /// The weight of a piece, which is in one share.
    fn weight_of(&self, piece: Piece, share: u32) -> u64 {
        self.sum_at(piece.end(), share).wrapping_sub(self.sum_at(piece.start, share))
    }

    #[inline(always)]
    fn value(&mut self, piece: Piece, progress: &Progress) -> u64 {
        match self.pieces.get(piece.index as usize) {
            Some(known) if known.end == piece.end() && known.start == piece.start && known.end > 0 => {
                known.at_end.wrapping_sub(known.at_start)
            }
            _ => self.compute(piece, progress),
        }
    }

    #[cold]
    fn compute(&mut self, piece: Piece, progress: &Progress) -> u64 {
        let share = progress.share_of(piece);
        if matches!(self.kind, CollectiveKind::AllToAll { .. }) {
            // Nobody else asks for it.
            return self.weight_of(piece, share);
        }
        let index = piece.index as usize;
        if index >= self.pieces.len() {
            self.pieces.resize(index + 1, Expected::default());
        }
        let before = index.checked_sub(1).map(|before| self.pieces[before]);
        let at_start = match before {
            // In an all-gather other ranks contribute to the piece before, where that is of another share.
            Some(before) if before.end == piece.start && before.end > 0 && self.kind != CollectiveKind::AllGather => before.at_end,
            _ => self.sum_at(piece.start, share),
        };
        let at_end = self.sum_at(piece.end(), share);
        self.pieces[index] = Expected { start: piece.start, end: piece.end(), at_start, at_end };
        at_end.wrapping_sub(at_start)
    }
}

/// A worker's vectors in census weights.
#[derive(Clone, Debug)]
struct CensusWorker {
    progress: Progress,
    /// F's key for the running operation.
    key: u64,
    /// A position and F there: contributions follow each other, so the end of one is the start of the next.
    known_at: u64,
    known: u64,
    /// What the output holds, by piece; empty for a worker that never folds.
    held: Vec<u64>,
}

impl CensusWorker {
    /// The census weight of a piece of the input.
    #[inline(always)]
    fn weight(&mut self, piece: Piece) -> u64 {
        let at_start = if self.known_at == piece.start { self.known } else { mix(self.key, piece.start) };
        (self.known_at, self.known) = (piece.end(), mix(self.key, piece.end()));
        self.known.wrapping_sub(at_start)
    }
}

/// Census weights of all workers, and the oracle.
#[derive(Clone, Debug)]
pub struct CensusVectors {
    workers: Vec<CensusWorker>,
    /// The last two operations of each job: workers are hardly ever further apart than that.
    expected: Vec<[Option<ExpectedOperation>; 2]>,
    agreed: Agreed,
    verdict: Verdict,
}

impl Simulated for Census {
    type Vectors = CensusVectors;

    #[inline]
    fn background(bytes: u32, weight: u64) -> Census {
        Census::new(bytes, weight)
    }

    #[inline]
    fn background_weight(payload: &Census) -> u64 {
        payload.weight()
    }
}

impl CensusVectors {
    #[inline(never)]
    fn hold(&mut self, worker: u32, piece: Piece, weight: u64) {
        if self.workers[worker as usize].held.is_empty() {
            self.recall(worker);
        }
        let held = &mut self.workers[worker as usize].held;
        if held.len() <= piece.index as usize {
            held.resize((piece.index as usize + 1).next_power_of_two(), 0);
        }
        held[piece.index as usize] = weight;
    }

    /// Fills in what was delivered to a worker before its output was first needed: right values all, for a wrong one is held at once.
    fn recall(&mut self, worker: u32) {
        let CensusWorker { progress, held, .. } = &mut self.workers[worker as usize];
        let Some((operation, _)) = progress.running else { return };
        let pieces = match &self.expected[progress.job.index()][operation.index() % 2] {
            Some(known) if known.operation == operation => &known.pieces[..],
            _ => &[],
        };
        held.extend(pieces.iter().map(|piece| piece.at_end.wrapping_sub(piece.at_start)));
    }

    /// What the output holds is final.
    #[inline(never)]
    fn deliver_held(&mut self, worker: u32, piece: Piece) -> Result<(), OpError> {
        let weight = self.output(worker, piece)?.weight();
        let progress = &mut self.workers[worker as usize].progress;
        let expected = expected(&mut self.expected, progress, piece);
        self.verdict.pieces_checked += 1;
        if weight != expected {
            blame_sum(&mut self.verdict, progress, piece);
        }
        progress.mark_once(piece, &mut self.verdict);
        Ok(())
    }
}

#[cold]
fn blame_sum(verdict: &mut Verdict, progress: &Progress, piece: Piece) {
    verdict.blame(|| wrong_sum(progress, piece));
}

/// The weight that a piece of a job's result must have.
#[inline(always)]
fn expected(operations: &mut [[Option<ExpectedOperation>; 2]], progress: &Progress, piece: Piece) -> u64 {
    let of_all = expected_of_all(operations, progress, piece);
    if progress.excluded.is_empty() { of_all } else { of_all.wrapping_sub(weight_of_excluded(progress, piece)) }
}

/// What those would have contributed who have been excluded.
#[cold]
fn weight_of_excluded(progress: &Progress, piece: Piece) -> u64 {
    let weight = |rank: &Rank| weight(progress.job, piece.operation, *rank, piece.start, piece.end());
    progress.excluded.iter().map(weight).fold(0, u64::wrapping_add)
}

#[inline(always)]
fn expected_of_all(operations: &mut [[Option<ExpectedOperation>; 2]], progress: &Progress, piece: Piece) -> u64 {
    match &mut operations[progress.job.index()][piece.operation.index() % 2] {
        Some(known) if known.operation == piece.operation => known.value(piece, progress),
        unknown => expect(unknown, progress, piece),
    }
}

/// The first piece of an operation.
#[cold]
fn expect(unknown: &mut Option<ExpectedOperation>, progress: &Progress, piece: Piece) -> u64 {
    unknown.insert(ExpectedOperation::new(progress, piece.operation)).value(piece, progress)
}

fn wrong_sum(progress: &Progress, piece: Piece) -> String {
    let (start, end) = (piece.start, piece.end());
    format!("{}: piece {} (elements {start}..{end}) is not the sum of all contributions", progress.describe(), piece.index)
}

impl Vectors<Census> for CensusVectors {
    fn new(jobs: &[JobSchedule], _operators: &[()]) -> Self {
        let worker = |progress| CensusWorker { progress, key: 0, known_at: 0, known: mix(0, 0), held: Vec::new() };
        CensusVectors {
            expected: vec![[None, None]; jobs.len()],
            workers: Progress::all(jobs).into_iter().map(worker).collect(),
            agreed: Agreed::new(jobs.len()),
            verdict: Verdict::default(),
        }
    }

    fn operator(&self, _job: JobId) -> &() {
        &()
    }

    fn begin(&mut self, worker: u32, collective: &Collective) {
        let worker = &mut self.workers[worker as usize];
        worker.progress.begin(collective);
        worker.key = census_key(worker.progress.job, collective.operation, worker.progress.rank);
        (worker.known_at, worker.known) = (0, mix(worker.key, 0));
    }

    #[inline(always)]
    fn input(&mut self, worker: u32, piece: Piece) -> Result<Census, OpError> {
        let worker = &mut self.workers[worker as usize];
        worker.progress.check(piece)?;
        worker.progress.mark_sent(piece, &mut self.verdict);
        Ok(Census::new(worker.progress.bytes(piece) as u32, worker.weight(piece)))
    }

    #[inline]
    fn output(&self, worker: u32, piece: Piece) -> Result<Census, OpError> {
        let CensusWorker { progress, held, .. } = &self.workers[worker as usize];
        progress.check(piece)?;
        let held = match held.get(piece.index as usize) {
            Some(held) => *held,
            None if progress.has(piece) => {
                let share = progress.share_of(piece);
                match &self.expected[progress.job.index()][piece.operation.index() % 2] {
                    Some(known) if known.operation == piece.operation => known.weight_of(piece, share),
                    // The first ranks of a chain are more than an operation ahead of the last ones.
                    _ => ExpectedOperation::new(progress, piece.operation).weight_of(piece, share),
                }
            }
            None => return Err(OpError::NoVector),
        };
        Ok(Census::new(progress.bytes(piece) as u32, held))
    }

    fn fold(&mut self, worker: u32, piece: Piece, payload: &Census) -> Result<(), OpError> {
        let state = &mut self.workers[worker as usize];
        state.progress.check_length(piece, payload.bytes())?;
        let weight = payload.weight().wrapping_add(state.weight(piece));
        self.hold(worker, piece, weight);
        Ok(())
    }

    #[inline(always)]
    fn deliver(&mut self, worker: u32, piece: Piece, payload: Option<&Census>) -> Result<(), OpError> {
        let Some(payload) = payload else { return self.deliver_held(worker, piece) };
        let CensusWorker { progress, held, .. } = &mut self.workers[worker as usize];
        progress.check_length(piece, payload.bytes())?;
        let weight = payload.weight();
        let expected = expected(&mut self.expected, progress, piece);
        self.verdict.pieces_checked += 1;
        if weight != expected {
            blame_sum(&mut self.verdict, progress, piece);
        }
        progress.mark_once(piece, &mut self.verdict);
        // A worker that never sends from its output, as in a tree, needs no memory of what it holds, as long as that is right.
        if weight != expected || !held.is_empty() {
            self.hold(worker, piece, weight);
        }
        Ok(())
    }

    fn finish(&mut self, worker: u32) {
        self.workers[worker as usize].progress.finish(&mut self.agreed, &mut self.verdict);
    }

    fn exclude(&mut self, worker: u32, operation: OperationId, rank: Rank) {
        self.workers[worker as usize].progress.exclude(operation, rank);
    }

    fn excluded(&self, worker: u32) -> &[Rank] {
        &self.workers[worker as usize].progress.excluded
    }

    fn delivered_elements(&self, worker: u32) -> u64 {
        self.workers[worker as usize].progress.delivered_elements
    }

    fn verdict(&self) -> &Verdict {
        &self.verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Contributions;
    use fanin_core::{DType, Duration, Instant};

    const ELEMENTS: u64 = 30;

    /// What the oracle says where three ranks run one collective, and `act` does what a protocol would do.
    fn verdict(kind: CollectiveKind, act: impl FnOnce(&mut CensusVectors)) -> u64 {
        verdict_of(kind, ELEMENTS, act)
    }

    fn verdict_of(kind: CollectiveKind, elements: u64, act: impl FnOnce(&mut CensusVectors)) -> u64 {
        let job = JobSchedule {
            elements: vec![elements],
            kinds: vec![kind],
            element_bytes: 4,
            contributions: Contributions::Whole,
            values: DType::I32,
            sparsity: None,
            indices: None,
            start: vec![Instant::ZERO; 3],
            compute: None,
            crash: None,
            noise_probability: 0.0,
            noise_delay: Duration::ZERO.into(),
        };
        let mut vectors = <CensusVectors as Vectors<Census>>::new(&[job], &[()]);
        let collective = Collective { kind, ..Collective::allreduce(OperationId(0), elements) };
        (0..3).for_each(|worker| vectors.begin(worker, &collective));
        act(&mut vectors);
        (0..3).for_each(|worker| vectors.finish(worker));
        vectors.verdict().wrong
    }

    /// A third of the vector, so that each lies in one share.
    fn piece(index: u32) -> Piece {
        Piece { operation: OperationId(0), index, start: u64::from(index) * 10, elements: 10 }
    }

    /// Gives each piece as the sum of what `senders` contribute to all of `receivers`.
    fn reduce(vectors: &mut CensusVectors, senders: fn(u32) -> Vec<u32>, receivers: fn(u32) -> Vec<u32>) {
        for piece in (0..3).map(piece) {
            let nothing = Census::new(40, 0);
            let sum = senders(piece.index).into_iter().fold(nothing, |sum, worker| sum.plus(vectors.input(worker, piece).unwrap()));
            receivers(piece.index).into_iter().for_each(|worker| vectors.deliver(worker, piece, Some(&sum)).unwrap());
        }
    }

    const ALL: fn(u32) -> Vec<u32> = |_| vec![0, 1, 2];
    const SECOND: fn(u32) -> Vec<u32> = |_| vec![1];
    const OWN: fn(u32) -> Vec<u32> = |piece| vec![piece];
    const ROOT: Rank = Rank(1);

    /// Of three ranks, each has a share for each: nine pieces of three elements.
    #[test]
    fn all_to_all_is_checked_by_sender_and_receiver() {
        let kind = CollectiveKind::AllToAll { workers: 3 };
        let piece = |receiver: u32, sender: u32| {
            let index = 3 * receiver + sender;
            Piece { operation: OperationId(0), index, start: u64::from(index) * 3, elements: 3 }
        };
        let pairs = || (0..3).flat_map(|receiver| (0..3).map(move |sender| (receiver, sender)));
        let wrong = verdict_of(kind, 27, |vectors| {
            for (receiver, sender) in pairs() {
                let input = vectors.input(sender, piece(receiver, sender)).unwrap();
                vectors.deliver(receiver, piece(receiver, sender), Some(&input)).unwrap();
            }
        });
        assert_eq!(wrong, 0);
        let wrong = verdict_of(kind, 27, |vectors| {
            for (receiver, sender) in pairs() {
                // What is for the next one.
                let input = vectors.input(sender, piece((receiver + 1) % 3, sender)).unwrap();
                vectors.deliver(receiver, piece(receiver, sender), Some(&input)).unwrap();
            }
        });
        assert_eq!(wrong, 9);
    }

    #[test]
    fn whoever_does_what_the_collective_asks_is_right() {
        for (kind, senders, receivers) in [
            (CollectiveKind::Allreduce, ALL, ALL),
            (CollectiveKind::Reduce { root: ROOT }, ALL, SECOND),
            (CollectiveKind::Broadcast { root: ROOT }, SECOND, ALL),
            (CollectiveKind::ReduceScatter, ALL, OWN),
            (CollectiveKind::AllGather, OWN, ALL),
        ] {
            assert_eq!(verdict(kind, |vectors| reduce(vectors, senders, receivers)), 0, "{kind:?}");
        }
    }

    #[test]
    fn whoever_takes_one_collective_for_another_is_blamed() {
        let kinds = [
            CollectiveKind::Allreduce,
            CollectiveKind::Reduce { root: ROOT },
            CollectiveKind::Broadcast { root: ROOT },
            CollectiveKind::ReduceScatter,
            CollectiveKind::AllGather,
        ];
        let acts = [(ALL, ALL), (ALL, SECOND), (SECOND, ALL), (ALL, OWN), (OWN, ALL)];
        for (right, kind) in kinds.into_iter().enumerate() {
            for (taken_for, (senders, receivers)) in acts.into_iter().enumerate() {
                let wrong = verdict(kind, |vectors| reduce(vectors, senders, receivers));
                assert_eq!(wrong == 0, right == taken_for, "{kind:?} as {:?}", kinds[taken_for]);
            }
        }
    }
}
