//! The contents of collections before and after a test.

use bson::{Document, doc};
use serde::Deserialize;

/// The complete contents of a collection.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct CollectionData {
    pub(super) collection_name: String,
    pub(super) database_name: String,
    pub(super) documents: Vec<Document>,
}

impl CollectionData {
    /// Returns the commands that replace the collection's contents with `documents`.
    pub(super) fn setup(&self) -> Vec<Document> {
        let concern = doc! { "w": "majority" };
        let name = &self.collection_name;
        let mut commands = vec![doc! { "drop": name, "writeConcern": concern.clone() }];
        commands.push(if self.documents.is_empty() {
            doc! { "create": name, "writeConcern": concern }
        } else {
            doc! { "insert": name, "documents": &self.documents, "writeConcern": concern }
        });
        commands
    }

    /// Returns the command that reads the collection's contents.
    pub(super) fn query(&self) -> Document {
        doc! { "find": &self.collection_name, "sort": { "_id": 1 } }
    }

    /// Compares the reply to [`query`](Self::query) with the expected contents.
    pub(super) fn compare(&self, reply: &Document) -> Result<(), String> {
        let cursor = reply.get_document("cursor");
        let batch = cursor.and_then(|cursor| cursor.get_array("firstBatch"));
        let batch = batch.map_err(|error| error.to_string())?;
        let documents = batch.iter().filter_map(|document| document.as_document());
        if documents.eq(&self.documents) {
            return Ok(());
        }
        let name = &self.collection_name;
        Err(format!("{name} has {batch:?}, expected {:?}", self.documents))
    }
}
