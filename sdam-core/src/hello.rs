//! Requests and replies of `hello` and legacy hello.

mod auth;
mod fields;
mod parse;
mod reply;
mod request;
#[cfg(test)]
mod tests;

use alloc::{boxed::Box, sync::Arc};

pub use self::{
    auth::{HelloAuth, without_speculative_reply},
    fields::HelloFields,
    reply::HelloReply,
    request::ping,
};
use crate::{
    address::ServerAddress,
    handshake_options::ServerApi,
    ids::{ElectionTuple, ObjectId, TopologyVersion},
    read_preference::TagSet,
    server_type::ServerType,
    wire_versions::WireVersions,
};

/// A successful reply to `hello` or legacy hello, in parsed form.
#[doc(alias("isMaster", "isWritablePrimary", "helloOk", "legacy hello"))]
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Hello {
    /// The role that the reply describes; never `LoadBalancer` or `PossiblePrimary`.
    pub server_type: ServerType,
    /// `minWireVersion` and `maxWireVersion`, 0 if absent.
    pub wire_versions: WireVersions,
    /// The address that the server reports for itself.
    pub me: Option<ServerAddress>,
    /// `hosts`, sorted and without duplicates.
    pub hosts: Box<[ServerAddress]>,
    /// `passives`, sorted and without duplicates.
    pub passives: Box<[ServerAddress]>,
    /// `arbiters`, sorted and without duplicates.
    pub arbiters: Box<[ServerAddress]>,
    /// The member's tags.
    pub tags: TagSet,
    /// The replica set's name.
    pub set_name: Option<Box<str>>,
    /// `electionId` and `setVersion`.
    pub election: ElectionTuple,
    /// The member that the server believes is primary.
    pub primary: Option<ServerAddress>,
    /// `lastWrite.lastWriteDate`, in milliseconds since the Unix epoch.
    pub last_write_date: Option<i64>,
    /// The number of minutes after which an idle session expires.
    pub logical_session_timeout_minutes: Option<i32>,
    /// The server's topology version; present if and only if the server can stream.
    pub topology_version: Option<TopologyVersion>,
    /// True if the server is a mongocryptd.
    pub is_cryptd: Option<bool>,
    /// True if the server understands `hello`, so that legacy hello is no longer needed.
    pub hello_ok: bool,
    /// The service behind a load balancer.
    pub service_id: Option<ObjectId>,
    /// The server's number for the connection.
    pub connection_id: Option<i64>,
    /// `maxBsonObjectSize`: the maximum size of a stored document, in bytes.
    pub max_bson_object_size: Option<i32>,
    /// `maxMessageSizeBytes`: the maximum size of a message that the server accepts or sends, in
    /// bytes; see [`max_message_size`](Self::max_message_size).
    pub max_message_size_bytes: Option<i32>,
    /// `maxWriteBatchSize`: the maximum number of writes in one command.
    pub max_write_batch_size: Option<i32>,
}

/// A `hello` or legacy hello command, to be encoded for the wire.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct HelloRequest {
    /// True to send `hello` instead of legacy hello.
    pub modern: bool,
    /// The arguments of the handshake, if this is the first message of a connection.
    pub handshake: Option<Arc<Handshake>>,
    /// If present, makes the hello awaitable. Contains the topology version that the server
    /// compares with its own before it answers, and the maximum wait in milliseconds.
    #[doc(alias = "maxAwaitTimeMS")]
    pub awaiting: Option<(TopologyVersion, i64)>,
    /// True if the server may stream replies (exhaustAllowed).
    pub exhaust_allowed: bool,
    /// True to frame the request as OP_QUERY, for servers before MongoDB 3.6. Allowed only for
    /// legacy hello.
    pub op_query: bool,
    /// The declared API, sent with every command.
    pub server_api: Option<Arc<ServerApi>>,
    /// The authentication part of a pooled connection's first message (see
    /// [`with_auth`](Self::with_auth)), or of a later message on a connection that a
    /// single-threaded client shares between checks and operations.
    pub auth: Option<Box<HelloAuth>>,
    /// The driver's own fields in the first message of a pooled connection; see
    /// [`with_fields`](Self::with_fields).
    pub fields: Option<HelloFields>,
}

/// The arguments carried only by the first hello of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Handshake {
    /// The `client` document in BSON, or empty if there is none.
    pub client: Box<[u8]>,
    /// True if the connection is to a load balancer.
    pub load_balanced: bool,
}
