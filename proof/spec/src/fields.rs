//! Reads test files, and defines the types of fields that several formats have in common.

use std::{collections::BTreeMap, time::Duration};

use bson::Bson;
use sdam_core::read_preference::{ReadMode, ReadPreference, TagSet};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

/// Deserializes a file or a part of a file.
///
/// # Errors
///
/// If the value does not have the format. The error names the field's path.
pub fn read<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    serde_path_to_error::deserialize(value).map_err(|error| error.to_string())
}

/// A file that is a list of cases.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cases<C> {
    pub(crate) tests: Vec<C>,
}

/// Checks each case of a file. The error has all differences, with the connection strings of the
/// cases.
pub(crate) fn check_cases<C: DeserializeOwned>(
    file: &Value,
    check: impl Fn(C) -> Result<(), String>,
) -> Result<(), String> {
    let Cases { tests } = read::<Cases<Value>>(file)?;
    if tests.is_empty() {
        return Err("the file has no cases".to_owned());
    }
    let failures = tests.iter().filter_map(|case| {
        let failure = read(case).and_then(&check).err()?;
        Some(format!("{}: {failure}", case["uri"]))
    });
    let failures: Vec<_> = failures.collect();
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n    ")) }
}

/// Returns the value of an option in the syntax of connection strings.
pub fn option_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns whether `holds` returns true for the name and the value of any field, at any depth.
pub(crate) fn has_field(part: &Value, holds: &dyn Fn(&str, &Value) -> bool) -> bool {
    match part {
        Value::Object(fields) => {
            fields.iter().any(|(name, value)| holds(name, value) || has_field(value, holds))
        }
        Value::Array(items) => items.iter().any(|item| has_field(item, holds)),
        _ => false,
    }
}

/// Returns whether part of a file has a time limit below a second: an option such as `timeoutMS`.
pub(crate) fn has_short_limit(part: &Value) -> bool {
    has_field(part, &|name, value| {
        let is_limit = matches!(name.strip_suffix("MS"), Some(limit) if limit.ends_with("imeout"));
        is_limit && value.as_u64().is_some_and(|millis| (1..1000).contains(&millis))
    })
}

/// An integer, written as `$numberLong`.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(try_from = "Bson")]
pub struct Integer(pub i64);

impl TryFrom<Bson> for Integer {
    type Error = String;

    fn try_from(value: Bson) -> Result<Self, String> {
        value.as_i64().map(Self).ok_or_else(|| format!("{value} is not a long integer"))
    }
}

/// A server's tags, or the tags that a read preference requires.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "BTreeMap<String, String>")]
pub struct Tags(pub TagSet);

impl From<BTreeMap<String, String>> for Tags {
    fn from(tags: BTreeMap<String, String>) -> Self {
        let tags = tags.iter();
        Self(tags.map(|(name, value)| (&**name, &**value)).collect())
    }
}

/// A read preference.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "PreferenceFields")]
pub struct Preference(pub ReadPreference);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PreferenceFields {
    mode: Option<String>,
    #[serde(alias = "tagSets")]
    tag_sets: Option<Vec<Tags>>,
    #[serde(rename = "maxStalenessSeconds")]
    max_staleness_seconds: Option<i64>,
}

impl TryFrom<PreferenceFields> for Preference {
    type Error = String;

    fn try_from(fields: PreferenceFields) -> Result<Self, String> {
        let mode = match fields.mode {
            None => ReadMode::default(),
            Some(name) => ReadMode::parse(&name)
                .ok_or_else(|| format!("{name} is not a read preference mode"))?,
        };
        let mut preference = ReadPreference::new(mode);
        if let Some(sets) = fields.tag_sets {
            preference = preference.with_tag_sets(sets.into_iter().map(|set| set.0).collect());
        }
        // -1 means "no limit".
        if let Some(limit) = fields.max_staleness_seconds.filter(|limit| *limit != -1) {
            let seconds = u64::try_from(limit).map_err(|_| format!("{limit} s is negative"))?;
            preference = preference.with_max_staleness(Duration::from_secs(seconds));
        }
        Ok(Self(preference))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn errors_name_the_path_of_the_field() {
        let check = |value: Value, expected: &str| {
            let error = read::<Vec<Preference>>(&value).unwrap_err();
            assert_eq!(error, expected);
        };
        check(json!([{ "mode": "Closest" }]), "[0]: Closest is not a read preference mode");
        let tags = json!([{}, { "tagSets": [{ "dc": 1 }] }]);
        check(tags, "[1].tagSets[0].dc: invalid type: integer `1`, expected a string");
        let extra = json!([{ "mood": "calm" }]);
        let error = read::<Vec<Preference>>(&extra).unwrap_err();
        assert!(error.starts_with("[0].mood: unknown field `mood`"), "{error}");
    }
}
