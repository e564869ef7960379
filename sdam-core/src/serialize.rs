//! Serialization of types for which it cannot be derived.

use alloc::{string::String, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::{
    address::ServerAddress,
    ids::{ElectionTuple, ObjectId},
    options::Warning,
    read_preference::TagSet,
    server_type::ServerType,
    topology::{DepartureReason, Obstacle, TopologyDescription},
    topology_type::TopologyType,
};

/// Serializes types as the text that `Display` writes.
macro_rules! as_text {
    ($($name:ty),*) => {$(
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )*};
}

as_text!(DepartureReason, Obstacle, ObjectId, ServerAddress, ServerType);

impl<'de> Deserialize<'de> for ObjectId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong = || D::Error::custom(format_args!("`{text}` is not 24 hexadecimal digits"));
        Self::parse_hex(&text).ok_or_else(wrong)
    }
}

impl<'de> Deserialize<'de> for ServerAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(D::Error::custom)
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

/// Serializes the topology's own fields, and the types of its servers by address.
pub(crate) fn summary<S: Serializer>(
    topology: &Arc<TopologyDescription>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Summary<'t> {
        r#type: TopologyType,
        set_name: Option<&'t str>,
        max_election: ElectionTuple,
        logical_session_timeout_minutes: Option<i32>,
        compatibility_error: Option<&'t str>,
        servers: Servers<'t>,
    }

    struct Servers<'t>(&'t TopologyDescription);

    impl Serialize for Servers<'_> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let servers = self.0.servers().iter();
            serializer.collect_map(servers.map(|server| (&server.address, server.server_type)))
        }
    }

    let summary = Summary {
        r#type: topology.topology_type(),
        set_name: topology.set_name(),
        max_election: topology.max_election(),
        logical_session_timeout_minutes: topology.logical_session_timeout_minutes(),
        compatibility_error: topology.compatibility_error(),
        servers: Servers(topology),
    };
    summary.serialize(serializer)
}
