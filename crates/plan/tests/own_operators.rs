//! Operators in plans: those that are built in, and a job's own.

use fanin_plan::{Plan, run};
use fanin_systems::System;

const PLAN: &str = r#"
[network]
shape = "fat-tree"
leaves = 2
hosts_per_leaf = 3
spines = 1
rate = "100Gb/s"
latency = "300ns"

[[jobs]]
system = "flare"
workers = 6
message = "64KiB"
density = 0.3
element = "i32"

[run]
seed = 3
"#;

/// Whether the plan runs exactly, and what its first job says it was reduced by; else the error.
fn outcome(sets: &[&str]) -> Result<(bool, Option<String>), String> {
    outcome_of(PLAN, sets)
}

fn outcome_of(plan: &str, sets: &[&str]) -> Result<(bool, Option<String>), String> {
    let sets: Vec<String> = sets.iter().map(|set| set.to_string()).collect();
    let plan =
        Plan::parse("plan", plan, &sets, None).and_then(|plan| run::check(&plan).map(|()| plan)).map_err(|error| error.to_string())?;
    let finished = run::run(&plan, 1, || true).map_err(|error| error.to_string())?;
    let record = &finished[0].record;
    Ok((record.is_good(), record.jobs[0].operator.clone()))
}

/// Systems of sparse vectors.
fn sparse() -> Vec<&'static str> {
    System::NAMES.iter().copied().filter(|name| System::named(name).unwrap().sparsity().is_some()).collect()
}

#[test]
fn sparse_vectors_are_reduced_by_every_built_in_operator_without_a_division() {
    for (operator, element) in
        [("sum", "f16"), ("prod", "f32"), ("prod", "i8"), ("min", "f64"), ("maximum", "bf16"), ("xor", "i64"), ("or", "u8")]
    {
        let (operator_set, element_set) = (format!("jobs.0.operator={operator}"), format!("jobs.0.element={element}"));
        for storage in ["array", "table"] {
            let storage = format!("jobs.0.storage={storage}");
            let sets = [operator_set.as_str(), &element_set, &storage, "jobs.0.message=64000"];
            assert_eq!(outcome(&sets), Ok((true, Some(operator.into()))), "{operator} of {element}");
        }
        for system in sparse() {
            let system_set = format!("jobs.0.system={system}");
            assert_eq!(outcome(&[&operator_set, &element_set, &system_set, "jobs.0.message=64000"]), Ok((true, Some(operator.into()))));
        }
    }
    assert_eq!(outcome(&[]), Ok((true, None)));
    for (sets, expected) in [
        (&["jobs.0.operator=avg", "jobs.0.element=f32"][..], "operator = \"avg\": expected one that needs no division at the end"),
        (&["jobs.0.operator=xor", "jobs.0.element=f32"], "an operator of f32: there is no xor of f32"),
        (&["jobs.0.operator=median"], "or a module's file, *.wasm"),
    ] {
        let error = outcome(sets).unwrap_err();
        assert!(error.contains(expected), "{sets:?}: {error}");
    }
    let dense = PLAN.replace("flare", "tree").replace("density = 0.3\n", "");
    let error = outcome_of(&dense, &["jobs.0.operator=max"]).unwrap_err();
    assert!(error.contains(&format!("operator = \"max\": expected no such key without {}", sparse().join(" or "))), "{error}");
}

/// A module whose `combine` is this, for elements of four bytes.
#[cfg(feature = "wasm")]
fn module(name: &str, more: &str, step: &str) -> String {
    let folder = std::env::temp_dir().join(format!("fanin-own-operators-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let text = format!(
        r#"(module (memory (export "memory") 1)
            (func (export "fanin_abi") (result i32) i32.const 1)
            (func (export "element_bytes") (result i32) i32.const 4)
            {more}
            (func (export "combine") (param $acc i32) (param $in i32) (param $n i32)
                (block $done (loop $next
                    (br_if $done (i32.eqz (local.get $n)))
                    (i32.store (local.get $acc) {step})
                    (local.set $acc (i32.add (local.get $acc) (i32.const 4)))
                    (local.set $in (i32.add (local.get $in) (i32.const 4)))
                    (local.set $n (i32.sub (local.get $n) (i32.const 1)))
                    (br $next)))))"#
    );
    let file = folder.join(format!("{name}.wasm"));
    std::fs::write(&file, wat::parse_str(text).unwrap()).unwrap();
    format!("jobs.0.operator={}", file.display())
}

#[cfg(feature = "wasm")]
const ACC: &str = "(i32.load (local.get $acc))";
#[cfg(feature = "wasm")]
const IN: &str = "(i32.load (local.get $in))";

/// An operator that no built-in one is: the equivalence of bits. It is commutative and associative, and its neutral element is not 0.
#[test]
#[cfg(feature = "wasm")]
fn switches_combine_by_a_module_and_results_are_those_of_a_host() {
    let own = module("same", "", &format!("(i32.xor (i32.const -1) (i32.xor {ACC} {IN}))"));
    for storage in [&["jobs.0.storage=array"][..], &["jobs.0.storage=table", "jobs.0.slots=16"], &["jobs.0.sum_order=fixed"]] {
        for faults in ["faults.links=[{ loss = 0.02 }]", "faults.links=[{ loss = 0.0 }]"] {
            let sets: Vec<&str> = storage.iter().copied().chain([own.as_str(), faults]).collect();
            let (is_good, operator) = outcome(&sets).unwrap();
            assert!(is_good && operator.as_deref().is_some_and(|name| name.starts_with("same (sha256 ")), "{operator:?}");
        }
    }
    let floats = format!("jobs.0.operator={}/../../examples/operators/float_sum.wasm", env!("CARGO_MANIFEST_DIR"));
    assert!(outcome(&[&floats, "jobs.0.element=f32"]).unwrap().0);
}

#[test]
#[cfg(feature = "wasm")]
fn what_several_switches_cannot_combine_is_refused() {
    let sum = format!("(i32.add {ACC} {IN})");
    let copy = "(param i32 i32 i32)";
    for (own, expected) in [
        (module("init", &format!("(func (export \"init\") {copy})"), &sum), "export `init`: expected none"),
        (module("finish", &format!("(func (export \"finish\") {copy} (param i32))",), &sum), "export `finish`: expected none"),
        (module("less", "", &format!("(i32.sub {ACC} {IN})")), "depends on the order"),
        (module("last", "", IN), "depends on the order"),
        (module("trap", "", "(unreachable)"), "it fails on"),
    ] {
        let error = outcome(&[&own]).unwrap_err();
        assert!(error.contains("operator") && error.contains(expected), "{own}: {error}");
    }
    let error = outcome(&[&module("sum", "", &sum), "jobs.0.element=i64"]).unwrap_err();
    assert!(error.contains("element_bytes = 4: expected 8"), "{error}");
    for system in sparse().into_iter().filter(|name| *name != "flare") {
        let error = outcome(&[&module("sum", "", &sum), &format!("jobs.0.system={system}")]).unwrap_err();
        assert!(error.contains("a built-in operator, or flare"), "{system}: {error}");
    }
    let error = outcome(&["jobs.0.operator=/there/is/none.wasm"]).unwrap_err();
    assert!(error.contains("a file that can be read"), "{error}");
    // Sums of floats that differ in size are rounded in each order otherwise; of the small whole numbers that are drawn they are not.
    let near = module(
        "near",
        "",
        "(i32.reinterpret_f32 (f32.add (f32.const 0.3) (f32.add (f32.load (local.get $acc)) (f32.load (local.get $in)))))",
    );
    let error = outcome(&[&near, "jobs.0.element=f32"]).unwrap_err();
    assert!(error.contains("in every bit: of 0x"), "{error}");
}

/// A build without it says so, by name.
#[test]
#[cfg(not(feature = "wasm"))]
fn a_build_without_a_compiler_refuses_modules_by_name() {
    let floats = format!("jobs.0.operator={}/../../examples/operators/float_sum.wasm", env!("CARGO_MANIFEST_DIR"));
    let error = outcome(&[&floats, "jobs.0.element=f32"]).unwrap_err();
    assert!(error.contains("operator `float_sum`: this build of Fanin runs no custom operators"), "{error}");
}
