//! A slow reference parser that reads a decoded document field by field, in the order of the
//! specification. The crate's parser must agree with this one, which is also used by the fuzz
//! target.

use bson::{Bson, Document};
use sdam_core::{
    address::ServerAddress,
    error::{Error, ErrorKind, Stage},
    hello::Hello,
    ids::{ObjectId, TopologyVersion},
    server::ServerType,
};

/// Parses a reply that is a valid document.
pub(crate) fn parse(reply: &Document) -> Result<Hello, Error> {
    match reply.get("ok") {
        Some(ok) if integer(ok) == Some(1) => Ok(hello(reply)),
        None if reply.get_str("$err").is_err() => Err(no_ok()),
        _ => Err(failure(reply)),
    }
}

fn hello(reply: &Document) -> Hello {
    let server_type = server_type(reply);
    let mut hello = Hello::default();
    hello.server_type = server_type;
    hello.wire_versions.min = int32(reply, "minWireVersion").unwrap_or(0);
    hello.wire_versions.max = int32(reply, "maxWireVersion").unwrap_or(0);
    hello.me = address(reply, "me");
    if server_type != ServerType::RsGhost {
        hello.primary = address(reply, "primary");
        hello.set_name = reply.get_str("setName").ok().map(Box::from);
        hello.hosts = members(reply, "hosts");
        hello.passives = members(reply, "passives");
        hello.arbiters = members(reply, "arbiters");
    }
    if let Ok(tags) = reply.get_document("tags") {
        hello.tags = tags
            .iter()
            .filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)))
            .take(Hello::MAX_MEMBERS)
            .collect();
    }
    hello.election.election_id = object_id(reply, "electionId");
    hello.election.set_version = reply.get("setVersion").and_then(integer);
    hello.last_write_date = reply
        .get_document("lastWrite")
        .and_then(|last_write| last_write.get_datetime("lastWriteDate"))
        .map(|date| date.timestamp_millis())
        .ok();
    hello.logical_session_timeout_minutes = int32(reply, "logicalSessionTimeoutMinutes");
    hello.topology_version = topology_version(reply);
    hello.is_cryptd = truth(reply, "iscryptd");
    hello.hello_ok = truth(reply, "helloOk") == Some(true);
    hello.service_id = object_id(reply, "serviceId");
    hello.connection_id = reply.get("connectionId").and_then(integer);
    hello.max_bson_object_size = int32(reply, "maxBsonObjectSize");
    hello.max_message_size_bytes = int32(reply, "maxMessageSizeBytes");
    hello.max_write_batch_size = int32(reply, "maxWriteBatchSize");
    hello
}

fn server_type(reply: &Document) -> ServerType {
    let is = |key| truth(reply, key) == Some(true);
    let writable = truth(reply, "isWritablePrimary").unwrap_or_else(|| is("ismaster"));
    let rules = [
        (is("isreplicaset"), ServerType::RsGhost),
        (reply.get_str("msg").is_ok_and(|text| text == "isdbgrid"), ServerType::Mongos),
        (reply.get_str("setName").is_err(), ServerType::Standalone),
        (is("hidden"), ServerType::RsOther),
        (writable, ServerType::RsPrimary),
        (is("secondary"), ServerType::RsSecondary),
        (is("arbiterOnly"), ServerType::RsArbiter),
    ];
    let first = rules.into_iter().find(|(applies, _)| *applies);
    first.map_or(ServerType::RsOther, |(_, server_type)| server_type)
}

/// Returns the error in the reply to a command other than hello, like `sdam_core::reply::error`.
pub(crate) fn error(reply: &Document) -> Option<Error> {
    let failed = reply.get("ok").is_some_and(|ok| integer(ok) != Some(1));
    if failed || reply.get_str("$err").is_ok() {
        Some(failure(reply))
    } else if !reply.contains_key("ok") {
        Some(no_ok())
    } else if let Ok(write_concern) = reply.get_document("writeConcernError") {
        let message = write_concern.get_str("errmsg").ok();
        Some(command_error(reply, write_concern, message))
    } else {
        let legacy = reply.get_str("err").ok()?;
        Some(command_error(reply, reply, Some(legacy)))
    }
}

fn failure(reply: &Document) -> Error {
    let failed = reply.contains_key("ok") && reply.get("ok").and_then(integer) != Some(1);
    let message = match (reply.get("errmsg"), reply.get_str("$err").ok()) {
        (Some(errmsg), _) if failed => errmsg.as_str(),
        (_, dollar_err) => dollar_err,
    };
    command_error(reply, reply, message)
}

fn no_ok() -> Error {
    let text = "the reply has no field `ok`";
    Error::new(ErrorKind::Protocol, Stage::Hello, text)
}

/// Builds the error of a failed command: takes the labels and the topology version from `reply`,
/// and the code from `source`.
fn command_error(reply: &Document, source: &Document, message: Option<&str>) -> Error {
    let message = message.unwrap_or("the server gave no reason");
    let labels = reply.get_array("errorLabels").into_iter().flatten();
    Error::new(ErrorKind::Command, Stage::Hello, message)
        .with_code(int32(source, "code"))
        .with_code_name(source.get_str("codeName").ok())
        .with_labels(labels.filter_map(Bson::as_str).take(64))
        .with_topology_version(topology_version(reply))
}

fn integer(value: &Bson) -> Option<i64> {
    match value {
        Bson::Int32(number) => Some(i64::from(*number)),
        Bson::Int64(number) => Some(*number),
        Bson::Boolean(truth) => Some(i64::from(*truth)),
        // Converts the number through a string, so as to share no code with the parser.
        Bson::Double(number) if number.is_finite() => {
            format!("{number:.400}").strip_suffix(&format!(".{}", "0".repeat(400)))?.parse().ok()
        }
        _ => None,
    }
}

fn int32(reply: &Document, key: &str) -> Option<i32> {
    integer(reply.get(key)?)?.try_into().ok()
}

fn truth(reply: &Document, key: &str) -> Option<bool> {
    integer(reply.get(key)?).map(|number| number != 0)
}

fn object_id(reply: &Document, key: &str) -> Option<ObjectId> {
    let id = reply.get_object_id(key).ok()?;
    Some(ObjectId::from_bytes(id.bytes()))
}

fn topology_version(reply: &Document) -> Option<TopologyVersion> {
    let version = reply.get_document("topologyVersion").ok()?;
    Some(TopologyVersion {
        process_id: object_id(version, "processId")?,
        counter: integer(version.get("counter")?)?,
    })
}

fn address(reply: &Document, key: &str) -> Option<ServerAddress> {
    named(reply.get_str(key).ok()?)
}

fn members(reply: &Document, key: &str) -> Box<[ServerAddress]> {
    let Ok(members) = reply.get_array(key) else {
        return Box::default();
    };
    members
        .iter()
        .filter_map(|member| named(member.as_str()?))
        .take(Hello::MAX_MEMBERS)
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .collect()
}

/// Parses the address of a member; the path of a Unix domain socket is rejected.
fn named(text: &str) -> Option<ServerAddress> {
    ServerAddress::parse(text).ok().filter(|address| !address.is_unix())
}
