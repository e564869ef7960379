//! The traits that a TLS library for the servers implements.

use std::{fmt::Debug, io};

use super::Certificate;
use crate::MemberId;

/// The server side of a TLS library. Set it with
/// [`TlsServers::accept_by`](super::TlsServers::accept_by).
pub trait TlsAcceptor: Debug + Send + Sync + 'static {
    /// Begins the handshake with a client that has connected to `member`. The server presents
    /// `certificate`.
    ///
    /// # Errors
    ///
    /// If the certificate cannot be created. The connection is then closed.
    fn accept(
        &self,
        member: MemberId,
        certificate: &Certificate,
    ) -> io::Result<Box<dyn TlsSession>>;
}

/// The server's end of a connection.
pub trait TlsSession: Debug + Send {
    /// Processes bytes from the client, in pieces of any length. Returns the decrypted data.
    ///
    /// # Errors
    ///
    /// If the client is refused or sends invalid data. Before the connection is closed, the bytes
    /// that [`outgoing`](Self::outgoing) then returns, such as an alert, are sent.
    fn receive(&mut self, bytes: &[u8]) -> io::Result<Vec<u8>>;

    /// Encrypts data from the server. [`outgoing`](Self::outgoing) then returns the encrypted
    /// bytes. Called only after the handshake is complete.
    fn send(&mut self, data: &[u8]);

    /// Takes the bytes to be sent to the client.
    fn outgoing(&mut self) -> Vec<u8>;

    /// Returns whether the handshake is incomplete.
    fn is_handshaking(&self) -> bool;
}
