//! Manages the deployments that are watched: those of `--targets`, or the single deployment given
//! on the command line.

use std::{cell::RefCell, collections::BTreeMap, fmt::Display, rc::Rc, sync::Arc, time::Duration};

use futures::{
    StreamExt,
    channel::mpsc::{UnboundedReceiver, UnboundedSender},
    future::{join_all, join3},
};
use sdam::Runtime;
use sdam_core::time::Instant;
use sdam_events::sink::EventSink;

use super::{
    deployment::Deployment,
    numbers::Numbers,
    reload::{Outcomes, Source},
    targets::Named,
};
use crate::{page::Page, target::Target};

/// All deployments, whether or not they are currently watched, and the state that they share.
pub(super) struct Fleet {
    pub(super) target: Target,
    pub(super) runtime: Runtime,
    pub(super) log: Option<Arc<dyn EventSink>>,
    /// The metrics about reading `--targets`; `None` if the targets are not read repeatedly.
    pub(super) outcomes: Option<Outcomes>,
    /// The time for which a deployment is watched after a request has named it. If this is `None`,
    /// all deployments are watched all the time.
    pub(super) forget: Option<Duration>,
    /// The deployments by name.
    pub(super) members: RefCell<BTreeMap<Option<String>, Member>>,
    /// Sends new deployments to [`run`](Self::run).
    pub(super) start: UnboundedSender<Rc<Deployment>>,
}

/// A deployment, whether or not it is currently watched.
pub(super) struct Member {
    named: Named,
    /// The watched deployment; `None` while it is not watched.
    deployment: Option<Rc<Deployment>>,
    /// The time of the last request that named the deployment.
    asked: Instant,
}

/// The numbers of deployments that a change of the targets has added, removed and left unchanged.
pub(super) struct Change {
    added: usize,
    removed: usize,
    unchanged: usize,
}

impl Fleet {
    /// Returns the deployment called `name`, and starts watching it if necessary. Its connections
    /// are opened by [`run`](Self::run).
    pub(super) fn find(&self, name: &str) -> Option<Rc<Deployment>> {
        let mut members = self.members.borrow_mut();
        let member = members.get_mut(&Some(name.to_owned()))?;
        member.asked = self.runtime.backend.clock.now();
        let watch = || self.watch(member.named.clone());
        Some(Rc::clone(member.deployment.get_or_insert_with(watch)))
    }

    /// Returns the single deployment, if the command line names one instead of `--targets`.
    pub(super) fn only(&self) -> Option<Rc<Deployment>> {
        let members = self.members.borrow();
        members.values().find(|it| it.named.is_only())?.deployment.clone()
    }

    /// Returns the metrics of the watched deployments.
    pub(super) fn metrics(&self) -> Page {
        let mut page = self.outcomes.as_ref().map(Outcomes::page).unwrap_or_default();
        for deployment in self.members.borrow().values().filter_map(|it| it.deployment.as_ref()) {
            page.add(deployment.metrics());
        }
        page
    }

    /// Watches the deployments in `started`, and follows `source`. Never returns.
    ///
    /// Calls `remark` with each remark of a deployment, and with the outcome of each change of the
    /// targets.
    pub(super) async fn run(
        &self,
        started: UnboundedReceiver<Rc<Deployment>>,
        source: Option<Source>,
        remark: &impl Fn(&dyn Display),
    ) {
        let watched = started.for_each_concurrent(None, |deployment| async move {
            deployment.run(&self.target, &self.runtime, remark).await;
        });
        let followed = async {
            if let Some((source, outcomes)) = source.zip(self.outcomes.as_ref()) {
                self.follow(source, outcomes, remark).await;
            }
        };
        join3(watched, followed, self.forget()).await;
    }

    /// Waits for changes of the targets, and applies each of them.
    async fn follow(
        &self,
        mut source: Source,
        outcomes: &Outcomes,
        remark: &impl Fn(&dyn Display),
    ) {
        // The last error, kept because each error is reported only once. It is initially empty if a
        // URL has not been read yet, so that the first successful reading is reported like a
        // recovery.
        let mut trouble = (!source.is_read()).then(String::new);
        loop {
            let (targets, is_asked) = source.next().await;
            let is_same = targets.as_ref().is_ok_and(|targets| self.has(targets));
            if is_same && !is_asked && trouble.is_none() {
                continue;
            }
            let change = targets.and_then(|targets| self.change_to(targets));
            outcomes.set(change.is_ok(), &*self.runtime.backend.clock);
            match change {
                Ok(Change { added, removed, unchanged }) => {
                    if is_asked || trouble.take().is_some() || added + removed > 0 {
                        remark(&format_args!(
                            "{source} was read: {added} added, {removed} removed, {unchanged} unchanged"
                        ));
                    }
                }
                Err(error) => {
                    if is_asked || trouble.as_ref() != Some(&error) {
                        remark(&format_args!(
                            "warning: {error}; all deployments stay as they were"
                        ));
                    }
                    trouble = Some(error);
                }
            }
        }
    }

    /// Stops watching each deployment that no request has named for the duration `self.forget`.
    async fn forget(&self) {
        let Some(limit) = self.forget else {
            return;
        };
        let clock = &self.runtime.backend.clock;
        loop {
            let oldest = {
                let members = self.members.borrow();
                members.values().filter(|it| it.deployment.is_some()).map(|it| it.asked).min()
            };
            clock.sleep_until(oldest.unwrap_or_else(|| clock.now()) + limit).await;
            let now = clock.now();
            for member in self.members.borrow_mut().values_mut() {
                if member.asked + limit <= now
                    && let Some(deployment) = member.deployment.take()
                {
                    deployment.remove();
                }
            }
        }
    }

    /// Returns whether `targets` contains exactly the current deployments.
    fn has(&self, targets: &[Named]) -> bool {
        let members = self.members.borrow();
        let is_same =
            |named: &Named| members.get(&named.name).is_some_and(|old| old.named.is(named));
        members.len() == targets.len() && targets.iter().all(is_same)
    }

    /// Replaces the current deployments with those of `targets`. Unchanged deployments continue to
    /// run.
    ///
    /// # Errors
    ///
    /// If the connection string of a new deployment is invalid. In that case, all deployments stay
    /// as they were.
    pub(super) fn change_to(&self, targets: Vec<Named>) -> Result<Change, String> {
        for named in &targets {
            let members = self.members.borrow();
            if members.get(&named.name).is_none_or(|old| !old.named.is(named)) {
                named.check(&self.target, &self.runtime)?;
            }
        }
        let now = self.runtime.backend.clock.now();
        let (mut old, mut members, mut added) = (self.members.take(), BTreeMap::new(), 0);
        for named in targets {
            let name = named.name.clone();
            let former = old.get(&name);
            if former.is_some_and(|it| it.named.is(&named)) {
                members.extend(old.remove_entry(&name));
                continue;
            }
            added += 1;
            let is_watched =
                self.forget.is_none() || former.is_some_and(|it| it.deployment.is_some());
            let asked = former.map_or(now, |it| it.asked);
            let deployment = is_watched.then(|| self.watch(named.clone()));
            members.insert(name, Member { named, deployment, asked });
        }
        for deployment in old.values().filter_map(|it| it.deployment.as_ref()) {
            deployment.remove();
        }
        let change = Change { added, removed: old.len(), unchanged: members.len() - added };
        *self.members.borrow_mut() = members;
        Ok(change)
    }

    /// Creates a deployment with its sinks, and passes it to [`run`](Self::run), which watches it.
    fn watch(&self, named: Named) -> Rc<Deployment> {
        let numbers = Numbers::new(&named.labels(), &self.runtime.backend.clock);
        let deployment = Rc::new(Deployment::new(named, numbers, self.log.clone()));
        // Sending fails only if the receiver was dropped because the program is ending.
        let _ = self.start.unbounded_send(Rc::clone(&deployment));
        deployment
    }

    /// Closes all deployments.
    pub(super) async fn close(&self) {
        let all = self.members.take();
        let watched = all.values().filter_map(|it| it.deployment.as_ref());
        join_all(watched.map(|it| it.close())).await;
    }
}
