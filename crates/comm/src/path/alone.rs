//! One rank: its own vector is the result.

use super::operators::Operators;
use crate::call::{Buffers, Call};

/// How much of a vector an operator that the job has brought along is given at once, in bytes.
const CHUNK_BYTES: usize = 64 << 10;

/// Runs a call of the only rank. Every built-in operator leaves a single vector as it is, a mean too; one that the job has brought along
/// may make something else of it.
///
/// # Errors
/// In words, where such an operator fails.
pub(crate) fn run(call: &Call, buffers: &mut Buffers<'_>, operators: &mut Operators) -> Result<(), String> {
    let custom = call.custom.filter(|_| call.receives(0));
    match (buffers, custom) {
        (Buffers::Apart { input, output }, None) if call.receives(0) => output.copy_from_slice(input),
        (_, None) => {}
        (Buffers::Apart { input, output }, Some(custom)) => {
            let step = chunk_bytes(call.width());
            for (input, output) in input.chunks(step).zip(output.chunks_mut(step)) {
                reduce(operators, custom.index, input, output)?;
            }
        }
        (Buffers::InPlace(vector), Some(custom)) => {
            let mut input = Vec::new();
            for output in vector.chunks_mut(chunk_bytes(call.width())) {
                input.clear();
                input.extend_from_slice(output);
                reduce(operators, custom.index, &input, output)?;
            }
        }
    }
    Ok(())
}

fn chunk_bytes(width: usize) -> usize {
    (CHUNK_BYTES / width).max(1) * width
}

fn reduce(operators: &mut Operators, index: u8, input: &[u8], output: &mut [u8]) -> Result<(), String> {
    let result = operators.reduce(index, 1, std::iter::once(input), output);
    result.map_err(|error| operators.fault().map_or_else(|| error.to_string(), str::to_string))
}
