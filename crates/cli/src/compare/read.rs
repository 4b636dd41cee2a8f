//! Results and plans from files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};

/// Numbers that say which run it is, or how long the machine took.
const NOT_COMPARED: [&str; 3] = ["seed", "repetition", "wall_s"];

/// What `fanin sim` has written.
pub struct Results {
    path: PathBuf,
    /// Version and commit of the program, where the folder says them.
    about: Option<Value>,
    /// The runs' records.
    runs: Vec<Map<String, Value>>,
    /// The plan's values by their whole keys, and its text.
    pub plan: Option<BTreeMap<String, String>>,
    pub text: Option<String>,
}

impl Results {
    /// Reads a folder, or a file of records.
    ///
    /// # Errors
    /// What is there is no result.
    pub fn read(path: &Path) -> Result<Results> {
        let folder = path.is_dir();
        let file = if folder { path.join("results.json") } else { path.to_path_buf() };
        let named = || format!("{}: expected a folder of `fanin sim --out`, or its results.json", path.display());
        let text = std::fs::read_to_string(&file).with_context(named)?;
        let runs: Vec<Map<String, Value>> = serde_json::from_str(&text).with_context(named)?;
        if runs.is_empty() || runs.iter().any(|run| !run.contains_key("seed") || !run.contains_key("params")) {
            bail!("{}, and no run is in it", named());
        }
        let beside = |name: &str| if folder { std::fs::read_to_string(path.join(name)).ok() } else { None };
        let text = beside("plan.toml");
        let plan = text.as_ref().map(|text| values_of(text).with_context(|| path.join("plan.toml").display().to_string())).transpose()?;
        let about = beside("about.json").and_then(|text| serde_json::from_str(&text).ok());
        Ok(Results { path: path.into(), about, runs, plan, text })
    }

    /// # Errors
    /// There is no number of that name.
    pub fn check(&self, metrics: &[String]) -> Result<()> {
        let known: Vec<String> = self.numbers();
        match metrics.iter().find(|metric| !known.contains(metric)) {
            Some(metric) => bail!("--metrics {metric}: expected numbers of {}: {}", self.path.display(), known.join(", ")),
            None => Ok(()),
        }
    }

    /// Names of the numbers of runs, in their order.
    pub fn numbers(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for (name, value) in self.runs.iter().flatten() {
            if value.is_number() && !NOT_COMPARED.contains(&name.as_str()) && !names.contains(name) {
                names.push(name.clone());
            }
        }
        names
    }

    /// The runs of each point, by what it is called, in the order of the file.
    pub fn points(&self) -> Vec<(String, Vec<&Map<String, Value>>)> {
        let mut points: Vec<(String, Vec<&Map<String, Value>>)> = Vec::new();
        for run in &self.runs {
            let label = label(run);
            match points.iter_mut().find(|(known, _)| *known == label) {
                Some((_, runs)) => runs.push(run),
                None => points.push((label, vec![run])),
            }
        }
        points
    }

    /// In words.
    pub fn describe(&self) -> String {
        let of = |key: &str| self.about.as_ref().and_then(|about| about.get(key)).and_then(Value::as_str);
        let version = of("fanin").map_or("by an unknown version".to_owned(), |version| format!("by fanin {version}"));
        let commit = of("commit").map_or(String::new(), |commit| format!(", commit {commit}"));
        format!("{} ({} runs, {version}{commit})", self.path.display(), self.runs.len())
    }

    /// The same as JSON.
    pub fn json(&self) -> Value {
        json!({ "path": self.path.display().to_string(), "runs": self.runs.len(), "about": self.about })
    }
}

/// What `--set` has changed, which stands above the plan as comments: keys and values.
fn sets(text: &str) -> Vec<(String, String)> {
    let sets = text.lines().map_while(|line| line.strip_prefix("# --set ")).filter_map(|set| set.split_once('='));
    // As values of the plan are written.
    let written = |value: &str| {
        let parsed = format!("value = {value}").parse::<toml::Table>().ok().and_then(|mut table| table.remove("value"));
        parsed.unwrap_or_else(|| value.into()).to_string()
    };
    sets.map(|(key, value)| (key.trim().to_owned(), written(value.trim()))).collect()
}

/// What tells a point from others: its series and what it sets.
fn label(run: &Map<String, Value>) -> String {
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let series = run.get("series").filter(|series| !series.is_null()).map(plain);
    let params = run.get("params").and_then(Value::as_object);
    let params = params.into_iter().flatten().map(|(key, value)| format!("{key} {}", plain(value)));
    let parts: Vec<String> = series.into_iter().chain(params).collect();
    if parts.is_empty() { "all".into() } else { parts.join(", ") }
}

/// Keys whose values differ: key, before, after.
pub fn plan_changes(a: &BTreeMap<String, String>, b: &BTreeMap<String, String>) -> Vec<(String, String, String)> {
    let mut keys: Vec<&String> = a.keys().chain(b.keys()).collect();
    keys.sort();
    keys.dedup();
    let text = |value: Option<&String>| value.cloned().unwrap_or_else(|| "(not set)".into());
    keys.into_iter().filter(|key| a.get(*key) != b.get(*key)).map(|key| (key.clone(), text(a.get(key)), text(b.get(key)))).collect()
}

/// A plan's values by their whole keys, with what `--set` has changed.
fn values_of(text: &str) -> Result<BTreeMap<String, String>, toml::de::Error> {
    let mut values = flat(&text.parse()?);
    values.extend(sets(text));
    Ok(values)
}

/// Values by their whole keys.
fn flat(table: &toml::Table) -> BTreeMap<String, String> {
    fn add(found: &mut BTreeMap<String, String>, key: &str, value: &toml::Value) {
        let below = |part: &str| if key.is_empty() { part.to_owned() } else { format!("{key}.{part}") };
        match value {
            toml::Value::Table(table) => table.iter().for_each(|(part, value)| add(found, &below(part), value)),
            toml::Value::Array(values) if values.iter().all(toml::Value::is_table) => {
                values.iter().enumerate().for_each(|(number, value)| add(found, &below(&number.to_string()), value));
            }
            other => drop(found.insert(key.to_owned(), other.to_string())),
        }
    }
    let mut found = BTreeMap::new();
    add(&mut found, "", &toml::Value::Table(table.clone()));
    found
}
