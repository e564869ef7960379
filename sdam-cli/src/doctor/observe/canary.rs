//! The write test, which inserts a document as an application would, and then deletes it.

use std::time::{Duration, Instant};

use bson::{DateTime, Document, doc, oid::ObjectId};
use sdam::{
    Runtime,
    client::{Client, Command},
};
use sdam_core::{
    error::{Error, ErrorKind, Stage},
    options::Options,
};

use crate::{
    doctor::{arguments::Collection, observation::Canary},
    target::Target,
};

/// Inserts a document, waits for a majority, and deletes the document.
pub(super) async fn write(
    target: &Target,
    options: &Options,
    runtime: &Runtime,
    collection: &Collection,
    limit: Duration,
) -> Canary {
    let begun = Instant::now();
    let mut options = options.clone();
    options.server_selection_timeout = limit;
    let outcome = match target.builder(options).client(runtime.clone()) {
        Ok(client) => {
            let outcome = insert_and_delete(&client, collection, limit).await;
            client.close().await;
            outcome
        }
        Err(error) => Err((
            Canary::INSERT,
            Error::new(ErrorKind::Internal, Stage::Operation, error.to_string()),
        )),
    };
    Canary { collection: collection.to_string(), outcome, took: begun.elapsed() }
}

async fn insert_and_delete(
    client: &Client,
    collection: &Collection,
    limit: Duration,
) -> Result<(), (&'static str, Error)> {
    let id = ObjectId::new();
    let concern = doc! {
        "w": "majority", "wtimeout": i64::try_from(limit.as_millis()).unwrap_or(i64::MAX),
    };
    let document = doc! { "_id": id, "by": "sdam doctor", "at": DateTime::now() };
    let insert = doc! {
        "insert": &*collection.name, "documents": [document], "writeConcern": concern.clone(),
    };
    let inserted = run(client, collection, &insert, limit).await;
    // Delete the document even after an error, because it may have been inserted nevertheless.
    let delete = doc! {
        "delete": &*collection.name, "deletes": [{ "q": { "_id": id }, "limit": 1 }],
        "writeConcern": concern,
    };
    let deleted = run(client, collection, &delete, limit).await;
    inserted.map_err(|error| (Canary::INSERT, error))?;
    deleted.map_err(|error| (Canary::DELETE, error))
}

async fn run(
    client: &Client,
    collection: &Collection,
    command: &Document,
    limit: Duration,
) -> Result<(), Error> {
    let internal = |error: bson::error::Error| {
        Error::new(ErrorKind::Internal, Stage::Operation, error.to_string())
    };
    let bytes = bson::serialize_to_vec(command).map_err(internal)?;
    let command = Command::write(&collection.database, &bytes).with_timeout(limit);
    client.run(&command).await.map(drop)
}
