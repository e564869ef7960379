//! The watched deployments, which follow the file of `--targets`.

use std::{fmt::Display, rc::Rc, sync::Arc};

use futures::{
    StreamExt,
    channel::mpsc::{UnboundedSender, unbounded},
    future::{join, join_all},
};
use sdam::Runtime;
use sdam_events::sink::EventSink;

use super::{
    deployment::Deployment,
    numbers::Numbers,
    otlp::Push,
    pages::Pages,
    reload::{Outcomes, Source},
    targets::Named,
};
use crate::target::Target;

/// All watched deployments, and the state that they share.
pub(super) struct Fleet {
    pub(super) target: Target,
    pub(super) runtime: Runtime,
    pub(super) log: Option<Arc<dyn EventSink>>,
    pub(super) push: Option<Push>,
    pub(super) pages: Pages,
}

/// The difference between two sets of deployments.
#[derive(Default)]
pub(super) struct Change {
    started: Vec<Rc<Deployment>>,
    stopped: Vec<Rc<Deployment>>,
    unchanged: usize,
}

impl Fleet {
    /// Watches the deployments, including those that are added to the file later. Never returns.
    ///
    /// Calls `remark` with the remarks of each deployment, and with the outcome of each change to
    /// the file.
    pub(super) async fn run(&self, source: Option<Source>, remark: &impl Fn(&dyn Display)) {
        let (start, started) = unbounded();
        for deployment in &*self.pages.deployments.borrow() {
            // Sending cannot fail, because the receiver still exists.
            let _ = start.unbounded_send(Rc::clone(deployment));
        }
        let watched = started.for_each_concurrent(None, |deployment: Rc<Deployment>| async move {
            deployment.run(&self.target, &self.runtime, remark).await;
        });
        let followed = async {
            if let Some((source, outcomes)) = source.zip(self.pages.outcomes.as_ref()) {
                self.follow(source, outcomes, &start, remark).await;
            }
        };
        join(watched, followed).await;
    }

    /// Applies each change to the file. Never returns.
    async fn follow(
        &self,
        mut source: Source,
        outcomes: &Outcomes,
        start: &UnboundedSender<Rc<Deployment>>,
        remark: &impl Fn(&dyn Display),
    ) {
        // The last error. It is reported only once.
        let mut trouble = None;
        loop {
            let (targets, is_asked) = source.next().await;
            let is_same = targets.as_ref().is_ok_and(|targets| self.watches(targets));
            if is_same && !is_asked && trouble.is_none() {
                continue;
            }
            let change = targets.and_then(|targets| self.change_to(targets));
            outcomes.set(change.is_ok(), &*self.runtime.backend.clock);
            match change {
                Ok(Change { started, stopped, unchanged }) => {
                    let (new, gone) = (started.len(), stopped.len());
                    if is_asked || trouble.take().is_some() || new + gone > 0 {
                        remark(&format_args!(
                            "{source} was read again: {new} started, {gone} stopped, {unchanged} unchanged"
                        ));
                    }
                    for deployment in started {
                        // Sending cannot fail, because the receiver lives as long as this future.
                        let _ = start.unbounded_send(deployment);
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

    /// Returns whether the watched deployments are exactly `targets`.
    fn watches(&self, targets: &[Named]) -> bool {
        let all = self.pages.deployments.borrow();
        all.len() == targets.len() && all.iter().zip(targets).all(|(it, named)| it.named.is(named))
    }

    /// Replaces the deployments with `targets`. Unchanged deployments continue; missing ones end.
    ///
    /// # Errors
    ///
    /// If the connection string of a new deployment is invalid. In that case, nothing is changed.
    pub(super) fn change_to(&self, targets: Vec<Named>) -> Result<Change, String> {
        let mut change =
            Change { stopped: self.pages.deployments.borrow().clone(), ..Change::default() };
        let same =
            |old: &[Rc<Deployment>], named: &Named| old.iter().position(|it| it.named.is(named));
        for named in targets.iter().filter(|named| same(&change.stopped, named).is_none()) {
            named.check(&self.target, &self.runtime)?;
        }
        let mut all = Vec::new();
        for named in targets {
            if let Some(place) = same(&change.stopped, &named) {
                all.push(change.stopped.swap_remove(place));
                change.unchanged += 1;
            } else {
                let new = Rc::new(self.deployment(named));
                change.started.push(Rc::clone(&new));
                all.push(new);
            }
        }
        for deployment in &change.stopped {
            deployment.remove();
        }
        *self.pages.deployments.borrow_mut() = all;
        Ok(change)
    }

    /// Creates a deployment with its sinks.
    fn deployment(&self, named: Named) -> Deployment {
        let backend = &self.runtime.backend;
        let labels = named.labels();
        let numbers = Numbers::new(&labels, &backend.clock);
        let records = self.push.iter().map(|push| push.sink(&labels, backend));
        Deployment::new(named, numbers, self.log.iter().cloned().chain(records).collect())
    }

    /// Closes all deployments.
    pub(super) async fn close(&self) {
        let all = self.pages.deployments.take();
        join_all(all.iter().map(|it| it.close())).await;
    }
}
