//! The deployment given on a command line.

use std::{
    ffi::OsStr,
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use clap::Args;
use sdam::{ConfigError, Options, Runtime, TopologyBuilder, dns::DnsResolver, runtime::Backend};
use sdam_sim::{Served, serve::ServeError};
use sdam_transport::layers::AddressTable;
use tokio::time::timeout;

use crate::{cli::name_server, exit::Failure, files};

/// The deployment to connect to.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The connection string, mongodb://… or mongodb+srv://…, in quotes; by default the value of
    /// the variable SDAM_URI.
    pub uri: Option<String>,
    /// Read the connection string from FILE; from standard input if it is `-`.
    #[arg(long, value_name = "FILE", conflicts_with = "uri")]
    pub uri_file: Option<PathBuf>,
    /// Read the password of the connection string's user from FILE; from standard input if it is
    /// `-`. It is not percent-encoded.
    #[arg(long, value_name = "FILE", conflicts_with = "demo")]
    pub password_file: Option<PathBuf>,
    /// Simulate the deployment: a replica set on loopback, which acknowledges writes but stores
    /// nothing.
    #[arg(long)]
    pub demo: bool,
    /// Addresses to dial for members whose names are not reachable from here, such as those behind
    /// a tunnel: mongo-0:27017=localhost:30001,mongo-1:27017=localhost:30002
    #[arg(long, value_name = "MEMBER=PLACE,...")]
    pub translate: Option<AddressTable>,
    /// DNS server for the records of a mongodb+srv string, instead of the system's.
    #[arg(long, value_name = "IP:PORT", value_parser = name_server)]
    pub dns: Option<SocketAddr>,
}

impl Target {
    /// Creates the target for a connection string.
    pub fn new(uri: &str) -> Self {
        Self { uri: Some(uri.to_owned()), ..Self::default() }
    }

    /// Creates the target for a simulated deployment.
    pub fn demo() -> Self {
        Self { demo: true, ..Self::default() }
    }

    /// Takes the connection string from `variable`, the value of SDAM_URI, unless the command line
    /// specifies a deployment. An empty variable counts as unset.
    pub(crate) fn or_variable(&mut self, variable: Option<&OsStr>) -> Result<(), Failure> {
        let is_given = self.uri.is_some() || self.uri_file.is_some() || self.demo;
        let Some(value) = variable.filter(|value| !is_given && !value.is_empty()) else {
            return Ok(());
        };
        // The message omits the value, which may contain a password.
        let uri = value.to_str().ok_or_else(|| {
            Failure::config("SDAM_URI: it is not valid UTF-8; set it to a line such as mongodb://localhost:27017")
        })?;
        self.uri = Some(uri.to_owned());
        Ok(())
    }

    /// Returns the connection string, or `None` if a simulated deployment is requested.
    ///
    /// A deployment is simulated only on request. If it were the default, a user who misspells the
    /// variable would observe or write to a deployment that does not exist, without noticing.
    pub(crate) fn uri(&self) -> Result<Option<String>, Failure> {
        let uri = match (&self.uri, &self.uri_file) {
            (None, None) if self.demo => return Ok(None),
            (None, None) => {
                return Err(Failure::config(
                    "there is no connection string: give one as the argument URI, set the variable \
                     SDAM_URI, or use --uri-file; --demo asks for a simulated deployment",
                ));
            }
            _ if self.demo => {
                return Err(Failure::config(
                    "--demo: use it or a connection string (the argument URI, --uri-file), not both",
                ));
            }
            (Some(uri), None) => Ok(uri.clone()),
            (_, Some(path)) => files::read_uri("--uri-file", path),
        };
        let uri = uri.map_err(Failure::config)?;
        match &self.password_file {
            Some(path) => {
                let uri = files::add_password(&uri, "--password-file", path);
                uri.map(Some).map_err(Failure::config)
            }
            None => Ok(Some(uri)),
        }
    }

    /// Returns the connection string. If a simulated deployment is requested, starts the deployment
    /// with `simulate`, and returns it as well.
    pub(crate) fn deployment(
        &self,
        simulate: impl FnOnce() -> Result<Served, ServeError>,
    ) -> Result<(String, Option<Served>), Failure> {
        if let Some(uri) = self.uri()? {
            return Ok((uri, None));
        }
        let set = simulate().map_err(Failure::other)?;
        Ok((set.uri().to_owned(), Some(set)))
    }

    /// Returns a note that the deployment at `uri` is simulated.
    pub(crate) fn simulation(uri: &str) -> String {
        format!("a simulated replica set, for any client: {uri}")
    }

    /// Returns a runtime for the calling context. It uses the DNS server that the command line
    /// names.
    pub(crate) fn runtime(&self) -> Result<Runtime, Failure> {
        let mut runtime = sdam::runtime::tokio().map_err(Failure::other)?;
        if let Some(server) = self.dns {
            let resolver = DnsResolver::with_servers([server]);
            runtime.backend.resolver = Some(Arc::new(resolver));
        }
        Ok(runtime)
    }

    /// Parses `uri` like [`options`](Self::options), but within `limit`. The remaining time becomes
    /// the limit for server selection.
    pub(crate) async fn options_within(
        uri: &str,
        backend: &Backend,
        limit: Option<Duration>,
    ) -> Result<Options, Failure> {
        let Some(limit) = limit else {
            return Self::options(uri, backend).await;
        };
        let begun = Instant::now();
        let options = timeout(limit, Self::options(uri, backend)).await;
        let mut options = options.map_err(|_| {
            Failure::other(format_args!(
                "the records of the mongodb+srv string: no answer within {limit:?}; check the DNS \
                 server, or raise --timeout"
            ))
        })??;
        options.server_selection_timeout = limit.saturating_sub(begun.elapsed());
        Ok(options)
    }

    /// Parses the connection string `uri`, and looks up the DNS records for a `mongodb+srv` string.
    pub(crate) async fn options(uri: &str, backend: &Backend) -> Result<Options, Failure> {
        let resolved = sdam::resolve(uri, backend).await;
        resolved.map_err(|error| match error.source_as::<ConfigError>() {
            Some(error) => Failure::config(error),
            None => Failure::other(format_args!("{error:#}")),
        })
    }

    /// Returns a builder for a topology that translates addresses as specified on the command line.
    pub(crate) fn builder(&self, options: Options) -> TopologyBuilder {
        let builder = TopologyBuilder::new(options);
        match &self.translate {
            Some(table) => builder.translate(table.clone()),
            None => builder,
        }
    }
}

/// The names of connection string options whose values are secret, in lower case.
const SECRET_OPTIONS: &[&str] = &[
    "authmechanismproperties",
    "proxypassword",
    "sslclientcertificatekeypassword",
    "sslpemkeypassword",
    "tlscertificatekeyfilepassword",
];

/// Hides the user names, passwords and secret options of connection strings in `text`.
///
/// A password may contain any character, even `://`. The line is therefore split at each `://`. In
/// each part but the first, everything up to the last `@` is hidden. A part without `@` is hidden
/// if a later part has one, because it may be the beginning of a password. Hosts are also hidden if
/// a port is not a number, because it may be a password.
pub(crate) fn redact(text: &str) -> String {
    text.split_inclusive('\n').map(redact_line).collect()
}

fn redact_line(line: &str) -> String {
    let parts: Vec<_> = line.split("://").collect();
    let secret = parts.iter().rposition(|part| part.contains('@'));
    let hide = |(index, part): (usize, &&str)| match part.rsplit_once('@') {
        _ if index == 0 => (*part).to_owned(),
        Some((_, host)) => format!("***@{host}"),
        None if secret.is_some_and(|secret| index < secret) => "***".to_owned(),
        None => (*part).to_owned(),
    };
    let shown = parts.iter().enumerate().map(hide);
    let shown: Vec<_> = shown.enumerate().map(|(index, part)| hide_rest(index, &part)).collect();
    shown.join("://")
}

/// Hides secret options in part `index` of a line that is split at `://`. In all parts but the
/// first, also hides hosts with an invalid port.
fn hide_rest(index: usize, part: &str) -> String {
    let end = part.find(['/', '?', ' ', '\'', '"', '`', '\n']).unwrap_or(part.len());
    let (hosts, rest) = part.split_at(end);
    let is_odd = |host: &str| {
        let number = host.rsplit_once(':').map_or("", |(_, number)| number);
        !host.starts_with('[') && !number.chars().all(|digit| digit.is_ascii_digit())
    };
    let hosts = match index {
        0 => hosts,
        _ if hosts.split(',').any(is_odd) => "***",
        _ => hosts,
    };
    let options = rest.split_inclusive(['?', '&', ';', ' ', '\'', '"', '`', '\n']);
    let options = options.map(|option| match option.split_once('=') {
        Some((name, value)) if SECRET_OPTIONS.contains(&&*name.to_ascii_lowercase()) => {
            let last = value.chars().last().filter(|last| "?&; '\"`\n".contains(*last));
            format!("{name}=***{}", last.map(String::from).unwrap_or_default())
        }
        _ => option.to_owned(),
    });
    format!("{hosts}{}", options.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_is_used_if_the_command_line_has_no_deployment() {
        let check = |mut target: Target, variable: Option<&str>, uri: Option<&str>| {
            target.or_variable(variable.map(OsStr::new)).unwrap();
            assert_eq!(target.uri.as_deref(), uri, "{target:?}");
        };
        let file = || Target { uri_file: Some("file".into()), ..Target::default() };
        check(Target::default(), Some("mongodb://a"), Some("mongodb://a"));
        check(Target::default(), Some(""), None);
        check(Target::default(), None, None);
        check(Target::new("mongodb://b"), Some("mongodb://a"), Some("mongodb://b"));
        check(file(), Some("mongodb://a"), None);
        check(Target::demo(), Some("mongodb://a"), None);
    }

    #[test]
    fn user_names_and_passwords_are_hidden() {
        let check = |text: &str, expected: &str| assert_eq!(redact(text), expected);
        check("no string", "no string");
        check("'mongodb://a/?x=y'", "'mongodb://a/?x=y'");
        check(
            "error: 'mongodb://u:p@s@h:1/db' and mongodb+srv://v:w@i",
            "error: 'mongodb://***@h:1/db' and mongodb+srv://***@i",
        );
        for password in ["it's", "p w", "p/w", "p\"w", "p@w"] {
            let text = format!("a@b: mongodb://u:{password}@h/db\nmongodb://i");
            check(&text, "a@b: mongodb://***@h/db\nmongodb://i");
        }
        check("mongodb://u:p://w@h", "mongodb://***://***@h");
    }

    #[test]
    fn secret_options_and_what_may_be_a_password_without_a_user_are_hidden() {
        let check = |text: &str, expected: &str| assert_eq!(redact(text), expected);
        check(
            "'mongodb://h:1/?proxyPassword=a&w=1&TLSCertificateKeyFilePassword=b'",
            "'mongodb://h:1/?proxyPassword=***&w=1&TLSCertificateKeyFilePassword=***'",
        );
        check(
            "mongodb://u:p@h/?authMechanismProperties=AWS_SESSION_TOKEN:t&x=y\n",
            "mongodb://***@h/?authMechanismProperties=***&x=y\n",
        );
        check("error: mongodb://user:secret is", "error: mongodb://*** is");
        check("mongodb://u:12ab,h/db", "mongodb://***/db");
        for whole in ["mongodb://h:27017,[::1]:1,[fe80::a]/?w=1", "http://127.0.0.1:4318/v1"] {
            check(whole, whole);
        }
    }
}
