use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use sdam::{
    Criteria, Runtime, Topology,
    sim::{Blueprint, Sim, action::Target},
};
use sdam_core::{event::EventName, options::Options, time::UnixTime};
use sdam_events::record::{Origin, RecordSink};

use super::Recording;

/// The wall-clock time at which simulations begin: 2024-01-01T00:00:00Z.
pub(crate) const WALL: Duration = Duration::from_secs(1_704_067_200);

/// A client of a simulated deployment that records what it observes.
pub(crate) struct Client {
    pub(crate) topology: Topology,
    sink: Arc<RecordSink<Vec<u8>>>,
}

impl Client {
    /// Starts a client of the simulated set.
    pub(crate) fn start(sim: &Sim) -> Self {
        let wall = UNIX_EPOCH + WALL + Duration::from_nanos(sim.now().as_nanos());
        Self::of(&sim.uri(), sim.runtime(), wall)
    }

    /// Starts a client of the deployment `uri`.
    pub(crate) fn of(uri: &str, runtime: Runtime, wall: SystemTime) -> Self {
        let options = Options::parse(uri).unwrap();
        let origin = Origin::at(runtime.backend.clock.now(), wall);
        let sink = RecordSink::with_origin(Vec::new(), &options, &origin).unwrap();
        let sink = Arc::new(sink.with_selections());
        let builder = Topology::builder(uri).unwrap();
        let topology = builder.sink(Arc::clone(&sink)).start(runtime);
        Self { topology: topology.unwrap(), sink }
    }

    /// Waits until the client knows a primary or, if `known` is false, until it knows none.
    pub(crate) async fn wait_for_primary(&self, known: bool) {
        let found = self.topology.wait_for(
            |now| (now.description().primary().is_some() == known).then_some(()),
            Duration::from_secs(60),
        );
        found.await.unwrap();
    }

    /// Stops the client and returns its recording.
    pub(crate) async fn stop(self) -> Vec<u8> {
        self.topology.close().await;
        drop(self.topology);
        let sink = Arc::into_inner(self.sink).unwrap();
        sink.finish().unwrap()
    }
}

/// Returns a simulated set of three members.
pub(crate) fn simulation() -> Sim {
    Sim::new(7, &Blueprint::replica_set(3))
}

/// Waits for `time` to pass in virtual time.
pub(crate) async fn pass(sim: &Sim, time: Duration) {
    sim.runtime().backend.clock.sleep_until(sim.now() + time).await;
}

/// Returns the recording of a client during a failover: the primary dies, a new primary takes over,
/// and the old primary returns as a secondary. An operation of this client waits for the new
/// primary.
pub(crate) fn failover() -> Vec<u8> {
    let sim = simulation();
    sim.block_on(async {
        let client = Client::start(&sim);
        client.wait_for_primary(true).await;
        pass(&sim, Duration::from_secs(15)).await;
        sim.kill(Target::Primary).unwrap();
        let members = sim.status().members;
        let old = members.iter().find(|member| !member.running).unwrap().id;
        client.wait_for_primary(false).await;
        client.topology.select(&Criteria::write()).await.unwrap();
        pass(&sim, Duration::from_secs(5)).await;
        sim.restart(Target::Member(old)).unwrap();
        pass(&sim, Duration::from_secs(15)).await;
        client.stop().await
    })
}

#[test]
fn a_recording_has_the_events_with_their_wall_clock_times() {
    let bytes = failover();
    let recording = Recording::parse("in.jsonl", &bytes).unwrap();
    assert_eq!(recording.options.replica_set.as_deref(), Some("rs0"));
    assert_eq!(recording.defect, None);
    let count = bytes.split_inclusive(|byte| *byte == b'\n').count() as u64;
    let mut lines = recording.lines.clone();
    assert_eq!(recording.events.len(), lines.len());
    lines.dedup();
    assert!(lines.into_iter().eq(2..=count), "each line is an event");
    let names: Vec<_> = recording.events.iter().map(|it| it.kind.name()).collect();
    assert_eq!(names.first(), Some(&EventName::Input));
    assert_eq!(names.last(), Some(&EventName::TopologyClosed));
    assert!(names.contains(&EventName::ServerHeartbeatFailed));
    assert!(recording.events.is_sorted_by_key(|event| event.at));
    assert!(recording.span() > Duration::from_secs(5));
    let wall = |at| recording.wall(at).unwrap();
    assert_eq!(wall(recording.start()), unix(WALL));
    assert_eq!(wall(recording.end()), unix(WALL + recording.span()));
}

/// Returns the wall-clock time `since` after 1970.
pub(crate) fn unix(since: Duration) -> UnixTime {
    UnixTime::from_millis(u64::try_from(since.as_millis()).unwrap())
}

#[test]
fn times_of_day_are_those_of_the_events_after_the_recorder_was_suspended() {
    // The wall clock of the recorder jumps in the middle, as after a suspension.
    let text = String::from_utf8(failover()).unwrap();
    let lines: Vec<_> = text.split_inclusive('\n').collect();
    let (before, after) = lines.split_at(lines.len() / 2);
    let after = after.concat().replace("\"time\":\"2024-", "\"time\":\"2025-");
    let recording = Recording::parse("in.jsonl", (before.concat() + &after).as_bytes()).unwrap();
    assert_eq!(recording.defect, None);
    assert_eq!(recording.wall(recording.start()).unwrap(), unix(WALL));
    let year = Duration::from_secs(366 * 24 * 60 * 60);
    let end = unix(WALL + year + recording.span()).as_millis();
    // The time of an event has been rounded to milliseconds.
    assert!(recording.wall(recording.end()).unwrap().as_millis().abs_diff(end) <= 1);
}

#[test]
fn a_long_recording_and_that_of_a_killed_program_are_used_up_to_the_last_whole_line() {
    let bytes = failover();
    let whole = Recording::parse("in.jsonl", &bytes).unwrap();
    let length = bytes.len() - 5;
    let long = Recording::read("in.jsonl".to_owned(), &*bytes, length as u64).unwrap();
    let killed = Recording::parse("in.jsonl", &bytes[..length]).unwrap();
    assert_ne!(killed.digest, whole.digest);
    let last = whole.lines.last().unwrap();
    for (cut, defect) in [
        (long, format!("it is longer than {length} bytes, and the rest is left out")),
        (killed, format!("the end of line {last}, the last one, is missing")),
    ] {
        assert_eq!(cut.events.len(), whole.events.len() - 1);
        assert_eq!(cut.defect, Some(defect));
    }
}

#[test]
fn a_recording_with_other_conclusions_is_used_up_to_there() {
    let text = String::from_utf8(failover()).unwrap();
    let found = r#""new":{"type":"ReplicaSetWithPrimary""#;
    let before = text[..text.find(found).unwrap()].matches('\n').count();
    let other = text.replacen(found, r#""new":{"type":"Sharded""#, 1);
    let recording = Recording::parse("in.jsonl", other.as_bytes()).unwrap();
    assert_eq!(recording.lines.last(), Some(&(before as u64)));
    let defect = recording.defect.unwrap();
    assert!(defect.contains("what follows is left out"), "{defect}");
}

#[test]
fn a_refusal_names_the_file_the_line_and_the_remedy() {
    let check = |bytes: &[u8], expected: &str| {
        let message = Recording::parse("in.jsonl", bytes).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    };
    check(
        b"",
        "in.jsonl: line 1 of the recording: the recording is empty; `sdam watch --record FILE` makes",
    );
    check(b"\x89PNG\r\n\x1a\n", "in.jsonl: line 1 of the recording: ");
    check(b"{}\n", "missing field `recording`; `sdam watch --record FILE`");
    let header = failover().iter().position(|byte| *byte == b'\n').unwrap();
    let bytes = [&failover()[..=header], b"{\"seq\":1}\n"].concat();
    check(&bytes, "in.jsonl: line 2 of the recording: column 9: missing");
}
