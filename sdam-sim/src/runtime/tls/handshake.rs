//! The messages of a handshake: BSON documents in handshake records.

use bson::{Document, doc};
use sdam_core::time::Instant;

use super::{
    Certificate,
    record::{self, Content},
};

/// The first message of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClientHello {
    /// The host that the client expects (SNI).
    pub(super) server_name: Box<str>,
    pub(super) nonce: u64,
}

/// The answer of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerHello {
    pub(super) nonce: u64,
    pub(super) certificate: Certificate,
    pub(super) demands_certificate: bool,
}

/// The last handshake message of a client, after which both sides send data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finished {
    pub(super) certificate: Option<Certificate>,
}

impl ClientHello {
    pub(super) fn encode(&self) -> Vec<u8> {
        message(&doc! { "serverName": &*self.server_name, "nonce": signed(self.nonce) })
    }

    pub(super) fn decode(payload: &[u8]) -> Option<Self> {
        let document = Document::from_reader(payload).ok()?;
        Some(Self {
            server_name: document.get_str("serverName").ok()?.into(),
            nonce: unsigned(&document, "nonce")?,
        })
    }
}

impl ServerHello {
    pub(super) fn encode(&self) -> Vec<u8> {
        message(&doc! {
            "nonce": signed(self.nonce),
            "certificate": write_certificate(&self.certificate),
            "demandsCertificate": self.demands_certificate,
        })
    }

    pub(super) fn decode(payload: &[u8]) -> Option<Self> {
        let document = Document::from_reader(payload).ok()?;
        Some(Self {
            nonce: unsigned(&document, "nonce")?,
            certificate: read_certificate(document.get_document("certificate").ok()?)?,
            demands_certificate: document.get_bool("demandsCertificate").ok()?,
        })
    }
}

impl Finished {
    pub(super) fn encode(&self) -> Vec<u8> {
        let certificate = self.certificate.as_ref().map(write_certificate);
        message(&doc! { "certificate": certificate })
    }

    pub(super) fn decode(payload: &[u8]) -> Option<Self> {
        let document = Document::from_reader(payload).ok()?;
        let certificate = match document.get_document("certificate") {
            Ok(certificate) => Some(read_certificate(certificate)?),
            Err(_) => None,
        };
        Some(Self { certificate })
    }
}

fn message(document: &Document) -> Vec<u8> {
    // Documents of strings and numbers can always be encoded.
    let payload = document.to_vec().unwrap_or_default();
    record::encode(Content::Handshake, &payload)
}

fn write_certificate(certificate: &Certificate) -> Document {
    let names = certificate.names.iter().map(|name| &**name);
    doc! {
        "names": names.collect::<Vec<_>>(),
        "issuer": &*certificate.issuer,
        "notBefore": signed(certificate.not_before.as_nanos()),
        "notAfter": signed(certificate.not_after.as_nanos()),
    }
}

fn read_certificate(document: &Document) -> Option<Certificate> {
    let names = document.get_array("names").ok()?.iter();
    let names = names.map(bson::Bson::as_str).collect::<Option<Vec<_>>>()?;
    let instant = |name| unsigned(document, name).map(Instant::from_nanos);
    let certificate = Certificate::new(names).issued_by(document.get_str("issuer").ok()?);
    Some(certificate.valid(instant("notBefore")?, instant("notAfter")?))
}

/// Returns the bits of a number as a BSON integer.
fn signed(number: u64) -> i64 {
    number.cast_signed()
}

fn unsigned(document: &Document, name: &str) -> Option<u64> {
    document.get_i64(name).ok().map(i64::cast_unsigned)
}

/// The reason why a peer ends a connection (RFC 8446: "AlertDescription").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alert {
    CertificateExpired = 45,
    UnknownAuthority = 48,
    CertificateRequired = 116,
}

impl Alert {
    /// Returns the record of the alert.
    pub(super) fn encode(self) -> Vec<u8> {
        record::encode(Content::Alert, &[2, self as u8])
    }

    /// Returns the meaning of a server's alert about the client.
    pub(super) fn describe(payload: &[u8]) -> &'static str {
        match payload.get(1) {
            Some(45) => "the client's certificate is not valid now",
            Some(48) => "the issuer of the client's certificate is not trusted",
            Some(116) => "a certificate of the client is required",
            _ => "it gives no known reason",
        }
    }
}
