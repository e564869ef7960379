//! The file of `--targets`: the names of deployments and their connection strings, in TOML.

use std::{collections::BTreeMap, fs, path::Path};

use crate::{
    failure::{Failure, cannot_read},
    target::redact,
};

/// The remedy for what is no such table.
const SYNTAX: &str = "it needs lines such as orders = \"mongodb://…\"";

/// Reads the names and connection strings of `path`, sorted by name.
///
/// # Errors
///
/// If the file cannot be read, or is not such a table. The error names the file and the line, but
/// shows no connection string.
pub(super) fn read(path: &Path) -> Result<Vec<(String, String)>, Failure> {
    let name = format!("--targets {}", path.display());
    let text = fs::read_to_string(path);
    let text = text.map_err(|error| Failure::config(cannot_read(&name, &error)))?;
    parse(&text).map_err(|said| Failure::config(format!("{name}: {said}")))
}

fn parse(text: &str) -> Result<Vec<(String, String)>, String> {
    let table: BTreeMap<String, String> = toml::from_str(text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start));
        let line = before.map_or(1, |before| before.matches('\n').count() + 1);
        let said = redact(error.message());
        format!("line {line}: {said}; {SYNTAX}")
    })?;
    if table.is_empty() {
        return Err(format!("it names no deployment; {SYNTAX}"));
    }
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    if let Some(name) = table
        .keys()
        .find(|name| !name.chars().all(is_plain) || name.is_empty())
    {
        return Err(format!(
            "the name {name:?} must consist of letters, digits, '-', '_' and '.'"
        ));
    }
    Ok(table.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_names_deployments() {
        let text = "# The shop.\norders = 'mongodb://a/'\n\"users.eu\" = \"mongodb://b/\"\n";
        let pair = |name: &str, uri: &str| (name.to_owned(), uri.to_owned());
        assert_eq!(
            parse(text),
            Ok(vec![
                pair("orders", "mongodb://a/"),
                pair("users.eu", "mongodb://b/")
            ])
        );
    }

    #[test]
    fn errors_name_the_line_and_show_no_password() {
        let check = |text: &str, start: &str| {
            let said = parse(text).unwrap_err();
            assert!(said.starts_with(start), "{said}");
            assert!(!said.contains("secret"), "{said}");
        };
        check("", "it names no deployment");
        check("a = 'mongodb://a'\nb = 1\n", "line 2: ");
        check("\na = mongodb://u:secret@h/\n", "line 2: ");
        check("a = ['mongodb://u:secret@h/']\n", "line 1: ");
        check("a = 'b'\na = 'mongodb://u:secret@h/'\n", "line 2: ");
        check("'a b' = 'mongodb://a'\n", "the name \"a b\" must");
        check("'' = 'mongodb://a'\n", "the name \"\" must");
    }
}
