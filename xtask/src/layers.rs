//! `cargo xtask layers`: checks the dependencies between crates.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::Value;

use crate::Result;
use crate::cargo::{cargo, output, relative, root, rust_files};

/// The published crates, each with the crates of the workspace and the runtimes on which it may
/// depend.
const ARROWS: &[(&str, &[&str])] = &[
    ("sdam-core", &[]),
    ("sdam-select", &["sdam-core"]),
    ("sdam-events", &["sdam-core"]),
    ("sdam-transport", &["sdam-core"]),
    ("sdam-pool", &["sdam-core", "sdam-transport"]),
    ("sdam-auth", &["sdam-core", "sdam-transport"]),
    ("sdam-dns", &["sdam-core", "sdam-transport", "tokio"]),
    ("sdam-tls", &["sdam-core", "sdam-transport"]),
    ("sdam-runtime-tokio", &["sdam-core", "sdam-transport", "tokio"]),
    ("sdam-runtime-smol", &["sdam-core", "sdam-transport", "smol"]),
    ("sdam-runtime-async-std", &["sdam-core", "sdam-transport", "async-std"]),
    ("sdam-runtime-blocking", &["sdam-core", "sdam-transport"]),
    ("sdam-sim", &["sdam-auth", "sdam-core", "sdam-tls", "sdam-transport"]),
    ("sdam-testkit", &["sdam-core", "sdam-sim", "sdam-transport"]),
    (
        "sdam",
        &[
            "sdam-auth",
            "sdam-core",
            "sdam-dns",
            "sdam-events",
            "sdam-pool",
            "sdam-runtime-async-std",
            "sdam-runtime-blocking",
            "sdam-runtime-smol",
            "sdam-runtime-tokio",
            "sdam-select",
            "sdam-sim",
            "sdam-tls",
            "sdam-transport",
        ],
    ),
    (
        "sdam-cli",
        &[
            "sdam",
            "sdam-core",
            "sdam-events",
            "sdam-runtime-tokio",
            "sdam-select",
            "sdam-sim",
            "sdam-transport",
            "tokio",
        ],
    ),
];

/// The runtimes. A crate may only depend on those that its line in the table names: everywhere else,
/// runtimes are passed as values. `sdam-dns` uses a runtime only on threads of its own, where the
/// caller's code never runs.
const RUNTIMES: &[&str] =
    &["async-executor", "async-io", "async-std", "mio", "monoio", "smol", "tokio"];

/// The crates that do no I/O. The compiler ensures this, because they are `no_std`.
const PURE: &[&str] = &["sdam-core", "sdam-select"];

/// Builds of the workspace's packages, each with the crates that must not be in its dependency
/// tree. Single-threaded mode is for programs without a runtime. An exporter in a container needs no
/// terminal library.
const ABSENT: &[(&[&str], &[&str])] = &[
    (&["--package", "sdam"], &["async-std"]),
    (
        &["--package", "sdam-cli", "--no-default-features", "--features", "export"],
        &["console", "crossterm", "ratatui", "ratatui-core", "ratatui-crossterm"],
    ),
    (&["--package", "sdam", "--no-default-features", "--features", "blocking"], RUNTIMES),
];

pub(crate) fn run() -> Result<()> {
    let packages = packages()?;
    let mut violations = Vec::new();
    for (name, Package { is_published, dependencies }) in &packages {
        if *is_published {
            check_arrows(name, dependencies, &mut violations);
        }
    }
    for name in PURE {
        check_pure(name, &mut violations)?;
    }
    for (arguments, absent) in ABSENT {
        let tree = tree(arguments)?;
        for name in absent.iter().filter(|name| tree.contains(**name)) {
            violations.push(format!("{name} is in the tree of {}", arguments.join(" ")));
        }
    }
    let tree = tree(&["--package", "sdam"])?;
    if !violations.is_empty() {
        return Err(violations.join("\n       ").into());
    }
    println!("layers: {} crates of ours, {} in the default tree", packages.len(), tree.len());
    Ok(())
}

/// A crate of the workspace.
struct Package {
    is_published: bool,
    /// The dependencies of the crate, except dev-dependencies.
    dependencies: BTreeSet<String>,
}

/// Returns the crates of the workspace, keyed by name.
fn packages() -> Result<BTreeMap<String, Package>> {
    let arguments = ["metadata", "--no-deps", "--format-version", "1"];
    let metadata: Value = serde_json::from_str(&output(cargo().args(arguments))?)?;
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    Ok(list(&metadata["packages"])
        .iter()
        .map(|package| {
            let dependencies = list(&package["dependencies"])
                .iter()
                .filter(|dependency| dependency["kind"].as_str() != Some("dev"))
                .map(|dependency| text(dependency, "name"))
                .collect();
            // `publish = false` becomes an empty list of registries.
            let is_published = package["publish"].is_null();
            (text(package, "name"), Package { is_published, dependencies })
        })
        .collect())
}

fn check_arrows(name: &str, dependencies: &BTreeSet<String>, violations: &mut Vec<String>) {
    let Some((_, allowed)) = ARROWS.iter().find(|(own, _)| *own == name) else {
        violations.push(format!("{name} is missing from the table of layers"));
        return;
    };
    let is_ruled = |name: &str| name.starts_with("sdam") || RUNTIMES.contains(&name);
    let ruled = dependencies.iter().filter(|dependency| is_ruled(dependency));
    for dependency in ruled.filter(|dependency| !allowed.contains(&dependency.as_str())) {
        violations.push(format!("{name} may not depend on {dependency}"));
    }
}

/// Checks that the crate is `no_std`, and that no public item names the bson crate.
fn check_pure(name: &str, violations: &mut Vec<String>) -> Result<()> {
    let folder = root().join(name).join("src");
    if !fs::read_to_string(folder.join("lib.rs"))?.contains("#![no_std]") {
        violations.push(format!("{name} is not no_std"));
    }
    for file in rust_files(&folder)? {
        for (index, line) in fs::read_to_string(&file)?.lines().enumerate() {
            let line = line.trim_start();
            if line.starts_with("pub ") && (line.contains("bson::") || line.contains("RawDocument"))
            {
                let place = relative(&file);
                violations.push(format!("{place}:{} shows a type of the bson crate", index + 1));
            }
        }
    }
    Ok(())
}

/// Returns the names of all crates in a build, including the root crate.
fn tree(arguments: &[&str]) -> Result<BTreeSet<String>> {
    let fixed = ["tree", "--edges", "normal", "--prefix", "none", "--format", "{p}"];
    let output = output(cargo().args(fixed).args(arguments))?;
    let name = |line: &str| line.split_whitespace().next().map(str::to_owned);
    Ok(output.lines().filter_map(name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, dependencies: &[&str]) -> Vec<String> {
        let dependencies = dependencies.iter().map(|name| (*name).to_owned()).collect();
        let mut violations = Vec::new();
        check_arrows(name, &dependencies, &mut violations);
        violations
    }

    #[test]
    fn arrows_only_point_up() {
        assert_eq!(check("sdam-select", &["sdam-core", "smallvec"]), [""; 0]);
        assert_eq!(
            check("sdam-core", &["sdam-select"]),
            ["sdam-core may not depend on sdam-select"]
        );
        assert_eq!(check("sdam", &["sdam-live"]), ["sdam may not depend on sdam-live"]);
        assert_eq!(check("sdam-new", &[]), ["sdam-new is missing from the table of layers"]);
    }

    #[test]
    fn only_runtime_crates_depend_on_a_runtime() {
        assert_eq!(check("sdam-runtime-tokio", &["tokio"]), [""; 0]);
        assert_eq!(check("sdam", &["tokio"]).len(), 1);
        assert_eq!(check("sdam-sim", &["async-io"]).len(), 1);
    }
}
