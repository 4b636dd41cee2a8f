//! What sparse vectors are reduced by: built-in operators, and those that a job brings along. They are tried before anything is run: what cannot be
//! combined at several switches, or is not the same in any order, is refused.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fanin_core::payload::Sparsity;
use fanin_core::{DType, ElementOp, JobId, OpError, OperationId, Operator, Pair, Payload, PayloadOp, Piece, Rank};
use fanin_operator::{CustomOperator, Digest, Faults, Trying, examine, limits};
use fanin_sim::vectors::test_pairs;

use crate::reading::files;

/// How a value is known for a module's file.
pub const MODULE: &str = ".wasm";

/// How many ranks' values are combined in different orders, and at how many indices.
const RANKS: u32 = 8;
const INDICES: u32 = 512;

/// Modules that have been tried for a type of elements: a plan's runs share them.
static TRIED: Mutex<Vec<(DType, CustomOperator)>> = Mutex::new(Vec::new());
const TRIED_MAX: usize = 16;

/// Reads, compiles and tries a module for vectors of elements of a type, which several switches combine.
///
/// # Errors
/// What was expected, and what is in the way.
pub fn load(file: &Path, dtype: DType) -> Result<CustomOperator, String> {
    admit(read(file)?, dtype)
}

/// The same for a file by the name that a plan has for it.
///
/// # Errors
/// As [`load`].
pub fn load_of_plan(plan: &str, name: &str, dtype: DType) -> Result<CustomOperator, String> {
    let module = files::read(plan, name, limits::MODULE_BYTES_MAX as u64 + 1);
    admit(compile(Path::new(name), &module.map_err(|error| format!("a file that can be read: {error}"))?)?, dtype)
}

/// Reads and compiles a module.
///
/// # Errors
/// As [`load`].
pub fn read(file: &Path) -> Result<CustomOperator, String> {
    let mut module = Vec::new();
    // What is longer than it may be is not read.
    let most = limits::MODULE_BYTES_MAX as u64 + 1;
    let read = File::open(file).and_then(|file| file.take(most).read_to_end(&mut module));
    read.map_err(|error| format!("a file that can be read: {error}"))?;
    compile(file, &module)
}

/// Compiles what a file has.
fn compile(file: &Path, module: &[u8]) -> Result<CustomOperator, String> {
    let name = file.file_stem().map_or_else(|| "operator".into(), |stem| stem.to_string_lossy().into_owned());
    let digest = Digest::of(module);
    if let Some((_, known)) = tried().iter().find(|(_, known)| known.digest() == digest) {
        return Ok(known.clone());
    }
    CustomOperator::from_wasm(&name, module).map_err(|error| format!("an operator: {error}"))
}

fn tried() -> MutexGuard<'static, Vec<(DType, CustomOperator)>> {
    TRIED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether several switches can combine elements of a type by an operator, in any order.
///
/// # Errors
/// As [`load`].
pub fn admit(operator: CustomOperator, dtype: DType) -> Result<CustomOperator, String> {
    if tried().iter().any(|(of, known)| (*of, known) == (dtype, &operator)) {
        return Ok(operator);
    }
    let levels = operator.for_levels(dtype.bytes());
    let operator = levels.map_err(|error| format!("an operator of {dtype} that several switches can combine by: {error}"))?;
    examine(&operator, &Trying { dtype: Some(dtype), ..Trying::default() })
        .map_err(|broken| format!("an operator that jobs can bear: {broken}"))?;
    let faults = Faults::default();
    let agree = in_any_order(&mut operator.payload_op(&faults), dtype);
    agree.map_err(|why| faults.first().map_or(why, |fault| format!("an operator that does not fail: {fault}")))?;
    let mut tried = tried();
    if tried.len() == TRIED_MAX {
        tried.remove(0);
    }
    tried.push((dtype, operator.clone()));
    Ok(operator)
}

/// Results are compared bit by bit with what a host makes of all contributions, so they must be the same in any order.
fn in_any_order(op: &mut PayloadOp, dtype: DType) -> Result<(), String> {
    let piece = Piece { operation: OperationId(0), index: 0, start: 0, elements: INDICES };
    let values = ElementOp { dtype, operator: Operator::Sum };
    let vectors: Vec<Vec<Pair>> = (0..RANKS)
        .map(|rank| {
            let mut pairs = Vec::new();
            test_pairs(values, JobId(0), Rank(rank), Sparsity::random(1.0), piece, &mut pairs);
            pairs
        })
        .collect();
    for index in 0..INDICES as usize {
        let given: Vec<u64> = vectors.iter().map(|vector| vector[index].bits).collect();
        let [one, backwards, neighbours] = folds(op, &given).map_err(|error| error.to_string())?;
        if one != backwards || one != neighbours {
            let shown = |bits: u64| format!("{:#0width$x}", bits, width = 2 + 2 * dtype.bytes());
            let all: Vec<String> = given.iter().map(|bits| shown(*bits)).collect();
            let other = if one == backwards { neighbours } else { backwards };
            return Err(format!(
                "a commutative and associative operator of {dtype}, in every bit: of {} it makes {} in one order and {} in another",
                all.join(", "),
                shown(one),
                shown(other)
            ));
        }
    }
    Ok(())
}

/// The reduction of values from the first one on, from the last one on, and of neighbours first.
fn folds(op: &mut PayloadOp, given: &[u64]) -> Result<[u64; 3], OpError> {
    let mut level = given.to_vec();
    while level.len() > 1 {
        level = level.chunks(2).map(|pair| fold(op, pair.iter().copied())).collect::<Result<_, _>>()?;
    }
    let neighbours = level.first().copied().unwrap_or_default();
    Ok([fold(op, given.iter().copied())?, fold(op, given.iter().rev().copied())?, neighbours])
}

fn fold(op: &mut PayloadOp, mut values: impl Iterator<Item = u64>) -> Result<u64, OpError> {
    let first = values.next().unwrap_or_default();
    values.try_fold(first, |sum, value| <[u8]>::reduce_bits(op, sum, value))
}
