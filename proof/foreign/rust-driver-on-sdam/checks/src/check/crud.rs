//! Checks each kind of operation.

use futures_util::TryStreamExt;
use mongodb::{
    IndexModel,
    bson::{Document, doc},
    options::ReturnDocument,
};

use super::Set;
use crate::{Result, ensure};

pub async fn all_operations(set: &Set) -> Result<()> {
    let observed = set.observed().await?;
    let things = observed.collection("crud").await?;
    things.insert_many((0..10).map(|n| doc! { "_id": n, "even": n % 2 == 0 })).await?;
    things.insert_one(doc! { "_id": 10, "even": true }).await?;
    let number = things.count_documents(doc! { "even": true }).await?;
    ensure(number == 6, || format!("{number} documents are even"))?;

    let updated =
        things.update_many(doc! { "even": false }, doc! { "$set": { "odd": true } }).await?;
    ensure(updated.modified_count == 5, || format!("{updated:?}"))?;
    let replaced = things
        .find_one_and_replace(doc! { "_id": 1 }, doc! { "replaced": 1 })
        .return_document(ReturnDocument::After)
        .await?;
    ensure(replaced == Some(doc! { "_id": 1, "replaced": 1 }), || format!("{replaced:?}"))?;
    let deleted = things.delete_one(doc! { "_id": 0 }).await?;
    ensure(deleted.deleted_count == 1, || format!("{deleted:?}"))?;

    // There is more than one batch, so the cursor sends a getMore to the server that created it.
    let sorted = things.find(doc! {}).sort(doc! { "_id": 1 }).batch_size(3);
    let found: Vec<Document> = sorted.await?.try_collect().await?;
    let ids: Vec<_> = found.iter().flat_map(|found| found.get_i32("_id")).collect();
    ensure(ids == (1..=10).collect::<Vec<_>>(), || format!("{ids:?}"))?;

    let sum = doc! { "$group": { "_id": null, "sum": { "$sum": "$_id" } } };
    let sums: Vec<Document> = things.aggregate([sum]).await?.try_collect().await?;
    ensure(sums == [doc! { "_id": null, "sum": 55 }], || format!("{sums:?}"))?;
    let index = IndexModel::builder().keys(doc! { "even": 1 }).build();
    things.create_index(index).await?;
    let indexes = things.list_index_names().await?;
    ensure(indexes == ["_id_", "even_1"], || format!("{indexes:?}"))?;
    let distinct = things.distinct("odd", doc! {}).await?;
    ensure(distinct == [true.into()], || format!("{distinct:?}"))?;
    things.drop().await?;
    let database = observed.client.database("checks");
    let names = database.list_collection_names().await?;
    ensure(!names.contains(&"crud".to_owned()), || format!("{names:?}"))
}
