//! Checks which server receives each operation.

use std::sync::Arc;

use mongodb::{
    bson::doc,
    error::ErrorKind,
    event::command::CommandEvent,
    options::{ReadPreference, ReadPreferenceOptions, SelectionCriteria, ServerAddress, TagSet},
};

use super::{Set, set::Observed};
use crate::{Result, ensure, observer::Event};

pub async fn by_predicate(set: &Set) -> Result<()> {
    let observed = set.observed().await?;
    for wanted in set.options().await?.hosts {
        let address = wanted.clone();
        let criteria =
            SelectionCriteria::Predicate(Arc::new(move |server| *server.address() == address));
        for _ in 0..5 {
            let used = used(&observed, criteria.clone()).await?;
            ensure(used == wanted, || format!("{used} instead of {wanted}"))?;
        }
    }
    Ok(())
}

pub async fn by_tags(set: &Set) -> Result<()> {
    let observed = set
        .observed_with(|options| {
            options.server_selection_timeout = Some(std::time::Duration::from_millis(700));
        })
        .await?;
    for (number, wanted) in set.options().await?.hosts.into_iter().enumerate() {
        let nearest =
            ReadPreference::Nearest { options: Some(tagged("member", &number.to_string())) };
        let used = used(&observed, nearest.into()).await?;
        ensure(used == wanted, || format!("{used} instead of {wanted}"))?;
    }
    let secondary = ReadPreference::Secondary { options: None };
    let primary = observed.observer.primary()?;
    let first = used(&observed, secondary.into()).await?;
    ensure(first != primary, || format!("{first} is the primary"))?;
    let missing = ReadPreference::Nearest { options: Some(tagged("member", "9")) };
    let Err(error) = used(&observed, missing.into()).await else {
        return Err("a server without the tag was selected".into());
    };
    let error = error
        .downcast::<mongodb::error::Error>()
        .map_err(|error| format!("not an error of the driver: {error}"))?;
    let suitable = "Server selection timeout: None of the available servers suitable for criteria";
    ensure(
        matches!(&*error.kind, ErrorKind::ServerSelection { message, .. }
            if message.starts_with(suitable)),
        || format!("{error:?}"),
    )
}

fn tagged(name: &str, value: &str) -> ReadPreferenceOptions {
    let tags = TagSet::from([(name.to_owned(), value.to_owned())]);
    ReadPreferenceOptions::builder().tag_sets(vec![tags]).build()
}

/// Sends a `ping` and returns the server that received it.
async fn used(observed: &Observed, criteria: SelectionCriteria) -> Result<ServerAddress> {
    let before = observed.observer.count();
    let database = observed.client.database("admin");
    database.run_command(doc! { "ping": 1 }).selection_criteria(criteria).await?;
    let events = observed.observer.events().split_off(before);
    let used = events.into_iter().find_map(|event| match event {
        Event::Command(CommandEvent::Started(event)) if event.command_name == "ping" => {
            Some(event.connection.address)
        }
        _ => None,
    });
    used.ok_or_else(|| "no event of the ping".into())
}
