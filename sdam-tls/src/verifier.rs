//! Checks a server's certificate.
//!
//! An authority's certificate that a server presents as its own needs further checks. The library
//! rejects such a certificate before checking the certificate's purpose and the revocation lists,
//! and has no function for these checks alone. The library has already parsed everything that this
//! module reads, so the encoding is valid.

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
use webpki::{CertRevocationList, EndEntityCert, OwnedCertRevocationList};

use crate::reason::{self, digits};

/// Checks the chain, the validity and the name of a certificate.
#[derive(Debug)]
pub(crate) struct Verifier {
    /// Checks chains. `None` if every certificate is accepted (`tlsAllowInvalidCertificates`).
    ///
    /// Without a check of the chain, signatures are not checked either: the key of an untrusted
    /// certificate proves nothing, and the option is meant for certificates whose keys the library
    /// may be unable to check.
    pub(crate) chain: Option<Arc<WebPkiServerVerifier>>,
    /// Certificates that are trusted as server certificates, not only as authorities. These are the
    /// certificates of the application's `tlsCAFile`, because a server may present a self-signed
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
        // The library rejects an authority's certificate as a server certificate, but `openssl req
        // -x509` creates such certificates. Before the rejection, the library has checked only the
        // validity period, so the other checks follow here.
        if result.as_ref().is_err_and(is_of_authority) && self.trusted.contains(end_entity) {
            check_purpose(end_entity)?;
            check_revocation(end_entity, &self.lists, &self.algorithms, now)?;
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

/// Checks that servers may use `certificate`. This depends on its extended key usage and its key
/// usage, if it has them (RFC 5280, 4.2.1.3 and 4.2.1.12; RFC 8446, 4.4.2.2).
fn check_purpose(certificate: &CertificateDer<'_>) -> Result<(), CertificateError> {
    let extensions = extensions(certificate).ok_or(CertificateError::BadEncoding)?;
    for (id, value) in extensions {
        let is_suitable = match id {
            EXTENDED_KEY_USAGE => value.values().any(|purpose| purpose.content == SERVER_AUTH),
            // The first byte is the number of unused bits.
            KEY_USAGE => value.content.get(1).is_some_and(|bits| bits & DIGITAL_SIGNATURE != 0),
            _ => true,
        };
        if !is_suitable {
            return Err(CertificateError::InvalidPurpose);
        }
    }
    Ok(())
}

/// Checks that one of `lists` was signed with the key of `certificate`, is valid at `now`, and does
/// not contain the certificate. Without lists, no certificate counts as revoked.
fn check_revocation(
    certificate: &CertificateDer<'_>,
    lists: &[CertificateRevocationListDer<'static>],
    algorithms: &WebPkiSupportedAlgorithms,
    now: UnixTime,
) -> Result<(), CertificateError> {
    if lists.is_empty() {
        return Ok(());
    }
    let invalid = |_| CertificateError::BadEncoding;
    let certificate = EndEntityCert::try_from(certificate).map_err(invalid)?;
    for der in lists {
        let list = OwnedCertRevocationList::from_der(der).map_err(invalid)?;
        let list = CertRevocationList::from(list);
        if list.issuer() != certificate.subject() {
            continue;
        }
        let signed = Signed::of(der).ok_or(CertificateError::BadEncoding)?;
        if !signed.is_by(&certificate, algorithms) {
            return Err(CertificateError::BadSignature);
        }
        if signed.next_update().is_none_or(|end| end < digits(now)) {
            return Err(CertificateError::ExpiredRevocationList);
        }
        let revoked = list.find_serial(certificate.serial()).map_err(invalid)?;
        return match revoked {
            Some(_) => Err(CertificateError::Revoked),
            None => Ok(()),
        };
    }
    Err(CertificateError::UnknownRevocationStatus)
}

/// Returns the ids and values of a certificate's extensions.
fn extensions(certificate: &[u8]) -> Option<impl Iterator<Item = (&[u8], Value<'_>)>> {
    let body = Value::of(certificate)?.values().next()?;
    let list = body.values().find(|part| part.tag == EXTENSIONS);
    let list = list.and_then(|part| part.values().next());
    let extensions = list.into_iter().flat_map(Value::values);
    Some(extensions.filter_map(|extension| {
        let id = extension.values().next()?;
        // The criticality, if present, is between the id and the value.
        let value = extension.values().last()?;
        Some((id.content, Value::of(value.content)?))
    }))
}

/// The parts of a revocation list.
struct Signed<'a> {
    body: Value<'a>,
    algorithm: &'a [u8],
    signature: &'a [u8],
}

impl<'a> Signed<'a> {
    fn of(list: &'a [u8]) -> Option<Self> {
        let mut parts = Value::of(list)?.values();
        let (body, algorithm, signature) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Self {
            body,
            algorithm: algorithm.content,
            signature: signature.content.split_first()?.1,
        })
    }

    /// Returns whether the list was signed with the key of `issuer`.
    fn is_by(&self, issuer: &EndEntityCert<'_>, known: &WebPkiSupportedAlgorithms) -> bool {
        let mut fitting =
            known.all.iter().filter(|own| own.signature_alg_id().as_ref() == self.algorithm);
        fitting.any(|algorithm| {
            let signed = issuer.verify_signature(*algorithm, self.body.whole, self.signature);
            signed.is_ok()
        })
    }

    /// Returns the time of the next update, in the format of [`digits`].
    fn next_update(&self) -> Option<String> {
        let mut times =
            self.body.values().filter(|part| matches!(part.tag, UTC_TIME | GENERALIZED_TIME));
        // The first time is the date of this list.
        let due = times.nth(1)?;
        let text = str::from_utf8(due.content).ok()?.trim_end_matches('Z');
        // RFC 5280, 4.1.2.5.1: a two-digit year is between 1950 and 2049.
        Some(match due.tag {
            UTC_TIME if *text < *"5" => format!("20{text}"),
            UTC_TIME => format!("19{text}"),
            _ => text.to_owned(),
        })
    }
}

/// A value in DER.
#[derive(Clone, Copy, Debug)]
struct Value<'a> {
    tag: u8,
    content: &'a [u8],
    /// All bytes of the value, including tag and length.
    whole: &'a [u8],
}

impl<'a> Value<'a> {
    /// Reads the first value of `bytes`.
    fn of(bytes: &'a [u8]) -> Option<Self> {
        let (&[tag, short], rest) = bytes.split_first_chunk()?;
        let (length, header) = match short {
            0..=0x7f => (usize::from(short), 2),
            // The length has at most four bytes, so it is below 4 GiB.
            0x81..=0x84 => {
                let digits = rest.get(..usize::from(short & 0x7f))?;
                let add = |length, digit: &u8| (length << 8) | usize::from(*digit);
                (digits.iter().fold(0, add), 2 + digits.len())
            }
            _ => return None,
        };
        let whole = bytes.get(..header.checked_add(length)?)?;
        Some(Self { tag, content: whole.get(header..)?, whole })
    }

    /// Returns the values inside this value.
    fn values(self) -> impl Iterator<Item = Value<'a>> {
        let mut rest = self.content;
        std::iter::from_fn(move || {
            let value = Value::of(rest)?;
            rest = rest.get(value.whole.len()..)?;
            Some(value)
        })
    }
}

const EXTENSIONS: u8 = 0xa3;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The object identifier of the key usage, 2.5.29.15.
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];
const DIGITAL_SIGNATURE: u8 = 0x80;
/// The object identifier of the extended key usage, 2.5.29.37.
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25];
/// The object identifier of the purpose "server authentication", 1.3.6.1.5.5.7.3.1.
const SERVER_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_one_byte_or_say_how_many() {
        let check = |head: &[u8], length: usize| {
            let bytes = [head, &vec![7; length]].concat();
            let value = Value::of(&[&bytes[..], &[1, 2]].concat()).map(|it| it.content.len());
            assert_eq!(value, Some(length));
            assert!(Value::of(&bytes[..bytes.len() - 1]).is_none());
        };
        check(&[0x30, 0], 0);
        check(&[0x30, 0x7f], 127);
        check(&[0x30, 0x81, 0x80], 128);
        check(&[0x30, 0x82, 1, 2], 258);
        assert!(Value::of(&[0x30, 0x80, 0, 0]).is_none());
        assert!(Value::of(&[0x30, 0x88, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]).is_none());
    }
}
