//! `cargo xtask layers`: checks the dependencies between crates.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::Result;
use crate::cargo::{cargo, output, root};

mod modules;

/// The crates of the workspace, with their allowed dependencies in the workspace.
const ARROWS: &[(&str, &[&str])] = &[
    ("sdam-core", &[]),
    ("sdam-select", &["sdam-core"]),
    ("sdam-events", &["sdam-core"]),
    ("sdam-transport", &["sdam-core"]),
    ("sdam-pool", &["sdam-core", "sdam-transport"]),
    ("sdam-auth", &["sdam-core", "sdam-transport"]),
    ("sdam-dns", &["sdam-core", "sdam-transport"]),
    ("sdam-tls", &["sdam-core", "sdam-transport"]),
    ("sdam-runtime-tokio", &["sdam-core", "sdam-transport"]),
    ("sdam-runtime-smol", &["sdam-core", "sdam-transport"]),
    ("sdam-runtime-async-std", &["sdam-core", "sdam-transport"]),
    ("sdam-runtime-blocking", &["sdam-core", "sdam-transport"]),
    ("sdam-sim", &["sdam-auth", "sdam-core", "sdam-tls", "sdam-transport"]),
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
        &["sdam", "sdam-core", "sdam-events", "sdam-runtime-tokio", "sdam-select", "sdam-sim"],
    ),
];

/// The programs, which may name a runtime.
const PROGRAMS: &[&str] = &["sdam-cli"];

/// The crates that only `examples`, `xtask` and tests may use, including those two.
const INTERNAL: &[&str] = &[
    "sdam-chaos",
    "sdam-examples",
    "sdam-live",
    "sdam-model",
    "sdam-spec",
    "sdam-testkit",
    "xtask",
];

/// The forbidden direct dependencies: they would let a crate name a runtime.
const RUNTIMES: &[&str] =
    &["async-executor", "async-io", "async-std", "mio", "monoio", "smol", "tokio"];

/// Libraries of the program `sdam` that no library of ours may depend on, even indirectly.
const TOOL: &[&str] = &[
    "clap",
    "crossterm",
    "hyper",
    "indicatif",
    "metrics-exporter-prometheus",
    "ratatui",
    "toml",
    "x509-parser",
];

/// The crates without I/O, as ensured by the compiler.
const PURE: &[&str] = &["sdam-core", "sdam-select"];

pub(crate) fn run() -> Result<()> {
    let packages = packages()?;
    let mut violations = Vec::new();
    for (name, Package { folder, dependencies }) in &packages {
        check_arrows(name, dependencies, &mut violations);
        check_runtimes(name, dependencies, &mut violations);
        let sources = folder.join("src");
        if sources.is_dir()
            && let Some(cycle) = modules::cycle(&sources)?
        {
            let cycle = cycle.join(" -> ");
            violations.push(format!("the modules of {name} import in a circle: {cycle}"));
        }
    }
    for name in PURE {
        check_pure(name, &mut violations)?;
    }
    let tree = tree(&["--package", "sdam"])?;
    for runtime in ["async-std", "monoio"] {
        if tree.contains(runtime) {
            violations.push(format!("{runtime} is in the default tree of sdam"));
        }
    }
    let everything = self::tree(&["--package", "sdam", "--all-features"])?;
    for library in TOOL {
        if everything.contains(*library) {
            violations.push(format!("{library}, which is for the tool, is in the tree of sdam"));
        }
    }
    // Single-threaded mode is for programs without a runtime.
    let single_threaded = self::tree(&["--package", "sdam-examples-scan"])?;
    for runtime in RUNTIMES {
        if single_threaded.contains(*runtime) {
            violations.push(format!("{runtime} is in the tree of sdam-examples-scan"));
        }
    }
    // The dependencies of a binding for another language, and no others.
    let ours = self::tree(&["--package", "sdam-examples-sans-io"])?;
    for name in ours.iter().filter(|name| name.starts_with("sdam")) {
        if !["sdam-core", "sdam-select", "sdam-examples-sans-io"].contains(&&**name) {
            violations.push(format!("{name} is in the tree of sdam-examples-sans-io"));
        }
    }
    // Only the program may depend on it, and only with its feature.
    for arguments in [&["--package", "sdam", "--all-features"][..], &["--package", "sdam-cli"]] {
        if self::tree(arguments)?.contains("opentelemetry-proto") {
            let arguments = arguments.join(" ");
            violations.push(format!("opentelemetry-proto is in the tree of {arguments}"));
        }
    }
    if !violations.is_empty() {
        return Err(violations.join("\n       ").into());
    }
    println!("layers: {} crates of ours, {} in the default tree", packages.len(), tree.len());
    Ok(())
}

/// A crate of the workspace.
struct Package {
    folder: PathBuf,
    /// Its dependencies, except dev-dependencies.
    dependencies: BTreeSet<String>,
}

/// Returns the crates of the workspace by their names.
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
            let manifest = PathBuf::from(text(package, "manifest_path"));
            let folder = manifest.parent().unwrap_or(&manifest).to_owned();
            let name = text(package, "name");
            (name, Package { folder, dependencies })
        })
        .collect())
}

fn check_arrows(name: &str, dependencies: &BTreeSet<String>, violations: &mut Vec<String>) {
    if INTERNAL.contains(&name) || name.starts_with("sdam-examples") {
        return;
    }
    let Some((_, allowed)) = ARROWS.iter().find(|(own, _)| *own == name) else {
        violations.push(format!("{name} is missing from the table of layers"));
        return;
    };
    let ours = dependencies.iter().filter(|dependency| {
        dependency.starts_with("sdam") || INTERNAL.contains(&dependency.as_str())
    });
    for dependency in ours.filter(|dependency| !allowed.contains(&dependency.as_str())) {
        violations.push(format!("{name} may not depend on {dependency}"));
    }
}

fn check_runtimes(name: &str, dependencies: &BTreeSet<String>, violations: &mut Vec<String>) {
    if INTERNAL.contains(&name)
        || PROGRAMS.contains(&name)
        || name.starts_with("sdam-runtime-")
        // On its own threads, where none of its caller's code runs.
        || name == "sdam-dns"
        || name.starts_with("sdam-examples")
    {
        return;
    }
    for runtime in RUNTIMES.iter().filter(|runtime| dependencies.contains(**runtime)) {
        violations
            .push(format!("{name} may not depend on {runtime}: runtimes are passed as values"));
    }
}

/// Checks that the crate is `no_std`, and that no public item names the bson crate.
fn check_pure(name: &str, violations: &mut Vec<String>) -> Result<()> {
    let folder = root().join(name).join("src");
    if !fs::read_to_string(folder.join("lib.rs"))?.contains("#![no_std]") {
        violations.push(format!("{name} is not no_std"));
    }
    let mut files = Vec::new();
    rust_files(&folder, &mut files)?;
    for file in files {
        for (index, line) in fs::read_to_string(&file)?.lines().enumerate() {
            let line = line.trim_start();
            if line.starts_with("pub ") && (line.contains("bson::") || line.contains("RawDocument"))
            {
                let place = file.strip_prefix(root()).unwrap_or(&file).display();
                violations.push(format!("{place}:{} shows a type of the bson crate", index + 1));
            }
        }
    }
    Ok(())
}

/// Collects the Rust files below `folder`.
pub(crate) fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            rust_files(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// Returns the names of all crates in a build, including the root.
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
        check_runtimes(name, &dependencies, &mut violations);
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
