//! A second handle on the client's deployment, whose failures must not affect the client.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use sdam::{Deployments, ErrorReport, Topology};
use sdam_core::{
    error::Error,
    event::{Event, EventKind},
    options::Options,
    time::Instant,
};
use sdam_sim::{
    oracle::{Oracle, Violation},
    runtime::Sim,
};
use sdam_transport::spawn::Task;

use super::setup_failure;
use crate::record;

/// The interval between two failed authentications of the companion.
const INTERVAL: Duration = Duration::from_millis(700);

/// The message of the companion's errors.
const MESSAGE: &str = "the companion has a wrong password";

/// Checks that no error of the companion reached the client.
pub(super) fn check(events: &[Event]) -> Result<(), Violation> {
    let reached = events.iter().find(|event| match &event.kind {
        EventKind::ServerDescriptionChanged { new, .. } => {
            new.error.as_ref().is_some_and(|error| error.message().contains(MESSAGE))
        }
        _ => false,
    });
    reached.map_or(Ok(()), |event| {
        Err(Oracle::Errors.violated(event.at, "an error of another handle concerns the client"))
    })
}

/// A handle that has neither pools nor sinks, and keeps failing to authenticate.
pub(super) struct Companion {
    handle: Topology,
    is_over: Arc<AtomicBool>,
}

impl Companion {
    /// Opens the companion of a client with these options.
    pub(super) fn open(deployments: &Deployments, options: Options) -> Result<Self, Violation> {
        let builder = sdam::TopologyBuilder::new(options.with_app_name("companion"));
        let handle = deployments.open(builder).map_err(|error| setup_failure(&error))?;
        Ok(Self { handle, is_over: Arc::default() })
    }

    /// Reports failed authentications on each known server in turn, until
    /// [`recover`](Self::recover) is called.
    pub(super) fn fail(&self, sim: &Sim) {
        let runtime = sim.runtime();
        let (handle, is_over) = (self.handle.downgrade(), Arc::clone(&self.is_over));
        let clock = Arc::clone(&runtime.backend.clock);
        runtime.spawner.spawn(Task::new("companion", async move {
            for round in 0_usize.. {
                clock.sleep_until(clock.now() + INTERVAL).await;
                let Some(handle) = handle.upgrade().filter(|_| !is_over.load(Ordering::Relaxed))
                else {
                    return;
                };
                let snapshot = handle.snapshot();
                let servers = snapshot.description().servers();
                let known = servers.iter().filter(|server| server.server_type.is_available());
                let Some(server) = known.cycle().nth(round % servers.len().max(1)) else {
                    continue;
                };
                if let Some(generation) = handle.generation(server.id, None) {
                    let report = ErrorReport::new(generation, Error::auth(MESSAGE));
                    handle.handle_error(server.id, &report);
                }
            }
        }));
    }

    /// Stops reporting failures.
    pub(super) fn recover(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Checks that the failures leave no trace once every server has been checked again, which may
    /// take until `limit`.
    pub(super) async fn verify(
        &self,
        sim: &Sim,
        client: &record::Topology,
        limit: Instant,
    ) -> Result<(), Violation> {
        let clock = sim.runtime().backend.clock;
        loop {
            let own = Arc::clone(self.handle.snapshot().description());
            let client = Arc::clone(client.snapshot().description());
            if own == client {
                return Ok(());
            }
            if clock.now() >= limit {
                let message =
                    format!("a handle believes {own}, another one of its deployment {client}");
                return Err(Oracle::Convergence.violated(clock.now(), message));
            }
            clock.sleep_until(clock.now() + Duration::from_millis(250)).await;
        }
    }

    /// Closes the handle, and waits until its task has ended.
    pub(super) async fn close(self, sim: &Sim) {
        self.recover();
        self.handle.close().await;
        // The task ends at the end of its interval, which may be a whole interval from now.
        let end = sim.now() + INTERVAL + Duration::from_millis(1);
        sim.runtime().backend.clock.sleep_until(end).await;
    }
}
