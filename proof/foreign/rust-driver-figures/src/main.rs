//! Measures the client and the pool of `sdam` against the official Rust driver, in the same run and
//! on the same simulated server.
//!
//! Prints lines `bench: NAME VALUE UNIT`, like `cargo xtask bench`. The driver's pool cannot be
//! used alone, so each figure measures a whole `ping`: selection, check-out, round trip, check-in.

use std::{
    error::Error,
    future::Future,
    time::{Duration, Instant},
};

use futures::future::join_all;
use mongodb::bson::{Document, doc};
use sdam::{
    client::{Client, Command},
    runtime,
    sim::Blueprint,
};

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// The number of sequential commands in each of [`ROUNDS`] rounds of both clients.
const SEQUENTIAL: usize = 2_000;
const ROUNDS: usize = 5;
/// The number of concurrent tasks, which share a few connections.
const TASKS: usize = 1_000;
const CONNECTIONS: usize = 50;
const EACH: usize = 20;

fn main() -> Result<()> {
    let set = Blueprint::replica_set(1).serve()?;
    let uri = format!("{}&maxPoolSize={CONNECTIONS}", set.uri());
    let host = tokio::runtime::Runtime::new()?;
    host.block_on(measure(&uri))
}

async fn measure(uri: &str) -> Result<()> {
    let driver = mongodb::Client::with_uri_str(uri).await?;
    let ours = Client::start(uri, runtime::tokio()?)?;
    let with_driver = move || {
        let database = driver.database("admin");
        async move {
            let reply: Document = database.run_command(doc! { "ping": 1 }).await?;
            Ok::<_, Box<dyn Error + Send + Sync>>(drop(reply))
        }
    };
    let with_ours = {
        let client = ours.clone();
        move || {
            let client = client.clone();
            async move {
                let ping = doc! { "ping": 1 }.to_vec()?;
                client.run(&Command::new("admin", &ping)).await?;
                Ok::<_, Box<dyn Error + Send + Sync>>(())
            }
        }
    };
    // The first command opens a connection.
    with_driver().await?;
    with_ours().await?;
    let (mut driver, mut own) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        driver.push(one_by_one(&with_driver).await?);
        own.push(one_by_one(&with_ours).await?);
    }
    report_ratio("ping", &driver, &own);
    let (mut driver, mut own) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        driver.push(contended("driver", with_driver.clone()).await?);
        own.push(contended("sdam", with_ours.clone()).await?);
    }
    report_ratio("contended", &driver, &own);
    ours.close().await;
    Ok(())
}

/// Returns the mean time of a command, in microseconds.
async fn one_by_one<F: Future<Output = Result<()>>>(run: impl Fn() -> F) -> Result<f64> {
    let start = Instant::now();
    for _ in 0..SEQUENTIAL {
        run().await?;
    }
    Ok(micros(start.elapsed()) / SEQUENTIAL as f64)
}

/// Runs many concurrent tasks, and returns the elapsed time divided by the number of commands.
async fn contended<F>(name: &str, run: impl Fn() -> F + Clone + Send + 'static) -> Result<f64>
where
    F: Future<Output = Result<()>> + Send,
{
    let start = Instant::now();
    let tasks = (0..TASKS).map(|_| {
        let run = run.clone();
        tokio::spawn(async move {
            let mut times = Vec::with_capacity(EACH);
            for _ in 0..EACH {
                let start = Instant::now();
                run().await?;
                times.push(start.elapsed());
            }
            Ok::<_, Box<dyn Error + Send + Sync>>(times)
        })
    });
    let mut times = Vec::with_capacity(TASKS * EACH);
    for task in join_all(tasks).await {
        times.extend(task??);
    }
    let whole = micros(start.elapsed());
    times.sort_unstable();
    let at = |share: f64| micros(times[((times.len() - 1) as f64 * share) as usize]);
    let (median, tail) = (at(0.5), at(0.999));
    println!("bench: foreign/contended/{name}/p50 {median:.0} us");
    println!("bench: foreign/contended/{name}/p99.9_over_p50 {:.2} x", tail / median);
    Ok(whole / (TASKS * EACH) as f64)
}

/// Prints both medians, and the ratio with its spread over the rounds.
fn report_ratio(name: &str, driver: &[f64], own: &[f64]) {
    let mut ratios: Vec<_> = driver.iter().zip(own).map(|(driver, own)| driver / own).collect();
    ratios.sort_unstable_by(f64::total_cmp);
    println!("bench: foreign/{name}/driver {:.1} us", median(driver));
    println!("bench: foreign/{name}/sdam {:.1} us", median(own));
    println!("bench: foreign/{name}/driver_over_sdam {:.2} x", ratios[ratios.len() / 2]);
    let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
    println!("bench: foreign/{name}/driver_over_sdam/from {least:.2} x");
    println!("bench: foreign/{name}/driver_over_sdam/to {most:.2} x");
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
