//! The effects of the topology on connection pools.

use std::collections::BTreeMap;

use mongodb::{bson::doc, event::cmap::CmapEvent};

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
    seen("a cleared pool", |event| {
        matches!(event, CmapEvent::PoolCleared(_))
    })
    .await?;
    observed.observer.until_other_primary(&old).await?;
    things.insert_one(doc! { "_id": 1 }).await?;
    set.heal().await?;
    seen("a pool that is ready again", |event| {
        matches!(event, CmapEvent::PoolReady(_))
    })
    .await
}

/// Returns the address of events that concern a whole pool.
fn address(event: &CmapEvent) -> Option<&mongodb::options::ServerAddress> {
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
    // No wait: the pools are full when the call returns.
    let mut ready = BTreeMap::<String, u32>::new();
    for event in observed.observer.cmap_events() {
        if let CmapEvent::ConnectionReady(event) = event {
            *ready.entry(event.address.to_string()).or_default() += 1;
        }
    }
    ensure(
        ready.len() == 3 && ready.values().all(|number| *number >= WARM),
        || format!("connections after warming: {ready:?}"),
    )
}
