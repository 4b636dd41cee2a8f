//! Modules of every kind: those that work, those that are refused, and those that are stopped.
#![cfg(feature = "wasm")]
#![allow(unexpected_cfgs, reason = "a fuzzer sets the cfg `fuzzing`")]

use fanin_core::hash::mix;
use fanin_core::{CustomOp, OpError, Payload};
use fanin_operator::{Broken, CustomOperator, Faults, Order, Trying, examine, limits};

/// The exports of an operator of 32-bit integers, but for `combine` and whatever else.
const HEAD: &str = r#"
    (memory (export "memory") 1)
    (func (export "fanin_abi") (result i32) i32.const 1)
    (func (export "element_bytes") (result i32) i32.const 4)
"#;

/// `acc[i] := acc[i] + in[i]`, one integer at a time.
const SUM: &str = r#"
    (func (export "combine") (param $acc i32) (param $in i32) (param $n i32)
        (block $done
            (loop $next
                (br_if $done (i32.eqz (local.get $n)))
                (i32.store (local.get $acc) (i32.add (i32.load (local.get $acc)) (i32.load (local.get $in))))
                (local.set $acc (i32.add (local.get $acc) (i32.const 4)))
                (local.set $in (i32.add (local.get $in) (i32.const 4)))
                (local.set $n (i32.sub (local.get $n) (i32.const 1)))
                (br $next))))
"#;

fn module(text: &str) -> Vec<u8> {
    wat::parse_str(format!("(module {text})")).unwrap()
}

fn refused(text: &str) -> String {
    CustomOperator::from_wasm("mine", &module(text)).unwrap_err().to_string()
}

/// An operator with this `combine`.
fn operator(combine: &str) -> (CustomOp, Faults) {
    let faults = Faults::default();
    (CustomOperator::from_wasm("mine", &module(&format!("{HEAD}{combine}"))).unwrap().op(&faults), faults)
}

fn integers(values: &[i32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[test]
fn a_module_reduces_packets_of_any_length() {
    let (mut op, faults) = operator(SUM);
    for count in [1, 3, 256, 90_000, 7] {
        let values: Vec<Vec<i32>> = (0..3).map(|rank| (0..count).map(|index| mix(rank, index) as i32).collect()).collect();
        let mut acc = integers(&values[0]);
        values[1..].iter().for_each(|values| op.0.combine(&mut acc, &integers(values)).unwrap());
        let sums: Vec<i32> = (0..count as usize).map(|at| values.iter().fold(0, |sum: i32, vector| sum.wrapping_add(vector[at]))).collect();
        assert_eq!(acc, integers(&sums), "{count}");
    }
    assert_eq!(faults.first(), None);
}

#[test]
fn kernels_of_one_operator_are_equal_and_do_not_share_memory() {
    // Counts its calls in memory, and adds the count.
    let counting = r#"
        (func (export "combine") (param $acc i32) (param $in i32) (param $n i32)
            (i32.store (i32.const 0) (i32.add (i32.load (i32.const 0)) (i32.const 1)))
            (i32.store (local.get $acc) (i32.load (i32.const 0))))
    "#;
    let (mut first, _) = operator(counting);
    let mut second = first.clone();
    assert_eq!(first, second);
    assert_ne!(first, operator(SUM).0);
    let mut acc = integers(&[0]);
    for count in 1..4 {
        first.0.combine(&mut acc, &integers(&[0])).unwrap();
        assert_eq!(acc, integers(&[count]));
    }
    second.0.combine(&mut acc, &integers(&[0])).unwrap();
    assert_eq!(acc, integers(&[1]));
}

#[test]
fn a_module_of_the_wrong_shape_is_refused_with_what_was_expected() {
    let abi = r#"(func (export "fanin_abi") (result i32) i32.const 1)"#;
    let memory = r#"(memory (export "memory") 1)"#;
    let element = |bytes: i32| format!(r#"(func (export "element_bytes") (result i32) i32.const {bytes})"#);
    let combine = r#"(func (export "combine") (param i32 i32 i32))"#;
    let accumulator = |bytes: i32| format!(r#"(func (export "accumulator_bytes") (result i32) i32.const {bytes})"#);
    let cases: Vec<(String, &str)> = vec![
        (format!(r#"(import "env" "rand" (func)){HEAD}{combine}"#), "it imports `env.rand`: expected no imports at all"),
        (format!("{abi}{}{combine}", element(4)), "export `memory`: expected a memory, got nothing"),
        (format!("{memory}{}{combine}", element(4)), "export `fanin_abi`: expected a function () -> i32, got nothing"),
        (format!("{memory}{abi}{}", element(4)), "export `combine`: expected a function (i32, i32, i32) without result, got nothing"),
        (
            format!(r#"{HEAD}(func (export "combine") (param i32 i32 i64))"#),
            "export `combine`: expected a function (i32, i32, i32) without result, got a function (i32, i32, i64) without result",
        ),
        (
            format!(r#"{HEAD}(func (export "combine") (param i32 i32 i32) (result i32) i32.const 0)"#),
            "got a function (i32, i32, i32) -> i32",
        ),
        (format!(r#"{HEAD}{combine}(func (export "finish") (param i32))"#), "export `finish`: expected a function (i32, i32, i32, i32)"),
        (format!(r#"{HEAD}{combine}(global (export "init") i32 i32.const 0)"#), "export `init`: expected a function (i32, i32, i32)"),
        (
            format!(r#"{memory}(func (export "fanin_abi") (result i32) i32.const 2){}{combine}"#, element(4)),
            "fanin_abi = 2: expected 1, the version that this release of Fanin runs",
        ),
        (format!("{memory}{abi}{}{combine}", element(0)), "element_bytes = 0: expected 1 to 1024"),
        (format!("{memory}{abi}{}{combine}", element(-4)), "element_bytes = -4: expected 1 to 1024"),
        (format!("{memory}{abi}{}{combine}", element(1_025)), "element_bytes = 1025: expected 1 to 1024"),
        (
            format!("{HEAD}{combine}{}", accumulator(8)),
            "export `init`: expected a function, since accumulators are not elements, got nothing",
        ),
        (format!("{HEAD}{combine}{}", accumulator(1 << 20)), "accumulator_bytes = 1048576: expected 1 to 128, 32 times element_bytes"),
        (format!(r#"{HEAD}{combine}(memory 1)"#), "memories = 2: expected at most 1"),
        (format!(r#"(memory (export "memory") 1000){abi}{}{combine}"#, element(4)), "bytes of memory = 65536000: expected at most 8388608"),
        (format!(r#"{HEAD}{combine}(table 100000 funcref)"#), "it cannot be started"),
        (format!(r#"{HEAD}{combine}(func $start unreachable)(start $start)"#), "it cannot be started: wasm trap: wasm `unreachable`"),
        (
            format!(r#"{HEAD}{combine}(func $start (loop (br 0)))(start $start)"#),
            "it was stopped after 100000 units of fuel: it never ends",
        ),
    ];
    for (text, expected) in cases {
        let error = refused(&text);
        assert!(error.starts_with("operator `mine`: ") && error.contains(expected), "{error}\nexpected: {expected}");
    }
}

#[test]
fn what_would_take_long_to_compile_is_refused_before() {
    let combine = r#"(func (export "combine") (param i32 i32 i32))"#;
    let many = format!("{HEAD}{combine}{}", "(func)".repeat(600));
    assert!(refused(&many).contains("functions = 603: expected at most 512"), "{}", refused(&many));
    let locals = format!("{HEAD}{combine}(func (local {}))", "i64 ".repeat(600));
    assert!(refused(&locals).contains("local variables of a function = 600: expected at most 512"), "{}", refused(&locals));
    let long = format!("{HEAD}{combine}(func {})", "(drop (i32.const 1))".repeat(12_000));
    assert!(refused(&long).contains("bytes of a function = "), "{}", refused(&long));
    let large = format!("{HEAD}{combine}(data (i32.const 0) \"{}\")", "x".repeat(65_000 + 1_000));
    let error = CustomOperator::from_wasm("mine", &module(&large)).unwrap_err().to_string();
    assert!(error.contains("and may have 65536"), "{error}");
    for name in ["", "a\nb", &"x".repeat(65)] {
        assert!(CustomOperator::from_wasm(name, &[]).unwrap_err().to_string().contains("expected 1 to 64 printable characters"));
    }
    assert!(CustomOperator::from_wasm("mine", b"\x7fELF").unwrap_err().to_string().contains("its module is not valid"));
    let lengths = CustomOperator::from_wasm("mine", &module(&format!("{HEAD}{combine}"))).unwrap().for_elements_of(8);
    assert_eq!(lengths.unwrap_err().to_string(), "operator `mine`: element_bytes = 4: expected 8, the length of the vector's elements");
}

/// The fault that this `combine` makes; the accumulator stays as it was, and the operator is of no use after that.
fn fault(combine: &str) -> String {
    let (mut op, faults) = operator(combine);
    let mut acc = integers(&[1, 2, 3]);
    assert_eq!(op.0.combine(&mut acc, &integers(&[4, 5, 6])), Err(OpError::Operator));
    assert_eq!(acc, integers(&[1, 2, 3]), "as it was");
    let first = faults.first().unwrap().to_string();
    assert_eq!(op.0.combine(&mut acc, &integers(&[4, 5, 6])), Err(OpError::Operator));
    assert_eq!(op.0.begin(&mut acc, &integers(&[4, 5, 6])), Err(OpError::Operator));
    assert_eq!(faults.first(), Some(&*first), "the first failure stays");
    assert!(first.starts_with("operator `mine` (sha256 ") && first.contains(") failed in combine of 3 elements: "), "{first}");
    first
}

#[test]
fn what_traps_or_never_ends_is_stopped_and_leaves_the_accumulator_alone() {
    let function = |body: &str| format!(r#"(func $f (export "combine") (param i32 i32 i32) {body})"#);
    assert!(fault(&function("unreachable")).contains("unreachable"));
    assert!(fault(&function("(i32.store (i32.const -4) (i32.const 1))")).contains("out of bounds memory access"));
    assert!(fault(&function("(drop (i32.div_s (i32.const 1) (i32.const 0)))")).contains("integer divide by zero"));
    assert!(fault(&function("(i32.store (local.get 0) (i32.const 7)) (loop (br 0))")).contains("it never ends, or does too much"));
    assert!(fault(&function("(call $f (local.get 0) (local.get 1) (local.get 2))")).contains("call stack exhausted"));
}

#[test]
fn memory_is_bounded() {
    // Growing gives -1 where it is refused, and the module goes on; it then stores how many pages it got in the end.
    let grows = r#"
        (func (export "combine") (param $acc i32) (param $in i32) (param $n i32)
            (loop $next (br_if $next (i32.ne (memory.grow (i32.const 16)) (i32.const -1))))
            (i32.store (local.get $acc) (memory.size)))
    "#;
    let (mut op, _) = operator(grows);
    let mut acc = integers(&[0]);
    op.0.combine(&mut acc, &integers(&[0])).unwrap();
    let pages = i32::from_le_bytes(acc[..].try_into().unwrap());
    assert!((16..=limits::MEMORY_BYTES_MAX as i32 >> 16).contains(&pages), "{pages}");
    // What it has taken is not there for longer vectors.
    let mut long = vec![0; 4 << 20];
    assert_eq!(op.0.combine(&mut long.clone(), &long), Err(OpError::Operator));
    // A module that does not let its memory grow has no place for vectors.
    let text = HEAD.replace("(memory (export \"memory\") 1)", "(memory (export \"memory\") 1 1)") + SUM;
    let faults = Faults::default();
    let mut op = CustomOperator::from_wasm("mine", &module(&text)).unwrap().op(&faults);
    assert_eq!(op.0.combine(&mut long, &[0; 4]), Err(OpError::Operator));
    assert!(faults.first().unwrap().contains("its memory of 65536 bytes cannot grow by"), "{:?}", faults.first());
}

#[test]
fn accumulators_may_be_longer_than_elements() {
    let text = format!(
        r#"{HEAD}
        (func (export "accumulator_bytes") (result i32) i32.const 8)
        ;; Of one element: the sum in 64 bits.
        (func (export "init") (param i32 i32 i32) (i64.store (local.get 0) (i64.load32_s (local.get 1))))
        (func (export "combine") (param i32 i32 i32)
            (i64.store (local.get 0) (i64.add (i64.load (local.get 0)) (i64.load32_s (local.get 1)))))
        (func (export "finish") (param i32 i32 i32 i32)
            (i32.store (local.get 1) (i32.wrap_i64 (i64.div_s (i64.load (local.get 0)) (i64.extend_i32_u (local.get 3))))))"#
    );
    let operator = CustomOperator::from_wasm("mean", &module(&text)).unwrap();
    assert!(operator.finishes() && operator.layout().is_beside());
    let mut op = operator.payload_op(&Faults::default());
    let mut acc = <[u8]>::accumulator(&op, 4);
    integers(&[i32::MAX]).assign(&mut acc, &mut op).unwrap();
    integers(&[i32::MAX]).reduce(&mut acc, &mut op).unwrap();
    integers(&[i32::MAX - 3]).reduce(&mut acc, &mut op).unwrap();
    <[u8]>::conclude(&mut acc, &mut op, 3).unwrap();
    assert_eq!(acc.as_bytes(), integers(&[i32::MAX - 1]));
}

/// Whatever the bytes are: an error or an operator, which then reduces or fails, but no panic, and in bounded time.
/// The examples of the repository, and how their results depend on the order of contributions.
#[test]
fn the_examples_do_what_a_job_needs() {
    for (name, is_exact) in
        [("float_sum", false), ("complex_product", false), ("log_sum_exp", true), ("top_k", true), ("majority", true), ("extremes", true)]
    {
        let file = format!("{}/../../examples/operators/{name}.wasm", env!("CARGO_MANIFEST_DIR"));
        let operator = CustomOperator::from_wasm(name, &std::fs::read(file).unwrap()).unwrap();
        let examined = examine(&operator, &Trying::default()).unwrap_or_else(|broken| panic!("{name}: {broken}"));
        assert_eq!(examined.order == Order::Exact, is_exact, "{name}: {}", examined.order);
    }
}

fn broken(text: &str) -> Broken {
    examine(&CustomOperator::from_wasm("mine", &module(&format!("{HEAD}{text}"))).unwrap(), &Trying::default()).unwrap_err()
}

#[test]
fn modules_that_break_in_a_job_are_found_by_examination() {
    // `finish` writes outside of the memory.
    let finish = r#"(func (export "finish") (param i32 i32 i32 i32) (i32.store (i32.const -16) (i32.const 1)))"#;
    let said = broken(&format!("{SUM}{finish}")).to_string();
    assert!(said.contains("it fails on zeros") && said.contains("failed in finish") && said.contains("out of bounds"), "{said}");
    // `combine` and `finish` write behind their last element, and before their first one, where other vectors may be.
    let behind = SUM.replace(
        "(block $done",
        "(i32.store (i32.add (local.get $acc) (i32.mul (local.get $n) (i32.const 4))) (i32.const 1)) (block $done",
    );
    let said = broken(&behind).to_string();
    assert!(
        said.starts_with(
            "its combine writes beside what it was given: of zeros (1 element of 2 ranks), at byte 4 of accumulators of 4 bytes"
        ),
        "{said}"
    );
    let before = r#"(func (export "finish") (param i32 i32 i32 i32) (i32.store8 (i32.sub (local.get 1) (i32.const 1)) (i32.const 1)))"#;
    let found = broken(&format!("{SUM}{before}"));
    assert!(matches!(found, Broken::Strays { call: "finish", offset: -1, .. }), "{found}");
    // A count of calls finds its way into the sum.
    let counting = SUM.replace("(block $done", "(global.set $calls (i32.add (global.get $calls) (i32.const 1))) (block $done").replace(
        "(i32.load (local.get $in))",
        "(i32.add (i32.load (local.get $in)) (i32.eqz (i32.rem_u (global.get $calls) (i32.const 3))))",
    );
    let found = broken(&format!("(global $calls (mut i32) (i32.const 0)) {counting}"));
    assert!(matches!(found, Broken::Remembers { .. }), "{found}");
    // So does one in the module's memory.
    let stored = SUM
        .replace("(block $done", "(i32.store (i32.const 0) (i32.add (i32.load (i32.const 0)) (i32.const 1))) (block $done")
        .replace("(i32.load (local.get $in))", "(i32.add (i32.load (local.get $in)) (i32.load (i32.const 0)))");
    let found = broken(&stored);
    assert!(matches!(found, Broken::Remembers { .. }), "{found}");
    let difference = SUM.replace("i32.add (i32.load", "i32.sub (i32.load");
    let found = broken(&difference);
    assert!(matches!(found, Broken::Order { .. }), "{found}");
    // Fine but for a NaN.
    let nan = SUM.replace(
        "(i32.store (local.get $acc)",
        "(if (f32.ne (f32.load (local.get $in)) (f32.load (local.get $in))) (then unreachable)) (i32.store (local.get $acc)",
    );
    let said = broken(&nan).to_string();
    assert!(said.contains("unreachable"), "{said}");
}

#[test]
fn lengths_that_change_from_call_to_call_are_refused() {
    let said = refused(&format!(
        r#"(memory (export "memory") 1) (global $calls (mut i32) (i32.const 0)) (func (export "fanin_abi") (result i32) i32.const 1)
        (func (export "element_bytes") (result i32) (global.set $calls (i32.add (global.get $calls) (i32.const 4))) (global.get $calls)) {SUM}"#
    ));
    assert_eq!(said, "operator `mine`: element_bytes = 8: expected 4 as in the call before: lengths never change");
}

fn survives(bytes: &[u8]) -> bool {
    let Ok(operator) = CustomOperator::from_wasm("fuzzed", bytes) else { return false };
    let (faults, layout) = (Faults::default(), operator.layout());
    let mut op = operator.op(&faults);
    for elements in [1, 40, 1_024 / layout.element_bytes] {
        let (input, mut acc) = (vec![7; elements * layout.element_bytes], vec![1; elements * layout.accumulator_bytes]);
        let mut result = input.clone();
        let mut done = op.0.begin(&mut acc, &input).and_then(|()| op.0.combine(&mut acc, &input));
        if operator.finishes() {
            done = done.and_then(|()| op.0.finish(layout.is_beside().then_some(&acc), &mut result, 2));
        }
        assert_eq!(done.is_err(), faults.first().is_some(), "whoever fails says why");
    }
    true
}

#[test]
fn hostile_bytes_are_survived() {
    let valid = module(&format!("{HEAD}{SUM}"));
    let (mut accepted, mut seed) = (0, 0u64);
    let mut draw = |below: usize| {
        seed += 1;
        (mix(0x0b5e_55ed, seed) % below as u64) as usize
    };
    for _ in 0..1_500 {
        let mut bytes = valid.clone();
        for _ in 0..=draw(2) {
            let at = draw(bytes.len());
            match draw(4) {
                0 => bytes[at] = draw(256) as u8,
                1 => bytes[at] ^= 1 << draw(8),
                2 => drop(bytes.remove(at)),
                _ => bytes.insert(at, draw(256) as u8),
            }
        }
        accepted += u32::from(survives(&bytes));
    }
    assert!(accepted > 50, "only {accepted} were modules at all, which tests little");
    // A module may end before its last section, which only names things.
    let whole = (0..valid.len()).filter(|&cut| survives(&valid[..cut])).count();
    assert!(whole <= 1, "{whole} beginnings of a module are modules");
}

/// The same property for a fuzzer (`make fuzz`); an ordinary test runs what it has found.
#[test]
fn any_module_fuzzed() {
    bolero::check!().with_iterations(0).for_each(|bytes: &[u8]| {
        survives(bytes);
    });
}
