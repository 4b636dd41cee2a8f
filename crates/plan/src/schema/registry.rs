//! Load balancers, background traffic and noise from elsewhere, by the names that plans have for them. A program registers what it brings along
//! before anything else.

use std::sync::RwLock;

use fanin_sim::noise::own::{AnyNoise, OwnNoise};
use fanin_sim::own::{Described, Own, Parameters};
use fanin_sim::routing::own::{AnyBalancer, OwnBalancer};
use fanin_sim::traffic::own::{AnyPattern, OwnPattern};
use serde_json::Value;

/// How one of a name is made.
struct Entry<E: ?Sized + 'static> {
    name: &'static str,
    default: fn() -> Own<E>,
    fields: fn() -> Value,
    read: fn(Value) -> Result<Own<E>, serde_json::Error>,
}

/// All of a kind that are known in this process.
pub struct Registry<E: ?Sized + 'static> {
    /// What they are, for people.
    what: &'static str,
    /// Names of those that are built in.
    built_in: &'static [&'static str],
    entries: RwLock<Vec<Entry<E>>>,
}

/// All load balancers.
pub static BALANCERS: Registry<dyn AnyBalancer> = Registry::new(
    "a load balancer",
    &["ecmp", "destination", "random", "flowlet", "adaptive", "drill", "conga", "minimal", "valiant", "ugal"],
);

/// All patterns of background traffic.
pub static PATTERNS: Registry<dyn AnyPattern> = Registry::new("a pattern of traffic", &["uniform", "derangement", "permutation", "incast"]);

/// All noise.
pub static NOISES: Registry<dyn AnyNoise> = Registry::new("a noise", &["constant", "uniform", "exponential", "lognormal", "pareto"]);

/// Makes a load balancer known to everything in this process that reads plans.
///
/// # Panics
/// Where there is one of that name.
pub fn register_balancer<T: OwnBalancer>() {
    BALANCERS.add::<T>(
        T::NAME,
        || fanin_sim::routing::own::with(T::default()),
        |value| serde_json::from_value::<T>(value).map(fanin_sim::routing::own::with),
    );
}

/// Makes a pattern of background traffic known to everything in this process that reads plans.
///
/// # Panics
/// Where there is one of that name.
pub fn register_traffic<T: OwnPattern>() {
    PATTERNS.add::<T>(
        T::NAME,
        || fanin_sim::traffic::own::with(T::default()),
        |value| serde_json::from_value::<T>(value).map(fanin_sim::traffic::own::with),
    );
}

/// Makes noise known to everything in this process that reads plans.
///
/// # Panics
/// Where there is one of that name.
pub fn register_noise<T: OwnNoise>() {
    NOISES.add::<T>(
        T::NAME,
        || fanin_sim::noise::own::with(T::default()),
        |value| serde_json::from_value::<T>(value).map(fanin_sim::noise::own::with),
    );
}

impl<E: Described + ?Sized> Registry<E> {
    const fn new(what: &'static str, built_in: &'static [&'static str]) -> Self {
        Registry { what, built_in, entries: RwLock::new(Vec::new()) }
    }

    fn with<T>(&self, look: impl FnOnce(&[Entry<E>]) -> T) -> T {
        look(&self.entries.read().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    fn add<T: Parameters>(&self, name: &'static str, default: fn() -> Own<E>, read: fn(Value) -> Result<Own<E>, serde_json::Error>) {
        let is_new = !self.built_in.contains(&name) && self.named(name).is_none();
        assert!(is_new, "there is {} of the name {name:?}", self.what);
        let fields = || serde_json::to_value(T::default()).unwrap_or(Value::Null);
        self.entries.write().unwrap_or_else(std::sync::PoisonError::into_inner).push(Entry { name, default, fields, read });
    }

    fn entry<T>(&self, name: &str, look: impl FnOnce(&Entry<E>) -> T) -> Option<T> {
        self.with(|entries| entries.iter().find(|entry| entry.name == name).map(look))
    }

    /// Names of those that are built in.
    pub fn built_in(&self) -> &'static [&'static str] {
        self.built_in
    }

    /// Names of those that are registered.
    pub fn names(&self) -> Vec<&'static str> {
        self.with(|entries| entries.iter().map(|entry| entry.name).collect())
    }

    /// The one of this name, with the parameters that it has where nothing is said.
    pub fn named(&self, name: &str) -> Option<Own<E>> {
        self.entry(name, |entry| (entry.default)())
    }

    /// The parameters of the one of this name, where nothing is said.
    pub fn fields(&self, name: &str) -> Option<Value> {
        self.entry(name, |entry| (entry.fields)())
    }

    /// The one of this name with these parameters; those that are not there are as where nothing is said.
    ///
    /// # Errors
    /// Which parameter is wrong, in words.
    pub fn read(&self, name: &str, parameters: Value) -> Result<Own<E>, String> {
        let read = self.entry(name, |entry| entry.read).ok_or_else(|| format!("there is not {} of the name {name:?}", self.what))?;
        read(parameters).map_err(|error| format!("{name}: {error}"))
    }
}
