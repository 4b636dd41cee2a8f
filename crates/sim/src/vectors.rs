//! What workers reduce, and the oracle that checks what they get.
//!
//! Nodes name pieces of vectors; here is what stands behind the names: nothing but lengths, census weights, or real elements. Census
//! and elements compare each delivered piece with the value that it must have, computed apart from any protocol.

use fanin_core::hash::mix;
use fanin_core::payload::census_key;
use fanin_core::{
    Census, Collective, CollectiveKind, DType, ElementOp, JobId, Length, OpError, OperationId, Operator, Payload, Piece, Rank,
};

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
    /// The worker says that the operation is complete.
    fn finish(&mut self, worker: u32);
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
                delivered: Vec::new(),
                delivered_elements: 0,
            })
        };
        jobs.iter().enumerate().flat_map(of_job).collect()
    }

    fn begin(&mut self, collective: &Collective) {
        self.running = Some((collective.operation, collective.elements));
        self.kind = collective.kind;
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
            self.blame_twice(piece, verdict);
        }
        if self.kind != CollectiveKind::Allreduce {
            self.check_received(piece, verdict);
        }
    }

    #[cold]
    fn blame_twice(&self, piece: Piece, verdict: &mut Verdict) {
        verdict.blame(|| format!("{}: piece {} was delivered twice", self.describe(), piece.index));
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

    /// Blames the node unless every element of the operation was delivered.
    fn finish(&mut self, verdict: &mut Verdict) {
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

/// Vectors of which only the length is known.
#[derive(Clone, Debug)]
pub struct LengthVectors {
    workers: Vec<Progress>,
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
        LengthVectors { workers: Progress::all(jobs), verdict: Verdict::default() }
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
        self.workers[worker as usize].finish(&mut self.verdict);
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
    /// The last two operations of each job: workers are never further apart than that.
    expected: Vec<[Option<ExpectedOperation>; 2]>,
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
            None if progress.has(piece) => match &self.expected[progress.job.index()][piece.operation.index() % 2] {
                Some(known) if known.operation == piece.operation => {
                    let share = progress.share_of(piece);
                    known.sum_at(piece.end(), share).wrapping_sub(known.sum_at(piece.start, share))
                }
                _ => return Err(OpError::NoVector),
            },
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
        self.workers[worker as usize].progress.finish(&mut self.verdict);
    }

    fn delivered_elements(&self, worker: u32) -> u64 {
        self.workers[worker as usize].progress.delivered_elements
    }

    fn verdict(&self) -> &Verdict {
        &self.verdict
    }
}

/// Real elements of all workers, and the oracle: for tests.
#[derive(Clone, Debug)]
pub struct ElementVectors {
    workers: Vec<Progress>,
    operators: Vec<ElementOp>,
    inputs: Vec<Vec<u8>>,
    outputs: Vec<Vec<u8>>,
    verdict: Verdict,
}

impl Simulated for [u8] {
    type Vectors = ElementVectors;

    fn background(bytes: u32, _weight: u64) -> Box<[u8]> {
        vec![0; bytes as usize].into()
    }

    fn background_weight(_payload: &Box<[u8]>) -> u64 {
        0
    }
}

/// Element number `index` of the vector behind a census key: a whole number, so small that sums of floats are exact in any order.
fn test_value(dtype: DType, key: u64, index: u64) -> i64 {
    let largest = match dtype {
        DType::U8 | DType::I8 | DType::BF16 => 8,
        DType::F16 | DType::I16 => 64,
        DType::F32 | DType::F64 | DType::I32 | DType::I64 => 1_000,
    };
    let value = (mix(key, index) % (2 * largest + 1)) as i64;
    if dtype == DType::U8 { value } else { value - largest as i64 }
}

/// A rank's contribution: small whole numbers, so that sums of floats are exact in any order.
pub fn test_elements(op: ElementOp, job: JobId, operation: OperationId, rank: Rank, elements: u64) -> Vec<u8> {
    let key = census_key(job, operation, rank);
    let mut bytes = Vec::with_capacity(elements as usize * op.dtype.bytes());
    (0..elements).for_each(|index| op.dtype.push_i64(test_value(op.dtype, key, index), &mut bytes));
    bytes
}

/// What the reduction of all ranks' [`test_elements`] must be, element by element in 64-bit arithmetic, so without the loops that the
/// protocols use. Products of floats are right only as long as they are exact; sums of narrow floats where they are rounded once.
pub fn expected_elements(op: ElementOp, job: JobId, operation: OperationId, ranks: u32, elements: u64) -> Vec<u8> {
    let collective = Collective::allreduce(operation, elements);
    expected_of(op, job, &collective, ranks)
}

/// As [`expected_elements`], of any kind of collective: what the whole vector must be for those who get it.
fn expected_of(op: ElementOp, job: JobId, collective: &Collective, ranks: u32) -> Vec<u8> {
    let Collective { operation, kind, elements, .. } = *collective;
    let share_elements = elements / u64::from(kind.shares(ranks));
    let keys: Vec<u64> = (0..ranks).map(|rank| census_key(job, operation, Rank(rank))).collect();
    let combine: fn(i64, i64) -> i64 = match op.operator {
        Operator::Sum | Operator::Avg => i64::wrapping_add,
        Operator::Prod => i64::wrapping_mul,
        Operator::Min => i64::min,
        Operator::Max => i64::max,
        Operator::And => |x, y| x & y,
        Operator::Or => |x, y| x | y,
        Operator::Xor => |x, y| x ^ y,
    };
    let mut bytes = Vec::with_capacity(elements as usize * op.dtype.bytes());
    for index in 0..elements {
        let share = index.checked_div(share_elements).unwrap_or(0) as u32;
        let contributors = (0..).zip(&keys).filter(|(rank, _)| kind.contributes(Rank(*rank), share));
        let value = contributors.map(|(_, &key)| test_value(op.dtype, key, index)).reduce(combine).unwrap_or(0);
        match op.operator {
            Operator::Avg => op.dtype.push_f64(value as f64 / f64::from(ranks), &mut bytes),
            _ => op.dtype.push_i64(value, &mut bytes),
        }
    }
    bytes
}

impl ElementVectors {
    fn range(&self, worker: u32, piece: Piece) -> Result<std::ops::Range<usize>, OpError> {
        let progress = &self.workers[worker as usize];
        progress.check(piece)?;
        let start = piece.start as usize * progress.element_bytes as usize;
        Ok(start..start + progress.bytes(piece))
    }

    fn expected(&self, worker: u32) -> Vec<u8> {
        let progress = &self.workers[worker as usize];
        let (operation, elements) = progress.running.unwrap_or_default();
        let collective = Collective { kind: progress.kind, ..Collective::allreduce(operation, elements) };
        expected_of(self.operators[progress.job.index()], progress.job, &collective, progress.workers)
    }
}

impl Vectors<[u8]> for ElementVectors {
    fn new(jobs: &[JobSchedule], operators: &[ElementOp]) -> Self {
        let workers = Progress::all(jobs);
        ElementVectors {
            operators: operators.to_vec(),
            inputs: vec![Vec::new(); workers.len()],
            outputs: vec![Vec::new(); workers.len()],
            workers,
            verdict: Verdict::default(),
        }
    }

    fn operator(&self, job: JobId) -> &ElementOp {
        &self.operators[job.index()]
    }

    fn begin(&mut self, worker: u32, collective: &Collective) {
        let progress = &mut self.workers[worker as usize];
        progress.begin(collective);
        let op = self.operators[progress.job.index()];
        let input = test_elements(op, progress.job, collective.operation, progress.rank, collective.elements);
        self.outputs[worker as usize] = vec![0; input.len()];
        self.inputs[worker as usize] = input;
    }

    fn input(&mut self, worker: u32, piece: Piece) -> Result<Box<[u8]>, OpError> {
        let range = self.range(worker, piece)?;
        self.workers[worker as usize].mark_sent(piece, &mut self.verdict);
        Ok(self.inputs[worker as usize][range].into())
    }

    fn output(&self, worker: u32, piece: Piece) -> Result<Box<[u8]>, OpError> {
        Ok(self.outputs[worker as usize][self.range(worker, piece)?].into())
    }

    fn fold(&mut self, worker: u32, piece: Piece, payload: &[u8]) -> Result<(), OpError> {
        let range = self.range(worker, piece)?;
        let op = self.operators[self.workers[worker as usize].job.index()];
        let input = &self.inputs[worker as usize][range.clone()];
        op.combine(&mut self.outputs[worker as usize][range], payload, input)
    }

    fn deliver(&mut self, worker: u32, piece: Piece, payload: Option<&[u8]>) -> Result<(), OpError> {
        let range = self.range(worker, piece)?;
        if let Some(payload) = payload {
            if payload.len() != range.len() {
                return Err(OpError::Length { expected: range.len(), got: payload.len() });
            }
            self.outputs[worker as usize][range].copy_from_slice(payload);
        }
        self.verdict.pieces_checked += 1;
        self.workers[worker as usize].mark_once(piece, &mut self.verdict);
        Ok(())
    }

    fn finish(&mut self, worker: u32) {
        let expected = self.expected(worker);
        let progress = &mut self.workers[worker as usize];
        let received = progress.received();
        let bytes = progress.element_bytes as usize;
        let received = received.start as usize * bytes..received.end as usize * bytes;
        if self.outputs[worker as usize][received.clone()] != expected[received] {
            self.verdict.blame(|| format!("{}: the result is not the sum of all vectors", progress.describe()));
        }
        progress.finish(&mut self.verdict);
    }

    fn delivered_elements(&self, worker: u32) -> u64 {
        self.workers[worker as usize].delivered_elements
    }

    fn verdict(&self) -> &Verdict {
        &self.verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanin_core::{Duration, Instant};

    const ELEMENTS: u64 = 30;

    /// What the oracle says where three ranks run one collective, and `act` does what a protocol would do.
    fn verdict(kind: CollectiveKind, act: impl FnOnce(&mut CensusVectors)) -> u64 {
        let job = JobSchedule {
            elements: vec![ELEMENTS],
            kinds: vec![kind],
            element_bytes: 4,
            start: vec![Instant::ZERO; 3],
            compute: None,
            crash: None,
            noise_probability: 0.0,
            noise_delay: Duration::ZERO,
        };
        let mut vectors = <CensusVectors as Vectors<Census>>::new(&[job], &[()]);
        let collective = Collective { kind, ..Collective::allreduce(OperationId(0), ELEMENTS) };
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
