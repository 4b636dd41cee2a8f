//! What is in a certificate.

use std::net::IpAddr;
use std::path::Path;

use rustls::pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::files;
use crate::trusted::Fingerprint;

/// A certificate, for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shown {
    /// By which it can be known.
    pub fingerprint: Fingerprint,
    /// Whom it names as its owner.
    pub subject: String,
    /// Whom it names as the CA.
    pub issuer: String,
    /// Host names and IP addresses that it is for.
    pub names: Vec<String>,
    /// Whether it is one of a CA.
    pub is_ca: bool,
    /// From when on it is good, in s since 1970.
    pub from_s: i64,
    /// Until when, in s since 1970.
    pub until_s: i64,
}

/// The certificates in a file.
///
/// # Errors
/// In words, with the file's name.
pub fn file(path: &Path) -> Result<Vec<Shown>, String> {
    let all = files::certificates(path)?;
    all.iter().map(|one| certificate(one).map_err(|error| format!("{}: {error}", path.display()))).collect()
}

/// One certificate.
///
/// # Errors
/// In words, where it is none.
pub fn certificate(der: &CertificateDer<'_>) -> Result<Shown, String> {
    let (_, parsed) = X509Certificate::from_der(der).map_err(|_| "expected a certificate (X.509)".to_owned())?;
    let names = match parsed.subject_alternative_name() {
        Ok(Some(extension)) => extension.value.general_names.iter().filter_map(name).collect(),
        _ => Vec::new(),
    };
    Ok(Shown {
        fingerprint: Fingerprint::of(der),
        subject: printable(&parsed.subject().to_string()),
        issuer: printable(&parsed.issuer().to_string()),
        names,
        is_ca: parsed.is_ca(),
        from_s: parsed.validity().not_before.timestamp(),
        until_s: parsed.validity().not_after.timestamp(),
    })
}

fn name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some(printable(name)),
        GeneralName::IPAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            v4.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from)).ok().map(|address| address.to_string())
        }
        _ => None,
    }
}

/// What a certificate says may be anybody's words, and goes to a terminal.
fn printable(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(256).collect()
}
