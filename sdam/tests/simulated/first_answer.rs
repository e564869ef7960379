//! Measures the time from the start of a client to its first answer, in round trips.

use sdam_sim::runtime::Latency;

use super::*;

/// The duration of a round trip.
const ROUND_TRIP: Duration = Duration::from_millis(1);

/// Returns a replica set with the user `ada`.
fn world(seed: u64, encrypted: bool) -> Sim {
    let sim = Sim::new(seed, &replica_set().user(User::new("ada", "pencil")));
    let latency = Latency { min: ROUND_TRIP / 2, spread: Duration::ZERO, chunked: false };
    sim.network().set_latency(latency);
    if encrypted {
        sim.tls().require();
    }
    sim
}

/// Starts a client whose seeds are the members from `first` on; the first member is the primary.
fn start(sim: &Sim, early: bool, first: usize) -> Topology<Pool> {
    let mut options = Options::parse(&uri_of_user(sim, "ada:pencil@")).unwrap();
    options.early_dial = early;
    options.seeds.drain(..first);
    TopologyBuilder::new(options)
        .authenticate()
        .unwrap()
        .pools(Pools::new())
        .start(sim.runtime())
        .unwrap()
}

async fn ping(topology: &Topology<Pool>) {
    let primary = topology.select(&Criteria::write()).await.unwrap();
    let mut connection = primary.pool().check_out().await.unwrap();
    let ping = doc! { "ping": 1, "$db": "admin" }.to_vec().unwrap();
    connection.run_command(&ping, None).await.unwrap();
}

/// Returns the number of round trips until the first ping is answered, rounded up.
fn round_trips(encrypted: bool, early: bool, first: usize) -> u128 {
    let of = |seed| {
        let sim = world(seed, encrypted);
        let time = sim.block_on(async {
            let topology = start(&sim, early, first);
            ping(&topology).await;
            let time = sim.now();
            topology.close().await;
            time
        });
        assert_eq!((sim.connections(), sim.tasks(), sim.timers()), (0, 0, 0));
        u128::from(time.as_nanos()).div_ceil(ROUND_TRIP.as_nanos())
    };
    let mut trips: Vec<_> = (0..20).map(of).collect();
    trips.dedup();
    assert_eq!(trips.len(), 1, "{trips:?}");
    trips[0]
}

#[test]
fn the_first_ping_takes_as_many_round_trips_as_a_single_connection() {
    // The five round trips are for TCP, the monitor's hello, the pool's hello, SCRAM, and the ping;
    // TLS adds one more. Unless sockets are opened early, the pool's connection needs its own round
    // trips for TCP and TLS.
    let check = |early, first, expected| {
        let trips = (round_trips(false, early, first), round_trips(true, early, first));
        assert_eq!(trips, expected, "early: {early}, seeds from {first}");
    };
    check(true, 0, (5, 6));
    check(false, 0, (6, 8));
    // If the seed is a secondary, it names the primary. The check of the primary takes two more
    // round trips, or three with TLS.
    check(true, 2, (7, 9));
    check(false, 2, (8, 11));
}

#[test]
fn unused_early_sockets_are_closed_after_a_second() {
    let sim = world(1, false);
    sim.block_on(async {
        let topology = start(&sim, true, 0);
        ping(&topology).await;
        topology.wait_for(complete, Duration::from_secs(10)).await.unwrap();
        assert_eq!(sim.connections(), 6, "three for checks and three early ones");
        sim.run_for(Duration::from_millis(1100));
        // There are three connections for checks, three that measure round-trip times, and one in
        // the pool.
        assert_eq!(sim.connections(), 7);
        topology.close().await;
    });
}

#[test]
fn nothing_is_dialed_early_unless_a_selection_waits_for_a_pool() {
    // A deviation from CMAP.
    let check = |sim: &Sim| {
        sim.run_for(Duration::from_millis(20));
        assert_eq!(sim.network().traffic().direct, 3);
    };
    let sim = simulation(1);
    let topology = start(&sim, true, 0);
    sim.block_on(topology.wait_for(complete, Duration::from_secs(10))).unwrap();
    check(&sim);
    let sim = simulation(1);
    let topology = Topology::builder(&sim.uri()).unwrap().start(sim.runtime()).unwrap();
    sim.block_on(topology.select(&Criteria::write())).unwrap();
    check(&sim);
}
