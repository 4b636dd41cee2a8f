//! Holds claims against results.

use fanin_plan::results::median;
use serde::Serialize;

use crate::grid::Grid;

use super::claims::{Claim, Claims, Reading, Selection, Statistic};

/// What has become of a claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Verdict {
    /// What was measured agrees with the claim.
    #[serde(rename = "reproduced")]
    Reproduced,
    /// It does not.
    #[serde(rename = "not reproduced")]
    NotReproduced,
    /// Nothing that is measured here can tell.
    #[serde(rename = "cannot be tested here")]
    CannotBeTested,
}

impl Verdict {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Verdict::Reproduced => "reproduced",
            Verdict::NotReproduced => "not reproduced",
            Verdict::CannotBeTested => "cannot be tested here",
        }
    }
}

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

/// A claim held against results.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was measured.
    pub measured: Measured,
    /// What has become of the claim.
    pub verdict: Verdict,
    /// Where a claim over several places fails, or why there is no verdict.
    pub reason: Option<String>,
}

/// A figure's results.
struct Results<'a>(&'a dyn Grid);

/// Why there is no number.
enum Missing {
    /// The plan that was run does not have the point.
    LeftOut(String),
    /// A run has no such number.
    NoNumber(String),
}

impl Results<'_> {
    /// Holds a claim, in a reading of the text, against the results.
    fn evaluate(&self, claim: &Claim, reading: Option<&Reading>) -> Outcome {
        let untestable = |measured, reason: String| Outcome { measured, verdict: Verdict::CannotBeTested, reason: Some(reason) };
        if claim.selections().is_empty() {
            return untestable(Measured::Nothing, claim.untestable.clone().unwrap_or_default());
        }
        let outcome = match self.at_all_places(claim, reading) {
            Ok(outcome) => outcome,
            Err(Missing::LeftOut(what)) => return untestable(Measured::Nothing, format!("--quick leaves out {what}")),
            Err(Missing::NoNumber(what)) => Outcome { measured: Measured::Nothing, verdict: Verdict::NotReproduced, reason: Some(what) },
        };
        match &claim.untestable {
            Some(reason) => untestable(outcome.measured, reason.clone()),
            None => outcome,
        }
    }

    fn at_all_places(&self, claim: &Claim, reading: Option<&Reading>) -> Result<Outcome, Missing> {
        let mut places = Vec::new();
        for place in self.places(claim)? {
            let (measured, holds) = self.at_one_place(claim, reading, &place)?;
            places.push((place, measured, holds));
        }
        let any = !claim.at_some.is_empty();
        let holding = places.iter().filter(|(_, _, holds)| *holds).count();
        let agrees = if any { holding > 0 } else { holding == places.len() };
        // The place that decides: one that fails where all must hold, one that holds where one is enough.
        let telling = places.iter().find(|(_, _, holds)| *holds == any).unwrap_or(&places[0]);
        let reason = match (any, agrees) {
            (true, _) => Some(format!("at {holding} of {} places", places.len())),
            (false, true) => None,
            (false, false) => match (telling.0.place_text(), places.len() - holding) {
                (at, _) if at.is_empty() => None,
                (at, 1) => Some(format!("not at {at}")),
                (at, failing) => Some(format!("not at {failing} of {} places, first {at}", places.len())),
            },
        };
        let number = |(_, measured, _): &(_, Measured, _)| if let Measured::Number(value) = measured { Some(*value) } else { None };
        let measured = match places.iter().map(number).collect::<Option<Vec<f64>>>() {
            Some(numbers) if numbers.len() > 1 => Measured::Range([Statistic::Lowest.of(&numbers), Statistic::Highest.of(&numbers)]),
            _ => telling.1.clone(),
        };
        Ok(Outcome { measured, verdict: if agrees { Verdict::Reproduced } else { Verdict::NotReproduced }, reason })
    }

    /// All places of the axes at each of which the claim must hold.
    fn places(&self, claim: &Claim) -> Result<Vec<Selection>, Missing> {
        let mut all = vec![Selection::default()];
        for name in claim.places_along() {
            let axis = self.0.axes().iter().find(|axis| axis.name == *name);
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

    fn at_one_place(&self, claim: &Claim, reading: Option<&Reading>, place: &Selection) -> Result<(Measured, bool), Missing> {
        let numbers = |selection: &Selection| self.numbers(claim, reading, &selection.within(&place.within(&claim.shared)));
        let paired = |[first, second]: &[Selection; 2], combine: fn(f64, f64) -> f64| -> Result<Vec<f64>, Missing> {
            let pairs = numbers(first)?.into_iter().zip(numbers(second)?);
            let combined: Vec<f64> = pairs.map(|(first, second)| combine(first, second)).collect();
            match combined.iter().all(|number| number.is_finite()) {
                true => Ok(combined),
                false => Err(Missing::NoNumber(format!("{} is 0 in a run, and no ratio can be taken", second.describe()))),
            }
        };
        if let Some(order) = &claim.order {
            let list: Vec<f64> = order.iter().map(|one| Ok(claim.repetitions.of(&numbers(one)?))).collect::<Result<_, _>>()?;
            let holds = list.windows(2).all(|pair| pair[0] > pair[1]);
            return Ok((Measured::List(list), holds));
        }
        let several = match (&claim.value, &claim.ratio, &claim.difference) {
            (Some(one), _, _) => numbers(one)?,
            (_, Some(pair), _) => paired(pair, |first, second| first / second)?,
            (_, _, Some(pair)) => paired(pair, |first, second| first - second)?,
            _ => unreachable!("a claim with selections has a value, a ratio, a difference or an order"),
        };
        let number = claim.repetitions.of(&several);
        Ok((Measured::Number(number), claim.window.is_none_or(|window| window.contains(number))))
    }

    /// A number of every repetition at the selected point.
    fn numbers(&self, claim: &Claim, reading: Option<&Reading>, selection: &Selection) -> Result<Vec<f64>, Missing> {
        let field = claim.field_of(selection);
        let points: Vec<usize> = (0..self.0.points()).filter(|&point| self.selected(point, reading, selection)).collect();
        let (Some(&first), over) = (points.first(), selection.over.unwrap_or_default()) else {
            return Err(Missing::LeftOut(selection.describe()));
        };
        (0..self.0.repetitions(first))
            .map(|repetition| {
                let of_point = |&point: &usize| {
                    self.0.number(point, repetition, field).map_err(|why| {
                        let place = self.0.describe(point);
                        Missing::NoNumber(format!("no {field} at {place}, repetition {repetition}: {why}"))
                    })
                };
                Ok(over.of(&points.iter().map(of_point).collect::<Result<Vec<f64>, _>>()?))
            })
            .collect()
    }

    fn selected(&self, point: usize, reading: Option<&Reading>, selection: &Selection) -> bool {
        selection.places.iter().all(|(name, places)| {
            let replaced = |place: &String| -> String {
                let other = reading.and_then(|reading| reading.replace.get(name)).and_then(|places| places.get(place));
                other.unwrap_or(place).clone()
            };
            match self.0.axis(name) {
                Some(axis) => places.iter().any(|place| replaced(place) == self.0.labels(point)[axis]),
                None => false,
            }
        })
    }
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

impl Statistic {
    /// The statistic of some numbers; there is at least one.
    pub fn of(self, numbers: &[f64]) -> f64 {
        let mut sorted = numbers.to_vec();
        sorted.sort_by(f64::total_cmp);
        match self {
            Statistic::Median => median(&sorted).unwrap_or(f64::NAN),
            Statistic::Mean => sorted.iter().sum::<f64>() / sorted.len() as f64,
            Statistic::Lowest => sorted.first().copied().unwrap_or(f64::NAN),
            Statistic::Highest => sorted.last().copied().unwrap_or(f64::NAN),
        }
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
    let results = Results(results);
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
