//! Which systems there are, made from the list of them: nothing here names one.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The systems.
macro_rules! kinds {
    ($($system:ident($Parameters:ident) = $number:literal $name:literal in $module:ident,
        packets $packets:ident $(($Header:ident))?, workers [$($worker:ident),*], others [$($other:ident),*];)*) => {
        /// A system and its parameters.
        #[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
        #[serde(tag = "system")]
        pub enum System {
            $(
                #[doc = concat!("`", $name, "`: see [`", stringify!($Parameters), "`](crate::", stringify!($Parameters), ").")]
                #[serde(rename = $name)]
                $system(crate::$module::$Parameters),
            )*
        }

        impl System {
            /// The system's name in the list.
            fn listed_name(&self) -> &'static str {
                match self {
                    $(System::$system(_) => $name,)*
                }
            }

            /// The system's number in hop headers; 0 is not a system.
            pub fn number(&self) -> u8 {
                match self {
                    $(System::$system(_) => $number,)*
                }
            }
        }
    };
}

systems!(kinds with own);

/// The systems of this workspace.
macro_rules! listed {
    ($($system:ident($Parameters:ident) = $number:literal $name:literal in $module:ident,
        packets $packets:ident $(($Header:ident))?, workers [$($worker:ident),*], others [$($other:ident),*];)*) => {
        impl System {
            /// Names of all systems of this workspace; [`System::names`] has those from elsewhere, too.
            pub const NAMES: &'static [&'static str] = &[$($name),*];

            /// All systems of this workspace, each with the parameters that it has where nothing is said.
            pub fn all() -> Vec<System> {
                vec![$(System::$system(Default::default())),*]
            }
        }
    };
}

systems!(listed);

impl System {
    /// The system's name in plans.
    pub fn name(&self) -> &'static str {
        if let System::Own(parameters) = self { parameters.name() } else { self.listed_name() }
    }

    /// Its parameters' values, by name, as plans say them or not.
    pub fn to_json(&self) -> Value {
        match self {
            System::Own(parameters) => parameters.to_json(),
            other => serde_json::to_value(other).unwrap_or(Value::Null),
        }
    }

    /// The names of those systems, as they are where nothing is said, that something is true of: `a, b and c`, with `last` before the last one.
    pub fn names_of(last: &str, holds: impl Fn(&System) -> bool) -> String {
        let names: Vec<&str> = System::all().iter().filter(|system| holds(system)).map(System::name).collect();
        match names.split_last() {
            Some((end, [])) => end.to_string(),
            Some((end, others)) => format!("{} {last} {end}", others.join(", ")),
            None => "none".to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_system_has_a_name_and_a_number_of_its_own() {
        let all = System::all();
        assert_eq!(all.iter().map(System::name).collect::<Vec<_>>(), System::NAMES);
        let mut numbers: Vec<u8> = all.iter().map(System::number).collect();
        numbers.sort_unstable();
        assert!(numbers[0] > 0 && numbers.windows(2).all(|pair| pair[0] < pair[1]), "{numbers:?}");
    }

    #[test]
    fn names_are_listed_as_people_do() {
        assert_eq!(System::names_of("or", |system| system.number() == 1), "tree");
        assert_eq!(System::names_of("or", |system| [1, 2, 12].contains(&system.number())), "ring, tree or rina");
        assert_eq!(System::names_of("or", |_| false), "none");
    }
}
