//! Runs cargo, and finds the workspace's folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::Result;

/// Returns the workspace's root folder.
pub(crate) fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own).to_owned()
}

/// Returns the folders of the workspace's crates: top-level folders, and folders below `proof`,
/// whose crates only check the other crates.
pub(crate) fn crates() -> Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for parent in [root(), root().join("proof")] {
        for entry in fs::read_dir(parent)? {
            let folder = entry?.path();
            if folder.join("Cargo.toml").is_file() {
                folders.push(folder);
            }
        }
    }
    folders.sort();
    Ok(folders)
}

/// Returns all files below `folder`, sorted.
pub(crate) fn files_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder);
    let entries = entries.map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(files_below(&path)?);
        } else {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Returns the Rust files below `folder`, sorted.
pub(crate) fn rust_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = files_below(folder)?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    Ok(files)
}

/// Returns a path relative to the workspace, for printing.
pub(crate) fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// The arguments with which `cargo xtask test` builds all packages. With different arguments,
/// different features would be enabled, and most dependencies would have to be built again.
pub(crate) const EVERYTHING: [&str; 2] = ["--workspace", "--all-features"];

/// The build folder for checks that produce no program, relative to the workspace. Removing it does
/// not force the tests to be rebuilt.
pub(crate) const CHECKS: &str = "target/checks";

/// Creates a command that runs cargo in the workspace. Uses the same cargo that runs this program,
/// but removes the variables that describe this program's package. If these variables changed
/// between builds, the build script of ring would run again, and ring and all crates that depend on
/// it would be rebuilt.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    for (name, _) in std::env::vars_os() {
        let shown = name.to_string_lossy();
        if shown.starts_with("CARGO_PKG_") || shown.starts_with("CARGO_MANIFEST_") {
            command.env_remove(name);
        }
    }
    command
}

/// Prints `command` and runs it.
///
/// # Errors
/// If the command cannot be started or fails. The error message shows the command.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = show(command);
    eprintln!("$ {shown}");
    let status = command.status().map_err(|error| format!("cannot run `{shown}`: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{shown}` failed: {status}").into()) }
}

/// Runs `command` and returns its standard output.
///
/// # Errors
/// If the command cannot be started or fails. The error message shows the command and its error
/// output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let shown = show(command);
    let output = command.output().map_err(|error| format!("cannot run `{shown}`: {error}"))?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        return Err(format!("`{shown}` failed: {}", complaint.trim()).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Returns cargo's metadata about each package of the workspace.
pub(crate) fn metadata() -> Result<Vec<Value>> {
    let arguments = ["metadata", "--no-deps", "--format-version", "1"];
    let mut metadata: Value = serde_json::from_str(&output(cargo().args(arguments))?)?;
    Ok(serde_json::from_value(metadata["packages"].take())?)
}

/// Builds the program `name` of the package in the folder `package`. `target` is cargo's option for
/// the kind of program (such as `--test`) with its value. Returns the path of the program.
///
/// # Errors
/// If the program cannot be built or does not exist.
pub(crate) fn built(package: &str, target: [&str; 2], name: &str) -> Result<PathBuf> {
    let folder = root().join(package);
    let mut build = cargo();
    // Use the profile of the tests, so that nothing is built twice.
    run(build.args(["build", "--profile", "test"]).args(EVERYTHING).args(target))?;
    // The programs are already built, so this only prints their paths.
    let messages = output(build.args(["--quiet", "--message-format", "json"]))?;
    executable(&messages, &folder, name)
        .ok_or_else(|| format!("cargo has not built {name} of {}", folder.display()).into())
}

/// Finds the path of the program `name`, which belongs to the package in `folder`, in cargo's build
/// messages.
fn executable(messages: &str, folder: &Path, name: &str) -> Option<PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut programs = messages.filter(|message| {
        let manifest = message["manifest_path"].as_str();
        message["target"]["name"] == name
            && manifest.is_some_and(|path| Path::new(path) == folder.join("Cargo.toml"))
    });
    programs.find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

/// Formats the command as a user would type it.
pub(crate) fn show(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let program = program.file_name().unwrap_or(command.get_program());
    std::iter::once(program)
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_of_a_package_is_found_among_the_messages_of_a_build() {
        let artifact = |package: &str, name: &str, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/tree/{package}/Cargo.toml","target":{{"name":"{name}"}},"executable":{executable}}}"#
            )
        };
        let messages = [
            artifact("a", "sdam", "null"),
            artifact("b", "live", r#""/target/b-live""#),
            artifact("a", "live", r#""/target/a-live""#),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ]
        .join("\n");
        let found = |package: &str, name| {
            let path = executable(&messages, &Path::new("/tree").join(package), name)?;
            path.to_str().map(str::to_owned)
        };
        assert_eq!(found("a", "live").as_deref(), Some("/target/a-live"));
        assert_eq!(found("b", "live").as_deref(), Some("/target/b-live"));
        assert_eq!(found("a", "sdam"), None, "a library is no program");
        assert_eq!(found("c", "live"), None);
    }
}
