//! By what the other end is known: the CA that has signed its certificate, or the certificate's own fingerprint.

use std::error::Error as StdError;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use ring::digest;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, PeerIncompatible, RootCertStore, SignatureScheme,
};

use crate::files::{self, Stamp};
use crate::provider;

/// Bytes of a fingerprint.
const FINGERPRINT_BYTES: usize = 32;
/// What a fingerprint begins with as text.
const PREFIX: &str = "sha256:";

/// The SHA-256 of a certificate (of its DER bytes, as `openssl x509 -fingerprint -sha256` computes it).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fingerprint([u8; FINGERPRINT_BYTES]);

impl Fingerprint {
    /// That of this certificate.
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        let mut bytes = [0; FINGERPRINT_BYTES];
        bytes.copy_from_slice(digest::digest(&digest::SHA256, certificate).as_ref());
        Fingerprint(bytes)
    }

    /// That of the first certificate in a file.
    ///
    /// # Errors
    /// In words, with the file's name.
    pub fn of_file(path: &Path) -> Result<Self, String> {
        // A file of certificates has at least one.
        Ok(Fingerprint::of(&files::certificates(path)?[0]))
    }
}

/// `sha256:` and 64 hexadecimal digits.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Digits of either case, and with colons between them, as openssl writes them.
impl FromStr for Fingerprint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("{PREFIX} and 64 hexadecimal digits, as `fanin tls show` prints");
        let digits = text.strip_prefix(PREFIX).ok_or_else(expected)?;
        let values: Option<Vec<u8>> =
            digits.chars().filter(|digit| *digit != ':').map(|digit| digit.to_digit(16).map(|value| value as u8)).collect();
        let values = values.filter(|values| values.len() == 2 * FINGERPRINT_BYTES).ok_or_else(expected)?;
        let mut bytes = [0; FINGERPRINT_BYTES];
        for (byte, pair) in bytes.iter_mut().zip(values.chunks_exact(2)) {
            *byte = pair[0] << 4 | pair[1];
        }
        Ok(Fingerprint(bytes))
    }
}

/// By what the other end is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Trusted {
    /// A CA of this file has signed its certificate, for the name by which it is called, and the certificate is good today.
    Ca(PathBuf),
    /// It has just this certificate. Whom that names, and until when it is good, is not looked at.
    Pinned(Fingerprint),
}

impl FromStr for Trusted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" => Err(format!("the file of a CA's certificates, or {PREFIX}FINGERPRINT of one certificate")),
            text if text.starts_with(PREFIX) => text.parse().map(Trusted::Pinned),
            path => Ok(Trusted::Ca(path.into())),
        }
    }
}

impl fmt::Display for Trusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trusted::Ca(path) => path.display().fmt(f),
            Trusted::Pinned(fingerprint) => fingerprint.fmt(f),
        }
    }
}

impl Trusted {
    /// What the CA's file is now.
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        if let Trusted::Ca(path) = self { files::stamp(path) } else { None }
    }

    /// What a client asks whether the certificate of a switch is good.
    ///
    /// # Errors
    /// In words, with the CA's file.
    pub(crate) fn server_verifier(&self) -> Result<Arc<dyn ServerCertVerifier>, String> {
        match self {
            Trusted::Pinned(fingerprint) => Ok(Arc::new(Pin { fingerprint: *fingerprint, provider: provider() })),
            Trusted::Ca(path) => {
                let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots(path)?), provider()).build();
                Ok(verifier.map_err(|error| format!("{}: {error}", path.display()))?)
            }
        }
    }

    /// What a switch asks whether the certificate of a client is good.
    ///
    /// # Errors
    /// In words, with the CA's file.
    pub(crate) fn client_verifier(&self) -> Result<Arc<dyn ClientCertVerifier>, String> {
        match self {
            Trusted::Pinned(fingerprint) => Ok(Arc::new(Pin { fingerprint: *fingerprint, provider: provider() })),
            Trusted::Ca(path) => WebPkiClientVerifier::builder_with_provider(Arc::new(roots(path)?), provider())
                .build()
                .map_err(|error| format!("{}: {error}", path.display())),
        }
    }
}

fn roots(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in files::certificates(path)? {
        roots.add(certificate).map_err(|error| format!("{}: expected certificates of a CA: {error}", path.display()))?;
    }
    Ok(roots)
}

/// Another certificate than the one whose fingerprint is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OtherCertificate {
    wanted: Fingerprint,
    got: Fingerprint,
}

impl fmt::Display for OtherCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "its certificate is {}: expected {}", self.got, self.wanted)
    }
}

impl StdError for OtherCertificate {}

/// One certificate is good.
#[derive(Debug)]
struct Pin {
    fingerprint: Fingerprint,
    provider: Arc<CryptoProvider>,
}

impl Pin {
    fn check(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        let got = Fingerprint::of(certificate);
        if got == self.fingerprint {
            return Ok(());
        }
        let other = OtherCertificate { wanted: self.fingerprint, got };
        Err(Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(other)))))
    }

    /// Whether the other end has the certificate's private key, without which the certificate itself says nothing.
    fn check_key(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }
}

/// There is TLS 1.3 alone.
const OLD: Error = Error::PeerIncompatible(PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig);

impl ServerCertVerifier for Pin {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(end_entity).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(OLD)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_key(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl ClientCertVerifier for Pin {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(end_entity).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(OLD)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_key(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_read_as_it_is_written_and_as_openssl_writes_it() {
        let fingerprint = Fingerprint::of(&CertificateDer::from(b"abc".to_vec()));
        // FIPS 180-2, appendix B.1.
        let text = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(fingerprint.to_string(), text);
        assert_eq!(text.parse(), Ok(fingerprint));
        let colons: Vec<&str> = text.as_bytes()[7..].chunks(2).map(|pair| std::str::from_utf8(pair).unwrap()).collect();
        assert_eq!(format!("sha256:{}", colons.join(":").to_uppercase()).parse(), Ok(fingerprint));
        for wrong in ["", "sha256:", &text[..70], &format!("{text}0"), &text.replace('b', "g"), &text[7..], "sha1:00"] {
            assert!(wrong.parse::<Fingerprint>().unwrap_err().contains("64 hexadecimal digits"), "{wrong}");
        }
        assert_eq!(text.parse::<Trusted>().unwrap(), Trusted::Pinned(fingerprint));
        assert_eq!("ca.pem".parse::<Trusted>().unwrap(), Trusted::Ca("ca.pem".into()));
        assert!("sha256:00".parse::<Trusted>().is_err() && "".parse::<Trusted>().is_err());
    }
}
