//! The rules whose code simulated runs execute.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{
    Result,
    cargo::{cargo, output, program, root, run as run_command},
};

/// The runs: a scenario and its seeds.
const RUNS: [(&str, &str); 2] = [("random", "0..10000"), ("scan", "0..1000")];
/// The rules that no run executes. Each line contains the id of a rule and the reason.
const UNREACHED: &str = include_str!("unreached.txt");

/// The places in code that cite each rule: files and line numbers.
type Places = BTreeMap<String, Vec<(String, usize)>>;
/// The number of executions of each line of each file. Lines without code are absent.
type Counts = BTreeMap<String, BTreeMap<usize, u64>>;

/// Runs the simulation, and describes how many of the rules that code cites it executed.
///
/// # Errors
/// If a rule was neither executed nor listed as unreached, or both.
pub(super) fn run(cited: &Places) -> Result<String> {
    let counts = counts(&root().join("target/coverage"))?;
    let mut sources = BTreeMap::new();
    for path in counts.keys() {
        let text = fs::read_to_string(root().join(path))?;
        sources.insert(path.clone(), text);
    }
    report(cited, &sources, &counts, UNREACHED)
}

/// Runs the simulation with counted lines. Builds and results are kept in `folder`.
fn counts(folder: &Path) -> Result<Counts> {
    let tools = output(Command::new("rustc").args(["--print", "target-libdir"]))?;
    let tools = Path::new(tools.trim()).with_file_name("bin");
    if !tools.join("llvm-cov").exists() {
        return Err("llvm-cov is missing: run `rustup component add llvm-tools`".into());
    }
    let mut build = cargo();
    build
        .args(["build", "--profile=sim", "--package=sdam-chaos", "--target-dir"])
        .arg(folder)
        .env("RUSTFLAGS", "-C instrument-coverage")
        // Build scripts are counted, too; their counts are not used.
        .env("LLVM_PROFILE_FILE", folder.join("build-%m.profraw"));
    let program = program(&mut build, &root().join("proof/chaos"), "sdam-chaos")?;
    let mut raw = Vec::new();
    for (scenario, seeds) in RUNS {
        let file = folder.join(format!("{scenario}.profraw"));
        let mut simulation = Command::new(&program);
        simulation.args(["--once", "--scenario", scenario, "--seeds", seeds]);
        run_command(simulation.current_dir(root()).env("LLVM_PROFILE_FILE", &file))?;
        raw.push(file);
    }
    let merged = folder.join("merged.profdata");
    let mut merge = Command::new(tools.join("llvm-profdata"));
    output(merge.args(["merge", "--sparse", "--output"]).arg(&merged).args(&raw))?;
    let mut export = Command::new(tools.join("llvm-cov"));
    export.args(["export", "--format=lcov", "--skip-functions", "--instr-profile"]);
    Ok(parse(&output(export.arg(&merged).arg(&program))?, &root()))
}

/// Parses the counts of the files below `root`.
fn parse(lcov: &str, root: &Path) -> Counts {
    let mut counts = Counts::new();
    let mut file = None;
    for line in lcov.lines() {
        if let Some(path) = line.strip_prefix("SF:") {
            let path = PathBuf::from(path);
            file = path.strip_prefix(root).ok().map(|path| path.display().to_string());
        } else if let Some(file) = &file
            && let Some((line, count)) = line.strip_prefix("DA:").and_then(|da| da.split_once(','))
            && let (Ok(line), Ok(count)) = (line.parse(), count.parse::<u64>())
        {
            *counts.entry(file.clone()).or_default().entry(line).or_default() += count;
        }
    }
    counts
}

/// Describes which rules were executed. `sources` contains the text of each file.
fn report(
    cited: &Places,
    sources: &BTreeMap<String, String>,
    counts: &Counts,
    unreached: &str,
) -> Result<String> {
    let most = |places: &Vec<(String, usize)>| {
        let times =
            |(file, line): &(String, usize)| executed(sources.get(file)?, counts.get(file)?, *line);
        places.iter().filter_map(times).max()
    };
    let measured: BTreeMap<&str, u64> =
        cited.iter().filter_map(|(rule, places)| Some((&**rule, most(places)?))).collect();
    let excluded: BTreeSet<_> =
        unreached.lines().filter_map(|line| Some(line.split_once(": ")?.0)).collect();
    let missed: BTreeSet<_> =
        measured.iter().filter(|&(_, &times)| times == 0).map(|(&rule, _)| rule).collect();
    let missing = missed.difference(&excluded).map(|rule| {
        let places = cited[*rule].iter().map(|(file, line)| format!("{file}:{line}"));
        format!("{rule} was not executed: {}", places.collect::<Vec<_>>().join(", "))
    });
    let stale = excluded.difference(&missed);
    let stale = stale
        .map(|rule| format!("{rule} is listed as unreached, but was executed or is not cited"));
    let wrong: Vec<_> = missing.chain(stale).collect();
    if !wrong.is_empty() {
        return Err(wrong.join("\n       ").into());
    }
    Ok(format!(
        "{} rules are cited in the code of the simulated client: {} executed, 0 missing, {} excluded",
        measured.len(),
        measured.len() - missed.len(),
        excluded.len()
    ))
}

/// Returns the number of executions of the code that a comment in this line is about: the code in
/// that line, or the next code before an empty line. `None` if there is none.
fn executed(source: &str, counts: &BTreeMap<usize, u64>, line: usize) -> Option<u64> {
    let lines = source.lines().map(str::trim).enumerate().skip(line - 1);
    let is_code = |text: &str| !text.starts_with("//") && !text.starts_with("#[");
    let mut block =
        lines.take_while(|(_, text)| !text.is_empty()).filter(|(_, text)| is_code(text));
    block.clone().next().filter(|(_, text)| !is_declaration(text))?;
    block.find_map(|(index, _)| counts.get(&(index + 1)).copied())
}

/// Returns whether a line begins an item that contains no code of its own.
fn is_declaration(line: &str) -> bool {
    let words = line.split(' ').skip_while(|word| word.starts_with("pub"));
    let words: Vec<_> = words.take(2).collect();
    match words[..] {
        ["const", next] => next != "fn",
        [first, ..] => ["enum", "mod", "static", "struct", "trait", "type"].contains(&first),
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "\
// A-1: about the function
fn one() {
    two(); // A-2
}

/// A-3
const THREE: u8 = 3;

fn four() {
    // A-4
    five();
}

/// A-5
#[expect(dead_code)]
pub(crate) trait Five {
    fn five() {}
}
";
    const LCOV: &str = "\
SF:/tree/a.rs
DA:2,7
DA:3,0
DA:9,1
DA:11,0
DA:15,1
DA:17,0
end_of_record
SF:/elsewhere/b.rs
DA:1,1
";

    fn reported(unreached: &str) -> Result<String, String> {
        let cited = [("A-1", 1), ("A-2", 3), ("A-3", 6), ("A-4", 10), ("A-5", 14)];
        let cited = cited.map(|(rule, line)| (rule.to_owned(), vec![("a.rs".to_owned(), line)]));
        let sources = BTreeMap::from([("a.rs".to_owned(), SOURCE.to_owned())]);
        let counts = parse(LCOV, Path::new("/tree"));
        report(&cited.into(), &sources, &counts, unreached).map_err(|error| error.to_string())
    }

    #[test]
    fn rules_whose_code_did_not_run_need_a_reason() {
        let error = reported("A-2: a reason").unwrap_err();
        assert_eq!(error, "A-4 was not executed: a.rs:10");
        let report = reported("A-2: a reason\nA-4: a reason").unwrap();
        assert!(report.starts_with("3 rules are cited"), "{report}");
        assert!(report.ends_with("1 executed, 0 missing, 2 excluded"), "{report}");
    }

    #[test]
    fn a_reason_for_a_rule_whose_code_ran_or_that_is_not_cited_is_an_error() {
        for rule in ["A-1", "A-3", "A-5", "A-6"] {
            let error = reported(&format!("A-2: x\nA-4: x\n{rule}: x")).unwrap_err();
            assert!(error.starts_with(&format!("{rule} is listed as unreached")), "{error}");
        }
    }
}
