//! `cargo xtask foreign rust-driver-on-sdam`: the official Rust driver with our `sdam` in the place
//! of its own.

mod checks;
mod driver;
mod edits;
mod lines;
mod tree;

use self::driver::Variant;
use self::edits::Edited;
use self::tree::Tree;
use super::unavailable;
use crate::Result;
use crate::args::Args;

/// What the command does with the drivers.
#[derive(Clone, Copy, Debug)]
enum Task {
    Check,
    Measure { quick: bool },
}

/// Lays our files over the published driver and does what the arguments say.
pub(super) fn run(mut args: Args) -> Result<()> {
    let quick = args.flag("--quick");
    let task = if args.flag("--measure") {
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
    for variant in &variants {
        lay_out(*variant, &published)?;
    }
    match task {
        Task::Check => variants.into_iter().try_for_each(checks::check),
        Task::Measure { quick } => checks::measure(quick),
    }
}

/// Writes a driver to its folder. Of the overlaid one it prints how much it differs.
fn lay_out(variant: Variant, published: &Tree) -> Result<()> {
    let driver = match variant {
        Variant::Published => published.clone(),
        Variant::Overlaid => {
            let overlaid = driver::overlaid(published)?;
            println!("sdam module of the driver: {} removed", overlaid.removed);
            println!("overlay:                   {} added", overlaid.added);
            let Edited { removed, added } = overlaid.edited;
            println!("other files of the driver: {removed} lines removed, {added} added");
            overlaid.driver
        }
    };
    driver::detached(driver)?.write(&variant.folder().join("driver"))
}
