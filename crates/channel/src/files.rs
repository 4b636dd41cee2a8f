//! Certificates and private keys in files, as PEM (RFC 7468).

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The longest file of certificates or of a key, in bytes.
pub(crate) const FILE_BYTES_MAX: u64 = 1 << 20;
/// So many certificates in a file at most.
const CERTIFICATES_MAX: usize = 256;

/// What a file was when it was read: it has changed where any of this has.
pub(crate) type Stamp = (Option<SystemTime>, u64, u64, (i64, i64));

/// Who this end is: a certificate and its private key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The file of the certificate, with those between it and the CA's behind it.
    pub certificate: PathBuf,
    /// The file of its private key.
    pub key: PathBuf,
}

impl Identity {
    /// Reads both files.
    ///
    /// # Errors
    /// In words, with the file's name; the key itself is never shown.
    pub(crate) fn read(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), String> {
        let certificates = certificates(&self.certificate)?;
        let name = self.key.display();
        let key = PrivateKeyDer::from_pem_slice(&bytes(&self.key)?)
            .map_err(|_| format!("{name}: expected a private key as PEM (`fanin tls new` makes one)"))?;
        Ok((certificates, key))
    }

    /// What the files are now.
    pub(crate) fn stamps(&self) -> Vec<Option<Stamp>> {
        vec![stamp(&self.certificate), stamp(&self.key)]
    }
}

/// What a file is now; `None` where it is not there.
pub(crate) fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = fs::metadata(path).ok()?;
    // Of a file whose owner or mode has changed, only its time of change says so; one that was moved here has another number.
    Some((metadata.modified().ok(), metadata.len(), metadata.ino(), (metadata.ctime(), metadata.ctime_nsec())))
}

/// The certificates in a file, in its order: at least one.
///
/// # Errors
/// In words, with the file's name.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    parse_certificates(&bytes(path)?).map_err(|error| format!("{}: {error}", path.display()))
}

/// The certificates in the text of a PEM file.
///
/// # Errors
/// In words.
pub fn parse_certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let expected =
        || "expected certificates as PEM, between lines `-----BEGIN CERTIFICATE-----` and `-----END CERTIFICATE-----`".to_owned();
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).take(CERTIFICATES_MAX + 1).collect();
    match read.map_err(|_| expected())? {
        none if none.is_empty() => Err(expected()),
        many if many.len() > CERTIFICATES_MAX => Err(format!("more than {CERTIFICATES_MAX} certificates: expected fewer")),
        some => Ok(some),
    }
}

/// A file that is not longer than such files are, also where it is a device without an end.
fn bytes(path: &Path) -> Result<Vec<u8>, String> {
    let name = path.display();
    let failed = |error: std::io::Error| format!("{name}: {error}");
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)).map_err(failed)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("{name} is longer than {FILE_BYTES_MAX} bytes, which no file of certificates is"));
    }
    Ok(bytes)
}
