//! The kinds and messages of errors.

use std::{io, time::Duration};

use mongodb::{
    Client,
    bson::doc,
    error::ErrorKind,
    event::sdam::SdamEvent,
    options::{ClientOptions, ReadPreference, ReadPreferenceOptions},
};
use tokio::net::TcpListener;

use super::Set;
use crate::{
    Result, ensure,
    observer::{Event, Observer},
};

pub async fn selection_timeout(_: &Set) -> Result<()> {
    // The listener is dropped at once, so no server listens on this port.
    let port = TcpListener::bind("127.0.0.1:0").await?.local_addr()?.port();
    let uri = format!("mongodb://127.0.0.1:{port}/?serverSelectionTimeoutMS=700");
    let mut options = ClientOptions::parse(uri).await?;
    options.heartbeat_freq = Some(Duration::from_millis(500));
    let observer = Observer::attach(&mut options);
    let client = Client::with_options(options)?;
    let database = client.database("admin");
    let Err(error) = database.run_command(doc! { "ping": 1 }).await else {
        return Err("a ping without a server succeeded".into());
    };
    let ErrorKind::ServerSelection { message, .. } = &*error.kind else {
        return Err(format!("another kind of error: {error:?}").into());
    };
    let start = "Server selection timeout: No available servers. Topology: ";
    let address = format!("127.0.0.1:{port}");
    ensure(
        message.starts_with(start)
            && message.contains(&address)
            && message.contains("Connection refused"),
        || message.clone(),
    )?;
    observer
        .until_all("a description with a refused connection", |events| {
            events.iter().any(|event| is_refused(event, &address))
        })
        .await
}

fn is_refused(event: &Event, address: &str) -> bool {
    let Event::Sdam(SdamEvent::ServerDescriptionChanged(changed)) = event else {
        return false;
    };
    let error = changed.new_description.error();
    let is_io = error.is_some_and(|error| {
        matches!(&*error.kind, ErrorKind::Io(error)
            if error.kind() == io::ErrorKind::ConnectionRefused)
    });
    is_io && changed.address.to_string() == address
}

pub async fn refused_criteria(set: &Set) -> Result<()> {
    let observed = set.observed().await?;
    let options = ReadPreferenceOptions::builder().max_staleness(Duration::from_secs(120)).build();
    let preference =
        |options: ReadPreferenceOptions| ReadPreference::Secondary { options: Some(options) };
    let ping = |preference: ReadPreference| {
        let database = observed.client.database("admin");
        async move {
            let ping = database.run_command(doc! { "ping": 1 });
            ping.selection_criteria(preference.into()).await
        }
    };
    ping(preference(options.clone())).await?;
    let mut short = options;
    short.max_staleness = Some(Duration::from_secs(10));
    let refused = ping(preference(short)).await;
    ensure(
        matches!(&refused, Err(error) if matches!(*error.kind, ErrorKind::InvalidArgument { .. })),
        || format!("a max staleness of 10 s: {refused:?}"),
    )
}
