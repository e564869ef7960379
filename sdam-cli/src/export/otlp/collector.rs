//! Sends requests to the collector over HTTP.

use std::{
    error::Error,
    fmt,
    io::{self, Write},
    iter,
    time::Duration,
};

use flate2::{Compression, write::GzEncoder};
use http_body_util::{BodyExt, Collected, Full, Limited};
use hyper::{
    HeaderMap, Request, StatusCode, Uri,
    body::Bytes,
    header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue},
};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceResponse;
use prost::Message;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tokio::time::timeout;

use super::settings::{Destination, File};

/// The maximum number of bytes to read from an answer.
const MAX_ANSWER: usize = 64 * 1024;

/// A client of the collector, which reuses its connections.
pub(super) struct Collector {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    pub(super) endpoint: Uri,
    headers: HeaderMap,
    is_compressed: bool,
    timeout: Duration,
}

/// The reason why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The collector did not answer.
    Unreachable(String),
    /// The collector answered with a transient error.
    Busy(String),
    /// The collector has refused the request, and would refuse it again.
    Refused(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Unreachable(why) | Self::Busy(why) | Self::Refused(why)) = self;
        f.write_str(why)
    }
}

impl Collector {
    /// Creates the client, which connects when it sends its first request.
    ///
    /// # Errors
    ///
    /// If a certificate file or the system's certificates cannot be read.
    pub(super) fn new(destination: &Destination) -> Result<Self, String> {
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls(destination)?)
            .https_or_http()
            .enable_http1()
            .build();
        let mut headers = destination.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        if destination.is_compressed {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        Ok(Self {
            client: Client::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .build(connector),
            endpoint: destination.endpoint.clone(),
            headers,
            is_compressed: destination.is_compressed,
            timeout: destination.timeout,
        })
    }

    /// Sends a request.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, it is unknown whether the collector processed the request.
    pub(super) async fn send(&self, body: Vec<u8>) -> Result<(), Trouble> {
        let body = if self.is_compressed { gzip(&body) } else { Ok(body) };
        let body = body.map_err(|error| Trouble::Refused(error.to_string()))?;
        let mut request = Request::post(self.endpoint.clone())
            .body(Full::from(body))
            .map_err(|error| Trouble::Refused(error.to_string()))?;
        request.headers_mut().extend(self.headers.clone());
        let answer = async {
            let answer = self.client.request(request).await.map_err(|error| unreachable(&error))?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
            // The status is decisive, so a body that is incomplete or too long is treated as empty.
            let body = body.map_or(Bytes::new(), Collected::to_bytes);
            judge(status, &body)
        };
        let millis = self.timeout.as_millis();
        let late = || Trouble::Unreachable(format!("no answer within {millis} ms"));
        timeout(self.timeout, answer).await.unwrap_or_else(|_| Err(late()))
    }
}

fn gzip(body: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(body)?;
    encoder.finish()
}

/// Returns the TLS settings. The certificate authorities come from the configured file. If there is
/// no such file, and TLS is used, they come from the system.
fn tls(destination: &Destination) -> Result<ClientConfig, String> {
    let builder = ClientConfig::builder_with_provider(ring::default_provider().into());
    let builder =
        builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    let builder = match &destination.authorities {
        Some(file) => builder.with_root_certificates(authorities(file)?),
        None if destination.has_tls() => builder.with_native_roots().map_err(|error| {
            let remedy =
                "install the package ca-certificates, or set OTEL_EXPORTER_OTLP_CERTIFICATE";
            format!("the certificates of this system: {error}; {remedy}")
        })?,
        None => builder.with_root_certificates(RootCertStore::empty()),
    };
    let Some((certificate, key)) = &destination.client else {
        return Ok(builder.with_no_client_auth());
    };
    let own_key = PrivateKeyDer::from_pem_file(&key.1);
    let own_key = own_key.map_err(|error| unreadable(key, &error, "a private key"))?;
    builder
        .with_client_auth_cert(certificates(certificate)?, own_key)
        .map_err(|error| unreadable(key, &error, "the key of the certificate"))
}

fn unreadable((name, path): &File, said: &dyn fmt::Display, wanted: &str) -> String {
    format!("{name} is `{}`: {said}; it needs a file with {wanted} in PEM", path.display())
}

/// Returns the certificates in a file, which must contain at least one.
fn certificates(file: &File) -> Result<Vec<CertificateDer<'static>>, String> {
    let failed = |said: &dyn fmt::Display| unreadable(file, said, "certificates");
    let found = CertificateDer::pem_file_iter(&file.1).map_err(|error| failed(&error))?;
    let found: Vec<_> = found.collect::<Result<_, _>>().map_err(|error| failed(&error))?;
    if found.is_empty() {
        return Err(failed(&"there is none in it"));
    }
    Ok(found)
}

fn authorities(file: &File) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots.add(certificate).map_err(|error| unreadable(file, &error, "certificates"))?;
    }
    Ok(roots)
}

/// Describes `error` and all of its causes, because the last cause is the most specific one.
fn unreachable(error: &dyn Error) -> Trouble {
    let first = error.to_string();
    let causes = iter::successors(error.source(), |&cause| cause.source());
    let why = causes.fold(first, |why, cause| format!("{why}: {cause}"));
    Trouble::Unreachable(why)
}

/// Decides whether an answer reports a success (OTLP: "OTLP/HTTP Response").
fn judge(status: StatusCode, body: &[u8]) -> Result<(), Trouble> {
    match status {
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => Err(Trouble::Busy(format!("it answers {status}"))),
        status if status.is_success() => {
            // Answers to metrics and to spans have the same format as answers to log records.
            let answer = ExportLogsServiceResponse::decode(body).unwrap_or_default();
            match answer.partial_success {
                Some(partial) if partial.rejected_log_records > 0 => {
                    let (number, why) = (partial.rejected_log_records, partial.error_message);
                    Err(Trouble::Refused(format!("it rejects {number} of the records: {why}")))
                }
                _ => Ok(()),
            }
        }
        status => Err(Trouble::Refused(format!("it answers {status}"))),
    }
}
