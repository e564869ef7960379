//! Stored failures, each in a file of its own. If the file contains `access plain`, the run uses
//! neither TLS nor a proxy, regardless of its seed. With `disturbed on`, the
//! simulation is disturbed.
//!
//! ```text
//! # P9-waiters at 12.5s: a selection of write operation is waiting, but ...
//! seed 4711
//! scenario random
//! load off
//! access plain
//! ---
//! 1.5s kill primary
//! ```

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    str::FromStr,
};

use crate::{
    plan::{Access, Plan},
    run::Failure,
};

/// A stored plan that once failed.
#[derive(Clone, Debug)]
pub struct Regression {
    /// The plan to run.
    pub plan: Plan,
    /// A description of the failure.
    pub about: String,
}

impl fmt::Display for Regression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in self.about.lines() {
            writeln!(f, "# {line}")?;
        }
        writeln!(f, "seed {}", self.plan.seed)?;
        writeln!(f, "scenario {}", self.plan.kind)?;
        if !self.plan.load {
            writeln!(f, "load off")?;
        }
        if self.plan.disturbance.is_some() {
            writeln!(f, "disturbed on")?;
        }
        if self.plan.access == Access::PLAIN {
            writeln!(f, "access plain")?;
        }
        write!(f, "---\n{}", self.plan.scenario)
    }
}

impl FromStr for Regression {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (head, steps) =
            text.split_once("---\n").ok_or("a line `---` is missing before the steps")?;
        let (mut seed, mut kind, mut load) = (None, None, true);
        let (mut access, mut disturbed) = (None, false);
        let mut about = Vec::new();
        for line in head.lines() {
            match line.split_once(' ') {
                Some(("#", words)) => about.push(words),
                Some(("seed", number)) => {
                    seed = Some(number.parse().map_err(|_| format!("`{number}` is not a seed"))?);
                }
                Some(("scenario", name)) => kind = Some(name.parse()?),
                Some(("load", "off")) => load = false,
                Some(("disturbed", "on")) => disturbed = true,
                Some(("access", "plain")) => access = Some(Access::PLAIN),
                _ => {
                    return Err(format!(
                        "`{line}` is not a comment, `seed NUMBER`, `scenario NAME`, `load off`, \
                         `disturbed on` or `access plain`"
                    ));
                }
            }
        }
        let (Some(seed), Some(kind)) = (seed, kind) else {
            return Err("the lines `seed NUMBER` and `scenario NAME` are required".into());
        };
        let scenario = steps
            .parse()
            .map_err(|error: sdam_sim::scenario::ParseScenarioError| error.to_string())?;
        let mut plan = Plan::new(seed, kind).with_scenario(scenario);
        plan.load = load;
        plan.disturbance = disturbed.then_some(seed);
        plan.access = access.unwrap_or(plan.access);
        Ok(Self { plan, about: about.join("\n") })
    }
}

/// Returns the folder of the stored regressions.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdam-sim/regressions")
}

/// Returns every stored regression with its file name, sorted by name.
///
/// # Errors
///
/// If a file cannot be read or parsed.
pub fn all() -> io::Result<Vec<(String, Regression)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder())? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "txt") {
            continue;
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let regression = fs::read_to_string(&path)?
            .parse()
            .map_err(|error| io::Error::other(format!("{name}: {error}")))?;
        found.push((name, regression));
    }
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(found)
}

/// Stores a failing plan. Returns the path of the file.
///
/// # Errors
///
/// If the file cannot be written.
pub fn keep(plan: &Plan, failure: &Failure) -> io::Result<PathBuf> {
    let oracle = failure.violation.oracle.to_string().to_lowercase();
    let path = folder().join(format!("{oracle}-{}-{}.txt", plan.kind, plan.seed));
    let regression = Regression { plan: plan.clone(), about: failure.violation.to_string() };
    fs::write(&path, regression.to_string())?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Kind;

    #[test]
    fn written_regressions_are_read_back() {
        for seed in 0..200 {
            let mut plan = Plan::new(seed, Kind::ALL[seed as usize % Kind::ALL.len()]);
            plan.load = seed % 3 != 0;
            plan.disturbance = (seed % 5 != 0).then_some(seed);
            let about = "P9: a selection waits\nwithout end".to_owned();
            let text = Regression { plan, about }.to_string();
            let read: Regression = text.parse().unwrap();
            assert_eq!(read.to_string(), text);
        }
    }
}
