//! Keys of `[[jobs]]` that belong to the system. They are those of the registry, except that times have units here and that no key may
//! mean two things: a plan's `placement` is where workers are.

use fanin_systems::{FanInRule, LeaderRule, Placement, System};

use super::errors::PlanError;
use super::read::{read, suggestion};
use super::tree::{Key, Kind, Step, Tree};
use super::units::{Bytes, Fraction, Rate, RateOrNone, Time};

/// A key of a plan and its name in the registry; one key of a plan may be two there.
const RENAMED: &[(&str, &str)] = &[
    ("timeout", "timeout_ps"),
    ("timeout", "timeout_adaptive"),
    ("timeout", "timeout_spine_ps"),
    ("timeout", "timeout_root_ps"),
    ("scan", "scan_ps"),
    ("leader_time", "leader_time_ps"),
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
    ("answer_min", "answer_min_ps"),
    ("estimate_timer", "estimate_timer_ps"),
    ("rate_timer", "rate_timer_ps"),
    ("additive", "additive_bps"),
    ("hyper", "hyper_bps"),
    ("full_speed", "full_speed_bps"),
    ("step_overhead", "step_overhead_ps"),
    ("step_deviation", "step_deviation_ps"),
];

/// A timeout by level, and its name in the registry: at switches next to hosts, at others, and of a block at the switch of its leader.
const LEVELS: &[(&str, &str)] = &[("leaf", "timeout_ps"), ("spine", "timeout_spine_ps"), ("root", "timeout_root_ps")];

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
        refuse_root(file, key, value, (base, entries))?;
        if let ("timeout", Kind::Table(levels)) = (key.name.as_str(), &value.kind) {
            translated.extend(by_level(file, value, levels, base)?);
            continue;
        }
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

/// The timeouts that a plan gives by level.
fn by_level(file: &str, value: &Tree, levels: &[(Key, Tree)], base: &[Step]) -> Result<Vec<(Key, Tree)>, PlanError> {
    let path: Vec<Step> = base.iter().cloned().chain([Step::Key("timeout".into())]).collect();
    if levels.is_empty() {
        let what = format!("{} = {value}: expected a time for leaf, spine or root", super::tree::path_text(&path));
        return Err(PlanError::new(file, what).at(value.origin.clone()));
    }
    let one = |(key, value): &(Key, Tree)| {
        let path: Vec<Step> = path.iter().cloned().chain([Step::Key(key.name.clone())]).collect();
        let Some((_, name)) = LEVELS.iter().find(|(level, _)| *level == key.name) else {
            let names: Vec<String> = LEVELS.iter().map(|(level, _)| level.to_string()).collect();
            let what = format!("{} = {value}: unknown key; {}", super::tree::path_text(&path), suggestion(&key.name, &names));
            return Err(PlanError::new(file, what).at(key.origin.clone()));
        };
        Ok((Key { name: name.to_string(), origin: key.origin.clone() }, time(file, value, &path)?))
    };
    levels.iter().map(one).collect()
}

/// A time in picoseconds.
fn time(file: &str, value: &Tree, path: &[Step]) -> Result<Tree, PlanError> {
    let ps = read::<Time>(file, value, path)?.0.as_ps();
    let kind = i64::try_from(ps).map(Kind::Integer).map_err(|_| {
        let what = format!("{} = {value}: expected at most 100 days", super::tree::path_text(path));
        PlanError::new(file, what).at(value.origin.clone())
    })?;
    Ok(Tree { kind, origin: value.origin.clone() })
}

/// The paper's Fig. 3 has a root at a spine, before there are leaders (3.1.1, 3.1.4). With them packets name the leader that they are for, and
/// nothing would keep a packet that has passed another root from going up to it again.
fn refuse_root(file: &str, key: &Key, value: &Tree, (base, entries): (&[Step], &[(Key, Tree)])) -> Result<(), PlanError> {
    let is_canary = entries.iter().any(|(key, value)| key.name == "system" && matches!(&value.kind, Kind::Text(name) if name == "canary"));
    if key.name != "root" || !is_canary {
        return Ok(());
    }
    let path: Vec<Step> = base.iter().cloned().chain([Step::Key("root".into())]).collect();
    let expected =
        "no such key: a block's root is the switch of its leader, which leader says; a spine is none, since packets name their leader only";
    Err(PlanError::new(file, format!("{} = {value}: expected {expected}", super::tree::path_text(&path))).at(key.origin.clone()))
}

/// Who leads.
fn leader(file: &str, value: &Tree, path: &[Step]) -> Result<Tree, PlanError> {
    match &value.kind {
        Kind::Text(text) if text.parse::<LeaderRule>().is_ok() => Ok(value.clone()),
        _ => {
            let what = format!("{} = {value}: expected {}", super::tree::path_text(path), LeaderRule::EXPECTED);
            Err(PlanError::new(file, what).at(value.origin.clone()))
        }
    }
}

/// A value as the registry has it; what is wrong with it is said here, under the plan's key.
fn translate(file: &str, key: &Key, value: &Tree, base: &[Step]) -> Result<Tree, PlanError> {
    let path: Vec<Step> = base.iter().cloned().chain([Step::Key(key.name.clone())]).collect();
    match key.name.as_str() {
        "timeout" if is_adaptive(key, value) => Ok(Tree { kind: Kind::Bool(true), origin: value.origin.clone() }),
        "timeout" | "timeout_min" | "timeout_max" | "scan" | "leader_time" | "hold" | "lifetime" | "reclaim" | "retry" | "answer_min"
        | "notification_gap" | "estimate_timer" | "rate_timer" | "step_overhead" | "step_deviation" => time(file, value, &path),
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
        "overflow" | "threshold" | "collision_weight" | "mark_weight" | "density" | "overlap" => {
            let share = read::<Fraction>(file, value, &path)?.0;
            Ok(Tree { kind: Kind::Float(share), origin: value.origin.clone() })
        }
        "table" => read::<Placement>(file, value, &path).map(|_| value.clone()),
        "fan_in" => read::<FanInRule>(file, value, &path).map(|_| value.clone()),
        "leader" => leader(file, value, &path),
        _ => Ok(value.clone()),
    }
}
