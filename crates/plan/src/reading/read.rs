//! Reads typed values out of a tree by serde, keeping track of the path, so that an error names the key and the value.

use std::fmt::{self, Display};

use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Expected, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::forward_to_deserialize_any;

use super::errors::PlanError;
use super::tree::{Key, Kind, Origin, Step, Tree, path_text};

/// Why a value could not be read, on its way up to the plan.
#[derive(Clone, PartialEq, Debug)]
pub struct Fault {
    /// From the value up to the plan.
    steps_up: Vec<Step>,
    origin: Option<Origin>,
    /// The value as it stands in the plan.
    value: Option<String>,
    what: What,
}

#[derive(Clone, PartialEq, Debug)]
enum What {
    /// The value is not what was expected.
    Expected { expected: String, found: String },
    /// Nothing goes by this key.
    UnknownKey { key: String, known: Vec<String> },
    /// A key is needed.
    Missing(String),
    /// Anything else.
    Other(String),
}

/// Reads a `T` from a tree that stands at `base` in the plan.
///
/// # Errors
/// [`PlanError`] with file, line, key, value and what was expected.
pub fn read<T: DeserializeOwned>(file: &str, tree: &Tree, base: &[Step]) -> Result<T, PlanError> {
    T::deserialize(tree).map_err(|fault| fault.here(tree).into_error(file, tree, base))
}

impl Fault {
    fn new(what: What) -> Self {
        Fault { steps_up: Vec::new(), origin: None, value: None, what }
    }

    /// The fault seen from the value that it concerns.
    fn here(mut self, tree: &Tree) -> Self {
        if self.origin.is_none() && self.steps_up.is_empty() {
            self.find_key(tree);
        }
        self.origin.get_or_insert_with(|| tree.origin.clone());
        self.value.get_or_insert_with(|| tree.to_string());
        self
    }

    fn below(mut self, step: Step) -> Self {
        self.steps_up.push(step);
        self
    }

    /// A reader that buffers a table loses the path; the key is found again by its name or, failing that, by its value.
    fn find_key(&mut self, tree: &Tree) {
        let Kind::Table(entries) = &tree.kind else { return };
        let entry = match &self.what {
            What::UnknownKey { key, .. } => entries.iter().find(|(name, _)| name.name == *key),
            What::Expected { found, .. } => {
                // A system's name is read before all else, so where another key has the same value, that one is wrong.
                let mut with_it = entries.iter().filter(|(_, value)| unexpected_text(value) == *found);
                with_it.clone().find(|(name, _)| name.name != "system").or_else(|| with_it.next())
            }
            _ => None,
        };
        let Some((key, value)) = entry else { return };
        self.origin = Some(key.origin.clone());
        self.value = Some(value.to_string());
        if !matches!(self.what, What::UnknownKey { .. }) {
            self.steps_up.push(Step::Key(key.name.clone()));
        }
    }

    fn into_error(self, file: &str, tree: &Tree, base: &[Step]) -> PlanError {
        let path: Vec<Step> = base.iter().cloned().chain(self.steps_up.into_iter().rev()).collect();
        let below = |key: &str| path_text(&path.iter().cloned().chain([Step::Key(key.to_string())]).collect::<Vec<_>>());
        let value = self.value.unwrap_or_default();
        let what = match self.what {
            What::Expected { expected, .. } => format!("{} = {value}: expected {expected}", path_text(&path)),
            What::UnknownKey { key, known } => format!("{} = {value}: unknown key; {}", below(&key), suggestion(&key, &known)),
            What::Missing(key) => format!("{} is missing: it has no default", below(&key)),
            What::Other(text) if path.is_empty() => text,
            What::Other(text) => format!("{} = {value}: {text}", path_text(&path)),
        };
        PlanError::new(file, what).at(self.origin.unwrap_or_else(|| tree.origin.clone()))
    }
}

/// What to say beside an unknown key.
pub fn suggestion(key: &str, known: &[String]) -> String {
    let closest = known.iter().map(|name| (edits(key, name), name)).min();
    let list = known.join(", ");
    match closest {
        Some((distance, name)) if distance <= 2 => format!("did you mean {name}? Expected one of {list}"),
        Some(_) => format!("expected one of {list}"),
        None => "expected none".to_string(),
    }
}

/// Insertions, deletions and replacements between two words.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// How serde describes the value in an error.
fn unexpected_text(tree: &Tree) -> String {
    match &tree.kind {
        Kind::Bool(value) => Unexpected::Bool(*value).to_string(),
        Kind::Integer(value) if *value >= 0 => Unexpected::Unsigned(*value as u64).to_string(),
        Kind::Integer(value) => Unexpected::Signed(*value).to_string(),
        Kind::Float(value) => Unexpected::Float(*value).to_string(),
        Kind::Text(value) => Unexpected::Str(value).to_string(),
        Kind::List(_) => Unexpected::Seq.to_string(),
        Kind::Table(_) => Unexpected::Map.to_string(),
    }
}

impl Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.what)
    }
}

impl std::error::Error for Fault {}

/// Names of Rust's types, for people.
fn plain_words(expected: &dyn Expected) -> String {
    let text = expected.to_string();
    match text.as_str() {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number of 0 or more".into(),
        "i64" | "i32" => "a whole number".into(),
        "f64" | "f32" => "a number".into(),
        "a boolean" => "true or false".into(),
        "a sequence" => "a list".into(),
        "a string" => "a text in quotes".into(),
        other if other.starts_with("struct ") || other == "a map" => "a table".into(),
        _ => text,
    }
}

fn join_names(names: &[&str]) -> String {
    names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(" or ")
}

impl de::Error for Fault {
    fn custom<T: Display>(text: T) -> Self {
        Fault::new(What::Other(text.to_string()))
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Fault::new(What::Expected { expected: plain_words(expected), found: found.to_string() })
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn invalid_length(length: usize, expected: &dyn Expected) -> Self {
        Fault::new(What::Expected { expected: expected.to_string(), found: length.to_string() })
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        Fault::new(What::Expected { expected: join_names(expected), found: Unexpected::Str(variant).to_string() })
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        Fault::new(What::UnknownKey { key: field.to_string(), known: expected.iter().map(|name| name.to_string()).collect() })
    }

    fn missing_field(field: &'static str) -> Self {
        Fault::new(What::Missing(field.to_string()))
    }

    fn duplicate_field(field: &'static str) -> Self {
        Fault::new(What::Other(format!("{field} is there twice")))
    }
}

impl<'de> Deserializer<'de> for &'de Tree {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match &self.kind {
            Kind::Bool(value) => visitor.visit_bool(*value),
            Kind::Integer(value) if *value >= 0 => visitor.visit_u64(*value as u64),
            Kind::Integer(value) => visitor.visit_i64(*value),
            Kind::Float(value) => visitor.visit_f64(*value),
            Kind::Text(value) => visitor.visit_borrowed_str(value),
            Kind::List(items) => read_items(items, visitor),
            Kind::Table(entries) => visitor.visit_map(Entries { entries, next: 0 }),
        }
        .map_err(|fault| fault.here(self))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _name: &'static str, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(self, _name: &'static str, names: &'static [&'static str], visitor: V) -> Result<V::Value, Fault> {
        match &self.kind {
            Kind::Text(name) => visitor.visit_enum(Name(name)).map_err(|fault| fault.here(self)),
            _ => Err(Fault::new(What::Expected { expected: join_names(names), found: String::new() }).here(self)),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map
        struct identifier ignored_any
    }
}

/// Reads a list; what is left of it when the reader has had enough is an error.
#[expect(clippy::result_large_err, reason = "serde's methods beside it return the same")]
fn read_items<'de, V: Visitor<'de>>(items: &'de [Tree], visitor: V) -> Result<V::Value, Fault> {
    let mut access = Items { items, next: 0 };
    let value = visitor.visit_seq(&mut access)?;
    if access.next < items.len() {
        let expected = format!("{} items", access.next);
        return Err(de::Error::invalid_length(items.len(), &expected.as_str()));
    }
    Ok(value)
}

/// The items of a list.
struct Items<'de> {
    items: &'de [Tree],
    next: usize,
}

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Fault;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Fault> {
        let Some(item) = self.items.get(self.next) else { return Ok(None) };
        self.next += 1;
        seed.deserialize(item).map(Some).map_err(|fault| fault.here(item).below(Step::Index(self.next - 1)))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len() - self.next)
    }
}

/// The entries of a table.
struct Entries<'de> {
    entries: &'de [(Key, Tree)],
    next: usize,
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Fault> {
        let Some((key, _)) = self.entries.get(self.next) else { return Ok(None) };
        self.next += 1;
        seed.deserialize(StrDeserializer::new(&key.name)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Fault> {
        let (key, value) = &self.entries[self.next - 1];
        seed.deserialize(value).map_err(|fault| fault.here(value).below(Step::Key(key.name.clone())))
    }
}

/// A variant without contents.
struct Name<'de>(&'de str);

impl<'de> EnumAccess<'de> for Name<'de> {
    type Error = Fault;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Fault> {
        Ok((seed.deserialize(StrDeserializer::new(self.0))?, self))
    }
}

impl<'de> de::VariantAccess<'de> for Name<'de> {
    type Error = Fault;

    fn unit_variant(self) -> Result<(), Fault> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, _seed: T) -> Result<T::Value, Fault> {
        Err(de::Error::custom(format!("{} stands alone", self.0)))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _len: usize, _visitor: V) -> Result<V::Value, Fault> {
        Err(de::Error::custom(format!("{} stands alone", self.0)))
    }

    fn struct_variant<V: Visitor<'de>>(self, _fields: &'static [&'static str], _visitor: V) -> Result<V::Value, Fault> {
        Err(de::Error::custom(format!("{} stands alone", self.0)))
    }
}
