//! Serialization of types that cannot derive it.

use alloc::string::String;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::{
    address::ServerAddress,
    ids::ObjectId,
    options::Warning,
    read_preference::TagSet,
    server_type::ServerType,
    time::UnixTime,
    topology::{DepartureReason, Obstacle},
};

/// Serializes types as the string that `Display` writes.
macro_rules! as_text {
    ($($name:ty),*) => {$(
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )*};
}

as_text!(DepartureReason, Obstacle, ObjectId, ServerAddress, ServerType, UnixTime);

/// Deserializes types from the string that `FromStr` parses.
macro_rules! from_text {
    ($($name:ty),*) => {$(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
            }
        }
    )*};
}

from_text!(ServerAddress, UnixTime);

impl<'de> Deserialize<'de> for ObjectId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong = || D::Error::custom(format_args!("`{text}` is not 24 hexadecimal digits"));
        Self::parse_hex(&text).ok_or_else(wrong)
    }
}

impl Serialize for TagSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl Serialize for Warning {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let parts = [
            ("option", self.option()),
            ("value", self.value()),
            ("reason", self.reason()),
            ("consequence", self.consequence()),
        ];
        serializer.collect_map(parts)
    }
}
