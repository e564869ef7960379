//! Errors that operations and connection pools report (SDAM: "Error handling").

use crate::{
    error::{Error, ErrorKind, RETRYABLE_ERROR, SYSTEM_OVERLOADED_ERROR, Stage},
    ids::{Generation, ObjectId},
};

/// An error on a pooled connection, as reported by the operation or the pool.
///
/// A pool reports each of the following events in the life of a connection exactly once:
///
/// | event | report | effect on the server |
/// | --- | --- | --- |
/// | the name is not found, or the proxy fails | [`network`](Error::network) or [`timeout`](Error::timeout) at [`Stage::Dns`] or [`Stage::Proxy`] | Unknown, pool cleared, check cancelled |
/// | connecting, TLS or hello breaks or takes too long | `network` or `timeout` at [`Stage::Connect`], [`Stage::Tls`] or [`Stage::Hello`] | none: the server may be [overloaded](Self::new) |
/// | the certificate is not trusted, or the peer does not speak the protocol | [`protocol`](Error::protocol) at `Stage::Tls` or `Stage::Hello` | Unknown, pool cleared, check cancelled |
/// | hello is answered with `ok: 0` | the [error of the reply](crate::reply::error) at `Stage::Hello`, or at [`Stage::Auth`] if the connection has a credential | Unknown, pool cleared, check cancelled (or requested, after a state change error); none if the server is overloaded |
/// | hello is answered with `ok: 1` | no error: [`Input::Handshake`](crate::deployment::Input::Handshake) | as after a successful check |
/// | the connection breaks or takes too long during authentication | `network` or `timeout` at [`Stage::Auth`] | Unknown, pool cleared, check cancelled |
/// | authentication fails | [`auth`](Error::auth), or the error of the reply at `Stage::Auth` | Unknown, pool cleared, check cancelled |
/// | an established connection breaks | `network` at [`Stage::Operation`] | Unknown, pool cleared, check cancelled |
/// | a reply takes longer than the operation allows | `timeout` at `Stage::Operation` | none |
/// | a reply is malformed or too long | `protocol` at `Stage::Operation` | none |
/// | a command is answered with an error, including a write concern error | the error of the reply at `Stage::Operation` | a state change error: Unknown, check requested, and at a shutdown the pool is cleared; any other error: none |
/// | a command is not sent, because the server does not accept its size | [`Invalid`](ErrorKind::Invalid) | none |
/// | no connection can be checked out | nothing: see [`Error::pool_cleared`] and similar errors | none |
/// | the pool closes a connection for another reason | nothing, but see [`Input::ServiceConnectionClosed`](crate::deployment::Input::ServiceConnectionClosed) | none |
///
/// [`handshake_errors_mark_unknown`](crate::options::Deviations::handshake_errors_mark_unknown)
/// lets overload errors mark the server Unknown, too.
/// Behind a load balancer, the server never becomes Unknown. An error that would clear the pool
/// clears the connections to [its service](Self::with_service) instead; before the reply to hello,
/// which names the service, such an error has no effect.
/// An error whose [generation](Self::generation) is older than the pool's is stale and has no
/// effect.
///
/// ```
/// use sdam_core::{error::{Error, Stage}, ids::Generation, report::ErrorReport};
///
/// // The connection of generation 3 broke, and the pool's user had sent a command.
/// let generation = Generation::from_u64(3);
/// let error = Error::network(Stage::Operation, "connection reset by peer");
/// let report = ErrorReport::new(generation, error);
/// assert!(!report.error.is_overload());
///
/// // The server accepted the connection and closed it.
/// let report = ErrorReport::new(generation, Error::network(Stage::Hello, "end of file"));
/// assert!(report.error.is_overload() && report.error.is_retryable_overload());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ErrorReport {
    /// The error with its labels, as the failed operation returns it.
    pub error: Error,
    /// The generation that the connection belongs to; for a connection that could not be opened,
    /// the pool's generation when the attempt began.
    pub generation: Generation,
    /// The service behind a load balancer to which the connection belongs, if any.
    pub service_id: Option<ObjectId>,
    /// The `maxWireVersion` of the connection's own handshake. `None` means that this version is at
    /// least 8, like that of every supported server.
    pub max_wire_version: Option<i32>,
}

impl ErrorReport {
    /// Creates the report of an error on a connection of `generation`.
    ///
    /// An I/O error or time-out while a connection is opened is labelled as overload, so that the
    /// server is not marked Unknown by default and the operation may be retried (CMAP: "Connection
    /// Pool Backpressure"). This concerns [`ErrorKind::Network`] and [`ErrorKind::Timeout`] at
    /// [`Stage::Connect`], [`Stage::Tls`] and [`Stage::Hello`], including an end of file during the
    /// TLS or hello exchange. A failed look-up, proxy or certificate is not a sign of overload, and
    /// neither is any error during authentication or later. An error from a reply carries the
    /// server's labels.
    pub fn new(generation: Generation, error: Error) -> Self {
        let overload = matches!(error.kind(), ErrorKind::Network | ErrorKind::Timeout)
            && matches!(error.stage(), Stage::Connect | Stage::Tls | Stage::Hello);
        Self {
            error: if overload {
                error.with_labels([SYSTEM_OVERLOADED_ERROR, RETRYABLE_ERROR])
            } else {
                error
            },
            generation,
            service_id: None,
            max_wire_version: None,
        }
    }

    /// Sets the service behind a load balancer to which the connection belongs: the `serviceId`
    /// in the reply to its handshake.
    #[must_use]
    pub fn with_service(mut self, service: impl Into<Option<ObjectId>>) -> Self {
        self.service_id = service.into();
        self
    }

    /// Sets the `maxWireVersion` of the connection's own handshake. This version tells whether
    /// the server closes its connections when it stops being primary.
    #[must_use]
    pub fn with_max_wire_version(mut self, version: impl Into<Option<i32>>) -> Self {
        self.max_wire_version = version.into();
        self
    }
}

/// Serializes reports in recordings.
#[cfg(feature = "serde")]
mod serial {
    use alloc::borrow::Cow;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::ErrorReport;
    use crate::{
        error::{Error, ErrorKind, Stage},
        ids::{Generation, ObjectId},
        reply,
    };

    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct Serial<'a> {
        generation: Generation,
        service_id: Option<ObjectId>,
        stage: Stage,
        cause: Cause<'a>,
        max_wire_version: Option<i32>,
    }

    /// The data from which an error can be restored: a message, or the server's reply.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "camelCase")]
    enum Cause<'a> {
        Network(Cow<'a, str>),
        Timeout(Cow<'a, str>),
        Protocol(Cow<'a, str>),
        #[serde(with = "crate::encoding::base64")]
        Reply(Cow<'a, [u8]>),
        Auth(Cow<'a, str>),
        /// Any other error.
        Error(Error),
    }

    impl Serialize for ErrorReport {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let error = &self.error;
            let message = Cow::Borrowed(error.message());
            let cause = match (error.kind(), error.reply()) {
                (_, Some(reply)) => Cause::Reply(reply.into()),
                (ErrorKind::Network, None) => Cause::Network(message),
                (ErrorKind::Timeout, None) => Cause::Timeout(message),
                (ErrorKind::Protocol, None) => Cause::Protocol(message),
                (ErrorKind::Command, None)
                    if *error == Error::auth(error.message()).at(error.stage()) =>
                {
                    Cause::Auth(message)
                }
                _ => Cause::Error(error.clone()),
            };
            let serial = Serial {
                generation: self.generation,
                service_id: self.service_id,
                stage: error.stage(),
                cause,
                max_wire_version: self.max_wire_version,
            };
            serial.serialize(serializer)
        }
    }

    impl<'de> Deserialize<'de> for ErrorReport {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let serial = Serial::deserialize(deserializer)?;
            let stage = serial.stage;
            let error = match serial.cause {
                Cause::Network(message) => Error::network(stage, message),
                Cause::Timeout(message) => Error::timeout(stage, message),
                Cause::Protocol(message) => Error::protocol(stage, message),
                Cause::Auth(message) => Error::auth(message).at(stage),
                Cause::Error(error) => error,
                // A reply without an error has no effect on the server. It is restored as a
                // time-out of an operation, which has no effect either.
                Cause::Reply(reply) => reply::error(&reply, stage).unwrap_or_else(|| {
                    Error::timeout(Stage::Operation, "the reply has no error").with_reply(&*reply)
                }),
            };
            Ok(Self::new(serial.generation, error)
                .with_service(serial.service_id)
                .with_max_wire_version(serial.max_wire_version))
        }
    }
}

#[cfg(all(test, feature = "serde"))]
mod tests {
    use bson::doc;

    use super::*;
    use crate::reply;

    #[test]
    fn reports_are_read_as_they_were_written() {
        let reply = |reply: bson::Document| {
            reply::error(&reply.to_vec().unwrap(), Stage::Operation).unwrap()
        };
        for error in [
            Error::network(Stage::Connect, "reset"),
            Error::timeout(Stage::Hello, "late"),
            Error::protocol(Stage::Operation, "short"),
            Error::auth("refused"),
            Error::auth("refused").at(Stage::Hello),
            Error::new(ErrorKind::Internal, Stage::Tls, "panicked"),
            reply(doc! { "ok": 0, "errmsg": "boom", "code": 91 }),
        ] {
            let report = ErrorReport::new(Generation::FIRST, error)
                .with_service(Some(ObjectId::from_bytes([7; 12])))
                .with_max_wire_version(Some(21));
            let text = serde_json::to_string(&report).unwrap();
            let read: ErrorReport = serde_json::from_str(&text).unwrap();
            assert_eq!(read, report, "{text}");
            assert_eq!(read.error.reply(), report.error.reply(), "{text}");
        }
    }
}
