//! Which port a packet leaves by: the rule of Canary's switches (canary 3.1), as in the simulator, by real occupancy.

use fanin_core::{DropReason, NodeId, PortId};

/// What the choice depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PortView {
    /// The neighbour is alive and hears this side.
    pub(crate) is_up: bool,
    /// Who it is.
    pub(crate) peer: NodeId,
    /// Bytes in the queue.
    pub(crate) queued_bytes: u64,
    /// Its capacity.
    pub(crate) buffer_bytes: u64,
}

/// The port among `candidates` for a packet to `destination`: the destination's default one, or, where more than half of its queue is full
/// or it is not up, the one with the fewest queued bytes. Never one that is not up. A packet that is `pinned` to a neighbour goes there,
/// where the neighbour is a candidate at all.
///
/// # Errors
/// [`DropReason::NoRoute`] where there are no candidates, [`DropReason::Down`] where none that may be taken is up.
#[inline]
pub(crate) fn choose(
    candidates: &[PortId],
    destination: NodeId,
    pinned: Option<NodeId>,
    mut view: impl FnMut(PortId) -> PortView,
) -> Result<PortId, DropReason> {
    let up = |port: PortId, view: PortView| if view.is_up { Ok(port) } else { Err(DropReason::Down) };
    match *candidates {
        [] => return Err(DropReason::NoRoute),
        [only] => return up(only, view(only)),
        _ => {}
    }
    if let Some(pinned) = pinned
        && let Some(&port) = candidates.iter().find(|&&port| view(port).peer == pinned)
    {
        return up(port, view(port));
    }
    let default = destination.index() % candidates.len();
    let seen = view(candidates[default]);
    if seen.is_up && seen.queued_bytes <= seen.buffer_bytes / 2 {
        return Ok(candidates[default]);
    }
    // The default port first, so that it wins ties.
    let rotated = candidates[default..].iter().chain(&candidates[..default]);
    let best = rotated.filter_map(|&port| Some(view(port)).filter(|view| view.is_up).map(|view| (view.queued_bytes, port)));
    best.min_by_key(|(queued, _)| *queued).map(|(_, port)| port).ok_or(DropReason::Down)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ports 1, 2, 3 lead to spines 11, 12, 13.
    fn chosen(queued: [u64; 3], is_up: [bool; 3], destination: u32, pinned: Option<u32>) -> Result<u16, DropReason> {
        let candidates = [1, 2, 3].map(PortId);
        let view = |port: PortId| {
            let index = port.index() - 1;
            PortView { is_up: is_up[index], peer: NodeId(10 + u32::from(port.0)), queued_bytes: queued[index], buffer_bytes: 1_000 }
        };
        choose(&candidates, NodeId(destination), pinned.map(NodeId), view).map(|port| port.0)
    }

    #[test]
    fn the_default_port_until_more_than_half_of_its_queue_is_full() {
        assert_eq!(chosen([500, 0, 0], [true; 3], 3, None), Ok(1));
        assert_eq!(chosen([501, 90, 80], [true; 3], 3, None), Ok(3));
        assert_eq!(chosen([80, 501, 80], [true; 3], 4, None), Ok(3), "from the default port on, the first of the shortest queues");
        assert_eq!(chosen([600, 600, 600], [true; 3], 4, None), Ok(2), "the default port wins ties");
    }

    #[test]
    fn never_a_port_that_is_not_up() {
        assert_eq!(chosen([0; 3], [false, true, true], 3, None), Ok(2));
        assert_eq!(chosen([900, 0, 950], [true, false, true], 4, None), Ok(1));
        assert_eq!(chosen([0; 3], [false; 3], 3, None), Err(DropReason::Down));
        assert_eq!(
            choose(&[PortId(1)], NodeId(0), None, |_| PortView { is_up: false, peer: NodeId(9), queued_bytes: 0, buffer_bytes: 1 }),
            Err(DropReason::Down)
        );
        assert_eq!(choose(&[], NodeId(0), None, |_| unreachable!()), Err(DropReason::NoRoute));
    }

    #[test]
    fn pinned_traffic_stays_where_it_is_pinned() {
        assert_eq!(chosen([0, 1_000, 0], [true; 3], 3, Some(12)), Ok(2));
        assert_eq!(chosen([0; 3], [true, false, true], 3, Some(12)), Err(DropReason::Down));
        assert_eq!(chosen([0; 3], [true; 3], 3, Some(77)), Ok(1), "a switch that is no candidate here pins nothing");
    }
}
