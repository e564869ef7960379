//! Runs single-threaded mode without async code: servers are checked only during calls to the
//! topology.
//!
//! `cargo run -p sdam-examples --example blocking [URI]`. Without a connection string, it simulates
//! a replica set whose primary steps down between two commands.

use std::{env, error::Error, io::stdin, time::Duration};

use sdam::{BlockingTopology, Criteria, ServerAddress, sim::Blueprint};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let outcomes = if let Some(uri) = env::args().nth(1) {
        run(&uri, || {
            println!("let the primary step down, then press Enter");
            stdin().read_line(&mut String::new())?;
            Ok(())
        })?
    } else {
        let set = Blueprint::replica_set(3).serve()?;
        run(set.uri(), || Ok(set.step_down()?))?
    };
    for outcome in outcomes {
        match outcome {
            Ok(primary) => println!("{primary} has inserted the document"),
            Err(error) => println!("an insert has failed: {error:#}"),
        }
    }
    Ok(())
}

/// Inserts one document before `step_down`, one right after it, and one some time later. Returns
/// the three outcomes.
fn run(uri: &str, step_down: impl Fn() -> Result<()>) -> Result<[Result<ServerAddress>; 3]> {
    // This opens no connection yet. By default, a selection fails after one scan; with this option,
    // it keeps scanning until `serverSelectionTimeoutMS` has passed.
    let mut topology = BlockingTopology::builder(uri)?
        .options(|options| options.server_selection_try_once = Some(false))
        .blocking()?;
    let before = insert(&mut topology);
    step_down()?;
    // The topology checks no server between calls, so this call still selects the old primary,
    // which refuses the command.
    let refused = insert(&mut topology);
    // The topology has also processed that error reply, so the next selection scans until it finds
    // a primary.
    let after = insert(&mut topology);
    topology.close();
    Ok([before, refused, after])
}

/// Inserts a document on the primary, using the connection that also serves checks. Returns the
/// primary's address.
fn insert(topology: &mut BlockingTopology) -> Result<ServerAddress> {
    let primary = topology.select(&Criteria::write())?;
    let command =
        bson::rawdoc! { "insert": "words", "documents": [{ "word": "hello" }], "$db": "sdam" };
    let timeout = Some(Duration::from_secs(5));
    let reply = topology.run_command(primary.id(), command.as_bytes(), timeout)?;
    if let Some(error) = reply.write_errors().first() {
        return Err(error.message.to_string().into());
    }
    Ok(primary.address().clone())
}

#[test]
fn the_insert_after_the_refused_one_uses_the_new_primary() -> Result<()> {
    let set = Blueprint::replica_set(3).serve()?;
    let [before, refused, after] = run(set.uri(), || Ok(set.step_down()?))?;
    assert_ne!(before?, after?);
    assert_eq!(
        refused.err().ok_or("not refused")?.to_string(),
        "command error at operation (10107 NotWritablePrimary): not primary"
    );
    Ok(())
}
