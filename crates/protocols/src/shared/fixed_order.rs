//! A block's sum over a tree whose shape is fixed, so that floats come out the same whatever comes first (`flare 4.3`).
//!
//! Child c is leaf c (`flare P7`: a place by order of arrival would make the sum depend on it). Neighbours are added, left + right, then
//! neighbours of these sums; the last one of an odd number goes up a level as it is. For five children:
//!
//! ```text
//!                    ((0+1)+(2+3))+4
//!                   /               \
//!          (0+1)+(2+3)               4
//!          /         \               |
//!        0+1         2+3             4
//!        / \         / \             |
//!       0   1       2   3            4
//! ```
//!
//! Who comes second of two neighbours adds the pair and goes on upwards; who comes first waits in a [buffer](TreeBuffers). Which additions
//! are done, and with which operand on which side, depends on the number of children alone, so the bits of the sum do not depend on the
//! order of arrival. That takes one switch, or several whose parts of the tree are fixed: where the children of a switch change, as in
//! Canary, it is no longer one tree.
//!
//! **Buffers.** An addition is done in the left operand's buffer, and the right one's is free again. Between two packets at most
//! ceil(P/2) buffers of P children are taken, as many as every other leaf waiting, and one more while a left neighbour is added to a right
//! one that waited ([`TreeBuffers::needed`]). With contributions in random order, and a moment before the first and after each of them,
//! the average for P = 2^m is
//!
//! ```text
//! sum over l < m of P/2^l (1/(2^l + 1) - 1/(2^(l+1) + 1)), and 1/(P + 1) for the root
//! ```
//!
//! as of 2^l leaves all have come with probability 1/(2^l + 1). That is 2.2 for 8 children, 4.3 for 16 and 17 for 64: about P/4. `flare 6`
//! says (P - 1)/log2 P, which is 2.3, 3.8 and 10.5: the same up to P = 8, and too few beyond that. Where packets come in the children's
//! order, log2 P are enough.

use fanin_core::{OpError, Payload};

use crate::shared::state::node_state;

/// Accumulators that the blocks of a job take and give back.
pub struct TreeBuffers<P: Payload + ?Sized> {
    free: Vec<P::Acc>,
    count: usize,
    /// Most that were taken at once.
    most: usize,
}

node_state!(TreeBuffers { free, count, most });

impl<P: Payload + ?Sized> TreeBuffers<P> {
    /// So many buffers for blocks of at most `block_bytes` bytes.
    pub fn new(count: usize, op: &P::Op, block_bytes: usize) -> Self {
        TreeBuffers { free: (0..count).map(|_| P::accumulator(op, block_bytes)).collect(), count, most: 0 }
    }

    /// How many buffers are always enough for `blocks` blocks at once with `children` children each. A block that is complete has one
    /// until it is cleared.
    pub const fn needed(blocks: usize, children: u32) -> usize {
        // The last one is for a left neighbour, for the length of an addition.
        blocks * children.div_ceil(2) as usize + 1
    }

    /// Buffers that are taken.
    pub fn taken(&self) -> usize {
        self.count - self.free.len()
    }

    /// The most that were taken at once so far.
    pub fn most_taken(&self) -> usize {
        self.most
    }

    fn take(&mut self) -> Option<P::Acc> {
        let buffer = self.free.pop();
        self.most = self.most.max(self.taken());
        buffer
    }

    fn give_back(&mut self, buffer: P::Acc) {
        self.free.push(buffer);
    }
}

/// What a contribution did.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Placed {
    /// It waits for its neighbour, or a sum that it is in does.
    Waiting,
    /// This child has contributed before; nothing has changed.
    Repeated,
    /// It was the last one: [`FixedOrderTree::sum`] is there.
    Completed,
}

/// Why a contribution was not taken. The tree is as it was.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NotPlaced {
    /// There is no such child.
    NoChild {
        /// Children there are.
        children: u32,
    },
    /// All buffers are taken: other blocks must end first. Does not happen with [as many as needed](TreeBuffers::needed).
    NoBuffer,
    /// It does not go with the operator, or is not as long as the contributions before it.
    Op(OpError),
}

/// A sum that waits, or is the result.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Held<A> {
    acc: A,
    is_left: bool,
}

/// The tree of one block. Memory is sized when it is made; [`clear`](FixedOrderTree::clear) makes it new for the next block.
pub struct FixedOrderTree<P: Payload + ?Sized> {
    children: u32,
    /// One for each pair of neighbours, level by level from the leaves on: the one of the two that waits.
    waiting: Box<[Option<Held<P::Acc>>]>,
    root: Option<P::Acc>,
    /// Bit c: child c has contributed.
    arrived: Box<[u64]>,
    missing: u32,
    /// The length of all contributions, from the first one on.
    bytes: usize,
}

node_state!(FixedOrderTree { children, waiting, root, arrived, missing, bytes });

/// Where the next neighbour is looked for, on the way up.
#[derive(Clone, Copy)]
struct Place {
    index: u32,
    /// Nodes on this level.
    width: u32,
    /// Where the pairs of this level begin.
    pairs: u32,
}

impl Place {
    /// The next level on which this node has a neighbour, and which pair that is; none at the root.
    fn pair(&mut self) -> Option<u32> {
        while self.width > 1 {
            if self.index ^ 1 < self.width {
                return Some(self.pairs + self.index / 2);
            }
            self.rise();
        }
        None
    }

    fn is_left(self) -> bool {
        self.index.is_multiple_of(2)
    }

    fn rise(&mut self) {
        self.pairs += self.width / 2;
        (self.index, self.width) = (self.index / 2, self.width.div_ceil(2));
    }
}

impl<P: Payload + ?Sized> FixedOrderTree<P> {
    /// A tree of `children` leaves, from which nothing has come; there is room for fewer, too.
    ///
    /// # Panics
    /// Without children.
    pub fn new(children: u32) -> Self {
        assert!(children > 0, "a tree has at least one child");
        FixedOrderTree {
            children,
            // Every addition leaves one fewer to be added.
            waiting: (1..children).map(|_| None).collect(),
            root: None,
            arrived: vec![0; children.div_ceil(64) as usize].into(),
            missing: children,
            bytes: 0,
        }
    }

    /// The contribution of a child.
    ///
    /// # Errors
    /// [`NotPlaced`], with nothing changed.
    pub fn on_contribution(&mut self, child: u32, payload: &P, buffers: &mut TreeBuffers<P>, op: &mut P::Op) -> Result<Placed, NotPlaced> {
        if child >= self.children {
            return Err(NotPlaced::NoChild { children: self.children });
        }
        if self.has_arrived(child) {
            return Ok(Placed::Repeated);
        }
        if self.missing < self.children && payload.bytes() != self.bytes {
            return Err(NotPlaced::Op(OpError::Length { expected: self.bytes, got: payload.bytes() }));
        }
        let mut place = Place { index: child, width: self.children, pairs: 0 };
        let sum = self.first_sum(&mut place, payload, buffers, op)?;
        self.arrived[child as usize / 64] |= 1 << (child % 64);
        self.missing -= 1;
        self.bytes = payload.bytes();
        self.climb(place, sum, buffers, op).map_err(NotPlaced::Op)
    }

    /// A leaf, added to its neighbour where that is there: the place and the sum to go on with.
    fn first_sum(&mut self, place: &mut Place, payload: &P, buffers: &mut TreeBuffers<P>, op: &mut P::Op) -> Result<P::Acc, NotPlaced> {
        let neighbour = place.pair().and_then(|pair| self.waiting[pair as usize].take().map(|held| (pair, held)));
        let (added, pair, held) = match neighbour {
            // The usual case: a packet is added to what waits, without a buffer of its own.
            Some((pair, mut held)) if held.is_left => (payload.reduce(&mut held.acc, op), pair, held),
            Some((pair, held)) => match self.leaf(payload, buffers, op) {
                Ok(mut left) => {
                    let added = P::view(&held.acc).reduce(&mut left, op);
                    let (keep, free) = if added.is_ok() { (left, held.acc) } else { (held.acc, left) };
                    buffers.give_back(free);
                    (added, pair, Held { acc: keep, is_left: false })
                }
                Err(error) => {
                    self.waiting[pair as usize] = Some(held);
                    return Err(error);
                }
            },
            None => return self.leaf(payload, buffers, op),
        };
        match added {
            Ok(()) => {
                place.rise();
                Ok(held.acc)
            }
            Err(error) => {
                self.waiting[pair as usize] = Some(held);
                Err(NotPlaced::Op(error))
            }
        }
    }

    /// A buffer with a contribution in it.
    fn leaf(&self, payload: &P, buffers: &mut TreeBuffers<P>, op: &mut P::Op) -> Result<P::Acc, NotPlaced> {
        let mut buffer = buffers.take().ok_or(NotPlaced::NoBuffer)?;
        match payload.assign(&mut buffer, op) {
            Ok(()) => Ok(buffer),
            Err(error) => {
                buffers.give_back(buffer);
                Err(NotPlaced::Op(error))
            }
        }
    }

    /// Goes up as far as neighbours are there. Lengths are alike and the operator has added the leaves, or none of them: it adds these, too.
    fn climb(&mut self, mut place: Place, mut sum: P::Acc, buffers: &mut TreeBuffers<P>, op: &mut P::Op) -> Result<Placed, OpError> {
        while let Some(pair) = place.pair() {
            let waiting = &mut self.waiting[pair as usize];
            let Some(held) = waiting.take() else {
                *waiting = Some(Held { acc: sum, is_left: place.is_left() });
                return Ok(Placed::Waiting);
            };
            let (mut left, right) = if held.is_left { (held.acc, sum) } else { (sum, held.acc) };
            let added = P::view(&right).reduce(&mut left, op);
            buffers.give_back(right);
            if let Err(error) = added {
                buffers.give_back(left);
                return Err(error);
            }
            sum = left;
            place.rise();
        }
        self.root = Some(sum);
        Ok(Placed::Completed)
    }

    /// The sum of all contributions, when it is there. Not [finished](Payload::finish).
    pub fn sum(&self) -> Option<&P::Acc> {
        self.root.as_ref()
    }

    /// The same, to be finished where the operator needs that.
    pub fn sum_mut(&mut self) -> Option<&mut P::Acc> {
        self.root.as_mut()
    }

    /// Whether a child has contributed.
    pub fn has_arrived(&self, child: u32) -> bool {
        self.arrived.get(child as usize / 64).is_some_and(|word| word >> (child % 64) & 1 == 1)
    }

    /// Children that have not contributed.
    pub fn missing(&self) -> u32 {
        self.missing
    }

    /// The first child that has not contributed.
    pub fn first_missing(&self) -> Option<u32> {
        (0..self.children).find(|child| !self.has_arrived(*child))
    }

    /// The tree of another block, of at most as many leaves as it was made for, from which nothing has come.
    pub fn begin(&mut self, children: u32, buffers: &mut TreeBuffers<P>) {
        debug_assert!(children > 0 && children as usize <= self.waiting.len() + 1, "a tree of 1 to {} leaves", self.waiting.len() + 1);
        self.clear(buffers);
        (self.children, self.missing) = (children, children);
    }

    /// Gives all buffers back: nothing has come, as when it was made.
    pub fn clear(&mut self, buffers: &mut TreeBuffers<P>) {
        self.waiting.iter_mut().filter_map(Option::take).for_each(|held| buffers.give_back(held.acc));
        self.root.take().into_iter().for_each(|sum| buffers.give_back(sum));
        self.arrived.fill(0);
        (self.missing, self.bytes) = (self.children, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanin_core::hash::mix;
    use fanin_core::{Census, DType, ElementOp, Operator, PayloadOp};

    const ELEMENTS: usize = 16;

    /// Floats of both signs and of exponents that differ enough for most orders of additions to round differently; among them, at some
    /// places, zeros of both signs, infinities and NaNs that can be told apart.
    fn contribution(seed: u64, child: u32) -> Vec<u8> {
        let value = |index: usize| {
            let bits = mix(seed ^ u64::from(child) << 32, index as u64);
            let float = f32::from_bits((bits as u32 & 0x807f_ffff) | (120 + (bits >> 32) as u32 % 16) << 23);
            match (index, bits >> 40 & 3) {
                (0, 0) => f32::INFINITY,
                (1, 0) => f32::from_bits(0x7fc0_0000 | child),
                (2, sign) => {
                    if sign & 1 == 0 {
                        0.0
                    } else {
                        -0.0
                    }
                }
                _ => float,
            }
        };
        (0..ELEMENTS).flat_map(|index| value(index).to_le_bytes()).collect()
    }

    /// Level by level, as the definition says.
    fn reference(op: ElementOp, contributions: &[Vec<u8>]) -> Vec<u8> {
        let mut level = contributions.to_vec();
        while level.len() > 1 {
            level = level
                .chunks(2)
                .map(|pair| {
                    let mut sum = pair[0].clone();
                    pair.get(1).into_iter().for_each(|right| op.reduce(&mut sum, right).expect("as long"));
                    sum
                })
                .collect();
        }
        level.remove(0)
    }

    /// All children, in an order that depends on the seed.
    fn order(children: u32, seed: u64) -> Vec<u32> {
        let mut order: Vec<u32> = (0..children).collect();
        for last in (1..order.len()).rev() {
            order.swap(last, (mix(seed, last as u64) % (last as u64 + 1)) as usize);
        }
        order
    }

    type Tree = FixedOrderTree<[u8]>;

    fn run(tree: &mut Tree, buffers: &mut TreeBuffers<[u8]>, contributions: &[Vec<u8>], order: &[u32], op: ElementOp) -> Vec<u8> {
        for (step, &child) in order.iter().enumerate() {
            let placed = tree.on_contribution(child, &contributions[child as usize], buffers, &mut PayloadOp::from(op));
            let expected = if step + 1 == order.len() { Placed::Completed } else { Placed::Waiting };
            assert_eq!(placed, Ok(expected), "step {step} of {order:?}");
        }
        let sum = tree.sum().expect("it is complete").as_bytes().to_vec();
        tree.clear(buffers);
        sum
    }

    #[test]
    fn thousands_of_orders_give_the_same_bits() {
        let op = ElementOp::F32_SUM;
        let mut in_order_of_arrival = 0;
        for children in (1..=17).chain([31, 33, 64, 100]) {
            let contributions: Vec<Vec<u8>> = (0..children).map(|child| contribution(9, child)).collect();
            let expected = reference(op, &contributions);
            // Never more buffers than are said to be needed.
            let mut buffers = TreeBuffers::new(TreeBuffers::<[u8]>::needed(1, children), &op.into(), 4 * ELEMENTS);
            let mut tree = Tree::new(children);
            for seed in 0..300 {
                let order = order(children, seed);
                let sum = run(&mut tree, &mut buffers, &contributions, &order, op);
                assert_eq!(sum, expected, "{children} children, order {order:?}");
                assert_eq!((buffers.taken(), &tree), (0, &Tree::new(children)));
                let mut plain = contributions[order[0] as usize].clone();
                order[1..].iter().for_each(|child| op.reduce(&mut plain, &contributions[*child as usize]).expect("as long"));
                in_order_of_arrival += usize::from(plain == expected);
            }
        }
        // Additions as packets come give other bits in nearly all of the 6,300 orders, so that the same bits above are no accident.
        assert!(in_order_of_arrival < 1_200, "{in_order_of_arrival}");
    }

    #[test]
    fn every_type_and_operator_has_the_bits_of_the_definition() {
        for op in ElementOp::all() {
            let wide = op.dtype.is_widened();
            for children in [1, 2, 5, 8] {
                let contributions: Vec<Vec<u8>> = (0..children).map(|child| contribution(3, child)).collect();
                let mut buffers = TreeBuffers::new(TreeBuffers::<[u8]>::needed(1, children), &op.into(), 4 * ELEMENTS);
                let sums: Vec<Vec<u8>> =
                    (0..40).map(|seed| run(&mut Tree::new(children), &mut buffers, &contributions, &order(children, seed), op)).collect();
                assert!(sums.iter().all(|sum| *sum == sums[0]), "{op:?}, {children} children");
                // 16-bit floats are added up in binary32, of which only the right operands are rounded.
                assert!(wide || sums[0] == reference(op, &contributions), "{op:?}, {children} children");
            }
        }
    }

    #[test]
    fn as_many_buffers_as_derived() {
        for children in [2u32, 4, 8, 16, 64] {
            let levels = (0..children.ilog2()).map(|level| f64::from(1 << level));
            let share = |leaves: f64| 1.0 / (leaves + 1.0);
            let derived: f64 = levels.map(|leaves| f64::from(children) / leaves * (share(leaves) - share(2.0 * leaves))).sum();
            let derived = derived + share(f64::from(children));
            let mut buffers = TreeBuffers::<Census>::new(TreeBuffers::<Census>::needed(1, children), &(), 8);
            let mut tree = FixedOrderTree::<Census>::new(children);
            let (mut taken, mut moments, mut most) = (0, 0, 0);
            for seed in 0..2_000 {
                moments += 1;
                for child in order(children, seed) {
                    tree.on_contribution(child, &Census::new(8, 1), &mut buffers, &mut ()).expect("there are enough");
                    (taken, moments, most) = (taken + buffers.taken(), moments + 1, most.max(buffers.taken()));
                }
                tree.clear(&mut buffers);
            }
            let average = taken as f64 / f64::from(moments);
            assert!((average / derived - 1.0).abs() < 0.03, "{children} children: {average}, derived {derived}");
            let flare = f64::from(children - 1) / libm::log2(f64::from(children));
            assert!(children > 8 || (average / flare - 1.0).abs() < 0.35, "{children} children: {average}, `flare 6` {flare}");
            assert!(most <= children.div_ceil(2) as usize);
        }
    }

    #[test]
    fn every_other_leaf_takes_most_buffers_and_the_childrens_order_few() {
        for children in 1..40u32 {
            let most = |order: Vec<u32>| {
                let mut buffers = TreeBuffers::<Census>::new(children as usize, &(), 8);
                let mut tree = FixedOrderTree::<Census>::new(children);
                for child in order {
                    tree.on_contribution(child, &Census::new(8, 1), &mut buffers, &mut ()).expect("one for each child");
                }
                assert_eq!((buffers.taken(), tree.missing(), tree.first_missing()), (1, 0, None));
                buffers.most_taken()
            };
            let evens = (0..children).step_by(2).chain((1..children).step_by(2)).collect();
            assert_eq!(most(evens), children.div_ceil(2) as usize, "{children} children");
            // As many as a binary counter has ones before the last child, which is added to one that waits.
            let ones = (1..children.max(2)).map(|arrived| arrived.count_ones() as usize).max();
            assert_eq!(Some(most((0..children).collect())), ones, "{children} children");
            // Nothing takes more than that and one, whatever comes first.
            for seed in 0..50 {
                assert!(most(order(children, seed)) <= TreeBuffers::<Census>::needed(1, children));
            }
        }
    }

    #[test]
    fn what_is_wrong_is_refused_and_changes_nothing() {
        let op = &mut PayloadOp::from(ElementOp::F32_SUM);
        let mut buffers = TreeBuffers::<[u8]>::new(2, op, 8);
        let mut tree = Tree::new(5);
        assert_eq!(tree.on_contribution(1, &[0; 8], &mut buffers, op), Ok(Placed::Waiting));
        let before = (tree.clone(), buffers.clone());
        assert_eq!(tree.on_contribution(5, &[0; 8], &mut buffers, op), Err(NotPlaced::NoChild { children: 5 }));
        assert_eq!(tree.on_contribution(1, &[1; 8], &mut buffers, op), Ok(Placed::Repeated));
        for child in [0, 2, 4] {
            let length = Err(NotPlaced::Op(OpError::Length { expected: 8, got: 4 }));
            assert_eq!(tree.on_contribution(child, &[0; 4], &mut buffers, op), length);
        }
        for child in [0, 2] {
            let mut bits = PayloadOp::from(ElementOp { dtype: DType::F32, operator: Operator::Xor });
            let placed = tree.clone().on_contribution(child, &[0; 8], &mut buffers.clone(), &mut bits);
            assert_eq!(placed, if child == 0 { Err(NotPlaced::Op(OpError::Unsupported)) } else { Ok(Placed::Waiting) });
        }
        assert_eq!((&tree, &buffers), (&before.0, &before.1));
        // Too long for a buffer, as the first one.
        let (mut other, too_long) = (Tree::new(2), NotPlaced::Op(OpError::Length { expected: 8, got: 12 }));
        assert_eq!(other.on_contribution(0, &[0; 12], &mut buffers, op), Err(too_long));
        assert_eq!((other, buffers.taken()), (Tree::new(2), 1));
    }

    #[test]
    fn without_a_buffer_a_contribution_can_come_again() {
        let op = &mut PayloadOp::from(ElementOp::F32_SUM);
        let contributions: Vec<Vec<u8>> = (0..4).map(|child| contribution(5, child)).collect();
        let mut buffers = TreeBuffers::<[u8]>::new(2, op, 4 * ELEMENTS);
        let mut tree = Tree::new(4);
        let mut give =
            |tree: &mut Tree, buffers: &mut _, child: u32| tree.on_contribution(child, &contributions[child as usize], buffers, op);
        assert_eq!(give(&mut tree, &mut buffers, 1), Ok(Placed::Waiting));
        assert_eq!(give(&mut tree, &mut buffers, 3), Ok(Placed::Waiting));
        let full = (tree.clone(), buffers.clone());
        assert_eq!(give(&mut tree, &mut buffers, 2), Err(NotPlaced::NoBuffer));
        assert_eq!((&tree, &buffers), (&full.0, &full.1));
        let mut more = TreeBuffers::<[u8]>::new(1, &ElementOp::F32_SUM.into(), 4 * ELEMENTS);
        assert_eq!(give(&mut tree, &mut more, 2), Ok(Placed::Waiting));
        assert_eq!(give(&mut tree, &mut more, 0), Ok(Placed::Completed));
        assert_eq!(tree.sum().expect("complete").as_bytes(), reference(ElementOp::F32_SUM, &contributions));
    }
}
