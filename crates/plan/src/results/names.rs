//! Records that come back from elsewhere: names that the program knows are its own again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Mutex, PoisonError};

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::Value;

/// All names that have come back. There are some hundred of them in all of Fanin, so they are kept for ever.
static KNOWN: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

/// More names, or longer ones, are not Fanin's.
const NAMES_MAX: usize = 10_000;
const BYTES_MAX: usize = 128;

/// A name that the program has in it. Its own type, since a field that is seen to be a reference would have to point into what is read.
pub type Static = &'static str;

/// A name of the program's.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Name(&'static str);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(name) = known.get(text.as_str()) {
            return Ok(Name(name));
        }
        if text.len() > BYTES_MAX || known.len() >= NAMES_MAX {
            return Err(D::Error::custom(format!("a name of {} bytes: expected one of Fanin's", text.len())));
        }
        let name: &'static str = Box::leak(text.into_boxed_str());
        known.insert(name);
        Ok(Name(name))
    }
}

/// One name.
pub fn name<'de, D: Deserializer<'de>>(from: D) -> Result<&'static str, D::Error> {
    Name::deserialize(from).map(|name| name.0)
}

/// A name, or none.
pub fn optional<'de, D: Deserializer<'de>>(from: D) -> Result<Option<&'static str>, D::Error> {
    Ok(Option::<Name>::deserialize(from)?.map(|name| name.0))
}

/// Values by name.
pub fn table<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<BTreeMap<&'static str, T>, D::Error> {
    Ok(BTreeMap::<Name, T>::deserialize(from)?.into_iter().map(|(name, value)| (name.0, value)).collect())
}

/// Tables by name.
pub fn tables<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<&'static str, BTreeMap<&'static str, u64>>, D::Error> {
    let all = BTreeMap::<Name, BTreeMap<Name, u64>>::deserialize(from)?;
    let own = |table: BTreeMap<Name, u64>| table.into_iter().map(|(name, value)| (name.0, value)).collect();
    Ok(all.into_iter().map(|(name, table)| (name.0, own(table))).collect())
}

/// A table in the order in which it was written.
pub fn in_order<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(String, Value)>, D::Error> {
    struct InOrder;
    impl<'de> Visitor<'de> for InOrder {
        type Value = Vec<(String, Value)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a table")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut all = Vec::new();
            while let Some(entry) = map.next_entry()? {
                all.push(entry);
            }
            Ok(all)
        }
    }
    from.deserialize_map(InOrder)
}
