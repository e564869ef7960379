//! The mutants that no test detects, each with the reason.

use std::collections::BTreeMap;
use std::fs;
use std::str::FromStr;

use crate::Result;
use crate::cargo::root;

/// The file with the survivors, relative to the root of the workspace.
const FILE: &str = ".cargo/survivors.txt";

/// The known survivors. In the file, each has a line with its name as `cargo mutants --list` prints
/// it, but without line and column, and an indented line with the reason. A name that is listed
/// twice explains two survivors. Lines with `#` are comments.
#[derive(Debug, Default)]
pub(super) struct Survivors(BTreeMap<String, usize>);

impl Survivors {
    pub(super) fn read() -> Result<Self> {
        fs::read_to_string(root().join(FILE))?.parse()
    }

    /// Returns those of the `missed` mutants that are not listed.
    pub(super) fn unexplained<'m>(&self, missed: &'m [String]) -> Vec<&'m String> {
        let mut left = self.0.clone();
        let is_unexplained = |mutant: &&String| match left.get_mut(&without_place(mutant)) {
            Some(count @ 1..) => {
                *count -= 1;
                false
            }
            _ => true,
        };
        missed.iter().filter(is_unexplained).collect()
    }

    /// Checks that every survivor is in the folder of one of the `packages`.
    pub(super) fn check_packages(&self, packages: &[&str]) -> Result<()> {
        let is_among = |name: &&String| packages.contains(&name.split('/').next().unwrap_or(""));
        match self.0.keys().find(|name| !is_among(name)) {
            Some(name) => Err(format!("{FILE}: no mutants are made where `{name}` is").into()),
            None => Ok(()),
        }
    }

    /// Checks that the survivors in the folder of a package still exist in the `listed` mutants.
    pub(super) fn check_names(&self, package: &str, listed: &[String]) -> Result<()> {
        let folder = format!("{package}/");
        let listed: Vec<_> = listed.iter().map(|name| without_place(name)).collect();
        let mut own = self.0.keys().filter(|name| name.starts_with(&folder));
        match own.find(|name| !listed.contains(name)) {
            Some(name) => Err(format!("{FILE}: there is no mutant `{name}`; remove it").into()),
            None => Ok(()),
        }
    }
}

impl FromStr for Survivors {
    type Err = Box<dyn std::error::Error>;

    fn from_str(text: &str) -> Result<Self> {
        let mut lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        let mut survivors = BTreeMap::new();
        while let Some(name) = lines.next() {
            let reason = lines.next().and_then(|line| line.strip_prefix("  "));
            let reason = reason.filter(|reason| !reason.trim().is_empty());
            reason.ok_or_else(|| format!("{FILE}: `{name}` has no reason"))?;
            *survivors.entry(name.to_owned()).or_default() += 1;
        }
        Ok(Self(survivors))
    }
}

/// Removes the line and the column from the name of a mutant: `file.rs:12:5: delete ! in f`.
fn without_place(mutant: &str) -> String {
    let Some((file, rest)) = mutant.split_once(".rs:") else {
        return mutant.to_owned();
    };
    let what = rest.split_once(": ").map_or(rest, |(_, what)| what);
    format!("{file}.rs: {}", what.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_survivor_needs_a_reason_and_a_mutant() {
        let survivors: Survivors = "# note\n\na/src/b.rs: delete ! in c\n  why\n".parse().unwrap();
        let missed = ["c", "other", "c"].map(|own| format!("a/src/b.rs:12:5: delete ! in {own}"));
        assert_eq!(survivors.unexplained(&missed[..1]), [&missed[0]; 0]);
        assert_eq!(survivors.unexplained(&missed), [&missed[1], &missed[2]], "one is listed");
        assert!(survivors.check_packages(&["a", "b"]).is_ok());
        assert!(survivors.check_packages(&["b"]).is_err());
        for wrong in ["a/src/b.rs: x in c\n", "a: x in c\n\nb: y in c\n  why\n"] {
            assert!(wrong.parse::<Survivors>().is_err(), "{wrong}");
        }
        let there = ["a/src/b.rs:9:1: delete ! in c".to_owned()];
        assert!(survivors.check_names("a", &there).is_ok());
        assert!(survivors.check_names("a", &[]).is_err());
        assert!(survivors.check_names("other", &[]).is_ok());
    }
}
