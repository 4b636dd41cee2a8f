//! How shared memory is divided: by whoever makes it, and by whoever uses it.

use fanin_net::shm::Layout;

/// The longest block in bytes: what all ranks put into it, and its result, should stay in a core's own cache.
pub(crate) const BLOCK_BYTES_MAX: u32 = 64 << 10;
/// How far ranks may be apart, in blocks. Where there are more ranks than cores, ranks take turns, and a turn is as long as that: with 16
/// blocks a vector of 64 MiB is summed in a quarter of the turns that it takes with 4.
const SLOTS_MIN: u32 = 4;
const SLOTS_MAX: u32 = 16;
/// How many blocks all slots hold, of inputs and results: 8 MiB, which stay in a cache that cores share.
const AREAS_MAX: u32 = 128;

/// How memory for `world` ranks is divided.
pub(crate) fn of(world: u32) -> Layout {
    Layout { world, slots: (AREAS_MAX / (world + 1)).clamp(SLOTS_MIN, SLOTS_MAX), block_bytes: BLOCK_BYTES_MAX }
}
