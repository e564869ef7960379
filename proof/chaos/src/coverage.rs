//! Records the situations that runs reached: cells of the transition table, events, errors, inputs
//! and outputs of the machine, and the reasons for departures, failures and closed connections.

use std::fmt;

use sdam_core::{
    deployment::{Deployment, Input, Output},
    error::{Error, ErrorKind, Stage},
    event::{
        CheckOutFailure, ConnectionClosedReason, Event, EventKind, EventName, SelectionFailure,
    },
    hello::Hello,
    options::Options,
    server::ServerType,
    topology::{DepartureReason, TopologyType},
};
use sdam_sim::runtime::Disturbance;

/// The reasons why a server leaves a topology, in the order of [`DepartureReason`].
const DEPARTURES: [&str; 7] = [
    "closed",
    "hosts changed",
    "misnamed",
    "not listed",
    "one of several seeds",
    "wrong set name",
    "wrong type",
];

/// The inputs of a deployment, in the order of [`Input`].
const INPUTS: [&str; 20] = [
    "open",
    "close",
    "due",
    "connected",
    "reply",
    "failed",
    "deserted",
    "check requested",
    "scan",
    "chosen",
    "probed",
    "connection lost",
    "authenticated",
    "handshake",
    "service connection closed",
    "error",
    "late",
    "answered",
    "looked up",
    "hosts",
];

/// The outputs of a deployment, in the order of [`Output`].
const OUTPUTS: [&str; 15] = [
    "connect",
    "send",
    "read",
    "disconnect",
    "wake",
    "open server",
    "close server",
    "pool ready",
    "pool clear",
    "publish",
    "emit",
    "look up",
    "choose",
    "probe",
    "finish",
];

/// Defines the groups of cells. Each has a name and the names of its cells.
macro_rules! groups {
    ($($group:ident: $title:literal, $count:expr, $name:expr;)*) => {
        #[derive(Clone, Copy)]
        enum Group { $($group,)* }

        impl Group {
            const ALL: &'static [Self] = &[$(Self::$group,)*];

            const fn title(self) -> &'static str {
                match self { $(Self::$group => $title,)* }
            }

            /// The number of cells.
            const fn count(self) -> usize {
                match self { $(Self::$group => $count,)* }
            }

            fn name(self, index: usize) -> String {
                let name: fn(usize) -> String = match self { $(Self::$group => $name,)* };
                name(index)
            }
        }
    };
}

groups! {
    Transition: "transitions", TopologyType::ALL.len() * ServerType::ALL.len(), |index| {
        let (topology, server) = (index / ServerType::ALL.len(), index % ServerType::ALL.len());
        format!("{} + {}", TopologyType::ALL[topology], ServerType::ALL[server])
    };
    Event: "events", EventName::ALL.len(), |index| EventName::ALL[index].as_str().to_owned();
    Error: "kinds of errors", ErrorKind::ALL.len(), |index| ErrorKind::ALL[index].to_string();
    Stage: "stages of errors", Stage::ALL.len(), |index| Stage::ALL[index].to_string();
    Departure: "departures of servers", DEPARTURES.len(), |index| DEPARTURES[index].to_owned();
    Selection: "failures of selections", SelectionFailure::ALL.len(),
        |index| SelectionFailure::ALL[index].to_string();
    CheckOut: "failures of check-outs", CheckOutFailure::ALL.len(),
        |index| CheckOutFailure::ALL[index].to_string();
    Close: "reasons to close connections", ConnectionClosedReason::ALL.len(),
        |index| ConnectionClosedReason::ALL[index].to_string();
    Input: "inputs", INPUTS.len(), |index| INPUTS[index].to_owned();
    Output: "outputs", OUTPUTS.len(), |index| OUTPUTS[index].to_owned();
    Disturbance: "disturbances", Disturbance::ALL.len(),
        |index| Disturbance::ALL[index].to_string();
}

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
            reached.insert(Group::Event, event.kind.name().index());
            match &event.kind {
                EventKind::TopologyDescriptionChanged { new, .. } => {
                    topology = new.topology_type();
                    // No event of its own reports that a server becomes a PossiblePrimary (J-19), and it
                    // may stay one when another server turns out to be the primary.
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
                    reached.insert(Group::Departure, departure(reason));
                }
                EventKind::SrvLookupFailed { failure, .. } => reached.error(failure),
                EventKind::Input(recorded) => {
                    reached.insert(Group::Input, input(&recorded.input));
                }
                EventKind::ServerSelectionFailed { reason, .. } => {
                    reached.insert(Group::Selection, index(SelectionFailure::ALL, reason));
                }
                EventKind::ConnectionCheckOutFailed { reason, .. } => {
                    reached.insert(Group::CheckOut, index(CheckOutFailure::ALL, reason));
                }
                EventKind::ConnectionClosed { reason, error, .. } => {
                    reached.insert(Group::Close, index(ConnectionClosedReason::ALL, reason));
                    reached.optional(error.as_ref());
                }
                _ => {}
            }
        }
        reached
    }

    fn transition(&mut self, topology: TopologyType, server: ServerType) {
        let row = index(TopologyType::ALL, &topology) * ServerType::ALL.len();
        self.insert(Group::Transition, row + index(ServerType::ALL, &server));
    }

    fn optional(&mut self, error: Option<&Error>) {
        if let Some(error) = error {
            self.error(error);
        }
    }

    /// Adds the kind and the stage of an error.
    pub(crate) fn error(&mut self, error: &Error) {
        self.insert(Group::Error, index(ErrorKind::ALL, &error.kind()));
        self.insert(Group::Stage, index(Stage::ALL, &error.stage()));
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
                self.insert(Group::Output, output_index(&output));
            }
        }
    }

    /// Adds a disturbance of the simulation.
    pub(crate) fn disturbance(&mut self, disturbance: Disturbance) {
        self.insert(Group::Disturbance, disturbance as usize);
    }

    fn insert(&mut self, group: Group, index: usize) {
        let before = Group::ALL.iter().take(group as usize).map(|group| group.count());
        let cell = before.sum::<usize>() + index;
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

    /// Returns the names of the cells that `selects` chooses, by whether they are reached and
    /// excluded.
    fn names(self, selects: impl Fn(bool, bool) -> bool) -> Vec<String> {
        let cells = cells().enumerate();
        let chosen =
            cells.filter(|(cell, (_, name))| selects(self.contains(*cell), is_excluded(name)));
        chosen.map(|(_, (group, name))| format!("{}: {name}", group.title())).collect()
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

fn cells() -> impl Iterator<Item = (Group, String)> {
    let groups = Group::ALL.iter();
    groups.flat_map(|group| (0..group.count()).map(|index| (*group, group.name(index))))
}

fn index<T: PartialEq>(all: &[T], one: &T) -> usize {
    all.iter().position(|own| own == one).unwrap_or_default()
}

fn departure(reason: &DepartureReason) -> usize {
    match reason {
        DepartureReason::Closed => 0,
        DepartureReason::HostsChanged => 1,
        DepartureReason::Misnamed { .. } => 2,
        DepartureReason::NotListed { .. } => 3,
        DepartureReason::OneOfSeveralSeeds => 4,
        DepartureReason::WrongSetName { .. } => 5,
        // If a variant is added to the enum, it is counted under the wrong name until its name is
        // added to the list above.
        _ => 6,
    }
}

/// Returns the index of an input's name.
fn input(input: &Input) -> usize {
    match input {
        Input::Open => 0,
        Input::Close => 1,
        Input::Due { .. } => 2,
        Input::Connected { .. } => 3,
        Input::Reply { .. } => 4,
        Input::Failed { .. } => 5,
        Input::Deserted { .. } => 6,
        Input::CheckRequested { .. } => 7,
        Input::Scan(_) => 8,
        Input::Chosen { .. } => 9,
        Input::Probed { .. } => 10,
        Input::ConnectionLost { .. } => 11,
        Input::Authenticated { .. } => 12,
        Input::Handshake { .. } => 13,
        Input::ServiceConnectionClosed { .. } => 14,
        Input::Error { .. } => 15,
        Input::Late { .. } => 16,
        Input::Answered { .. } => 17,
        Input::LookedUp(_) => 18,
        Input::Hosts(_) => 19,
    }
}

/// Returns the index of an output's name.
fn output_index(output: &Output) -> usize {
    match output {
        Output::Connect { .. } => 0,
        Output::Send { .. } => 1,
        Output::Read { .. } => 2,
        Output::Disconnect { .. } => 3,
        Output::Wake { .. } => 4,
        Output::OpenServer { .. } => 5,
        Output::CloseServer { .. } => 6,
        Output::PoolReady { .. } => 7,
        Output::PoolClear { .. } => 8,
        Output::Publish(_) => 9,
        Output::Emit(_) => 10,
        Output::LookUp { .. } => 11,
        Output::Choose => 12,
        Output::Probe { .. } => 13,
        Output::Finish(_) => 14,
    }
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
    ("deserted", "the simulated runtime drops no task that watches a server"),
    ("scan", "an input of a single-threaded client, which `--scenario scan` runs"),
    ("chosen", "as `scan`"),
    ("probed", "as `scan`"),
    ("choose", "as `scan`"),
    ("probe", "as `scan`"),
    ("finish", "as `scan`"),
    ("connection lost", "operations that share the connection of a single-threaded client"),
    ("authenticated", "as `connection lost`"),
    ("hosts", "for drivers that look up SRV records themselves"),
    ("too_many_waiters", "the limit is far above the number of applications"),
];

impl fmt::Display for Coverage {
    /// Writes, for each group, the number of cells that were reached.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = 0;
        for (place, group) in Group::ALL.iter().enumerate() {
            let cells = first..first + group.count();
            let reached = cells.filter(|cell| self.contains(*cell)).count();
            first += group.count();
            let comma = if place == 0 { "" } else { ", " };
            write!(f, "{comma}{reached} of {} {}", group.count(), group.title())?;
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
