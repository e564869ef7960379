//! Reads connection strings and passwords from files.

use std::{fmt::Write as _, path::Path};

use crate::{file_error::cannot_read, input};

/// Reads a connection string from the file that `option` names. White space around the string is
/// ignored.
pub(crate) fn read_uri(option: &str, path: &Path) -> Result<String, String> {
    let name = format!("{option} {}", path.display());
    let text = input::read_text(path).map_err(|error| cannot_read(&name, &error))?;
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
    let text = input::read_text(path).map_err(|error| cannot_read(&name, &error))?;
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
