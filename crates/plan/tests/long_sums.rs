//! Sums that are long enough for what goes wrong in each block to add up.

use fanin_plan::Plan;
use fanin_plan::run::{self, Finished};

/// Sixteen hosts on four leaves. What a host sends is on a link for 83 ns, so a switch that waits for 250 ns waits for three packets.
const PLAN: &str = r#"
[network]
shape = "fat-tree"
leaves = 4
hosts_per_leaf = 4
spines = 4
rate = "400Gb/s"
latency = "300ns"
lossless = { model = "input-queued", input = "64KiB", output = "64KiB" }

[[jobs]]
system = "canary"
workers = 16
message = "16MiB"
payload = "4KiB"
"#;

fn finished(more: &str) -> Finished {
    let plan = Plan::parse("plan.toml", &format!("{PLAN}{more}\n"), &[], None).unwrap();
    let finished = run::run(&plan, 1, || true).unwrap().remove(0);
    assert_eq!((finished.record.census.as_str(), &finished.record.failure), ("exact", &None), "{more}");
    finished
}

/// A leader's link carries all sums and the parts of its own blocks. With the same timeout at all switches a root sends on what its leaf has, and
/// then each part that comes later by itself; queues to the leaders then delay some workers' sums and so their contributions, ever fewer
/// of which meet in a switch. By default a root waits for the parts.
#[test]
fn a_long_sum_of_canary_is_as_fast_as_its_links() {
    let (default, one) = (finished("").record, finished("timeout = \"250ns\"").record);
    let parts = |record: &fanin_plan::results::RunRecord| record.leader_packets_per_block.unwrap();
    assert_eq!(parts(&default), 1.0);
    assert!(parts(&one) > 4.0, "{}", parts(&one));
    // 16 MiB on 400 Gb/s are 336 us, and 1.4 % more with headers.
    assert!(default.completion_us.unwrap() < 350.0, "{:?}", default.completion_us);
    assert!(one.completion_us.unwrap() > 400.0, "{:?}", one.completion_us);
}
