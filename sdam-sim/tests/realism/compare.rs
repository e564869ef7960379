//! Compares replies from real servers with replies from simulated ones.

use std::collections::BTreeMap;

use bson::{Bson, Document};

use crate::conversation::Observed;

/// Fields whose values always differ. Only their types are compared.
const VOLATILE: &[&str] = &[
    "localTime",
    "connectionId",
    "topologyVersion.processId",
    "topologyVersion.counter",
    "primary",
    "me",
    "electionId",
    "setVersion",
    "operationTime",
    "$clusterTime.clusterTime",
    "opTime.ts",
    "lastWrite.opTime.ts",
    "lastWrite.opTime.t",
    "opTime.t",
    "lastWrite.lastWriteDate",
    "lastWrite.majorityOpTime.ts",
    "lastWrite.majorityOpTime.t",
    "lastWrite.majorityWriteDate",
];

const TIMING: &str = "(timing)";

/// One difference between the simulated server and the real one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Aspect {
    /// The dotted path of a field, or `(flags)`, `(order)`, `(timing)` or `(replies)`.
    pub(crate) path: String,
    pub(crate) real: Option<String>,
    pub(crate) simulated: Option<String>,
}

impl Aspect {
    pub(crate) fn is_of_time(&self) -> bool {
        self.path == TIMING
    }
}

/// Compares the replies from two servers, one by one.
pub(crate) fn compare(real: &[Observed], simulated: &[Observed]) -> Vec<Aspect> {
    let mut aspects = Vec::new();
    let mut note = |path: &str, real: Option<String>, simulated: Option<String>| {
        if real != simulated {
            aspects.push(Aspect { path: path.to_owned(), real, simulated });
        }
    };
    note("(replies)", Some(outline(real)), Some(outline(simulated)));
    for (real, simulated) in real.iter().zip(simulated) {
        let (Observed::Reply(real), Observed::Reply(simulated)) = (real, simulated) else {
            continue;
        };
        let carried = |reply: &crate::conversation::Reply| {
            format!(
                "{:?} more_to_come={} answers_last={}",
                reply.op_code, reply.more_to_come, reply.answers_last
            )
        };
        note("(flags)", Some(carried(real)), Some(carried(simulated)));
        let timing = |reply: &crate::conversation::Reply| Some(format!("{:?}", reply.timing));
        note(TIMING, timing(real), timing(simulated));
        let (own, other) = (fields(&real.body), fields(&simulated.body));
        let paths = own.keys().chain(other.keys().filter(|path| !own.contains_key(*path)));
        for path in paths {
            note(path, own.get(path).cloned(), other.get(path).cloned());
        }
        // The order of fields in a hello reply is specified (M-42). In other replies, it is
        // arbitrary.
        if real.body.contains_key("maxWireVersion") {
            let order = |body: &Document, other: &Document| {
                let common = body.keys().filter(|key| other.contains_key(key.as_str()));
                Some(common.map(String::as_str).collect::<Vec<_>>().join(" "))
            };
            note("(order)", order(&real.body, &simulated.body), order(&simulated.body, &real.body));
        }
    }
    aspects.sort();
    aspects.dedup();
    aspects
}

fn outline(seen: &[Observed]) -> String {
    let words = seen.iter().map(|seen| match seen {
        Observed::Reply(_) => "reply",
        Observed::Closed => "closed",
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Returns the type and value of every field, keyed by its path.
fn fields(body: &Document) -> BTreeMap<String, String> {
    let mut fields = BTreeMap::new();
    collect(&mut fields, "", body);
    fields
}

fn collect(fields: &mut BTreeMap<String, String>, prefix: &str, body: &Document) {
    for (name, value) in body {
        let path = format!("{prefix}{name}");
        match value {
            Bson::Document(inner) => collect(fields, &format!("{path}."), inner),
            // Addresses differ, but their number must be the same.
            Bson::Array(items) if matches!(&*path, "hosts" | "passives" | "arbiters") => {
                fields.insert(path, format!("Array of {}", items.len()));
            }
            Bson::Array(items) if matches!(items.first(), Some(Bson::Document(_))) => {
                for (index, item) in items.iter().filter_map(Bson::as_document).enumerate() {
                    collect(fields, &format!("{path}.{index}."), item);
                }
            }
            _ if VOLATILE.contains(&&*path) => {
                fields.insert(path, format!("{:?}", value.element_type()));
            }
            // The message quotes the counters, which differ between the two servers.
            Bson::String(text) if text.starts_with("Received a topology version") => {
                fields.insert(path, text.replace(|letter: char| letter.is_ascii_digit(), "N"));
            }
            _ => {
                fields.insert(path, format!("{:?} {value}", value.element_type()));
            }
        }
    }
}
