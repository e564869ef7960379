//! A SOCKS5 proxy: microsocks.

use std::net::TcpStream;
use std::ops::Deref;

use crate::daemon::Daemon;
use crate::debian::Package;
use crate::error::Error;

/// A SOCKS5 proxy on a loopback port (RFC 1928, RFC 1929). It resolves names with the system's
/// resolver.
///
/// Dropping it kills the process, which ends all connections through the proxy.
#[derive(Debug)]
pub struct Socks {
    package: Package,
    credentials: Option<[String; 2]>,
    daemon: Daemon,
}

impl Socks {
    /// Starts a proxy without authentication, and waits until it listens.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if microsocks is not installed and cannot be fetched; see
    /// [`or_skip`](crate::or_skip).
    pub fn start() -> Result<Self, Error> {
        Self::launch(None)
    }

    /// Starts a proxy that requires the given user name and password.
    pub fn start_secured(user: &str, password: &str) -> Result<Self, Error> {
        Self::launch(Some([user.to_owned(), password.to_owned()]))
    }

    fn launch(credentials: Option<[String; 2]>) -> Result<Self, Error> {
        let socks = Self {
            package: Package::find("microsocks", "microsocks")?,
            credentials,
            daemon: Daemon::new("microsocks")?,
        };
        socks.restart()?;
        Ok(socks)
    }

    /// Restarts the proxy on the same port; a running one is killed first.
    pub fn restart(&self) -> Result<(), Error> {
        let address = self.address();
        let mut command = self.package.command("microsocks");
        command.args(["-i", &address.ip().to_string()]);
        command.args(["-p", &address.port().to_string()]);
        if let Some([user, password]) = &self.credentials {
            command.args(["-u", user, "-P", password]);
        }
        let listens = || TcpStream::connect(address).is_ok();
        self.daemon.start(command, listens)
    }
}

impl Deref for Socks {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.daemon
    }
}
