//! The table of systems' keys in `examples/README.md` is made from their parameters: what a parameter's docstring says is what a key means, and
//! its default is what the parameter has, unless the docstring ends with a paragraph `Default: ...`. With `FANIN_WRITE` in the environment the
//! table is written; without, it has to be as it would be written.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use fanin_plan::system::{Parameter, parameters};
use fanin_systems::{System, Unit};
use serde_json::Value;

/// Between these lines the generated rows stand.
const MARKS: (&str, &str) =
    ("<!-- keys of systems: made by the test documented_keys of crates/plan -->", "<!-- end of keys of systems -->");

fn repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// A field of a parameters' struct.
struct Field {
    name: String,
    /// Its docstring, a paragraph each.
    paragraphs: Vec<String>,
    /// The struct whose fields stand in its place.
    flattened: Option<String>,
}

/// The paragraphs of a docstring, each on one line.
fn paragraphs(attributes: &[syn::Attribute]) -> Vec<String> {
    let mut found = vec![String::new()];
    for attribute in attributes {
        let syn::Meta::NameValue(pair) = &attribute.meta else { continue };
        let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(line), .. }) = &pair.value else { continue };
        let (line, last) = (line.value(), found.last_mut().unwrap());
        match line.trim() {
            "" => found.push(String::new()),
            line if last.is_empty() => last.push_str(line),
            line => *last = format!("{last} {line}"),
        }
    }
    found.retain(|paragraph| !paragraph.is_empty());
    found
}

/// The struct of parameters that an attribute `serde(flatten)` puts in a field's place.
fn flattened(field: &syn::Field) -> Option<String> {
    let is_flat =
        field.attrs.iter().any(|one| one.path().is_ident("serde") && one.parse_args::<syn::Ident>().is_ok_and(|word| word == "flatten"));
    let syn::Type::Path(path) = &field.ty else { return None };
    is_flat.then(|| path.path.segments.last().unwrap().ident.to_string())
}

/// All structs called `...Parameters` below a folder, with their fields.
fn structs(folder: &Path, found: &mut BTreeMap<String, Vec<Field>>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            structs(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let file = syn::parse_file(&fs::read_to_string(&path).unwrap()).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            for item in file.items {
                let syn::Item::Struct(item) = item else { continue };
                let named = |field: &syn::Field| {
                    let name = field.ident.as_ref()?.to_string();
                    Some(Field { name, paragraphs: paragraphs(&field.attrs), flattened: flattened(field) })
                };
                found.insert(item.ident.to_string(), item.fields.iter().filter_map(named).collect());
            }
        }
    }
}

/// The fields of a struct, with those of flattened ones in their places.
fn fields<'a>(structs: &'a BTreeMap<String, Vec<Field>>, name: &str) -> Vec<&'a Field> {
    let expand = |field: &'a Field| match &field.flattened {
        Some(inner) => fields(structs, inner),
        None => vec![field],
    };
    structs.get(name).unwrap_or_else(|| panic!("no struct {name} in crates/systems")).iter().flat_map(expand).collect()
}

/// A number with the largest unit in which it is whole.
fn in_units(value: u64, units: &[(u64, &str)]) -> String {
    let (size, unit) = units.iter().find(|(size, _)| value != 0 && value.is_multiple_of(*size)).or(units.iter().min()).unwrap();
    format!("`\"{}{unit}\"`", value / size)
}

/// What a parameter is where nothing is said, as it would stand in a plan.
fn default_of(parameter: &Parameter) -> String {
    let whole = parameter.default.as_u64().unwrap_or_default();
    match (parameter.unit, &parameter.default) {
        (Unit::Time, Value::Number(_)) if whole == 0 => "`\"0us\"`".to_string(),
        (Unit::Time, Value::Number(_)) => in_units(whole, &[(1_000_000_000, "ms"), (1_000_000, "us"), (1_000, "ns"), (1, "ps")]),
        (Unit::Bytes(_), Value::Number(_)) => in_units(whole, &[(1_000_000, "MB"), (1, "B")]),
        (Unit::Rate | Unit::RateOrNone, Value::Number(_)) if whole == 0 => "`\"0Gb/s\"`".to_string(),
        (Unit::Rate | Unit::RateOrNone, Value::Number(_)) => {
            in_units(whole, &[(1_000_000_000, "Gb/s"), (1_000_000, "Mb/s"), (1_000, "kb/s"), (1, "b/s")])
        }
        (_, Value::String(text)) => format!("`\"{text}\"`"),
        (_, Value::Number(number)) if number.as_f64().is_some_and(|number| number.fract() == 0.0) => {
            format!("{:.0}", number.as_f64().unwrap())
        }
        (_, other) => other.to_string(),
    }
}

/// The table's rows: key and systems, default, meaning. Systems whose keys mean the same share a row.
fn rows() -> Vec<(String, Vec<String>, String, String)> {
    let mut known = BTreeMap::new();
    structs(&repository("crates/systems/src"), &mut known);
    let mut rows: Vec<(String, Vec<String>, String, String)> = Vec::new();
    for system in System::all() {
        let own = parameters(&system);
        let debug = format!("{system:?}");
        let name = debug.split(['(', ' ', ')']).nth(1).unwrap();
        for field in fields(&known, name) {
            let parameter = own.iter().find(|one| one.field == field.name).unwrap_or_else(|| panic!("{name} has no {}", field.name));
            // Several parameters with one key have one row, that of the shortest name.
            if own.iter().any(|one| one.key == parameter.key && one.field.len() < parameter.field.len()) {
                continue;
            }
            let (mut paragraphs, mut default) = (field.paragraphs.clone(), default_of(parameter));
            if let Some(said) =
                paragraphs.last().and_then(|last| last.strip_prefix("Default: ")).map(|said| said.trim_end_matches('.').to_string())
            {
                default = said;
                paragraphs.pop();
            }
            let meaning = paragraphs.join(" ").replace('|', "\\|");
            assert!(!meaning.is_empty(), "{name}: {} has no docstring that says what it means in plans", field.name);
            match rows.iter_mut().find(|row| row.0 == parameter.key && row.2 == default && row.3 == meaning) {
                Some(row) => row.1.push(system.name().to_string()),
                None => rows.push((parameter.key.clone(), vec![system.name().to_string()], default, meaning)),
            }
        }
    }
    rows
}

#[test]
fn keys_of_systems_are_documented_where_they_are_defined() {
    let names: Vec<String> = System::all().iter().map(|system| format!("`\"{}\"`", system.name())).collect();
    let mut table = format!("| `system` | | one of {}: [their pages](../docs/systems/index.md) |\n", names.join(", "));
    for (key, systems, default, meaning) in rows() {
        table += &format!("| `{key}` ({}) | {default} | {meaning} |\n", systems.join(", "));
    }
    let file = repository("examples/README.md");
    let text = fs::read_to_string(&file).unwrap();
    let (before, rest) = text.split_once(MARKS.0).expect("the mark before the keys of systems");
    let (_, after) = rest.split_once(MARKS.1).expect("the mark after the keys of systems");
    let written = format!("{before}{}\n\n| key | default | meaning |\n|---|---|---|\n{table}\n{}{after}", MARKS.0, MARKS.1);
    if std::env::var_os("FANIN_WRITE").is_some() {
        fs::write(&file, &written).unwrap();
    }
    assert!(fs::read_to_string(&file).unwrap() == written, "examples/README.md: run this test once with FANIN_WRITE=1");
}
