//! `cargo xtask foreign front-door`: tests PyMongo and our client with the same settings and
//! faults.

mod parts;

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use sdam_live::or_skip;
use serde::Deserialize;
use serde_json::{Value, json};

use self::parts::{DOMAIN, Parts};
use super::{built, install, unavailable};
use crate::Result;
use crate::cargo::root;

/// The client with which ours is compared, and the library that this client uses for proxies.
const PACKAGES: [&str; 2] = ["pymongo==4.20.0", "PySocks==1.7.1"];

/// The number of cases that a client runs concurrently. Most cases mainly wait.
const AT_ONCE: usize = 12;

/// The settings and faults with which both clients connect.
const SECTIONS: &str = include_str!("front_door/cases.json");

/// A table on the page that this command writes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    title: String,
    cases: Vec<Case>,
}

/// A row of a table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    /// The connection string. A name in braces stands for the address of a server or the path of a
    /// file.
    uri: String,
    /// The strings that our client's error must contain. If there are none, our client must
    /// connect.
    #[serde(default)]
    sdam: Vec<String>,
    /// The strings that PyMongo's error must contain. If there are none, PyMongo must connect.
    #[serde(default)]
    pymongo: Vec<String>,
    /// An explanation of PyMongo's behaviour, for cases in which the clients disagree.
    #[serde(default)]
    why: String,
}

/// The error that a client reported; `None` if it connected.
type Outcome = Option<String>;

/// A case, with our client's outcome and PyMongo's.
type Row<'c> = (&'c Case, (Outcome, Outcome));

pub(super) fn run(write: bool) -> Result<()> {
    let folder = match install("front-door", &PACKAGES) {
        Ok(folder) => folder,
        Err(error) => return unavailable("PyMongo", &*error),
    };
    let connect = built("examples", ["--example", "connect"], "connect")?;
    let begun = Instant::now();
    let Some(parts) = or_skip(Parts::start())? else {
        return Ok(());
    };
    let started = begun.elapsed();
    let sections: Vec<Section> = serde_json::from_str(SECTIONS)?;
    let cases: Vec<_> = sections.iter().flat_map(|section| &section.cases).collect();
    let uris: Vec<_> = cases.iter().map(|case| uri(&parts, case)).collect();
    let pymongo = start_pymongo(&parts, &uris, &folder)?;
    let ours = connect_all(&parts, &uris, &connect)?;
    let theirs = outcomes_of(pymongo)?;
    let ours = ours.into_iter().map(|error| Some(parts.generalize(&error?)));
    let rows: Vec<Row<'_>> = cases.into_iter().zip(ours.zip(theirs)).collect();
    println!(
        "{} cases with both clients in {:.1} s, of which servers took {:.1} s to start",
        rows.len(),
        begun.elapsed().as_secs_f32(),
        started.as_secs_f32(),
    );
    match rows.iter().map(report).sum::<usize>() {
        0 => {}
        wrong => return Err(format!("{wrong} outcomes are not as expected").into()),
    }
    let page = page(&sections, &rows);
    print!("{page}");
    if write {
        fs::write(root().join("docs/front-door.md"), page)?;
    }
    Ok(())
}

/// Prints the unexpected outcomes of a case, and returns their number.
fn report((case, (ours, theirs)): &Row<'_>) -> usize {
    let clients = [("sdam", ours, &case.sdam), ("PyMongo", theirs, &case.pymongo)];
    let wrong = clients.into_iter().filter_map(|(client, outcome, expected)| {
        let wrong = check(outcome.as_deref(), expected).err()?;
        println!("FAILED  {} ({}): {client} {wrong}", case.name, case.uri);
        Some(wrong)
    });
    wrong.count()
}

/// Returns the connection string for a case. Clients that are expected to fail get short timeouts.
fn uri(parts: &Parts, case: &Case) -> String {
    let connects = case.sdam.is_empty() && case.pymongo.is_empty();
    let limit = if connects { 30_000 } else { 2_000 };
    let uri = parts.fill(&case.uri);
    let separator = if uri.ends_with('/') { '?' } else { '&' };
    format!("{uri}{separator}serverSelectionTimeoutMS={limit}")
}

fn check(outcome: Option<&str>, expected: &[String]) -> Result<(), String> {
    match outcome {
        None if expected.is_empty() => Ok(()),
        None => Err("connects".to_owned()),
        Some(error) if expected.is_empty() => Err(format!("fails: {error}")),
        Some(error) => match expected.iter().find(|word| !error.contains(&***word)) {
            Some(word) => Err(format!("does not say `{word}`: {error}")),
            None => Ok(()),
        },
    }
}

/// Runs the example program `connect` with each connection string, several at a time.
fn connect_all(parts: &Parts, uris: &[String], connect: &Path) -> Result<Vec<Outcome>> {
    let dns = parts.dns.address().to_string();
    let mut outcomes = Vec::new();
    for uris in uris.chunks(AT_ONCE) {
        let start = |uri| {
            Command::new(connect)
                .args(["--dns", &dns, "--loopback", DOMAIN, uri])
                .stdin(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
        };
        let started: Vec<_> = uris.iter().map(|uri| start(uri)).collect();
        for child in started {
            let output = child?.wait_with_output()?;
            let error = String::from_utf8(output.stderr)?.trim().to_owned();
            outcomes.push((!output.status.success()).then_some(error));
        }
    }
    Ok(outcomes)
}

/// Starts the Python program, which connects with PyMongo.
fn start_pymongo(parts: &Parts, uris: &[String], folder: &Path) -> Result<Child> {
    let case = |uri: &String| json!({ "uri": uri, "proxy": proxy(uri) });
    let cases: Vec<_> = uris.iter().map(case).collect();
    let dns = parts.dns.address().to_string();
    let given = json!({ "dns": dns, "domain": DOMAIN, "cases": cases, "at_once": AT_ONCE });
    let mut python = Command::new("python3");
    python
        .args(["-W", "ignore"])
        .arg(root().join("proof/foreign/pymongo/front_door.py"))
        .env("PYTHONPATH", folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = python.spawn()?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(given.to_string().as_bytes())?;
    }
    Ok(child)
}

fn outcomes_of(pymongo: Child) -> Result<Vec<Outcome>> {
    let output = pymongo.wait_with_output()?;
    if !output.status.success() {
        return Err(format!("PyMongo's program failed: {}", output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Returns the proxy options in a connection string. PyMongo does not know these options, so the
/// Python program needs them separately.
fn proxy(uri: &str) -> Value {
    let option = |name: &str| {
        let (_, options) = uri.split_once('?')?;
        options.split('&').find_map(|option| option.strip_prefix(name)?.strip_prefix('='))
    };
    let Some((host, port)) = option("proxyHost").zip(option("proxyPort")) else {
        return Value::Null;
    };
    json!({
        "address": format!("{host}:{port}"),
        "user": option("proxyUsername"),
        "password": option("proxyPassword"),
    })
}

/// Returns the page that lists all cases.
fn page(sections: &[Section], rows: &[Row<'_>]) -> String {
    let mut page = String::from(HEAD);
    let mut rows = rows.iter();
    for Section { title, cases } in sections {
        page.extend(["\n## ", title, "\n\n", COLUMNS]);
        for (case, (ours, _)) in rows.by_ref().take(cases.len()) {
            page.push_str(&row(case, ours.as_deref()));
        }
    }
    page
}

fn row(case: &Case, ours: Option<&str>) -> String {
    let outcome = match (ours, &*case.why) {
        (None, _) => "connect".to_owned(),
        (Some(_), "") => "fail".to_owned(),
        (Some(_), why) => format!("sdam fails; PyMongo {why}"),
    };
    let cell = |text: &str| text.replace('|', "\\|").replace('\n', " ");
    // The rest is omitted, because it contains the time for which the client waited.
    let error = ours.unwrap_or_default();
    let reason = error.split("; gave up after").next().unwrap_or(error);
    let uri = cell(&case.uri);
    format!("| {} | `{uri}` | {outcome} | {} |\n", case.name, cell(reason))
}

const HEAD: &str = "\
# The front door: sdam beside PyMongo

Both clients connect with the same settings to the same servers, proxies and DNS server.
They have to agree on connecting, unless the table says why not, and the error of sdam has to name the cause.
`cargo xtask foreign front-door --write` runs all cases and writes this page.

A name in braces stands for a server or a file: `{expired}` is a `mongod` with an expired certificate.
Where a selection timed out, the table has the last error of the server; the time and the hint that follow are left out.
";

const COLUMNS: &str = "\
| case | connection string | both clients | error of sdam |
| --- | --- | --- | --- |
";
