//! `cargo xtask features`: checks the crate `sdam` and the program with each of their features.

use serde_json::Value;

use crate::Result;
use crate::cargo::{CHECKS, cargo, metadata, run as run_command};

/// The crates whose features are checked.
const CRATES: [&str; 2] = ["sdam", "sdam-cli"];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Check every pair of features, too.
    #[arg(long)]
    pairs: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let packages = metadata()?;
    for package in CRATES {
        let features = features_of(&packages, package)?;
        let choices = choices(&features, options.pairs);
        for choice in &choices {
            let mut rustc = cargo();
            rustc.args(["rustc", "--quiet", "--lib", "--profile", "check", "--target-dir", CHECKS]);
            rustc.args(["--package", package, "--no-default-features", "--features"]);
            run_command(rustc.arg(choice.join(",")).args(["--", "--deny", "warnings"]))?;
        }
        let (choices, features) = (choices.len(), features.len());
        println!("{package}: {choices} choices of {features} features");
    }
    Ok(())
}

/// Lists the features of `package`, except `default`, which only combines others.
fn features_of(packages: &[Value], package: &str) -> Result<Vec<String>> {
    let features = packages.iter().find(|one| one["name"] == package);
    let features = features
        .and_then(|package| package["features"].as_object())
        .ok_or_else(|| format!("cargo reports no features of {package}"))?;
    let names = features.keys().filter(|name| *name != "default");
    let mut names: Vec<_> = names.cloned().collect();
    // The order of the JSON keys depends on serde_json features that other crates enable.
    names.sort();
    Ok(names)
}

/// Lists the sets of features to check: no feature, each single feature, each pair if `with_pairs`,
/// and all features. The list contains no duplicates.
fn choices(features: &[String], with_pairs: bool) -> Vec<Vec<&str>> {
    let all: Vec<&str> = features.iter().map(String::as_str).collect();
    let mut choices = vec![Vec::new()];
    choices.extend(all.iter().map(|&one| vec![one]));
    for (index, &first) in all.iter().enumerate().filter(|_| with_pairs) {
        choices.extend(all.iter().skip(index + 1).map(|&second| vec![first, second]));
    }
    if !choices.contains(&all) {
        choices.push(all);
    }
    choices
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{choices, features_of};

    #[test]
    fn every_choice_is_made_once_and_all_features_are_one() {
        let check = |features: &[&str], with_pairs, expected: &[&str]| {
            let features: Vec<_> = features.iter().map(|&name| name.to_owned()).collect();
            let chosen = choices(&features, with_pairs);
            let chosen: Vec<_> = chosen.iter().map(|one| one.join("+")).collect();
            assert_eq!(chosen, expected);
        };
        for with_pairs in [false, true] {
            check(&[], with_pairs, &[""]);
            check(&["a"], with_pairs, &["", "a"]);
            check(&["a", "b"], with_pairs, &["", "a", "b", "a+b"]);
        }
        check(&["a", "b", "c"], false, &["", "a", "b", "c", "a+b+c"]);
        check(&["a", "b", "c"], true, &["", "a", "b", "c", "a+b", "a+c", "b+c", "a+b+c"]);
    }

    #[test]
    fn features_are_those_of_the_package_but_not_the_default() {
        let packages = [
            json!({ "name": "other", "features": { "x": [] } }),
            json!({ "name": "sdam", "features": { "default": ["b"], "b": [], "a": [] } }),
        ];
        assert_eq!(features_of(&packages, "sdam").unwrap(), ["a", "b"]);
        assert!(features_of(&packages, "none").is_err());
    }
}
