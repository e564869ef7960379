//! Recordings of a simulated deployment, and their replay.

use sdam::runtime::UnixTime;
use sdam_events::{record::RecordSink, replay::replay};

use super::*;

const LONG: Duration = Duration::from_secs(600);

/// Returns the recording of a failover, which is simulated in the year 2024, and the events of this
/// failover.
fn recorded(seed: u64) -> (String, Vec<Event>) {
    let sim = Sim::new(seed, &replica_set().epoch_millis(1_704_067_200_000));
    let options = Options::parse(&sim.uri()).unwrap();
    let recording = Arc::new(RecordSink::new(Vec::new(), &options).unwrap());
    let (sink, events) = unbounded();
    let builder = TopologyBuilder::new(options).sink(Arc::clone(&recording));
    let builder = builder.sink(sink);
    let events = sim.block_on(async {
        let topology = builder.start(sim.runtime()).unwrap();
        topology.wait_for(complete, LONG).await.unwrap();
        sim.step_down().unwrap();
        topology.wait_for(complete, LONG).await.unwrap();
        topology.close().await;
        events.collect().await
    });
    drop(sim);
    let recording = Arc::into_inner(recording).unwrap().finish().unwrap();
    (String::from_utf8(recording).unwrap(), events)
}

#[test]
fn events_and_recordings_have_the_wall_clock_time_of_the_world() {
    let (recording, events) = recorded(11);
    assert_eq!(recording, recorded(11).0, "the wall clock is simulated, too");
    assert!(events.len() > 10);
    for event in &events {
        let millis = 1_704_067_200_000 + event.at.as_nanos() / 1_000_000;
        assert_eq!(event.time, Some(UnixTime::from_millis(millis)));
    }
    for line in recording.lines() {
        let (_, after) = line.split_once(r#""time":""#).unwrap_or((line, ""));
        assert!(after.starts_with("2024-01-01T00:0") || line.contains("\"version\""), "{line}");
    }
    let outcome = replay(recording.as_bytes()).unwrap();
    assert_eq!((outcome.divergence, outcome.cut_off), (None, None));
    assert!(outcome.matched > 10);
}
