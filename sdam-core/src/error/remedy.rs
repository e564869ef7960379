//! Remedies of errors.

use super::{Error, ErrorKind, REAUTHENTICATION_REQUIRED, Stage};

const CREDENTIALS: &str = "check the user, the password, `authSource` and `authMechanism`";

/// Returns the remedy for an error with this code from a server.
fn of_code(code: i32) -> Option<&'static str> {
    Some(match code {
        // AuthenticationFailed
        18 => CREDENTIALS,
        // Unauthorized
        13 => "log in, or grant the user a role that allows the command",
        // LoadBalancerSupportMismatch
        354 => {
            "set `loadBalanced=true` if the server is behind a load balancer, and remove it if not"
        }
        REAUTHENTICATION_REQUIRED => "log in again: the credentials of the connection have expired",
        // AtlasError
        8000 => "check the user and the password at the hosting service, and what its plan allows",
        // ShutdownInProgress, PrimarySteppedDown, InterruptedAtShutdown, InterruptedDueToReplStateChange
        91 | 189 | 11600 | 11602 => {
            "the server is shutting down or is no longer primary: run the operation again, if it may \
             run twice"
        }
        // NotWritablePrimary
        10107 => {
            "let the client find the primary (without `directConnection=true`), and run the \
             operation again"
        }
        // NotPrimaryNoSecondaryOk
        13435 => {
            "read with a `readPreference` that allows secondaries, or let the client find the \
             primary (without `directConnection=true`)"
        }
        // NotPrimaryOrSecondary
        13436 => {
            "wait until the member is primary or secondary again, or look at its state in \
             rs.status()"
        }
        _ => return None,
    })
}

impl Error {
    /// Returns advice for the user, derived from the kind and the stage. The error's message may be
    /// more specific.
    pub fn remedy(&self) -> Option<&'static str> {
        if self.is_overload() {
            return Some("the server is overloaded: run fewer operations at once");
        }
        if let Some(remedy) = self.code().and_then(of_code) {
            return Some(remedy);
        }
        match self.kind() {
            ErrorKind::Network | ErrorKind::Timeout | ErrorKind::Protocol => self.of_connection(),
            ErrorKind::Command if self.stage() == Stage::Auth => Some(CREDENTIALS),
            ErrorKind::SetName => Some("correct `replicaSet`, or remove the server from the seeds"),
            ErrorKind::Interrupted | ErrorKind::PoolCleared | ErrorKind::PoolNotReady => {
                Some("run the operation again, if it may run twice")
            }
            ErrorKind::PoolClosed => Some("keep the client open until its operations have ended"),
            ErrorKind::RuntimeShutDown => Some("keep the runtime until the client is closed"),
            ErrorKind::WaitQueueTimeout => {
                Some("run fewer operations at once, or raise `maxPoolSize` or `waitQueueTimeoutMS`")
            }
            ErrorKind::TimeLimit => {
                Some("raise the time limit, or find out why the server is slow")
            }
            _ => None,
        }
    }

    fn of_connection(&self) -> Option<&'static str> {
        Some(match (self.stage(), self.kind()) {
            (Stage::Dns, _) => "check the host name and the name servers of this machine",
            (Stage::Connect, ErrorKind::Timeout) => {
                "check that no firewall drops the packets, or raise `connectTimeoutMS`"
            }
            (Stage::Connect, _) => "check that the server runs and listens at this address",
            (Stage::Proxy, _) => "check the address of the proxy, its user and its password",
            (Stage::Tls, ErrorKind::Protocol) => {
                "check the certificate, its authority (`tlsCAFile`) and the host name"
            }
            (Stage::Tls, _) => "check that the server uses TLS on this port",
            (Stage::Hello, ErrorKind::Protocol) => "check that a MongoDB server listens there",
            (Stage::Hello, _) => "check that the server responds, and that `tls` fits it",
            (Stage::Operation, ErrorKind::Timeout) => {
                "raise the time limit, or find out why the server is slow"
            }
            (Stage::CheckOut | Stage::Auth | Stage::Operation, _) => return None,
        })
    }
}
