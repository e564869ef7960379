//! Inserts and reads through a client with connection pools, even while the primary changes.
//!
//! `cargo run -p sdam-examples --example pooled_client [URI]`. Without a connection string, it
//! simulates a replica set whose primary steps down and whose next primary is killed.

use std::{env, error::Error};

use bson::rawdoc;
use sdam::{
    client::{Client, Command},
    runtime,
    sim::{Blueprint, Served, action::Target},
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Inserts `count` documents and reads each of them back, calling `disturb` before each insert.
/// Returns the number of documents in the collection.
async fn run(uri: &str, count: i32, disturb: impl Fn(i32) -> Result<()>) -> Result<i32> {
    let client = Client::start(uri, runtime::tokio()?)?;
    for number in 0..count {
        disturb(number)?;
        let insert = rawdoc! {
            "insert": "numbers",
            "documents": [{ "_id": number }],
            "writeConcern": { "w": "majority" },
        };
        client.run(&Command::write("example", insert.as_bytes())).await?;
        let find = rawdoc! { "find": "numbers", "filter": { "_id": number } };
        client.run(&Command::read("example", find.as_bytes())).await?;
    }
    let reply = rawdoc! { "count": "numbers" };
    let reply = client.run(&Command::read("example", reply.as_bytes())).await?;
    let found = bson::RawDocument::from_bytes(reply.body())?.get_i32("n")?;
    client.close().await;
    Ok(found)
}

/// Makes the primary step down before the insert of document 30, and kills its successor before
/// that of document 60.
fn disturb(set: &Served, number: i32) -> Result<()> {
    match number {
        30 => set.step_down()?,
        60 => set.kill(Target::Primary)?,
        _ => {}
    }
    Ok(())
}

fn main() -> Result<()> {
    let host = tokio::runtime::Runtime::new()?;
    let found = if let Some(uri) = env::args().nth(1) {
        host.block_on(run(&uri, 10_000, |_| Ok(())))?
    } else {
        let set = Blueprint::replica_set(3).serve()?;
        host.block_on(run(set.uri(), 100, |number| disturb(&set, number)))?
    };
    println!("the collection has {found} documents");
    Ok(())
}

#[test]
fn no_operation_fails_through_a_step_down_and_the_loss_of_a_primary() -> Result<()> {
    let set = Blueprint::replica_set(3).serve()?;
    let host = tokio::runtime::Runtime::new()?;
    let found = host.block_on(run(set.uri(), 100, |number| disturb(&set, number)))?;
    assert_eq!(found, 100);
    Ok(())
}
