//! What Python knows of systems' keys is made from their parameters. With `FANIN_WRITE` in the environment the file is written; without, it has
//! to be as it would be written.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use fanin_plan::system::{Parameter, parameters};
use fanin_systems::{System, Unit};
use serde_json::Value;

fn repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// The names that a parameter may have for values, as reading a wrong one says them; none where it is any text.
fn choices(system: &System, field: &str) -> Vec<String> {
    let mut json = serde_json::to_value(system).unwrap();
    json[field] = Value::from("-");
    let said = serde_json::from_value::<System>(json).unwrap_err().to_string();
    let Some((_, names)) = said.split_once(", expected ") else { return Vec::new() };
    names.split('`').skip(1).step_by(2).map(str::to_string).collect()
}

/// A parameter's type to Python.
fn python(system: &System, parameter: &Parameter) -> Option<String> {
    let name = match parameter.unit {
        Unit::Time => "Time",
        Unit::Bytes(_) => "Bytes",
        Unit::Rate | Unit::RateOrNone => "Rate",
        Unit::Fraction => "Fraction",
        Unit::Plain => match &parameter.default {
            // Where a text stands for it.
            Value::Bool(_) if parameter.field.ends_with("_adaptive") => "Literal[\"adaptive\"]",
            Value::Bool(_) => "bool",
            Value::Number(number) if number.is_f64() => "float",
            Value::Number(_) => "int",
            Value::String(_) => {
                let choices = choices(system, &parameter.field);
                let texts: Vec<String> = choices.iter().map(|choice| format!("{choice:?}")).collect();
                return Some(if texts.is_empty() { "str".to_string() } else { format!("Literal[{}]", texts.join(", ")) });
            }
            other => panic!("{}: {other} is not in plans", parameter.field),
        },
    };
    (!parameter.default.is_null()).then(|| name.to_string())
}

/// The file.
fn rendered() -> String {
    let mut keys: BTreeMap<String, (Vec<&str>, Vec<String>)> = BTreeMap::new();
    for system in System::all() {
        for parameter in parameters(&system) {
            let (systems, types) = keys.entry(parameter.key.clone()).or_default();
            if !systems.contains(&system.name()) {
                systems.push(system.name());
            }
            types.extend(python(&system, &parameter));
        }
    }
    let names: Vec<String> = System::NAMES.iter().map(|name| format!("    {name:?},\n")).collect();
    let mut text = format!(
        "\"\"\"Systems and their keys: made from their parameters in crates/systems by a test of crates/plan, python_types.\"\"\"\n\n\
         from __future__ import annotations\n\nfrom typing import Literal, TypeAlias, TypedDict\n\n\
         from ._units import Bytes, Fraction, Rate, Time\n\n\
         #: Names of all systems.\nSystem: TypeAlias = Literal[\n{}]\n\n\n\
         class Timeouts(TypedDict, total=False):\n    \"\"\"Canary's timeouts by level: at switches next to hosts, at others, and of a block at the switch of its leader.\"\"\"\n\n    \
         leaf: Time\n    spine: Time\n    root: Time\n\n\n\
         class SystemKeys(TypedDict, total=False):\n    \"\"\"The keys of all systems.\"\"\"\n",
        names.concat()
    );
    for (key, (systems, mut types)) in keys {
        // By level, too.
        if types.iter().any(|name| name == "Literal[\"adaptive\"]") {
            types.extend(["Timeouts".to_string()]);
        }
        types.sort_by_key(|name| (name.starts_with("Literal"), name == "Timeouts", name.clone()));
        types.dedup();
        let _ = write!(text, "\n    # {}\n    {key}: {}", systems.join(", "), types.join(" | "));
    }
    text + "\n"
}

#[test]
fn python_has_the_keys_of_all_systems() {
    let (file, text) = (repository("python/fanin/_systems.py"), rendered());
    if std::env::var_os("FANIN_WRITE").is_some() {
        fs::write(&file, &text).unwrap();
    }
    assert!(fs::read_to_string(&file).unwrap_or_default() == text, "python/fanin/_systems.py: run this test once with FANIN_WRITE=1");
}
