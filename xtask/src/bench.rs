//! `cargo xtask bench`: runs the benchmarks and compares the measured figures with limits.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::Result;
use crate::cargo::{cargo, files_below, root};

/// The crates that have benchmarks.
const CRATES: &[&str] = &["sdam-core", "sdam", "sdam-cli"];

/// The limits for measured figures. A ratio should not fall below its limit; any other figure
/// should not exceed it.
const TARGETS: &[(&str, f64)] = &[
    ("hello/parse_into_description", 2_000.0),
    ("engine/select/3_members/primary", 100.0),
    ("engine/select/3_members/nearest", 150.0),
    ("engine/select/50_members/primary", 1_000.0),
    ("engine/select/50_members/nearest", 1_000.0),
    ("engine/select/1000_mongos", 10_000.0),
    ("engine/select/primary/two_threads_over_one", 1.8),
    ("engine/select/nearest/two_threads_over_one", 1.8),
    ("engine/select/nearest_and_5_us_of_work/two_threads_over_one", 1.8),
    ("engine/select/allocations_per_call", 0.0),
    ("pool/pair/sdam", 150.0),
    ("pool/pair/allocations", 0.0),
    ("pool/contended/sdam/p99.9_over_p50", 5.0),
    ("reply/3_members/instructions", 23_600.0),
    ("reply/50_members/instructions", 95_000.0),
    ("reply/1000_mongos/instructions", 58_000.0),
    ("engine/hold/1000_mongos/p99.9", 50.0),
    ("memory/1000_mongos/per_server", 5.0),
    ("push/3_members/to_event", 200.0),
    ("push/3_members/cpu", 110.0),
    ("push/50_members/cpu", 130.0),
    ("idle/memory_per_further_client", 22.0),
    ("idle/memory_per_further_server", 10.0),
    ("idle/wakeups_per_client", 0.7),
    ("export/1000_deployments/page", 1_000.0),
];

/// One measurement.
#[derive(Clone, Debug, PartialEq)]
struct Figure {
    value: f64,
    unit: String,
}

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Also write {"results":[{"name","value","unit","target"}]} to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Take shorter runs, for a first impression.
    #[arg(long)]
    quick: bool,
    /// Run only benchmarks whose name contains this text.
    #[arg(default_value = "")]
    filter: String,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let Options { json: file, quick, filter } = options;
    let folder = root().join("target/criterion");
    // The results of earlier runs are removed, because they would otherwise be included.
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let mut figures = BTreeMap::new();
    for name in CRATES {
        let printed = bench(name, *quick, filter)?;
        figures.extend(printed.lines().filter_map(own_line));
    }
    collect(&folder, &mut figures)?;
    if figures.is_empty() {
        return Err(format!("no benchmark is called `{filter}`").into());
    }
    for (name, figure) in &figures {
        println!("{}", row(name, figure));
    }
    let judged = figures.iter().filter_map(|(name, own)| Some((own, own.meets(target(name)?))));
    let judged: Vec<_> = judged.collect();
    let met = judged.iter().filter(|(_, is_met)| *is_met).count();
    println!("bench: {met} of {} targets met", judged.len());
    if let Some(file) = file {
        let result = |(name, Figure { value, unit }): (&String, &Figure)| json!({ "name": name, "value": value, "unit": unit, "target": target(name) });
        let results: Vec<Value> = figures.iter().map(result).collect();
        fs::write(file, format!("{:#}\n", json!({ "results": results })))
            .map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    }
    // Only numbers of instructions can fail the command, because times depend on the machine.
    match judged.iter().filter(|(own, is_met)| own.unit == "instructions" && !is_met).count() {
        0 => Ok(()),
        missed => Err(format!("{missed} counts of instructions are above their targets").into()),
    }
}

/// Runs the benchmarks of one crate and returns their output.
fn bench(name: &str, quick: bool, filter: &str) -> Result<String> {
    let manifest = root().join(name).join("Cargo.toml");
    let benches = fs::read_to_string(&manifest)?;
    let mut printed = String::new();
    // Each benchmark is named, because the harness of the unit tests does not know the options of
    // criterion.
    for bench in benches.split("[[bench]]").skip(1) {
        let Some(bench) = bench.split('"').nth(1) else {
            continue;
        };
        eprintln!("measuring {name} {bench}");
        let mut command = cargo();
        command.args(["bench", "--quiet", "--package", name, "--all-features"]);
        command.args(["--bench", bench, "--"]);
        if quick {
            command.args(["--warm-up-time", "0.3", "--measurement-time", "1"]);
        }
        command.arg(filter).stderr(Stdio::inherit());
        let output = command.output()?;
        if !output.status.success() {
            return Err(format!("the benchmark {bench} of {name} failed: {}", output.status).into());
        }
        printed.push_str(&String::from_utf8(output.stdout)?);
    }
    Ok(printed)
}

/// Parses a line `bench: NAME VALUE UNIT` from a benchmark that does not measure time.
fn own_line(line: &str) -> Option<(String, Figure)> {
    let mut words = line.strip_prefix("bench: ")?.split_whitespace();
    let (name, value, unit) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
    Some((name.to_owned(), Figure { value, unit: unit.to_owned() }))
}

/// Reads the medians that criterion wrote below `folder`.
fn collect(folder: &Path, figures: &mut BTreeMap<String, Figure>) -> Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    let read =
        |path: &Path| -> Result<Value> { Ok(serde_json::from_str(&fs::read_to_string(path)?)?) };
    for estimates in files_below(folder)? {
        if estimates.ends_with("new/estimates.json") {
            let benchmark = read(&estimates.with_file_name("benchmark.json"))?;
            let median = read(&estimates)?["median"]["point_estimate"].as_f64();
            if let (Some(name), Some(value)) = (benchmark["full_id"].as_str(), median) {
                figures.insert(name.to_owned(), Figure { value, unit: "ns".to_owned() });
            }
        }
    }
    Ok(())
}

impl Figure {
    /// Returns whether the figure is good enough: a ratio must not be below its target, anything
    /// else must not be above it.
    fn meets(&self, target: f64) -> bool {
        if self.is_ratio() { self.value >= target } else { self.value <= target }
    }

    fn is_ratio(&self) -> bool {
        self.unit == "ratio"
    }
}

fn target(name: &str) -> Option<f64> {
    TARGETS.iter().find(|(own, _)| *own == name).map(|(_, target)| *target)
}

fn row(name: &str, figure: &Figure) -> String {
    let Figure { value, unit } = figure;
    let verdict = target(name).map_or_else(String::new, |target| {
        let bound = if figure.is_ratio() { "least" } else { "most" };
        format!("  at {bound} {target:.1}: {}", if figure.meets(target) { "met" } else { "missed" })
    });
    format!("{name:<60} {value:>12.2} {unit:<8}{verdict}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_compared_with_their_targets() {
        let row = |name, value, unit: &str| row(name, &Figure { value, unit: unit.to_owned() });
        assert!(row("engine/select/1000_mongos", 9_999.0, "ns").ends_with("10000.0: met"));
        assert!(row("engine/select/1000_mongos", 10_001.0, "ns").ends_with("missed"));
        assert!(
            row("engine/select/primary/two_threads_over_one", 1.9, "ratio").ends_with("1.8: met")
        );
        assert!(row("another", 1.0, "ns").ends_with("ns"));
    }

    #[test]
    fn lines_of_benchmarks_that_measure_no_time_are_read() {
        let figure = Figure { value: 1.25, unit: "ratio".to_owned() };
        assert_eq!(own_line("bench: a/b 1.25 ratio"), Some(("a/b".to_owned(), figure)));
        assert_eq!(own_line("a/b 1.25 ratio"), None);
        assert_eq!(own_line("bench: a/b"), None);
    }
}
