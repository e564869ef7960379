//! The conversations of the mechanisms.

mod plain;
mod scram;
#[cfg(test)]
mod tests;
mod x509;

pub(crate) use self::{plain::PlainConversation, scram::ScramConversation, x509::X509Conversation};
