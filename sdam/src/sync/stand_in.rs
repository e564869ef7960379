//! Replacements for `arc-swap` and `event-listener` in models, because loom does not see the
//! atomics of the originals.

use std::{
    collections::BTreeMap,
    future::Future,
    mem,
    ops::Deref,
    pin::Pin,
    sync::{Arc, PoisonError},
    task::{Context, Poll, Waker},
};

use super::{
    Mutex,
    atomic::{AtomicUsize, Ordering, fence},
};

/// Replaces `arc_swap::ArcSwap`.
///
/// Assumption about the original: a load returns one of the stored values, and sees all writes made
/// before that value was stored. It need not be the latest value, unless something else orders the
/// store of the latest value before the load.
pub(crate) struct ArcSwap<T> {
    /// All values ever stored. The lock is invisible to loom, so it orders nothing.
    values: std::sync::Mutex<Vec<Arc<T>>>,
    latest: AtomicUsize,
}

impl<T> ArcSwap<T> {
    pub(crate) fn from_pointee(value: T) -> Self {
        Self { values: std::sync::Mutex::new(vec![Arc::new(value)]), latest: AtomicUsize::new(0) }
    }

    pub(crate) fn load_full(&self) -> Arc<T> {
        let index = self.latest.load(Ordering::Acquire);
        let values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&values[index])
    }

    pub(crate) fn load(&self) -> Guard<Arc<T>> {
        Guard(self.load_full())
    }

    pub(crate) fn swap(&self, value: Arc<T>) -> Arc<T> {
        let index = {
            let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
            values.push(value);
            values.len() - 1
        };
        let previous = self.latest.swap(index, Ordering::AcqRel);
        let values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&values[previous])
    }
}

sdam_core::opaque!(ArcSwap<T>);

/// Replaces `arc_swap::Guard`.
#[derive(Debug)]
pub(crate) struct Guard<T>(T);

impl<T> Deref for Guard<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// Replaces `event_listener::Event`.
///
/// Assumptions about the original: a lock protects the list of listeners. `notify` and
/// `total_listeners` do not take this lock if the count of listeners is zero. `notify` begins with
/// a sequentially consistent fence. `listen` and `total_listeners` contain no fence, so
/// [`listen`](super::listen) and the callers of `total_listeners` add a fence.
#[derive(Debug, Default)]
pub(crate) struct Event(Arc<Listeners>);

#[derive(Debug, Default)]
struct Listeners {
    /// The number of waiting listeners, which is read without the lock.
    count: AtomicUsize,
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct List {
    next: usize,
    /// Listeners not notified yet, in order of creation.
    waiting: BTreeMap<usize, Option<Waker>>,
}

impl Listeners {
    fn change<T>(&self, change: impl FnOnce(&mut List) -> T) -> T {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        let before = list.waiting.len();
        let result = change(&mut list);
        if list.waiting.len() != before {
            self.count.store(list.waiting.len(), Ordering::Release);
        }
        result
    }
}

impl Event {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Notifies the first `count` listeners.
    pub(crate) fn notify(&self, count: usize) {
        fence(Ordering::SeqCst);
        if self.total_listeners() > 0 {
            let notified = self.0.change(|list| {
                let next = list.waiting.keys().nth(count).copied();
                let later = next.map(|next| list.waiting.split_off(&next));
                mem::replace(&mut list.waiting, later.unwrap_or_default())
            });
            notified.into_values().flatten().for_each(Waker::wake);
        }
    }

    pub(crate) fn total_listeners(&self) -> usize {
        self.0.count.load(Ordering::Acquire)
    }

    pub(crate) fn listen(&self) -> EventListener {
        let place = self.0.change(|list| {
            list.next += 1;
            list.waiting.insert(list.next, None);
            list.next
        });
        EventListener { listeners: Arc::clone(&self.0), place }
    }
}

/// Replaces `event_listener::EventListener`.
#[derive(Debug)]
pub(crate) struct EventListener {
    listeners: Arc<Listeners>,
    place: usize,
}

impl Future for EventListener {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let waker = cx.waker().clone();
        let before = self
            .listeners
            .change(|list| list.waiting.get_mut(&self.place).map(|place| place.replace(waker)));
        if before.is_some() { Poll::Pending } else { Poll::Ready(()) }
    }
}

impl Drop for EventListener {
    fn drop(&mut self) {
        drop(self.listeners.change(|list| list.waiting.remove(&self.place)));
    }
}
