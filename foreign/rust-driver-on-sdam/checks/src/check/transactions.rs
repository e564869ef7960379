//! Transactions, and what others see of them.

use mongodb::{ClientSession, Collection, bson::Document, bson::doc};

use super::{Set, set::Observed};
use crate::{Result, ensure};

pub async fn committed(set: &Set) -> Result<()> {
    let observed = set.observed().await?;
    let (things, mut session) = started(&observed, "committed").await?;
    session.commit_transaction().await?;
    let number = things.count_documents(doc! {}).await?;
    ensure(number == 2, || {
        format!("{number} documents after the commit")
    })
}

pub async fn aborted(set: &Set) -> Result<()> {
    let observed = set.observed().await?;
    let (things, mut session) = started(&observed, "aborted").await?;
    session.abort_transaction().await?;
    let number = things.count_documents(doc! {}).await?;
    ensure(number == 0, || {
        format!("{number} documents after the abort")
    })
}

/// Inserts two documents in a transaction, which only the transaction sees.
async fn started(observed: &Observed, name: &str) -> Result<(Collection<Document>, ClientSession)> {
    let things = observed.collection(name).await?;
    let mut session = observed.client.start_session().await?;
    session.start_transaction().await?;
    for id in [1, 2] {
        let insert = things.insert_one(doc! { "_id": id });
        insert.session(&mut session).await?;
    }
    let inside = things
        .count_documents(doc! {})
        .session(&mut session)
        .await?;
    let outside = things.count_documents(doc! {}).await?;
    ensure((inside, outside) == (2, 0), || {
        format!("{inside} documents inside the transaction, {outside} outside")
    })?;
    Ok((things, session))
}
