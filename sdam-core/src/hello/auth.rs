//! Authentication in the handshake of pooled connections (Handshake: "Speculative
//! Authentication"; Authentication: "Mechanism Negotiation via Handshake").

use alloc::{borrow::Cow, boxed::Box};

use crate::document::{self, DocumentWriter};

/// The authentication arguments of a handshake.
///
/// Its `Debug` output does not reveal the command.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HelloAuth {
    /// `saslSupportedMechs`: the user whose mechanisms the reply lists, as `database.user`.
    pub sasl_supported_mechs: Option<Box<str>>,
    /// `speculativeAuthenticate`: the first command of the authentication, in BSON.
    pub speculative_authenticate: Option<Box<[u8]>>,
}

impl HelloAuth {
    /// Sets the user whose mechanisms the reply lists, as `database.user`.
    #[must_use]
    pub fn with_sasl_supported_mechs(mut self, user: impl Into<Box<str>>) -> Self {
        self.sasl_supported_mechs = Some(user.into());
        self
    }

    /// Sets the first command of the authentication, a BSON document with a field `db`. Servers
    /// before MongoDB 4.4 ignore it.
    #[must_use]
    pub fn with_speculative_authenticate(mut self, command: impl Into<Box<[u8]>>) -> Self {
        self.speculative_authenticate = Some(command.into());
        self
    }

    /// Adds the arguments to a hello. A command that is not BSON is omitted.
    pub(super) fn write(&self, command: &mut DocumentWriter) {
        command.text(SASL_SUPPORTED_MECHS, self.sasl_supported_mechs.as_deref());
        if let Some(first) = &self.speculative_authenticate {
            // Without this field, authentication proceeds as with servers before MongoDB 4.4.
            let _ = command.encoded_document(SPECULATIVE_AUTHENTICATE, first);
        }
    }
}

crate::opaque!(HelloAuth, |this|
    sasl_supported_mechs: this.sasl_supported_mechs,
    speculative_authenticate: this.speculative_authenticate.as_ref().map(|_| "<hidden>"),
);

/// Returns the reply to a handshake without the embedded reply to the speculative authentication,
/// which events and recordings must not show (Command Logging and Monitoring: "Redaction").
///
/// A reply without such a part, or one that is not BSON, is returned unchanged.
pub fn without_speculative_reply(reply: &[u8]) -> Cow<'_, [u8]> {
    document::without(reply, SPECULATIVE_AUTHENTICATE).map_or(Cow::Borrowed(reply), Cow::Owned)
}

pub(super) const SASL_SUPPORTED_MECHS: &str = "saslSupportedMechs";
pub(super) const SPECULATIVE_AUTHENTICATE: &str = "speculativeAuthenticate";
