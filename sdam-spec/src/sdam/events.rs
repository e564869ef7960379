//! The events that a phase has to lead to (SDAM Logging and Monitoring: "Tests").

use std::{collections::BTreeSet, fmt};

use sdam_core::{
    address::ServerAddress,
    event::{EventKind, EventName},
    server::ServerDescription,
    topology::TopologyDescription,
};
use serde_json::Value;

use super::{address, compare as compare_key, same};
use crate::json::{self, Object};

/// An event, as far as the file tells it.
#[derive(Debug)]
pub(super) struct ExpectedEvent<'v> {
    name: EventName,
    /// The server's, if the event is about one.
    address: Option<ServerAddress>,
    /// Before and after, if the event is about a change.
    descriptions: Option<(&'v Value, &'v Value)>,
}

impl<'v> ExpectedEvent<'v> {
    pub(super) fn parse(value: &'v Value) -> Result<Self, String> {
        let fields = value
            .as_object()
            .map_or_else(Vec::new, |map| map.iter().collect());
        let [(name, body)] = fields.as_slice() else {
            return Err(format!("{value} is no event"));
        };
        let (name, keys): (_, &'static [&str]) = match name.as_str() {
            "topology_opening_event" => (EventName::TopologyOpening, &["topologyId"]),
            "topology_closed_event" => (EventName::TopologyClosed, &["topologyId"]),
            "topology_description_changed_event" => (
                EventName::TopologyDescriptionChanged,
                &["topologyId", "previousDescription", "newDescription"],
            ),
            "server_opening_event" => (EventName::ServerOpening, &["topologyId", "address"]),
            "server_closed_event" => (EventName::ServerClosed, &["topologyId", "address"]),
            "server_description_changed_event" => (
                EventName::ServerDescriptionChanged,
                &[
                    "topologyId",
                    "address",
                    "previousDescription",
                    "newDescription",
                ],
            ),
            _ => return Err(format!("{name} is no event")),
        };
        let body = Object::new(body, name.as_str(), keys)?;
        body.read("topologyId", json::text)?;
        let (address, descriptions) = (
            keys.contains(&"address")
                .then(|| body.read("address", address)),
            keys.contains(&"newDescription").then(|| {
                let previous = body.required("previousDescription")?;
                Ok::<_, String>((previous, body.required("newDescription")?))
            }),
        );
        let event = Self {
            name,
            address: address.transpose()?,
            descriptions: descriptions.transpose()?,
        };
        if let Some((previous, new)) = event.descriptions {
            // Unknown keys are found even if the event never comes.
            let topology = name == EventName::TopologyDescriptionChanged;
            for description in [previous, new] {
                if topology {
                    described_topology(description)?;
                } else {
                    described_server(description)?;
                }
            }
        }
        Ok(event)
    }

    fn compare(&self, actual: &EventKind) -> Result<(), String> {
        same("the name", &actual.name().as_str(), &self.name.as_str())?;
        if let Some(address) = &self.address {
            same("the address", &actual.address(), &Some(address))?;
        }
        let Some((before, after)) = self.descriptions else {
            return Ok(());
        };
        let previously = |difference| format!("previously {difference}");
        match actual {
            EventKind::TopologyDescriptionChanged { previous, new } => {
                compare_topology(before, previous).map_err(previously)?;
                compare_topology(after, new)
            }
            EventKind::ServerDescriptionChanged { previous, new } => {
                compare_server(before, previous).map_err(previously)?;
                compare_server(after, new)
            }
            _ => Err("the event carries no descriptions".into()),
        }
    }
}

impl fmt::Display for ExpectedEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        describe(f, self.name, self.address.as_ref())
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

/// Compares the events of discovery and monitoring among `actual` with `expected`: number, order
/// and what the file tells of them. Neighbours that only open, or only close, come in any order.
pub(super) fn compare(expected: &[ExpectedEvent<'_>], actual: &[EventKind]) -> Result<(), String> {
    let mut expected: Vec<_> = expected.iter().collect();
    let mut actual: Vec<_> = actual
        .iter()
        .filter(|event| is_compared(event.name()))
        .collect();
    sort_neighbours(&mut expected, |event| (event.name, event.address.as_ref()));
    sort_neighbours(&mut actual, |event| (event.name(), event.address()));
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
        extra.push_str(if extra.is_empty() {
            ", the last ones being "
        } else {
            ", "
        });
        describe(&mut extra, event.name(), event.address()).map_err(|error| error.to_string())?;
    }
    Err(format!(
        "there are {} events, expected {}{extra}",
        actual.len(),
        expected.len()
    ))
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

/// Sorts each run of events of one kind whose order among themselves is nobody's business.
fn sort_neighbours<'e, T>(
    events: &mut [&'e T],
    key: impl Fn(&'e T) -> (EventName, Option<&'e ServerAddress>),
) {
    for run in events.chunk_by_mut(|one, next| key(one).0 == key(next).0) {
        let unordered = [EventName::ServerOpening, EventName::ServerClosed];
        if run
            .first()
            .is_some_and(|event| unordered.contains(&key(event).0))
        {
            run.sort_by_key(|event| key(event).1);
        }
    }
}

fn described_topology(value: &Value) -> Result<(Object<'_>, Vec<Object<'_>>), String> {
    let keys = ["topologyType", "setName", "servers"];
    let topology = Object::new(value, "topology", &keys)?;
    let servers = topology.read("servers", |servers| json::list(servers, described_server))?;
    Ok((topology, servers))
}

fn described_server(value: &Value) -> Result<Object<'_>, String> {
    let keys = [
        "address", "type", "arbiters", "hosts", "passives", "primary", "setName",
    ];
    Object::new(value, "server", &keys)
}

fn compare_topology(expected: &Value, actual: &TopologyDescription) -> Result<(), String> {
    let (expected, servers) = described_topology(expected)?;
    let topology_type = Some(actual.topology_type().as_str());
    compare_key(&expected, "topologyType", topology_type, json::text)?;
    compare_key(&expected, "setName", actual.set_name(), json::text)?;
    let mut addresses = BTreeSet::new();
    for server in &servers {
        let address = server.read("address", address)?;
        if let Some(actual) = actual.server(&address) {
            compare_members(server, actual)
                .map_err(|difference| format!("{address}: {difference}"))?;
        }
        addresses.insert(address);
    }
    let actual = actual.servers().iter();
    let actual: BTreeSet<_> = actual.map(|server| server.address.clone()).collect();
    same("the set of addresses", &actual, &addresses)
}

fn compare_server(expected: &Value, actual: &ServerDescription) -> Result<(), String> {
    compare_members(&described_server(expected)?, actual)
}

fn compare_members(expected: &Object<'_>, actual: &ServerDescription) -> Result<(), String> {
    compare_key(expected, "address", Some(actual.address.clone()), address)?;
    let server_type = Some(actual.server_type.as_str());
    compare_key(expected, "type", server_type, json::text)?;
    for (key, members) in [
        ("arbiters", &actual.arbiters),
        ("hosts", &actual.hosts),
        ("passives", &actual.passives),
    ] {
        let members = members.iter().cloned().collect::<BTreeSet<_>>();
        compare_key(expected, key, Some(members), |members| {
            Ok(json::list(members, address)?.into_iter().collect())
        })?;
    }
    compare_key(expected, "primary", actual.primary.clone(), address)?;
    compare_key(expected, "setName", actual.set_name.as_deref(), json::text)
}
