//! The deployments that a command line or its targets file names, with their connection strings and
//! the origin of each string. The file is read at intervals and on SIGHUP.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt, StreamExt, select_biased, stream::FusedStream};
use metrics::{describe_gauge, gauge, with_local_recorder};
use sdam::Runtime;
use sdam_core::{
    address::ServerAddress, options::ConfigError, rng::Rng, srv::SrvRecords, uri::ConnectionString,
};
use sdam_transport::clock::Clock;
use tokio::task::spawn_blocking;
use toml::de::{DeTable, DeValue};

use crate::{
    exit,
    files::{self, cannot_read},
    page::{Page, Registry},
    target::{Target, redact},
};

/// An example line of a targets file.
const EXAMPLE: &str = "orders = \"mongodb://db-0.example.com/?replicaSet=rs0\"";

/// An example line of a targets file that refers to a file with a secret.
const EXAMPLE_FILE: &str =
    "orders = { uri = \"mongodb://sdam@db-0.example.com/\", passwordFile = \"orders-password\" }";

/// The interval at which the file is read again.
const PERIOD: Duration = Duration::from_secs(1);

const SUCCESSFUL: &str = "sdam_config_last_reload_successful";
const INVALID: &str = "sdam_config_invalid_targets";
const TIMESTAMP: &str = "sdam_config_last_reload_success_timestamp_seconds";

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
    /// The name. It may be missing only for a single deployment that is given on the command line.
    pub(super) name: Option<String>,
    /// The connection string.
    pub(super) uri: String,
    /// True if the deployment is simulated.
    pub(super) is_simulated: bool,
    /// The origin of the connection string: the targets file, and the position in it. `None`
    /// if the string was given on the command line.
    pub(super) origin: Option<String>,
}

impl Named {
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

/// The file of the targets, and its last contents.
pub(super) struct Source {
    path: PathBuf,
    clock: Arc<dyn Clock>,
    hangups: Box<dyn FusedStream<Item = ()> + Unpin>,
    /// The deployments that were last read, or the error of the last reading.
    seen: Result<Targets, String>,
}

impl Source {
    /// Reads the file `path`, and returns its deployments and a source that follows its changes.
    /// Returns no source for a file that can be read only once, such as a pipe. Once a source
    /// exists, SIGHUP no longer ends the process.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or is invalid. The error names the file, the line and the
    /// deployment, but does not show any connection string.
    pub(super) fn open(
        path: &Path,
        clock: &Arc<dyn Clock>,
    ) -> Result<(Targets, Option<Self>), String> {
        let targets = read(path)?;
        let is_file = fs::metadata(path).is_ok_and(|it| it.is_file());
        let source = is_file.then(|| Self {
            path: path.to_owned(),
            clock: Arc::clone(clock),
            hangups: Box::new(exit::hangups()),
            seen: Ok(targets.clone()),
        });
        Ok((targets, source))
    }

    /// Reads the targets regularly, and when SIGHUP arrives. After SIGHUP, returns the targets at
    /// once; otherwise only after two equal readings, because a file that is written in place is
    /// incomplete for a moment. The second value is true if SIGHUP arrived.
    ///
    /// Compares the contents of the file instead of its metadata, which may stay the same because
    /// the clocks of file systems are coarse.
    pub(super) async fn next(&mut self) -> (Result<Targets, String>, bool) {
        loop {
            let pause = self.clock.sleep_until(self.clock.now() + PERIOD);
            let is_asked = select_biased! {
                () = self.hangups.select_next_some() => true,
                () = pin!(pause.fuse()) => false,
            };
            let path = self.path.clone();
            // Read on a separate thread, because the file may be on a network drive that does not
            // respond.
            let found = spawn_blocking(move || read(&path)).await;
            let found = found.unwrap_or_else(|error| Err(error.to_string()));
            let is_settled = found == self.seen;
            self.seen = found;
            if is_asked || is_settled {
                return (self.seen.clone(), is_asked);
            }
        }
    }
}

/// Formats the source as `--targets` with its file.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--targets {}", self.path.display())
    }
}

/// The metrics about the last reading of the targets. Their names resemble those of the metrics
/// that Prometheus has about its own configuration.
pub(super) struct Outcomes(Registry);

impl Outcomes {
    /// Creates the metrics for targets that have just been read, `invalid` of which cannot be
    /// watched.
    pub(super) fn new(invalid: usize, clock: &dyn Clock) -> Self {
        let registry = Registry::new(&[]);
        with_local_recorder(&registry, || {
            describe_gauge!(
                SUCCESSFUL,
                "1 if --targets could be used when it was last read, else 0."
            );
            describe_gauge!(INVALID, "Deployments of --targets that cannot be watched.");
            describe_gauge!(TIMESTAMP, "Time of the last successful reload of --targets.");
        });
        let outcomes = Self(registry);
        outcomes.set(Some(invalid), clock);
        outcomes
    }

    /// Updates the metrics with the outcome of reading the targets: the number of deployments that
    /// cannot be watched, or `None` if the file could not be used.
    pub(super) fn set(&self, invalid: Option<usize>, clock: &dyn Clock) {
        with_local_recorder(&self.0, || {
            gauge!(SUCCESSFUL).set(u8::from(invalid.is_some()));
            if let Some(invalid) = invalid {
                gauge!(INVALID).set(invalid as f64);
                gauge!(TIMESTAMP).set(clock.wall().as_millis() as f64 / 1000.0);
            }
        });
    }

    pub(super) fn page(&self) -> Page {
        self.0.page()
    }
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
/// If the text is not a valid TOML document, or contains no deployment. All errors, including those
/// about single deployments, name the file, the line and the deployment, but do not show any
/// connection string.
fn parse(text: &str, file: &str, folder: &Path) -> Result<Targets, String> {
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
            Ok(uri) => found.named.push(Named {
                name: Some(name.to_string()),
                uri,
                is_simulated: false,
                origin: Some(origin),
            }),
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
        (None, Some(file)) => files::read_uri("uriFile", &folder.join(file))?,
        (None, None) => return Err(format!("uri or uriFile is missing; add one: {EXAMPLE_FILE}")),
        (Some(_), Some(_)) => {
            return Err("uri and uriFile exclude each other; remove one".to_owned());
        }
    };
    match password_file {
        Some(file) => files::add_password(&uri, "passwordFile", &folder.join(file)),
        None => Ok(uri),
    }
}

fn read(path: &Path) -> Result<Targets, String> {
    let file = format!("--targets {}", path.display());
    let text = files::read_text(path).map_err(|error| cannot_read(&file, &error))?;
    parse(&text, &file, path.parent().unwrap_or(Path::new("")))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::CommandFactory;

    use super::*;
    use crate::{cli::Cli, export::Arguments};

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
