//! The expected events of a phase (SDAM Logging and Monitoring: "Tests").

use std::{collections::BTreeSet, fmt};

use sdam_core::{
    address::ServerAddress,
    event::{EventKind, EventName},
    server::ServerDescription,
    topology::TopologyDescription,
};
use serde::{Deserialize, de::IgnoredAny};

use super::{compare as compare_key, same};
use crate::fields::Stated;

/// An event with the fields that a file specifies.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::enum_variant_names, reason = "the names come from the format")]
pub(super) enum ExpectedEvent {
    TopologyOpeningEvent(TopologyEvent),
    TopologyClosedEvent(TopologyEvent),
    TopologyDescriptionChangedEvent(TopologyChange),
    ServerOpeningEvent(ServerEvent),
    ServerClosedEvent(ServerEvent),
    ServerDescriptionChangedEvent(Box<ServerChange>),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct TopologyEvent {
    #[serde(rename = "topologyId")]
    _topology_id: IgnoredAny,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ServerEvent {
    #[serde(rename = "topologyId")]
    _topology_id: IgnoredAny,
    address: ServerAddress,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct TopologyChange {
    #[serde(rename = "topologyId")]
    _topology_id: IgnoredAny,
    previous_description: TopologyFields,
    new_description: TopologyFields,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ServerChange {
    #[serde(rename = "topologyId")]
    _topology_id: IgnoredAny,
    address: ServerAddress,
    previous_description: ServerFields,
    new_description: ServerFields,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct TopologyFields {
    #[serde(rename = "topologyType", default)]
    kind: Stated<String>,
    #[serde(default)]
    set_name: Stated<String>,
    servers: Vec<ServerFields>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ServerFields {
    address: ServerAddress,
    #[serde(rename = "type", default)]
    kind: Stated<String>,
    #[serde(default)]
    arbiters: Stated<BTreeSet<ServerAddress>>,
    #[serde(default)]
    hosts: Stated<BTreeSet<ServerAddress>>,
    #[serde(default)]
    passives: Stated<BTreeSet<ServerAddress>>,
    #[serde(default)]
    primary: Stated<ServerAddress>,
    #[serde(default)]
    set_name: Stated<String>,
}

impl ExpectedEvent {
    fn name(&self) -> EventName {
        match self {
            Self::TopologyOpeningEvent(_) => EventName::TopologyOpening,
            Self::TopologyClosedEvent(_) => EventName::TopologyClosed,
            Self::TopologyDescriptionChangedEvent(_) => EventName::TopologyDescriptionChanged,
            Self::ServerOpeningEvent(_) => EventName::ServerOpening,
            Self::ServerClosedEvent(_) => EventName::ServerClosed,
            Self::ServerDescriptionChangedEvent(_) => EventName::ServerDescriptionChanged,
        }
    }

    /// Returns the address of the server to which the event refers.
    fn address(&self) -> Option<&ServerAddress> {
        match self {
            Self::TopologyOpeningEvent(_)
            | Self::TopologyClosedEvent(_)
            | Self::TopologyDescriptionChangedEvent(_) => None,
            Self::ServerOpeningEvent(event) | Self::ServerClosedEvent(event) => {
                Some(&event.address)
            }
            Self::ServerDescriptionChangedEvent(event) => Some(&event.address),
        }
    }

    fn compare(&self, actual: &EventKind) -> Result<(), String> {
        same("the name", &actual.name().as_str(), &self.name().as_str())?;
        if let Some(address) = self.address() {
            same("the address", &actual.address(), &Some(address))?;
        }
        let previously = |difference| format!("previously {difference}");
        match (self, actual) {
            (
                Self::TopologyDescriptionChangedEvent(change),
                EventKind::TopologyDescriptionChanged { previous, new },
            ) => {
                compare_topology(&change.previous_description, previous).map_err(previously)?;
                compare_topology(&change.new_description, new)
            }
            (
                Self::ServerDescriptionChangedEvent(change),
                EventKind::ServerDescriptionChanged { previous, new },
            ) => {
                compare_server(&change.previous_description, previous).map_err(previously)?;
                compare_server(&change.new_description, new)
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for ExpectedEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        describe(f, self.name(), self.address())
    }
}

fn describe(
    f: &mut impl fmt::Write,
    name: EventName,
    address: Option<&ServerAddress>,
) -> fmt::Result {
    f.write_str(name.as_str())?;
    address.map_or(Ok(()), |address| write!(f, " of {address}"))
}

/// Compares the events of discovery and monitoring among `actual` with `expected`: number, order,
/// and the fields in the file. Adjacent events that only open, or only close, may come in any
/// order.
pub(super) fn compare(expected: &[ExpectedEvent], actual: &[EventKind]) -> Result<(), String> {
    let mut expected: Vec<_> = expected.iter().collect();
    let mut actual: Vec<_> = actual.iter().filter(|event| is_compared(event.name())).collect();
    sort_unordered_runs(&mut expected, |event| (event.name(), event.address()));
    sort_unordered_runs(&mut actual, |event| (event.name(), event.address()));
    for (index, (expected, actual)) in expected.iter().zip(&actual).enumerate() {
        expected
            .compare(actual)
            .map_err(|difference| format!("event {} ({expected}): {difference}", index + 1))?;
    }
    if expected.len() == actual.len() {
        return Ok(());
    }
    let mut extra = String::new();
    for event in actual.iter().skip(expected.len()) {
        extra.push_str(if extra.is_empty() { ", the unexpected ones are " } else { ", " });
        describe(&mut extra, event.name(), event.address()).map_err(|error| error.to_string())?;
    }
    Err(format!("there are {} events, expected {}{extra}", actual.len(), expected.len()))
}

fn is_compared(name: EventName) -> bool {
    matches!(
        name,
        EventName::TopologyOpening
            | EventName::TopologyDescriptionChanged
            | EventName::TopologyClosed
            | EventName::ServerOpening
            | EventName::ServerDescriptionChanged
            | EventName::ServerClosed
    )
}

/// Sorts each run of events of the same kind whose relative order does not matter.
fn sort_unordered_runs<'e, T>(
    events: &mut [&'e T],
    key: impl Fn(&'e T) -> (EventName, Option<&'e ServerAddress>),
) {
    for run in events.chunk_by_mut(|one, next| key(one).0 == key(next).0) {
        let unordered = [EventName::ServerOpening, EventName::ServerClosed];
        if run.first().is_some_and(|event| unordered.contains(&key(event).0)) {
            run.sort_by_key(|event| key(event).1);
        }
    }
}

fn compare_topology(expected: &TopologyFields, actual: &TopologyDescription) -> Result<(), String> {
    let topology_type = Some(actual.topology_type().as_str().to_owned());
    compare_key("topologyType", topology_type.as_ref(), &expected.kind)?;
    let set_name = actual.set_name().map(str::to_owned);
    compare_key("setName", set_name.as_ref(), &expected.set_name)?;
    for server in &expected.servers {
        let address = &server.address;
        if let Some(actual) = actual.server(address) {
            compare_server(server, actual)
                .map_err(|difference| format!("{address}: {difference}"))?;
        }
    }
    let actual: BTreeSet<_> = actual.servers().iter().map(|it| &it.address).collect();
    let expected = expected.servers.iter();
    let expected: BTreeSet<_> = expected.map(|server| &server.address).collect();
    same("the set of addresses", &actual, &expected)
}

fn compare_server(expected: &ServerFields, actual: &ServerDescription) -> Result<(), String> {
    same("address", &&actual.address, &&expected.address)?;
    let server_type = Some(actual.server_type.as_str().to_owned());
    compare_key("type", server_type.as_ref(), &expected.kind)?;
    for (key, actual, expected) in [
        ("arbiters", &actual.arbiters, &expected.arbiters),
        ("hosts", &actual.hosts, &expected.hosts),
        ("passives", &actual.passives, &expected.passives),
    ] {
        let actual = actual.iter().cloned().collect();
        compare_key(key, Some(&actual), expected)?;
    }
    compare_key("primary", actual.primary.as_ref(), &expected.primary)?;
    let set_name = actual.set_name.as_deref().map(str::to_owned);
    compare_key("setName", set_name.as_ref(), &expected.set_name)
}
