//! A table of drivers' helper methods, the commands that they run, and the results that are read
//! from the replies.

use std::time::Duration;

use bson::{Bson, Document, doc};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::bulk;
use crate::fields::{Preference, read};

/// The kind of a helper's command. The client has a constructor for each kind.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    Read,
    /// A command that lists databases, collections or indexes. Only the primary is guaranteed to
    /// return a complete list.
    List,
    Write,
    /// A command that the application runs itself.
    Generic,
}

/// The part of a helper's result that tests compare.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Answer {
    /// The documents returned by a cursor.
    Documents,
    /// The first document returned by a cursor.
    First,
    /// The field `n` of the only document returned by a cursor.
    Count,
    /// A field of the reply.
    #[serde(skip)]
    Field(#[serde(skip)] &'static str),
    /// The number of written documents, and their ids.
    Written,
    /// The counts of a client's bulk write.
    Bulk,
    /// The reply.
    Reply,
}

/// The helpers: name, kind of command, kind of result, command, and arguments.
///
/// In the command, `$` is the target: a collection, or 1 for a database or a client. A result `.n`
/// is the field `n` of the reply. An argument sets the field of the same name; an argument of the
/// form `a>b.0.c` sets the field `c` of the first item of `b`.
const HELPERS: &str = r#"
aggregate | read | documents | {"aggregate":"$","cursor":{}} | pipeline batchSize>cursor.batchSize maxTimeMS
count | read | .n | {"count":"$"} | filter>query maxTimeMS
countDocuments | read | count | {"aggregate":"$","pipeline":[{"$match":{}},{"$group":{"_id":1,"n":{"$sum":1}}}],"cursor":{}} | filter>pipeline.0.$match maxTimeMS
createChangeStream | read | reply | {"aggregate":"$","pipeline":[{"$changeStream":{}}],"cursor":{}} | pipeline>pipeline.+ maxTimeMS
createIndex | write | reply | {"createIndexes":"$","indexes":[{}]} | keys>indexes.0.key name>indexes.0.name maxTimeMS
deleteMany | write | written | {"delete":"$","deletes":[{"limit":0}],"ordered":true} | filter>deletes.0.q
deleteOne | write | written | {"delete":"$","deletes":[{"limit":1}],"ordered":true} | filter>deletes.0.q
distinct | read | .values | {"distinct":"$"} | fieldName>key filter>query maxTimeMS
dropIndex | write | reply | {"dropIndexes":"$"} | name>index maxTimeMS
dropIndexes | write | reply | {"dropIndexes":"$","index":"*"} | maxTimeMS
estimatedDocumentCount | read | .n | {"count":"$"} | maxTimeMS
find | read | documents | {"find":"$"} | filter sort limit projection skip comment hint max min showRecordId returnKey batchSize maxTimeMS
findOne | read | first | {"find":"$","limit":1,"singleBatch":true} | filter maxTimeMS
findOneAndDelete | write | .value | {"findAndModify":"$","remove":true} | filter>query sort maxTimeMS
findOneAndReplace | write | .value | {"findAndModify":"$"} | filter>query replacement>update returnDocument>new maxTimeMS
findOneAndUpdate | write | .value | {"findAndModify":"$"} | filter>query update returnDocument>new maxTimeMS
insertMany | write | written | {"insert":"$","ordered":true} | documents ordered
insertOne | write | written | {"insert":"$","documents":[{}],"ordered":true} | document>documents.0
listCollectionNames | list | reply | {"listCollections":1,"nameOnly":true} | filter
listCollectionObjects | list | reply | {"listCollections":1} | filter
listCollections | list | reply | {"listCollections":1} | filter
listDatabaseNames | list | reply | {"listDatabases":1,"nameOnly":true} | -
listDatabaseObjects | list | reply | {"listDatabases":1} | -
listDatabases | list | reply | {"listDatabases":1} | filter
listIndexNames | list | reply | {"listIndexes":"$"} | -
listIndexes | list | reply | {"listIndexes":"$"} | -
mapReduce | generic | .results | {"mapReduce":"$"} | map reduce out
replaceOne | write | written | {"update":"$","updates":[{"multi":false}],"ordered":true} | filter>updates.0.q replacement>updates.0.u upsert>updates.0.upsert
updateMany | write | written | {"update":"$","updates":[{"multi":true}],"ordered":true} | filter>updates.0.q update>updates.0.u upsert>updates.0.upsert
updateOne | write | written | {"update":"$","updates":[{"multi":false}],"ordered":true} | filter>updates.0.q update>updates.0.u upsert>updates.0.upsert
"#;

/// A helper's command, whose target is not known yet.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) kind: Kind,
    pub(super) body: Document,
}

/// Returns the command that the helper `name` runs if it is called with `arguments`, and the kind
/// of its result.
pub(super) fn command(name: &str, arguments: Map<String, Value>) -> Result<(Step, Answer), String> {
    let mut rows = HELPERS.lines().map(|row| row.split(" | "));
    let row = rows.find_map(|mut row| (row.next() == Some(name)).then_some(row));
    let row: Vec<_> = row.into_iter().flatten().collect();
    let [kind, answer, body, slots] = *row else {
        return Err(format!("{name} is not a known operation"));
    };
    let mut kind: Kind = read(&kind.into())?;
    let answer = match answer.strip_prefix('.') {
        Some(field) => Answer::Field(field),
        None => read(&answer.into())?,
    };
    let body: Document = serde_json::from_str(body).map_err(|error| error.to_string())?;
    let mut body = Bson::Document(body);
    for (argument, value) in arguments {
        let mut slots = slots.split(' ');
        let slot = slots.find_map(|slot| {
            let (own, path) = slot.split_once('>').unwrap_or((slot, slot));
            (own == argument).then_some(path)
        });
        let path = slot.ok_or_else(|| format!("unknown argument {argument}"))?;
        let value = match &*argument {
            "returnDocument" => Bson::Boolean(value == "After"),
            _ => read::<Bson>(&value).map_err(|error| format!("{argument}: {error}"))?,
        };
        place(&mut body, path, value).ok_or_else(|| format!("{argument} has the wrong type"))?;
    }
    let Bson::Document(body) = body else {
        return Err(format!("the command of {name} is no document"));
    };
    let last = body.get_array("pipeline").ok().and_then(|it| it.last());
    let stage = last.and_then(Bson::as_document);
    if stage.is_some_and(|it| it.contains_key("$out") || it.contains_key("$merge")) {
        kind = Kind::Write;
    }
    Ok((Step { kind, body }, answer))
}

/// Sets the field at `path`. If a key in the path is `+`, the items of `value` are appended to an
/// array.
fn place(target: &mut Bson, path: &str, value: Bson) -> Option<()> {
    let (key, rest) = match path.split_once('.') {
        Some((key, rest)) => (key, Some(rest)),
        None => (path, None),
    };
    let slot = match target {
        Bson::Document(document) => document.entry(key.to_owned()).or_insert(Bson::Null),
        Bson::Array(array) if key == "+" => {
            array.extend(value.as_array()?.iter().cloned());
            return Some(());
        }
        Bson::Array(array) => array.get_mut(key.parse::<usize>().ok()?)?,
        _ => return None,
    };
    if let Some(rest) = rest {
        return place(slot, rest, value);
    }
    *slot = value;
    Some(())
}

/// A call of a helper method, with its arguments.
#[derive(Clone, Debug)]
pub(super) struct Method {
    steps: Vec<Step>,
    pub(super) answer: Answer,
    /// `readPreference`. Only commands of the kind [`Kind::Generic`] have this argument.
    pub(super) preference: Option<Preference>,
    /// The name of the session entity.
    pub(super) session: Option<String>,
    /// `timeoutMS`.
    pub(super) timeout: Option<Duration>,
    /// Additional fields for the `getMore` commands of the command's cursor.
    pub(super) get_more: Document,
}

/// The entity on which a method is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope<'n> {
    Client,
    Database,
    /// The collection of this name.
    Collection(&'n str),
}

impl Method {
    /// Reads a call. Errors name the argument that is wrong.
    pub(super) fn read(name: &str, mut arguments: Map<String, Value>) -> Result<Self, String> {
        let mut take = |key: &str| arguments.remove(key);
        let preference = take("readPreference").map(|value| read(&value));
        let session = take("session").map(|value| read(&value));
        let timeout = take("timeoutMS").map(|value| read(&value));
        // The mode `cursorLifetime` is the default, so setting it has no effect.
        take("timeoutMode")
            .filter(|mode| mode != "cursorLifetime")
            .map_or(Ok(()), |mode| Err(format!("unknown timeoutMode {mode}")))?;
        let mut get_more = Document::new();
        let (steps, answer) = match name {
            "runCommand" => (vec![run_command(arguments)?], Answer::Reply),
            "runCursorCommand" => {
                for name in ["batchSize", "comment", "maxTimeMS"] {
                    if let Some(value) = arguments.remove(name) {
                        get_more.insert(name, read::<Bson>(&value)?);
                    }
                }
                (vec![run_command(arguments)?], Answer::Documents)
            }
            "bulkWrite" => (bulk::of_collection(arguments)?, Answer::Written),
            "clientBulkWrite" => (vec![bulk::of_client(arguments)?], Answer::Bulk),
            _ => {
                let (step, answer) = command(name, arguments)?;
                (vec![step], answer)
            }
        };
        Ok(Self {
            steps,
            answer,
            preference: preference.transpose()?,
            session: session.transpose()?,
            timeout: timeout.transpose()?.map(Duration::from_millis),
            get_more,
        })
    }

    /// Returns the commands that the call runs if it is made in the given scope.
    pub(super) fn steps(&self, scope: Scope<'_>) -> Vec<Step> {
        let mut steps = self.steps.clone();
        for Step { body, .. } in &mut steps {
            if let Some((_, target @ Bson::String(_))) = body.iter_mut().next()
                && target.as_str() == Some("$")
            {
                // On a database or a client, commands such as `aggregate` have the value 1 instead
                // of a collection name.
                *target = match scope {
                    Scope::Client | Scope::Database => Bson::Int32(1),
                    Scope::Collection(name) => name.into(),
                };
            }
            let first = body.get_array_mut("pipeline").ok();
            let first = first.and_then(|stages| stages.first_mut()?.as_document_mut());
            if let Some(options) =
                first.and_then(|stage| stage.get_document_mut("$changeStream").ok())
                && scope == Scope::Client
            {
                options.insert("allChangesForCluster", true);
            }
        }
        steps
    }

    /// Returns the result of an operation whose commands received `replies`.
    pub(super) fn result(&self, replies: &[Document]) -> Value {
        let last = replies.last();
        let first = || {
            let batch = last?.get_document("cursor").ok()?.get_array("firstBatch");
            batch.ok()?.first()
        };
        match self.answer {
            Answer::Field(name) => to_json(last.and_then(|reply| reply.get(name))),
            Answer::First => to_json(first()),
            Answer::Count => {
                let count = first().and_then(|document| document.as_document()?.get("n"));
                to_json(Some(count.unwrap_or(&Bson::Int32(0))))
            }
            Answer::Written => bulk::written(&self.steps, replies),
            Answer::Bulk => match (self.steps.first(), last) {
                (Some(step), Some(reply)) => bulk::summary(step, reply),
                _ => Value::Null,
            },
            Answer::Documents | Answer::Reply => {
                to_json(last.map(|reply| Bson::Document(reply.clone())).as_ref())
            }
        }
    }
}

/// Converts a value to relaxed extended JSON, which the tests use.
pub(super) fn to_json(value: Option<&Bson>) -> Value {
    value.cloned().map_or(Value::Null, Bson::into_relaxed_extjson)
}

fn run_command(mut arguments: Map<String, Value>) -> Result<Step, String> {
    let mut take = |key: &str| {
        let value = arguments.remove(key);
        value.ok_or_else(|| format!("{key} is missing"))
    };
    let name: String = read(&take("commandName")?)?;
    let command: Document = read(&take("command")?)?;
    if let Some(unknown) = arguments.keys().next() {
        return Err(format!("unknown argument {unknown}"));
    }
    // JSON parsers sort the keys, but the command name must come first.
    let mut body = doc! { &name: command.get(&name) };
    body.extend(command);
    Ok(Step { kind: Kind::Generic, body })
}
