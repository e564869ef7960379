//! Tests of the messages that no handshake in the other tests produces.

use std::sync::Arc;

use rustls::{
    AlertDescription, CertRevocationListError, CertificateError, ContentType,
    EncryptedClientHelloError, Error, HandshakeType, InconsistentKeys, InvalidMessage, OtherError,
    PeerIncompatible, PeerMisbehaved,
    pki_types::{ServerName, UnixTime},
};

use super::*;

#[test]
fn every_class_of_errors_has_a_cause_and_a_remedy() {
    use AlertDescription as Alert;
    use CertificateError as Certificate;

    let check = |error: Error, reason, message: &str| {
        assert_eq!((Reason::of(&error), &*describe(&error, "a")), (reason, message));
    };
    let certificate = |error| Error::InvalidCertificate(error);
    check(
        certificate(Certificate::Expired),
        Reason::Expired,
        "the server's certificate has expired; renew it, or correct the clock of this machine",
    );
    check(
        certificate(Certificate::NotValidYet),
        Reason::NotYetValid,
        "the server's certificate is not valid yet; issue it again, or correct the clock of this machine",
    );
    check(
        certificate(Certificate::NotValidForName),
        Reason::WrongName,
        "the server's certificate does not name `a`; connect by a name that it has",
    );
    check(
        Error::InvalidCertRevocationList(CertRevocationListError::BadSignature),
        Reason::Revoked,
        "the revocation list for the server's certificate cannot be used (bad signature); renew it",
    );
    let alert = |alert| Error::AlertReceived(alert);
    let rejected = |detail: &str| {
        format!(
            "the server rejects the client's certificate{detail}; check `tlsCertificateKeyFile`"
        )
    };
    for (description, detail) in [
        (Alert::CertificateExpired, ", because it has expired"),
        (Alert::CertificateRevoked, ", because it has been revoked"),
        (Alert::BadCertificate, " or requires one (alert: bad certificate)"),
    ] {
        let message = rejected(detail);
        check(alert(description), Reason::ClientCertificate, &message);
    }
    check(
        alert(Alert::UnrecognisedName),
        Reason::WrongName,
        "the server knows no host of the name `a`; connect by a name that it has",
    );
    check(
        alert(Alert::InternalError),
        Reason::Other,
        "the server ended the TLS connection (alert: internal error)",
    );
    check(
        Error::DecryptError,
        Reason::Other,
        "the TLS connection failed: cannot decrypt peer's message",
    );
    check(
        Error::PeerIncompatible(PeerIncompatible::NoCipherSuitesInCommon),
        Reason::Incompatible,
        "client and server have no TLS algorithm in common (no cipher suites in common); allow a newer \
         one at the server",
    );
}

/// Checks that no text about the error contains the name of a variant or other output of `{:?}`.
/// Text in backticks (options, commands) is exempt.
#[track_caller]
fn readable(error: &Error) {
    for text in [failure(error), describe(error, "a.example")] {
        let prose: Vec<_> = text.split('`').step_by(2).collect();
        let prose = prose.join("name").replace("subjectAltName", "");
        let is_name = |pair: &[u8]| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase();
        assert!(!prose.as_bytes().windows(2).any(is_name), "{text}");
        assert!(!prose.contains(['{', '}', '[', ']', '"']) && !prose.contains("::"), "{text}");
        assert!(!prose.contains("()") && !text.is_empty(), "{text}");
    }
}

#[test]
fn errors_of_every_class_are_readable_whatever_their_names_and_details() {
    let errors = [
        Error::InvalidMessage(InvalidMessage::InvalidCcs),
        Error::InvalidMessage(InvalidMessage::MissingData("DigitallySignedStruct")),
        Error::InvalidMessage(InvalidMessage::DuplicateExtension(1)),
        Error::PeerMisbehaved(PeerMisbehaved::AttemptedDowngradeToTls12WhenTls13IsSupported),
        Error::PeerMisbehaved(PeerMisbehaved::IllegalTlsInnerPlaintext),
        Error::PeerIncompatible(PeerIncompatible::ServerDoesNotSupportTls12Or13),
        Error::PeerIncompatible(PeerIncompatible::ServerRejectedEncryptedClientHello(None)),
        Error::InvalidEncryptedClientHello(EncryptedClientHelloError::SniRequired),
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch),
        Error::InconsistentKeys(InconsistentKeys::Unknown),
        Error::General("no reason".to_owned()),
        Error::InappropriateMessage {
            expect_types: vec![ContentType::Handshake],
            got_type: ContentType::ApplicationData,
        },
        Error::InappropriateHandshakeMessage {
            expect_types: vec![HandshakeType::Finished],
            got_type: HandshakeType::CertificateRequest,
        },
        // The library's own messages for these errors are readable.
        Error::NoCertificatesPresented,
        Error::UnsupportedNameType,
        Error::DecryptError,
        Error::EncryptError,
        Error::FailedToGetCurrentTime,
        Error::FailedToGetRandomBytes,
        Error::HandshakeNotComplete,
        Error::PeerSentOversizedRecord,
        Error::NoApplicationProtocol,
        Error::BadMaxFragmentSize,
    ];
    errors.iter().for_each(readable);
    let alerts = [
        AlertDescription::CloseNotify,
        AlertDescription::NoCertificate,
        AlertDescription::UnsupportedCertificate,
        AlertDescription::UnknownCA,
        AlertDescription::ProtocolVersion,
        AlertDescription::InsufficientSecurity,
        AlertDescription::UnknownPSKIdentity,
        AlertDescription::EncryptedClientHelloRequired,
    ];
    alerts.map(Error::AlertReceived).iter().for_each(readable);
}

#[test]
fn errors_about_certificates_and_revocation_lists_are_readable_whatever_their_details() {
    let then = || UnixTime::since_unix_epoch(std::time::Duration::from_secs(1));
    let id = || vec![0x2a, 0x86];
    let errors = [
        CertificateError::BadEncoding,
        CertificateError::Revoked,
        CertificateError::UnknownIssuer,
        CertificateError::UnknownRevocationStatus,
        CertificateError::ExpiredRevocationList,
        CertificateError::InvalidPurpose,
        CertificateError::ExpiredContext { time: then(), not_after: then() },
        CertificateError::NotValidYetContext { time: then(), not_before: then() },
        CertificateError::ExpiredRevocationListContext { time: then(), next_update: then() },
        CertificateError::UnsupportedSignatureAlgorithmContext {
            signature_algorithm_id: id(),
            supported_algorithms: Vec::new(),
        },
        CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext {
            signature_algorithm_id: id(),
            public_key_algorithm_id: id(),
        },
        CertificateError::NotValidForNameContext {
            expected: ServerName::try_from("a").unwrap(),
            presented: vec![r#"DnsName("b")"#.to_owned()],
        },
        CertificateError::InvalidPurposeContext {
            required: rustls::ExtendedKeyPurpose::ServerAuth,
            presented: Vec::new(),
        },
    ];
    errors.map(Error::InvalidCertificate).iter().for_each(readable);
    let errors = [
        CertRevocationListError::BadSignature,
        CertRevocationListError::UnsupportedSignatureAlgorithmContext {
            signature_algorithm_id: id(),
            supported_algorithms: Vec::new(),
        },
    ];
    errors.map(Error::InvalidCertRevocationList).iter().for_each(readable);
    for error in [
        webpki::Error::BadDer,
        webpki::Error::CaUsedAsEndEntity,
        webpki::Error::UnsupportedCertVersion,
        webpki::Error::UnsupportedCrlIssuingDistributionPoint,
    ] {
        let other = || OtherError(Arc::new(error.clone()));
        let errors = [
            Error::Other(other()),
            Error::InvalidCertificate(CertificateError::Other(other())),
            Error::InvalidCertRevocationList(CertRevocationListError::Other(other())),
        ];
        errors.iter().for_each(readable);
    }
}
