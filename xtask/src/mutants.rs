//! `cargo xtask mutants`: faults in the product and in the official files, which the harness of
//! these files has to notice.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::Result;
use crate::cargo::{cargo, output, root, run as run_command};
use crate::spec_test::leaves;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Change values of the files for this number of seconds.
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Plant only the faults whose names begin with this text, and change no files.
    name: Option<String>,
}

/// A fault in the product.
struct Mutant {
    name: &'static str,
    file: &'static str,
    /// The text that the fault replaces. The file contains it once.
    from: &'static str,
    to: &'static str,
    /// A suite that has to notice the fault.
    suite: &'static str,
}

const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "a pool that becomes ready is not published",
        file: "sdam/src/engine/outputs.rs",
        from: "self.events.push_with(now, EventName::PoolReady, ",
        to: "#[cfg(any())] self.events.push_with(now, EventName::PoolReady, ",
        suite: "cmap-format",
    },
    Mutant {
        name: "a clear is not published",
        file: "sdam/src/engine/outputs.rs",
        from: "if !clear.was_paused {",
        to: "if false {",
        suite: "cmap-format",
    },
    Mutant {
        name: "a clear of a paused pool is published",
        file: "sdam/src/engine/outputs.rs",
        from: "if !clear.was_paused {",
        to: "if true {",
        suite: "cmap-format",
    },
    Mutant {
        name: "every error of a write is retryable",
        file: "sdam/src/client/attempt.rs",
        from: "counts && error.is_retryable_write(max_wire_version)",
        to: "true || counts && error.is_retryable_write(max_wire_version)",
        suite: "retryable-writes",
    },
    Mutant {
        name: "no error of a write is retryable",
        file: "sdam/src/client/attempt.rs",
        from: "counts && error.is_retryable_write(max_wire_version)",
        to: "false && counts && error.is_retryable_write(max_wire_version)",
        suite: "retryable-writes",
    },
    Mutant {
        name: "write errors are no errors",
        file: "sdam/src/client/attempt.rs",
        from: ".filter(|_| self.writes == Writes::Checked)?",
        to: ".filter(|_| self.writes == Writes::Checked && false)?",
        suite: "retryable-writes",
    },
    Mutant {
        name: "sessions are never ended",
        file: "sdam/src/client.rs",
        from: "Some(patience), Box::pin(self.end_sessions())",
        to: "Some(patience), Box::pin(async { if false { self.end_sessions().await } })",
        suite: "connection-monitoring-and-pooling/logging",
    },
    Mutant {
        name: "commands have no session",
        file: "sdam-core/src/session.rs",
        from: r#"command.document("lsid", |id| id.uuid("id", self.0));"#,
        to: "let _ = (command, self);",
        suite: "sessions",
    },
    Mutant {
        name: "the number of a transaction is an int",
        file: "sdam-core/src/session.rs",
        from: r#"command.int64("txnNumber", self.number);"#,
        to: r#"command.int32("txnNumber", self.number as i32);"#,
        suite: "retryable-writes",
    },
    Mutant {
        name: "the id of a session is a string",
        file: "sdam-core/src/session.rs",
        from: r#"id.uuid("id", self.0)"#,
        to: r#"id.text("id", "a")"#,
        suite: "sessions",
    },
    Mutant {
        name: "commands have an argument that no server knows",
        file: "sdam-core/src/session.rs",
        from: r#"command.document("lsid", |id| id.uuid("id", self.0));"#,
        to: r#"command.document("lsid", |id| id.uuid("id", self.0)); command.int32("lsId", 1);"#,
        suite: "sessions",
    },
    Mutant {
        name: "commands are sent as OP_QUERY",
        file: "sdam-transport/src/wire/exchange.rs",
        from: "OpMsg { request_id, body: command, ..OpMsg::default() }.encode()",
        to: "OpQuery { request_id, flags: 0, collection: \"test.$cmd\", body: command }.encode()",
        suite: "run-command",
    },
    Mutant {
        name: "messages have a number that is no opcode",
        file: "sdam-transport/src/wire.rs",
        from: "const OP_MSG: i32 = 2013;",
        to: "const OP_MSG: i32 = 2014;",
        suite: "run-command",
    },
    Mutant {
        name: "the flag that allows streams is another bit",
        file: "sdam-transport/src/wire/format.rs",
        from: "const EXHAUST_ALLOWED: u32 = 1 << 16;",
        to: "const EXHAUST_ALLOWED: u32 = 1 << 15;",
        suite: "run-command",
    },
    Mutant {
        name: "the keys of SCRAM have another label",
        file: "sdam-auth/src/scram.rs",
        from: r#"b"Client Key""#,
        to: r#"b"client key""#,
        suite: "server-discovery-and-monitoring/unified",
    },
    Mutant {
        name: "a load balancer has wire versions",
        file: "sdam-core/src/deployment/topology/transition.rs",
        from: "server_type: ServerType::LoadBalancer,\n",
        to: "server_type: ServerType::LoadBalancer,\n\
             wire_versions: crate::server::WireVersions { min: 0, max: 21 },\n",
        suite: "load-balanced",
    },
    Mutant {
        name: "hosts of other domains are accepted",
        file: "sdam-core/src/srv.rs",
        from: "hosts.iter().find(|host| !self.allows(host))",
        to: "hosts.iter().find(|host| false && !self.allows(host))",
        suite: "replica-set",
    },
];

/// Plants the faults one by one in a copy of the workspace, and then changes the files.
///
/// # Errors
/// If a fault is not noticed, or cannot be planted. If the files do not pass without faults.
pub(crate) fn run(options: &Options) -> Result<()> {
    let tree = root().join("target/mutants/tree");
    copy(&tree)?;
    let name = options.name.as_deref().unwrap_or_default();
    let chosen: Vec<_> = MUTANTS.iter().filter(|mutant| mutant.name.starts_with(name)).collect();
    if chosen.is_empty() {
        return Err(format!("no fault has a name that begins with `{name}`").into());
    }
    for suite in chosen.iter().map(|mutant| mutant.suite).collect::<BTreeSet<_>>() {
        spec_test(&tree, suite)?;
    }
    let mut missed = Vec::new();
    for mutant in chosen {
        let file = tree.join(mutant.file);
        let original = fs::read_to_string(&file)?;
        fs::write(&file, mutant.plant(&original)?)?;
        let outcome = run_command(&mut xtask(&tree, "build"))
            .map(|()| spec_test(&tree, mutant.suite).map_err(|error| error.to_string()));
        fs::write(&file, original)?;
        let outcome = outcome.map_err(|error| format!("{}: {error}", mutant.name))?;
        println!("{}: {}", mutant.name, if outcome.is_err() { "noticed" } else { "MISSED" });
        missed.extend(outcome.is_ok().then_some(mutant.name));
    }
    if !missed.is_empty() {
        return Err(format!("the official files pass although {}", missed.join("; ")).into());
    }
    match options.name {
        Some(_) => Ok(()),
        None => leaves::run(Duration::from_secs(options.seconds)),
    }
}

/// Copies the files of the workspace to `tree`. Files that are the same already keep their times, so
/// that what was built of them is still good.
fn copy(tree: &Path) -> Result<()> {
    let files = output(Command::new("git").args(["ls-files", "-z"]).current_dir(root()))?;
    for file in files.split_terminator('\0') {
        let (from, to) = (root().join(file), tree.join(file));
        if fs::read(&to).ok() != Some(fs::read(&from)?) {
            fs::create_dir_all(to.parent().unwrap_or(tree))?;
            fs::copy(&from, &to)?;
        }
    }
    Ok(())
}

/// Runs the files of a suite in `tree`, without a runtime and in the simulation.
fn spec_test(tree: &Path, suite: &str) -> Result<()> {
    let columns = ["--", "spec-test", "--runtime", "pure", "--runtime", "sim", "--suite", suite];
    output(xtask(tree, "run").args(columns)).map(drop)
}

/// Creates a command that builds or runs the `xtask` of `tree`.
fn xtask(tree: &Path, subcommand: &str) -> Command {
    let mut command = cargo();
    command.current_dir(tree).env("CARGO_TARGET_DIR", root().join("target/mutants/build"));
    command.args([subcommand, "--quiet", "--profile", "test", "--package", "xtask"]);
    command
}

impl Mutant {
    /// Returns the source with the fault.
    ///
    /// # Errors
    /// If the source does not contain the text that is replaced exactly once.
    fn plant(&self, source: &str) -> Result<String> {
        match source.matches(self.from).count() {
            1 => Ok(source.replace(self.from, self.to)),
            count => Err(format!("{}: {count} times `{}`", self.file, self.from).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_can_be_planted() {
        for mutant in MUTANTS {
            let source = fs::read_to_string(root().join(mutant.file)).unwrap();
            assert_ne!(mutant.plant(&source).unwrap(), source);
        }
    }
}
