//! Nothing is sent again where nothing is lost: also where a window takes longer to pass a slow link than the shortest timeout, as on
//! 1 Gb/s with the communicator's timeouts.

use fanin_check::{Recipe, run, violations};
use fanin_core::{Census, Duration, Instant};
use fanin_sim::{LinkSpeed, Shape};
use fanin_systems::{SwitchMlParameters, System};

/// A gigabit Ethernet, with the whole window in the queue of each host.
const LINK: LinkSpeed = LinkSpeed { bits_per_second: 1_000_000_000, latency: Duration::from_us(20) };
const WORKERS: u32 = 4;
const PAYLOAD_BYTES: u32 = 1_408;
const WINDOW: u32 = 512;
/// As the communicator has them: `RTO_INITIAL` and `RTO_MIN` of `fanin-comm`.
const RTO_INITIAL: Duration = Duration::from_ms(100);
const RTO_MIN: Duration = Duration::from_ms(5);
/// Enough for ten windows.
const ELEMENTS: u64 = 10 * WINDOW as u64 * PAYLOAD_BYTES as u64 / 4;

fn slow_links(system: System) -> Recipe {
    let mut recipe = Recipe::star(system, WORKERS, ELEMENTS);
    recipe.network.shape = Shape::Star { hosts: WORKERS, link: LINK };
    recipe.network.nic_queue_bytes = 4 << 20;
    recipe.network.queue_bytes = 4 << 20;
    let job = &mut recipe.jobs[0];
    (job.payload_bytes, job.window) = (PAYLOAD_BYTES, WINDOW);
    (job.rto_initial, job.rto_min, job.patience) = (RTO_INITIAL, RTO_MIN, Duration::from_ms(10_000));
    recipe
}

/// Packets sent again, and how long the operation took.
fn sent_again(recipe: &Recipe) -> (u64, Duration) {
    let result = run::<Census>(recipe, |_| ()).expect("a run");
    assert_eq!(violations(recipe, &result), [""; 0], "{recipe}");
    let ends = result.jobs[0].workers.iter().map(|worker| worker.operations[0].ended.expect("an end"));
    (result.counters.retransmitted_total(), ends.max().expect("a worker").since(Instant::ZERO))
}

#[test]
fn a_window_longer_than_the_shortest_timeout_is_not_sent_again() {
    let frame_bits = u64::from(PAYLOAD_BYTES) * 8;
    let window_takes = Duration::from_ns(u64::from(WINDOW) * frame_bits);
    assert!(window_takes > RTO_MIN, "{window_takes} on the link");
    for system in [
        System::SwitchMl(SwitchMlParameters { fixed_point: false }),
        System::SwitchMl(SwitchMlParameters { fixed_point: true }),
        System::tree(1),
    ] {
        let mut recipe = slow_links(system);
        let (again, took) = sent_again(&recipe);
        assert_eq!(again, 0, "{system:?}");
        assert!(took > window_takes.times(10), "{system:?}: {took}, so that the link was the limit");
        // A host that is late now and then makes all others late, by less than the shortest timeout.
        (recipe.jobs[0].noise_probability, recipe.jobs[0].noise_delay) = (0.002, Duration::from_ms(3).into());
        assert_eq!(sent_again(&recipe).0, 0, "{system:?} with late packets");
    }
}
