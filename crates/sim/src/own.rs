//! What a crate from elsewhere brings along: load balancers ([`crate::routing::own`]), background traffic ([`crate::traffic::own`]) and noise
//! ([`crate::noise::own`]). Whoever reads plans knows them by name.
//!
//! Each is a struct of parameters, whose fields are keys of a plan. What it decides goes through a table of functions; what is built in does not
//! pay for that.

use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// What parameters have to be. Fields whose names end with a unit have it in plans: `gap_ps` is `gap = "50us"` there, `size_bytes` a size, `rate_bps`
/// a rate, and an `f64` is a share. Those that a plan does not give are as in the default, for which a struct has `#[serde(default)]`.
pub trait Parameters: Clone + fmt::Debug + Default + Serialize + DeserializeOwned + Send + Sync + 'static {}

impl<T: Clone + fmt::Debug + Default + Serialize + DeserializeOwned + Send + Sync + 'static> Parameters for T {}

/// A parameter has a value that makes no sense.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{key} = {value}: expected {expected}")]
pub struct Refusal {
    /// The parameter's key in a plan.
    pub key: String,
    /// Its value.
    pub value: String,
    /// What would have been right.
    pub expected: String,
}

impl Refusal {
    /// `key` has `value`, where `expected` is expected.
    pub fn new(key: impl Into<String>, value: impl ToString, expected: impl Into<String>) -> Self {
        Refusal { key: key.into(), value: value.to_string(), expected: expected.into() }
    }
}

/// Parameters, of whichever type. Two of one name that are written alike are the same.
pub trait Described: fmt::Debug + Send + Sync {
    /// The name in plans.
    fn name(&self) -> &'static str;
}

/// Something from elsewhere, with its parameters. These stay for as long as the process runs.
pub struct Own<E: ?Sized + 'static>(&'static E);

impl<E: ?Sized> Clone for Own<E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E: ?Sized> Copy for Own<E> {}

impl<E: Described + ?Sized> fmt::Debug for Own<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl<E: Described + ?Sized> PartialEq for Own<E> {
    fn eq(&self, other: &Self) -> bool {
        self.0.name() == other.0.name() && format!("{self:?}") == format!("{other:?}")
    }
}

impl<E: Described + ?Sized> Eq for Own<E> {}

impl<E: Described + ?Sized> Own<E> {
    pub(crate) fn new(parameters: &'static E) -> Self {
        Own(parameters)
    }

    pub(crate) fn get(self) -> &'static E {
        self.0
    }

    /// The name in plans.
    pub fn name(self) -> &'static str {
        self.0.name()
    }
}

/// Parameters become what is from elsewhere.
macro_rules! described {
    ($Own:ident as $Any:ident) => {
        impl<T: $Own> crate::own::Described for Parameterized<T> {
            fn name(&self) -> &'static str {
                T::NAME
            }
        }

        /// Parameters.
        #[derive(Debug)]
        struct Parameterized<T>(T);

        /// With these parameters, which stay for as long as the process runs.
        pub fn with<T: $Own>(parameters: T) -> crate::own::Own<dyn $Any> {
            crate::own::Own::new(Box::leak(Box::new(Parameterized(parameters))))
        }
    };
}

pub(crate) use described;
