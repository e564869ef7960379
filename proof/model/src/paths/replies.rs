//! Hello replies, errors of operations, and what they consist of.

use bson::{Document, doc, oid::ObjectId};

use super::action::{Cause, Event, Failure, WIRE_VERSION};
use crate::step::{SET, members};

/// Returns the event of a check with this reply.
pub(super) fn checked(reply: Document) -> Event {
    Event::Checked(reply)
}

/// Returns the event of a check whose connection broke.
pub(super) fn lost() -> Event {
    Event::Checked(Document::new())
}

/// Returns `reply` with more fields. A field that is present is replaced.
pub(super) fn with(reply: &Document, fields: Document) -> Document {
    let mut reply = reply.clone();
    reply.extend(fields);
    reply
}

/// Returns `reply` without a field.
pub(super) fn without(reply: &Document, field: &str) -> Document {
    let mut reply = reply.clone();
    reply.remove(field);
    reply
}

/// Returns the part that all successful replies have in common.
pub(super) fn ok() -> Document {
    doc! { "ok": 1, "minWireVersion": 0, "maxWireVersion": WIRE_VERSION }
}

pub(super) fn standalone() -> Document {
    with(&ok(), doc! { "isWritablePrimary": true })
}

pub(super) fn mongos() -> Document {
    with(&standalone(), doc! { "msg": "isdbgrid" })
}

/// Returns the reply of a member that has no configuration.
pub(super) fn ghost() -> Document {
    with(&ok(), doc! { "isreplicaset": true })
}

/// Returns the part that the replies of all members have in common. It lists all members.
pub(super) fn member() -> Document {
    with(&ok(), doc! { "setName": SET, "hosts": hosts(0b111) })
}

pub(super) fn primary() -> Document {
    with(&member(), doc! { "isWritablePrimary": true })
}

pub(super) fn secondary() -> Document {
    with(&member(), doc! { "isWritablePrimary": false, "secondary": true })
}

pub(super) fn arbiter() -> Document {
    with(&member(), doc! { "arbiterOnly": true })
}

/// Returns the reply of a hidden member.
pub(super) fn hidden() -> Document {
    with(&secondary(), doc! { "hidden": true })
}

/// Returns an error reply.
pub(super) fn error(code: i32) -> Document {
    doc! { "ok": 0, "code": code, "errmsg": "no" }
}

/// Returns the members in a bit mask.
pub(super) fn hosts(mask: u8) -> Vec<String> {
    members(mask).map(|address| address.to_string()).collect()
}

/// Returns the id with this number; ids with greater numbers are greater.
pub(super) fn id(number: u8) -> ObjectId {
    ObjectId::from_bytes([number; 12])
}

/// Returns `reply` with a topology version: the process and its counter.
pub(super) fn versioned(reply: &Document, version: Option<(u8, i64)>) -> Document {
    let field = version.map(|(process, counter)| {
        doc! { "topologyVersion": { "processId": id(process), "counter": counter } }
    });
    with(reply, field.unwrap_or_default())
}

/// Returns an error of an operation on an established connection, or of its handshake if it is
/// `early`.
pub(super) fn failed(cause: Cause, early: bool, late: bool) -> Event {
    Event::Failed(Failure { cause, early, late })
}
