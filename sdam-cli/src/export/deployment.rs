//! A watched deployment, whose topology starts once its hosts are known.

use std::{
    cell::{OnceCell, RefCell},
    fmt::Display,
    future::pending,
    pin::pin,
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt, select_biased};
use sdam::{Runtime, Topology};
use sdam_events::sink::EventSink;
use tokio::{sync::Notify, time::sleep};

use super::{numbers::Numbers, targets::Named};
use crate::{page::Page, target::Target};

/// The pause after the first failed look-up; the pause doubles after each further failure.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause between look-ups.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A watched deployment: its metrics and, once its hosts are known, its topology.
pub(super) struct Deployment {
    /// The name and the connection string.
    pub(super) named: Named,
    numbers: Arc<Numbers>,
    log: Option<Arc<dyn EventSink>>,
    topology: OnceCell<Topology>,
    /// The reason why there is no topology yet; set when a look-up has failed.
    reason: RefCell<Option<String>>,
    /// Notified when the deployment is removed.
    removed: Notify,
}

impl Deployment {
    /// Creates a deployment that is not watched yet. Once it is, its events go to `numbers` and
    /// `log`.
    pub(super) fn new(
        named: Named,
        numbers: Arc<Numbers>,
        log: Option<Arc<dyn EventSink>>,
    ) -> Self {
        Self {
            named,
            numbers,
            log,
            topology: OnceCell::new(),
            reason: RefCell::new(None),
            removed: Notify::new(),
        }
    }

    /// Returns the topology, or the reason why it does not exist yet.
    pub(super) fn topology(&self) -> Result<&Topology, String> {
        self.topology.get().ok_or_else(|| {
            let reason = self.reason.borrow();
            reason.as_deref().unwrap_or("the first look-up of its hosts has not ended").to_owned()
        })
    }

    /// Watches the deployment until it is removed. Calls `remark` in the same cases as
    /// [`start`](Self::start).
    pub(super) async fn run(
        &self,
        target: &Target,
        runtime: &Runtime,
        remark: impl Fn(&dyn Display),
    ) {
        select_biased! {
            () = pin!(self.removed.notified().fuse()) => {}
            never = pin!(self.start(target, runtime, remark).then(|()| pending()).fuse()) => never,
        }
        self.close().await;
    }

    /// Causes [`run`](Self::run) to end.
    pub(super) fn remove(&self) {
        self.removed.notify_one();
    }

    /// Looks up the hosts of a `mongodb+srv` string until a look-up succeeds, and starts the
    /// topology.
    ///
    /// Calls `remark` with the first error of a look-up, with a note if a later look-up succeeds,
    /// and with each warning of the topology.
    async fn start(&self, target: &Target, runtime: &Runtime, remark: impl Fn(&dyn Display)) {
        let name = self.named.name.as_ref().map_or(String::new(), |name| format!("{name}: "));
        let mut pause = FIRST_PAUSE;
        loop {
            match self.try_start(target, runtime).await {
                Ok(topology) => {
                    if self.reason.take().is_some() {
                        remark(&format_args!("{name}the hosts are known now"));
                    }
                    for warning in topology.warnings() {
                        remark(&format_args!("warning: {name}{warning}"));
                    }
                    let _ = self.topology.set(topology);
                    return;
                }
                Err(error) => {
                    self.numbers.set_known();
                    if self.reason.replace(Some(error.clone())).is_none() {
                        let limit = LONGEST_PAUSE.as_secs();
                        let again = format!("trying again, at least every {limit} s");
                        remark(&format_args!("warning: {name}{error}; {again}"));
                    }
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn try_start(&self, target: &Target, runtime: &Runtime) -> Result<Topology, String> {
        let options = sdam::resolve(&self.named.uri, &runtime.backend).await;
        let mut builder = target.builder(options.map_err(|error| format!("{error:#}"))?);
        if let Some(log) = &self.log {
            builder = builder.sink(Arc::clone(log));
        }
        // Add the metrics last, so that every event that shows up on their page has already been
        // logged.
        builder
            .sink(Arc::clone(&self.numbers))
            .start(runtime.clone())
            .map_err(|error| error.to_string())
    }

    /// Returns the metrics.
    pub(super) fn metrics(&self) -> Page {
        self.numbers.page(self.topology.get())
    }

    /// Closes the topology.
    pub(super) async fn close(&self) {
        if let Some(topology) = self.topology.get() {
            topology.close().await;
        }
    }
}
