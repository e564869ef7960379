//! Measures the cost of one selection; run by `cargo bench -p sdam-select`.
#![expect(clippy::unwrap_used, reason = "the criteria of this benchmark are valid")]

use std::{hint::black_box, time::Duration};

use criterion::Criterion;
use sdam_core::{
    address::ServerAddress,
    ids::ServerId,
    read_preference::{ReadMode, ReadPreference, TagSet},
    rng::Rng,
    server::{Rtt, ServerDescription, ServerType},
    time::Instant,
    topology::{TopologyDescription, TopologyType},
};
use sdam_select::{choose, criteria::Criteria, settings::Settings};

fn server(number: u64, server_type: ServerType) -> ServerDescription {
    let address = ServerAddress::new(&format!("shard-{number:04}.db.example.com"), 27017);
    let mut server = ServerDescription::unknown(ServerId::from_u64(number), address);
    server.server_type = server_type;
    server.rtt = Some(Rtt {
        average: Duration::from_micros(5_000 + number * 37 % 12_000),
        minimum: Duration::from_millis(4),
        ..Rtt::default()
    });
    server.last_update_time = Some(Instant::from_millis(1_000_000 + number));
    server.last_write_date = Some(1_700_000_000_000);
    let zone = if number.is_multiple_of(2) { "even" } else { "odd" };
    server.tags = [("dc", "ny"), ("zone", zone)].into_iter().collect();
    server
}

fn replica_set(members: u64) -> TopologyDescription {
    let servers = (1..=members).map(|number| match number {
        2 => server(number, ServerType::RsPrimary),
        _ => server(number, ServerType::RsSecondary),
    });
    TopologyDescription::new(TopologyType::ReplicaSetWithPrimary, servers)
}

fn sharded(routers: u64) -> TopologyDescription {
    let servers = (1..=routers).map(|number| server(number, ServerType::Mongos));
    TopologyDescription::new(TopologyType::Sharded, servers)
}

fn read(preference: ReadPreference) -> Criteria {
    Criteria::read(preference).unwrap()
}

fn benches(criterion: &mut Criterion) {
    let tags = |zone: &str| -> TagSet { [("zone", zone)].into_iter().collect() };
    let nearest = || read(ReadPreference::new(ReadMode::Nearest));
    let picky = ReadPreference::new(ReadMode::SecondaryPreferred)
        .with_tag_sets([tags("none"), tags("odd")].into())
        .with_max_staleness(Duration::from_secs(120));
    let fifty = replica_set(50);
    let deprioritized = fifty.servers().first().map(|server| server.address.clone());
    let cases = [
        ("3 members, write", replica_set(3), Criteria::write()),
        ("3 members, primary", replica_set(3), read(ReadPreference::default())),
        ("3 members, nearest", replica_set(3), nearest()),
        ("3 members, tags and staleness", replica_set(3), read(picky.clone())),
        ("50 members, nearest", replica_set(50), nearest()),
        ("50 members, tags and staleness", replica_set(50), read(picky)),
        ("50 members, one deprioritized", fifty, nearest().with_deprioritized(deprioritized)),
        ("1000 mongos", sharded(1000), Criteria::write()),
    ];
    let settings = Settings::default();
    let mut rng = Rng::new(1);
    for (name, topology, criteria) in cases {
        criterion.bench_function(&format!("select/{name}"), |bencher| {
            bencher.iter(|| {
                let load =
                    |candidate: sdam_select::candidate::Candidate<'_>| candidate.index as u32;
                let random = rng.next_u64();
                let found = choose(black_box(&topology), &settings, &criteria, load, random);
                found.unwrap().map(|candidate| candidate.index)
            });
        });
    }
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    benches(&mut criterion);
    criterion.final_summary();
}
