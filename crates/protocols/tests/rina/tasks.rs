//! How many pieces a task of Rina's agents names.

use fanin_protocols::rina::Onward;
use fanin_wire::rina::RinaHeader;

use super::{BLOCK, Net, WAYS, arrives};

/// `rina 4.1`, 1: where agents send results on, a task waits for more pieces while enough are under way, and no timer is waited for. Windows of 512: tasks have at most
/// a sixteenth of that.
#[test]
fn tasks_wait_for_more_pieces_where_agents_send_results_on() {
    let run = |onward| {
        let mut net = Net::with(&[(2, true), (1, false), (1, false)], 512, &[4_000 * u64::from(BLOCK)], (WAYS[2].0, WAYS[2].1, onward));
        net.run(arrives);
        net.assert_all_done();
        assert_eq!((net.waits, net.retransmitted), (0, 0), "{onward:?}");
        let counts = net.arrived.iter().filter_map(|(_, header)| match header {
            RinaHeader::Task { count, .. } => Some(u32::from(*count)),
            _ => None,
        });
        counts.fold((0, 0), |(tasks, pieces), count| (tasks + 1, pieces + count))
    };
    let (by_switch, by_agent) = (run(Onward::Switch), run(Onward::Agent));
    assert_eq!((by_switch.1, by_agent.1), (4_000, 4_000), "each piece once");
    assert!(by_agent.0 * 4 < by_switch.0 && by_agent.0 >= 4_000 / 32, "{by_agent:?}, {by_switch:?}");
}
