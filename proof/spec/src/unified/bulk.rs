//! Bulk writes and their results.

use std::collections::BTreeMap;

use bson::{Bson, Document, doc};
use serde_json::{Map, Value, json};

use super::helper::{self, Kind, Step, to_json};
use crate::fields::read;

/// The write commands, each with the name of its array of single writes.
const STATEMENTS: [(&str, &str); 3] =
    [("insert", "documents"), ("update", "updates"), ("delete", "deletes")];

/// Returns the commands for the `bulkWrite` of a collection: one command for each sequence of
/// adjacent writes of the same kind.
pub(super) fn of_collection(mut arguments: Map<String, Value>) -> Result<Vec<Step>, String> {
    let requests = arguments.remove("requests").unwrap_or_default();
    let ordered = arguments.remove("ordered").unwrap_or(Value::Bool(true));
    refuse_rest(&arguments)?;
    let mut steps: Vec<Step> = Vec::new();
    for request in read::<Vec<BTreeMap<String, Map<String, Value>>>>(&requests)? {
        for (name, arguments) in request {
            let (mut step, _) = helper::command(&name, arguments)?;
            step.body.insert("ordered", read::<bool>(&ordered)?);
            match steps.last_mut() {
                Some(last) if statements(&last.body).0 == statements(&step.body).0 => {
                    let (key, more) = statements(&step.body);
                    if let Ok(statements) = last.body.get_array_mut(key) {
                        statements.extend(more.iter().cloned());
                    }
                }
                _ => steps.push(step),
            }
        }
    }
    Ok(steps)
}

/// Returns the name and the items of the command's array of single writes.
fn statements(body: &Document) -> (&'static str, &[Bson]) {
    let found = STATEMENTS.iter().find_map(|(_, key)| {
        let items = body.get_array(key).ok()?;
        Some((*key, items.as_slice()))
    });
    found.unwrap_or_default()
}

fn refuse_rest(arguments: &Map<String, Value>) -> Result<(), String> {
    match arguments.keys().next() {
        Some(unknown) => Err(format!("unknown argument {unknown}")),
        None => Ok(()),
    }
}

/// Returns the command for the `clientBulkWrite` of a client.
pub(super) fn of_client(mut arguments: Map<String, Value>) -> Result<Step, String> {
    let models = arguments.remove("models").unwrap_or_default();
    let ordered = arguments.remove("ordered") != Some(Value::Bool(false));
    let verbose = arguments.remove("verboseResults") == Some(Value::Bool(true));
    refuse_rest(&arguments)?;
    let (mut names, mut operations) = (Vec::<String>::new(), Vec::new());
    for model in read::<Vec<BTreeMap<String, Document>>>(&models)? {
        for (name, mut model) in model {
            let namespace = model.remove("namespace");
            let namespace = namespace.as_ref().and_then(Bson::as_str).unwrap_or_default();
            let index = names.iter().position(|own| own == namespace);
            let index = index.unwrap_or_else(|| {
                names.push(namespace.to_owned());
                names.len() - 1
            });
            let (verb, what) = name.split_at_checked(6).unwrap_or((&*name, ""));
            // A `replaceOne` becomes an update command.
            let verb = if verb == "replac" { "update" } else { verb };
            let mut operation = doc! { verb: index as i32 };
            for (key, value) in model {
                let key = match &*key {
                    "update" | "replacement" => "updateMods",
                    other => other,
                };
                operation.insert(key, value);
            }
            if verb != "insert" {
                operation.insert("multi", what == "Many");
            }
            operations.push(operation);
        }
    }
    let namespaces: Vec<_> = names.iter().map(|name| doc! { "ns": name }).collect();
    let body = doc! {
        "bulkWrite": 1, "errorsOnly": !verbose, "ordered": ordered,
        "ops": operations, "nsInfo": namespaces,
    };
    Ok(Step { kind: Kind::Write, body })
}

/// Returns the numbers of documents that the commands inserted, matched, modified, upserted and
/// deleted, and the ids of the inserted and upserted documents.
pub(super) fn written(steps: &[Step], replies: &[Document]) -> Value {
    let count = |reply: &Document, key: &str| reply.get_i32(key).unwrap_or_default();
    let [mut inserted, mut matched, mut modified, mut deleted] = [0; 4];
    let (mut inserted_ids, mut upserted_ids) = (Map::new(), Map::new());
    let mut number = 0;
    for (step, reply) in steps.iter().zip(replies) {
        let (key, items) = statements(&step.body);
        match key {
            "documents" => {
                inserted += count(reply, "n");
                for (index, item) in (number..).zip(items) {
                    let id = item.as_document().and_then(|item| item.get("_id"));
                    inserted_ids.insert(index.to_string(), to_json(id));
                }
            }
            "updates" => {
                let upserted = reply.get_array("upserted").into_iter().flatten();
                let before = upserted_ids.len();
                for item in upserted.filter_map(Bson::as_document) {
                    let index = number + item.get_i32("index").unwrap_or_default() as usize;
                    upserted_ids.insert(index.to_string(), to_json(item.get("_id")));
                }
                let upserted = (upserted_ids.len() - before) as i32;
                matched += count(reply, "n") - upserted;
                modified += count(reply, "nModified");
            }
            _ => deleted += count(reply, "n"),
        }
        number += items.len();
    }
    json!({
        "insertedId": inserted_ids.values().next(),
        "insertedIds": inserted_ids,
        "insertedCount": inserted,
        "matchedCount": matched,
        "modifiedCount": modified,
        "upsertedCount": upserted_ids.len(),
        "upsertedId": upserted_ids.values().next(),
        "upsertedIds": upserted_ids,
        "deletedCount": deleted,
    })
}

/// Returns the result of a client's `clientBulkWrite`.
pub(super) fn summary(step: &Step, reply: &Document) -> Value {
    let mut results = BTreeMap::from(["insert", "update", "delete"].map(|verb| (verb, Map::new())));
    let cursor = reply.get_document("cursor");
    let batch = cursor.and_then(|cursor| cursor.get_array("firstBatch"));
    let operations = step.body.get_array("ops").into_iter().flatten();
    let operations: Vec<_> = operations.filter_map(Bson::as_document).collect();
    for item in batch.into_iter().flatten().filter_map(Bson::as_document) {
        let index = item.get_i32("idx").unwrap_or_default();
        let Some(operation) = operations.get(index as usize) else {
            continue;
        };
        let verb = operation.keys().next().map_or("", String::as_str);
        let document = operation.get_document("document");
        let id = document.ok().and_then(|document| document.get("_id"));
        let result = match verb {
            "insert" => json!({ "insertedId": to_json(id) }),
            "update" => json!({
                "matchedCount": to_json(item.get("n")),
                "modifiedCount": to_json(item.get("nModified")),
            }),
            _ => json!({ "deletedCount": to_json(item.get("n")) }),
        };
        if let Some(results) = results.get_mut(verb) {
            results.insert(index.to_string(), result);
        }
    }
    let count = |key| to_json(reply.get(key));
    json!({
        "insertedCount": count("nInserted"),
        "upsertedCount": count("nUpserted"),
        "matchedCount": count("nMatched"),
        "modifiedCount": count("nModified"),
        "deletedCount": count("nDeleted"),
        "insertResults": results["insert"],
        "updateResults": results["update"],
        "deleteResults": results["delete"],
    })
}
