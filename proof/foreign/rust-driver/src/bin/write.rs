//! Inserts repeatedly with the official Rust driver at the given connection string.
//!
//! Prints a line for the first insert and each one that took half a second or longer ("ok SECONDS"
//! or "failed SECONDS"), and one for each cleared pool ("cleared").

use std::{
    error::Error,
    time::{Duration, Instant},
};

use mongodb::{
    Client,
    bson::doc,
    event::{EventHandler, cmap::CmapEvent},
    options::ClientOptions,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let uri = std::env::args().nth(1).ok_or("the connection string is missing")?;
    let mut options = ClientOptions::parse(uri).await?;
    options.cmap_event_handler = Some(EventHandler::callback(|event| {
        if let CmapEvent::PoolCleared(_) = event {
            println!("cleared");
        }
    }));
    let collection = Client::with_options(options)?.database("test").collection("silence");
    let mut is_first = true;
    loop {
        let began = Instant::now();
        let inserted = collection.insert_one(doc! { "a": 1 }).await;
        if let Err(error) = &inserted {
            eprintln!("{error}");
        }
        let took = began.elapsed();
        if std::mem::take(&mut is_first) || took >= Duration::from_millis(500) {
            let outcome = if inserted.is_ok() { "ok" } else { "failed" };
            println!("{outcome} {}", took.as_secs_f64());
        }
    }
}
