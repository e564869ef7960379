//! The commands of SASL conversations.

use sdam_core::document::DocumentWriter;

/// Writes the first command of a SASL conversation (Authentication: "SASL Mechanisms").
pub(crate) fn sasl_start(command: &mut DocumentWriter, mechanism: &str, payload: &[u8]) {
    command.int32("saslStart", 1);
    command.text("mechanism", mechanism);
    command.binary("payload", payload);
    command.int32("autoAuthorize", 1);
    // Servers before MongoDB 4.4 ignore this option (Authentication: "skipEmptyExchange").
    command.document("options", |options| {
        options.boolean("skipEmptyExchange", true);
    });
}

/// Writes a subsequent command of a SASL conversation.
pub(crate) fn sasl_continue(command: &mut DocumentWriter, conversation: i64, payload: &[u8]) {
    command.int32("saslContinue", 1);
    match i32::try_from(conversation) {
        Ok(short) => command.int32("conversationId", short),
        Err(_) => command.int64("conversationId", conversation),
    }
    command.binary("payload", payload);
}
