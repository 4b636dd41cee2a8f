//! Adaptive timeouts on a fabric that loses nothing: what switches gain by learning, and what it costs them where there is nothing to
//! learn. That sums are right with them is tested with everything else, in `canary` and `canary_recovery`.

use crate::canary_fabric::{Plan, Run};
use crate::common::Faults;
use fanin_core::{Census, Duration, Instant};

/// 3 leaves of 3 workers, 2 spines; a cable takes a microsecond.
fn fabric() -> Plan {
    Plan { leaves_per_pod: 3, spines_per_pod: 2, descriptors: 4096, ..Plan::star(9) }
}

/// When the last worker was through with each operation.
fn ends(run: &Run) -> Vec<Instant> {
    let operations = run.ended.outcomes[0].len();
    let end = |operation: usize| run.ended.outcomes.iter().map(|outcomes| outcomes[operation].0).max().unwrap();
    (0..operations).map(end).collect()
}

fn total(run: &Run) -> Duration {
    ends(run).last().unwrap().since(Instant::ZERO)
}

#[test]
fn switches_that_have_learnt_wait_for_nothing() {
    // Operations of one block: each waits for every switch on its way. To the leader and back are 8 cables.
    let operations = 60;
    let of = |adaptive| Plan { adaptive, timeout: Duration::from_us(50), ..fabric() }.complete::<Census>(&vec![4; operations]);
    let (adaptive, fixed) = (ends(&of(true)), ends(&of(false)));
    let last_half = |ends: &[Instant]| ends[operations - 1].since(ends[operations / 2 - 1]);
    assert_eq!(last_half(&adaptive), Duration::from_us(30 * 8));
    assert!(last_half(&fixed) > Duration::from_us(30 * 100), "a leaf and a spine of each wait: {}", last_half(&fixed));
    // The first blocks that a switch sees cost what its first timeout is, and no block costs more.
    assert!(adaptive.windows(2).all(|ends| ends[1].since(ends[0]) <= Duration::from_us(8 + 100)), "{adaptive:?}");
}

#[test]
fn a_root_waits_for_the_rest_and_its_leader_gets_one_packet() {
    // As in `an_idle_network_sums_on_the_way`, where the time of each root is over too early.
    let blocks = 20 * 30;
    let of = |adaptive| {
        let plan = Plan { adaptive, timeout: Duration::from_us(3), window: 8, ..fabric() };
        plan.complete::<Census>(&[4 * 30; 20]).tally.partial
    };
    let (adaptive, fixed) = (of(true), of(false));
    assert!(fixed >= blocks * 5, "{fixed}");
    assert!(adaptive < blocks * 4 + blocks / 5, "{adaptive} of {}", blocks * 4);
}

#[test]
fn where_paths_and_times_are_anybodys_guess_waits_stay_short() {
    // Half of all packets take a spine at random, and every cable up to 4 us more: nobody can know what comes.
    let faults = Faults { jitter_us: 4, ..Faults::NONE };
    let of = |adaptive, timeout_us| {
        let plan = Plan { adaptive, timeout: Duration::from_us(timeout_us), wander: 500, faults, ..fabric() };
        total(&plan.complete::<Census>(&[4 * 3; 200]))
    };
    let (adaptive, shortest, longest) = (of(true, 1), of(false, 1), of(false, 16));
    assert!(adaptive.as_ps() < shortest.as_ps() * 21 / 20, "{adaptive}, with 1 us fixed {shortest}");
    assert!(adaptive.as_ps() < longest.as_ps() * 6 / 10, "{adaptive}, with 16 us fixed {longest}");
}

#[test]
fn without_room_or_descriptors_waits_stay_short() {
    // Of most blocks a part collides and goes another way, so that a wait for it is in vain. Packets cost nothing here, so the shortest
    // timeout is the best; what is allowed are 2 to 32 us.
    for descriptors in [1, 2, 8] {
        let of = |adaptive, timeout_us| {
            let faults = Faults { refusal: 200, ..Faults::NONE };
            let plan = Plan { adaptive, descriptors, faults, timeout: Duration::from_us(timeout_us), ..fabric() };
            let run = plan.complete::<Census>(&[4 * 40; 30]);
            assert!(run.tally.collided > 7_000, "{:?}", run.tally);
            total(&run)
        };
        let (adaptive, twice, longest) = (of(true, 2), of(false, 4), of(false, 32));
        assert!(adaptive < twice && adaptive < longest.divided(2), "{descriptors} descriptors: {adaptive}, fixed {twice} and {longest}");
    }
}
