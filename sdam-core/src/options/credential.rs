use alloc::boxed::Box;

use crate::uri_options::{Properties, Secret};

/// The credential with which a driver authenticates the connections of its pools (Authentication:
/// "MongoCredential").
///
/// The framework stores it and does not check it: an authenticator is made of the
/// [options](super::Options) that hold it. Monitors never authenticate. Printing it does not reveal
/// the password.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Credential {
    /// The name of the user; optional for some mechanisms.
    pub user: Option<Box<str>>,
    /// The password; not all mechanisms have one.
    pub password: Option<Secret>,
    /// `authSource`: the database that holds the user. `None`: the default of the mechanism.
    pub source: Option<Box<str>>,
    /// `authMechanism`. `None`: the stronger mechanism of SCRAM that the user has.
    pub mechanism: Option<Box<str>>,
    /// `authMechanismProperties`; in a connection string no value may contain a comma.
    pub properties: Option<Properties>,
}

impl Credential {
    /// Creates the credential of a user with a password, whose mechanism is negotiated.
    pub fn new(user: &str, password: &str) -> Self {
        Self {
            user: Some(user.into()),
            password: Some(Secret::new(password)),
            source: None,
            mechanism: None,
            properties: None,
        }
    }

    /// Creates the credential of a certificate, which names the user.
    pub fn x509() -> Self {
        Self {
            user: None,
            password: None,
            source: None,
            mechanism: Some("MONGODB-X509".into()),
            properties: None,
        }
    }

    /// Sets `authSource`: the database that holds the user.
    #[must_use]
    pub fn with_source(mut self, source: &str) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Sets `authMechanism`.
    #[must_use]
    pub fn with_mechanism(mut self, mechanism: &str) -> Self {
        self.mechanism = Some(mechanism.into());
        self
    }

    /// Sets `authMechanismProperties`, whose names are case-insensitive; of several values for one
    /// name the last one counts. Here a value may contain commas.
    #[must_use]
    pub fn with_properties<'p>(
        mut self,
        properties: impl IntoIterator<Item = (&'p str, &'p str)>,
    ) -> Self {
        self.properties = Some(Properties::new(properties));
        self
    }

    /// Returns the database that holds the user: `authSource`, or else the default of the
    /// mechanism.
    pub fn source(&self) -> &str {
        let default = || default_source(self.mechanism.as_deref(), None);
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
