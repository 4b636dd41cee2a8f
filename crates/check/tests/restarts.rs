//! A switch next to hosts restarts in the middle of an operation and has forgotten all: what that costs, that sums are right, and who is named
//! where patience is shorter than it takes.

use fanin_check::Recipe;
use fanin_core::{Duration, Instant, NodeId, Rank, Suspect};
use fanin_sim::faults::TimedFault;
use fanin_systems::{RinaParameters, System};

use crate::lossless::{has_servers, run_once, systems};

const AWAY: Duration = Duration::from_us(500);

/// 16 hosts of 4 leaves, packets of 1 KiB, timeouts as plans have them.
fn recipe(system: System, elements: u64, patience: Duration) -> Recipe {
    let mut recipe = Recipe::fat_tree(system, 4, 4, elements);
    recipe.network.queue_bytes = 4 << 20;
    recipe.network.ecn_mark_bytes = 400_000;
    recipe.drain = false;
    let job = &mut recipe.jobs[0];
    (job.payload_bytes, job.window, job.patience) = (1_024, 256, patience);
    (job.rto_initial, job.rto_min) = (Duration::from_ms(1), Duration::from_us(100));
    if has_servers(system) {
        job.servers = vec![NodeId(15)];
        job.hosts.pop();
        job.start.pop();
    }
    recipe
}

/// How a run ended: after how long, if all completed it; when it was over for all; and who named whom.
struct End {
    took: Option<Duration>,
    over: Instant,
    named: Vec<(Rank, Suspect)>,
}

fn end(recipe: &Recipe) -> End {
    let result = run_once(recipe);
    assert!(result.verdict.wrong == 0 && result.broken.is_empty(), "{recipe}");
    let (mut named, mut last, mut over) = (Vec::new(), Some(Instant::ZERO), Instant::ZERO);
    for (rank, worker) in (0..).zip(&result.jobs[0].workers) {
        let operation = &worker.operations[0];
        named.extend(operation.failure.iter().map(|failure| (Rank(rank), failure.suspect)));
        over = over.max(operation.ended.unwrap_or(Instant::FAR_FUTURE));
        let ended = operation.ended.filter(|_| operation.failure.is_none());
        last = last.zip(ended).map(|(last, ended)| last.max(ended));
    }
    End { took: last.map(|last| last.since(Instant::ZERO)), over, named }
}

/// Leaf 1.
const LEAF: NodeId = NodeId(17);
/// One of them is the root of a tree over all leaves.
const SPINES: [NodeId; 2] = [NodeId(20), NodeId(21)];

/// When so many percent of a calm run have passed.
fn at(calm: Duration, percent: u64) -> Instant {
    Instant::ZERO + calm.times(percent).divided(100)
}

/// A switch is away for half a millisecond then.
fn with_restart(mut recipe: Recipe, switch: NodeId, from: Instant) -> Recipe {
    recipe.faults.timed.push(TimedFault::SwitchDown { switch, from, until: from + AWAY });
    recipe
}

/// 8 MiB by Rina: all racks are summed, or some.
#[test]
fn a_short_restart_costs_little_and_nobody_names_itself() {
    let (mut all, mut worst) = (String::new(), 0);
    for aggregating in [0, 2, 3, 4] {
        let system = System::Rina(RinaParameters { aggregating, full_speed_bps: 0, ..RinaParameters::default() });
        let with = |patience| recipe(system, 2 << 20, patience);
        let calm = end(&with(Duration::from_ms(5_000))).took.expect("nothing goes wrong");
        for percent in [3, 28, 55, 82, 97] {
            for patience in [Duration::from_ms(5_000), Duration::from_ms(20)] {
                let recipe = with_restart(with(patience), LEAF, at(calm, percent));
                let End { took, named, .. } = end(&recipe);
                let took = took.unwrap_or_else(|| panic!("{named:?}\n{recipe}"));
                let cost_us = took.as_ps().saturating_sub(calm.as_ps()) / 1_000_000;
                worst = worst.max(cost_us);
                all.push_str(&format!("{aggregating} racks, at {percent} %, patience {patience}: {cost_us} us more than {calm}\n"));
            }
        }
    }
    println!("{all}");
    assert!(worst < 6_000, "{worst} us:\n{all}");
}

/// All systems: a restart ends in the right sum, and where patience is shorter than it takes nobody names itself. Those that do not survive it
/// name a switch.
#[test]
fn whoever_fails_when_a_switch_restarts_names_another() {
    let (mut all, mut wrong) = (String::new(), Vec::new());
    for system in systems() {
        let with = |patience| recipe(system, 100_000, patience);
        let calm =
            end(&with(Duration::from_ms(5_000))).took.unwrap_or_else(|| panic!("a calm run fails: {}", with(Duration::from_ms(5_000))));
        for percent in [10, 60] {
            for patience in [Duration::from_ms(5_000), Duration::from_us(1_200)] {
                let recipe = with_restart(with(patience), LEAF, at(calm, percent));
                let End { took, named, .. } = end(&recipe);
                let took_us = took.map(|took| took.as_ps() / 1_000_000);
                let line =
                    format!("{system:?}, at {percent} %, patience {patience}: {took_us:?} us where {calm} are calm; {:?}", named.first());
                let is_own = named.iter().any(|(rank, suspect)| *suspect == Suspect::Rank(*rank));
                // SHARP sets jobs up at its switches, and connections of NetReduce live there: a restart ends these within the patience.
                let survives = !matches!(system, System::Sharp(_) | System::NetReduce(_));
                let is_late = took_us.map_or(survives || named.is_empty(), |took| took > 50_000);
                // Nothing has happened to any worker.
                let is_wrong = !survives && named.iter().any(|(_, suspect)| !matches!(suspect, Suspect::Switch(_)));
                if is_own || is_wrong || patience > Duration::from_ms(100) && is_late {
                    wrong.push(line.clone());
                }
                all.push_str(&line);
                all.push('\n');
            }
        }
    }
    println!("{all}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The root of NetReduce's switches has no connections: what it forgets is sums under way, of which leaves have sent their parts, and send them
/// again. So the job goes on when the root is back, where it stood in the middle of it; and should a part be gone that nobody sends again, all
/// name the root. Where the other spine restarts nothing stands still for that long.
#[test]
fn a_root_of_netreduce_that_restarts_in_the_middle_costs_its_absence_or_is_named_by_all() {
    let (mut all, mut wrong, mut met) = (String::new(), Vec::new(), 0);
    for system in systems().into_iter().filter(|system| matches!(system, System::NetReduce(_))) {
        let with = |patience| recipe(system, 100_000, patience);
        let calm = end(&with(Duration::from_ms(5_000))).took.expect("nothing goes wrong");
        for percent in [10, 35, 60, 85] {
            for patience in [Duration::from_ms(5_000), Duration::from_ms(20)] {
                let from = at(calm, percent);
                let ends = SPINES.map(|spine| (spine, end(&with_restart(with(patience), spine, from))));
                let longest = ends.iter().map(|(_, end)| end.over).max().unwrap_or_default();
                met += usize::from(longest >= from + AWAY);
                for (spine, End { took, over, named }) in ends {
                    let line = format!("{percent} %, patience {patience}, {spine}: {took:?}, over at {over}, {:?}", named.first());
                    let is_named = named.len() == 16 && named.iter().all(|(_, suspect)| *suspect == Suspect::Switch(spine));
                    let latest = if took.is_some() { from + AWAY + Duration::from_ms(5) } else { from + AWAY + patience.times(2) };
                    if took.is_none() && !is_named || over > latest {
                        wrong.push(line.clone());
                    }
                    all.push_str(&line);
                    all.push('\n');
                }
            }
        }
    }
    println!("{all}");
    assert!(wrong.is_empty() && met >= 12, "{met} of 24 stood still\n{}", wrong.join("\n"));
}
