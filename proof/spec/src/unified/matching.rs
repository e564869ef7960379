//! Comparison of values with expected ones (unified test format: "Rules for matching").

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{helper::to_json, stand_in::session_id};
use crate::fields::read;

/// An expected value, which may contain the format's operators.
#[derive(Debug, Deserialize, Serialize)]
#[serde(try_from = "Value", untagged)]
pub(super) enum Expected {
    Operator(Box<Operator>),
    Document(BTreeMap<String, Expected>),
    Array(Vec<Expected>),
    Scalar(Value),
}

/// A condition in place of a value.
#[derive(Debug, Deserialize, Serialize)]
pub(super) enum Operator {
    #[serde(rename = "$$exists")]
    Exists(bool),
    #[serde(rename = "$$lte")]
    AtMost(f64),
    #[serde(rename = "$$matchAsDocument")]
    MatchAsDocument(Expected),
    #[serde(rename = "$$matchAsRoot")]
    MatchAsRoot(Expected),
    /// The id of the session that the string names.
    #[serde(rename = "$$sessionLsid")]
    SessionLsid(String),
    #[serde(rename = "$$type")]
    Type(Types),
    #[serde(rename = "$$unsetOrMatches")]
    UnsetOrMatches(Expected),
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(untagged)]
pub(super) enum Types {
    One(Type),
    Several(Vec<Type>),
}

/// A BSON type that can be expressed in JSON.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Type {
    Array,
    Bool,
    Double,
    Int,
    Long,
    Object,
    String,
}

impl TryFrom<Value> for Expected {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        Ok(match value {
            Value::Object(fields) if fields.keys().any(|key| key.starts_with("$$")) => {
                Self::Operator(read(&fields.into())?)
            }
            Value::Object(_) => Self::Document(read(&value)?),
            Value::Array(_) => Self::Array(read(&value)?),
            scalar => Self::Scalar(scalar),
        })
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

impl Type {
    fn includes(self, value: &Value) -> bool {
        match self {
            Self::Array => value.is_array(),
            Self::Bool => value.is_boolean(),
            Self::Double => value.is_f64(),
            Self::Int | Self::Long => value.is_i64() || value.is_u64(),
            Self::Object => value.is_object(),
            Self::String => value.is_string(),
        }
    }
}

impl Expected {
    /// Compares a value with the expected one. The error names the path to the difference.
    ///
    /// Only documents at the root may have more keys than expected. If the root is an array, its
    /// items count as documents at the root.
    pub(super) fn compare(&self, actual: &Value) -> Result<(), String> {
        self.compare_at(true, Some(actual))
    }

    fn compare_at(&self, is_root: bool, actual: Option<&Value>) -> Result<(), String> {
        let is_match = match (self, actual) {
            (Self::Operator(operator), _) => match (&**operator, actual) {
                (Operator::Exists(expected), _) => *expected == actual.is_some(),
                (Operator::AtMost(most), Some(actual)) => {
                    actual.as_f64().is_some_and(|actual| actual <= *most)
                }
                (Operator::SessionLsid(name), Some(actual)) => {
                    *actual == to_json(Some(&session_id(name).into()))
                }
                (Operator::Type(Types::One(one)), Some(actual)) => one.includes(actual),
                (Operator::Type(Types::Several(types)), Some(actual)) => {
                    types.iter().any(|one| one.includes(actual))
                }
                (Operator::MatchAsDocument(expected), Some(Value::String(text))) => {
                    let document = serde_json::from_str(text).ok();
                    match document.filter(Value::is_object) {
                        Some(document) => return expected.compare_at(is_root, Some(&document)),
                        None => false,
                    }
                }
                (Operator::MatchAsRoot(expected), _) => return expected.compare_at(true, actual),
                (Operator::UnsetOrMatches(_), None) => true,
                (Operator::UnsetOrMatches(expected), Some(_)) => {
                    return expected.compare_at(is_root, actual);
                }
                _ => false,
            },
            (Self::Document(expected), Some(Value::Object(actual))) => {
                for (key, expected) in expected {
                    let result = expected.compare_at(false, actual.get(key));
                    result.map_err(|error| format!(".{key}{error}"))?;
                }
                return match actual.keys().find(|key| !expected.contains_key(*key)) {
                    Some(key) if !is_root => Err(format!(".{key} is not expected")),
                    _ => Ok(()),
                };
            }
            (Self::Array(expected), Some(Value::Array(actual))) => {
                for (index, (expected, actual)) in expected.iter().zip(actual).enumerate() {
                    let result = expected.compare_at(is_root, Some(actual));
                    result.map_err(|error| format!("[{index}]{error}"))?;
                }
                expected.len() == actual.len()
            }
            // Numbers are compared regardless of their types.
            (Self::Scalar(Value::Number(expected)), Some(Value::Number(actual))) => {
                expected.as_f64() == actual.as_f64()
            }
            (Self::Scalar(expected), Some(actual)) => expected == actual,
            _ => false,
        };
        match actual {
            _ if is_match => Ok(()),
            Some(actual) => Err(format!(" is {actual}, expected {self}")),
            None => Err(format!(" is absent, expected {self}")),
        }
    }
}
