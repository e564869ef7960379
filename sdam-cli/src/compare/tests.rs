use std::{
    fs,
    path::PathBuf,
    time::{Duration, UNIX_EPOCH},
};

use sdam::{
    Criteria,
    sim::{Sim, action::Target},
};
use serde_json::Value;
use tempfile::TempDir;

use super::{Arguments, Subject, run, views};
use crate::{
    exit::Exit,
    recording::tests::{Client, WALL, pass, simulation},
    testing::capture,
};

/// Recordings in a temporary folder.
struct Files(TempDir);

impl Files {
    fn new(recordings: &[Vec<u8>]) -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        for (recording, number) in recordings.iter().zip(1..) {
            fs::write(files.path(number), recording).unwrap();
        }
        files
    }

    fn path(&self, number: usize) -> PathBuf {
        self.0.path().join(format!("{number}.jsonl"))
    }

    /// Compares the first two recordings. Returns the exit code, and the text from both streams.
    fn compare(&self, tolerance: u64, json: bool) -> (Exit, String) {
        let arguments = Arguments {
            recordings: [1, 2].map(|number| self.path(number)).into(),
            tolerance: Duration::from_millis(tolerance),
            json,
        };
        let (output, remarks, exit) =
            capture(|console| run(&arguments, console.output, console.remarks));
        (exit.unwrap(), output + &remarks)
    }
}

/// Starts a client at `vantage` that polls every 10 seconds and whose clock is fast by `skew`.
fn polling(sim: &Sim, vantage: &str, skew: Duration) -> Client {
    let uri = format!("{}&serverMonitoringMode=poll", sim.uri());
    let wall = UNIX_EPOCH + WALL + skew + Duration::from_nanos(sim.now().as_nanos());
    Client::of(&uri, sim.runtime(), wall, vantage)
}

/// Returns the recordings of two clients; the second client learns of a failover later.
fn late() -> [Vec<u8>; 2] {
    let sim = simulation();
    sim.block_on(async {
        let one = Client::start(&sim, "near", Duration::ZERO);
        let other = polling(&sim, "far", Duration::from_secs(90));
        pass(&sim, Duration::from_secs(12)).await;
        sim.kill(Target::Primary).unwrap();
        one.wait_for_primary(false).await;
        one.topology.select(&Criteria::write()).await.unwrap();
        pass(&sim, Duration::from_secs(15)).await;
        [one.stop().await, other.stop().await]
    })
}

#[test]
fn clients_that_learn_of_a_failover_at_different_times_disagree() {
    let files = Files::new(&late());
    let (exit, json) = files.compare(500, true);
    assert_eq!(exit, Exit::DISAGREED);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["agreed"], false);
    let far = &json["clients"][1];
    assert_eq!((&far["name"], &far["clockEvidence"]), (&"far".into(), &"localTime".into()));
    let (ahead, uncertainty) = (&far["clockAhead"], &far["clockUncertainty"]);
    let error = (ahead.as_f64().unwrap() - 90.0).abs();
    assert!(error <= uncertainty.as_f64().unwrap(), "{ahead} {uncertainty}");
    let all = json["disagreements"].as_array().unwrap();
    let long: Vec<_> = all.iter().filter(|it| it["exceedsTolerance"] == true).collect();
    let about: Vec<_> = long.iter().map(|it| (&it["about"], &it["server"])).collect();
    assert_eq!(about[0], (&"primary".into(), &Value::Null));
    assert!(about.contains(&(&"type".into(), &"a:27017".into())), "{about:?}");
    let first = &long[0]["views"][0]["views"];
    assert_eq!((&first["near"], &first["far"]), (&Value::Null, &"a:27017".into()));
    let seconds = long[0]["seconds"].as_f64().unwrap();
    assert!((0.5..10.5).contains(&seconds), "{seconds}");
    let from = long[0]["from"].as_str().unwrap();
    assert!(from.starts_with("2023-11-14T22:13:32"), "{from}");
}

#[test]
fn the_text_names_the_clocks_each_view_and_the_longest_disagreement() {
    let files = Files::new(&late());
    let (exit, text) = files.compare(500, false);
    assert_eq!(exit, Exit::DISAGREED);
    for part in [
        "2 clients, together from 2023-11-14T22:13:20.",
        "): its clock is the reference",
        "): its clock is 90.0 s ahead \u{b1} ",
        "by the times in the replies of 3 servers; taken out",
        "the primary: ",
        "near none, far a:27017",
        "longer than the tolerance of 500 ms.",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (exit, text) = files.compare(60_000, false);
    assert_eq!(exit, Exit::SUCCESS);
    let verdict = text.lines().next().unwrap();
    assert!(verdict.ends_with(", within the tolerance of 60.0 s."), "{text}");
    assert!(!text.contains("Most saw"), "neither of two is the outlier: {text}");
}

#[test]
fn clients_with_different_clocks_that_see_the_same_agree() {
    let sim = simulation();
    let recordings = sim.block_on(async {
        let one = Client::start(&sim, "same", Duration::ZERO);
        let other = Client::start(&sim, "same", Duration::from_millis(3210));
        pass(&sim, Duration::from_secs(5)).await;
        sim.step_down().unwrap();
        pass(&sim, Duration::from_secs(20)).await;
        [one.stop().await, other.stop().await]
    });
    let files = Files::new(&recordings);
    let (exit, text) = files.compare(100, false);
    assert_eq!(exit, Exit::SUCCESS, "{text}");
    assert!(text.contains("its clock is 3.21"), "{text}");
    let name = files.path(2).display().to_string();
    assert!(text.contains(&format!("  {name} ({name}): ")), "{text}");
}

#[test]
fn clients_of_different_deployments_share_no_server() {
    let client = |subject| views::Client::with_views(subject, &[(0, Some("RSPrimary"))]);
    let server = |address: &str| client(Subject::Server(address.to_owned()));
    assert!(server("a").shares_a_server_with(&server("a")));
    assert!(!server("a").shares_a_server_with(&server("b")));
    let primary = || client(Subject::Primary);
    assert!(!primary().shares_a_server_with(&primary()));
}

#[test]
fn recordings_that_cannot_be_compared_are_refused_with_the_reason() {
    let [one, other] = late();
    let text = String::from_utf8(other.clone()).unwrap();
    let (before, rest) = text.split_once("\"epoch\":").unwrap();
    let (_, options) = rest.split_once(",\"vantage\"").unwrap();
    let unknown = format!("{before}\"epoch\":null,\"vantage\"{options}");
    let check = |second: &[u8], reason: &str| {
        let files = Files::new(&[one.clone(), second.to_vec()]);
        let (exit, text) = files.compare(500, false);
        assert_eq!(exit, Exit::CONFIGURATION);
        assert!(text.contains(reason), "{text}");
        assert!(text.contains("2.jsonl"), "{text}");
    };
    check(unknown.as_bytes(), "does not tell its wall-clock time; record again");
    check(b"{}", "line 1 of the recording");
    let sim = simulation();
    let later = sim.block_on(async {
        pass(&sim, Duration::from_secs(1000)).await;
        let client = Client::start(&sim, "later", Duration::ZERO);
        pass(&sim, Duration::from_secs(5)).await;
        client.stop().await
    });
    check(&later, "the recordings have no time in common");
}
