//! The replies of the simulated servers.

use mongodb::bson::{
    Binary, DateTime, Document, RawArrayBuf, RawDocumentBuf, Timestamp, cstr, oid::ObjectId,
    rawdoc, spec::BinarySubtype,
};

use super::{Deployment, Kind};

impl Deployment {
    /// Returns the reply to a command.
    pub(super) fn reply(&self, index: usize, command: &Document) -> RawDocumentBuf {
        let name = command.keys().next().map_or("", String::as_str);
        let mut reply = match name {
            "hello" | "isMaster" | "ismaster" => self.hello(index, 1),
            "find" => rawdoc! {
                "cursor": {
                    "id": 0_i64,
                    "ns": "test.things",
                    "firstBatch": [{ "_id": 1, "text": "a document of some length" }],
                },
            },
            _ => RawDocumentBuf::new(),
        };
        reply.append(cstr!("ok"), 1.0);
        let time = Timestamp { time: 1_700_000_000, increment: 1 };
        reply.append(
            cstr!("$clusterTime"),
            rawdoc! {
                "clusterTime": time,
                "signature": {
                    "hash": Binary {
                        subtype: BinarySubtype::Generic,
                        bytes: vec![0; 20],
                    },
                    "keyId": 0_i64,
                },
            },
        );
        reply.append(cstr!("operationTime"), time);
        reply
    }

    /// Returns the reply to hello, without `ok`.
    pub(super) fn hello(&self, index: usize, counter: i64) -> RawDocumentBuf {
        let mut reply = rawdoc! {
            "helloOk": true,
            "topologyVersion": { "processId": ObjectId::from_bytes([7; 12]), "counter": counter },
            "isWritablePrimary": index == 0 || self.kind == Kind::Sharded,
            "maxBsonObjectSize": 16_777_216,
            "maxMessageSizeBytes": 48_000_000,
            "maxWriteBatchSize": 100_000,
            "logicalSessionTimeoutMinutes": 30,
            "minWireVersion": 0,
            "maxWireVersion": 21,
            "readOnly": false,
        };
        if self.kind == Kind::Sharded {
            reply.append(cstr!("msg"), "isdbgrid");
            return reply;
        }
        let mut hosts = RawArrayBuf::new();
        for member in &self.members {
            hosts.push(member.as_str());
        }
        let of_the_set = rawdoc! {
            "hosts": hosts,
            "setName": "rs",
            "setVersion": 1,
            "secondary": index != 0,
            "primary": self.members[0].as_str(),
            "me": self.members[index].as_str(),
            "electionId": ObjectId::from_bytes([8; 12]),
            "lastWrite": { "lastWriteDate": DateTime::from_millis(1_700_000_000_000 + counter) },
        };
        for (key, value) in of_the_set.iter().flatten() {
            reply.append(key, value);
        }
        reply
    }
}
