//! Files named on the command line; `-` is standard input. This module reads connection strings and
//! passwords from them, and explains why a file cannot be read or written.

use std::{
    fmt::{Display, Write as _},
    fs::File,
    io::{self, BufRead, BufReader, ErrorKind, Read},
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

/// The interval at which a program in the background checks whether it is in the foreground again.
/// Only then may it read from its terminal.
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

/// Explains why the file or stream `name` cannot be read, and describes the remedy.
pub(crate) fn cannot_read(name: impl Display, error: &io::Error) -> String {
    let reason = match error.kind() {
        ErrorKind::NotFound => "there is no such file; check its name and folder",
        ErrorKind::PermissionDenied => {
            "this user may not read it; change its permissions, or use sudo"
        }
        ErrorKind::IsADirectory => "it is a folder; name a file in it",
        ErrorKind::InvalidData => "it is not text in UTF-8; name another file",
        _ => return format!("{name}: {error}"),
    };
    format!("{name}: {reason}")
}

/// Explains why the file or stream `name` cannot be written, and describes the remedy.
pub(crate) fn cannot_write(name: impl Display, error: &io::Error) -> String {
    let reason = match error.kind() {
        ErrorKind::NotFound => "its folder does not exist; create it, or name a file elsewhere",
        ErrorKind::NotADirectory => "a folder of its path is a file; name a file elsewhere",
        ErrorKind::PermissionDenied => "this user may not write it; name a file elsewhere",
        ErrorKind::IsADirectory => "it is a folder; name a file in it",
        ErrorKind::StorageFull => "no space is left on the device; make room, or write elsewhere",
        _ => return format!("{name}: {error}"),
    };
    format!("{name}: {reason}")
}

/// Reads a connection string from the file that `option` names. White space around the string is
/// ignored.
pub(crate) fn read_uri(option: &str, path: &Path) -> Result<String, String> {
    let name = format!("{option} {}", path.display());
    let text = read_text(path).map_err(|error| cannot_read(&name, &error))?;
    match text.trim() {
        "" => {
            Err(format!("{name}: it is empty; it needs a line such as mongodb://localhost:27017"))
        }
        uri => Ok(uri.to_owned()),
    }
}

/// Adds the password in the file that `option` names to the connection string `uri`, which must
/// contain a user name. The password in the file is not percent-encoded. One line break at the end
/// of the file is ignored.
pub(crate) fn add_password(uri: &str, option: &str, path: &Path) -> Result<String, String> {
    let name = format!("{option} {}", path.display());
    let text = read_text(path).map_err(|error| cannot_read(&name, &error))?;
    let password = text.strip_suffix('\n').unwrap_or(&text);
    let password = password.strip_suffix('\r').unwrap_or(password);
    if password.is_empty() {
        return Err(format!("{name}: it is empty; write the password into it"));
    }
    let start = uri.find("://").map_or(0, |at| at + 3);
    let length = uri[start..].find(['/', '?']).unwrap_or(uri.len() - start);
    let user = uri[start..start + length].rfind('@').map(|at| &uri[start..start + at]);
    match user {
        None => Err(format!(
            "{name}: the connection string names no user; write it before the hosts, as in \
             mongodb://USER@localhost:27017"
        )),
        Some(user) if user.contains(':') => Err(format!(
            "{name}: the connection string contains a password as well; remove one of the two"
        )),
        Some(user) => {
            let end = start + user.len();
            Ok(format!("{}:{}{}", &uri[..end], encode(password), &uri[end..]))
        }
    }
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

/// Percent-encodes all but unreserved characters (RFC 3986, section 2.3).
fn encode(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use sdam_core::uri::ConnectionString;

    use super::*;

    fn file(content: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, content).unwrap();
        (folder, path)
    }

    #[test]
    fn any_password_reaches_the_options_as_it_is_in_the_file() {
        let check = |uri: &str, content: &str, password: &str| {
            let (_folder, path) = file(content);
            let uri = add_password(uri, "f", &path).unwrap();
            let string = ConnectionString::parse(&uri).unwrap();
            let credential = string.credential().unwrap();
            assert_eq!(credential.password.unwrap().expose(), password);
            assert_eq!(string.user(), Some("u@x"));
            assert_eq!(string.database(), Some("db"));
        };
        for password in ["plain", " p:w@r/d?%41#ü ", "two\nlines", "\n"] {
            for end in ["\n", "\r\n"] {
                let content = format!("{password}{end}");
                check("mongodb://u%40x@a,b:1/db?replicaSet=r", &content, password);
            }
        }
        check("mongodb+srv://u%40x@a.example.com/db", "secret", "secret");
    }

    #[test]
    fn errors_name_the_file_and_the_remedy_and_show_no_password() {
        let check = |uri: &str, content: &str, remedy: &str| {
            let (_folder, path) = file(content);
            let said = add_password(uri, "--file", &path).unwrap_err();
            let start = format!("--file {}: ", path.display());
            assert!(said.starts_with(&start), "{said}");
            assert!(said.contains(remedy) && !said.contains("secret"), "{said}");
        };
        check("mongodb://u@a", "", "write the password");
        check("mongodb://u@a", "\r\n", "write the password");
        check("mongodb://a/?appName=x@y", "secret", "mongodb://USER@");
        check("mongodb://u:secret@a", "secret", "remove one of the two");
        check("mongodb://u:@a", "secret", "remove one of the two");
        let (folder, _) = file("");
        let none = folder.path().join("none");
        for said in [add_password("mongodb://u@a", "f", &none), read_uri("f", &none)] {
            let missing = "there is no such file; check its name and folder";
            assert_eq!(said.unwrap_err(), format!("f {}: {missing}", none.display()));
        }
    }
}
