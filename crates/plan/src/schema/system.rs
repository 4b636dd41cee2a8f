//! Keys of `[[jobs]]` that belong to the system. They are its parameters in the registry, which says what each is called here and which unit it
//! has: a time is `"10us"` here, and a number of picoseconds there.

use fanin_systems::{FanInRule, LeaderRule, Placement, System, Unit};
use serde_json::Value;

use crate::reading::PlanError;
use crate::reading::read::{read, suggestion};
use crate::reading::tree::{Key, Kind, Step, Tree};
use crate::reading::units::{Bytes, Fraction, Rate, RateOrNone, Time};

/// A parameter of a system.
#[derive(Clone, PartialEq, Debug)]
pub struct Parameter {
    /// Its key in plans; one key may be several parameters.
    pub key: String,
    /// Its name in the registry.
    pub field: String,
    /// What it is in plans.
    pub unit: Unit,
    /// What it is where nothing is said, as the registry has it.
    pub default: Value,
}

/// All parameters of a system.
pub fn parameters(system: &System) -> Vec<Parameter> {
    let Value::Object(fields) = system.to_json() else { return Vec::new() };
    let own = fields.into_iter().filter(|(field, _)| field != "system");
    let parameter = |(field, default): (String, Value)| Parameter {
        key: system.key_of(&field).to_string(),
        unit: system.unit_of(&field, default.is_f64()),
        field,
        default,
    };
    own.map(parameter).collect()
}

/// The system that a job's table names, with the parameters that it has where nothing is said; nothing where it names none.
fn named(file: &str, entries: &[(Key, Tree)], base: &[Step]) -> Result<Option<System>, PlanError> {
    let Some((_, value)) = entries.iter().find(|(key, _)| key.name == "system") else { return Ok(None) };
    let Kind::Text(name) = &value.kind else { return Ok(None) };
    if let Some(system) = System::named(name) {
        return Ok(Some(system));
    }
    let path: Vec<Step> = base.iter().cloned().chain([Step::Key("system".into())]).collect();
    let names: Vec<String> = System::names().iter().map(|name| format!("{name:?}")).collect();
    let what = format!("{} = {value}: expected {}", crate::reading::tree::path_text(&path), names.join(" or "));
    Err(PlanError::new(file, what).at(value.origin.clone()))
}

/// A value as parameters of systems from elsewhere are read.
fn json(tree: &Tree) -> Value {
    match &tree.kind {
        Kind::Bool(value) => Value::from(*value),
        Kind::Integer(value) => Value::from(*value),
        Kind::Float(value) => Value::from(*value),
        Kind::Text(value) => Value::from(value.as_str()),
        Kind::List(list) => list.iter().map(json).collect(),
        Kind::Table(entries) => entries.iter().map(|(key, value)| (key.name.clone(), json(value))).collect(),
    }
}

/// A timeout by level, and its name in the registry: at switches next to hosts, at others, and of a block at the switch of its leader.
const LEVELS: &[(&str, &str)] = &[("leaf", "timeout_ps"), ("spine", "timeout_spine_ps"), ("root", "timeout_root_ps")];

/// In place of a time: switches find their timeout themselves.
const ADAPTIVE: &str = "adaptive";

fn is_adaptive(key: &Key, value: &Tree) -> bool {
    key.name == "timeout" && matches!(&value.kind, Kind::Text(text) if text == ADAPTIVE)
}

/// Reads the part of a job's table that is not every job's, which stands at `base` in the plan. `common` are the keys of every job, for
/// suggestions.
///
/// # Errors
/// [`PlanError`] with file, line, key, value and what was expected.
pub fn read_system(file: &str, tree: &Tree, base: &[Step], common: &[&str]) -> Result<System, PlanError> {
    let Kind::Table(entries) = &tree.kind else {
        let what = format!("{} = {tree}: expected a table", crate::reading::tree::path_text(base));
        return Err(PlanError::new(file, what).at(tree.origin.clone()));
    };
    let named = named(file, entries, base)?;
    let known = named.as_ref().map(parameters).unwrap_or_default();
    let mut translated = Vec::new();
    for (key, value) in entries {
        refuse_root(file, key, value, (base, entries))?;
        if let ("timeout", Kind::Table(levels)) = (key.name.as_str(), &value.kind) {
            translated.extend(by_level(file, value, levels, base)?);
            continue;
        }
        // Of several parameters with one key, the others have forms of their own.
        let parameter = known.iter().filter(|parameter| parameter.key == key.name).min_by_key(|parameter| parameter.field.len());
        let field = parameter.map_or(key.name.as_str(), |parameter| &parameter.field);
        let unit = parameter.map_or(Unit::Plain, |parameter| parameter.unit);
        let name = if is_adaptive(key, value) { "timeout_adaptive" } else { field }.to_string();
        translated.push((Key { name, origin: key.origin.clone() }, translate(file, key, value, unit, base)?));
    }
    let mut own: Vec<&str> = known.iter().map(|parameter| parameter.key.as_str()).chain(["system"]).collect();
    own.sort_unstable();
    own.dedup();
    let translated = Tree { kind: Kind::Table(translated), origin: tree.origin.clone() };
    // What is wrong with a value is said before what is wrong with a key, but for systems from elsewhere, whose values are read as a whole.
    let system = if let Some(System::Own(_)) = named { None } else { Some(read::<System>(file, &translated, base)?) };
    match entries.iter().find(|(key, _)| !own.contains(&key.name.as_str())) {
        None => system.map_or_else(|| read_own(file, &translated, base), Ok),
        Some((key, value)) => {
            let keys: Vec<String> = common.iter().chain(own.iter().filter(|key| **key != "system")).map(|key| key.to_string()).collect();
            let path = crate::reading::tree::path_text(base);
            let what = format!("{path}.{} = {value}: unknown key; {}", key.name, suggestion(&key.name, &keys));
            Err(PlanError::new(file, what).at(key.origin.clone()))
        }
    }
}

/// A system from elsewhere.
fn read_own(file: &str, tree: &Tree, base: &[Step]) -> Result<System, PlanError> {
    let Value::Object(mut fields) = json(tree) else { return read(file, tree, base) };
    let name = fields.remove("system").and_then(|name| name.as_str().map(str::to_string)).unwrap_or_default();
    System::own(&name, Value::Object(fields)).map_err(|error| {
        let what = format!("{}: {name}: {error}", crate::reading::tree::path_text(base));
        PlanError::new(file, what).at(tree.origin.clone())
    })
}

/// The timeouts that a plan gives by level.
fn by_level(file: &str, value: &Tree, levels: &[(Key, Tree)], base: &[Step]) -> Result<Vec<(Key, Tree)>, PlanError> {
    let path: Vec<Step> = base.iter().cloned().chain([Step::Key("timeout".into())]).collect();
    if levels.is_empty() {
        let what = format!("{} = {value}: expected a time for leaf, spine or root", crate::reading::tree::path_text(&path));
        return Err(PlanError::new(file, what).at(value.origin.clone()));
    }
    let one = |(key, value): &(Key, Tree)| {
        let path: Vec<Step> = path.iter().cloned().chain([Step::Key(key.name.clone())]).collect();
        let Some((_, name)) = LEVELS.iter().find(|(level, _)| *level == key.name) else {
            let names: Vec<String> = LEVELS.iter().map(|(level, _)| level.to_string()).collect();
            let what = format!("{} = {value}: unknown key; {}", crate::reading::tree::path_text(&path), suggestion(&key.name, &names));
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
        let what = format!("{} = {value}: expected at most 100 days", crate::reading::tree::path_text(path));
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
    Err(PlanError::new(file, format!("{} = {value}: expected {expected}", crate::reading::tree::path_text(&path))).at(key.origin.clone()))
}

/// Who leads.
fn leader(file: &str, value: &Tree, path: &[Step]) -> Result<Tree, PlanError> {
    match &value.kind {
        Kind::Text(text) if text.parse::<LeaderRule>().is_ok() => Ok(value.clone()),
        _ => {
            let what = format!("{} = {value}: expected {}", crate::reading::tree::path_text(path), LeaderRule::EXPECTED);
            Err(PlanError::new(file, what).at(value.origin.clone()))
        }
    }
}

/// A value as the registry has it; what is wrong with it is said here, under the plan's key.
fn translate(file: &str, key: &Key, value: &Tree, unit: Unit, base: &[Step]) -> Result<Tree, PlanError> {
    let path: Vec<Step> = base.iter().cloned().chain([Step::Key(key.name.clone())]).collect();
    let as_integer = |number: u64| Kind::Integer(i64::try_from(number).unwrap_or(i64::MAX));
    let kind = match unit {
        Unit::Plain | Unit::Time if is_adaptive(key, value) => Kind::Bool(true),
        Unit::Plain => return plain(file, key, value, &path),
        Unit::Time => return time(file, value, &path),
        Unit::Bytes(most) => as_integer(read::<Bytes>(file, value, &path)?.0.min(most)),
        Unit::Rate => as_integer(read::<Rate>(file, value, &path)?.0),
        Unit::RateOrNone => as_integer(read::<RateOrNone>(file, value, &path)?.0),
        Unit::Fraction => Kind::Float(read::<Fraction>(file, value, &path)?.0),
    };
    Ok(Tree { kind, origin: value.origin.clone() })
}

/// A value without a unit. Where it is one of several, and has another name in the registry, what is wrong with it is said here.
fn plain(file: &str, key: &Key, value: &Tree, path: &[Step]) -> Result<Tree, PlanError> {
    match key.name.as_str() {
        "table" => read::<Placement>(file, value, path).map(|_| value.clone()),
        "fan_in" => read::<FanInRule>(file, value, path).map(|_| value.clone()),
        "leader" => leader(file, value, path),
        _ => Ok(value.clone()),
    }
}
