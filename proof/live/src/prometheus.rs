//! A Prometheus server.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Output, Stdio};

use crate::daemon::Daemon;
use crate::debian::Package;
use crate::error::Error;

/// A Prometheus server on a loopback port, with its data in a temporary directory.
///
/// Dropping it kills the process.
#[derive(Debug)]
pub struct Prometheus {
    package: Package,
    daemon: Daemon,
}

impl Prometheus {
    /// Starts a server with the given configuration, which is in YAML, and waits until the server
    /// answers.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if Prometheus is not installed and cannot be fetched; see
    /// [`or_skip`](crate::or_skip).
    pub fn start(configuration: &str) -> Result<Self, Error> {
        let server = Self {
            package: Package::find("prometheus", "prometheus")?,
            daemon: Daemon::new("prometheus")?,
        };
        let path = server.daemon.dir().join("prometheus.yml");
        fs::write(path, configuration).map_err(Error::io("writing prometheus.yml"))?;
        let mut command = server.package.command("prometheus");
        command.args([
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=data",
            &format!("--web.listen-address={}", server.daemon.address()),
        ]);
        let ready = || server.get("/-/ready").is_ok_and(|answer| answer.contains(" 200 "));
        server.daemon.start(command, ready)?;
        Ok(server)
    }

    /// Returns the result of a PromQL query as JSON.
    pub fn query(&self, query: &str) -> Result<String, Error> {
        let target = query.bytes().fold("/api/v1/query?query=".to_owned(), |target, byte| {
            target + &format!("%{byte:02X}")
        });
        let answer = self.get(&target)?;
        let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        Ok(body.to_owned())
    }

    /// Runs `promtool` in a directory, with `input` as standard input. This does not require a
    /// running server.
    ///
    /// # Errors
    /// The errors of [`start`](Self::start).
    pub fn promtool(directory: &Path, arguments: &[&str], input: &str) -> Result<Output, Error> {
        let mut command = Package::find("prometheus", "promtool")?.command("promtool");
        let mut run = || {
            let mut child = command
                .current_dir(directory)
                .args(arguments)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()?;
            if let Some(mut pipe) = child.stdin.take() {
                pipe.write_all(input.as_bytes())?;
            }
            child.wait_with_output()
        };
        run().map_err(Error::io("running promtool"))
    }

    /// Returns the head and body of a response. Uses HTTP 1.0, in which responses are not chunked.
    fn get(&self, target: &str) -> Result<String, Error> {
        let address: SocketAddr = self.daemon.address();
        let ask = || {
            let mut stream = TcpStream::connect(address)?;
            write!(stream, "GET {target} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).map(|_| answer)
        };
        ask().map_err(Error::io("asking Prometheus"))
    }
}
