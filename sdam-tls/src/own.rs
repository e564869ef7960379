//! Performs further checks on an authority's certificate that a server presents as its own.
//!
//! The library rejects such a certificate before checking the certificate's purpose and the
//! revocation lists, and has no function for these checks alone. The library has already parsed
//! everything that this module reads, so the encoding is valid.

use rustls::{
    CertificateError,
    crypto::WebPkiSupportedAlgorithms,
    pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime},
};
use webpki::{CertRevocationList, EndEntityCert, OwnedCertRevocationList};

use crate::{der::Value, reason::digits};

/// Checks that servers may use `certificate`. This depends on its extended key usage and its key
/// usage, if it has them (RFC 5280, 4.2.1.3 and 4.2.1.12; RFC 8446, 4.4.2.2).
pub(crate) fn check_purpose(certificate: &CertificateDer<'_>) -> Result<(), CertificateError> {
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
pub(crate) fn check_revocation(
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
