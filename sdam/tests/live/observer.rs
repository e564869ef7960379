//! A topology whose events and pool calls are all recorded.

use std::{ops::Deref, time::Instant};

use sdam::{EventSink, Options, snapshot::ServerId};
use sdam_events::{record::RecordSink, replay::replay, sink::sink_fn};
use sdam_sim::oracle;

use super::*;

/// A running topology, and the record of its events and pool calls.
pub(crate) struct Observer {
    pub(crate) topology: Topology<RecordingPool>,
    options: Options,
    record: Arc<Record>,
    pools: RecordingPools,
    host: Host,
}

impl Observer {
    const INTEREST: Interest = Interest::SDAM.union(Interest::POOL_STATES).union(Interest::INPUTS);

    pub(crate) fn start(uri: &str) -> Self {
        Self::start_on(Host::start(), uri)
    }

    pub(crate) fn start_on(host: Host, uri: &str) -> Self {
        Self::build(host, Options::parse(uri).unwrap(), |builder| builder)
    }

    pub(crate) fn build(
        host: Host,
        options: Options,
        change: impl FnOnce(TopologyBuilder) -> TopologyBuilder,
    ) -> Self {
        let (record, pools) = (Arc::<Record>::default(), RecordingPools::default());
        let topology = change(TopologyBuilder::new(options.clone()))
            .sink(record.sink(Self::INTEREST))
            .pools(pools.clone())
            .start(host.runtime.clone())
            .unwrap();
        Self { topology, options, record, pools, host }
    }

    /// Waits for a description that satisfies `wanted`, which may be the current one.
    pub(crate) fn wait_for_topology(
        &self,
        what: &str,
        mark: usize,
        wanted: impl Fn(&TopologyDescription) -> bool,
    ) -> (Arc<TopologyDescription>, usize) {
        self.wait_for(what, mark, |kind| match kind {
            EventKind::TopologyDescriptionChanged { new, .. } => {
                wanted(new).then(|| Arc::clone(new))
            }
            _ => None,
        })
    }

    /// Waits until a server has this type.
    pub(crate) fn wait_for_server(&self, mark: usize, host: &str, wanted: ServerType) -> usize {
        self.wait_for(&format!("{host} to be {wanted}"), mark, |kind| match kind {
            EventKind::ServerDescriptionChanged { new, .. } => {
                (new.address.as_str() == host && new.server_type == wanted).then_some(())
            }
            _ => None,
        })
        .1
    }

    /// Returns the calls to pools so far.
    pub(crate) fn pool_calls(&self) -> Vec<(ServerId, PoolCall)> {
        self.pools.commands()
    }

    /// Closes the topology, checks the invariants on all recorded events, and replays the inputs.
    pub(crate) fn finish(self) {
        futures::executor::block_on(self.topology.close());
        oracle::audit(&self.events(), &self.pool_calls()).unwrap();
        self.replay();
        drop(self.host);
    }

    /// Replays the recorded inputs, and checks that the topology's actions follow from these alone.
    fn replay(&self) {
        let events = self.events();
        let recording = RecordSink::new(Vec::new(), &self.options).unwrap();
        for event in &events {
            recording.emit(event);
        }
        let outcome = replay(&*recording.finish().unwrap()).unwrap();
        if let Some(divergence) = outcome.divergence {
            panic!("the replay of the recording diverges: {divergence}");
        }
        let of_machine =
            Interest::DESCRIPTIONS.union(Interest::HEARTBEATS).union(Interest::POOL_STATES);
        let done = events.iter().filter(|event| of_machine.contains(event.kind.name()));
        assert_eq!(outcome.matched, done.count() as u64);
    }
}

impl Deref for Observer {
    type Target = Record;

    fn deref(&self) -> &Record {
        &self.record
    }
}

/// Every event so far, and a condition variable to wait for more.
#[derive(Debug, Default)]
pub(crate) struct Record {
    events: Mutex<Vec<Event>>,
    grown: Condvar,
}

impl Record {
    /// Returns a sink that records the events of `interest`.
    pub(crate) fn sink(self: &Arc<Self>, interest: Interest) -> impl EventSink + use<> {
        let record = Arc::clone(self);
        let sink = sink_fn(move |event| {
            record.events.lock().unwrap().push(event.clone());
            record.grown.notify_all();
        });
        sink.interested_in(interest)
    }

    /// Returns all events so far.
    pub(crate) fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap().clone()
    }

    /// Waits for the first event at or after `mark` for which `find` returns a value. Returns the
    /// value and the mark after that event.
    pub(crate) fn wait_for<T>(
        &self,
        what: &str,
        mark: usize,
        find: impl Fn(&EventKind) -> Option<T>,
    ) -> (T, usize) {
        let deadline = Instant::now() + PATIENCE;
        let mut events = self.events.lock().unwrap();
        let mut next = mark;
        loop {
            while let Some(event) = events.get(next) {
                next += 1;
                if let Some(found) = find(&event.kind) {
                    return (found, next);
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(
                !left.is_zero(),
                "waited in vain for {what}; since then: {:#?}",
                brief(&events, mark)
            );
            events = self.grown.wait_timeout(events, left).unwrap().0;
        }
    }
}

fn brief(events: &[Event], mark: usize) -> Vec<String> {
    let line = |event: &Event| match &event.kind {
        EventKind::TopologyDescriptionChanged { new, .. } => format!("topology {new}"),
        EventKind::ServerDescriptionChanged { new, .. } => format!("server {new}"),
        kind => format!("{} {:?}", kind.name().as_str(), kind.address()),
    };
    events.iter().skip(mark).map(line).collect()
}

/// Counts the events that are wanted.
pub(crate) fn count(events: &[Event], wanted: impl Fn(&EventKind) -> bool) -> usize {
    events.iter().filter(|event| wanted(&event.kind)).count()
}
