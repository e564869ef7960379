//! `cargo xtask foreign rust-driver-on-sdam`: tests the official Rust driver with our `sdam` in
//! place of its own `sdam` module.

mod checks;
mod driver;
mod edits;
mod lines;
mod paths;
mod suite;
mod tree;

use std::path::PathBuf;

use self::driver::Variant;
use self::edits::Edited;
use self::tree::Tree;
use super::{sdam, unavailable};
use crate::Result;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Build and check only this variant.
    #[arg(long, conflicts_with = "measure")]
    only: Option<Variant>,
    /// Measure both variants alternately.
    #[arg(long)]
    measure: bool,
    /// Measure in fewer rounds.
    #[arg(long, requires = "measure")]
    quick: bool,
    /// Run the driver's own tests, on every deployment for which servers can be fetched.
    ///
    /// The driver's repository is the checkout named by `SDAM_RUST_DRIVER`, or else it is cloned.
    /// Results are kept; a later run replaces only the results of the tests that it runs.
    #[arg(long, conflicts_with = "measure")]
    tests: bool,
    #[command(flatten)]
    plan: suite::Plan,
}

/// Builds a program that replays tests of the topology machine on the published driver. Returns the
/// version of the driver and the executable, or `None` if the driver cannot be fetched.
pub(super) fn replayer() -> Result<Option<(&'static str, PathBuf)>> {
    match driver::fetch() {
        Ok(published) => Ok(Some((driver::VERSION, paths::build(published)?))),
        Err(error) => unavailable("the Rust driver", &*error).map(|()| None),
    }
}

/// Overlays our files on the published driver, and performs the requested steps.
pub(super) fn run(options: &Options) -> Result<()> {
    let mut variants = Variant::ALL.to_vec();
    variants.retain(|variant| options.only.is_none_or(|only| only == *variant));
    let published = match driver::fetch() {
        Ok(published) => published,
        Err(error) => return unavailable("the Rust driver", &*error),
    };
    let mut drivers = Vec::new();
    for variant in variants {
        drivers.push((variant, source(variant, published.clone())?));
    }
    if options.tests {
        return suite::run(&options.plan, drivers);
    }
    for (variant, driver) in &drivers {
        let driver = driver::detached(driver.clone())?;
        driver.write(&variant.folder().join("driver"))?;
    }
    if options.measure {
        return checks::measure(options.quick);
    }
    for (variant, _) in drivers {
        checks::check(variant)?;
        if variant == Variant::Overlaid {
            checks::simulate(&sdam()?)?;
        }
    }
    Ok(())
}

/// Returns the source of a driver. If it is the overlaid driver, also prints how much it differs
/// from the published one.
fn source(variant: Variant, published: Tree) -> Result<Tree> {
    if variant == Variant::Published {
        return Ok(published);
    }
    let overlaid = driver::overlaid(&published)?;
    println!("sdam module of the driver: {} removed", overlaid.removed);
    println!("overlay:                   {} added", overlaid.added);
    let Edited { removed, added } = overlaid.edited;
    println!("other files of the driver: {removed} lines removed, {added} added");
    Ok(overlaid.driver)
}
