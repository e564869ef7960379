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
/// Assumption about the original: `notify` and `listen` are full fences and are ordered with each
/// other. Either the listener is notified, or it was created after the notification and sees all
/// writes before it.
#[derive(Debug, Default)]
pub(crate) struct Event(Arc<Mutex<Listeners>>);

#[derive(Debug, Default)]
struct Listeners {
    next: usize,
    /// Listeners not notified yet, in order of creation.
    waiting: BTreeMap<usize, Option<Waker>>,
}

impl Event {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Ignores its argument and notifies all existing listeners, because that is what every caller
    /// wants.
    pub(crate) fn notify(&self, _: usize) {
        fence(Ordering::SeqCst);
        let mut listeners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let notified = mem::take(&mut listeners.waiting);
        drop(listeners);
        notified.into_values().flatten().for_each(Waker::wake);
    }

    pub(crate) fn total_listeners(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).waiting.len()
    }

    pub(crate) fn listen(&self) -> EventListener {
        let mut listeners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = listeners.next;
        listeners.next += 1;
        listeners.waiting.insert(place, None);
        drop(listeners);
        fence(Ordering::SeqCst);
        EventListener { listeners: Arc::clone(&self.0), place }
    }
}

/// Replaces `event_listener::EventListener`.
#[derive(Debug)]
pub(crate) struct EventListener {
    listeners: Arc<Mutex<Listeners>>,
    place: usize,
}

impl Future for EventListener {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(waker) = listeners.waiting.get_mut(&self.place) else {
            return Poll::Ready(());
        };
        let before = waker.replace(cx.waker().clone());
        drop(listeners);
        drop(before);
        Poll::Pending
    }
}

impl Drop for EventListener {
    fn drop(&mut self) {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        let waker = listeners.waiting.remove(&self.place);
        drop(listeners);
        drop(waker);
    }
}
