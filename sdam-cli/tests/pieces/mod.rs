//! Reads the output of the programs under test piece by piece.

use std::{
    io::{self, Write},
    sync::mpsc::Sender,
    time::Duration,
};

/// The time limit of every wait, for a machine under load.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// A writer that sends every piece of text to a channel.
pub(crate) struct Pieces(pub(crate) Sender<String>);

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes).into_owned();
        self.0.send(text).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
