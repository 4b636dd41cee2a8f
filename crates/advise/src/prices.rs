//! Prices of switches.

use std::collections::BTreeMap;
use std::path::Path;

use fanin_plan::read::read;
use fanin_plan::tree::Tree;
use fanin_plan::{PlanError, Refuse};

use crate::setting::{Setting, Switch};

/// The price of each switch of the network.
///
/// # Errors
/// [`PlanError`] with file, key, value and what was expected.
pub fn prices(file: &Path, setting: &Setting) -> Result<Vec<f64>, PlanError> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|error| PlanError::new(&name, format!("cannot be read: {error}")))?;
    let tree = Tree::parse(&name, &text)?;
    let all: BTreeMap<String, f64> = read(&name, &tree, &[])?;
    let refuse = Refuse { file: &name, tree: &tree };
    if let Some((key, price)) = all.iter().find(|(_, price)| !(price.is_finite() && **price >= 0.0)) {
        return Err(refuse.say(key, price, "a price, from 0 on"));
    }
    let fits = |key: &str, switch: &str| key.strip_suffix('*').map_or(key == switch, |start| switch.starts_with(start));
    let is_used = |key: &String| key == "default" || setting.switches.iter().any(|switch| fits(key, &switch.name));
    if let Some((key, price)) = all.iter().find(|(key, _)| !is_used(key)) {
        return Err(refuse.say(key, price, "the name of a switch of the network, the beginning of some with * behind it, or default"));
    }
    let of = |switch: &Switch| {
        let exact = all.get(&switch.name);
        let longest = || all.iter().filter(|(key, _)| key.ends_with('*') && fits(key, &switch.name)).max_by_key(|(key, _)| key.len());
        let price = exact.or_else(|| longest().map(|(_, price)| price)).or_else(|| all.get("default"));
        let expected = || PlanError::new(&name, format!("{}: expected a price, or one as default", switch.name));
        price.copied().ok_or_else(expected)
    };
    setting.switches.iter().map(of).collect()
}
