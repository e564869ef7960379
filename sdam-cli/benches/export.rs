//! Measures how long the page `/metrics` of `sdam export` takes with 1,000 deployments of three
//! members each.
//!
//! The members are loopback addresses at which no server listens, so that only the page is
//! measured.

#![expect(clippy::unwrap_used, reason = "a panic fails the benchmark")]

use std::{
    fmt::Write as _,
    fs,
    future::pending,
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use sdam_cli::export::{Arguments, run};
use tokio::runtime::Builder;

const DEPLOYMENTS: usize = 1000;
const ROUNDS: usize = 9;
/// The time limit of every wait, which is long enough for a machine under load.
const TIMEOUT: Duration = Duration::from_secs(60);

fn main() {
    // `cargo xtask bench` passes its filter as the last argument.
    let filter = std::env::args().skip(1).last().unwrap_or_default();
    if !filter.starts_with('-') && !"export/1000_deployments".contains(&filter) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("targets.toml");
    let targets = (0..DEPLOYMENTS).fold(String::new(), |mut targets, number| {
        let uri = "mongodb://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3/?replicaSet=rs0";
        writeln!(targets, "shop-{number} = '{uri}'").unwrap();
        targets
    });
    fs::write(&file, targets).unwrap();
    let mut arguments = Arguments::default();
    arguments.targets = Some(file);
    // Use a port that was free a moment ago, so no other program should listen on it.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    arguments.listen = address;
    thread::spawn(move || {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(run(&arguments, io::sink(), io::stderr(), pending()))
    });
    let start = Instant::now();
    while TcpStream::connect(address).is_err() {
        assert!(start.elapsed() < TIMEOUT, "the program does not listen");
    }
    while page(address).0.matches("\nsdam_up{").count() < DEPLOYMENTS {
        assert!(start.elapsed() < TIMEOUT, "the first checks have not ended");
    }
    let mut pages: Vec<_> = (0..ROUNDS).map(|_| page(address)).collect();
    pages.sort_by_key(|(_, time)| *time);
    let (page, time) = &pages[ROUNDS / 2];
    let millis = time.as_secs_f64() * 1000.0;
    println!("bench: export/1000_deployments/page {millis:.1} ms");
    println!("bench: export/1000_deployments/lines {} lines", page.lines().count());
}

/// Requests the page. Returns its text, and the time until all of it was received.
fn page(address: SocketAddr) -> (String, Duration) {
    let start = Instant::now();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    (page, start.elapsed())
}
