//! The effects of the topology on connection pools.

use std::collections::BTreeMap;

use mongodb::{bson::doc, event::cmap::CmapEvent, options::ServerAddress};

use super::Set;
use crate::{Result, ensure, observer::Event};

/// The `minPoolSize` of the warmed pools.
const WARM: u32 = 4;

pub async fn cleared_by_a_kill(set: &Set) -> Result<()> {
    let observed = set.observed().await?;
    let things = observed.collection("cleared").await?;
    let old = observed.observer.primary()?;
    let before = observed.observer.count();
    set.kill(&old).await?;
    let seen = |what: &'static str, is: fn(&CmapEvent) -> bool| {
        let old = &old;
        observed.observer.until_after(before, what, move |event| {
            matches!(event, Event::Cmap(event) if is(event) && address(event) == Some(old))
        })
    };
    seen("a cleared pool", |event| matches!(event, CmapEvent::PoolCleared(_))).await?;
    observed.observer.until_other_primary(&old).await?;
    things.insert_one(doc! { "_id": 1 }).await?;
    set.heal().await?;
    seen("a pool that is ready again", |event| matches!(event, CmapEvent::PoolReady(_))).await
}

/// Returns the address of events that concern a whole pool.
fn address(event: &CmapEvent) -> Option<&ServerAddress> {
    match event {
        CmapEvent::PoolCleared(event) => Some(&event.address),
        CmapEvent::PoolReady(event) => Some(&event.address),
        _ => None,
    }
}

pub async fn warmed(set: &Set) -> Result<()> {
    let options = |options: &mut mongodb::options::ClientOptions| {
        options.min_pool_size = Some(WARM);
    };
    let observed = set.observed_with(options).await?;
    observed.client.warm_connection_pool().await;
    // All connections are created when the call returns. Those that the pool had already begun to
    // establish may be ready a little later.
    let created = warm_servers(&observed.observer.events(), |event| match event {
        CmapEvent::ConnectionCreated(event) => Some(&event.address),
        _ => None,
    });
    ensure(created == 3, || format!("{created} of 3 pools have {WARM} connections after warming"))?;
    let are_ready = |events: &[Event]| {
        let ready = warm_servers(events, |event| match event {
            CmapEvent::ConnectionReady(event) => Some(&event.address),
            _ => None,
        });
        ready == 3
    };
    let what = "ready connections in all warmed pools";
    observed.observer.until_all(what, are_ready).await
}

/// Returns the number of servers with at least [`WARM`] events, of those for which `address`
/// returns an address.
fn warm_servers(events: &[Event], address: fn(&CmapEvent) -> Option<&ServerAddress>) -> usize {
    let mut numbers = BTreeMap::<String, u32>::new();
    for event in events {
        if let Event::Cmap(event) = event
            && let Some(address) = address(event)
        {
            *numbers.entry(address.to_string()).or_default() += 1;
        }
    }
    let numbers = numbers.values();
    numbers.filter(|number| **number >= WARM).count()
}
