//! Whether an operator does what a job needs of it, found out by doing what a job does: first contributions, further ones and results, of
//! packets and of long stretches, in one instance and in two, of several blocks at once, in other orders and cut elsewhere.
//!
//! Nothing here proves that an operator is right. What it finds is wrong for certain, and comes with what shows it.

mod order;
mod values;

use fanin_core::hash::mix;
use fanin_core::{CustomOp, DType};

use crate::identity::Faults;
use crate::operator::CustomOperator;
use crate::stray::Stray;
pub use order::Order;
use order::{agreement, same_but_for_nans};
use values::{Sample, Values};

/// How many ranks contribute where their order is looked at.
const RANKS: usize = 5;
/// Bytes of elements in a packet, and in the longest stretch that ranks who share memory reduce at once, about.
const LENGTHS: [usize; 2] = [1 << 10, 64 << 10];
/// The most ranks that contribute to one element: more than a byte counts.
const CROWD: usize = 300;
/// How many elements are tried one by one, to find one on which an operator fails; and how many contributions are shown.
const ALONE_MAX: usize = 512;
const INPUTS_MAX: usize = 6;

/// What is tried.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Trying {
    /// The type that elements are of; else they are taken for whatever built-in types fit into them.
    pub dtype: Option<DType>,
    /// What random values are drawn from.
    pub seed: u64,
    /// How often all is tried, each time with other random values.
    pub trials: u32,
    /// By how much results of floats may differ between orders, as a part of the largest of an element's contributions and results. Without it
    /// by a few units of the type's precision. Integers may not differ.
    pub tolerance: Option<f64>,
}

impl Default for Trying {
    fn default() -> Self {
        Trying { dtype: None, seed: 0, trials: 1, tolerance: None }
    }
}

/// What an operator has come through.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Examined {
    /// How many reductions were tried.
    pub reductions: u64,
    /// How far results depend on the order of contributions.
    pub order: Order,
}

/// What an operator does that a job cannot bear. Vectors are named by how they are made, elements by their bytes in hexadecimal.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum Broken {
    /// It is stopped: a job with such vectors ends with an error.
    #[error("it fails on {given}{inputs}: {why}")]
    Fails {
        /// The vectors, and how many ranks gave them.
        given: String,
        /// What ranks contribute to an element that it fails on by itself, where there is one.
        inputs: String,
        /// What has failed.
        why: String,
    },
    /// It writes beside the elements that a call is for.
    #[error(
        "its {call} writes beside what it was given: of {given}, at byte {offset} of {vector} of {bytes} bytes; expected writes to the elements of the call only, as others may lie there"
    )]
    Strays {
        /// The vectors, and how many ranks gave them.
        given: String,
        /// The export that was called.
        call: &'static str,
        /// Where, from the first byte of the vector that is nearest.
        offset: i64,
        /// Which vector that is.
        vector: &'static str,
        /// How long it is.
        bytes: usize,
    },
    /// It remembers: which results ranks get depends on what a switch or a rank did before.
    #[error(
        "it keeps something from one block to the next: of {given}, element {element} is {fresh} from a new instance and {used} from {how}{inputs}; expected the same, as ranks and switches have instances of their own that do blocks in any order"
    )]
    Remembers {
        /// The vectors, and how many ranks gave them.
        given: String,
        /// The first element that differs.
        element: usize,
        /// What ranks contribute to it.
        inputs: String,
        /// What a new instance gives.
        fresh: String,
        /// What the other one gives.
        used: String,
        /// What the other one did before, or between.
        how: &'static str,
    },
    /// It looks at neighbours, or at how many elements it is given.
    #[error(
        "an element's result depends on how vectors are cut: of {given}, element {element} is {whole} in one piece and {cut} in two{inputs}; expected the same, as packets and shared memory cut vectors at other places"
    )]
    Cut {
        /// The vectors, and how many ranks gave them.
        given: String,
        /// The first element that differs.
        element: usize,
        /// What ranks contribute to it.
        inputs: String,
        /// Its result in one piece.
        whole: String,
        /// Its result in two.
        cut: String,
    },
    /// It is not commutative, or not associative.
    #[error(
        "its result depends on the order of contributions, by more than rounding: of {given}, element {element} is {one} in one order and {other} in {how}{inputs}; expected a commutative and associative operator, as contributions are combined in the order in which they arrive"
    )]
    Order {
        /// The vectors, and how many ranks gave them.
        given: String,
        /// The first element that differs.
        element: usize,
        /// What ranks contribute to it.
        inputs: String,
        /// Its result in the order of ranks.
        one: String,
        /// Its result in another order.
        other: String,
        /// Which one.
        how: &'static str,
    },
}

/// Examines an operator. Where a type is given, every sum of values of that type must be as it should.
///
/// # Errors
/// The first thing that is [`Broken`].
pub fn examine(operator: &CustomOperator, trying: &Trying) -> Result<Examined, Broken> {
    let faults = || Faults::default();
    let fresh = || {
        let faults = faults();
        (operator.op(&faults), faults)
    };
    let mut examiner = Examiner::new(fresh, *trying);
    examiner.stays_in_place(operator)?;
    examiner.examine()
}

/// `make` gives an instance that has done nothing yet, and where it says why it failed.
struct Examiner<F> {
    make: F,
    element_bytes: usize,
    values: Values,
    used: (CustomOp, Faults),
    reductions: u64,
    trying: Trying,
    /// Which trial runs, from 0, and what its values are drawn from.
    trial: u32,
    seed: u64,
}

impl<F: Fn() -> (CustomOp, Faults)> Examiner<F> {
    fn new(make: F, trying: Trying) -> Self {
        let used = make();
        let element_bytes = used.0.0.layout().element_bytes;
        let values = Values::new(element_bytes, trying.dtype);
        Examiner { make, element_bytes, values, used, reductions: 0, trying, trial: 0, seed: trying.seed }
    }

    fn examine(mut self) -> Result<Examined, Broken> {
        let mut order = Order::Exact;
        for trial in 0..self.trying.trials.max(1) {
            (self.trial, self.seed) = (trial, if trial == 0 { self.trying.seed } else { mix(self.trying.seed, u64::from(trial)) });
            order = order.max(self.try_all()?);
        }
        Ok(Examined { reductions: self.reductions, order })
    }

    fn try_all(&mut self) -> Result<Order, Broken> {
        let packet = (LENGTHS[0] / self.element_bytes).max(2);
        for sample in self.values.all() {
            for ranks in [1, 2, RANKS] {
                self.is_steady(&sample, packet, ranks)?;
            }
            self.is_steady(&sample, 1, RANKS)?;
            self.keeps_blocks_apart(&sample, packet)?;
        }
        let (first, noise) = (self.values.plain(), Sample::NOISE);
        self.is_steady(&first, (LENGTHS[1] / self.element_bytes).max(3), 2)?;
        self.is_steady(&noise, (LENGTHS[1] / self.element_bytes).max(3), 2)?;
        self.is_steady(&first, 3, CROWD)?;
        for sample in self.values.comparable() {
            self.may_be_cut(&sample, packet)?;
        }
        self.in_any_order(packet)
    }

    /// Nothing is written beside the elements of a call, of one element and of more.
    fn stays_in_place(&mut self, operator: &CustomOperator) -> Result<(), Broken> {
        for sample in self.values.all() {
            for elements in [1, 5] {
                let vectors = self.vectors(&sample, elements, 2);
                self.reductions += 1;
                if let Some(Stray { call, offset, vector }) = operator.stray([&vectors[0], &vectors[1]]) {
                    let layout = operator.layout();
                    let bytes = elements * if vector == "elements" { layout.element_bytes } else { layout.accumulator_bytes };
                    return Err(Broken::Strays { given: self.given(&sample, &vectors), call, offset, vector, bytes });
                }
            }
        }
        Ok(())
    }

    /// A new instance and one that has done everything before give the same bits, and neither fails.
    fn is_steady(&mut self, sample: &Sample, elements: usize, ranks: usize) -> Result<(), Broken> {
        let vectors = self.vectors(sample, elements, ranks);
        let fresh = self.fresh(sample, &vectors)?;
        let mut result = vec![0; fresh.len()];
        let worked = reduce(&mut self.used.0, vectors.iter().map(Vec::as_slice), ranks, &mut result);
        worked.map_err(|()| self.fails(sample, &vectors, &self.used.1))?;
        self.remembered(sample, &vectors, &fresh, &result, "one that has done others before")
    }

    /// Two blocks that one instance does at once, a contribution of the one after one of the other, are those that two instances give.
    fn keeps_blocks_apart(&mut self, sample: &Sample, elements: usize) -> Result<(), Broken> {
        let (a, b) = (self.vectors(sample, elements, 3), self.vectors(&Sample::ZEROS, elements, 3));
        let expected = [self.fresh(sample, &a)?, self.fresh(&Sample::ZEROS, &b)?];
        let (mut op, faults) = (self.make)();
        let got = together(&mut op, [&a, &b]).map_err(|()| self.fails(sample, &a, &faults))?;
        let how = "one that does two blocks at once";
        self.remembered(sample, &a, &expected[0], &got[0], how)?;
        self.remembered(&Sample::ZEROS, &b, &expected[1], &got[1], how)
    }

    /// A vector in two pieces gives what it gives in one.
    fn may_be_cut(&mut self, sample: &Sample, elements: usize) -> Result<(), Broken> {
        let vectors = self.vectors(sample, elements, RANKS);
        let whole = self.fresh(sample, &vectors)?;
        for at in [1, elements / 2, elements - 1] {
            let at = at * self.element_bytes;
            let mut cut = Vec::with_capacity(whole.len());
            for piece in [0..at, at..whole.len()] {
                let pieces: Vec<Vec<u8>> = vectors.iter().map(|vector| vector[piece.clone()].to_vec()).collect();
                cut.extend(self.fresh(sample, &pieces)?);
            }
            if let Some(element) = differs(&whole, &cut, self.element_bytes, same_but_for_nans) {
                let (whole, cut) = (self.shown(&whole, element), self.shown(&cut, element));
                let inputs = self.inputs(&vectors, element);
                return Err(Broken::Cut { given: self.given(sample, &vectors), element, inputs, whole, cut });
            }
        }
        Ok(())
    }

    /// Contributions in other orders give the same, but for rounding, for one type at least that elements may be of.
    fn in_any_order(&mut self, elements: usize) -> Result<Order, Broken> {
        let (mut agreed, mut first) = (None::<Order>, None);
        for dtype in self.values.types() {
            let mut all = Some(Order::Exact);
            for sample in self.values.of_type(dtype) {
                match self.orders(&sample, dtype, elements)? {
                    Ok(order) => all = all.map(|all| all.max(order)),
                    Err(broken) => {
                        all = None;
                        first.get_or_insert(broken);
                    }
                }
            }
            agreed = match (agreed, all) {
                (Some(one), Some(other)) => Some(one.max(other)),
                (one, other) => one.or(other),
            };
        }
        match (agreed, first) {
            (Some(order), _) => Ok(order),
            (None, Some(broken)) => Err(broken),
            // Elements for which there is no type at all cannot be: a byte is one.
            (None, None) => Ok(Order::Exact),
        }
    }

    /// The inner error is a difference that is more than rounding, of elements of this type.
    fn orders(&mut self, sample: &Sample, dtype: DType, elements: usize) -> Result<Result<Order, Broken>, Broken> {
        let vectors = self.vectors(sample, elements, RANKS);
        let one = self.fresh(sample, &vectors)?;
        let mut worst = Order::Exact;
        let mut others = Vec::new();
        for order in order::PERMUTATIONS {
            let permuted: Vec<Vec<u8>> = order.iter().map(|rank| vectors[*rank].clone()).collect();
            others.push((self.fresh(sample, &permuted)?, "another"));
        }
        if let Some(grouped) = self.grouped(sample, &vectors)? {
            others.push((grouped, "pairs first"));
        }
        for (other, how) in others {
            match agreement(dtype, (&one, &other), &vectors, self.trying.tolerance) {
                Ok(order) => worst = worst.max(order),
                Err(lane) => {
                    let element = lane * dtype.bytes() / self.element_bytes;
                    let (one, other, inputs) = (self.shown(&one, element), self.shown(&other, element), self.inputs(&vectors, element));
                    return Ok(Err(Broken::Order { given: self.given(sample, &vectors), element, inputs, one, other, how }));
                }
            }
        }
        Ok(Ok(worst))
    }

    /// Two pairs, and what they give combined with the rest, as several switches do; `None` where a result is nothing to contribute: where there
    /// is a `finish`, or an `init` that is no copy.
    fn grouped(&mut self, sample: &Sample, vectors: &[Vec<u8>]) -> Result<Option<Vec<u8>>, Broken> {
        let op = &self.used.0.0;
        if op.layout().is_beside() || op.finishes() || self.fresh(sample, &vectors[..1])? != vectors[0] {
            return Ok(None);
        }
        let (first, second) = (self.fresh(sample, &vectors[..2])?, self.fresh(sample, &vectors[2..4])?);
        let parts: Vec<Vec<u8>> = [first, second].into_iter().chain(vectors[4..].iter().cloned()).collect();
        self.fresh(sample, &parts).map(Some)
    }

    fn vectors(&self, sample: &Sample, elements: usize, ranks: usize) -> Vec<Vec<u8>> {
        (0..ranks).map(|rank| sample.vector(self.seed, rank as u64, elements * self.element_bytes)).collect()
    }

    /// What an instance that has done nothing yet makes of these vectors.
    fn fresh(&mut self, sample: &Sample, vectors: &[Vec<u8>]) -> Result<Vec<u8>, Broken> {
        self.reductions += 1;
        let (mut op, faults) = (self.make)();
        let mut result = vec![0; vectors[0].len()];
        let worked = reduce(&mut op, vectors.iter().map(Vec::as_slice), vectors.len(), &mut result);
        worked.map(|()| result).map_err(|()| self.fails(sample, vectors, &faults))
    }

    fn fails(&self, sample: &Sample, vectors: &[Vec<u8>], faults: &Faults) -> Broken {
        let why = faults.first().unwrap_or("it gives an error").to_owned();
        let inputs = self
            .failing_alone(vectors)
            .map_or_else(String::new, |element| format!(", as of element {element}{}", self.inputs(vectors, element)));
        Broken::Fails { given: self.given(sample, vectors), inputs, why }
    }

    /// The first element that it fails on by itself.
    fn failing_alone(&self, vectors: &[Vec<u8>]) -> Option<usize> {
        let width = self.element_bytes;
        (0..(vectors[0].len() / width).min(ALONE_MAX)).find(|element| {
            let at = element * width..(element + 1) * width;
            let inputs = vectors.iter().map(|vector| &vector[at.clone()]);
            reduce(&mut (self.make)().0, inputs, vectors.len(), &mut vec![0; width]).is_err()
        })
    }

    /// What the ranks contribute to an element, in their order.
    fn inputs(&self, vectors: &[Vec<u8>], element: usize) -> String {
        let shown: Vec<String> = vectors.iter().take(INPUTS_MAX).map(|vector| self.shown(vector, element)).collect();
        let more = if vectors.len() > INPUTS_MAX { ", .." } else { "" };
        format!(" (contributions by rank: {}{more})", shown.join(", "))
    }

    /// The vectors in words.
    fn given(&self, sample: &Sample, vectors: &[Vec<u8>]) -> String {
        let (elements, ranks) = (vectors[0].len() / self.element_bytes, vectors.len());
        let trial = if self.trial == 0 { String::new() } else { format!(", trial {}", self.trial) };
        format!("{sample} ({elements} {} of {ranks} {}{trial})", plural(elements, "element"), plural(ranks, "rank"))
    }

    fn remembered(&self, sample: &Sample, vectors: &[Vec<u8>], fresh: &[u8], used: &[u8], how: &'static str) -> Result<(), Broken> {
        let Some(element) = differs(fresh, used, self.element_bytes, |one, other| one == other) else { return Ok(()) };
        let (fresh, used) = (self.shown(fresh, element), self.shown(used, element));
        let inputs = self.inputs(vectors, element);
        Err(Broken::Remembers { given: self.given(sample, vectors), element, inputs, fresh, used, how })
    }

    /// An element's bytes, the first of them where they are many.
    fn shown(&self, vector: &[u8], element: usize) -> String {
        let bytes = &vector[element * self.element_bytes..][..self.element_bytes];
        let shown: String = bytes.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        if bytes.len() > 16 { format!("{shown}..") } else { shown }
    }
}

fn plural(count: usize, word: &str) -> String {
    if count == 1 { word.into() } else { format!("{word}s") }
}

/// The first element that is not the same.
fn differs(one: &[u8], other: &[u8], element_bytes: usize, same: impl Fn(&[u8], &[u8]) -> bool) -> Option<usize> {
    one.chunks_exact(element_bytes).zip(other.chunks_exact(element_bytes)).position(|(one, other)| !same(one, other))
}

fn reduce<'a>(op: &mut CustomOp, inputs: impl Iterator<Item = &'a [u8]>, ranks: usize, result: &mut [u8]) -> Result<(), ()> {
    op.reduce_all(ranks as u32, inputs, &mut Vec::new(), result).map_err(|_| ())
}

/// Results of two blocks to which contributions come in turns.
fn together(op: &mut CustomOp, blocks: [&[Vec<u8>]; 2]) -> Result<[Vec<u8>; 2], ()> {
    let layout = op.0.layout();
    let kernel = &mut op.0;
    let elements = blocks[0][0].len() / layout.element_bytes;
    let mut accumulators = [(); 2].map(|()| vec![0; elements * layout.accumulator_bytes]);
    for turn in 0..blocks[0].len() {
        for (block, accumulator) in blocks.iter().zip(&mut accumulators) {
            let worked = if turn == 0 { kernel.begin(accumulator, &block[0]) } else { kernel.combine(accumulator, &block[turn]) };
            worked.map_err(|_| ())?;
        }
    }
    let ranks = blocks[0].len() as u32;
    let mut results = [(); 2].map(|()| vec![0; elements * layout.element_bytes]);
    for (accumulator, result) in accumulators.iter().zip(&mut results) {
        if !layout.is_beside() {
            result.copy_from_slice(accumulator);
        }
        if kernel.finishes() {
            kernel.finish(layout.is_beside().then_some(accumulator), result, ranks).map_err(|_| ())?;
        }
    }
    Ok(results)
}

#[cfg(test)]
mod tests;
