//! Hosts for tests. A host executes tasks, such as the threads of tests, and can start deployments.

use std::{any::Any, sync::Arc, time::Duration};

use futures::{
    StreamExt,
    channel::{mpsc, oneshot},
    future::{BoxFuture, Either, select},
};
use sdam_core::options::Options;
use sdam_transport::{
    clock::Clock,
    runtime::{Backend, Runtime},
    spawn::{Spawner, Task},
};

use crate::{
    requirement::{Environment, Kind},
    wire::Reader,
};

/// An executor of tasks, and the deployments that it can start.
pub struct Host {
    /// Starts tasks.
    pub spawner: Arc<dyn Spawner>,
    /// Runs a future to completion on the calling thread. Meanwhile, this thread may also run
    /// tasks.
    pub block_on: BlockOn,
    /// Starts a new deployment for an environment. The deployment can be reached from the runtime
    /// of this host.
    pub deploy: Deploy,
    /// Returns the parts of this host's runtime. Their resolver uses the records in
    /// [`zone`](crate::srv::zone).
    pub look_up: Box<dyn Fn() -> Result<Backend, String>>,
    /// Starts a deployment whose servers have the names in the [`zone`](crate::srv::zone).
    pub discover: Discover,
}

/// Runs a future to completion.
pub type BlockOn = Box<dyn Fn(BoxFuture<'_, ()>)>;

/// Starts a new deployment of a kind for a client with these options.
pub type Discover = Box<dyn Fn(Kind, &Options) -> Result<TestDeployment, String>>;

/// Starts a new deployment.
pub type Deploy = Box<dyn Fn(&Environment) -> Result<TestDeployment, String>>;

impl Host {
    /// Creates a host without deployments or look-ups.
    pub fn new(spawner: Arc<dyn Spawner>, block_on: impl Fn(BoxFuture<'_, ()>) + 'static) -> Self {
        Self {
            spawner,
            block_on: Box::new(block_on),
            deploy: Box::new(|_| Err("the host has no deployments".to_owned())),
            look_up: Box::new(|| Err("the host looks nothing up".to_owned())),
            discover: Box::new(|_, _| Err("the host has no named servers".to_owned())),
        }
    }

    /// Resolves a connection string on this host.
    pub(crate) fn resolve(&self, uri: &str) -> Result<Options, String> {
        let backend = (self.look_up)()?;
        let resolved = self.block_on(::sdam::resolve(uri, &backend));
        let resolved = resolved.ok_or("the host ran no look-up")?;
        resolved.map_err(|error| format!("{error:#}"))
    }

    /// Runs `future` and returns its result.
    pub(crate) fn block_on<T: Send>(&self, future: impl Future<Output = T> + Send) -> Option<T> {
        block_on(&self.block_on, future)
    }
}

fn block_on<T: Send>(run: &BlockOn, future: impl Future<Output = T> + Send) -> Option<T> {
    let mut result = None;
    run(Box::pin(async {
        result = Some(future.await);
    }));
    result
}

sdam_core::opaque!(Host, |this| spawner: this.spawner);

/// The deployment for one test, and the runtime that reaches it.
pub struct TestDeployment {
    target: Target,
    /// Reads all messages of the clients.
    reader: Reader,
    block_on: BlockOn,
    /// A value that stops the deployment when the value is dropped.
    _deployment: Box<dyn Any>,
}

/// The deployment to which a test's clients connect, and their runtime.
pub(crate) struct Target {
    uri: String,
    /// The connection string of a load balancer in front of a single mongos, if there is one.
    pub(crate) single_uri: Option<String>,
    runtime: Runtime,
}

impl TestDeployment {
    /// Describes the deployment at `uri`, which runs until `deployment` is dropped. Clients that
    /// may reach only one mongos behind a load balancer use `single_uri`. `block_on` runs futures
    /// to completion.
    pub fn new(
        uri: impl Into<String>,
        single_uri: Option<String>,
        mut runtime: Runtime,
        block_on: impl Fn(BoxFuture<'_, ()>) + 'static,
        deployment: impl Any,
    ) -> Self {
        let uri = uri.into();
        let reader = Reader::new(&uri);
        runtime.backend.transport = reader.read(runtime.backend.transport);
        Self {
            target: Target { uri, single_uri, runtime },
            reader,
            block_on: Box::new(block_on),
            _deployment: Box::new(deployment),
        }
    }

    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// Fails if a message between a client and a server was wrong.
    pub(crate) fn check_messages(&self) -> Result<(), String> {
        self.reader.verdict()
    }

    /// Runs `future` and returns its result.
    pub(crate) fn block_on<T: Send>(&self, future: impl Future<Output = T> + Send) -> Option<T> {
        block_on(&self.block_on, future)
    }
}

impl Target {
    /// Returns the connection string for a client that uses one mongos or several.
    pub(crate) fn uri(&self, multiple_mongoses: bool) -> &str {
        let single = self.single_uri.as_ref().filter(|_| !multiple_mongoses);
        single.unwrap_or(&self.uri)
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }
}

sdam_core::opaque!(TestDeployment, |this| uri: this.target.uri);

/// A thread in a test. Its jobs may fail with `E`.
///
/// The thread runs on the runtime of the code under test. In the simulation, it is therefore
/// deterministic.
#[derive(Debug)]
pub(crate) struct Thread<E> {
    jobs: mpsc::UnboundedSender<BoxFuture<'static, Result<(), E>>>,
    end: oneshot::Receiver<Result<(), E>>,
}

impl<E: Send + 'static> Thread<E> {
    pub(crate) fn start(runtime: &Runtime) -> Self {
        let (jobs, mut queue) = mpsc::unbounded::<BoxFuture<'static, Result<(), E>>>();
        let (sender, end) = oneshot::channel();
        runtime.spawner.spawn(Task::new("test thread", async move {
            let mut outcome = Ok(());
            while let Some(job) = queue.next().await {
                let result = job.await;
                outcome = outcome.and(result);
            }
            // The receiver is dropped if the test has already failed for another reason.
            let _ = sender.send(outcome);
        }));
        Self { jobs, end }
    }

    /// Runs `job` on the thread after all earlier jobs.
    ///
    /// # Errors
    ///
    /// If the runtime dropped the thread.
    pub(crate) fn run(&self, job: BoxFuture<'static, Result<(), E>>) -> Result<(), String> {
        let sent = self.jobs.unbounded_send(job);
        sent.map_err(|_| "the thread has ended".to_owned())
    }

    /// Waits until the thread has run all jobs. Returns the first error from a job.
    ///
    /// # Errors
    ///
    /// If the thread does not end within `limit`, or was dropped.
    pub(crate) async fn join(
        self,
        clock: &Arc<dyn Clock>,
        limit: Duration,
    ) -> Result<Result<(), E>, String> {
        let Self { jobs, end } = self;
        drop(jobs);
        let deadline = clock.now() + limit;
        match select(end, clock.sleep_until(deadline)).await {
            Either::Left((outcome, _)) => outcome.map_err(|_| "the thread was dropped".to_owned()),
            Either::Right(_) => Err(format!("the thread has not ended within {limit:?}")),
        }
    }
}
