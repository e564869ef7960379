//! Client keys encrypted with a password.

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject};
use sdam_core::{options::ConfigError, uri_options::Secret};
use zeroize::Zeroizing;

pub(crate) const KEY_FILE: &str = "tlsCertificateKeyFile";
const PASSWORD: &str = "tlsCertificateKeyFilePassword";
const BEGIN: &str = "-----BEGIN ENCRYPTED PRIVATE KEY-----";
const END: &str = "-----END ENCRYPTED PRIVATE KEY-----";

/// Returns the section with an encrypted PKCS#8 key, if `pem` contains one.
pub(crate) fn section(pem: &[u8]) -> Option<Zeroizing<String>> {
    let text = Zeroizing::new(String::from_utf8_lossy(pem).into_owned());
    let begin = text.find(BEGIN)?;
    let length = text.get(begin..)?.find(END)? + END.len();
    let section = text.get(begin..begin + length)?;
    Some(Zeroizing::new(section.to_owned()))
}

/// Returns whether `pem` contains a key encrypted with the headers of RFC 1421.
pub(crate) fn is_legacy(pem: &[u8]) -> bool {
    const HEADER: &[u8] = b"Proc-Type: 4,ENCRYPTED";
    pem.windows(HEADER.len()).any(|window| window == HEADER)
}

/// Decrypts the key in a [`section`] of the file `path`.
pub(crate) fn decrypt(
    path: &str,
    section: &str,
    password: Option<&Secret>,
) -> Result<PrivateKeyDer<'static>, ConfigError> {
    let Some(password) = password else {
        let reason = format!("the private key in `{path}` is encrypted");
        return Err(ConfigError::new(PASSWORD, "", reason, "give its password"));
    };
    // The PEM library does not know the label of encrypted keys, so the label is replaced.
    let renamed = Zeroizing::new(section.replace("ENCRYPTED PRIVATE", "PRIVATE"));
    let encrypted = PrivatePkcs8KeyDer::from_pem_slice(renamed.as_bytes()).map_err(|error| {
        let reason = format!("the encrypted private key is no valid PEM: {error}");
        convert(path, &reason)
    })?;
    plain(path, encrypted.secret_pkcs8_der(), password)
}

#[cfg(feature = "encrypted-keys")]
fn plain(
    path: &str,
    encrypted: &[u8],
    password: &Secret,
) -> Result<PrivateKeyDer<'static>, ConfigError> {
    use pkcs8::{EncryptedPrivateKeyInfoRef, Error, pkcs5};

    let unsupported = |error: &dyn std::error::Error| {
        let reason = format!("the key is encrypted in a way that is not supported: {error}");
        convert(path, &reason)
    };
    let info =
        EncryptedPrivateKeyInfoRef::try_from(encrypted).map_err(|error| unsupported(&error))?;
    match info.decrypt(password.expose()) {
        Ok(key) => Ok(PrivatePkcs8KeyDer::from(key.as_bytes().to_vec()).into()),
        Err(Error::EncryptedPrivateKey(
            error @ (pkcs5::Error::NoPbes1CryptSupport
            | pkcs5::Error::UnsupportedAlgorithm { .. }
            | pkcs5::Error::AlgorithmParametersInvalid { .. }),
        )) => Err(unsupported(&error)),
        Err(_) => {
            let reason = format!("it does not decrypt the private key in `{path}`");
            Err(ConfigError::new(PASSWORD, "", reason, "give the password of this key"))
        }
    }
}

#[cfg(not(feature = "encrypted-keys"))]
fn plain(path: &str, _: &[u8], _: &Secret) -> Result<PrivateKeyDer<'static>, ConfigError> {
    Err(ConfigError::new(
        PASSWORD,
        "",
        format!("the private key in `{path}` is encrypted, and this program cannot decrypt it"),
        "turn on the feature `encrypted-keys` of the crate `sdam-tls`, or decrypt the key by \
         `openssl pkcs8 -topk8 -nocrypt`",
    ))
}

/// Returns the error for a key in the file `path` that must be converted first. The error contains
/// the command for the conversion.
pub(crate) fn convert(path: &str, reason: &str) -> ConfigError {
    let remedy = format!(
        "convert the key by `openssl pkcs8 -topk8 -v2 aes-256-cbc -v2prf hmacWithSHA256 -in {path} \
         -out key.pem`, and put it into the file in place of the old one"
    );
    ConfigError::new(KEY_FILE, path, reason, remedy)
}
