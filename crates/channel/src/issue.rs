//! A CA and certificates for the switches and ranks of a cluster.

use chrono::{DateTime, Datelike, Utc};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::ServerName;

/// The longest that a certificate may be good for, in days: ten years.
pub const DAYS_MAX: u32 = 3_660;
/// So many names a certificate at most.
const NAMES_MAX: usize = 64;

/// A certificate and its private key, both PEM.
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// Its private key, which only its owner may read.
    pub key: String,
}

/// What a certificate is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// To be a switch, and to go to others.
    Switch,
    /// To go to a switch that asks for certificates (mutual TLS). Nobody takes its owner for a switch.
    Rank,
}

/// Makes a CA. Its certificate is what ranks know switches by; its key signs certificates, and stays with whoever makes them.
///
/// # Errors
/// In words.
pub fn authority(name: &str, now: DateTime<Utc>, days: u32) -> Result<Issued, String> {
    let key = KeyPair::generate().map_err(|error| error.to_string())?;
    let mut params = params(name, Vec::new(), now, days)?;
    // It signs certificates of ends, and no further CAs.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let certificate = params.self_signed(&key).map_err(|error| error.to_string())?;
    Ok(Issued { certificate: certificate.pem(), key: key.serialize_pem() })
}

/// Makes a certificate that a CA has signed, for these host names and IP addresses; the first one is also its subject.
///
/// # Errors
/// In words: what is wrong with a name or with the CA.
pub fn certificate(ca: &Issued, names: &[String], purpose: Purpose, now: DateTime<Utc>, days: u32) -> Result<Issued, String> {
    let Some(subject) = names.first() else { return Err("no names: expected at least one host name or IP address".into()) };
    if names.len() > NAMES_MAX {
        return Err(format!("{} names: expected at most {NAMES_MAX}", names.len()));
    }
    if let Some(wrong) = names.iter().find(|name| !is_host(name)) {
        return Err(format!("name {wrong:?}: expected a host name, also with `*.` before it, or an IP address"));
    }
    let ca_key = KeyPair::from_pem(&ca.key).map_err(|_| "the CA's key: expected a private key as PEM".to_owned())?;
    let issuer = Issuer::from_ca_cert_pem(&ca.certificate, ca_key).map_err(|error| format!("the CA's certificate: {error}"))?;
    let key = KeyPair::generate().map_err(|error| error.to_string())?;
    let mut params = params(subject, names.to_vec(), now, days)?;
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = match purpose {
        Purpose::Switch => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
        Purpose::Rank => vec![ExtendedKeyUsagePurpose::ClientAuth],
    };
    params.use_authority_key_identifier_extension = true;
    let certificate = params.signed_by(&key, &issuer).map_err(|error| error.to_string())?;
    Ok(Issued { certificate: certificate.pem(), key: key.serialize_pem() })
}

/// Whether somebody can go to a host of this name.
fn is_host(name: &str) -> bool {
    ServerName::try_from(name.strip_prefix("*.").unwrap_or(name)).is_ok()
}

fn params(subject: &str, names: Vec<String>, now: DateTime<Utc>, days: u32) -> Result<CertificateParams, String> {
    if !(1..=DAYS_MAX).contains(&days) {
        return Err(format!("{days} days: expected 1 to {DAYS_MAX}"));
    }
    let mut params = CertificateParams::new(names).map_err(|error| format!("expected host names and IP addresses: {error}"))?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, subject);
    // A day earlier, for clocks that are behind; whole days are all that is needed.
    let day = |at: DateTime<Utc>| rcgen::date_time_ymd(at.year(), at.month() as u8, at.day() as u8);
    params.not_before = day(now - chrono::TimeDelta::days(1));
    params.not_after = day(now + chrono::TimeDelta::days(i64::from(days) + 1));
    Ok(params)
}
