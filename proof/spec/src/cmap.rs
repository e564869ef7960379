//! The test format for connection pools (CMAP: "cmap-format").
//!
//! A file runs against suitable servers that the host offers. The pool under test belongs to an
//! `Owner`: a topology whose checks wait until the test supplies their results, because each file
//! specifies when the pool becomes ready and when it is cleared.

mod format;
mod owner;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use bson::doc;
use futures::FutureExt;
use sdam_core::{
    error::{Error, ErrorKind},
    event::{EventKind, EventName},
    options::Options,
};
use sdam_events::channel;
use sdam_pool::PooledConnection;
use sdam_transport::runtime::Runtime;
use serde_json::{Map, Value};

use self::{
    format::{Call, ExpectedError, ExpectedEvent, File, Operation, PoolEventName},
    owner::Owner,
};
use crate::{
    fields::{has_short_limit, option_text},
    host::{Target, Thread},
    requirement::{Environment, Kind},
    run::{Offer, Run},
    running::{Recorder, compare_in_order, lock},
    unified::set_fail_point,
};

/// The default time limit for events and threads.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Returns the runs of a file on suitable standalone servers.
///
/// # Errors
///
/// If the file has unsupported content, or if no environment is suitable. An offer of [real
/// servers](crate::run::Coverage::Real) need not contain a suitable environment.
pub fn runs(offer: &Offer, json: &Value) -> Result<Vec<Run>, String> {
    let file = Arc::new(File::read(json)?);
    let admits = |environment: &Environment| {
        environment.kind == Kind::Single
            && !environment.authentication
            && environment.meets(file.run_on.as_deref())
            && file.fail_point.as_ref().is_none_or(|own| environment.applies(own))
    };
    // A file is a single test, so the number of its operations serves as its turn.
    let turn = file.operations.len();
    let chosen = offer.choose(turn, has_short_limit(json), admits)?.into_iter();
    let run = |environment| {
        let file = Arc::clone(&file);
        Run::new(environment, move |deployment| {
            let outcome = deployment.block_on(run_on(deployment.target(), &file));
            outcome.unwrap_or_else(|| Err("the host has not run it".to_owned()))
        })
    };
    Ok(chosen.map(run).collect())
}

async fn run_on(target: &Target, file: &File) -> Result<(), String> {
    if let Some(fail_point) = &file.fail_point {
        set_fail_point(target, fail_point.clone()).await?;
    }
    let mut test = Test::start(target, file)?;
    let outcome = async {
        for operation in &file.operations {
            test.run(operation).await?;
        }
        Ok(())
    };
    let outcome = compare_error(file.error.as_ref(), outcome.await);
    test.recorder.flush(|| test.owner.deliver()).await;
    let outcome = outcome.and_then(|()| compare_events(file, &test.recorder));
    test.owner.close().await;
    if file.fail_point.is_some() {
        let off = doc! { "configureFailPoint": "failCommand", "mode": "off" };
        set_fail_point(target, off).await?;
    }
    outcome
}

/// The reason why an operation failed.
#[derive(Debug)]
enum Failure {
    /// The pool returned an error, which the file may expect.
    Pool(Error),
    /// The test itself failed.
    Test(String),
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self::Test(message)
    }
}

struct Test {
    runtime: Runtime,
    owner: Owner,
    recorder: Recorder,
    threads: BTreeMap<String, Thread<Failure>>,
    connections: Arc<Mutex<Connections>>,
}

/// The connections that are checked out. Those that have a label in the file are keyed by this
/// label.
#[derive(Default)]
struct Connections {
    labelled: BTreeMap<String, PooledConnection>,
    others: Vec<PooledConnection>,
}

impl Test {
    fn start(target: &Target, file: &File) -> Result<Self, String> {
        let options = options(target.uri(false), &file.pool_options)?;
        let (sink, stream) = channel::unbounded();
        let events = EventName::ALL.iter().copied().filter(|name| format::is_of_pool(*name));
        let sink = Arc::new(sink.interested_in(events.collect()));
        Ok(Self {
            runtime: target.runtime().clone(),
            owner: Owner::open(options, target.runtime(), sink)?,
            recorder: Recorder::new(stream),
            threads: BTreeMap::new(),
            connections: Arc::default(),
        })
    }

    async fn run(&mut self, operation: &Operation) -> Result<(), Failure> {
        let Some(thread) = &operation.thread else {
            return self.perform(&operation.call).await;
        };
        let thread = self.threads.get(thread);
        let thread = thread.ok_or_else(|| "there is no such thread".to_owned())?;
        let Call::CheckOut { label } = &operation.call else {
            return Err(format!("{:?} does not run on threads", operation.call).into());
        };
        let job = self.check_out(label.clone());
        Ok(thread.run(job.boxed())?)
    }

    async fn perform(&mut self, call: &Call) -> Result<(), Failure> {
        let clock = Arc::clone(&self.runtime.backend.clock);
        match call {
            Call::Ready {} => self.owner.ready().await?,
            Call::Clear { interrupt_in_use_connections } => {
                self.owner.clear(*interrupt_in_use_connections).await?;
            }
            Call::Close {} => self.owner.close().await,
            Call::CheckOut { label } => self.check_out(label.clone()).await?,
            Call::CheckIn { connection } => {
                let mut connections = lock(&self.connections);
                let connection = connections.labelled.remove(connection);
                drop(connections);
                drop(connection.ok_or_else(|| "there is no such connection".to_owned())?);
            }
            Call::Wait { ms } => {
                let end = clock.now() + Duration::from_millis(*ms);
                clock.sleep_until(end).await;
            }
            Call::WaitForEvent { event, count, timeout } => {
                let limit = timeout.map_or(TIMEOUT, Duration::from_millis);
                let matches = |kind: &EventKind| PoolEventName(kind.name()) == *event;
                let recorder = &mut self.recorder;
                recorder.wait_for(&*clock, (*count, limit), matches).await?;
            }
            Call::Start { target } => {
                let thread = Thread::start(&self.runtime);
                self.threads.insert(target.clone(), thread);
            }
            Call::WaitForThread { target } => {
                let thread = self.threads.remove(target);
                let thread = thread.ok_or_else(|| "there is no such thread".to_owned())?;
                return thread.join(&clock, TIMEOUT).await?;
            }
        }
        Ok(())
    }

    fn check_out(
        &self,
        label: Option<String>,
    ) -> impl Future<Output = Result<(), Failure>> + Send + use<> {
        let (pool, connections) = (self.owner.pool(), Arc::clone(&self.connections));
        async move {
            let connection = pool.check_out().await.map_err(Failure::Pool)?;
            let mut connections = lock(&connections);
            match label {
                Some(label) => drop(connections.labelled.insert(label, connection)),
                None => connections.others.push(connection),
            }
            Ok(())
        }
    }
}

/// Compares the error of the main thread with the expected error.
fn compare_error(
    expected: Option<&ExpectedError>,
    outcome: Result<(), Failure>,
) -> Result<(), String> {
    let error = match (expected, outcome) {
        (None, Ok(())) => return Ok(()),
        (_, Err(Failure::Test(error))) => return Err(error),
        (Some(expected), Ok(())) => return Err(format!("no {} occurred", expected.kind)),
        (_, Err(Failure::Pool(error))) => error,
    };
    let kind = match error.kind() {
        ErrorKind::PoolClosed => "PoolClosedError",
        ErrorKind::WaitQueueTimeout => "WaitQueueTimeoutError",
        _ => "another error",
    };
    match expected {
        Some(it) if it.kind == kind && it.message == format!("{error:#}") => Ok(()),
        _ => Err(format!("unexpected error: {error}")),
    }
}

/// Compares the recorded events with the expected ones. Additional recorded events are allowed.
fn compare_events(file: &File, recorder: &Recorder) -> Result<(), String> {
    let events = recorder.events().iter().map(|event| &event.kind);
    let own = events.clone().filter(|event| !file.ignores(event.name()));
    compare_in_order("event", &file.events, own, true, ExpectedEvent::compare).map_err(|error| {
        let names: Vec<_> = events.map(|event| event.name().as_str()).collect();
        format!("{error}, in {}", names.join(", "))
    })
}

/// Builds the options of a pool for the server at `uri`.
fn options(uri: &str, pool_options: &Map<String, Value>) -> Result<Options, String> {
    let mut query = "directConnection=true".to_owned();
    // The pool has no background thread with an interval, so it does not need this option.
    for (name, value) in
        pool_options.iter().filter(|(name, _)| *name != "backgroundThreadIntervalMS")
    {
        query.extend(["&", name, "=", &option_text(value)]);
    }
    let uri = format!("{}/?{query}", uri.trim_end_matches('/'));
    Options::parse(&uri).map_err(|error| error.to_string())
}
