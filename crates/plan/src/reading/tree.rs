//! A plan as a tree of values, each of which knows where it came from: a line of the file or a `--set` on the command line.
//!
//! Series, sweeps and `--set` replace values in the tree before it is read, so an error still leads to what the user wrote.

use std::fmt;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::errors::PlanError;
pub use super::origin::Origin;
use super::size::DEPTH_MAX;

/// A value and where it came from.
#[derive(Clone, PartialEq, Debug)]
pub struct Tree {
    /// The value.
    pub kind: Kind,
    /// Where it came from.
    pub origin: Origin,
}

/// A value.
#[derive(Clone, PartialEq, Debug)]
pub enum Kind {
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// Any other number.
    Float(f64),
    /// A string, a date or a time.
    Text(String),
    /// A list.
    List(Vec<Tree>),
    /// A table, in the order of the file.
    Table(Vec<(Key, Tree)>),
}

/// The key of a value in a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Key {
    /// The key.
    pub name: String,
    /// Where it came from.
    pub origin: Origin,
}

/// One step of a path to a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Into a table.
    Key(String),
    /// Into a list.
    Index(usize),
}

/// A path to a value, for people: `jobs[0].workers`.
pub fn path_text(path: &[Step]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            Step::Key(key) if text.is_empty() => text.push_str(key),
            Step::Key(key) => text.extend([".", key]),
            Step::Index(index) => text.push_str(&format!("[{index}]")),
        }
    }
    text
}

/// Reads a path: `jobs.0.workers` or `jobs[0].workers`. What follows `sweep.` is one key, itself a path.
pub fn parse_path(text: &str) -> Vec<Step> {
    if let Some(swept) = text.strip_prefix("sweep.") {
        return vec![Step::Key("sweep".into()), Step::Key(swept.trim_matches('"').into())];
    }
    let plain = text.replace('[', ".").replace(']', "");
    plain
        .split('.')
        .map(|part| part.trim())
        .map(|part| part.parse().map_or_else(|_| Step::Key(part.trim_matches('"').into()), Step::Index))
        .collect()
}

impl Tree {
    /// Reads a plan.
    ///
    /// # Errors
    /// [`PlanError`] with the line that is not TOML.
    pub fn parse(file: &str, text: &str) -> Result<Tree, PlanError> {
        let lines = Lines::new(text);
        match DeTable::parse(text) {
            Ok(table) => Ok(from_table(table.get_ref(), 0, &lines)),
            Err(error) => {
                let line = error.span().map_or(1, |span| lines.of(span.start));
                Err(PlanError::new(file, format!("not TOML: {}", error.message().replace('\n', ", "))).at(Origin::Line(line)))
            }
        }
    }

    /// Reads the right side of a `--set`: a TOML value, or else a bare string.
    pub fn from_argument(value: &str, argument: &Arc<str>) -> Tree {
        Tree::from_cell(value, &Origin::Set(argument.clone()))
    }

    /// Reads what stands somewhere by itself: a TOML value, or else a bare string.
    pub fn from_cell(value: &str, origin: &Origin) -> Tree {
        let mut tree = match DeValue::parse(value) {
            Ok(value) => from_value(&value, &Lines::new("")),
            Err(_) => Tree { kind: Kind::Text(value.to_string()), origin: Origin::Line(0) },
        };
        tree.set_origin(origin);
        tree
    }

    fn set_origin(&mut self, origin: &Origin) {
        self.origin = origin.clone();
        match &mut self.kind {
            Kind::List(items) => items.iter_mut().for_each(|item| item.set_origin(origin)),
            Kind::Table(entries) => {
                for (key, value) in entries {
                    key.origin = origin.clone();
                    value.set_origin(origin);
                }
            }
            _ => {}
        }
    }

    /// The value of a key, where this is a table that has it.
    pub fn get(&self, key: &str) -> Option<&Tree> {
        match &self.kind {
            Kind::Table(entries) => entries.iter().find(|(name, _)| name.name == key).map(|(_, value)| value),
            _ => None,
        }
    }

    /// Takes a key out of a table.
    pub fn take(&mut self, key: &str) -> Option<(Key, Tree)> {
        match &mut self.kind {
            Kind::Table(entries) => {
                let index = entries.iter().position(|(name, _)| name.name == key)?;
                Some(entries.remove(index))
            }
            _ => None,
        }
    }

    fn step(&self, step: &Step) -> Option<&Tree> {
        match (step, &self.kind) {
            (Step::Key(key), _) => self.get(key),
            (Step::Index(index), Kind::List(items)) => items.get(*index),
            (Step::Index(index), Kind::Table(_)) => self.get(&index.to_string()),
            _ => None,
        }
    }

    /// The value at a path.
    pub fn find(&self, path: &[Step]) -> Option<&Tree> {
        path.iter().try_fold(self, |tree, step| tree.step(step))
    }

    /// The value at a path or, where there is none, the closest one above it.
    pub fn closest(&self, path: &[Step]) -> &Tree {
        let mut tree = self;
        for step in path {
            match tree.step(step) {
                Some(next) => tree = next,
                None => break,
            }
        }
        tree
    }

    /// Puts a value at a path; tables on the way are made where they are missing.
    ///
    /// # Errors
    /// The part of the path that does not exist and cannot be made, and why.
    pub fn put(&mut self, path: &[Step], value: Tree) -> Result<(), String> {
        check_depth(path)?;
        let Some((step, rest)) = path.split_first() else {
            *self = value;
            return Ok(());
        };
        match (step, &mut self.kind) {
            (Step::Index(index), Kind::List(items)) => {
                let count = items.len();
                match items.get_mut(*index) {
                    Some(item) => item.put(rest, value),
                    None => Err(format!("[{index}]: expected an index below {count}")),
                }
            }
            (Step::Key(key), Kind::List(items)) => Err(format!("{key}: expected an index below {}, such as 0", items.len())),
            (step, Kind::Table(entries)) => {
                let name = match step {
                    Step::Key(key) => key.clone(),
                    Step::Index(index) => index.to_string(),
                };
                if !entries.iter().any(|(key, _)| key.name == name) {
                    let origin = value.origin.clone();
                    let table = Tree { kind: Kind::Table(Vec::new()), origin: origin.clone() };
                    let empty = match rest.first() {
                        Some(Step::Index(_)) => Tree { kind: Kind::List(vec![table]), origin: origin.clone() },
                        _ => table,
                    };
                    entries.push((Key { name: name.clone(), origin }, empty));
                }
                let entry = entries.iter_mut().find(|(key, _)| key.name == name).expect("it was just added");
                if rest.is_empty() {
                    entry.0.origin = value.origin.clone();
                }
                entry.1.put(rest, value)
            }
            (step, _) => Err(format!("{}: expected nothing below {self}", path_text(std::slice::from_ref(step)))),
        }
    }

    /// The value for people without quotes: the name of a point of a sweep.
    pub fn label(&self) -> String {
        match &self.kind {
            Kind::Text(text) => text.clone(),
            _ => self.to_string(),
        }
    }

    /// The value of a program, which made the plan.
    pub fn given(kind: Kind) -> Tree {
        Tree { kind, origin: Origin::Given }
    }

    /// A table of a program.
    pub fn given_table(entries: impl IntoIterator<Item = (String, Tree)>) -> Tree {
        Tree::given(Kind::Table(entries.into_iter().map(|(name, value)| (Key { name, origin: Origin::Given }, value)).collect()))
    }

    /// The plan as a file, which reads as this tree.
    pub fn to_toml(&self) -> String {
        let Kind::Table(entries) = &self.kind else { return self.to_string() };
        let (mut plain, mut sections) = (String::new(), String::new());
        for (key, value) in entries {
            match &value.kind {
                Kind::Table(inner) => sections += &section(&format!("[{key}]"), inner),
                Kind::List(items) if !items.is_empty() && items.iter().all(|item| matches!(item.kind, Kind::Table(_))) => {
                    for item in items {
                        if let Kind::Table(inner) = &item.kind {
                            sections += &section(&format!("[[{key}]]"), inner);
                        }
                    }
                }
                _ => plain += &format!("{key} = {value}\n"),
            }
        }
        plain + &sections
    }

    /// The value as JSON.
    pub fn to_json(&self) -> serde_json::Value {
        match &self.kind {
            Kind::Bool(value) => (*value).into(),
            Kind::Integer(value) => (*value).into(),
            Kind::Float(value) => (*value).into(),
            Kind::Text(value) => value.clone().into(),
            Kind::List(items) => items.iter().map(Tree::to_json).collect(),
            Kind::Table(entries) => {
                serde_json::Value::Object(entries.iter().map(|(key, value)| (key.name.clone(), value.to_json())).collect())
            }
        }
    }
}

/// Refuses what is too deep to be walked through.
///
/// # Errors
/// What is too deep.
fn check_depth(path: &[Step]) -> Result<(), String> {
    match path.len() > DEPTH_MAX {
        true => Err(format!("{} keys in each other: expected at most {DEPTH_MAX}", path.len())),
        false => Ok(()),
    }
}

/// As it would stand in a plan.
impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Bool(value) => write!(f, "{value}"),
            Kind::Integer(value) => write!(f, "{value}"),
            Kind::Float(value) => write!(f, "{value:?}"),
            Kind::Text(value) => write!(f, "{}", quoted(value)),
            Kind::List(items) => {
                f.write_str("[")?;
                for (index, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if index == 0 { "" } else { ", " })?;
                }
                f.write_str("]")
            }
            Kind::Table(entries) if entries.is_empty() => f.write_str("{}"),
            Kind::Table(entries) => {
                for (index, (key, value)) in entries.iter().enumerate() {
                    write!(f, "{} {key} = {value}", if index == 0 { "{" } else { "," })?;
                }
                f.write_str(" }")
            }
        }
    }
}

/// As it would stand in a plan: in quotes where it has to.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bare = |character: char| character.is_ascii_alphanumeric() || character == '_' || character == '-';
        if !self.name.is_empty() && self.name.chars().all(bare) { f.write_str(&self.name) } else { f.write_str(&quoted(&self.name)) }
    }
}

/// A text in quotes. What JSON escapes, TOML escapes alike.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// A table under its header, a line for each of its keys.
fn section(header: &str, entries: &[(Key, Tree)]) -> String {
    let lines: String = entries.iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
    format!("\n{header}\n{lines}")
}

/// Line numbers of byte offsets.
struct Lines(Vec<usize>);

impl Lines {
    fn new(text: &str) -> Self {
        Lines(text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect())
    }

    fn of(&self, offset: usize) -> u32 {
        self.0.partition_point(|&end| end < offset) as u32 + 1
    }
}

fn from_table(table: &DeTable<'_>, start: usize, lines: &Lines) -> Tree {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let entry = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
        let name: &std::borrow::Cow<'_, str> = key.get_ref();
        let origin = Origin::Line(lines.of(key.span().start));
        let mut tree = from_value(value, lines);
        if !matches!(tree.kind, Kind::List(_)) {
            tree.origin = origin.clone();
        }
        (Key { name: name.to_string(), origin }, tree)
    };
    Tree { kind: Kind::Table(entries.into_iter().map(entry).collect()), origin: Origin::Line(lines.of(start)) }
}

fn from_value(value: &Spanned<DeValue<'_>>, lines: &Lines) -> Tree {
    let start = value.span().start;
    let kind = match value.get_ref() {
        DeValue::String(text) => Kind::Text(text.to_string()),
        // Beyond 64 bits a number is kept as text, which no number's reader takes.
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).map_or_else(|_| Kind::Text(number.to_string()), Kind::Integer)
        }
        DeValue::Float(number) => number.as_str().parse().map_or_else(|_| Kind::Text(number.to_string()), Kind::Float),
        DeValue::Boolean(value) => Kind::Bool(*value),
        DeValue::Datetime(time) => Kind::Text(time.to_string()),
        DeValue::Array(items) => Kind::List(items.iter().map(|item| from_value(item, lines)).collect()),
        DeValue::Table(table) => return from_table(table, start, lines),
    };
    Tree { kind, origin: Origin::Line(lines.of(start)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = "a = 1\n\n[b]\nc = [\n  1,\n  2]\n[[d]]\ne = \"x\"\n[[d]]\ne = 0x10\n";

    fn line(tree: &Tree, path: &str) -> Origin {
        tree.find(&parse_path(path)).unwrap().origin.clone()
    }

    #[test]
    fn values_know_their_lines() {
        let tree = Tree::parse("p.toml", PLAN).unwrap();
        assert_eq!(line(&tree, "a"), Origin::Line(1));
        assert_eq!(line(&tree, "b.c[1]"), Origin::Line(6));
        assert_eq!(line(&tree, "d.0.e"), Origin::Line(8));
        assert_eq!(line(&tree, "d[1]"), Origin::Line(9));
        assert_eq!(tree.find(&parse_path("d.1.e")).unwrap().kind, Kind::Integer(16));
    }

    #[test]
    fn what_is_put_replaces_or_is_new_and_bare_strings_are_strings() {
        let mut tree = Tree::parse("p.toml", PLAN).unwrap();
        let argument: Arc<str> = "d.0.e=4MiB".into();
        tree.put(&parse_path("d.0.e"), Tree::from_argument("4MiB", &argument)).unwrap();
        let found = tree.find(&parse_path("d.0.e")).unwrap();
        assert_eq!((found.label(), &found.origin), ("4MiB".to_string(), &Origin::Set(argument.clone())));
        tree.put(&parse_path("x.y"), Tree::from_argument("[1, true, 2.5]", &argument)).unwrap();
        assert_eq!(tree.find(&parse_path("x.y")).unwrap().to_string(), "[1, true, 2.5]");
        let refused = tree.put(&parse_path("d.2.e"), Tree::from_argument("1", &argument)).unwrap_err();
        assert_eq!(refused, "[2]: expected an index below 2");
    }

    /// The same values, wherever they came from.
    fn same(one: &Tree, other: &Tree) -> bool {
        match (&one.kind, &other.kind) {
            (Kind::List(one), Kind::List(other)) => one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other)),
            (Kind::Table(one), Kind::Table(other)) => {
                one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one.0.name == other.0.name && same(&one.1, &other.1))
            }
            (one, other) => one == other,
        }
    }

    #[test]
    fn a_tree_reads_as_the_file_that_it_makes() {
        let odd =
            "top = [1, 2.5]\n[t]\n'a b' = \"x\\n\\\"\\u007f\\u0001é\"\nn = { 'c.d' = [], e = {} }\n[[l]]\nx = [{ y = true }]\n[[l]]\n";
        for text in [PLAN, odd, include_str!("../../../../examples/quickstart.toml"), include_str!("../../../../examples/failure.toml")] {
            let tree = Tree::parse("p.toml", text).unwrap();
            let again = Tree::parse("again.toml", &tree.to_toml()).unwrap();
            assert!(same(&tree, &again), "{text}\n{}", tree.to_toml());
        }
    }

    #[test]
    fn what_is_not_toml_is_refused_with_its_line() {
        let error = Tree::parse("p.toml", "a = 1\nb = = 2\n").unwrap_err();
        assert!(error.to_string().starts_with("p.toml:2: not TOML: "), "{error}");
    }
}
