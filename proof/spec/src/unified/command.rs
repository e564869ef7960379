//! The commands that helper methods run, and the results that are read from the replies.

use std::time::Duration;

use bson::{Bson, Document, doc};
use serde_json::{Map, Value};

use super::{
    bulk,
    helper::{self, Answer, Kind, Step},
};
use crate::fields::{Preference, read};

/// A call of a helper method, with its arguments.
#[derive(Clone, Debug)]
pub(super) struct Method {
    steps: Vec<Step>,
    pub(super) answer: Answer,
    /// `readPreference`. Only commands that the application runs itself have it.
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
                let (step, answer) = helper::command(name, arguments)?;
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
