//! Holds claims against results.
//!
//! Each place of a claim has one interval, or of an order one for each neighbouring pair: of the differences by seed, as a share of what
//! is compared. The verdict follows from where the intervals lie. What all of them must show, each shows at 95 %; where one alone decides,
//! it is one of many that could have done so by chance, and has to be as much surer as there are many (Bonferroni).

use fanin_plan::metrics::Fields;
use serde::Serialize;

use fanin_pictures::grid::{Grid, NOT_MEASURED};

use super::claims::{Claim, Claims, Reading, Selection, Statistic};
use super::interval::{CONFIDENCE, Interval, Region, Sample, Seeds, Side, relative_difference};
pub use super::verdict::Verdict;

/// What was measured.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(untagged)]
pub enum Measured {
    /// Nothing.
    Nothing,
    /// A number.
    Number(f64),
    /// The lowest and highest of several places of the plan.
    Range([f64; 2]),
    /// What an order compares, in the order of the claim.
    List(Vec<f64>),
}

/// Intervals of what was measured, at 95 %.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(untagged)]
pub enum Spread {
    /// Nothing was measured.
    Nothing,
    /// Of a number, or around the intervals of several places.
    Number([f64; 2]),
    /// Of an order: by how much each is more than the next, as a share of what both are on average.
    Differences(Vec<[f64; 2]>),
}

/// A claim held against results.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was measured.
    pub measured: Measured,
    /// In what interval it lies.
    pub spread: Spread,
    /// How many seeds it comes from; `None` where nothing was measured.
    pub seeds: Option<Seeds>,
    /// What has become of the claim.
    pub verdict: Verdict,
    /// Where a claim over several places fails, or why there is no verdict.
    pub reason: Option<String>,
}

impl Outcome {
    fn without_number(verdict: Verdict, reason: String) -> Outcome {
        Outcome { measured: Measured::Nothing, spread: Spread::Nothing, seeds: None, verdict, reason: Some(reason) }
    }
}

/// A figure's results.
pub struct Results<'a> {
    grid: &'a dyn Grid,
    /// Whether the plan draws random numbers.
    draws: bool,
}

/// Why there is no number.
pub enum Missing {
    /// The plan that was run does not have the point.
    LeftOut(String),
    /// A run that ended as it should has no such number.
    NotMeasured(String),
    /// A run that failed has no such number.
    NoNumber(String),
}

/// What was measured at one place.
pub struct Place {
    /// The place.
    pub at: Selection,
    /// What is shown.
    pub measured: Measured,
    /// What the verdict comes from: one, or of an order one for each neighbouring pair.
    pub samples: Vec<Sample>,
}

impl Place {
    /// Whether the claim holds here.
    fn side(&self, region: Region, confidence: f64) -> Side {
        let sides: Vec<Side> = self.samples.iter().map(|sample| region.side(sample.interval(confidence))).collect();
        if sides.contains(&Side::Outside) {
            Side::Outside
        } else if sides.contains(&Side::Across) {
            Side::Across
        } else {
            Side::Inside
        }
    }

    fn spread(&self) -> Spread {
        let ends = |sample: &Sample| {
            let Interval { low, high } = sample.interval(CONFIDENCE);
            [low, high]
        };
        match (&self.measured, self.samples.as_slice()) {
            (Measured::List(_), samples) => Spread::Differences(samples.iter().map(ends).collect()),
            (_, [sample, ..]) => Spread::Number(ends(sample)),
            _ => Spread::Nothing,
        }
    }
}

/// The verdict of some places, the one of them that tells most, and where the claim fails or is not decided.
fn combine(places: &[Place], region: Region, any: bool) -> (Verdict, usize, Option<String>) {
    let intervals: usize = places.iter().map(|place| place.samples.len()).sum();
    let alone = 1.0 - (1.0 - CONFIDENCE) / intervals as f64;
    let each: Vec<Side> = places.iter().map(|place| place.side(region, CONFIDENCE)).collect();
    let surer: Vec<Side> = places.iter().map(|place| place.side(region, alone)).collect();
    let (one, all, by_one, by_all) = match any {
        true => (Side::Inside, Side::Outside, Verdict::Reproduced, Verdict::NotReproduced),
        false => (Side::Outside, Side::Inside, Verdict::NotReproduced, Verdict::Reproduced),
    };
    let (verdict, telling) = match surer.iter().position(|side| *side == one) {
        Some(place) => (by_one, place),
        None if each.iter().all(|side| *side == all) => (by_all, 0),
        None => (Verdict::Undecided, each.iter().position(|side| *side != all).unwrap_or(0)),
    };
    let at = places[telling].at.place_text();
    let count = |sides: &[Side], side: Side| sides.iter().filter(|other| **other == side).count();
    let reason = match (any, verdict) {
        (true, Verdict::Undecided) => Some(format!("at {} of {} places, and not decided at others", count(&surer, one), places.len())),
        (true, Verdict::NotReproduced) => Some(format!("at 0 of {} places", places.len())),
        (true, _) => Some(format!("at {} of {} places", count(&surer, one), places.len())),
        (false, Verdict::Reproduced) => None,
        (false, _) if at.is_empty() => None,
        (false, Verdict::Undecided) => {
            let open = places.len() - count(&each, all);
            Some(if open == 1 {
                format!("not decided at {at}")
            } else {
                format!("not decided at {open} of {} places, first {at}", places.len())
            })
        }
        (false, _) => {
            let failing = count(&surer, one);
            Some(if failing == 1 { format!("not at {at}") } else { format!("not at {failing} of {} places, first {at}", places.len()) })
        }
    };
    (verdict, telling, reason)
}

impl<'a> Results<'a> {
    /// Results of a figure's plan, or of that of a cause.
    pub fn new(grid: &'a dyn Grid, claims: &Claims) -> Results<'a> {
        Results { grid, draws: claims.draws && matches!(grid.fields(), Fields::Simulated) }
    }

    /// Holds a claim, in a reading of the text, against the results.
    pub fn evaluate(&self, claim: &Claim, reading: Option<&Reading>) -> Outcome {
        if claim.selections().is_empty() {
            return Outcome::without_number(Verdict::CannotBeTested, claim.untestable.clone().unwrap_or_default());
        }
        match self.measure(claim, reading) {
            Ok(places) => judged(claim, &places),
            Err(Missing::LeftOut(what)) => Outcome::without_number(Verdict::CannotBeTested, format!("--quick leaves out {what}")),
            Err(Missing::NotMeasured(what)) => Outcome::without_number(Verdict::CannotBeTested, what),
            Err(Missing::NoNumber(what)) => Outcome::without_number(Verdict::NotReproduced, what),
        }
    }

    /// What was measured at every place of a claim.
    pub fn measure(&self, claim: &Claim, reading: Option<&Reading>) -> Result<Vec<Place>, Missing> {
        self.places(claim)?.into_iter().map(|place| self.at_one_place(claim, reading, place)).collect()
    }

    /// The points that a claim looks at; they need not have been run.
    pub fn needed(&self, claim: &Claim) -> Vec<usize> {
        let Ok(places) = self.places(claim) else { return Vec::new() };
        let wanted: Vec<Selection> = places
            .iter()
            .flat_map(|place| claim.selections().into_iter().map(|one| one.within(&place.within(&claim.shared))).collect::<Vec<_>>())
            .collect();
        (0..self.grid.points()).filter(|&point| wanted.iter().any(|selection| self.selected(point, None, selection))).collect()
    }

    /// What a claim looks at and the plan does not have.
    pub fn left_out(&self, claim: &Claim) -> Option<String> {
        let places = match self.places(claim) {
            Ok(places) => places,
            Err(Missing::LeftOut(what) | Missing::NotMeasured(what) | Missing::NoNumber(what)) => return Some(what),
        };
        let there = |selection: &Selection| (0..self.grid.points()).any(|point| self.selected(point, None, selection));
        let wanted = places.iter().flat_map(|at| claim.selections().into_iter().map(|one| one.within(&at.within(&claim.shared))));
        wanted.filter(|selection| !there(selection)).map(|selection| selection.describe()).next()
    }

    /// All places of the axes at each of which the claim must hold.
    fn places(&self, claim: &Claim) -> Result<Vec<Selection>, Missing> {
        let mut all = vec![Selection::default()];
        for name in claim.places_along() {
            let axis = self.grid.axes().iter().find(|axis| axis.name == *name);
            let axis = axis.ok_or_else(|| Missing::LeftOut(format!("all but one place on the axis {name}")))?;
            let among = claim.shared.places.get(name);
            let labels: Vec<&String> = axis.choices.iter().map(|choice| &choice.label).collect();
            let kept: Vec<&String> = labels.into_iter().filter(|label| among.is_none_or(|among| among.contains(label))).collect();
            all = all
                .iter()
                .flat_map(|head| {
                    kept.iter().map(|label| {
                        let mut one = head.clone();
                        one.places.insert(name.clone(), vec![(*label).clone()]);
                        one
                    })
                })
                .collect();
        }
        if all.is_empty() { Err(Missing::LeftOut("every place".into())) } else { Ok(all) }
    }

    fn at_one_place(&self, claim: &Claim, reading: Option<&Reading>, at: Selection) -> Result<Place, Missing> {
        let numbers = |selection: &Selection| self.numbers(claim, reading, &selection.within(&at.within(&claim.shared)));
        let sample = |numbers: Vec<f64>, scale: f64| Sample { numbers, scale, statistic: claim.repetitions, draws: self.draws };
        if let Some(order) = &claim.order {
            let one = |selection: &Selection| match claim.below(selection) {
                Some(below) => ratios(&numbers(selection)?, &numbers(&below)?, &below),
                None => numbers(selection),
            };
            let all = order.iter().map(one).collect::<Result<Vec<Vec<f64>>, _>>()?;
            let pair = |pair: &[Vec<f64>]| pairs(&pair[0], &pair[1], relative_difference);
            let samples = all.windows(2).map(|two| sample(pair(two), 1.0)).collect();
            let list = all.iter().map(|numbers| claim.repetitions.of(numbers)).collect();
            return Ok(Place { at, measured: Measured::List(list), samples });
        }
        let sample = match (&claim.value, &claim.ratio, &claim.difference) {
            (Some(one), _, _) => {
                let values = numbers(one)?;
                let scale = claim.repetitions.of(&values);
                sample(values, scale)
            }
            (_, Some([first, second]), _) => {
                let ratios = ratios(&numbers(first)?, &numbers(second)?, second)?;
                let scale = claim.repetitions.of(&ratios);
                sample(ratios, scale)
            }
            (_, _, Some([first, second])) => {
                let (first, second) = (numbers(first)?, numbers(second)?);
                let scale = first.iter().chain(&second).fold(0.0, |most: f64, number| most.max(number.abs()));
                sample(pairs(&first, &second, |first, second| first - second), scale)
            }
            _ => unreachable!("a claim with selections has a value, a ratio, a difference or an order"),
        };
        Ok(Place { at, measured: Measured::Number(sample.number()), samples: vec![sample] })
    }

    /// A number of every repetition at the selected point, as far as repetitions have it.
    fn numbers(&self, claim: &Claim, reading: Option<&Reading>, selection: &Selection) -> Result<Vec<f64>, Missing> {
        let field = claim.field_of(selection);
        let points: Vec<usize> = (0..self.grid.points()).filter(|&point| self.selected(point, reading, selection)).collect();
        let (Some(&first), over) = (points.first(), selection.over.unwrap_or_default()) else {
            return Err(Missing::LeftOut(selection.describe()));
        };
        let mut numbers = Vec::new();
        for repetition in 0..self.grid.repetitions(first) {
            let of_point = |&point: &usize| self.grid.number(point, repetition, field).map_err(|why| (point, why));
            match points.iter().map(of_point).collect::<Result<Vec<f64>, _>>() {
                Ok(several) => numbers.push(over.of(&several)),
                // A gauge that was told of in the first repetitions and not in this one: these are the seeds that there are.
                Err((_, why)) if why == NOT_MEASURED && repetition > 0 => break,
                Err((point, why)) => {
                    let what = format!("no {field} at {}, repetition {repetition}: {why}", self.grid.describe(point));
                    return Err(if why == NOT_MEASURED { Missing::NotMeasured(what) } else { Missing::NoNumber(what) });
                }
            }
        }
        Ok(numbers)
    }

    fn selected(&self, point: usize, reading: Option<&Reading>, selection: &Selection) -> bool {
        selection.places.iter().all(|(name, places)| {
            let replaced = |place: &String| -> String {
                let other = reading.and_then(|reading| reading.replace.get(name)).and_then(|places| places.get(place));
                other.unwrap_or(place).clone()
            };
            match self.grid.axis(name) {
                Some(axis) => places.iter().any(|place| replaced(place) == self.grid.labels(point)[axis]),
                None => false,
            }
        })
    }
}

/// The first over the second, run by run; `below` is what the second are of.
fn ratios(first: &[f64], second: &[f64], below: &Selection) -> Result<Vec<f64>, Missing> {
    let ratios = pairs(first, second, |first, second| first / second);
    if ratios.iter().all(|ratio| ratio.is_finite()) {
        return Ok(ratios);
    }
    Err(Missing::NoNumber(format!("{} is 0 in a run, and no ratio can be taken", below.describe())))
}

/// Numbers of the same repetitions, two by two.
fn pairs(first: &[f64], second: &[f64], combine: fn(f64, f64) -> f64) -> Vec<f64> {
    first.iter().zip(second).map(|(first, second)| combine(*first, *second)).collect()
}

/// The verdict on a claim by what was measured at its places.
fn judged(claim: &Claim, places: &[Place]) -> Outcome {
    let (verdict, telling, reason) = match (claim.region(), &claim.reported) {
        (Some(region), None) => combine(places, region, !claim.at_some.is_empty()),
        (_, reason) => (Verdict::Reported, 0, reason.clone()),
    };
    let number = |place: &Place| if let Measured::Number(value) = place.measured { Some(value) } else { None };
    let numbers: Option<Vec<f64>> = places.iter().map(number).collect();
    let (measured, spread) = match numbers.filter(|numbers| numbers.len() > 1) {
        Some(numbers) => {
            let intervals = places.iter().flat_map(|place| &place.samples).map(|sample| sample.interval(CONFIDENCE));
            let around = intervals.reduce(Interval::hull).map_or(Spread::Nothing, |hull| Spread::Number([hull.low, hull.high]));
            (Measured::Range([Statistic::Lowest.of(&numbers), Statistic::Highest.of(&numbers)]), around)
        }
        None => (places[telling].measured.clone(), places[telling].spread()),
    };
    let seeds = places.iter().flat_map(|place| &place.samples).map(Sample::seeds);
    let fewest = seeds.min_by_key(|seeds| if let Seeds::Drawn(count) = seeds { *count } else { usize::MAX });
    Outcome { measured, spread, seeds: fewest, verdict, reason }
}

impl Reading {
    /// Whether the claim is another one in this reading.
    pub fn concerns(&self, claim: &Claim) -> bool {
        let replaced = |axis: &String, place: &String| self.replace.get(axis).is_some_and(|places| places.contains_key(place));
        let own = claim.selections().into_iter().map(|selection| selection.within(&claim.shared));
        claim.untestable.is_none()
            && own
                .into_iter()
                .any(|selection| selection.places.iter().any(|(axis, places)| places.iter().any(|place| replaced(axis, place))))
    }
}

/// A claim with all that is known of it.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The claim.
    pub claim: Claim,
    /// In the plan's own reading.
    pub outcome: Outcome,
    /// In other readings, by name.
    pub readings: Vec<(String, Outcome)>,
}

/// Holds all claims of a figure against its results, in all readings.
pub fn judge(claims: &Claims, results: &dyn Grid) -> Vec<Judged> {
    let results = Results::new(results, claims);
    let of_claim = |claim: &Claim| Judged {
        claim: claim.clone(),
        outcome: results.evaluate(claim, None),
        readings: claims
            .readings
            .iter()
            .filter(|reading| reading.concerns(claim))
            .map(|reading| (reading.name.clone(), results.evaluate(claim, Some(reading))))
            .collect(),
    };
    claims.claims.iter().map(of_claim).collect()
}

#[cfg(test)]
mod tests {
    use super::super::claims::Window;
    use super::*;

    fn place(name: &str, samples: &[&[f64]]) -> Place {
        let mut at = Selection::default();
        at.places.insert("axis".into(), vec![name.into()]);
        let sample = |numbers: &&[f64]| Sample { numbers: numbers.to_vec(), scale: 1.0, statistic: Statistic::Median, draws: true };
        Place { at, measured: Measured::Nothing, samples: samples.iter().map(sample).collect() }
    }

    const WITHIN: Region = Region::Within(Window { low: 1.0, high: 2.0 });
    const INSIDE: &[f64] = &[1.4, 1.5, 1.6];
    const OUTSIDE: &[f64] = &[8.9, 9.0, 9.1];
    const ACROSS: &[f64] = &[1.0, 2.0, 3.0];

    #[test]
    fn at_each_place_all_must_be_decided_and_one_that_fails_decides() {
        let of = |places: &[Place]| combine(places, WITHIN, false);
        assert_eq!(of(&[place("a", &[INSIDE]), place("b", &[INSIDE])]), (Verdict::Reproduced, 0, None));
        let open = of(&[place("a", &[INSIDE]), place("b", &[ACROSS])]);
        assert_eq!(open, (Verdict::Undecided, 1, Some("not decided at axis b".into())));
        let failing = of(&[place("a", &[ACROSS]), place("b", &[OUTSIDE]), place("c", &[OUTSIDE])]);
        assert_eq!(failing, (Verdict::NotReproduced, 1, Some("not at 2 of 3 places, first axis b".into())));
    }

    #[test]
    fn at_some_place_one_that_holds_decides_and_all_must_fail() {
        let of = |places: &[Place]| combine(places, WITHIN, true);
        let holding = of(&[place("a", &[OUTSIDE]), place("b", &[INSIDE]), place("c", &[ACROSS])]);
        assert_eq!(holding, (Verdict::Reproduced, 1, Some("at 1 of 3 places".into())));
        let open = of(&[place("a", &[OUTSIDE]), place("b", &[ACROSS])]);
        assert_eq!(open, (Verdict::Undecided, 1, Some("at 0 of 2 places, and not decided at others".into())));
        assert_eq!(of(&[place("a", &[OUTSIDE])]), (Verdict::NotReproduced, 0, Some("at 0 of 1 places".into())));
    }

    #[test]
    fn one_of_many_places_must_be_surer_to_decide_alone() {
        // 2.1 +- 0.08 at 95 %, and +- 0.29 at what one of twelve must have.
        let barely: &[f64] = &[2.07, 2.1, 2.13];
        let alone = [place("a", &[barely])];
        assert_eq!(combine(&alone, WITHIN, false).0, Verdict::NotReproduced);
        let mut many: Vec<Place> = (0..11).map(|_| place("b", &[INSIDE])).collect();
        many.push(place("a", &[barely]));
        assert_eq!(combine(&many, WITHIN, false).0, Verdict::Undecided);
    }

    #[test]
    fn an_order_holds_where_each_pair_differs_by_more_than_the_margin() {
        let above = Region::Above(0.01);
        let of = |samples: &[&[f64]]| combine(&[place("a", samples)], above, false).0;
        assert_eq!(of(&[&[0.09, 0.10, 0.11], &[0.5, 0.51, 0.52]]), Verdict::Reproduced);
        assert_eq!(of(&[&[0.09, 0.10, 0.11], &[-0.3, 0.1, 0.3]]), Verdict::Undecided, "seeds that overlap");
        assert_eq!(of(&[&[0.09, 0.10, 0.11], &[0.002, 0.0025, 0.003]]), Verdict::NotReproduced, "a difference below the margin is none");
    }

    #[test]
    fn one_seed_near_an_edge_is_undecided() {
        let of = |number: f64| combine(&[place("a", &[&[number]])], WITHIN, false).0;
        assert_eq!(
            [of(1.5), of(1.95), of(2.05), of(2.2)],
            [Verdict::Reproduced, Verdict::Undecided, Verdict::Undecided, Verdict::NotReproduced]
        );
    }
}
