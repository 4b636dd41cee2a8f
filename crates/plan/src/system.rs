//! Keys of `[[jobs]]` that belong to the system. They are those of the registry, except that times have units here and that no key may
//! mean two things: a plan's `placement` is where workers are.

use fanin_systems::{Placement, System};

use super::errors::PlanError;
use super::read::{read, suggestion};
use super::tree::{Key, Kind, Step, Tree};
use super::units::{Bytes, Fraction, Rate, RateOrNone, Time};

/// A key of a plan and its name in the registry; one key of a plan may be two there.
const RENAMED: &[(&str, &str)] = &[
    ("timeout", "timeout_ps"),
    ("timeout", "timeout_adaptive"),
    ("timeout_min", "timeout_min_ps"),
    ("timeout_max", "timeout_max_ps"),
    ("table", "placement"),
    ("hold", "hold_ps"),
    ("lifetime", "lifetime_ps"),
    ("reclaim", "reclaim_ps"),
    ("retry", "retry_ps"),
    ("increase", "increase_bytes"),
    ("line_rate", "line_bps"),
    ("rate_min", "rate_min_bps"),
    ("notification_gap", "notification_gap_ps"),
    ("estimate_timer", "estimate_timer_ps"),
    ("rate_timer", "rate_timer_ps"),
    ("additive", "additive_bps"),
    ("hyper", "hyper_bps"),
    ("full_speed", "full_speed_bps"),
    ("step_overhead", "step_overhead_ps"),
    ("step_deviation", "step_deviation_ps"),
];

/// In place of a time: switches find their timeout themselves.
const ADAPTIVE: &str = "adaptive";

fn is_adaptive(key: &Key, value: &Tree) -> bool {
    key.name == "timeout" && matches!(&value.kind, Kind::Text(text) if text == ADAPTIVE)
}

/// A key's name in the registry.
fn in_registry(key: &str) -> &str {
    RENAMED.iter().find(|(plan, _)| *plan == key).map_or(key, |(_, registry)| registry)
}

/// A key's name in plans.
fn in_plan(key: &str) -> &str {
    RENAMED.iter().find(|(_, registry)| *registry == key).map_or(key, |(plan, _)| plan)
}

/// Reads the part of a job's table that is not every job's, which stands at `base` in the plan. `common` are the keys of every job, for
/// suggestions.
///
/// # Errors
/// [`PlanError`] with file, line, key, value and what was expected.
pub fn read_system(file: &str, tree: &Tree, base: &[Step], common: &[&str]) -> Result<System, PlanError> {
    let Kind::Table(entries) = &tree.kind else {
        let what = format!("{} = {tree}: expected a table", super::tree::path_text(base));
        return Err(PlanError::new(file, what).at(tree.origin.clone()));
    };
    let mut translated = Vec::new();
    for (key, value) in entries {
        let name = if is_adaptive(key, value) { "timeout_adaptive" } else { in_registry(&key.name) }.to_string();
        translated.push((Key { name, origin: key.origin.clone() }, translate(file, key, value, base)?));
    }
    let system: System = read(file, &Tree { kind: Kind::Table(translated), origin: tree.origin.clone() }, base)?;
    let known = serde_json::to_value(system).expect("a system is plain data");
    let mut own: Vec<&str> = known.as_object().into_iter().flat_map(|object| object.keys()).map(|key| in_plan(key)).collect();
    own.sort_unstable();
    own.dedup();
    match entries.iter().find(|(key, _)| !own.contains(&key.name.as_str())) {
        None => Ok(system),
        Some((key, value)) => {
            let keys: Vec<String> = common.iter().chain(own.iter().filter(|key| **key != "system")).map(|key| key.to_string()).collect();
            let path = super::tree::path_text(base);
            let what = format!("{path}.{} = {value}: unknown key; {}", key.name, suggestion(&key.name, &keys));
            Err(PlanError::new(file, what).at(key.origin.clone()))
        }
    }
}

/// A value as the registry has it; what is wrong with it is said here, under the plan's key.
fn translate(file: &str, key: &Key, value: &Tree, base: &[Step]) -> Result<Tree, PlanError> {
    let path: Vec<Step> = base.iter().cloned().chain([Step::Key(key.name.clone())]).collect();
    match key.name.as_str() {
        "timeout" if is_adaptive(key, value) => Ok(Tree { kind: Kind::Bool(true), origin: value.origin.clone() }),
        "timeout" | "timeout_min" | "timeout_max" | "hold" | "lifetime" | "reclaim" | "retry" | "notification_gap" | "estimate_timer"
        | "rate_timer" | "step_overhead" | "step_deviation" => {
            let ps = read::<Time>(file, value, &path)?.0.as_ps();
            let kind = i64::try_from(ps).map(Kind::Integer).map_err(|_| {
                let what = format!("{} = {value}: expected at most 100 days", super::tree::path_text(&path));
                PlanError::new(file, what).at(key.origin.clone())
            })?;
            Ok(Tree { kind, origin: value.origin.clone() })
        }
        "increase" => {
            let bytes = read::<Bytes>(file, value, &path)?.0;
            Ok(Tree { kind: Kind::Integer(bytes.min(1 << 31) as i64), origin: value.origin.clone() })
        }
        "rate_bytes" => {
            let bytes = read::<Bytes>(file, value, &path)?.0;
            Ok(Tree { kind: Kind::Integer(bytes.min(1 << 40) as i64), origin: value.origin.clone() })
        }
        "line_rate" | "rate_min" | "additive" | "hyper" => {
            let rate = read::<Rate>(file, value, &path)?.0;
            Ok(Tree { kind: Kind::Integer(rate as i64), origin: value.origin.clone() })
        }
        "full_speed" => {
            let bits = read::<RateOrNone>(file, value, &path)?.0;
            Ok(Tree { kind: Kind::Integer(i64::try_from(bits).unwrap_or(i64::MAX)), origin: value.origin.clone() })
        }
        "overflow" | "threshold" | "collision_weight" | "mark_weight" | "density" => {
            let share = read::<Fraction>(file, value, &path)?.0;
            Ok(Tree { kind: Kind::Float(share), origin: value.origin.clone() })
        }
        "table" => read::<Placement>(file, value, &path).map(|_| value.clone()),
        _ => Ok(value.clone()),
    }
}
