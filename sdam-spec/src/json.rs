//! JSON reading with errors that name the position, and the extended JSON of the test files.

use std::fmt;

use bson::{Bson, Document, oid::ObjectId};
use sdam_core::address::ServerAddress;
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::{Map, Value};

/// Deserializes a whole file or a part of it.
///
/// # Errors
///
/// If the value does not have the format; the error names the key or the value.
pub fn read<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    T::deserialize(value).map_err(|error| error.to_string())
}

/// The state of a `#[serde(default)]` key in a file: absent, `null`, or a value.
#[derive(Clone, Copy, Debug, Default)]
pub enum Stated<T> {
    /// The key is absent.
    #[default]
    Nothing,
    /// The key has this value, or is null.
    Value(Option<T>),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Stated<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::deserialize(deserializer).map(Self::Value)
    }
}

/// The address of a server.
#[derive(Clone, Deserialize, Eq, Ord, PartialEq, PartialOrd)]
#[serde(try_from = "String")]
pub struct Address(pub ServerAddress);

impl TryFrom<String> for Address {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let address = ServerAddress::parse(&text).map_err(|error| error.to_string())?;
        Ok(Self(address))
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A whole number, plain or as `$numberLong` or `$numberInt`.
#[derive(Clone, Copy, Deserialize, Eq, PartialEq)]
#[serde(try_from = "Value")]
pub struct Integer(pub i64);

impl TryFrom<Value> for Integer {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        integer(&value).map(Self)
    }
}

impl fmt::Debug for Integer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An ObjectId, as 24 hexadecimal digits in `$oid`.
#[derive(Clone, Copy, Deserialize, Eq, PartialEq)]
#[serde(try_from = "Value")]
pub struct Oid(pub sdam_core::ids::ObjectId);

impl TryFrom<Value> for Oid {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let bytes = object_id(&value)?;
        Ok(Self(sdam_core::ids::ObjectId::from_bytes(bytes)))
    }
}

impl fmt::Debug for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A JSON object whose keys are all known.
#[derive(Clone, Copy, Debug)]
pub struct Object<'v> {
    what: &'static str,
    fields: &'v Map<String, Value>,
}

impl<'v> Object<'v> {
    /// Reads `value` as an object with no other keys than `known`; `what` names it in errors.
    pub fn new(value: &'v Value, what: &'static str, known: &[&str]) -> Result<Self, String> {
        let Value::Object(fields) = value else {
            return Err(format!("{what} is not an object: {value}"));
        };
        match fields.keys().find(|key| !known.contains(&key.as_str())) {
            Some(key) => Err(format!("{what} has an unknown key: {key}")),
            None => Ok(Self { what, fields }),
        }
    }

    /// Returns the value of `key`; `None` if it is absent or null.
    pub fn optional(&self, key: &str) -> Option<&'v Value> {
        self.fields.get(key).filter(|value| !value.is_null())
    }

    /// Returns the value of `key`, null or not; `None` if it is absent.
    pub fn present(&self, key: &str) -> Option<&'v Value> {
        self.fields.get(key)
    }

    /// Returns the value of `key`, which must be present and not null.
    pub fn required(&self, key: &str) -> Result<&'v Value, String> {
        self.optional(key)
            .ok_or_else(|| format!("{} has no {key}", self.what))
    }

    /// Reads the value of `key` with `read`; an error names the key.
    pub fn read<T>(
        &self,
        key: &str,
        read: impl FnOnce(&'v Value) -> Result<T, String>,
    ) -> Result<T, String> {
        read(self.required(key)?).map_err(|error| self.at(key, &error))
    }

    /// Does the same as [`read`](Self::read); `None` if `key` is absent or null.
    pub fn read_optional<T>(
        &self,
        key: &str,
        read: impl FnOnce(&'v Value) -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        let value = self.optional(key).map(read).transpose();
        value.map_err(|error| self.at(key, &error))
    }

    fn at(&self, key: &str, error: &str) -> String {
        format!("{}.{key}: {error}", self.what)
    }
}

/// Reads a string.
pub fn text(value: &Value) -> Result<&str, String> {
    value
        .as_str()
        .ok_or_else(|| format!("{value} is not a string"))
}

/// Reads a boolean.
pub fn boolean(value: &Value) -> Result<bool, String> {
    value
        .as_bool()
        .ok_or_else(|| format!("{value} is not a boolean"))
}

/// A whole number, plain or as `$numberLong` or `$numberInt`.
pub fn integer(value: &Value) -> Result<i64, String> {
    let wrapped = value.get("$numberLong").or_else(|| value.get("$numberInt"));
    let number = match wrapped {
        Some(digits) => digits.as_str().and_then(|digits| digits.parse().ok()),
        None => value.as_i64(),
    };
    number.ok_or_else(|| format!("{value} is not an integer"))
}

/// Reads a non-negative integer.
pub fn natural(value: &Value) -> Result<u64, String> {
    u64::try_from(integer(value)?).map_err(|_| format!("{value} is negative"))
}

/// Reads a number, with or without a fraction.
pub fn number(value: &Value) -> Result<f64, String> {
    value
        .as_f64()
        .ok_or_else(|| format!("{value} is not a number"))
}

/// Reads a list with `read` for its items.
pub fn list<'v, T>(
    value: &'v Value,
    read: impl FnMut(&'v Value) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    let items = value.as_array();
    let items = items.ok_or_else(|| format!("{value} is not an array"))?;
    items.iter().map(read).collect()
}

/// Reads a value with `read`, unless it is null.
pub fn nullable<'v, T>(
    value: &'v Value,
    read: impl FnOnce(&'v Value) -> Result<T, String>,
) -> Result<Option<T>, String> {
    (!value.is_null()).then(|| read(value)).transpose()
}

/// An ObjectId, as 24 hexadecimal digits in `$oid`.
pub fn object_id(value: &Value) -> Result<[u8; 12], String> {
    let digits = Object::new(value, "ObjectId", &["$oid"])?.read("$oid", text)?;
    match ObjectId::parse_str(digits) {
        Ok(id) => Ok(id.bytes()),
        Err(error) => Err(format!("{digits} is not an ObjectId: {error}")),
    }
}

/// Converts `value` to the BSON document that a server would send.
pub fn document(value: &Value) -> Result<Vec<u8>, String> {
    match bson(value)? {
        Bson::Document(document) => document.to_vec().map_err(|error| error.to_string()),
        other => Err(format!("{other} is not a document")),
    }
}

fn bson(value: &Value) -> Result<Bson, String> {
    Ok(match value {
        Value::Null => Bson::Null,
        Value::Bool(truth) => Bson::Boolean(*truth),
        Value::String(text) => Bson::String(text.clone()),
        Value::Array(items) => Bson::Array(items.iter().map(bson).collect::<Result<_, _>>()?),
        Value::Number(number) if number.is_f64() => Bson::Double(self::number(value)?),
        Value::Number(_) => {
            let number = integer(value)?;
            i32::try_from(number).map_or(Bson::Int64(number), Bson::Int32)
        }
        Value::Object(fields) => match fields.keys().find(|key| key.starts_with('$')) {
            None => {
                let fields = fields.iter();
                let fields = fields.map(|(key, value)| Ok((key.clone(), bson(value)?)));
                Bson::Document(fields.collect::<Result<Document, String>>()?)
            }
            Some(key) if key == "$oid" => Bson::ObjectId(ObjectId::from_bytes(object_id(value)?)),
            Some(key) if key == "$numberLong" => Bson::Int64(integer(value)?),
            Some(key) => return Err(format!("{key} is an unsupported type of extended JSON")),
        },
    })
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use serde_json::json;

    use super::*;

    #[test]
    fn integers_are_read_in_every_notation() {
        let check = |value: Value, expected: Option<i64>| {
            assert_eq!(integer(&value).ok(), expected, "{value}");
        };
        check(json!(5), Some(5));
        check(json!({ "$numberLong": "-5" }), Some(-5));
        check(json!({ "$numberInt": "7" }), Some(7));
        check(json!("5"), None);
        check(json!(0.5), None);
        check(json!({ "$numberLong": 5 }), None);
    }

    #[test]
    fn extended_json_is_converted_to_bson() {
        let json = json!({
            "a": 1,
            "b": { "$oid": "000000000000000000000102" },
            "c": [{ "$numberLong": "3" }, null, 0.5, true, "text", 5_000_000_000_i64],
        });
        let id = ObjectId::from_bytes([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2]);
        let list: Vec<Bson> = vec![
            Bson::Int64(3),
            Bson::Null,
            Bson::Double(0.5),
            Bson::Boolean(true),
            Bson::String("text".into()),
            Bson::Int64(5_000_000_000),
        ];
        let expected = doc! { "a": 1, "b": id, "c": list };
        assert_eq!(document(&json).unwrap(), expected.to_vec().unwrap());
        assert!(document(&json!({ "at": { "$date": "then" } })).is_err());
        assert!(document(&json!([])).is_err());
    }

    #[test]
    fn unknown_keys_are_refused_by_name() {
        let error = Object::new(&json!({ "a": 1, "b": 2 }), "file", &["a"]).unwrap_err();
        assert_eq!(error, "file has an unknown key: b");
    }
}
