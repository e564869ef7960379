//! Validates credentials (Authentication: "MongoCredential Properties").

use sdam_core::options::{ConfigError, Credential};
use zeroize::Zeroizing;

use crate::{account::User, scram::Mechanism};

const MECHANISM: &str = "authMechanism";
const EXTERNAL: &str = "$external";
const SUPPORTED: &str = "SCRAM-SHA-256, SCRAM-SHA-1, MONGODB-X509 or PLAIN";

/// An authentication mechanism.
#[derive(Clone, Copy)]
pub(crate) enum Method {
    Plain,
    /// SCRAM; if the mechanism is `None`, it is negotiated.
    Scram(Option<Mechanism>),
    X509,
}

impl Method {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::Scram(Some(mechanism)) => mechanism.name(),
            Self::Scram(None) => "negotiated",
            Self::X509 => "MONGODB-X509",
        }
    }
}

type Validated = Result<(Method, User), ConfigError>;

/// Returns the mechanism and the user of `credential`. `encrypted` is true if connections are
/// encrypted.
pub(crate) fn method(credential: &Credential, encrypted: bool) -> Validated {
    let Some(name) = credential.mechanism.as_deref() else {
        return scram(credential, None);
    };
    let (reason, remedy) = match name {
        "PLAIN" => return plain(credential, encrypted),
        "MONGODB-X509" => return x509(credential),
        "GSSAPI" | "MONGODB-AWS" | "MONGODB-OIDC" => {
            ("it is not supported", ", or pass one of your own to `TopologyBuilder::authenticator`")
        }
        _ => match Mechanism::ALL.into_iter().find(|own| own.name() == name) {
            Some(mechanism) => return scram(credential, Some(mechanism)),
            None => ("there is no such mechanism", ""),
        },
    };
    Err(ConfigError::new(MECHANISM, name, reason, format!("use {SUPPORTED}{remedy}")))
}

fn scram(credential: &Credential, mechanism: Option<Mechanism>) -> Validated {
    let user = user(credential)?;
    no_properties(credential)?;
    if mechanism == Some(Mechanism::ScramSha256) {
        let prepared = Mechanism::ScramSha256.prepare(&user.name, &user.password);
        prepared.map_err(|error| {
            let remedy = "set a password without control characters and unassigned code points";
            ConfigError::new("password", "", error.to_string(), remedy)
        })?;
    }
    Ok((Method::Scram(mechanism), user))
}

fn plain(credential: &Credential, encrypted: bool) -> Validated {
    let user = user(credential)?;
    no_properties(credential)?;
    let (reason, remedy) = if !encrypted {
        let reason = "it sends the password, and connections are not encrypted";
        (reason, "add tls=true, or use SCRAM-SHA-256")
    } else if user.name.contains('\0') || user.password.contains('\0') {
        ("user name and password cannot contain a zero character with it", "leave it out")
    } else {
        return Ok((Method::Plain, user));
    };
    Err(ConfigError::new(MECHANISM, "PLAIN", reason, remedy))
}

fn x509(credential: &Credential) -> Validated {
    no_properties(credential)?;
    if credential.password.is_some() {
        let remedy = "leave it out: the certificate takes its place";
        return Err(ConfigError::new("password", "", "MONGODB-X509 has none", remedy));
    }
    if credential.source() != EXTERNAL {
        let reason = "the users of MONGODB-X509 are in another database";
        let remedy = "leave it out, or write $external";
        return Err(ConfigError::new("authSource", credential.source(), reason, remedy));
    }
    let user = User {
        name: credential.user.clone().unwrap_or_default(),
        password: Zeroizing::default(),
        source: EXTERNAL.into(),
    };
    Ok((Method::X509, user))
}

/// Returns the user that `credential` describes: the name, the password and the database.
fn user(credential: &Credential) -> Result<User, ConfigError> {
    let name = credential.user.clone().filter(|user| !user.is_empty());
    let missing = |part| {
        let remedy = "write mongodb://user:password@host, or leave the authentication out";
        ConfigError::new(part, "", "there is none to authenticate with", remedy)
    };
    let password = credential.password.as_ref();
    let password = password.ok_or_else(|| missing("password"));
    let source = credential.source();
    if source.is_empty() {
        let remedy = "name the database that holds the user";
        return Err(ConfigError::new("authSource", "", "it is empty", remedy));
    }
    Ok(User {
        name: name.ok_or_else(|| missing("user name"))?,
        password: Zeroizing::new(password?.expose().into()),
        source: source.into(),
    })
}

fn no_properties(credential: &Credential) -> Result<(), ConfigError> {
    let properties = credential.properties.as_ref();
    match properties.and_then(|properties| properties.iter().next()) {
        None => Ok(()),
        Some((name, _)) => Err(ConfigError::new(
            "authMechanismProperties",
            name,
            "the mechanism has no properties",
            "leave it out",
        )),
    }
}

#[cfg(test)]
pub(crate) mod tests;
