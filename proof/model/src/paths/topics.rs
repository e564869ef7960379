//! The searches: their connection strings, and the actions that they take in every state.

use bson::{Document, doc};
use sdam_core::machine::TopologyMachine;

use super::{
    action::{Action, Cause, Event},
    outcome,
    replies::{
        arbiter, checked, error, failed, ghost, hidden, hosts, id, lost, member, mongos, primary,
        secondary, standalone, versioned, with, without,
    },
};
use crate::step::MEMBERS;

/// A search.
pub(super) struct Topic {
    pub(super) name: &'static str,
    pub(super) uri: &'static str,
    pub(super) actions: Vec<Action>,
    /// True if some actions need a connection of an earlier pool generation.
    generations: bool,
}

impl Topic {
    fn new(name: &'static str, uri: &'static str, members: u8, events: &[Event]) -> Self {
        let on = |on| events.iter().map(move |event| Action { on, event: event.clone() });
        Self { name, uri, actions: (0..members).flat_map(on).collect(), generations: false }
    }

    /// Returns a key of the part of the state that influences later phases.
    pub(super) fn key(&self, machine: &TopologyMachine) -> String {
        outcome::of(machine, self.generations.into()).to_string()
    }
}

/// Returns all searches.
pub(super) fn all() -> Vec<Topic> {
    let (named, unnamed) = ("mongodb://a.db,b.db/?replicaSet=rs", "mongodb://a.db,b.db");
    let direct = "mongodb://a.db/?directConnection=true";
    let direct_named = "mongodb://a.db/?directConnection=true&replicaSet=rs";
    let all = "mongodb://a.db,b.db,c.db/?replicaSet=rs";
    vec![
        Topic::new("elections", all, MEMBERS, &elections()),
        Topic::new("membership, named", named, MEMBERS, &membership()),
        Topic::new("membership, unnamed", unnamed, MEMBERS, &membership()),
        Topic::new("membership, one seed", "mongodb://a.db", MEMBERS, &membership()),
        Topic::new("membership, direct", direct, 1, &membership()),
        Topic::new("membership, direct, named", direct_named, 1, &membership()),
        Topic { generations: true, ..Topic::new("errors", named, 2, &errors()) },
        Topic { generations: true, ..Topic::new("errors, direct", direct_named, 1, &errors()) },
        Topic::new("compatibility", unnamed, 2, &compatibility()),
        Topic::new("compatibility, direct", direct, 1, &compatibility()),
    ]
}

/// Returns primaries with every combination of two election ids and two set versions, before and
/// since MongoDB 6.0.
fn elections() -> Vec<Event> {
    let mut replies = vec![secondary()];
    for wire_version in [13, 17] {
        for election in 0..3 {
            for version in 0..3 {
                let mut reply = with(&primary(), doc! { "maxWireVersion": wire_version });
                if election > 0 {
                    reply.insert("electionId", id(election));
                }
                if version > 0 {
                    reply.insert("setVersion", version);
                }
                replies.push(reply);
            }
        }
    }
    events(replies)
}

/// Returns every type of server, with host lists, set names, addresses and hints of all kinds.
fn membership() -> Vec<Event> {
    let mut replies = vec![
        standalone(),
        mongos(),
        ghost(),
        with(&ghost(), doc! { "setName": "rs", "hosts": hosts(0b111) }),
        hidden(),
        member(),
        error(1),
        with(&without(&primary(), "isWritablePrimary"), doc! { "ismaster": true }),
        with(&secondary(), doc! { "primary": hosts(0b001) [0].as_str() }),
        with(&secondary(), doc! { "primary": hosts(0b100) [0].as_str(), "me": "x.db:27017" }),
    ];
    for role in [primary(), secondary(), arbiter()] {
        replies.extend([
            role.clone(),
            with(&role, doc! { "hosts": hosts(0b011) }),
            with(&role, doc! { "hosts": hosts(0b100) }),
            with(
                &role,
                doc! { "hosts": hosts(0b001), "passives": hosts(0b010), "arbiters": hosts(0b100) },
            ),
            with(&role, doc! { "me": "A.db:27017" }),
            with(&role, doc! { "setName": "other" }),
        ]);
    }
    events(replies)
}

/// Returns old and new topology versions in replies and errors, of two processes, and errors of
/// all kinds on connections of both generations.
fn errors() -> Vec<Event> {
    let versions = [None, Some((1, 1)), Some((1, 2)), Some((2, 1))];
    let mut list = vec![lost()];
    let reported = |cause: Cause| {
        [(false, false), (false, true), (true, false), (true, true)]
            .map(|(early, late)| failed(cause.clone(), early, late))
    };
    list.extend(reported(Cause::Network));
    list.extend(reported(Cause::Timeout));
    // InternalError.
    list.extend(reported(Cause::Command(error(1))));
    for version in versions {
        list.extend(
            [primary(), secondary(), error(11_600)]
                .map(|reply| checked(versioned(&reply, version))),
        );
        // NotWritablePrimary and ShutdownInProgress.
        for code in [10_107, 91] {
            list.extend(reported(Cause::Command(versioned(&error(code), version))));
        }
    }
    list
}

/// Returns servers that are too old, too new, or without sessions.
fn compatibility() -> Vec<Event> {
    let mut replies = vec![ghost()];
    for role in [primary(), secondary(), arbiter(), mongos(), standalone()] {
        let minutes = |minutes: i32| doc! { "logicalSessionTimeoutMinutes": minutes };
        replies.extend([
            role.clone(),
            with(&role, minutes(10)),
            with(&role, minutes(20)),
            with(&role, doc! { "minWireVersion": 0, "maxWireVersion": 6 }),
            with(&role, doc! { "minWireVersion": 99, "maxWireVersion": 101 }),
        ]);
    }
    events(replies)
}

/// Returns checks with these replies, and a check that is not answered.
fn events(replies: Vec<Document>) -> Vec<Event> {
    let mut events: Vec<_> = replies.into_iter().map(checked).collect();
    events.push(lost());
    events
}
