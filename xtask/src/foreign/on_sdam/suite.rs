//! Runs the driver's own tests with the published and the overlaid driver.

mod deployment;
mod notes;
mod report;
mod results;
mod run;
mod source;

use std::fs;

use self::deployment::{Deployment, Servers};
use self::notes::Notes;
use self::results::{Outcome, Results};
use self::run::TestProgram;
use super::driver::Variant;
use super::tree::Tree;
use crate::Result;
use crate::cargo::root;

/// The page with the tables of results.
const PAGE: &str = "docs/rust-driver-on-sdam-tests.md";

/// The tests to run, and the servers for them.
#[derive(clap::Args)]
pub(super) struct Plan {
    /// Run the tests only on these deployments.
    #[arg(
        long = "deployment",
        requires = "tests",
        value_parser = Deployment::named,
        default_values_t = Deployment::ALL
    )]
    deployments: Vec<Deployment>,
    /// Run only tests whose names contain this text. Other results are kept.
    #[arg(long, requires = "tests", default_value = "")]
    filter: String,
    /// Run nothing, and print the results of earlier runs.
    #[arg(long, requires = "tests")]
    stored: bool,
    /// Write the results to docs/rust-driver-on-sdam-tests.md.
    #[arg(long, requires = "tests")]
    write: bool,
}

/// Builds and runs the tests of the given drivers, and reports the results of all runs so far.
///
/// # Errors
/// If a test passes with the published driver, but not with the overlaid driver.
pub(super) fn run(plan: &Plan, drivers: Vec<(Variant, Tree)>) -> Result<()> {
    let notes = Notes::read()?;
    if !plan.stored {
        let Some(source) = source::find()? else {
            return Ok(());
        };
        for (variant, driver) in drivers {
            let program = source.build(variant, driver)?;
            for deployment in &plan.deployments {
                run_on(*deployment, variant, &program, plan, &notes)?;
            }
        }
    }
    let all = plan.deployments.iter().map(|deployment| {
        let results = |variant| Results::load(variant, *deployment);
        Ok((*deployment, results(Variant::Published)?, results(Variant::Overlaid)?))
    });
    let all = all.collect::<Result<Vec<_>>>()?;
    let page = report::page(&all, &notes);
    if plan.write {
        fs::write(root().join(PAGE), &page)?;
    }
    println!("{page}");
    match all.iter().map(|(_, published, overlaid)| results::lost(published, overlaid)).sum() {
        0 => Ok(()),
        lost => Err(format!("{lost} tests pass in the published driver only").into()),
    }
}

/// Runs the tests on one deployment, and stores the results after each test.
fn run_on(
    deployment: Deployment,
    variant: Variant,
    program: &TestProgram,
    plan: &Plan,
    notes: &Notes,
) -> Result<()> {
    let Some(servers) = Servers::start(deployment)? else {
        return Ok(());
    };
    let mut results = Results::load(variant, deployment)?;
    let tests = program.tests()?;
    results.0.retain(|name, _| tests.contains(name) && notes.left_out(name).is_none());
    let is_run = |name: &&String| name.contains(&plan.filter) && notes.left_out(name).is_none();
    for name in tests.iter().filter(is_run) {
        let result = program.run_repeatedly(name, &servers)?;
        if result.outcome == Outcome::Failed {
            println!("FAILED {name} ({}, {deployment})\n{}", variant.as_str(), result.message);
        }
        results.0.insert(name.clone(), result);
        results.store(variant, deployment)?;
    }
    println!("{} on {deployment}: {}", variant.as_str(), results.total());
    Ok(())
}
