//! `cargo xtask foreign rust-driver-on-sdam`: the official Rust driver with our `sdam` in the place
//! of its own.

mod checks;
mod driver;
mod edits;
mod lines;
mod suite;
mod tree;

use self::driver::Variant;
use self::edits::Edited;
use self::tree::Tree;
use super::{sdam, unavailable};
use crate::Result;
use crate::args::Args;

/// The action of the command.
#[derive(Clone, Debug)]
enum Task {
    Check,
    Measure { quick: bool },
    Test(suite::Plan),
}

/// Lays our files over the published driver and does what the arguments say.
pub(super) fn run(mut args: Args) -> Result<()> {
    let quick = args.flag("--quick");
    let task = if args.flag("--tests") {
        Task::Test(suite::Plan::parse(&mut args)?)
    } else if args.flag("--measure") {
        Task::Measure { quick }
    } else {
        Task::Check
    };
    let mut variants = Variant::ALL.to_vec();
    if let Some(only) = args.option("--only")? {
        variants.retain(|variant| variant.name() == only);
    }
    if variants.is_empty() || matches!(task, Task::Measure { .. }) && variants.len() == 1 {
        return Err("--only takes published or overlaid, and both are measured".into());
    }
    args.finish()?;
    let published = match driver::fetch() {
        Ok(published) => published,
        Err(error) => return unavailable("the Rust driver", &*error),
    };
    let mut drivers = Vec::new();
    for variant in variants {
        drivers.push((variant, source(variant, published.clone())?));
    }
    if let Task::Test(plan) = task {
        return suite::run(&plan, drivers);
    }
    for (variant, driver) in &drivers {
        let driver = driver::detached(driver.clone())?;
        driver.write(&variant.folder().join("driver"))?;
    }
    if let Task::Measure { quick } = task {
        return checks::measure(quick);
    }
    for (variant, _) in drivers {
        checks::check(variant)?;
        if variant == Variant::Overlaid {
            checks::simulate(&sdam()?)?;
        }
    }
    Ok(())
}

/// Returns the source of a driver. Of the overlaid one it prints how much it differs.
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
