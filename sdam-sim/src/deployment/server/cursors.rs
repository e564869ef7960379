//! Cursors of queries whose results do not fit in one batch.

use std::collections::BTreeMap;

use bson::{Document, doc};

use super::data::cursor;
use crate::reply::{CURSOR_NOT_FOUND, CommandResult, refuse};

/// The open cursors of a deployment. All members share them, just as they share the documents.
#[derive(Debug, Default)]
pub(crate) struct Cursors {
    opened: i64,
    /// The documents that have not been returned yet.
    open: BTreeMap<i64, Vec<Document>>,
}

impl Cursors {
    /// Returns the first batch of `documents`, and opens a cursor if there are more documents. If
    /// `size` is `None`, the batch contains all documents.
    pub(super) fn open(
        &mut self,
        namespace: &str,
        mut documents: Vec<Document>,
        size: Option<usize>,
    ) -> Document {
        let rest = documents.split_off(size.unwrap_or(usize::MAX).min(documents.len()));
        let mut reply = cursor(namespace, documents);
        if !rest.is_empty() {
            self.opened += 1;
            self.open.insert(self.opened, rest);
            if let Ok(cursor) = reply.get_document_mut("cursor") {
                cursor.insert("id", self.opened);
            }
        }
        reply
    }

    /// Returns the next batch.
    pub(super) fn next(&mut self, namespace: &str, id: i64, size: Option<usize>) -> CommandResult {
        let Some(mut batch) = self.open.remove(&id) else {
            let message = format!("cursor id {id} not found");
            return refuse(CURSOR_NOT_FOUND, message);
        };
        let rest = batch.split_off(size.unwrap_or(usize::MAX).min(batch.len()));
        let left = if rest.is_empty() { 0 } else { id };
        if left != 0 {
            self.open.insert(id, rest);
        }
        Ok(doc! { "cursor": { "nextBatch": batch, "id": left, "ns": namespace } })
    }

    /// Closes the cursors listed in `body`.
    pub(super) fn kill(&mut self, body: &Document) -> Document {
        let (mut killed, mut missing) = (Vec::new(), Vec::new());
        let ids = body.get_array("cursors").into_iter().flatten();
        for id in ids.filter_map(bson::Bson::as_i64) {
            match self.open.remove(&id) {
                Some(_) => killed.push(id),
                None => missing.push(id),
            }
        }
        doc! {
            "cursorsKilled": killed, "cursorsNotFound": missing,
            "cursorsAlive": [], "cursorsUnknown": [],
        }
    }
}
