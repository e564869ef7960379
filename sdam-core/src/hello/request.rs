//! The hello commands that a client sends.

use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::time::Duration;

use super::{Handshake, HelloRequest};
use crate::{
    document::Writer,
    ids::TopologyVersion,
    options::{HandshakeOpcode, ServerApi},
};

impl HelloRequest {
    /// The first message of a connection (Handshake: "Connection handshake").
    ///
    /// `hello` if an API is declared or the connection is to a load balancer, else legacy hello,
    /// framed as `opcode` says.
    pub fn handshake(
        handshake: Arc<Handshake>,
        server_api: Option<Arc<ServerApi>>,
        opcode: HandshakeOpcode,
    ) -> Self {
        let modern = server_api.is_some() || handshake.load_balanced;
        Self {
            modern,
            handshake: Some(handshake),
            awaiting: None,
            exhaust_allowed: false,
            op_query: !modern && opcode == HandshakeOpcode::OpQuery,
            server_api,
        }
    }

    /// A later message on a connection, answered at once: a polling check or an RTT measurement.
    ///
    /// `hello_ok` is what the connection's handshake was answered
    /// ([`Hello::hello_ok`](super::Hello::hello_ok)); without it, and without a declared API, it
    /// has to be legacy hello again (Server Monitoring: "hello or legacy hello").
    pub fn poll(hello_ok: bool, server_api: Option<Arc<ServerApi>>) -> Self {
        Self {
            modern: hello_ok || server_api.is_some(),
            handshake: None,
            awaiting: None,
            exhaust_allowed: false,
            op_query: false,
            server_api,
        }
    }

    /// A later message on a connection, answered when the server's topology version is not `known`
    /// any more or after `max_await`, whichever comes first; the server may then go on and stream
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

    /// The same request, framed as OP_QUERY if it is a legacy hello; for later messages on a
    /// connection to a server whose `maxWireVersion` is below 6.
    #[must_use]
    pub fn with_op_query(mut self, op_query: bool) -> Self {
        self.op_query = op_query && !self.modern;
        self
    }

    /// The same request with other arguments of a handshake, if it has any: what is true of the
    /// client may have changed since the request was made. Later messages never carry them
    /// (Handshake: "Metadata updates").
    #[must_use]
    pub fn with_handshake(mut self, handshake: Arc<Handshake>) -> Self {
        if let Some(own) = &mut self.handshake {
            *own = handshake;
        }
        self
    }

    /// The name of the command: `hello` or `isMaster`.
    pub const fn command_name(&self) -> &'static str {
        if self.modern { "hello" } else { "isMaster" }
    }

    /// The command, a BSON document: the body of an OP_MSG or the query of an OP_QUERY.
    ///
    /// A `client` document that is not BSON is left out.
    pub fn encode(&self) -> Vec<u8> {
        let mut command = Writer::new();
        command.int32(self.command_name(), 1);
        command.boolean("helloOk", true);
        if let Some((known, max_await)) = self.awaiting {
            let mut version = Writer::new();
            version.object_id("processId", known.process_id);
            version.int64("counter", known.counter);
            command.document("topologyVersion", &version.finish());
            command.int64("maxAwaitTimeMS", max_await);
        }
        if let Some(handshake) = &self.handshake {
            command.document("client", &handshake.client);
            // Handshake: "backpressure". The older text of Client Backpressure asks for `true`.
            command.text("backpressure", "2");
            if handshake.load_balanced {
                command.boolean("loadBalanced", true);
            }
        }
        if let Some(api) = &self.server_api {
            declare(api, &mut command);
        }
        if !self.op_query {
            command.text("$db", "admin");
        }
        command.finish()
    }
}

/// The `ping` command, a BSON document, to find out whether a connection is alive (Server Selection:
/// "socketCheckIntervalMS").
pub fn ping(server_api: Option<&ServerApi>) -> Vec<u8> {
    let mut command = Writer::new();
    command.int32("ping", 1);
    if let Some(api) = server_api {
        declare(api, &mut command);
    }
    command.text("$db", "admin");
    command.finish()
}

/// Adds the parameters that go with every command once an API is declared.
fn declare(api: &ServerApi, command: &mut Writer) {
    command.text("apiVersion", &api.version);
    if let Some(strict) = api.strict {
        command.boolean("apiStrict", strict);
    }
    if let Some(deprecation_errors) = api.deprecation_errors {
        command.boolean("apiDeprecationErrors", deprecation_errors);
    }
}

impl Handshake {
    /// The arguments with this `client` document, BSON; empty for none.
    pub fn new(client: impl Into<Box<[u8]>>) -> Self {
        Self {
            client: client.into(),
            load_balanced: false,
        }
    }

    /// The same arguments for connections to a load balancer, or not.
    #[must_use]
    pub fn with_load_balanced(mut self, load_balanced: bool) -> Self {
        self.load_balanced = load_balanced;
        self
    }
}
