//! Checks a server's certificate.

use std::sync::Arc;

use rustls::{
    CertificateError, DigitallySignedStruct, Error, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::WebPkiSupportedAlgorithms,
    pki_types::{CertificateDer, CertificateRevocationListDer, ServerName, UnixTime},
    server::ParsedCertificate,
};

use crate::{own, reason};

/// Checks the chain, the validity and the name of a certificate.
#[derive(Debug)]
pub(crate) struct Verifier {
    /// Checks chains. `None` if every certificate is accepted (`tlsAllowInvalidCertificates`).
    ///
    /// Without a check of the chain, signatures are not checked either: the key of an untrusted
    /// certificate proves nothing, and the option is meant for certificates whose keys the library
    /// may be unable to check.
    pub(crate) chain: Option<Arc<WebPkiServerVerifier>>,
    /// Certificates that are trusted as server certificates, not only as authorities. They are
    /// those of the application's `tlsCAFile`, because a server may present a self-signed
    /// certificate from that file as its own.
    pub(crate) trusted: Vec<CertificateDer<'static>>,
    /// The revocation lists for the chain and for the trusted server certificates.
    pub(crate) lists: Vec<CertificateRevocationListDer<'static>>,
    pub(crate) algorithms: WebPkiSupportedAlgorithms,
    pub(crate) checks_name: bool,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(chain) = &self.chain else {
            return Ok(ServerCertVerified::assertion());
        };
        let mut result =
            chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        // The library rejects an authority's certificate as a server certificate, but
        // `openssl req -x509` creates such certificates. Before rejecting one, the library has
        // checked only the validity period, so the other checks follow here.
        if result.as_ref().is_err_and(is_of_authority) && self.trusted.contains(end_entity) {
            own::check_purpose(end_entity)?;
            own::check_revocation(end_entity, &self.lists, &self.algorithms, now)?;
            let certificate = ParsedCertificate::try_from(end_entity)?;
            result = verify_server_name(&certificate, server_name)
                .map(|()| ServerCertVerified::assertion());
        }
        match result {
            // The name is checked last, so this error means that everything else is valid.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.checks_name => Ok(ServerCertVerified::assertion()),
            result => result,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.as_ref().map_or(Ok(HandshakeSignatureValid::assertion()), |chain| {
            chain.verify_tls12_signature(message, certificate, signature)
        })
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.as_ref().map_or(Ok(HandshakeSignatureValid::assertion()), |chain| {
            chain.verify_tls13_signature(message, certificate, signature)
        })
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

fn is_of_authority(error: &Error) -> bool {
    matches!(error, Error::InvalidCertificate(error) if reason::is_of_authority(error))
}
