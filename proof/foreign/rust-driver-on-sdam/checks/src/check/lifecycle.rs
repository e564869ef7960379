//! Shutdowns and drops of clients, after which no connections may remain.

use std::collections::BTreeSet;

use mongodb::{
    bson::{Document, doc},
    error::ErrorKind,
    event::{cmap::CmapEvent, sdam::SdamEvent},
    options::DriverInfo,
};
use tokio::time::timeout;

use super::{Set, set::Observed};
use crate::{
    Result, ensure,
    observer::{DEADLINE, Event, Observer},
};

pub async fn shutdown(set: &Set) -> Result<()> {
    ends(set, "check-shutdown", false).await
}

/// Shuts a client down while a cursor is open. A graceful shutdown would wait forever.
pub async fn shutdown_immediate(set: &Set) -> Result<()> {
    ends(set, "check-shutdown-immediate", true).await
}

/// Drops the last handle of a client, without a shutdown.
pub async fn dropped(set: &Set) -> Result<()> {
    let name = "check-drop";
    let Observed { client, observer } = used(set, name).await?;
    let things = client.database("checks").collection::<Document>(name);
    drop(client);
    let found = things.find_one(doc! {}).await?;
    ensure(found.is_some(), || "a document is missing".into())?;
    drop(things);
    until_ended(set, &observer, name).await
}

/// Checks that a shutdown closes all connections, and that later operations fail.
async fn ends(set: &Set, name: &'static str, immediate: bool) -> Result<()> {
    let Observed { client, observer } = used(set, name).await?;
    let other = client.clone();
    let things = client.database("checks").collection::<Document>(name);
    let cursor = if immediate { Some(things.find(doc! {}).batch_size(2).await?) } else { None };
    timeout(DEADLINE, client.shutdown().immediate(immediate))
        .await
        .map_err(|_| "the shutdown does not end")?;
    let database = other.database("admin");
    let refused = database.run_command(doc! { "ping": 1 }).await;
    ensure(matches!(&refused, Err(error) if matches!(*error.kind, ErrorKind::Shutdown)), || {
        format!("a ping after the shutdown: {refused:?}")
    })?;
    drop((cursor, things, database, other));
    until_ended(set, &observer, name).await
}

/// Starts a client with this application name that has written to a collection of the same name.
async fn used(set: &Set, name: &'static str) -> Result<Observed> {
    let observed = set.observed_with(|options| options.app_name = Some(name.to_owned())).await?;
    let things = observed.collection(name).await?;
    things.insert_many((0..10).map(|n| doc! { "_id": n })).await?;
    // Each member has at least one connection, that of the client's monitor.
    set.until_connections("connections", is_of(name), |count| count >= 3).await?;
    Ok(observed)
}

/// Waits for the last events of a client, and until the servers have closed all its connections.
async fn until_ended(set: &Set, observer: &Observer, name: &'static str) -> Result<()> {
    observer
        .until_all("the end of the topology and its pools", |events| {
            let closed = |event: &Event| matches!(event, Event::Sdam(SdamEvent::TopologyClosed(_)));
            let pools = |event: &&Event| matches!(event, Event::Cmap(CmapEvent::PoolClosed(_)));
            events.iter().any(closed)
                && events.iter().filter(pools).count() == 3
                && open_connections(events).is_empty()
        })
        .await?;
    set.until_connections("connections after the end", is_of(name), |count| count == 0).await
}

/// Returns whether client metadata has this application name.
fn is_of(name: &'static str) -> impl Fn(&Document) -> bool + Clone {
    move |metadata| {
        let application = metadata.get_document("application");
        application.is_ok_and(|it| it.get_str("name").is_ok_and(|its| its == name))
    }
}

/// Returns the pooled connections that were created but not closed.
fn open_connections(events: &[Event]) -> BTreeSet<(String, u32)> {
    let mut open = BTreeSet::new();
    for event in events {
        match event {
            Event::Cmap(CmapEvent::ConnectionCreated(event)) => {
                open.insert((event.address.to_string(), event.connection_id));
            }
            Event::Cmap(CmapEvent::ConnectionClosed(event)) => {
                open.remove(&(event.address.to_string(), event.connection_id));
            }
            _ => {}
        }
    }
    open
}

pub async fn appended_metadata(set: &Set) -> Result<()> {
    let name = "check-metadata";
    let observed = set.observed_with(|options| options.app_name = Some(name.to_owned())).await?;
    let info = DriverInfo::builder().name("frame".to_owned()).version("7.8.9".to_owned()).build();
    observed.client.append_metadata(info)?;
    let database = observed.client.database("admin");
    database.run_command(doc! { "ping": 1 }).await?;
    let has_both = move |metadata: &Document| {
        let text = |part, key| metadata.get_document(part).and_then(|it| it.get_str(key));
        text("application", "name").is_ok_and(|its| its == name)
            && text("driver", "name").is_ok_and(|name| name.ends_with("|frame"))
            && text("driver", "version").is_ok_and(|version| version.ends_with("|7.8.9"))
    };
    set.until_connections("connections with the metadata", has_both, |count| count >= 1).await
}
