//! The file of a switch with the keys whose tokens it takes, and what each tenant may have.
//!
//! ```toml
//! [[key]]
//! name = "2026-11"
//! public = "k4.public.ltcw8Ts_w4PGE9cB8V7oxY0OHuoRLJGHl1lXDOovgLQ"
//! tenants = ["red", "blue"]   # any where it is missing
//!
//! [quota]                     # of a tenant that has none of its own
//! jobs_max = 16
//!
//! [tenant.red]
//! memory_max = "512MiB"
//! bandwidth_max = "10Gb/s"
//! ```

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::token::{self, PublicKey, Rights, TokenError, is_name};

/// So many keys at most.
pub const KEYS_MAX: usize = 256;

/// What is wrong with a key file.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct KeyFileError(String);

/// What a tenant may have at a switch at once, besides the switch's own limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quota {
    /// Jobs, those that wait for ranks included.
    pub jobs_max: usize,
    /// Memory of its jobs together, in bytes.
    pub memory_bytes_max: u64,
    /// Control connections that have joined a job.
    pub connections_max: usize,
    /// Requests to join in a minute, refused ones included.
    pub joins_per_minute: u32,
    /// Operators in WebAssembly, over all jobs.
    pub operators_max: usize,
    /// Jobs with metrics of their own; what the others do is in the totals.
    pub metrics_jobs_max: usize,
    /// Bytes that the ranks of its jobs together send to the switch in a second; [`u64::MAX`] where that is not limited.
    pub bytes_per_s: u64,
    /// Units of WebAssembly's fuel that operators of its jobs together use at the switch in a second; likewise.
    pub fuel_per_s: u64,
}

impl Quota {
    /// Whether it says how fast jobs may go.
    pub fn has_rates(&self) -> bool {
        self.bytes_per_s != u64::MAX || self.fuel_per_s != u64::MAX
    }
}

impl Default for Quota {
    /// No more than what the switch's own limits say, but for operators and metrics.
    fn default() -> Self {
        Quota {
            jobs_max: usize::MAX,
            memory_bytes_max: u64::MAX,
            connections_max: usize::MAX,
            joins_per_minute: 6_000,
            operators_max: 16,
            metrics_jobs_max: 64,
            bytes_per_s: u64::MAX,
            fuel_per_s: u64::MAX,
        }
    }
}

/// A quota in a file.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct QuotaTable {
    jobs_max: Option<usize>,
    memory_max: Option<String>,
    connections_max: Option<usize>,
    joins_per_minute: Option<u32>,
    operators_max: Option<usize>,
    metrics_jobs_max: Option<usize>,
    bandwidth_max: Option<String>,
    fuel_per_second: Option<u64>,
}

/// The slowest that jobs may be made, in bytes and in units of fuel a second: below that ranks would give up.
const BYTES_PER_S_MIN: u64 = 125_000;
const FUEL_PER_S_MIN: u64 = 1_000_000;

impl QuotaTable {
    /// `else`: what holds where nothing is said.
    fn quota(&self, of: &str, other: Quota) -> Result<Quota, KeyFileError> {
        let memory = |text: &String| {
            let wrong = || KeyFileError(format!("{of}: memory_max = {text:?}: expected a size, as 512MiB or 4GiB"));
            fanin_core::units::bytes_of(text).ok_or_else(wrong)
        };
        let bandwidth = |text: &String| {
            let wrong = || KeyFileError(format!("{of}: bandwidth_max = {text:?}: expected a rate of at least 1Mb/s, as 500Mb/s or 10Gb/s"));
            fanin_core::units::bits_per_s_of(text).map(|bits| bits / 8).filter(|bytes| *bytes >= BYTES_PER_S_MIN).ok_or_else(wrong)
        };
        if let Some(fuel) = self.fuel_per_second.filter(|fuel| *fuel < FUEL_PER_S_MIN) {
            return Err(KeyFileError(format!("{of}: fuel_per_second = {fuel}: expected at least {FUEL_PER_S_MIN}")));
        }
        Ok(Quota {
            jobs_max: self.jobs_max.unwrap_or(other.jobs_max),
            memory_bytes_max: self.memory_max.as_ref().map(memory).transpose()?.unwrap_or(other.memory_bytes_max),
            connections_max: self.connections_max.unwrap_or(other.connections_max),
            joins_per_minute: self.joins_per_minute.unwrap_or(other.joins_per_minute),
            operators_max: self.operators_max.unwrap_or(other.operators_max),
            metrics_jobs_max: self.metrics_jobs_max.unwrap_or(other.metrics_jobs_max),
            bytes_per_s: self.bandwidth_max.as_ref().map(bandwidth).transpose()?.unwrap_or(other.bytes_per_s),
            fuel_per_s: self.fuel_per_second.unwrap_or(other.fuel_per_s),
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyTable {
    name: String,
    public: String,
    tenants: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileTable {
    #[serde(default)]
    key: Vec<KeyTable>,
    #[serde(default)]
    quota: QuotaTable,
    #[serde(default)]
    tenant: BTreeMap<String, QuotaTable>,
}

#[derive(Clone, Debug)]
struct Key {
    public: PublicKey,
    /// Any where there are none.
    tenants: Option<Vec<String>>,
}

/// Keys by name, and quotas by tenant.
#[derive(Clone, Debug, Default)]
pub struct KeyFile {
    keys: BTreeMap<String, Key>,
    quota: Quota,
    tenants: BTreeMap<String, Quota>,
}

impl KeyFile {
    /// Reads one.
    ///
    /// # Errors
    /// [`KeyFileError`], with what is expected. A key's private half is never repeated.
    pub fn parse(text: &str) -> Result<Self, KeyFileError> {
        let wrong = |what: String| Err(KeyFileError(what));
        // The parser's own message shows the line, which may have a private key in it by mistake.
        let table: FileTable = toml::from_str(text).map_err(|error| KeyFileError(error.message().to_owned()))?;
        if table.key.is_empty() || table.key.len() > KEYS_MAX {
            return wrong(format!("{} tables [[key]]: expected 1 to {KEYS_MAX}", table.key.len()));
        }
        let mut keys = BTreeMap::new();
        for KeyTable { name, public, tenants } in table.key {
            if let Some(text) = [&name].into_iter().chain(tenants.iter().flatten()).find(|text| !is_name(text)) {
                return wrong(format!("key {name:?}: {text:?}: expected a name of letters, digits and `._-`"));
            }
            let public = PublicKey::parse(&public).map_err(|error| KeyFileError(format!("key {name:?}: public: {error}")))?;
            if keys.insert(name.clone(), Key { public, tenants }).is_some() {
                return wrong(format!("key {name:?} is there twice"));
            }
        }
        let quota = table.quota.quota("[quota]", Quota::default())?;
        let mut tenants = BTreeMap::new();
        for (name, own) in table.tenant {
            if !is_name(&name) {
                return wrong(format!("[tenant.{name:?}]: expected a name of letters, digits and `._-`"));
            }
            let own = own.quota(&format!("[tenant.{name}]"), quota)?;
            tenants.insert(name, own);
        }
        Ok(KeyFile { keys, quota, tenants })
    }

    /// What a token gives a right to.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn verify(&self, token: &str, now_s: i64) -> Result<Rights, TokenError> {
        let name = token::key_of(token)?;
        let Some(key) = self.keys.get(&name) else { return Err(TokenError::UnknownKey { key: name }) };
        let rights = token::verify(token, (&name, &key.public), now_s)?;
        if key.tenants.as_ref().is_some_and(|tenants| !tenants.contains(&rights.tenant)) {
            return Err(TokenError::OfAnother { key: name, tenant: rights.tenant });
        }
        Ok(rights)
    }

    /// The key of this name.
    pub fn public(&self, name: &str) -> Option<&PublicKey> {
        self.keys.get(name).map(|key| &key.public)
    }

    /// What a tenant may have.
    pub fn quota(&self, tenant: &str) -> Quota {
        self.tenants.get(tenant).copied().unwrap_or(self.quota)
    }

    /// Whether any tenant's jobs may only go so fast; names it, or nobody where all do.
    pub fn has_rates(&self) -> Option<&str> {
        let of_all = self.quota.has_rates().then_some("quota");
        of_all.or_else(|| self.tenants.iter().find(|(_, quota)| quota.has_rates()).map(|(tenant, _)| tenant.as_str()))
    }

    /// Names of the keys.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.keys.keys().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::PrivateKey;

    const NOW_S: i64 = 1_796_000_000;

    fn rights(tenant: &str) -> Rights {
        Rights { tenant: tenant.into(), jobs: vec!["*".into()], ranks: None, made_s: NOW_S, until_s: NOW_S + 60 }
    }

    #[test]
    fn keys_speak_for_their_tenants_and_no_others() {
        let (one, other) = (PrivateKey::random().unwrap(), PrivateKey::random().unwrap());
        let text = format!(
            "[[key]]\nname = \"one\"\npublic = \"{}\"\ntenants = [\"red\"]\n[[key]]\nname = \"other\"\npublic = \"{}\"\n\
             [quota]\njobs_max = 3\n[tenant.blue]\nmemory_max = \"2MiB\"\nbandwidth_max = \"2.5Gb/s\"\nfuel_per_second = 3_000_000",
            one.public().unwrap(),
            other.public().unwrap()
        );
        let file = KeyFile::parse(&text).unwrap();
        let verify = |key: &PrivateKey, name: &str, tenant: &str| file.verify(&key.sign(name, &rights(tenant)).unwrap(), NOW_S);
        assert_eq!(verify(&one, "one", "red"), Ok(rights("red")));
        assert_eq!(verify(&one, "one", "blue"), Err(TokenError::OfAnother { key: "one".into(), tenant: "blue".into() }));
        assert_eq!(verify(&other, "other", "blue"), Ok(rights("blue")));
        assert_eq!(verify(&other, "one", "red"), Err(TokenError::Forged { key: "one".into() }));
        assert_eq!(verify(&one, "third", "red"), Err(TokenError::UnknownKey { key: "third".into() }));
        assert_eq!(file.quota("red"), Quota { jobs_max: 3, ..Quota::default() });
        let blue = Quota { jobs_max: 3, memory_bytes_max: 2 << 20, bytes_per_s: 312_500_000, fuel_per_s: 3_000_000, ..Quota::default() };
        assert_eq!((file.quota("blue"), file.has_rates()), (blue, Some("blue")));
    }

    #[test]
    fn a_file_that_makes_no_sense_is_an_error_that_shows_no_private_key() {
        let key = PrivateKey::random().unwrap();
        let (private, public) = (key.text(), key.public().unwrap());
        let one = format!("[[key]]\nname = \"a\"\npublic = \"{public}\"\n");
        let cases = [
            (String::new(), "expected 1 to 256"),
            (format!("[[key]]\nname = \"a\"\npublic = \"{private}\""), "k4.public."),
            (format!("[[key]]\nname = \"a\"\nprivate = \"{private}\""), "private"),
            (format!("[[key]]\nname = \"a b\"\npublic = \"{public}\""), "a b"),
            (format!("{one}{one}"), "twice"),
            (format!("{one}[tenant.red]\nmemory_max = \"much\""), "[tenant.red]: memory_max"),
            (format!("{one}[tenant.\"r d\"]\njobs_max = 1"), "r d"),
            (format!("{one}[quota]\njobs = 1"), "jobs"),
            (format!("{one}[quota]\nbandwidth_max = \"1GB\""), "[quota]: bandwidth_max = \"1GB\": expected a rate"),
            (format!("{one}[quota]\nbandwidth_max = \"1kb/s\""), "at least 1Mb/s"),
            (format!("{one}[tenant.red]\nfuel_per_second = 5"), "[tenant.red]: fuel_per_second = 5: expected at least 1000000"),
        ];
        for (text, expected) in cases {
            let error = KeyFile::parse(&text).unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains(&private), "{text}: {error}");
        }
    }
}
