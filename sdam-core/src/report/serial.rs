//! Serializes reports in recordings.

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
            // A reply without an error has no effect on the server. It is restored as a time-out of
            // an operation, which has no effect either.
            Cause::Reply(reply) => reply::error(&reply, stage).unwrap_or_else(|| {
                Error::timeout(Stage::Operation, "the reply has no error").with_reply(&*reply)
            }),
        };
        Ok(Self::new(serial.generation, error)
            .with_service(serial.service_id)
            .with_max_wire_version(serial.max_wire_version))
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;
    use crate::ids::ObjectId;

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
