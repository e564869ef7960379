use alloc::boxed::Box;

use crate::uri_options::{Properties, Secret};

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
