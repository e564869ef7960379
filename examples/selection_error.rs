//! Shows how a selection error explains the cause to an operator.
//!
//! `cargo run -p sdam-examples --example selection_error [URI]`. Without a connection string, it
//! simulates a replica set that has lost two of its three members and therefore its majority.

use std::{env, error::Error, time::Duration};

use sdam::{
    Criteria, SelectionError, Topology, runtime,
    sim::{Blueprint, Served, action::Target, serve::ServeError},
};

fn main() -> Result<(), Box<dyn Error>> {
    let host = tokio::runtime::Runtime::new()?;
    let error = match env::args().nth(1) {
        Some(uri) => host.block_on(select_primary(&uri))?,
        None => host.block_on(select_primary(without_majority()?.uri()))?,
    };
    let Some(error) = error else {
        println!("the deployment has a primary");
        return Ok(());
    };
    println!("One line, for logs:\n\n{error}\n");
    println!("With all details, for people:\n\n{error:#}\n");
    if let SelectionError::Timeout(timeout) = &error {
        println!("As data, for programs:\n");
        println!("waited: {:?}", timeout.waited);
        for diagnosis in &timeout.diagnoses {
            println!("diagnosis: {diagnosis:?}");
        }
        for (server, failures) in timeout.description.servers().iter().zip(&timeout.failures) {
            let kind = failures.last.as_ref().map(|last| last.error.kind());
            println!("last error of {}: {kind:?}", server.address);
        }
    }
    Ok(())
}

/// Tries to select the primary, and returns the selection error.
async fn select_primary(uri: &str) -> Result<Option<SelectionError>, Box<dyn Error>> {
    let topology = Topology::builder(uri)?
        // Errors include the last 8 changes to servers, and the cause of each change.
        .history(8)
        .start(runtime::tokio()?)?;
    let write = Criteria::write();
    let selected = topology.select_within(&write, Duration::from_secs(1)).await;
    let error = selected.err();
    topology.close().await;
    Ok(error)
}

fn without_majority() -> Result<Served, ServeError> {
    let set = Blueprint::replica_set(3).serve()?;
    set.kill(Target::Primary)?;
    set.kill(Target::Secondary)?;
    Ok(set)
}

#[test]
fn the_error_names_the_problem_and_what_happened_before() -> Result<(), Box<dyn Error>> {
    let set = without_majority()?;
    let host = tokio::runtime::Runtime::new()?;
    let error = host.block_on(select_primary(set.uri()))?;
    let Some(SelectionError::Timeout(timeout)) = error else {
        return Err(format!("{error:?}").into());
    };
    assert_eq!(format!("{timeout}").lines().count(), 1, "{timeout}");
    let details = format!("{timeout:#}");
    for diagnosis in &timeout.diagnoses {
        assert!(details.contains(&diagnosis.to_string()), "{details}");
    }
    let failed = timeout.failures.iter().filter(|it| it.last.is_some());
    assert_eq!(failed.count(), 2, "{details}");
    let last = timeout.diagnoses.last();
    assert!(
        matches!(last, Some(sdam::select::Diagnosis::NoPrimary { reached: 1, .. })),
        "{last:?}"
    );
    assert!(!timeout.history.is_empty(), "{details}");
    Ok(())
}
