//! Servers that each run as one process on a loopback port.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::TempDir;

use crate::error::Error;
use crate::port::Port;
use crate::process::Process;
use crate::wait::poll;
use crate::workdir::work_dir;

/// The process of a server, with its port and its directory. Dropping it kills the process, which
/// ends all connections to or through the server, and removes the directory.
#[derive(Debug)]
pub struct Daemon {
    name: &'static str,
    port: Port,
    // This field is declared before the directory, so that the process is killed before the
    // directory is removed.
    process: Mutex<Process>,
    dir: TempDir,
}

impl Daemon {
    /// Reserves a port and creates the directory; [`Daemon::start`] must follow.
    pub(crate) fn new(name: &'static str) -> Result<Self, Error> {
        let dir = work_dir(name).map_err(Error::io("creating a directory"))?;
        let process = Process::guarded(dir.path()).map_err(Error::io("starting `sh`"))?;
        Ok(Self { name, port: Port::reserve()?, process: Mutex::new(process), dir })
    }

    /// Returns the loopback address of the server, for TCP and UDP.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Starts the process and waits until `is_ready` returns true; a running process is killed
    /// first.
    ///
    /// # Errors
    /// [`Error::Exited`] if the process ends.
    pub(crate) fn start(
        &self,
        mut command: Command,
        is_ready: impl Fn() -> bool,
    ) -> Result<(), Error> {
        self.kill()?;
        let failed = || Error::io(format!("starting {}", self.name));
        let path = self.dir().join("output");
        let output = fs::File::create(&path).map_err(failed())?;
        command
            .current_dir(self.dir())
            .stderr(output.try_clone().map_err(failed())?)
            .stdout(output);
        self.process().spawn(&mut command).map_err(failed())?;
        poll("a server to listen", || {
            if let Some(status) = self.process().ended() {
                let output = fs::read_to_string(&path).unwrap_or_default();
                let name = self.name;
                return Err(Error::Exited(format!("{name} exited: {status}\n{output}")));
            }
            Ok(is_ready().then_some(()))
        })
    }

    /// Returns whether the process runs and is not paused by [`sigstop`](Self::sigstop).
    pub fn is_responsive(&self) -> bool {
        self.process().is_responsive()
    }

    /// Kills the process with SIGKILL and waits for its end. Does nothing if the process is already
    /// dead.
    pub fn kill(&self) -> Result<(), Error> {
        let doing = format!("killing {}", self.name);
        self.process().kill().map_err(Error::io(doing))
    }

    /// Freezes the server: its sockets stay open, but it does not answer.
    pub fn sigstop(&self) -> Result<(), Error> {
        self.signal("STOP")
    }

    /// Resumes the server after [`sigstop`](Self::sigstop). The server then answers the requests
    /// that arrived in the meantime.
    pub fn sigcont(&self) -> Result<(), Error> {
        self.signal("CONT")
    }

    fn signal(&self, name: &str) -> Result<(), Error> {
        let doing = format!("sending SIG{name} to {}", self.name);
        self.process().signal(name).map_err(Error::io(doing))
    }

    pub(crate) fn process(&self) -> MutexGuard<'_, Process> {
        // A panic elsewhere cannot leave the process in an inconsistent state.
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
