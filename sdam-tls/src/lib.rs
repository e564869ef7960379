//! TLS for sdam, with [rustls].
//!
//! [`Rustls`] creates the TLS of a topology from its [options](sdam_core::options::TlsOptions). It
//! works over every [`ByteStream`](sdam_transport::stream::ByteStream): sockets of any runtime,
//! blocking sockets, and simulated sockets. Simulated servers also need a TLS library
//! (`TlsServers::accept_by` of `sdam-sim`). The crate depends on no runtime, has no global state,
//! and reads no clock except the wall clock to check the validity of certificates. The caller
//! passes the cryptography as a value.
//!
//! ```
//! use std::sync::Arc;
//!
//! use sdam_transport::runtime::Backend;
//!
//! /// Adds TLS to the connections of a runtime.
//! fn add_tls(backend: &mut Backend) {
//!     backend.tls = Some(Arc::new(sdam_tls::Rustls::ring()));
//! }
//! ```
//!
//! The facade `sdam` does this for its runtimes if its feature `tls` is enabled.
//!
//! | part | default | otherwise |
//! | --- | --- | --- |
//! | cryptography | ring's ([`Rustls::ring`], feature `ring`, on by default) | [`Rustls::new`] |
//! | authorities | the platform's | `tlsCAFile`, [`Rustls::with_roots`], `Rustls::with_bundled_roots` (feature `webpki-roots`) |
//! | revocation lists | none | [`Rustls::with_revocation_lists`] |
//! | all of it | | [`FixedConfig`]: a finished [`rustls::ClientConfig`] |
//!
//! # Options
//!
//! | option | meaning here |
//! | --- | --- |
//! | `tlsCAFile` | PEM; replaces all other authorities. A server may also present a self-signed certificate from this file as its own if the certificate's key usages, if any, permit it |
//! | `tlsCertificateKeyFile` | PEM with the certificate, its chain, and a key in PKCS#8, PKCS#1 or SEC1 that is not encrypted |
//! | `tlsCertificateKeyFilePassword` | refused, because encrypted keys are not supported; `openssl pkey` decrypts them |
//! | `tlsAllowInvalidCertificates` | accepts every certificate, even for another host |
//! | `tlsAllowInvalidHostnames` | accepts a valid certificate for another host |
//! | `tlsDisableCertificateRevocationCheck` | ignores the revocation lists; `false` causes a warning, because OCSP is not supported |
//! | `tlsDisableOCSPEndpointCheck` | no effect, because responders are never contacted; `false` causes a warning |
//!
//! Files are read once, when a topology starts. If a file cannot be used, the
//! [`ConfigError`](sdam_core::options::ConfigError) names the option and the file.
//!
//! # Checks
//!
//! A certificate must be valid at the time of the handshake, issued for servers by a trusted
//! authority, and contain the member's host or IP address in its `subjectAltName`; common names are
//! ignored. This name is the one that the deployment uses for the member, even if an address
//! translation or a proxy leads elsewhere. It is sent to the server as SNI unless it is an IP
//! address. TLS 1.2 and 1.3 are negotiated; older versions are refused.
//!
//! If a connection resumes an earlier session with the same host, it relies on the checks that were
//! made for that session.
//!
//! The following are not supported: OCSP, the download of revocation lists, and the revocation of
//! intermediate authorities.
//!
//! # OCSP
//!
//! OCSP is not supported: responders are never contacted, and stapled responses are accepted but
//! ignored. A certificate that requires such a response (Must-Staple) is treated like any other. A
//! certificate is rejected as revoked only if one of the program's
//! [revocation lists](Rustls::with_revocation_lists) says so.
//! Therefore (OCSP Support: "Documentation Requirements"):
//!
//! - Once MongoDB Atlas uses certificates that offer only OCSP, their revocation cannot be checked.
//! - The same is true of your own certificate authority if its certificates offer only OCSP.
//!
//! An encrypted connection takes about 10 KiB more memory than a plain-text connection once it is
//! established.
//!
//! # Errors
//!
//! An error of the handshake has [`Stage::Tls`](sdam_core::error::Stage::Tls), and its message
//! describes the cause and, after `; `, the remedy on one line. [`Reason`] represents the cause as a value.
//!
//! | cause | kind |
//! | --- | --- |
//! | an untrusted certificate, another name, an answer in plain text, an alert | `Protocol` |
//! | a closed connection | `Network` |
//! | the deadline | `Timeout` |
//!
//! With TLS 1.3, a server rejects a client's certificate only after the handshake, so the first
//! read fails with such an error. `mongod` closes the connection without an alert in this case; if
//! the server requested a certificate, the error mentions this possible cause.
//!
//! Once data from the server has arrived, an alert or a record that cannot be decrypted means that
//! the connection is broken. The error then has the kind `Network` and the stage that the user of
//! the connection sets.
//!
#![cfg_attr(docsrs, feature(doc_cfg))]

mod client;
mod provider;
mod reason;
mod stream;
mod verifier;

pub use rustls;

pub use self::{
    provider::{FixedConfig, Rustls},
    reason::Reason,
};
