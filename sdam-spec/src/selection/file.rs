//! The formats of the files.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use sdam_core::{
    address::ServerAddress,
    ids::ServerId,
    read_preference::{ReadMode, ReadPreference, TagSet},
    server::{Rtt, ServerDescription, ServerType, WireVersions},
    time::Instant,
    topology::{TopologyDescription, TopologyType},
};
use sdam_select::criteria::{Criteria, CriteriaError};
use serde_json::Value;

use crate::json::{self, Object};

/// What is selected from which topology, and what has to come of it.
pub(crate) struct SelectionFile {
    pub(crate) topology: TopologyDescription,
    pub(crate) heartbeat_frequency: Option<Duration>,
    /// The error says why there can be no such criteria.
    pub(crate) criteria: Result<Criteria, CriteriaError>,
    /// Whether the criteria cannot be made or never be met.
    pub(crate) expects_error: bool,
    pub(crate) suitable: BTreeSet<ServerAddress>,
    pub(crate) window: BTreeSet<ServerAddress>,
}

impl SelectionFile {
    /// Reads a file of `server-selection/tests/server_selection`.
    pub(crate) fn server_selection(file: &Value) -> Result<Self, String> {
        let keys = [
            "topology_description",
            "operation",
            "read_preference",
            "deprioritized_servers",
            "suitable_servers",
            "in_latency_window",
        ];
        let file = Object::new(file, "file", &keys)?;
        let preference = file.read("read_preference", read_preference)?;
        let criteria = match file.read("operation", json::text)? {
            "read" => Criteria::read(preference).map_err(CriteriaError::from),
            "write" => Ok(Criteria::write()),
            operation => return Err(format!("unknown operation {operation}")),
        };
        let avoid = file.read_optional("deprioritized_servers", addresses)?;
        let avoid = avoid.unwrap_or_default();
        Ok(Self {
            topology: file.read("topology_description", topology)?,
            heartbeat_frequency: None,
            criteria: criteria.map(|criteria| criteria.with_deprioritized(avoid)),
            expects_error: false,
            suitable: file.read("suitable_servers", address_set)?,
            window: file.read("in_latency_window", address_set)?,
        })
    }

    /// Reads a file of `max-staleness/tests`.
    pub(crate) fn max_staleness(file: &Value) -> Result<Self, String> {
        let keys = [
            "topology_description",
            "heartbeatFrequencyMS",
            "read_preference",
            "suitable_servers",
            "in_latency_window",
            "error",
        ];
        let file = Object::new(file, "file", &keys)?;
        let preference = file.read("read_preference", read_preference)?;
        let heartbeat_frequency = file.read_optional("heartbeatFrequencyMS", json::natural)?;
        let expects_error = file.read_optional("error", json::boolean)?;
        let expects_error = expects_error.unwrap_or_default();
        let expected = |key: &str| {
            if expects_error {
                let found = file.read_optional(key, address_set)?;
                return Ok::<_, String>(found.unwrap_or_default());
            }
            file.read(key, address_set)
        };
        Ok(Self {
            topology: file.read("topology_description", topology)?,
            heartbeat_frequency: heartbeat_frequency.map(Duration::from_millis),
            criteria: Criteria::read(preference).map_err(CriteriaError::from),
            expects_error,
            suitable: expected("suitable_servers")?,
            window: expected("in_latency_window")?,
        })
    }

    /// What to select; `None` if the file expects that there are no such criteria.
    pub(crate) fn criteria(&self) -> Result<Option<&Criteria>, String> {
        match (&self.criteria, self.expects_error) {
            (Ok(criteria), _) => Ok(Some(criteria)),
            (Err(_), true) => Ok(None),
            (Err(error), false) => Err(format!("should not fail: {error}")),
        }
    }
}

/// How often each server has to be chosen.
pub(crate) struct InWindowFile {
    pub(crate) topology: TopologyDescription,
    /// Operations in progress.
    pub(crate) loads: BTreeMap<ServerAddress, u32>,
    iterations: u64,
    pub(crate) criteria: Criteria,
    frequencies: BTreeMap<ServerAddress, f64>,
    tolerance: f64,
}

impl InWindowFile {
    /// Reads a file of `server-selection/tests/in_window`.
    pub(crate) fn parse(file: &Value) -> Result<Self, String> {
        let keys = [
            "description",
            "topology_description",
            "mocked_topology_state",
            "iterations",
            "outcome",
        ];
        let file = Object::new(file, "file", &keys)?;
        let topology = file.read("topology_description", topology)?;
        let loads = file.read("mocked_topology_state", |states| {
            json::list(states, operation_count)
        })?;
        let outcome = file.read("outcome", |outcome| {
            Object::new(outcome, "outcome", &["tolerance", "expected_frequencies"])
        })?;
        let frequencies = outcome.required("expected_frequencies")?;
        let frequencies = frequencies.as_object().ok_or("frequencies are no object")?;
        let frequencies = frequencies
            .iter()
            .map(|(address, share)| Ok((parse_address(address)?, json::number(share)?)))
            .collect::<Result<_, String>>()?;
        let nearest = ReadPreference::new(ReadMode::Nearest);
        let file = Self {
            topology,
            loads: loads.into_iter().collect(),
            iterations: file.read("iterations", json::natural)?,
            criteria: Criteria::read(nearest).map_err(|error| error.to_string())?,
            frequencies,
            tolerance: outcome.read("tolerance", json::number)?,
        };
        file.is_complete().then_some(file).ok_or_else(|| {
            "there is not one operation count and one frequency for each server".to_owned()
        })
    }

    /// Whether all servers are as busy as each other.
    pub(crate) fn is_balanced(&self) -> bool {
        let first = self.loads.values().next();
        self.loads.values().all(|load| Some(load) == first)
    }

    fn is_complete(&self) -> bool {
        let servers = self.topology.servers().iter();
        let servers: Vec<_> = servers.map(|server| &server.address).collect();
        self.loads.keys().eq(servers.iter().copied())
            && self.frequencies.keys().eq(servers.iter().copied())
    }

    /// Lets `choose` choose as often as the file wants, and compares how often each server was.
    pub(crate) fn compare(
        &self,
        mut choose: impl FnMut() -> Result<Option<ServerAddress>, String>,
    ) -> Result<(), String> {
        let mut chosen: BTreeMap<ServerAddress, u64> = BTreeMap::new();
        for _ in 0..self.iterations {
            let server = choose()?.ok_or("no server was chosen")?;
            *chosen.entry(server).or_default() += 1;
        }
        for (address, expected) in &self.frequencies {
            let times = chosen.get(address).copied().unwrap_or_default();
            let actual = times as f64 / self.iterations as f64;
            // Never and always are exact.
            let exact = [0.0, 1.0].contains(expected);
            let tolerance = if exact { 0.0 } else { self.tolerance };
            if (actual - expected).abs() > tolerance {
                return Err(format!(
                    "{address} was chosen with frequency {actual}, expected {expected} +- \
                     {tolerance}"
                ));
            }
        }
        Ok(())
    }
}

/// One more sample in a moving average, in milliseconds.
pub(crate) struct RttFile {
    pub(crate) before: Option<f64>,
    pub(crate) sample: f64,
    average: f64,
}

impl RttFile {
    /// Reads a file of `server-selection/tests/rtt`.
    pub(crate) fn parse(file: &Value) -> Result<Self, String> {
        let file = Object::new(file, "file", &["avg_rtt_ms", "new_rtt_ms", "new_avg_rtt"])?;
        Ok(Self {
            before: file.read("avg_rtt_ms", |value| match value.as_str() {
                Some("NULL") => Ok(None),
                _ => json::number(value).map(Some),
            })?,
            sample: file.read("new_rtt_ms", json::number)?,
            average: file.read("new_avg_rtt", json::number)?,
        })
    }

    /// Compares with the average that was computed.
    pub(crate) fn compare(&self, average: Option<f64>) -> Result<(), String> {
        match average {
            Some(average) if (average - self.average).abs() < 1e-6 => Ok(()),
            average => Err(format!(
                "the average is {average:?}, expected {}",
                self.average
            )),
        }
    }
}

fn address_set(value: &Value) -> Result<BTreeSet<ServerAddress>, String> {
    Ok(addresses(value)?.into_iter().collect())
}

/// A topology, taken as it is: no state machine, and no check of wire versions.
fn topology(value: &Value) -> Result<TopologyDescription, String> {
    let topology = Object::new(value, "topology_description", &["type", "servers"])?;
    let topology_type = topology.read("type", topology_type)?;
    let mut number = 0;
    let servers = topology.read("servers", |servers| {
        json::list(servers, |value| {
            number += 1;
            server(value, ServerId::from_u64(number))
        })
    })?;
    Ok(TopologyDescription::new(topology_type, servers))
}

const SERVER_KEYS: &[&str] = &[
    "address",
    "avg_rtt_ms",
    "lastUpdateTime",
    "lastWrite",
    "maxWireVersion",
    "tags",
    "type",
];

fn server(value: &Value, id: ServerId) -> Result<ServerDescription, String> {
    let object = Object::new(value, "server", SERVER_KEYS)?;
    let mut server = ServerDescription::unknown(id, object.read("address", address)?);
    server.server_type = object.read("type", server_type)?;
    let average = object.read_optional("avg_rtt_ms", json::number)?;
    server.rtt = average.map(|millis| Rtt {
        average: Duration::from_secs_f64(millis / 1e3),
        ..Rtt::default()
    });
    server.last_update_time = object
        .read_optional("lastUpdateTime", json::natural)?
        .map(Instant::from_millis);
    server.last_write_date = object.read_optional("lastWrite", |write| {
        Object::new(write, "lastWrite", &["lastWriteDate"])?.read("lastWriteDate", json::integer)
    })?;
    let max = object.read_optional("maxWireVersion", json::integer)?;
    server.wire_versions = WireVersions {
        min: 0,
        max: max.unwrap_or(25) as i32,
    };
    server.tags = object.read_optional("tags", tag_set)?.unwrap_or_default();
    Ok(server)
}

fn addresses(value: &Value) -> Result<Vec<ServerAddress>, String> {
    json::list(value, |server| {
        Object::new(server, "server", SERVER_KEYS)?.read("address", address)
    })
}

fn address(value: &Value) -> Result<ServerAddress, String> {
    parse_address(json::text(value)?)
}

fn parse_address(text: &str) -> Result<ServerAddress, String> {
    ServerAddress::parse(text).map_err(|error| error.to_string())
}

fn operation_count(value: &Value) -> Result<(ServerAddress, u32), String> {
    let state = Object::new(value, "state", &["address", "operation_count"])?;
    let count = state.read("operation_count", json::natural)?;
    Ok((state.read("address", address)?, count as u32))
}

fn topology_type(value: &Value) -> Result<TopologyType, String> {
    [
        TopologyType::Unknown,
        TopologyType::Single,
        TopologyType::ReplicaSetNoPrimary,
        TopologyType::ReplicaSetWithPrimary,
        TopologyType::Sharded,
        TopologyType::LoadBalanced,
    ]
    .into_iter()
    .find(|topology_type| value == topology_type.as_str())
    .ok_or_else(|| format!("{value} is no topology type"))
}

fn server_type(value: &Value) -> Result<ServerType, String> {
    [
        ServerType::Unknown,
        ServerType::PossiblePrimary,
        ServerType::Standalone,
        ServerType::Mongos,
        ServerType::RsPrimary,
        ServerType::RsSecondary,
        ServerType::RsArbiter,
        ServerType::RsOther,
        ServerType::RsGhost,
        ServerType::LoadBalancer,
    ]
    .into_iter()
    .find(|server_type| value == server_type.as_str())
    .ok_or_else(|| format!("{value} is no server type"))
}

fn read_preference(value: &Value) -> Result<Arc<ReadPreference>, String> {
    let object = Object::new(
        value,
        "read_preference",
        &["mode", "tag_sets", "maxStalenessSeconds"],
    )?;
    let mode = object.read_optional("mode", |value| {
        let name = json::text(value)?;
        ReadMode::parse(name).ok_or_else(|| format!("{name} is no mode"))
    })?;
    let mut preference = ReadPreference::new(mode.unwrap_or_default());
    if let Some(sets) = object.read_optional("tag_sets", |sets| json::list(sets, tag_set))? {
        preference = preference.with_tag_sets(sets);
    }
    // -1 is the spelling of "no limit".
    let limit = object.read_optional("maxStalenessSeconds", json::integer)?;
    if let Some(limit) = limit.filter(|limit| *limit != -1) {
        let seconds = u64::try_from(limit).map_err(|_| format!("{limit} s is negative"))?;
        preference = preference.with_max_staleness(Duration::from_secs(seconds));
    }
    Ok(Arc::new(preference))
}

fn tag_set(value: &Value) -> Result<TagSet, String> {
    let tags = value
        .as_object()
        .ok_or_else(|| format!("{value} is no tag set"))?;
    tags.iter()
        .map(|(name, value)| Ok((name.as_str(), json::text(value)?)))
        .collect::<Result<TagSet, String>>()
}
