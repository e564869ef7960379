//! The deployment that a command line names.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use clap::Args;
use sdam::{Io, Options, Runtime, TopologyBuilder, dns::DnsResolver, transport::AddressTable};

use crate::{
    cli::name_server,
    failure::{Failure, cannot_read},
    input,
};

/// The deployment to connect to.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The connection string, mongodb://… or mongodb+srv://…, in quotes.
    #[arg(env = "SDAM_URI", hide_env_values = true)]
    pub uri: Option<String>,
    /// Read the connection string from FILE; from standard input if it is `-`.
    #[arg(long, value_name = "FILE", conflicts_with = "uri")]
    pub uri_file: Option<PathBuf>,
    /// Where to dial for members whose names lead nowhere from here, such as those behind a tunnel:
    /// mongo-0:27017=localhost:30001,mongo-1:27017=localhost:30002
    #[arg(long, value_name = "MEMBER=PLACE,...")]
    pub translate: Option<AddressTable>,
    /// The DNS server to ask for the records of a mongodb+srv string, instead of those of the system.
    #[arg(long, value_name = "IP:PORT", value_parser = name_server)]
    pub dns: Option<SocketAddr>,
}

impl Target {
    /// Names the deployment of a connection string.
    pub fn new(uri: &str) -> Self {
        Self {
            uri: Some(uri.to_owned()),
            uri_file: None,
            translate: None,
            dns: None,
        }
    }

    /// Returns the connection string; `None` if the command line names no deployment.
    pub(crate) fn uri(&self) -> Result<Option<String>, Failure> {
        let Some(path) = &self.uri_file else {
            return Ok(self.uri.clone());
        };
        let name = format!("--uri-file {}", path.display());
        let text = input::read_text(path);
        let text = text.map_err(|error| Failure::config(cannot_read(&name, &error)))?;
        match text.trim() {
            "" => Err(Failure::config(format!(
                "{name}: it is empty; it needs a line such as mongodb://localhost:27017"
            ))),
            uri => Ok(Some(uri.to_owned())),
        }
    }

    /// Returns the runtime of the calling context, with the DNS server of the command line.
    pub(crate) fn runtime(&self) -> Result<Runtime, Failure> {
        let mut runtime = sdam::runtime::tokio().map_err(Failure::other)?;
        if let Some(server) = self.dns {
            let resolver = DnsResolver::with_servers([server]);
            runtime.io = runtime.io.with_resolver(Arc::new(resolver));
        }
        Ok(runtime)
    }

    /// Parses the connection string `uri`, and looks up the records of a `mongodb+srv` string.
    pub(crate) async fn options(uri: &str, io: &Io) -> Result<Options, Failure> {
        let resolved = sdam::resolve(uri, io).await;
        resolved.map_err(|error| {
            if error.is_lookup() {
                Failure::other(error)
            } else {
                Failure::config(error)
            }
        })
    }

    /// Returns the builder of a topology that dials where the command line says.
    pub(crate) fn builder(&self, options: Options) -> TopologyBuilder {
        let builder = TopologyBuilder::new(options);
        match &self.translate {
            Some(table) => builder.translate(table.clone()),
            None => builder,
        }
    }
}

/// Hides the user names and passwords of connection strings in `text`.
pub(crate) fn redact(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("://") {
        let (before, after) = rest.split_at(start + 3);
        shown.push_str(before);
        let end = after
            .find(|letter: char| letter.is_whitespace() || letter == '\'')
            .unwrap_or(after.len());
        let (word, behind) = after.split_at(end);
        match word.rsplit_once('@') {
            Some((_, host)) => shown.extend(["***@", host]),
            None => shown.push_str(word),
        }
        rest = behind;
    }
    shown + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_names_and_passwords_are_hidden() {
        let check = |text: &str, expected: &str| assert_eq!(redact(text), expected);
        check("no string", "no string");
        check("'mongodb://a/?x=y'", "'mongodb://a/?x=y'");
        check(
            "error: 'mongodb://u:p@s@h:1/db' and mongodb+srv://v:w@i",
            "error: 'mongodb://***@h:1/db' and mongodb+srv://***@i",
        );
    }
}
