//! The hello commands sent by a client, and `ping`.
//!
//! Handshakes of pooled connections also contain arguments for authentication (Handshake:
//! "Speculative Authentication"; Authentication: "Mechanism Negotiation via Handshake") and fields
//! of the driver.

use alloc::{
    borrow::{Cow, ToOwned as _},
    boxed::Box,
    sync::Arc,
    vec::Vec,
};
use core::time::Duration;

use crate::{
    document::{self, DocumentWriter, Fields},
    ids::TopologyVersion,
    options::{ConfigError, HandshakeOpcode, ServerApi},
};

const SASL_SUPPORTED_MECHS: &str = "saslSupportedMechs";
const SPECULATIVE_AUTHENTICATE: &str = "speculativeAuthenticate";

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

    /// Creates a later message on a connection: a polling check or an RTT measurement. The server
    /// answers it at once.
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

    /// Frames the request as OP_QUERY if `op_query` is set and the request is a legacy hello. Used
    /// for later messages on a connection to a server whose `maxWireVersion` is below 6.
    #[must_use]
    pub(crate) fn with_op_query(mut self, op_query: bool) -> Self {
        self.op_query = op_query && !self.modern;
        self
    }

    /// Replaces the arguments of the handshake, if the request has any, because the client's
    /// metadata may have changed since the request was created. Later messages never carry these
    /// arguments (Handshake: "Metadata updates").
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

/// The arguments carried only by the first hello of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Handshake {
    /// The `client` document in BSON, or empty if there is none.
    pub client: Box<[u8]>,
    /// True if the connection is to a load balancer.
    pub load_balanced: bool,
}

impl Handshake {
    /// Creates the arguments with the given `client` document in BSON, which is empty if there is
    /// none.
    pub fn new(client: impl Into<Box<[u8]>>) -> Self {
        Self { client: client.into(), load_balanced: false }
    }
}

/// The authentication arguments of a handshake.
///
/// Its `Debug` output does not reveal the command.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HelloAuth {
    /// `saslSupportedMechs`: the user whose mechanisms the reply lists, as `database.user`.
    pub sasl_supported_mechs: Option<Box<str>>,
    /// `speculativeAuthenticate`: the first command of the authentication, a BSON document with a
    /// field `db`. Servers before MongoDB 4.4 ignore it.
    pub speculative_authenticate: Option<Box<[u8]>>,
}

impl HelloAuth {
    /// Adds the arguments to a hello. A command that is not BSON is omitted.
    fn write(&self, command: &mut DocumentWriter) {
        command.text(SASL_SUPPORTED_MECHS, self.sasl_supported_mechs.as_deref());
        if let Some(first) = &self.speculative_authenticate {
            // Without this field, authentication proceeds as with servers before MongoDB 4.4.
            let _ = command.encoded_document(SPECULATIVE_AUTHENTICATE, first);
        }
    }
}

crate::opaque!(HelloAuth, |this|
    sasl_supported_mechs: this.sasl_supported_mechs,
    speculative_authenticate: this.speculative_authenticate.as_ref().map(|_| "<hidden>"),
);

/// Returns the reply to a handshake without the embedded reply to the speculative authentication,
/// which events and recordings must not show (Command Logging and Monitoring: "Redaction").
///
/// A reply without such a part, or one that is not BSON, is returned unchanged.
pub fn without_speculative_reply(reply: &[u8]) -> Cow<'_, [u8]> {
    document::without(reply, SPECULATIVE_AUTHENTICATE).map_or(Cow::Borrowed(reply), Cow::Owned)
}

/// The fields that a driver adds to the handshakes of its pooled connections, such as
/// `compression`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelloFields(Arc<[u8]>);

impl HelloFields {
    /// Creates the fields from `document`, in BSON.
    ///
    /// # Errors
    ///
    /// If `document` is malformed, or contains a field that a handshake sets itself.
    pub fn new(document: &[u8]) -> Result<Self, ConfigError> {
        let refused = |value: &str, reason, remedy| {
            Err(ConfigError::new("hello", value.to_owned(), reason, remedy))
        };
        let read = Fields::of(document).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let Ok(fields) = read else {
            return refused("", "the fields are not a BSON document", "encode them as BSON");
        };
        match fields.iter().map(|field| field.key()).find(|key| OWN.contains(key)) {
            Some(key) => refused(key, "the handshake sets this field itself", "leave it out"),
            None => Ok(Self(document.into())),
        }
    }

    /// Adds the fields to a hello.
    fn write(&self, command: &mut DocumentWriter) {
        // The fields were checked on creation, so this cannot fail.
        let _ = command.fields(&self.0);
    }
}

/// The fields that the client itself sets in at least one form of hello.
const OWN: [&str; 14] = [
    "hello",
    "isMaster",
    "helloOk",
    "topologyVersion",
    "maxAwaitTimeMS",
    "client",
    "backpressure",
    "loadBalanced",
    SASL_SUPPORTED_MECHS,
    SPECULATIVE_AUTHENTICATE,
    "apiVersion",
    "apiStrict",
    "apiDeprecationErrors",
    "$db",
];

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
