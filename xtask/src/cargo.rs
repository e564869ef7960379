//! Running cargo, and the workspace's folder.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;

/// Returns the workspace's root folder.
pub(crate) fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own).to_owned()
}

/// Creates a command for the same cargo that runs this program, in the workspace.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Runs `command`, showing it first.
///
/// # Errors
/// When it cannot be started or fails; the message shows the command.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = show(command);
    eprintln!("$ {shown}");
    let status = command
        .status()
        .map_err(|error| format!("cannot run `{shown}`: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("`{shown}` failed: {status}").into())
    }
}

/// Runs `command` and returns its standard output.
///
/// # Errors
/// When it cannot be started or fails; the message shows the command and its error output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let shown = show(command);
    let output = command
        .output()
        .map_err(|error| format!("cannot run `{shown}`: {error}"))?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        return Err(format!("`{shown}` failed: {}", complaint.trim()).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Formats the command as it would be typed.
pub(crate) fn show(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let program = program.file_name().unwrap_or(command.get_program());
    std::iter::once(program)
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}
