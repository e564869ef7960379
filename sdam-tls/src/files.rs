//! Reads certificates and keys from the files named in options.

use std::{fs::File, io::Read as _};

use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use sdam_core::options::ConfigError;
use zeroize::Zeroizing;

use crate::words::words;

const CA_FILE: &str = "tlsCAFile";
pub(crate) const KEY_FILE: &str = "tlsCertificateKeyFile";

/// The maximum length of a file. It is sufficient for many thousands of certificates.
const MAX_LENGTH: u64 = 16 << 20;

/// Reads the certificates from the file of `tlsCAFile`. A file without certificates is an error.
pub(crate) fn authorities(path: &str) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let remedy = "name a PEM file with the certificates of the authorities to trust";
    certificates(CA_FILE, path, &read(CA_FILE, path)?, remedy)
}

/// Reads the client's key, and the client's certificate with its chain.
pub(crate) fn identity(
    path: &str,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), ConfigError> {
    let pem = read(KEY_FILE, path)?;
    if is_encrypted(&pem) {
        let reason = "the private key is encrypted, which is not supported";
        let remedy = format!(
            "decrypt the key by `openssl pkey -in {path} -out key.pem`, and put it into the file \
             in place of the encrypted one"
        );
        return Err(ConfigError::new(KEY_FILE, path, reason, remedy));
    }
    let remedy = "name a PEM file with the client's certificate and its private key";
    let certificates = certificates(KEY_FILE, path, &pem, remedy)?;
    Ok((certificates, key(path, &pem)?))
}

fn read(option: &str, path: &str) -> Result<Zeroizing<Vec<u8>>, ConfigError> {
    let mut pem = Zeroizing::new(Vec::new());
    let file = File::open(path).and_then(|file| file.take(MAX_LENGTH + 1).read_to_end(&mut pem));
    let reason = match file {
        Ok(read) if read as u64 <= MAX_LENGTH => return Ok(pem),
        Ok(_) => format!("the file is longer than {} MiB", MAX_LENGTH >> 20),
        Err(error) => format!("the file cannot be read: {error}"),
    };
    Err(ConfigError::new(option, path, reason, "name a PEM file that can be read"))
}

fn certificates(
    option: &str,
    path: &str,
    pem: &[u8],
    remedy: &str,
) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let invalid = |reason: String| ConfigError::new(option, path, reason, remedy);
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if found.is_empty() => Err(invalid("the file has no certificate".to_owned())),
        Ok(found) => Ok(found),
        Err(error) => Err(invalid(format!("the file is no valid PEM: {}", words(&error)))),
    }
}

/// Returns whether `pem` contains an encrypted private key, in PKCS#8 or with the headers of
/// RFC 1421.
fn is_encrypted(pem: &[u8]) -> bool {
    let marks: [&[u8]; 2] = [b"-----BEGIN ENCRYPTED PRIVATE KEY-----", b"Proc-Type: 4,ENCRYPTED"];
    marks.iter().any(|mark| pem.windows(mark.len()).any(|window| window == *mark))
}

fn key(path: &str, pem: &[u8]) -> Result<PrivateKeyDer<'static>, ConfigError> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|_| {
        let reason = "the file has no private key";
        let remedy = "append the key of the certificate in PEM format (PKCS#8, PKCS#1 or SEC1)";
        ConfigError::new(KEY_FILE, path, reason, remedy)
    })
}
