//! What has gone wrong, in words that say what to do.

use rustls::{AlertDescription, Error};

/// An error of TLS in words that say what to do.
pub(crate) fn words(error: &Error) -> String {
    match error {
        Error::InvalidMessage(_) => {
            "it does not speak TLS: start it with --tls-cert and --tls-key, or unset FANIN_TLS, which makes control connections plain"
                .into()
        }
        Error::AlertReceived(AlertDescription::CertificateRequired) => {
            "it asks for a certificate of this end: set FANIN_TLS_CERT and FANIN_TLS_KEY".into()
        }
        Error::AlertReceived(
            AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::AccessDenied
            | AlertDescription::DecryptError,
        ) => "it does not take the certificate of this end (FANIN_TLS_CERT)".into(),
        Error::AlertReceived(AlertDescription::CertificateExpired) => {
            "the certificate of this end (FANIN_TLS_CERT) is not good any more".into()
        }
        other => format!("TLS: {other}"),
    }
}
