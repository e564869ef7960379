//! Replaces the full screen if the feature `tui` is disabled.

use std::{future::Future, io};

use super::setup::Setup;
use crate::exit::Exit;

/// Refuses a screen, which no command line requests then.
pub(super) async fn run(_: Setup, _: impl Future<Output = ()>) -> io::Result<Exit> {
    Err(io::Error::other("this program was built without the feature tui"))
}
