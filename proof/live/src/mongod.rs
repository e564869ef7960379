//! A single server process, with its fail points, its key file, and a relay that can stop
//! forwarding.

use std::fmt;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use bson::{Bson, Document, doc};

use crate::client::Client;
use crate::daemon::Daemon;
use crate::debian;
use crate::error::{COMMAND_TIMEOUT, Error};
use crate::fetch::{Version, mongod_path, set_mode};
use crate::tls::{Certificates, ServerTls};

/// The settings that keep the journal of a test server small. With the default settings, a journal
/// takes 300 MB from the start.
const JOURNAL: &str =
    "log=(enabled=true,path=journal,compressor=snappy,file_max=1MB,prealloc=false)";

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
            arguments.extend(key_file(daemon.dir())?);
            arguments.extend(ITERATIONS.map(str::to_owned));
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
        self.wait(|| self.hello().map(Some)).map(drop)
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
        let mut command = Command::new(&self.executable);
        command
            .args(["--bind_ip", "127.0.0.1", "--nounixsocket", "--dbpath", "data"])
            .args(["--port", &self.address().port().to_string()])
            .args(["--wiredTigerCacheSizeGB", "0.25"])
            .args(["--wiredTigerEngineConfigString", JOURNAL])
            .args(["--setParameter", "enableTestCommands=1"])
            // Without this, each server would have a sampling thread, and these threads would cause
            // most of the load.
            .args(["--setParameter", "diagnosticDataCollectionEnabled=false"])
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        self.daemon.spawn(&mut command)
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

/// The settings of the fail point `failCommand`. They determine which commands fail, how they fail,
/// and how often.
///
/// The fail point lasts until it is disabled, unless [`FailCommand::times`] is set. The command
/// name `isMaster` selects legacy hello in both spellings; name it together with `hello` to affect
/// every check.
#[derive(Clone, Debug)]
#[must_use]
pub struct FailCommand {
    mode: Bson,
    data: Document,
}

impl FailCommand {
    /// Creates settings that make the given commands fail. Other methods determine how they fail.
    pub fn new<'a>(commands: impl IntoIterator<Item = &'a str>) -> Self {
        let commands: Vec<_> = commands.into_iter().map(Bson::from).collect();
        Self { mode: "alwaysOn".into(), data: doc! { "failCommands": commands } }
    }

    /// Ends the fail point after the given number of failures.
    pub fn times(mut self, times: i32) -> Self {
        self.mode = doc! { "times": times }.into();
        self
    }

    /// Restricts the fail point to connections whose handshake named this application. This needs a
    /// server of version 4.4 or newer, because 4.2 does not distinguish applications. Before 5.0,
    /// the handshake itself never fails.
    ///
    /// Without this restriction, the selected commands also fail for the clients of this crate.
    pub fn app_name(self, name: &str) -> Self {
        self.with("appName", name)
    }

    /// Makes the server answer with the error code `code`.
    pub fn error_code(self, code: i32) -> Self {
        self.with("errorCode", code)
    }

    /// Makes the server close the connection instead of answering.
    pub fn close_connection(self) -> Self {
        self.with("closeConnection", true)
    }

    /// Delays the reply by `time`, in whole milliseconds (4.4 and newer).
    pub fn block_for(self, time: Duration) -> Self {
        let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        self.with("blockConnection", true).with("blockTimeMS", millis)
    }

    fn with(mut self, key: &str, value: impl Into<Bson>) -> Self {
        self.data.insert(key, value);
        self
    }
}

/// The guard of a fail point. The fail point is enabled until the guard is dropped or the server
/// dies.
#[derive(Debug)]
#[must_use = "dropping it disables the fail point"]
pub struct FailPoint<'a> {
    mongod: &'a Mongod,
    name: String,
    enabled: bool,
}

impl FailPoint<'_> {
    /// Disables the fail point and returns how often it was triggered, if the server counts it (4.4
    /// and newer).
    pub fn disable(mut self) -> Result<Option<i64>, Error> {
        let reply = self.turn_off()?;
        Ok(match reply.get("count") {
            Some(Bson::Int32(count)) => Some(i64::from(*count)),
            Some(Bson::Int64(count)) => Some(*count),
            _ => None,
        })
    }

    fn turn_off(&mut self) -> Result<Document, Error> {
        self.enabled = false;
        let off = doc! { "configureFailPoint": &self.name, "mode": "off" };
        self.mongod.run_command("admin", off)
    }
}

impl Drop for FailPoint<'_> {
    fn drop(&mut self) {
        // If the server is stopped, the command would block the thread that drops the guard until
        // the command times out.
        if self.enabled && self.mongod.is_responsive() {
            let _ = self.turn_off();
        }
    }
}

impl Mongod {
    /// Enables `failCommand`.
    pub fn fail_command(&self, fail: FailCommand) -> Result<FailPoint<'_>, Error> {
        self.fail_point("failCommand", fail.mode, fail.data)
    }

    /// Enables the fail point `name`, which can be any fail point of the server.
    pub fn fail_point(
        &self,
        name: &str,
        mode: impl Into<Bson>,
        data: Document,
    ) -> Result<FailPoint<'_>, Error> {
        let on = doc! { "configureFailPoint": name, "mode": mode.into(), "data": data };
        self.run_command("admin", on)?;
        Ok(FailPoint { mongod: self, name: name.to_owned(), enabled: true })
    }
}

/// A relay on its own loopback port.
///
/// While it is on hold, it forwards nothing and closes nothing, like a firewall that drops packets.
/// It accepts connections, and keeps all bytes that arrive on new and old connections.
/// [`Relay::release`] forwards these bytes, as if their sender retransmitted them.
#[derive(Debug)]
struct Relay {
    address: SocketAddr,
    gate: Arc<Gate>,
}

impl Relay {
    /// Starts a relay that forwards connections to the address `to`.
    fn start(to: SocketAddr) -> Result<Self, Error> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let listener = listener.map_err(Error::io("binding a relay"))?;
        let address = listener.local_addr().map_err(Error::io("binding a relay"))?;
        let gate = Arc::new(Gate::default());
        let passed = Arc::clone(&gate);
        thread::spawn(move || {
            for client in listener.incoming() {
                if passed.is_closed() {
                    return;
                }
                let gate = Arc::clone(&passed);
                // A connection that cannot be relayed is closed, just like a connection to a dead
                // server.
                thread::spawn(move || client.and_then(|client| relay(client, to, &gate)));
            }
        });
        Ok(Self { address, gate })
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops forwarding until [`release`](Self::release) is called.
    fn hold(&self) {
        self.gate.set(State::Holding);
    }

    /// Resumes forwarding, beginning with the bytes that arrived in the meantime.
    fn release(&self) {
        self.gate.set(State::Forwarding);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.gate.set(State::Closed);
        // Wakes the thread that accepts connections.
        let _ = TcpStream::connect(self.address);
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Forwarding,
    Holding,
    Closed,
}

#[derive(Debug, Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

impl Gate {
    fn set(&self, state: State) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
        self.changed.notify_all();
    }

    fn is_closed(&self) -> bool {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) == State::Closed
    }

    fn pass(&self) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_holding = |state: &mut State| *state == State::Holding;
        drop(self.changed.wait_while(state, is_holding));
    }
}

/// Forwards the bytes of both directions until both have ended.
fn relay(client: TcpStream, to: SocketAddr, gate: &Arc<Gate>) -> io::Result<()> {
    gate.pass();
    let server = TcpStream::connect(to)?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    let (from, into) = (client.try_clone()?, server.try_clone()?);
    let requests = Arc::clone(gate);
    thread::spawn(move || forward(from, into, &requests));
    forward(server, client, gate);
    Ok(())
}

fn forward(mut from: TcpStream, mut into: TcpStream, gate: &Gate) {
    let mut buffer = [0; 16 * 1024];
    loop {
        let length = from.read(&mut buffer).unwrap_or_default();
        gate.pass();
        if length == 0 || into.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    // Errors are ignored, because either socket may already be closed.
    let _ = into.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}

/// The name and the password of the user that a secured server initially has in `admin`.
pub const ROOT: (&str, &str) = ("root", "root");

/// The shared secret of a set's members.
const KEY: &str = "c2RhbS1saXZl";

/// The arguments that set the iteration counts of new passwords to the minimum that the server
/// accepts. With the default counts, authentication takes too long for clients in debug builds.
const ITERATIONS: [&str; 4] = [
    "--setParameter",
    "scramIterationCount=5000",
    "--setParameter",
    "scramSHA256IterationCount=5000",
];

/// Writes the key file, which makes a server require authentication. Returns the arguments that
/// tell the server the name of the file.
fn key_file(dir: &Path) -> Result<[String; 2], Error> {
    let path = dir.join("key");
    let failed = || Error::io("writing a key file");
    fs::write(&path, KEY).map_err(failed())?;
    // The server refuses a key file that others can read.
    set_mode(&path, 0o600).map_err(failed())?;
    Ok(["--keyFile".to_owned(), path.display().to_string()])
}
