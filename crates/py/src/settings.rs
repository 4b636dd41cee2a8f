//! Keyword arguments become a configuration: by the same reader as the environment's variables, so that both mean the same.

use std::collections::BTreeMap;

use fanin_comm::{CommError, Config, ConfigError, Notices};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::errors;
use crate::interrupt;
use crate::operator::CustomOperator;

/// Keyword arguments, and the variable that each stands for.
const KEYWORDS: &[(&str, &str)] = &[
    ("rank", "FANIN_RANK"),
    ("world", "FANIN_WORLD"),
    ("job", "FANIN_JOB"),
    ("switch", "FANIN_SWITCH"),
    ("fabric", "FANIN_FABRIC"),
    ("fabric_host", "FANIN_FABRIC_HOST"),
    ("system", "FANIN_SYSTEM"),
    ("fallback", "FANIN_FALLBACK"),
    ("rendezvous", "FANIN_RENDEZVOUS"),
    ("timeout", "FANIN_TIMEOUT"),
    ("stall_notice", "FANIN_STALL_NOTICE"),
    ("transport", "FANIN_TRANSPORT"),
    ("wait", "FANIN_WAIT"),
    ("bind", "FANIN_BIND"),
    ("payload", "FANIN_PAYLOAD"),
    ("window", "FANIN_WINDOW"),
    ("fixed_point", "FANIN_FIXED_POINT"),
    ("reproducible", "FANIN_REPRODUCIBLE"),
    ("sparse", "FANIN_SPARSE"),
    ("token", "FANIN_TOKEN"),
    ("tls", "FANIN_TLS"),
    ("tls_name", "FANIN_TLS_NAME"),
    ("tls_cert", "FANIN_TLS_CERT"),
    ("tls_key", "FANIN_TLS_KEY"),
];

/// Reads keyword arguments, and behind them the environment where `environment` says so. `None` is as if it was not given.
///
/// # Errors
/// `TypeError` for an unknown argument, `ConfigurationError` for a wrong value.
pub fn read(py: Python<'_>, arguments: Option<&Bound<'_, PyDict>>, environment: bool) -> PyResult<Config> {
    let mut given = BTreeMap::new();
    let (mut notices, mut operators) = (None, Vec::new());
    for (name, value) in arguments.into_iter().flatten() {
        let name: String = name.extract()?;
        if value.is_none() {
            continue;
        }
        if name == "notices" {
            notices = Some(to_python(value.unbind()));
            continue;
        }
        if name == "operators" {
            let given: Vec<Py<CustomOperator>> = value.extract()?;
            operators = given.iter().map(|operator| operator.get().0.clone()).collect();
            continue;
        }
        let Some((keyword, variable)) = KEYWORDS.iter().find(|(keyword, _)| *keyword == name) else {
            let known: Vec<&str> = KEYWORDS.iter().map(|(keyword, _)| *keyword).chain(["notices", "operators"]).collect();
            let text = format!("unexpected argument {name:?}: there are {}", known.join(", "));
            return Err(pyo3::exceptions::PyTypeError::new_err(text));
        };
        let is_flag = *keyword == "fixed_point" || (*keyword == "reproducible" && !value.is_instance_of::<PyString>());
        let text = if is_flag { u8::from(value.is_truthy()?).to_string() } else { value.str()?.to_string() };
        if *keyword == "reproducible" && text.is_empty() {
            // A variable that is empty is none; an argument that is empty is wrong.
            let expected = "True, False, element, block or tree".into();
            return Err(wrong(py, ConfigError::Value { what: "reproducible", value: "\"\"".into(), expected }, &given));
        }
        given.insert(*variable, text);
    }
    let mut config = Config::from_settings(&given, environment).map_err(|error| wrong(py, error, &given))?;
    config.operators = operators;
    config.check().map_err(|error| wrong(py, error, &given))?;
    config.interrupt = interrupt::by_signals();
    if let Some(notices) = notices {
        config.notices = notices;
    }
    Ok(config)
}

/// An error names what the caller has written: the argument, not the variable.
fn wrong(py: Python<'_>, error: ConfigError, given: &BTreeMap<&str, String>) -> PyErr {
    let error = match error {
        ConfigError::Value { what, value, expected } if given.contains_key(what) => {
            let keyword = KEYWORDS.iter().find(|(_, variable)| *variable == what).map_or(what, |(keyword, _)| *keyword);
            ConfigError::Value { what: keyword, value, expected }
        }
        ConfigError::NoMeeting { world } => {
            let text = format!(
                "{world} ranks, but no place to meet: give switch=\"HOST:PORT\", fabric=\"HOST:PORT\" of a fabric's manager, or \
                 rendezvous=\"HOST:PORT\" of rank 0, or set FANIN_SWITCH, FANIN_FABRIC or FANIN_RENDEZVOUS"
            );
            return errors::named(py, "ConfigurationError", text, None, None);
        }
        other => other,
    };
    errors::exception(py, &CommError::Config(error), None)
}

/// Notices to a Python function. What that raises goes where Python reports such things, except what ends a program: a Ctrl-C that comes
/// just while the function runs ends the call that waits.
fn to_python(callable: Py<PyAny>) -> Notices {
    Notices::to(move |text| {
        Python::try_attach(|py| {
            let Err(error) = callable.call1(py, (text,)) else { return };
            if let Some(error) = interrupt::take_up(py, error) {
                error.write_unraisable(py, Some(callable.bind(py)));
            }
        });
    })
}
