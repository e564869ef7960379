//! The unified test format, and the code that runs its files.
//!
//! Files run on complete deployments. A [`TestDeployment`](crate::host::TestDeployment) consists of
//! a deployment, a runtime that can reach it, and an executor. The [coverage](crate::run::Coverage)
//! determines in which of the suitable [`Environment`]s a test runs. If no environment is suitable,
//! the test fails, unless the environments are real servers.

mod bulk;
mod client;
mod event;
mod excluded;
mod format;
mod helper;
mod log;
mod matching;
mod operation;
mod runner;
mod stand_in;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bson::Document;
use sdam_core::options::Options;
use serde_json::Value;

pub use self::excluded::excluded;
use self::{
    client::{Driver, Published, Request},
    format::{CollectionData, File, Test},
    runner::Runner,
};
use crate::{
    fields::has_short_limit,
    host::Target,
    requirement::Environment,
    run::{Offer, Run},
};

/// Returns the runs of all tests in a file, except the [excluded] tests, in suitable environments.
/// Each run needs a new deployment.
///
/// # Errors
///
/// If the file has unsupported content, or if no environment is suitable for a test. An offer of
/// [real servers](crate::run::Coverage::Real) need not contain a suitable environment.
pub fn runs(offer: &Offer, file: &Value) -> Result<Vec<Run>, String> {
    let mut json = file.clone();
    if excluded::remove(&mut json) {
        return Ok(Vec::new());
    }
    let file = Arc::new(File::read(&json)?);
    let mut runs = Vec::new();
    for (index, test) in file.tests.iter().enumerate() {
        let describe = |error| format!("{}: {error}", test.description);
        let has_short_limit =
            [&json["createEntities"], &json["tests"][index]].into_iter().any(has_short_limit);
        let admits = |environment: &Environment| file.admits(test, environment);
        for environment in offer.choose(index, has_short_limit, admits).map_err(describe)? {
            let file = Arc::clone(&file);
            runs.push(Run::new(environment, move |deployment| {
                let test = &file.tests[index];
                let outcome = deployment.block_on(run_test(deployment.target(), &file, test));
                let outcome = outcome.unwrap_or_else(|| Err("the host has not run it".to_owned()));
                outcome.map_err(|error| format!("{}: {error}", test.description))
            }));
        }
    }
    if runs.is_empty() && !offer.is_partial() {
        return Err("the file has no test to run".to_owned());
    }
    Ok(runs)
}

/// Returns whether the verdict on a file depends on code of the tests that replaces parts of a
/// driver: cursors, explicit sessions, transactions, and the read and write concerns of databases
/// and collections.
pub fn stands_in(file: &Value) -> bool {
    let mut file = file.clone();
    if excluded::remove(&mut file) {
        return false;
    }
    let tests = file["tests"].as_array().into_iter().flatten();
    let operations = tests.map(|test| &test["operations"]);
    operations.chain([&file["createEntities"]]).any(stand_in::stands_in)
}

async fn run_test(target: &Target, file: &File, test: &Test) -> Result<(), String> {
    set_up(target, &file.initial_data).await?;
    let mut runner = Runner::new(target);
    runner.create(&file.create_entities).await?;
    let outcome = async {
        for operation in &test.operations {
            runner.run(operation).await?;
        }
        Ok(())
    };
    let outcome: Result<(), String> = outcome.await;
    // Close the clients even if a result differed, so that they do not affect the next test.
    let published = runner.end().await;
    outcome?;
    let find = |client: &String| -> Result<&Published, String> {
        let published = published.get(client);
        published.ok_or_else(|| format!("there is no client {client}"))
    };
    for expected in &test.expect_events {
        expected.compare(&find(&expected.client)?.events)?;
    }
    for expected in &test.expect_log_messages {
        expected.compare(&find(&expected.client)?.messages)?;
    }
    verify(target, file.uses_several_mongoses(test), &test.outcome).await
}

/// Sets a fail point, or turns it off.
pub(crate) async fn set_fail_point(target: &Target, command: Document) -> Result<(), String> {
    internally(target, true, vec![("admin", command)], |_, _| Ok(())).await
}

/// Writes the initial contents of the collections.
async fn set_up(target: &Target, data: &[CollectionData]) -> Result<(), String> {
    let commands = data.iter().flat_map(|collection| {
        let commands = collection.setup().into_iter();
        commands.map(|command| (&*collection.database_name, command))
    });
    let commands: Vec<_> = commands.collect();
    if target.single_uri.is_some() {
        internally(target, false, commands.clone(), |_, _| Ok(())).await?;
    }
    internally(target, true, commands, |_, _| Ok(())).await
}

/// Compares the contents of the collections with the expected ones. Connects like a client that
/// uses several mongoses if `several_mongoses` is true, and otherwise like a client that uses a
/// single mongos.
async fn verify(
    target: &Target,
    several_mongoses: bool,
    data: &[CollectionData],
) -> Result<(), String> {
    let commands = data.iter().map(|collection| (&*collection.database_name, collection.query()));
    internally(target, several_mongoses, commands.collect(), |index, reply| {
        data[index].compare(reply)
    })
    .await
}

/// Runs commands with the test runner's own client, and checks each reply.
async fn internally(
    target: &Target,
    multiple_mongoses: bool,
    commands: Vec<(&str, Document)>,
    check: impl Fn(usize, &Document) -> Result<(), String>,
) -> Result<(), String> {
    if commands.is_empty() {
        return Ok(());
    }
    let options =
        Options::parse(target.uri(multiple_mongoses)).map_err(|error| error.to_string())?;
    let driver = Driver::start(options, target.runtime(), None)?;
    let outcome = async {
        for (index, (database, body)) in commands.into_iter().enumerate() {
            match driver.run(&Request::generic(database, body)).await {
                // The error means that a collection to be dropped does not exist, which is not a
                // failure.
                Err(failure) if failure.error.code() == Some(26) => {}
                Err(failure) => return Err(failure.to_string()),
                Ok(reply) => check(index, &reply)?,
            }
        }
        Ok(())
    };
    let outcome = outcome.await;
    driver.close().await;
    outcome
}
