//! What there is to say of two numbers that come from some seeds each.

use fanin_repro::interval::{CONFIDENCE, Interval, ONE_SEED, Sample};
use fanin_repro::statistic::Statistic;
use serde_json::{Map, Value};

use super::read::Results;

/// Whether a number has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// All seeds gave the same numbers.
    Same,
    /// No more than seeds differ by.
    Noise,
    /// More than that.
    Changed,
}

impl Verdict {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Verdict::Same => "same",
            Verdict::Noise => "within noise",
            Verdict::Changed => "changed",
        }
    }
}

/// A number before and after.
pub struct Metric {
    /// Its name in results.json.
    pub name: String,
    /// Mean before.
    pub a: f64,
    /// Mean after.
    pub b: f64,
    /// From where to where the difference is, as a share of what was before; `None` where that is 0.
    pub relative: Option<(f64, f64)>,
    /// How many seeds, of the side that has fewer.
    pub seeds: usize,
    /// Both have the same seeds.
    pub paired: bool,
    /// What follows.
    pub verdict: Verdict,
}

impl Metric {
    /// After over before.
    pub fn ratio(&self) -> Option<f64> {
        (self.a != 0.0).then(|| self.b / self.a)
    }

    /// Compares values by their seeds.
    fn new(name: &str, a: &[(u64, f64)], b: &[(u64, f64)]) -> Metric {
        let paired = a.iter().map(|(seed, _)| seed).eq(b.iter().map(|(seed, _)| seed));
        let values = |of: &[(u64, f64)]| of.iter().map(|(_, value)| *value).collect::<Vec<f64>>();
        let (before, after) = (values(a), values(b));
        let mean = |values: &[f64]| Statistic::Mean.of(values);
        let (mean_a, mean_b) = (mean(&before), mean(&after));
        let difference = match paired {
            true => interval(after.iter().zip(&before).map(|(after, before)| after - before).collect(), mean_a),
            false => {
                let (a, b) = (interval(before.clone(), mean_a), interval(after.clone(), mean_b));
                Interval { low: b.low - a.high, high: b.high - a.low }
            }
        };
        let is_same = if paired { before == after } else { before.iter().chain(&after).all(|value| *value == before[0]) };
        let verdict = match is_same {
            true => Verdict::Same,
            false if difference.low <= 0.0 && 0.0 <= difference.high => Verdict::Noise,
            false => Verdict::Changed,
        };
        let relative = (mean_a != 0.0).then(|| {
            let (low, high) = (difference.low / mean_a, difference.high / mean_a);
            (low.min(high), low.max(high))
        });
        Metric { name: name.into(), a: mean_a, b: mean_b, relative, seeds: before.len().min(after.len()), paired, verdict }
    }
}

/// Student's interval; one seed is off by a tenth of `scale`, as elsewhere.
fn interval(numbers: Vec<f64>, scale: f64) -> Interval {
    if let [one] = numbers[..] {
        let off = ONE_SEED * scale.abs();
        return Interval { low: one - off, high: one + off };
    }
    Sample { numbers, scale, statistic: Statistic::Mean, draws: true }.interval(CONFIDENCE)
}

/// A point of both plans.
pub struct Point {
    /// What it is called.
    pub label: String,
    /// Its numbers.
    pub metrics: Vec<Metric>,
}

/// Two results.
pub struct Compared {
    /// Points of both.
    pub points: Vec<Point>,
    /// Points, or numbers of points, that only one has.
    pub only_a: Vec<String>,
    pub only_b: Vec<String>,
}

impl Compared {
    /// Compares these numbers; all where none is named.
    pub fn new(a: &Results, b: &Results, metrics: &[String]) -> Compared {
        let mut names = a.numbers();
        names.extend(b.numbers().into_iter().filter(|name| !a.numbers().contains(name)));
        names.retain(|name| metrics.is_empty() || metrics.contains(name));
        let (of_a, of_b) = (a.points(), b.points());
        let mut compared = Compared { points: Vec::new(), only_a: Vec::new(), only_b: Vec::new() };
        for (label, runs) in &of_a {
            let Some((_, others)) = of_b.iter().find(|(other, _)| other == label) else {
                compared.only_a.push(label.clone());
                continue;
            };
            let mut found = Vec::new();
            for name in &names {
                let (before, after) = (values(runs, name), values(others, name));
                match (before.is_empty(), after.is_empty()) {
                    (false, false) => found.push(Metric::new(name, &before, &after)),
                    (false, true) => compared.only_a.push(format!("{name} of {label}")),
                    (true, false) => compared.only_b.push(format!("{name} of {label}")),
                    (true, true) => {}
                }
            }
            compared.points.push(Point { label: label.clone(), metrics: found });
        }
        compared.only_b.extend(of_b.iter().map(|(label, _)| label).filter(|label| !of_a.iter().any(|(other, _)| other == *label)).cloned());
        compared
    }

    /// Numbers that are the same, within noise, changed.
    pub fn counts(&self) -> [usize; 3] {
        let count = |verdict| self.points.iter().flat_map(|point| &point.metrics).filter(|metric| metric.verdict == verdict).count();
        [Verdict::Same, Verdict::Noise, Verdict::Changed].map(count)
    }

    /// Whether a number has one of these verdicts, or something is missing.
    pub fn is_changed(&self, counts: impl Fn(Verdict) -> bool) -> bool {
        let metrics = self.points.iter().flat_map(|point| &point.metrics);
        !self.only_a.is_empty() || !self.only_b.is_empty() || metrics.map(|metric| metric.verdict).any(counts)
    }
}

/// A number of each run that has it, by its seed.
fn values(runs: &[&Map<String, Value>], name: &str) -> Vec<(u64, f64)> {
    let value = |run: &&Map<String, Value>| Some((run.get("seed")?.as_u64()?, run.get(name)?.as_f64()?));
    let mut values: Vec<(u64, f64)> = runs.iter().filter_map(value).collect();
    values.sort_by_key(|(seed, _)| *seed);
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(a: &[f64], b: &[f64], from: u64) -> (Verdict, bool) {
        let seeded = |values: &[f64], first: u64| (first..).zip(values.iter().copied()).collect::<Vec<_>>();
        let metric = Metric::new("goodput_gbps", &seeded(a, 1), &seeded(b, from));
        (metric.verdict, metric.paired)
    }

    #[test]
    fn seeds_are_compared_with_each_other_where_both_have_them() {
        // Seeds differ by much more than the change, which is the same for each.
        assert_eq!(verdict(&[10.0, 50.0, 90.0], &[11.0, 51.1, 90.9], 1), (Verdict::Changed, true));
        assert_eq!(verdict(&[10.0, 50.0, 90.0], &[11.0, 51.1, 90.9], 7), (Verdict::Noise, false));
        assert_eq!(verdict(&[10.0, 10.1, 9.9], &[20.0, 20.1, 19.9], 7), (Verdict::Changed, false));
        assert_eq!(verdict(&[10.0, 50.0, 90.0], &[12.0, 47.0, 91.0], 1), (Verdict::Noise, true));
    }

    #[test]
    fn equal_numbers_are_the_same_and_one_seed_is_off_by_a_tenth() {
        assert_eq!(verdict(&[3.0, 4.0], &[3.0, 4.0], 1), (Verdict::Same, true));
        assert_eq!(verdict(&[3.0, 4.0], &[3.0, 4.0], 2).0, Verdict::Noise, "other seeds, and they are not all alike");
        assert_eq!((verdict(&[100.0], &[109.0], 1).0, verdict(&[100.0], &[111.0], 1).0), (Verdict::Noise, Verdict::Changed));
        assert_eq!(verdict(&[0.0, 0.0], &[0.0, 5.0], 1).0, Verdict::Noise);
        assert_eq!(verdict(&[0.0, 0.0], &[5.0, 5.0], 1).0, Verdict::Changed);
    }

    #[test]
    fn intervals_are_shares_of_what_was_before() {
        let metric = Metric::new("x", &[(1, 100.0), (2, 100.0)], &[(1, 90.0), (2, 90.0)]);
        assert_eq!((metric.relative, metric.ratio()), (Some((-0.1, -0.1)), Some(0.9)));
        let metric = Metric::new("x", &[(1, 0.0)], &[(1, 1.0)]);
        assert_eq!((metric.relative, metric.ratio()), (None, None));
    }
}
