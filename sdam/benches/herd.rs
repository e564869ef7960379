//! Simulates herds: thousands of clients, each with a pool and one operation, whose servers limit
//! new connections.
//!
//! Each client attempts one write, at a random time in the ten seconds after the fault, and repeats
//! it until it succeeds. Prints how many connections were opened and refused, second by second, and
//! when the clients have written.

#![expect(clippy::unwrap_used, reason = "a panic fails the benchmark")]

use std::{cell::RefCell, env, pin::pin, time::Duration};

use bson::{RawDocumentBuf, doc};
use futures::future::{Either, join, join_all, select};
use sdam::{
    ServerAddress,
    client::{Client, Command},
};
use sdam_core::rng::Rng;
use sdam_sim::{
    Blueprint, MemberId,
    config::SetConfig,
    runtime::{DialLimit, Sim},
};

/// The number of clients, unless the environment variable [`COUNT`] specifies another number.
const CLIENTS: usize = 1_000;

/// The environment variable that specifies the number of clients.
const COUNT: &str = "SDAM_HERD";

/// The environment variable that contains additional options for the connection string.
const OPTIONS: &str = "SDAM_HERD_OPTIONS";

/// The time that a server takes to accept all connections of all clients. It is also the period
/// after the fault in which operations begin, and the value of `Options::spread` in those runs that
/// set it.
const TURN: Duration = Duration::from_secs(10);

/// The number of connections from a client to a server: one for checks, one for round-trip times,
/// and one in the pool.
const CONNECTIONS: usize = 3;

/// Returns the limit that each server sets on new connections. A new connection may have to wait
/// for up to a second.
fn limit(clients: usize) -> DialLimit {
    let each = CONNECTIONS * clients / usize::try_from(TURN.as_secs()).unwrap();
    let rate = u32::try_from(each).unwrap().max(1);
    DialLimit { rate, burst: rate / 10, queue: rate }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// All clients start.
    Start,
    StepDown,
    /// The primary is killed, and restarted later.
    Kill,
    /// The members are restarted one after the other, the primary last.
    Rolling,
}

fn main() {
    let words: Vec<String> = env::args().skip(1).collect();
    let clients = env::var(COUNT).map_or(CLIENTS, |count| count.parse().unwrap());
    let is_filter = |word: &&String| !word.starts_with('-') && word.parse::<f64>().is_err();
    let filter = words.iter().rev().find(is_filter).map_or("", String::as_str);
    for fault in [Fault::Start, Fault::StepDown, Fault::Kill, Fault::Rolling] {
        for spread in [Duration::ZERO, TURN] {
            let kind = if spread.is_zero() { "together" } else { "spread" };
            let name = format!("herd/{fault:?}/{kind}").to_lowercase();
            if name.contains(filter) {
                herd(&name, clients, fault, spread);
            }
        }
    }
}

/// Simulates `fault`, and prints the numbers of opened and refused connections, and how long the
/// writes took.
fn herd(name: &str, count: usize, fault: Fault, spread: Duration) {
    let hosts = ["a", "b", "c"].map(|host| ServerAddress::new(host, 27017));
    let sim = Sim::new(1, &Blueprint::replica_set(SetConfig::new("rs", hosts)));
    // Gives the replica set time to elect a primary.
    sim.run_for(Duration::from_secs(30));
    let limit = || sim.network().limit_dials(Some(limit(count)));
    if fault == Fault::Start {
        limit();
    }
    let mut origin = (sim.now(), sim.network().traffic());
    let more = env::var(OPTIONS).unwrap_or_default();
    let uri = format!("{}&minPoolSize=1&{more}", sim.uri());
    let clients: Vec<_> = (0..count)
        .map(|_| {
            let builder = Client::builder(&uri).unwrap();
            let builder = builder.topology(|own| own.options(|options| options.spread = spread));
            builder.start(sim.runtime()).unwrap()
        })
        .collect();
    if fault != Fault::Start {
        sim.run_for(Duration::from_secs(60));
        limit();
        origin = (sim.now(), sim.network().traffic());
    }
    let (began, before) = origin;
    let curve = RefCell::new(Vec::new());
    let mut rng = Rng::new(7);
    let mut written = sim.block_on(async {
        let all = clients.iter().enumerate().map(|(number, client)| {
            let turn = u64::try_from(TURN.as_nanos()).unwrap();
            let start = began + Duration::from_nanos(rng.below(turn));
            let clock = sim.runtime().backend.clock;
            let sim = &sim;
            async move {
                clock.sleep_until(start).await;
                write(client, number).await;
                (sim.now().since(began), sim.now().since(start))
            }
        });
        let seconds = async {
            let mut last = before;
            for second in 1.. {
                let clock = sim.runtime().backend.clock;
                clock.sleep_until(began + Duration::from_secs(second)).await;
                let now = sim.network().traffic();
                curve.borrow_mut().push((now.direct - last.direct, now.refused - last.refused));
                last = now;
            }
        };
        let faults = faults(&sim, fault);
        let work = join(join_all(all), faults);
        match select(pin!(work), pin!(seconds)).await {
            Either::Left(((written, ()), _)) => written,
            Either::Right(_) => unreachable!("the curve has no end"),
        }
    });
    written.sort_unstable();
    let mut waits: Vec<_> = written.iter().map(|(_, wait)| *wait).collect();
    waits.sort_unstable();
    let traffic = sim.network().traffic();
    let (dials, refused) = (traffic.direct - before.direct, traffic.refused - before.refused);
    let seconds = |time: Duration| time.as_secs_f64();
    let at = |share: usize| seconds(written[(count * share / 100).min(count - 1)].0);
    println!("bench: {name}/dials {dials} connections");
    println!("bench: {name}/refused {refused} connections");
    println!("bench: {name}/refused_share {:.3} ratio", refused as f64 / dials.max(1) as f64);
    println!("bench: {name}/written_99 {:.2} s", at(99));
    println!("bench: {name}/operation_p50 {:.3} s", seconds(waits[count / 2]));
    println!("bench: {name}/operation_p99 {:.3} s", seconds(waits[count * 99 / 100]));
    let curve = curve.into_inner();
    let line: Vec<_> = curve.iter().map(|(dials, refused)| format!("{dials}-{refused}")).collect();
    println!("{name}: dials-refused in each second: {}", line.join(" "));
}

/// Causes the fault.
async fn faults(sim: &Sim, fault: Fault) {
    let clock = sim.runtime().backend.clock;
    let wait = async |seconds| clock.sleep_until(sim.now() + Duration::from_secs(seconds)).await;
    match fault {
        Fault::Start => {}
        Fault::StepDown => sim.step_down().unwrap(),
        Fault::Kill => {
            let primary = primary(sim);
            sim.kill(primary).unwrap();
            wait(20).await;
            sim.restart(primary).unwrap();
            wait(40).await;
        }
        Fault::Rolling => {
            let primary = primary(sim);
            let others = (0..3).map(MemberId).filter(|member| *member != primary);
            for member in others.chain([primary]) {
                sim.kill(member).unwrap();
                wait(5).await;
                sim.restart(member).unwrap();
                wait(25).await;
            }
        }
    }
}

/// Writes until a write succeeds.
async fn write(client: &Client, number: usize) {
    let number = i64::try_from(number).unwrap();
    let insert = doc! { "insert": "c", "documents": [{ "_id": number }] };
    let insert = RawDocumentBuf::try_from(&insert).unwrap();
    while client.run(&Command::write("test", insert.as_bytes())).await.is_err() {}
}

fn primary(sim: &Sim) -> MemberId {
    let status = sim.status();
    status.primary().unwrap().id
}
