//! Manages the deployments that are watched: those of `--targets`, or the single deployment given
//! on the command line.

use std::{cell::RefCell, collections::BTreeMap, fmt::Display, rc::Rc, sync::Arc};

use futures::{
    StreamExt,
    channel::mpsc::{UnboundedReceiver, UnboundedSender},
    future::{join, join_all},
};
use sdam::Runtime;
use sdam_events::sink::EventSink;

use super::{
    deployment::Deployment,
    numbers::Numbers,
    reload::{Outcomes, Source},
    targets::Named,
};
use crate::{page::Page, target::Target};

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
    pub(super) start: UnboundedSender<Rc<Deployment>>,
}

type Members = BTreeMap<Option<String>, Rc<Deployment>>;

/// The numbers of deployments that a change of the targets has added, removed and left unchanged.
pub(super) struct Change {
    added: usize,
    removed: usize,
    unchanged: usize,
}

impl Fleet {
    /// Returns the deployment called `name`.
    pub(super) fn find(&self, name: &str) -> Option<Rc<Deployment>> {
        self.members.borrow().get(&Some(name.to_owned())).cloned()
    }

    /// Returns the single deployment, if the command line names one instead of `--targets`.
    pub(super) fn only(&self) -> Option<Rc<Deployment>> {
        self.members.borrow().values().find(|it| it.named.is_only()).cloned()
    }

    /// Returns the metrics of all deployments.
    pub(super) fn metrics(&self) -> Page {
        let mut page = self.outcomes.as_ref().map(Outcomes::page).unwrap_or_default();
        for deployment in self.members.borrow().values() {
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
        join(watched, followed).await;
    }

    /// Waits for changes of the targets, and applies each of them.
    async fn follow(
        &self,
        mut source: Source,
        outcomes: &Outcomes,
        remark: &impl Fn(&dyn Display),
    ) {
        // The last error, kept because each error is reported only once.
        let mut trouble = None;
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

    /// Returns whether `targets` contains exactly the current deployments.
    fn has(&self, targets: &[Named]) -> bool {
        let members = self.members.borrow();
        members.len() == targets.len() && targets.iter().all(|named| is_in(&members, named))
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
            if !is_in(&self.members.borrow(), named) {
                named.check(&self.target, &self.runtime)?;
            }
        }
        let (mut old, mut members, mut added) = (self.members.take(), BTreeMap::new(), 0);
        for named in targets {
            if is_in(&old, &named) {
                members.extend(old.remove_entry(&named.name));
                continue;
            }
            added += 1;
            members.insert(named.name.clone(), self.watch(named));
        }
        for deployment in old.values() {
            deployment.remove();
        }
        let change = Change { added, removed: old.len(), unchanged: members.len() - added };
        *self.members.borrow_mut() = members;
        Ok(change)
    }

    /// Creates a deployment, and passes it to [`run`](Self::run), which watches it.
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
        join_all(all.values().map(|it| it.close())).await;
    }
}

/// Returns whether `members` contains a deployment with the name and connection string of `named`.
fn is_in(members: &Members, named: &Named) -> bool {
    members.get(&named.name).is_some_and(|own| own.named.is(named))
}
