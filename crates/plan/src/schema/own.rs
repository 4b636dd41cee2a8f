//! What is from elsewhere, by its name alone or as a table: `"reps"`, or `{ name = "reps", cache = 8 }`. What is built in is a name.

use std::fmt;
use std::marker::PhantomData;

use fanin_sim::own::{Described, Own};
use fanin_systems::{Unit, key_of, unit_of};
use serde::Deserialize;
use serde::de::value::StrDeserializer;
use serde::de::{self, Deserializer, Error, Expected, IntoDeserializer, MapAccess, Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Value};

use super::registry::Registry;
use crate::reading::units::{Bytes, Fraction, Rate, RateOrNone, Time};

/// Key of a table that says which one it is.
const NAME: &str = "name";

/// Reads the name of something built in, or what is from elsewhere.
pub struct NamedOr<T: 'static, E: ?Sized + 'static> {
    /// All that is built in.
    pub built_in: &'static [(&'static str, T)],
    /// Where the others are.
    pub registry: &'static Registry<E>,
    /// What one of these is here.
    pub own: fn(Own<E>) -> T,
}

/// Names that may stand for one of a kind.
pub struct Names<'a, E: ?Sized + 'static>(pub &'a Registry<E>);

impl<E: Described + ?Sized> Expected for Names<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.built_in().iter().copied().chain(self.0.names());
        f.write_str(&names.map(|name| format!("{name:?}")).collect::<Vec<_>>().join(" or "))
    }
}

impl<'de, T: Copy, E: Described + ?Sized> Visitor<'de> for NamedOr<T, E> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Expected::fmt(&Names(self.registry), f)
    }

    fn visit_str<Er: Error>(self, name: &str) -> Result<T, Er> {
        if let Some((_, known)) = self.built_in.iter().find(|(known, _)| *known == name) {
            return Ok(*known);
        }
        let own = self.registry.named(name).ok_or_else(|| Er::invalid_value(Unexpected::Str(name), &self))?;
        Ok((self.own)(own))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
        let mut entries = entries(&mut map)?;
        let place = entries.iter().position(|(key, _)| key == NAME).ok_or_else(|| A::Error::missing_field(NAME))?;
        let name = String::deserialize(Plain::new(entries.remove(place).1))?;
        if !entries.is_empty() && self.built_in.iter().any(|(known, _)| *known == name) {
            return Err(A::Error::custom(format!("expected no keys beside name: {name:?} is built in, and [network] has its keys")));
        }
        if entries.is_empty() { self.visit_str(&name) } else { own(self.registry, &name, entries).map(self.own) }
    }
}

/// The entries of a table.
pub fn entries<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Vec<(String, Value)>, A::Error> {
    let mut entries = Vec::new();
    while let Some(entry) = map.next_entry::<String, Value>()? {
        entries.push(entry);
    }
    Ok(entries)
}

/// The one of this name, with these parameters.
///
/// # Errors
/// Which key or value is wrong, and what was expected.
pub fn own<E: Described + ?Sized, Er: Error>(registry: &Registry<E>, name: &str, entries: Vec<(String, Value)>) -> Result<Own<E>, Er> {
    let known = registry.named(name).ok_or_else(|| Er::invalid_value(Unexpected::Str(name), &Names(registry)))?;
    let Some(Value::Object(defaults)) = registry.fields(name) else { return Ok(known) };
    let mut fields = Map::new();
    for (key, value) in entries {
        let Some((field, default)) = defaults.iter().find(|(field, _)| key_of(field) == key) else {
            let keys: Vec<&str> = defaults.keys().map(|field| key_of(field)).collect();
            let expected = if keys.is_empty() { "none".to_string() } else { format!("one of {}", keys.join(", ")) };
            return Err(Er::custom(format!("{key} = {value}: unknown key of {name}; expected {expected}")));
        };
        fields.insert(field.clone(), translated(value, unit_of(field, default.is_f64()))?);
    }
    registry.read(name, Value::Object(fields)).map_err(Er::custom)
}

/// A value without its unit.
fn translated<Er: Error>(value: Value, unit: Unit) -> Result<Value, Er> {
    let plain = Plain::new(value);
    Ok(match unit {
        Unit::Plain => plain.value,
        Unit::Time => Value::from(Time::deserialize(plain)?.0.as_ps()),
        Unit::Bytes(most) => Value::from(Bytes::deserialize(plain)?.0.min(most)),
        Unit::Rate => Value::from(Rate::deserialize(plain)?.0),
        Unit::RateOrNone => Value::from(RateOrNone::deserialize(plain)?.0),
        Unit::Fraction => Value::from(Fraction::deserialize(plain)?.0),
    })
}

/// A value that was read before it was known what it is to be.
pub struct Plain<Er> {
    value: Value,
    error: PhantomData<Er>,
}

impl<Er> Plain<Er> {
    /// This value.
    pub fn new(value: Value) -> Self {
        Plain { value, error: PhantomData }
    }
}

impl<'de, Er: Error> Deserializer<'de> for Plain<Er> {
    type Error = Er;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Er> {
        match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(value),
            Value::Number(number) => match (number.as_u64(), number.as_i64()) {
                (Some(number), _) => visitor.visit_u64(number),
                (_, Some(number)) => visitor.visit_i64(number),
                _ => visitor.visit_f64(number.as_f64().unwrap_or(f64::NAN)),
            },
            Value::String(text) => visitor.visit_string(text),
            Value::Array(_) => Err(Er::invalid_type(Unexpected::Seq, &visitor)),
            Value::Object(_) => Err(Er::invalid_type(Unexpected::Map, &visitor)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Er> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _name: &'static str, visitor: V) -> Result<V::Value, Er> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(self, name: &'static str, names: &'static [&'static str], visitor: V) -> Result<V::Value, Er> {
        match &self.value {
            Value::String(text) => Deserializer::deserialize_enum(StrDeserializer::<Er>::new(text), name, names, visitor),
            _ => self.deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map
        struct identifier ignored_any
    }
}

impl<'de, Er: de::Error> IntoDeserializer<'de, Er> for Plain<Er> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}
