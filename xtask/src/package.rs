//! `cargo xtask package`: whether every published crate can be published.

use crate::Result;
use crate::args::Args;
use crate::cargo::{cargo, output, run as run_command};

pub(crate) const USAGE: &str = "\
package every published crate, as for crates.io

usage: cargo xtask package [--verify]

  --verify  also build each crate from its package, against the packages of the others

Fails for a crate that crates.io would refuse, and for one without the fields that its page shows: a
description, a readme, keywords, categories, a licence and the documentation's address.
Nothing is uploaded. The packages are left in target/package.";

/// The fields that the page of a crate shows.
const REQUIRED_FIELDS: &[&str] = &[
    "categories",
    "description",
    "documentation",
    "keywords",
    "license",
    "readme",
];

pub(crate) fn run(mut args: Args) -> Result<()> {
    let verify = args.flag("--verify");
    args.finish()?;
    let metadata = output(cargo().args(["metadata", "--no-deps", "--format-version", "1"]))?;
    let metadata = serde_json::from_str(&metadata)?;
    let (names, missing) = published(&metadata);
    if !missing.is_empty() {
        return Err(missing.join("\n       ").into());
    }
    let mut command = cargo();
    command.args(["package", "--quiet", "--allow-dirty", "--locked"]);
    if !verify {
        command.arg("--no-verify");
    }
    for name in &names {
        command.args(["--package", name]);
    }
    run_command(&mut command)?;
    println!("packaged {}", names.join(", "));
    Ok(())
}

/// Returns the names of all published crates, and the missing fields of their pages.
fn published(metadata: &serde_json::Value) -> (Vec<&str>, Vec<String>) {
    let mut names = Vec::new();
    let mut missing = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        // `publish = false` is an empty list of registries.
        if package["publish"].as_array().is_some_and(Vec::is_empty) {
            continue;
        }
        let name = package["name"].as_str().unwrap_or_default();
        names.push(name);
        for field in REQUIRED_FIELDS {
            let value = &package[*field];
            if value.is_null() || value.as_array().is_some_and(Vec::is_empty) {
                missing.push(format!("{name}/Cargo.toml has no `{field}`"));
            }
        }
    }
    (names, missing)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_published_crates_need_the_fields_of_their_page() {
        let whole = json!({
            "name": "whole", "publish": null, "categories": ["database"], "description": "d",
            "documentation": "https://docs.rs/whole", "keywords": ["k"], "license": "MIT",
            "readme": "README.md",
        });
        let mut bare = whole.clone();
        bare["name"] = "bare".into();
        bare["keywords"] = json!([]);
        bare["readme"] = json!(null);
        let own = json!({ "name": "own", "publish": [] });
        let metadata = json!({ "packages": [whole, bare, own] });
        let (names, missing) = published(&metadata);
        assert_eq!(names, ["whole", "bare"]);
        assert_eq!(
            missing,
            [
                "bare/Cargo.toml has no `keywords`",
                "bare/Cargo.toml has no `readme`"
            ]
        );
    }
}
