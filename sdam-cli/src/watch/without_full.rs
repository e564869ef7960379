//! Replaces the full screen if the feature `tui` is disabled.

use std::{
    future::{Future, ready},
    io,
};

use super::started::Setup;
use crate::exit::Exit;

/// Fails, because no command line can request the full screen in this build.
pub(super) fn run(_: Setup, _: impl Future<Output = ()>) -> impl Future<Output = io::Result<Exit>> {
    ready(Err(io::Error::other("this program was built without the feature tui")))
}
