use fanin_core::{CustomKernel, CustomLayout, OpError};

use super::*;

/// Makes a result of an element.
type Finish = Option<fn(&mut [u8]) -> Result<(), OpError>>;

/// An operator of elements of `width` bytes.
type Combine = fn(&mut State, &mut [u8], &[u8]) -> Result<(), OpError>;

/// What an operator should not have.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    calls: u32,
    elements: usize,
    since_first: u32,
}

#[derive(Debug)]
struct Fake {
    width: usize,
    combine: Combine,
    finish: Finish,
    state: State,
}

impl CustomKernel for Fake {
    fn layout(&self) -> CustomLayout {
        CustomLayout { element_bytes: self.width, accumulator_bytes: self.width }
    }

    fn identity(&self) -> u64 {
        mix(0, self.width as u64)
    }

    fn begin(&mut self, accumulator: &mut [u8], input: &[u8]) -> Result<(), OpError> {
        self.state.since_first = 0;
        accumulator.copy_from_slice(input);
        Ok(())
    }

    fn combine(&mut self, accumulator: &mut [u8], input: &[u8]) -> Result<(), OpError> {
        self.state.calls += 1;
        self.state.since_first += 1;
        self.state.elements = accumulator.len() / self.width;
        let pairs = accumulator.chunks_exact_mut(self.width).zip(input.chunks_exact(self.width));
        pairs.into_iter().try_for_each(|(acc, input)| (self.combine)(&mut self.state, acc, input))
    }

    fn finish(&mut self, _: Option<&[u8]>, result: &mut [u8], _: u32) -> Result<(), OpError> {
        self.finish.map_or(Ok(()), |finish| result.chunks_exact_mut(self.width).try_for_each(finish))
    }

    fn finishes(&self) -> bool {
        self.finish.is_some()
    }

    fn fork(&self) -> Box<dyn CustomKernel> {
        Box::new(Fake { state: State::default(), ..*self })
    }
}

fn examine(width: usize, combine: Combine, finish: Finish) -> Result<Examined, Broken> {
    examine_as(width, combine, finish, None)
}

fn examine_as(width: usize, combine: Combine, finish: Finish, dtype: Option<DType>) -> Result<Examined, Broken> {
    examine_with(width, combine, finish, Trying { dtype, ..Trying::default() })
}

fn examine_with(width: usize, combine: Combine, finish: Finish, trying: Trying) -> Result<Examined, Broken> {
    let make = move || (CustomOp(Box::new(Fake { width, combine, finish, state: State::default() })), Faults::default());
    Examiner::new(make, trying).examine()
}

fn f32_of(bytes: &[u8]) -> f32 {
    f32::from_le_bytes(bytes.try_into().unwrap())
}

fn f64_of(bytes: &[u8]) -> f64 {
    f64::from_le_bytes(bytes.try_into().unwrap())
}

fn i32_of(bytes: &[u8]) -> i32 {
    i32::from_le_bytes(bytes.try_into().unwrap())
}

fn put<const N: usize>(acc: &mut [u8], bytes: [u8; N]) -> Result<(), OpError> {
    acc.copy_from_slice(&bytes);
    Ok(())
}

#[test]
fn good_operators_come_through() {
    let sum = examine(4, |_, acc, x| put(acc, (f32_of(acc) + f32_of(x)).to_le_bytes()), None).unwrap();
    assert!(matches!(sum.order, Order::Rounding { dtype: DType::F32, relative } if relative < 1e-6), "{sum:?}");
    let integers = examine(4, |_, acc, x| put(acc, i32_of(acc).wrapping_add(i32_of(x)).to_le_bytes()), None).unwrap();
    assert_eq!(integers.order, Order::Exact);
    let xor = examine(3, |_, acc, x| put(acc, [acc[0] ^ x[0], acc[1] ^ x[1], acc[2] ^ x[2]]), Some(|_| Ok(()))).unwrap();
    assert_eq!(xor.order, Order::Exact);
    // Without commuting bits of NaNs.
    let maximum = examine(8, |_, acc, x| put(acc, f64_of(acc).max(f64_of(x)).to_le_bytes()), None);
    assert_eq!(maximum.unwrap().order, Order::Exact);
    assert!(xor.reductions > 100, "{xor:?}");
}

#[test]
fn orders_that_matter_are_found() {
    let broken: [(usize, Combine); 4] = [
        (4, |_, acc, x| put(acc, i32_of(acc).wrapping_sub(i32_of(x)).to_le_bytes())),
        (4, |_, acc, x| put(acc, ((f32_of(acc) + f32_of(x)) / 2.0).to_le_bytes())),
        (1, |_, acc, x| put(acc, (acc[0] as i8).saturating_add(x[0] as i8).to_le_bytes())),
        (2, |_, _, _| Ok(())),
    ];
    for (index, (width, combine)) in broken.into_iter().enumerate() {
        let found = examine(width, combine, None);
        assert!(matches!(found, Err(Broken::Order { .. })), "{index}: {found:?}");
    }
}

#[test]
fn what_is_kept_is_found() {
    let every_third: Combine =
        |state, acc, x| put(acc, i32_of(acc).wrapping_add(i32_of(x)).wrapping_add(i32::from(state.calls.is_multiple_of(3))).to_le_bytes());
    // What begins anew with every block is seen where two blocks are done at once.
    let since_first: Combine =
        |state, acc, x| put(acc, i32_of(acc).wrapping_add(i32_of(x)).wrapping_add(state.since_first as i32).to_le_bytes());
    for (combine, how) in [(every_third, "before"), (since_first, "at once")] {
        let found = examine(4, combine, None).unwrap_err();
        assert!(found.to_string().contains(how) && matches!(found, Broken::Remembers { .. }), "{found}");
    }
}

#[test]
fn what_depends_on_the_length_of_a_packet_is_found() {
    let found =
        examine(4, |state, acc, x| put(acc, i32_of(acc).wrapping_add(i32_of(x)).wrapping_add(state.elements as i32).to_le_bytes()), None);
    assert!(matches!(found, Err(Broken::Cut { .. })), "{found:?}");
}

#[test]
fn what_fails_is_found_whatever_it_fails_on() {
    let add: Combine = |_, acc, x| put(acc, i32_of(acc).wrapping_add(i32_of(x)).to_le_bytes());
    let cases: [(Combine, &str); 3] = [
        (
            |_, acc, x| {
                if f32_of(acc).is_nan() || f32_of(x).is_nan() {
                    Err(OpError::Operator)
                } else {
                    put(acc, (f32_of(acc) + f32_of(x)).to_le_bytes())
                }
            },
            "random bytes",
        ),
        (
            |_, acc, x| {
                if i32_of(acc) == i32::MIN && i32_of(x) == -1 {
                    Err(OpError::Operator)
                } else {
                    put(acc, (i32_of(acc) ^ i32_of(x)).to_le_bytes())
                }
            },
            "edges of i32",
        ),
        (|_, _, x| if i32_of(x) == 0 { Err(OpError::Operator) } else { Ok(()) }, "zeros"),
    ];
    for (combine, given) in cases {
        let found = examine(4, combine, None).unwrap_err();
        assert!(matches!(&found, Broken::Fails { given: said, .. } if said.contains(given)), "{found}");
    }
    assert!(matches!(examine(4, add, Some(|_| Err(OpError::Operator))), Err(Broken::Fails { .. })));
    // More ranks than a byte counts.
    let counted = |_: &mut State, acc: &mut [u8], x: &[u8]| {
        acc[0] = acc[0].checked_add(u8::from(x[1] == 255)).ok_or(OpError::Operator)?;
        Ok(())
    };
    assert!(examine(2, counted, None).is_err());
}

#[test]
fn one_for_a_type_is_given_values_of_that_type_only() {
    let narrow: Combine = |_, acc, x| {
        let (a, b) = (f32_of(acc), f32_of(x));
        put(acc, (a + b).to_le_bytes())
    };
    let order = examine_as(4, narrow, None, Some(DType::F32)).unwrap().order;
    assert!(matches!(order, Order::Rounding { dtype: DType::F32, .. }));
    // As integers sums of floats are something else, by far.
    assert!(matches!(examine_as(4, narrow, None, Some(DType::I32)), Err(Broken::Order { .. })));
}

#[test]
fn what_is_wrong_is_shown_by_the_contributions_that_prove_it() {
    let less: Combine = |_, acc, x| put(acc, i32_of(acc).wrapping_sub(i32_of(x)).to_le_bytes());
    let text = examine_as(4, less, None, Some(DType::I32)).unwrap_err().to_string();
    let (_, shown) = text.split_once(" (contributions by rank: ").expect("they are shown");
    let inputs: Vec<i32> = shown.split(')').next().unwrap().split(", ").map(|hex| i32::from_be_bytes(bytes_of(hex)).swap_bytes()).collect();
    let (_, one) = text.split_once(" is ").unwrap();
    let expected = inputs[1..].iter().fold(inputs[0], |acc, x| acc.wrapping_sub(*x));
    assert_eq!((inputs.len(), i32::from_be_bytes(bytes_of(&one[..8])).swap_bytes()), (RANKS, expected), "{text}");
    // An element that it fails on is found among all of its vector.
    let picky: Combine = |_, acc, x| {
        if i32_of(acc) == i32::MIN && i32_of(x) == -1 { Err(OpError::Operator) } else { put(acc, (i32_of(acc) ^ i32_of(x)).to_le_bytes()) }
    };
    let text = examine_as(4, picky, None, Some(DType::I32)).unwrap_err().to_string();
    assert!(text.contains("as of element ") && text.contains("(contributions by rank: 00000080, ffffffff)"), "{text}");
}

/// The bytes that are written so.
fn bytes_of(hex: &str) -> [u8; 4] {
    u32::from_str_radix(hex, 16).unwrap().to_be_bytes()
}

#[test]
fn a_tolerance_is_what_was_asked_for_and_other_seeds_and_trials_find_more() {
    let sum: Combine = |_, acc, x| put(acc, (f32_of(acc) + f32_of(x)).to_le_bytes());
    let with = |tolerance| examine_with(4, sum, None, Trying { dtype: Some(DType::F32), tolerance: Some(tolerance), ..Trying::default() });
    assert!(with(1e-6).is_ok());
    assert!(matches!(with(0.0), Err(Broken::Order { .. })), "sums of floats round");
    // One value in four thousand is not taken.
    let rare: Combine = |_, acc, x| {
        if i32_of(x) as u32 >> 20 == 0x123 { Err(OpError::Operator) } else { put(acc, (i32_of(acc) ^ i32_of(x)).to_le_bytes()) }
    };
    let trials = |seed, trials| examine_with(4, rare, None, Trying { dtype: Some(DType::I32), seed, trials, ..Trying::default() });
    let found: Vec<bool> = (0..8).map(|seed| trials(seed, 1).is_err()).collect();
    assert!(trials(0, 20).is_err(), "{found:?}");
    let one = trials(3, 20).unwrap_err();
    assert_eq!(trials(3, 20), Err(one), "the same seed finds the same");
}

#[test]
fn results_that_cannot_be_contributed_again_are_found() {
    // Sums of small numbers in any order; but what has been summed has a mark, and a contribution with a mark counts one more.
    let marking: Combine = |_, acc, x| put(acc, [((acc[0] & 0x7f) + (x[0] & 0x7f) + (x[0] >> 7)) & 0x7f | 0x80]);
    let found = examine_as(1, marking, None, Some(DType::U8)).unwrap_err();
    assert!(matches!(found, Broken::Order { how: "pairs first", .. }), "{found}");
}
