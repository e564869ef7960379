//! Records the driver's events and waits for them.

use std::time::Duration;

use mongodb::{
    ServerInfo, ServerType,
    event::{
        EventHandler,
        cmap::CmapEvent,
        command::CommandEvent,
        sdam::{SdamEvent, TopologyDescription},
    },
    options::{ClientOptions, ServerAddress},
};
use tokio::{sync::watch, time::timeout};

use crate::Result;

/// The time limit of every wait for an event.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// An event of any kind.
#[derive(Clone, Debug)]
pub enum Event {
    Sdam(SdamEvent),
    Cmap(CmapEvent),
    Command(CommandEvent),
}

/// All events of a client, in the order of the handler calls.
#[derive(Clone, Debug)]
pub struct Observer(watch::Sender<Vec<Event>>);

impl Observer {
    /// Adds event handlers to `options` that record all events.
    pub fn attach(options: &mut ClientOptions) -> Self {
        let sender = watch::Sender::new(Vec::new());
        let (sdam, cmap, command) = (sender.clone(), sender.clone(), sender.clone());
        options.sdam_event_handler = Some(EventHandler::callback(move |event| {
            sdam.send_modify(|events| events.push(Event::Sdam(event)));
        }));
        options.cmap_event_handler = Some(EventHandler::callback(move |event| {
            cmap.send_modify(|events| events.push(Event::Cmap(event)));
        }));
        options.command_event_handler = Some(EventHandler::callback(move |event| {
            command.send_modify(|events| events.push(Event::Command(event)));
        }));
        Self(sender)
    }

    /// Returns the number of events so far, for [`Observer::until_after`].
    pub fn count(&self) -> usize {
        self.0.borrow().len()
    }

    pub fn events(&self) -> Vec<Event> {
        self.0.borrow().clone()
    }

    /// Waits until the events satisfy the predicate.
    pub async fn until_all(&self, what: &str, holds: impl Fn(&[Event]) -> bool) -> Result<()> {
        let mut receiver = self.0.subscribe();
        let waiting = receiver.wait_for(|events| holds(events));
        if timeout(DEADLINE, waiting).await.is_ok() {
            return Ok(());
        }
        let last: Vec<_> = self.events().into_iter().rev().take(5).collect();
        Err(format!("there was never {what}; the last events, newest first: {last:#?}").into())
    }

    /// Waits for an event after the first `skipped` events.
    pub async fn until_after(
        &self,
        skipped: usize,
        what: &str,
        is: impl Fn(&Event) -> bool,
    ) -> Result<()> {
        self.until_all(what, |events| events.iter().skip(skipped).any(&is)).await
    }

    /// Waits until the driver knows a primary and two secondaries, each streaming its state.
    pub async fn until_whole(&self) -> Result<()> {
        self.until_all("the whole set, streaming", |events| {
            newest_topology(events).is_some_and(|topology| {
                let servers: Vec<_> = topology.servers().into_values().collect();
                let number = |kind| servers.iter().filter(|s| s.server_type() == kind).count();
                let streams = |server: &ServerInfo<'_>| {
                    events.iter().any(|event| {
                        matches!(event, Event::Sdam(SdamEvent::ServerHeartbeatStarted(started))
                            if started.awaited && started.server_address == *server.address())
                    })
                };
                number(ServerType::RsPrimary) == 1
                    && number(ServerType::RsSecondary) == 2
                    && servers.iter().all(streams)
            })
        })
        .await
    }

    /// Waits until the driver knows a primary other than `old`, and returns it.
    pub async fn until_other_primary(&self, old: &ServerAddress) -> Result<ServerAddress> {
        let other = |events: &[Event]| primary(events).filter(|new| new != old);
        self.until_all("another primary", |events| other(events).is_some()).await?;
        other(&self.events()).ok_or_else(|| "the new primary is gone".into())
    }

    /// Returns the primary known to the driver.
    pub fn primary(&self) -> Result<ServerAddress> {
        primary(&self.events()).ok_or_else(|| "the driver knows no primary".into())
    }
}

fn newest_topology(events: &[Event]) -> Option<&TopologyDescription> {
    events.iter().rev().find_map(|event| match event {
        Event::Sdam(SdamEvent::TopologyDescriptionChanged(changed)) => {
            Some(&changed.new_description)
        }
        _ => None,
    })
}

fn primary(events: &[Event]) -> Option<ServerAddress> {
    let servers = newest_topology(events)?.servers();
    let mut servers = servers.into_iter();
    servers.find_map(|(address, server)| {
        (server.server_type() == ServerType::RsPrimary).then(|| address.clone())
    })
}
