//! Encodings of durations and bytes, for serde's `with` attribute, and the serialization of types
//! that cannot derive it.

use alloc::string::String;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::{
    address::ServerAddress,
    ids::ObjectId,
    options::Warning,
    read_preference::TagSet,
    server::ServerType,
    time::UnixTime,
    topology::{DepartureReason, Obstacle},
};

/// Encodes durations as nanoseconds.
pub(crate) mod nanos {
    use core::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        time: &(impl Copy + Into<Option<Duration>>),
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        (*time).into().map(nanos).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_nanos)
    }
}

/// Encodes optional durations as nanoseconds.
pub(crate) mod optional_nanos {
    use core::time::Duration;

    use serde::{Deserialize, Deserializer};

    pub(crate) use super::nanos::serialize;

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::deserialize(from)?.map(Duration::from_nanos))
    }
}

/// Encodes bytes as base64 with padding.
pub(crate) mod base64 {
    use alloc::{string::String, vec::Vec};

    use ::base64::{Engine as _, display::Base64Display, engine::general_purpose::STANDARD};
    use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

    pub(crate) fn serialize<S: Serializer>(
        bytes: &impl AsRef<[u8]>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Base64Display::new(bytes.as_ref(), &STANDARD))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>, T: From<Vec<u8>>>(
        deserializer: D,
    ) -> Result<T, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = STANDARD.decode(text);
        let wrong = |error| D::Error::custom(format_args!("not base64: {error}"));
        bytes.map(T::from).map_err(wrong)
    }
}

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
