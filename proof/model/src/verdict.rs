//! The judgments of a detector.

use sdam_core::ids::ServerId;

/// The judgments that a detector may or must make in a call for the timer of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Verdict {
    pub(crate) server: ServerId,
    pub(crate) may_ask: bool,
    pub(crate) may_convict: bool,
    pub(crate) must_convict: bool,
}
