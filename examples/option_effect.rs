//! Shows the effect of an option on a failover, in virtual time.
//!
//! The primary of a replica set freezes: its connections stay open, but it does not answer. The
//! example measures the duration of an insert that begins at this moment: with the default options,
//! with the options of the command line, and with a detector, which a connection string cannot
//! configure.
//!
//! Run it with `cargo run -p sdam-examples --example option_effect ['NAME=VALUE&...']`.

use std::{env, error::Error, ops::Range, time::Duration};

use bson::rawdoc;
use sdam::{
    Options, TopologyBuilder,
    client::Command,
    options::Detector,
    sim::{Action, Blueprint, Sim, action::Target},
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The seeds of the simulations. The order of events, and the time of the freeze between two
/// heartbeats, differ between seeds.
const SEEDS: Range<u64> = 0..20;

/// Returns how long the insert takes.
fn insert(seed: u64, options: &str, detector: Option<Detector>) -> Result<Duration> {
    let sim = Sim::new(seed, &Blueprint::replica_set(3));
    let mut options = Options::parse(&format!("{}&{options}", sim.uri()))?;
    options.detector = detector;
    let command = rawdoc! { "insert": "people", "documents": [{ "name": "Ada" }] };
    let command = Command::write("test", command.as_bytes());
    sim.block_on(async {
        let client = TopologyBuilder::new(options).client(sim.runtime())?;
        client.run(&command).await?;
        let moment = sim.now() + Duration::from_secs(15) + Duration::from_millis(500 * seed);
        sim.runtime().backend.clock.sleep_until(moment).await;

        sim.apply(&Action::Freeze(Target::Primary))?;
        client.run(&command).await?;
        let took = sim.now().since(moment);
        client.close().await;
        Ok(took)
    })
}

/// Returns the times of the inserts with all seeds, the shortest one first.
fn inserts(options: &str, detector: Option<Detector>) -> Result<Vec<Duration>> {
    let times = SEEDS.map(|seed| insert(seed, options, detector));
    let mut times = times.collect::<Result<Vec<_>>>()?;
    times.sort_unstable();
    Ok(times)
}

fn main() -> Result<()> {
    let options = env::args().nth(1);
    let options = options.as_deref().unwrap_or("heartbeatFrequencyMS=2000&connectTimeoutMS=2000");
    for (name, options, detector) in [
        ("the defaults", "", None),
        (options, options, None),
        ("the detector", "", Some(Detector::PROBING)),
    ] {
        let times = inserts(options, detector)?;
        let [shortest, median, longest] = [0, times.len() / 2, times.len() - 1].map(|at| times[at]);
        println!("{name}: {median:.1?} in the median, {shortest:.1?} to {longest:.1?}");
    }
    Ok(())
}

#[test]
fn a_silent_primary_is_left_sooner_with_short_timeouts_and_with_a_detector() -> Result<()> {
    let median = |options: &str, detector| -> Result<Duration> {
        let times = inserts(options, detector)?;
        Ok(times[times.len() / 2])
    };
    let default = median("", None)?;
    let short = median("heartbeatFrequencyMS=2000&connectTimeoutMS=2000", None)?;
    let detected = median("", Some(Detector::PROBING))?;
    // The members wait for ten seconds before they elect another primary.
    assert!(detected < Duration::from_secs(15), "{detected:?}");
    assert!(short < default && detected < default, "{short:?} {detected:?} {default:?}");
    Ok(())
}
