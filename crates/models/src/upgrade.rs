//! In which order to replace switches: step by step the one that helps most, and the best sets of all, where they can be tried.

/// A switch that is replaced, and what that gives.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Step {
    /// The switch.
    pub switch: usize,
    /// What all that have been replaced give together: more is better.
    pub value: f64,
}

/// The best set of a size.
#[derive(Clone, PartialEq, Debug)]
pub struct Best {
    /// Which switches are replaced, in ascending order.
    pub switches: Vec<usize>,
    /// What they give.
    pub value: f64,
}

/// Replaces up to `budget` of `candidates`, one after the other. `rank` orders them, the largest first (Rina IV-D: switches next to
/// workers by the workers below them, then the others); it decides alone, whatever a switch gives at once.
pub fn by_rank<R: Ord>(
    replaced: &mut [bool],
    candidates: &[usize],
    budget: usize,
    rank: impl Fn(usize) -> R,
    mut value: impl FnMut(&[bool]) -> f64,
) -> Vec<Step> {
    let mut order: Vec<usize> = candidates.iter().copied().filter(|&switch| !replaced[switch]).collect();
    // The first one of equals first.
    order.sort_by(|a, b| rank(*b).cmp(&rank(*a)).then(a.cmp(b)));
    let step = |switch: usize| {
        replaced[switch] = true;
        Step { switch, value: value(replaced) }
    };
    order.into_iter().take(budget).map(step).collect()
}

/// Replaces up to `budget` of `candidates`, each time the one that gives most; of those that give the same, the one of the largest `rank`.
pub fn greedy<R: Ord>(
    replaced: &mut [bool],
    candidates: &[usize],
    budget: usize,
    rank: impl Fn(usize) -> R,
    mut value: impl FnMut(&[bool]) -> f64,
) -> Vec<Step> {
    let mut steps = Vec::new();
    for _ in 0..budget {
        let mut best: Option<Step> = None;
        for &switch in candidates.iter().filter(|&&switch| !replaced[switch]).collect::<Vec<_>>() {
            replaced[switch] = true;
            let step = Step { switch, value: value(replaced) };
            replaced[switch] = false;
            let better = best.is_none_or(|best| step.value > best.value || step.value == best.value && rank(switch) > rank(best.switch));
            if better {
                best = Some(step);
            }
        }
        let Some(step) = best else { break };
        replaced[step.switch] = true;
        steps.push(step);
    }
    steps
}

/// The best set of each size from 1 to `budget`, the first one of equals; `None` where there are more than `sets_max` of that size.
pub fn exhaustive(
    replaced: &mut [bool],
    candidates: &[usize],
    budget: usize,
    sets_max: u64,
    mut value: impl FnMut(&[bool]) -> f64,
) -> Vec<Option<Best>> {
    let free: Vec<usize> = candidates.iter().copied().filter(|&switch| !replaced[switch]).collect();
    (1..=budget.min(free.len()))
        .map(|size| {
            if combinations(free.len() as u64, size as u64).is_none_or(|sets| sets > sets_max) {
                return None;
            }
            let mut best: Option<Best> = None;
            each_set(&free, size, &mut Vec::new(), &mut |set| {
                set.iter().for_each(|&switch| replaced[switch] = true);
                let now = value(replaced);
                set.iter().for_each(|&switch| replaced[switch] = false);
                if best.as_ref().is_none_or(|best| now > best.value) {
                    best = Some(Best { switches: set.to_vec(), value: now });
                }
            });
            best
        })
        .collect()
}

/// Hands out every set of `size` of `items`, in order.
fn each_set(items: &[usize], size: usize, chosen: &mut Vec<usize>, take: &mut impl FnMut(&[usize])) {
    if size == 0 {
        return take(chosen);
    }
    for first in 0..=items.len().saturating_sub(size) {
        let Some(&item) = items.get(first) else { return };
        chosen.push(item);
        each_set(&items[first + 1..], size - 1, chosen, take);
        chosen.pop();
    }
}

/// How many sets of `size` there are of `count`; `None` where that is no number of 64 bits.
fn combinations(count: u64, size: u64) -> Option<u64> {
    let mut sets: u64 = 1;
    for taken in 0..size.min(count) {
        sets = sets.checked_mul(count - taken)? / (taken + 1);
    }
    Some(sets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bom::fat_tree;

    /// A fat tree of 13 switches, by the throughput of a server behind it.
    #[test]
    fn greedy_is_as_good_as_the_best_on_a_fat_tree_from_the_top() {
        let tree = fat_tree(4);
        let below = tree.workers_below();
        let all: Vec<usize> = (0..13).collect();
        let value = |replaced: &[bool]| tree.occupation(replaced).throughput;
        let steps = greedy(&mut [false; 13], &all, 13, |switch| below[switch], value);
        let best = exhaustive(&mut [false; 13], &all, 13, 2_000, value);
        let (greedy_values, best_values): (Vec<f64>, Vec<f64>) =
            steps.iter().zip(&best).map(|(step, best)| (step.value, best.as_ref().expect("few sets").value)).unzip();
        assert_eq!(greedy_values, best_values);
        assert_eq!(greedy_values[..5], [0.25, 0.25, 0.25, 0.25, 0.5]);
        assert_eq!((steps[0].switch, greedy_values[12]), (0, 1.0));
    }

    #[test]
    fn ranks_alone_can_decide() {
        let tree = fat_tree(4);
        let order =
            by_rank(&mut [false; 13], &[0, 1, 5, 6], 3, |switch| switch >= 5, |replaced| -f64::from(tree.groups(replaced, &[false; 13])));
        assert_eq!(order.iter().map(|step| step.switch).collect::<Vec<_>>(), [5, 6, 0]);
        assert_eq!(order.iter().map(|step| step.value).collect::<Vec<_>>(), [-15.0, -14.0, -1.0]);
    }

    #[test]
    fn sets_that_are_too_many_are_not_tried() {
        let best = exhaustive(&mut [false; 40], &(0..40).collect::<Vec<_>>(), 3, 1_000, |replaced| f64::from(u8::from(replaced[39])));
        assert_eq!(best[0], Some(Best { switches: vec![39], value: 1.0 }));
        assert_eq!(best[1].as_ref().map(|best| best.switches.clone()), Some(vec![0, 39]));
        assert_eq!(best[2], None);
        assert_eq!((combinations(5, 2), combinations(200, 100)), (Some(10), None));
    }
}
