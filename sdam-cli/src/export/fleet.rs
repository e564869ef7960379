//! The deployments that are watched: those of `--targets`, or the single deployment given on the
//! command line. The topology of a deployment starts once its hosts are known.

use std::{
    cell::{OnceCell, RefCell},
    collections::BTreeMap,
    fmt::Display,
    future::pending,
    pin::pin,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use futures::{
    FutureExt, StreamExt,
    channel::mpsc::{UnboundedReceiver, UnboundedSender},
    future::{join, join_all},
    select_biased,
};
use sdam::{Runtime, Topology};
use sdam_events::sink::EventSink;
use tokio::{sync::Notify, time::sleep};

use super::{
    numbers::Numbers,
    targets::{Named, Outcomes, Source, Targets},
};
use crate::{page::Page, target::Target};

/// The pause after the first failed look-up; the pause doubles after each further failure.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause between look-ups.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The watched deployments, and the state that they share.
pub(super) struct Fleet {
    pub(super) target: Target,
    pub(super) runtime: Runtime,
    pub(super) log: Option<Arc<dyn EventSink>>,
    /// The metrics about reading `--targets`; `None` if the targets are not read repeatedly.
    pub(super) outcomes: Option<Outcomes>,
    /// The deployments by name.
    pub(super) members: RefCell<Members>,
    /// Sends new deployments to [`run`](Self::run).
    pub(super) start: UnboundedSender<Rc<Exported>>,
}

/// The end of the remark about a deployment that cannot be watched.
pub(super) const SKIPPED: &str = "this deployment is skipped, or stays as it was";

type Members = BTreeMap<Option<String>, Rc<Exported>>;

/// The numbers of deployments that a change of the targets has added, removed and left unchanged.
pub(super) struct Change {
    added: usize,
    removed: usize,
    unchanged: usize,
    /// The reasons why some deployments cannot be watched. If such a deployment was watched before
    /// the change, it continues to run unchanged.
    pub(super) invalid: Vec<String>,
}

impl Fleet {
    /// Returns the deployment called `name`.
    pub(super) fn find(&self, name: &str) -> Option<Rc<Exported>> {
        self.members.borrow().get(&Some(name.to_owned())).cloned()
    }

    /// Returns the single deployment, if the command line names one instead of `--targets`.
    pub(super) fn only(&self) -> Option<Rc<Exported>> {
        self.members.borrow().values().find(|it| it.named.origin.is_none()).cloned()
    }

    /// Returns the metrics of all deployments.
    pub(super) fn metrics(&self) -> Page {
        let mut page = self.outcomes.as_ref().map(Outcomes::page).unwrap_or_default();
        for deployment in self.members.borrow().values() {
            page.add(deployment.metrics());
        }
        page
    }

    /// Watches the deployments in `started`, and follows the changes of `source`. `known` are the
    /// errors of the first reading, which were already reported. Never returns.
    ///
    /// Calls `remark` with each remark of a deployment, and with the outcome of each change of the
    /// targets.
    pub(super) async fn run(
        &self,
        started: UnboundedReceiver<Rc<Exported>>,
        source: Option<Source>,
        known: Vec<String>,
        remark: &impl Fn(&dyn Display),
    ) {
        let watched = started.for_each_concurrent(None, |deployment| async move {
            deployment.run(&self.target, &self.runtime, remark).await;
        });
        let followed = async {
            if let Some((source, outcomes)) = source.zip(self.outcomes.as_ref()) {
                self.follow(source, outcomes, known, remark).await;
            }
        };
        join(watched, followed).await;
    }

    /// Waits for changes of the targets, and applies each of them.
    async fn follow(
        &self,
        mut source: Source,
        outcomes: &Outcomes,
        known: Vec<String>,
        remark: &impl Fn(&dyn Display),
    ) {
        // The last errors, kept because each error is reported only once.
        let mut trouble = known;
        loop {
            let (targets, is_asked) = source.next().await;
            let change = targets.and_then(|targets| self.change_to(targets));
            let (errors, is_changed) = match &change {
                Ok(change) => (change.invalid.clone(), change.added + change.removed > 0),
                Err(error) => (vec![error.clone()], false),
            };
            if !is_asked && !is_changed && errors == trouble {
                continue;
            }
            let invalid = change.as_ref().ok().map(|change| change.invalid.len());
            outcomes.set(invalid, &*self.runtime.backend.clock);
            let end = if invalid.is_some() { SKIPPED } else { "all deployments stay as they were" };
            for error in errors.iter().filter(|error| is_asked || !trouble.contains(error)) {
                remark(&format_args!("warning: {error}; {end}"));
            }
            if let Ok(Change { added, removed, unchanged, .. }) = change {
                remark(&format_args!(
                    "{source} was read: {added} added, {removed} removed, {unchanged} unchanged"
                ));
            }
            trouble = errors;
        }
    }

    /// Replaces the current deployments with those of `targets`. Unchanged deployments continue to
    /// run. A deployment whose new entry in `targets` is invalid also continues to run, with its
    /// old connection string.
    ///
    /// # Errors
    ///
    /// If no deployment of `targets` can be watched. In that case, all deployments stay as they
    /// were.
    pub(super) fn change_to(&self, targets: Targets) -> Result<Change, String> {
        let Targets { named, mut invalid } = targets;
        let mut valid = Vec::new();
        for named in named {
            let is_known = is_in(&self.members.borrow(), &named);
            let checked = if is_known { Ok(()) } else { named.check(&self.target, &self.runtime) };
            match checked {
                Ok(()) => valid.push(named),
                Err(error) => invalid.push((named.name.unwrap_or_default(), error)),
            }
        }
        if valid.is_empty() && !invalid.is_empty() {
            return Err(invalid.swap_remove(0).1);
        }
        let (mut old, mut members, mut added) = (self.members.take(), BTreeMap::new(), 0);
        for (name, _) in &invalid {
            members.extend(old.remove_entry(&Some(name.clone())));
        }
        for named in valid {
            if is_in(&old, &named) {
                members.extend(old.remove_entry(&named.name));
                continue;
            }
            added += 1;
            members.insert(named.name.clone(), self.watch(named));
        }
        for deployment in old.values() {
            deployment.removed.notify_one();
        }
        let unchanged = members.len() - added;
        let invalid = invalid.into_iter().map(|(_, error)| error).collect();
        let change = Change { added, removed: old.len(), unchanged, invalid };
        *self.members.borrow_mut() = members;
        Ok(change)
    }

    /// Creates a deployment, and passes it to [`run`](Self::run), which watches it.
    fn watch(&self, named: Named) -> Rc<Exported> {
        let numbers = Numbers::new(&named.labels(), &self.runtime.backend.clock);
        let deployment = Rc::new(Exported {
            named,
            numbers,
            log: self.log.clone(),
            topology: OnceCell::new(),
            reason: RefCell::new(None),
            removed: Notify::new(),
        });
        // Sending fails only if the receiver was dropped because the program is ending.
        let _ = self.start.unbounded_send(Rc::clone(&deployment));
        deployment
    }

    /// Closes all deployments.
    pub(super) async fn close(&self) {
        let all = self.members.take();
        join_all(all.values().map(|it| it.close())).await;
    }
}

/// A watched deployment: its metrics and, once its hosts are known, its topology.
pub(super) struct Exported {
    /// The name and the connection string.
    pub(super) named: Named,
    numbers: Arc<Numbers>,
    log: Option<Arc<dyn EventSink>>,
    topology: OnceCell<Topology>,
    /// The reason why there is no topology yet; set when a look-up has failed.
    reason: RefCell<Option<String>>,
    /// Notified when the deployment is removed, which ends [`run`](Self::run).
    removed: Notify,
}

impl Exported {
    /// Returns the topology, or the reason why it does not exist yet.
    pub(super) fn topology(&self) -> Result<&Topology, String> {
        self.topology.get().ok_or_else(|| {
            let reason = self.reason.borrow();
            reason.as_deref().unwrap_or("the first look-up of its hosts has not ended").to_owned()
        })
    }

    /// Watches the deployment until it is removed. Calls `remark` in the same cases as
    /// [`start`](Self::start).
    async fn run(&self, target: &Target, runtime: &Runtime, remark: impl Fn(&dyn Display)) {
        select_biased! {
            () = pin!(self.removed.notified().fuse()) => {}
            never = pin!(self.start(target, runtime, remark).then(|()| pending()).fuse()) => never,
        }
        self.close().await;
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
    async fn close(&self) {
        if let Some(topology) = self.topology.get() {
            topology.close().await;
        }
    }
}

/// Returns whether `members` contains a deployment with the name and connection string of `named`.
fn is_in(members: &Members, named: &Named) -> bool {
    members.get(&named.name).is_some_and(|own| own.named.is(named))
}
