use std::{fs, path::Path};

use serde_json::Value;

use super::*;
use crate::{
    cli::tests::{compare, replay, report, sim, watch},
    recording::Recording,
    testing::{block_on, capture},
};

/// Runs a simulation; returns the output, the remarks and the exit code.
fn simulate(words: &[&str]) -> (String, String, Exit) {
    let (output, remarks, exit) = capture(|console| run(&sim(words), console));
    (output, remarks, exit.unwrap())
}

/// A folder with the file `faults.txt`.
struct Folder(tempfile::TempDir);

impl Folder {
    fn with(scenario: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("faults.txt"), scenario).unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// Simulates the scenario.
    fn simulate(&self, words: &[&str]) -> (String, String, Exit) {
        let path = self.path("faults.txt");
        simulate(&[&["--scenario", &path], words].concat())
    }
}

/// Returns the last lines, which describe the outcome, without line breaks.
fn outcome(output: &str) -> String {
    let start = output.rfind("seed ").unwrap();
    output[start..].split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn without_a_scenario_the_primary_dies_and_comes_back() {
    let (output, remarks, exit) = simulate(&[]);
    assert_eq!(exit, Exit::SUCCESS);
    let scenario = "15s kill primary\n45s restart 0\n";
    assert!(remarks.ends_with(scenario), "{remarks}");
    // Notes and changes are in the order of their virtual times.
    let lines = output.lines().filter(|line| line.starts_with("00:"));
    assert!(lines.is_sorted_by_key(|line| &line[..13]), "{output}");
    assert!(output.contains("\n00:00:15.000Z  kill primary\n"), "{output}");
    assert!(output.contains("\n00:00:45.000Z  restart 0\n"), "{output}");
    assert!(output.contains("  primary lost: db0:27017\n"), "{output}");
    let outcome = outcome(&output);
    for part in [
        "seed 0: writable at the end; no primary for ",
        "; 1 flap - the first primary was found after ",
        "- 00:00:15.000Z: db0:27017 was lost by `kill primary`; noticed 0.",
        ": network error at hello: ",
        "was the new primary, ",
    ] {
        assert!(outcome.contains(part), "{part}: {outcome}");
    }
}

#[test]
fn the_same_seed_yields_the_same_bytes_and_another_one_does_not() {
    let folder = Folder::with("1s net latency 0.01 0.02 chunked\n2s kill primary\n30s net heal");
    let simulate = |seed: &str, name: &str| {
        let path = folder.path(name);
        let (lines, ..) = folder.simulate(&["--seed", seed, "--record", &path]);
        let (json, ..) = folder.simulate(&["--seed", seed, "--json"]);
        (lines, json, fs::read_to_string(path).unwrap())
    };
    let first = simulate("7", "first.jsonl");
    assert_eq!(simulate("7", "again.jsonl"), first);
    let other = simulate("8", "other.jsonl");
    assert_ne!(other.0, first.0);
    assert_ne!(other.1, first.1);
    assert_ne!(other.2, first.2);
}

/// Returns the output of `sdam watch --from`.
fn watched(words: &[&str]) -> String {
    let arguments = watch(&[words, &["--speed", "max"]].concat());
    let never = std::future::pending();
    let (output, _, exit) =
        capture(|console| block_on(crate::watch::run(&arguments, console, never)));
    assert_eq!(exit.unwrap(), Exit::SUCCESS);
    output
}

/// Returns the page of `sdam report`.
fn reported(path: &str) -> String {
    let arguments = report(&[path, "-o", "-"]);
    let (page, _, exit) =
        capture(|console| crate::report::run(&arguments, console.output, console.remarks));
    assert_eq!(exit.unwrap(), Exit::SUCCESS);
    page
}

#[test]
fn a_recording_shows_the_same_in_the_other_subcommands() {
    let folder = Folder::with("10s kill primary\n40s restart 0");
    let path = folder.path("failover.jsonl");
    let (output, ..) = folder.simulate(&["--record", &path]);
    let (json, ..) = folder.simulate(&["--json"]);
    assert_eq!(watched(&["--json", "--from", &path]), json);
    // Remove the steps and the outcome, so that only the changes are left.
    let changes = &output[..output.rfind("seed 0: ").unwrap()];
    let changes = changes.replace("00:00:10.000Z  kill primary\n", "");
    let changes = changes.replace("00:00:40.000Z  restart 0\n", "");
    assert_eq!(watched(&["--plain", "--from", &path]), changes);

    let recording = Recording::open(Path::new(&path)).unwrap();
    assert_eq!(recording.defect, None);
    let start = recording.wall(recording.start()).unwrap();
    assert_eq!(crate::log::timestamp(start), "2024-01-01T00:00:00.000Z");

    let page = reported(&path);
    assert!(page.contains("No primary for "), "the verdict is missing");

    let exit = crate::replay::run(&replay(&["--trace", &path]), io::sink(), io::sink());
    assert_eq!(exit.unwrap(), Exit::SUCCESS);
}

/// Checks a primary that freezes after its last answer at 10 s. The client reports it as silent at
/// 21 s, when a reply is a second late, and the set elects another primary at 24.58 s.
#[test]
fn a_frozen_primary_is_described_alike_by_every_subcommand() {
    let folder = Folder::with("15s freeze primary");
    let path = folder.path("frozen.jsonl");
    let (output, ..) = folder.simulate(&["--record", &path]);
    let cause = "replaced by db2:27017; last answer 14.6 s before";
    let expected = format!("by `freeze primary`; noticed 9.584 s later: {cause}");
    assert!(outcome(&output).contains(&expected), "{output}");
    let (json, ..) = folder.simulate(&["--seeds", "0..1", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    let outage = &json["outages"][0];
    assert_eq!(
        (&outage["cause"], &outage["earliestMs"]),
        (&cause.into(), &outage["lastWritableMs"])
    );

    let watched = watched(&["--plain", "--from", &path]);
    let words: Vec<_> = watched.split_whitespace().collect();
    let expected = "no primary for 3.58 s to 14.58 s: db0:27017 -> db2:27017, replaced by db2:27017; \
                    last answer 14.58 s before";
    assert!(words.join(" ").contains(expected), "{watched}");

    let page = reported(&path);
    assert!(page.contains("No primary for 3.583 s to 14.6 s: the loss was noticed late"), "{page}");
    assert!(page.contains(&format!("the client lost the primary db0:27017: {cause}.")), "{page}");
    assert!(page.contains("<b>3.583 s to 14.6 s</b> without a writable server"), "{page}");

    let files = [path.clone(), path];
    let arguments = compare(&files.each_ref().map(|path| &**path));
    let (compared, _, exit) =
        capture(|console| crate::compare::run(&arguments, console.output, console.remarks));
    assert_eq!(exit.unwrap(), Exit::SUCCESS);
    let expected = "00:00:24.584Z: no primary for 3.583 s to 14.6 s: db0:27017 -> db2:27017, ";
    assert!(compared.contains(&format!("{expected}{cause}\n")), "{compared}");
    for text in [output, watched, page, compared] {
        assert!(!text.contains("stepped down") && !text.contains("no gap"), "{text}");
    }
}

#[test]
fn a_primary_whose_step_down_is_heard_after_its_successor_was_not_silent() {
    let folder = Folder::with("0.1s net latency 0.001 0.1\n15s stepdown");
    let mut outputs = (0..40).map(|seed| folder.simulate(&["--seed", &seed.to_string()]).0);
    let output = outputs.find(|output| output.contains("no primary for up to ")).unwrap();
    let words = output.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, after) = words.split_once("no primary for up to ").unwrap();
    let expected = "no gap noticed: db0:27017 -> db1:27017: it stepped down and is RSSecondary now";
    assert!(after.contains(expected), "{output}");
    let cause = " later: it stepped down and is RSSecondary now";
    assert!(outcome(&output).contains(cause), "{output}");
}

#[test]
fn an_impossible_step_is_a_remark_with_its_line_and_the_next_one_is_taken() {
    let folder = Folder::with("kill 9\nstatus\n1s kill primary\n");
    let (output, remarks, _) = folder.simulate(&["--for", "1"]);
    let refusal = "kill 9: member 9 does not exist now";
    let expected = format!("warning: {}:1: {refusal}\n", folder.path("faults.txt"));
    assert!(remarks.ends_with(&expected), "{remarks}");
    assert!(output.contains("kill 9: not possible, member 9 does not exist now\n"));
    assert!(output.contains("0 db0:27017 primary term 1 counter "), "{output}");
    assert!(output.contains("00:00:01.000Z  kill primary\n"), "{output}");
    let (json, ..) = folder.simulate(&["--for", "1", "--seeds", "3..4", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert!(json["refused"][0].as_str().unwrap().ends_with(refusal), "{json}");
}

#[test]
fn the_exit_code_is_the_state_at_the_end() {
    let check = |scenario: &str, words: &[&str], expected: Exit, end: &str| {
        let folder = Folder::with(scenario);
        let (output, _, exit) = folder.simulate(words);
        assert_eq!(exit, expected, "{scenario} {words:?}: {output}");
        let line = outcome(&output);
        assert!(line.starts_with(&format!("seed 0: {end}")), "{line}");
        let (_, _, exit) = folder.simulate(&[words, &["--seeds", "0..2"]].concat());
        assert_eq!(exit, expected, "{scenario} {words:?} with seeds");
    };
    let always = "writable at the end; a writable server was known at all times; ";
    check("1s heal", &["--sharded", "2"], Exit::SUCCESS, always);
    check("1s kill 0", &["--load-balanced", "2"], Exit::SUCCESS, always);
    check("quit", &[], Exit::NEITHER, "neither readable nor writable at the end; no primary");
    let two = "1s kill 0\n1s kill 1";
    let readable = "readable only at the end; no primary for 30.0 s; ";
    check(two, &[], Exit::READABLE_ONLY, readable);
    let none = "neither readable nor writable at the end; no writable server for 5.0";
    check("1s kill 0", &["--standalone", "--for", "5"], Exit::NEITHER, none);
    check("1s add 3", &["--spares", "1", "--version", "4.4"], Exit::SUCCESS, "writable");
}

#[test]
fn the_time_without_a_primary_begins_with_its_loss_however_late_it_is_noticed() {
    let folder = Folder::with("13s kill primary");
    let without = |options: &str| {
        let words = ["--version", "4.2", "--options", options, "--seeds", "0..1", "--json"];
        let (json, _, exit) = folder.simulate(&words);
        assert_eq!(exit, Exit::SUCCESS);
        let json: Value = serde_json::from_str(&json).unwrap();
        let outage = &json["outages"][0];
        assert_eq!(outage["step"], "kill primary");
        assert_eq!(outage["stepMs"], 13_000.0);
        let number = |value: &Value| value.as_f64().unwrap();
        let length = number(&outage["writableAgainMs"]) - 13_000.0;
        assert!((number(&json["withoutWritableMs"]) - length).abs() < 0.01, "{json}");
        (number(&outage["noticedMs"]), length)
    };
    // A MongoDB 4.2 server is polled every 10 s by default, so the next check after the kill is at
    // 20 s.
    let (noticed, long) = without("");
    assert!((20_000.0..20_100.0).contains(&noticed), "{noticed}");
    let (noticed, short) = without("heartbeatFrequencyMS=1000");
    assert!((13_000.0..14_100.0).contains(&noticed), "{noticed}");
    assert!(short < long, "{short} {long}");
}

#[test]
fn an_application_tells_how_its_writes_fared() {
    let folder = Folder::with("13s kill primary");
    let words = ["--write-every", "0.5", "--version", "4.2"];
    let simulate = |more: &[&str]| folder.simulate(&[&words, more].concat());
    let json = |options: &str| -> Value {
        let (json, ..) = simulate(&["--options", options, "--seeds", "0..1", "--json"]);
        serde_json::from_str(&json).unwrap()
    };
    let number = |value: &Value| value.as_f64().unwrap();
    // A write notices the loss long before the next check.
    let patient = json("");
    let noticed = number(&patient["outages"][0]["noticedMs"]);
    assert!((13_000.0..13_600.0).contains(&noticed), "{patient}");
    let writes = &patient["writes"];
    assert_eq!(writes["failed"], 0, "{patient}");
    let longest = number(&writes["longestMs"]);
    let without = number(&patient["withoutWritableMs"]);
    assert!((without - 600.0..without).contains(&longest), "{patient}");
    let hasty = json("serverSelectionTimeoutMS=2000");
    let writes = &hasty["writes"];
    assert!(number(&writes["failed"]) >= 3.0, "{hasty}");
    assert!((2000.0..2100.0).contains(&number(&writes["longestMs"])), "{hasty}");
    let error = writes["firstError"].as_str().unwrap();
    assert!(error.starts_with("`insert` failed"), "{error}");

    let (text, ..) = simulate(&[]);
    let outcome = outcome(&text);
    assert!(outcome.contains("; 0 of "), "{outcome}");
    assert!(outcome.contains("- 00:00:13."), "{outcome}");
    assert!(outcome.contains(": the longest write began, and took "), "{outcome}");
    let (text, ..) = simulate(&["--seeds", "0..2"]);
    let last = text.lines().last().unwrap();
    assert!(last.starts_with("writes: 0 of "), "{last}");

    // For a write that is still in progress, the time that it has taken so far counts.
    let folder = Folder::with("5s net blackhole 0");
    let words = ["--standalone", "--for", "9", "--write-every", "1"];
    let (text, ..) = folder.simulate(&words);
    assert!(text.contains(": the longest write began, and has not ended after "), "{text}");
}

#[test]
fn options_are_those_of_a_connection_string() {
    let (_, remarks, exit) = simulate(&["--options", "directConnection=true"]);
    assert_eq!(exit, Exit::CONFIGURATION);
    assert!(remarks.contains("`directConnection` is `true`"), "{remarks}");
    let words = ["--standalone", "--options", "?colour=red", "--seeds", "0..2"];
    let (_, remarks, exit) = simulate(&words);
    assert_eq!(exit, Exit::SUCCESS);
    assert_eq!(remarks.matches("warning: `colour`").count(), 1, "{remarks}");
}

#[test]
fn many_seeds_are_a_line_each_and_a_summary_that_names_seeds() {
    let (output, _, exit) = simulate(&["--seeds", "3..8"]);
    assert_eq!(exit, Exit::SUCCESS);
    let lines: Vec<_> = output.lines().collect();
    let [each @ .., ends, times] = &*lines else {
        panic!("{output}");
    };
    assert_eq!(each.len(), 5);
    for (seed, line) in (3..).zip(each) {
        assert!(line.starts_with(&format!("seed {seed}: writable at the end; ")), "{line}");
    }
    assert_eq!(*ends, "seeds 3..8: 5 writable at the end, 0 readable only, 0 neither");
    // The line for a seed shows the same time as the summary.
    let time = |line: &str| {
        let (_, rest) = line.split_once("no primary for ").unwrap();
        rest.split_once(';').unwrap().0.to_owned()
    };
    let mut parts = times.strip_prefix("no primary: ").unwrap().split(", ");
    let mut next = |end: &str| {
        let part = parts.next().unwrap();
        let (time, rest) = part.split_once(end).unwrap();
        let seed = rest.trim_matches(|letter: char| !letter.is_ascii_digit());
        (time.trim().to_owned(), seed.parse::<usize>().ok())
    };
    let (least, best) = next("at least");
    assert_eq!(least, time(each[best.unwrap() - 3]));
    let (median, _) = next("in the median");
    assert!(each.iter().any(|line| time(line) == median), "{times}");
    let (most, worst) = next("at most");
    assert_eq!(most, time(each[worst.unwrap() - 3]));
    assert_ne!(best, worst, "{times}");
}

#[test]
fn the_steps_of_scenarios_are_listed() {
    let (output, _, exit) = simulate(&["--steps"]);
    assert_eq!(exit, Exit::SUCCESS);
    for verb in ["kill MEMBER", "net blackhole MEMBER", "sleep SECONDS"] {
        assert!(output.contains(&format!("\n{verb} ")), "{output}");
    }
}
