//! `cargo xtask mutants`: plants faults in the product and in the official files, and checks that
//! the harness of these files detects them.

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
    /// The suite that must detect the fault.
    suite: &'static str,
    /// The text that the fault replaces. The file contains it once.
    from: &'static str,
    to: &'static str,
}

/// The faults: name, file and suite; the text that the fault replaces, after `-`; its replacement,
/// after `+`.
const MUTANTS: &str = r#"
a pool that becomes ready is not published | sdam/src/engine/outputs.rs | cmap-format
-self.events.push_with(now, EventName::PoolReady,
+#[cfg(any())] self.events.push_with(now, EventName::PoolReady,
a clear is not published | sdam/src/engine/outputs.rs | cmap-format
-if !clear.was_paused {
+if false {
a clear of a paused pool is published | sdam/src/engine/outputs.rs | cmap-format
-if !clear.was_paused {
+if true {
every error of a write is retryable | sdam/src/client/attempt.rs | retryable-writes
-counts && error.is_retryable_write(max_wire_version)
+true || counts && error.is_retryable_write(max_wire_version)
no error of a write is retryable | sdam/src/client/attempt.rs | retryable-writes
-counts && error.is_retryable_write(max_wire_version)
+false && counts && error.is_retryable_write(max_wire_version)
write errors are no errors | sdam/src/client/attempt.rs | retryable-writes
-.filter(|_| self.writes == Writes::Checked)?
+.filter(|_| self.writes == Writes::Checked && false)?
sessions are never ended | sdam/src/client.rs | connection-monitoring-and-pooling/logging
-Some(patience), Box::pin(self.end_sessions())
+Some(patience), Box::pin(async { if false { self.end_sessions().await } })
commands have no session | sdam-core/src/session.rs | sessions
-command.document("lsid", |id| id.uuid("id", self.0));
+let _ = (command, self);
the number of a transaction is an int | sdam-core/src/session.rs | retryable-writes
-command.int64("txnNumber", self.number);
+command.int32("txnNumber", self.number as i32);
the id of a session is a string | sdam-core/src/session.rs | sessions
-id.uuid("id", self.0)
+id.text("id", "a")
commands have an argument that no server knows | sdam-core/src/session.rs | sessions
-command.document("lsid", |id| id.uuid("id", self.0));
+command.document("lsid", |id| id.uuid("id", self.0)); command.int32("lsId", 1);
commands are sent as OP_QUERY | sdam-transport/src/wire/exchange.rs | run-command
-OpMsg { request_id, body: command, ..OpMsg::default() }.encode()
+OpQuery { request_id, flags: 0, collection: "test.$cmd", body: command }.encode()
messages have a number that is no opcode | sdam-transport/src/wire.rs | run-command
-const OP_MSG: i32 = 2013;
+const OP_MSG: i32 = 2014;
the flag that allows streams is another bit | sdam-transport/src/wire/format.rs | run-command
-const EXHAUST_ALLOWED: u32 = 1 << 16;
+const EXHAUST_ALLOWED: u32 = 1 << 15;
the keys of SCRAM have another label | sdam-auth/src/scram.rs | server-discovery-and-monitoring/unified
-b"Client Key"
+b"client key"
a load balancer has wire versions | sdam-core/src/deployment/topology/transition.rs | load-balanced
-ServerType::LoadBalancer,
+ServerType::LoadBalancer, wire_versions: crate::server::WireVersions { min: 0, max: 21 },
hosts of other domains are accepted | sdam-core/src/srv.rs | replica-set
-hosts.iter().find(|host| !self.allows(host))
+hosts.iter().find(|host| false && !self.allows(host))
"#;

fn mutants() -> Vec<Mutant> {
    let lines: Vec<_> = MUTANTS.trim().lines().collect();
    let mutants = lines.chunks_exact(3).filter_map(|lines| {
        let mut words = lines[0].split(" | ");
        let (name, file, suite) = (words.next()?, words.next()?, words.next()?);
        let (from, to) = (lines[1].strip_prefix('-')?, lines[2].strip_prefix('+')?);
        Some(Mutant { name, file, suite, from, to })
    });
    mutants.collect()
}

/// Plants the faults one by one in a copy of the workspace, and then changes the official files.
///
/// # Errors
/// If a fault is not detected or cannot be planted, or if the files do not pass without faults.
pub(crate) fn run(options: &Options) -> Result<()> {
    let tree = root().join("target/mutants/tree");
    copy(&tree)?;
    let name = options.name.as_deref().unwrap_or_default();
    let mut chosen = mutants();
    chosen.retain(|mutant| mutant.name.starts_with(name));
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

/// Copies the files of the workspace to `tree`. Files that have not changed keep their modification
/// times, so that cargo does not rebuild them.
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
    /// If the source does not contain exactly one occurrence of the text to replace.
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
        assert_eq!(mutants().len() * 3, MUTANTS.trim().lines().count());
        for mutant in mutants() {
            let source = fs::read_to_string(root().join(mutant.file)).unwrap();
            assert_ne!(mutant.plant(&source).unwrap(), source);
        }
    }
}
