//! Checks that replaying the recorded inputs of a run reproduces its events.

use std::error::Error;

use sdam_core::{
    event::{Event, EventName},
    options::Options,
};
use sdam_events::{
    record::RecordSink,
    replay::replay_to,
    sink::{EventSink, Interest},
};
use sdam_sim::oracle::{Oracle, Violation};

/// Events that a replay does not reproduce, because they do not follow from the recorded inputs.
const NOT_REPEATED: Interest = Interest::of(&[EventName::Input, EventName::ConfigWarning]);

/// Records `events` and checks that a replay reproduces all of them. Heartbeat events and measured
/// round-trip times are not recorded, so the replay derives them from the recorded inputs.
pub(crate) fn check(options: &Options, events: &[Event]) -> Result<(), Violation> {
    let end = events.last().map(|event| event.at).unwrap_or_default();
    let difference = match difference(options, events) {
        Ok(difference) => difference,
        Err(error) => Some(error.to_string()),
    };
    difference.map_or(Ok(()), |difference| Err(Oracle::Replay.violated(end, difference)))
}

fn difference(options: &Options, events: &[Event]) -> Result<Option<String>, Box<dyn Error>> {
    let sink = RecordSink::new(Vec::new(), options)?;
    let interest = sink.interest();
    let recorded = events.iter().filter(|event| interest.contains(event.kind.name()));
    for event in recorded.clone() {
        sink.emit(event);
    }
    let mut replayed = Vec::new();
    let outcome = replay_to(&*sink.finish()?, |_, event| {
        if event.kind.name() == EventName::RttMeasured {
            replayed.push(event.kind.clone());
        }
    })?;
    if let Some(divergence) = outcome.divergence {
        return Ok(Some(format!("the replay differs: {divergence}")));
    }
    let repeated =
        recorded.filter(|event| !NOT_REPEATED.contains(event.kind.name())).count() as u64;
    if outcome.matched != repeated {
        let matched = outcome.matched;
        return Ok(Some(format!("{matched} of {repeated} events are repeated")));
    }
    let measured =
        events.iter().map(|event| &event.kind).filter(|kind| kind.name() == EventName::RttMeasured);
    let is_same = measured.eq(&replayed);
    Ok((!is_same).then(|| "other round-trip times are measured".to_owned()))
}
