//! What two windows are told of a fragment, by the flags of its sum.

use fanin_wire::atp::{AtpFlags, Waited};

use crate::shared::two_windows::Seen;

/// What the flags of a fragment's sum say of it, and how far its contributions were apart; `aggregated`: it was sent to aggregators.
pub(super) fn seen(aggregated: bool, flags: AtpFlags, waited: Waited) -> Seen {
    Seen {
        aggregated,
        wanted: flags.has(AtpFlags::COL),
        refused: flags.has(AtpFlags::COLLIDED),
        marked: flags.has(AtpFlags::ECN),
        waited: waited.duration(),
    }
}
