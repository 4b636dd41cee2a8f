//! ATP and A2TP: random runs.

use fanin_check::{Checks, campaign};

#[test]
fn one() {
    let checks = Checks { twice: false, elements: false, only: Some("atp"), ..Checks::default() };
    for seed in [32, 56, 133, 148] {
        let report = campaign(seed, 1, checks);
        println!("{report}");
    }
}

#[test]
fn quick() {
    for (first, only) in [(0, "atp"), (5_000, "a2tp")] {
        let report = campaign(first, 150, Checks { twice: false, elements: false, only: Some(only), ..Checks::default() });
        println!("{report}");
        report.assert_clean();
    }
}
