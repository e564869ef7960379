//! Messages about files and streams that cannot be read or written, with remedies.

use std::{
    fmt::Display,
    io::{self, ErrorKind},
};

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
