//! `cargo xtask layers`: checks the dependencies between crates.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::Value;

use crate::Result;
use crate::cargo::{cargo, metadata, output, relative, root, rust_files};

/// The published crates, each followed by its allowed dependencies: crates of the workspace,
/// without the prefix `sdam-`, and runtimes.
const ARROWS: &str = "
sdam-core:
sdam-select: core
sdam-events: core
sdam-transport: core
sdam-pool: core transport
sdam-auth: core transport
sdam-dns: core transport tokio
sdam-tls: core transport
sdam-runtime-tokio: core transport tokio
sdam-runtime-smol: core transport smol
sdam-runtime-async-std: core transport async-std
sdam-runtime-blocking: core transport
sdam-sim: auth core tls transport
sdam-testkit: core sim transport
sdam: auth core dns events pool runtime-async-std runtime-blocking runtime-smol runtime-tokio select \
    sim tls transport
sdam-cli: sdam core events runtime-tokio select sim transport tokio
";

/// The runtimes. A crate may only depend on the runtimes that its line in the table names. All
/// other crates receive runtimes as values. `sdam-dns` uses tokio only on its own threads, where
/// the caller's code never runs.
const RUNTIMES: &[&str] =
    &["async-executor", "async-io", "async-std", "mio", "monoio", "smol", "tokio"];

/// The crates that do no I/O. The compiler ensures this, because they are `no_std`.
const PURE: &[&str] = &["sdam-core", "sdam-select"];

/// Builds of packages, each with the crates that must not be in its dependency tree:
/// single-threaded mode is for programs without a runtime, and an exporter in a container needs no
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
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let package = |package: &Value| {
        let dependencies = package["dependencies"].as_array().into_iter().flatten();
        let dependencies = dependencies.filter(|dependency| dependency["kind"] != "dev");
        let dependencies = dependencies.map(|dependency| text(&dependency["name"])).collect();
        // `publish = false` becomes an empty list of registries.
        let is_published = package["publish"].is_null();
        (text(&package["name"]), Package { is_published, dependencies })
    };
    Ok(metadata()?.iter().map(package).collect())
}

fn check_arrows(name: &str, dependencies: &BTreeSet<String>, violations: &mut Vec<String>) {
    let mut rows = ARROWS.lines().filter_map(|row| row.split_once(':'));
    let Some((_, allowed)) = rows.find(|(own, _)| *own == name) else {
        violations.push(format!("{name} is missing from the table of layers"));
        return;
    };
    let is_ruled = |name: &str| name.starts_with("sdam") || RUNTIMES.contains(&name);
    for dependency in dependencies.iter().filter(|dependency| is_ruled(dependency)) {
        let short = dependency.strip_prefix("sdam-").unwrap_or(dependency);
        if !allowed.split_whitespace().any(|own| own == short) {
            violations.push(format!("{name} may not depend on {dependency}"));
        }
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

    #[test]
    fn arrows_only_point_up_and_only_runtime_crates_depend_on_a_runtime() {
        for (name, dependency, violation) in [
            ("sdam-select", "sdam-core", None),
            ("sdam-core", "smallvec", None),
            ("sdam-core", "sdam-select", Some("sdam-core may not depend on sdam-select")),
            ("sdam", "sdam-live", Some("sdam may not depend on sdam-live")),
            ("sdam-new", "bson", Some("sdam-new is missing from the table of layers")),
            ("sdam-runtime-tokio", "tokio", None),
            ("sdam", "tokio", Some("sdam may not depend on tokio")),
            ("sdam-sim", "async-io", Some("sdam-sim may not depend on async-io")),
        ] {
            let mut violations = Vec::new();
            check_arrows(name, &BTreeSet::from([dependency.to_owned()]), &mut violations);
            assert_eq!(violations, Vec::from_iter(violation), "{name}");
        }
    }
}
