use std::{
    collections::{BTreeMap, BTreeSet},
    time::UNIX_EPOCH,
};

use sdam_core::{
    deployment::Input, event::EventKind, server::ServerType, time::Instant,
    topology::TopologyDescription,
};

use sdam_events::facts::{Fact, Facts, Failover};

use crate::recording::Recording;

/// A subject that clients may disagree about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    Primary,
    /// The type of the server at this address.
    Server(String),
}

/// The views of one client.
#[derive(Debug, Default)]
pub(super) struct Client {
    /// The name of the client's vantage point, or of the file.
    pub(super) name: String,
    pub(super) file: String,
    /// The period from the time at which the client first knew the state of every server until it
    /// stopped, in nanoseconds since 1970.
    pub(super) from: u64,
    pub(super) to: u64,
    /// The failovers, each with the time at which it ended.
    pub(super) failovers: Vec<(u64, Failover)>,
    /// The states in which the client believed the subjects to be, with their start times. `None`
    /// means that there is no primary, or that the server is not a member.
    views: BTreeMap<Subject, Vec<(u64, Option<String>)>>,
}

impl Client {
    /// Extracts the views of the client in `recording`. Names the client after its vantage point,
    /// or after the file if there is no vantage point, or if one of the `others` already has that
    /// name.
    pub(super) fn of(recording: &Recording, others: &[Self]) -> Result<Self, String> {
        let wall = |at: Instant| {
            let wall = recording.wall(at)?.duration_since(UNIX_EPOCH).ok()?;
            u64::try_from(wall.as_nanos()).ok()
        };
        let without = || {
            let file = &recording.name;
            format!(
                "{file}: the recording does not tell its wall-clock time; \
                 record again with this version of sdam"
            )
        };
        let name = recording.vantage().unwrap_or(&recording.name);
        let is_taken = |name: &str| others.iter().any(|other| other.name == name);
        let name = match name {
            name if !is_taken(name) => name.to_owned(),
            _ if !is_taken(&recording.name) => recording.name.clone(),
            name => format!("{name} ({})", others.len() + 1),
        };
        let end = wall(recording.end()).ok_or_else(without)?;
        let file = recording.name.clone();
        let mut client = Self { name, file, from: end, to: end, ..Self::default() };
        let mut facts = Facts::new();
        for event in &recording.events {
            let at = wall(event.at).ok_or_else(without)?;
            for fact in facts.observe(event) {
                client.learn(at, fact);
            }
            match &event.kind {
                EventKind::TopologyDescriptionChanged { new, .. } => client.observe(at, new),
                EventKind::Input(own) if own.input == Input::Close => {
                    client.to = at;
                    break;
                }
                _ => {}
            }
        }
        Ok(client)
    }

    /// Creates a client that has the given `views` of `subject`, each with its start time.
    #[cfg(test)]
    pub(super) fn with_views(subject: Subject, views: &[(u64, Option<&str>)]) -> Self {
        let views = views.iter().map(|(at, view)| (*at, view.map(ToOwned::to_owned)));
        Self { views: [(subject, views.collect())].into(), ..Self::default() }
    }

    fn learn(&mut self, at: u64, fact: Fact) {
        match fact {
            Fact::FailoverEnded(failover) => self.failovers.push((at, failover)),
            Fact::FailoverExplained(explained) => {
                if let Some((_, last)) = self.failovers.last_mut() {
                    *last = explained;
                }
            }
            _ => {}
        }
    }

    fn observe(&mut self, at: u64, topology: &TopologyDescription) {
        let servers = topology.servers();
        let is_known = servers.iter().all(|it| it.last_update_time.is_some());
        let primary = topology.primary().map(|server| server.address.to_string());
        if is_known || primary.is_some() {
            self.from = self.from.min(at);
        }
        self.note(at, Subject::Primary, primary);
        let left: Vec<Subject> = self.views.keys().cloned().collect();
        for subject in left {
            if let Subject::Server(address) = &subject
                && !servers.iter().any(|server| server.address.as_str() == address)
            {
                self.note(at, subject, None);
            }
        }
        for server in servers {
            let name = match server.server_type {
                // A possible primary is only a guess, because the client has not reached it.
                ServerType::PossiblePrimary => ServerType::Unknown,
                known => known,
            };
            let subject = Subject::Server(server.address.to_string());
            self.note(at, subject, Some(name.to_string()));
        }
    }

    fn note(&mut self, at: u64, subject: Subject, value: Option<String>) {
        let views = self.views.entry(subject).or_default();
        if views.last().is_none_or(|(_, last)| *last != value) {
            views.push((at, value));
        }
    }

    /// Returns whether both clients have seen a server at the same address.
    pub(super) fn shares_a_server_with(&self, other: &Self) -> bool {
        let is_server = |subject: &&Subject| matches!(subject, Subject::Server(_));
        let mut servers = self.views.keys().filter(is_server);
        servers.any(|subject| other.views.contains_key(subject))
    }

    /// Shifts all times by `nanos` nanoseconds.
    pub(super) fn shift(&mut self, nanos: i64) {
        let views = self.views.values_mut().flatten().map(|(at, _)| at);
        let failovers = self.failovers.iter_mut().map(|(at, _)| at);
        for at in views.chain(failovers).chain([&mut self.from, &mut self.to]) {
            *at = at.saturating_add_signed(nanos);
        }
    }

    /// Returns the client's view of `subject` at the time `at`.
    pub(super) fn view(&self, subject: &Subject, at: u64) -> Option<&str> {
        let views = self.views.get(subject)?;
        let after = views.partition_point(|(from, _)| *from <= at);
        views.get(after.checked_sub(1)?)?.1.as_deref()
    }

    /// Returns the times at which the client's view of `subject` changed.
    pub(super) fn changes(&self, subject: &Subject) -> impl Iterator<Item = u64> {
        let views = self.views.get(subject);
        views.into_iter().flatten().map(|(at, _)| *at)
    }
}

/// Returns the subjects of all clients' views, the primary first.
pub(super) fn subjects(clients: &[Client]) -> BTreeSet<Subject> {
    let subjects = clients.iter().flat_map(|client| client.views.keys());
    subjects.cloned().collect()
}
