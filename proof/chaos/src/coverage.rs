//! Records the situations (cells) that runs reached: the entries of the transition table, events,
//! errors, inputs and outputs of the state machine, and the reasons for departures, failures and
//! closed connections.

use std::{
    fmt::{self, Write as _},
    sync::LazyLock,
};

use sdam_core::{
    deployment::Deployment,
    error::{Error, ErrorKind, Stage},
    event::{
        CheckOutFailure, ConnectionClosedReason, Event, EventKind, EventName, SelectionFailure,
    },
    hello::Hello,
    options::Options,
    server::ServerType,
    topology::TopologyType,
};
use sdam_sim::runtime::Disturbance;

/// The reasons why a server leaves a topology.
const DEPARTURES: [&str; 7] = [
    "Closed",
    "HostsChanged",
    "Misnamed",
    "NotListed",
    "OneOfSeveralSeeds",
    "WrongSetName",
    "WrongType",
];

/// The inputs of a deployment.
const INPUTS: [&str; 20] = [
    "Open",
    "Close",
    "Due",
    "Connected",
    "Reply",
    "Failed",
    "Deserted",
    "CheckRequested",
    "Scan",
    "Chosen",
    "Probed",
    "ConnectionLost",
    "Authenticated",
    "Handshake",
    "ServiceConnectionClosed",
    "Error",
    "Late",
    "Answered",
    "LookedUp",
    "Hosts",
];

/// The outputs of a deployment.
const OUTPUTS: [&str; 15] = [
    "Connect",
    "Send",
    "Read",
    "Disconnect",
    "Wake",
    "OpenServer",
    "CloseServer",
    "PoolReady",
    "PoolClear",
    "Publish",
    "Emit",
    "LookUp",
    "Choose",
    "Probe",
    "Finish",
];

/// The groups of cells, and the names of the cells in each.
static GROUPS: LazyLock<[(&str, Vec<String>); 11]> = LazyLock::new(|| {
    fn names<T: ToString>(all: &[T]) -> Vec<String> {
        all.iter().map(ToString::to_string).collect()
    }
    let transitions = TopologyType::ALL.iter().flat_map(|topology| {
        ServerType::ALL.iter().map(move |server| format!("{topology} + {server}"))
    });
    [
        ("transitions", transitions.collect()),
        ("events", EventName::ALL.iter().map(|name| name.as_str().to_owned()).collect()),
        ("kinds of errors", names(ErrorKind::ALL)),
        ("stages of errors", names(Stage::ALL)),
        ("departures of servers", names(&DEPARTURES)),
        ("failures of selections", names(SelectionFailure::ALL)),
        ("failures of check-outs", names(CheckOutFailure::ALL)),
        ("reasons to close connections", names(ConnectionClosedReason::ALL)),
        ("inputs", names(&INPUTS)),
        ("outputs", names(&OUTPUTS)),
        ("disturbances", names(Disturbance::ALL)),
    ]
});

/// The number of 64-bit words that hold one bit per cell.
const WORDS: usize = 3;

/// A set of cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coverage([u64; WORDS]);

impl Coverage {
    /// Returns the cells that the events of a run reached.
    pub(crate) fn of(events: &[Event]) -> Self {
        let mut reached = Self::default();
        let mut topology = TopologyType::Unknown;
        for event in events {
            reached.insert("events", event.kind.name().as_str());
            match &event.kind {
                EventKind::TopologyDescriptionChanged { new, .. } => {
                    topology = new.topology_type();
                    // No server event reports that a server becomes a PossiblePrimary (J-19). The
                    // server may stay a PossiblePrimary when another server turns out to be the
                    // primary.
                    let hinted = ServerType::PossiblePrimary;
                    if topology == TopologyType::ReplicaSetNoPrimary
                        && new.servers().iter().any(|server| server.server_type == hinted)
                    {
                        reached.transition(topology, hinted);
                    }
                }
                EventKind::ServerHeartbeatSucceeded { reply, .. } => {
                    let answered = Hello::parse(reply).map(|hello| hello.server_type);
                    reached.transition(topology, answered.unwrap_or(ServerType::Unknown));
                }
                EventKind::ServerHeartbeatFailed { failure, .. } => {
                    reached.transition(topology, ServerType::Unknown);
                    reached.error(failure);
                }
                EventKind::ServerDescriptionChanged { new, .. } => {
                    reached.transition(topology, new.server_type);
                    reached.optional(new.error.as_ref());
                }
                EventKind::ServerClosed { reason, .. } => {
                    reached.insert("departures of servers", variant(reason));
                }
                EventKind::SrvLookupFailed { failure, .. } => reached.error(failure),
                EventKind::Input(recorded) => {
                    reached.insert("inputs", variant(&recorded.input));
                }
                EventKind::ServerSelectionFailed { reason, .. } => {
                    reached.insert("failures of selections", reason);
                }
                EventKind::ConnectionCheckOutFailed { reason, .. } => {
                    reached.insert("failures of check-outs", reason);
                }
                EventKind::ConnectionClosed { reason, error, .. } => {
                    reached.insert("reasons to close connections", reason);
                    reached.optional(error.as_ref());
                }
                _ => {}
            }
        }
        reached
    }

    fn transition(&mut self, topology: TopologyType, server: ServerType) {
        self.insert("transitions", format_args!("{topology} + {server}"));
    }

    fn optional(&mut self, error: Option<&Error>) {
        if let Some(error) = error {
            self.error(error);
        }
    }

    /// Adds the kind and the stage of an error.
    pub(crate) fn error(&mut self, error: &Error) {
        self.insert("kinds of errors", error.kind());
        self.insert("stages of errors", error.stage());
    }

    /// Adds the outputs of a deployment that processes the recorded inputs.
    pub(crate) fn outputs(&mut self, options: &Options, events: &[Event]) {
        let mut deployment = None;
        for event in events {
            let EventKind::Input(recorded) = &event.kind else {
                continue;
            };
            if let Some(setup) = &recorded.setup {
                deployment = Some(Deployment::restored(options.clone(), setup));
            }
            let outputs = deployment
                .as_mut()
                .map(|deployment| deployment.handle(recorded.now, recorded.input.clone()));
            for output in outputs.into_iter().flatten() {
                self.insert("outputs", variant(&output));
            }
        }
    }

    /// Adds a disturbance of the simulation.
    pub(crate) fn disturbance(&mut self, disturbance: Disturbance) {
        self.insert("disturbances", disturbance);
    }

    fn insert(&mut self, group: &str, name: impl fmt::Display) {
        let name = name.to_string();
        let mut cell = 0;
        for (own, names) in &*GROUPS {
            if *own == group {
                let place = names.iter().position(|own| *own == name);
                assert!(place.is_some(), "{group} have no {name}");
                cell += place.unwrap_or_default();
                break;
            }
            cell += names.len();
        }
        self.0[cell / 64] |= 1 << (cell % 64);
    }

    fn contains(self, cell: usize) -> bool {
        self.0[cell / 64] >> (cell % 64) & 1 == 1
    }

    /// Adds all cells of `other`.
    pub fn unite(&mut self, other: Self) {
        for (own, other) in self.0.iter_mut().zip(other.0) {
            *own |= other;
        }
    }

    /// Returns the cells that were reached although they are excluded.
    pub fn wrongly_excluded(self) -> Vec<String> {
        self.names(|is_reached, is_excluded| is_reached && is_excluded)
    }

    /// Returns the names of the cells for which `selects` returns true. Its arguments state whether
    /// the cell is reached and whether it is excluded.
    fn names(self, selects: impl Fn(bool, bool) -> bool) -> Vec<String> {
        let cells = cells().enumerate();
        let chosen =
            cells.filter(|(cell, (_, name))| selects(self.contains(*cell), is_excluded(name)));
        chosen.map(|(_, (group, name))| format!("{group}: {name}")).collect()
    }

    /// Returns the numbers of cells that were reached, are missing and are excluded.
    pub fn summary(self) -> String {
        let all = cells().count();
        let reached = (0..all).filter(|cell| self.contains(*cell)).count();
        let missing = self.missing().len();
        let excluded = all - reached - missing;
        format!("{reached} situations reached, {missing} missing, {excluded} excluded")
    }

    /// Returns the cells that were not reached, although runs of simulated deployments can reach
    /// them.
    pub fn missing(self) -> Vec<String> {
        self.names(|is_reached, is_excluded| !is_reached && !is_excluded)
    }
}

fn cells() -> impl Iterator<Item = (&'static str, &'static str)> {
    GROUPS.iter().flat_map(|(group, names)| names.iter().map(|name| (*group, &**name)))
}

/// Returns the name of the variant, with which its `Debug` text begins.
fn variant(value: &impl fmt::Debug) -> String {
    struct Name(String);
    impl fmt::Write for Name {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            // The rest may be long, and is not needed.
            if !self.0.is_empty() {
                return Err(fmt::Error);
            }
            self.0.push_str(text);
            Ok(())
        }
    }
    let mut name = Name(String::new());
    let _ = write!(name, "{value:?}");
    name.0
}

/// Returns whether no run can reach the cell.
fn is_excluded(name: &str) -> bool {
    if let Some((topology, server)) = name.split_once(" + ") {
        // A LoadBalanced topology contains only the load balancer, which is never checked, and no
        // other topology contains one. A server becomes a PossiblePrimary only if another server
        // names it as the primary while there is no primary, never because of its own reply.
        return match server {
            "LoadBalancer" => topology != "LoadBalanced",
            "PossiblePrimary" => topology != "ReplicaSetNoPrimary",
            _ => topology == "LoadBalanced",
        };
    }
    EXCLUDED.iter().any(|(cell, _)| *cell == name)
}

/// The cells that no run can reach, each with the reason.
const EXCLUDED: &[(&str, &str)] = &[
    ("MembersIgnored", "needs more members than a set can have"),
    ("EventsDropped", "the oracles need every event"),
    ("CommandStarted", "published by drivers and by the client of `sdam`, which no run uses"),
    ("CommandSucceeded", "as `CommandStarted`"),
    ("CommandFailed", "as `CommandStarted`"),
    ("internal", "a panic ends the run"),
    ("invalid", "nothing invalid is configured or sent"),
    ("selection", "an error of the client of `sdam`"),
    ("selection_timeout", "an error of the client of `sdam`"),
    ("time_limit", "an error of the client of `sdam`"),
    ("write", "an error of the client of `sdam`"),
    ("runtime_shut_down", "the simulated runtime ends after its topologies"),
    ("Deserted", "the simulated runtime drops no task that watches a server"),
    ("Scan", "an input of a single-threaded client, which `--scenario scan` runs"),
    ("Chosen", "as `Scan`"),
    ("Probed", "as `Scan`"),
    ("Choose", "as `Scan`"),
    ("Probe", "as `Scan`"),
    ("Finish", "as `Scan`"),
    ("ConnectionLost", "operations that share the connection of a single-threaded client"),
    ("Authenticated", "as `ConnectionLost`"),
    ("Hosts", "for drivers that look up SRV records themselves"),
    ("too_many_waiters", "the limit is far above the number of applications"),
];

impl fmt::Display for Coverage {
    /// Writes, for each group, the number of cells that were reached.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cells = (0..).map(|cell| self.contains(cell));
        for (place, (group, names)) in GROUPS.iter().enumerate() {
            let reached = cells.by_ref().take(names.len()).filter(|reached| *reached).count();
            let comma = if place == 0 { "" } else { ", " };
            write!(f, "{comma}{reached} of {} {group}", names.len())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_has_a_bit_and_every_exclusion_a_cell() {
        assert!(cells().count() <= 64 * WORDS);
        for (excluded, _) in EXCLUDED {
            assert!(cells().any(|(_, name)| name == *excluded), "{excluded}");
        }
    }
}
