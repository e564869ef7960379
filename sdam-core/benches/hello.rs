//! Measures the cost of parsing a reply.

mod fixture;

use std::hint::black_box;

use criterion::Criterion;
use sdam_core::{
    address::ServerAddress, error::Stage, hello::Hello, ids::ServerId, reply,
    server::ServerDescription, time::Instant,
};

fn hello(criterion: &mut Criterion) {
    let reply = fixture::primary_hello();
    let address = ServerAddress::new("db-0.lan", 27017);

    criterion.bench_function("hello/parse", |bencher| {
        bencher.iter(|| Hello::parse(black_box(&reply)));
    });
    criterion.bench_function("hello/parse_into_description", |bencher| {
        bencher.iter(|| {
            Hello::parse(black_box(&reply)).map(|hello| {
                ServerDescription::from_hello(
                    ServerId::from_u64(1),
                    address.clone(),
                    hello,
                    None,
                    Instant::from_millis(1),
                )
            })
        });
    });
    // Searches a successful reply to an operation for a state change error.
    criterion.bench_function("reply/error_in_success", |bencher| {
        bencher.iter(|| reply::error(black_box(&reply), Stage::Operation));
    });
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    hello(&mut criterion);
    criterion.final_summary();
}
