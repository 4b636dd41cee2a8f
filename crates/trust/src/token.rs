//! Tokens: who may join which job as which rank, and until when.
//!
//! A token is a PASETO of version 4 for the public (`v4.public`): JSON that an Ed25519 key has signed, with the key's name in the footer. There is one
//! algorithm and nothing to choose by the token itself, unlike in a JWT; and the switch has the public half of a key only, so that who reads its file
//! can make no tokens. In the JSON, `exp` and `iat` mean what the registry of PASETO says, and the other claims are Fanin's:
//!
//! ```json
//! {"tenant":"red","jobs":["train-*"],"ranks":"3","iat":"2026-11-29T05:00:00Z","exp":"2026-11-30T05:00:00Z"}
//! ```

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, SecondsFormat};
use pasetors::Public;
use pasetors::keys::{AsymmetricKeyPair, AsymmetricPublicKey, AsymmetricSecretKey, Generate};
use pasetors::paserk::FormatAsPaserk;
use pasetors::token::UntrustedToken;
use pasetors::version4::{PublicToken, V4};
use serde::{Deserialize, Serialize};

/// The longest token, in bytes.
pub const TOKEN_BYTES_MAX: usize = 4_096;
/// The longest name of a tenant or a key, in characters.
pub const NAME_CHARS_MAX: usize = 64;
/// So many patterns of jobs at most.
pub const JOBS_MAX: usize = 16;
/// Clocks may differ by so much, in s.
pub const CLOCKS_DIFFER_S: i64 = 60;

/// Binds signatures to this use: a token that the same key has signed for something else is none.
const PURPOSE: &[u8] = b"fanin admission 1";

/// Why a token admits nobody.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TokenError {
    /// Not a token at all.
    #[error("it is no token: expected one that begins with `v4.public.`, with the name of a key behind it")]
    Malformed,
    /// No key has this name.
    #[error("it was signed with key {key:?}, which this switch does not have")]
    UnknownKey {
        /// The name.
        key: String,
    },
    /// The signature is not the key's.
    #[error("its signature is not that of key {key:?}")]
    Forged {
        /// The key.
        key: String,
    },
    /// The signature is right and the words make no sense.
    #[error("{what}")]
    Invalid {
        /// What is wrong.
        what: String,
    },
    /// Its time is over.
    #[error("it was good until {until}, and it is {now} now")]
    Expired {
        /// Until when.
        until: String,
        /// The switch's clock.
        now: String,
    },
    /// It was made later than now.
    #[error("it was made at {made}, and it is {now} now: one of the clocks is wrong")]
    NotYet {
        /// When.
        made: String,
        /// The switch's clock.
        now: String,
    },
    /// The key may not speak for this tenant.
    #[error("key {key:?} does not speak for tenant {tenant:?}")]
    OfAnother {
        /// The key.
        key: String,
        /// The tenant.
        tenant: String,
    },
}

/// Ranks that may be taken: `3`, `0-7` or `0,4-5`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Ranks(Vec<(u32, u32)>);

impl Ranks {
    /// Whether this rank is among them.
    pub fn has(&self, rank: u32) -> bool {
        self.0.iter().any(|(first, last)| (*first..=*last).contains(&rank))
    }
}

impl FromStr for Ranks {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("ranks = {text:?}: expected ranks as 3, 0-7 or 0,4-5");
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
            (first <= last).then_some((first, last))
        };
        let ranges: Option<Vec<_>> = text.split(',').map(range).collect();
        ranges.filter(|ranges| ranges.len() <= 64).map(Ranks).ok_or_else(wrong)
    }
}

impl TryFrom<String> for Ranks {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for Ranks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.0.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            if first == last { write!(f, "{comma}{first}")? } else { write!(f, "{comma}{first}-{last}")? }
        }
        Ok(())
    }
}

impl From<Ranks> for String {
    fn from(ranks: Ranks) -> String {
        ranks.to_string()
    }
}

/// What a token gives a right to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rights {
    /// Whose jobs these are. Jobs of tenants never meet, whatever their names.
    pub tenant: String,
    /// Names of jobs, `*` standing for anything. A job `train/...`, such as those of the groups that a program splits off, counts as `train`.
    pub jobs: Vec<String>,
    /// Ranks of these jobs; all where there are none. In a group that was split off, ranks have other numbers, and any may be taken.
    pub ranks: Option<Ranks>,
    /// Since when, in seconds since 1970.
    pub made_s: i64,
    /// Until when, in seconds since 1970.
    pub until_s: i64,
}

/// A token's words.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Claims {
    tenant: String,
    jobs: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ranks: Option<Ranks>,
    iat: String,
    exp: String,
}

/// The footer.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Footer {
    kid: String,
}

/// Whether a name is one: of a tenant, or of a key.
pub fn is_name(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    !text.is_empty() && text.len() <= NAME_CHARS_MAX && text.chars().all(fits)
}

/// Seconds since 1970 as a text.
pub fn time_text(s: i64) -> String {
    DateTime::from_timestamp(s, 0).map_or_else(|| format!("{s} s"), |time| time.to_rfc3339_opts(SecondsFormat::Secs, true))
}

fn time_of(name: &str, text: &str) -> Result<i64, TokenError> {
    let wrong = |_| TokenError::Invalid { what: format!("{name} = {text:?}: expected a time as 2026-11-29T05:00:00Z") };
    DateTime::parse_from_rfc3339(text).map(|time| time.timestamp()).map_err(wrong)
}

/// Whether `name` is what `pattern` says, in which `*` stands for anything.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(name) = name.strip_prefix(head) else { return false };
    let mut ends = name.char_indices().map(|(at, _)| at).chain([name.len()]);
    ends.any(|at| fits(rest, &name[at..]))
}

impl Rights {
    /// Whether rank `rank` of a job may be taken.
    ///
    /// # Errors
    /// In words, why not.
    pub fn allow(&self, job: &str, rank: u32) -> Result<(), String> {
        let whole = self.jobs.iter().any(|pattern| fits(pattern, job));
        let of_group = job.match_indices('/').any(|(at, _)| self.jobs.iter().any(|pattern| fits(pattern, &job[..at])));
        if !whole && !of_group {
            return Err(format!("the token is for jobs {}", self.jobs.join(", ")));
        }
        match &self.ranks {
            Some(ranks) if !of_group && !ranks.has(rank) => Err(format!("the token is for ranks {ranks}")),
            _ => Ok(()),
        }
    }

    fn claims(&self) -> Claims {
        let (iat, exp) = (time_text(self.made_s), time_text(self.until_s));
        Claims { tenant: self.tenant.clone(), jobs: self.jobs.clone(), ranks: self.ranks.clone(), iat, exp }
    }

    fn of(claims: Claims) -> Result<Self, TokenError> {
        let invalid = |what: String| Err(TokenError::Invalid { what });
        let Claims { tenant, jobs, ranks, iat, exp } = claims;
        if !is_name(&tenant) {
            return invalid(format!("tenant = {tenant:?}: expected 1 to {NAME_CHARS_MAX} of letters, digits and `._-`"));
        }
        // A `*` more costs time for every character of a name.
        let is_pattern = |job: &String| !job.is_empty() && job.len() <= 128 && job.matches('*').count() <= 2;
        if jobs.is_empty() || jobs.len() > JOBS_MAX || !jobs.iter().all(is_pattern) {
            return invalid(format!("jobs: expected 1 to {JOBS_MAX} names of 1 to 128 characters with at most two `*` each"));
        }
        Ok(Rights { tenant, jobs, ranks, made_s: time_of("iat", &iat)?, until_s: time_of("exp", &exp)? })
    }

    /// Whether it is time.
    fn check_time(&self, now_s: i64) -> Result<(), TokenError> {
        let now = || time_text(now_s);
        if self.until_s <= now_s {
            return Err(TokenError::Expired { until: time_text(self.until_s), now: now() });
        }
        if self.made_s > now_s.saturating_add(CLOCKS_DIFFER_S) {
            return Err(TokenError::NotYet { made: time_text(self.made_s), now: now() });
        }
        Ok(())
    }
}

/// The half of a key that checks tokens.
#[derive(Clone, Debug)]
pub struct PublicKey(AsymmetricPublicKey<V4>);

impl PublicKey {
    /// Reads one as PASERK writes it (`k4.public...`).
    ///
    /// # Errors
    /// In words, what is expected.
    pub fn parse(text: &str) -> Result<Self, String> {
        // A private half is not repeated in a message.
        AsymmetricPublicKey::try_from(text)
            .map(PublicKey)
            .map_err(|_| "expected the public half of a key, which begins with `k4.public.`".into())
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        FormatAsPaserk::fmt(&self.0, f)
    }
}

/// The half that makes them.
pub struct PrivateKey(AsymmetricSecretKey<V4>);

impl PrivateKey {
    /// A new key.
    ///
    /// # Errors
    /// In words, where the system gives no random numbers.
    pub fn random() -> Result<Self, String> {
        AsymmetricKeyPair::<V4>::generate().map(|pair| PrivateKey(pair.secret)).map_err(|_| crate::secret::NoRandomness.to_string())
    }

    /// Reads one as PASERK writes it (`k4.secret...`).
    ///
    /// # Errors
    /// In words, what is expected.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || "expected the private half of a key, which begins with `k4.secret.`".to_owned();
        AsymmetricSecretKey::try_from(text.trim()).map(PrivateKey).map_err(|_| wrong())
    }

    /// As PASERK writes it. Whoever has this text can make tokens.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Strings have room.
        let _ = FormatAsPaserk::fmt(&self.0, &mut text);
        text
    }

    /// The other half.
    ///
    /// # Errors
    /// In words, where this one is no key.
    pub fn public(&self) -> Result<PublicKey, String> {
        AsymmetricPublicKey::try_from(&self.0).map(PublicKey).map_err(|_| "the key is none".into())
    }

    /// Makes a token with the key of this name.
    ///
    /// # Errors
    /// [`TokenError::Invalid`] where the rights make no sense.
    pub fn sign(&self, key: &str, rights: &Rights) -> Result<String, TokenError> {
        let invalid = |what: &str| TokenError::Invalid { what: what.into() };
        Rights::of(rights.claims())?;
        if !is_name(key) {
            return Err(invalid("the key's name: expected letters, digits and `._-`"));
        }
        let json = |_| invalid("it cannot be written");
        let message = serde_json::to_vec(&rights.claims()).map_err(json)?;
        let footer = serde_json::to_vec(&Footer { kid: key.to_owned() }).map_err(json)?;
        PublicToken::sign(&self.0, &message, Some(&footer), Some(PURPOSE)).map_err(|_| invalid("the key cannot sign"))
    }
}

/// The name of the key that a token says it was signed with.
///
/// # Errors
/// [`TokenError::Malformed`].
pub fn key_of(token: &str) -> Result<String, TokenError> {
    let footer = parsed(token)?.untrusted_footer().to_vec();
    let Footer { kid } = serde_json::from_slice(&footer).map_err(|_| TokenError::Malformed)?;
    if is_name(&kid) { Ok(kid) } else { Err(TokenError::Malformed) }
}

fn parsed(token: &str) -> Result<UntrustedToken<Public, V4>, TokenError> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(TokenError::Malformed);
    }
    UntrustedToken::try_from(token).map_err(|_| TokenError::Malformed)
}

/// What a token gives a right to, if the key has signed it and it is time.
///
/// # Errors
/// [`TokenError`].
pub fn verify(token: &str, (name, key): (&str, &PublicKey), now_s: i64) -> Result<Rights, TokenError> {
    let rights = read(token, (name, key))?;
    rights.check_time(now_s)?;
    Ok(rights)
}

/// The same at any time.
///
/// # Errors
/// [`TokenError`].
pub fn read(token: &str, (name, key): (&str, &PublicKey)) -> Result<Rights, TokenError> {
    let token = parsed(token)?;
    let forged = |_| TokenError::Forged { key: name.to_owned() };
    let trusted = PublicToken::verify(&key.0, &token, None, Some(PURPOSE)).map_err(forged)?;
    let claims: Claims =
        serde_json::from_str(trusted.payload()).map_err(|error| TokenError::Invalid { what: format!("what it says: {error}") })?;
    Rights::of(claims)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_S: i64 = 1_796_000_000;

    pub(crate) fn rights() -> Rights {
        Rights {
            tenant: "red".into(),
            jobs: vec!["train-*".into(), "probe".into()],
            ranks: Some("0,2-3".parse().unwrap()),
            made_s: NOW_S,
            until_s: NOW_S + 3_600,
        }
    }

    #[test]
    fn a_token_says_what_it_was_signed_for_until_its_time_is_over() {
        let key = PrivateKey::random().unwrap();
        let public = PublicKey::parse(&key.public().unwrap().to_string()).unwrap();
        let token = PrivateKey::parse(&key.text()).unwrap().sign("a", &rights()).unwrap();
        assert!(token.starts_with("v4.public."), "{token}");
        assert_eq!(key_of(&token), Ok("a".into()));
        for now_s in [NOW_S, NOW_S + 3_599, NOW_S - CLOCKS_DIFFER_S] {
            assert_eq!(verify(&token, ("a", &public), now_s), Ok(rights()));
        }
        assert!(matches!(verify(&token, ("a", &public), NOW_S + 3_600), Err(TokenError::Expired { .. })));
        assert!(matches!(verify(&token, ("a", &public), NOW_S - 3_600), Err(TokenError::NotYet { .. })));
        let other = PrivateKey::random().unwrap().public().unwrap();
        assert_eq!(verify(&token, ("a", &other), NOW_S), Err(TokenError::Forged { key: "a".into() }));
    }

    #[test]
    fn a_changed_token_is_none_whatever_was_changed() {
        let key = PrivateKey::random().unwrap();
        let (public, token) = (key.public().unwrap(), key.sign("a", &rights()).unwrap());
        for at in 0..token.len() {
            for letter in ['A', 'z', '.', '-'] {
                let mut changed: Vec<char> = token.chars().collect();
                if changed[at] == letter {
                    continue;
                }
                changed[at] = letter;
                let changed: String = changed.into_iter().collect();
                assert!(verify(&changed, ("a", &public), NOW_S).is_err(), "{at} {letter}");
            }
            assert!(verify(&token[..at], ("a", &public), NOW_S).is_err());
        }
        assert_eq!(key_of(&"x".repeat(TOKEN_BYTES_MAX + 1)), Err(TokenError::Malformed));
        // Signed by the same key, and for something else.
        let message = serde_json::to_vec(&rights().claims()).unwrap();
        let elsewhere = PublicToken::sign(&key.0, &message, Some(br#"{"kid":"a"}"#), None).unwrap();
        assert_eq!(verify(&elsewhere, ("a", &public), NOW_S), Err(TokenError::Forged { key: "a".into() }));
        // A right that this version does not know is not one that it ignores.
        let more = br#"{"tenant":"red","jobs":["a"],"hosts":"b","iat":"2026-11-29T05:00:00Z","exp":"2099-11-29T05:00:00Z"}"#;
        let more = PublicToken::sign(&key.0, more, Some(br#"{"kid":"a"}"#), Some(PURPOSE)).unwrap();
        assert!(verify(&more, ("a", &public), NOW_S).unwrap_err().to_string().contains("hosts"));
    }

    #[test]
    fn rights_are_of_jobs_and_ranks() {
        let rights = rights();
        for (job, rank) in [("train-1", 0), ("train-", 3), ("probe", 2), ("probe/sparse-1", 1), ("train-1/left", 7)] {
            assert_eq!(rights.allow(job, rank), Ok(()), "{job} {rank}");
        }
        for (job, rank) in [("train", 0), ("train-1", 1), ("probes", 0), ("a/probe", 0), ("", 0), ("probe", 4)] {
            assert!(rights.allow(job, rank).is_err(), "{job} {rank}");
        }
        assert_eq!(Rights { ranks: None, ..rights.clone() }.allow("train-9", 1_000), Ok(()));
        for (pattern, name, does) in
            [("*", "", true), ("a*b*", "acbd", true), ("a*b", "ab", true), ("a*b", "aba", false), ("*ä", "xä", true)]
        {
            assert_eq!(fits(pattern, name), does, "{pattern} {name}");
        }
    }

    #[test]
    fn rights_that_make_no_sense_are_not_signed() {
        let key = PrivateKey::random().unwrap();
        type Change = fn(&mut Rights);
        let cases: [(Change, &str); 4] = [
            (|rights| rights.tenant = "a b".into(), "tenant"),
            (|rights| rights.jobs.clear(), "jobs"),
            (|rights| rights.jobs = vec!["***".into()], "jobs"),
            (|rights| rights.jobs = vec!["x".into(); JOBS_MAX + 1], "jobs"),
        ];
        for (change, expected) in cases {
            let mut rights = rights();
            change(&mut rights);
            assert!(key.sign("a", &rights).unwrap_err().to_string().contains(expected));
        }
        for ranks in ["", "3-1", "a", "1,", "-1", "1-2-3"] {
            assert!(ranks.parse::<Ranks>().is_err(), "{ranks}");
        }
        assert!(PublicKey::parse(&key.text()).is_err() && PrivateKey::parse("k4.secret.x").is_err());
    }
}
