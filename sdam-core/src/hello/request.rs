//! The hello commands sent by a client.

use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::time::Duration;

use super::{Handshake, HelloAuth, HelloFields, HelloRequest};
use crate::{
    document::DocumentWriter,
    handshake_options::{HandshakeOpcode, ServerApi},
    ids::TopologyVersion,
};

impl HelloRequest {
    /// Creates the first message of a connection (Handshake: "Connection handshake").
    ///
    /// It is `hello` if an API version is declared or the connection is to a load balancer;
    /// otherwise it is legacy hello, framed according to `opcode`.
    pub fn handshake(
        handshake: Arc<Handshake>,
        server_api: Option<Arc<ServerApi>>,
        opcode: HandshakeOpcode,
    ) -> Self {
        let modern = server_api.is_some() || handshake.load_balanced;
        Self {
            handshake: Some(handshake),
            op_query: !modern && opcode == HandshakeOpcode::OpQuery,
            ..Self::poll(modern, server_api)
        }
    }

    /// Creates a later message on a connection, which is answered at once: a polling check or an
    /// RTT measurement.
    ///
    /// `hello_ok` is [`Hello::hello_ok`](super::Hello::hello_ok) of the connection's handshake. If
    /// it is false and no API version is declared, the message is another legacy hello (Server
    /// Monitoring: "hello or legacy hello").
    pub fn poll(hello_ok: bool, server_api: Option<Arc<ServerApi>>) -> Self {
        Self { modern: hello_ok || server_api.is_some(), server_api, ..Self::default() }
    }

    /// Creates a later message that is answered when the server's topology version differs from
    /// `known` or after `max_await`, whichever comes first. The server may then stream replies
    /// (Server Monitoring: "Streaming protocol").
    pub fn awaitable(
        hello_ok: bool,
        server_api: Option<Arc<ServerApi>>,
        known: TopologyVersion,
        max_await: Duration,
    ) -> Self {
        let millis = i64::try_from(max_await.as_millis()).unwrap_or(i64::MAX);
        Self {
            awaiting: Some((known, millis)),
            exhaust_allowed: true,
            ..Self::poll(hello_ok, server_api)
        }
    }

    /// Frames the request as OP_QUERY if `op_query` is set and it is a legacy hello. Used for later
    /// messages on a connection to a server whose `maxWireVersion` is below 6.
    #[must_use]
    pub(crate) fn with_op_query(mut self, op_query: bool) -> Self {
        self.op_query = op_query && !self.modern;
        self
    }

    /// Replaces the arguments of the handshake, if the request has any, because the client's
    /// metadata may have changed since the request was created. Later messages never carry them
    /// (Handshake: "Metadata updates").
    #[must_use]
    pub fn with_handshake(mut self, handshake: Arc<Handshake>) -> Self {
        if let Some(own) = &mut self.handshake {
            *own = handshake;
        }
        self
    }

    /// Adds the authentication arguments of a handshake. Monitors' connections never have any
    /// (Authentication: "Authentication MUST NOT happen on monitoring-only sockets"), and later
    /// messages of a connection omit them.
    #[must_use]
    pub fn with_auth(mut self, auth: HelloAuth) -> Self {
        self.auth = self.handshake.is_some().then(|| Box::new(auth));
        self
    }

    /// Adds driver-specific fields to a handshake. Later messages of a connection omit them.
    #[must_use]
    pub fn with_fields(mut self, fields: HelloFields) -> Self {
        self.fields = self.handshake.is_some().then_some(fields);
        self
    }

    /// Returns the name of the command: `hello` or `isMaster`.
    pub const fn command_name(&self) -> &'static str {
        if self.modern { "hello" } else { "isMaster" }
    }

    /// Encodes the command as a BSON document: the body of an OP_MSG or the query of an OP_QUERY.
    ///
    /// A `client` document that is not BSON is omitted.
    pub fn encode(&self) -> Vec<u8> {
        let mut command = DocumentWriter::new();
        command.int32(self.command_name(), 1);
        command.boolean("helloOk", true);
        if let Some((known, max_await)) = self.awaiting {
            command.document("topologyVersion", |version| {
                version.object_id("processId", known.process_id);
                version.int64("counter", known.counter);
            });
            command.int64("maxAwaitTimeMS", max_await);
        }
        if let Some(handshake) = &self.handshake {
            // If the `client` document is malformed, no metadata is sent.
            let _ = command.encoded_document("client", &handshake.client);
            // The Handshake specification requires "2"; older versions of Client Backpressure
            // require `true`.
            command.text("backpressure", "2");
            if handshake.load_balanced {
                command.boolean("loadBalanced", true);
            }
        }
        if let Some(auth) = &self.auth {
            auth.write(&mut command);
        }
        if let Some(fields) = &self.fields {
            fields.write(&mut command);
        }
        if let Some(api) = &self.server_api {
            api.declare(&mut command);
        }
        if !self.op_query {
            command.text("$db", "admin");
        }
        command.finish()
    }
}

/// Encodes the `ping` command as a BSON document, to check whether a connection is alive (Server
/// Selection: "socketCheckIntervalMS").
pub fn ping(server_api: Option<&ServerApi>) -> Vec<u8> {
    let mut command = DocumentWriter::new();
    command.int32("ping", 1);
    if let Some(api) = server_api {
        api.declare(&mut command);
    }
    command.text("$db", "admin");
    command.finish()
}

impl ServerApi {
    /// Adds the parameters that every command carries once an API version is declared.
    pub fn declare(&self, command: &mut DocumentWriter) {
        command.text("apiVersion", &*self.version);
        command.boolean("apiStrict", self.strict);
        command.boolean("apiDeprecationErrors", self.deprecation_errors);
    }
}

impl Handshake {
    /// Creates the arguments with the given `client` document in BSON, which is empty if there is
    /// none.
    pub fn new(client: impl Into<Box<[u8]>>) -> Self {
        Self { client: client.into(), load_balanced: false }
    }

    /// Sets whether the connection is to a load balancer.
    #[must_use]
    pub fn with_load_balanced(mut self, load_balanced: bool) -> Self {
        self.load_balanced = load_balanced;
        self
    }
}
