//! Changes hello replies of replica set members into those of a mongos (`--advertise`).
//!
//! A client that believes it is connected to a mongos does not discover members, so all its
//! connections go through the proxy. It still sends retryable writes, sessions and transactions.
//! With each read in a mode other than primary, it sends `$readPreference`, which replica set
//! members accept, too.

use std::mem;

use bson::Document;
use sdam::transport::wire::{OpCode, OpMsg, OpReply, WireMessage};

use super::message::Message;

/// The fields that a mongos never sends, and `topologyVersion`.
///
/// A mongos may send `topologyVersion`, but behind the proxy it would identify the process of one
/// member. Monitors would then open a second connection and wait for changes of that member, which
/// are of no use to them. Without the field, monitors poll, and they notice a new primary because
/// the proxy closes their connection.
const HIDDEN: [&str; 18] = [
    "arbiterOnly",
    "arbiters",
    "buildIndexes",
    "electionId",
    "hidden",
    "hosts",
    "lastWrite",
    "me",
    "passive",
    "passives",
    "primary",
    "secondary",
    "secondaryDelaySecs",
    "setName",
    "setVersion",
    "slaveDelay",
    "tags",
    "topologyVersion",
];

/// The hello requests of a connection, and the replies that are in progress.
#[derive(Clone, Debug, Default)]
pub(super) struct Mask {
    /// The ids of the hello requests whose reply is not complete yet.
    ids: Vec<i32>,
    /// The bytes of an incomplete message that is, or may be, a reply to one of these requests.
    held: Vec<u8>,
    /// The bytes to send to the client; `None` if the received bytes should be sent unchanged.
    instead: Option<Vec<u8>>,
}

impl Mask {
    /// Records that a hello request with the id `id` was sent.
    pub(super) fn asked(&mut self, id: i32) {
        self.ids.push(id);
    }

    /// Returns whether the next bytes from the member must be passed to [`Self::take`].
    pub(super) fn begins(&mut self) -> bool {
        let is_due = !self.ids.is_empty() || !self.held.is_empty();
        self.instead = is_due.then(Vec::new);
        is_due
    }

    /// Processes a piece of a message from the member.
    pub(super) fn take(&mut self, piece: &[u8], message: &Message) {
        let out = self.instead.get_or_insert_default();
        self.held.extend_from_slice(piece);
        let Some(id) = message.response_to() else {
            return;
        };
        let asked = self.ids.iter_mut().find(|asked| **asked == id);
        if asked.is_some() && !message.is_complete() {
            return;
        }
        let held = mem::take(&mut self.held);
        let Some(asked) = asked else {
            out.extend(held);
            return;
        };
        if message.more_to_come() {
            // In a stream, each reply names the previous reply as the request that it answers.
            *asked = message.request_id();
        } else {
            self.ids.retain(|asked| *asked != id);
        }
        // Pass on a malformed reply unchanged, and leave it to the client to refuse it.
        out.extend(masked(&held).map_or(held, WireMessage::into_bytes));
    }

    /// Returns the bytes to send to the client instead of the bytes processed since
    /// [`Self::begins`].
    pub(super) fn instead(&mut self) -> Option<Vec<u8>> {
        self.instead.take()
    }
}

/// Returns the reply as a mongos would send it, or `None` if the sender is not a replica set
/// member.
///
/// The fields for compression, authentication and limits are kept, because clients use these
/// features with the member. Hello and its reply are never compressed.
fn masked(reply: &[u8]) -> Option<WireMessage> {
    let reply = WireMessage::decode(reply.to_vec()).ok()?;
    let mut body = Document::from_reader(reply.body()).ok()?;
    body.get("setName")?;
    for name in HIDDEN {
        body.remove(name);
    }
    for name in ["isWritablePrimary", "ismaster"] {
        if let Some(value) = body.get_mut(name) {
            *value = true.into();
        }
    }
    body.insert("msg", "isdbgrid");
    let body = &*body.to_vec().ok()?;
    let (request_id, response_to) = (reply.request_id(), reply.response_to());
    let message = if reply.op_code() == OpCode::Reply {
        OpReply { request_id, response_to, flags: OpReply::AWAIT_CAPABLE, body }.encode()
    } else {
        let (more_to_come, checksum) = (reply.more_to_come(), reply.has_checksum());
        let none = OpMsg::default();
        OpMsg { request_id, response_to, more_to_come, checksum, body, ..none }.encode()
    };
    message.ok()
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::super::frames::Exchange;
    use super::*;

    fn message(request_id: i32, response_to: i32, more_to_come: bool, body: &Document) -> Vec<u8> {
        let body = &*body.to_vec().unwrap();
        let none = OpMsg::default();
        let message = OpMsg { request_id, response_to, more_to_come, body, ..none };
        message.encode().unwrap().into_bytes()
    }

    #[test]
    fn only_replies_to_hello_are_changed_however_they_are_cut() {
        let member = doc! { "isWritablePrimary": false, "setName": "s", "me": "a", "ok": 1 };
        let mongos = doc! { "isWritablePrimary": true, "ok": 1, "msg": "isdbgrid" };
        let other = doc! { "hello": 1, "setName": "s", "filler": "x".repeat(100) };
        let reply = message(21, 1, false, &other);
        let requests = [
            message(1, 0, false, &doc! { "find": "hello" }),
            message(2, 0, false, &doc! { "hello": 1 }),
            message(3, 0, false, &doc! { "isMaster": 1 }),
            message(4, 0, false, &doc! { "hellos": 1 }),
        ];
        let replies = [
            message(22, 2, true, &member),
            message(23, 22, false, &member),
            message(24, 3, false, &doc! { "ismaster": true, "ok": 1 }),
            message(25, 4, false, &other),
        ];
        let expected = [
            &reply[40..],
            &message(22, 2, true, &mongos),
            &message(23, 22, false, &mongos),
            &replies[2],
            &replies[3],
        ];
        for size in [1, 3, 4, 11, 12, 13, 50, 10_000] {
            let mut exchange = Exchange::masked();
            assert!(exchange.send(&requests[0]) && exchange.receive(&reply[..40]));
            assert_eq!(exchange.instead(), None);
            // Send the second hello while the reply to the first one is in transit.
            assert!(exchange.send(&requests[1..].concat()));
            let mut client = Vec::new();
            for piece in [&reply[40..], &replies.concat()].concat().chunks(size) {
                assert!(exchange.receive(piece));
                client.extend(exchange.instead().unwrap_or_else(|| piece.to_vec()));
            }
            assert_eq!(client, expected.concat(), "{size}");
            assert!(exchange.is_complete());
        }
    }
}
