//! Helpers that run the measured programs and read their output line by line.

use std::{
    future::Future,
    io::{self, Write},
    sync::mpsc::Sender,
    time::Duration,
};

/// The time limit of every wait, which is long enough for a machine under load.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// Runs `program` on a new runtime with sockets and timers.
pub(crate) fn block_on<T>(program: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(program)
}

/// A writer that sends every line to a channel.
pub(crate) struct Lines(String, Sender<String>);

impl Lines {
    pub(crate) fn new(lines: Sender<String>) -> Self {
        Self(String::new(), lines)
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += &String::from_utf8_lossy(bytes);
        while let Some((line, rest)) = self.0.split_once('\n') {
            self.1.send(line.to_owned()).map_err(io::Error::other)?;
            self.0 = rest.to_owned();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
