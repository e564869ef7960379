//! The decisions of a detector of silent servers.

use sdam_core::ids::ServerId;

/// The decisions that a detector may or must make when a server's timer fires.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Verdict {
    pub(crate) server: ServerId,
    pub(crate) may_ask: bool,
    pub(crate) may_convict: bool,
    pub(crate) must_convict: bool,
}
