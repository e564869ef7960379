//! Measures the time from the start of a client until it has found the primary, and until its first
//! ping is answered, on a real replica set whose primary is the seed.
//!
//! Each client runs in its own process.

#![expect(clippy::unwrap_used, reason = "a panic fails the benchmark")]

use std::{env, process::Command, time::Instant};

use bson::doc;
use sdam::{Criteria, Topology, client::Command as Operation};
use sdam_live::{MemberSpec, ReplicaSet, or_skip};

/// The number of clients of each kind.
const CLIENTS: usize = 60;

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["client", early, uri] = words[..] {
        client(uri, early == "early");
        return;
    }
    let is_filter = |word: &&&str| !word.starts_with('-') && word.parse::<f64>().is_err();
    let filter = words.iter().rev().find(is_filter).copied().unwrap_or("");
    if !"first/".contains(filter) && !filter.starts_with("first/") {
        return;
    }
    let members = [MemberSpec::default(), MemberSpec::default(), MemberSpec::default()];
    let Some(set) = or_skip(ReplicaSet::start(None, &members)).unwrap() else {
        return;
    };
    set.wait_until_settled().unwrap();
    let primary = set.member(set.primary().unwrap()).host();
    measure(&format!("mongodb://{primary}/?replicaSet={}", set.name()));
}

/// Measures clients of each kind, alternating between the kinds.
fn measure(uri: &str) {
    let own = env::current_exe().unwrap();
    let mut kinds = ["early", "late"].map(|name| (name, Vec::new()));
    for _ in 0..CLIENTS {
        for (name, times) in &mut kinds {
            let output = Command::new(&own).args(["client", name, uri]).output().unwrap();
            assert!(output.status.success(), "{name}: {output:?}");
            let text = String::from_utf8(output.stdout).unwrap();
            let mut numbers = text.split_whitespace().map(|number| number.parse().unwrap());
            let pair: (f64, f64) = (numbers.next().unwrap(), numbers.next().unwrap());
            times.push(pair);
        }
    }
    let [early, late] = kinds.map(|(name, times)| {
        let medians = (median(&times, |pair| pair.0), median(&times, |pair| pair.1));
        print(name, "primary", medians.0, "us");
        print(name, "ping", medians.1, "us");
        medians
    });
    print("early_over_late", "primary", early.0 / late.0, "ratio");
    print("early_over_late", "ping", early.1 / late.1, "ratio");
}

fn median(times: &[(f64, f64)], of: impl Fn(&(f64, f64)) -> f64) -> f64 {
    let mut times: Vec<_> = times.iter().map(of).collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn print(kind: &str, what: &str, value: f64, unit: &str) {
    println!("bench: first/{kind}/{what} {value:.2} {unit}");
}

/// Starts a client, and prints its times in microseconds.
fn client(uri: &str, early: bool) {
    let ping = doc! { "ping": 1 }.to_vec().unwrap();
    let ping = Operation::new("admin", &ping);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let started = Instant::now();
        let builder = Topology::builder(uri).unwrap();
        let builder = builder.options(|options| options.early_dial = early);
        let client = builder.client(sdam_runtime_tokio::current().unwrap()).unwrap();
        drop(client.topology().select(&Criteria::write()).await.unwrap());
        let selected = started.elapsed();
        client.run(&ping).await.unwrap();
        println!("{} {}", selected.as_micros(), started.elapsed().as_micros());
        client.close().await;
    });
}
