//! What is wrong with a configuration.

/// What is wrong with a configuration.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// A value is not what it must be.
    #[error("{what} = {value}: expected {expected}")]
    Value {
        /// The variable or field.
        what: &'static str,
        /// Its value.
        value: String,
        /// What would make sense.
        expected: String,
    },
    /// The name of a variable is nearly one that is read.
    #[error("{name} is set, which nothing reads: is {meant} meant?")]
    Misspelt {
        /// The variable.
        name: String,
        /// The one that is read.
        meant: &'static str,
    },
    /// One variable is set and another is not.
    #[error("{missing} is not set, but {set} is")]
    Missing {
        /// What is missing.
        missing: &'static str,
        /// What is there.
        set: &'static str,
    },
    /// Several ranks do not know where to meet.
    #[error(
        "{world} ranks, but no place to meet: set FANIN_SWITCH=HOST:PORT, FANIN_FABRIC=HOST:PORT of a fabric's manager, or FANIN_RENDEZVOUS=HOST:PORT of rank 0"
    )]
    NoMeeting {
        /// How many.
        world: u32,
    },
}

impl ConfigError {
    pub(super) const fn missing(missing: &'static str, set: &'static str) -> Self {
        ConfigError::Missing { missing, set }
    }
}
