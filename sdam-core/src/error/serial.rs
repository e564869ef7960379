//! Errors in recordings and exports.

use alloc::{boxed::Box, vec::Vec};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Error, ErrorKind, Stage};
use crate::ids::TopologyVersion;

/// The serialized fields. The address is omitted because the containing object has it, and the
/// source because it cannot be serialized.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Serial<S, L> {
    kind: ErrorKind,
    stage: Stage,
    code: Option<i32>,
    code_name: Option<S>,
    labels: L,
    message: S,
    topology_version: Option<TopologyVersion>,
}

impl Serialize for Error {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let serial = Serial {
            kind: self.kind(),
            stage: self.stage(),
            code: self.code(),
            code_name: self.code_name(),
            labels: &self.0.labels,
            message: self.message(),
            topology_version: self.topology_version(),
        };
        serial.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Error {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let serial: Serial<Box<str>, Vec<Box<str>>> = Serial::deserialize(deserializer)?;
        Ok(Self::new(serial.kind, serial.stage, serial.message)
            .with_code(serial.code)
            .with_code_name(serial.code_name.as_deref())
            .with_labels(serial.labels)
            .with_topology_version(serial.topology_version))
    }
}
