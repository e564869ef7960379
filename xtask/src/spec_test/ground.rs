//! The executor, the clock and the deployments of a column's files.

use std::sync::{Arc, Mutex, OnceLock};

use futures::executor::block_on;
use futures::future::BoxFuture;
use sdam_core::address::ServerAddress;
use sdam_dns::DnsResolver;
use sdam_live::{Dns, Record, Version};
use sdam_runtime_tokio::from_handle;
use sdam_sim::Blueprint;
use sdam_sim::runtime::Sim;
use sdam_spec::host::Host;
use sdam_spec::run::{Coverage, Offer};
use sdam_spec::srv::{
    self,
    zone::{SRV, TTL, TXT},
};
use sdam_testkit::Pace;
use sdam_transport::runtime::{Backend, Runtime};

use super::deployment;
use super::runner::Column;
use super::servers::Servers;

/// The seed that determines the order of tasks in the simulated column.
const SEED: u64 = 1;

/// The executor, the clock and the deployments of a column's files.
pub(super) struct Ground {
    pub(super) offer: Offer,
    /// Creates the host of a worker, on the worker's thread.
    pub(super) host: Box<dyn Fn() -> Host + Send + Sync>,
    /// The clock of a real runtime.
    pub(super) pace: Option<Pace>,
}

impl Ground {
    /// Prepares `column`, with all releases of simulated servers or a part of them. Returns `None`
    /// if the column does not run the engine.
    pub(super) fn new(column: Column, every_release: bool) -> Result<Option<Self>, String> {
        let choose = |usual| if every_release { Coverage::Every } else { usual };
        let real = choose(Coverage::Turns);
        // smol and async-std run tasks on their own threads.
        let alone = |future: BoxFuture<'_, ()>| block_on(future);
        Ok(Some(match column {
            Column::Pure | Column::Scan => return Ok(None),
            Column::Tokio => {
                let (runtime, parts) = start_tokio()?;
                Self::real(parts, real, move |future: BoxFuture<'_, ()>| runtime.block_on(future))?
            }
            Column::Smol => Self::real(sdam_runtime_smol::runtime(), real, alone)?,
            Column::AsyncStd => Self::real(sdam_runtime_async_std::runtime(), real, alone)?,
            Column::Server(version) => Self::servers(version)?,
            Column::Sim => Self {
                offer: Offer {
                    environments: deployment::simulated(),
                    coverage: choose(Coverage::Sample),
                },
                host: Box::new(sim),
                pace: None,
            },
        }))
    }

    /// Prepares a runtime with simulated servers on loopback TCP. Its clock stands still while
    /// threads run.
    fn real(
        runtime: Runtime,
        coverage: Coverage,
        block_on: impl Fn(BoxFuture<'_, ()>) + Clone + Send + Sync + 'static,
    ) -> Result<Self, String> {
        let pace = Pace::start().map_err(|error| error.to_string())?;
        let (paced, clock) = (pace.apply(runtime.clone()), pace.clock());
        let host = move || {
            let (backend, paced, clock) = (runtime.backend.clone(), paced.clone(), clock.clone());
            let (named, time) = (paced.clone(), clock.clone());
            let (own, run) = (block_on.clone(), block_on.clone());
            Host {
                look_up: Box::new(move || with_resolver(backend.clone())),
                deploy: Box::new(move |environment| {
                    deployment::serve(environment, paced.clone(), &clock, own.clone())
                }),
                discover: Box::new(move |kind, _| {
                    srv::serve(kind, named.clone(), Arc::new(time.clone()), run.clone())
                }),
                ..Host::new(Arc::clone(&runtime.spawner), block_on.clone())
            }
        };
        let offer = Offer { environments: deployment::served(), coverage };
        Ok(Self { offer, host: Box::new(host), pace: Some(pace) })
    }

    /// Starts real servers. They do not run all tests, because there is no sharded cluster.
    fn servers(version: Version) -> Result<Self, String> {
        let (runtime, parts) = start_tokio()?;
        let servers = Servers::start(version)?;
        let offer = Offer { environments: servers.environments(), coverage: Coverage::Real };
        let servers = Arc::new(Mutex::new(servers));
        let host = move || {
            let (runtime, servers) = (Arc::clone(&runtime), Arc::clone(&servers));
            let block_on = move |future: BoxFuture<'_, ()>| runtime.block_on(future);
            let (own, parts, spawner) =
                (block_on.clone(), parts.clone(), Arc::clone(&parts.spawner));
            Host {
                deploy: Box::new(move |environment| {
                    let servers = servers.lock().map_err(|_| "a start of servers panicked")?;
                    servers.deploy(environment, parts.clone(), own.clone())
                }),
                ..Host::new(spawner, block_on)
            }
        };
        Ok(Self { offer, host: Box::new(host), pace: None })
    }
}

fn start_tokio() -> Result<(Arc<tokio::runtime::Runtime>, Runtime), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start tokio: {error}"))?;
    let parts = from_handle(runtime.handle().clone()).map_err(|error| error.to_string())?;
    Ok((Arc::new(runtime), parts))
}

/// Creates the host for the simulated column. Most files define their own servers. Each of the
/// other files gets a separate simulation.
fn sim() -> Host {
    let server = ServerAddress::new("nobody", 27017);
    let sim = Sim::new(SEED, &Blueprint::standalone().at([server]));
    set_records(&sim);
    let backend = sim.runtime().backend;
    Host {
        look_up: Box::new(move || Ok(backend.clone())),
        deploy: Box::new(|environment| deployment::simulate(environment, SEED)),
        discover: Box::new(|kind, options| Ok(srv::simulate(kind, options))),
        ..Host::new(sim.runtime().spawner, move |future| sim.block_on(future))
    }
}

/// Returns `backend` with a resolver that queries a name server on loopback. All columns share this
/// server.
fn with_resolver(mut backend: Backend) -> Result<Backend, String> {
    static SERVER: OnceLock<Result<Dns, String>> = OnceLock::new();
    let start = || Dns::start(records()).map_err(|error| error.to_string());
    let server = SERVER.get_or_init(start).as_ref()?;
    let resolver = DnsResolver::with_servers([server.address()]);
    backend.resolver = Some(Arc::new(resolver));
    Ok(backend)
}

fn records() -> impl Iterator<Item = Record> {
    let ttl = u32::try_from(TTL.as_secs()).unwrap_or(u32::MAX);
    let srv = SRV.iter();
    let srv = srv.map(|(name, target, port)| Record::srv(name, target, *port));
    let txt = TXT.iter();
    let txt = txt.map(|(name, strings)| Record::txt(name, strings.iter().copied()));
    srv.chain(txt).map(move |record| record.ttl(ttl))
}

/// Sets the records in a simulation.
fn set_records(sim: &Sim) {
    for (name, ..) in SRV {
        let own = SRV.iter().filter(|(own, ..)| own == name);
        let hosts = own.map(|(_, target, port)| ServerAddress::new(target, *port));
        sim.dns().set_srv(name, TTL, hosts);
    }
    for (name, _) in TXT {
        let own = TXT.iter().filter(|(own, _)| own == name);
        let own: Vec<_> = own.map(|(_, strings)| strings.concat()).collect();
        sim.dns().set_txt(name, own.iter().map(String::as_str));
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use sdam_transport::clock::Clock;

    use super::*;

    #[test]
    fn the_clock_of_a_real_runtime_stands_still_while_a_thread_runs() {
        let pace = Pace::start().unwrap();
        let clock = pace.clock();
        block_on(clock.sleep_until(clock.now() + 3 * Pace::STEP));
        // This thread is busy, so the clock has to stop once it notices.
        let began = Instant::now();
        let (mut seen, mut since) = (clock.now(), began);
        while since.elapsed() < Duration::from_millis(200) {
            assert!(began.elapsed() < Duration::from_secs(60), "the clock does not stop");
            if clock.now() != seen {
                (seen, since) = (clock.now(), Instant::now());
            }
        }
    }
}
