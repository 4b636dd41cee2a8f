//! All ranks on one host: vectors travel through shared memory, and the rank that comes last to a block computes its result.

use std::time::Duration;

use fanin_control::FailureKind;
use fanin_core::{DType, OpError, OrderedReduction, Rank};
use fanin_net::shm::{Inputs, Pool, Trouble};
use fanin_net::stream::{Upcoming, copy_past_caches};
use fanin_operator::CustomOperator;

use super::VERDICT_WAIT;
use super::layout::BLOCK_BYTES_MAX;
use super::operators::Operators;
use super::patience::Patience;
use crate::call::{Block, Blocks, Buffers, Call, is_copy};
use crate::error::CommError;
use crate::link::Link;

/// The shortest block into which a longer vector is cut: below that, meeting costs more than summing.
const BLOCK_BYTES_MIN: u64 = 16 << 10;
/// Into how many blocks a vector of medium length is cut, so that ranks copy while others sum.
const BLOCKS_WANTED: u64 = 8;
/// After how many blocks it is written down that the call goes on.
const PATIENCE_BLOCKS: u64 = 4;
/// Sums are computed piece by piece, so that a piece of the result stays in the first-level cache while all inputs pass by.
const TILE_BYTES: usize = 8 << 10;
/// How long a rank sleeps at most before it looks whether the job has failed.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// One rank's end of the shared memory.
pub(crate) struct MemoryPath {
    pool: Pool,
    tiles: Tiles,
}

impl MemoryPath {
    /// With the operators that the job brings along.
    pub(crate) fn new(pool: Pool, rank: u32, operators: &[CustomOperator]) -> Self {
        MemoryPath { pool, tiles: Tiles { rank, reduction: OrderedReduction::default(), operators: Operators::new(operators) } }
    }

    /// Runs a call.
    ///
    /// # Errors
    /// The job has failed.
    pub(crate) fn run(&mut self, call: &Call, buffers: &mut Buffers<'_>, link: &Link, mut patience: Patience<'_>) -> Result<(), CommError> {
        let blocks = Blocks::new(call, block_elements(call));
        let (count, fingerprint) = (blocks.count(), call.fingerprint());
        link.begin(call.describe(count));
        self.pool.tell(&call.words());
        let streamed = call.is_long();
        let (mut arrived, mut read) = (0, 0);
        while read < count {
            while arrived < count && self.pool.may_arrive() {
                let block = blocks.get(arrived);
                let bytes = block.elements as usize * call.width();
                let tiles = &mut self.tiles;
                self.pool
                    .arrive(fingerprint, buffers.input(call, &block), bytes, |inputs, result| tiles.reduce(call, &block, inputs, result))
                    .map_err(|trouble| self.explain(trouble, call, link))?;
                arrived += 1;
            }
            while !self.pool.wait(LOOK_INTERVAL).map_err(|trouble| self.explain(trouble, call, link))? {
                patience.check(|| self.pool.waits_for()).inspect_err(|error| self.pool.fail(code(error, call.rank)))?;
            }
            let block = blocks.get(read);
            let bytes = block.elements as usize * call.width();
            // This rank contributes to another block once it has this result: the memory is read while the result is written.
            let next = (arrived < count).then(|| blocks.get(arrived));
            let upcoming = next.and_then(|next| buffers.input(call, &next)).map_or(Upcoming::NONE, Upcoming::of);
            self.pool.read(bytes, |result| {
                if let Some(output) = buffers.output(call, &block) {
                    if streamed { copy_past_caches(output, result, upcoming) } else { output.copy_from_slice(result) }
                }
            });
            read += 1;
            link.progress(read);
            if read.is_multiple_of(PATIENCE_BLOCKS) {
                patience.go_on().inspect_err(|error| self.pool.fail(code(error, call.rank)))?;
            }
        }
        let next = call.number.wrapping_add(1);
        self.pool.tell(&[u64::from(next), 0, 0, 0, 0, 0]);
        link.end(next);
        Ok(())
    }

    /// Trouble in words. Every rank finds the same ones, since all look at the same memory.
    fn explain(&self, trouble: Trouble, call: &Call, link: &Link) -> CommError {
        if let Some(failure) = link.failure() {
            return failure;
        }
        if let Some(fault) = self.tiles.operators.fault() {
            return link.abort(fault);
        }
        let calls: Vec<Option<Call>> = (0..call.world)
            .map(|rank| Call::from_words(std::array::from_fn(|index| self.pool.told(rank, index)), call.world, rank))
            .collect();
        let error = match (trouble, disagreement(&calls)) {
            (Trouble::Mismatch, Some((rank, text))) => link.failed_with(text, Some(rank), Some(FailureKind::Mismatch)),
            (Trouble::Mismatch, None) => link.failed_with(trouble.to_string(), None, Some(FailureKind::Mismatch)),
            (Trouble::Failed(code), _) => {
                // Who has left the code knows why from the control connection, and this rank hears it there as well.
                if let Some(failure) = link.await_failure(VERDICT_WAIT) {
                    return failure;
                }
                let (text, suspect, kind) = told(code);
                link.failed_with(text, suspect, kind)
            }
        };
        link.fail(error)
    }
}

/// The first rank whose call is not that of the ranks before it, and how they differ.
fn disagreement(calls: &[Option<Call>]) -> Option<(u32, String)> {
    let first = calls.iter().flatten().next()?;
    let other = calls.iter().flatten().find(|call| call.fingerprint() != first.fingerprint())?;
    let tell = |call: &Call| format!("rank {} calls {} as operation {}", call.rank, call.signature(), call.number);
    Some((other.rank, format!("{}, where {}", tell(other), tell(first))))
}

/// In what a rank leaves that has ended the job: the rest is its number.
const ABORTED: u64 = 1 << 63;

/// What rank `giver`, which gives up, leaves in the shared memory: who it is, plus 1, in the upper half, and in the lower half whom it suspects,
/// plus 2, or 1.
fn code(error: &CommError, giver: u32) -> u64 {
    if let CommError::Failed { kind: Some(FailureKind::Aborted), suspect_rank: Some(rank), .. } = error {
        return ABORTED | u64::from(*rank);
    }
    (u64::from(giver) + 1) << 32 | error.suspect_rank().map_or(1, |rank| u64::from(rank) + 2)
}

/// What a code says, where nobody else says more.
fn told(code: u64) -> (String, Option<u32>, Option<FailureKind>) {
    if code & ABORTED != 0 {
        let rank = code as u32;
        return (format!("rank {rank} has ended the job"), Some(rank), Some(FailureKind::Aborted));
    }
    let (giver, suspect) = ((code >> 32) as u32, (code as u32).checked_sub(2));
    let giver = giver.checked_sub(1).map_or("another rank".into(), |rank| format!("rank {rank}"));
    let whom = suspect.map_or(String::new(), |rank| format!(", waiting for rank {rank}"));
    (format!("{giver} has given up{whom}"), suspect, None)
}

/// Elements of a block: the same at all ranks, since all know the call.
fn block_elements(call: &Call) -> u32 {
    let width = call.width() as u64;
    let wanted = (call.elements * width / BLOCKS_WANTED).next_multiple_of(4_096);
    (wanted.clamp(BLOCK_BYTES_MIN, u64::from(BLOCK_BYTES_MAX)) / width) as u32
}

/// Computes results of blocks.
struct Tiles {
    rank: u32,
    reduction: OrderedReduction,
    operators: Operators,
}

impl Tiles {
    /// The result of a block: contributions in the order of ranks, so that every run gives the same bits.
    ///
    /// # Errors
    /// What this rank leaves in the shared memory where an operator that the job has brought along fails.
    fn reduce(&mut self, call: &Call, block: &Block, inputs: &Inputs<'_>, result: &mut [u8]) -> Result<(), u64> {
        let contributors = (0..inputs.world()).filter(|&rank| call.kind.contributes(Rank(rank), block.share));
        let tile_bytes = (TILE_BYTES / call.width()).max(1) * call.width();
        for start in (0..result.len()).step_by(tile_bytes) {
            let range = start..(start + tile_bytes).min(result.len());
            let tile = &mut result[range.clone()];
            let inputs = contributors.clone().map(|rank| &inputs.of(rank)[range.clone()]);
            let done = match call.custom {
                _ if is_copy(call.kind) => copy(inputs, tile),
                Some(custom) => self.operators.reduce(custom.index, call.world, inputs, tile),
                None => self.reduction.reduce(call.op, call.world, inputs, tile),
            };
            // All inputs are as long as the tile, and the operator was checked when the call was made.
            debug_assert!(matches!(done, Ok(()) | Err(OpError::Operator)), "{done:?}");
            done.map_err(|_| ABORTED | u64::from(self.rank))?;
        }
        Ok(())
    }
}

fn copy<'a>(mut inputs: impl Iterator<Item = &'a [u8]>, tile: &mut [u8]) -> Result<(), OpError> {
    if let Some(input) = inputs.next() {
        tile.copy_from_slice(input);
    }
    Ok(())
}

const _: () = assert!(TILE_BYTES.is_multiple_of(DType::F64.bytes()) && (BLOCK_BYTES_MAX as usize).is_multiple_of(TILE_BYTES));
