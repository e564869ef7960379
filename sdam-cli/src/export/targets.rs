//! The deployments that a command line or its targets file names, with their connection strings and
//! the origin of each string.

use std::{path::Path, time::Duration};

use sdam::Runtime;
use sdam_core::{
    address::ServerAddress, options::ConfigError, rng::Rng, srv::SrvRecords, uri::ConnectionString,
};
use toml::de::{DeTable, DeValue};

use crate::{
    secret,
    target::{Target, redact},
};

/// An example line of a targets file.
const EXAMPLE: &str = "orders = \"mongodb://db-0.example.com/?replicaSet=rs0\"";

/// An example line of a targets file that refers to a file with a secret.
const EXAMPLE_FILE: &str =
    "orders = { uri = \"mongodb://sdam@db-0.example.com/\", passwordFile = \"orders-password\" }";

/// The deployments of a targets file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Targets {
    /// The deployments, sorted by name.
    pub(super) named: Vec<Named>,
    /// The deployments that cannot be watched: the name, and the reason with its place in the file.
    pub(super) invalid: Vec<(String, String)>,
}

/// A deployment: its name and its connection string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    /// The name; only a single deployment that is given on the command line may have none.
    pub(super) name: Option<String>,
    /// The connection string.
    pub(super) uri: String,
    /// True if the deployment is simulated.
    pub(super) is_simulated: bool,
    /// The origin of the connection string: the targets file, and the position in it. `None`
    /// if the string was given on the command line.
    origin: Option<String>,
}

impl Named {
    /// Creates a single deployment that was given on the command line. It may be simulated.
    pub(super) fn only(name: Option<String>, uri: String, is_simulated: bool) -> Self {
        Self { name, uri, is_simulated, origin: None }
    }

    /// Creates a deployment that was found at `origin`, in a targets file.
    pub(super) fn new(name: &str, uri: String, origin: String) -> Self {
        Self { name: Some(name.to_owned()), uri, is_simulated: false, origin: Some(origin) }
    }

    /// Returns whether this is the only deployment, so that requests need not name it.
    pub(super) fn is_only(&self) -> bool {
        self.origin.is_none()
    }

    /// Returns the labels that are attached to all output about the deployment.
    pub(super) fn labels(&self) -> Vec<(&'static str, String)> {
        let name = self.name.clone().map(|name| ("deployment", name));
        let simulated = self.is_simulated.then(|| ("simulated", "true".to_owned()));
        name.into_iter().chain(simulated).collect()
    }

    /// Returns whether `other` has the same name and connection string.
    pub(super) fn is(&self, other: &Self) -> bool {
        (&self.name, &self.uri) == (&other.name, &other.uri)
    }

    /// Checks the connection string and the files that it names. Performs no DNS look-up, and no
    /// I/O other than reading these files.
    pub(super) fn check(&self, target: &Target, runtime: &Runtime) -> Result<(), String> {
        let string = ConnectionString::parse(&self.uri).and_then(as_if_resolved);
        let options = string.and_then(ConnectionString::into_options);
        let scanned = options.map_err(|error| error.to_string()).and_then(|options| {
            let scanned = target.builder(options).scan(runtime.backend.clone());
            scanned.map(drop).map_err(|error| error.to_string())
        });
        scanned.map_err(|error| match &self.origin {
            Some(origin) => format!("{origin}: {error}"),
            None => error,
        })
    }
}

/// Checks whether a name is allowed for a deployment.
pub(super) fn check_name(name: &str) -> Result<(), &'static str> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    if name.is_empty() || !name.chars().all(is_plain) {
        return Err("a name must consist of letters, digits, '-', '_' and '.'; rename it");
    }
    Ok(())
}

/// Adds invented but plausible DNS records to a `mongodb+srv` string, so that it can be checked
/// without a look-up.
fn as_if_resolved(string: ConnectionString) -> Result<ConnectionString, ConfigError> {
    let Some(srv) = string.srv() else {
        return Ok(string);
    };
    let host = ServerAddress::new(&format!("host.{}", srv.host), 27017);
    let records = SrvRecords::new(vec![host], Duration::ZERO);
    string.resolved(&records, &[], &mut Rng::new(0))
}

/// Reads the deployments in the TOML document `text`. `file` is the document's name for error
/// messages; relative paths in it start at `folder`.
///
/// # Errors
///
/// If the text is no such document, or has no deployment. All errors, also those of single
/// deployments, name the file, the line and the deployment, but do not show any connection string.
pub(super) fn parse(text: &str, file: &str, folder: &Path) -> Result<Targets, String> {
    let line = |at: usize| {
        let before = text.get(..at).unwrap_or_default();
        before.matches('\n').count() + 1
    };
    let table = DeTable::parse(text).map_err(|error| {
        let line = line(error.span().map_or(0, |span| span.start));
        let written = text.lines().nth(line - 1).and_then(|it| it.split_once('='));
        let name = written.map_or(String::new(), |(name, _)| format!("{}: ", name.trim()));
        let said = redact(error.message());
        format!("{file}: line {line}: {name}{said}; a line is a name that occurs once, and a string in quotes, such as {EXAMPLE}")
    })?;
    if table.get_ref().is_empty() {
        return Err(format!("{file}: it names no deployment; add lines such as {EXAMPLE}"));
    }
    let mut found = Targets::default();
    for (key, value) in table.get_ref() {
        let name = key.get_ref();
        let origin = format!("{file}: line {}: {name}", line(key.span().start));
        let read = match (check_name(name), value.get_ref()) {
            (Err(said), _) => Err(said.to_owned()),
            (_, DeValue::String(uri)) => Ok(uri.clone().into_owned()),
            (_, DeValue::Table(settings)) => uri(settings, folder),
            (_, other) => Err(format!(
                "the value is of type {}, but it needs a connection string in quotes: {EXAMPLE}",
                other.type_str()
            )),
        };
        match read {
            Ok(uri) => found.named.push(Named::new(name, uri, origin)),
            Err(said) => found.invalid.push((name.to_string(), format!("{origin}: {said}"))),
        }
    }
    found.named.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

/// Returns the connection string of a deployment that is given as a table of settings.
fn uri(settings: &DeTable<'_>, folder: &Path) -> Result<String, String> {
    let [mut uri, mut uri_file, mut password_file] = [None; 3];
    for (key, value) in settings {
        let place = match &**key.get_ref() {
            "uri" => &mut uri,
            "uriFile" => &mut uri_file,
            "passwordFile" => &mut password_file,
            other => {
                return Err(format!(
                    "there is no setting {other}, only uri, uriFile and passwordFile; put a name \
                     with dots in quotes: {EXAMPLE}"
                ));
            }
        };
        *place = value.get_ref().as_str();
        if place.is_none() {
            return Err(format!(
                "the value of {key} is no text; put it in quotes: {EXAMPLE_FILE}",
                key = key.get_ref()
            ));
        }
    }
    let uri = match (uri, uri_file) {
        (Some(uri), None) => uri.to_owned(),
        (None, Some(file)) => secret::read_uri("uriFile", &folder.join(file))?,
        (None, None) => return Err(format!("uri or uriFile is missing; add one: {EXAMPLE_FILE}")),
        (Some(_), Some(_)) => {
            return Err("uri and uriFile exclude each other; remove one".to_owned());
        }
    };
    match password_file {
        Some(file) => secret::add_password(&uri, "passwordFile", &folder.join(file)),
        None => Ok(uri),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::CommandFactory;

    use super::*;
    use crate::{cli::Cli, export::Arguments};

    #[test]
    fn a_file_names_deployments() {
        let text = "# The shop.\norders = 'mongodb://a/'\n\"users.eu\" = \"mongodb://b/\"\n";
        let named = |name: &str, uri: &str, line| {
            Named::new(name, uri.to_owned(), format!("f: line {line}: {name}"))
        };
        let found = parse(text, "f", Path::new("")).unwrap();
        assert_eq!(
            found.named,
            [named("orders", "mongodb://a/", 2), named("users.eu", "mongodb://b/", 3)]
        );
        assert_eq!(found.invalid, []);
    }

    #[test]
    fn the_file_that_the_help_shows_is_valid() {
        let help = Cli::command().find_subcommand_mut("export").unwrap().render_long_help();
        let help = help.to_string();
        let lines = help.lines().skip_while(|line| !line.starts_with("  # "));
        let file: Vec<_> = lines.take_while(|line| line.starts_with("  ")).collect();
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("stock-password"), "p@w\n").unwrap();
        let found = parse(&file.join("\n"), "f", folder.path()).unwrap().named;
        let names: Vec<_> = found.iter().filter_map(|it| it.name.as_deref()).collect();
        assert_eq!(names, ["orders", "stock", "users.eu"]);
        assert!(found[1].uri.starts_with("mongodb://sdam:p%40w@"), "{found:?}");
        let arguments = Arguments::default();
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let _context = tokio.as_ref().unwrap().enter();
        let runtime = arguments.target.runtime().unwrap();
        for named in found {
            named.check(&arguments.target, &runtime).unwrap();
        }
    }

    #[test]
    fn errors_name_file_line_name_and_remedy_and_show_no_password() {
        let check = |text: &str, start: &str| {
            let said = match parse(text, "f", Path::new("/none")) {
                Ok(found) => found.invalid[0].1.clone(),
                Err(said) => said,
            };
            assert!(said.starts_with(start), "{said}");
            assert!(!said.contains("secret"), "{said}");
            let remedies = ["orders = ", "rename it", "remove one", "check its name"];
            assert!(remedies.iter().any(|it| said.contains(it)), "{said}");
        };
        check("", "f: it names no deployment");
        check("a = 'mongodb://a'\nb = 1\n", "f: line 2: b: the value is of type integer");
        check("\na = mongodb://u:secret@h/\n", "f: line 2: a: ");
        check("a = ['mongodb://u:secret@h/']\n", "f: line 1: a: the value is of type array");
        check("a = 'b'\na = 'mongodb://u:secret@h/'\n", "f: line 2: a: ");
        check("users.eu = 'mongodb://u:secret@h/'\n", "f: line 1: users: there is no setting eu,");
        check("\n[a]\nurl = 'mongodb://u:secret@h/'\n", "f: line 2: a: there is no setting url,");
        check("a = {}\n", "f: line 1: a: uri or uriFile is missing");
        check("a = { uri = ['mongodb://u:secret@h/'] }\n", "f: line 1: a: the value of uri is");
        let both = "a = { uri = 'mongodb://u:secret@h/', uriFile = 'b' }\n";
        check(both, "f: line 1: a: uri and uriFile exclude each other");
        let missing = "a = { uri = 'mongodb://u@h/', passwordFile = 'b' }\n";
        check(missing, "f: line 1: a: passwordFile /none/b: there is no such file");
        check("'a b' = 'mongodb://a'\n", "f: line 1: a b: a name must");
        check("'' = 'mongodb://a'\n", "f: line 1: : a name must");
    }
}
