//! Transactions and their isolation.

use mongodb::{
    ClientSession, Collection,
    bson::{Document, doc},
    error::Error,
};

use super::{Set, set::Observed};
use crate::{Result, ensure};

pub async fn committed(set: &Set) -> Result<()> {
    let observed = set.observed().await?;
    let (things, mut session) = started(&observed, "committed").await?;
    session.commit_transaction().await?;
    let number = things.count_documents(doc! {}).await?;
    ensure(number == 2, || format!("{number} documents after the commit"))
}

pub async fn aborted(set: &Set) -> Result<()> {
    let observed = set.observed().await?;
    let (things, mut session) = started(&observed, "aborted").await?;
    session.abort_transaction().await?;
    let number = things.count_documents(doc! {}).await?;
    ensure(number == 0, || format!("{number} documents after the abort"))
}

/// Checks that a transaction is retried when the primary steps down in the middle of it.
pub async fn retried(set: &Set) -> Result<()> {
    let observed = set.observed().await?;
    let things = observed.collection("retried").await?;
    let mut session = observed.client.start_session().await?;
    let mut attempts = 0;
    let (things, first) = (&things, &mut attempts);
    session
        .start_transaction()
        .and_run2(async |session| {
            *first += 1;
            let insert = things.insert_one(doc! { "_id": 1 });
            insert.session(&mut *session).await?;
            if *first == 1 {
                set.step_down().await.map_err(Error::custom)?;
            }
            let insert = things.insert_one(doc! { "_id": 2 });
            insert.session(session).await.map(drop)
        })
        .await?;
    let number = things.count_documents(doc! {}).await?;
    ensure(number == 2 && attempts > 1, || {
        format!("{number} documents after {attempts} attempts")
    })?;
    set.heal().await
}

/// Inserts two documents in a transaction; only the transaction sees them.
async fn started(observed: &Observed, name: &str) -> Result<(Collection<Document>, ClientSession)> {
    let things = observed.collection(name).await?;
    let mut session = observed.client.start_session().await?;
    session.start_transaction().await?;
    for id in [1, 2] {
        let insert = things.insert_one(doc! { "_id": id });
        insert.session(&mut session).await?;
    }
    let inside = things.count_documents(doc! {}).session(&mut session).await?;
    let outside = things.count_documents(doc! {}).await?;
    ensure((inside, outside) == (2, 0), || {
        format!("{inside} documents inside the transaction, {outside} outside")
    })?;
    Ok((things, session))
}
