//! The authentication mechanisms.

use std::sync::Arc;

use zeroize::Zeroizing;

use crate::scram::Mechanism;

/// A mechanism with its data.
pub(crate) enum Method {
    Plain(Arc<User>),
    /// SCRAM; if the mechanism is `None`, it is negotiated.
    Scram(Arc<User>, Option<Mechanism>),
    X509 {
        user: Option<Box<str>>,
    },
}

/// A user with a password.
pub(crate) struct User {
    pub(crate) name: Box<str>,
    pub(crate) password: Zeroizing<Box<str>>,
    pub(crate) source: Box<str>,
}

impl Method {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Plain(_) => "PLAIN",
            Self::Scram(_, Some(mechanism)) => mechanism.name(),
            Self::Scram(_, None) => "negotiated",
            Self::X509 { .. } => "MONGODB-X509",
        }
    }
}
