//! The documents that clients have written.

use std::{cmp::Ordering, collections::BTreeMap};

use bson::{Bson, Document, doc};

use crate::message::{BAD_VALUE, CommandError, DUPLICATE_KEY};

/// The documents of a deployment in insertion order, grouped by collection.
///
/// All members share the documents: the simulation decides which member may answer, but does not
/// replicate documents.
#[derive(Debug, Default)]
pub(crate) struct Store {
    collections: BTreeMap<String, Vec<Document>>,
}

impl Store {
    /// Inserts `document`, unless its `_id` is taken.
    pub(crate) fn insert(
        &mut self,
        namespace: &str,
        document: Document,
    ) -> Result<(), CommandError> {
        let documents = self.collections.entry(namespace.to_owned()).or_default();
        if let Some(id) = document.get("_id")
            && documents.iter().any(|other| other.get("_id") == Some(id))
        {
            let message = format!(
                "E11000 duplicate key error collection: {namespace} index: _id_ \
                 dup key: {{ _id: {id} }}"
            );
            let mut error = CommandError::new(DUPLICATE_KEY, message);
            *error.details = doc! { "keyPattern": { "_id": 1 }, "keyValue": { "_id": id } };
            return Err(error);
        }
        documents.push(document);
        Ok(())
    }

    /// Returns the documents that match `filter`.
    pub(crate) fn find(
        &self,
        namespace: &str,
        filter: &Document,
    ) -> Result<Vec<&Document>, CommandError> {
        let filter = Filter::new(filter)?;
        let documents = self.collections.get(namespace).into_iter().flatten();
        Ok(documents.filter(|document| filter.matches(document)).collect())
    }

    /// Returns the documents that match `filter`, ordered by `sort`.
    pub(crate) fn find_sorted(
        &self,
        namespace: &str,
        filter: &Document,
        sort: &Document,
    ) -> Result<Vec<&Document>, CommandError> {
        let mut found = self.find(namespace, filter)?;
        found.sort_by(|a, b| order(sort, a, b));
        Ok(found)
    }

    /// Deletes at most `limit` documents that match `filter`. Returns the number of deleted
    /// documents.
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

    /// Updates at most `limit` documents that match `filter`. Returns the number of matches.
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
        for document in documents.filter(|document| filter.matches(document)).take(limit) {
            *document = changed(document, change)?;
            updated += 1;
        }
        Ok(updated)
    }

    /// Drops the collections whose names start with `prefix`.
    pub(crate) fn drop_prefix(&mut self, prefix: &str) {
        self.collections.retain(|name, _| !name.starts_with(prefix));
    }

    /// Drops one collection. Returns whether it existed.
    pub(crate) fn drop_collection(&mut self, namespace: &str) -> bool {
        self.collections.remove(namespace).is_some()
    }

    /// Returns the names of all collections.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.collections.keys().map(String::as_str)
    }
}

/// A filter that consists of equalities and comparisons. Any other condition is an error.
struct Filter<'a>(&'a Document);

/// The comparison operators, each with the results of comparing a value with the operand that it
/// accepts.
const COMPARISONS: [(&str, &[Ordering]); 4] = [
    ("$gt", &[Ordering::Greater]),
    ("$gte", &[Ordering::Greater, Ordering::Equal]),
    ("$lt", &[Ordering::Less]),
    ("$lte", &[Ordering::Less, Ordering::Equal]),
];

impl<'a> Filter<'a> {
    fn new(filter: &'a Document) -> Result<Self, CommandError> {
        let operator = filter.iter().find(|(key, value)| {
            let nested = value.as_document().and_then(|value| value.keys().next());
            let is_known = |key: &str| matches!(key, "$in" | "$nin") || accepted(key).is_some();
            key.starts_with('$') || nested.is_some_and(|key| key.starts_with('$') && !is_known(key))
        });
        match operator {
            Some((key, _)) => Err(unsimulated(&format!("the filter on {key}"))),
            None => Ok(Self(filter)),
        }
    }

    fn matches(&self, document: &Document) -> bool {
        self.0.iter().all(|(key, wanted)| {
            let value = document.get(key).unwrap_or(&Bson::Null);
            let operator = wanted.as_document().and_then(|wanted| wanted.iter().next());
            match operator {
                Some((key, Bson::Array(among))) if key == "$in" => {
                    among.iter().any(|wanted| equal(value, wanted))
                }
                Some((key, Bson::Array(among))) if key == "$nin" => {
                    among.iter().all(|wanted| !equal(value, wanted))
                }
                Some((key, operand)) if accepted(key).is_some() => {
                    let order = compare(Some(value), Some(operand));
                    accepted(key).is_some_and(|orders| orders.contains(&order))
                }
                _ => equal(value, wanted),
            }
        })
    }
}

fn accepted(operator: &str) -> Option<&'static [Ordering]> {
    let own = COMPARISONS.iter().find(|(own, _)| *own == operator);
    own.map(|(_, orders)| *orders)
}

fn number(value: &Bson) -> Option<f64> {
    match value {
        Bson::Int32(number) => Some(f64::from(*number)),
        Bson::Int64(number) => Some(*number as f64),
        Bson::Double(number) => Some(*number),
        _ => None,
    }
}

/// Returns the documents that match `filter`.
pub(crate) fn matching(
    filter: &Document,
    documents: Vec<Document>,
) -> Result<Vec<Document>, CommandError> {
    let filter = Filter::new(filter)?;
    let matching = documents.into_iter().filter(|it| filter.matches(it));
    Ok(matching.collect())
}

/// Orders two documents by the keys of `sort`.
pub(crate) fn order(sort: &Document, a: &Document, b: &Document) -> Ordering {
    let keys = sort.iter().map(|(key, direction)| {
        let order = compare(a.get(key), b.get(key));
        let is_descending = number(direction).is_some_and(|number| number < 0.0);
        if is_descending { order.reverse() } else { order }
    });
    keys.fold(Ordering::Equal, Ordering::then)
}

/// Returns the fields of a document that `projection` keeps: those set to 1, and `_id` unless it is
/// set to 0.
pub(crate) fn project(projection: &Document, document: &Document) -> Document {
    let is_kept = |key: &str| match projection.get(key).and_then(number) {
        Some(keeps) => keeps > 0.0,
        None => key == "_id" || projection.is_empty(),
    };
    let fields = document.iter().filter(|(key, _)| is_kept(key));
    fields.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Orders two numbers or two strings. Absent values come first.
fn compare(a: Option<&Bson>, b: Option<&Bson>) -> Ordering {
    let numbers = (a.and_then(number), b.and_then(number));
    if let (Some(a), Some(b)) = numbers {
        return a.total_cmp(&b);
    }
    a.map(Bson::to_string).cmp(&b.map(Bson::to_string))
}

/// Returns whether two values are equal. Numbers of different types may be equal.
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
