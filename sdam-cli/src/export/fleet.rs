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
    targets::{Named, Targets},
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

/// The end of the remark about a deployment that cannot be watched.
pub(super) const SKIPPED: &str = "this deployment is skipped, or stays as it was";

type Members = BTreeMap<Option<String>, Rc<Deployment>>;

/// The numbers of deployments that a change of the targets has added, removed and left unchanged.
pub(super) struct Change {
    added: usize,
    removed: usize,
    unchanged: usize,
    /// The reasons why some cannot be watched. Of these, a deployment that was watched before stays
    /// as it was.
    pub(super) invalid: Vec<String>,
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

    /// Watches the deployments in `started`, and follows `source`, whose errors at the start were
    /// `known`. Never returns.
    ///
    /// Calls `remark` with each remark of a deployment, and with the outcome of each change of the
    /// targets.
    pub(super) async fn run(
        &self,
        started: UnboundedReceiver<Rc<Deployment>>,
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
    /// run, and so do those that cannot be watched as `targets` wants.
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
            deployment.remove();
        }
        let unchanged = members.len() - added;
        let invalid = invalid.into_iter().map(|(_, error)| error).collect();
        let change = Change { added, removed: old.len(), unchanged, invalid };
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
