//! Real elements, and the oracle that compares every one of them: for tests.

use fanin_core::hash::mix;
use fanin_core::payload::census_key;
use fanin_core::{CellKind, Collective, DType, ElementOp, JobId, OpError, OperationId, Operator, Pair, PayloadOp, Piece, Rank};

use super::order_free;
use super::sparse::SparseVectors;
use super::{Agreed, Progress, Simulated, Vectors};
use crate::metrics::Verdict;
use crate::scenario::{Contributions, JobSchedule};

/// Real elements of all workers, and the oracle: for tests.
#[derive(Clone, Debug)]
pub struct ElementVectors {
    workers: Vec<Progress>,
    operators: Vec<PayloadOp>,
    /// The same, where vectors are dense: none of these is one that the job brings along, by which sparse vectors may be reduced.
    built_in: Vec<ElementOp>,
    /// By job, where its vectors are sparse.
    sparse: Vec<Option<SparseVectors>>,
    /// By job, what its elements are.
    contributions: Vec<Contributions>,
    /// By job, what an operation must give, so that it is computed once for all workers.
    known: Vec<Option<Known>>,
    inputs: Vec<Vec<u8>>,
    outputs: Vec<Vec<u8>>,
    /// By worker, where floats are summed as integers: the exponents that these have been made with.
    exponents: Vec<Vec<u8>>,
    agreed: Agreed,
    verdict: Verdict,
}

/// What an operation of a job must give those who get all of it.
#[derive(Clone, Debug)]
struct Known {
    operation: OperationId,
    /// Whom it lacks.
    without: Vec<Rank>,
    bytes: Vec<u8>,
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
    expected_of(op, job, &collective, ranks, &[])
}

/// As [`expected_elements`], of any kind of collective: what the whole vector must be for those who get it. `without` have been excluded.
fn expected_of(op: ElementOp, job: JobId, collective: &Collective, ranks: u32, without: &[Rank]) -> Vec<u8> {
    let Collective { operation, kind, elements, .. } = *collective;
    let share_elements = elements / u64::from(kind.shares(ranks));
    let keys: Vec<(Rank, u64)> =
        (0..ranks).map(Rank).filter(|rank| !without.contains(rank)).map(|rank| (rank, census_key(job, operation, rank))).collect();
    let combine: fn(i64, i64) -> i64 = match op.operator {
        Operator::Sum | Operator::Avg => i64::wrapping_add,
        Operator::Prod => i64::wrapping_mul,
        Operator::Min | Operator::Minimum => i64::min,
        Operator::Max | Operator::Maximum => i64::max,
        Operator::And => |x, y| x & y,
        Operator::Or => |x, y| x | y,
        Operator::Xor => |x, y| x ^ y,
    };
    let mut bytes = Vec::with_capacity(elements as usize * op.dtype.bytes());
    for index in 0..elements {
        let share = index.checked_div(share_elements).unwrap_or(0) as u32;
        let contributors = keys.iter().filter(|(rank, _)| kind.contributes(*rank, share));
        let value = contributors.map(|(_, key)| test_value(op.dtype, *key, index)).reduce(combine).unwrap_or(0);
        match op.operator {
            Operator::Avg => op.dtype.push_f64(value as f64 / keys.len() as f64, &mut bytes),
            _ => op.dtype.push_i64(value, &mut bytes),
        }
    }
    bytes
}

impl ElementVectors {
    fn range(&self, worker: u32, piece: Piece) -> Result<std::ops::Range<usize>, OpError> {
        let progress = &self.workers[worker as usize];
        progress.check(piece)?;
        if self.sparse[progress.job.index()].is_some() {
            return Err(OpError::NoVector);
        }
        let start = piece.start as usize * progress.element_bytes as usize;
        Ok(start..start + progress.bytes(piece))
    }

    /// What the running operation of a worker's job must give; for floats whose sums are rounded, nothing.
    fn expected(&mut self, worker: u32) -> &[u8] {
        let progress = &self.workers[worker as usize];
        let (operation, elements) = progress.running.unwrap_or_default();
        let known = &mut self.known[progress.job.index()];
        if !known.as_ref().is_some_and(|known| known.operation == operation && known.without == progress.excluded) {
            let bytes = match &self.contributions[progress.job.index()] {
                Contributions::Whole => {
                    let collective = Collective { kind: progress.kind, ..Collective::allreduce(operation, elements) };
                    expected_of(self.built_in[progress.job.index()], progress.job, &collective, progress.workers, &progress.excluded)
                }
                Contributions::Rounded => Vec::new(),
                Contributions::OrderFree { dtype, cells, parts } => {
                    let part = &parts[operation.index()];
                    let keys = keys(progress, OperationId(part.vector));
                    match part.kind {
                        CellKind::Exponents => order_free::largest_exponents(*dtype, cells, &keys, part),
                        CellKind::Integers => order_free::sums(*dtype, &keys, progress.workers, part),
                    }
                }
            };
            *known = Some(Known { operation, without: progress.excluded.clone(), bytes });
        }
        known.as_ref().map_or(&[], |known| &known.bytes)
    }

    /// A worker's contribution to the operation that it begins.
    fn contribution(&mut self, worker: u32, collective: &Collective) -> Vec<u8> {
        let progress = &self.workers[worker as usize];
        let (job, rank) = (progress.job, progress.rank);
        let op = self.built_in[job.index()];
        match &self.contributions[job.index()] {
            Contributions::Whole => test_elements(op, job, collective.operation, rank, collective.elements),
            Contributions::Rounded => order_free::rounded_elements(op.dtype, (job, collective.operation), rank, 0, collective.elements),
            Contributions::OrderFree { dtype, cells, parts } => {
                let part = &parts[collective.operation.index()];
                let of = (job, OperationId(part.vector));
                let floats = order_free::rounded_elements(*dtype, of, rank, part.first, part.elements);
                // What the operation before has given this worker.
                let exponents = &mut self.exponents[worker as usize];
                *exponents = cells.unpack(CellKind::Exponents, &self.outputs[worker as usize], part.elements as usize);
                order_free::contribution(*dtype, cells, &floats, part, exponents)
            }
        }
    }

    /// What a worker has in the end of what it is to get, as its user sees it: floats where cells were summed.
    fn result(&self, worker: u32) -> Vec<u8> {
        let progress = &self.workers[worker as usize];
        let Contributions::OrderFree { dtype, cells, parts } = &self.contributions[progress.job.index()] else {
            let (received, bytes) = (progress.received(), progress.element_bytes as usize);
            return self.outputs[worker as usize][received.start as usize * bytes..received.end as usize * bytes].to_vec();
        };
        let (operation, _) = progress.running.unwrap_or_default();
        let (part, output) = (&parts[operation.index()], &self.outputs[worker as usize]);
        if part.kind == CellKind::Exponents {
            return output.clone();
        }
        // Those that the integers were made with.
        let exponents = &self.exponents[worker as usize];
        let mut floats = vec![0; part.elements as usize * dtype.bytes()];
        cells.sum().dequantise(exponents, &cells.unpack(part.kind, output, part.elements as usize), &mut floats);
        floats
    }
}

/// Keys of all ranks' vectors but those that are left out.
fn keys(progress: &Progress, vector: OperationId) -> Vec<u64> {
    let ranks = (0..progress.workers).map(Rank).filter(|rank| !progress.excluded.contains(rank));
    ranks.map(|rank| census_key(progress.job, vector, rank)).collect()
}

/// Whether sums of rounded floats are as near to the exact ones as any order makes them.
fn is_near(dtype: DType, keys: &[u64], floats: &[u8]) -> bool {
    floats.chunks(dtype.bytes()).zip(0..).all(|(bytes, index)| {
        let (sum, off) = order_free::exact(dtype, keys, index);
        (dtype.read_f64(bytes) - sum).abs() <= off
    })
}

impl Vectors<[u8]> for ElementVectors {
    fn new(jobs: &[JobSchedule], operators: &[PayloadOp]) -> Self {
        let workers = Progress::all(jobs);
        let of = |(job, op): (&JobSchedule, &PayloadOp)| op.built_in().unwrap_or(ElementOp { dtype: job.values, operator: Operator::Sum });
        let sparse = |(job, op): (&JobSchedule, &PayloadOp)| {
            job.sparsity.map(|sparsity| SparseVectors::new(op, job.values, sparsity, job.indices.clone()))
        };
        ElementVectors {
            sparse: jobs.iter().zip(operators).map(sparse).collect(),
            built_in: jobs.iter().zip(operators).map(of).collect(),
            operators: operators.to_vec(),
            contributions: jobs.iter().map(|job| job.contributions.clone()).collect(),
            known: vec![None; jobs.len()],
            exponents: vec![Vec::new(); workers.len()],
            inputs: vec![Vec::new(); workers.len()],
            outputs: vec![Vec::new(); workers.len()],
            workers,
            agreed: Agreed::new(jobs.len()),
            verdict: Verdict::default(),
        }
    }

    fn operator(&self, job: JobId) -> &PayloadOp {
        &self.operators[job.index()]
    }

    fn begin(&mut self, worker: u32, collective: &Collective) {
        let progress = &mut self.workers[worker as usize];
        progress.begin(collective);
        if self.sparse[progress.job.index()].is_some() {
            return;
        }
        let input = self.contribution(worker, collective);
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
        let job = self.workers[worker as usize].job.index();
        let (input, output) = (&self.inputs[worker as usize][range.clone()], &mut self.outputs[worker as usize][range]);
        match &mut self.operators[job] {
            PayloadOp::BuiltIn(op) => op.combine(output, payload, input),
            PayloadOp::Custom(op) => {
                if payload.len() != output.len() {
                    return Err(OpError::Length { expected: output.len(), got: payload.len() });
                }
                op.0.begin(output, payload)?;
                op.0.combine(output, input)
            }
        }
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

    fn read_pairs(&mut self, worker: u32, piece: Piece, pairs: &mut Vec<Pair>) -> Result<(), OpError> {
        let progress = &self.workers[worker as usize];
        progress.check(piece)?;
        self.sparse[progress.job.index()].as_ref().ok_or(OpError::NoVector)?.read(progress, piece, pairs);
        Ok(())
    }

    fn deliver_pairs(&mut self, worker: u32, piece: Piece, pairs: &[Pair]) -> Result<(), OpError> {
        let progress = &mut self.workers[worker as usize];
        progress.check(piece)?;
        let sparse = self.sparse[progress.job.index()].as_mut().ok_or(OpError::NoVector)?;
        sparse.check(progress, piece, pairs, &mut self.verdict);
        progress.mark_once(piece, &mut self.verdict);
        Ok(())
    }

    fn finish(&mut self, worker: u32) {
        let progress = &mut self.workers[worker as usize];
        if self.sparse[progress.job.index()].is_some() {
            return progress.finish(&mut self.agreed, &mut self.verdict);
        }
        let result = self.result(worker);
        let progress = &self.workers[worker as usize];
        let (job, received) = (progress.job.index(), progress.received());
        let (operation, _) = progress.running.unwrap_or_default();
        let bytes = progress.element_bytes as usize;
        let is_right = match &self.contributions[job] {
            Contributions::Whole => result == self.expected(worker)[received.start as usize * bytes..received.end as usize * bytes],
            Contributions::Rounded => is_near(self.built_in[job].dtype, &keys(progress, operation), &result),
            Contributions::OrderFree { .. } => result == self.expected(worker),
        };
        if !matches!(self.contributions[job], Contributions::Whole) {
            let hash = result.iter().fold(u64::from(operation.0), |hash, byte| mix(hash, u64::from(*byte)));
            self.verdict.results = self.verdict.results.wrapping_add(mix(u64::from(worker), hash));
        }
        let progress = &mut self.workers[worker as usize];
        if !is_right {
            self.verdict.blame(|| format!("{}: the result is not the sum of all vectors", progress.describe()));
        }
        progress.finish(&mut self.agreed, &mut self.verdict);
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
