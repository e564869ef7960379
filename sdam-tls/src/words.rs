//! Puts errors of the library into words.
//!
//! The library prints many of its errors by the names of their variants, which say little to people
//! who do not know its source.

use std::fmt::Debug;

use rustls::{CertificateError, Error, InconsistentKeys};

/// Returns the name of an enumeration's variant in words, without its fields.
pub(crate) fn words(variant: &dyn Debug) -> String {
    let name = format!("{variant:?}");
    let name = name.split(|of: char| !of.is_ascii_alphanumeric()).next().unwrap_or_default();
    let mut words = String::new();
    let mut before = ' ';
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !before.is_ascii_uppercase() && before != ' ' {
            words.push(' ');
        }
        words.push(letter.to_ascii_lowercase());
        before = letter;
    }
    words
}

/// Returns what failed, for errors that are not about a certificate.
pub(crate) fn failure(error: &Error) -> String {
    match error {
        Error::InappropriateMessage { got_type, .. } => {
            format!("the server sent a message out of order ({})", words(got_type))
        }
        Error::InappropriateHandshakeMessage { got_type, .. } => {
            format!("the server sent a handshake message out of order ({})", words(got_type))
        }
        Error::InvalidMessage(detail) => {
            format!("the server sent a corrupt message ({})", words(detail))
        }
        Error::PeerMisbehaved(detail) => {
            format!("the server breaks the protocol ({})", words(detail))
        }
        Error::PeerIncompatible(detail) => {
            format!("client and server have no TLS algorithm in common ({})", words(detail))
        }
        Error::InvalidEncryptedClientHello(detail) => {
            format!("the encrypted hello cannot be used ({})", words(detail))
        }
        Error::InvalidCertRevocationList(detail) => {
            format!("a revocation list cannot be used ({})", words(detail))
        }
        Error::InvalidCertificate(error) => format!("the certificate {}", fault(error, None)),
        Error::AlertReceived(alert) => format!("the server sent the alert: {}", words(alert)),
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            "the key does not belong to the certificate".to_owned()
        }
        Error::InconsistentKeys(_) => "the key may not belong to the certificate".to_owned(),
        Error::Other(other) => match other.0.downcast_ref::<webpki::Error>() {
            Some(detail) => words(detail),
            None => other.to_string(),
        },
        // The library has words for the others.
        error => error.to_string(),
    }
}

/// Returns what makes a certificate unacceptable, and how to issue one that is acceptable, for the
/// server `host` or for a client. The subject of the sentence is the certificate.
pub(crate) fn fault(error: &CertificateError, host: Option<&str>) -> String {
    use CertificateError as Fault;
    if let Fault::Other(other) = error {
        return match other.0.downcast_ref() {
            Some(webpki::Error::UnsupportedCertVersion) => {
                let how = match host {
                    Some(host) => format!("{}, or with", issue(host)),
                    None => "issue it again as version 3, for instance with".to_owned(),
                };
                format!("has an older X.509 version than 3; {how} `openssl x509 -req -extfile`")
            }
            Some(detail) => not_acceptable(&words(detail)),
            None => not_acceptable(&other.to_string()),
        };
    }
    if let Fault::UnsupportedSignatureAlgorithmContext { signature_algorithm_id, .. } = error {
        let weak = WEAK.iter().find(|(id, _)| signature_algorithm_id.ends_with(id));
        let name = weak.map_or("an algorithm that this client does not know", |(_, name)| name);
        return format!(
            "is signed with {name}, which is not accepted; issue it again with SHA-256 (`openssl \
             x509 -req -sha256`)"
        );
    }
    let words = words(error);
    not_acceptable(words.strip_suffix(" context").unwrap_or(&words))
}

fn not_acceptable(reason: &str) -> String {
    format!(
        "is not acceptable ({reason}); issue it again, and look at it with `openssl x509 -text`"
    )
}

/// Returns the remedy for a certificate without the name `host`.
pub(crate) fn issue(host: &str) -> String {
    let kind = if host.parse::<std::net::IpAddr>().is_ok() { "IP" } else { "DNS" };
    format!(
        "issue it again with a subjectAltName (`openssl req -addext subjectAltName={kind}:{host}`)"
    )
}

/// The ends of the object identifiers of signatures that are no longer accepted, in DER.
const WEAK: [(&[u8], &str); 4] = [
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x05, 0x05, 0x00], "SHA-1"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x05], "SHA-1"),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x01], "SHA-1"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x04, 0x05, 0x00], "MD5"),
];

#[cfg(test)]
mod tests;
