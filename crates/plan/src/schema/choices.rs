//! Values that are a word or something longer: `placement = "random"` or a list of hosts.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Unexpected, Visitor};

use crate::reading::units::Amount;
use crate::schema::{Links, Placement, Servers, TrafficHosts, Workers};

/// A value that can be written in more than one way. Ways that it does not have are errors.
trait Choice: Sized {
    const EXPECTED: &'static str;

    fn from_word(word: &str) -> Option<Self>;

    fn from_hosts(_hosts: Vec<u32>) -> Option<Self> {
        None
    }

    fn from_number(_number: u64) -> Option<Self> {
        None
    }

    fn from_ends(_ends: Ends) -> Option<Self> {
        None
    }
}

/// `{ from = "leaf0", to = "spine1" }`
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Ends {
    from: String,
    to: String,
}

struct ChoiceVisitor<T>(PhantomData<T>);

impl<'de, T: Choice> Visitor<'de> for ChoiceVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<T, E> {
        T::from_word(word).ok_or_else(|| E::invalid_value(Unexpected::Str(word), &self))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        T::from_number(number).ok_or_else(|| E::invalid_value(Unexpected::Unsigned(number), &self))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<T, A::Error> {
        let hosts = Vec::deserialize(SeqAccessDeserializer::new(items))?;
        T::from_hosts(hosts).ok_or_else(|| A::Error::invalid_type(Unexpected::Seq, &self))
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<T, A::Error> {
        let ends = Ends::deserialize(MapAccessDeserializer::new(entries))?;
        T::from_ends(ends).ok_or_else(|| A::Error::invalid_type(Unexpected::Map, &self))
    }
}

impl Choice for Placement {
    const EXPECTED: &'static str = "\"random\", \"packed\", \"spread\" or a list of hosts, such as [0, 3, 5]";

    fn from_word(word: &str) -> Option<Self> {
        match word {
            "random" => Some(Placement::Random),
            "packed" => Some(Placement::Packed),
            "spread" => Some(Placement::Spread),
            _ => None,
        }
    }

    fn from_hosts(hosts: Vec<u32>) -> Option<Self> {
        Some(Placement::Hosts(hosts))
    }
}

impl Choice for Workers {
    const EXPECTED: &'static str = "a whole number of 1 or more, a percentage or a range, such as 512, \"50%\" or \"2..8\"";

    fn from_word(word: &str) -> Option<Self> {
        if let Some((low, high)) = word.split_once("..") {
            let (low, high) = (low.trim().parse().ok()?, high.trim().parse().ok()?);
            return (1..=high).contains(&low).then_some(Workers::Between(low, high));
        }
        crate::reading::units::fraction_of(word).map(|share| Workers::Amount(Amount::Share(share)))
    }

    fn from_number(number: u64) -> Option<Self> {
        u32::try_from(number).ok().filter(|count| *count > 0).map(|count| Workers::Amount(Amount::Count(count)))
    }
}

impl Choice for Servers {
    const EXPECTED: &'static str = "a whole number or a list of hosts, such as 1 or [8]";

    fn from_word(_word: &str) -> Option<Self> {
        None
    }

    fn from_hosts(hosts: Vec<u32>) -> Option<Self> {
        Some(Servers::Hosts(hosts))
    }

    fn from_number(number: u64) -> Option<Self> {
        u32::try_from(number).ok().map(Servers::Count)
    }
}

impl Choice for TrafficHosts {
    const EXPECTED: &'static str = "\"rest\", \"all\", a number of 2 or more, a percentage or a list of hosts, such as [0, 3, 5]";

    fn from_word(word: &str) -> Option<Self> {
        match word {
            "rest" => Some(TrafficHosts::Rest),
            "all" => Some(TrafficHosts::All),
            _ => crate::reading::units::fraction_of(word).map(|share| TrafficHosts::Some(Amount::Share(share))),
        }
    }

    fn from_hosts(hosts: Vec<u32>) -> Option<Self> {
        Some(TrafficHosts::Hosts(hosts))
    }

    fn from_number(number: u64) -> Option<Self> {
        u32::try_from(number).ok().filter(|count| *count >= 2).map(|count| TrafficHosts::Some(Amount::Count(count)))
    }
}

impl Choice for Links {
    const EXPECTED: &'static str = "\"all\", \"host-up\", \"host-down\", \"fabric\" or { from = \"leaf0\", to = \"spine1\" }";

    fn from_word(word: &str) -> Option<Self> {
        match word {
            "all" => Some(Links::All),
            "host-up" => Some(Links::HostUp),
            "host-down" => Some(Links::HostDown),
            "fabric" => Some(Links::Fabric),
            _ => None,
        }
    }

    fn from_ends(ends: Ends) -> Option<Self> {
        Some(Links::Between { from: ends.from, to: ends.to })
    }
}

macro_rules! by_choice {
    ($($name:ty),*) => {$(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(ChoiceVisitor(PhantomData))
            }
        }
    )*};
}

by_choice!(Placement, Workers, Servers, TrafficHosts, Links);

/// A place on an axis of a sweep, by its name, or several.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Places(pub Vec<String>);

impl<'de> Deserialize<'de> for Places {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PlacesVisitor;
        impl<'de> Visitor<'de> for PlacesVisitor {
            type Value = Places;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a place on an axis, or a list of them")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Places, E> {
                Ok(Places(vec![text.to_string()]))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Places, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Places, E> {
                self.visit_str(&format!("{number:?}"))
            }

            fn visit_bool<E: Error>(self, value: bool) -> Result<Places, E> {
                self.visit_str(&value.to_string())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Places, A::Error> {
                let mut all = Vec::new();
                while let Some(Places(mut some)) = items.next_element()? {
                    all.append(&mut some);
                }
                Ok(Places(all))
            }
        }
        deserializer.deserialize_any(PlacesVisitor)
    }
}
