//! Tests of server selection, maximum staleness and average round-trip times, and the formats of
//! their files.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use sdam_core::{
    address::ServerAddress,
    ids::ServerId,
    options::{ConfigError, Options},
    read_preference::{ReadMode, ReadPreference},
    rng::Rng,
    rtt::RttWindow,
    server::{Rtt, ServerDescription, ServerType, WireVersions},
    time::Instant,
    topology::{TopologyDescription, TopologyType},
};
use sdam_select::{
    candidate::Candidates, choose, criteria::Criteria, explain::explain, latency_window,
    settings::Settings, suitable,
};
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, IgnoredAny},
};
use serde_json::Value;

use crate::fields::{Integer, Preference, Tags, read};

/// The number of random selections per file.
const DRAWS: u64 = 64;

/// Checks one file from `server-selection/tests/server_selection` or `max-staleness/tests`.
///
/// Compares suitable servers and the latency window as sets of addresses. A complete selection, and
/// the explanation of this selection, must agree with these sets.
pub fn select(file: &Value) -> Result<(), String> {
    let file = SelectionFile::parse(file)?;
    let mut options = Options::new(Vec::new());
    options.heartbeat_frequency = file.heartbeat_frequency;
    let settings = Settings::new(&options);
    let Some(criteria) = file.criteria()? else {
        return Ok(());
    };
    match suitable(&file.topology, &settings, criteria) {
        _ if !file.expects_error => check_stages(&file, &settings, criteria),
        Err(_) => Ok(()),
        Ok(found) => Err(format!("expected an error, found suitable {:?}", names(&found))),
    }
}

/// Checks how often each server is selected, for a file from `server-selection/tests/in_window`.
pub fn in_window(file: &Value) -> Result<(), String> {
    let file = InWindowFile::parse(file)?;
    let (criteria, mut rng) = (InWindowFile::criteria()?, Rng::new(0x5DA));
    file.compare(|| {
        let load = |candidate: sdam_select::candidate::Candidate<'_>| {
            file.loads.get(&candidate.address).copied().unwrap_or_default()
        };
        let found = choose(&file.topology, &Settings::default(), &criteria, load, rng.next_u64());
        let found = found.map_err(|error| error.to_string())?;
        Ok(found.map(|found| found.address.clone()))
    })
}

/// Checks one file from `server-selection/tests/rtt`: the effect of a new sample on a moving
/// average.
pub fn rtt(file: &Value) -> Result<(), String> {
    let file = RttFile::parse(file)?;
    let mut window = file.before.map_or_else(RttWindow::default, RttWindow::with_average);
    window.add_millis(file.sample);
    file.compare(window.average_millis())
}

/// Compares the suitable servers and the latency window with the expected servers in the file, and
/// checks that a complete selection agrees with both.
fn check_stages(
    file: &SelectionFile,
    settings: &Settings,
    criteria: &Criteria,
) -> Result<(), String> {
    let topology = &file.topology;
    let describe = |error: ConfigError| format!("unexpected error: {error}");
    let suitable = suitable(topology, settings, criteria).map_err(describe)?;
    let window = latency_window(&suitable, settings.local_threshold);
    for (key, actual, expected) in [
        ("suitable_servers", &suitable, &file.suitable),
        ("in_latency_window", &window, &file.window),
    ] {
        let actual = names(actual);
        if actual != *expected {
            return Err(format!("{key} are {actual:?}, expected {expected:?}"));
        }
    }
    let window = names(&window);
    let explained = explain(topology, settings, criteria);
    let eligible: BTreeSet<_> = explained.eligible().map(|it| it.address.clone()).collect();
    if eligible != window {
        return Err(format!(
            "the explanation has {eligible:?} eligible, expected {window:?}: {explained}"
        ));
    }
    for number in 0..DRAWS {
        let random = sdam_core::rng::mix(number);
        let chosen = choose(topology, settings, criteria, |_| 0, random).map_err(describe)?;
        match chosen {
            None if window.is_empty() => {}
            Some(chosen) if window.contains(&chosen.address) => {}
            chosen => {
                let chosen = chosen.map(|chosen| chosen.address.clone());
                return Err(format!("{chosen:?} was chosen outside of the window {window:?}"));
            }
        }
    }
    Ok(())
}

fn names(candidates: &Candidates<'_>) -> BTreeSet<ServerAddress> {
    let addresses = candidates.iter().map(|candidate| candidate.address.clone());
    addresses.collect()
}

/// The topology, the criteria and the expected result of a selection.
pub(crate) struct SelectionFile {
    pub(crate) topology: TopologyDescription,
    pub(crate) heartbeat_frequency: Option<Duration>,
    /// The criteria, or the error if they are invalid.
    pub(crate) criteria: Result<Criteria, ConfigError>,
    /// True if the file expects criteria that are invalid or can never be met.
    pub(crate) expects_error: bool,
    pub(crate) suitable: BTreeSet<ServerAddress>,
    pub(crate) window: BTreeSet<ServerAddress>,
}

/// A file from `server-selection/tests/server_selection` or `max-staleness/tests`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Selection {
    topology_description: TopologyFields,
    #[serde(default)]
    operation: Operation,
    read_preference: Preference,
    #[serde(rename = "heartbeatFrequencyMS")]
    heartbeat_frequency_ms: Option<u64>,
    #[serde(default)]
    deprioritized_servers: Vec<ServerFields>,
    suitable_servers: Option<Vec<ServerFields>>,
    in_latency_window: Option<Vec<ServerFields>>,
    #[serde(default)]
    error: bool,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Operation {
    #[default]
    Read,
    Write,
}

impl SelectionFile {
    /// Reads a file. The expected servers may be absent only if an error is expected.
    pub(crate) fn parse(file: &Value) -> Result<Self, String> {
        let file: Selection = read(file)?;
        let expected = |key: &str, servers: Option<Vec<ServerFields>>| match servers {
            None if !file.error => Err(format!("missing field `{key}`")),
            servers => Ok(addresses(servers.unwrap_or_default())),
        };
        let criteria = match file.operation {
            Operation::Read => Criteria::read(file.read_preference.0),
            Operation::Write => Ok(Criteria::write()),
        };
        let avoid: Vec<_> = addresses(file.deprioritized_servers);
        Ok(Self {
            topology: file.topology_description.into(),
            heartbeat_frequency: file.heartbeat_frequency_ms.map(Duration::from_millis),
            criteria: criteria.map(|criteria| criteria.with_deprioritized(avoid)),
            expects_error: file.error,
            suitable: expected("suitable_servers", file.suitable_servers)?,
            window: expected("in_latency_window", file.in_latency_window)?,
        })
    }

    /// Returns the criteria, or `None` if they are invalid as the file expects.
    pub(crate) fn criteria(&self) -> Result<Option<&Criteria>, String> {
        match (&self.criteria, self.expects_error) {
            (Ok(criteria), _) => Ok(Some(criteria)),
            (Err(_), true) => Ok(None),
            (Err(error), false) => Err(format!("unexpected error: {error}")),
        }
    }
}

/// A topology, and the frequency with which each of its servers is expected to be selected.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct InWindowFile {
    #[serde(rename = "description")]
    _description: IgnoredAny,
    #[serde(rename = "topology_description", deserialize_with = "topology")]
    pub(crate) topology: TopologyDescription,
    /// The number of operations in progress on each server.
    #[serde(rename = "mocked_topology_state", deserialize_with = "loads")]
    pub(crate) loads: BTreeMap<ServerAddress, u32>,
    iterations: u64,
    outcome: Frequencies,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Load {
    address: ServerAddress,
    operation_count: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Frequencies {
    tolerance: f64,
    expected_frequencies: BTreeMap<ServerAddress, f64>,
}

impl InWindowFile {
    /// Reads a file from `server-selection/tests/in_window`.
    pub(crate) fn parse(file: &Value) -> Result<Self, String> {
        let file: Self = read(file)?;
        let servers = || file.topology.servers().iter().map(|server| &server.address);
        if file.loads.keys().eq(servers()) && file.outcome.expected_frequencies.keys().eq(servers())
        {
            return Ok(file);
        }
        Err("every server needs one operation count and one frequency".to_owned())
    }

    /// Returns the criteria of every selection.
    pub(crate) fn criteria() -> Result<Criteria, String> {
        let nearest = ReadPreference::new(ReadMode::Nearest);
        Criteria::read(nearest).map_err(|error| error.to_string())
    }

    /// Returns whether all servers have the same load.
    pub(crate) fn is_balanced(&self) -> bool {
        let first = self.loads.values().next();
        self.loads.values().all(|load| Some(load) == first)
    }

    /// Calls `choose` as often as the file requires, and compares how often each server was chosen.
    pub(crate) fn compare(
        &self,
        mut choose: impl FnMut() -> Result<Option<ServerAddress>, String>,
    ) -> Result<(), String> {
        let mut chosen: BTreeMap<ServerAddress, u64> = BTreeMap::new();
        for _ in 0..self.iterations {
            let server = choose()?.ok_or("no server was chosen")?;
            *chosen.entry(server).or_default() += 1;
        }
        for (address, expected) in &self.outcome.expected_frequencies {
            let times = chosen.get(address).copied().unwrap_or_default();
            let actual = times as f64 / self.iterations as f64;
            // Frequencies of 0 and 1 must be exact.
            let exact = [0.0, 1.0].contains(expected);
            let tolerance = if exact { 0.0 } else { self.outcome.tolerance };
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

/// A moving average of round-trip times and the sample added to it, in milliseconds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RttFile {
    #[serde(rename = "avg_rtt_ms", deserialize_with = "before")]
    pub(crate) before: Option<f64>,
    #[serde(rename = "new_rtt_ms")]
    pub(crate) sample: f64,
    #[serde(rename = "new_avg_rtt")]
    average: f64,
}

impl RttFile {
    /// Reads a file from `server-selection/tests/rtt`.
    pub(crate) fn parse(file: &Value) -> Result<Self, String> {
        read(file)
    }

    /// Compares the expected average with the computed one.
    pub(crate) fn compare(&self, average: Option<f64>) -> Result<(), String> {
        match average {
            Some(average) if (average - self.average).abs() < 1e-6 => Ok(()),
            average => Err(format!("the average is {average:?}, expected {}", self.average)),
        }
    }
}

/// A topology description in a file. Its wire versions are not checked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TopologyFields {
    #[serde(rename = "type")]
    topology_type: TopologyType,
    servers: Vec<ServerFields>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ServerFields {
    address: ServerAddress,
    #[serde(rename = "avg_rtt_ms")]
    avg_rtt_ms: Option<f64>,
    last_update_time: Option<u64>,
    last_write: Option<LastWrite>,
    max_wire_version: Option<i32>,
    #[serde(default)]
    tags: Tags,
    #[serde(rename = "type", deserialize_with = "server_type")]
    kind: ServerType,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct LastWrite {
    last_write_date: Integer,
}

impl From<TopologyFields> for TopologyDescription {
    fn from(topology: TopologyFields) -> Self {
        let numbered = topology.servers.into_iter().zip(1..);
        let servers = numbered.map(|(server, number)| server.describe(ServerId::from_u64(number)));
        Self::new(topology.topology_type, servers)
    }
}

impl ServerFields {
    fn describe(self, id: ServerId) -> ServerDescription {
        let mut server = ServerDescription::unknown(id, self.address);
        server.server_type = self.kind;
        server.rtt = self
            .avg_rtt_ms
            .map(|millis| Rtt { average: Duration::from_secs_f64(millis / 1e3), ..Rtt::default() });
        server.last_update_time = self.last_update_time.map(Instant::from_millis);
        server.last_write_date = self.last_write.map(|write| write.last_write_date.0);
        server.wire_versions = WireVersions { min: 0, max: self.max_wire_version.unwrap_or(25) };
        server.tags = self.tags.0;
        server
    }
}

fn topology<'de, D: Deserializer<'de>>(deserializer: D) -> Result<TopologyDescription, D::Error> {
    TopologyFields::deserialize(deserializer).map(Into::into)
}

fn loads<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<ServerAddress, u32>, D::Error> {
    let loads = Vec::<Load>::deserialize(deserializer)?.into_iter();
    Ok(loads.map(|load| (load.address, load.operation_count)).collect())
}

fn addresses<C: FromIterator<ServerAddress>>(servers: Vec<ServerFields>) -> C {
    servers.into_iter().map(|server| server.address).collect()
}

/// Reads the name of a server's type.
fn server_type<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ServerType, D::Error> {
    let name = String::deserialize(deserializer)?;
    let found = ServerType::ALL.iter().find(|own| own.as_str() == name);
    found.copied().ok_or_else(|| D::Error::custom(format!("{name} is not a server type")))
}

/// Reads the previous average: a number, or the string `NULL`.
fn before<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::String(none) if none == "NULL" => Ok(None),
        other => f64::deserialize(other).map(Some).map_err(D::Error::custom),
    }
}
