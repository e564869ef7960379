//! Fixtures used by the tests of several subcommands.

use std::{
    future::Future,
    io::{self, Write},
    sync::mpsc::Sender,
};

use sdam_sim::Blueprint;

use crate::{output::Console, terminal::Palette};

/// Runs a future on a new runtime with sockets and timers.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(future)
}

/// Runs a program without colours. Returns its output, remarks and result.
pub(crate) fn capture<T>(
    run: impl FnOnce(Console<&mut Vec<u8>, &mut Vec<u8>>) -> T,
) -> (String, String, T) {
    let (mut output, mut remarks) = (Vec::new(), Vec::new());
    let result =
        run(Console { output: &mut output, remarks: &mut remarks, palette: Palette::Plain });
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output), text(remarks), result)
}

/// Returns a replica set whose third and last member is an arbiter.
pub(crate) fn with_arbiter() -> Blueprint {
    Blueprint::replica_set(3).configure(|config| config.members[2].arbiter = true)
}

/// A writer that sends every line to a channel.
pub(crate) struct Lines {
    begun: String,
    lines: Sender<String>,
}

impl Lines {
    pub(crate) fn new(lines: Sender<String>) -> Self {
        let begun = String::new();
        Self { begun, lines }
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.begun.push_str(std::str::from_utf8(bytes).unwrap());
        while let Some((line, rest)) = self.begun.split_once('\n') {
            // Ignore the error, because sending fails only if the test has stopped reading.
            let _ = self.lines.send(line.to_owned());
            self.begun = rest.to_owned();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
