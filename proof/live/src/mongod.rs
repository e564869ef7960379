//! A single server process.

use std::fmt;
use std::fs;
use std::ops::Deref;
use std::path::PathBuf;
use std::process::{self, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use bson::{Document, doc};

use crate::certificates::Certificates;
use crate::client::Client;
use crate::daemon::Daemon;
use crate::debian;
use crate::error::Error;
use crate::locate::mongod_path;
use crate::relay::Relay;
use crate::security::{self, ROOT};
use crate::tls::ServerTls;
use crate::version::Version;
use crate::wait::{COMMAND_TIMEOUT, poll};

/// The settings that keep the journal of a test server small. With the default settings, a journal
/// takes 300 MB from the start.
const JOURNAL: &str =
    "log=(enabled=true,path=journal,compressor=snappy,file_max=1MB,prealloc=false)";

/// The number of log lines that are quoted if a server exits.
const QUOTED_LINES: usize = 12;

/// A `mongod` on its own loopback port.
///
/// Dropping it kills the process and removes the data. If the thread is panicking, the log is kept
/// below `target/live`, and the path of the log is printed on standard error.
pub struct Mongod {
    executable: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
    /// The certificates of clients, if the server requires TLS.
    certificates: Option<Arc<Certificates>>,
    daemon: Daemon,
    /// The relay through which clients and other members reach the server, if it has one.
    relay: Option<Relay>,
    /// True if the server has the user [`ROOT`], with which clients authenticate.
    has_root: AtomicBool,
}

impl Mongod {
    /// Starts a standalone server and waits until it answers.
    pub fn start(version: impl Into<Option<Version>>) -> Result<Self, Error> {
        Self::start_with(version, &[])
    }

    /// Starts a server with additional command line arguments and waits until it answers.
    ///
    /// # Errors
    /// Returns [`Error::Unavailable`] if there is no binary, and [`Error::Exited`] if the binary
    /// rejects the arguments.
    pub fn start_with(
        version: impl Into<Option<Version>>,
        arguments: &[&str],
    ) -> Result<Self, Error> {
        let mongod = Self::launch(version, arguments, false, None)?;
        mongod.wait_until_ready()?;
        Ok(mongod)
    }

    /// Starts a standalone server that refuses all commands on unauthenticated connections, and
    /// creates the user [`ROOT`]. The [clients](Self::client) of this value are authenticated.
    pub fn start_secured(version: impl Into<Option<Version>>) -> Result<Self, Error> {
        let mongod = Self::launch(version, &[], true, None)?;
        mongod.wait_until_ready()?;
        mongod.create_root()?;
        mongod.trust_root();
        Ok(mongod)
    }

    /// Starts a standalone server that requires TLS. The [clients](Self::client) of this value use
    /// TLS.
    ///
    /// # Errors
    /// Returns the errors of [`Mongod::start_with`]. Also returns [`Error::Unavailable`] if the
    /// certificate is only valid on another date and libfaketime is missing.
    pub fn start_tls(version: impl Into<Option<Version>>, tls: &ServerTls) -> Result<Self, Error> {
        let mongod = Self::launch(version, &[], false, Some(tls))?;
        mongod.wait_until_ready()?;
        Ok(mongod)
    }

    /// Starts the process without waiting for it; [`Mongod::wait_until_ready`] must be called next.
    /// A secured server refuses all commands on unauthenticated connections.
    pub(crate) fn launch(
        version: impl Into<Option<Version>>,
        arguments: &[&str],
        is_secured: bool,
        tls: Option<&ServerTls>,
    ) -> Result<Self, Error> {
        let executable = mongod_path(version)?;
        let daemon = Daemon::new("mongod")?;
        fs::create_dir(daemon.dir().join("data")).map_err(Error::io("creating a directory"))?;
        let arguments = arguments.iter().map(|&argument| argument.to_owned());
        let mut arguments: Vec<String> = arguments.collect();
        if is_secured {
            arguments.extend(security::key_file(daemon.dir())?);
            arguments.extend(security::ITERATIONS.map(str::to_owned));
        }
        let mut environment = Vec::new();
        if let Some(tls) = tls {
            arguments.extend(tls.arguments());
            environment = clock(tls)?;
        }
        let mongod = Self {
            executable,
            arguments,
            environment,
            certificates: tls.map(|tls| Arc::clone(&tls.certificates)),
            daemon,
            relay: None,
            has_root: AtomicBool::new(false),
        };
        mongod.spawn()?;
        Ok(mongod)
    }

    /// Waits until the process answers commands.
    ///
    /// # Errors
    /// [`Error::Exited`] if the process ends.
    pub(crate) fn wait_until_ready(&self) -> Result<(), Error> {
        poll("a server to answer", || match self.process().ended() {
            Some(status) => {
                Err(Error::Exited(format!("mongod exited: {status}\n{}", self.log_tail())))
            }
            None => self.hello().map(Some),
        })
        .map(drop)
    }

    /// Makes other members and clients reach the server through a relay.
    pub(crate) fn start_relay(&mut self) -> Result<(), Error> {
        self.relay = Some(Relay::start(self.address())?);
        Ok(())
    }

    /// Returns the address as it is written in replica set configurations: `127.0.0.1:PORT`. The
    /// port is that of the relay if there is one.
    pub fn host(&self) -> String {
        self.relay.as_ref().map_or(self.address(), Relay::address).to_string()
    }

    /// Drops all packets between the server and its clients or other members, except on connections
    /// that the server opens. Works only in a set [with relays](crate::ReplicaSetBuilder::relayed).
    pub fn cut_off(&self) -> Result<(), Error> {
        self.relay().map(Relay::hold)
    }

    /// Ends the effect of [`Mongod::cut_off`]. Bytes that were sent in the meantime arrive.
    pub fn reconnect(&self) -> Result<(), Error> {
        self.relay().map(Relay::release)
    }

    fn relay(&self) -> Result<&Relay, Error> {
        let none = || Error::State(format!("{} has no relay", self.host()));
        self.relay.as_ref().ok_or_else(none)
    }

    /// Returns a connection string for a direct connection to the server.
    pub fn uri(&self) -> String {
        format!("mongodb://{}/?directConnection=true", self.address())
    }

    /// Returns the path of the log file.
    pub fn log(&self) -> PathBuf {
        self.dir().join("mongod.log")
    }

    /// Opens a new connection, authenticated as [`ROOT`] if the server has that user.
    pub fn client(&self) -> Result<Client, Error> {
        let mut client = self.connect(COMMAND_TIMEOUT)?;
        if self.has_root.load(Ordering::Relaxed) {
            let (user, password) = ROOT;
            client.authenticate(user, password)?;
        }
        Ok(client)
    }

    /// Opens a new connection without authentication.
    pub(crate) fn connect(&self, timeout: Duration) -> Result<Client, Error> {
        Client::open(self.address(), timeout, self.certificates.as_deref())
    }

    /// Creates the user [`ROOT`]. The server permits this without authentication while it has no
    /// users (the "localhost exception").
    pub(crate) fn create_root(&self) -> Result<(), Error> {
        let (user, password) = ROOT;
        let create = doc! { "createUser": user, "pwd": password, "roles": ["root"] };
        self.run_command("admin", create).map(drop)
    }

    /// Authenticates all later clients as [`ROOT`].
    pub(crate) fn trust_root(&self) {
        self.has_root.store(true, Ordering::Relaxed);
    }

    /// Runs a command on a new connection; see [`Client::run_command`].
    pub fn run_command(&self, database: &str, command: Document) -> Result<Document, Error> {
        self.client()?.run_command(database, command)
    }

    /// Returns the hello reply of the server; see [`Client::hello`].
    pub fn hello(&self) -> Result<Document, Error> {
        self.client()?.hello()
    }

    /// Kills the server with SIGKILL and waits for its end. Does nothing if the server is already
    /// dead.
    ///
    /// A responsive server makes a checkpoint first, because a server killed before its first
    /// checkpoint may not start again.
    pub fn kill(&self) -> Result<(), Error> {
        if self.is_responsive() {
            // Errors are ignored, because a server that does not answer is killed as well.
            let _ = self.run_command("admin", doc! { "fsync": 1 });
        }
        self.daemon.kill()
    }

    /// Restarts the server on the same port and data, and waits until it answers. A running server
    /// is killed first. Members of a set may need longer to be primary or secondary again.
    pub fn restart(&self) -> Result<(), Error> {
        self.kill()?;
        self.spawn()?;
        self.wait_until_ready()
    }

    fn spawn(&self) -> Result<(), Error> {
        let output = fs::File::options()
            .create(true)
            .append(true)
            .open(self.dir().join("output"))
            .map_err(Error::io("creating a file"))?;
        let mut command = Command::new(&self.executable);
        command
            .args(["--bind_ip", "127.0.0.1", "--nounixsocket", "--logappend"])
            .args(["--port", &self.address().port().to_string()])
            .arg("--dbpath")
            .arg(self.data())
            .arg("--logpath")
            .arg(self.log())
            .args(["--wiredTigerCacheSizeGB", "0.25"])
            .args(["--wiredTigerEngineConfigString", JOURNAL])
            .args(["--setParameter", "enableTestCommands=1"])
            // Without this, each server would have a sampling thread, and these threads would cause
            // most of the load.
            .args(["--setParameter", "diagnosticDataCollectionEnabled=false"])
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stderr(output.try_clone().map_or(Stdio::null(), Stdio::from))
            .stdout(output);
        let doing = format!("starting {}", self.executable.display());
        self.process().spawn(&mut command).map_err(Error::io(doing))
    }

    fn data(&self) -> PathBuf {
        self.dir().join("data")
    }

    fn log_tail(&self) -> String {
        let read = |path| fs::read(path).unwrap_or_default();
        let mut text = read(self.log());
        text.append(&mut read(self.dir().join("output")));
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<_> = text.lines().collect();
        // When a server aborts, its log ends with a stack trace, and the cause is logged far above
        // it.
        let fatal = lines.iter().find(|line| is_fatal(line));
        let last = lines.get(lines.len().saturating_sub(QUOTED_LINES)..);
        let quoted: Vec<_> = fatal.into_iter().chain(last.unwrap_or_default()).copied().collect();
        quoted.join("\n")
    }
}

impl Deref for Mongod {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.daemon
    }
}

impl Drop for Mongod {
    fn drop(&mut self) {
        if thread::panicking() {
            let kept = format!("mongod-{}-{}.log", process::id(), self.address().port());
            let kept = self.dir().with_file_name(kept);
            if fs::rename(self.log(), &kept).is_ok() {
                eprintln!("the log of {} is in {}", self.address(), kept.display());
            }
        }
    }
}

impl fmt::Debug for Mongod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mongod").field("address", &self.address()).finish_non_exhaustive()
    }
}

/// Returns whether a log line has the severity "fatal". The severity is a JSON field or, before
/// 4.4, the second word.
fn is_fatal(line: &str) -> bool {
    line.contains("\"s\":\"F\"") || line.split_whitespace().nth(1) == Some("F")
}

/// Returns the environment variables that set the clock to the date that the certificate requires.
fn clock(tls: &ServerTls) -> Result<Vec<(&'static str, String)>, Error> {
    let Some(day) = tls.certificate.day() else {
        return Ok(Vec::new());
    };
    let library = debian::library("libfaketime", "faketime/libfaketimeMT.so.1")?;
    Ok(vec![
        ("LD_PRELOAD", library.display().to_string()),
        ("FAKETIME", day.to_owned()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
    ])
}
