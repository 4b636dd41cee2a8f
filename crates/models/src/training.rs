//! A small network, trained for real by several workers whose gradients are summed as systems sum them: what an iteration is worth in accuracy, and
//! with the time of an iteration how accuracy grows with time (A2TP, 6.4, Fig. 8), and whether sums in another order train another network (NetReduce, 5.3, Fig. 12).
//!
//! Data are drawn: ten clouds in 16 dimensions that overlap, so that some points cannot be told apart. A layer of 24 units (tanh) and one of ten
//! (softmax) learn by gradient descent with momentum, each worker from 16 points of its own in an iteration. Gradients are cut into fragments of 62
//! elements, 248 bytes, as A2TP's packets are, and go through the conversion that the systems have: [`FixedPoint`].

use std::sync::Arc;

use fanin_core::hash::{derive, mix};
use fanin_core::{BlockExponent, ElementOp, FixedPoint};

use crate::memo::Memo;
use crate::{Choice, Model, ModelError, Parameter, Quantity};

/// Dimensions of a point.
const INPUTS: usize = 16;
/// Units of the hidden layer.
const HIDDEN: usize = 24;
/// Clouds.
const CLASSES: usize = 10;
/// How far points of a cloud lie from its middle in each dimension (standard deviation), where middles lie 3 from 0.
const NOISE: f64 = 1.1;
/// Points that a worker looks at in an iteration.
const BATCH: u64 = 16;
/// Points that accuracy is measured with: none of them is trained with.
const HELD_OUT: u64 = 300;
const RATE: f32 = 0.05;
const MOMENTUM: f32 = 0.9;
/// Elements of a packet of 248 bytes.
const FRAGMENT: usize = 62;
/// Weights, and a bias for each unit.
const SIZE: usize = HIDDEN * (INPUTS + 1) + CLASSES * (HIDDEN + 1);
/// A training has come to its highest accuracy when it is so near.
const TOLERANCE: f64 = 0.01;
/// The fixed scale: elements below 2^this fit, others make their fragment go as floats (ATP; `a2tp 5.8`).
const FIXED: BlockExponent = BlockExponent::from_bits(0);

/// `fanin model training`.
pub(crate) const TRAINING: Model = Model {
    name: "training",
    title: "A small network trained by workers whose gradients are summed: accuracy by iterations and by time",
    about: "A network of 658 weights is trained for real, on drawn data, from a seed. Sums of gradients: float (32-bit floats in the order of\n\
            ranks, as NetReduce's accelerator adds them), fixed (ATP and A2TP: integers of one scale; fragments with larger values as floats), block\n\
            (SwitchML: integers with an exponent for each fragment) or ring (32-bit floats; each rank's share of the vector begins at that rank). Time is iterations times the time of one, which is given: it is not known here what a network takes.",
    parameters: &[
        Parameter { key: "workers", title: "workers", usual: 4.0, whole: true, low: 1.0, high: 64.0, inclusive: true },
        Parameter { key: "sums", title: "how gradients are summed", usual: 0.0, whole: true, low: 0.0, high: 3.0, inclusive: true },
        Parameter {
            key: "iterations",
            title: "iterations of the training",
            usual: 200.0,
            whole: true,
            low: 1.0,
            high: 1e4,
            inclusive: true,
        },
        Parameter { key: "seed", title: "seed of data and first weights", usual: 1.0, whole: true, low: 0.0, high: 1e9, inclusive: true },
        Parameter {
            key: "iteration_us",
            title: "time of an iteration, in us",
            usual: 1_000.0,
            whole: false,
            low: 1e-3,
            high: 1e12,
            inclusive: true,
        },
        Parameter {
            key: "time_ms",
            title: "time since the training began, in ms",
            usual: 100.0,
            whole: false,
            low: 0.0,
            high: 1e12,
            inclusive: true,
        },
    ],
    choices: &[Choice { key: "sums", names: &["float", "fixed", "block", "ring"] }],
    quantities: &[
        Quantity { key: "done", title: "iterations done by then", equation: "time / time of an iteration" },
        Quantity { key: "accuracy", title: "accuracy by then", equation: "share of points told rightly" },
        Quantity { key: "accuracy_highest", title: "highest accuracy of the training", equation: "" },
        Quantity { key: "iterations_to_highest", title: "iterations until it is there but for 0.01", equation: "" },
        Quantity { key: "time_to_highest_ms", title: "time until then, in ms", equation: "iterations x time of an iteration" },
        Quantity { key: "loss", title: "loss by then", equation: "mean cross entropy of points that it is not trained with" },
    ],
    evaluate: |parameters| {
        let &[workers, sums, iterations, seed, iteration_us, time_ms] = parameters else { unreachable!("six parameters") };
        let sums = [Sums::Float, Sums::Fixed, Sums::Block, Sums::Ring][sums as usize];
        let training = kept(workers as u32, sums, iterations as usize, seed as u64);
        let accuracy = &training.accuracy;
        let done = ((time_ms * 1e3 / iteration_us) as usize).min(accuracy.len() - 1);
        let highest = accuracy.iter().copied().fold(0.0, f64::max);
        let until = accuracy.iter().position(|accuracy| *accuracy >= highest - TOLERANCE).unwrap_or(0);
        Ok::<_, ModelError>(vec![
            done as f64,
            accuracy[done],
            highest,
            until as f64,
            until as f64 * iteration_us / 1e3,
            training.loss[done],
        ])
    },
};

/// How the gradients of workers become one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Sums {
    /// 32-bit floats, added in the order of ranks.
    Float,
    /// Integers with one scale for all; a fragment of which a worker has an element that does not fit goes as floats (ATP, A2TP).
    Fixed,
    /// Integers with an exponent for each fragment, that of its largest element at any worker (SwitchML).
    Block,
    /// 32-bit floats round a ring: the sum of each rank's share of the vector begins at that rank.
    Ring,
}

/// What became of a training, before the first iteration and after each.
#[derive(Clone, PartialEq, Debug)]
pub struct Training {
    /// The share of held-out points that the network tells rightly.
    pub accuracy: Vec<f64>,
    /// Their mean cross entropy.
    pub loss: Vec<f64>,
}

/// [`train`], once in a process for what it depends on: neither the time of an iteration nor the time that is asked for is among that.
fn kept(workers: u32, sums: Sums, iterations: usize, seed: u64) -> Arc<Training> {
    static TRAININGS: Memo<(u32, Sums, usize, u64), Arc<Training>> = Memo::new(100);
    TRAININGS.get((workers, sums, iterations, seed), || train(workers, sums, iterations, seed).into())
}

/// Trains by `workers` workers.
pub fn train(workers: u32, sums: Sums, iterations: usize, seed: u64) -> Training {
    let data = Data::new(seed);
    let held_out: Vec<Point> = (0..HELD_OUT).map(|number| data.point(number)).collect();
    let mut weights = first_weights(seed);
    let mut velocity = vec![0.0; SIZE];
    let (told, lost) = judge(&weights, &held_out);
    let mut training = Training { accuracy: vec![told], loss: vec![lost] };
    for iteration in 0..iterations as u64 {
        let of_rank = |rank: u64| {
            let first = HELD_OUT + (iteration * u64::from(workers) + rank) * BATCH;
            gradient(&weights, (first..first + BATCH).map(|number| data.point(number)))
        };
        let mean = mean(&(0..u64::from(workers)).map(of_rank).collect::<Vec<_>>(), sums);
        for ((weight, velocity), mean) in weights.iter_mut().zip(&mut velocity).zip(mean) {
            *velocity = MOMENTUM * *velocity + mean;
            *weight -= RATE * *velocity;
        }
        let (told, lost) = judge(&weights, &held_out);
        training.accuracy.push(told);
        training.loss.push(lost);
    }
    training
}

/// The mean of the workers' gradients, fragment by fragment, by the arithmetic of a system.
fn mean(gradients: &[Vec<f32>], sums: Sums) -> Vec<f32> {
    let workers = gradients.len() as u32;
    if sums == Sums::Ring {
        return (0..SIZE).map(|place| round_ring(gradients, place) / workers as f32).collect();
    }
    let mut mean = Vec::with_capacity(SIZE);
    for begin in (0..SIZE).step_by(FRAGMENT) {
        let range = begin..SIZE.min(begin + FRAGMENT);
        let fragments: Vec<Vec<u8>> = gradients.iter().map(|gradient| bytes(&gradient[range.clone()])).collect();
        let largest = fragments.iter().map(|fragment| BlockExponent::of(fragment)).max().unwrap_or(BlockExponent::ZERO);
        let as_floats = sums == Sums::Float || (sums == Sums::Fixed && largest > FIXED);
        if as_floats {
            let sum = |place: usize| gradients.iter().map(|gradient| gradient[place]).fold(0.0, |sum, value| sum + value);
            mean.extend(range.map(|place| sum(place) / workers as f32));
            continue;
        }
        let exponent = if sums == Sums::Fixed { FIXED } else { largest };
        mean.extend(in_integers(&fragments, exponent));
    }
    mean
}

/// The sum at a place of the vector, from the rank on whose share it is in, to the one before it.
fn round_ring(gradients: &[Vec<f32>], place: usize) -> f32 {
    let first = place * gradients.len() / SIZE;
    gradients.iter().cycle().skip(first).take(gradients.len()).map(|gradient| gradient[place]).fold(0.0, |sum, value| sum + value)
}

/// The mean of fragments as integers: converted at workers, added as a switch does, converted back.
fn in_integers(fragments: &[Vec<u8>], exponent: BlockExponent) -> Vec<f32> {
    let point = FixedPoint::new(fragments.len() as u32, true);
    let length = fragments.first().map_or(0, Vec::len);
    let (mut sum, mut integers, mut result) = (vec![0; length], vec![0; length], vec![0; length]);
    for fragment in fragments {
        point.quantise(exponent, fragment, &mut integers);
        ElementOp::I32_SUM.reduce(&mut sum, &integers).expect("fragments of one length");
    }
    point.dequantise(exponent, &sum, &mut result);
    result.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// A point, and the cloud that it is from.
struct Point {
    at: [f32; INPUTS],
    class: usize,
}

/// Clouds of points.
struct Data {
    seed: u64,
    middles: Vec<[f64; INPUTS]>,
}

impl Data {
    fn new(seed: u64) -> Self {
        let middle = |class: u64| {
            let drawn: [f64; INPUTS] = std::array::from_fn(|place| normal(derive(seed, 1), class * INPUTS as u64 + place as u64));
            let length = libm::sqrt(drawn.iter().map(|value| value * value).sum::<f64>());
            drawn.map(|value| 3.0 * value / length)
        };
        Data { seed, middles: (0..CLASSES as u64).map(middle).collect() }
    }

    /// The point of this number.
    fn point(&self, number: u64) -> Point {
        let class = (mix(derive(self.seed, 2), number) % CLASSES as u64) as usize;
        let noise = |place: usize| NOISE * normal(derive(self.seed, 3), number * INPUTS as u64 + place as u64);
        Point { at: std::array::from_fn(|place| (self.middles[class][place] + noise(place)) as f32), class }
    }
}

/// A draw from the normal distribution (Box and Muller).
fn normal(key: u64, number: u64) -> f64 {
    // From above 0 to 1, and from 0 to below 1.
    let even = |stream: u64| (mix(derive(key, stream), number) >> 11) as f64 / (1u64 << 53) as f64;
    libm::sqrt(-2.0 * libm::log(1.0 - even(0))) * libm::cos(2.0 * std::f64::consts::PI * even(1))
}

/// By layer and unit: a bias, and a weight for each input, of normal size (Glorot).
fn first_weights(seed: u64) -> Vec<f32> {
    let layer = |units: usize, inputs: usize, stream: u64| {
        let scale = libm::sqrt(2.0 / (units + inputs) as f64);
        let key = derive(seed, stream);
        let weight = move |place: usize| if place.is_multiple_of(inputs + 1) { 0.0 } else { (scale * normal(key, place as u64)) as f32 };
        (0..units * (inputs + 1)).map(weight)
    };
    layer(HIDDEN, INPUTS, 4).chain(layer(CLASSES, HIDDEN, 5)).collect()
}

/// What the units of a layer sum up.
fn units<'a>(weights: &'a [f32], inputs: &'a [f32]) -> impl Iterator<Item = f32> + 'a {
    let sum = move |unit: &[f32]| unit[1..].iter().zip(inputs).fold(unit[0], |sum, (weight, input)| sum + weight * input);
    weights.chunks(inputs.len() + 1).map(sum)
}

/// The hidden units of a point, and what the network says of each class.
fn forward(weights: &[f32], at: &[f32]) -> (Vec<f32>, Vec<f32>) {
    let (first, second) = weights.split_at(HIDDEN * (INPUTS + 1));
    let hidden: Vec<f32> = units(first, at).map(libm::tanhf).collect();
    let said = units(second, &hidden).collect();
    (hidden, said)
}

/// The share of points whose class is what the network says, and the mean of what it is short of saying (cross entropy).
fn judge(weights: &[f32], points: &[Point]) -> (f64, f64) {
    let (mut told, mut lost) = (0usize, 0.0);
    for point in points {
        let said = forward(weights, &point.at).1;
        let own = said[point.class];
        told += usize::from(said.iter().enumerate().all(|(class, value)| class == point.class || *value < own));
        lost += libm::log(said.iter().map(|value| libm::exp(f64::from(value - own))).sum::<f64>());
    }
    (told as f64 / points.len() as f64, lost / points.len() as f64)
}

/// The mean gradient of the cross entropy over some points.
fn gradient(weights: &[f32], points: impl Iterator<Item = Point>) -> Vec<f32> {
    let mut gradient = vec![0.0; SIZE];
    let second = &weights[HIDDEN * (INPUTS + 1)..];
    for point in points {
        let (hidden, said) = forward(weights, &point.at);
        let top = said.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let powers: Vec<f32> = said.iter().map(|value| libm::expf(value - top)).collect();
        let sum: f32 = powers.iter().sum();
        let error: Vec<f32> =
            powers.iter().enumerate().map(|(class, power)| power / sum - f32::from(u8::from(class == point.class))).collect();
        let back = |unit: usize| {
            let sum: f32 = error.iter().enumerate().map(|(class, error)| error * second[class * (HIDDEN + 1) + 1 + unit]).sum();
            sum * (1.0 - hidden[unit] * hidden[unit])
        };
        let hidden_error: Vec<f32> = (0..HIDDEN).map(back).collect();
        let (of_first, of_second) = gradient.split_at_mut(HIDDEN * (INPUTS + 1));
        add(of_first, &hidden_error, &point.at);
        add(of_second, &error, &hidden);
    }
    gradient.iter_mut().for_each(|value| *value /= BATCH as f32);
    gradient
}

/// Adds what a point says of a layer: its units' errors by their inputs.
fn add(gradient: &mut [f32], errors: &[f32], inputs: &[f32]) {
    for (unit, error) in gradient.chunks_mut(inputs.len() + 1).zip(errors) {
        unit[0] += error;
        unit[1..].iter_mut().zip(inputs).for_each(|(sum, input)| *sum += error * input);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The gradient is what differences of the loss say: of a weight of each kind, by double precision of the difference quotient.
    #[test]
    fn a_gradient_is_what_differences_of_the_loss_are() {
        let data = Data::new(7);
        let weights = first_weights(7);
        let loss = |weights: &[f32]| -> f64 {
            let of_point = |number: u64| {
                let point = data.point(number);
                let said: Vec<f64> = forward(weights, &point.at).1.into_iter().map(f64::from).collect();
                libm::log(said.iter().map(|value| libm::exp(*value)).sum::<f64>()) - said[point.class]
            };
            (0..BATCH).map(of_point).sum::<f64>() / BATCH as f64
        };
        let gradient = gradient(&weights, (0..BATCH).map(|number| data.point(number)));
        for place in [0, 3, 17, HIDDEN * (INPUTS + 1), HIDDEN * (INPUTS + 1) + 5, SIZE - 1] {
            let moved = |by: f32| {
                let mut moved = weights.clone();
                moved[place] += by;
                loss(&moved)
            };
            let slope = (moved(1e-2) - moved(-1e-2)) / 2e-2;
            assert!((slope - f64::from(gradient[place])).abs() < 1e-3, "{place}: {slope}, {}", gradient[place]);
        }
    }

    #[test]
    fn it_learns_and_a_seed_fixes_it() {
        let training = train(4, Sums::Float, 150, 1);
        let Training { accuracy, loss } = &training;
        assert!(accuracy[0] < 0.25 && accuracy[150] > 0.75, "{} to {}", accuracy[0], accuracy[150]);
        // Ten classes, of which it knows nothing at first: about the logarithm of ten.
        assert!((1.8..3.5).contains(&loss[0]) && loss[150] < loss[0] / 2.0, "{} to {}", loss[0], loss[150]);
        assert_eq!(training, train(4, Sums::Float, 150, 1));
        assert_ne!(training, train(4, Sums::Float, 150, 2));
    }

    /// An integer's last place is 2^-29 for four workers: gradients differ by no more than that and a float's own rounding.
    #[test]
    fn sums_of_integers_are_as_near_as_their_scale() {
        let data = Data::new(3);
        let weights = first_weights(3);
        let of_rank = |rank: u64| gradient(&weights, (rank * BATCH..(rank + 1) * BATCH).map(|number| data.point(number)));
        let gradients: Vec<Vec<f32>> = (0..4).map(of_rank).collect();
        let exact = |place: usize| gradients.iter().map(|gradient| f64::from(gradient[place])).sum::<f64>() / 4.0;
        for sums in [Sums::Float, Sums::Fixed, Sums::Block, Sums::Ring] {
            let mean = mean(&gradients, sums);
            let error = |place: usize| (f64::from(mean[place]) - exact(place)).abs();
            let worst = (0..SIZE).map(error).fold(0.0, f64::max);
            assert!(worst < 2e-8 && mean.len() == SIZE, "{sums:?}: {worst}");
        }
        assert_ne!(mean(&gradients, Sums::Fixed), mean(&gradients, Sums::Block), "they round differently");
        assert_ne!(mean(&gradients, Sums::Float), mean(&gradients, Sums::Ring), "they round differently");
        // Of two ranks there is one order.
        assert_eq!(mean(&gradients[..2], Sums::Float), mean(&gradients[..2], Sums::Ring));
    }

    /// The quarter of the vector that is rank 1's begins with its gradient: 1 + 1e8 - 1e8 is 0 in one order and 1 in another.
    #[test]
    fn shares_of_a_ring_begin_at_their_ranks() {
        let gradients: Vec<Vec<f32>> = [1.0, 1e8, -1e8, 0.0].map(|value| vec![value; SIZE]).into();
        let by_share = |sums| [0, 1, 2, 3].map(|share| mean(&gradients, sums)[share * SIZE / 4 + 2]);
        assert_eq!(by_share(Sums::Float), [0.0; 4]);
        assert_eq!(by_share(Sums::Ring), [0.0, 0.25, 0.0, 0.0]);
    }

    /// A fragment in which one worker has an element of 2^0 or more goes as floats: nothing is cut off.
    #[test]
    fn what_does_not_fit_the_scale_goes_as_floats() {
        let mut gradients = vec![vec![0.25; SIZE]; 2];
        gradients[1][5] = 3.0;
        let mean = mean(&gradients, Sums::Fixed);
        assert_eq!((mean[5], mean[4], mean[FRAGMENT]), (1.625, 0.25, 0.25));
    }

    #[test]
    fn time_is_iterations_times_their_time() {
        let evaluate =
            |iteration_us: f64, time_ms: f64| TRAINING.evaluate(&[2.0, 1.0, 60.0, 1.0, iteration_us, time_ms]).expect("in range");
        let (slow, fast) = (evaluate(2_000.0, 50.0), evaluate(1_000.0, 50.0));
        assert_eq!((slow[0], fast[0]), (25.0, 50.0));
        assert_eq!((slow[2], slow[3]), (fast[2], fast[3]), "the training is the same");
        assert_eq!((slow[4], slow[4] / fast[4]), (slow[3] * 2.0, 2.0));
        assert_eq!(evaluate(1_000.0, 1e6)[0], 60.0, "it has ended");
    }
}
