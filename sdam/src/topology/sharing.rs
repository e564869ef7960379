//! The handles that share one deployment.

use std::sync::Arc;

use sdam_transport::{
    rare::{Point, rarely},
    spawn::Task,
};

use super::{lock::Lock, shared::Shared};
use crate::engine::{follower::Batch, panic::DeferredPanic};

/// The role of a topology in shared monitoring.
#[derive(Debug)]
pub(crate) enum Sharing {
    /// A topology that watches its deployment alone.
    Alone,
    /// A topology that watches a deployment for its handles. Applications hold only the handles.
    Watched(Box<Followers>),
    /// A handle on a deployment, with the topology that watches the deployment.
    Handle(Arc<Shared>),
}

/// The open handles on a deployment.
///
/// While the lock is held, handles follow the deployment's outputs, one after the other, each under
/// the lock of its own engine. A call that changes the deployment waits for the lock afterwards, so
/// all handles have caught up when the call returns. The lock is taken before the locks of the
/// engines, never after them.
#[derive(Debug, Default)]
pub(crate) struct Followers(Lock<Handles>);

#[derive(Debug, Default)]
struct Handles {
    open: Vec<Arc<Shared>>,
    /// The number of handles that are about to be opened.
    reserved: usize,
    /// True once the last handle has left; the deployment is then closed.
    closed: bool,
}

impl Handles {
    /// Returns true if the deployment has to be closed now.
    fn ends(&mut self) -> bool {
        let is_last = self.open.is_empty() && self.reserved == 0 && !self.closed;
        self.closed |= is_last;
        is_last
    }
}

impl Followers {
    /// Returns whether the last handle has left.
    pub(super) fn is_closed(&self) -> bool {
        self.0.lock().closed
    }

    /// Returns whether `handle` is the only open handle.
    pub(super) fn is_only(&self, handle: &Arc<Shared>) -> bool {
        let handles = self.0.lock();
        handles.reserved == 0 && matches!(&*handles.open, [own] if Arc::ptr_eq(own, handle))
    }

    /// Lets the handles catch up with what has happened to the deployment that `base` watches.
    pub(super) fn deliver(&self, base: &Shared) {
        let handles = self.0.lock();
        let rest = follow(&handles.open, &base.take_batches());
        drop(handles);
        finish(rest);
    }
}

/// Closes a handle and removes it. Returns whether it was the last one, in which case the
/// deployment that `base` watches has to be closed. Also returns the panic of one of the handle's
/// pools, if there was one.
pub(super) fn leave(base: &Shared, handle: &Arc<Shared>) -> (bool, DeferredPanic) {
    let Sharing::Watched(followers) = &base.sharing else {
        return (false, DeferredPanic::default());
    };
    let mut handles = followers.0.lock();
    handles.open.retain(|other| !Arc::ptr_eq(other, handle));
    let (tasks, panic, batches) = handle.close_view(base);
    let mut rest = follow(&handles.open, &batches);
    rest.push((Arc::clone(handle), tasks));
    let is_last = handles.ends();
    drop(handles);
    finish(rest);
    (is_last, panic)
}

/// A place for a new handle, which keeps the deployment open.
#[derive(Debug)]
pub(super) struct Place(Arc<Shared>);

impl Place {
    /// Reserves a place on the deployment that `base` watches. Returns `None` if it is closed.
    pub(super) fn reserve(base: Arc<Shared>) -> Option<Self> {
        let Sharing::Watched(followers) = &base.sharing else {
            return None;
        };
        let mut handles = followers.0.lock();
        if handles.closed {
            return None;
        }
        handles.reserved += 1;
        drop(handles);
        Some(Self(base))
    }

    /// Returns the first place on the deployment that `base` is going to watch.
    pub(super) fn first(base: Arc<Shared>) -> Self {
        if let Sharing::Watched(followers) = &base.sharing {
            followers.0.lock().reserved += 1;
        }
        Self(base)
    }

    /// Returns the topology that watches the deployment.
    pub(super) fn base(&self) -> &Arc<Shared> {
        &self.0
    }

    /// Adds the handle for which the place was reserved, and opens its view.
    pub(super) fn take(&self, handle: &Arc<Shared>) {
        let Sharing::Watched(followers) = &self.0.sharing else {
            return;
        };
        let mut handles = followers.0.lock();
        let (opened, batches) = handle.open_view(&self.0);
        let mut rest = follow(&handles.open, &batches);
        rest.push((Arc::clone(handle), opened));
        handles.open.push(Arc::clone(handle));
        drop(handles);
        finish(rest);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Sharing::Watched(followers) = &self.0.sharing {
            let mut handles = followers.0.lock();
            handles.reserved -= 1;
            let ends = handles.ends();
            drop(handles);
            if ends {
                self.0.shut_down();
            }
        }
    }
}

/// The handles whose readers have to be woken, and the tasks of their new pools. Both are dealt
/// with once the lock of [`Followers`] is released, because a woken task may drop a handle.
type Rest = Vec<(Arc<Shared>, Vec<Task>)>;

/// Lets the handles follow the batches. A pool's panic is not re-raised: the panic hook has
/// reported it, and it concerns no other handle.
fn follow(handles: &[Arc<Shared>], batches: &[Batch]) -> Rest {
    let mut rest = Rest::new();
    for batch in batches {
        let first = rest.len();
        rest.extend(handles.iter().map(|handle| (Arc::clone(handle), handle.follow(batch))));
        if rarely(Point::HandlesReversed) {
            rest.get_mut(first..).unwrap_or_default().reverse();
        }
    }
    rest
}

fn finish(rest: Rest) {
    for (handle, tasks) in rest {
        handle.wake_readers();
        handle.spawn_all(tasks);
    }
}
