//! A stand-in for a topology, which receives the reports from the pool under test.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, ThreadId},
};

use sdam_core::{
    error::{Error, ErrorOutcome, Stage},
    hello::{HelloReply, HelloRequest},
    ids::{Generation, ObjectId, ServerId},
    report::ErrorReport,
};

use sdam_transport::pool::{PoolHost, ServiceConnection};

/// A stand-in for a topology with one server. It records reports without reacting to them.
pub(super) struct Host {
    state: Mutex<HostState>,
    lock: Arc<TopologyLock>,
    /// The function to call within each report. It exists because a real topology may call the pool
    /// while it handles a report.
    reaction: Mutex<Option<Reaction>>,
    balanced: bool,
}

type Reaction = Arc<dyn Fn() + Send + Sync>;

#[derive(Default)]
struct HostState {
    generation: Generation,
    services: BTreeMap<ObjectId, Generation>,
    reports: Vec<Report>,
}

/// A report from the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Report {
    Error { stage: Stage, generation: Generation, service: Option<ObjectId> },
    Handshake(Generation),
    End(ObjectId),
}

/// A stand-in for the lock of the topology. Records whether a thread is in a call from the topology
/// to the pool, and which forbidden actions the pool performs during such calls.
#[derive(Debug, Default)]
pub(super) struct TopologyLock {
    holder: Mutex<Option<ThreadId>>,
    violations: Mutex<Vec<&'static str>>,
}

impl TopologyLock {
    /// Runs `call`, which calls the pool, as if the topology were locked.
    pub(super) fn hold<T>(&self, call: impl FnOnce() -> T) -> T {
        *lock(&self.holder) = Some(thread::current().id());
        let result = call();
        *lock(&self.holder) = None;
        result
    }

    /// Records a forbidden action of the pool if the topology is locked.
    pub(super) fn note(&self, what: &'static str) {
        if *lock(&self.holder) == Some(thread::current().id()) {
            lock(&self.violations).push(what);
        }
    }

    /// Returns the recorded violations and clears them.
    pub(super) fn take_violations(&self) -> Vec<&'static str> {
        mem::take(&mut *lock(&self.violations))
    }
}

impl Host {
    pub(super) fn new(lock: Arc<TopologyLock>, balanced: bool) -> Self {
        Self { state: Mutex::default(), lock, reaction: Mutex::default(), balanced }
    }

    /// Returns the generation of new connections.
    pub(super) fn generation_now(&self) -> Generation {
        lock(&self.state).generation
    }

    /// Raises the generation of the pool or of a service.
    pub(super) fn raise(&self, service: Option<ObjectId>) -> Generation {
        let mut state = lock(&self.state);
        let generation = match service {
            Some(service) => state.services.entry(service).or_default(),
            None => &mut state.generation,
        };
        *generation = Generation::from_u64(generation.as_u64() + 1);
        *generation
    }

    /// Sets the function to call within each later report.
    pub(super) fn react(&self, reaction: impl Fn() + Send + Sync + 'static) {
        *lock(&self.reaction) = Some(Arc::new(reaction));
    }

    pub(super) fn reports(&self) -> Vec<Report> {
        lock(&self.state).reports.clone()
    }

    /// Returns the stage and the generation of each reported error.
    pub(super) fn errors(&self) -> Vec<(Stage, Generation)> {
        self.select(|report| match report {
            Report::Error { stage, generation, .. } => Some((stage, generation)),
            _ => None,
        })
    }

    /// Returns the generation of each reported handshake.
    pub(super) fn handshakes(&self) -> Vec<Generation> {
        self.select(|report| match report {
            Report::Handshake(generation) => Some(generation),
            _ => None,
        })
    }

    /// Returns the service of each connection whose end was reported.
    pub(super) fn ends(&self) -> Vec<ObjectId> {
        self.select(|report| match report {
            Report::End(service) => Some(service),
            _ => None,
        })
    }

    fn select<T>(&self, part: impl Fn(Report) -> Option<T>) -> Vec<T> {
        self.reports().into_iter().filter_map(part).collect()
    }

    fn called(&self) {
        self.lock.note("it calls the topology back");
        let reaction = lock(&self.reaction).clone();
        if let Some(reaction) = reaction {
            reaction();
        }
    }
}

impl PoolHost for Host {
    fn handle_error(self: Arc<Self>, _: ServerId, report: &ErrorReport) -> ErrorOutcome {
        lock(&self.state).reports.push(Report::Error {
            stage: report.error.stage(),
            generation: report.generation,
            service: report.service_id,
        });
        self.called();
        ErrorOutcome::Irrelevant
    }

    fn handle_handshake(
        self: Arc<Self>,
        server: ServerId,
        generation: Generation,
        reply: HelloReply,
    ) -> Result<Option<ServiceConnection>, Error> {
        let hello = reply.hello?;
        let service = self.balanced.then(|| hello.load_balanced_service()).transpose()?;
        let mut state = lock(&self.state);
        state.reports.push(Report::Handshake(generation));
        let counted = service.map(|service| {
            let generation = *state.services.entry(service).or_default();
            ServiceConnection::new(server, service, generation)
        });
        drop(state);
        self.called();
        Ok(counted)
    }

    fn handle_service_connection_closed(self: Arc<Self>, connection: ServiceConnection) {
        lock(&self.state).reports.push(Report::End(connection.service_id()));
        self.called();
    }

    fn generation(&self, _: ServerId, service: Option<ObjectId>) -> Option<Generation> {
        self.called();
        let mut state = lock(&self.state);
        Some(match service {
            Some(service) => *state.services.entry(service).or_default(),
            None => state.generation,
        })
    }

    fn hello(&self) -> HelloRequest {
        self.called();
        HelloRequest::poll(true, None)
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
