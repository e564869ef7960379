//! Negotiates hello and the opcode on a connection.

use alloc::sync::Arc;

use crate::{
    hello::{Hello, HelloRequest},
    ids::TopologyVersion,
    options::HandshakeOpcode,
};

use super::MonitorConfig;

/// The first wire version with OP_MSG (MongoDB 3.6).
const OP_MSG_WIRE_VERSION: i32 = 6;

/// The negotiated hello command and opcode of one connection (Server Monitoring: "helloOk").
#[derive(Clone, Copy, Debug, Default, Hash)]
pub(crate) enum Negotiation {
    /// No reply has arrived yet.
    #[default]
    Handshake,
    /// The result of the negotiation, according to the last reply.
    Agreed {
        /// True to send `hello` instead of legacy hello.
        modern: bool,
        /// True if the server is too old for OP_MSG.
        op_query: bool,
    },
}

impl Negotiation {
    /// Returns the negotiation after a successful reply.
    pub(crate) fn after(hello: &Hello, config: &MonitorConfig) -> Self {
        Self::Agreed {
            modern: hello.hello_ok || config.server_api.is_some() || config.handshake.load_balanced,
            op_query: config.handshake_opcode == HandshakeOpcode::OpQuery
                && hello.wire_versions.max < OP_MSG_WIRE_VERSION,
        }
    }

    /// Returns a hello request that the server answers at once.
    pub(crate) fn request(self, config: &MonitorConfig) -> HelloRequest {
        let server_api = config.server_api.clone();
        match self {
            Self::Handshake => HelloRequest::handshake(
                Arc::clone(&config.handshake),
                server_api,
                config.handshake_opcode,
            ),
            Self::Agreed { modern, op_query } => {
                HelloRequest::poll(modern, server_api).with_op_query(op_query)
            }
        }
    }

    /// Returns an awaitable hello request. The server replies when its topology version differs
    /// from `version` or after a heartbeat interval, and then continues to stream replies.
    pub(crate) fn awaitable_request(
        self,
        config: &MonitorConfig,
        version: TopologyVersion,
    ) -> HelloRequest {
        let modern = matches!(self, Self::Agreed { modern: true, .. });
        let server_api = config.server_api.clone();
        HelloRequest::awaitable(modern, server_api, version, config.heartbeat_frequency)
    }
}
