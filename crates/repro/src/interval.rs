//! What can be said of a number from the repetitions that it comes from.
//!
//! Of several seeds the interval is Student's t around the mean of what they gave, two-sided, at 95 %. A distribution-free interval for a
//! median would suppose less, and needs six seeds to exist at 95 %; figures have two to six. It is widened to the number that is shown
//! where that is a median outside of it. The lowest or highest of the repetitions is what it is: it speaks of the seeds that were run.
//!
//! One seed of a plan that draws random numbers has no interval. It is taken to be off by a tenth to either side, which is an assumption
//! and is marked as one seed wherever it is shown: about what seeds of the shipped figures differ by. A plan that draws nothing gives
//! the same number for every seed, and its interval is that number.

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::statistic::{Statistic, Window};

/// How sure a verdict is, as a whole.
pub const CONFIDENCE: f64 = 0.95;
/// What one seed of a plan that draws is taken to be off by, as a share of what is measured.
pub const ONE_SEED: f64 = 0.1;

/// How many seeds a number comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seeds {
    /// The plan draws nothing: all seeds give one number.
    Any,
    /// As many as this, of a plan that draws.
    Drawn(usize),
}

/// From the lowest to the highest number that is meant.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Interval {
    /// The lowest.
    pub low: f64,
    /// The highest.
    pub high: f64,
}

impl Interval {
    fn point(number: f64) -> Interval {
        Interval { low: number, high: number }
    }

    /// The smallest interval that has both in it.
    pub fn hull(self, other: Interval) -> Interval {
        Interval { low: self.low.min(other.low), high: self.high.max(other.high) }
    }
}

/// What agrees with a claim.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Region {
    /// A window, its edges too.
    Within(Window),
    /// More than this.
    Above(f64),
}

/// Where an interval lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Wholly where it agrees.
    Inside,
    /// Wholly where it does not.
    Outside,
    /// Across an edge.
    Across,
}

impl Region {
    /// On which side of the edges an interval lies.
    pub fn side(self, interval: Interval) -> Side {
        let Interval { low, high } = interval;
        let (inside, outside) = match self {
            Region::Within(window) => (window.low <= low && high <= window.high, high < window.low || window.high < low),
            Region::Above(edge) => (low > edge, high <= edge),
        };
        match (inside, outside) {
            (true, _) => Side::Inside,
            (_, true) => Side::Outside,
            _ => Side::Across,
        }
    }
}

/// A number of each repetition, which of them counts, and what is known of how they are drawn.
#[derive(Clone, PartialEq, Debug)]
pub struct Sample {
    /// By repetition; never empty.
    pub numbers: Vec<f64>,
    /// What a share of one seed's error is a share of.
    pub scale: f64,
    /// Which repetition counts.
    pub statistic: Statistic,
    /// Whether the plan draws random numbers.
    pub draws: bool,
}

impl Sample {
    /// The number that is shown.
    pub fn number(&self) -> f64 {
        self.statistic.of(&self.numbers)
    }

    /// How many seeds it comes from.
    pub fn seeds(&self) -> Seeds {
        if self.draws { Seeds::Drawn(self.numbers.len()) } else { Seeds::Any }
    }

    /// The interval in which what is measured lies.
    pub fn interval(&self, confidence: f64) -> Interval {
        let shown = Interval::point(self.number());
        if !self.draws {
            return shown;
        }
        if self.numbers.len() == 1 {
            let off = ONE_SEED * self.scale.abs();
            return Interval { low: shown.low - off, high: shown.high + off };
        }
        match self.statistic {
            Statistic::Lowest | Statistic::Highest => shown,
            Statistic::Median | Statistic::Mean => around_mean(&self.numbers, confidence).hull(shown),
        }
    }
}

/// Student's interval around the mean of two or more numbers.
fn around_mean(numbers: &[f64], confidence: f64) -> Interval {
    if numbers.iter().all(|number| *number == numbers[0]) {
        return Interval::point(numbers[0]);
    }
    let count = numbers.len() as f64;
    let mean = numbers.iter().sum::<f64>() / count;
    let variance = numbers.iter().map(|number| (number - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let off = quantile(confidence, count - 1.0) * (variance / count).sqrt();
    Interval { low: mean - off, high: mean + off }
}

/// How many standard errors to either side of the mean have this confidence.
fn quantile(confidence: f64, freedom: f64) -> f64 {
    let students = StudentsT::new(0.0, 1.0, freedom).expect("two numbers or more have a degree of freedom");
    students.inverse_cdf((1.0 + confidence) / 2.0)
}

/// The difference of two numbers as a share of what they are on average: between -2 and 2, and 0 where both are 0.
pub fn relative_difference(first: f64, second: f64) -> f64 {
    let size = (first.abs() + second.abs()) / 2.0;
    if size == 0.0 { 0.0 } else { (first - second) / size }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(numbers: &[f64]) -> Sample {
        Sample { numbers: numbers.into(), scale: numbers[0], statistic: Statistic::Median, draws: true }
    }

    fn near(interval: Interval, low: f64, high: f64) -> bool {
        (interval.low - low).abs() < 1e-3 && (interval.high - high).abs() < 1e-3
    }

    #[test]
    fn quantiles_are_those_of_printed_tables() {
        let table = [(1.0, 12.706), (2.0, 4.303), (3.0, 3.182), (4.0, 2.776), (5.0, 2.571), (10.0, 2.228), (30.0, 2.042)];
        for (freedom, wanted) in table {
            let got = quantile(0.95, freedom);
            assert!((got - wanted).abs() < 6e-4, "{freedom}: {got}, not {wanted}");
        }
        assert!((quantile(0.99, 4.0) - 4.604).abs() < 6e-4, "{}", quantile(0.99, 4.0));
    }

    #[test]
    fn several_seeds_have_students_interval() {
        let five = sample(&[60.6, 59.0, 56.0, 61.0, 58.0]);
        assert!(near(five.interval(CONFIDENCE), 56.396, 61.444), "{:?}", five.interval(CONFIDENCE));
        assert_eq!((five.number(), five.seeds()), (59.0, Seeds::Drawn(5)));
        let two = sample(&[1.0, 2.0]);
        assert!(near(two.interval(CONFIDENCE), 1.5 - 6.353, 1.5 + 6.353), "{:?}", two.interval(CONFIDENCE));
        assert_eq!(sample(&[3.0, 3.0, 3.0]).interval(CONFIDENCE), Interval::point(3.0), "seeds that agree");
        assert!(two.interval(0.99).high > two.interval(CONFIDENCE).high, "surer is wider");
    }

    #[test]
    fn a_median_lies_in_its_interval() {
        let mut numbers = vec![0.0; 9];
        numbers.extend([10.0; 8]);
        let many = sample(&numbers);
        let interval = many.interval(CONFIDENCE);
        assert_eq!((many.number(), interval.low), (0.0, 0.0), "the mean alone is above it: {interval:?}");
    }

    #[test]
    fn one_seed_is_off_by_a_tenth_and_a_plan_that_draws_nothing_by_nothing() {
        let one = sample(&[50.0]);
        assert_eq!((one.interval(CONFIDENCE), one.seeds()), (Interval { low: 45.0, high: 55.0 }, Seeds::Drawn(1)));
        let fixed = Sample { draws: false, ..one.clone() };
        assert_eq!((fixed.interval(CONFIDENCE), fixed.seeds()), (Interval::point(50.0), Seeds::Any));
        let difference = Sample { scale: 200.0, ..one };
        assert_eq!(difference.interval(CONFIDENCE), Interval { low: 30.0, high: 70.0 }, "of what is subtracted");
    }

    #[test]
    fn extremes_speak_of_the_seeds_that_were_run() {
        let lowest = Sample { statistic: Statistic::Lowest, ..sample(&[1.0, 5.0]) };
        let highest = Sample { statistic: Statistic::Highest, ..lowest.clone() };
        assert_eq!((lowest.interval(CONFIDENCE), highest.interval(CONFIDENCE)), (Interval::point(1.0), Interval::point(5.0)));
    }

    #[test]
    fn edges_of_a_window_agree_and_the_edge_of_an_order_does_not() {
        let window = Region::Within(Window { low: 1.0, high: 2.0 });
        let side = |region: Region, low, high| region.side(Interval { low, high });
        assert_eq!([side(window, 1.0, 2.0), side(window, 1.5, 1.5)], [Side::Inside; 2]);
        assert_eq!([side(window, 0.0, 0.99), side(window, 2.01, 3.0)], [Side::Outside; 2]);
        assert_eq!([side(window, 0.9, 1.0), side(window, 2.0, 2.1), side(window, 0.0, 3.0)], [Side::Across; 3]);
        let open = Region::Within(Window { low: 1.0, high: f64::INFINITY });
        assert_eq!([side(open, 1.0, 1e9), side(open, 0.5, 0.9)], [Side::Inside, Side::Outside]);
        let more = Region::Above(0.01);
        assert_eq!([side(more, 0.011, 0.5), side(more, -0.5, 0.01), side(more, 0.01, 0.02)], [Side::Inside, Side::Outside, Side::Across]);
    }

    #[test]
    fn relative_differences_are_of_the_mean_size() {
        assert_eq!(relative_difference(3.0, 1.0), 1.0);
        assert_eq!([relative_difference(0.0, 0.0), relative_difference(0.5, 0.0), relative_difference(0.0, 0.5)], [0.0, 2.0, -2.0]);
    }
}
