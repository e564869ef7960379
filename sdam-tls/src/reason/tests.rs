//! Tests of the messages that no handshake in the other tests produces.

use rustls::{AlertDescription, CertRevocationListError, CertificateError, Error};

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
