//! Tests of the messages that no handshake in the other tests produces, and a walk through every
//! error that the library names.

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

/// Returns the variants of these names.
macro_rules! all {
    ($type:ty: $($name:ident)*) => {
        [$(<$type>::$name),*]
    };
}

/// Checks that `text` has no name of a variant, and nothing else that `{:?}` prints. Names of options
/// and commands are in backticks.
#[track_caller]
fn readable(text: &str) {
    let prose: Vec<_> = text.split('`').step_by(2).collect();
    let prose = prose.join("name").replace("subjectAltName", "");
    let is_name = |pair: &[u8]| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase();
    assert!(!prose.as_bytes().windows(2).any(is_name), "{text}");
    assert!(!prose.contains(['{', '}', '[', ']', '"']) && !prose.contains("::"), "{text}");
    assert!(!prose.contains("()") && !text.is_empty(), "{text}");
}

fn check(errors: impl IntoIterator<Item = Error>) {
    for error in errors {
        readable(&failure(&error));
        readable(&describe(&error, "a.example"));
    }
}

#[test]
fn every_wrong_message_is_readable() {
    check(
        all!(InvalidMessage:
            CertificatePayloadTooLarge HandshakePayloadTooLarge InvalidCcs InvalidContentType
            InvalidCertificateStatusType InvalidCertRequest InvalidDhParams InvalidEmptyPayload
            InvalidKeyUpdate InvalidServerName MessageTooLarge MessageTooShort MissingKeyExchange
            NoSignatureSchemes UnknownProtocolVersion UnsupportedCompression UnsupportedCurveType
            EmptyTicketValue IllegalEmptyValue PreSharedKeyIsNotFinalExtension
            UnknownHelloRetryRequestExtension UnknownCertificateExtension
        )
        .map(Error::InvalidMessage),
    );
    check(all!(PeerMisbehaved:
        AttemptedDowngradeToTls12WhenTls13IsSupported BadCertChainExtensions
        CipherSuiteDifferedOnRetry DisallowedEncryptedExtension DuplicateClientHelloExtensions
        DuplicateEncryptedExtensions DuplicateHelloRetryRequestExtensions
        DuplicateNewSessionTicketExtensions DuplicateServerHelloExtensions
        DuplicateServerNameTypes EarlyDataAttemptedInSecondClientHello
        EarlyDataExtensionWithoutResumption EarlyDataOfferedWithVariedCipherSuite
        EchAcceptanceVariedAfterRetry HandshakeHashVariedAfterRetry
        IllegalHelloRetryRequestWithEmptyCookie IllegalHelloRetryRequestWithNoChanges
        IllegalHelloRetryRequestWithOfferedGroup IllegalHelloRetryRequestWithUnofferedCipherSuite
        IllegalHelloRetryRequestWithUnofferedNamedGroup
        IllegalHelloRetryRequestWithUnsupportedVersion IllegalHelloRetryRequestWithWrongSessionId
        IllegalHelloRetryRequestWithInvalidEch IllegalMiddleboxChangeCipherSpec
        IllegalTlsInnerPlaintext IncorrectBinder InvalidCertCompression InvalidMaxEarlyDataSize
        InvalidKeyShare KeyEpochWithPendingFragment KeyUpdateReceivedInQuicConnection
        MessageInterleavedWithHandshakeMessage MissingBinderInPskExtension MissingKeyShare
        MissingPskExtensionInSecondClientHello MissingPskModesExtension
        MissingQuicTransportParameters OfferedDuplicateCertificateCompressions
        OfferedDuplicateKeyShares OfferedEarlyDataWithOldProtocolVersion
        OfferedEmptyApplicationProtocol OfferedIncorrectCompressions PskExtensionMustBeLast
        PskExtensionWithMismatchedIdsAndBinders RefusedToFollowHelloRetryRequest
        RejectedEarlyDataInterleavedWithHandshakeMessage ResumptionAttemptedWithVariedEms
        ResumptionOfferedWithVariedCipherSuite ResumptionOfferedWithVariedEms
        ResumptionOfferedWithIncompatibleCipherSuite SelectedDifferentCipherSuiteAfterRetry
        SelectedInvalidPsk SelectedTls12UsingTls13VersionExtension
        SelectedUnofferedApplicationProtocol SelectedUnofferedCertCompression
        SelectedUnofferedCipherSuite SelectedUnofferedCompression SelectedUnofferedKxGroup
        SelectedUnofferedPsk SelectedUnusableCipherSuiteForVersion
        ServerEchoedCompatibilitySessionId ServerHelloMustOfferUncompressedEcPoints
        ServerNameDifferedOnRetry ServerNameMustContainOneHostName SignedKxWithWrongAlgorithm
        SignedHandshakeWithUnadvertisedSigScheme TooManyEmptyFragments TooManyKeyUpdateRequests
        TooManyRenegotiationRequests TooManyWarningAlertsReceived TooMuchEarlyDataReceived
        UnexpectedCleartextExtension UnsolicitedCertExtension UnsolicitedEncryptedExtension
        UnsolicitedSctList UnsolicitedServerHelloExtension WrongGroupForKeyShare
        UnsolicitedEchExtension
    ).map(Error::PeerMisbehaved));
}

#[test]
fn every_other_error_of_the_handshake_is_readable() {
    check(
        all!(PeerIncompatible:
            EcPointsExtensionRequired ExtendedMasterSecretExtensionRequired
            IncorrectCertificateTypeExtension KeyShareExtensionRequired NamedGroupsExtensionRequired
            NoCertificateRequestSignatureSchemesInCommon NoCipherSuitesInCommon
            NoEcPointFormatsInCommon NoKxGroupsInCommon NoSignatureSchemesInCommon
            NullCompressionRequired ServerDoesNotSupportTls12Or13
            ServerSentHelloRetryRequestWithUnknownExtension ServerTlsVersionIsDisabledByOurConfig
            SignatureAlgorithmsExtensionRequired SupportedVersionsExtensionRequired Tls12NotOffered
            Tls12NotOfferedOrEnabled Tls13RequiredForQuic UncompressedEcPointsRequired
            UnsolicitedCertificateTypeExtension
        )
        .map(Error::PeerIncompatible),
    );
    check(
        all!(EncryptedClientHelloError:
            InvalidConfigList NoCompatibleConfig SniRequired
        )
        .map(Error::InvalidEncryptedClientHello),
    );
    check(
        all!(InconsistentKeys:
            KeyMismatch Unknown
        )
        .map(Error::InconsistentKeys),
    );
    check(all!(AlertDescription:
        CloseNotify UnexpectedMessage BadRecordMac DecryptionFailed RecordOverflow
        DecompressionFailure HandshakeFailure NoCertificate BadCertificate UnsupportedCertificate
        CertificateRevoked CertificateExpired CertificateUnknown IllegalParameter UnknownCA
        AccessDenied DecodeError DecryptError ExportRestriction ProtocolVersion
        InsufficientSecurity InternalError InappropriateFallback UserCanceled NoRenegotiation
        MissingExtension UnsupportedExtension CertificateUnobtainable UnrecognisedName
        BadCertificateStatusResponse BadCertificateHashValue UnknownPSKIdentity
        CertificateRequired NoApplicationProtocol EncryptedClientHelloRequired
    ).map(Error::AlertReceived));
    check(all!(Error:
        NoCertificatesPresented UnsupportedNameType DecryptError EncryptError
        FailedToGetCurrentTime FailedToGetRandomBytes HandshakeNotComplete
        PeerSentOversizedRecord NoApplicationProtocol BadMaxFragmentSize
    ));
    let details = [
        InvalidMessage::MissingData("DigitallySignedStruct"),
        InvalidMessage::TrailingData("ServerHelloPayload"),
        InvalidMessage::UnexpectedMessage("CertReqExtension"),
        InvalidMessage::IllegalEmptyList("ProtocolNames"),
        InvalidMessage::DuplicateExtension(1),
    ];
    check(details.map(Error::InvalidMessage));
    let rejected = PeerIncompatible::ServerRejectedEncryptedClientHello(None);
    check([Error::PeerIncompatible(rejected), Error::General("no reason".to_owned())]);
    let (expect_types, got_type) = (vec![ContentType::Handshake], ContentType::ApplicationData);
    check([Error::InappropriateMessage { expect_types, got_type }]);
    let (expect_types, got_type) =
        (vec![HandshakeType::Finished], HandshakeType::CertificateRequest);
    check([Error::InappropriateHandshakeMessage { expect_types, got_type }]);
}

#[test]
fn every_error_about_a_certificate_or_a_revocation_list_is_readable() {
    check(all!(CertificateError:
        BadEncoding Expired NotValidYet Revoked UnhandledCriticalExtension UnknownIssuer
        UnknownRevocationStatus ExpiredRevocationList BadSignature NotValidForName InvalidPurpose
        InvalidOcspResponse ApplicationVerificationFailure
    ).map(Error::InvalidCertificate));
    check(
        all!(CertRevocationListError:
            BadSignature InvalidCrlNumber InvalidRevokedCertSerialNumber IssuerInvalidForCrl
            ParseError UnsupportedCrlVersion UnsupportedCriticalExtension UnsupportedDeltaCrl
            UnsupportedIndirectCrl UnsupportedRevocationReason
        )
        .map(Error::InvalidCertRevocationList),
    );
    let (time, id) = (UnixTime::since_unix_epoch, || vec![0x2a, 0x86]);
    let then = || time(std::time::Duration::from_secs(1));
    let errors = [
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
    check(errors.map(Error::InvalidCertificate));
    let errors = [
        CertRevocationListError::UnsupportedSignatureAlgorithmContext {
            signature_algorithm_id: id(),
            supported_algorithms: Vec::new(),
        },
        CertRevocationListError::UnsupportedSignatureAlgorithmForPublicKeyContext {
            signature_algorithm_id: id(),
            public_key_algorithm_id: id(),
        },
    ];
    check(errors.map(Error::InvalidCertRevocationList));
}

#[test]
fn every_error_of_the_library_that_checks_chains_is_readable() {
    let all = all!(webpki::Error:
        BadDer BadDerTime CaUsedAsEndEntity CertDistrusted CertRevoked EmptyEkuExtension
        EndEntityUsedAsCa ExtensionValueInvalid InvalidCertValidity InvalidCrlNumber
        InvalidNetworkMaskConstraint InvalidSerialNumber InvalidCrlSignatureForPublicKey
        InvalidSignatureForPublicKey IssuerNotCrlSigner MalformedDnsIdentifier
        MalformedExtensions MalformedNameConstraint MaximumNameConstraintComparisonsExceeded
        MaximumPathBuildCallsExceeded MaximumPathDepthExceeded MaximumSignatureChecksExceeded
        NameConstraintViolation PathLenConstraintViolated SignatureAlgorithmMismatch
        UnknownIssuer UnknownRevocationStatus UnsupportedCertVersion UnsupportedCriticalExtension
        UnsupportedCrlIssuingDistributionPoint UnsupportedCrlVersion UnsupportedDeltaCrl
        UnsupportedIndirectCrl UnsupportedNameType UnsupportedRevocationReason
        UnsupportedRevocationReasonsPartitioning
    );
    for error in all {
        let other = || OtherError(Arc::new(error.clone()));
        check([
            Error::Other(other()),
            Error::InvalidCertificate(CertificateError::Other(other())),
            Error::InvalidCertRevocationList(CertRevocationListError::Other(other())),
        ]);
    }
}
