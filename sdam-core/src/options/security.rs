//! The options that protect connections: the credential, and the options of TLS and of the proxy,
//! which protect the data and the route.

use alloc::boxed::Box;

use super::{ConfigError, Warning};
use crate::uri_options::{HIDDEN, Properties, Secret, Settings, typed};

/// The port of a proxy whose address does not contain one (URI Options: "proxyPort").
const DEFAULT_PROXY_PORT: u16 = 1080;

const KEY_PASSWORD: &str = "tlsCertificateKeyFilePassword";

/// The credential with which a driver authenticates pooled connections (Authentication:
/// "MongoCredential").
///
/// The framework stores the credential without checking it; checking is left to the authenticator,
/// which is created from the [options](super::Options) that contain the credential. Monitors never
/// authenticate. The `Debug` output does not reveal the password.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Credential {
    /// The name of the user; optional for some mechanisms.
    pub user: Option<Box<str>>,
    /// The password; not all mechanisms need one.
    pub password: Option<Secret>,
    /// `authSource`: the database that defines the user; `None` for the mechanism's default.
    pub source: Option<Box<str>>,
    /// `authMechanism`; `None` for the strongest SCRAM mechanism that the user supports.
    pub mechanism: Option<Box<str>>,
    /// `authMechanismProperties`. In a connection string, values cannot contain commas.
    pub properties: Option<Properties>,
}

impl Credential {
    /// Creates the credential for a user with a password; the mechanism is negotiated.
    pub fn new(user: &str, password: &str) -> Self {
        Self {
            user: Some(user.into()),
            password: Some(Secret::new(password)),
            source: None,
            mechanism: None,
            properties: None,
        }
    }

    /// Creates the credential for a client certificate, which names the user.
    pub fn x509() -> Self {
        Self {
            user: None,
            password: None,
            source: None,
            mechanism: Some("MONGODB-X509".into()),
            properties: None,
        }
    }

    /// Returns the database that defines the user: `authSource`, or else the mechanism's default.
    pub fn source(&self) -> &str {
        self.source_or(None)
    }

    /// Returns the database that defines the user: `authSource`, or else `default`, or else the
    /// mechanism's default. The users of some mechanisms are always in `$external`.
    pub fn source_or<'s>(&'s self, default: Option<&'s str>) -> &'s str {
        let default = || default_source(self.mechanism.as_deref(), default);
        self.source.as_deref().unwrap_or_else(default)
    }
}

/// The options for encrypted connections, including the certificates to trust (URI Options: "tls"
/// and its options).
///
/// Unless configured otherwise, the platform's certificate authorities are trusted, and a
/// certificate is rejected if it is invalid or was issued for another host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent option")]
pub struct TlsOptions {
    /// `tlsCAFile`: the PEM file with the authorities to trust instead of the platform's.
    pub ca_file: Option<Box<str>>,
    /// `tlsCertificateKeyFile`: the PEM file with the client's certificate and key, which must not
    /// be encrypted.
    pub certificate_key_file: Option<Box<str>>,
    /// `tlsAllowInvalidCertificates`, `tlsInsecure`: true to accept any certificate. Anyone on the
    /// route to a server can then read and change the data.
    pub allow_invalid_certificates: bool,
    /// `tlsAllowInvalidHostnames`, `tlsInsecure`: true to accept certificates for other hosts.
    /// Anyone with a valid certificate can then impersonate a server.
    pub allow_invalid_hostnames: bool,
    /// `tlsDisableCertificateRevocationCheck`: true to accept revoked certificates.
    pub disable_certificate_revocation_check: bool,
    /// `tlsDisableOCSPEndpointCheck`: true to prevent OCSP responders from being contacted.
    /// `sdam-tls` never contacts any.
    pub disable_ocsp_endpoint_check: bool,
}

impl TlsOptions {
    /// Returns the TLS options of a connection string; `None` if TLS is off. Each TLS option turns
    /// TLS on, like `tls=true`.
    ///
    /// # Errors
    ///
    /// If `tls=false` is combined with another TLS option, because that option would be ignored,
    /// or if there is a `tlsCertificateKeyFilePassword`.
    pub(crate) fn of(settings: &Settings) -> Result<Option<Self>, ConfigError> {
        let other = |name: &&'static str| name.starts_with("tls") && *name != "tls";
        let other = settings.keys().copied().find(other);
        match (typed(settings, "tls"), other) {
            (Some(false), Some(other)) => {
                let reason = alloc::format!("`{other}` asks for TLS");
                let remedy = "leave one of the two out";
                return Err(ConfigError::new("tls", "false", reason, remedy));
            }
            (Some(true), _) | (_, Some(_)) => {}
            _ => return Ok(None),
        }
        let flag = |name| typed(settings, name) == Some(true);
        let text = |name| typed::<&str>(settings, name).map(Box::from);
        if settings.contains_key(KEY_PASSWORD) {
            let file = text("tlsCertificateKeyFile");
            let reason = "encrypted keys are not supported";
            let remedy = alloc::format!(
                "decrypt the key by `openssl pkey -in {} -out key.pem`, put it into \
                 `tlsCertificateKeyFile` in place of the encrypted one, and leave the password out",
                file.as_deref().unwrap_or("FILE"),
            );
            return Err(ConfigError::new(KEY_PASSWORD, HIDDEN, reason, remedy));
        }
        let insecure = flag("tlsInsecure");
        Ok(Some(Self {
            ca_file: text("tlsCAFile"),
            certificate_key_file: text("tlsCertificateKeyFile"),
            allow_invalid_certificates: insecure || flag("tlsAllowInvalidCertificates"),
            allow_invalid_hostnames: insecure || flag("tlsAllowInvalidHostnames"),
            disable_certificate_revocation_check: insecure
                || flag("tlsDisableCertificateRevocationCheck"),
            disable_ocsp_endpoint_check: insecure || flag("tlsDisableOCSPEndpointCheck"),
        }))
    }
}

impl TlsOptions {
    /// Returns the name and the value of the first option that is set besides `tls`.
    pub fn first_set(&self) -> Option<(&'static str, &str)> {
        let flag = |set: bool| set.then_some("true");
        let options = [
            ("tlsCAFile", self.ca_file.as_deref()),
            ("tlsCertificateKeyFile", self.certificate_key_file.as_deref()),
            ("tlsAllowInvalidCertificates", flag(self.allow_invalid_certificates)),
            ("tlsAllowInvalidHostnames", flag(self.allow_invalid_hostnames)),
            (
                "tlsDisableCertificateRevocationCheck",
                flag(self.disable_certificate_revocation_check),
            ),
            ("tlsDisableOCSPEndpointCheck", flag(self.disable_ocsp_endpoint_check)),
        ];
        options.into_iter().find_map(|(name, value)| Some((name, value?)))
    }

    /// Returns a warning for each option in a connection string that explicitly leaves OCSP
    /// enabled.
    pub(crate) fn ocsp_warnings(settings: &Settings) -> impl Iterator<Item = Warning> {
        let checks = ["tlsDisableCertificateRevocationCheck", "tlsDisableOCSPEndpointCheck"];
        let asked = checks.into_iter().filter(|check| typed(settings, check) == Some(false));
        asked.map(|check| {
            Warning::new(
                check,
                "false",
                "OCSP is not supported",
                "a revoked certificate is rejected only if it is on a revocation list of the \
                 program",
            )
        })
    }

    /// Returns a warning for each option that leaves connections open to attack.
    pub(super) fn warnings(&self) -> impl Iterator<Item = Warning> + use<> {
        let lax = [
            (
                self.allow_invalid_certificates,
                "tlsAllowInvalidCertificates",
                "certificates are not checked",
                "everyone on the way to a server can read and change what is sent",
            ),
            (
                self.allow_invalid_hostnames && !self.allow_invalid_certificates,
                "tlsAllowInvalidHostnames",
                "certificates may name another host",
                "everyone who has a valid certificate can pretend to be a server",
            ),
        ];
        let lax = lax.into_iter().filter(|(on, ..)| *on);
        lax.map(|(_, option, reason, consequence)| {
            Warning::new(option, "true", reason, consequence)
        })
    }
}

/// The SOCKS5 proxy for connections (URI Options: "proxyHost").
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProxyOptions {
    /// `proxyHost`: the host name or IP address of the proxy.
    pub host: Box<str>,
    /// `proxyPort`; 1080 by default.
    pub port: u16,
    /// `proxyUsername` and `proxyPassword`; `None`, or two empty strings, means no authentication.
    pub credential: Option<(Box<str>, Secret)>,
}

impl ProxyOptions {
    /// Creates the options for a proxy without authentication.
    pub fn new(host: impl Into<Box<str>>, port: u16) -> Self {
        Self { host: host.into(), port, credential: None }
    }

    /// Sets the user name and password.
    #[must_use]
    pub fn with_credential(mut self, user: impl Into<Box<str>>, password: &str) -> Self {
        self.credential = Some((user.into(), Secret::new(password)));
        self
    }

    /// Returns the proxy in a connection string.
    pub(crate) fn of(settings: &Settings) -> Option<Self> {
        let host: &str = typed(settings, "proxyHost")?;
        let user = typed::<&str>(settings, "proxyUsername").map(Box::from);
        let password: Option<&Secret> = typed(settings, "proxyPassword");
        Some(Self {
            host: host.into(),
            port: typed(settings, "proxyPort").unwrap_or(DEFAULT_PROXY_PORT),
            credential: user.zip(password.cloned()),
        })
    }
}

/// Returns the default of `authSource` (Authentication: "Connection String Options").
pub(crate) fn default_source<'d>(mechanism: Option<&str>, database: Option<&'d str>) -> &'d str {
    match mechanism {
        Some("GSSAPI" | "MONGODB-AWS" | "MONGODB-OIDC" | "MONGODB-X509") => "$external",
        Some("PLAIN") => database.unwrap_or("$external"),
        _ => database.unwrap_or("admin"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_is_as_given_or_the_default_of_the_mechanism() {
        let mut credential = Credential::new("user", "pw");
        assert_eq!(credential.source(), "admin");
        credential.mechanism = Some("MONGODB-X509".into());
        assert_eq!(credential.source(), "$external");
        credential.source = Some("db".into());
        assert_eq!(credential.source(), "db");
    }
}
