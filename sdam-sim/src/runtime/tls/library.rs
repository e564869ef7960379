//! A TLS library of the servers, in place of the simulated TLS.

use std::{fmt::Debug, io};

use super::TlsFault;
use crate::MemberId;

/// The servers' end of a TLS library, with which the program's end may use a real library in the
/// simulation. [`TlsServers::accept_by`](super::TlsServers::accept_by) takes it.
///
/// # Contract
///
/// The simulation holds its lock while it calls the methods, also those of [`TlsSession`]; they
/// must not call it back. For a seed to reproduce a run, the lengths of what they return must not
/// depend on chance. Signatures by Ed25519 have one length, those of most ECDSA implementations do
/// not.
pub trait TlsAcceptor: Debug + Send + Sync + 'static {
    /// Begins the handshake of a client that has connected to `member`.
    fn accept(&self, member: MemberId) -> Box<dyn TlsSession>;
}

/// The server's end of a connection.
pub trait TlsSession: Debug + Send {
    /// Takes bytes of the client, any part of a record or several, and returns the data in them.
    ///
    /// # Errors
    ///
    /// If the client is refused or sends nonsense. What [`outgoing`](Self::outgoing) then returns,
    /// such as an alert, is sent before the connection is closed.
    fn receive(&mut self, bytes: &[u8]) -> io::Result<Vec<u8>>;

    /// Encrypts data of the server for [`outgoing`](Self::outgoing), once the handshake is complete.
    fn send(&mut self, data: &[u8]);

    /// Takes the bytes that are to be sent to the client.
    fn outgoing(&mut self) -> Vec<u8>;

    /// Returns whether the handshake is not complete.
    fn is_handshaking(&self) -> bool;
}

/// A session, and the fault of its handshake.
#[derive(Debug)]
pub(super) struct Accepted {
    pub(super) session: Box<dyn TlsSession>,
    pub(super) fault: Option<TlsFault>,
}
