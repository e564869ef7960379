//! The reasons why a certificate or a handshake is rejected, in words.
//!
//! The library prints many of its errors by the names of their variants, which say little to people
//! who do not know its source.

use std::fmt::Debug;

use rustls::{
    AlertDescription, CertificateError, Error, InconsistentKeys, InvalidMessage, PeerIncompatible,
    pki_types::UnixTime,
};

#[cfg(test)]
mod tests;

/// The reason why TLS could not be negotiated. Each reason is a class of [`rustls::Error`] that has
/// its own remedy.
///
/// ```
/// use sdam_core::error::Error;
/// use sdam_tls::{Reason, rustls};
///
/// fn reason(error: &Error) -> Option<Reason> {
///     error.source_as::<rustls::Error>().map(Reason::of)
/// }
/// ```
///
/// If a connection was closed or timed out, its error contains no [`rustls::Error`]; see the
/// error's [`kind`](sdam_core::error::Error::kind) instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The server's certificate has expired.
    Expired,
    /// The server's certificate is not valid yet.
    NotYetValid,
    /// The server's certificate was not issued by a trusted authority.
    UnknownIssuer,
    /// The server's certificate is for other names, or the server does not know a host with the
    /// requested name.
    WrongName,
    /// The server's certificate has been revoked, or no revocation list covers it.
    Revoked,
    /// The server's certificate is not acceptable for another reason.
    Certificate,
    /// The server requires a client certificate, or rejects the certificate that it received.
    ClientCertificate,
    /// The server answered without TLS.
    PlainText,
    /// Client and server have no protocol version, cipher suite or algorithm in common.
    Incompatible,
    /// Another reason.
    Other,
}

impl Reason {
    /// Returns the reason for `error`.
    pub fn of(error: &Error) -> Self {
        match error {
            Error::InvalidCertificate(error) => Self::of_certificate(error),
            Error::NoCertificatesPresented | Error::UnsupportedNameType => Self::Certificate,
            Error::InvalidCertRevocationList(_) => Self::Revoked,
            Error::AlertReceived(alert) => Self::of_alert(*alert),
            Error::InvalidMessage(
                InvalidMessage::InvalidContentType
                | InvalidMessage::UnknownProtocolVersion
                | InvalidMessage::MessageTooLarge
                | InvalidMessage::InvalidEmptyPayload,
            ) => Self::PlainText,
            Error::PeerIncompatible(_) => Self::Incompatible,
            _ => Self::Other,
        }
    }

    fn of_certificate(error: &CertificateError) -> Self {
        match error {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => Self::Expired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                Self::NotYetValid
            }
            CertificateError::UnknownIssuer => Self::UnknownIssuer,
            error if is_of_authority(error) => Self::UnknownIssuer,
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                Self::WrongName
            }
            CertificateError::Revoked
            | CertificateError::UnknownRevocationStatus
            | CertificateError::ExpiredRevocationList
            | CertificateError::ExpiredRevocationListContext { .. } => Self::Revoked,
            _ => Self::Certificate,
        }
    }

    fn of_alert(alert: AlertDescription) -> Self {
        match alert {
            AlertDescription::CertificateRequired
            | AlertDescription::NoCertificate
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied => Self::ClientCertificate,
            AlertDescription::ProtocolVersion
            | AlertDescription::HandshakeFailure
            | AlertDescription::InsufficientSecurity => Self::Incompatible,
            AlertDescription::UnrecognisedName => Self::WrongName,
            _ => Self::Other,
        }
    }
}

/// Returns whether the server has presented an authority's certificate as its own. Such a
/// certificate is accepted only if the file of `tlsCAFile` contains the certificate itself.
pub(crate) fn is_of_authority(error: &CertificateError) -> bool {
    let CertificateError::Other(other) = error else {
        return false;
    };
    matches!(other.0.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity))
}

/// Returns the cause and the remedy of `error` from the server `host`, on one line.
pub(crate) fn describe(error: &Error, host: &str) -> String {
    match error {
        Error::InvalidCertificate(error) => certificate(error, host),
        Error::InvalidCertRevocationList(error) => format!(
            "the revocation list for the server's certificate cannot be used ({}); renew it",
            words(error)
        ),
        Error::AlertReceived(alert) => of_alert(*alert, host),
        Error::PeerIncompatible(PeerIncompatible::ServerDoesNotSupportTls12Or13) => {
            NO_VERSION.to_owned()
        }
        Error::PeerIncompatible(_) => {
            format!("{}; allow a newer one at the server", failure(error))
        }
        error if Reason::of(error) == Reason::PlainText => {
            "the server does not answer in TLS; connect to its TLS port, or without TLS if it has \
             none"
                .to_owned()
        }
        error => format!("the TLS connection failed: {}", failure(error)),
    }
}

fn certificate(error: &CertificateError, host: &str) -> String {
    let cause = match error {
        CertificateError::ExpiredContext { not_after, .. } => {
            let end = date(*not_after);
            format!("expired on {end}; renew it, or correct the clock of this machine")
        }
        CertificateError::Expired => {
            "has expired; renew it, or correct the clock of this machine".to_owned()
        }
        CertificateError::NotValidYetContext { not_before, .. } => {
            let begin = date(*not_before);
            format!("is not valid before {begin}; issue it again, or correct the clock of this machine")
        }
        CertificateError::NotValidYet => {
            "is not valid yet; issue it again, or correct the clock of this machine".to_owned()
        }
        CertificateError::UnknownIssuer => "is issued by an unknown authority; add that \
            authority's certificate, or the certificate itself if it is self-signed, to the file of \
            `tlsCAFile`"
            .to_owned(),
        error if is_of_authority(error) => {
            "is one of an authority, probably self-signed; if it is \
            to be trusted, add the certificate itself to the file of `tlsCAFile`"
                .to_owned()
        }
        CertificateError::NotValidForNameContext { presented, .. } if presented.is_empty() => {
            format!("names no host, as it has no subjectAltName; {}", issue(host))
        }
        CertificateError::NotValidForNameContext { presented, .. } => {
            let names = names(presented);
            format!(
                "names {names}, and not `{host}`; connect by a name that it has, or issue it for \
                 this one as well"
            )
        }
        CertificateError::NotValidForName => {
            format!("does not name `{host}`; connect by a name that it has")
        }
        CertificateError::Revoked => "has been revoked; replace it".to_owned(),
        CertificateError::UnknownRevocationStatus => "is not covered by the revocation lists of \
            this program; add the list of its authority"
            .to_owned(),
        CertificateError::ExpiredRevocationListContext { next_update, .. } => {
            let end = date(*next_update);
            format!("is covered by a revocation list that expired on {end}; renew the list")
        }
        CertificateError::ExpiredRevocationList => {
            "is covered by a revocation list that has expired; renew the list".to_owned()
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "is not one of a server; issue it with the extended key usage `serverAuth`, and with \
             `digitalSignature` if it has a key usage"
                .to_owned()
        }
        error => fault(error, Some(host)),
    };
    format!("the server's certificate {cause}")
}

fn of_alert(alert: AlertDescription, host: &str) -> String {
    let rejected = |detail: &str| {
        format!(
            "the server rejects the client's certificate{detail}; check `tlsCertificateKeyFile`"
        )
    };
    match alert {
        AlertDescription::CertificateRequired | AlertDescription::NoCertificate => {
            "the server requires a client certificate; set `tlsCertificateKeyFile`".to_owned()
        }
        AlertDescription::CertificateExpired => rejected(", because it has expired"),
        AlertDescription::CertificateRevoked => rejected(", because it has been revoked"),
        AlertDescription::UnknownCA => {
            rejected(", because it does not trust the authority that issued it")
        }
        AlertDescription::ProtocolVersion => NO_VERSION.to_owned(),
        AlertDescription::HandshakeFailure | AlertDescription::InsufficientSecurity => {
            "the server refuses the handshake; it has no cipher suite in common with this client, \
             or requires a client certificate (`tlsCertificateKeyFile`)"
                .to_owned()
        }
        AlertDescription::UnrecognisedName => {
            format!("the server knows no host of the name `{host}`; connect by a name that it has")
        }
        alert if Reason::of_alert(alert) == Reason::ClientCertificate => {
            rejected(&format!(" or requires one (alert: {})", words(&alert)))
        }
        alert => format!("the server ended the TLS connection (alert: {})", words(&alert)),
    }
}

/// Lists the names in a certificate. The library formats them as `DnsName("a")` and so on.
fn names(presented: &[String]) -> String {
    let name = |name: &String| {
        let (_, inner) = name.split_once('(').unwrap_or(("", name));
        format!("`{}`", inner.trim_end_matches(')').trim_matches('"'))
    };
    let list = presented.iter().take(MAX_NAMES).map(name).collect::<Vec<_>>().join(", ");
    match presented.len().saturating_sub(MAX_NAMES) {
        0 => list,
        more => format!("{list} and {more} more"),
    }
}

/// Returns the date of `time` in UTC, such as `2031-05-09`.
fn date(time: UnixTime) -> String {
    let text = rfc_3339(time);
    let (date, _) = text.split_once('T').unwrap_or((&text, ""));
    date.to_owned()
}

/// Returns `time` in UTC, such as `20310509235959`.
pub(crate) fn digits(time: UnixTime) -> String {
    let text = rfc_3339(time);
    let digits = text.chars().filter(char::is_ascii_digit);
    digits.take("20310509235959".len()).collect()
}

fn rfc_3339(time: UnixTime) -> String {
    let millis = time.as_secs().saturating_mul(1000);
    sdam_core::time::UnixTime::from_millis(millis).to_string()
}

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
        // The library's own messages for the other errors are readable.
        error => error.to_string(),
    }
}

/// Returns the fault of the certificate of the server `host` or of a client, and the way to issue
/// an acceptable one. The text continues a sentence whose subject is the certificate.
fn fault(error: &CertificateError, host: Option<&str>) -> String {
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
fn issue(host: &str) -> String {
    let kind = if host.parse::<std::net::IpAddr>().is_ok() { "IP" } else { "DNS" };
    format!(
        "issue it again with a subjectAltName (`openssl req -addext subjectAltName={kind}:{host}`)"
    )
}

const NO_VERSION: &str =
    "the server speaks neither TLS 1.2 nor TLS 1.3, which this client requires; update the server";
/// The maximum number of names to list, because certificates of hosting services contain hundreds.
const MAX_NAMES: usize = 8;
/// The last bytes, in DER, of the object identifiers of signature algorithms that are no longer
/// accepted, and the names of their hash functions.
const WEAK: [(&[u8], &str); 4] = [
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x05, 0x05, 0x00], "SHA-1"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x05], "SHA-1"),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x01], "SHA-1"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x04, 0x05, 0x00], "MD5"),
];
