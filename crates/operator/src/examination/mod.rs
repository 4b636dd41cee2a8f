//! Whether an operator does what a job needs of it, found out by doing what a job does: first contributions, further ones and results, of
//! packets and of long stretches, in one instance and in two, of several blocks at once, in other orders and cut elsewhere.
//!
//! Nothing here proves that an operator is right. What it finds is wrong for certain, and comes with what shows it.

mod order;
mod values;

use fanin_core::{CustomOp, DType};

use crate::identity::Faults;
use crate::operator::CustomOperator;
pub use order::Order;
use order::{agreement, same_but_for_nans};
use values::{Sample, Values};

/// How many ranks contribute where their order is looked at.
const RANKS: usize = 5;
/// Bytes of elements in a packet, and in the longest stretch that ranks who share memory reduce at once, about.
const LENGTHS: [usize; 2] = [1 << 10, 64 << 10];
/// The most ranks that contribute to one element: more than a byte counts.
const CROWD: usize = 300;

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
    #[error("it fails on {given}: {why}")]
    Fails {
        /// The vectors, and how many ranks gave them.
        given: String,
        /// What has failed.
        why: String,
    },
    /// It remembers: which results ranks get depends on what a switch or a rank did before.
    #[error(
        "it keeps something from one block to the next: of {given}, element {element} is {fresh} from a new instance and {used} from {how}; expected the same, as ranks and switches have instances of their own that do blocks in any order"
    )]
    Remembers {
        /// The vectors, and how many ranks gave them.
        given: String,
        /// The first element that differs.
        element: usize,
        /// What a new instance gives.
        fresh: String,
        /// What the other one gives.
        used: String,
        /// What the other one did before, or between.
        how: &'static str,
    },
    /// It looks at neighbours, or at how many elements it is given.
    #[error(
        "an element's result depends on how vectors are cut: of {given}, element {element} is {whole} in one piece and {cut} in two; expected the same, as packets and shared memory cut vectors at other places"
    )]
    Cut {
        /// The vectors, and how many ranks gave them.
        given: String,
        /// The first element that differs.
        element: usize,
        /// Its result in one piece.
        whole: String,
        /// Its result in two.
        cut: String,
    },
    /// It is not commutative, or not associative.
    #[error(
        "its result depends on the order of contributions, by more than rounding: of {given}, element {element} is {one} in one order and {other} in another; expected a commutative and associative operator, as contributions are combined in the order in which they arrive"
    )]
    Order {
        /// The vectors, and how many ranks gave them.
        given: String,
        /// The first element that differs.
        element: usize,
        /// Its result in the order of ranks.
        one: String,
        /// Its result in another order.
        other: String,
    },
}

/// Examines an operator. Elements are taken for whatever built-in types fit into them, or for `dtype` only: then every sum of values of that
/// type must be as it should.
///
/// # Errors
/// The first thing that is [`Broken`].
pub fn examine(operator: &CustomOperator, dtype: Option<DType>) -> Result<Examined, Broken> {
    let faults = || Faults::default();
    let fresh = || {
        let faults = faults();
        (operator.op(&faults), faults)
    };
    Examiner::new(fresh, dtype).examine()
}

/// `make` gives an instance that has done nothing yet, and where it says why it failed.
struct Examiner<F> {
    make: F,
    element_bytes: usize,
    values: Values,
    used: (CustomOp, Faults),
    reductions: u64,
}

impl<F: Fn() -> (CustomOp, Faults)> Examiner<F> {
    fn new(make: F, dtype: Option<DType>) -> Self {
        let used = make();
        let element_bytes = used.0.0.layout().element_bytes;
        Examiner { make, element_bytes, values: Values::new(element_bytes, dtype), used, reductions: 0 }
    }

    fn examine(mut self) -> Result<Examined, Broken> {
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
        let order = self.in_any_order(packet)?;
        Ok(Examined { reductions: self.reductions, order })
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
                return Err(Broken::Cut { given: given(sample, &vectors, self.element_bytes), element, whole, cut });
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
        for order in order::PERMUTATIONS {
            let permuted: Vec<Vec<u8>> = order.iter().map(|rank| vectors[*rank].clone()).collect();
            let other = self.fresh(sample, &permuted)?;
            match agreement(dtype, &one, &other, &vectors) {
                Ok(order) => worst = worst.max(order),
                Err(lane) => {
                    let element = lane * dtype.bytes() / self.element_bytes;
                    let (one, other) = (self.shown(&one, element), self.shown(&other, element));
                    return Ok(Err(Broken::Order { given: given(sample, &vectors, self.element_bytes), element, one, other }));
                }
            }
        }
        Ok(Ok(worst))
    }

    fn vectors(&self, sample: &Sample, elements: usize, ranks: usize) -> Vec<Vec<u8>> {
        (0..ranks).map(|rank| sample.vector(rank as u64, elements * self.element_bytes)).collect()
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
        Broken::Fails { given: given(sample, vectors, self.element_bytes), why }
    }

    fn remembered(&self, sample: &Sample, vectors: &[Vec<u8>], fresh: &[u8], used: &[u8], how: &'static str) -> Result<(), Broken> {
        let Some(element) = differs(fresh, used, self.element_bytes, |one, other| one == other) else { return Ok(()) };
        let (fresh, used) = (self.shown(fresh, element), self.shown(used, element));
        Err(Broken::Remembers { given: given(sample, vectors, self.element_bytes), element, fresh, used, how })
    }

    /// An element's bytes, the first of them where they are many.
    fn shown(&self, vector: &[u8], element: usize) -> String {
        let bytes = &vector[element * self.element_bytes..][..self.element_bytes];
        let shown: String = bytes.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        if bytes.len() > 16 { format!("{shown}..") } else { shown }
    }
}

/// The vectors in words.
fn given(sample: &Sample, vectors: &[Vec<u8>], element_bytes: usize) -> String {
    let (elements, ranks) = (vectors[0].len() / element_bytes, vectors.len());
    format!("{sample} ({elements} {} of {ranks} {})", plural(elements, "element"), plural(ranks, "rank"))
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
