//! Files named on the command line; `-` is standard input.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
    thread,
    time::Duration,
};

use futures::{
    SinkExt, Stream,
    channel::mpsc::{self, Sender},
    executor::block_on,
};

/// The maximum length of a line of standard input, in bytes.
const MAX_LINE: u64 = 64 << 10;
/// The maximum length of a text file, in bytes.
const MAX_TEXT: u64 = 4 << 20;

/// The interval at which a program in the background checks whether it is in the foreground again,
/// and so may read from its terminal.
const BACKGROUND_POLL: Duration = Duration::from_secs(1);

/// Returns the file's name for error messages.
pub(crate) fn name(path: &Path) -> String {
    if is_standard(path) { "standard input".to_owned() } else { path.display().to_string() }
}

/// Opens the file.
pub(crate) fn open(path: &Path) -> io::Result<Box<dyn BufRead>> {
    Ok(if is_standard(path) {
        Box::new(io::stdin().lock())
    } else {
        let file = File::open(path)?;
        if file.metadata()?.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        Box::new(BufReader::new(file))
    })
}

/// Reads a UTF-8 text file that the user has written.
///
/// # Errors
///
/// If the file cannot be read, or is longer than 4 MiB.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    open(path)?.take(MAX_TEXT + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_TEXT {
        let message = format!("it is longer than {} MiB; name another file", MAX_TEXT >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(text)
}

/// Returns the lines of standard input, without line breaks, until its end or an error. Invalid
/// UTF-8 is replaced, and a line of more than 64 KiB is split.
///
/// A thread reads one line ahead, and waits while the program is in the background of a terminal.
/// The program can end without waiting for this thread.
///
/// # Errors
///
/// If the thread cannot be started.
pub(crate) fn lines() -> io::Result<impl Stream<Item = String>> {
    let (lines, received) = mpsc::channel(0);
    let thread = thread::Builder::new().name("input".to_owned());
    thread.spawn(|| read_lines(lines))?;
    Ok(received)
}

fn read_lines(mut lines: Sender<String>) {
    // Do not read yet, because the system stops a background process that reads from its terminal.
    while is_in_background() {
        thread::sleep(BACKGROUND_POLL);
    }
    let mut input = io::stdin().lock();
    let mut bytes = Vec::new();
    while let Ok(1..) = (&mut input).take(MAX_LINE).read_until(b'\n', &mut bytes) {
        let text = String::from_utf8_lossy(&bytes);
        let line = text.trim_end_matches(['\r', '\n']).to_owned();
        bytes.clear();
        // Sending fails when the program ends, because the receiver is then dropped.
        if block_on(lines.send(line)).is_err() {
            return;
        }
    }
}

/// Returns whether standard input is a terminal in which another process group is in the
/// foreground.
#[cfg(unix)]
fn is_in_background() -> bool {
    let user = rustix::termios::tcgetpgrp(io::stdin());
    user.is_ok_and(|group| group != rustix::process::getpgrp())
}

#[cfg(not(unix))]
const fn is_in_background() -> bool {
    false
}

fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}
