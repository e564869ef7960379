//! Fixtures used by the tests of several subcommands.

use std::{
    future::Future,
    io::{self, Write},
    sync::{Arc, mpsc::Sender},
};

use sdam::tls::rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};
use sdam_live::{Certificates, ServerCertificate};

use crate::{console::Console, terminal::Palette};

/// Runs a future on a new runtime with sockets and timers.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(future)
}

/// Runs a program without colours. Returns its output, remarks and result.
pub(crate) fn capture<T>(
    run: impl FnOnce(Console<&mut Vec<u8>, &mut Vec<u8>>) -> T,
) -> (String, String, T) {
    let (mut output, mut remarks) = (Vec::new(), Vec::new());
    let result =
        run(Console { output: &mut output, remarks: &mut remarks, palette: Palette::Plain });
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output), text(remarks), result)
}

/// Returns the TLS settings of a server that presents the given `certificate`.
pub(crate) fn tls_server(
    certificates: &Certificates,
    certificate: ServerCertificate,
) -> Arc<ServerConfig> {
    tls_server_for(WebPkiClientVerifier::no_client_auth(), certificates, certificate)
}

/// Returns the TLS settings of a server that presents the given `certificate`, and that requires a
/// certificate from each client.
pub(crate) fn tls_server_with_clients(
    certificates: &Certificates,
    certificate: ServerCertificate,
) -> Arc<ServerConfig> {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_file_iter(certificates.authority()).unwrap() {
        roots.add(authority.unwrap()).unwrap();
    }
    let provider = Arc::new(ring::default_provider());
    let clients = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
    tls_server_for(clients.build().unwrap(), certificates, certificate)
}

fn tls_server_for(
    clients: Arc<dyn ClientCertVerifier>,
    certificates: &Certificates,
    certificate: ServerCertificate,
) -> Arc<ServerConfig> {
    let file = certificates.server(certificate);
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(&file).unwrap().collect();
    let key = PrivateKeyDer::from_pem_file(&file).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients);
    Arc::new(config.with_single_cert(chain.unwrap(), key).unwrap())
}

/// A writer that sends every line to a channel.
pub(crate) struct Lines {
    begun: String,
    lines: Sender<String>,
}

impl Lines {
    pub(crate) fn new(lines: Sender<String>) -> Self {
        let begun = String::new();
        Self { begun, lines }
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.begun.push_str(std::str::from_utf8(bytes).unwrap());
        while let Some((line, rest)) = self.begun.split_once('\n') {
            // Ignore the error, because sending fails only if the test has stopped reading.
            let _ = self.lines.send(line.to_owned());
            self.begun = rest.to_owned();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
