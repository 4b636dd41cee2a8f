//! Predictions on a few drawn cases, held against simulation. `fanin advise --check` does the same on many.

use fanin_advise::check::{Trial, regrets, table, trials};
use fanin_advise::setting::SYSTEMS;

#[test]
fn what_the_rules_know_is_within_a_fifth_of_simulation() {
    let folder = std::env::temp_dir().join(format!("fanin-advise-campaign-{}", std::process::id()));
    let all: Vec<Trial> = (0..12).flat_map(|number| trials(&folder, 1, number, SYSTEMS).unwrap()).collect();
    std::fs::remove_dir_all(&folder).unwrap();
    let rows = table(&all);
    let of_all = rows.last().unwrap();
    assert!(of_all.trials > 90 && of_all.known > 60, "{rows:?}");
    assert!(of_all.known_within * 10 >= of_all.known * 9, "{rows:?}");
    assert!(rows.iter().filter(|row| row.trials > 0).count() == SYSTEMS.len() + 1, "every system is among them: {rows:?}");
    let good = |simulates| regrets(&all, simulates).iter().filter(|regret| **regret <= 0.05).count();
    assert!(good(true) >= 11, "{:?}", regrets(&all, true));
    assert!(good(true) >= good(false));
}

#[test]
fn cases_differ_and_are_the_same_again() {
    use fanin_advise::draw::case;
    assert_eq!(case(7, 3), case(7, 3));
    assert_ne!(case(7, 3), case(7, 4));
    assert_ne!(case(7, 3), case(8, 3));
}
