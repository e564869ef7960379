//! Changes of a server's state, as reported by errors.

/// A change of a server's state that an error reports (SDAM: "not writable primary" and
/// "node is recovering" errors).
#[doc(alias("isNotWritablePrimary", "isRecovering"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub(crate) enum StateChange {
    /// The server is no longer the primary.
    NotWritablePrimary,
    /// The server is recovering, or its replication state is changing.
    NodeIsRecovering,
    /// The server is recovering because it is shutting down.
    ShuttingDown,
}

impl StateChange {
    /// Classifies an error by `code` if there is one, and otherwise by `message` (SDAM: "the code
    /// takes precedence").
    pub(crate) fn classify(code: Option<i32>, message: &str) -> Option<Self> {
        match code {
            Some(10107 | 13435 | 10058) => Some(Self::NotWritablePrimary),
            Some(11602 | 13436 | 189) => Some(Self::NodeIsRecovering),
            Some(11600 | 91) => Some(Self::ShuttingDown),
            None if message.contains("not master or secondary")
                || message.contains("node is recovering") =>
            {
                Some(Self::NodeIsRecovering)
            }
            None if message.contains("not master") => Some(Self::NotWritablePrimary),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_take_precedence_over_messages() {
        // The message decides only if there is no code (I-30, I-31).
        let check = |code, message, expected| {
            let found = StateChange::classify(code, message);
            assert_eq!(found, expected, "{code:?} {message}");
        };
        let not_writable = Some(StateChange::NotWritablePrimary);
        let recovering = Some(StateChange::NodeIsRecovering);
        let shutting_down = Some(StateChange::ShuttingDown);
        check(Some(10107), "", not_writable);
        check(Some(13436), "not master", recovering);
        check(Some(91), "", shutting_down);
        check(Some(11600), "", shutting_down);
        check(Some(1), "not master", None);
        check(None, "not master", not_writable);
        check(None, "not master or secondary", recovering);
        check(None, "the node is recovering", recovering);
        check(None, "not primary", None);
    }
}
