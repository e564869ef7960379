//! The documents written by clients.

use std::{cmp::Ordering, collections::BTreeMap};

use bson::{Bson, Document};

use crate::reply::{BAD_VALUE, CommandError};

/// The documents of a deployment by collection, in the order of insertion.
///
/// All members share them: the simulation covers which member may answer, not the replication of
/// documents.
#[derive(Debug, Default)]
pub(crate) struct Store {
    collections: BTreeMap<String, Vec<Document>>,
}

impl Store {
    /// Inserts `document`; returns false if its `_id` is taken.
    pub(crate) fn insert(&mut self, namespace: &str, document: Document) -> bool {
        let documents = self.collections.entry(namespace.to_owned()).or_default();
        let id = document.get("_id");
        if id.is_some() && documents.iter().any(|other| other.get("_id") == id) {
            return false;
        }
        documents.push(document);
        true
    }

    /// Returns the documents that match `filter`.
    pub(crate) fn find(
        &self,
        namespace: &str,
        filter: &Document,
    ) -> Result<Vec<&Document>, CommandError> {
        let filter = Filter::new(filter)?;
        let documents = self.collections.get(namespace).into_iter().flatten();
        Ok(documents
            .filter(|document| filter.matches(document))
            .collect())
    }

    /// Returns the documents that match `filter`, in the order of `sort`.
    pub(crate) fn find_sorted(
        &self,
        namespace: &str,
        filter: &Document,
        sort: &Document,
    ) -> Result<Vec<&Document>, CommandError> {
        let mut found = self.find(namespace, filter)?;
        found.sort_by(|a, b| {
            let keys = sort.iter().map(|(key, direction)| {
                let order = compare(a.get(key), b.get(key));
                let is_descending = number(direction).is_some_and(|number| number < 0.0);
                if is_descending {
                    order.reverse()
                } else {
                    order
                }
            });
            keys.fold(Ordering::Equal, Ordering::then)
        });
        Ok(found)
    }

    /// Deletes at most `limit` documents that match `filter`, and returns how many.
    pub(crate) fn delete(
        &mut self,
        namespace: &str,
        filter: &Document,
        limit: usize,
    ) -> Result<usize, CommandError> {
        let filter = Filter::new(filter)?;
        let mut deleted = 0;
        if let Some(documents) = self.collections.get_mut(namespace) {
            documents.retain(|document| {
                let hit = deleted < limit && filter.matches(document);
                deleted += usize::from(hit);
                !hit
            });
        }
        Ok(deleted)
    }

    /// Updates at most `limit` documents that match `filter`, and returns how many matched.
    pub(crate) fn update(
        &mut self,
        namespace: &str,
        filter: &Document,
        change: &Document,
        limit: usize,
    ) -> Result<usize, CommandError> {
        let filter = Filter::new(filter)?;
        let documents = self.collections.get_mut(namespace).into_iter().flatten();
        let mut updated = 0;
        for document in documents
            .filter(|document| filter.matches(document))
            .take(limit)
        {
            *document = changed(document, change)?;
            updated += 1;
        }
        Ok(updated)
    }

    /// Drops the collections whose name starts with `prefix`.
    pub(crate) fn drop_prefix(&mut self, prefix: &str) {
        self.collections.retain(|name, _| !name.starts_with(prefix));
    }

    /// Drops one collection; returns whether it existed.
    pub(crate) fn drop_collection(&mut self, namespace: &str) -> bool {
        self.collections.remove(namespace).is_some()
    }

    /// Returns the names of all collections.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.collections.keys().map(String::as_str)
    }
}

/// A filter of equalities; any other filter is refused with an error.
struct Filter<'a>(&'a Document);

impl<'a> Filter<'a> {
    fn new(filter: &'a Document) -> Result<Self, CommandError> {
        let operator = filter.iter().find(|(key, value)| {
            let nested = value.as_document().and_then(|value| value.keys().next());
            key.starts_with('$') || nested.is_some_and(|key| key.starts_with('$') && key != "$in")
        });
        match operator {
            Some((key, _)) => Err(unsimulated(&format!("the filter on {key}"))),
            None => Ok(Self(filter)),
        }
    }

    fn matches(&self, document: &Document) -> bool {
        self.0.iter().all(|(key, wanted)| {
            let value = document.get(key).unwrap_or(&Bson::Null);
            let among = wanted
                .as_document()
                .and_then(|wanted| wanted.get_array("$in").ok());
            match among {
                Some(among) => among.iter().any(|wanted| equal(value, wanted)),
                None => equal(value, wanted),
            }
        })
    }
}

fn number(value: &Bson) -> Option<f64> {
    match value {
        Bson::Int32(number) => Some(f64::from(*number)),
        Bson::Int64(number) => Some(*number as f64),
        Bson::Double(number) => Some(*number),
        _ => None,
    }
}

/// Orders two values of one kind: numbers, and otherwise texts. An absent value comes first.
fn compare(a: Option<&Bson>, b: Option<&Bson>) -> Ordering {
    let numbers = (a.and_then(number), b.and_then(number));
    if let (Some(a), Some(b)) = numbers {
        return a.total_cmp(&b);
    }
    a.map(Bson::to_string).cmp(&b.map(Bson::to_string))
}

/// Compares two values; numbers are equal regardless of their types.
fn equal(a: &Bson, b: &Bson) -> bool {
    match (number(a), number(b)) {
        (Some(a), Some(b)) => a.total_cmp(&b).is_eq(),
        _ => a == b,
    }
}

fn changed(document: &Document, change: &Document) -> Result<Document, CommandError> {
    let mut result = document.clone();
    let mut replacement = Document::new();
    for (key, value) in change {
        match (key.as_str(), value.as_document()) {
            ("$set", Some(fields)) => result.extend(fields.clone()),
            ("$inc", Some(fields)) => {
                for (field, by) in fields {
                    let sum = sum(result.get(field), by)?;
                    result.insert(field, sum);
                }
            }
            (operator, _) if operator.starts_with('$') => {
                return Err(unsimulated(&format!("the operator {operator}")));
            }
            _ => {
                replacement.insert(key, value);
            }
        }
    }
    if replacement.is_empty() {
        return Ok(result);
    }
    if let (Some(id), false) = (document.get("_id"), replacement.contains_key("_id")) {
        replacement.insert("_id", id);
    }
    Ok(replacement)
}

fn sum(value: Option<&Bson>, by: &Bson) -> Result<Bson, CommandError> {
    match (value, by) {
        (None, by) => Ok(by.clone()),
        (Some(Bson::Int32(a)), Bson::Int32(b)) => Ok(a
            .checked_add(*b)
            .map_or_else(|| Bson::Int64(i64::from(*a) + i64::from(*b)), Bson::Int32)),
        (Some(Bson::Int64(a)), Bson::Int64(b)) => Ok(Bson::Int64(a.wrapping_add(*b))),
        _ => Err(unsimulated("$inc of such a value")),
    }
}

fn unsimulated(what: &str) -> CommandError {
    CommandError::new(BAD_VALUE, format!("{what} is not simulated"))
}
