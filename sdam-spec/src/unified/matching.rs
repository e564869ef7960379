//! Matching of values (unified test format: "Rules for matching").

use serde_json::{Map, Value};

/// Compares a value with the expected one; the error names the path of the difference.
///
/// Documents at the root may have more keys than expected, others may not.
pub(super) fn check(expected: &Value, actual: &Value) -> Result<(), String> {
    Matching { root: true }.value(expected, Some(actual))
}

#[derive(Clone, Copy)]
struct Matching {
    /// Whether the value is a document at the root.
    root: bool,
}

impl Matching {
    fn value(self, expected: &Value, actual: Option<&Value>) -> Result<(), String> {
        if let Some((operator, operand)) = operator(expected) {
            return self.operator(operator, operand, actual);
        }
        let actual = actual.ok_or_else(|| format!(" is absent, expected {expected}"))?;
        let nested = Self { root: false };
        match (expected, actual) {
            (Value::Object(expected), Value::Object(actual)) => self.document(expected, actual),
            (Value::Array(expected), Value::Array(actual)) if expected.len() == actual.len() => {
                let mut pairs = expected.iter().zip(actual).enumerate();
                pairs.try_for_each(|(index, (expected, actual))| {
                    let result = nested.value(expected, Some(actual));
                    result.map_err(|error| format!("[{index}]{error}"))
                })
            }
            // Numbers are compared independently of their type.
            (Value::Number(expected), Value::Number(actual))
                if expected.as_f64() == actual.as_f64() =>
            {
                Ok(())
            }
            _ if expected == actual => Ok(()),
            _ => Err(format!(" is {actual}, expected {expected}")),
        }
    }

    fn document(
        self,
        expected: &Map<String, Value>,
        actual: &Map<String, Value>,
    ) -> Result<(), String> {
        let nested = Self { root: false };
        for (key, expected) in expected {
            let result = nested.value(expected, actual.get(key));
            result.map_err(|error| format!(".{key}{error}"))?;
        }
        let extra = actual.keys().find(|key| !expected.contains_key(*key));
        match extra {
            Some(key) if !self.root => Err(format!(".{key} is not expected")),
            _ => Ok(()),
        }
    }

    fn operator(
        self,
        operator: &str,
        operand: &Value,
        actual: Option<&Value>,
    ) -> Result<(), String> {
        match (operator, operand, actual) {
            ("$$exists", Value::Bool(wanted), _) if *wanted == actual.is_some() => Ok(()),
            ("$$exists", Value::Bool(_), Some(actual)) => {
                Err(format!(" is {actual}, expected to be absent"))
            }
            (_, _, None) => Err(" is absent".to_owned()),
            ("$$type", _, Some(actual)) => {
                if is_of_type(operand, actual) {
                    Ok(())
                } else {
                    Err(format!(" is {actual}, expected the type {operand}"))
                }
            }
            ("$$matchAsDocument", _, Some(actual)) => {
                let text = actual.as_str().unwrap_or_default();
                let document = serde_json::from_str::<Value>(text);
                let document =
                    document.map_err(|error| format!(" is not JSON: {error}: {text}"))?;
                if !document.is_object() {
                    return Err(format!(" is not a document: {text}"));
                }
                self.value(operand, Some(&document))
            }
            ("$$matchAsRoot", _, actual) => Self { root: true }.value(operand, actual),
            _ => Err(format!(
                " is expected to be {operator} {operand}, which is unknown"
            )),
        }
    }
}

/// Returns the operator and its operand, if `expected` is one.
fn operator(expected: &Value) -> Option<(&str, &Value)> {
    let fields = expected.as_object().filter(|fields| fields.len() == 1)?;
    let (key, operand) = fields.iter().next()?;
    key.starts_with("$$").then_some((key, operand))
}

/// Returns whether `value` has one of the BSON types in `names`.
fn is_of_type(names: &Value, value: &Value) -> bool {
    let is = |name: &Value| match name.as_str() {
        Some("string") => value.is_string(),
        Some("bool") => value.is_boolean(),
        Some("double") => value.is_f64(),
        Some("int" | "long") => value.is_i64() || value.is_u64(),
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        _ => false,
    };
    match names {
        Value::Array(names) => names.iter().any(is),
        name => is(name),
    }
}
