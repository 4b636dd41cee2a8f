//! `fanin operator check`: what a module is and costs, and why one is refused.

mod common;

use std::fs;

use common::{examples, fanin, folder, good, refused};

#[test]
fn every_example_is_described_and_measured() {
    let folder = folder("operator-check");
    for (name, element, accumulator) in
        [("float_sum", 4, "4 bytes, the element itself"), ("extremes", 12, "12 bytes, the element itself"), ("majority", 1, "16 bytes")]
    {
        let file = examples().join(format!("operators/{name}.wasm"));
        let said = good(&folder, &["operator", "check", file.to_str().expect("a path")]);
        let row = |what: &str| {
            let line = said.lines().find(|line| line.starts_with(what));
            line.unwrap_or_else(|| panic!("no {what}: {said}"))[what.len()..].trim().to_string()
        };
        assert_eq!((row("operator"), row("element"), row("accumulator")), (name.into(), format!("{element} bytes"), accumulator.into()));
        assert!(
            row("tried").ends_with("of zeros, random and extreme values") && !row("order").is_empty() && !row("first").is_empty(),
            "{said}"
        );
        assert_eq!(said.lines().any(|line| line.starts_with("finish         ") && line.contains(" ns ")), name == "majority", "{said}");
        let number = |text: String| text.split(' ').next().and_then(|number| number.parse::<f64>().ok()).unwrap_or_default();
        let (own, built_in, ratio) = (number(row("combine")), number(row("built in")), number(row("ratio")));
        // Rounded to whole nanoseconds before, and to hundredths after.
        assert!(own > 0.0 && built_in > 0.0 && (ratio - own / built_in).abs() <= 0.01 + ratio * 1.5 / built_in.min(own), "{said}");
    }
}

#[test]
fn what_is_no_operator_is_refused_by_name() {
    let folder = folder("operator-refused");
    fs::write(folder.join("text.wasm"), "not a module").expect("a file");
    let said = refused(&folder, &["operator", "check", "text.wasm"]);
    assert!(said.starts_with("error: text.wasm: operator `text`: its module is not valid: "), "{said}");
    assert!(refused(&folder, &["operator", "check", "missing.wasm"]).starts_with("error: cannot read missing.wasm"), "which file");
    // Its `combine` is `unreachable`: a good shape, and of no use.
    let module = b"\0asm\x01\0\0\0\x01\x0b\x02\x60\0\x01\x7f\x60\x03\x7f\x7f\x7f\0\x03\x04\x03\0\0\x01\x05\x03\x01\0\x01\x07\x30\x04\
        \x06memory\x02\0\x09fanin_abi\0\0\x0delement_bytes\0\x01\x07combine\0\x02\x0a\x0f\x03\x04\0\x41\x01\x0b\x04\0\x41\x04\x0b\x03\0\0\x0b";
    fs::write(folder.join("trap.wasm"), module).expect("a file");
    let output = fanin(&folder, &["operator", "check", "trap.wasm"]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(
        errors.contains("operator `trap` (sha256 ")
            && errors.contains("it fails on zeros (256 elements of 2 ranks), as of element 0 (contributions by rank: 00000000, 00000000): operator `trap` (sha256 "),
        "{errors}"
    );
}

#[test]
fn what_is_tried_can_be_chosen_and_what_is_wrong_is_shown() {
    let folder = folder("operator-trying");
    let file = examples().join("operators/float_sum.wasm");
    let file = file.to_str().expect("a path");
    let check = |arguments: &[&str]| {
        let output = fanin(&folder, &[&["operator", "check", file, "--dtype", "f32"], arguments].concat());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let tried = |arguments: &[&str]| {
        let (code, said, errors) = check(arguments);
        assert_eq!(code, Some(0), "{errors}");
        let line = said.lines().find(|line| line.starts_with("tried")).unwrap_or_else(|| panic!("{said}")).to_string();
        line.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok()).unwrap_or_else(|| panic!("{line}"))
    };
    let once = tried(&["--seed", "7", "--tolerance", "1e-5"]);
    assert!(tried(&["--seed", "7", "--trials", "3"]) > 2 * once);
    let (code, _, errors) = check(&["--tolerance", "0"]);
    assert_eq!(code, Some(1), "sums of floats round: {errors}");
    assert!(errors.contains("depends on the order of contributions") && errors.contains("(contributions by rank: "), "{errors}");
    for (arguments, expected) in
        [(["--tolerance", "2"], "expected a number from 0 to 1, such as 1e-6"), (["--trials", "0"], "0 is not in 1..=10000")]
    {
        let (code, _, errors) = check(&arguments);
        assert_eq!(code, Some(2), "{errors}");
        assert!(errors.contains(expected), "{errors}");
    }
}
