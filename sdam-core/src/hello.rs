//! Requests and replies of `hello` and legacy hello, with a one-pass parser for the replies.

mod request;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;

use smallvec::SmallVec;

pub use self::request::{
    Handshake, HelloAuth, HelloFields, HelloRequest, ping, without_speculative_reply,
};
use crate::{
    address::ServerAddress,
    document::{Field, Fields, Malformed, SharedDocument},
    error::{Error, Stage},
    ids::{ElectionTuple, ObjectId, TopologyVersion},
    read_preference::TagSet,
    reply::ReplyFailure,
    server::{ServerType, WireVersions},
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

impl Hello {
    /// The maximum number of members of each kind, and of tags, in a reply; any further ones are
    /// ignored. A replica set has at most 50 members.
    pub const MAX_MEMBERS: usize = 4096;

    /// The `maxMessageSizeBytes` announced by every supported server, 48,000,000 bytes.
    pub const DEFAULT_MAX_MESSAGE_SIZE: usize = 48_000_000;

    /// Returns the maximum size in bytes of messages in either direction on a connection whose
    /// handshake had this reply: `maxMessageSizeBytes`, or
    /// [`DEFAULT_MAX_MESSAGE_SIZE`](Self::DEFAULT_MAX_MESSAGE_SIZE) if that field is absent or not
    /// positive.
    pub fn max_message_size(&self) -> usize {
        announced(self.max_message_size_bytes, Self::DEFAULT_MAX_MESSAGE_SIZE)
    }

    /// Returns the maximum size in bytes of a command document on a connection whose handshake had
    /// this reply: `maxBsonObjectSize`, or 16 MiB if that field is absent or not positive, plus the
    /// 16 KiB by which servers allow a command to exceed this size.
    pub fn max_command_size(&self) -> usize {
        announced(self.max_bson_object_size, 16 << 20) + (16 << 10)
    }

    /// Returns the service to which a load balancer routed the connection on which this reply
    /// arrived.
    ///
    /// # Errors
    ///
    /// If the reply has no service id, so that the connection cannot be used (Load Balancers:
    /// "Connection Pooling").
    pub fn load_balanced_service(&self) -> Result<ObjectId, Error> {
        self.service_id.ok_or_else(|| {
            Error::protocol(
                Stage::Hello,
                "Driver attempted to initialize in load balancing mode, but the server does not \
                 support this mode.",
            )
        })
    }

    /// Parses the BSON document of a reply in one pass (SDAM: "Parsing a hello response").
    ///
    /// Unknown fields are skipped without decoding. A field of an unexpected type and a member with
    /// an invalid address count as absent; numbers may be of any numeric type except Decimal128. If
    /// a field is repeated, the last one counts. The result takes at most a small multiple of the
    /// reply's size in memory; see also [`MAX_MEMBERS`](Self::MAX_MEMBERS).
    ///
    /// # Errors
    ///
    /// If `ok` is not 1: the server's error with its code, labels and topology version
    /// ([`ErrorKind::Command`](crate::error::ErrorKind::Command)). If the bytes are not a BSON
    /// document, or have no `ok`: an [`ErrorKind::Protocol`](crate::error::ErrorKind::Protocol)
    /// error. The stage is [`Stage::Hello`].
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        Self::boxed(bytes).map(|hello| *hello)
    }

    /// Parses a reply directly into a heap allocation, because a `Hello` is large.
    fn boxed(bytes: &[u8]) -> Result<Box<Self>, Error> {
        let mut hello = Box::<Self>::default();
        let mut reply = Reply::new(&mut hello);
        let read = Fields::of(bytes)
            .and_then(|mut fields| fields.try_for_each(|field| reply.take(field?)));
        read.map_err(|malformed| Error::protocol(Stage::Hello, malformed.0))?;
        if !reply.failure.is_ok() {
            reply.failure.check(Stage::Hello)?;
        }
        reply.finish();
        Ok(hello)
    }
}

/// A parsed reply to hello, together with its document.
#[derive(Clone, Debug, PartialEq)]
pub struct HelloReply {
    /// The parsed reply, or the reason why it is an error.
    pub hello: Result<Box<Hello>, Error>,
    /// The reply, a BSON document; empty if it is not needed.
    pub document: SharedDocument,
}

impl HelloReply {
    /// Parses a reply.
    pub fn parse(document: impl Into<SharedDocument>) -> Self {
        let document = document.into();
        Self { hello: Hello::boxed(&document), document }
    }
}

/// Parses a reply, a BSON document.
impl From<&[u8]> for HelloReply {
    fn from(document: &[u8]) -> Self {
        Self::parse(document)
    }
}

/// Creates a reply without its document.
impl From<Result<Hello, Error>> for HelloReply {
    fn from(hello: Result<Hello, Error>) -> Self {
        Self { hello: hello.map(Box::new), document: [].as_slice().into() }
    }
}

/// The fields of a reply that have been read so far.
struct Reply<'h, 'a> {
    hello: &'h mut Hello,
    failure: ReplyFailure<'a>,
    role: Role,
    me: Option<&'a str>,
    primary: Option<&'a str>,
}

/// The fields that determine the role of a server.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of the reply")]
struct Role {
    is_replica_set: bool,
    is_mongos: bool,
    hidden: bool,
    is_writable_primary: Option<bool>,
    is_master: bool,
    secondary: bool,
    arbiter_only: bool,
}

impl<'h, 'a> Reply<'h, 'a> {
    fn new(hello: &'h mut Hello) -> Self {
        let (failure, role) = (ReplyFailure::default(), Role::default());
        Self { hello, failure, role, me: None, primary: None }
    }

    fn take(&mut self, field: Field<'a>) -> Result<(), Malformed> {
        let hello = &mut *self.hello;
        let role = &mut self.role;
        match field.name() {
            b"isWritablePrimary" => role.is_writable_primary = field.truth(),
            b"ismaster" => role.is_master = field.truth() == Some(true),
            b"isreplicaset" => role.is_replica_set = field.truth() == Some(true),
            b"msg" => role.is_mongos = field.text() == Some("isdbgrid"),
            b"hidden" => role.hidden = field.truth() == Some(true),
            b"secondary" => role.secondary = field.truth() == Some(true),
            b"arbiterOnly" => role.arbiter_only = field.truth() == Some(true),
            b"minWireVersion" => hello.wire_versions.min = field.int32().unwrap_or(0),
            b"maxWireVersion" => hello.wire_versions.max = field.int32().unwrap_or(0),
            b"me" => self.me = field.text(),
            b"primary" => self.primary = field.text(),
            b"hosts" => hello.hosts = members(field)?,
            b"passives" => hello.passives = members(field)?,
            b"arbiters" => hello.arbiters = members(field)?,
            b"tags" => hello.tags = tags(field)?,
            // A name that is not valid UTF-8 still counts, because it shows that the server is not
            // standalone.
            b"setName" => hello.set_name = field.text_lossy(),
            b"setVersion" => hello.election.set_version = field.integer(),
            b"electionId" => hello.election.election_id = field.object_id(),
            b"lastWrite" => hello.last_write_date = last_write_date(field)?,
            b"logicalSessionTimeoutMinutes" => {
                hello.logical_session_timeout_minutes = field.int32();
            }
            b"iscryptd" => hello.is_cryptd = field.truth(),
            b"helloOk" => hello.hello_ok = field.truth() == Some(true),
            b"serviceId" => hello.service_id = field.object_id(),
            b"connectionId" => hello.connection_id = field.integer(),
            b"maxBsonObjectSize" => hello.max_bson_object_size = field.int32(),
            b"maxMessageSizeBytes" => hello.max_message_size_bytes = field.int32(),
            b"maxWriteBatchSize" => hello.max_write_batch_size = field.int32(),
            // Handles `ok`, `topologyVersion` and the fields of errors.
            _ => self.failure.take(field)?,
        }
        Ok(())
    }

    fn finish(self) {
        let hello = self.hello;
        hello.me = self.me.and_then(|text| hello.member(text));
        hello.primary = self.primary.and_then(|text| hello.member(text));
        hello.topology_version = self.failure.topology_version;
        hello.server_type = self.role.server_type(hello.set_name.is_some());
        if hello.server_type == ServerType::RsGhost {
            // SDAM: "RSGhost and RSOther": information about the set must not be used if it comes
            // from a member without a configuration.
            hello.set_name = None;
            hello.primary = None;
            hello.hosts = Box::default();
            hello.passives = Box::default();
            hello.arbiters = Box::default();
        }
    }
}

impl Hello {
    /// Returns the address in `text`. If the reply lists an equal member, as it nearly always does,
    /// the result shares that member's memory.
    fn member(&self, text: &str) -> Option<ServerAddress> {
        let members = [&self.hosts, &self.passives, &self.arbiters];
        let known = members.into_iter().flatten().find(|own| own.as_str() == text);
        match known {
            Some(member) => Some(member.clone()),
            None => named(text),
        }
    }
}

impl Role {
    /// Applies the rules of SDAM: "type" in order.
    fn server_type(&self, has_set_name: bool) -> ServerType {
        if self.is_replica_set {
            ServerType::RsGhost
        } else if self.is_mongos {
            ServerType::Mongos
        } else if !has_set_name {
            ServerType::Standalone
        } else if self.hidden {
            ServerType::RsOther
        } else if self.is_writable_primary.unwrap_or(self.is_master) {
            ServerType::RsPrimary
        } else if self.secondary {
            ServerType::RsSecondary
        } else if self.arbiter_only {
            ServerType::RsArbiter
        } else {
            ServerType::RsOther
        }
    }
}

/// Returns the address of a member. Only a connection string may contain the path of a Unix domain
/// socket: a server must not make its clients connect to local programs.
fn named(text: &str) -> Option<ServerAddress> {
    ServerAddress::read(text).ok().filter(|address| !address.is_unix())
}

/// Returns the members, sorted and without duplicates.
fn members(field: Field<'_>) -> Result<Box<[ServerAddress]>, Malformed> {
    let mut members = SmallVec::<[ServerAddress; 8]>::new();
    for element in field.elements() {
        let element = element?;
        if members.len() < Hello::MAX_MEMBERS {
            members.extend(element.text().and_then(named));
        }
    }
    members.sort_unstable();
    members.dedup();
    Ok(members.into_boxed_slice())
}

fn tags(field: Field<'_>) -> Result<TagSet, Malformed> {
    let mut tags = SmallVec::<[(&str, &str); 8]>::new();
    for tag in field.fields() {
        let tag = tag?;
        if tags.len() < Hello::MAX_MEMBERS {
            tags.extend(tag.text().map(|value| (tag.key(), value)));
        }
    }
    Ok(tags.into_iter().collect())
}

fn last_write_date(field: Field<'_>) -> Result<Option<i64>, Malformed> {
    let mut date = None;
    for field in field.fields() {
        let field = field?;
        if field.name() == b"lastWriteDate" {
            date = field.date();
        }
    }
    Ok(date)
}

/// Returns the size that the server has announced, or `default` if that size is absent or not
/// positive.
fn announced(size: Option<i32>, default: usize) -> usize {
    let size = size.and_then(|size| usize::try_from(size).ok());
    size.filter(|size| *size > 0).unwrap_or(default)
}

/// Serializes the document in base64. If there is no document, serializes the error, or `null` for
/// a success.
#[cfg(feature = "serde")]
mod serial {
    use alloc::string::String;

    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::IntoDeserializer};

    use super::{Error, Hello, HelloReply, SharedDocument};
    use crate::encoding::base64;

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Recorded {
        Document(String),
        Outcome(Option<Error>),
    }

    impl Serialize for HelloReply {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            if self.document.is_empty() {
                self.hello.as_ref().err().serialize(serializer)
            } else {
                base64::serialize(&self.document, serializer)
            }
        }
    }

    impl<'de> Deserialize<'de> for HelloReply {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            Ok(match Recorded::deserialize(deserializer)? {
                Recorded::Document(text) => {
                    let document: SharedDocument = base64::deserialize(text.into_deserializer())?;
                    Self::parse(document)
                }
                Recorded::Outcome(error) => error.map_or_else(|| Ok(Hello::default()), Err).into(),
            })
        }
    }
}
