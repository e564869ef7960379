//! A change stream that resumes on another primary.

use futures_util::StreamExt;
use mongodb::bson::doc;
use tokio::time::timeout;

use super::Set;
use crate::{Result, ensure, observer::DEADLINE};

/// The number of documents inserted before the step-down, and the number inserted after it.
const HALF: i32 = 5;

pub async fn through_a_step_down(set: &Set) -> Result<()> {
    let observed = set.observed().await?;
    let things = observed.collection("watched").await?;
    let mut changes = things.watch().await?;
    let old = observed.observer.primary()?;
    for half in [0..HALF, HALF..2 * HALF] {
        for id in half.clone() {
            things.insert_one(doc! { "_id": id }).await?;
        }
        for id in half.clone() {
            let change = timeout(DEADLINE, changes.next())
                .await
                .map_err(|_| format!("no change for document {id}"))?
                .ok_or("the change stream has ended")??;
            let key = change.document_key.unwrap_or_default();
            ensure(key.get_i32("_id").ok() == Some(id), || {
                format!("{key} where document {id} was expected")
            })?;
        }
        if half.start == 0 {
            set.step_down().await?;
            observed.observer.until_other_primary(&old).await?;
        }
    }
    set.heal().await
}
