//! Tests which messages monitors send, when and to which servers, and how checks affect pools.

mod checks;
mod silence;

use sdam::ServerDescription;
use sdam_core::event::Heartbeat;
use sdam_events::sink::sink_fn;
use sdam_sim::{Action, action::Target};
use sdam_testkit::RecordingPool;

use super::*;

const HEARTBEAT: Duration = Duration::from_secs(10);

/// A topology with a simulated set of `a`, `b` and `c`, and its recorded events and messages.
struct Harness {
    sim: Sim,
    topology: Topology<RecordingPool>,
    events: Arc<Mutex<Vec<Event>>>,
    sent: Arc<Mutex<Vec<Sent>>>,
    pools: RecordingPools,
}

impl Harness {
    /// Starts a topology with this connection string and waits until `a`, `b` and `c` are known.
    fn start(uri: &str) -> Self {
        Self::prepared(|_| (), uri)
    }

    /// Starts a topology like [`start`](Self::start), after `prepare` has changed the set.
    fn prepared(prepare: impl FnOnce(&Sim), uri: &str) -> Self {
        Self::with(prepare, Options::parse(&format!("mongodb://{uri}")).unwrap())
    }

    /// Starts a topology with these options, after `prepare` has changed the set.
    fn with(prepare: impl FnOnce(&Sim), options: Options) -> Self {
        let sim = simulation(1);
        sim.run_for(Duration::from_secs(20));
        prepare(&sim);
        let sent = record(&sim);
        let events = Arc::<Mutex<Vec<Event>>>::default();
        let recorded = Arc::clone(&events);
        let sink = sink_fn(move |event| recorded.lock().unwrap().push(event.clone()));
        let pools = RecordingPools::default();
        let topology = TopologyBuilder::new(options)
            .pools(pools.clone())
            .sink(sink.interested_in(Interest::SDAM.union(Interest::POOLS)))
            .start(sim.runtime())
            .unwrap();
        let this = Self { sim, topology, events, sent, pools };
        this.wait_for_known(3);
        this
    }

    fn wait_for(&self, met: impl Fn(&Snapshot) -> bool) {
        let met = self.topology.wait_for(|now| met(now).then_some(()), 12 * HEARTBEAT);
        let met = self.sim.block_on(met);
        assert!(met.is_some(), "not in time: {:?}", self.topology.snapshot());
        // A separate task delivers events, so let that task run first.
        self.sim.run_for(Duration::from_millis(1));
    }

    fn wait_for_known(&self, count: usize) {
        self.wait_for(|snapshot| {
            let servers = snapshot.description().servers().iter();
            let known = servers.filter(|server| server.server_type.is_available());
            known.count() == count
        });
    }

    /// Returns the description of the server at `host`.
    fn server(&self, host: &str) -> Arc<ServerDescription> {
        let snapshot = self.topology.snapshot();
        let mut servers = snapshot.description().servers().iter();
        let server = servers.find(|server| server.address.host() == host);
        Arc::clone(server.unwrap())
    }

    fn apply(&self, action: &sdam_sim::Action) {
        self.sim.apply(action).unwrap();
    }

    /// Returns the host of a member that is not the primary.
    fn secondary(&self) -> (&'static str, MemberId) {
        let primary = self.sim.status().primary().unwrap().id;
        let mut members = ["a", "b", "c"].into_iter().zip((0..3).map(MemberId));
        members.find(|(_, member)| *member != primary).unwrap()
    }

    fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap().clone()
    }

    fn sent(&self) -> Vec<Sent> {
        self.sent.lock().unwrap().clone()
    }

    /// Counts the commands of one kind that a member has received.
    fn asked(&self, member: MemberId, wanted: impl Fn(&Sent) -> bool) -> usize {
        let sent = self.sent();
        let wanted = sent.iter().filter(|sent| sent.member == member && wanted(sent));
        wanted.count()
    }

    /// Returns the checks of `host` that have succeeded since `from`, with the replies.
    fn checks(&self, host: &str, from: Instant) -> Vec<(Heartbeat, Vec<u8>)> {
        let events = self.events().into_iter();
        let checks = events.filter_map(|event| match event.kind {
            EventKind::ServerHeartbeatSucceeded { heartbeat, reply, .. } if event.at >= from => {
                Some((heartbeat, reply.to_vec()))
            }
            _ => None,
        });
        let of_host = checks.filter(|(heartbeat, _)| heartbeat.address.host() == host);
        of_host.collect()
    }
}
