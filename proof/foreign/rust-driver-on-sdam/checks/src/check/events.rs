//! The order of SDAM events and of CMAP events.

use std::collections::{BTreeMap, BTreeSet};

use mongodb::{
    bson::doc,
    event::{
        cmap::CmapEvent,
        sdam::{SdamEvent, TopologyDescription},
    },
    options::ServerAddress,
};

use super::{Set, set::Observed};
use crate::{Result, ensure, observer::Event};

pub async fn sdam_in_order(set: &Set) -> Result<()> {
    let Observed { client, observer } = set.observed().await?;
    client.shutdown().await;
    observer
        .until_all("the end of the topology", |events| {
            events.iter().any(|event| matches!(event, Event::Sdam(SdamEvent::TopologyClosed(_))))
        })
        .await?;
    let mut order = SdamOrder::default();
    let mut index = 0;
    for event in observer.events() {
        let Event::Sdam(event) = event else { continue };
        order.next(index, &event).map_err(|error| format!("event {index}: {error}\n{event:?}"))?;
        index += 1;
    }
    order.end()
}

/// The state that decides which SDAM events may come next.
#[derive(Default)]
struct SdamOrder {
    /// Servers that were opened and not closed yet.
    servers: BTreeSet<String>,
    /// The latest type of each server in a `ServerDescriptionChangedEvent`.
    types: BTreeMap<String, String>,
    /// The type of each server in the latest topology description.
    included: BTreeMap<String, String>,
    /// The current heartbeat of each server, and whether it is awaited.
    heartbeats: BTreeMap<String, bool>,
    pairs: usize,
    closed: bool,
}

impl SdamOrder {
    fn next(&mut self, index: usize, event: &SdamEvent) -> Result<()> {
        let opening = matches!(event, SdamEvent::TopologyOpening(_));
        ensure(opening == (index == 0), || {
            "TopologyOpening is the first event and no other".into()
        })?;
        ensure(!self.closed, || "an event after TopologyClosed".into())?;
        match event {
            SdamEvent::ServerOpening(event) => {
                let is_new = self.servers.insert(event.address.to_string());
                ensure(is_new, || "a server opened twice".into())
            }
            SdamEvent::ServerClosed(event) => {
                let address = event.address.to_string();
                self.types.remove(&address);
                ensure(self.servers.remove(&address), || "a server closed that is not open".into())
            }
            SdamEvent::ServerDescriptionChanged(event) => {
                let address = event.address.to_string();
                ensure(self.servers.contains(&address), || {
                    "a description of a server that is not open".into()
                })?;
                let new = format!("{:?}", event.new_description.server_type());
                self.types.insert(address, new);
                Ok(())
            }
            SdamEvent::TopologyDescriptionChanged(event) => {
                let described = |description: &TopologyDescription| {
                    description
                        .servers()
                        .into_iter()
                        .map(|(address, server)| {
                            (address.to_string(), format!("{:?}", server.server_type()))
                        })
                        .collect::<BTreeMap<_, _>>()
                };
                ensure(self.included == described(&event.previous_description), || {
                    "the previous description is not that of the last event".into()
                })?;
                self.included = described(&event.new_description);
                self.included_was_published()
            }
            SdamEvent::TopologyClosed(_) => {
                self.closed = true;
                ensure(self.servers.is_empty(), || "TopologyClosed before ServerClosed".into())
            }
            SdamEvent::ServerHeartbeatStarted(event) => {
                let address = event.server_address.to_string();
                let previous = self.heartbeats.insert(address, event.awaited);
                ensure(previous.is_none(), || "two heartbeats of a server at once".into())
            }
            SdamEvent::ServerHeartbeatSucceeded(event) => {
                self.ended(&event.server_address, event.awaited)
            }
            SdamEvent::ServerHeartbeatFailed(event) => {
                self.ended(&event.server_address, event.awaited)
            }
            _ => Ok(()),
        }
    }

    /// Checks that the types in the topology description match those in the servers' events.
    fn included_was_published(&self) -> Result<()> {
        for (address, kind) in &self.included {
            let published = self.types.get(address).map_or("Unknown", String::as_str);
            ensure(published == kind, || {
                format!("{address} is {kind} here and {published} in its own newest event")
            })?;
        }
        Ok(())
    }

    fn ended(&mut self, address: &ServerAddress, awaited: bool) -> Result<()> {
        self.pairs += 1;
        let started = self.heartbeats.remove(&address.to_string());
        ensure(started == Some(awaited), || {
            format!("the end of a heartbeat (awaited: {awaited}) that was started: {started:?}")
        })
    }

    fn end(&self) -> Result<()> {
        ensure(self.closed && self.pairs >= 3, || {
            format!("closed: {}, ended heartbeats: {}", self.closed, self.pairs)
        })
    }
}

pub async fn cmap_in_order(set: &Set) -> Result<()> {
    let observed = set.observed().await?;
    let things = observed.collection("cmap").await?;
    for id in 0..10 {
        things.insert_one(doc! { "_id": id }).await?;
    }
    drop(things);
    let Observed { client, observer } = observed;
    client.shutdown().await;
    observer
        .until_all("the end of all pools", |events| {
            let closed = |event: &&Event| matches!(event, Event::Cmap(CmapEvent::PoolClosed(_)));
            events.iter().filter(closed).count() == 3
        })
        .await?;
    let mut pools = BTreeMap::<String, PoolOrder>::new();
    for event in observer.events() {
        let Event::Cmap(event) = event else { continue };
        let (address, step) = step(&event);
        pools
            .entry(address)
            .or_default()
            .next(step)
            .map_err(|error| format!("{error}\n{event:?}"))?;
    }
    let handed_out: usize = pools.values().map(|pool| pool.handed_out).sum();
    ensure(pools.len() == 3 && handed_out >= 10, || {
        format!("{} pools, {handed_out} check-outs", pools.len())
    })
}

/// The effect of an event on its pool.
#[derive(Clone, Copy)]
enum Step {
    Created,
    Ready,
    Closed,
    Opening(u32),
    Opened(u32),
    Out(u32),
    In(u32),
    Gone(u32),
    Other,
}

/// The state of a pool according to its events.
#[derive(Default)]
struct PoolOrder {
    created: bool,
    ready: bool,
    closed: bool,
    opening: BTreeSet<u32>,
    idle: BTreeSet<u32>,
    out: BTreeSet<u32>,
    handed_out: usize,
}

impl PoolOrder {
    fn next(&mut self, step: Step) -> Result<()> {
        let allowed = match step {
            Step::Created => !std::mem::replace(&mut self.created, true),
            Step::Ready => self.created && !std::mem::replace(&mut self.ready, true),
            Step::Closed => self.created && !std::mem::replace(&mut self.closed, true),
            Step::Opening(id) => self.ready && self.opening.insert(id),
            Step::Opened(id) => self.opening.remove(&id) && self.idle.insert(id),
            Step::Out(id) => {
                self.handed_out += 1;
                self.idle.remove(&id) && self.out.insert(id)
            }
            Step::In(id) => self.out.remove(&id) && self.idle.insert(id),
            Step::Gone(id) => {
                self.idle.remove(&id) || self.out.remove(&id) || self.opening.remove(&id)
            }
            Step::Other => true,
        };
        ensure(allowed, || "a CMAP event out of order".into())
    }
}

fn step(event: &CmapEvent) -> (String, Step) {
    let (address, step) = match event {
        CmapEvent::PoolCreated(event) => (&event.address, Step::Created),
        CmapEvent::PoolReady(event) => (&event.address, Step::Ready),
        CmapEvent::PoolClosed(event) => (&event.address, Step::Closed),
        CmapEvent::PoolCleared(event) => (&event.address, Step::Other),
        CmapEvent::ConnectionCreated(event) => (&event.address, Step::Opening(event.connection_id)),
        CmapEvent::ConnectionReady(event) => (&event.address, Step::Opened(event.connection_id)),
        CmapEvent::ConnectionClosed(event) => (&event.address, Step::Gone(event.connection_id)),
        CmapEvent::ConnectionCheckoutStarted(event) => (&event.address, Step::Other),
        CmapEvent::ConnectionCheckoutFailed(event) => (&event.address, Step::Other),
        CmapEvent::ConnectionCheckedOut(event) => (&event.address, Step::Out(event.connection_id)),
        CmapEvent::ConnectionCheckedIn(event) => (&event.address, Step::In(event.connection_id)),
        _ => return (String::new(), Step::Other),
    };
    (address.to_string(), step)
}
