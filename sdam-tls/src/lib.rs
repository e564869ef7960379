//! TLS for sdam, by [rustls].
//!
//! [`Rustls`] makes the TLS of a topology from its [options](sdam_core::options::TlsOptions). It
//! works over every [`ByteStream`](sdam_transport::ByteStream): sockets of any runtime, sockets
//! that block, and simulated ones, whose servers need a library, too (`TlsServers::accept_by` of
//! `sdam-sim`). So the crate depends on no runtime, reads no clock but the wall clock for the
//! validity of certificates, and has no global state: the cryptography is a value, too.
//!
//! ```
//! use std::sync::Arc;
//!
//! use sdam_transport::Io;
//!
//! /// Adds TLS to the connections of a runtime.
//! fn with_tls(io: Io) -> Io {
//!     io.with_tls(Arc::new(sdam_tls::Rustls::ring()))
//! }
//! ```
//!
//! The facade `sdam` does this for its runtimes if its feature `tls` is on.
//!
//! | part | default | otherwise |
//! | --- | --- | --- |
//! | cryptography | that of ring ([`Rustls::ring`], feature `ring`, on by default) | [`Rustls::new`] |
//! | authorities | those of the platform | `tlsCAFile`, [`Rustls::with_roots`], `Rustls::with_bundled_roots` (feature `webpki-roots`) |
//! | revocation lists | none | [`Rustls::with_revocation_lists`] |
//! | all of it | | [`FixedConfig`]: a finished [`rustls::ClientConfig`] |
//!
//! # Options
//!
//! | option | meaning here |
//! | --- | --- |
//! | `tlsCAFile` | PEM; replaces all other authorities. A server may also present a self-signed certificate of this file as its own, if its key usages, where it has them, allow that |
//! | `tlsCertificateKeyFile` | PEM of the certificate, those of its authorities, and a key in PKCS#8, PKCS#1 or SEC1 |
//! | `tlsCertificateKeyFilePassword` | for encrypted PKCS#8 keys (PBES2 with AES; feature `encrypted-keys`, on by default) |
//! | `tlsAllowInvalidCertificates` | accepts every certificate, also of another host |
//! | `tlsAllowInvalidHostnames` | accepts a valid certificate of another host |
//! | `tlsDisableCertificateRevocationCheck` | ignores the revocation lists; `false` is a warning, as OCSP is not supported |
//! | `tlsDisableOCSPEndpointCheck` | nothing: no responder is asked anyway; `false` is a warning |
//!
//! Files are read once, when a topology starts. A file that cannot be used is a
//! [`ConfigError`](sdam_core::options::ConfigError) that names the option and the file.
//!
//! # What is checked
//!
//! A certificate has to be valid at the time of the handshake, issued by a trusted authority for
//! servers, and name the member's host or IP address in its `subjectAltName`; a common name counts
//! for nothing. The name is the one that the deployment uses for the member, also where a
//! translation or a proxy leads elsewhere. It is sent to the server as SNI unless it is an IP
//! address. TLS 1.2 and 1.3 are negotiated, older versions refused.
//!
//! A connection that resumes the session of an earlier one to the same host trusts the check of
//! that one.
//!
//! Not done: OCSP, the download of revocation lists, and the revocation of intermediate authorities.
//!
//! # OCSP
//!
//! OCSP is not supported, neither stapled responses nor responders: a stapled response is accepted
//! and ignored, as is the demand of a certificate for one (Must-Staple). A certificate is rejected as
//! revoked only if a [revocation list](Rustls::with_revocation_lists) of the program says so.
//! Therefore (OCSP Support: "Documentation Requirements"):
//!
//! - The revocation of certificates of MongoDB Atlas cannot be checked once Atlas uses certificates
//!   that offer OCSP only.
//! - If your certificate authority issues certificates that offer OCSP only, their revocation cannot
//!   be checked.
//!
//! An established connection keeps about 10 KiB more than one in plain text.
//!
//! # Errors
//!
//! An error of the handshake has [`Stage::Tls`](sdam_core::error::Stage::Tls) and says the cause and
//! the remedy in one line; [`Reason`] is the cause as a value.
//!
//! | cause | kind |
//! | --- | --- |
//! | an untrusted certificate, another name, an answer in plain text, an alert | `Protocol` |
//! | a closed connection | `Network` |
//! | the deadline | `Timeout` |
//!
//! A server of TLS 1.3 rejects a client's certificate after the handshake. Then the first read
//! fails with the same error. `mongod` closes such a connection without an alert; the error says
//! so if the server has asked for a certificate.
//!
//! Once data of the server have arrived, an alert or a record that cannot be decrypted is a broken
//! connection: an error of the kind `Network`, at the stage of its user.
//!
#![cfg_attr(docsrs, feature(doc_cfg))]

mod client;
mod der;
mod encrypted;
mod error;
mod files;
mod observer;
mod own;
mod provider;
mod reason;
mod stream;
mod verifier;

pub use rustls;

pub use self::{
    provider::{FixedConfig, Rustls},
    reason::Reason,
};
