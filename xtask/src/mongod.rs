//! `cargo xtask mongod`: finds or fetches a real server for the live tests.

use sdam_live::Version;

use crate::Result;

pub(crate) fn run(version: Option<Version>) -> Result<()> {
    let path = sdam_live::mongod_path(version)?;
    println!("{}", path.display());
    Ok(())
}
