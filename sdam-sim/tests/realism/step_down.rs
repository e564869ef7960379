//! The effects of a step-down on waiting clients.

use bson::doc;

use crate::{
    cases::ServerKind,
    conversation::{Conversation, Framing, Observed, Timing},
    servers::Servers,
};

pub(crate) const NAMES: [&str; 4] = [
    "step down: the command",
    "step down: a waiting hello",
    "step down: a stream",
    "step down: the successor",
];

/// Makes the primary step down while one client waits for a hello reply and another receives a
/// stream.
///
/// The result does not depend on timing. If the step-down came before the requests, they would get
/// the same replies immediately.
pub(crate) fn observe(servers: &dyn Servers) -> [Vec<Observed>; 4] {
    let primary = servers.address(ServerKind::Primary);
    let hello = servers.hello(primary);
    let mut waiting = Conversation::open(primary).unwrap();
    let mut streaming = Conversation::open(primary).unwrap();
    let request = hello.get_document("topologyVersion").map(|version| {
        doc! { "hello": 1, "topologyVersion": version, "maxAwaitTimeMS": 600_000, "$db": "admin" }
    });
    if let Ok(request) = &request {
        waiting.send(Framing::Msg, request);
        streaming.send(Framing::Exhaust, request);
    }
    let mut operator = Conversation::open(primary).unwrap();
    operator.send(
        Framing::Msg,
        &doc! { "replSetStepDown": 60, "secondaryCatchUpPeriodSecs": 30, "$db": "admin" },
    );
    let obeyed = vec![operator.receive()];
    let (mut woken, mut streamed) = (Vec::new(), Vec::new());
    if request.is_ok() {
        woken.push(first_change(waiting.receive()));
        streamed.push(first_change(streaming.receive()));
    }
    let successor = loop {
        // Servers without streaming do not report the new primary, so poll them.
        let found = servers.members().into_iter().find(|address| {
            *address != primary && servers.hello(*address).get_bool("ismaster").unwrap()
        });
        if let Some(found) = found {
            break found;
        }
    };
    let mut asked = Conversation::open(successor).unwrap();
    asked.send(Framing::Msg, &doc! { "isMaster": 1, "$db": "admin" });
    [obeyed, woken, streamed, vec![asked.receive()]]
}

/// Removes those parts of the first reply after the step-down that depend on a race: the timing,
/// and whether the server is already a secondary or has only stopped accepting writes.
fn first_change(seen: Observed) -> Observed {
    match seen {
        Observed::Reply(mut reply) => {
            reply.timing = Timing::Immediate;
            for field in ["secondary", "primary", "electionId"] {
                reply.body.remove(field);
            }
            Observed::Reply(reply)
        }
        Observed::Closed => Observed::Closed,
    }
}
