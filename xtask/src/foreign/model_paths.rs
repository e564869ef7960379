//! `cargo xtask foreign model-paths`: replays the tests that our topology machine writes on other
//! drivers.

mod known;

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use serde::Deserialize;

use self::known::{Difference, Driver, KNOWN};
use super::{PYMONGO, install, on_sdam, unavailable};
use crate::Result;
use crate::cargo::{root, show};
use crate::states;

/// The number of unexplained differences that are printed.
const SHOWN: usize = 10;

/// A line of a driver's output.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Difference(Box<Difference>),
    Summary {
        replayed: usize,
        /// The number of tests whose last phase was judged, because the one before it is equal.
        judged: usize,
    },
}

/// The result of a replay.
#[derive(Default)]
struct Report {
    replayed: usize,
    judged: usize,
    /// The different phases, by their contents. Several tests may begin with the same phases.
    seen: HashSet<String>,
    /// The numbers of explained differences, by their position in [`KNOWN`].
    explained: BTreeMap<usize, usize>,
    unexplained: Vec<Difference>,
}

pub(super) fn run() -> Result<()> {
    let folder = root().join("target/foreign");
    fs::create_dir_all(&folder)?;
    let file = folder.join("model-paths.jsonl");
    let summary = states::write_tests(&file)?;
    let mut summaries = vec![summary.trim().to_owned()];
    let written = summary.split(' ').next().unwrap_or_default().parse()?;
    let mut failed = false;
    for (driver, found) in [(Driver::PyMongo, pymongo()?), (Driver::Rust, rust()?)] {
        if let Some((version, mut command)) = found {
            let report = replay(driver, command.arg(&file))?;
            summaries.push(report.summary(driver, version));
            failed |= !report.print(written);
        }
    }
    if summaries.len() == 1 {
        return Err("no driver could be fetched, so nothing was compared".into());
    }
    println!("{}", summaries.join("; "));
    if failed {
        return Err(format!("a driver differs from the tests in {}", file.display()).into());
    }
    Ok(fs::remove_file(file)?)
}

/// The version of a driver, and the command that replays tests on it; `None` if the driver cannot be
/// fetched.
type Replayer = Option<(&'static str, Command)>;

fn pymongo() -> Result<Replayer> {
    let version = PYMONGO[0];
    match install(&format!("pymongo-{version}"), &[&format!("pymongo=={version}")]) {
        Ok(folder) => {
            let mut command = Command::new("python3");
            command.arg(root().join("proof/foreign/pymongo/model_paths.py"));
            command.env("PYTHONPATH", folder);
            Ok(Some((version, command)))
        }
        Err(error) => unavailable(Driver::PyMongo.as_str(), &*error).map(|()| None),
    }
}

fn rust() -> Result<Replayer> {
    let found = on_sdam::replayer()?;
    Ok(found.map(|(version, program)| (version, Command::new(program))))
}

fn replay(driver: Driver, command: &mut Command) -> Result<Report> {
    let shown = show(command);
    eprintln!("$ {shown}");
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut report = Report::default();
    for line in BufReader::new(child.stdout.take().ok_or("no output")?).lines() {
        report.add(driver, serde_json::from_str(&line?)?);
    }
    let status = child.wait()?;
    if status.success() { Ok(report) } else { Err(format!("`{shown}` failed: {status}").into()) }
}

impl Report {
    fn add(&mut self, driver: Driver, line: Line) {
        let difference = match line {
            Line::Summary { replayed, judged } => {
                (self.replayed, self.judged) = (replayed, judged);
                return;
            }
            Line::Difference(difference) => *difference,
        };
        if !self.seen.insert(difference.contents()) {
            return;
        }
        match difference.explain(driver) {
            Some(reasons) => {
                for reason in reasons {
                    *self.explained.entry(reason).or_default() += 1;
                }
            }
            None => self.unexplained.push(difference),
        }
    }

    fn summary(&self, driver: Driver, version: &str) -> String {
        let unexplained = self.unexplained.len();
        format!(
            "{driver} {version}: {} replayed, {unexplained} unexplained differences, {} explained, \
             {} with a judged last step",
            self.replayed,
            self.seen.len() - unexplained,
            self.judged,
        )
    }

    /// Prints the differences, and returns true if the driver has replayed all tests and every
    /// difference is explained.
    fn print(&self, written: usize) -> bool {
        let Self { replayed, explained, unexplained, .. } = self;
        for (index, count) in explained {
            let known = &KNOWN[*index];
            println!("  {count:>6} {} ({}): {}", known.rule, known.right, known.about);
        }
        for difference in unexplained.iter().take(SHOWN) {
            println!("  {difference}");
        }
        if *replayed != written {
            println!("  {written} paths were written");
        }
        unexplained.is_empty() && *replayed == written
    }
}
