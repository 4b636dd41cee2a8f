//! Variables of the environment that look like Fanin's and that nothing reads: misspelt, most likely.

use std::collections::BTreeSet;
use std::sync::Mutex;

use crate::config::{Config, ConfigError, VARIABLES};
use crate::link::locked;

/// What they begin with.
const PREFIX: &str = "FANIN_";
/// Variables of other parts: of the build of the Python package, and of tests.
const OTHERS: &[&str] = &["FANIN_PROFILE"];
const TESTS: &str = "FANIN_TEST_";
/// A name is taken for another one that is misspelt where so many letters are wrong, too many or missing.
const LETTERS_MAX: usize = 2;

/// The names of all variables of the environment.
pub fn environment() -> impl Iterator<Item = String> {
    std::env::vars_os().filter_map(|(name, _)| name.into_string().ok())
}

/// Those that nothing reads.
///
/// # Errors
/// [`ConfigError::Misspelt`] for one that is nearly one that is read.
pub(crate) fn unread(names: impl Iterator<Item = String>) -> Result<Vec<String>, ConfigError> {
    let is_known = |name: &str| OTHERS.contains(&name) || name.starts_with(TESTS) || VARIABLES.iter().any(|(known, _)| *known == name);
    let mut unread: Vec<String> = names.filter(|name| name.starts_with(PREFIX) && !is_known(name)).collect();
    unread.sort_unstable();
    for name in &unread {
        let near = VARIABLES.iter().map(|(known, _)| (strsim::damerau_levenshtein(name, known), *known)).min();
        if let Some((letters, meant)) = near
            && letters <= LETTERS_MAX
        {
            return Err(ConfigError::Misspelt { name: name.clone(), meant });
        }
    }
    Ok(unread)
}

/// Tells the user of them, of each once.
pub(crate) fn tell(config: &Config) {
    static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut told = locked(&TOLD);
    for name in &config.unread {
        if told.insert(name.clone()) {
            config.notices.tell(&format!("{name} is set, which nothing reads"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(names: &[&str]) -> Result<Vec<String>, ConfigError> {
        unread(names.iter().map(ToString::to_string))
    }

    #[test]
    fn what_nothing_reads_is_told_and_what_is_misspelt_is_an_error() {
        assert_eq!(of(&["FANIN_SWITCH", "PATH", "FANIN_PROFILE", "FANIN_TEST_X", "SWITCH"]), Ok(vec![]));
        assert_eq!(of(&["FANIN_COLOUR", "FANIN_A_THING_OF_THE_USER"]), Ok(vec!["FANIN_A_THING_OF_THE_USER".into(), "FANIN_COLOUR".into()]));
        for (name, meant) in [
            ("FANIN_REPRODUCABLE", "FANIN_REPRODUCIBLE"),
            ("FANIN_SWTICH", "FANIN_SWITCH"),
            ("FANIN_TIMEOUTS", "FANIN_TIMEOUT"),
            ("FANIN_FIXEDPOINT", "FANIN_FIXED_POINT"),
        ] {
            let error = of(&["FANIN_COLOUR", name]).unwrap_err();
            assert_eq!(error, ConfigError::Misspelt { name: name.into(), meant });
            assert_eq!(error.to_string(), format!("{name} is set, which nothing reads: is {meant} meant?"));
        }
    }
}
